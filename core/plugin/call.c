/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * call - what every call into a plugin has around it: the watchdog, an error object of the host,
 * the check of what came back, the sweep for stray descriptors and output.
 *
 * A plugin never gets the caller's error object, so it cannot change where the message goes; what
 * it wrote is bounded, made printable and prefixed with plugin and operation.
 * Threads: one call at a time per process (the watchdog's frames nest, they do not run in
 * parallel).
 */
#include <fcntl.h>
#include <stdarg.h>

#include "plugin_int.h"

#define ERRNO_MAX 4095
#define HOT_FIRST 8u
#define HOT_EVERY 64u

struct cella_error *call_begin(struct call *c, const struct plugin *p, const char *op,
                               uint64_t deadline_ns)
{
    struct cella_error *err;

    c->p = p;
    c->op = op;
    c->hot = 0;
    err = errbuf_init(&c->eb);
    watchdog_enter(p, op, deadline_ns);
    return err;
}

void call_end_void(struct call *c)
{
    unsigned n;

    watchdog_leave();
    if (!c->p->rt)
        return;
    if (c->hot) {
        n = c->p->rt->hot_calls++;
        if (n >= HOT_FIRST && n % HOT_EVERY)
            return;
    }
    stray_check(c->p, c->op);
}

/* The plugin's text: terminated, one line, nothing a terminal would act on. */
static const char *message_clean(struct errbuf *eb)
{
    char *s = eb->text;
    size_t i;

    s[sizeof(eb->text) - 1] = 0;
    for (i = 0; s[i]; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            s[i] = ' ';
    return s;
}

int call_broken(const struct call *c, struct cella_error *err, const char *fmt, ...)
{
    char what[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return fail(err, -EPROTO, "plugin %s broke the contract in %s: %s", c->p->name, c->op, what);
}

int64_t call_end_count(struct call *c, int64_t r, struct cella_error *err)
{
    const char *text;

    call_end_void(c);
    if (r >= 0)
        return r;
    if (r < -ERRNO_MAX)
        return call_broken(c, err, "it returned %lld, which is no negative errno", (long long)r);
    text = message_clean(&c->eb);
    if (text[0])
        return cella_error_set(err, (int)r, c->eb.err.step, "%s: %s: %s", c->p->name, c->op, text);
    return cella_error_set(err, (int)r, c->eb.err.step, "%s: %s failed: %s (it gave no message)",
                           c->p->name, c->op, strerror((int)-r));
}

int call_end(struct call *c, int64_t r, struct cella_error *err)
{
    if (r <= 0)
        return (int)call_end_count(c, r, err);
    call_end_void(c);
    if (r <= ERRNO_MAX)
        return call_broken(c, err,
                           "it returned %lld (positive: %s); 0 or a negative errno is "
                           "expected",
                           (long long)r, strerror((int)r));
    return call_broken(c, err, "it returned %lld; 0 or a negative errno is expected", (long long)r);
}

int fd_take_check(int fd)
{
    int flags = fd > 2 ? fcntl(fd, F_GETFD) : -1;

    if (flags < 0)
        return -EBADF;
    if (!(flags & FD_CLOEXEC) && fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
        return -EBADF;
    return 0;
}

int text_array_ok(const char *s, size_t cap)
{
    size_t i;

    for (i = 0; i < cap && s[i]; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7e)
            return 0;
    return i < cap;
}

int hdr_unchanged(const struct cella_hdr *h, uint32_t size, uint16_t kind)
{
    return h->size == size && h->kind == kind && h->major == CELLA_ABI_MAJOR &&
           h->minor == CELLA_ABI_MINOR && h->flags == 0;
}

int data_take(void *dst, uint32_t dst_size, uint32_t least, uint16_t kind, const void *src)
{
    struct cella_hdr h;

    memcpy(&h, src, sizeof(h));
    if (h.kind != kind || h.major != CELLA_ABI_MAJOR || h.flags || h.size < least ||
        h.size > PLUGIN_TABLE_MAX)
        return -EPROTO;
    if (h.size > dst_size && !bytes_zero((const char *)src + dst_size, h.size - dst_size))
        return -E2BIG;
    memset(dst, 0, dst_size);
    memcpy(dst, src, h.size < dst_size ? h.size : dst_size);
    return 0;
}
