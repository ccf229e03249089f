/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * egress-nft - the enforcer: policy to slot, gate and rules, and back.
 *
 * This file holds order and undo; the work is in the helper (setup.c), which has the privilege, and
 * in the gate, which has the traffic. The warden keeps four descriptors: the control socket, the
 * gate's pidfd, its namespace and the uplink's. Nothing has a name, so nothing outlives the
 * processes.
 *
 * Change of policy: tighten the kernel to what old and new both allow -> publish the new table to
 * the gate, which resets what it no longer allows -> loosen the kernel. Whatever fails on the way,
 * what is in force is not wider than either. One thread, the warden's.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "egress.h"

#define ATTACH_NS 10000000000u
#define FLUSH_NS 1000000000u
#define LAST_NS 3000000000u /* nobody asks again after this one */

/* --------------------------------------------------------------- policies */

struct compiled {
    struct document document, ceiling;
    int has_ceiling;
    struct policy_table table;
};

static void compiled_fini(struct compiled *c)
{
    document_fini(&c->document);
    document_fini(&c->ceiling);
    policy_table_fini(&c->table);
}

static int compile(const struct cella_policy *p, struct compiled *ret, struct cella_error *err)
{
    struct compiled c = {0};
    int r = document_parse(p->name ? p->name : "policy", p->document.ptr, p->document.len,
                           &c.document, err);

    if (r == 0 && p->ceiling.len) {
        r = document_parse("operator ceiling", p->ceiling.ptr, p->ceiling.len, &c.ceiling, err);
        c.has_ceiling = 1;
    }
    if (r == 0)
        r = document_compile(&c.document, c.document.active, c.has_ceiling ? &c.ceiling : NULL,
                             p->generation, &c.table, err);
    if (r < 0)
        compiled_fini(&c);
    else
        *ret = c;
    return r;
}

static int egress_check(const struct cella_policy *policy, struct cella_error *err)
{
    struct compiled c;
    int r = compile(policy, &c, err);

    if (r == 0)
        compiled_fini(&c);
    return r;
}

/* ----------------------------------------------------------------- attach */

/* Waits for READY (with the descriptors) and UP. */
static int gate_up(struct egress *e, int *ret_tap, struct cella_error *err)
{
    uint64_t deadline = now_ns() + ATTACH_NS;
    struct ctl_msg m;
    int fds[2] = {-1, -1}, n = 2, r;

    r = ctl_wait(e->ctl, deadline, &m, fds, &n);
    if (r == 0 && m.type == CTL_READY && n >= 1 && (e->link != CELLA_LINK_TAP || n == 2)) {
        e->gate_ns = steal_fd(&fds[0]);
        *ret_tap = steal_fd(&fds[1]);
        return gate_wait_up(e, deadline, err);
    }
    auto_close_(&fds[0]);
    auto_close_(&fds[1]);
    if (r == 0 && m.type == CTL_ERROR)
        return helper_failed(&m, err);
    return fail(err, r < 0 ? r : -EPROTO, "cella-gate-setup ended without building the gate: %s",
                strerror(r < 0 ? -r : EPROTO));
}

static int attach_none(struct egress *e, const struct cella_attach *at, struct cella_error *err)
{
    char *argv[] = {"cella-gate-setup", "lo", NULL};
    int ns[3] = {at->borrow_netns_fd, -1, -1};

    if (at->borrow_netns_fd < 0)
        return 0;
    return helper_run(e->host, argv, NULL, ns, err);
}

static int attach_valid(const struct cella_attach *at, struct cella_error *err)
{
    if (at->slot > SLOT_MAX)
        return fail(err, -EINVAL, "slot %u is beyond the last one, %u", at->slot, SLOT_MAX);
    if (!at->cell_id || strlen(at->cell_id) != CELLA_ID_LEN || !at->policy)
        return fail(err, -EINVAL, "attach needs a cell id of %d characters and a policy",
                    CELLA_ID_LEN);
    if (at->link == CELLA_LINK_NETNS && at->borrow_netns_fd < 0)
        return fail(err, -EINVAL, "a netns link needs the cell's network namespace");
    if (at->link != CELLA_LINK_NONE && at->link != CELLA_LINK_NETNS && at->link != CELLA_LINK_TAP)
        return fail(err, -EINVAL, "unknown kind of link %u", at->link);
    return 0;
}

void egress_describe(const struct egress *e, int own_tap, struct cella_attached *ret)
{
    struct in_addr cell = {htonl(slot_cell(e->slot))}, gateway = {htonl(slot_gateway(e->slot))};
    const uint8_t mac[6] = slot_mac(e->slot, 2);

    ret->own_tap_fd = own_tap;
    ret->borrow_exit_fd = e->pid > 0 ? e->exits : -1;
    ret->gate_pid = e->pid > 0 ? (uint64_t)e->pid : 0;
    ret->address[0] = ret->gateway[0] = 0;
    memset(ret->mac, 0, sizeof(ret->mac));
    if (e->link == CELLA_LINK_NONE)
        return;
    snprintf(ret->address, sizeof(ret->address), "%s/30", inet_ntoa(cell));
    snprintf(ret->gateway, sizeof(ret->gateway), "%s", inet_ntoa(gateway));
    memcpy(ret->mac, mac, sizeof(mac));
    if (ret->hdr.size >= offsetof(struct cella_attached, ca_pem) + sizeof(ret->ca_pem))
        ret->ca_pem = (struct cella_span){e->http.pem, e->http.pem_len};
}

static void egress_detach(void *self);

/* May attach return when the helper has begun? Not where its result is not known before: the tap, the authority. */
static int may_wait(const struct egress *e, const struct cella_attach *at)
{
    return at->hdr.size >= offsetof(struct cella_attach, early) + sizeof(at->early) && at->early &&
           e->link == CELLA_LINK_NETNS && !intercept_wanted(&e->document);
}

static int attach_link(struct egress *e, const struct cella_attach *at, void **ready, int *ret_tap,
                       struct cella_error *err)
{
    int r;

    if (e->link == CELLA_LINK_NONE)
        return attach_none(e, at, err);
    r = *ready ? 0 : resolvers_find(at->options, e->resolvers, err);
    if (r == 0)
        r = gate_spawn(e, "attach", steal_ptr(ready),
                       e->link == CELLA_LINK_TAP ? -1 : at->borrow_netns_fd, err);
    e->pending = r == 0 && may_wait(e, at);
    if (r < 0 || e->pending)
        return r;
    r = gate_up(e, ret_tap, err);
    return r < 0 ? r : intercept_ready(e, &e->document, &e->table, err);
}

static int egress_attach_wait(void *self, struct cella_error *err)
{
    struct egress *e = self;
    int tap = -1;

    if (!e->pending)
        return 0;
    e->pending = 0;
    return gate_up(e, &tap, err);
}

static int attach(const struct cella_host *host, const struct cella_attach *at, void **ready,
                  void **ret_self, struct cella_attached *ret, struct cella_error *err)
{
    struct egress *e;
    struct compiled c;
    int tap = -1, r = attach_valid(at, err);

    if (r == 0)
        r = compile(at->policy, &c, err);
    if (r < 0)
        return r;
    e = calloc(1, sizeof(*e));
    if (!e) {
        compiled_fini(&c);
        return fail(err, -ENOMEM, "out of memory");
    }
    *e = (struct egress){.host = host,
                         .slot = at->slot,
                         .link = at->link,
                         .ctl = -1,
                         .gate_ns = -1,
                         .uplink = -1,
                         .pidfd = -1,
                         .ledger = -1,
                         .broken = -1,
                         .exits = -1,
                         .http = {.ctl = -1, .roots = -1, .key = -1},
                         .document = c.document,
                         .ceiling = c.ceiling,
                         .has_ceiling = c.has_ceiling,
                         .phase = c.document.active,
                         .table = c.table};
    snprintf(e->cell_id, sizeof(e->cell_id), "%s", at->cell_id);
    if (at->borrow_uplink_fd >= 0) {
        e->uplink = fcntl(at->borrow_uplink_fd, F_DUPFD_CLOEXEC, 0);
        if (e->uplink < 0)
            r = fail(err, -errno, "keeping the uplink namespace: %s", strerror(errno));
    }
    if (r == 0 && e->link != CELLA_LINK_NONE)
        r = revive_init(e, err);
    if (r == 0)
        r = intercept_options(e, at->options, err);
    if (r == 0)
        r = attach_link(e, at, ready, &tap, err);
    if (r < 0) {
        auto_close_(&tap);
        egress_detach(e);
        return r;
    }
    egress_describe(e, tap, ret);
    *ret_self = e;
    return 0;
}

static int egress_attach(const struct cella_host *host, const struct cella_attach *at,
                         void **ret_self, struct cella_attached *ret, struct cella_error *err)
{
    void *ready = at->hdr.size >= offsetof(struct cella_attach, own_ready) + sizeof(at->own_ready)
                      ? at->own_ready
                      : NULL;
    int r = attach(host, at, &ready, ret_self, ret, err);

    egress_unready(ready); /* when it was not taken */
    return r;
}

/* ----------------------------------------------------------------- detach */

static void flush(struct egress *e, int final)
{
    struct ctl_msg m = {.type = CTL_FLUSH, .count = final != 0};
    uint64_t ns = final ? LAST_NS : FLUSH_NS;

    if (e->ctl < 0 || !e->watched)
        return;
    e->last = final;
    intercept_flush(e, final, now_ns() + ns);
    e->flushed = 0;
    if (send_fds(e->ctl, &m, sizeof(m), NULL, 0) == 0)
        gate_drain(e, &e->flushed, now_ns() + ns);
    if (final && !e->flushed)
        e->host->log(
            e->host->ctx, CELLA_LOG_WARN, "egress-nft",
            "%s: the gate did not tell the last of its flows; they are missing in the audit",
            e->cell_id);
}

/* The gate ends by itself when its control socket closes; detach waits for that. */
static int egress_finish(void *self, struct cella_error *err)
{
    struct egress *e = self;

    (void)err;
    flush(e, 1);
    if (e->watched)
        e->host->fd_unwatch(e->host->ctx, e->ctl);
    e->watched = 0;
    auto_close_(&e->ctl);
    e->ctl = -1;
    return 0;
}

static void egress_detach(void *self)
{
    struct egress *e = self;

    if (!e)
        return;
    egress_finish(e, NULL);
    account_end(e);
    gate_reap(e);
    intercept_fini(e);
    auto_close_(&e->http.roots);
    revive_fini(e);
    auto_close_(&e->gate_ns);
    auto_close_(&e->uplink);
    document_fini(&e->document);
    document_fini(&e->ceiling);
    policy_table_fini(&e->table);
    free(e->reach.seen);
    free(e);
}

/* ------------------------------------------------------------------ apply */

static int egress_apply(void *self, const struct cella_policy *policy, struct cella_applied *ret,
                        struct cella_error *err)
{
    struct egress *e = self;
    struct compiled c;
    uint64_t killed = 0;
    int r = compile(policy, &c, err);

    if (r < 0)
        return r;
    if (e->link != CELLA_LINK_NONE)
        r = intercept_ready(e, &c.document, &e->table, err);
    if (r == 0 && e->link == CELLA_LINK_NONE)
        table_adopt(e, &c.table);
    else if (r == 0)
        r = table_change(e, &c.table, &killed, err);
    if (r == 0) {
        document_fini(&e->document);
        document_fini(&e->ceiling);
        e->document = c.document;
        e->ceiling = c.ceiling;
        e->has_ceiling = c.has_ceiling;
        e->phase = c.document.active;
        memset(e->alerts, 0, sizeof(e->alerts));
        c.document = c.ceiling = (struct document){0};
        ret->generation = policy->generation;
        ret->killed = killed;
        if (ret->hdr.size >= offsetof(struct cella_applied, ca_pem) + sizeof(ret->ca_pem))
            ret->ca_pem = (struct cella_span){e->http.pem, e->http.pem_len};
    }
    compiled_fini(&c);
    return r;
}

/* To the phase in force: a secret has changed. Another phase must not fail for want of one: its requests are
   refused then. */
static int phase_secrets(struct egress *e, int must, struct cella_error *err)
{
    struct errbuf eb;
    int r = intercept_ready(e, &e->document, &e->table, must ? err : errbuf_init(&eb));

    if (r == 0 || must)
        return r;
    e->host->log(e->host->ctx, CELLA_LOG_WARN, "egress-nft",
                 "%s: %s; requests of that rule are refused", e->cell_id, eb.text);
    return 0;
}

static int egress_phase(void *self, const char *phase, uint64_t generation,
                        struct cella_applied *ret, struct cella_error *err)
{
    struct egress *e = self;
    struct policy_table t;
    uint64_t killed = 0;
    int to = document_phase_find(&e->document, phase), r;

    if (to < 0 || !*phase)
        return fail(err, -ENOENT, "the policy in force has no phase \"%s\"", phase);
    if ((size_t)to < e->phase && !e->document.reopen)
        return fail(err, -EPERM,
                    "phases go one way, and \"%s\" comes before \"%s\"; a document that "
                    "may go back says \"reopen\": true",
                    phase, e->document.phases[e->phase].name);
    r = document_compile(&e->document, (size_t)to, e->has_ceiling ? &e->ceiling : NULL, generation,
                         &t, err);
    if (r < 0)
        return r;
    if (e->link != CELLA_LINK_NONE)
        r = phase_secrets(e, (size_t)to == e->phase, err);
    if (r == 0 && e->link == CELLA_LINK_NONE)
        table_adopt(e, &t);
    else if (r == 0)
        r = table_change(e, &t, &killed, err);
    policy_table_fini(&t);
    if (r < 0)
        return r;
    e->phase = (size_t)to;
    ret->generation = generation;
    ret->killed = killed;
    return 0;
}

/* ----------------------------------------------------------------- report */

static int egress_report(void *self, void *ctx, void (*flow)(void *, const struct cella_flow *),
                         struct cella_error *err)
{
    struct egress *e = self;
    size_t i;

    (void)err;
    flush(e, 0);
    for (i = 0; i < e->n_lines; i++) {
        const struct line *l = &e->lines[i];
        struct cella_flow f = {.hdr = CELLA_HDR_INIT(struct cella_flow, CELLA_KIND_FLOW),
                               .rule = l->rule,
                               .destination = l->destination,
                               .proto = l->proto,
                               .allowed = l->allowed,
                               .denied = l->denied,
                               .tx_bytes = l->tx,
                               .rx_bytes = l->rx,
                               .first_ns = l->first_ns,
                               .last_ns = l->last_ns};
        flow(ctx, &f);
    }
    return 0;
}

/* Everything of a slot hangs on descriptors of the gate and the warden; with both dead it is gone.
 */
static int egress_reap(const struct cella_host *host, const struct cella_reap *reap,
                       struct cella_error *err)
{
    (void)host;
    (void)reap;
    (void)err;
    return 0;
}

static int egress_probe(const struct cella_host *host, const struct cella_probe_report *report,
                        struct cella_error *err)
{
    static const char *const names[] = {"net.tcp", "net.udp", "net.dns", "events"};
    char *argv[] = {"cella-gate-setup", "probe", NULL};
    int ns[3] = {-1, -1, -1};
    struct errbuf eb;
    size_t i;
    int r = helper_run(host, argv, NULL, ns, errbuf_init(&eb));

    (void)err;
    for (i = 0; i < ARRAY_LEN(names); i++)
        report->capability(report->ctx, names[i], r < 0 ? CELLA_NONE : CELLA_NATIVE,
                           r < 0 ? eb.text : NULL);
    report->capability(report->ctx, "net.ipv6", CELLA_NONE, "IPv6 is closed in this version");
    return 0;
}

static const struct cella_option options[] = {
    {.name = "resolvers",
     .help =
         "DNS servers for names the policy lists, as IPv4[:port],...; empty: those of the host's "
         "/etc/resolv.conf; none: no names",
     .def = "",
     .type = CELLA_OPT_STRING},
    {.name = "upstream-ca",
     .help =
         "PEM file of certificate authorities trusted for servers behind http rules, beside the "
         "host's own",
     .def = "",
     .type = CELLA_OPT_STRING},
    {.name = "ca-names",
     .help =
         "what a cell's own certificate authority may speak for: the hosts of the http rules it "
         "starts with, or any",
     .def = "policy",
     .choices = "policy|any",
     .type = CELLA_OPT_ENUM},
};

static const struct cella_enforcer_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_enforcer_ops, CELLA_KIND_ENFORCER),
    .name = "egress-nft",
    .version = "0.1.0",
    .summary = "egress policy by nftables and a relaying gate, outside the cell",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(options[0]),
    .probe = egress_probe,
    .check = egress_check,
    .attach = egress_attach,
    .detach = egress_detach,
    .reap = egress_reap,
    .apply = egress_apply,
    .phase = egress_phase,
    .report = egress_report,
    .expect = egress_expect,
    .reach_begin = egress_reach_begin,
    .reach_end = egress_reach_end,
    .reach_tighten = egress_reach_tighten,
    .attach_wait = egress_attach_wait,
    .restart = egress_restart,
    .ready = egress_ready,
    .unready = egress_unready,
    .finish = egress_finish,
};

CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
