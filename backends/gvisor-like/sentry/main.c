/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-sentry - the kernel of one cell, in user space. The backend gvisor-like starts it in its jail with the descriptors
 * of control.h, and the gofer beside it; it opens nothing: there is nothing to open.
 *
 * Stages: descriptors judged; the configuration; memory, platform, files, the first process; the filter; then START.
 *   Should: have every descriptor, and the stub that all others are made of, before the filter goes on.
 *   Mustn't: run an instruction of the guest before it is on.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "confine.h"
#include "control.h"
#include "fs.h"
#include "syscall.h"
#include "task.h"

#define ARENA_LEAST (64ul << 20)

#ifdef __SANITIZE_ADDRESS__
/* What is freed is kept from use for a while, and counts against the cell. The environment is empty. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=16";
}
#endif

static _Noreturn void end(const char *what, int result)
{
    klog("%s: %s", what, strerror(-result));
    _exit(SENTRY_EXIT_HOST);
}

static void must(const char *what, int result)
{
    if (result < 0)
        end(what, result);
}

static void descriptors(void)
{
    struct rlimit files;
    int fd;

    for (fd = SENTRY_FD_LOG; fd < SENTRY_FD_N; fd++)
        if (fcntl(fd, F_GETFD) < 0) {
            klog("descriptor %d is not there; the backend gvisor-like starts this program, nobody "
                 "else",
                 fd);
            _exit(SENTRY_EXIT_HOST);
        }
    if (close_range(SENTRY_FD_N, ~0u, 0) < 0)
        end("close_range", -errno);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur =
            files.rlim_max; /* a descriptor for each file of the image that is in use */
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

/* What the kernel itself keeps grows with what the guest may have, and is bounded. */
static size_t arena_bytes(const struct sentry_config *config)
{
    return ARENA_LEAST + config->memory_bytes / 4;
}

static void machine(const struct sentry_config *config)
{
    int memory_fd;

    must("arena", arena_init(arena_bytes(config)));
    kernel_lock();
    must("table of system calls", syscall_init());
    must("memory of the guest", memfile_init(config->memory_bytes, &memory_fd));
    platform = &platform_ptrace;
    must("platform ptrace", platform->init(memory_fd));
    must("events", events_begin());
}

static void files(const struct sentry_config *config)
{
    struct fs_mount mounts[SENTRY_MOUNTS_MAX];
    struct gofer_attr attr;
    uint32_t root, i;

    for (i = 0; i < config->n_mounts; i++)
        mounts[i] = (struct fs_mount){.target = config->mounts[i].target,
                                      .size = config->mounts[i].size,
                                      .readonly = config->mounts[i].readonly};
    must("gofer", gofer_connect(SENTRY_FD_GOFER, &root, &attr));
    must("files of the cell", fs_setup(root, &attr, config->flags & SENTRY_READONLY_ROOT,
                                       config->disk_bytes, mounts, config->n_mounts));
}

/* The agent's link is the one descriptor that it is given. */
static void give_link(void)
{
    struct file *link = file_host(SENTRY_FD_AGENT);

    must("the agent's link", link ? fd_install_at(link, 0, SENTRY_AGENT_FD) : -ENOMEM);
}

static struct task *first_task(const struct sentry_config *config)
{
    static char name[] = "cella-agent";
    char *argv[] = {name, NULL}, *envp[] = {NULL};
    struct file *program;
    struct task *task;
    struct stat st;

    if (config->pids)
        task_set_limit(config->pids);
    must("first process", task_first(config->hostname, &task));
    current = task;
    task->files = fdtable_new();
    task->fs = fsctx_new();
    must("first process", task->files && task->fs ? 0 : -ENOMEM);
    if (fstat(SENTRY_FD_PROGRAM, &st) < 0)
        end("the agent's program", -errno);
    must("the agent's program", fs_program(SENTRY_FD_PROGRAM, (uint64_t)st.st_size, &program));
    must("the agent's program", exec_load(task, program, name, argv, envp));
    file_put(program);
    give_link();
    current = NULL;
    return task;
}

static void confine(void)
{
    int result = confine_sentry();

    if (result < 0 && result != -ENOSYS)
        end("seccomp: the filter is refused", result);
}

int main(void)
{
    static struct sentry_config config;
    struct task *task;

    descriptors();
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX, 1); /* for another one glibc would read /sys */
    clock_boottime();        /* begins here */
    control_config(&config);
    machine(&config);
    files(&config);
    task = first_task(&config);
    kernel_unlock();
    confine();
    control_ready();
    control_wait_start();
    must("control", control_serve());
    kernel_lock();
    must("first process", task_start(task));
    kernel_unlock();
    tasks_wait_end();
    control_last_words();
    _exit(SENTRY_EXIT_DONE);
}
