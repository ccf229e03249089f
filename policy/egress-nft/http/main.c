/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-gate-http - start and loop of the HTTP engine.
 *
 * Started by the plugin with the descriptors of engine.h. Order: away from every network -> nobody, no
 * capabilities -> not dumpable, no core -> die with the warden -> keys, roots, policy -> filter -> UP ->
 * serve. It has no network of its own: all it can talk to is what the gate hands over. Should: end when the
 * warden or the gate does. Mustn't: open a socket or a file, ever, after the filter is installed.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <openssl/rand.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

#define NOBODY 65534u
#define QUEUE_MAX (256u * sizeof(struct ctl_msg))
#define TURN_MAX 16
#define NAMES_MAX 256
#define DATA_MAX                                                                                   \
    (512u << 20) /* all flows of a cell with full buffers, and two tables; then flows end */

static struct bytes to_gate; /* struct engine_msg that did not go yet */

/* ----------------------------------------------------------- what is said */

/* Sends what waits, one packet of `size` at a time. */
static void drain(struct engine *e, struct watch *w, struct bytes *queue, size_t size)
{
    while (queue->len) {
        if (send(w->fd, bytes_at(queue), size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno != EAGAIN)
                e->quit = 1;
            break;
        }
        bytes_drop(queue, size);
    }
    watch_set(e, w, queue->len ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

int engine_tell(struct engine *e, const struct ctl_msg *m)
{
    if (e->queue.len >= QUEUE_MAX && m->type == CTL_DENY)
        return -EAGAIN;
    if (bytes_add(&e->queue, m, sizeof(*m)) < 0)
        return -ENOMEM;
    drain(e, &e->ctl, &e->queue, sizeof(*m));
    return 0;
}

void engine_tell_gate(struct engine *e, const struct engine_msg *m)
{
    if (to_gate.len && m->type == ENGINE_PROGRESS)
        return;
    if (bytes_add(&to_gate, m, sizeof(*m)) < 0)
        e->quit = 1;
    else
        drain(e, &e->flows, &to_gate, sizeof(*m));
}

/* ----------------------------------------------------------- what is heard */

/* Data bytes; descriptors beyond `room` are closed by the kernel. */
static ssize_t receive(int sock, void *p, size_t n, int *fds, int room, int *ret_n)
{
    union {
        char bytes[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {p, n};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = CMSG_SPACE((size_t)room * sizeof(int))};
    ssize_t got = recvmsg(sock, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = got >= 0 ? CMSG_FIRSTHDR(&h) : NULL;

    *ret_n = 0;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        *ret_n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)*ret_n * sizeof(int));
    }
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    return got;
}

static int load_table(int own_fd, struct policy_table *ret)
{
    int r = policy_table_read(own_fd, ret);

    close(own_fd);
    return r;
}

static void publish(struct engine *e, int own_fd)
{
    struct ctl_msg m = {.type = CTL_PUBLISHED};
    struct policy_table t;

    if (own_fd < 0 || load_table(own_fd, &t) < 0) {
        e->quit = 1; /* between two policies there is no safe one to go on with */
        return;
    }
    policy_table_fini(&e->table);
    e->table = t;
    secret_trim(e);
    m.tx = flow_judge_all(e);
    m.gen = t.head.generation;
    if (engine_tell(e, &m) < 0)
        e->quit = 1;
}

static void flush(struct engine *e, int final)
{
    struct ctl_msg m = {.type = CTL_FLUSHED, .count = final != 0};
    struct ctl_msg rest = {.type = CTL_DENY,
                           .reason = REASON_LIMIT,
                           .proto = 6,
                           .gen = e->table.head.generation,
                           .suppressed = e->suppressed};

    if (final)
        flow_end_all(e);
    else
        flow_progress(e);
    if (e->suppressed && engine_tell(e, &rest) == 0)
        e->suppressed = 0;
    engine_tell(e, &m);
}

/* Names for another certificate; the answer is the PEM of all, or nothing. */
static void more_names(struct engine *e, struct engine_names *m)
{
    struct bytes pem = {0};
    char *names[NAMES_MAX], *at, *save = NULL;
    size_t n = 0;
    int r = 0;

    m->text[m->len ? m->len - 1 : 0] = 0;
    for (at = strtok_r(m->text, "\n", &save); at; at = strtok_r(NULL, "\n", &save)) {
        char canon[POLICY_NAME_MAX + 1];
        if (n == NAMES_MAX || policy_name_canon(at, canon) < 0 || strcmp(canon, at) != 0)
            r = -EINVAL;
        else
            names[n++] = at;
    }
    if (r == 0 && n)
        r = ca_more(names, n);
    m->len = 0;
    if (r == 0 && n && ca_pem(&pem) == 0 && pem.len <= sizeof(m->text)) {
        m->len = (uint32_t)pem.len;
        memcpy(m->text, bytes_at(&pem), pem.len);
    }
    bytes_fini(&pem);
    if (send(e->ctl.fd, m, offsetof(struct engine_names, text) + m->len,
             MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        e->quit = 1;
}

static void ctl_message(struct engine *e, void *p, size_t n, int fd)
{
    const struct ctl_msg *m = p;
    const struct engine_secret *s = p;
    struct engine_names *names = p;

    if (n == sizeof(*m) && m->type == CTL_PUBLISH) {
        publish(e, fd);
        return;
    }
    if (n == sizeof(*m) && m->type == CTL_FLUSH)
        flush(e, m->count != 0);
    else if (n >= offsetof(struct engine_secret, value) && s->type == ENGINE_SECRET &&
             n - offsetof(struct engine_secret, value) == s->len && memchr(s->name, 0, 64))
        secret_put(e, s->name, s->value, s->len); /* a refused one is missing, and said so then */
    else if (n > offsetof(struct engine_names, text) && names->type == ENGINE_NAMES &&
             n - offsetof(struct engine_names, text) == names->len)
        more_names(e, names);
    if (fd >= 0)
        close(fd);
}

static void ctl_ready(struct engine *e, struct watch *w, uint32_t ready)
{
    static union {
        struct ctl_msg ctl;
        struct engine_secret secret;
        struct engine_names names;
    } m;
    int fd[2] = {-1, -1}, n;
    ssize_t got;

    if (ready & EPOLLOUT)
        drain(e, w, &e->queue, sizeof(struct ctl_msg));
    if (!(ready & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    got = receive(w->fd, &m, sizeof(m), fd, 1, &n);
    if (got == -EAGAIN)
        return;
    if (got <= 0)
        e->quit = 1;
    else
        ctl_message(e, &m, (size_t)got, n ? fd[0] : -1);
    explicit_bzero(&m, got > 0 ? (size_t)got : 0);
}

static int flow_msg_valid(const struct engine_msg *m, ssize_t got, int n)
{
    char canon[POLICY_NAME_MAX + 1];

    return got == (ssize_t)sizeof(*m) && n == 2 && m->type == ENGINE_FLOW && m->tls <= 1 &&
           memchr(m->name, 0, sizeof(m->name)) && memchr(m->rule, 0, sizeof(m->rule)) &&
           policy_name_canon(m->name, canon) == 0 && !strcmp(canon, m->name);
}

static void flows_ready(struct engine *e, struct watch *w, uint32_t ready)
{
    struct engine_msg m;
    int fd[2] = {-1, -1}, n, turn;

    if (ready & EPOLLOUT)
        drain(e, w, &to_gate, sizeof(m));
    for (turn = 0; turn < TURN_MAX && !e->quit; turn++) {
        ssize_t got = receive(w->fd, &m, sizeof(m), fd, 2, &n);
        if (got == -EAGAIN)
            return;
        if (got == (ssize_t)sizeof(m) && n == 0 && m.type == ENGINE_MAY) {
            flow_may(e, &m);
            continue;
        }
        if (!flow_msg_valid(&m, got, n)) {
            e->quit = 1; /* the gate is gone, or is not the gate */
            return;
        }
        flow_new(e, &m, fd[0], fd[1]);
    }
}

/* ------------------------------------------------------------------ loop */

static void serve(struct engine *e)
{
    struct epoll_event ev[32];
    uint64_t last = 0, now;

    while (!e->quit) {
        int i, wait = e->again ? 0 : e->list ? 1000 : -1;
        int n = epoll_wait(e->ep, ev, sizeof(ev) / sizeof(ev[0]), wait);
        if (n < 0 && errno != EINTR)
            return;
        flow_again(e);
        for (i = 0; i < n && !e->quit; i++) {
            struct watch *w = ev[i].data.ptr;
            if (w->armed)
                w->fn(e, w, ev[i].events);
        }
        now = watch_now();
        if (now - last > 900000000u) {
            last = now;
            flow_tick(e);
            flow_progress(e);
        }
        flow_reap(e);
    }
}

static int fd_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static int give_up_privilege(void)
{
    struct rlimit none = {0, 0};
#ifndef NO_FILTER /* a sanitizer reserves more */
    struct rlimit data = {DATA_MAX, DATA_MAX};

    if (setrlimit(RLIMIT_DATA, &data) < 0)
        return -errno;
#endif

    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 || setgroups(0, NULL) < 0 ||
         setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        return -errno;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0) < 0 ||
        setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

/* The CA's certificate in a memory file, for the warden. */
static int pem_file(void)
{
    struct bytes pem = {0};
    int fd = memfd_create("cella-ca", MFD_CLOEXEC);

    if (fd >= 0 && (ca_pem(&pem) < 0 || write(fd, bytes_at(&pem), pem.len) != (ssize_t)pem.len)) {
        close(fd);
        fd = -1;
    }
    bytes_fini(&pem);
    return fd;
}

static int say_up(struct engine *e, int own_fd)
{
    struct ctl_msg up = {.type = CTL_UP, .gen = e->table.head.generation};
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {&up, sizeof(up)};
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &control,
                       .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    ssize_t n;

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(c), &own_fd, sizeof(int));
    n = sendmsg(e->ctl.fd, &h, MSG_NOSIGNAL);
    close(own_fd);
    return n == (ssize_t)sizeof(up) ? 0 : -EIO;
}

static int start(struct engine *e, char **names, size_t n_names)
{
    int roots = fd_open(ENGINE_FD_ROOTS) ? ENGINE_FD_ROOTS : -1, pem;
    int key = fd_open(ENGINE_FD_KEY) ? ENGINE_FD_KEY : -1;

    close_range(ENGINE_FD_END, ~0u, 0);
    e->tokens = 256;
    e->tokens_at = watch_now();
    if (give_up_privilege() < 0 || getuid() == 0)
        return -1;
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL) != 1 ||
        ca_init(names, n_names, key) < 0 || tls_init(e, roots) < 0 || ca_warm(e) < 0)
        return -1;
    if (load_table(FD_POLICY, &e->table) < 0)
        return -1;
    e->ep = epoll_create1(EPOLL_CLOEXEC);
    e->ctl = (struct watch){.fn = ctl_ready, .fd = FD_CTL};
    e->flows = (struct watch){.fn = flows_ready, .fd = ENGINE_FD_FLOWS};
    if (e->ep < 0)
        return -1;
    watch_set(e, &e->ctl, EPOLLIN);
    watch_set(e, &e->flows, EPOLLIN);
    pem = pem_file();
    if (e->quit || pem < 0 || filter_install() < 0)
        return -1;
    return say_up(e, pem);
}

int main(int argc, char **argv)
{
    static struct engine e;

    if (argc < 1 || argc > NAMES_MAX || !fd_open(ENGINE_FD_FLOWS)) {
        fputs("cella-gate-http: it is started by cella; it has no use of its own\n", stderr);
        return 2;
    }
    if (start(&e, argv + 1, (size_t)argc - 1) < 0)
        return 1;
    serve(&e);
    return 0;
}
