/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine - the process of an engine, whichever it is: its end, and what it complained about. What it says is cleaned
 * before it is shown: the guest may have taken it over. Its stderr and console are never waited for, and
 * never make anything of ours wait. Threads: one per object.
 */
#include <signal.h>
#include <sys/wait.h>

#include "engine.h"

void text_clean(const char *s, size_t len, char *out, size_t cap)
{
    size_t i, n = len < cap - 1 ? len : cap - 1;

    for (i = 0; i < n; i++)
        out[i] = s[i] >= ' ' && s[i] < 127 ? s[i] : ' ';
    while (n && out[n - 1] == ' ')
        n--;
    out[n] = 0;
}

struct engine *engine_new(const struct engine_ops *ops)
{
    struct engine *e = calloc(1, ops->size);

    if (e) {
        e->ops = ops;
        e->pidfd = e->stderr_fd = e->console_fd = -1;
    }
    return e;
}

void engine_step(const struct engine_place *place, const char *name)
{
    if (place->host && CELLA_HOST_HAS(place->host, step))
        place->host->step(place->host->ctx, name);
}

int engine_start(struct engine *e, const struct guest *g, const struct engine_place *place,
                 struct cella_error *err)
{
    e->begun = 1;
    engine_step(place, "jail");
    return e->ops->start(e, g, place, err);
}

static void reap(struct engine *e)
{
    while (waitpid(e->pid, &e->status, __WALL) < 0 && errno == EINTR)
        ;
    e->pid = 0;
}

int engine_wait(struct engine *e, uint64_t timeout_ns)
{
    if (e->pid <= 0)
        return 1;
    if (pidfd_wait(e->pidfd, timeout_ns)) {
        reap(e);
        return 1;
    }
    return 0;
}

void engine_kill(struct engine *e)
{
    if (e->pid <= 0)
        return;
    kill(e->pid, SIGKILL);
    reap(e);
}

void engine_free(struct engine *e)
{
    int *fds[3];
    size_t i;

    if (!e)
        return;
    engine_kill(e);
    if (e->begun)
        e->ops->close(e);
    fds[0] = &e->pidfd;
    fds[1] = &e->stderr_fd;
    fds[2] = &e->console_fd;
    for (i = 0; i < ARRAY_LEN(fds); i++)
        if (*fds[i] >= 0)
            close(steal_fd(fds[i]));
    free(e);
}

void engine_complaint(struct engine *e, char *out, size_t cap)
{
    char text[4096];
    ssize_t n = e->stderr_fd >= 0 ? read(e->stderr_fd, text, sizeof(text)) : 0;
    ssize_t from;

    out[0] = 0;
    while (n > 0 && text[n - 1] == '\n')
        n--;
    for (from = n; from > 0 && text[from - 1] != '\n'; from--)
        ;
    if (n > from)
        text_clean(text + from, (size_t)(n - from), out, cap);
}
