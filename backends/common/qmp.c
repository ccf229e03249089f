/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * qmp - see qmp.h. QEMU writes one JSON object a line. Each is at most QMP_MESSAGE_MAX long, so the buffer is
 * bounded; depth is bounded by jansson. Whatever breaks the protocol ends the connection, and with it
 * the cell: there is nothing to resume with a QEMU that speaks nonsense. Threads: one per object.
 */
#include <poll.h>
#include <sys/socket.h>

#include "engine.h"
#include "qmp.h"

#define READ_ROOM 16384

int qmp_take(struct buf *in, json_t **ret)
{
    const char *end = in->len ? memchr(in->ptr, '\n', in->len) : NULL;
    json_error_t error;
    size_t len;
    json_t *o;

    if (in->oom)
        return -ENOMEM;
    len = end ? (size_t)(end - in->ptr) : in->len;
    if (len > QMP_MESSAGE_MAX)
        return -EFBIG;
    if (!end)
        return 0;
    o = json_loadb(in->ptr, len, JSON_REJECT_DUPLICATES, &error);
    memmove(in->ptr, end + 1, in->len - len - 1);
    in->len -= len + 1;
    if (!json_is_object(o)) {
        json_decref(o);
        return -EBADMSG;
    }
    *ret = o;
    return 1;
}

static int lost(struct qmp *q, int code)
{
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
    return code;
}

/* Reads what is there, at most one message beyond what is buffered. 0 = nothing came. */
static int fill(struct qmp *q)
{
    char room[READ_ROOM];
    ssize_t n;

    if (q->fd < 0)
        return -EPIPE;
    do
        n = recv(q->fd, room, sizeof(room), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n <= 0)
        return lost(q, -EPIPE);
    return buf_add(&q->in, room, (size_t)n) < 0 ? lost(q, -ENOMEM) : 1;
}

static void tell(struct qmp *q, json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "event"));

    if (name && q->event)
        q->event(q->ctx, name, json_object_get(o, "data"));
}

/* The next message that is no event, or 0 when what has come is used up. */
static int next_answer(struct qmp *q, json_t **ret)
{
    json_t *o = NULL;
    int r;

    while ((r = qmp_take(&q->in, &o)) == 1) {
        if (!json_object_get(o, "event")) {
            *ret = o;
            return 1;
        }
        tell(q, o);
        json_decref(o);
    }
    return r < 0 ? lost(q, r) : 0;
}

static int wait_readable(struct qmp *q, uint64_t end)
{
    struct pollfd p = {.fd = q->fd, .events = POLLIN};
    uint64_t now = now_ns(), ms;

    if (now >= end)
        return -ETIMEDOUT;
    ms = (end - now + 999999) / 1000000;
    if (poll(&p, 1, ms > 60000 ? 60000 : (int)ms) < 0 && errno != EINTR)
        return -errno;
    return 0;
}

static int answer(struct qmp *q, uint64_t timeout_ns, json_t **ret)
{
    uint64_t end = now_ns() + timeout_ns;
    int r;

    for (;;) {
        r = next_answer(q, ret);
        if (r)
            return r < 0 ? r : 0;
        r = fill(q);
        if (r == 0)
            r = wait_readable(q, end);
        if (r < 0)
            return r;
    }
}

static int say(int code, const char *command, struct cella_error *err)
{
    switch (code) {
    case -EPIPE:
        return fail(err, code, "QEMU: %s: it has ended", command);
    case -ETIMEDOUT:
        return fail(err, code, "QEMU: %s: no answer; is the host overloaded?", command);
    case -EBADMSG:
    case -EFBIG:
        return fail(err, code, "QEMU: %s: what it answered is no QMP", command);
    default:
        return fail(err, code, "QEMU: %s: %s", command, strerror(-code));
    }
}

static int transmit(struct qmp *q, const char *command, json_t *own_args, int borrow_fd)
{
    json_t *o = json_pack("{s:s, s:I, s:o*}", "execute", command, "id", (json_int_t)++q->next_id,
                          "arguments", own_args);
    auto_free char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
    int r;

    json_decref(o);
    if (!text)
        return -ENOMEM;
    if (q->fd < 0)
        return -EPIPE;
    r = send_fds(q->fd, text, strlen(text), &borrow_fd, borrow_fd >= 0 ? 1 : 0);
    return r < 0 ? lost(q, r == -EPIPE || r == -ECONNRESET ? -EPIPE : r) : 0;
}

static int refused(const char *command, json_t *error, struct cella_error *err)
{
    const char *why = json_string_value(json_object_get(error, "desc"));
    char text[300];

    text_clean(why ? why : "no reason given", why ? strlen(why) : 15, text, sizeof(text));
    return fail(err, -EIO, "QEMU: %s: %s", command, text);
}

int qmp_call(struct qmp *q, const char *command, json_t *own_args, int borrow_fd,
             uint64_t timeout_ns, json_t **ret_return, struct cella_error *err)
{
    json_t *o = NULL, *v;
    int r = transmit(q, command, own_args, borrow_fd);

    if (r == 0)
        r = answer(q, timeout_ns, &o);
    if (r < 0) { /* an answer that comes late would be taken for the next one's */
        lost(q, r);
        return say(r, command, err);
    }
    v = json_object_get(o, "id");
    if (!json_is_integer(v) || (uint64_t)json_integer_value(v) != q->next_id)
        r = say(lost(q, -EBADMSG), command, err);
    else if ((v = json_object_get(o, "error")))
        r = refused(command, v, err);
    else if (!(v = json_object_get(o, "return")))
        r = say(lost(q, -EBADMSG), command, err);
    else if (ret_return)
        *ret_return = json_incref(v);
    json_decref(o);
    return r;
}

static int greeted(struct qmp *q, json_t *o)
{
    json_t *v = json_object_get(json_object_get(json_object_get(o, "QMP"), "version"), "qemu");
    json_t *a = json_object_get(v, "major"), *b = json_object_get(v, "minor"),
           *c = json_object_get(v, "micro");

    if (!json_is_integer(a) || !json_is_integer(b) || !json_is_integer(c))
        return -EBADMSG;
    snprintf(q->version, sizeof(q->version), "%u.%u.%u", (unsigned)json_integer_value(a) % 1000,
             (unsigned)json_integer_value(b) % 1000, (unsigned)json_integer_value(c) % 1000);
    return 0;
}

int qmp_open(struct qmp *q, int own_fd, uint64_t timeout_ns, struct cella_error *err)
{
    json_t *o = NULL;
    int r;

    *q = (struct qmp){.fd = own_fd, .event = q->event, .ctx = q->ctx};
    r = answer(q, timeout_ns, &o);
    if (r == 0)
        r = greeted(q, o);
    json_decref(o);
    if (r < 0)
        say(r, "greeting", err);
    else
        r = qmp_call(q, "qmp_capabilities", NULL, -1, timeout_ns, NULL, err);
    if (r < 0)
        qmp_close(q);
    return r;
}

void qmp_close(struct qmp *q)
{
    lost(q, 0);
    buf_fini(&q->in);
    q->in = (struct buf)BUF_INIT;
}

int qmp_drain(struct qmp *q)
{
    json_t *o;
    int r, i;

    for (i = 0; i < 16; i++) {
        while ((r = next_answer(q, &o)) == 1)
            json_decref(o); /* nobody has asked */
        if (r < 0)
            return r;
        r = fill(q);
        if (r <= 0)
            return r;
    }
    return 0;
}

int qmp_until(struct qmp *q, const int *done, uint64_t timeout_ns, const char *what,
              struct cella_error *err)
{
    uint64_t end = now_ns() + timeout_ns;
    int r = qmp_drain(q);

    while (r == 0 && !*done) {
        r = wait_readable(q, end);
        if (r == 0)
            r = qmp_drain(q);
    }
    return r < 0 && !*done ? say(r, what, err) : 0;
}
