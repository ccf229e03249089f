/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * update - other limits for a cell that runs.
 *
 * The backend changes what the host enforces, and refuses what is beyond what the cell was made with.
 * In a machine there is a second half: the tasks and the memory of the workload, and which processors
 * are in use, are kept by the init of its guest, which is told after the backend agreed. All of a
 * change or nothing of it: what fails on the way is taken back, but for an io limit where there was
 * none; that one stays, for it is the tighter. Threads: one.
 */
#include "guest_int.h"

static uint64_t other(uint64_t was, uint64_t is)
{
    return was == is ? 0 : is;
}

/* What differs between the two, as the backend takes it: 0 stays as it is. */
static int backend_change(struct warden *w, const struct config_limits *was,
                          const struct config_limits *is, struct cella_error *err)
{
    struct cella_limits l = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS),
                             .memory_bytes = other(was->memory, is->memory),
                             .cpu_millis = other(was->cpu_millis, is->cpu_millis),
                             .pids = other(was->pids, is->pids),
                             .io_read_bps = other(was->io_read_bps, is->io_read_bps),
                             .io_write_bps = other(was->io_write_bps, is->io_write_bps)};

    return backend_resize(&w->backend, &l, err);
}

static void take_back(struct warden *w, const struct config_limits *is)
{
    struct config_limits was = w->req.limits;
    struct errbuf eb;

    if (backend_change(w, is, &was, errbuf_init(&eb)) < 0)
        warden_log(w, CELLA_LOG_WARN, "update", "the former limits could not be set again: %s",
                   eb.text);
}

static int record(struct warden *w, const char *verdict, const struct config_limits *l,
                  const char *why, struct cella_error *err)
{
    return warden_audit(w, err, "cell.update", "s:verdict", verdict, "i:memory", (int64_t)l->memory,
                        "i:cpu_millis", (int64_t)l->cpu_millis, "i:pids", (int64_t)l->pids,
                        "i:io_read_bps", (int64_t)l->io_read_bps, "i:io_write_bps",
                        (int64_t)l->io_write_bps, *why ? "s:message" : NULL, why, NULL);
}

static int applied(struct warden *w, const struct pending *from, const struct config_limits *is,
                   struct cella_error *err)
{
    int r = record(w, "applied", is, "", err);

    w->req.limits = *is;
    if (r == 0)
        peer_reply_ok(w, from, json_pack("{s:o}", "limits", limits_json(is)));
    return r;
}

static void guest_told(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct warden *w = ctx;
    struct update *u = &w->machine->update;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int r;

    (void)payload;
    (void)len;
    u->under_way = 0;
    if (code < 0) {
        take_back(w, &u->is);
        record(w, "refused", &u->is, why, NULL);
        r = fail(err, code, "update: %s", why);
    } else {
        r = applied(w, &u->from, &u->is, err);
    }
    if (r < 0)
        peer_reply_error(w, &u->from, err);
}

/* From here on guest_told() answers. */
static int guest_tell(struct warden *w, const struct pending *from, const struct config_limits *is,
                      struct cella_error *err)
{
    struct update *u = &w->machine->update;
    int r = machine_resize(w, &w->req.limits, is, guest_told);

    if (r < 0)
        return fail(err, r, "update: %s", strerror(-r));
    *u = (struct update){.under_way = 1, .from = *from, .is = *is};
    return 0;
}

void update_drop(struct warden *w)
{
    struct update *u = w->machine ? &w->machine->update : NULL;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    if (!u || !u->under_way)
        return;
    u->under_way = 0;
    fail(err, -ENOTCONN, "update: the cell ended before its guest had been told");
    record(w, "refused", &u->is, eb.text, NULL);
    peer_reply_error(w, &u->from, err);
}

static int possible(const struct warden *w, struct cella_error *err)
{
    if (w->ended || (w->state != W_RUNNING && w->state != W_PAUSED))
        return fail(err, -EPROTO, "update: the cell is not running");
    if (w->machine && w->state == W_PAUSED)
        return fail(err, -EPROTO,
                    "update: the cell is paused, and a machine that stands still cannot be told of "
                    "it; resume it first");
    if (w->machine && w->machine->update.under_way)
        return fail(err, -EBUSY, "update: another change of its limits is under way; try again");
    return 0;
}

int cell_update(struct warden *w, json_t *args, const struct pending *from, struct cella_error *err)
{
    struct config_limits is = w->req.limits;
    int r = possible(w, err);

    if (r == 0)
        r = limits_change(args, &is, err);
    if (r < 0)
        return r;
    limits_activity(w);
    r = backend_change(w, &w->req.limits, &is, err);
    if (r == 0 && w->machine)
        r = guest_tell(w, from, &is, err);
    else if (r == 0)
        return applied(w, from, &is, err);
    if (r < 0) {
        take_back(w, &is);
        record(w, "refused", &is, err && err->msg ? err->msg : "", NULL);
    }
    return r;
}

/* The parent's limits were changed after it was made; its machine, and so this one, knows. */
int copy_limits(struct warden *w, struct cella_error *err)
{
    const json_t *changed = json_object_get(w->copy.manifest, "limits");
    struct config_limits is = w->req.limits;
    int r = changed ? limits_change(changed, &is, err) : 0;

    if (r == 0 && changed)
        r = backend_change(w, &w->req.limits, &is, err);
    if (r == 0)
        w->req.limits = is;
    return r < 0 ? fail_wrap(err, "the limits that the parent had") : 0;
}
