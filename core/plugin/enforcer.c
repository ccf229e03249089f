/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * enforcer - one wrapper per operation of an egress enforcer. As backend.c: defaults for NULL,
 * fresh outputs, everything that comes back is checked. An attach whose result is malformed is
 * undone with detach, so the caller never holds half an enforcer. Threads: one instance from one
 * thread at a time.
 */
#include "plugin_int.h"

#define HDR(type, kind) .hdr = CELLA_HDR_INIT(struct type, kind)

static const struct cella_enforcer_ops *ops(const struct plugin *p)
{
    return &p->ops.enforcer;
}

static int unsupported(const struct plugin *p, const char *op, struct cella_error *err)
{
    return fail(err, -EOPNOTSUPP,
                "enforcer %s has no %s: the policy of a running cell stays as it is", p->name, op);
}

int enforcer_probe(struct plugin *p, const struct cella_host *host, struct probe_result *ret,
                   struct cella_error *err)
{
    struct cella_probe_report report;
    struct probe_result out;
    struct probe_sink sink;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    probe_sink_init(&sink, &out, &report);
    struct cella_error *e = call_begin(&c, p, "probe", DEADLINE_PROBE);
    r = ops(p)->probe(host, &report, e);
    r = call_end(&c, r, err);
    if (r == 0 && sink.bad.err.code)
        r = call_broken(&c, err, "it reported %s", sink.bad.text);
    if (r < 0)
        return r;
    probe_remember(p, &out);
    *ret = out;
    return 0;
}

int enforcer_check(struct plugin *p, const struct cella_policy *policy, struct cella_error *err)
{
    struct call c;
    int r;

    if (!ops(p)->check)
        return 0;
    struct cella_error *e = call_begin(&c, p, "check", DEADLINE_CALL);
    r = ops(p)->check(policy, e);
    return call_end(&c, r, err);
}

void enforcer_ready(struct plugin *p, const struct cella_host *host,
                    const struct cella_ready *ready, void **ret)
{
    struct errbuf eb;
    void *handle = NULL;
    struct call c;
    int r;

    *ret = NULL;
    if (!ops(p)->ready || !ops(p)->unready)
        return;
    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "ready", DEADLINE_CALL);
    r = ops(p)->ready(host, ready, &handle, e);
    r = call_end(&c, r, errbuf_init(&eb)); /* attach meets the same obstacle and says so */
    if (r == 0)
        *ret = handle;
}

void enforcer_unready(struct plugin *p, void *ready)
{
    struct call c;

    if (!ready)
        return;
    call_begin(&c, p, "unready", DEADLINE_CALL);
    ops(p)->unready(ready);
    call_end_void(&c);
}

static const char *ca_fault(const struct cella_span *ca)
{
    return ca->len > CELLA_CA_PEM_MAX || (ca->len && !ca->ptr)
               ? "the certificate authority it returned is too long or nowhere"
               : NULL;
}

/* Why what attach returned cannot be used, or NULL. */
static const char *attached_fault(const struct cella_attach *in, const struct cella_attached *out)
{
    if (!hdr_unchanged(&out->hdr, sizeof(*out), CELLA_KIND_ATTACHED) || out->reserved0 ||
        out->reserved1)
        return "it changed the header or a reserved member of the result";
    if (!text_array_ok(out->address, sizeof(out->address)) ||
        !text_array_ok(out->gateway, sizeof(out->gateway)))
        return "an address it returned is not a terminated text";
    if (in->link == CELLA_LINK_TAP && fd_take_check(out->own_tap_fd) < 0)
        return "the tap descriptor it returned is not valid";
    if (in->link != CELLA_LINK_TAP && out->own_tap_fd != -1)
        return "it returned a tap descriptor that nobody asked for";
    if (out->borrow_exit_fd != -1 && fd_take_check(out->borrow_exit_fd) < 0)
        return "the exit descriptor it returned is not valid";
    return ca_fault(&out->ca_pem);
}

static void detach_call(struct plugin *p, void *self)
{
    struct call c;

    call_begin(&c, p, "detach", DEADLINE_CALL);
    ops(p)->detach(self);
    call_end_void(&c);
}

int enforcer_attach(struct plugin *p, const struct cella_host *host,
                    const struct cella_attach *attach, struct enforcer *ret,
                    struct cella_attached *ret_attached, struct cella_error *err)
{
    struct cella_attached out = {HDR(cella_attached, CELLA_KIND_ATTACHED), .own_tap_fd = -1,
                                 .borrow_exit_fd = -1};
    struct cella_attach in = *attach;
    void *self = NULL;
    const char *fault;
    struct call c;
    int r;

    in.early = attach->early && ops(p)->attach_wait;
    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "attach", DEADLINE_BUILD);
    r = ops(p)->attach(host, &in, &self, &out, e);
    fault =
        r == 0 ? attached_fault(attach, &out) : NULL; /* before the sweep: it marks descriptors */
    r = call_end(&c, r, err);
    if (r < 0)
        return r;
    if (!self)
        return call_broken(&c, err, "it succeeded without an instance");
    if (fault) {
        if (fd_take_check(out.own_tap_fd) == 0)
            close(out.own_tap_fd);
        detach_call(p, self);
        return call_broken(&c, err, "%s", fault);
    }
    *ret = (struct enforcer){.plugin = p, .self = self, .waiting = (int)in.early};
    *ret_attached = out;
    return 0;
}

int enforcer_wait(struct enforcer *e, struct cella_error *err)
{
    struct call c;
    int r;

    if (!e->self)
        return fail(err, -EPROTO, "attach_wait: nothing is attached");
    if (!e->waiting)
        return 0;
    struct cella_error *own = call_begin(&c, e->plugin, "attach_wait", DEADLINE_BUILD);
    r = ops(e->plugin)->attach_wait(e->self, own);
    r = call_end(&c, r, err);
    if (r == 0)
        e->waiting = 0;
    return r;
}

int enforcer_restart(struct enforcer *e, struct cella_attached *ret, struct cella_error *err)
{
    static const struct cella_attach no_tap;
    struct cella_attached out = {HDR(cella_attached, CELLA_KIND_ATTACHED), .own_tap_fd = -1,
                                 .borrow_exit_fd = -1};
    const char *fault;
    struct call c;
    int r;

    if (!e->self || e->waiting)
        return fail(err, -EPROTO, "restart: nothing is attached");
    if (!ops(e->plugin)->restart)
        return fail(err, -EOPNOTSUPP, "enforcer %s has no restart: a cell ends with its gate",
                    e->plugin->name);
    struct cella_error *own = call_begin(&c, e->plugin, "restart", DEADLINE_BUILD);
    r = ops(e->plugin)->restart(e->self, &out, own);
    fault = r == 0 ? attached_fault(&no_tap, &out) : NULL;
    r = call_end(&c, r, err);
    if (r == 0 && fault) {
        if (fd_take_check(out.own_tap_fd) == 0)
            close(out.own_tap_fd);
        r = call_broken(&c, err, "%s", fault);
    }
    if (r == 0)
        *ret = out;
    return r;
}

static int applied_check(const struct call *c, const struct cella_applied *out, uint64_t generation,
                         struct cella_error *err)
{
    if (!hdr_unchanged(&out->hdr, sizeof(*out), CELLA_KIND_APPLIED))
        return call_broken(c, err, "it changed the header of the result");
    if (out->generation != generation)
        return call_broken(c, err, "it says generation %llu is in force, %llu was asked for",
                           (unsigned long long)out->generation, (unsigned long long)generation);
    return ca_fault(&out->ca_pem) ? call_broken(c, err, "%s", ca_fault(&out->ca_pem)) : 0;
}

void enforcer_finish(struct enforcer *e)
{
    struct errbuf eb;
    struct call c;
    int r;

    if (!e->self || e->waiting || !ops(e->plugin)->finish)
        return;
    struct cella_error *own = call_begin(&c, e->plugin, "finish", DEADLINE_CALL);
    r = ops(e->plugin)->finish(e->self, own);
    r = call_end(&c, r, errbuf_init(&eb));
    e->finished = 1;
}

static int attached_required(const struct enforcer *e, const char *op, struct cella_error *err)
{
    if (e->self && !e->waiting && (!e->finished || !strcmp(op, "report")))
        return 0;
    return fail(err, -EPROTO, "%s: %s is not possible before attach or after detach",
                e->plugin ? e->plugin->name : "enforcer", op);
}

int enforcer_apply(struct enforcer *e, const struct cella_policy *policy, struct cella_applied *ret,
                   struct cella_error *err)
{
    struct cella_applied out = {HDR(cella_applied, CELLA_KIND_APPLIED)};
    struct call c;
    int r = attached_required(e, "apply", err);

    if (r < 0)
        return r;
    if (!ops(e->plugin)->apply)
        return unsupported(e->plugin, "apply", err);
    struct cella_error *own = call_begin(&c, e->plugin, "apply", DEADLINE_CALL);
    r = ops(e->plugin)->apply(e->self, policy, &out, own);
    r = call_end(&c, r, err);
    if (r == 0)
        r = applied_check(&c, &out, policy->generation, err);
    if (r == 0)
        *ret = out;
    return r;
}

int enforcer_phase(struct enforcer *e, const char *phase, uint64_t generation,
                   struct cella_applied *ret, struct cella_error *err)
{
    struct cella_applied out = {HDR(cella_applied, CELLA_KIND_APPLIED)};
    struct call c;
    int r = attached_required(e, "phase", err);

    if (r < 0)
        return r;
    if (!ops(e->plugin)->phase)
        return unsupported(e->plugin, "phase", err);
    struct cella_error *own = call_begin(&c, e->plugin, "phase", DEADLINE_CALL);
    r = ops(e->plugin)->phase(e->self, phase, generation, &out, own);
    r = call_end(&c, r, err);
    if (r == 0)
        r = applied_check(&c, &out, generation, err);
    if (r == 0)
        *ret = out;
    return r;
}

struct report_ctx {
    void *ctx;
    void (*flow)(void *, const struct cella_flow *);
    int bad; /* first fault of a line */
};

#define FLOW_LEAST (offsetof(struct cella_flow, rx_bytes) + sizeof(uint64_t))

static void on_flow(void *ctx, const struct cella_flow *flow)
{
    struct report_ctx *rc = ctx;
    struct cella_flow out;

    if (rc->bad)
        return;
    rc->bad = flow ? data_take(&out, sizeof(out), FLOW_LEAST, CELLA_KIND_FLOW, flow) : -EPROTO;
    if (rc->bad == 0 && (!out.rule || !out.destination || !out.proto))
        rc->bad = -EPROTO;
    if (rc->bad == 0)
        rc->flow(rc->ctx, &out);
}

int enforcer_report(struct enforcer *e, void *ctx, void (*flow)(void *, const struct cella_flow *),
                    struct cella_error *err)
{
    struct report_ctx rc = {.ctx = ctx, .flow = flow};
    struct call c;
    int r = attached_required(e, "report", err);

    if (r < 0)
        return r;
    if (!ops(e->plugin)->report)
        return 0;
    struct cella_error *own = call_begin(&c, e->plugin, "report", DEADLINE_CALL);
    r = ops(e->plugin)->report(e->self, &rc, on_flow, own);
    r = call_end(&c, r, err);
    if (r == 0 && rc.bad)
        r = call_broken(&c, err, "a line of its report is malformed (%s)", strerror(-rc.bad));
    return r;
}

void enforcer_detach(struct enforcer *e)
{
    if (!e || !e->self)
        return;
    detach_call(e->plugin, e->self);
    e->self = NULL;
}

int enforcer_reap(struct plugin *p, const struct cella_host *host, const struct cella_reap *reap,
                  struct cella_error *err)
{
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "reap", DEADLINE_BUILD);
    r = ops(p)->reap(host, reap, e);
    return (int)call_end_count(&c, r, err);
}
