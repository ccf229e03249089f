/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * qemu - start and end of one QEMU, and the orders it takes while it runs. See qemu.h.
 *
 * Invariants: on failure of the start no process and no descriptor is left. What QEMU says, on stderr or
 * QMP, is cleaned before it is shown: the guest may have taken it over. Its stderr and console are never
 * waited for, and never make anything of ours wait. Threads: one per object.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "qemu.h"

#define GREETING (20 * QMP_SECOND)
#define ORDER (8 * QMP_SECOND)
#define MIGRATION (25 * QMP_SECOND)

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

/* The last line of what QEMU has complained about. */
static void complaint(struct qemu *q, char *out, size_t cap)
{
    char text[4096];
    ssize_t n = q->stderr_fd >= 0 ? read(q->stderr_fd, text, sizeof(text)) : 0;
    ssize_t from;

    out[0] = 0;
    while (n > 0 && text[n - 1] == '\n')
        n--;
    for (from = n; from > 0 && text[from - 1] != '\n'; from--)
        ;
    if (n > from)
        text_clean(text + from, (size_t)(n - from), out, cap);
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

static int binds_make(struct jail *j, const struct qemu_machine *m, char *prefix, size_t cap)
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

static void fds_make(struct jail *j, const struct qemu_machine *m, const struct qemu_place *place,
                     const struct ends *e)
{
    uint32_t i;

    for (i = 0; i < JAIL_FDS_MAX; i++)
        j->borrow_fds[i] = -1;
    j->borrow_fds[QEMU_FD_STDERR] = e->err[1];
    j->borrow_fds[QEMU_FD_QMP] = e->qmp[1];
    j->borrow_fds[QEMU_FD_AGENT] = place->borrow_agent_fd;
    j->borrow_fds[QEMU_FD_GUEST] = place->borrow_guest_fd;
    j->borrow_fds[QEMU_FD_CONSOLE] = e->console[1];
    j->borrow_fds[QEMU_FD_RAM] = m->borrow_ram_fd;
    j->borrow_fds[QEMU_FD_RAM_CTL] = e->ctl[1];
    j->borrow_fds[QEMU_FD_TAP] = m->borrow_tap_fd;
    j->borrow_fds[QEMU_FD_ROOT] = m->borrow_root_fd;
    for (i = 0; i < m->n_layers; i++)
        j->borrow_fds[QEMU_FD_LAYERS + (int)i] = m->borrow_layer_fds[i];
    j->n_fds = QEMU_FD_LAYERS + (int)m->n_layers;
}

static int spawn(struct qemu *q, const struct qemu_machine *m, const struct qemu_place *place,
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
        r = jail_spawn(j, &q->pid, &q->pidfd, err);
    }
    qemu_args_free(args);
    free(j);
    return r;
}

int qemu_start(struct qemu *q, const struct qemu_machine *m, const struct qemu_place *place,
               struct cella_error *err)
{
    char why[300];
    struct ends e;
    int r = ends_make(&e, err);

    *q = (struct qemu)QEMU_INIT;
    if (r == 0)
        r = spawn(q, m, place, &e, err);
    if (r < 0) {
        close_all(&e);
        return r;
    }
    q->ctl_fd = steal_fd(&e.ctl[0]);
    q->stderr_fd = steal_fd(&e.err[0]);
    q->console_fd = steal_fd(&e.console[0]);
    q->qmp.event = on_event;
    q->qmp.ctx = q;
    r = steal_fd(&e.qmp[0]);
    close_all(&e);
    r = qmp_open(&q->qmp, r, GREETING, err);
    if (r < 0) {
        qemu_kill(q);
        complaint(q, why, sizeof(why));
        if (why[0])
            fail(err, r, "QEMU does not start: %s", why);
        qemu_fini(q);
    }
    return r;
}

/* ---- end ---- */

static void reap(struct qemu *q)
{
    while (waitpid(q->pid, &q->status, __WALL) < 0 && errno == EINTR)
        ;
    q->pid = 0;
}

int qemu_wait(struct qemu *q, uint64_t timeout_ns)
{
    struct pollfd p = {.fd = q->pidfd, .events = POLLIN};
    uint64_t end = now_ns() + timeout_ns, now;

    if (q->pid <= 0)
        return 1;
    do {
        uint64_t ms;
        now = now_ns();
        ms = now < end ? (end - now + 999999) / 1000000 : 0;
        if (poll(&p, 1, ms > 60000 ? 60000 : (int)ms) > 0) {
            reap(q);
            return 1;
        }
    } while (now < end);
    return 0;
}

void qemu_kill(struct qemu *q)
{
    if (q->pid <= 0)
        return;
    kill(q->pid, SIGKILL);
    reap(q);
}

void qemu_fini(struct qemu *q)
{
    int *fds[] = {&q->pidfd, &q->ctl_fd, &q->stderr_fd, &q->console_fd};
    size_t i;

    qemu_kill(q);
    qmp_close(&q->qmp);
    for (i = 0; i < ARRAY_LEN(fds); i++)
        if (*fds[i] >= 0)
            close(steal_fd(fds[i]));
}

/* ---- orders ---- */

int qemu_cont(struct qemu *q, struct cella_error *err)
{
    return qmp_call(&q->qmp, "cont", NULL, -1, ORDER, NULL, err);
}

int qemu_pause(struct qemu *q, struct cella_error *err)
{
    return qmp_call(&q->qmp, "stop", NULL, -1, ORDER, NULL, err);
}

int qemu_balloon(struct qemu *q, uint64_t ram_bytes, struct cella_error *err)
{
    return qmp_call(&q->qmp, "balloon", json_pack("{s:I}", "value", (json_int_t)ram_bytes), -1,
                    ORDER, NULL, err);
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

int qemu_save(struct qemu *q, int borrow_fd, struct cella_error *err)
{
    return migrate(q, "migrate", borrow_fd, err);
}

int qemu_load(struct qemu *q, int borrow_fd, struct cella_error *err)
{
    char why[300];
    int r = migrate(q, "migrate-incoming", borrow_fd, err);

    if (r < 0) {
        complaint(q, why, sizeof(why));
        if (why[0])
            fail(err, r, "the state of the machine does not fit: %s", why);
    }
    return r;
}

int qemu_ram_detach(struct qemu *q, struct cella_error *err)
{
    struct pollfd p = {.fd = q->ctl_fd, .events = POLLIN};
    char reply[1 + sizeof(int)];
    int code = EIO;

    if (send(q->ctl_fd, "P", 1, MSG_NOSIGNAL) != 1)
        return fail(err, -errno, "QEMU: its memory: %s", strerror(errno));
    if (poll(&p, 1, 10000) <= 0 ||
        recv(q->ctl_fd, reply, sizeof(reply), MSG_DONTWAIT) != (ssize_t)sizeof(reply))
        return fail(err, -ETIMEDOUT, "QEMU: its memory: no answer from the shim");
    memcpy(&code, reply + 1, sizeof(code));
    return reply[0] == 'p' ? 0
                           : fail(err, -EIO, "QEMU: its memory cannot be made private: %s",
                                  strerror(code > 0 ? code : EIO));
}
