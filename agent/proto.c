/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * proto - fields and frames on the link, the agent's side.
 *
 * Why here: the only file that reads or writes descriptor 3. The host is trusted, but a malformed
 * frame still ends the agent instead of being guessed at. Invariants: input holds one frame at
 * most; the output queue is bounded because readers of pipes stop at OUT_HIGH (stream.c) and
 * reading of requests stops at OUT_STOP (main.c). Nothing blocks. Threads: one.
 */
#include <stdlib.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "agent.h"

#define IN_CAP (CELLA_FRAME_HEADER + CELLA_FRAME_MAX)

static uint8_t in_buf[IN_CAP + 4096]
    __attribute__((aligned(4096))); /* one byte more is needed by get_str */
static size_t in_len;
static uint8_t *out;
static size_t out_off, out_len, out_cap;
static enum { STREAM, SERIAL_PORT, SOCKET_PORT } kind;
static int away;

static void le16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void le32(uint8_t *p, uint32_t v)
{
    le16(p, (uint16_t)v);
    le16(p + 2, (uint16_t)(v >> 16));
}

static uint16_t rd16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t rd32(const uint8_t *p)
{
    return (uint32_t)rd16(p) | (uint32_t)rd16(p + 2) << 16;
}

void put_bytes(struct fields *f, uint16_t tag, const void *p, size_t n)
{
    if (f->overflow || n > sizeof(f->b) || f->len + 8 + n > sizeof(f->b)) {
        f->overflow = 1;
        return;
    }
    le16(f->b + f->len, tag);
    le16(f->b + f->len + 2, 0);
    le32(f->b + f->len + 4, (uint32_t)n);
    memcpy(f->b + f->len + 8, p, n);
    f->len += 8 + n;
}

void put_u32(struct fields *f, uint16_t tag, uint32_t v)
{
    uint8_t b[4];

    le32(b, v);
    put_bytes(f, tag, b, sizeof(b));
}

void put_u64(struct fields *f, uint16_t tag, uint64_t v)
{
    uint8_t b[8];

    le32(b, (uint32_t)v);
    le32(b + 4, (uint32_t)(v >> 32));
    put_bytes(f, tag, b, sizeof(b));
}

int field_next(uint8_t *payload, size_t len, size_t *pos, struct field *ret)
{
    size_t left = len - *pos;
    uint8_t *p = payload + *pos;

    if (left == 0)
        return 0;
    if (left < 8 || rd16(p + 2) != 0 || rd32(p + 4) > left - 8)
        return -EBADMSG;
    ret->tag = rd16(p);
    ret->len = rd32(p + 4);
    ret->p = p + 8;
    *pos += 8 + (size_t)ret->len;
    return 1;
}

static int find(uint8_t *payload, size_t len, uint16_t tag, struct field *ret)
{
    size_t pos = 0;
    int r;

    while ((r = field_next(payload, len, &pos, ret)) > 0)
        if (ret->tag == tag)
            return 0;
    return r < 0 ? r : -ENOENT;
}

int get_u32(uint8_t *payload, size_t len, uint16_t tag, uint32_t *ret)
{
    struct field f;
    int r = find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (f.len != 4)
        return -EBADMSG;
    *ret = rd32(f.p);
    return 0;
}

int get_u64(uint8_t *payload, size_t len, uint16_t tag, uint64_t *ret)
{
    struct field f;
    int r = find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (f.len != 8)
        return -EBADMSG;
    *ret = (uint64_t)rd32(f.p) | (uint64_t)rd32(f.p + 4) << 32;
    return 0;
}

int get_str(uint8_t *payload, size_t len, uint16_t tag, char **ret)
{
    struct field f;
    int r = find(payload, len, tag, &f);

    if (r < 0)
        return r;
    if (memchr(f.p, 0, f.len))
        return -EBADMSG;
    f.p[f.len] = 0;
    *ret = (char *)f.p;
    return 0;
}

/* ---- output ---- */

static int out_room(size_t n)
{
    size_t cap = out_cap ? out_cap : 8192;
    uint8_t *p;

    if (out_off + out_len + n <= out_cap)
        return 0;
    if (out_off) {
        memmove(out, out + out_off, out_len);
        out_off = 0;
    }
    while (cap < out_len + n)
        cap *= 2;
    if (cap == out_cap)
        return 0;
    p = realloc(out, cap);
    if (!p)
        return -ENOMEM;
    out = p;
    out_cap = cap;
    return 0;
}

static void header(uint8_t *p, uint16_t type, uint16_t channel, uint32_t stream, size_t n)
{
    le32(p, (uint32_t)n);
    le16(p + 4, type);
    le16(p + 6, channel);
    le32(p + 8, stream);
    le32(p + 12, 0);
}

void out_frame(uint16_t type, uint16_t channel, uint32_t stream, const void *payload, size_t n)
{
    uint8_t *p;

    if (out_room(CELLA_FRAME_HEADER + n) < 0)
        leave(12); /* a lost frame would break the protocol: better no agent */
    p = out + out_off + out_len;
    header(p, type, channel, stream, n);
    if (n)
        memcpy(p + CELLA_FRAME_HEADER, payload, n);
    out_len += CELLA_FRAME_HEADER + n;
}

uint8_t *out_reserve(size_t n)
{
    if (out_room(CELLA_FRAME_HEADER + n) < 0)
        return NULL;
    return out + out_off + out_len + CELLA_FRAME_HEADER;
}

void out_data(uint32_t stream, uint16_t channel, size_t n)
{
    header(out + out_off + out_len, CELLA_FRAME_DATA, channel, stream, n);
    out_len += CELLA_FRAME_HEADER + n;
}

size_t out_pending(void)
{
    return out_len;
}

void out_flush(void)
{
    while (out_len && !(away && kind == SOCKET_PORT)) {
        ssize_t n = write(LINK_FD, out + out_off, out_len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || kind == SERIAL_PORT))
            return;
        if (n < 0 && kind == SOCKET_PORT) {
            away = 1;
            return;
        }
        if (n < 0)
            leave(0);
        out_off += (size_t)n;
        out_len -= (size_t)n;
    }
    out_off = 0;
}

/* ---- input ---- */

static void drain(void)
{
    size_t off = 0;

    while (in_len - off >= CELLA_FRAME_HEADER) {
        uint8_t *p = in_buf + off;
        struct cella_frame f = {rd32(p), rd16(p + 4), rd16(p + 6), rd32(p + 8), rd32(p + 12)};

        if (f.length > CELLA_FRAME_MAX || f.id)
            leave(2);
        if (in_len - off < CELLA_FRAME_HEADER + f.length)
            break;
        off += CELLA_FRAME_HEADER + f.length;
        on_frame(&f, p + CELLA_FRAME_HEADER);
    }
    in_len -= off;
    memmove(in_buf, in_buf + off, in_len);
}

void in_read(void)
{
    ssize_t n = read(LINK_FD, in_buf + in_len, IN_CAP - in_len);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 && kind != STREAM) {
        away = 1;
        return;
    }
    if (n <= 0)
        leave(0);
    in_len += (size_t)n;
    drain();
}

/* ---- a link that may come again ---- */

void link_init(void)
{
    int family = AF_UNSPEC;
    socklen_t len = sizeof(family);
    struct stat st;

    if (fstat(LINK_FD, &st) == 0 && S_ISCHR(st.st_mode)) {
        kind = SERIAL_PORT;
    } else if (getsockopt(LINK_FD, SOL_SOCKET, SO_DOMAIN, &family, &len) == 0 &&
               family == AF_VSOCK) {
        kind = SOCKET_PORT;
        away = 1; /* nobody is connected to what a process starts with */
    }
}

int link_is_port(void)
{
    return kind != STREAM;
}

int link_is_looked_at(void)
{
    return kind == SERIAL_PORT && away;
}

/* What came of a frame that is not whole went with the link before. */
void link_take(int own_fd)
{
    if (dup3(own_fd, LINK_FD, O_CLOEXEC) < 0)
        leave(125);
    close(own_fd);
    fcntl(LINK_FD, F_SETFL, O_RDWR | O_NONBLOCK);
    in_len = 0;
    away = 0;
}

int link_fd(void)
{
    return away ? -1 : LINK_FD;
}

void link_look(void)
{
    struct pollfd p = {LINK_FD, POLLIN, 0};

    if (link_is_looked_at() && poll(&p, 1, 0) >= 0 && !(p.revents & (POLLHUP | POLLERR)))
        away = 0;
}

void out_anew(const uint8_t nonce[16])
{
    out_off = out_len = 0;
    if (out_room(16) < 0)
        leave(12);
    memcpy(out, nonce, 16);
    out_len = 16;
}

void in_anew(void)
{
    while (read(LINK_FD, in_buf, IN_CAP) > 0)
        ;
    in_len = 0;
    if (kind == SOCKET_PORT)
        away = 1; /* a socket of the former life: what is said now is for the next */
}

void proto_trim(void)
{
    if (!in_len)
        madvise(in_buf, IN_CAP & ~4095u, MADV_DONTNEED);
    if (!out_len) {
        free(out);
        out = NULL;
        out_cap = 0;
    }
}
