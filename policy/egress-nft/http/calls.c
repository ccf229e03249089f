/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * calls - system calls of the HTTP engine. Runs at build time only, below gen-filter.c.
 *
 * Allow-list; anything else kills the engine, and its flows with it. No exec, fork, open, socket,
 * connect, ptrace, mount or ioctl; mappings never executable.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../gen-filter.h"

static const int plain[] = {
    SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait),   SCMP_SYS(epoll_ctl),       SCMP_SYS(read),
    SCMP_SYS(write),      SCMP_SYS(recvfrom),      SCMP_SYS(sendto),          SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg),    SCMP_SYS(getpeername),   SCMP_SYS(getsockopt),      SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown),   SCMP_SYS(close),         SCMP_SYS(pread64),         SCMP_SYS(fstat),
    SCMP_SYS(newfstatat), SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday),    SCMP_SYS(time),
    SCMP_SYS(getrandom),  SCMP_SYS(getpid),        SCMP_SYS(futex),           SCMP_SYS(munmap),
    SCMP_SYS(mremap),     SCMP_SYS(brk),           SCMP_SYS(madvise),         SCMP_SYS(mlock),
    SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),  SCMP_SYS(restart_syscall),
};

int filter_calls(scmp_filter_ctx c)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < sizeof(plain) / sizeof(plain[0]); i++)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, plain[i], 0);
    if (r == 0)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    return r;
}
