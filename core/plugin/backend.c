/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * backend - one wrapper per operation of a backend: order by the lifecycle table, the default when
 * an operation is NULL, a fresh output struct for the plugin, and a check of everything that comes
 * back before the caller sees it.
 *
 * Invariants: outputs are written on success only; a state changes only when the plugin said yes; a
 * descriptor that is handed out is valid, above the standard streams and close-on-exec.
 * Threads: one instance from one thread at a time.
 */
#include <ctype.h>
#include <sys/stat.h>

#include "plugin_int.h"

#define HDR(type, kind) .hdr = CELLA_HDR_INIT(struct type, kind)

static const struct cella_backend_ops *ops(const struct backend *b)
{
    return &b->plugin->ops.backend;
}

static int unsupported(const struct plugin *p, const char *op, struct cella_error *err)
{
    return fail(err, -EOPNOTSUPP, "backend %s has no %s: use a backend that does", p->name, op);
}

static int strength_known(uint32_t s)
{
    return s == CELLA_STRENGTH_PROCESS || s == CELLA_STRENGTH_USER_KERNEL ||
           s == CELLA_STRENGTH_VM_EMULATED || s == CELLA_STRENGTH_VM;
}

/* Says it can, but the table has no such operation. */
static const char *claim_without_op(const struct plugin *p, const struct probe_result *r)
{
    static const char *const names[] = {"pause",    "resume",  "stats", "resize",
                                        "snapshot", "restore", "fork"};
    const struct kind_info *k = kind_info_get(CELLA_KIND_BACKEND);
    size_t i;
    uint32_t n;

    for (i = 0; i < ARRAY_LEN(names); i++) {
        const struct capability *c = probe_find(r, names[i]);
        for (n = 0; c && c->answer != CELLA_NONE && n < k->n_ops; n++)
            if (!strcmp(k->ops[n].name, names[i]) && !op_present(p, &k->ops[n]))
                return names[i];
    }
    return NULL;
}

static int probe_check(const struct call *c, const struct probe_sink *s, struct cella_error *err)
{
    const struct cella_probe *o = &s->out->probe;
    const char *claim;

    if (s->bad.err.code)
        return call_broken(c, err, "it reported %s", s->bad.text);
    if (!hdr_unchanged(&o->hdr, sizeof(*o), CELLA_KIND_PROBE) || o->reserved0)
        return call_broken(c, err, "it changed the header or a reserved member of the result");
    if (!strength_known(o->strength))
        return call_broken(c, err, "it claims an unknown strength (%u)", o->strength);
    if (o->net_need != CELLA_NET_NETNS && o->net_need != CELLA_NET_TAP &&
        o->net_need != CELLA_NET_NONE)
        return call_broken(c, err, "it needs an unknown kind of network (%u)", o->net_need);
    if (o->root_need != CELLA_ROOT_DIR && o->root_need != CELLA_ROOT_IMAGE)
        return call_broken(c, err, "it needs an unknown kind of root (%u)", o->root_need);
    claim = claim_without_op(c->p, s->out);
    if (claim)
        return call_broken(c, err, "it claims the capability %s without that operation", claim);
    return 0;
}

int backend_probe(struct plugin *p, const struct cella_host *host, uint32_t flags,
                  struct probe_result *ret, struct cella_error *err)
{
    struct cella_probe_report report;
    struct probe_result out;
    struct probe_sink sink;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    probe_sink_init(&sink, &out, &report);
    report.hdr.flags = flags;
    out.probe = (struct cella_probe){HDR(cella_probe, CELLA_KIND_PROBE)};
    struct cella_error *e = call_begin(&c, p, "probe", DEADLINE_PROBE);
    r = p->ops.backend.probe(host, &report, &out.probe, e);
    r = call_end(&c, r, err);
    if (r == 0)
        r = probe_check(&c, &sink, err);
    if (r < 0)
        return r;
    probe_remember(p, &out);
    *ret = out;
    return 0;
}

/* The plugin refused something its own probe had promised: the message says so. */
static int refused_claim(const struct plugin *p, const char *capability, int r,
                         struct cella_error *err)
{
    const struct capability *c;

    if (r != -EOPNOTSUPP || !p->rt || !(c = probe_find(p->rt->probe, capability)) ||
        c->answer == CELLA_NONE)
        return r;
    fail_wrap(err, "%s claimed %s (%s) in its probe and refuses it now", p->name, capability,
              answer_name(c->answer));
    return r;
}

/* A refused limit is named by who refuses it; what is refused may be a mount as well. */
static int names(const char *text, const char *word)
{
    const char *at = text;

    while (at && (at = strstr(at, word))) {
        if ((at == text || !isalpha((unsigned char)at[-1])) &&
            !isalpha((unsigned char)at[strlen(word)]))
            return 1;
        at++;
    }
    return 0;
}

static int refused_limits(const struct plugin *p, const struct cella_limits *l, int r,
                          struct cella_error *err)
{
    static const char *const limits[] = {"limit.memory", "limit.pids", "limit.cpu", "limit.disk",
                                         "limit.io"};
    size_t i;

    if (r != -EOPNOTSUPP || !l || !err)
        return r;
    const uint64_t given[] = {l->memory_bytes, l->pids, l->cpu_millis, l->disk_bytes,
                              l->io_read_bps | l->io_write_bps};
    for (i = 0; i < ARRAY_LEN(limits); i++)
        if (given[i] && names(err->msg, limits[i] + strlen("limit.")))
            return refused_claim(p, limits[i], r, err);
    return r;
}

int backend_create(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                   struct backend *ret, struct cella_error *err)
{
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "create", DEADLINE_BUILD);
    r = p->ops.backend.create(host, spec, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r < 0)
        return refused_limits(p, spec->limits, r, err);
    *ret = (struct backend){.plugin = p, .host = host, .self = self, .state = BACKEND_CREATED};
    return 0;
}

int backend_start(struct backend *b, struct cella_started *ret, struct cella_error *err)
{
    struct cella_started out = {HDR(cella_started, CELLA_KIND_STARTED), .borrow_exit_fd = -1};
    enum backend_state next;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_START, &next, err);

    if (r < 0)
        return r;
    struct cella_error *e = call_begin(&c, b->plugin, "start", DEADLINE_BUILD);
    r = ops(b)->start(b->self, &out, e);
    r = call_end(&c, r, err);
    if (r < 0)
        return r;
    b->state = next; /* cell code may run from here on, whatever the result looks like */
    if (!hdr_unchanged(&out.hdr, sizeof(out), CELLA_KIND_STARTED) || out.reserved0)
        return call_broken(&c, err, "it changed the header or a reserved member of the result");
    if (fd_take_check(out.borrow_exit_fd) < 0)
        return call_broken(&c, err, "its exit descriptor %d is not valid", out.borrow_exit_fd);
    *ret = out;
    return 0;
}

int backend_stop(struct backend *b, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    uint64_t deadline;
    enum backend_state next;
    struct call c;
    int r;

    if (b->state == BACKEND_STOPPED)
        return 0;
    r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_STOP, &next, err);
    if (r < 0)
        return r;
    if (how != CELLA_STOP_GRACEFUL && how != CELLA_STOP_KILL)
        return fail(err, -EINVAL, "%s: stop: unknown way to stop (%u)", b->plugin->name, how);
    if (__builtin_add_overflow(timeout_ns, DEADLINE_CALL, &deadline))
        deadline = UINT64_MAX;
    struct cella_error *e = call_begin(&c, b->plugin, "stop", deadline);
    r = ops(b)->stop(b->self, how, timeout_ns, e);
    r = call_end(&c, r, err);
    if (r == 0)
        b->state = next;
    return r;
}

void backend_stop_begin(struct backend *b)
{
    struct errbuf eb;
    struct call c;

    if (!b->self || b->state == BACKEND_STOPPED)
        return;
    struct cella_error *e = call_begin(&c, b->plugin, "stop", DEADLINE_CALL);
    call_end(&c, ops(b)->stop(b->self, CELLA_STOP_BEGIN, 0, e), errbuf_init(&eb));
}

int backend_connect(struct backend *b, uint32_t port, int *ret_fd, struct cella_error *err)
{
    enum backend_state next;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_CONNECT, &next, err);
    struct stat st;
    struct call c;
    int fd = -1;

    if (r < 0)
        return r;
    struct cella_error *e = call_begin(&c, b->plugin, "connect", DEADLINE_CALL);
    r = ops(b)->connect(b->self, port, &fd, e);
    if (r == 0 && fd_take_check(fd) < 0) {
        call_end(&c, 0, NULL);
        return call_broken(&c, err, "the descriptor %d it returned is not valid", fd);
    }
    r = call_end(&c, r, err);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
        close(fd);
        return call_broken(&c, err, "the descriptor %d it returned is not a stream", fd);
    }
    *ret_fd = fd;
    return 0;
}

/* pause and resume have the same shape. */
static int simple_op(struct backend *b, enum backend_op op,
                     int (*fn)(void *self, struct cella_error *err), struct cella_error *err)
{
    const char *name = backend_op_name(op);
    enum backend_state next;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, op, &next, err);

    if (r < 0)
        return r;
    if (!fn)
        return unsupported(b->plugin, name, err);
    struct cella_error *e = call_begin(&c, b->plugin, name, DEADLINE_CALL);
    r = fn(b->self, e);
    r = call_end(&c, r, err);
    if (r == 0)
        b->state = next;
    return refused_claim(b->plugin, name, r, err);
}

int backend_pause(struct backend *b, struct cella_error *err)
{
    return simple_op(b, BACKEND_OP_PAUSE, ops(b)->pause, err);
}

int backend_resume(struct backend *b, struct cella_error *err)
{
    return simple_op(b, BACKEND_OP_RESUME, ops(b)->resume, err);
}

#define STATS_ALL_UNKNOWN 0x7ffu
#define LIMIT_HIT_ALL (CELLA_LIMIT_HIT_MEMORY | CELLA_LIMIT_HIT_PIDS | CELLA_LIMIT_HIT_DISK)

int backend_stats(struct backend *b, struct cella_stats *ret, struct cella_error *err)
{
    struct cella_stats out = {HDR(cella_stats, CELLA_KIND_STATS)};
    enum backend_state next;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_STATS, &next, err);

    if (r < 0)
        return r;
    if (!ops(b)->stats) {
        out.unknown = STATS_ALL_UNKNOWN;
        *ret = out;
        return 0;
    }
    struct cella_error *e = call_begin(&c, b->plugin, "stats", DEADLINE_CALL);
    r = ops(b)->stats(b->self, &out, e);
    r = call_end(&c, r, err);
    if (r < 0)
        return refused_claim(b->plugin, "stats", r, err);
    if (!hdr_unchanged(&out.hdr, sizeof(out), CELLA_KIND_STATS))
        return call_broken(&c, err, "it changed the header of the result");
    if (out.unknown & ~STATS_ALL_UNKNOWN || out.limit_hit & ~LIMIT_HIT_ALL)
        return call_broken(&c, err, "it set unknown bits (unknown %#x, limit_hit %#x)", out.unknown,
                           out.limit_hit);
    *ret = out;
    return 0;
}

int backend_resize(struct backend *b, const struct cella_limits *limits, struct cella_error *err)
{
    enum backend_state next;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_RESIZE, &next, err);

    if (r < 0)
        return r;
    if (!ops(b)->resize)
        return unsupported(b->plugin, "resize", err);
    struct cella_error *e = call_begin(&c, b->plugin, "resize", DEADLINE_CALL);
    r = ops(b)->resize(b->self, limits, e);
    r = call_end(&c, r, err);
    return refused_claim(b->plugin, "resize", r, err);
}

int backend_snapshot(struct backend *b, int dirfd, int brief, void (*taken)(void *ctx), void *ctx,
                     struct cella_error *err)
{
    const struct cella_snapshot to = {HDR(cella_snapshot, CELLA_KIND_SNAPSHOT),
                                      .borrow_dir_fd = dirfd, .ctx = ctx, .taken = taken,
                                      .brief = brief != 0};
    enum backend_state next;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_SNAPSHOT, &next, err);

    if (r < 0)
        return r;
    if (!ops(b)->snapshot)
        return unsupported(b->plugin, "snapshot", err);
    struct cella_error *e = call_begin(&c, b->plugin, "snapshot", DEADLINE_SNAPSHOT);
    r = ops(b)->snapshot(b->self, &to, e);
    r = call_end(&c, r, err);
    return refused_claim(b->plugin, "snapshot", r, err);
}

int backend_restore(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                    int dirfd, struct backend *ret, struct cella_error *err)
{
    const struct cella_snapshot from = {HDR(cella_snapshot, CELLA_KIND_SNAPSHOT),
                                        .borrow_dir_fd = dirfd};
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    if (!p->ops.backend.restore)
        return unsupported(p, "restore", err);
    struct cella_error *e = call_begin(&c, p, "restore", DEADLINE_SNAPSHOT);
    r = p->ops.backend.restore(host, spec, &from, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r < 0)
        return refused_claim(p, "restore", r, err);
    *ret = (struct backend){.plugin = p, .host = host, .self = self, .state = BACKEND_CREATED};
    return 0;
}

int backend_prepare(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                    struct backend *ret, struct cella_error *err)
{
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    if (!p->ops.backend.prepare || !p->ops.backend.load)
        return unsupported(p, "prepare", err);
    struct cella_error *e = call_begin(&c, p, "prepare", DEADLINE_BUILD);
    r = p->ops.backend.prepare(host, spec, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r < 0)
        return r;
    *ret = (struct backend){.plugin = p, .host = host, .self = self, .state = BACKEND_PREPARED};
    return 0;
}

/* Tried once: what half a load left is fit for destroy() alone. */
int backend_load(struct backend *b, int dirfd, struct cella_error *err)
{
    const struct cella_snapshot from = {HDR(cella_snapshot, CELLA_KIND_SNAPSHOT),
                                        .borrow_dir_fd = dirfd};
    enum backend_state next;
    struct errbuf eb;
    struct call c;
    int r = lifecycle_check(b->plugin->name, b->state, BACKEND_OP_LOAD, &next, err);

    if (r < 0)
        return r;
    struct cella_error *e = call_begin(&c, b->plugin, "load", DEADLINE_SNAPSHOT);
    r = ops(b)->load(b->self, &from, e);
    r = call_end(&c, r, err);
    if (r == 0)
        b->state = next;
    else
        backend_stop(b, CELLA_STOP_KILL, 0, errbuf_init(&eb));
    return r;
}

void backend_destroy(struct backend *b)
{
    struct call c;

    if (!b || b->state == BACKEND_NONE || !b->plugin)
        return;
    call_begin(&c, b->plugin, "destroy", DEADLINE_BUILD);
    ops(b)->destroy(b->self);
    call_end_void(&c);
    b->self = NULL;
    b->state = BACKEND_NONE;
}

int backend_reap(struct plugin *p, const struct cella_host *host, const struct cella_reap *reap,
                 struct cella_error *err)
{
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "reap", DEADLINE_BUILD);
    r = p->ops.backend.reap(host, reap, e);
    return (int)call_end_count(&c, r, err);
}
