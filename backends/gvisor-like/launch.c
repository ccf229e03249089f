/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * launch - the two processes of a cell. cella-gofer gets the image and a socket; cella-sentry gets the other end of that
 * socket, the agent's program and end of its stream, and nothing else. Neither has a path, a name or a descriptor that
 * leads to the other's things, or to the host.
 *
 * Invariants: on failure the caller destroys the cell, which ends what was begun. Both are children of ours, so that their
 * pids cannot be reused before they were waited for. Threads: one.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "gvisor_like.h"
#include "jail.h"

#define SENTRY_PATH "/cella/sentry" /* in its jail */
#define GOFER_ARGS_FIXED 4
#define MOUNTS_MAX 256u

/* Ends of what joins warden, sentry and gofer; [0] is the first named's. */
struct ends {
    int control[2], stream[2], files[2], log[2];
};

/* ---- what was asked for ---- */

static int mount_check(const struct cella_mount *m, struct cella_error *err)
{
    int r = spec_check_mount(m, STEP_SPEC, err);

    if (r == 0 && m->type == CELLA_MOUNT_TMPFS && strlen(m->target) >= SENTRY_TARGET_MAX)
        r = cella_error_set(err, -ENAMETOOLONG, STEP_SPEC, "mount %s: at most %u bytes", m->target,
                            SENTRY_TARGET_MAX - 1);
    if (r == 0 && m->type == CELLA_MOUNT_BIND && !(m->flags & CELLA_MOUNT_IMAGE))
        r = cella_error_set(err, -ENOTSUP, STEP_SPEC,
                            "mount %s: the backend gvisor-like shows no directory of the host; "
                            "copy files with cella cp, or choose the backend container",
                            m->target);
    return r;
}

int spec_check(const struct cella_spec *spec, struct cella_error *err)
{
    uint32_t i, n_tmpfs = 0;
    int r = spec_check_processes(spec, MOUNTS_MAX, STEP_SPEC, err);

    for (i = 0; r == 0 && i < spec->n_mounts; i++) {
        r = mount_check(spec_mount(spec, i), err);
        n_tmpfs += spec_mount(spec, i)->type == CELLA_MOUNT_TMPFS;
    }
    if (r == 0 && n_tmpfs > SENTRY_MOUNTS_MAX)
        return cella_error_set(err, -E2BIG, STEP_SPEC, "%u empty mounts: at most %u", n_tmpfs,
                               SENTRY_MOUNTS_MAX);
    if (r == 0 && spec->hostname && strlen(spec->hostname) >= SENTRY_HOSTNAME_MAX)
        return cella_error_set(err, -ENAMETOOLONG, STEP_SPEC, "hostname %s: at most %u bytes",
                               spec->hostname, SENTRY_HOSTNAME_MAX - 1);
    return r;
}

/* ---- processes ---- */

/* An empty directory of the cell's own, for a jail to be put together in. */
static int place_make(const struct cella_spec *spec, const char *name, char **ret_path,
                      struct cella_error *err)
{
    *ret_path = path_join(spec->scratch, name);
    if (!*ret_path || (mkdir(*ret_path, 0700) < 0 && errno != EEXIST))
        return cella_error_set(err, -errno, STEP_PROCESS, "%s/%s: %s", spec->scratch, name,
                               strerror(errno));
    return 0;
}

static const char *program(struct cell *c, const char *name, struct cella_error *err)
{
    const char *path =
        CELLA_HOST_HAS(c->host, helper_path) ? c->host->helper_path(c->host->ctx, name) : NULL;

    if (!path)
        cella_error_set(err, -ENOENT, STEP_PROCESS,
                        "%s: not found beside cella; build or install it", name);
    return path;
}

/* cella-gofer ROOT AT ID [SOURCE TARGET d|f] … */
static int gofer_spawn(struct cell *c, const struct cella_spec *spec, const struct ends *e,
                       struct cella_error *err)
{
    static char name[] = "cella-gofer", file[] = "f", directory[] = "d";
    char id[16], *envp[] = {NULL};
    char **argv = calloc(GOFER_ARGS_FIXED + 3ul * spec->n_mounts + 1, sizeof(*argv));
    struct jail *j = calloc(1, sizeof(*j));
    auto_free char *at = NULL;
    const char *path = program(c, name, err);
    int n = GOFER_ARGS_FIXED, r = !path ? -ENOENT : place_make(spec, "gofer", &at, err);
    uint32_t i;

    if (r == 0 && (!argv || !j))
        r = cella_error_set(err, -ENOMEM, STEP_PROCESS, "out of memory");
    if (r == 0) {
        snprintf(id, sizeof(id), "%u", spec->uid_base + 1);
        argv[0] = name;
        argv[1] = (char *)(uintptr_t)spec->root;
        argv[2] = at;
        argv[3] = id;
        for (i = 0; i < spec->n_mounts; i++) {
            const struct cella_mount *m = spec_mount(spec, i);
            if (m->type != CELLA_MOUNT_BIND)
                continue;
            argv[n++] = (char *)(uintptr_t)m->source;
            argv[n++] = (char *)(uintptr_t)m->target;
            argv[n++] = m->flags & CELLA_MOUNT_FILE ? file : directory;
        }
        *j = (struct jail){.program = path,
                           .argv = argv,
                           .envp = envp,
                           .cgroup = &c->cgroup,
                           .unplaced = 1,
                           .many_fds = 1,
                           .borrow_fds = {-1, -1, e->log[1], e->files[1]},
                           .n_fds = 4};
        r = jail_spawn(j, &c->gofer, &c->gofer_pidfd, err);
    }
    free(argv);
    free(j);
    return r;
}

static int sentry_spawn(struct cell *c, const struct cella_spec *spec, const struct ends *e,
                        struct cella_error *err)
{
    static char name[] = "cella-sentry";
    char *argv[] = {name, NULL}, *envp[] = {NULL};
    struct jail *j = calloc(1, sizeof(*j));
    auto_free char *at = NULL;
    const char *path = program(c, name, err);
    int r = !path ? -ENOENT : place_make(spec, "sentry", &at, err);

    if (r == 0)
        r = j ? jail_bind(j, path, 1, 0, SENTRY_PATH)
              : cella_error_set(err, -ENOMEM, STEP_PROCESS, "out of memory");
#ifdef __SANITIZE_ADDRESS__ /* cannot be linked statically */
    if (r == 0)
        r = jail_bind(j, "/usr", 0, 0, "/usr");
#endif
    if (r == 0) {
        j->program = SENTRY_PATH;
        j->argv = argv;
        j->envp = envp;
        j->at = at;
        j->id = spec->uid_base;
        j->cgroup = &c->cgroup;
        j->many_fds = j->own_users = 1;
        j->borrow_fds[0] = j->borrow_fds[1] = -1;
        j->borrow_fds[SENTRY_FD_LOG] = e->log[1];
        j->borrow_fds[SENTRY_FD_CONTROL] = e->control[1];
        j->borrow_fds[SENTRY_FD_GOFER] = e->files[0];
        j->borrow_fds[SENTRY_FD_AGENT] = e->stream[1];
        j->borrow_fds[SENTRY_FD_PROGRAM] = spec->borrow_agent_fd;
        j->n_fds = SENTRY_FD_N;
        r = jail_spawn(j, &c->sentry, &c->sentry_pidfd, err);
    }
    free(j);
    return r;
}

static void config_make(const struct cell *c, const struct cella_spec *spec,
                        struct sentry_config *config)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t i;

    memset(config, 0, sizeof(*config));
    config->size = sizeof(*config);
    config->flags = spec->hdr.flags & CELLA_SPEC_READONLY_ROOT ? SENTRY_READONLY_ROOT : 0;
    config->memory_bytes = c->memory_bytes;
    config->disk_bytes = c->limits.disk_bytes;
    config->pids = c->limits.pids ? c->limits.pids + PIDS_HEADROOM : 0;
    config->processors = processors > 0 ? (uint32_t)processors : 1;
    snprintf(config->hostname, sizeof(config->hostname), "%s",
             spec->hostname ? spec->hostname : spec->cell_id);
    for (i = 0; i < spec->n_mounts; i++) {
        const struct cella_mount *m = spec_mount(spec, i);
        struct sentry_mount *s = &config->mounts[config->n_mounts];
        if (m->type != CELLA_MOUNT_TMPFS)
            continue;
        snprintf(s->target, sizeof(s->target), "%s", m->target);
        s->size = m->size_bytes;
        s->readonly = !(m->flags & CELLA_MOUNT_WRITABLE);
        config->n_mounts++;
    }
}

static int ends_make(struct ends *e, struct cella_error *err)
{
    memset(e, -1, sizeof(*e));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, e->control) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, e->files) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e->stream) < 0 ||
        pipe2(e->log, O_CLOEXEC | O_NONBLOCK) < 0)
        return cella_error_set(err, -errno, STEP_PROCESS, "channels: %s", strerror(errno));
    return 0;
}

int launch(struct cell *c, const struct cella_spec *spec, struct cella_error *err)
{
    struct sentry_config config;
    struct ends e;
    int r = ends_make(&e, err);

    if (r == 0) {
        c->control_fd = steal_fd(&e.control[0]);
        c->stream_fd = steal_fd(&e.stream[0]);
        c->log_fd = steal_fd(&e.log[0]);
        r = gofer_spawn(c, spec, &e, err);
    }
    if (r == 0)
        r = sentry_spawn(c, spec, &e, err);
    close_fds((int *)&e, sizeof(e) / sizeof(int));
    if (r < 0)
        return r;
    config_make(c, spec, &config);
    return order_config(c, &config, err);
}

static void end_one(pid_t *pid, int *ret_status)
{
    *ret_status = 0;
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    while (waitpid(*pid, ret_status, __WALL) < 0 && errno == EINTR)
        ;
    *pid = 0;
}

void launch_kill(struct cell *c)
{
    int status, gofer_status;

    if (c->sentry <= 0 && c->gofer <= 0)
        return;
    end_one(&c->sentry, &status);
    end_one(&c->gofer, &gofer_status);
    log_read(c);
    limits_last_words(c);
    if (WIFEXITED(status) && WEXITSTATUS(status))
        c->host->log(c->host->ctx, CELLA_LOG_ERROR, LOG_TOPIC,
                     "cell %s: cella-sentry ended by itself (status %d): %s", c->id,
                     WEXITSTATUS(status), c->words[0] ? c->words : "no reason given");
    else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        c->host->log(c->host->ctx, CELLA_LOG_ERROR, LOG_TOPIC,
                     "cell %s: cella-sentry crashed: signal %d", c->id, WTERMSIG(status));
}
