/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * events - messages of the gate to audit events; account.c counts them.
 *
 * The gate parses hostile bytes, so it may be somebody else's by now: every member is checked, and
 * one that cannot be is the end of the gate, hence of the cell's network. An allowed flow that
 * cannot be recorded ends it as well. Strings of the cell (DNS names) go out as they are; the core
 * escapes them.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include "egress.h"

static const char *const reasons[REASONS] = {
    [REASON_NONE] = "",
    [REASON_NO_RULE] = "no_rule",
    [REASON_DENY_RULE] = "deny_rule",
    [REASON_HARD_DENY] = "hard_deny",
    [REASON_DNS_REFUSED] = "dns_refused",
    [REASON_PROTO_BLOCKED] = "proto_blocked",
    [REASON_IPV6_CLOSED] = "ipv6_closed",
    [REASON_SOURCE_SPOOFED] = "source_spoofed",
    [REASON_LIMIT] = "limit",
    [REASON_POLICY_CHANGED] = "policy_changed",
    [REASON_BROKER_DOWN] = "broker_down",
    [REASON_UPSTREAM] = "upstream_failed",
    [REASON_SNI_MISSING] = "sni_missing",
    [REASON_SNI_MISMATCH] = "sni_mismatch",
    [REASON_NOT_TLS] = "not_tls",
    [REASON_RESOLVED_PRIVATE] = "resolved_private",
    [REASON_NAME_INVALID] = "name_invalid",
    [REASON_DNS_SUSPECT] = "dns_suspect",
    [REASON_HOST_MISMATCH] = "host_mismatch",
    [REASON_METHOD_PATH] = "method_path",
    [REASON_CREDENTIAL_MISMATCH] = "credential_mismatch",
    [REASON_PLACEHOLDER_MISSING] = "placeholder_missing",
    [REASON_BAD_REQUEST] = "bad_request",
};

static const char *proto_name(uint32_t proto, char buf[8])
{
    switch (proto) {
    case 0:
        return "ipv6";
    case IPPROTO_TCP:
        return "tcp";
    case IPPROTO_UDP:
        return "udp";
    case IPPROTO_ICMP:
        return "icmp";
    case IPPROTO_SCTP:
        return "sctp";
    default:
        snprintf(buf, 8, "%u", proto);
        return buf;
    }
}

const char *reason_word(uint32_t reason)
{
    return reasons[reason];
}

/* ---------------------------------------------------------------- events */

void put_str(struct fields *f, const char *name, const char *value)
{
    if (value[0])
        f->f[f->n++] = (struct cella_field){
            .name = name, .type = CELLA_FIELD_STR, .str = {value, strlen(value)}};
}

void put_int(struct fields *f, const char *name, uint64_t value)
{
    f->f[f->n++] = (struct cella_field){.name = name,
                                        .type = CELLA_FIELD_INT,
                                        .i64 = value > INT64_MAX ? INT64_MAX : (int64_t)value};
}

int emit(struct egress *e, const char *kind, const struct fields *f)
{
    struct cella_event ev = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                             .kind = kind,
                             .fields = f->f,
                             .n_fields = f->n,
                             .field_stride = sizeof(struct cella_field)};

    return CELLA_HOST_HAS(e->host, emit) ? e->host->emit(e->host->ctx, &ev) : 0;
}

static int emit_message(struct egress *e, const struct ctl_msg *m, const char *dst,
                        const char *proto)
{
    struct fields f = {.n = 0};
    const char *kind = m->type == CTL_DENY    ? "net.deny"
                       : m->type == CTL_ALLOW ? "net.allow"
                                              : "net.flow";

    put_str(&f, "verdict",
            m->type == CTL_DENY                  ? "deny"
            : m->reason == REASON_POLICY_CHANGED ? "kill"
                                                 : "allow");
    put_str(&f, "reason", reasons[m->reason]);
    put_str(&f, "rule", m->rule);
    put_str(&f, "proto", proto);
    put_str(&f, "dst", dst);
    if (m->port)
        put_int(&f, "port", m->port);
    if (m->reason != REASON_IPV6_CLOSED)
        put_str(&f, "name", m->name);
    if (m->qtype)
        put_int(&f, "qtype", m->qtype);
    put_str(&f, "method", m->method);
    put_str(&f, "path_hash", m->path_hash);
    put_int(&f, "gen", m->gen);
    if (m->type == CTL_FLOW) {
        put_int(&f, "tx", m->tx);
        put_int(&f, "rx", m->rx);
    } else {
        put_int(&f, "count", m->count);
    }
    if (m->suppressed)
        put_int(&f, "suppressed", m->suppressed);
    if (m->probe)
        f.f[f.n++] = (struct cella_field){.name = "probe", .type = CELLA_FIELD_BOOL, .i64 = 1};
    put_str(&f, "hint", m->hint);
    return emit(e, kind, &f) < 0 ? -EIO : 0;
}

static int id_or_empty(const char *s)
{
    return !*s || name_valid(s);
}

static int message_valid(const struct egress *e, const struct ctl_msg *m)
{
    return m->type > CTL_ERROR && m->type < CTL_TYPES && m->reason < REASONS && m->proto < 256 &&
           memchr(m->rule, 0, sizeof(m->rule)) && memchr(m->name, 0, sizeof(m->name)) &&
           memchr(m->method, 0, sizeof(m->method)) && memchr(m->hint, 0, sizeof(m->hint)) &&
           memchr(m->path_hash, 0, sizeof(m->path_hash)) && id_or_empty(m->rule) &&
           m->count <= 1000000 && m->suppressed < UINT64_C(1) << 48 && m->probe <= 1 &&
           m->gen <= e->table.head.generation && m->tx < UINT64_C(1) << 60 &&
           m->rx < UINT64_C(1) << 60 && m->tx_delta <= m->tx && m->rx_delta <= m->rx;
}

int gate_message(struct egress *e, const struct ctl_msg *m)
{
    char dst[INET6_ADDRSTRLEN] = "", number[8];
    struct in_addr a = {htonl(m->dst)};
    struct in6_addr six;
    const char *proto;
    int own_event;

    if (m->type == CTL_REACH_SEEN || m->type == CTL_REACH_DONE)
        return reach_message(e, m);
    if (!message_valid(e, m))
        return -EBADMSG;
    proto = proto_name(m->proto, number);
    switch (m->type) {
    case CTL_FLUSHED:
        e->flushed = m->count || !e->last; /* else of one before, which was given up */
        return 0;
    case CTL_PUBLISHED:
        e->replied = *m;
        return 0;
    case CTL_DENY:
    case CTL_ALLOW:
    case CTL_FLOW:
    case CTL_PROGRESS:
        break;
    default:
        return -EBADMSG;
    }
    if (m->reason == REASON_IPV6_CLOSED) {
        if (inet_pton(AF_INET6, m->name, &six) != 1)
            return -EBADMSG;
        snprintf(dst, sizeof(dst), "%.*s", (int)sizeof(dst) - 1, m->name);
    } else if (m->dst) {
        inet_ntop(AF_INET, &a, dst, sizeof(dst));
    }
    if (m->reason == REASON_LIMIT && !m->count)
        proto = "";
    own_event =
        m->probe ? 1 : account(e, m, dst, proto); /* a measurement is no use of the network */
    if (own_event < 0)
        return own_event;
    return m->type == CTL_PROGRESS || !own_event ? 0 : emit_message(e, m, dst, proto);
}

/* ------------------------------------------------------------------ gate */

void gate_kill(struct egress *e)
{
    if (e->pidfd >= 0)
        pidfd_signal(e->pidfd, SIGKILL);
}

void gate_broken(struct egress *e)
{
    struct fields f = {.n = 0};

    put_str(&f, "verdict", "deny");
    put_str(&f, "reason", reasons[REASON_BROKER_DOWN]);
    put_int(&f, "gen", e->table.head.generation);
    emit(e, "net.deny", &f);
}

void gate_down(struct egress *e)
{
    if (e->ctl < 0)
        return;
    if (e->watched)
        e->host->fd_unwatch(e->host->ctx, e->ctl);
    e->watched = 0;
    auto_close_(&e->ctl);
    e->ctl = -1;
    gate_kill(e);
    gate_broken(e);
}

/* One message, already received. What is wrong with it is the end of the gate. */
static int digest(struct egress *e, const struct ctl_msg *m)
{
    int r = gate_message(e, m);

    if (r == 0)
        return 0;
    e->host->log(e->host->ctx, CELLA_LOG_ERROR, "egress-nft", "%s: %s; the gate is stopped",
                 e->cell_id,
                 r == -EBADMSG ? "the gate sent a message that cannot be true"
                               : "a network event could not be recorded");
    gate_down(e);
    return r;
}

void gate_readable(void *data, int fd, uint32_t ready)
{
    struct egress *e = data;
    struct ctl_msg m;
    int i;

    (void)ready;
    for (i = 0; i < 64 && e->ctl >= 0; i++) {
        ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof(m)) {
            gate_down(e);
            return;
        }
        digest(e, &m);
    }
}

int gate_drain(struct egress *e, const int *done, uint64_t deadline)
{
    struct ctl_msg m;
    int r = 0;

    while (!*done && e->ctl >= 0) {
        r = ctl_wait(e->ctl, deadline, &m, NULL, NULL);
        if (r == -ETIMEDOUT)
            return r;
        if (r < 0) {
            gate_down(e);
            return -EPIPE;
        }
        r = digest(e, &m);
        if (r < 0)
            return r;
    }
    return *done ? 0 : -EPIPE;
}
