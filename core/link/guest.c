/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest - requests to the init of a guest, one at a time, and the judgement of what it answers.
 *
 * Why not link.c: there the agent may have many streams and sends data; here a frame is an answer
 * to the one request under way or a breach. Invariants: nothing is allocated for the guest's bytes
 * but the framer's buffer of one frame; `closed` comes once and from a clean stack; a request that
 * waited too long ends the connection, because what would come later could be taken for the answer
 * to another. Threads: one.
 */

#include "guest.h"
#include "link_internal.h"

#define OUT_MAX (1u << 20)
#define WHY_MAX 600u

struct call {
    struct call *next;
    uint64_t ns;
    guest_done done;
    void *ctx;
    uint32_t op;
    size_t len;
    uint8_t fields[];
};

struct guest {
    struct loop *loop;
    struct framer *framer;
    const struct guest_events *events;
    void *ctx;
    struct call *calls, **tail; /* the first is under way once HELLO has come */
    uint32_t stream;            /* the last one used */
    int pending;                /* it is under way */
    int held;
    int hello, dead, busy, freed;
    int timer; /* deadline of the one under way; or the end, when `dead` */
    int code;
    char why[WHY_MAX];
};

static const char *op_name(uint32_t op)
{
    static const char *const names[] = {"BOOT",   "FREEZE",   "SETTLE", "THAW", "USAGE",
                                        "RESIZE", "POWEROFF", "RESET",  "SHOW", "CLOCK"};

    return op >= CELLA_GUEST_BOOT && op - CELLA_GUEST_BOOT < ARRAY_LEN(names)
               ? names[op - CELLA_GUEST_BOOT]
               : "request";
}

static void leave(struct guest *g)
{
    if (--g->busy == 0 && g->freed)
        free(g);
}

static void call_pop(struct guest *g)
{
    struct call *c = g->calls;

    g->calls = c->next;
    if (!g->calls)
        g->tail = &g->calls;
    free(c);
}

static void call_end(struct guest *g, int code, const char *why, const uint8_t *payload, size_t len)
{
    guest_done done = g->calls->done;
    void *ctx = g->calls->ctx;

    call_pop(g);
    if (done)
        done(ctx, code, why, payload, len);
}

static void on_end(void *data)
{
    struct guest *g = data;

    g->timer = 0;
    g->busy++;
    while (g->calls && !g->freed)
        call_end(g, g->code, g->why, NULL, 0);
    if (!g->freed)
        g->events->closed(g->ctx, g->code, g->why);
    leave(g);
}

/* Nothing is sent or heard any more; who waits is told from the loop, or by guest_call(). */
static void die(struct guest *g, int code)
{
    if (g->dead)
        return;
    g->dead = 1;
    g->code = code;
    loop_timer_cancel(g->loop, g->timer);
    framer_free(g->framer);
    g->framer = NULL;
    g->pending = 0;
    g->timer = loop_timer(g->loop, 0, on_end, g);
}

static void on_late(void *data)
{
    struct guest *g = data;

    g->timer = 0;
    snprintf(g->why, sizeof(g->why), "the guest did not answer %s within %llu s",
             op_name(g->calls->op), (unsigned long long)(g->calls->ns / 1000000000u));
    die(g, -ETIMEDOUT);
}

static void next(struct guest *g)
{
    struct call *c = g->calls;

    if (!c || !g->hello || g->dead || g->pending || g->held)
        return;
    g->pending = 1;
    if (framer_send(g->framer, CELLA_FRAME_OPEN, 0, ++g->stream, 0, c->fields, c->len) < 0) {
        snprintf(g->why, sizeof(g->why), "the guest does not read");
        die(g, -ECONNRESET);
        return;
    }
    g->timer = loop_timer(g->loop, c->ns, on_late, g);
}

/* ---- what the guest says ---- */

static const struct {
    uint16_t tag;
    size_t at; /* in struct cella_stats */
    unsigned bit;
} usage_fields[] = {
    {CELLA_TAG_CPU_USER_NS, offsetof(struct cella_stats, cpu_user_ns), 0},
    {CELLA_TAG_CPU_SYSTEM_NS, offsetof(struct cella_stats, cpu_system_ns), 1},
    {CELLA_TAG_MEMORY, offsetof(struct cella_stats, memory_bytes), 2},
    {CELLA_TAG_MEMORY_PEAK, offsetof(struct cella_stats, memory_peak_bytes), 3},
    {CELLA_TAG_TASKS, offsetof(struct cella_stats, pids), 4},
    {CELLA_TAG_TASKS_PEAK, offsetof(struct cella_stats, pids_peak), 5},
    {CELLA_TAG_DISK, offsetof(struct cella_stats, disk_bytes), 6},
    {CELLA_TAG_OOM_KILLS, offsetof(struct cella_stats, oom_kills), 9},
    {CELLA_TAG_PIDS_REFUSED, offsetof(struct cella_stats, pids_refused), 10},
};

static int usage_check(const uint8_t *payload, size_t len)
{
    uint32_t seen = 0, bit;
    struct field f;
    size_t pos = 0;
    int r;

    while ((r = field_next(payload, len, &pos, &f)) > 0) {
        if (f.tag < CELLA_TAG_CPU_USER_NS || f.tag > CELLA_TAG_LIMIT_HIT || f.len != 8)
            return -EPROTO;
        bit = 1u << (f.tag - CELLA_TAG_CPU_USER_NS);
        if (seen & bit)
            return -EPROTO;
        seen |= bit;
    }
    return r < 0 ? -EPROTO : 0;
}

void guest_usage(const uint8_t *payload, size_t len, struct cella_stats *ret)
{
    uint64_t v;
    size_t i;

    for (i = 0; i < ARRAY_LEN(usage_fields); i++)
        if (field_get_u64(payload, len, usage_fields[i].tag, &v) == 0) {
            v &= INT64_MAX; /* it is written as a JSON number */
            memcpy((char *)ret + usage_fields[i].at, &v, sizeof(v));
            ret->unknown &= ~(1u << usage_fields[i].bit);
        }
    if (field_get_u64(payload, len, CELLA_TAG_LIMIT_HIT, &v) == 0)
        ret->limit_hit |=
            (uint32_t)(v & (CELLA_LIMIT_HIT_MEMORY | CELLA_LIMIT_HIT_PIDS | CELLA_LIMIT_HIT_DISK));
}

int guest_steps(const uint8_t *payload, size_t len, uint64_t ret[CELLA_GUEST_STEPS])
{
    struct field f;
    size_t pos = 0;

    if (field_next(payload, len, &pos, &f) <= 0)
        return 0;
    memcpy(ret, f.p, CELLA_GUEST_STEPS * sizeof(uint64_t)); /* steps_check() has seen it */
    return 1;
}

/* Nothing, or one field of times in their order. */
static int steps_check(const uint8_t *payload, size_t len)
{
    uint64_t v[CELLA_GUEST_STEPS];
    struct field f;
    size_t pos = 0, i;
    int r = field_next(payload, len, &pos, &f);

    if (r <= 0)
        return r;
    if (f.tag != CELLA_TAG_STEPS || f.len != sizeof(v) || pos != len)
        return -EPROTO;
    memcpy(v, f.p, sizeof(v));
    for (i = 1; i < ARRAY_LEN(v); i++)
        if (v[i] < v[i - 1])
            return -EPROTO;
    return v[ARRAY_LEN(v) - 1] > INT64_MAX ? -EPROTO : 0;
}

static int result_check(uint32_t op, const uint8_t *payload, size_t len)
{
    if (op == CELLA_GUEST_USAGE)
        return usage_check(payload, len);
    return op == CELLA_GUEST_BOOT ? steps_check(payload, len) : len ? -EPROTO : 0;
}

static int breach(struct guest *g, const char *what)
{
    snprintf(g->why, sizeof(g->why), "%s", what);
    return -EPROTO;
}

static int on_hello(struct guest *g, const struct cella_frame *f, const uint8_t *payload)
{
    uint32_t version;
    int r = check_hello(f, payload, &version, g->why, sizeof(g->why));

    if (r < 0)
        return r;
    if (version != CELLA_LINK_VERSION)
        return breach(g, "the guest speaks another version of the protocol");
    g->hello = 1;
    g->events->ready(g->ctx);
    if (!g->freed)
        next(g);
    return 0;
}

/* ERRNO MESSAGE?, as of the agent. Control characters of the guest do not reach a terminal. */
static int on_error(struct guest *g, const struct cella_frame *f, const uint8_t *payload,
                    char text[WHY_MAX])
{
    uint32_t e;
    const char *m = "";
    size_t n = 0, i;

    if (field_get_u32(payload, f->length, CELLA_TAG_ERRNO, &e) < 0 || e < 1 || e > 4095)
        return breach(g, "an ERROR of the guest without a valid number");
    field_get_str(payload, f->length, CELLA_TAG_MESSAGE, &m, &n);
    if (n > 512)
        return breach(g, "an ERROR of the guest with more than 512 bytes");
    if (!n) {
        m = strerror((int)e);
        n = strlen(m);
    }
    snprintf(text, WHY_MAX, "%s: %.*s", op_name(g->calls->op), (int)n, m);
    for (i = 0; text[i]; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] > 0x7e)
            text[i] = '?';
    return (int)e;
}

static int on_answer(struct guest *g, const struct cella_frame *f, const uint8_t *payload)
{
    char text[WHY_MAX];
    int e = 0;

    if (!g->pending || f->stream != g->stream || f->channel || f->id)
        return breach(g, "an answer of the guest to no request");
    if (f->type == CELLA_FRAME_ERROR)
        e = on_error(g, f, payload, text);
    else if (f->type != CELLA_FRAME_RESULT)
        return breach(g, "a frame of the guest that is no answer");
    else if (result_check(g->calls->op, payload, f->length) < 0)
        return breach(g, "an answer of the guest with fields that its request does not have");
    if (e < 0)
        return e;
    loop_timer_cancel(g->loop, g->timer);
    g->timer = 0;
    g->pending = 0;
    call_end(g, -e, e ? text : "", payload, f->length);
    if (!g->freed)
        next(g);
    return 0;
}

static int on_frame(void *ctx, const struct cella_frame *f, const uint8_t *payload)
{
    struct guest *g = ctx;
    int r;

    g->busy++;
    r = g->hello ? on_answer(g, f, payload) : on_hello(g, f, payload);
    if (g->freed || g->dead)
        r = 0; /* the framer is gone */
    leave(g);
    return r;
}

static void on_closed(void *ctx, int code)
{
    struct guest *g = ctx;

    if (code == -EMSGSIZE)
        snprintf(g->why, sizeof(g->why), "a frame of the guest longer than %u bytes",
                 CELLA_FRAME_MAX);
    else if (code != -EPROTO)
        snprintf(g->why, sizeof(g->why), "the guest is gone");
    die(g, code == -EMSGSIZE || code == -EPROTO ? -EPROTO : -ECONNRESET);
}

/* ---- the owner ---- */

int guest_new(struct loop *loop, int own_fd, const struct guest_events *events, void *ctx,
              struct guest **ret)
{
    struct guest *g = calloc(1, sizeof(*g));
    int r;

    if (!g) {
        close(own_fd);
        return -ENOMEM;
    }
    g->loop = loop;
    g->events = events;
    g->ctx = ctx;
    g->tail = &g->calls;
    r = framer_new(loop, own_fd, OUT_MAX, on_frame, on_closed, g, &g->framer);
    if (r < 0) {
        free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void guest_free(struct guest *g)
{
    if (!g || g->freed)
        return;
    g->freed = g->dead = 1;
    loop_timer_cancel(g->loop, g->timer);
    framer_free(g->framer);
    g->framer = NULL;
    while (g->calls)
        call_pop(g);
    if (!g->busy)
        free(g);
}

int guest_send(struct guest *g, uint32_t op, const void *fields, size_t len, uint64_t ns,
               guest_done done, void *ctx)
{
    auto_buf struct buf b = BUF_INIT;
    struct call *c;

    if (g->dead)
        return -EPIPE;
    field_add_u32(&b, CELLA_TAG_OP, op);
    buf_add(&b, fields, len);
    if (b.len > CELLA_FRAME_MAX)
        return -E2BIG;
    c = b.oom ? NULL : malloc(sizeof(*c) + b.len);
    if (!c)
        return -ENOMEM;
    *c = (struct call){.ns = ns, .done = done, .ctx = ctx, .op = op, .len = b.len};
    memcpy(c->fields, b.ptr, b.len);
    *g->tail = c;
    g->tail = &c->next;
    if (g->calls == c)
        next(g);
    return 0;
}

struct waiting {
    int over, code;
    struct cella_stats *usage;
    char why[WHY_MAX];
};

static void waited(void *ctx, int code, const char *why, const uint8_t *payload, size_t len)
{
    struct waiting *w = ctx;

    w->over = 1;
    w->code = code;
    snprintf(w->why, sizeof(w->why), "%s", why);
    if (code == 0 && w->usage)
        guest_usage(payload, len, w->usage);
}

int guest_call(struct guest *g, uint32_t op, const void *fields, size_t len, uint64_t ns,
               struct cella_stats *ret, struct cella_error *err)
{
    struct waiting w = {.usage = ret};
    uint64_t until = now_ns() + ns, now;
    struct call *c;
    int r = guest_send(g, op, fields, len, ns, waited, &w);

    if (r < 0)
        return fail(err, r, "guest, %s: %s", op_name(op),
                    g->dead && g->why[0] ? g->why : strerror(-r));
    g->busy++;
    while (!w.over && !g->dead && (now = now_ns()) < until)
        framer_turn(g->framer, (int)((until - now) / 1000000u) + 1);
    if (!w.over && !g->dead) {
        snprintf(g->why, sizeof(g->why), "the guest did not answer %s within %llu ms", op_name(op),
                 (unsigned long long)(ns / 1000000u));
        die(g, -ETIMEDOUT);
    }
    if (!w.over) /* the others are told from the loop; this one's struct ends here */
        for (c = g->calls; c; c = c->next)
            if (c->ctx == &w)
                c->done = NULL;
    r = w.over ? w.code : g->code;
    if (r < 0)
        fail(err, r, "guest: %s", w.over ? w.why : g->why);
    leave(g);
    return r;
}

int guest_turn(struct guest *g, uint64_t ns)
{
    uint64_t until = now_ns() + ns, now;
    int r;

    g->busy++;
    while (g->calls && !g->dead && !g->held && (now = now_ns()) < until)
        framer_turn(g->framer, (int)((until - now) / 1000000u) + 1);
    r = g->calls && !g->dead ? -ETIMEDOUT : 0;
    leave(g);
    return r;
}

void guest_hold(struct guest *g, int on)
{
    if (g->held == !!on || g->dead)
        return;
    g->held = !!on;
    if (g->pending && on) {
        loop_timer_cancel(g->loop, g->timer);
        g->timer = 0;
    } else if (g->pending) {
        g->timer = loop_timer(g->loop, g->calls->ns, on_late, g);
    }
    if (!on)
        next(g);
}

struct framer *guest_framer(struct guest *g)
{
    return g->framer;
}
