/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest_clock - the wall clock of a guest, which the host tells it at every start and after every time the machine stood
 * still. How late it heard is not known; that its answer came soon bounds it. On a host too busy for that it is told again,
 * and after a while the cell goes on meanwhile.
 */
#include "guest_int.h"

#define CLOCK_NS 20000000ull        /* a clock that was told in less is right enough */
#define CLOCK_LATE_NS 45000000ull   /* and on a busy host what keeps the contract: 50 ms */
#define CLOCK_WISH_NS 500000000ull  /* for how long it has to be the first */
#define CLOCK_WAIT_NS 2000000000ull /* for how long a start waits for either */
#define CLOCK_AGAIN_NS 250000000ull /* then it is told again so often */
#define CLOCK_TELL_NS 30000000000ull

/* How late the guest heard it is not known, but no later than its answer came. */
static int clock_right(const struct machine *m, uint64_t now)
{
    return now - m->clock_sent <= (now - m->clock_began < CLOCK_WISH_NS ? CLOCK_NS : CLOCK_LATE_NS);
}

static int clock_ask(struct warden *w);

static void clock_again(void *data)
{
    struct warden *w = data;
    struct machine *m = w->machine;

    m->clock_timer = 0;
    if (w->ended)
        return;
    if (now_ns() - m->clock_began < CLOCK_TELL_NS)
        clock_ask(w);
    else
        warden_log(w, CELLA_LOG_WARN, "guest",
                   "the wall clock of the guest may be off by more than 50 ms: for %llu s this "
                   "host was too busy to tell it in less",
                   CLOCK_TELL_NS / 1000000000ull);
}

static void clock_told(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct warden *w = ctx;
    struct machine *m = w->machine;
    void (*after)(struct warden *) = m->after_clock;
    uint64_t now = now_ns();
    int again = code == 0 && !clock_right(m, now);

    (void)payload;
    (void)len;
    if (--m->clocks > 0) /* one that a pause overtook: the last one sets it */
        return;
    if (again && now - m->clock_began < CLOCK_WAIT_NS && clock_ask(w) == 0)
        return;
    if (again)
        m->clock_timer = loop_timer(w->loop, CLOCK_AGAIN_NS, clock_again, w);
    m->after_clock = NULL;
    if (code == 0 && after)
        after(w);
    else if (code < 0 && after)
        machine_failed(w, why);
    else if (code < 0)
        warden_log(w, CELLA_LOG_WARN, "guest", "%s", why);
}

static int clock_ask(struct warden *w)
{
    struct machine *m = w->machine;
    auto_buf struct buf b = BUF_INIT;
    int r;

    m->clock_sent = now_ns();
    machine_world(&b);
    r = b.oom ? -ENOMEM
              : guest_send(m->guest, CELLA_GUEST_CLOCK, b.ptr, b.len, CALL_NS, clock_told, w);
    m->clocks += r == 0;
    return r;
}

void machine_clock_leave(struct warden *w)
{
    loop_timer_cancel(w->loop, w->machine->clock_timer);
    w->machine->clock_timer = 0;
}

void machine_clock(struct warden *w, void (*after)(struct warden *w))
{
    int r;

    machine_clock_leave(w);
    w->machine->after_clock = after;
    w->machine->clock_began = now_ns();
    r = clock_ask(w);
    if (r < 0 && after)
        machine_failed(w, strerror(-r));
}
