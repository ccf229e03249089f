/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * control - orders from the backend. A request is judged in one place, before anything of it is used: its
 * length, what must be zero, its figures, and whether the machine is in a state for it.
 *
 * A request that is refused gets an answer, too; the machine stays as it was. But a first CONFIG, and a LOAD that was
 * begun, end the program when they fail.
 * When the backend is gone, so is the machine. Threads: the VMM thread, with the lock.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "layout.h"
#include "vmm.h"

#define MIB (1ull << 20)
#define RAM_MIN (32 * MIB)
#define RAM_MOST (1ull << 40)
#define FLAGS (VMM_CONFIG_NET | VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING | VMM_CONFIG_TIMINGS)

enum need { NEEDS_MACHINE = 1, NEEDS_STOP = 2, NEEDS_FD = 4, NEEDS_INCOMING = 8, KEEPS_FD = 16 };

struct order {
    uint32_t op;
    const char *name;
    unsigned needs;
    int (*run)(struct machine *m, const struct vmm_request *q, int borrow_fd, struct vmm_reply *ret,
               struct why *w);
};

static const struct order *order_find(uint32_t op);

/* ------------------------------------------------------------------------ judge */

static int zeros(const void *p, size_t n)
{
    const uint8_t *b = p;

    while (n--)
        if (*b++)
            return 0;
    return 1;
}

static int config_check(const struct vmm_config *c, struct why *w)
{
    if (c->size != sizeof(*c))
        return why(w, -EPROTO, "CONFIG: %u bytes, and this build takes %zu", c->size, sizeof(*c));
    if ((c->flags & ~FLAGS) || !zeros(c->pad, sizeof(c->pad)))
        return why(w, -EINVAL, "CONFIG: unknown flags 0x%x", c->flags & ~FLAGS);
    if (c->ram_bytes % MIB || c->ram_bytes < RAM_MIN || c->ram_bytes > RAM_MOST)
        return why(w, -ERANGE,
                   "CONFIG: %llu bytes of memory; whole MiB, from 32 MiB to 1 TiB, can be had",
                   (unsigned long long)c->ram_bytes);
    if (!c->vcpus || c->vcpus > VMM_VCPUS_MAX)
        return why(w, -ERANGE, "CONFIG: %u processors; 1 to %u can be had", c->vcpus,
                   VMM_VCPUS_MAX);
    if ((!c->n_layers && !(c->flags & VMM_CONFIG_INCOMING)) || c->n_layers > VMM_LAYERS_MAX)
        return why(w, -ERANGE, "CONFIG: %u layers of the disk; 1 to %u can be had", c->n_layers,
                   VMM_LAYERS_MAX);
    if (!c->disk_bytes || c->disk_bytes % 512 || c->disk_bytes > 1ull << 50)
        return why(w, -ERANGE, "CONFIG: a disk of %llu bytes; whole sectors, up to 1 PiB",
                   (unsigned long long)c->disk_bytes);
    if ((c->flags & VMM_CONFIG_NET) && (c->mac[0] & 1))
        return why(w, -EINVAL, "CONFIG: the network address is a group's");
    if ((c->flags & VMM_CONFIG_INCOMING) && !(c->flags & VMM_CONFIG_PRIVATE))
        return why(w, -EINVAL, "CONFIG: INCOMING without PRIVATE would write into the snapshot");
    if (!memchr(c->append, 0, sizeof(c->append)))
        return why(w, -EINVAL, "CONFIG: the kernel command line has no end");
    return 0;
}

int control_check(const struct vmm_request *r, long len, int n_fds, const struct machine *m,
                  struct why *w)
{
    const struct order *o;

    if (len != (long)sizeof(*r))
        return why(w, -EPROTO, "a request of %ld bytes, and this build takes %zu", len, sizeof(*r));
    o = order_find(r->op);
    if (!o || r->reserved0)
        return why(w, -ENOSYS, "request %u is unknown", r->op);
    if (n_fds != (o->needs & NEEDS_FD ? 1 : 0))
        return why(w, -EBADF, "%s: %d descriptors came with it", o->name, n_fds);
    if (r->op == VMM_OP_CONFIG)
        return m->n_cpu ? why(w, -EALREADY, "CONFIG: there is a machine already")
                        : config_check(&r->config, w);
    if (!zeros(&r->config, sizeof(r->config)))
        return why(w, -EINVAL, "%s: comes with a configuration", o->name);
    if ((o->needs & NEEDS_MACHINE) && !m->n_cpu)
        return why(w, -EPROTO, "%s: CONFIG comes first", o->name);
    if ((o->needs & NEEDS_STOP) && m->running)
        return why(w, -EBUSY, "%s: the machine is running; PAUSE first", o->name);
    if ((o->needs & NEEDS_INCOMING) && (!(m->config.flags & VMM_CONFIG_INCOMING) || m->loaded))
        return why(w, -EPROTO, "%s: this machine does not wait for a state", o->name);
    if (r->op == VMM_OP_LOAD && m->late && (!m->has_memory || !m->config.n_layers))
        return why(w, -EPROTO, "LOAD: its %s did not come yet", m->has_memory ? "disk" : "memory");
    return 0;
}

/* ----------------------------------------------------------------------- orders */

static int run_config(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                      struct why *w)
{
    (void)fd;
    (void)ret;
    return machine_make(m, &q->config, w);
}

static int run_cont(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                    struct why *w)
{
    (void)q;
    (void)fd;
    (void)ret;
    return machine_cont(m, w);
}

static int run_pause(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                     struct why *w)
{
    (void)q;
    (void)fd;
    (void)ret;
    (void)w;
    machine_pause(m);
    return 0;
}

static int run_save(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                    struct why *w)
{
    (void)q;
    (void)ret;
    if ((m->config.flags & VMM_CONFIG_INCOMING) && !m->loaded)
        return why(w, -EPROTO, "SAVE: there is no machine yet");
    return machine_save(m, fd, w);
}

/* A state that was taken in half leaves nothing that could run. */
static int run_load(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                    struct why *w)
{
    int r = machine_load(m, fd, w);

    (void)q;
    (void)ret;
    machine_mark(m, "loaded");
    return r;
}

static int run_memory(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                      struct why *w)
{
    int r;

    (void)q;
    (void)ret;
    if (!m->late || m->has_memory)
        return why(w, -EPROTO, "MEMORY: this machine does not wait for it");
    r = ram_fill(&m->ram, fd);
    if (r < 0)
        return why(w, r, "MEMORY: the file cannot be mapped as %llu MiB: %s",
                   (unsigned long long)(m->config.ram_bytes >> 20), strerror(-r));
    m->has_memory = 1;
    return 0;
}

static int run_layer(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                     struct why *w)
{
    int r;

    (void)ret;
    if (!m->late || m->config.n_layers)
        return why(w, -EPROTO, "LAYER: this machine does not wait for one");
    if (!q->arg2 || q->arg2 > VMM_LAYERS_MAX || q->arg != m->n_late ||
        (m->n_late && q->arg2 != m->n_due))
        return why(w, -ERANGE, "LAYER: number %llu of %llu; 1 to %u can be had, in their order",
                   (unsigned long long)q->arg, (unsigned long long)q->arg2, VMM_LAYERS_MAX);
    m->n_due = (uint32_t)q->arg2;
    m->own_layer_fds[m->n_late++] = fd;
    if (m->n_late < m->n_due)
        return 0;
    r = devices_fill(m, w);
    if (r < 0)
        m->n_late--; /* whose descriptor is closed */
    else
        m->config.n_layers = m->n_due;
    return r;
}

/* @seccomp vmm: mmap madvise */
static int run_detach(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                      struct why *w)
{
    int r = ram_detach(&m->ram);

    (void)q;
    (void)fd;
    (void)ret;
    return r < 0 ? why(w, r, "DETACH: the memory cannot be mapped privately: %s", strerror(-r)) : 0;
}

static int run_balloon(struct machine *m, const struct vmm_request *q, int fd,
                       struct vmm_reply *ret, struct why *w)
{
    (void)fd;
    (void)ret;
    if (q->arg > m->config.ram_bytes)
        return why(w, -ERANGE, "BALLOON: %llu MiB are to stay, of %llu",
                   (unsigned long long)(q->arg >> 20),
                   (unsigned long long)(m->config.ram_bytes >> 20));
    return devices_balloon(m, q->arg, w);
}

static int run_io_limit(struct machine *m, const struct vmm_request *q, int fd,
                        struct vmm_reply *ret, struct why *w)
{
    (void)fd;
    (void)ret;
    return devices_io_limit(m, q->arg, q->arg2, w);
}

static int run_stats(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                     struct why *w)
{
    uint64_t rd = 0, wr = 0;

    (void)q;
    (void)fd;
    (void)w;
    devices_figures(m, &ret->value, &rd, &wr);
    snprintf(ret->text, sizeof(ret->text), "{\"read\":%llu,\"written\":%llu}",
             (unsigned long long)rd, (unsigned long long)wr);
    return 0;
}

static int run_button(struct machine *m, const struct vmm_request *q, int fd, struct vmm_reply *ret,
                      struct why *w)
{
    int r = kvm_pulse(&m->kvm, GSI_BUTTON);

    (void)q;
    (void)fd;
    (void)ret;
    return r < 0 ? why(w, r, "BUTTON: KVM_IRQ_LINE: %s", strerror(-r)) : 0;
}

static const struct order orders[] = {
    {VMM_OP_CONFIG, "CONFIG", 0, run_config},
    {VMM_OP_CONT, "CONT", NEEDS_MACHINE, run_cont},
    {VMM_OP_PAUSE, "PAUSE", NEEDS_MACHINE, run_pause},
    {VMM_OP_SAVE, "SAVE", NEEDS_MACHINE | NEEDS_STOP | NEEDS_FD, run_save},
    {VMM_OP_LOAD, "LOAD", NEEDS_MACHINE | NEEDS_STOP | NEEDS_FD | NEEDS_INCOMING, run_load},
    {VMM_OP_DETACH, "DETACH", NEEDS_MACHINE | NEEDS_STOP, run_detach},
    {VMM_OP_BALLOON, "BALLOON", NEEDS_MACHINE, run_balloon},
    {VMM_OP_IO_LIMIT, "IO_LIMIT", NEEDS_MACHINE, run_io_limit},
    {VMM_OP_STATS, "STATS", NEEDS_MACHINE, run_stats},
    {VMM_OP_BUTTON, "BUTTON", NEEDS_MACHINE, run_button},
    {VMM_OP_MEMORY, "MEMORY", NEEDS_MACHINE | NEEDS_STOP | NEEDS_FD | NEEDS_INCOMING | KEEPS_FD,
     run_memory},
    {VMM_OP_LAYER, "LAYER", NEEDS_MACHINE | NEEDS_STOP | NEEDS_FD | NEEDS_INCOMING | KEEPS_FD,
     run_layer},
};

static const struct order *order_find(uint32_t op)
{
    size_t i;

    for (i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (orders[i].op == op)
            return &orders[i];
    return NULL;
}

/* ----------------------------------------------------------------------- socket */

/* Bytes, 0 = the backend is gone, or negative errno. Of more than one descriptor, none is kept.
   @seccomp vmm: recvmsg close */
static long receive(struct vmm_request *ret, int *ret_fd, int *ret_n)
{
    union {
        char space[CMSG_SPACE(4 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec io = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr msg = {.msg_iov = &io,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    struct cmsghdr *c;
    long n = recvmsg(VMM_FD_CONTROL, &msg, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    int fds[4], i;

    *ret_fd = -1;
    *ret_n = 0;
    if (n < 0)
        return -errno;
    for (c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        *ret_n = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)*ret_n * sizeof(int));
        if (*ret_n == 1)
            *ret_fd = fds[0];
        for (i = 0; *ret_n > 1 && i < *ret_n; i++)
            close(fds[i]);
    }
    return n;
}

/* @seccomp vmm: sendto */
static void reply_send(const struct vmm_reply *r)
{
    if (send(VMM_FD_CONTROL, r, sizeof(*r), MSG_NOSIGNAL) != (ssize_t)sizeof(*r))
        vmm_end(VMM_EXIT_HOST, "control: the backend does not listen: %s", strerror(errno));
}

int control_turn(struct machine *m)
{
    const struct order *o;
    struct vmm_request q;
    struct vmm_reply reply;
    struct why w = {.text = ""};
    int fd, n_fds, first = !m->n_cpu, done = 0;
    long n;

    memset(&q, 0, sizeof(q));
    memset(&reply, 0, sizeof(reply));
    do
        n = receive(&q, &fd, &n_fds);
    while (n == -EINTR);
    if (n == 0)
        vmm_end(VMM_EXIT_HOST, "control: the backend is gone");
    if (n < 0)
        vmm_end(VMM_EXIT_HOST, "control: %s", strerror((int)-n));
    reply.code = control_check(&q, n, n_fds, m, &w);
    o = order_find(q.op);
    if (reply.code == 0 && o) {
        reply.code = o->run(m, &q, fd, &reply, &w);
        done = 1;
    }
    if (reply.code < 0)
        snprintf(reply.text, sizeof(reply.text), "%s", w.text[0] ? w.text : strerror(-reply.code));
    if (fd >= 0 && (reply.code < 0 || !(o->needs & KEEPS_FD)))
        close(fd);
    reply_send(&reply);
    if (reply.code < 0 && ((q.op == VMM_OP_CONFIG && first) || (q.op == VMM_OP_LOAD && done)))
        vmm_end(VMM_EXIT_HOST, "%s", reply.text);
    return (int)q.op;
}

static void ready(void *self, int fd, uint32_t events)
{
    (void)fd;
    (void)events;
    (void)control_turn(self);
}

int control_watch(struct machine *m, struct why *w)
{
    int r = loop_watch(m->loop, VMM_FD_CONTROL, EPOLLIN, ready, m);

    return r < 0 ? why(w, r, "control: %s", strerror(-r)) : 0;
}
