/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * warden - the process that owns one cell. It is born with a socket to the client that wants the
 * cell (descriptor 3), gets one create request over it, and ends when the cell has ended and
 * everybody has been answered.
 *
 * What it holds: the cell's directory lock (its liveness), its slot, the namespaces, the backend
 * instance, the enforcer instance, the audit chain. What a death of this process does: the kernel
 * kills the cell's first process and the gate (parent death signal), releases the locks; `cella gc`
 * does the rest.
 *
 * Descriptor 2 goes to the client at birth: the watchdog reports there a plugin that hung or crashed.
 * Threads: one.
 */
#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include "client_int.h"
#include "warden.h"

#define STARTER_FD 3

static void signalled(void *data, int fd, uint32_t ready)
{
    struct warden *w = data;
    struct signalfd_siginfo info;

    (void)ready;
    if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (w->state == W_NEW) {
        loop_stop(w->loop);
        return;
    }
    w->remove_at_end = 1;
    cell_end(w, "stop", "the warden was asked to end (signal %u)", info.ssi_signo);
}

/* TERM, INT and HUP arrive as events; a client that goes away is an error of a write, not a signal.
 */
static int signals_init(struct warden *w)
{
    sigset_t set;
    int fd;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd < 0 ? -errno : loop_watch(w->loop, fd, CELLA_FD_IN, signalled, w);
}

static void warden_init(struct warden *w)
{
    memset(w, 0, sizeof(*w));
    w->slot_fd = w->userns_fd = w->netns_fd = w->uplink_fd = w->agent_fd = w->log_fd =
        w->listen_fd = -1;
    w->main_fd = w->dir.dirfd = w->dir.lockfd = -1;
    w->started.borrow_exit_fd = w->attached.borrow_exit_fd = w->attached.own_tap_fd = -1;
    w->denials.dir = w->denials.fd = -1;
    w->copy = (struct snapshot)SNAPSHOT_INIT;
    w->copy_generation = 1;
    w->cell = json_object();
    host_init(w);
}

/* `*ret_step` is what is being done, for whoever has to say that it failed. */
static int ready(struct warden *w, int report, const char **ret_step)
{
    int r;

    *ret_step = "event loop";
    r = loop_new(&w->loop);
    if (r == 0) {
        *ret_step = "signals";
        r = signals_init(w);
    }
    if (r == 0) {
        *ret_step = "timer of the watchdog";
        r = watchdog_init(report);
    }
    if (r == 0) {
        *ret_step = "output of plugins";
        r = plugin_stdio_guard();
    }
    if (r == 0) {
        *ret_step = "connection of the client";
        r = fcntl(STARTER_FD, F_SETFL, O_RDWR | O_NONBLOCK) < 0 ? -errno : peer_add(w, STARTER_FD);
    }
    if (r == 0)
        *ret_step = "events";
    return r;
}

int warden_main(struct config *config)
{
    static struct warden w;
    const char *step = "";
    int r, report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10); /* 1 and 2 become a plugin's */

    warden_init(&w);
    w.config_given = config;
    proc_title("cella-warden");
    umask(022);
    if (fcntl(STARTER_FD, F_SETFD, FD_CLOEXEC) < 0) {
        fprintf(stderr, "cella-warden: no client at descriptor 3: %s\n", strerror(errno));
        return 125;
    }
    if (sodium_init() < 0 || prctl(PR_SET_DUMPABLE, 0) < 0) {
        fprintf(stderr, "cella-warden: cannot initialise: %s\n", strerror(errno));
        return 125;
    }
    r = ready(&w, report, &step);
    if (r == 0)
        r = loop_run(w.loop);
    if (r < 0)
        dprintf(report, "cella-warden: %s: %s%s\n", step, strerror(-r),
                r == -EAGAIN ? "; a limit of this user's (ulimit -a) is reached" : "");
    if (!w.ended && w.arrows_done)
        arrows_undo(&w, 0);
    return r < 0 ? 125 : 0;
}
