/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest_reset - a restored guest's port is made clean: what its parent had begun to say is thrown away up to the answer to a
 * number nobody can know. Blocks, up to its time. Invariants: no byte behind the number is read; what is thrown away is
 * bounded. Threads: any, on its own descriptor.
 */
#include <poll.h>
#include <sys/socket.h>

#include "guest.h"
#include "link_internal.h"

#define SKIP_MAX (8u << 20) /* what may be left of an older connection */

static int send_whole(int fd, const void *p, size_t len, uint64_t until)
{
    const char *at = p;

    while (len) {
        struct pollfd pf = {fd, POLLOUT, 0};
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
        if (now_ns() > until)
            return -ETIMEDOUT;
        if (n <= 0)
            poll(&pf, 1, 10);
    }
    return 0;
}

/* How much of the nonce's beginning the last `have` bytes are. */
static size_t matched(const uint8_t *last, size_t have, const uint8_t *nonce)
{
    size_t m;

    for (m = have; m > 0 && memcmp(last + have - m, nonce, m) != 0; m--)
        ;
    return m;
}

/* Never reads a byte behind the nonce: at most what is missing of it is asked for. */
int guest_skip(int fd, const uint8_t nonce[CELLA_GUEST_NONCE], uint64_t ns, struct cella_error *err)
{
    uint64_t until = now_ns() + ns, now, total = 0;
    uint8_t window[CELLA_GUEST_NONCE];
    size_t have = 0;

    while (have < CELLA_GUEST_NONCE) {
        ssize_t n = recv(fd, window + have, CELLA_GUEST_NONCE - have, MSG_DONTWAIT);
        struct pollfd pf = {fd, POLLIN, 0};
        size_t m;
        now = now_ns();
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return fail(err, -ECONNRESET, "guest: it is gone before it answered");
        if (now >= until)
            return fail(err, -ETIMEDOUT, "guest: it did not answer within %llu ms",
                        (unsigned long long)(ns / 1000000u));
        if (n < 0) {
            poll(&pf, 1, (int)((until - now) / 1000000u) + 1);
            continue;
        }
        total += (uint64_t)n;
        if (total > SKIP_MAX)
            return fail(err, -EPROTO, "guest: more than %u bytes before its answer", SKIP_MAX);
        have += (size_t)n;
        m = matched(window, have, nonce);
        memmove(window, window + have - m, m);
        have = m;
    }
    return 0;
}

int guest_reset(int fd, const uint8_t nonce[CELLA_GUEST_NONCE], uint64_t ns,
                struct cella_error *err)
{
    auto_buf struct buf fields = BUF_INIT, b = BUF_INIT;
    uint64_t until = now_ns() + ns;
    int r;

    field_add_u32(&fields, CELLA_TAG_OP, CELLA_GUEST_RESET);
    field_add(&fields, CELLA_TAG_NONCE, nonce, CELLA_GUEST_NONCE);
    frame_encode(&b, CELLA_FRAME_OPEN, UINT32_MAX, fields.ptr, fields.len);
    if (fields.oom || b.oom)
        return fail(err, -ENOMEM, "guest: out of memory");
    r = send_whole(fd, b.ptr, b.len, until);
    if (r < 0)
        return fail(err, r, "guest, RESET: %s", strerror(-r));
    return guest_skip(fd, nonce, ns, err);
}
