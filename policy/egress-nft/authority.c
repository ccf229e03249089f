/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * authority - what the certificate authority of a cell may speak for, and the certificates that say so.
 *
 * The first one speaks for the hosts of all http rules (all phases) of the document that was the first to have some. Hosts of
 * later documents get a further certificate from the engine. None is ever taken back: a program that runs
 * trusts what it has read. The key stays in a memory file that is passed from engine to engine and never read here. One
 * thread, the warden's.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "egress.h"
#include "engine.h"

#define REPLY_NS 2000000000u

const struct policy_rule *intercept_rule(const struct document *d, size_t *phase, size_t *rule)
{
    for (; *phase < d->n_phases; (*phase)++, *rule = 0)
        while (*rule < d->phases[*phase].n_rules) {
            const struct policy_rule *r = &d->phases[*phase].rules[(*rule)++].rule;
            if (r->verdict == POLICY_ALLOW && r->layer == POLICY_HTTP && r->kind)
                return r;
        }
    return NULL;
}

static int named(char *const *names, size_t n, const char *host)
{
    size_t i;

    for (i = 0; i < n; i++)
        if (!strcmp(names[i], host))
            return 1;
    return 0;
}

/* Different hosts of http rules in all phases; more than HOSTS_MAX: HOSTS_MAX + 1. */
static size_t http_hosts(const struct document *d, char *ret[HOSTS_MAX])
{
    const struct policy_rule *r;
    size_t phase = 0, rule = 0, n = 0;

    while ((r = intercept_rule(d, &phase, &rule)))
        if (!named(ret, n, r->host)) {
            if (n == HOSTS_MAX)
                return n + 1;
            ret[n++] = (char *)(uintptr_t)r->host;
        }
    return n;
}

/* 1: the CA's constraint covers the host. */
static int covered(const struct egress *e, const char *host)
{
    size_t i, n = strlen(host);

    for (i = 0; i < e->http.n_names; i++) {
        size_t have = strlen(e->http.names[i]);
        if (have <= n && !strcmp(host + n - have, e->http.names[i]) &&
            (have == n || host[n - have - 1] == '.'))
            return 1;
    }
    return !e->http.n_names;
}

static int name_add(struct egress *e, const char *name)
{
    char **p = realloc(e->http.names, (e->http.n_names + 1) * sizeof(*p));

    if (!p)
        return -ENOMEM;
    e->http.names = p;
    p[e->http.n_names] = strdup(name);
    if (!p[e->http.n_names])
        return -ENOMEM;
    e->http.n_names++;
    return 0;
}

int authority_pem(struct egress *e, const char *pem, size_t len)
{
    char *copy = len && len <= CELLA_CA_PEM_MAX ? malloc(len + 1) : NULL;

    if (!copy)
        return len && len <= CELLA_CA_PEM_MAX ? -ENOMEM : -EBADMSG;
    memcpy(copy, pem, len);
    free(e->http.pem);
    e->http.pem = copy;
    e->http.pem_len = len;
    return 0;
}

/* The engine's certificates, one more than before. `m`: the names on the way there. */
static int ask_certificate(struct egress *e, struct engine_names *m, struct cella_error *err)
{
    uint64_t deadline = now_ns() + REPLY_NS;
    int r = send_fds(e->http.ctl, m, offsetof(struct engine_names, text) + m->len, NULL, 0);

    while (r == 0) {
        struct pollfd p = {.fd = e->http.ctl, .events = POLLIN};
        uint64_t now = now_ns();
        ssize_t n;
        if (now >= deadline || poll(&p, 1, (int)((deadline - now) / 1000000u) + 1) == 0)
            return fail(err, -ETIMEDOUT, "the HTTP engine does not answer");
        n = recv(e->http.ctl, m, sizeof(*m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n >= (ssize_t)offsetof(struct engine_names, text) && m->type == ENGINE_NAMES &&
            (size_t)n - offsetof(struct engine_names, text) == m->len)
            return m->len ? authority_pem(e, m->text, m->len)
                          : fail(err, -ENOSPC,
                                 "the authority of this cell has been extended too often. Start a "
                                 "new cell, or use the enforcer's option ca-names=any");
        r = n == (ssize_t)sizeof(struct ctl_msg) ? intercept_message(e, (const void *)m) : -EPIPE;
    }
    return fail(err, r, "the HTTP engine of this cell has died: %s", strerror(-r));
}

/* Names that no certificate of the cell's speaks for yet. */
int authority_cover(struct egress *e, const struct document *d, struct cella_error *err)
{
    const struct policy_rule *r;
    size_t phase = 0, rule = 0, had = e->http.n_names, n = 0;
    auto_free struct engine_names *m = calloc(1, sizeof(*m));
    int ret = m ? 0 : -ENOMEM;

    while (ret == 0 && (r = intercept_rule(d, &phase, &rule))) {
        if (covered(e, r->host))
            continue;
        ret = ++n > HOSTS_MAX ? -E2BIG : name_add(e, r->host);
        if (ret == 0)
            m->len +=
                (uint32_t)snprintf(m->text + m->len, sizeof(m->text) - m->len, "%s\n", r->host);
    }
    if (ret < 0)
        fail(err, ret, "more than %u new hosts of http rules in one change: %s", HOSTS_MAX,
             strerror(-ret));
    if (ret == 0 && n) {
        m->type = ENGINE_NAMES;
        ret = ask_certificate(e, m, err);
    }
    while (ret < 0 && e->http.n_names > had)
        free(e->http.names[--e->http.n_names]);
    return ret;
}

/* Once: what the CA will speak for. */
int authority_first(struct egress *e, const struct document *d, struct cella_error *err)
{
    char *hosts[HOSTS_MAX];
    size_t n = http_hosts(d, hosts), i;
    int r = 0;

    e->http.key = memfd_create("cella-ca-key", MFD_CLOEXEC);
    if (e->http.key < 0 || fcntl(e->http.key, F_SETFL, O_APPEND) < 0)
        return fail(err, -errno, "no memory file for the HTTP engine: %s", strerror(errno));
    if (n > HOSTS_MAX || e->http.any_name)
        n = 0;
    for (i = 0; r == 0 && i < n; i++)
        r = name_add(e, hosts[i]);
    return r < 0 ? fail(err, r, "out of memory") : 0;
}
