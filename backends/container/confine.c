/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * confine - takes away what the agent does not need: resource limits, capabilities, new privileges,
 * system calls.
 *
 * The capabilities that stay are valid in the cell's user namespace alone and are the agent's: it
 * changes users, owns files for them and kills them. Workloads get none unless asked; the agent
 * drops them. The two programs of the filter were made at build time (seccomp_gen.c): loading them
 * is two system calls. Threads: one, between fork and exec.
 */
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "container.h"
#include "seccomp_table.h"

static const unsigned kept[] = {CAP_SETUID, CAP_SETGID,       CAP_SETPCAP, CAP_KILL,
                                CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER};

/* Never raises the hard limit: the host's own bounds ours. */
static void limit(const struct launch *l, int resource, rlim_t soft, rlim_t hard)
{
    struct rlimit now, want;

    if (getrlimit((unsigned)resource, &now) < 0)
        child_fail(l, -errno, STEP_CONFINE, "resource limit %d: %s", resource, strerror(errno));
    want.rlim_max = now.rlim_max < hard ? now.rlim_max : hard;
    want.rlim_cur = want.rlim_max < soft ? want.rlim_max : soft;
    if (setrlimit((unsigned)resource, &want) < 0)
        child_fail(l, -errno, STEP_CONFINE, "resource limit %d: %s", resource, strerror(errno));
}

void confine_limits(const struct launch *l)
{
    limit(l, RLIMIT_CORE, 0, 0);
    limit(l, RLIMIT_NOFILE, NOFILE_SOFT, NOFILE_HARD);
    limit(l, RLIMIT_MEMLOCK, MEMLOCK_BYTES, MEMLOCK_BYTES);
    limit(l, RLIMIT_RTPRIO, 0, 0);
    limit(l, RLIMIT_NICE, 0, 0);
}

static void drop_capabilities(const struct launch *l)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    uint64_t keep = 0;
    unsigned cap;
    size_t i;

    for (i = 0; i < ARRAY_LEN(kept); i++)
        keep |= 1ull << kept[i];
    for (cap = 0; cap < 64; cap++) {
        if (keep & (1ull << cap))
            continue;
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > CAP_LAST_CAP)
                break; /* beyond this kernel's last */
            if (errno != EINVAL)
                child_fail(l, -errno, STEP_CONFINE, "capability %u: cannot drop it: %s", cap,
                           strerror(errno));
        }
    }
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    data[0].effective = data[0].permitted = (uint32_t)keep;
    data[1].effective = data[1].permitted = (uint32_t)(keep >> 32);
    if (syscall(SYS_capset, &head, data) < 0)
        child_fail(l, -errno, STEP_CONFINE, "capabilities: cannot drop them: %s", strerror(errno));
}

static void filter_load(const struct launch *l, const struct sock_filter *insns, size_t n)
{
    struct sock_fprog prog = {(unsigned short)n, (struct sock_filter *)(uintptr_t)insns};

    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        child_fail(l, -errno, STEP_CONFINE, "system call filter: cannot load it: %s",
                   strerror(errno));
}

void confine(const struct launch *l)
{
    drop_capabilities(l);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        child_fail(l, -errno, STEP_CONFINE, "no_new_privs: %s", strerror(errno));
    filter_load(l, seccomp_refuse, ARRAY_LEN(seccomp_refuse));
    filter_load(l, seccomp_allow, ARRAY_LEN(seccomp_allow));
}
