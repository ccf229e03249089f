/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * calls - what a client may ask of a warden, one function each, driven by the table at the end. A call answers by
 * peer_reply_ok(), now or later, or fails and is answered with the error; never both. Threads: the warden's one.
 */
#include "control.h"
#include "warden.h"

json_t *created_json(struct warden *w)
{
    static const char *const members[] = {"id",    "name",   "class",  "backend",    "strength",
                                          "image", "digest", "policy", "generation", "address"};
    json_t *o = json_object(), *v;
    size_t i;

    for (i = 0; i < ARRAY_LEN(members); i++)
        if ((v = json_object_get(w->cell, members[i])))
            json_object_set(o, members[i], json_is_object(v) ? json_object_get(v, "name") : v);
    return o;
}

static int call_start(struct peer *p, json_t *args, const struct pending *from,
                      struct cella_error *err)
{
    struct warden *w = p->warden;

    (void)args;
    if (w->state != W_CREATED)
        return fail(err, -EPROTO, "start: the cell has been started before; a cell runs once");
    if (w->ended) /* who asked for the start that failed is not answered yet */
        return fail(err, -EPROTO, "start: the cell has ended; a cell runs once");
    w->starter = *from;
    warden_step(w, "start", now_ns());
    w->start_error = cell_start(w, err); /* answered when the cell has ended, with its reason */
    return 0;
}

/* It waits as long as its parent or, with a lease, as long as the client that is about to use it. */
static int made_spare(struct peer *p, const struct pending *from, struct cella_error *err)
{
    struct warden *w = p->warden;
    int r = spare_wait(w, !p->lease, err);

    if (r < 0) {
        arrows_undo(w, 0);
        request_fini(&w->req);
        return r;
    }
    if (p->dead && p->lease)
        cell_end(w, "stop", "the client that held it went away");
    peer_reply_ok(w, from, created_json(w));
    return 0;
}

/* On failure it is gone; the warden ends with its last client. */
static int call_become(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    struct warden *w = p->warden;
    struct peer *each;
    int r;

    if (w->state != W_SPARE || w->ended)
        return fail(err, -EBUSY, "become: this is no machine that waits for a fork");
    for (each = w->peers; each; each = each->next)
        each->lease = 0; /* a child belongs to nobody's connection */
    r = spare_become(w, args, err);
    if (r < 0)
        return r;
    return w->req.start ? call_start(p, NULL, from, err)
                        : (peer_reply_ok(w, from, created_json(w)), 0);
}

static int call_create(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    struct warden *w = p->warden;
    int r;

    if (w->state != W_NEW)
        return fail(err, -EEXIST, "create: this warden has its cell already");
    r = request_parse(args, &w->req, err);
    p->lease = r == 0 && w->req.lease; /* from the first moment on */
    if (r == 0)
        r = arrows_run(w, err);
    if (r < 0) {
        request_fini(&w->req);
        return r;
    }
    if (w->req.spare_of)
        return made_spare(p, from, err);
    w->state = W_CREATED;
    json_object_set_new(w->cell, "state", json_string("created"));
    if (!w->req.start) /* else "running" follows at once */
        warden_save(w);
    if (p->dead && p->lease) { /* it went away while the cell was made */
        w->remove_at_end = 1;
        cell_end(w, "stop", "the client that held the cell went away");
        return 0;
    }
    if (w->req.start)
        return call_start(p, NULL, from, err);
    peer_reply_ok(w, from, created_json(w));
    return 0;
}

static int call_pause(struct peer *p, json_t *args, const struct pending *from,
                      struct cella_error *err)
{
    int r = cell_pause(p->warden, 1, err);

    (void)args;
    if (r == 0)
        peer_reply_ok(p->warden, from, NULL);
    return r;
}

static int call_resume(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    int r = cell_pause(p->warden, 0, err);

    (void)args;
    if (r == 0)
        peer_reply_ok(p->warden, from, NULL);
    return r;
}

static int call_stats(struct peer *p, json_t *args, const struct pending *from,
                      struct cella_error *err)
{
    struct cella_stats s;
    int r = limits_sample(p->warden, &s);

    (void)args;
    if (r < 0)
        return fail(err, r, "stats: not available from the backend now: %s", strerror(-r));
    peer_reply_ok(p->warden, from, stats_json(&s));
    return 0;
}

json_t *limits_json(const struct config_limits *l)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "memory", (json_int_t)l->memory,
                     "disk", (json_int_t)l->disk, "cpu_millis", (json_int_t)l->cpu_millis, "pids",
                     (json_int_t)l->pids, "io_read_bps", (json_int_t)l->io_read_bps, "io_write_bps",
                     (json_int_t)l->io_write_bps, "wall_ns", (json_int_t)l->wall_ns, "idle_ns",
                     (json_int_t)l->idle_ns);
}

static int call_inspect(struct peer *p, json_t *args, const struct pending *from,
                        struct cella_error *err)
{
    struct warden *w = p->warden;
    json_t *o = json_deep_copy(w->cell), *spares;
    struct cella_stats s;
    uint64_t seq = 0;
    char head[65] = "";

    (void)args;
    if (!o)
        return fail(err, -ENOMEM, "inspect: out of memory");
    json_object_set_new(o, "limits", limits_json(&w->req.limits));
    if (limits_sample(w, &s) == 0)
        json_object_set_new(o, "usage", stats_json(&s));
    json_object_set_new(o, "egress", egress_json(w));
    if ((spares = spares_json(w)))
        json_object_set_new(o, "spares", spares);
    if (json_object_get(o, "reach"))
        json_object_set_new(json_object_get(o, "reach"), "stale",
                            json_boolean(reach_stale(w, json_object_get(o, "reach"))));
    if (w->req.argv)
        json_object_set(o, "argv", w->req.argv);
    if (w->audit)
        audit_head(w->audit, &seq, head);
    json_object_set_new(o, "chain", json_pack("{s:I, s:s}", "seq", (json_int_t)seq, "head", head));
    peer_reply_ok(w, from, o);
    return 0;
}

static int call_method(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    struct warden *w = p->warden;
    const char *full = json_string_value(json_object_get(args, "method"));
    const char *dot = full ? strchr(full, '.') : NULL;
    auto_free char *given = NULL;
    json_t *result = NULL, *margs = json_object_get(args, "args");
    struct plugin *plugin;
    void *self;
    size_t n;
    int r;

    if (!dot)
        return fail(err, -EINVAL,
                    "call: \"method\" must be PLUGIN.METHOD, such as container.mounts");
    n = (size_t)(dot - full);
    plugin = w->backend_plugin && strlen(w->backend_plugin->name) == n &&
                     !strncmp(full, w->backend_plugin->name, n)
                 ? w->backend_plugin
                 : NULL;
    self = w->backend.self;
    if (!plugin && w->enforcer_on && strlen(w->enforcer_plugin->name) == n &&
        !strncmp(full, w->enforcer_plugin->name, n)) {
        plugin = w->enforcer_plugin;
        self = w->enforcer.self;
    }
    if (!plugin || !self || w->ended)
        return fail(err, -ENOENT, "call %s: the cell's plugins are %s and %s", full,
                    w->backend_plugin ? w->backend_plugin->name : "-",
                    w->enforcer_plugin ? w->enforcer_plugin->name : "-");
    r = method_call(plugin, self, dot + 1, margs, &result, err);
    given = margs ? json_dumps(margs, JSON_COMPACT) : NULL;
    warden_audit(w, NULL, "cell.call", "s:method", full, "s:args", given, "i:result", (int64_t)r,
                 NULL);
    if (r < 0)
        return r;
    peer_reply_ok(w, from, json_pack("{s:o}", "result", result ? result : json_null()));
    return 0;
}

static int call_policy(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    json_t *result = NULL;
    int r = policy_change(p->warden, args, &result, err);

    if (r == 0)
        peer_reply_ok(p->warden, from, result);
    return r;
}

static int call_phase(struct peer *p, json_t *args, const struct pending *from,
                      struct cella_error *err)
{
    json_t *result = NULL;
    int r = policy_phase(p->warden, args, &result, err);

    if (r == 0)
        peer_reply_ok(p->warden, from, result);
    return r;
}

static int call_reach(struct peer *p, json_t *args, const struct pending *from,
                      struct cella_error *err)
{
    json_int_t ms = json_integer_value(json_object_get(args, "ms"));

    return ms < 0 ? fail(err, -EINVAL, "reach: a time is not negative")
                  : reach_begin(p->warden, from, (uint64_t)ms, err);
}

/* Who has gone away waits no more. */
static void waiters_prune(struct warden *w)
{
    size_t i, n = 0;

    for (i = 0; i < w->n_waiters; i++)
        if (peer_find(w, w->waiters[i].peer))
            w->waiters[n++] = w->waiters[i];
    w->n_waiters = n;
}

static int waiter_add(struct warden *w, const struct pending *from, struct cella_error *err)
{
    waiters_prune(w);
    if (w->n_waiters == ARRAY_LEN(w->waiters))
        return fail(err, -EBUSY, "too many clients wait for this cell");
    w->waiters[w->n_waiters++] = *from;
    return 0;
}

static int call_wait(struct peer *p, json_t *args, const struct pending *from,
                     struct cella_error *err)
{
    p->one_command = json_is_true(json_object_get(args, "command"));
    return waiter_add(p->warden, from, err);
}

static int call_stop(struct peer *p, json_t *args, const struct pending *from,
                     struct cella_error *err)
{
    json_t *timeout = json_object_get(args, "timeout_ms");
    json_int_t ms = json_is_integer(timeout) ? json_integer_value(timeout) : 10000;
    int r = waiter_add(p->warden, from, err);

    if (r < 0)
        return r;
    cell_stop(p->warden, json_is_true(json_object_get(args, "kill")),
              ms < 0        ? 0
              : ms > 600000 ? 600000
                            : (uint32_t)ms);
    return 0;
}

static int call_rm(struct peer *p, json_t *args, const struct pending *from,
                   struct cella_error *err)
{
    struct warden *w = p->warden;
    int r;

    if (!json_is_true(json_object_get(args, "force")) && !p->lease && w->state != W_CREATED &&
        w->state != W_SPARE && !w->ended)
        return fail(err, -EBUSY, "rm: the cell is %s; stop it first, or use --force",
                    w->state == W_PAUSED ? "paused" : "running");
    r = waiter_add(w, from, err);
    if (r < 0)
        return r;
    w->remove_at_end = 1;
    cell_end(w, p->lease && w->commands_ended ? "exit" : "stop", NULL);
    return 0;
}

static int call_snapshot(struct peer *p, json_t *args, const struct pending *from,
                         struct cella_error *err)
{
    json_t *manifest = NULL;
    int r = cell_snapshot(p->warden, args, &manifest, err);

    if (r == 0)
        peer_reply_ok(p->warden, from, manifest);
    return r;
}

static int call_update(struct peer *p, json_t *args, const struct pending *from,
                       struct cella_error *err)
{
    return cell_update(p->warden, args, from, err);
}

static const struct call {
    const char *name;
    int any_state; /* allowed before create */
    int spare;     /* and of a machine that waits for a fork */
    int (*go)(struct peer *p, json_t *args, const struct pending *from, struct cella_error *err);
} calls[] = {
    {"create", 1, 1, call_create}, {"start", 0, 0, call_start},
    {"pause", 0, 0, call_pause},   {"resume", 0, 0, call_resume},
    {"stats", 0, 0, call_stats},   {"inspect", 0, 1, call_inspect},
    {"call", 0, 0, call_method},   {"wait", 0, 1, call_wait},
    {"stop", 0, 1, call_stop},     {"rm", 0, 1, call_rm},
    {"policy", 0, 0, call_policy}, {"phase", 0, 0, call_phase},
    {"reach", 0, 0, call_reach},   {"snapshot", 0, 0, call_snapshot},
    {"update", 0, 0, call_update}, {"spares", 0, 0, call_spares},
    {"spare", 0, 0, call_spare},   {"become", 0, 1, call_become},
};

void peer_call(struct peer *p, uint32_t id, json_t *message)
{
    const char *name = json_string_value(json_object_get(message, "call"));
    struct pending from = {p->serial, id};
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    size_t i;
    int r;

    if (json_is_true(json_object_get(message, "progress")))
        p->warden->steps_to = p->serial;
    for (i = 0; name && i < ARRAY_LEN(calls) && strcmp(calls[i].name, name); i++)
        ;
    if (!name || i == ARRAY_LEN(calls))
        r = fail(err, -ENOSYS, "call \"%.64s\": unknown to this warden", name ? name : "");
    else if (!calls[i].any_state && p->warden->state == W_NEW)
        r = fail(err, -ENOENT, "%s: there is no cell yet", name);
    else if (!calls[i].spare && p->warden->state == W_SPARE)
        r = fail(err, -EPROTO,
                 "%s: this is no cell yet, but a machine that is prepared for the next fork of %s",
                 name, p->warden->req.spare_of);
    else
        r = calls[i].go(p, json_object_get(message, "args"), &from, err);
    if (r < 0)
        peer_reply_error(p->warden, &from, err);
}
