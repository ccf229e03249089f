/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * seccomp_gen - runs at build time: turns syscalls.h into two BPF programs and prints them as C
 * arrays.
 *
 * Two programs, because libseccomp has no "allowed except": the first lists what may pass (default
 * EPERM), the second refuses single arguments (default allow). The kernel runs both and the
 * stricter answer wins. Arguments that the kernel takes as 32 bits are compared as 32 bits, so high
 * bits cannot hide a value. The plugin itself does not link libseccomp.
 */
#include <errno.h>
#include <netinet/in.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "syscalls.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
/* in clone() the bit of CLONE_NEWTIME belongs to the exit signal */
#define CLONE_NEW_ANY                                                                              \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
#define UNSHARE_NEW_ANY (CLONE_NEW_ANY | CLONE_NEWTIME)

struct insn {
    uint16_t code;
    uint8_t jt, jf;
    uint32_t k;
};

static void check(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "seccomp_gen: %s: error %d\n", what, -r);
    exit(1);
}

static scmp_filter_ctx filter_new(uint32_t def)
{
    scmp_filter_ctx ctx = seccomp_init(def);

    if (!ctx)
        check(-ENOMEM, "seccomp_init");
    check(seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "bad arch");
    return ctx;
}

static void print(scmp_filter_ctx ctx, const char *name)
{
    int fd = memfd_create("bpf", 0);
    struct insn insn;
    unsigned n = 0;

    check(fd < 0 ? -errno : 0, "memfd_create");
    check(seccomp_export_bpf(ctx, fd), "seccomp_export_bpf");
    lseek(fd, 0, SEEK_SET);
    printf("static const struct sock_filter %s[] = {\n", name);
    while (read(fd, &insn, sizeof(insn)) == (ssize_t)sizeof(insn)) {
        printf("    {0x%04x, %u, %u, 0x%08xu},\n", insn.code, insn.jt, insn.jf, insn.k);
        n++;
    }
    printf("};\n\n");
    if (!n || n > 4096)
        check(-E2BIG, "program length");
    seccomp_release(ctx);
    close(fd);
}

static void pass(scmp_filter_ctx ctx, int nr, const char *name)
{
    if (nr != __NR_SCMP_ERROR)
        check(seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0), name);
}

static void allow_table(scmp_filter_ctx ctx)
{
    int nr;

#define ALLOW(call) pass(ctx, seccomp_syscall_resolve_name(#call), #call);
#define ALLOW_NR(nr, why) pass(ctx, nr, why);
#define ALLOW_WHY(call, why) pass(ctx, seccomp_syscall_resolve_name(#call), #call);
#define ARG(i, mask, value)                                                                        \
    SCMP_CMP64(i, SCMP_CMP_MASKED_EQ, (uint64_t)(uint32_t)(mask), (uint64_t)(uint32_t)(value))
#define WHEN(call, why, n, ...)                                                                    \
    check(seccomp_rule_add(ctx, SCMP_ACT_ALLOW, seccomp_syscall_resolve_name(#call), n,            \
                           __VA_ARGS__),                                                           \
          #call);
#define ABSENT(nr, why) check(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), nr, 0), why);
    SYSCALLS_PLAIN(ALLOW)
    SYSCALLS_PLAIN_NUMBERS(ALLOW_NR)
    SYSCALLS_EXCEPTIONS(ALLOW_WHY, WHEN)
    SYSCALLS_ABSENT(ABSENT)
    for (nr = SYSCALLS_FUTURE_FIRST; nr <= SYSCALLS_FUTURE_LAST; nr++)
        ABSENT(nr, "a number of the future")
}

static void refuse_table(scmp_filter_ctx ctx)
{
#define REFUSE(call, arg, value, why)                                                              \
    check(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), seccomp_syscall_resolve_name(#call), 1,     \
                           ARG(arg, 0xffffffff, value)),                                           \
          why);
    SYSCALLS_REFUSED(REFUSE)
}

int main(void)
{
    scmp_filter_ctx allow = filter_new(SCMP_ACT_ERRNO(EPERM)), refuse = filter_new(SCMP_ACT_ALLOW);

    check(seccomp_attr_set(allow, SCMP_FLTATR_CTL_OPTIMIZE, 2), "binary tree");
    allow_table(allow);
    refuse_table(refuse);
    printf("/* Made by seccomp_gen from syscalls.h. */\n\n");
    print(allow, "seccomp_allow");
    print(refuse, "seccomp_refuse");
    return 0;
}
