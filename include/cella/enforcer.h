/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/enforcer.h - an enforcer makes egress policy bite, from outside the cell.
 *
 * attach() is called before the backend's create(): when it returns, the cell's link exists, rules
 * are in force under `generation`, and nothing can pass that the policy does not allow. An enforcer
 * with attach_wait() may do the work of attach() while the backend builds the cell: then that holds
 * when attach_wait() returns, which is before the backend's start() and so before any code of the
 * cell. Until then nothing at all passes. If the enforcer or its helper dies, nothing passes, until
 * restart() where the class asks for it. detach() closes everything. The enforcer never
 * trusts anything inside the cell's namespaces.
 *
 * Lifecycle: probe*; ready; attach (attach_wait) -> ATTACHED; apply, phase, report, expect, reach_begin, reach_end and restart any number of times; detach (last
 * call on self); reap (no instance).
 *
 * Every attempt, denied or allowed, is one event through host->emit:
 *   kind "net.deny" or "net.allow", and "net.flow" when an allowed flow ends; fields verdict, reason, rule,
 *   proto, dst, port, name, qtype, gen, count, suppressed, tx, rx, hint as they apply. Reasons are stable words:
 *   no_rule deny_rule hard_deny dns_refused proto_blocked ipv6_closed source_spoofed limit policy_changed
 *   broker_down upstream_failed sni_missing sni_mismatch not_tls host_mismatch method_path resolved_private
 *   name_invalid dns_suspect credential_mismatch placeholder_missing bad_request.
 * `suppressed` is the number of attempts that had no event of their own since the one before. Where a
 * policy asks for totals instead of one event per flow, a net.flow has `count`, the number of flows it
 * stands for. kind "net.alert": what a policy wanted to be warned of; fields alert (new_name tx_over
 * deny_burst dns_suspect), rule, name, port, tx, count, gen.
 */
#ifndef CELLA_ENFORCER_H
#define CELLA_ENFORCER_H

#include <cella/abi.h>
#include <cella/host.h>
#include <cella/method.h>
#include <cella/reap.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cella_link_kind {
    CELLA_LINK_NONE = 1000,  /* no device at all (policy "none"); attach() only records it */
    CELLA_LINK_NETNS = 2000, /* put one end of the link into borrow_netns_fd and configure it */
    CELLA_LINK_TAP = 3000    /* give back a tap descriptor */
};

struct cella_policy {
    struct cella_hdr hdr;       /* CELLA_KIND_POLICY */
    const char *name;           /* for events and messages: "deny", a file name */
    struct cella_span document; /* JSON text of the policy document; empty or "{}" = deny all */
    struct cella_span ceiling;  /* JSON text of the operator's layer; empty = no further ceiling */
    uint64_t generation;        /* stamped on flows and events */
};

struct cella_ready {
    struct cella_hdr hdr; /* CELLA_KIND_READY */
    const struct cella_options *options;
    int32_t borrow_uplink_fd; /* as in struct cella_attach */
    uint32_t reserved0;
};

struct cella_attach {
    struct cella_hdr hdr;     /* CELLA_KIND_ATTACH */
    const char *cell_id;      /* [a-z0-9]{12} */
    const char *scratch;      /* directory of this cell, exists, mode 0700 */
    uint32_t link;            /* enum cella_link_kind */
    uint32_t slot;            /* 0…4095, unique among live cells: addresses derive from it */
    int32_t borrow_netns_fd;  /* the cell's network namespace for CELLA_LINK_NETNS, else -1 */
    int32_t borrow_uplink_fd; /* network namespace to dial from; -1 = the host's own */
    const struct cella_policy *policy;
    const struct cella_options *options;
    uint32_t early; /* 1: the host will call attach_wait; set only where the enforcer has it */
    uint32_t reserved0;
    void *own_ready; /* what ready() gave, or NULL. attach takes it, whatever it returns */
};

struct cella_attached {
    struct cella_hdr hdr; /* CELLA_KIND_ATTACHED */
    int32_t own_tap_fd;   /* CELLA_LINK_TAP: the caller takes it; else -1 */
    uint32_t reserved0;
    char address[48];       /* the cell's address with prefix length, "" for none */
    char gateway[48];       /* also the cell's resolver, "" for none */
    uint8_t mac[8];         /* first 6 bytes */
    uint64_t gate_pid;      /* 0 = none */
    int32_t borrow_exit_fd; /* readable when the gate has died; -1 = none. Valid until detach */
    uint32_t reserved1;
    /* PEM of this cell's certificate authority, at most CELLA_CA_PEM_MAX bytes: certificates, never
       a key. The core makes the cell trust it. Valid until detach. Empty: no rule of the policy
       looks inside TLS. */
    struct cella_span ca_pem;
};
#define CELLA_CA_PEM_MAX 65536

struct cella_applied {
    struct cella_hdr hdr; /* CELLA_KIND_APPLIED */
    uint64_t generation;  /* now in force */
    uint64_t killed;      /* flows reset by the change */
    /* As in struct cella_attached, when the change is the first that needs an authority. Commands
       that start from now on are told of it; the mounts over the image's own bundles are not made
       any more. Empty: none, or the one of attach. */
    struct cella_span ca_pem;
};

/* One line of report(): accounting per rule and destination. */
struct cella_flow {
    struct cella_hdr hdr;    /* CELLA_KIND_FLOW */
    const char *rule;        /* id of the rule or reason of the denial */
    const char *destination; /* address or name, with port */
    const char *proto;
    uint64_t allowed, denied;    /* attempts */
    uint64_t tx_bytes, rx_bytes; /* from and to the cell */
    uint64_t first_ns, last_ns;  /* first and last attempt, wall clock since 1970; 0 = not known */
};

/*
 * Reach: what a cell can reach, derived from the policy alone (expect), tried from inside by the
 * host's own probe, and judged by what arrived at a sink of the enforcer (reach_begin, reach_end).
 *
 * Between begin and end the enforcer treats two ranges of the cell's source ports differently. From
 * [port_lo, port_hi] the policy holds as always, but what it allows ends in the sink instead of
 * being dialled, and no name is looked up upstream. From [twin_lo, twin_hi] everything that the
 * enforcer can carry at all ends in the sink, whatever the policy: that is how the probe shows that
 * it would see success. From [held_lo, held_hi] it is the same until reach_tighten; from then on the policy
 * in force holds for these ports too, and what is open from them and not allowed is reset as by a
 * change of policy. The sink answers with what it got, and a request of HTTP with 200, or with 302 to the place that its
 * header X-Cella-Redirect names. Nothing from any of these ranges ever leaves.
 */
enum cella_reach_expect { CELLA_REACH_DENY = 1000, CELLA_REACH_ALLOW = 2000 };
enum cella_reach_proof {
    CELLA_REACH_BY_SINK =
        1000, /* bytes that arrived at the sink, or came back; the twin uses a twin port */
    CELLA_REACH_BY_CELL =
        2000 /* what the probe got inside the cell; the twin uses the cell's loopback */
};

/* One row of the matrix. Strings are printable ASCII without white space (`why`: with), at most 255
   bytes; "" where a kind needs none. They are valid during the call. */
struct cella_reach_row {
    struct cella_hdr hdr;     /* CELLA_KIND_REACH_ROW */
    const char *id;           /* unique in the matrix */
    const char *group;        /* one word; rows are counted by it */
    const char *kind;         /* what the probe does: "tcp", "udp", "dns-udp", … (agent/probe) */
    const char *address;      /* numeric */
    const char *twin_address; /* where the twin goes; "" = `address` */
    const char *name;         /* DNS name, server name */
    const char *options;      /* of the kind */
    const char *rule;         /* id of the rule that decides */
    const char *why;          /* for a person */
    uint32_t port;
    uint32_t expected; /* enum cella_reach_expect */
    uint32_t proof;    /* enum cella_reach_proof */
    uint32_t reserved0;
};

struct cella_reach {
    struct cella_hdr hdr; /* CELLA_KIND_REACH */
    const char *nonce;    /* [a-z0-9]{12}; part of everything the probe sends */
    uint32_t port_lo, port_hi, twin_lo, twin_hi;
    uint32_t timeout_ms; /* the enforcer ends by itself after this */
    uint32_t reserved0;
    uint32_t held_lo,
        held_hi; /* held_lo = twin_hi + 1, at most 32; both 0: none. A row whose options
                                  begin with "held" uses one of them */
};

/* What the enforcer saw of one source port. */
struct cella_reach_seen {
    struct cella_hdr hdr; /* CELLA_KIND_REACH_SEEN */
    uint32_t port;
    uint32_t reserved0;
    uint64_t
        bytes; /* at the sink, of flows that carried the nonce; of a held port: since reach_tighten */
    uint64_t carried; /* flows, datagrams and queries that reached the enforcer's own process */
    uint64_t refused; /* packets and flows it refused */
};

struct cella_enforcer_ops {
    struct cella_hdr hdr; /* CELLA_KIND_ENFORCER */
    const char *name, *version, *summary;
    const struct cella_option *options;
    uint32_t n_options, option_stride;
    const struct cella_method *methods;
    uint32_t n_methods, method_stride;

    /* Required. As for a backend; capabilities: net.tcp net.udp net.dns net.ipv6 events. */
    int (*probe)(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_error *err);
    /* Optional: the document is accepted unchecked until attach. Validates a policy without any effect;
       the message carries line:column and a JSON pointer. */
    int (*check)(const struct cella_policy *policy, struct cella_error *err);
    /* Required. */
    int (*attach)(const struct cella_host *host, const struct cella_attach *attach, void **ret_self,
                  struct cella_attached *ret_attached, struct cella_error *err);
    /* Required. NULL-safe. */
    void (*detach)(void *self);
    /* Required. Same contract as a backend's reap. */
    int (*reap)(const struct cella_host *host, const struct cella_reap *reap,
                struct cella_error *err);
    /* Optional: -EOPNOTSUPP. Replaces the policy; on failure the tighter of old and new is in force. */
    int (*apply)(void *self, const struct cella_policy *policy, struct cella_applied *ret_applied,
                 struct cella_error *err);
    /* Optional: -EOPNOTSUPP. Switches to another phase of the document in force. To the phase in
       force itself: what was fetched from the host, such as secrets, is fetched again. */
    int (*phase)(void *self, const char *phase, uint64_t generation,
                 struct cella_applied *ret_applied, struct cella_error *err);
    /* Optional: nothing to report. Calls `flow` once per line; the struct is valid during the call. */
    int (*report)(void *self, void *ctx, void (*flow)(void *ctx, const struct cella_flow *flow),
                  struct cella_error *err);
    /* Optional: -EOPNOTSUPP. The reach matrix of the policy in force; no effect. */
    int (*expect)(void *self, void *ctx, void (*row)(void *ctx, const struct cella_reach_row *row),
                  struct cella_error *err);
    /* Optional: -EOPNOTSUPP. One at a time (-EBUSY). */
    int (*reach_begin)(void *self, const struct cella_reach *reach, struct cella_error *err);
    /* Optional: -EOPNOTSUPP. Ends it; calls `seen` once per port that was. -ETIMEDOUT when it ended by
       itself before. `seen` NULL: only end. */
    int (*reach_end)(void *self, void *ctx,
                     void (*seen)(void *ctx, const struct cella_reach_seen *seen),
                     struct cella_error *err);
    /* Optional: attach does everything. Called once after an attach with `early` 1, before any other
       operation on self but detach. That attach may return as soon as it has begun; what it returned is final.
       This returns when all that attach promises holds; on failure only detach follows. */
    int (*attach_wait)(void *self, struct cella_error *err);
    /* Optional: a cell ends with its gate. Called after borrow_exit_fd became readable: what died is started again for
       the same link, under the policy, phase and generation in force, with the same addresses and
       the same authority. Nothing passes before it returns, nothing that was open goes on, and what was used up of a limit stays used up.
       ret_attached as from attach, without a tap. On failure nothing passes. */
    int (*restart)(void *self, struct cella_attached *ret_attached, struct cella_error *err);
    /* Optional: rows that are held are not measured. At most once between reach_begin and reach_end. */
    int (*reach_tighten)(void *self, struct cella_error *err);
    /* Optional: attach begins from nothing. A cell is about to be made, its class, slot and policy are not known yet:
       begins what does not depend on them. *ret_ready goes to the next attach or to unready. */
    int (*ready)(const struct cella_host *host, const struct cella_ready *ready, void **ret_ready,
                 struct cella_error *err);
    /* Required with ready. NULL-safe. No attach follows. */
    void (*unready)(void *ready);
    /* Optional: detach does it. Nothing of the cell runs any more: ends every flow and says what is left
       to say. Only report and detach follow. */
    int (*finish)(void *self, struct cella_error *err);
};

#define CELLA_ENFORCER_OPS_BASELINE                                                                \
    (__builtin_offsetof(struct cella_enforcer_ops, reap) + sizeof(void *))

#ifdef __cplusplus
}
#endif
#endif
