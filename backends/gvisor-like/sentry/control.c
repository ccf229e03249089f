/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * control - what the warden orders and asks. Until START the main thread serves, afterwards a thread of its own, which takes
 * the kernel lock for each answer. The warden is believed; that a datagram is whole is checked all the same.
 *
 * @seccomp sentry: recvfrom sendto(3=MSG_NOSIGNAL) sendto(3=MSG_NOSIGNAL|MSG_DONTWAIT) exit_group
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs.h"

#include "control.h"

static uint64_t oom_kills;
static bool started;

void control_oom_kill(void)
{
    oom_kills++;
}

/* Its size; ends the sentry when there will be none any more: the warden is gone. */
static size_t receive(void *to, size_t size)
{
    ssize_t n;

    do
        n = recv(SENTRY_FD_CONTROL, to, size, MSG_TRUNC);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        _exit(SENTRY_EXIT_HOST);
    return (size_t)n;
}

static void reply_send(const struct sentry_reply *reply)
{
    ssize_t n;

    do
        n = send(SENTRY_FD_CONTROL, reply, sizeof(*reply), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        _exit(SENTRY_EXIT_HOST);
}

static bool terminated(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

void control_config(struct sentry_config *ret_config)
{
    uint32_t i;

    if (receive(ret_config, sizeof(*ret_config)) != sizeof(*ret_config) ||
        ret_config->size != sizeof(*ret_config))
        kpanic("control: a configuration of another build");
    if (ret_config->flags & ~SENTRY_READONLY_ROOT || !ret_config->memory_bytes ||
        ret_config->n_mounts > SENTRY_MOUNTS_MAX ||
        !terminated(ret_config->hostname, SENTRY_HOSTNAME_MAX))
        kpanic("control: a configuration that is none");
    for (i = 0; i < ret_config->n_mounts; i++)
        if (ret_config->mounts[i].target[0] != '/' ||
            !terminated(ret_config->mounts[i].target, SENTRY_TARGET_MAX))
            kpanic("control: mount %u has no place", i);
}

void control_ready(void)
{
    static const struct sentry_reply ready;

    reply_send(&ready);
}

/* ---- answers ---- */

static void refuse(struct sentry_reply *ret, int code, const char *why)
{
    ret->code = code;
    strncpy(ret->text, why, sizeof(ret->text) - 1);
}

static void stats(struct sentry_reply *ret)
{
    struct task *t;

    ret->stats = (struct sentry_stats){.memory_bytes = memfile_used(),
                                       .memory_peak = memfile_peak(),
                                       .disk_bytes = fs_disk_used(),
                                       .tasks = task_count(),
                                       .tasks_peak = task_peak(),
                                       .tasks_refused = task_refused(),
                                       .oom_kills = oom_kills,
                                       .disk_refused = fs_disk_refused()};
    TAILQ_FOREACH(t, all_tasks, link)
    ret->stats.system_calls += t->syscalls;
}

static void missing(uint64_t after, struct sentry_reply *ret)
{
    uint64_t number, count;
    int64_t last = (int64_t)after;

    while (ret->n < SENTRY_ROWS_MAX && syscall_next_missing(last, &number, &count)) {
        const struct syscall_row *row = syscall_find(number);
        struct sentry_missing *m = &ret->missing[ret->n++];
        m->number = number;
        m->count = count;
        if (row && row->name)
            strncpy(m->name, row->name, sizeof(m->name) - 1);
        last = (int64_t)number;
    }
}

/* In order of pid, which the list is not. */
static struct process *process_after(int64_t pid)
{
    struct process *p, *best = NULL;

    TAILQ_FOREACH(p, all_processes, link)
    if (p->pid > pid && (!best || p->pid < best->pid) && p->state != PROCESS_DEAD)
        best = p;
    return best;
}

static void processes(uint64_t after, struct sentry_reply *ret)
{
    int64_t last = (int64_t)after;
    struct process *p;

    while (ret->n < SENTRY_ROWS_MAX && (p = process_after(last))) {
        struct sentry_process *row = &ret->processes[ret->n++];
        row->pid = (uint32_t)p->pid;
        row->tasks = p->n_tasks;
        if (p->leader)
            memcpy(row->comm, p->leader->comm, sizeof(row->comm));
        row->comm[sizeof(row->comm) - 1] = 0;
        last = p->pid;
    }
}

static void resize(const struct sentry_request *q, struct sentry_reply *ret)
{
    if (q->arg && memfile_set_limit(q->arg) < 0) {
        refuse(ret, -EINVAL,
               "memory limit: a running cell cannot have more than four times what it was made "
               "with; make a new cell");
        return;
    }
    if (q->arg2)
        task_set_limit(q->arg2);
}

/* What is answered under the kernel lock. */
static void answer_locked(const struct sentry_request *q, struct sentry_reply *ret)
{
    kernel_lock();
    if (q->op == SENTRY_OP_STATS)
        stats(ret);
    else if (q->op == SENTRY_OP_RESIZE)
        resize(q, ret);
    else if (q->op == SENTRY_OP_MISSING)
        missing(q->arg, ret);
    else
        processes(q->arg, ret);
    kernel_unlock();
}

bool control_answer(const struct sentry_request *q, struct sentry_reply *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (!q->serial)
        return false;
    ret->serial = q->serial;
    switch ((enum sentry_op)q->op) {
    case SENTRY_OP_START:
        if (started)
            refuse(ret, -EALREADY, "it has been started");
        started = true;
        return true;
    case SENTRY_OP_PAUSE:
        tasks_stop();
        return true;
    case SENTRY_OP_RESUME:
        tasks_go_on();
        return true;
    case SENTRY_OP_KILL:
        tasks_kill_all();
        return true;
    case SENTRY_OP_STATS:
    case SENTRY_OP_RESIZE:
    case SENTRY_OP_MISSING:
    case SENTRY_OP_PROCESSES:
        answer_locked(q, ret);
        return true;
    }
    return false;
}

void control_last_words(void)
{
    static struct sentry_reply last;

    kernel_lock();
    stats(&last);
    kernel_unlock();
    (void)!send(SENTRY_FD_CONTROL, &last, sizeof(last), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void serve_one(void)
{
    static struct sentry_reply reply;
    struct sentry_request request;

    if (receive(&request, sizeof(request)) != sizeof(request))
        kpanic("control: a request of another build");
    if (!control_answer(&request, &reply))
        kpanic("control: request %u is none", request.op);
    reply_send(&reply);
}

void control_wait_start(void)
{
    while (!started)
        serve_one();
}

static void *serve(void *unused)
{
    for (;;)
        serve_one();
    return unused;
}

int control_serve(void)
{
    pthread_t thread;

    return -pthread_create(&thread, NULL, serve, NULL);
}
