/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest - a cell that is a machine: what the warden says to the init of its guest, <cella/guest.h>.
 *
 * A container gets its names, files and limits from the host's kernel; a machine has to be told.
 * Two ways lead to a running cell: a boot (SHOW, BOOT, the agent's link), and a copy of a machine
 * that ran (RESET, SETTLE, THAW, the agent's link anew). In both the client that waits is answered
 * by the agent's HELLO alone, so a machine that has not confirmed who it is now is never handed out.
 *
 * Trust: the guest may lie about its inside. Its figures fill in what the backend cannot measure
 * from outside and never replace it. Threads: one; everything but freeze, thaw, refresh and the
 * first step of a copy returns at once.
 */
#include "guest_int.h"
#include "trust.h"

#define REFRESH_NS 300000000ull

/* ---- failures ---- */

/* The last line on the console, printable; "" when the backend has no method "console". */
static void console_tail(struct warden *w, char *ret, size_t cap)
{
    struct errbuf eb;
    json_t *result = NULL;
    const char *text, *from;
    size_t n, i;

    ret[0] = 0;
    if (method_call(w->backend_plugin, w->backend.self, "console", NULL, &result,
                    errbuf_init(&eb)) < 0)
        return;
    text = json_string_value(json_object_get(result, "tail"));
    for (n = text ? strlen(text) : 0; n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'); n--)
        ;
    for (from = text + n; n > 0 && from > text && from[-1] != '\n'; from--)
        ;
    for (i = 0; n > 0 && from + i < text + n && i + 1 < cap; i++)
        ret[i] = (char)(from[i] < 0x20 || from[i] > 0x7e ? '?' : from[i]);
    ret[i] = 0;
    json_decref(result);
}

void machine_failed(struct warden *w, const char *why)
{
    char tail[201];

    if (w->state != W_STARTING) {
        cell_end(w, "agent", "%s", why);
        return;
    }
    console_tail(w, tail, sizeof(tail));
    cell_end(w, "backend", "the guest did not start: %s%s%s", why,
             tail[0] ? "; the last line on its console: " : "", tail);
}

static void guest_late(void *data)
{
    struct warden *w = data;
    char why[80];

    w->machine->timer = 0;
    snprintf(why, sizeof(why), "its init did not answer within %llu s", BOOT_NS / 1000000000ull);
    machine_failed(w, why);
}

static void guest_closed(void *ctx, int code, const char *why)
{
    (void)code;
    machine_failed(ctx, why);
}

/* ---- identity ---- */

void machine_world(struct buf *b)
{
    uint8_t entropy[256];

    if (random_bytes(entropy, sizeof(entropy)) < 0)
        b->oom = 1;
    field_add(b, CELLA_TAG_ENTROPY, entropy, sizeof(entropy));
    explicit_bzero(entropy, sizeof(entropy));
    field_add_u64(b, CELLA_TAG_EPOCH_NS, wall_ns());
}

static int add_identity(const struct warden *w, struct buf *b)
{
    const struct machine *m = w->machine;
    uint8_t id[32];

    if (random_bytes(id, sizeof(id)) < 0)
        return -EIO;
    id[6] = id[22] = (uint8_t)((id[6] & 0x0f) | 0x40); /* version and variant of a random UUID */
    id[8] = id[24] = (uint8_t)((id[8] & 0x3f) | 0x80);
    field_add_str(b, CELLA_TAG_HOSTNAME, m->hostname);
    field_add(b, CELLA_TAG_MACHINE_ID, id, 16);
    field_add(b, CELLA_TAG_BOOT_ID, id + 16, 16);
    field_add_u64(b, CELLA_TAG_GENERATION, m->generation);
    if (w->attached.address[0]) {
        field_add(b, CELLA_TAG_MAC, w->attached.mac, 6);
        field_add_str(b, CELLA_TAG_ADDRESS, w->attached.address);
        field_add_str(b, CELLA_TAG_GATEWAY, w->attached.gateway);
    }
    if (m->copy)
        field_add(b, CELLA_TAG_NONCE, m->nonce, sizeof(m->nonce));
    machine_world(b); /* last: the clock is read as late as can be */
    return b->oom ? -ENOMEM : 0;
}

/* ---- the two ways to a running cell ---- */

static void agent_connect(struct warden *w)
{
    struct machine *m = w->machine;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    auto_close int fd = -1;
    int r = backend_connect(&w->backend, 0, &fd, err);

    if (r == 0 && m->copy)
        r = guest_skip(fd, m->nonce, CALL_NS, err);
    if (r == 0)
        r = cell_link(w, steal_fd(&fd), err);
    if (r < 0)
        machine_failed(w, eb.text);
}

/* The start as the guest tells it. It may lie about how its steps share the time that has passed, not about more:
   its last step is now, and none is before the start. */
static void steps_tell(struct warden *w, const uint64_t steps[CELLA_GUEST_STEPS])
{
    static const char *const names[] = {"guest-kernel", "guest-drivers", "guest-ports",
                                        "guest-hello",  "guest-root",    "guest-identity",
                                        "guest-cell"};
    uint64_t now = now_ns(), began = w->machine->began, last = steps[CELLA_GUEST_STEPS - 1], at;
    size_t i;

    warden_step(w, "guest-entry", began);
    for (i = 0; i < CELLA_GUEST_STEPS; i++) {
        uint64_t before = last - (i ? steps[i - 1] : 0); /* from its begin until now */
        at = before < now - began ? now - before : began;
        warden_step(w, names[i], at);
    }
    _Static_assert(ARRAY_LEN(names) == CELLA_GUEST_STEPS, "a name for each step");
}

static void on_booted(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct warden *w = ctx;
    uint64_t steps[CELLA_GUEST_STEPS];

    if (code < 0) {
        machine_failed(w, why);
        return;
    }
    if (w->machine->copy) {
        warden_step(w, "link", now_ns());
        agent_connect(w);
        return;
    }
    if (guest_steps(payload, len, steps))
        steps_tell(w, steps);
    warden_step(w, "clock", now_ns());
    machine_clock(w, agent_connect);
}

/* Never before it has settled: the cell would run as the one that it was. */
static void thaw_copy(struct warden *w)
{
    int r;

    warden_step(w, "thaw", now_ns());
    r = machine_show_all(w);
    if (r == 0)
        r = guest_send(w->machine->guest, CELLA_GUEST_THAW, "", 0, CALL_NS, on_booted, w);
    if (r < 0)
        machine_failed(w, strerror(-r));
}

static void on_settled(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct warden *w = ctx;
    struct errbuf eb;
    int r;

    if (code < 0) {
        on_booted(ctx, code, why, payload, len);
        return;
    }
    r = warden_audit(w, errbuf_init(&eb), "cell.settled", "i:generation",
                     (int64_t)w->machine->generation, "s:hostname", w->machine->hostname,
                     "s:address", w->attached.address, NULL);
    if (r < 0)
        machine_failed(w, eb.text);
    else {
        warden_step(w, "clock", now_ns());
        machine_clock(w, thaw_copy);
    }
}

static int boot(struct warden *w)
{
    struct machine *m = w->machine;
    auto_buf struct buf b = BUF_INIT;
    int r = machine_show_all(w);

    buf_add(&b, m->boot.ptr, m->boot.len);
    if (r == 0)
        r = add_identity(w, &b);
    return r == 0 ? guest_send(m->guest, CELLA_GUEST_BOOT, b.ptr, b.len, BOOT_NS, on_booted, w) : r;
}

static int settle(struct warden *w)
{
    struct machine *m = w->machine;
    auto_buf struct buf b = BUF_INIT;
    int r = add_identity(w, &b);

    warden_step(w, "settle", now_ns());
    return r < 0 ? r
                 : guest_send(m->guest, CELLA_GUEST_SETTLE, b.ptr, b.len, CALL_NS, on_settled, w);
}

static void guest_ready(void *ctx)
{
    struct warden *w = ctx;
    int r;

    loop_timer_cancel(w->loop, w->machine->timer);
    w->machine->timer = 0;
    r = w->machine->copy ? settle(w) : boot(w);
    if (r < 0)
        machine_failed(w, strerror(-r));
}

static const struct guest_events events = {guest_ready, guest_closed};

int machine_start(struct warden *w, struct cella_error *err)
{
    struct machine *m = w->machine;
    uint8_t nonce[CELLA_GUEST_NONCE];
    auto_close int fd = -1;
    int r;

    m->began = now_ns();
    r = backend_connect(&w->backend, 1, &fd, err);
    if (r == 0 && m->copy) {
        if (random_bytes(nonce, sizeof(nonce)) < 0 || random_bytes(m->nonce, sizeof(m->nonce)) < 0)
            return fail(err, -EIO, "no random bytes");
        r = guest_reset(fd, nonce, CALL_NS, err);
    }
    if (r < 0)
        return r;
    r = guest_new(w->loop, steal_fd(&fd), &events, w, &m->guest);
    if (r < 0)
        return fail(err, r, "link to the guest: %s", strerror(-r));
    m->timer = loop_timer(w->loop, BOOT_NS, guest_late, w);
    return 0;
}

/* ---- before the machine is made ---- */

static void add_mount(struct buf *b, uint32_t number, const struct cella_mount *m)
{
    auto_buf struct buf v = BUF_INIT;
    uint32_t head[2] = {number, m->flags};

    buf_add(&v, head, sizeof(head));
    buf_add(&v, m->target, strlen(m->target));
    field_add(b, CELLA_TAG_MOUNT, v.ptr, v.len);
}

int machine_prepare(struct warden *w, const char *hostname, const struct cella_mount *shown,
                    uint32_t n_shown, const struct cella_mount *users, uint32_t n_users,
                    struct cella_error *err)
{
    struct machine *m = calloc(1, sizeof(*m));
    char cover[400];
    uint32_t i;

    if (!m)
        return fail(err, -ENOMEM, "guest: out of memory");
    w->machine = m;
    m->generation = 1;
    m->usage.unknown = ~0u;
    snprintf(m->hostname, sizeof(m->hostname), "%s", hostname);
    for (i = 0; i < n_shown; i++) {
        const char *name = strrchr(shown[i].source, '/') + 1;
        if (!(shown[i].flags & CELLA_MOUNT_FILE))
            continue; /* /run/cella itself: init's */
        snprintf(cover, sizeof(cover), "%s:%s", name, shown[i].target);
        field_add_str(&m->boot, CELLA_TAG_COVER, cover);
    }
    for (i = 0; i < n_users; i++) {
        if (users[i].flags & CELLA_MOUNT_FILE)
            return fail(err, -ENOTSUP,
                        "mount %s: a machine shares directories, not single files; mount the "
                        "directory that holds it, or copy it in with \"cella cp\"",
                        users[i].target);
        add_mount(&m->boot, i, &users[i]);
    }
    if (w->req.limits.pids)
        field_add_u64(&m->boot, CELLA_TAG_PIDS, w->req.limits.pids);
    if (w->req.limits.memory)
        field_add_u64(&m->boot, CELLA_TAG_MEMORY, w->req.limits.memory);
    if (w->req.readonly)
        field_add_u32(&m->boot, CELLA_TAG_READONLY, 1);
    return m->boot.oom ? fail(err, -ENOMEM, "guest: out of memory") : 0;
}

void machine_is_copy(struct warden *w, uint64_t generation)
{
    w->machine->copy = 1;
    w->machine->generation = generation;
}

void machine_free(struct warden *w)
{
    struct machine *m = steal_ptr(&w->machine);

    loop_timer_cancel(w->loop, m->timer);
    loop_timer_cancel(w->loop, m->clock_timer);
    guest_free(m->guest);
    buf_fini(&m->boot);
    free(m);
}

/* ---- figures ---- */

static void usage_told(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct machine *m = ((struct warden *)ctx)->machine;

    (void)why;
    m->asking = 0;
    if (code == 0)
        guest_usage(payload, len, &m->usage);
}

void machine_poll(struct warden *w)
{
    struct machine *m = w->machine;

    if (m->guest && !m->asking && w->state == W_RUNNING &&
        guest_send(m->guest, CELLA_GUEST_USAGE, "", 0, BOOT_NS, usage_told, w) == 0)
        m->asking = 1;
}

void machine_refresh(struct warden *w)
{
    if (w->state != W_RUNNING || !w->machine->guest)
        return;
    guest_turn(w->machine->guest, REFRESH_NS); /* an older answer first */
    machine_poll(w);
    guest_turn(w->machine->guest, REFRESH_NS);
}

_Static_assert(offsetof(struct cella_stats, pids_refused) ==
                   offsetof(struct cella_stats, cpu_user_ns) + 10 * sizeof(uint64_t),
               "eleven figures, one after another");

void machine_merge(const struct warden *w, struct cella_stats *ret)
{
    const struct cella_stats *u = &w->machine->usage;
    size_t i, at = offsetof(struct cella_stats, cpu_user_ns);

    for (i = 0; i < 11; i++, at += sizeof(uint64_t)) /* in the order of the bits */
        if (ret->unknown & ~u->unknown & 1u << i) {
            memcpy((char *)ret + at, (const char *)u + at, sizeof(uint64_t));
            ret->unknown &= ~(1u << i);
        }
    ret->limit_hit |= u->limit_hit;
}

int machine_resize(struct warden *w, const struct config_limits *was,
                   const struct config_limits *is, guest_done done)
{
    auto_buf struct buf b = BUF_INIT;

    if (is->cpu_millis != was->cpu_millis)
        field_add_u32(&b, CELLA_TAG_CPUS, (uint32_t)((is->cpu_millis + 999) / 1000));
    if (is->pids != was->pids)
        field_add_u64(&b, CELLA_TAG_PIDS, is->pids);
    if (is->memory != was->memory)
        field_add_u64(&b, CELLA_TAG_MEMORY, is->memory);
    return b.oom
               ? -ENOMEM
               : guest_send(w->machine->guest, CELLA_GUEST_RESIZE, b.ptr, b.len, CALL_NS, done, w);
}

/* ---- standing still ---- */

void machine_pause(struct warden *w, int on)
{
    struct machine *m = w->machine;

    if (!m->guest)
        return;
    if (on)
        guest_turn(m->guest, REFRESH_NS);
    machine_clock_leave(w);
    guest_hold(m->guest, on);
    if (on)
        return;
    machine_clock(w, NULL);
}

int machine_freeze(struct warden *w, struct cella_error *err)
{
    int r = guest_call(w->machine->guest, CELLA_GUEST_FREEZE, "", 0, CALL_NS, NULL, err);

    if (r < 0)
        guest_send(w->machine->guest, CELLA_GUEST_THAW, "", 0, CALL_NS, NULL, NULL);
    return r;
}

/* The machine's clock has stood still with it. */
int machine_thaw(struct warden *w, struct cella_error *err)
{
    machine_clock(w, NULL);
    guest_turn(w->machine->guest, REFRESH_NS);
    return guest_call(w->machine->guest, CELLA_GUEST_THAW, "", 0, CALL_NS, NULL, err);
}
