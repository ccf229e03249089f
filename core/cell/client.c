/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * client - finding a warden and calling it.
 *
 * Invariants: the socket is read and written without blocking and waited for with poll; what the
 * warden says on stderr is kept (the last 2 KiB) for the message of its death. Threads: none.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client_int.h"

/* ---- construction ---- */

struct client *client_alloc(void)
{
    struct client *cl = calloc(1, sizeof(*cl));

    if (cl) {
        cl->fd = cl->errfd = -1;
        cl->next_id = cl->next_stream = 1;
    }
    return cl;
}

void client_free(struct client *cl)
{
    if (!cl)
        return;
    if (cl->fd >= 0)
        close(cl->fd);
    if (cl->errfd >= 0)
        close(cl->errfd);
    json_decref(cl->later_reply);
    buf_fini(&cl->out);
    free(cl);
}

/* connect() by way of the directory's descriptor, so that a long state directory fits sun_path. */
static int connect_dir(const char *state_dir, const char *id)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    auto_close int dir = -1, s = -1;
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof(path), "%s/cells/%s", state_dir, id) >= sizeof(path))
        return -ENAMETOOLONG;
    dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (dir < 0 || s < 0)
        return -errno;
    snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/control.sock", dir);
    if (connect(s, (const struct sockaddr *)&sa, sizeof(sa)) < 0)
        return -errno;
    return steal_fd(&s);
}

int client_connect(const struct config *c, const char *cell, struct client **ret,
                   struct cella_error *err)
{
    struct cell_info info;
    struct client *cl;
    int r = store_find(c->state_dir, cell, &info, err);

    if (r < 0)
        return r;
    if (!info.alive) {
        int stopped = !strcmp(info.state, "stopped");
        r = fail(err, -ENOTCONN, "cell %s is %s", info.name[0] ? info.name : info.id,
                 stopped ? "stopped; a cell runs once. \"cella inspect\" shows how it ended, "
                           "\"cella rm\" removes it"
                         : "dead: its warden is gone; \"cella gc\" removes what it left");
        cell_info_fini(&info);
        return r;
    }
    cl = client_alloc();
    if (!cl) {
        cell_info_fini(&info);
        return fail(err, -ENOMEM, "out of memory");
    }
    snprintf(cl->cell, sizeof(cl->cell), "%s", info.name);
    r = connect_dir(c->state_dir, info.id);
    cell_info_fini(&info);
    if (r < 0) {
        fail(err, r, "cell %s: its warden does not answer: %s", cl->cell, strerror(-r));
        client_free(cl);
        return r;
    }
    cl->fd = r;
    *ret = cl;
    return 0;
}

/* ---- calls ---- */

/* "message" and "code" of an error reply; 1 = it was one. */
static int reply_error(const json_t *reply, int *ret_exit, int *ret_code, struct cella_error *err)
{
    const json_t *e = json_object_get(reply, "error");
    const char *message = json_string_value(json_object_get(e, "message"));
    json_int_t code = json_integer_value(json_object_get(e, "code"));
    json_int_t status = json_integer_value(json_object_get(e, "exit"));

    if (!e)
        return 0;
    *ret_code = code < 0 && code > -4096 ? (int)code : -EIO;
    if (ret_exit)
        *ret_exit = status > 0 && status < 256 ? (int)status : 125;
    fail(err, *ret_code, "%s", message ? message : "the warden gives no reason");
    return 1;
}

int wire_later(struct client *cl, const struct cella_frame *f, const uint8_t *payload)
{
    json_t *j;

    if (!cl->later_id || f->id != cl->later_id || cl->later_reply)
        return 0;
    j = json_loadb((const char *)payload, f->length, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(j)) {
        json_decref(j);
        return -EPROTO;
    }
    cl->later_reply = j;
    return 1;
}

struct call {
    uint32_t id;
    client_progress *progress;
    void *ctx;
    json_t *reply;
};

/* One frame while a call waits: 1 = it is the reply. */
static int call_frame(struct client *cl, struct call *call, const struct cella_frame *f,
                      const uint8_t *payload)
{
    const char *stage;
    json_t *j;

    if (f->type != CELLA_FRAME_REPLY)
        return f->stream ? 0 : -EPROTO; /* the rest of a stream that we gave up */
    if (f->id != call->id && f->id != 0)
        return wire_later(cl, f, payload) < 0 ? -EPROTO : 0;
    j = json_loadb((const char *)payload, f->length, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(j)) {
        json_decref(j);
        return -EPROTO;
    }
    if (f->id == call->id) {
        call->reply = j;
        return 1;
    }
    stage = json_string_value(json_object_get(j, "stage"));
    if (stage && call->progress)
        call->progress(call->ctx, stage, (uint64_t)json_integer_value(json_object_get(j, "at")));
    json_decref(j);
    return 0;
}

static int call_wait(struct client *cl, struct call *call)
{
    if (cl->fd < 0)
        return -EPIPE; /* it died before; poll() would wait for nothing */
    for (;;) {
        struct pollfd p[2] = {{cl->fd, POLLIN | (wire_pending(cl) ? POLLOUT : 0), 0},
                              {cl->errfd, POLLIN, 0}};
        const uint8_t *payload;
        struct cella_frame f;
        int r;

        while ((r = wire_next(cl, &f, &payload)) > 0) {
            r = call_frame(cl, call, &f, payload);
            if (r)
                return r;
        }
        if (r < 0)
            return r;
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return -errno;
        if (p[1].revents)
            wire_listen(cl);
        if (p[0].revents & POLLOUT && wire_flush(cl) < 0 && !(p[0].revents & POLLIN))
            return -EPIPE; /* with POLLIN there may be a last word to read */
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR) && wire_fill(cl) < 0)
            return -EPIPE;
    }
}

static int call_send(struct client *cl, const char *name, json_t *args, int progress,
                     uint32_t *ret_id, struct cella_error *err)
{
    json_t *request = json_pack("{s:s, s:O*, s:o*}", "call", name, "args", args, "progress",
                                progress ? json_true() : NULL);
    auto_free char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    int r;

    json_decref(request);
    if (!text)
        return fail(err, -ENOMEM, "call %s: the request cannot be written as JSON", name);
    if (cl->fd < 0)
        return fail(err, -EPIPE, "call %s: the warden%s%s is gone", name,
                    cl->cell[0] ? " of cell " : "", cl->cell);
    *ret_id = cl->next_id++;
    r = wire_queue(cl, CELLA_FRAME_CALL, 0, 0, *ret_id, text, strlen(text));
    if (r < 0)
        return fail(err, r, "call %s: the request is larger than %u bytes", name, CELLA_FRAME_MAX);
    wire_flush(cl); /* a failure shows when the answer is waited for */
    return 0;
}

/* Takes the reply. */
static int reply_open(struct client *cl, json_t *reply, json_t **ret_result, int *ret_exit,
                      struct cella_error *err)
{
    json_t *ok = json_object_get(reply, "ok");
    int code = 0;

    if (reply_error(reply, ret_exit, &code, err)) {
        json_decref(reply);
        return code;
    }
    if (!json_is_object(ok)) {
        json_decref(reply);
        return wire_dead(cl, -EPROTO, err);
    }
    if (ret_result)
        *ret_result = json_incref(ok);
    json_decref(reply);
    if (ret_exit)
        *ret_exit = 0;
    return 0;
}

int client_call_send(struct client *cl, const char *name, json_t *args, int progress,
                     struct cella_error *err)
{
    snprintf(cl->sent, sizeof(cl->sent), "%s", name);
    return call_send(cl, name, args, progress, &cl->sent_id, err);
}

int client_call_wait(struct client *cl, json_t **ret_result, int *ret_exit,
                     client_progress *progress, void *ctx, struct cella_error *err)
{
    struct call call = {cl->sent_id, progress, ctx, NULL};
    int r;

    if (ret_exit)
        *ret_exit = 125;
    r = call_wait(cl, &call);
    if (r < 0)
        return wire_dead(cl, r, err);
    if (!strcmp(cl->sent, "create")) { /* from now on messages can name the cell */
        const char *cell =
            json_string_value(json_object_get(json_object_get(call.reply, "ok"), "name"));
        snprintf(cl->cell, sizeof(cl->cell), "%s", cell ? cell : "");
    }
    return reply_open(cl, call.reply, ret_result, ret_exit, err);
}

int client_call(struct client *cl, const char *name, json_t *args, json_t **ret_result,
                int *ret_exit, client_progress *progress, void *ctx, struct cella_error *err)
{
    int r = client_call_send(cl, name, args, progress != NULL, err);

    if (ret_exit)
        *ret_exit = 125;
    return r < 0 ? r : client_call_wait(cl, ret_result, ret_exit, progress, ctx, err);
}

int client_call_begin(struct client *cl, const char *name, json_t *args, struct cella_error *err)
{
    json_decref(cl->later_reply);
    cl->later_reply = NULL;
    return call_send(cl, name, args, /* progress= */ 0, &cl->later_id, err);
}

int client_call_end(struct client *cl, json_t **ret_result, struct cella_error *err)
{
    struct call call = {cl->later_id, NULL, NULL, steal_ptr(&cl->later_reply)};
    int r;

    cl->later_id = 0;
    if (!call.reply) {
        r = call_wait(cl, &call);
        if (r < 0)
            return wire_dead(cl, r, err);
    }
    return reply_open(cl, call.reply, ret_result, NULL, err);
}
