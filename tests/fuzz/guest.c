/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Arbitrary bytes as the output of a guest's init, with requests of each kind queued. The first byte chooses whether a
 * good HELLO comes first and whether the owner frees the connection in an answer; the second how the input is cut.
 * Whatever comes: each request ends at most once, `closed` comes at most once, usage stays in range. The same bytes
 * are what is left of an older connection, too.
 */
#include <assert.h>
#include <sys/socket.h>

#include "guest.h"
#include "link_internal.h"

struct rig {
    struct guest *g;
    int how, freed, closed, ended[8];
};

struct one {
    struct rig *r;
    int i;
};

static void on_ready(void *ctx)
{
    (void)ctx;
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct rig *r = ctx;

    assert(++r->closed == 1 && !r->freed);
    assert(code < 0 && strlen(why) > 0);
}

/* Of BOOT's answer. */
static void judge_steps(const uint8_t *payload, size_t len)
{
    uint64_t v[CELLA_GUEST_STEPS];
    size_t i;

    if (!guest_steps(payload, len, v))
        return;
    for (i = 1; i < ARRAY_LEN(v); i++)
        assert(v[i] >= v[i - 1] && v[i] <= INT64_MAX);
}

static void on_done(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct one *o = ctx;
    struct cella_stats s = {.unknown = ~0u};

    assert(++o->r->ended[o->i] == 1 && !o->r->freed);
    assert(code <= 0 && why);
    if (code == 0 && o->i == 0)
        judge_steps(payload, len);
    else if (code == 0)
        guest_usage(payload, len, &s);
    assert((s.limit_hit & ~7u) == 0 && s.memory_bytes <= INT64_MAX);
    if ((o->r->how & 2) && o->i == 2) {
        o->r->freed = 1;
        guest_free(o->r->g);
    }
}

static const struct guest_events events = {on_ready, on_closed};

static void left_over(const uint8_t *data, size_t size)
{
    struct errbuf eb;
    int sv[2];

    if (size < 16 || size > 4096 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return;
    if (write(sv[1], data, size) != (ssize_t)size)
        abort();
    close(sv[1]);
    assert(guest_skip(sv[0], data + size - 16, 1000000000u, errbuf_init(&eb)) == 0 ||
           eb.err.code < 0);
    close(sv[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t hello[] = {24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
                                    4,  0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0};
    static const uint32_t ops[] = {CELLA_GUEST_BOOT, CELLA_GUEST_USAGE, CELLA_GUEST_FREEZE,
                                   CELLA_GUEST_USAGE, CELLA_GUEST_POWEROFF};
    struct one ones[ARRAY_LEN(ops)];
    struct rig r = {0};
    struct loop *loop;
    int sv[2];
    size_t step, n, i;

    if (size < 2 || size > 1 << 18)
        return 0;
    r.how = data[0];
    step = (data[0] & 16) ? size : 1 + data[1] % 64u;
    left_over(data + 2, size - 2);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0 || loop_new(&loop) < 0 ||
        guest_new(loop, sv[0], &events, &r, &r.g) < 0)
        abort();
    for (i = 0; i < ARRAY_LEN(ops); i++) {
        ones[i] = (struct one){&r, (int)i};
        if (guest_send(r.g, ops[i], "", 0, 1000000000u, on_done, &ones[i]) < 0)
            abort();
    }
    if (r.how & 1)
        framer_feed(guest_framer(r.g), hello, sizeof(hello));
    for (data += 2, size -= 2; size && !r.freed && guest_framer(r.g); data += n, size -= n) {
        n = step < size ? step : size;
        framer_feed(guest_framer(r.g), data, n);
    }
    if (!r.freed)
        loop_turn(loop, 0);
    if (!r.freed)
        guest_free(r.g);
    loop_free(loop);
    close(sv[1]);
    return 0;
}
