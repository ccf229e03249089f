/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * run - from CREATED to RUNNING: the backend starts, the agent says hello, the waiting client is
 * answered. A detached main command writes to the cell's log, of which the first CELL_LOG_MAX bytes
 * are kept.
 */
#include <fcntl.h>

#include "warden.h"

static void cell_exited(void *data, int fd, uint32_t ready)
{
    (void)fd;
    (void)ready;
    cell_end(data, "agent", "the cell's first process ended");
}

static void hello_late(void *data)
{
    struct warden *w = data;

    w->hello_timer = 0;
    cell_end(w, "backend", "the agent did not answer within %llu s of the start",
             HELLO_TIMEOUT_NS / 1000000000ull);
}

static void link_hello(void *ctx, uint32_t version)
{
    struct warden *w = ctx;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    json_t *started;

    loop_timer_cancel(w->loop, w->hello_timer);
    w->hello_timer = 0;
    if (w->ended) /* in this turn of the loop; who asked for the start is told why */
        return;
    w->state = W_RUNNING;
    json_object_set_new(w->cell, "state", json_string("running"));
    warden_save(w);
    limits_arm(w);
    if (warden_audit(w, err, "cell.start", "i:agent", (int64_t)version, NULL) < 0 ||
        (w->req.detach && main_start(w, err) < 0)) {
        w->start_error = (int)eb.err.code;
        cell_end(w, "backend", "%s", eb.text);
        return;
    }
    started = w->req.start ? created_json(w) : json_object();
    json_object_set_new(started, "pid", json_integer((json_int_t)w->started.host_pid));
    peer_reply_ok(w, &w->starter, started);
    w->starter.peer = 0;
    relay_held(w);
}

static void link_closed(void *ctx, int code, const char *why)
{
    struct warden *w = ctx;

    if (code == -EPROTO)
        cell_end(w, "agent", "the agent broke its protocol: %s", why);
    else
        cell_end(w, "agent", "the agent ended");
}

static const struct link_events link_events = {link_hello, link_closed};

int cell_link(struct warden *w, int own_fd, struct cella_error *err)
{
    int r = link_new(w->loop, own_fd, &link_events, w, &w->link);

    warden_step(w, "agent", now_ns());
    if (r < 0)
        return fail(err, r, "link to the agent: %s", strerror(-r));
    w->hello_timer = loop_timer(w->loop, HELLO_TIMEOUT_NS, hello_late, w);
    return 0;
}

int cell_start(struct warden *w, struct cella_error *err)
{
    int fd, r;

    if (w->state != W_CREATED)
        return fail(err, -EPROTO, "start: the cell has been started before; a cell runs once");
    r = backend_start(&w->backend, &w->started, err);
    if (r == 0)
        r = copy_limits(w, err);
    if (r == 0 && w->machine)
        r = machine_start(w, err);
    else if (r == 0 && (r = backend_connect(&w->backend, 0, &fd, err)) == 0)
        r = cell_link(w, fd, err);
    if (r < 0) {
        cell_end(w, "backend", "%s", err && err->msg ? err->msg : "start failed");
        return r;
    }
    w->state = W_STARTING;
    json_object_set_new(w->cell, "init_pid", json_integer((json_int_t)w->started.host_pid));
    loop_watch(w->loop, w->started.borrow_exit_fd, CELLA_FD_IN, cell_exited, w);
    return 0;
}

int cell_pause(struct warden *w, int on, struct cella_error *err)
{
    int r;

    if (w->state != (on ? W_RUNNING : W_PAUSED))
        return fail(err, -EPROTO, "%s: the cell is not %s", on ? "pause" : "resume",
                    on ? "running" : "paused");
    if (w->machine && on)
        machine_pause(w, 1);
    r = on ? backend_pause(&w->backend, err) : backend_resume(&w->backend, err);
    if (w->machine && (on ? r < 0 : r == 0))
        machine_pause(w, 0);
    if (r < 0)
        return r;
    w->state = on ? W_PAUSED : W_RUNNING;
    json_object_set_new(w->cell, "state", json_string(on ? "paused" : "running"));
    warden_save(w);
    return warden_audit(w, err, on ? "cell.pause" : "cell.resume", NULL);
}

/* ---- detached main command ---- */

static void main_output(struct warden *w, struct link_stream *s, const struct cella_frame *f,
                        const uint8_t *payload)
{
    size_t keep = w->main_bytes >= CELL_LOG_MAX ? 0 : CELL_LOG_MAX - w->main_bytes;
    auto_buf struct buf credit = BUF_INIT;

    if (keep > f->length)
        keep = f->length;
    if (keep && w->main_fd >= 0 && write_all(w->main_fd, payload, keep) == 0)
        w->main_bytes += keep;
    if (keep < f->length && w->main_fd >= 0) {
        dprintf(w->main_fd, "\n[cella: the log is full at %u MiB; later output was dropped]\n",
                CELL_LOG_MAX >> 20);
        close(steal_fd(&w->main_fd));
    }
    field_add_u32(&credit, CELLA_TAG_COUNT, f->length);
    if (!credit.oom)
        link_send(s, CELLA_FRAME_CREDIT, f->channel, credit.ptr, credit.len);
}

static void main_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                       const uint8_t *payload)
{
    struct warden *w = ctx;
    uint32_t status = 0, sig = 0, timed_out = 0, number = 0;
    const char *message = "";
    size_t len = 0;

    switch (f->type) {
    case CELLA_FRAME_DATA:
        main_output(w, s, f, payload);
        return;
    case CELLA_FRAME_EXIT:
        w->main_stream = NULL;
        field_get_u32(payload, f->length, CELLA_TAG_STATUS, &status);
        field_get_u32(payload, f->length, CELLA_TAG_TERM_SIGNAL, &sig);
        field_get_u32(payload, f->length, CELLA_TAG_TIMED_OUT, &timed_out);
        w->end_status = (int)status;
        w->end_signal = (int)sig;
        warden_audit(w, NULL, "exec.exit", "i:status", (int64_t)status, "i:signal", (int64_t)sig,
                     NULL);
        cell_end(w, timed_out ? "wall" : "exit", NULL);
        return;
    case CELLA_FRAME_ERROR:
        w->main_stream = NULL;
        field_get_u32(payload, f->length, CELLA_TAG_ERRNO, &number);
        warden_audit(w, NULL, "exec.failed", "i:errno", (int64_t)number, NULL);
        if (link_lost(w->link)) /* it ran; link_closed() knows what the cell ends of */
            return;
        w->end_status = 127;
        field_get_str(payload, f->length, CELLA_TAG_MESSAGE, &message, &len);
        cell_end(w, "exit", "the command could not be started: %.*s", (int)len, message);
        return;
    default:
        return;
    }
}

static const struct link_stream_events main_events = {main_frame};

int main_start(struct warden *w, struct cella_error *err)
{
    auto_buf struct buf fields = BUF_INIT;
    int r = exec_from_request(w, &fields);

    w->main_fd = openat(w->dir.dirfd, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (r == 0)
        r = link_open(w->link, fields.ptr, fields.len, &main_events, w, &w->main_stream);
    return r < 0 ? fail(err, r, "start the command: %s", strerror(-r)) : 0;
}
