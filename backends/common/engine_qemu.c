/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine_qemu - start of one QEMU, and the orders it takes while it runs. See engine.h.
 *
 * Invariants: on failure of the start no process and no descriptor is left. What QEMU says on QMP is cleaned before it
 * is shown: the guest may have taken it over. Threads: one per object.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "engine_qemu.h"
#include "host.h"

#define GREETING (20 * QMP_SECOND)
#define ORDER QEMU_ORDER
#define MIGRATION (25 * QMP_SECOND)

static struct qemu *qemu_of(struct engine *e)
{
    return (struct qemu *)e;
}

static void on_event(void *ctx, const char *name, json_t *data)
{
    struct qemu *q = ctx;
    const char *status = json_string_value(json_object_get(data, "status"));

    if (strcmp(name, "MIGRATION") || !status)
        return;
    if (!strcmp(status, "completed"))
        q->migrated = 1;
    else if (!strcmp(status, "failed") || !strcmp(status, "cancelled"))
        q->migrated = -1;
}

/* ---- start ---- */

struct ends {
    int qmp[2], ctl[2], err[2], console[2];
};

static void close_all(struct ends *e)
{
    int *all = &e->qmp[0];
    size_t i;

    for (i = 0; i < sizeof(*e) / sizeof(int); i++)
        if (all[i] >= 0)
            close(all[i]);
}

static int ends_make(struct ends *e, struct cella_error *err)
{
    memset(e, -1, sizeof(*e));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->qmp) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, e->ctl) < 0 ||
        pipe2(e->err, O_CLOEXEC | O_NONBLOCK) < 0 || pipe2(e->console, O_CLOEXEC | O_NONBLOCK) < 0)
        return fail(err, -errno, "QEMU: its channels: %s", strerror(errno));
    return 0;
}

static int binds_make(struct jail *j, const struct guest *m, char *prefix, size_t cap)
{
    static const char *const dirs[] = {"/lib", "/lib64", "/lib32", "/libx32"};
    uint32_t i;
    size_t k;
    int r = jail_bind(j, "/usr", 0, 0, "/usr");

    for (k = 0; r == 0 && k < ARRAY_LEN(dirs); k++)
        if (readlink(dirs[k], prefix, cap) < 0 && access(dirs[k], F_OK) == 0)
            r = jail_bind(j, dirs[k], 0, 0, "%s", dirs[k]);
    if (r == 0 && access("/etc/ld.so.cache", R_OK) == 0)
        r = jail_bind(j, "/etc/ld.so.cache", 1, 0, "/etc/ld.so.cache");
    if (r == 0)
        r = jail_bind(j, m->kernel, 1, 0, "/cella/kernel");
    if (r == 0 && m->initrd)
        r = jail_bind(j, m->initrd, 1, 0, "/cella/initrd");
    if (r == 0)
        r = jail_bind(j, m->shim, 1, 0, "/cella/shim.so");
    for (i = 0; r == 0 && i < m->n_shares; i++)
        r = jail_bind(j, m->shares[i].source, 0, m->shares[i].writable, "/cella/m%u",
                      m->shares[i].number);
    return r;
}

static void fds_make(struct jail *j, const struct guest *m, const struct engine_place *place,
                     const struct ends *e)
{
    uint32_t i;

    for (i = 0; i < JAIL_FDS_MAX; i++)
        j->borrow_fds[i] = -1;
    j->borrow_fds[QEMU_FD_STDERR] = e->err[1];
    j->borrow_fds[QEMU_FD_QMP] = e->qmp[1];
    j->borrow_fds[QEMU_FD_AGENT] = place->borrow_listen_fds[0];
    j->borrow_fds[QEMU_FD_GUEST] = place->borrow_listen_fds[1];
    j->borrow_fds[QEMU_FD_CONSOLE] = e->console[1];
    j->borrow_fds[QEMU_FD_RAM] = m->borrow_ram_fd;
    j->borrow_fds[QEMU_FD_RAM_CTL] = e->ctl[1];
    j->borrow_fds[QEMU_FD_TAP] = m->borrow_tap_fd;
    j->borrow_fds[QEMU_FD_ROOT] = m->borrow_root_fd;
    for (i = 0; i < m->n_layers; i++)
        j->borrow_fds[QEMU_FD_LAYERS + (int)i] = m->borrow_layer_fds[i];
    j->n_fds = QEMU_FD_LAYERS + (int)m->n_layers;
}

static int spawn(struct qemu *q, const struct guest *m, const struct engine_place *place,
                 const struct ends *e, struct cella_error *err)
{
    char preload[] = "LD_PRELOAD=/cella/shim.so", ram[32], ctl[32], prefix[16];
    char private[] = "CELLA_RAM_PRIVATE=1";
    char *envp[] = {preload, ram, ctl, m->ram_private ? private : NULL, NULL};
    struct jail *j = calloc(1, sizeof(*j));
    char **args = NULL;
    int r = j ? qemu_args(m, &args) : -ENOMEM;

    snprintf(ram, sizeof(ram), "CELLA_RAM_FD=%d", QEMU_FD_RAM);
    snprintf(ctl, sizeof(ctl), "CELLA_RAM_CTL=%d", QEMU_FD_RAM_CTL);
    if (r == 0)
        r = binds_make(j, m, prefix, sizeof(prefix));
    if (r < 0)
        fail(err, r, "QEMU: its command line: %s", strerror(-r));
    if (r == 0) {
        j->program = m->program;
        j->argv = args;
        j->envp = envp;
        j->at = place->at;
        j->id = place->id;
        j->cgroup = place->cgroup;
        j->kvm = m->kvm;
        j->proc = m->n_shares > 0;
        fds_make(j, m, place, e);
        r = jail_spawn(j, &q->base.pid, &q->base.pidfd, err);
    }
    qemu_args_free(args);
    free(j);
    return r;
}

static int qemu_start(struct engine *base, const struct guest *g, const struct engine_place *place,
                      struct cella_error *err)
{
    struct qemu *q = qemu_of(base);
    char why[300];
    struct ends e;
    int r = ends_make(&e, err);

    q->qmp.fd = q->ctl_fd = -1;
    if (r == 0)
        r = spawn(q, g, place, &e, err);
    engine_step(place, "vmm");
    if (r < 0) {
        close_all(&e);
        return r;
    }
    q->ctl_fd = steal_fd(&e.ctl[0]);
    base->stderr_fd = steal_fd(&e.err[0]);
    base->console_fd = steal_fd(&e.console[0]);
    q->qmp.event = on_event;
    q->qmp.ctx = q;
    r = steal_fd(&e.qmp[0]);
    close_all(&e);
    r = qmp_open(&q->qmp, r, GREETING, err);
    if (r < 0) {
        engine_kill(base);
        engine_complaint(base, why, sizeof(why));
        return why[0] ? fail(err, r, "QEMU does not start: %s", why) : r;
    }
    snprintf(base->identity, sizeof(base->identity), "QEMU %s, %s", q->qmp.version,
             g->board == BOARD_Q35 ? "q35" : "microvm");
    return 0;
}

static void qemu_close(struct engine *e)
{
    struct qemu *q = qemu_of(e);

    qmp_close(&q->qmp);
    if (q->ctl_fd >= 0)
        close(steal_fd(&q->ctl_fd));
}

/* ---- orders ---- */

static int qemu_cont(struct engine *e, struct cella_error *err)
{
    return qmp_call(&qemu_of(e)->qmp, "cont", NULL, -1, ORDER, NULL, err);
}

static int qemu_pause(struct engine *e, struct cella_error *err)
{
    return qmp_call(&qemu_of(e)->qmp, "stop", NULL, -1, ORDER, NULL, err);
}

static int qemu_balloon(struct engine *e, uint64_t ram_bytes, struct cella_error *err)
{
    return qmp_call(&qemu_of(e)->qmp, "balloon", json_pack("{s:I}", "value", (json_int_t)ram_bytes),
                    -1, ORDER, NULL, err);
}

static int qemu_io_limit(struct engine *e, uint64_t read_bps, uint64_t write_bps,
                         struct cella_error *err)
{
    json_t *args =
        json_pack("{s:s, s:s, s:{s:I, s:I}}", "path", "/objects/io", "property", "limits", "value",
                  "bps-read", (json_int_t)read_bps, "bps-write", (json_int_t)write_bps);

    return qmp_call(&qemu_of(e)->qmp, "qom-set", args, -1, ORDER, NULL, err);
}

static void qemu_drain(struct engine *e)
{
    qmp_drain(&qemu_of(e)->qmp);
}

static int without_ram(struct qemu *q, struct cella_error *err)
{
    json_t *caps = json_pack("{s:[{s:s,s:b},{s:s,s:b}]}", "capabilities", "capability",
                             "x-ignore-shared", "state", 1, "capability", "events", "state", 1);

    return qmp_call(&q->qmp, "migrate-set-capabilities", caps, -1, ORDER, NULL, err);
}

static int migrate(struct qemu *q, const char *command, int borrow_fd, struct cella_error *err)
{
    int r = lseek(borrow_fd, 0, SEEK_SET) < 0 ? fail(err, -errno, "state: %s", strerror(errno))
                                              : without_ram(q, err);

    q->migrated = 0;
    if (r == 0)
        r = qmp_call(&q->qmp, "getfd", json_pack("{s:s}", "fdname", "state"), borrow_fd, ORDER,
                     NULL, err);
    if (r == 0)
        r = qmp_call(&q->qmp, command, json_pack("{s:s}", "uri", "fd:state"), -1, ORDER, NULL, err);
    if (r == 0)
        r = qmp_until(&q->qmp, &q->migrated, MIGRATION, command, err);
    if (r == 0 && q->migrated < 0)
        r = fail(err, -EIO, "QEMU: %s: it failed", command);
    return r;
}

/* "completed" is said a moment before QEMU would take "cont" again. */
static int finalized(struct qemu *q, struct cella_error *err)
{
    const struct timespec moment = {0, 1000000};
    uint64_t end = now_ns() + ORDER;
    int r, under_way = 1;

    do {
        json_t *status = NULL;
        const char *word;
        r = qmp_call(&q->qmp, "query-status", NULL, -1, ORDER, &status, err);
        word = json_string_value(json_object_get(status, "status"));
        under_way = word && !strcmp(word, "finish-migrate");
        json_decref(status);
        if (r == 0 && under_way)
            nanosleep(&moment, NULL);
    } while (r == 0 && under_way && now_ns() < end);
    return r == 0 && under_way ? fail(err, -ETIMEDOUT,
                                      "QEMU: its state is saved, and it does not "
                                      "come to an end with it")
                               : r;
}

static int qemu_save(struct engine *e, int borrow_fd, struct cella_error *err)
{
    int r = migrate(qemu_of(e), "migrate", borrow_fd, err);

    return r < 0 ? r : finalized(qemu_of(e), err);
}

static int qemu_load(struct engine *e, int borrow_fd, struct cella_error *err)
{
    char why[300];
    int r = migrate(qemu_of(e), "migrate-incoming", borrow_fd, err);

    if (r < 0) {
        engine_complaint(e, why, sizeof(why));
        if (why[0])
            fail(err, r, "the state of the machine does not fit: %s", why);
    }
    return r;
}

static int qemu_ram_detach(struct engine *e, struct cella_error *err)
{
    return qemu_shim(qemu_of(e), 'P', -1, err);
}

/* How many of the two ports somebody is connected to, as QEMU sees it. */
static int qemu_ports_open(struct engine *e, struct cella_error *err)
{
    json_t *list = NULL, *chardev;
    size_t i;
    int n = 0,
        r = qmp_call(&qemu_of(e)->qmp, "query-chardev", NULL, -1, 10 * QMP_SECOND, &list, err);

    json_array_foreach(list, i, chardev)
    {
        const char *label = json_string_value(json_object_get(chardev, "label"));
        const char *file = json_string_value(json_object_get(chardev, "filename"));
        n += label && file && (!strcmp(label, "agent") || !strcmp(label, "guest")) &&
             strncmp(file, "disconnected:", 13) != 0;
    }
    json_decref(list);
    return r < 0 ? r : n;
}

static int qemu_layer_new(const char *path, uint64_t bytes, struct cella_error *err)
{
    const char *tool = host_program(qemu_img_paths);
    char size[32];
    char *argv[] = {(char *)"qemu-img", (char *)"create",        (char *)"-q", (char *)"-f",
                    (char *)"qcow2",    (char *)(uintptr_t)path, size,         NULL};

    snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
    if (!tool)
        return fail(err, -ENOENT, "qemu-img is not there: install the package qemu-utils");
    return run_program(tool, argv, err);
}

const struct engine_ops engine_qemu = {
    .name = "QEMU",
    .size = sizeof(struct qemu),
    .preload = "cella-qemu-ram.so",
    .overhead_kvm_bytes = 160ull << 20,
    .overhead_bytes = 384ull << 20, /* with the translated code */
    .sockets = {"agent", "guest"},
    .needs_kernel = 1,
    .shares = 1,
    .start = qemu_start,
    .close = qemu_close,
    .cont = qemu_cont,
    .pause = qemu_pause,
    .save = qemu_save,
    .load = qemu_load,
    .fill = qemu_fill,
    .ram_detach = qemu_ram_detach,
    .balloon = qemu_balloon,
    .io_limit = qemu_io_limit,
    .ports_open = qemu_ports_open,
    .drain = qemu_drain,
    .layer_new = qemu_layer_new,
};
