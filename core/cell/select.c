/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * select - class, floor and probe answers to one backend; or a refusal that names every candidate
 * and why it does not do. A cell below its floor is refused, never weakened.
 *
 * The order is the class's; without one, strongest first. The example backend "null" boots nothing
 * and is taken only when it is named; so is one whose cells have no network device, unless the policy
 * is "none": a denied attempt is to be recorded.
 */
#include "image.h"
#include "warden.h"

struct candidate {
    struct plugin *plugin; /* NULL: could not be loaded */
    struct probe_result probe;
    char name[64];
    char reason[512]; /* empty = usable */
};

struct selection {
    struct warden *w;
    struct candidate *v;
    size_t n;
};

static struct candidate *candidate_add(struct selection *s, const char *name)
{
    struct candidate *v = realloc(s->v, (s->n + 1) * sizeof(*v));

    if (!v)
        return NULL;
    s->v = v;
    v = &v[s->n++];
    memset(v, 0, sizeof(*v));
    snprintf(v->name, sizeof(v->name), "%s", name);
    return v;
}

/* What such a backend's cells lack; NULL when the policy can be kept there as it is elsewhere. */
static const char *lacks_network(const struct selection *s, const struct candidate *c, int named)
{
    if (c->probe.probe.net_need != CELLA_NET_NONE)
        return NULL;
    if (!policy_closed(s->w))
        return "its cells have no network device; only the policies \"none\" and \"deny\" can be "
               "kept there";
    if (!named && !policy_is(s->w, "none"))
        return "its cells have no network device, so what they try would not be recorded; it is "
               "taken when it is named";
    return NULL;
}

static void candidate_probe(struct selection *s, struct candidate *c, int named)
{
    const struct config_class *class = s->w->class;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    if (!c->plugin)
        return;
    if (backend_probe(c->plugin, &s->w->plain.table, CELLA_PROBE_QUICK, &c->probe, err) < 0)
        snprintf(c->reason, sizeof(c->reason), "%.500s", eb.text);
    else if (c->probe.probe.strength < class->floor)
        snprintf(c->reason, sizeof(c->reason), "strength here is %s, the class's floor is %s",
                 strength_name(c->probe.probe.strength), strength_name(class->floor));
    else if (lacks_network(s, c, named))
        snprintf(c->reason, sizeof(c->reason), "%s", lacks_network(s, c, named));
    /* where there is a choice, what cannot show the image is none; alone it says so itself, later */
    else if (s->n > 1 && image_possible(s->w->config->state_dir, request_image(s->w),
                                        c->probe.probe.root_need, request_kernel(s->w), err) < 0)
        snprintf(c->reason, sizeof(c->reason), "%.500s", eb.text);
}

static void add_broken(void *ctx, const char *path, const struct cella_error *err)
{
    const char *base = strrchr(path, '/');
    struct candidate *c = candidate_add(ctx, base ? base + 1 : path);

    if (c)
        snprintf(c->reason, sizeof(c->reason), "%.500s", err->msg);
}

static void add_named(struct selection *s, const char *name)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct candidate *c = candidate_add(s, name);

    if (!c)
        return;
    if (catalog_find(s->w->config, CELLA_KIND_BACKEND, name, &c->plugin, err) < 0)
        snprintf(c->reason, sizeof(c->reason), "%.500s", eb.text);
}

static void add_all(struct selection *s)
{
    struct plugin **all = NULL;
    size_t n = 0, i;

    catalog_all(s->w->config, CELLA_KIND_BACKEND, &all, &n, add_broken, s);
    for (i = 0; i < n; i++) {
        struct candidate *c = strcmp(all[i]->name, "null") ? candidate_add(s, all[i]->name) : NULL;
        if (c)
            c->plugin = all[i];
        else
            plugin_unload(all[i]);
    }
    free(all);
}

static int class_allows(const struct config_class *class, const char *backend)
{
    size_t i;

    for (i = 0; i < class->n_backends; i++)
        if (!strcmp(class->backends[i], backend))
            return 1;
    return class->n_backends == 0;
}

static int gather(struct selection *s, struct cella_error *err)
{
    struct warden *w = s->w;
    size_t i;

    if (w->req.backend) {
        if (!class_allows(w->class, w->req.backend))
            return fail(
                err, -EPERM,
                "class \"%s\" does not allow backend \"%s\"; it lists its backends in the config",
                w->class->name, w->req.backend);
        add_named(s, w->req.backend);
    } else if (w->class->n_backends) {
        for (i = 0; i < w->class->n_backends; i++)
            add_named(s, w->class->backends[i]);
    } else {
        add_all(s);
    }
    return 0;
}

/* First usable in the class's order; without an order, the strongest. */
static struct candidate *choose(struct selection *s, int ordered)
{
    struct candidate *best = NULL;
    size_t i;

    for (i = 0; i < s->n; i++) {
        struct candidate *c = &s->v[i];
        candidate_probe(s, c, ordered);
        if (c->reason[0] || !c->plugin)
            continue;
        if (!best || c->probe.probe.strength > best->probe.probe.strength)
            best = c;
        if (ordered)
            break;
    }
    return best;
}

static int refuse(const struct selection *s, struct cella_error *err)
{
    auto_buf struct buf b = BUF_INIT;
    size_t i;

    for (i = 0; i < s->n; i++)
        buf_addf(&b, "%s%s: %s", i ? "; " : "", s->v[i].name, s->v[i].reason);
    return fail(err, -ENOTSUP,
                "class \"%s\": no backend can run this cell (%s). Choose another class, or see "
                "cella doctor",
                s->w->class->name, b.len ? b.ptr : "none is installed");
}

int select_backend(struct warden *w, struct cella_error *err)
{
    struct selection s = {.w = w};
    struct candidate *best = NULL;
    size_t i;
    int r = gather(&s, err);

    if (r == 0) {
        best = choose(&s, w->req.backend || w->class->n_backends);
        if (!best)
            r = refuse(&s, err);
    }
    for (i = 0; i < s.n; i++)
        if (&s.v[i] != best && s.v[i].plugin)
            plugin_unload(s.v[i].plugin);
    if (best) {
        w->backend_plugin = best->plugin;
        w->probe = best->probe;
    }
    free(s.v);
    return r;
}
