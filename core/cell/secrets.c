/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * secrets - the secret providers of the config, and the one way from them to the enforcer.
 *
 * A value goes from the provider into the buffer of the enforcer; this file never holds one. Each use
 * and each refusal is an event with name, purpose and provider; a use that cannot be recorded does
 * not happen. Only the enforcer's host table has the operation: a backend or a sink cannot ask.
 *
 * When a provider says that something changed and the cell has used secrets, the policy in force is applied
 * again under the next generation, so that the gate fetches what it needs anew. Threads: one.
 */
#include "warden.h"

#define VALUE_MAX 65536u
#define PURPOSE_MAX 128u
#define SETTLE_NS 200000000ull /* several files that change together are one change */

struct secret_slot {
    struct warden *warden;
    const char *name; /* of the provider; the config's */
    struct plugin *plugin;
    struct option_set *options;
    struct secret_provider provider;
    int watched; /* descriptor, -1 = not watched now */
    int changed;
};

static void settled(void *data)
{
    struct warden *w = data;
    struct errbuf eb;
    size_t i;
    int r;

    w->secrets_timer = 0;
    if (w->ended || !w->enforcer_on || !w->secrets_used)
        return;
    for (i = 0; i < w->n_secrets && !w->secrets[i].changed; i++)
        ;
    if (i == w->n_secrets)
        return;
    for (; i < w->n_secrets; i++)
        w->secrets[i].changed = 0;
    r = policy_again(w, errbuf_init(&eb));
    warden_audit(w, NULL, "secret.rotated", "i:gen", (int64_t)w->generation, "s:message",
                 r < 0 ? eb.text : NULL, NULL);
}

/* Watched again when somebody has fetched a value, which makes the descriptor unreadable. */
static void rotated(void *data, int fd, uint32_t ready)
{
    struct secret_slot *s = data;
    struct warden *w = s->warden;

    (void)ready;
    loop_unwatch(w->loop, fd);
    s->watched = -1;
    s->changed = 1;
    if (!w->secrets_timer)
        w->secrets_timer = loop_timer(w->loop, SETTLE_NS, settled, w);
}

static void watch(struct secret_slot *s)
{
    int fd = s->watched < 0 ? secret_rotate_fd(&s->provider) : -1;

    if (fd >= 0 && loop_watch(s->warden->loop, fd, CELLA_FD_IN, rotated, s) == 0)
        s->watched = fd;
}

static int slot_load(struct warden *w, const struct config_secret *c, struct secret_slot *s,
                     struct cella_error *err)
{
    struct errbuf eb;
    int r = catalog_find(w->config, CELLA_KIND_SECRET, c->name, &s->plugin, errbuf_init(&eb));

    *s = (struct secret_slot){w, c->name, s->plugin, NULL, {NULL, NULL}, -1, 0};
    if (r < 0)
        return json_at_fail(&w->config->doc, c->pointer, 0, err, "%s", eb.text);
    r = option_set_parse(s->plugin->options, s->plugin->n_options, s->plugin->option_stride,
                         &w->config->doc, c->pointer, c->options, &s->options, err);
    if (r < 0)
        return r;
    r = secret_create(s->plugin, &w->plain.table, option_set_get(s->options), &s->provider,
                      errbuf_init(&eb));
    if (r < 0)
        return json_at_fail(&w->config->doc, c->pointer, 0, err, "%s", eb.text);
    watch(s);
    return 0;
}

int secrets_load(struct warden *w, struct cella_error *err)
{
    size_t i;
    int r = 0;

    if (!w->config->n_secrets)
        return 0;
    w->secrets = calloc(w->config->n_secrets, sizeof(*w->secrets));
    if (!w->secrets)
        return fail(err, -ENOMEM, "secret providers: out of memory");
    for (i = 0; r == 0 && i < w->config->n_secrets; i++) {
        w->n_secrets++; /* the undo copes with half a slot */
        r = slot_load(w, &w->config->secrets[i], &w->secrets[i], err);
    }
    return r;
}

void secrets_undo(struct warden *w)
{
    loop_timer_cancel(w->loop, w->secrets_timer);
    w->secrets_timer = 0;
    while (w->n_secrets) {
        struct secret_slot *s = &w->secrets[--w->n_secrets];
        if (s->watched >= 0)
            loop_unwatch(w->loop, s->watched);
        secret_destroy(&s->provider);
        option_set_free(s->options);
        plugin_unload(s->plugin);
    }
    free(w->secrets);
    w->secrets = NULL;
}

/* ---- a value ---- */

static int purpose_valid(const char *s)
{
    size_t n;

    for (n = 0; s[n]; n++)
        if (s[n] < 0x20 || s[n] > 0x7e || n == PURPOSE_MAX)
            return 0;
    return n > 0;
}

static int64_t ask(struct warden *w, const char *name, const char *purpose, char *buf, uint64_t cap,
                   const char **ret_provider, struct cella_error *err)
{
    const struct cella_secret_query q = {
        .hdr = CELLA_HDR_INIT(struct cella_secret_query, CELLA_KIND_SECRET_QUERY),
        .name = name,
        .tenant = "",
        .purpose = purpose};
    int64_t n = -ENOENT;
    size_t i;

    for (i = 0; n == -ENOENT && i < w->n_secrets; i++) {
        n = secret_get(&w->secrets[i].provider, &q, buf, cap, err);
        watch(&w->secrets[i]);
        *ret_provider = w->secrets[i].name;
    }
    return n == 0 ? fail(err, -ENODATA, "secret \"%s\" is empty", name) : n;
}

static int class_allows(const struct config_class *c, const char *name, struct cella_error *err)
{
    size_t i;

    for (i = 0; c->secrets_listed && i < c->n_secrets; i++)
        if (!strcmp(c->secrets[i], name))
            return 0;
    return c->secrets_listed ? fail(err, -EACCES,
                                    "secret \"%s\": policies of class \"%s\" may not use it; the "
                                    "class's \"secrets\" in the config does not list it",
                                    name, c->name)
                             : 0;
}

int64_t secret_value(struct warden *w, const char *name, const char *purpose, char *buf,
                     uint64_t cap, struct cella_error *err)
{
    const char *provider = NULL;
    struct errbuf eb;
    struct cella_error *own = errbuf_init(&eb);
    int64_t n;

    if (!name || !name_valid(name) || !purpose || !purpose_valid(purpose) || !buf || !cap)
        return fail(err, -EINVAL, "a secret needs a name, a purpose and room for its value");
    if (cap > VALUE_MAX)
        cap = VALUE_MAX;
    if (!w->n_secrets)
        n = fail(own, -ENOTSUP,
                 "secret \"%s\": no secret provider is configured; name one under \"secrets\" in "
                 "the config",
                 name);
    else
        n = class_allows(w->class, name, own);
    if (n == 0)
        n = ask(w, name, purpose, buf, cap, &provider, own);
    if (n < 0) {
        explicit_bzero(buf, cap);
        warden_audit(w, NULL, "secret.refused", "s:name", name, "s:purpose", purpose, "s:provider",
                     provider, "s:message", eb.text, NULL);
        return fail(err, (int)n, "%s", eb.text);
    }
    if (warden_audit(w, err, "secret.used", "s:name", name, "s:purpose", purpose, "s:provider",
                     provider, NULL) < 0) {
        explicit_bzero(buf, cap);
        return -EIO;
    }
    w->secrets_used = 1;
    return n;
}
