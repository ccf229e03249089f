/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tty_ioctl - what terminals are asked and told, at either end.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "tty.h"

struct termios2_guest { /* struct termios2 */
    struct termios base;
    uint32_t in_speed, out_speed;
};
_Static_assert(sizeof(struct termios) == 36, "as the kernel has it");

static uint32_t in_size(uint32_t request)
{
    return request == TCSETS2 || request == TCSETSW2 || request == TCSETSF2 ? 44 : 36;
}

static int64_t set_termios(struct tty *tty, uint32_t request, uint64_t argument)
{
    struct termios2_guest t = {0};
    int r = tty_check_change(tty);

    if (r < 0)
        return r;
    if (copy_in(current->mm, &t, argument, in_size(request)) < 0)
        return -EFAULT;
    if (request == TCSETSF || request == TCSETSF2)
        ldisc_flush_input(tty);
    ldisc_set(tty, &t.base);
    return 0;
}

static int64_t get_termios(const struct tty *tty, uint32_t request, uint64_t argument)
{
    struct termios2_guest t = {.base = tty->termios, .in_speed = 38400, .out_speed = 38400};

    return copy_out(current->mm, argument, &t, request == TCGETS2 ? 44 : 36);
}

static int64_t set_size(struct tty *tty, uint64_t argument)
{
    uint16_t size[4];

    if (copy_in(current->mm, size, argument, sizeof(size)) < 0)
        return -EFAULT;
    if (memcmp(size, &tty->size, sizeof(size)) == 0)
        return 0;
    memcpy(&tty->size, size, sizeof(size));
    tty_signal(tty, SIGWINCH);
    return 0;
}

static int64_t flush(struct tty *tty, uint64_t what)
{
    int r = tty_check_change(tty);

    if (r < 0)
        return r;
    if (what > TCIOFLUSH)
        return -EINVAL;
    if (what != TCOFLUSH)
        ldisc_flush_input(tty);
    if (what != TCIFLUSH)
        ldisc_flush_output(tty);
    return 0;
}

static int64_t flow(struct tty *tty, uint64_t what)
{
    int r = tty_check_change(tty);

    if (r < 0)
        return r;
    if (what == TCOOFF || what == TCOON) {
        tty->stopped = what == TCOOFF;
        waitq_wake(&tty->waitq, READY_OUT);
    }
    return what > TCION ? -EINVAL : 0;
}

static int64_t master_only(struct tty *tty, uint32_t request, uint64_t argument)
{
    int value;

    switch (request) {
    case TIOCGPTN:
        return put_int(argument, (int)tty->index);
    case TIOCGPTLCK:
        return put_int(argument, tty->locked);
    case TIOCGPKT:
        return put_int(argument, tty->packet);
    case TIOCSIG:
        if (argument < 1 || argument > SIGNALS)
            return -EINVAL;
        tty_signal(tty, (int)argument);
        return 0;
    }
    if (request != TIOCSPTLCK && request != TIOCPKT)
        return NOT_MINE;
    if (get_int(argument, &value) < 0)
        return -EFAULT;
    if (request == TIOCSPTLCK) {
        tty->locked = value != 0;
    } else {
        tty->status = 0;
        tty->packet = value != 0;
    }
    return 0;
}

static int64_t common(struct tty *tty, bool master, uint32_t request, uint64_t argument)
{
    switch (request) {
    case TCGETS:
    case TCGETS2:
        return get_termios(tty, request, argument);
    case TCSETS:
    case TCSETSW:
    case TCSETSF:
    case TCSETS2:
    case TCSETSW2:
    case TCSETSF2:
        return set_termios(tty, request, argument);
    case TIOCGWINSZ:
        return copy_out(current->mm, argument, &tty->size, sizeof(tty->size));
    case TIOCSWINSZ:
        return set_size(tty, argument);
    case TCFLSH:
        return flush(tty, argument);
    case TCXONC:
        return flow(tty, argument);
    case TCSBRK:
    case TCSBRKP:
        return tty_check_change(tty);
    case FIONREAD:
        return put_int(argument,
                       (int)(master ? tty->out_head - tty->out_tail : ldisc_waiting(tty)));
    case TIOCOUTQ:
        return put_int(argument, 0);
    case TIOCGETD:
        return put_int(argument, 0);
    case TIOCEXCL:
    case TIOCNXCL:
        return 0;
    case TIOCGEXCL:
        return put_int(argument, 0);
    default:
        return -ENOTTY;
    }
}

int64_t tty_ioctl(struct file *file, uint32_t request, uint64_t argument)
{
    struct tty *tty = file->data;
    bool master = file->kind == FILE_PTMX;
    int64_t r;

    if (!master && (file->position != tty->hangs || !tty->master))
        return request == TIOCSPGRP ? -ENOTTY : -EIO;
    if (master && request == TIOCGPTPEER)
        return tty_peer(file, (uint32_t)argument);
    r = tty_job_ioctl(tty, master, request, argument);
    if (r == NOT_MINE && master)
        r = master_only(tty, request, argument);
    return r == NOT_MINE ? common(tty, master, request, argument) : r;
}
