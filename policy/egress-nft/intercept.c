/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * intercept - the warden's side of cella-gate-http: start, secrets, tables, end.
 *
 * The engine is started when a document has a rule of layer http in any phase, before the cell exists, because the
 * cell must be told of its CA at start; a later document starts it too, but no cell learns of its CA then.
 * The CA speaks only for the hosts of the document's http rules (all phases), except with the option ca-names=any; a
 * later document that names others makes the engine add a certificate for them, which commands from then on
 * trust. An engine that died is started again by egress_restart() with the same key, which lies in a memory file
 * that this process holds and never reads. Secrets are asked of the host, by rule, each time a
 * document or phase comes into force, and go to the engine before the table that needs them, which makes it forget the others; the buffer they pass
 * through is locked, left out of dumps and wiped. The engine parses hostile bytes: its messages are checked like the
 * gate's, and one that cannot be true is its end. Without it nothing of layer http passes. One
 * thread, the warden's.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "egress.h"
#include "engine.h"

/* Well within the 10 s that apply may take: an error, not the warden's end. */
#define START_NS 5000000000u
#define REPLY_NS 2000000000u

static const char *option(const struct cella_options *o, const char *name)
{
    uint32_t i;

    for (i = 0; o && i < o->n_values; i++) {
        const struct cella_option_value *v =
            (const void *)((const char *)o->values + (size_t)i * o->value_stride);
        if (!strcmp(v->name, name) && v->str)
            return v->str;
    }
    return "";
}

int intercept_options(struct egress *e, const struct cella_options *o, struct cella_error *err)
{
    const char *roots = option(o, "upstream-ca");

    e->http.any_name = !strcmp(option(o, "ca-names"), "any");
    if (!*roots)
        return 0;
    e->http.roots = open(roots, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    return e->http.roots >= 0
               ? 0
               : fail(err, -errno, "option upstream-ca: opening %s: %s", roots, strerror(errno));
}

/* --------------------------------------------------------------- secrets */

static int secret_send(struct egress *e, const struct policy_rule *r,
                       const struct policy_inject *in, struct engine_secret *s,
                       struct cella_error *err)
{
    char purpose[POLICY_ID_MAX + 16];
    int64_t n;

    snprintf(purpose, sizeof(purpose), "inject:%s", r->id);
    snprintf(s->name, sizeof(s->name), "%s", in->secret);
    n = e->host->secret(e->host->ctx, in->secret, purpose, s->value, sizeof(s->value), err);
    if (n < 0)
        return fail_wrap(err, "rule \"%s\" injects the secret \"%s\"", r->id, in->secret);
    if (!n || memchr(s->value, '\r', (size_t)n) || memchr(s->value, '\n', (size_t)n) ||
        memchr(s->value, 0, (size_t)n))
        return fail(
            err, -EINVAL,
            "rule \"%s\" injects the secret \"%s\", whose value is empty or holds a line break or "
            "NUL; it cannot go into a header",
            r->id, in->secret);
    s->type = ENGINE_SECRET;
    s->len = (uint32_t)n;
    if (send_fds(e->http.ctl, s, offsetof(struct engine_secret, value) + (size_t)n, NULL, 0) < 0)
        return fail(err, -EPIPE, "the HTTP engine of this cell has died");
    return 0;
}

/* All that can be had; the first failure is the answer. */
static int send_all(struct egress *e, const struct document *d, struct engine_secret *s,
                    struct cella_error *err)
{
    const struct policy_rule *r;
    size_t phase = 0, rule = 0, i;
    struct errbuf rest;
    int ret = 0, one;

    while ((r = intercept_rule(d, &phase, &rule)))
        for (i = 0; i < r->n_inject; i++) {
            if (!CELLA_HOST_HAS(e->host, secret))
                return fail(err, -ENOTSUP,
                            "rule \"%s\" injects the secret \"%s\", and this host has no secrets",
                            r->id, r->inject[i].secret);
            one = secret_send(e, r, &r->inject[i], s, ret == 0 ? err : errbuf_init(&rest));
            explicit_bzero(s->value, sizeof(s->value));
            ret = ret == 0 ? one : ret;
        }
    return ret;
}

static int send_secrets(struct egress *e, const struct document *d, struct cella_error *err)
{
    struct engine_secret *s =
        mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int r;

    if (s == MAP_FAILED)
        return fail(err, -ENOMEM, "out of memory");
    madvise(s, sizeof(*s), MADV_DONTDUMP);
    mlock(s, sizeof(*s));
    r = send_all(e, d, s, err);
    explicit_bzero(s, sizeof(*s));
    munmap(s, sizeof(*s));
    return r;
}

/* -------------------------------------------------------------- messages */

int intercept_message(struct egress *e, const struct ctl_msg *m)
{
    switch (m->type) {
    case CTL_PUBLISHED:
        e->http.replied = *m;
        return m->tx < UINT64_C(1) << 32 ? 0 : -EBADMSG;
    case CTL_FLUSHED:
        e->http.flushed = m->count || !e->last;
        return 0;
    case CTL_DENY: /* all that the engine has to say about traffic; the gate says the rest */
        return gate_message(e, m);
    default:
        return -EBADMSG;
    }
}

void intercept_down(struct egress *e)
{
    siginfo_t si;

    if (e->http.ctl < 0)
        return;
    if (e->http.watched)
        e->host->fd_unwatch(e->host->ctx, e->http.ctl);
    e->http.watched = 0;
    auto_close_(&e->http.ctl);
    e->http.ctl = -1;
    kill(e->http.pid, SIGKILL); /* our own child, not waited for yet */
    while (waitid(P_PID, (id_t)e->http.pid, &si, WEXITED) < 0 && errno == EINTR)
        ;
}

static void lost(struct egress *e, const char *why)
{
    e->host->log(e->host->ctx, CELLA_LOG_ERROR, "egress-nft",
                 "%s: the HTTP engine %s; nothing of layer http passes", e->cell_id, why);
    intercept_down(e);
    e->http.died = 1;
    gate_broken(e);
    revive_wanted(e);
}

static void readable(void *data, int fd, uint32_t ready)
{
    struct egress *e = data;
    struct ctl_msg m;
    int i;

    (void)ready;
    for (i = 0; i < 64 && e->http.ctl >= 0; i++) {
        ssize_t n = recv(fd, &m, sizeof(m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n != (ssize_t)sizeof(m) || intercept_message(e, &m) < 0) {
            lost(e, n == 0 ? "has died" : "sent a message that cannot be true or be recorded");
            return;
        }
    }
}

/* Reads until *done or the deadline. */
static int drain(struct egress *e, const uint32_t *done, uint32_t until, uint64_t deadline)
{
    struct ctl_msg m;
    int r = 0;

    while (r == 0 && e->http.ctl >= 0 && *done != until) {
        r = ctl_wait(e->http.ctl, deadline, &m, NULL, NULL);
        if (r == 0)
            r = intercept_message(e, &m);
    }
    return r < 0 ? r : *done == until ? 0 : -EPIPE;
}

/* ----------------------------------------------------------------- start */

/* What the cell trusts already cannot be exchanged for something else. */
static int take_pem(struct egress *e, int own_fd, struct cella_error *err)
{
    auto_free char *text = malloc(CELLA_CA_PEM_MAX);
    ssize_t n = text ? pread(own_fd, text, CELLA_CA_PEM_MAX, 0) : -1;
    int r = !text ? -ENOMEM : n <= 0 ? -EBADMSG : 0;

    close(own_fd);
    if (r == 0 && e->http.pem)
        r = (size_t)n == e->http.pem_len && !memcmp(text, e->http.pem, (size_t)n) ? 0 : -EPROTO;
    else if (r == 0)
        r = authority_pem(e, text, (size_t)n);
    return r < 0 ? fail(err, r, "the certificate of the HTTP engine: %s", strerror(-r)) : 0;
}

static int start_wait(struct egress *e, struct cella_error *err)
{
    struct ctl_msg m;
    int fd = -1, n = 1, r = ctl_wait(e->http.ctl, now_ns() + START_NS, &m, &fd, &n);

    if (r < 0 || m.type != CTL_UP || n != 1) {
        auto_close_(&fd);
        return fail(err, r < 0 ? r : -EPROTO,
                    "the HTTP engine did not start: %s; option upstream-ca must be a file of PEM "
                    "certificates if it is set",
                    strerror(r < 0 ? -r : EPROTO));
    }
    return take_pem(e, fd, err);
}

static int spawn_engine(struct egress *e, const struct document *d, const struct policy_table *t,
                        int borrow_flows, struct cella_error *err)
{
    char *argv[HOSTS_MAX + 2] = {"cella-gate-http"};
    int fds[3] = {borrow_flows, e->http.roots, -1};
    size_t i;
    int r = e->http.key < 0 ? authority_first(e, d, err) : 0;

    if (r < 0)
        return r;
    fds[2] = e->http.key;
    if (e->http.roots >= 0) /* the engine before this one has read it */
        lseek(e->http.roots, 0, SEEK_SET);
    for (i = 0; i < e->http.n_names && i < HOSTS_MAX; i++) /* with a key, nobody reads them */
        argv[i + 1] = e->http.names[i];
    argv[i + 1] = NULL;
    return helper_spawn(e->host, argv, t, fds, &e->http.pid, &e->http.ctl, err);
}

/* The gate's end of the flows socket. */
static int tell_gate(struct egress *e, int borrow_flows, struct cella_error *err)
{
    struct ctl_msg m = {.type = CTL_ENGINE};
    int r = send_fds(e->ctl, &m, sizeof(m), &borrow_flows, 1);

    return r < 0 ? fail(err, r, "handing the HTTP engine to the gate: %s", strerror(-r)) : 0;
}

static int secrets_lenient(struct egress *e, const struct document *d)
{
    struct errbuf eb;

    if (send_secrets(e, d, errbuf_init(&eb)) < 0)
        e->host->log(e->host->ctx, CELLA_LOG_WARN, "egress-nft",
                     "%s: %s; requests of that rule are refused", e->cell_id, eb.text);
    return 0;
}

/* `again`: the cell runs, and a secret that is gone meanwhile stops its requests only. */
static int start(struct egress *e, const struct document *d, const struct policy_table *t,
                 int again, struct cella_error *err)
{
    int pair[2], r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail(err, -errno, "no socket pair for the HTTP engine: %s", strerror(errno));
    r = spawn_engine(e, d, t, pair[1], err);
    close(pair[1]);
    if (r == 0)
        r = start_wait(e, err);
    if (r == 0)
        r = again ? secrets_lenient(e, d) : send_secrets(e, d, err);
    if (r == 0)
        r = tell_gate(e, pair[0], err);
    close(pair[0]);
    if (r == 0) {
        r = e->host->fd_watch(e->host->ctx, e->http.ctl, CELLA_FD_IN, readable, e);
        if (r < 0)
            fail(err, r, "watching the HTTP engine: %s", strerror(-r));
    }
    e->http.watched = r == 0;
    if (r < 0 && again)
        intercept_down(e);
    else if (r < 0)
        intercept_fini(e);
    return r;
}

int intercept_again(struct egress *e, struct cella_error *err)
{
    if (e->http.ctl >= 0 || (!e->http.pem && !intercept_wanted(&e->document)))
        return 0;
    e->http.died = 0;
    return start(e, &e->document, &e->table, 1, err);
}

int intercept_wanted(const struct document *d)
{
    size_t phase = 0, rule = 0;

    return intercept_rule(d, &phase, &rule) != NULL;
}

int intercept_ready(struct egress *e, const struct document *d, const struct policy_table *t,
                    struct cella_error *err)
{
    size_t phase = 0, rule = 0;
    int r;

    if (e->http.ctl < 0 && !intercept_rule(d, &phase, &rule))
        return 0;
    if (e->http.died)
        return fail(err, -EPIPE,
                    "the HTTP engine of this cell has died, and the policy has rules of layer "
                    "http. Start a "
                    "new cell, or use a policy without them");
    if (e->http.ctl < 0)
        return start(e, d, t, 0, err);
    r = e->http.n_names ? authority_cover(e, d, err) : 0;
    return r == 0 ? send_secrets(e, d, err) : r;
}

int intercept_publish(struct egress *e, const struct policy_table *t, uint64_t *ret_killed)
{
    struct ctl_msg m = {.type = CTL_PUBLISH};
    int fd, r;

    if (e->http.ctl < 0)
        return 0;
    fd = table_memfd(t);
    e->http.replied.type = 0;
    r = fd < 0 ? fd : send_fds(e->http.ctl, &m, sizeof(m), &fd, 1);
    auto_close_(&fd);
    if (r == 0)
        r = drain(e, &e->http.replied.type, CTL_PUBLISHED, now_ns() + REPLY_NS);
    if (r == 0 && e->http.replied.gen == t->head.generation) {
        *ret_killed += e->http.replied.tx;
        return 0;
    }
    lost(e, "did not take the new policy");
    return r < 0 ? r : -EPROTO;
}

void intercept_flush(struct egress *e, int final, uint64_t deadline)
{
    struct ctl_msg m = {.type = CTL_FLUSH, .count = final != 0};

    if (e->http.ctl < 0)
        return;
    e->http.flushed = 0;
    if (send_fds(e->http.ctl, &m, sizeof(m), NULL, 0) == 0)
        drain(e, &e->http.flushed, 1, deadline);
}

void intercept_fini(struct egress *e)
{
    size_t i;

    intercept_down(e);
    for (i = 0; i < e->http.n_names; i++)
        free(e->http.names[i]);
    free(e->http.names);
    free(e->http.pem);
    auto_close_(&e->http.key);
    e->http.key = -1;
    e->http.names = NULL;
    e->http.pem = NULL;
    e->http.n_names = e->http.pem_len = 0;
}
