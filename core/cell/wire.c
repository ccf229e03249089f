/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * wire - frames between a client and a warden, and what is known when the warden is gone.
 * Invariants: nothing here waits but wire_dead(), which gives a warden of ours one second to be
 * reaped; the input buffer holds one frame of the largest size. Threads: none.
 */
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "client_int.h"

static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

int wire_queue(struct client *cl, uint16_t type, uint16_t channel, uint32_t stream, uint32_t id,
               const void *payload, size_t len)
{
    uint8_t head[CELLA_FRAME_HEADER];

    if (len > CELLA_FRAME_MAX)
        return -E2BIG;
    put32(head, (uint32_t)len);
    put32(head + 4, (uint32_t)type | (uint32_t)channel << 16);
    put32(head + 8, stream);
    put32(head + 12, id);
    buf_add(&cl->out, head, sizeof(head));
    return buf_add(&cl->out, payload, len);
}

size_t wire_pending(const struct client *cl)
{
    return cl->out.len - cl->out_off;
}

int wire_flush(struct client *cl)
{
    while (wire_pending(cl)) {
        ssize_t n =
            send(cl->fd, cl->out.ptr + cl->out_off, wire_pending(cl), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n < 0)
            return -EPIPE;
        cl->out_off += (size_t)n;
    }
    cl->out.len = cl->out_off = 0;
    return 0;
}

int wire_fill(struct client *cl)
{
    ssize_t n;

    if (cl->in_used) {
        memmove(cl->in, cl->in + cl->in_used, cl->in_len - cl->in_used);
        cl->in_len -= cl->in_used;
        cl->in_used = 0;
    }
    if (cl->in_len == sizeof(cl->in))
        return 0;
    do
        n = recv(cl->fd, cl->in + cl->in_len, sizeof(cl->in) - cl->in_len, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -EPIPE;
    if (n == 0)
        return -EPIPE;
    cl->in_len += (size_t)n;
    return 0;
}

int wire_next(struct client *cl, struct cella_frame *f, const uint8_t **ret_payload)
{
    const uint8_t *p = cl->in + cl->in_used;
    size_t have = cl->in_len - cl->in_used;

    if (have < CELLA_FRAME_HEADER)
        return 0;
    *f = (struct cella_frame){.length = get32(p),
                              .type = (uint16_t)get32(p + 4),
                              .channel = (uint16_t)(get32(p + 4) >> 16),
                              .stream = get32(p + 8),
                              .id = get32(p + 12)};
    if (f->length > CELLA_FRAME_MAX)
        return -EPROTO;
    if (have < CELLA_FRAME_HEADER + f->length)
        return 0;
    *ret_payload = p + CELLA_FRAME_HEADER;
    cl->in_used += CELLA_FRAME_HEADER + f->length;
    return 1;
}

void wire_listen(struct client *cl)
{
    char chunk[1024];
    ssize_t n;

    while (cl->errfd >= 0) {
        n = read(cl->errfd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            close(cl->errfd);
            cl->errfd = -1;
            return;
        }
        if (cl->said_len + (size_t)n > sizeof(cl->said)) { /* keep the newest */
            size_t drop = cl->said_len + (size_t)n - sizeof(cl->said);
            memmove(cl->said, cl->said + drop, cl->said_len - drop);
            cl->said_len -= drop;
        }
        memcpy(cl->said + cl->said_len, chunk, (size_t)n);
        cl->said_len += (size_t)n;
    }
}

/* How the warden that we started ended, as words; waits a moment for it. */
static void describe_end(struct client *cl, char *out, size_t cap)
{
    struct timespec pause = {0, 10000000};
    int status, i;

    out[0] = 0;
    for (i = 0; cl->pid && i < 100; i++) {
        pid_t p = waitpid(cl->pid, &status, WNOHANG);
        if (p == 0) {
            nanosleep(&pause, NULL);
            continue;
        }
        if (p == cl->pid && WIFSIGNALED(status))
            snprintf(out, cap, "killed by signal %d", WTERMSIG(status));
        else if (p == cl->pid)
            snprintf(out, cap, "status %d", WEXITSTATUS(status));
        cl->pid = 0;
    }
}

int wire_dead(struct client *cl, int code, struct cella_error *err)
{
    auto_buf struct buf said = BUF_INIT;
    char how[64];
    size_t i;

    if (code == -EPROTO)
        return fail(err, -EPROTO,
                    "the warden%s%s does not speak the protocol; is it of the same version?",
                    cl->cell[0] ? " of cell " : "", cl->cell);
    if (code != -EPIPE)
        return fail(err, code, "the connection to the warden: %s", strerror(-code));
    describe_end(cl, how, sizeof(how));
    wire_listen(cl);
    for (i = 0; i < cl->said_len; i++) {
        unsigned char c = (unsigned char)cl->said[i];
        if (c == '\n' && i + 1 < cl->said_len)
            buf_add(&said, "; ", 2);
        else if (c != '\n')
            buf_add(&said, c < 0x20 || c == 0x7f ? "?" : (const char *)&c, 1);
    }
    if (cl->fd >= 0)
        close(cl->fd);
    cl->fd = -1;
    return fail(err, -EPIPE, "the warden%s%s died%s%s%s: %s", cl->cell[0] ? " of cell " : "",
                cl->cell, how[0] ? " (" : "", how, how[0] ? ")" : "",
                said.len ? said.ptr
                         : "it said nothing; what is left of its cell is removed by \"cella gc\"");
}
