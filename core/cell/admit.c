/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * admit - the arrow at which the configured deciders say yes or no to a cell. They are made for the one
 * question and gone after it. Threads: one.
 */
#include "warden.h"

static void attribute(struct cella_attribute *a, uint32_t *n, const char *name, const char *value)
{
    if (value)
        a[(*n)++] = (struct cella_attribute){name, {value, strlen(value)}};
}

static int ask(struct warden *w, struct decider *chain, size_t n, struct cella_error *err)
{
    auto_free char *argv = w->req.argv ? json_dumps(w->req.argv, JSON_COMPACT) : NULL;
    struct cella_attribute at[8];
    struct cella_request q = {.hdr = CELLA_HDR_INIT(struct cella_request, CELLA_KIND_REQUEST),
                              .operation = "cell.create",
                              .cell_id = w->dir.id,
                              .attributes = at,
                              .attribute_stride = sizeof(at[0])};
    struct cella_verdict v = {.hdr = CELLA_HDR_INIT(struct cella_verdict, CELLA_KIND_VERDICT)};
    const char *who = NULL;
    int r;

    attribute(at, &q.n_attributes, "class", w->class->name);
    attribute(at, &q.n_attributes, "backend", w->backend_plugin->name);
    attribute(at, &q.n_attributes, "strength", strength_name(w->probe.probe.strength));
    attribute(at, &q.n_attributes, "image", w->req.image ? w->req.image : w->class->image);
    attribute(at, &q.n_attributes, "policy", w->policy.name);
    attribute(at, &q.n_attributes, "user", w->req.user);
    attribute(at, &q.n_attributes, "argv", argv);
    deciders_decide(chain, n, &q, &v, &who);
    r = warden_audit(w, err, "cell.admit", "s:verdict", v.value == CELLA_ALLOW ? "allow" : "deny",
                     "s:decider", who, "s:rule", v.rule, "s:reason", v.reason, NULL);
    if (r < 0 || v.value == CELLA_ALLOW)
        return r;
    return fail(err, -EPERM, "decider %s denied the cell%s%s: %s", who ? who : "chain",
                v.rule[0] ? " by rule " : "", v.rule, v.reason[0] ? v.reason : "no reason given");
}

int admit_cell(struct warden *w, struct cella_error *err)
{
    struct decider *chain = calloc(w->config->n_deciders + 1, sizeof(*chain));
    struct option_set *options;
    size_t n = 0, i;
    int r = chain ? 0 : fail(err, -ENOMEM, "deciders: out of memory");

    for (i = 0; r == 0 && i < w->config->n_deciders; i++) {
        struct plugin *p;
        r = catalog_find(w->config, CELLA_KIND_DECIDER, w->config->deciders[i], &p, err);
        if (r < 0)
            break;
        options = NULL;
        r = catalog_options(w->config, p, NULL, &options, err);
        if (r == 0)
            r = decider_create(p, &w->plain.table, option_set_get(options), &chain[n], err);
        option_set_free(options);
        if (r == 0)
            n++;
        else
            plugin_unload(p);
    }
    if (r == 0)
        r = ask(w, chain, n, err);
    for (i = 0; i < n; i++) {
        struct plugin *p = chain[i].plugin;
        decider_destroy(&chain[i]);
        plugin_unload(p);
    }
    free(chain);
    return r;
}
