/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* util - errors, cleanup, buffers, time, random. Threads: no state. */
#include <stdarg.h>
#include <sys/random.h>
#include <time.h>

#include "util.h"

struct cella_error *errbuf_init(struct errbuf *eb)
{
    eb->err = (struct cella_error){.hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR),
                                   .msg = eb->text,
                                   .msg_cap = sizeof(eb->text)};
    eb->text[0] = 0;
    return &eb->err;
}

int fail_wrap(struct cella_error *err, const char *fmt, ...)
{
    char prefix[512];
    size_t n, keep;
    va_list ap;

    if (!err)
        return -EINVAL;
    if (!err->msg || err->msg_cap < 4)
        return err->code;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof(prefix) - 3, fmt, ap);
    va_end(ap);
    strcat(prefix, ": ");
    n = strlen(prefix);
    if (n >= err->msg_cap)
        return err->code;
    keep = strlen(err->msg);
    if (keep > err->msg_cap - 1 - n)
        keep = err->msg_cap - 1 - n;
    memmove(err->msg + n, err->msg, keep);
    memcpy(err->msg, prefix, n);
    err->msg[n + keep] = 0;
    err->msg_len = (uint32_t)(n + keep);
    return err->code;
}

void auto_free_(void *pp)
{
    int e = errno;

    free(*(void **)pp);
    errno = e;
}

void auto_close_(int *fd)
{
    int e = errno;

    if (*fd >= 0)
        close(*fd);
    errno = e;
}

void auto_fclose_(FILE **f)
{
    int e = errno;

    if (*f)
        fclose(*f);
    errno = e;
}

void buf_fini(struct buf *b)
{
    free(b->ptr);
    *b = (struct buf)BUF_INIT;
}

static int buf_room(struct buf *b, size_t n)
{
    size_t want, cap = b->cap ? b->cap : 256;
    char *p;

    if (b->oom || __builtin_add_overflow(b->len, n, &want) ||
        __builtin_add_overflow(want, 1, &want))
        goto oom;
    if (want <= b->cap)
        return 0;
    while (cap < want)
        if (__builtin_mul_overflow(cap, 2, &cap))
            goto oom;
    p = realloc(b->ptr, cap);
    if (!p)
        goto oom;
    b->ptr = p;
    b->cap = cap;
    return 0;
oom:
    b->oom = 1;
    return -ENOMEM;
}

int buf_add(struct buf *b, const void *p, size_t n)
{
    if (buf_room(b, n) < 0)
        return -ENOMEM;
    if (n)
        memcpy(b->ptr + b->len, p, n);
    b->len += n;
    b->ptr[b->len] = 0;
    return 0;
}

int buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || buf_room(b, (size_t)n) < 0) {
        b->oom = 1;
        return -ENOMEM;
    }
    va_start(ap, fmt);
    vsnprintf(b->ptr + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

int64_t buf_out(const struct buf *b, char *out, uint64_t cap, struct cella_error *err)
{
    if (b->oom)
        return fail(err, -ENOMEM, "out of memory");
    if (b->len > cap)
        return fail(err, -ENOBUFS, "the answer has %zu bytes, the buffer %llu", b->len,
                    (unsigned long long)cap);
    memcpy(out, b->ptr, b->len);
    return (int64_t)b->len;
}

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

uint64_t wall_ns(void)
{
    return clock_ns(CLOCK_REALTIME);
}

int random_bytes(void *p, size_t n)
{
    uint8_t *at = p;

    while (n) {
        ssize_t r = getrandom(at, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -errno;
        at += r;
        n -= (size_t)r;
    }
    return 0;
}

int random_id(char out[CELLA_ID_LEN + 1])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345"; /* 32: no bias */
    uint8_t raw[CELLA_ID_LEN];
    int r = random_bytes(raw, sizeof(raw)), i;

    if (r < 0)
        return r;
    for (i = 0; i < CELLA_ID_LEN; i++)
        out[i] = digits[raw[i] & 31];
    out[CELLA_ID_LEN] = 0;
    return 0;
}
