/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * confine - what the agent and all below it may not do: the same resource limits, capabilities and
 * system call filter as in a container.
 *
 * The boundary is the machine; this keeps the workload from what init promises the host: that
 * nothing runs while the cell is frozen, and that names and addresses are what it was told. And a
 * program meets the same answers whatever backend it runs on. The filters come from the same table
 * (core/util/look/syscalls.h). Threads: one, between clone and exec.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "guest.h"
#include "seccomp_table.h"

#define NOFILE_SOFT 1024
#define NOFILE_HARD 1048576
#define MEMLOCK_BYTES (8u << 20)
#define CAPS_LAST 63

static const uint8_t kept[] = {0 /* CHOWN */,
                               1 /* DAC_OVERRIDE */,
                               3 /* FOWNER */,
                               5 /* KILL */,
                               6 /* SETGID */,
                               7 /* SETUID */,
                               8 /* SETPCAP */};

static const struct {
    int resource;
    rlim_t soft, hard;
} limits[] = {{RLIMIT_CORE, 0, 0},
              {RLIMIT_NOFILE, NOFILE_SOFT, NOFILE_HARD},
              {RLIMIT_MEMLOCK, MEMLOCK_BYTES, MEMLOCK_BYTES},
              {RLIMIT_RTPRIO, 0, 0},
              {RLIMIT_NICE, 0, 0}};

static int capabilities_drop(void)
{
    struct {
        uint32_t version;
        int pid;
    } head = {0x20080522, 0};
    uint32_t d[6] = {0}, keep = 0;
    size_t i;
    int cap;

    for (i = 0; i < ARRAY_LEN(kept); i++)
        keep |= 1u << kept[i];
    for (cap = 0; cap <= CAPS_LAST; cap++)
        if ((cap > 31 || !(keep & 1u << cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
            errno != EINVAL) /* beyond this kernel's last */
            return -errno;
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    d[0] = d[1] = keep;
    return syscall(SYS_capset, &head, d) < 0 ? -errno : 0;
}

static int filter_load(const struct sock_filter *insns, size_t n)
{
    struct sock_fprog prog = {(unsigned short)n, (struct sock_filter *)(uintptr_t)insns};

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

int confine(void)
{
    size_t i;
    int r = 0;

    for (i = 0; i < ARRAY_LEN(limits); i++) {
        struct rlimit l = {limits[i].soft, limits[i].hard};
        if (setrlimit(limits[i].resource, &l) < 0)
            return blame(errno, "cannot set a resource limit", NULL);
    }
    r = capabilities_drop();
    if (r < 0)
        return blame(-r, "cannot drop capabilities", NULL);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return blame(errno, "cannot set no_new_privs", NULL);
    r = filter_load(seccomp_refuse, ARRAY_LEN(seccomp_refuse));
    if (r == 0)
        r = filter_load(seccomp_allow, ARRAY_LEN(seccomp_allow));
    return r < 0 ? blame(-r, "cannot load the system call filter", NULL) : 0;
}
