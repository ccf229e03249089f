/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tty - a terminal for an exec, from the cell's own devpts.
 * /dev belongs to the cell, so what /dev/ptmx is gets checked after opening, and the other end is
 * asked of the master itself (TIOCGPTPEER) instead of being looked up by a path. Threads: no state.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <termios.h>

#include "agent.h"

int tty_open(int *ret_master, int *ret_slave)
{
    int m = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC), zero = 0, s;
    struct stat st;

    if (m < 0)
        return -errno;
    if (fstat(m, &st) < 0 || !S_ISCHR(st.st_mode) || ioctl(m, TIOCSPTLCK, &zero) < 0) {
        close(m);
        return -ENOTTY;
    }
    s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (s < 0) {
        int e = errno;
        close(m);
        return -e;
    }
    *ret_master = m;
    *ret_slave = s;
    return 0;
}

void tty_resize(int master, uint32_t rows, uint32_t cols)
{
    struct winsize w = {.ws_row = (unsigned short)(rows > 65535 ? 65535 : rows),
                        .ws_col = (unsigned short)(cols > 65535 ? 65535 : cols)};

    ioctl(master, TIOCSWINSZ, &w);
}

/* A terminal has no end of file; it has a character that means it. */
void tty_eof(int master)
{
    struct termios t;
    char c = 4;

    if (tcgetattr(master, &t) == 0)
        c = (char)t.c_cc[VEOF];
    if (write(master, &c, 1) < 0)
        return; /* nobody has it open any more */
}
