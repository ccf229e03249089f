/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * calls - system calls of the gate. Runs at build time only, below gen-filter.c.
 *
 * Allow-list; anything else kills the gate, and a dead gate lets nothing pass. No exec, fork, open,
 * ptrace, mount or ioctl; new sockets only IPv4 stream or datagram; mappings never executable.
 */
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../gen-filter.h"

static const int plain[] = {
    SCMP_SYS(epoll_wait),      SCMP_SYS(epoll_pwait),  SCMP_SYS(epoll_ctl),
    SCMP_SYS(accept4),         SCMP_SYS(connect),      SCMP_SYS(getsockname),
    SCMP_SYS(getsockopt),      SCMP_SYS(setsockopt),   SCMP_SYS(shutdown),
    SCMP_SYS(close),           SCMP_SYS(splice),       SCMP_SYS(pipe2),
    SCMP_SYS(recvmsg),         SCMP_SYS(sendmsg),      SCMP_SYS(recvfrom),
    SCMP_SYS(sendto),          SCMP_SYS(pread64),      SCMP_SYS(clock_gettime),
    SCMP_SYS(exit_group),      SCMP_SYS(rt_sigreturn), SCMP_SYS(munmap),
    SCMP_SYS(mremap),          SCMP_SYS(brk),          SCMP_SYS(madvise),
    SCMP_SYS(restart_syscall), SCMP_SYS(getrandom),    SCMP_SYS(fstat),
    SCMP_SYS(newfstatat),                      /* size of a new policy table */
    SCMP_SYS(gettimeofday),    SCMP_SYS(time), /* c-ares, where the vDSO does not serve */
};

int filter_calls(scmp_filter_ctx c)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < sizeof(plain) / sizeof(plain[0]); i++)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, plain[i], 0);
    if (r == 0) /* pipe size only */
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, 1031));
    if (r == 0)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (r == 0)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3, SCMP_A0(SCMP_CMP_EQ, AF_INET),
                             SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_STREAM),
                             SCMP_A2(SCMP_CMP_EQ, 0));
    if (r == 0)
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(socket), 3, SCMP_A0(SCMP_CMP_EQ, AF_INET),
                             SCMP_A1(SCMP_CMP_MASKED_EQ, 0xf, SOCK_DGRAM), SCMP_A2(SCMP_CMP_EQ, 0));
    if (r == 0) /* the sink of a reach measurement */
        r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                             SCMP_A0(SCMP_CMP_EQ, AF_UNIX));
    return r;
}
