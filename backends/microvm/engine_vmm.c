/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine_vmm - cella-vmm in a jail whose root holds nothing but the program: everything of the host is a descriptor
 * (vmm/control.h). Orders and answers are whole datagrams; an answer is bounded and cleaned, because
 * the guest may have taken the monitor over. Threads: one per object.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include "vmm/layers.h"
#include <cella/guest.h>

#include "microvm.h"
#include "vmm/control.h"

#define ORDER_MS 10000
#define STATE_MS 25000
#define LAST_WORDS_NS 100000000ull
#define PROGRAM "/cella/cella-vmm" /* as it is shown to who looks for it */

struct vmm {
    struct engine base;
    int control_fd;
    unsigned owed; /* answers to orders that nobody waits for any more */
};

static struct vmm *vmm_of(struct engine *e)
{
    return (struct vmm *)e;
}

/* ---- orders ---- */

/* Its last words, when it is gone; else what went wrong with the channel. */
static int no_answer(struct vmm *v, const char *what, int r, struct cella_error *err)
{
    char why[300] = "";

    if (engine_wait(&v->base, 0))
        engine_complaint(&v->base, why, sizeof(why));
    return fail(err, r, "cella-vmm: %s: %s", what, why[0] ? why : strerror(-r));
}

/* Answers come in the order of the orders: a late one is not taken for the next order's. The length of what came, 0 = it
   is gone, or negative errno. */
static ssize_t answer(struct vmm *v, struct vmm_reply *ret, int timeout_ms)
{
    uint64_t end = now_ns() + (uint64_t)timeout_ms * 1000000;
    ssize_t n;
    int r;

    do {
        r = fd_readable(v->control_fd, end);
        if (r == 0)
            v->owed++;
        if (r <= 0)
            return r == 0 ? -ETIMEDOUT : r;
        n = recv(v->control_fd, ret, sizeof(*ret), MSG_DONTWAIT);
    } while (n == (ssize_t)sizeof(*ret) && v->owed && v->owed--);
    return n < 0 ? -errno : n;
}

static int order(struct engine *e, const char *what, const struct vmm_request *q, int borrow_fd,
                 int timeout_ms, struct cella_error *err)
{
    struct vmm *v = vmm_of(e);
    struct vmm_reply reply;
    char why[sizeof(reply.text)];
    int r = send_fds(v->control_fd, q, sizeof(*q), &borrow_fd, borrow_fd >= 0);
    ssize_t n;

    if (r < 0)
        return no_answer(v, what, r, err);
    n = answer(v, &reply, timeout_ms);
    if (n == -ETIMEDOUT)
        return no_answer(v, what, -ETIMEDOUT, err);
    if (n != (ssize_t)sizeof(reply)) {
        engine_wait(e, LAST_WORDS_NS); /* it is ending; so that its last words are there */
        return no_answer(v, what, n == 0 ? -EPIPE : n < 0 ? (int)n : -EBADMSG, err);
    }
    if (reply.code >= 0)
        return 0;
    text_clean(reply.text, strnlen(reply.text, sizeof(reply.text)), why, sizeof(why));
    return fail(err, reply.code < -4095 ? -EIO : reply.code, "cella-vmm: %s: %s", what,
                why[0] ? why : "no reason given");
}

static int simple(struct engine *e, const char *what, uint32_t op, uint64_t arg, uint64_t arg2,
                  struct cella_error *err)
{
    struct vmm_request q = {.op = op, .arg = arg, .arg2 = arg2};

    return order(e, what, &q, -1, ORDER_MS, err);
}

static int vmm_cont(struct engine *e, struct cella_error *err)
{
    return simple(e, "run", VMM_OP_CONT, 0, 0, err);
}

static int vmm_pause(struct engine *e, struct cella_error *err)
{
    return simple(e, "stop", VMM_OP_PAUSE, 0, 0, err);
}

static int vmm_balloon(struct engine *e, uint64_t ram_bytes, struct cella_error *err)
{
    return simple(e, "balloon", VMM_OP_BALLOON, ram_bytes, 0, err);
}

static int vmm_io_limit(struct engine *e, uint64_t read_bps, uint64_t write_bps,
                        struct cella_error *err)
{
    return simple(e, "io limit", VMM_OP_IO_LIMIT, read_bps, write_bps, err);
}

static int vmm_ram_detach(struct engine *e, struct cella_error *err)
{
    return simple(e, "memory", VMM_OP_DETACH, 0, 0, err);
}

static int state_order(struct engine *e, const char *what, uint32_t op, int borrow_fd,
                       struct cella_error *err)
{
    struct vmm_request q = {.op = op};

    if (lseek(borrow_fd, 0, SEEK_SET) < 0)
        return fail(err, -errno, "state: %s", strerror(errno));
    return order(e, what, &q, borrow_fd, STATE_MS, err);
}

static int vmm_save(struct engine *e, int borrow_fd, struct cella_error *err)
{
    return state_order(e, "save", VMM_OP_SAVE, borrow_fd, err);
}

static int vmm_load(struct engine *e, int borrow_fd, struct cella_error *err)
{
    return state_order(e, "load", VMM_OP_LOAD, borrow_fd, err);
}

/* Each layer comes by itself: one descriptor is what an order may have. */
static int vmm_fill(struct engine *e, const struct guest *g, struct cella_error *err)
{
    struct vmm_request q = {.op = VMM_OP_MEMORY};
    int r = order(e, "memory", &q, g->borrow_ram_fd, ORDER_MS, err);

    q = (struct vmm_request){.op = VMM_OP_LAYER, .arg2 = g->n_layers};
    for (; r == 0 && q.arg < g->n_layers; q.arg++)
        r = order(e, "disk", &q, g->borrow_layer_fds[q.arg], ORDER_MS, err);
    return r;
}

/* ---- start ---- */

static int config_make(const struct guest *g, struct vmm_request *q, struct cella_error *err)
{
    struct vmm_config *c = &q->config;

    *q = (struct vmm_request){.op = VMM_OP_CONFIG};
    c->size = sizeof(*c);
    c->flags = (g->mac ? VMM_CONFIG_NET : 0) | (g->ram_private ? VMM_CONFIG_PRIVATE : 0) |
               (g->incoming ? VMM_CONFIG_INCOMING : 0);
    c->ram_bytes = g->ram_bytes;
    c->disk_bytes = g->disk_bytes;
    c->vcpus = g->vcpus;
    c->n_layers = g->n_layers;
    c->read_bps = g->read_bps;
    c->write_bps = g->write_bps;
    if (g->mac)
        memcpy(c->mac, g->mac, sizeof(c->mac));
    if (strlen(g->append) >= sizeof(c->append))
        return fail(err, -E2BIG, "kernel command line: at most %zu bytes", sizeof(c->append) - 1);
    strcpy(c->append, g->append);
    if (random_bytes(c->generation, sizeof(c->generation)) < 0)
        return fail(err, -EIO, "no random bytes");
    return 0;
}

struct ends {
    int control[2], err[2], console[2];
    int kvm, kernel, initrd;
};

static int ends_make(struct ends *e, const struct guest *g, struct cella_error *err)
{
    memset(e, -1, sizeof(*e));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, e->control) < 0 ||
        pipe2(e->err, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(e->console, O_CLOEXEC | O_NONBLOCK) < 0)
        return fail(err, -errno, "cella-vmm: its channels: %s", strerror(errno));
    e->kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    if (e->kvm < 0)
        return fail(err, -errno, "/dev/kvm: %s", strerror(errno));
    if (g->incoming)
        return 0;
    e->kernel = open(g->kernel, O_RDONLY | O_CLOEXEC);
    e->initrd = e->kernel < 0 ? -1 : open(g->initrd, O_RDONLY | O_CLOEXEC);
    return e->initrd < 0 ? fail(err, -errno, "kernel %s, initramfs %s: %s", g->kernel, g->initrd,
                                strerror(errno))
                         : 0;
}

static void fds_make(struct jail *j, const struct guest *g, const struct engine_place *place,
                     const struct ends *e)
{
    uint32_t i;

    for (i = 0; i < JAIL_FDS_MAX; i++)
        j->borrow_fds[i] = -1;
    j->borrow_fds[VMM_FD_STDERR] = e->err[1];
    j->borrow_fds[VMM_FD_CONTROL] = e->control[1];
    j->borrow_fds[VMM_FD_KVM] = e->kvm;
    j->borrow_fds[VMM_FD_KERNEL] = e->kernel;
    j->borrow_fds[VMM_FD_INITRD] = e->initrd;
    j->borrow_fds[VMM_FD_RAM] = g->borrow_ram_fd;
    j->borrow_fds[VMM_FD_CONSOLE] = e->console[1];
    j->borrow_fds[VMM_FD_VSOCK] = place->borrow_listen_fds[0];
    j->borrow_fds[VMM_FD_TAP] = g->borrow_tap_fd;
    j->borrow_fds[VMM_FD_ROOT] = g->borrow_root_fd;
    for (i = 0; i < g->n_layers; i++)
        j->borrow_fds[VMM_FD_LAYERS + i] = g->borrow_layer_fds[i];
    j->n_fds = (int)(VMM_FD_LAYERS + g->n_layers);
}

static int spawn(struct vmm *v, const struct guest *g, const struct engine_place *place,
                 const struct ends *e, struct cella_error *err)
{
    char name[] = "cella-vmm";
    char *argv[] = {name, NULL}, *envp[] = {NULL};
    struct jail *j = calloc(1, sizeof(*j));
    int r = j ? jail_bind(j, g->program, 1, 0, PROGRAM) : -ENOMEM;

    if (r < 0) {
        free(j);
        return fail(err, r, "cella-vmm: its jail: %s", strerror(-r));
    }
    j->program = PROGRAM;
    j->argv = argv;
    j->envp = envp;
    j->at = place->at;
    j->id = place->id;
    j->cgroup = place->cgroup;
    fds_make(j, g, place, e);
    r = jail_spawn(j, &v->base.pid, &v->base.pidfd, err);
    free(j);
    return r;
}

static int vmm_start(struct engine *base, const struct guest *g, const struct engine_place *place,
                     struct cella_error *err)
{
    struct vmm *v = vmm_of(base);
    struct vmm_request q;
    struct ends e;
    int r = ends_make(&e, g, err);

    v->control_fd = -1;
    if (r == 0)
        r = config_make(g, &q, err);
    if (r == 0)
        r = spawn(v, g, place, &e, err);
    engine_step(place, "vmm");
    if (r == 0) {
        v->control_fd = steal_fd(&e.control[0]);
        base->stderr_fd = steal_fd(&e.err[0]);
        base->console_fd = steal_fd(&e.console[0]);
    }
    close_fds((int *)&e, sizeof(e) / sizeof(int));
    if (r == 0)
        r = order(base, "start", &q, -1, ORDER_MS, err);
    if (r < 0)
        engine_kill(base);
    snprintf(base->identity, sizeof(base->identity), "cella-vmm %u", VMM_STATE_VERSION);
    return r;
}

static void vmm_close(struct engine *e)
{
    struct vmm *v = vmm_of(e);

    if (v->control_fd >= 0)
        close(steal_fd(&v->control_fd));
}

/* ---- what differs from a serial port ---- */

/* It holds the connection until the guest takes it, and answers nothing. */
static int vmm_greet(int borrow_fd, uint32_t port, struct cella_error *err)
{
    static const uint32_t ports[] = {CELLA_GUEST_VSOCK_AGENT, CELLA_GUEST_VSOCK_GUEST};
    char line[32];
    int n = snprintf(line, sizeof(line), "PORT %u\n", ports[port]);

    return send(borrow_fd, line, (size_t)n, MSG_NOSIGNAL) == n
               ? 0
               : fail(err, -EPIPE, "port %u: cella-vmm does not take it", port);
}

static int vmm_layer_new(const char *path, uint64_t bytes, struct cella_error *err)
{
    auto_close int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? -errno : layer_create(fd, bytes);

    return r < 0 ? fail(err, r, "%s: %s", path, strerror(-r)) : 0;
}

const struct engine_ops engine_vmm = {
    .name = "cella-vmm",
    .size = sizeof(struct vmm),
    .helper = "cella-vmm",
    .sockets = {"vsock"},
    .overhead_kvm_bytes = 48ull << 20,
    .start = vmm_start,
    .close = vmm_close,
    .cont = vmm_cont,
    .pause = vmm_pause,
    .save = vmm_save,
    .load = vmm_load,
    .fill = vmm_fill,
    .ram_detach = vmm_ram_detach,
    .balloon = vmm_balloon,
    .io_limit = vmm_io_limit,
    .greet = vmm_greet,
    .layer_new = vmm_layer_new,
};
