/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * control - client connections of a warden: calls go to calls.c, streams to streams.c. Only root and
 * the warden's own user may connect.
 *
 * A peer is freed from a timer, never inside a callback of its own framer; replies find it by
 * serial number, so a late reply to a client that went away finds nothing.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include "control.h"
#include "warden.h"

#define PEER_OUT_MAX (64u << 20) /* streams x channels x window */
#define PEERS_MAX 64

struct peer *peer_find(struct warden *w, uint64_t serial)
{
    struct peer *p;

    for (p = w->peers; p; p = p->next)
        if (p->serial == serial && !p->dead)
            return p;
    return NULL;
}

static void reap_peers(void *data)
{
    struct warden *w = data;
    struct peer **at = &w->peers;

    while (*at) {
        struct peer *p = *at;
        if (!p->dead) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        framer_free(p->framer);
        free(p);
    }
    if (!w->peers && w->state == W_NEW)
        loop_stop(w->loop); /* the starter went away before a cell existed */
}

static void peer_kill(struct peer *p)
{
    struct warden *w = p->warden;

    if (p->dead)
        return;
    p->dead = 1;
    relay_drop_peer(w, p);
    loop_timer(w->loop, 0, reap_peers, w);
    if (p->lease && !w->ended && w->state != W_NEW) {
        w->remove_at_end = 1;
        cell_end(w, "stop", "the client that held the cell went away");
    }
}

int peers_leased(const struct warden *w)
{
    const struct peer *p;

    for (p = w->peers; p; p = p->next)
        if (p->lease)
            return 1;
    return 0;
}

int peer_send(struct peer *p, const struct cella_frame *f, const void *payload)
{
    int r;

    if (p->dead)
        return -EPIPE;
    r = framer_send(p->framer, f->type, f->channel, f->stream, f->id, payload, f->length);
    if (r < 0)
        peer_kill(p);
    return r;
}

struct relay **peer_relays(struct peer *p)
{
    return &p->relays;
}

static void send_json(struct peer *p, uint32_t id, json_t *own_reply)
{
    auto_free char *text = own_reply ? json_dumps(own_reply, JSON_COMPACT) : NULL;
    struct cella_frame f = {.type = CELLA_FRAME_REPLY, .id = id};
    static const char too_big[] =
        "{\"error\":{\"code\":-7,\"message\":\"the reply does not fit a frame\",\"exit\":125}}";
    const char *out =
        text ? text : "{\"error\":{\"code\":-12,\"message\":\"out of memory\",\"exit\":125}}";

    json_decref(own_reply);
    if (strlen(out) > CELLA_FRAME_MAX)
        out = too_big;
    f.length = (uint32_t)strlen(out);
    peer_send(p, &f, out);
}

void peer_reply_ok(struct warden *w, const struct pending *to, json_t *own_result)
{
    struct peer *p = to->peer ? peer_find(w, to->peer) : NULL;

    if (p)
        send_json(p, to->call, json_pack("{s:o}", "ok", own_result ? own_result : json_object()));
    else
        json_decref(own_result);
}

void peer_reply_error(struct warden *w, const struct pending *to, const struct cella_error *err)
{
    struct peer *p = to->peer ? peer_find(w, to->peer) : NULL;
    auto_buf struct buf b = BUF_INIT;
    const char *text = err && err->msg ? err->msg : "";
    json_t *message;

    if (!p)
        return;
    buf_json_string(&b, text, strlen(text));
    message = b.oom ? NULL : json_loads(b.ptr, JSON_DECODE_ANY, NULL); /* always valid UTF-8 */
    send_json(p, to->call,
              json_pack("{s:{s:i, s:o, s:i}}", "error", "code", err ? (int)err->code : -EIO,
                        "message", message ? message : json_string("error"), "exit", 125));
}

void warden_step(struct warden *w, const char *name, uint64_t at)
{
    struct peer *p = w->steps_to ? peer_find(w, w->steps_to) : NULL;

    if (p)
        send_json(p, 0, json_pack("{s:s, s:I}", "stage", name, "at", (json_int_t)at));
}

static int peer_frame(void *ctx, const struct cella_frame *f, const uint8_t *payload)
{
    struct peer *p = ctx;
    json_t *message;

    if (p->dead)
        return -EPIPE;
    if (f->type != CELLA_FRAME_CALL)
        return relay_frame(p->warden, p, f, payload);
    message = json_loadb((const char *)payload, f->length, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(message) || !f->id) {
        json_decref(message);
        return -EPROTO;
    }
    peer_call(p, f->id, message);
    json_decref(message);
    return 0;
}

static void peer_closed(void *ctx, int code)
{
    (void)code;
    peer_kill(ctx);
}

int peer_add(struct warden *w, int own_fd)
{
    struct peer *p = calloc(1, sizeof(*p)), *each;
    unsigned n = 0;
    int r = p ? 0 : -ENOMEM;

    for (each = w->peers; each; each = each->next)
        n++;
    if (r == 0 && n >= PEERS_MAX)
        r = -EBUSY;
    if (r < 0) {
        close(own_fd);
        free(p);
        return r;
    }
    p->warden = w;
    p->serial = ++w->peer_serial;
    p->fd = own_fd;
    r = framer_new(w->loop, own_fd, PEER_OUT_MAX, peer_frame, peer_closed, p, &p->framer);
    if (r < 0) {
        free(p);
        return r;
    }
    p->next = w->peers;
    w->peers = p;
    return 0;
}

/* ---- the socket ---- */

static void accept_ready(void *data, int fd, uint32_t ready)
{
    struct warden *w = data;
    auto_close int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred cred;
    socklen_t len = sizeof(cred);

    (void)ready;
    if (conn < 0 || getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return;
    if (cred.uid != 0 && cred.uid != geteuid())
        return;
    peer_add(w, steal_fd(&conn));
}

int control_listen(struct warden *w, struct cella_error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    /* by descriptor: the state directory's path may be longer than a socket address */
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/control.sock", w->dir.dirfd);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0 ||
        loop_watch(w->loop, fd, CELLA_FD_IN, accept_ready, w) < 0)
        return fail(err, -errno, "control socket in %s: %s", w->dir.path, strerror(errno));
    w->listen_fd = steal_fd(&fd);
    return 0;
}

static void flushed(void *data)
{
    struct warden *w = data;
    struct peer *p;

    for (p = w->peers; p; p = p->next)
        if (!p->dead && framer_pending(p->framer) && now_ns() < w->active_ns + 5000000000ull) {
            loop_timer(w->loop, 2000000, flushed, w);
            return;
        }
    loop_stop(w->loop);
}

void peers_flush_and_stop(struct warden *w)
{
    limits_activity(w);
    flushed(w);
}
