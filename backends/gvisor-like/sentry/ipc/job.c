/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * job - terminals and sessions: whose terminal it is, which group may read, what they hear when it hangs up.
 * Invariants: process->tty holds a reference. tty->session is 0 or a session whose leader had it as its terminal.
 * Threads: the kernel lock.
 */
#include <linux/capability.h>
#include <string.h>

#include "tty.h"

static void send_group(int32_t pgrp, int signo)
{
    siginfo_t info;

    memset(&info, 0, sizeof(info));
    info.si_signo = signo;
    info.si_code = SI_KERNEL;
    signal_group(pgrp, &info);
}

void tty_signal(struct tty *tty, int signo)
{
    if (tty->pgrp)
        send_group(tty->pgrp, signo);
}

/* A group that no shell of its session looks after: nobody would let it go on. */
static bool orphaned(int32_t pgrp)
{
    const struct process *p;

    TAILQ_FOREACH(p, all_processes, link)
    if (p->pgid == pgrp && p->state != PROCESS_ZOMBIE && p->state != PROCESS_DEAD && p->parent &&
        p->parent->pgid != pgrp && p->parent->sid == p->sid)
        return false;
    return true;
}

static bool deaf(int signo)
{
    return (current->blocked & SIGBIT(signo)) ||
           current->process->sighand->actions[signo - 1].handler == 1;
}

/* A process in the background. */
static int in_background(int signo, bool deaf_is_error)
{
    if (deaf(signo))
        return deaf_is_error ? -EIO : 0;
    if (orphaned(current->process->pgid))
        return -EIO;
    send_group(current->process->pgid, signo);
    return -ERESTARTSYS;
}

int tty_check_change(struct tty *tty)
{
    if (current->process->tty != tty || !tty->pgrp || tty->pgrp == current->process->pgid)
        return 0;
    return in_background(SIGTTOU, false);
}

int tty_check_read(struct tty *tty)
{
    if (current->process->tty != tty || !tty->pgrp || tty->pgrp == current->process->pgid)
        return 0;
    return in_background(SIGTTIN, true);
}

/* ---- whose terminal ---- */

void tty_take(struct tty *tty)
{
    tty->session = current->process->sid;
    tty->pgrp = current->process->pgid;
    if (current->process->tty)
        tty_put(current->process->tty);
    current->process->tty = tty;
    tty->refs++;
}

void tty_forget(struct process *process)
{
    struct tty *tty = process->tty;

    process->tty = NULL;
    if (tty)
        tty_put(tty);
}

void tty_inherit(struct process *child, const struct process *parent)
{
    child->tty = parent->tty;
    if (child->tty)
        child->tty->refs++;
}

/* Nobody's terminal any more. */
static void release_session(struct tty *tty)
{
    struct process *p;
    int32_t session = tty->session;

    tty->session = tty->pgrp = 0;
    tty->refs++;
    TAILQ_FOREACH(p, all_processes, link)
    if (p->sid == session && p->tty == tty)
        tty_forget(p);
    tty_put(tty);
}

int tty_set_controlling(struct tty *tty, bool force)
{
    const struct process *p = current->process;

    if (p->sid == p->pid && tty->session == p->sid && p->tty == tty)
        return 0;
    if (p->sid != p->pid || p->tty)
        return -EPERM;
    if (tty->session && (!force || !capable(CAP_SYS_ADMIN)))
        return -EPERM;
    if (tty->session)
        release_session(tty);
    tty_take(tty);
    return 0;
}

int tty_give_up(struct tty *tty)
{
    int32_t pgrp = tty->pgrp;

    if (current->process->tty != tty)
        return -ENOTTY;
    if (current->process->sid != current->process->pid) {
        tty_forget(current->process);
        return 0;
    }
    release_session(tty);
    if (pgrp) {
        send_group(pgrp, SIGHUP);
        send_group(pgrp, SIGCONT);
    }
    return 0;
}

void tty_hang_up(struct tty *tty)
{
    struct process *leader = tty->session ? process_by_pid(tty->session) : NULL;
    siginfo_t info;

    tty->refs++;
    tty->hangs++;
    tty->n_slaves = 0;
    ldisc_flush_input(tty);
    if (tty->session)
        release_session(tty);
    if (leader) {
        memset(&info, 0, sizeof(info));
        info.si_code = SI_KERNEL;
        info.si_signo = SIGHUP;
        signal_process(leader, &info);
        info.si_signo = SIGCONT;
        signal_process(leader, &info);
    }
    waitq_wake(&tty->waitq, READY_IN | READY_OUT | POLLHUP | POLLERR);
    waitq_wake(&tty->master_waitq, READY_IN | POLLHUP);
    tty_put(tty);
}

/* A pseudo-terminal is not hung up when its session's leader ends: its foreground hears of it, and who has it open goes on. */
void tty_process_exit(struct process *process)
{
    struct tty *tty = process->tty;
    int32_t pgrp = tty ? tty->pgrp : 0;

    if (tty && process->sid == process->pid && tty->session == process->sid) {
        release_session(tty);
        if (pgrp)
            send_group(pgrp, SIGHUP);
    }
    tty_forget(process);
}

uint32_t tty_number(const struct process *process)
{
    return process->tty
               ? 136u << 8 | (process->tty->index & 0xff) | (process->tty->index >> 8) << 20
               : 0;
}

int32_t tty_foreground(const struct process *process)
{
    return process->tty && process->tty->pgrp ? process->tty->pgrp : -1;
}

/* ---- ioctls ---- */

static int64_t set_foreground(struct tty *tty, uint64_t argument)
{
    const struct process *p;
    int pgrp, r = tty_check_change(tty);

    if (r < 0)
        return r;
    if (get_int(argument, &pgrp) < 0)
        return -EFAULT;
    if (current->process->tty != tty || tty->session != current->process->sid)
        return -ENOTTY;
    if (pgrp < 0)
        return -EINVAL;
    TAILQ_FOREACH(p, all_processes, link)
    if (p->pgid == pgrp && p->state != PROCESS_DEAD)
        break;
    if (!p)
        return -ESRCH;
    if (p->sid != current->process->sid)
        return -EPERM;
    tty->pgrp = pgrp;
    return 0;
}

int64_t tty_job_ioctl(struct tty *tty, bool master, uint32_t request, uint64_t argument)
{
    switch (request) {
    case TIOCSCTTY:
        return master ? -EINVAL : tty_set_controlling(tty, argument == 1);
    case TIOCNOTTY:
        return tty_give_up(tty);
    case TIOCGPGRP:
        if (!master && current->process->tty != tty)
            return -ENOTTY;
        return put_int(argument, tty->pgrp);
    case TIOCSPGRP:
        return set_foreground(tty, argument);
    case TIOCGSID:
        if ((!master && current->process->tty != tty) || !tty->session)
            return -ENOTTY;
        return put_int(argument, tty->session);
    default:
        return NOT_MINE;
    }
}
