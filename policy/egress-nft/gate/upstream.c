/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * upstream - names resolved for the gate itself, by c-ares, from the uplink namespace.
 *
 * The configured resolvers and no others are asked; never hosts files, never search lists. Should:
 * ask once for questions about one name at one time; answer from the cache of the name while it is
 * fresh. Mustn't: be asked for a name the policy does not list (the callers have looked); judge an
 * address, which is for who dials it. c-ares checks id, question, source address and port of an
 * answer; every question has a fresh source port. Sockets are made through hooks, because the
 * gate's filter knows no fcntl(F_SETFL). Bounded questions, each bounded in time. Threads: none.
 */
#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "gate.h"

#define QUESTIONS_MAX 64u
#define SOCKETS_MAX 32u
#define WAITERS_MAX 512u /* every flow, association and question of the cell */
#define TIMEOUT_MS 1500
#define TRIES 2
#define CLASS_IN 1
#define TYPE_A 1

struct waiter {
    upstream_fn fn; /* NULL: not interested any more */
    void *data;
    struct waiter *next;
    int used;
};

struct question {
    struct name *name; /* NULL: free */
    struct waiter *waiters;
};

static ares_channel channel;
static struct gate *gate;
static int has_resolver;
static struct question questions[QUESTIONS_MAX];
static struct waiter waiters[WAITERS_MAX];
static unsigned n_questions;
static struct watch sockets[SOCKETS_MAX];

/* ----------------------------------------------------------------- sockets */

static void socket_ready(struct gate *g, struct watch *w, uint32_t ready)
{
    ares_socket_t bad = ARES_SOCKET_BAD;

    (void)g;
    ares_process_fd(channel, ready & (EPOLLIN | EPOLLERR | EPOLLHUP) ? w->fd : bad,
                    ready & EPOLLOUT ? w->fd : bad);
}

static void socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
    struct watch *w = NULL;
    unsigned i;

    (void)data;
    for (i = 0; i < SOCKETS_MAX && !w; i++)
        if (sockets[i].armed && sockets[i].fd == fd)
            w = &sockets[i];
    for (i = 0; i < SOCKETS_MAX && !w; i++)
        if (!sockets[i].armed)
            w = &sockets[i];
    if (!w) /* cannot be: sockets are refused before; its question times out */
        return;
    if (!readable && !writable) {
        if (w->armed && w->fd == fd)
            watch_del(gate, w);
        return;
    }
    w->fn = socket_ready;
    w->fd = fd;
    watch_set(gate, w, (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u));
}

static ares_socket_t hook_socket(int domain, int type, int protocol, void *data)
{
    unsigned i, used = 0;

    (void)protocol;
    (void)data;
    for (i = 0; i < SOCKETS_MAX; i++)
        used += sockets[i].armed != 0;
    if (domain != AF_INET || used == SOCKETS_MAX) {
        errno = EMFILE;
        return ARES_SOCKET_BAD;
    }
    return socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static int hook_close(ares_socket_t fd, void *data)
{
    (void)data;
    return close(fd);
}

static int hook_connect(ares_socket_t fd, const struct sockaddr *a, ares_socklen_t len, void *data)
{
    (void)data;
    return connect(fd, a, len);
}

static ares_ssize_t hook_recv(ares_socket_t fd, void *p, size_t n, int flags, struct sockaddr *a,
                              ares_socklen_t *len, void *data)
{
    (void)data;
    return recvfrom(fd, p, n, flags, a, len);
}

static ares_ssize_t hook_send(ares_socket_t fd, const struct iovec *v, int n, void *data)
{
    struct msghdr m = {.msg_iov = (struct iovec *)(uintptr_t)v, .msg_iovlen = (size_t)n};

    (void)data;
    return sendmsg(fd, &m, MSG_NOSIGNAL);
}

static const struct ares_socket_functions hooks = {
    .asocket = hook_socket,
    .aclose = hook_close,
    .aconnect = hook_connect,
    .arecvfrom = hook_recv,
    .asendv = hook_send,
};

int upstream_init(struct gate *g, const char *resolvers)
{
    char *no_domain[1] = {NULL};
    struct in_addr none = {0};
    struct ares_options o = {.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
                             .timeout = TIMEOUT_MS,
                             .tries = TRIES,
                             .ndots = 1,
                             .servers = &none,
                             .nservers = 1,
                             .domains = no_domain,
                             .lookups = (char[]){"b"},
                             .sock_state_cb = socket_state};

    gate = g;
    has_resolver = *resolvers != 0;
    if (!has_resolver)
        return 0;
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS ||
        ares_init_options(&channel, &o,
                          ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS |
                              ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_LOOKUPS |
                              ARES_OPT_SORTLIST | ARES_OPT_SOCK_STATE_CB) != ARES_SUCCESS)
        return -1;
    ares_set_socket_functions(channel, &hooks, NULL);
    return ares_set_servers_ports_csv(channel, resolvers) == ARES_SUCCESS ? 0 : -1;
}

/* --------------------------------------------------------------- questions */

static void finish(struct question *q, const struct resolved *r)
{
    struct waiter *w = q->waiters, *next;

    q->name = NULL;
    q->waiters = NULL;
    n_questions--;
    for (; w; w = next) {
        next = w->next;
        w->used = 0;
        if (w->fn)
            w->fn(gate, w->data, r);
    }
}

static enum upstream_status status_of(int ares)
{
    switch (ares) {
    case ARES_SUCCESS:
        return UPSTREAM_OK;
    case ARES_ENODATA:
        return UPSTREAM_NONE;
    case ARES_ENOTFOUND:
        return UPSTREAM_NXNAME;
    default:
        return UPSTREAM_FAILED;
    }
}

static void answered(void *data, int status, int timeouts, unsigned char *msg, int len)
{
    struct question *q = data;
    struct ares_addrttl a[ADDRS_MAX];
    struct resolved r = {.ttl = UINT32_MAX};
    int n = ADDRS_MAX, i;

    (void)timeouts;
    if (status == ARES_SUCCESS)
        status = ares_parse_a_reply(msg, len, NULL, a, &n);
    r.status = status_of(status);
    for (i = 0; r.status == UPSTREAM_OK && i < n; i++) {
        r.addr[r.n++] = ntohl(a[i].ipaddr.s_addr);
        if (a[i].ttl >= 0 && (uint32_t)a[i].ttl < r.ttl)
            r.ttl = (uint32_t)a[i].ttl;
    }
    if (r.status == UPSTREAM_OK && !r.n)
        r.status = UPSTREAM_NONE;
    if (r.n)
        name_cache(q->name, r.addr, r.n, r.ttl);
    finish(q, &r);
}

static struct question *question_for(const struct name *n)
{
    unsigned i;

    for (i = 0; i < QUESTIONS_MAX; i++)
        if (questions[i].name == n)
            return &questions[i];
    return NULL;
}

static struct waiter *free_waiter(void)
{
    unsigned i;

    for (i = 0; i < WAITERS_MAX; i++)
        if (!waiters[i].used)
            return &waiters[i];
    return NULL;
}

static void no(upstream_fn fn, void *data, enum upstream_status status)
{
    struct resolved r = {.status = status};

    fn(gate, data, &r);
}

void upstream_ask(struct gate *g, struct name *n, upstream_fn fn, void *data)
{
    struct resolved r = {.status = UPSTREAM_OK};
    struct question *q;
    struct waiter *w;
    int asked;

    r.n = name_cached(n, r.addr, &r.ttl);
    if (r.n) {
        fn(g, data, &r);
        return;
    }
    if (!has_resolver) {
        no(fn, data, UPSTREAM_NOWHERE);
        return;
    }
    q = question_for(n);
    asked = q != NULL;
    if (!q)
        q = question_for(NULL); /* a free one */
    w = q ? free_waiter() : NULL;
    if (!w) {
        no(fn, data, UPSTREAM_BUSY);
        return;
    }
    *w = (struct waiter){fn, data, q->waiters, 1};
    q->waiters = w;
    if (asked)
        return;
    q->name = n;
    n_questions++;
    ares_query(channel, name_text(n), CLASS_IN, TYPE_A, answered, q);
}

void upstream_cancel(const void *data)
{
    struct waiter *w;
    unsigned i;

    for (i = 0; i < QUESTIONS_MAX; i++)
        for (w = questions[i].name ? questions[i].waiters : NULL; w; w = w->next)
            if (w->data == data)
                w->fn = NULL;
}

int upstream_patience(void)
{
    struct timeval t, *left;

    if (!n_questions)
        return -1;
    left = ares_timeout(channel, NULL, &t);
    return left ? (int)(left->tv_sec * 1000 + left->tv_usec / 1000) + 1 : -1;
}

void upstream_tick(void)
{
    if (n_questions)
        ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}
