/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * system - what /proc and /sys say of the machine: it has the cell's memory, the processors that the guest sees, and no
 * device. Nothing of the host is in it but the processor's model.
 * Threads: the kernel lock.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "proc.h"

#define TICK_NS 10000000ul
#define SECOND_NS 1000000000ul

static uint64_t memory_free(void)
{
    return memfile_limit() > memfile_used() ? memfile_limit() - memfile_used() : 0;
}

MAKER(meminfo)
{
    uint64_t total = memfile_limit() >> 10, left = memory_free() >> 10;

    (void)node;
    text_add(text, "MemTotal:       %8" PRIu64 " kB\nMemFree:        %8" PRIu64 " kB\n", total,
             left);
    text_add(text, "MemAvailable:   %8" PRIu64 " kB\nBuffers:               0 kB\n", left);
    text_add(text, "Cached:                0 kB\nSwapCached:            0 kB\n");
    text_add(text, "Active:         %8" PRIu64 " kB\nInactive:              0 kB\n", total - left);
    text_add(text, "SwapTotal:             0 kB\nSwapFree:              0 kB\n");
    text_add(text, "Dirty:                 0 kB\nWriteback:             0 kB\n");
    text_add(text, "AnonPages:      %8" PRIu64 " kB\nMapped:                0 kB\n", total - left);
    text_add(text, "Shmem:                 0 kB\nSlab:                  0 kB\n");
    text_add(text, "CommitLimit:    %8" PRIu64 " kB\nCommitted_AS:   %8" PRIu64 " kB\n", total,
             total - left);
    text_add(text, "VmallocTotal:   34359738367 kB\nVmallocUsed:           0 kB\n"
                   "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 "
                   "kB\n");
}

static void cpu_line(struct text *text, uint64_t user, uint64_t system, uint64_t idle)
{
    text_add(text, " %" PRIu64 " 0 %" PRIu64 " %" PRIu64 " 0 0 0 0 0 0\n", user / TICK_NS,
             system / TICK_NS, idle / TICK_NS);
}

static void totals(uint64_t *ret_user, uint64_t *ret_system, unsigned *ret_running,
                   uint64_t *ret_switches)
{
    struct process *p;
    struct task *t;
    uint64_t user, system;

    reaped_cpu(ret_user, ret_system);
    *ret_switches = 0;
    *ret_running = 0;
    TAILQ_FOREACH(p, all_processes, link)
    {
        process_cpu(p, &user, &system);
        *ret_user += user;
        *ret_system += system;
    }
    TAILQ_FOREACH(t, all_tasks, link)
    {
        *ret_running += !t->sleeping && !t->exited;
        *ret_switches += t->switches;
    }
}

MAKER(stat)
{
    uint64_t user, system, up = clock_boottime(), switches, all;
    unsigned i, running, n = sched_cpus();

    (void)node;
    totals(&user, &system, &running, &switches);
    all = up * n;
    text_add(text, "cpu ");
    cpu_line(text, user, system, all > user + system ? all - user - system : 0);
    for (i = 0; i < n; i++) {
        text_add(text, "cpu%u", i);
        cpu_line(text, user / n, system / n,
                 up > (user + system) / n ? up - (user + system) / n : 0);
    }
    text_add(text, "intr 0\nctxt %" PRIu64 "\nbtime %" PRIu64 "\nprocesses %" PRIu64 "\n", switches,
             (clock_realtime() - up) / SECOND_NS, task_count());
    text_add(text, "procs_running %u\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n", running);
}

MAKER(uptime)
{
    uint64_t up = clock_boottime() / TICK_NS, user, system, switches, idle;
    unsigned running;

    (void)node;
    totals(&user, &system, &running, &switches);
    idle = up * sched_cpus();
    idle = idle > (user + system) / TICK_NS ? idle - (user + system) / TICK_NS : 0;
    text_add(text, "%" PRIu64 ".%02" PRIu64 " %" PRIu64 ".%02" PRIu64 "\n", up / 100, up % 100,
             idle / 100, idle % 100);
}

MAKER(loadavg)
{
    uint64_t user, system, switches;
    unsigned running;
    struct task *last = TAILQ_LAST(all_tasks, task_list);

    (void)node;
    totals(&user, &system, &running, &switches);
    text_add(text, "0.00 0.00 0.00 %u/%" PRIu64 " %d\n", running, task_count(),
             last ? last->tid : 1);
}

MAKER(version)
{
    (void)node;
    text_add(text, "Linux version %s (cella) (cc) %s\n", kernel_release(), kernel_version());
}

MAKER(cpus_online)
{
    (void)node;
    text_add(text, sched_cpus() > 1 ? "0-%u\n" : "%u\n", sched_cpus() - 1);
}

MAKER(self)
{
    (void)node;
    text_add(text, "%d", current->process->pid);
}

MAKER(thread_self)
{
    (void)node;
    text_add(text, "%d/task/%d", current->process->pid, current->tid);
}

MAKER(hostname)
{
    (void)node;
    text_add(text, "%s\n", hostname());
}

MAKER(osrelease)
{
    (void)node;
    text_add(text, "%s\n", kernel_release());
}

MAKER(os_version)
{
    (void)node;
    text_add(text, "%s\n", kernel_version());
}

MAKER(threads_max)
{
    (void)node;
    text_add(text, "%" PRIu64 "\n", memfile_limit() / 65536);
}

static void uuid_text(struct text *text, unsigned char b[16])
{
    b[6] = (b[6] & 15) | 0x40;
    b[8] = (b[8] & 63) | 0x80;
    text_add(text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0],
             b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
             b[14], b[15]);
}

/* @seccomp sentry: getrandom */
MAKER(uuid)
{
    unsigned char b[16] = {0};

    (void)node;
    if (getrandom(b, sizeof(b), GRND_NONBLOCK) == (ssize_t)sizeof(b))
        uuid_text(text, b);
}

MAKER(boot_id)
{
    static unsigned char id[16];
    static bool made;
    unsigned char b[16];

    (void)node;
    if (!made)
        made = getrandom(id, sizeof(id), GRND_NONBLOCK) == (ssize_t)sizeof(id);
    memcpy(b, id, sizeof(b));
    uuid_text(text, b);
}

/* ---- control groups: one, the cell ---- */

MAKER(cgroup_memory_max)
{
    (void)node;
    text_add(text, "%" PRIu64 "\n", memfile_limit());
}

MAKER(cgroup_memory_current)
{
    (void)node;
    text_add(text, "%" PRIu64 "\n", memfile_used());
}

MAKER(cgroup_pids_current)
{
    (void)node;
    text_add(text, "%" PRIu64 "\n", task_count());
}

#define FILE_(path_, maker)                                                                        \
    {                                                                                              \
        .path = path_, .mode = 0444, .make = make_##maker                                          \
    }
#define WORDS(path_, text_)                                                                        \
    {                                                                                              \
        .path = path_, .mode = 0444, .fixed = text_                                                \
    }
#define LINK(path_, text_)                                                                         \
    {                                                                                              \
        .path = path_, .kind = ENTRY_LINK, .fixed = text_                                          \
    }

const struct entry tree_proc[] = {
    WORDS("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
                     "cpu\t0\t1\t1\nmemory\t0\t1\t1\npids\t0\t1\t1\n"),
    WORDS("cmdline", "\n"),
    FILE_("cpuinfo", cpuinfo),
    WORDS("devices", "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n"
                     "136 pts\n\nBlock devices:\n"),
    WORDS("diskstats", ""),
    WORDS("filesystems", "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\nnodev\tdevpts\n"
                         "nodev\tpipefs\nnodev\tsockfs\nnodev\tcella\n"),
    FILE_("loadavg", loadavg),
    FILE_("meminfo", meminfo),
    LINK("mounts", "self/mounts"),
    LINK("net", "self/net"),
    WORDS("partitions", "major minor  #blocks  name\n\n"),
    {.path = "self", .kind = ENTRY_LINK, .make = make_self},
    FILE_("stat", stat),
    WORDS("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    WORDS("sys/fs/file-max", "1048576\n"),
    WORDS("sys/fs/file-nr", "0\t0\t1048576\n"),
    WORDS("sys/fs/inotify/max_queued_events", "16384\n"),
    WORDS("sys/fs/inotify/max_user_instances", "128\n"),
    WORDS("sys/fs/inotify/max_user_watches", "65536\n"),
    WORDS("sys/fs/mqueue/msg_max", "10\n"),
    WORDS("sys/fs/nr_open", "1048576\n"),
    WORDS("sys/fs/overflowgid", "65534\n"),
    WORDS("sys/fs/overflowuid", "65534\n"),
    WORDS("sys/fs/pipe-max-size", "1048576\n"),
    WORDS("sys/fs/pipe-user-pages-soft", "16384\n"),
    WORDS("sys/fs/protected_hardlinks", "1\n"),
    WORDS("sys/fs/protected_symlinks", "1\n"),
    WORDS("sys/fs/suid_dumpable", "0\n"),
    WORDS("sys/kernel/cap_last_cap", "40\n"),
    WORDS("sys/kernel/core_pattern", "core\n"),
    WORDS("sys/kernel/core_uses_pid", "0\n"),
    WORDS("sys/kernel/domainname", "(none)\n"),
    FILE_("sys/kernel/hostname", hostname),
    WORDS("sys/kernel/keys/maxkeys", "200\n"),
    WORDS("sys/kernel/msgmax", "8192\n"),
    WORDS("sys/kernel/msgmnb", "16384\n"),
    WORDS("sys/kernel/msgmni", "32000\n"),
    WORDS("sys/kernel/ngroups_max", "65536\n"),
    FILE_("sys/kernel/osrelease", osrelease),
    WORDS("sys/kernel/ostype", "Linux\n"),
    WORDS("sys/kernel/overflowgid", "65534\n"),
    WORDS("sys/kernel/overflowuid", "65534\n"),
    WORDS("sys/kernel/perf_event_paranoid", "3\n"),
    WORDS("sys/kernel/pid_max", "4194304\n"),
    WORDS("sys/kernel/printk", "4\t4\t1\t7\n"),
    FILE_("sys/kernel/random/boot_id", boot_id),
    WORDS("sys/kernel/random/entropy_avail", "256\n"),
    WORDS("sys/kernel/random/poolsize", "256\n"),
    FILE_("sys/kernel/random/uuid", uuid),
    WORDS("sys/kernel/randomize_va_space", "2\n"),
    WORDS("sys/kernel/sched_child_runs_first", "0\n"),
    WORDS("sys/kernel/sem", "32000\t1024000000\t500\t32000\n"),
    WORDS("sys/kernel/shmall", "18446744073692774399\n"),
    WORDS("sys/kernel/shmmax", "18446744073692774399\n"),
    WORDS("sys/kernel/shmmni", "4096\n"),
    FILE_("sys/kernel/threads-max", threads_max),
    WORDS("sys/kernel/unprivileged_userns_clone", "0\n"),
    FILE_("sys/kernel/version", os_version),
    WORDS("sys/kernel/yama/ptrace_scope", "1\n"),
    WORDS("sys/net/core/somaxconn", "4096\n"),
    WORDS("sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
    WORDS("sys/net/unix/max_dgram_qlen", "512\n"),
    WORDS("sys/vm/max_map_count", "65530\n"),
    WORDS("sys/vm/min_free_kbytes", "4096\n"),
    WORDS("sys/vm/mmap_min_addr", "65536\n"),
    WORDS("sys/vm/nr_hugepages", "0\n"),
    WORDS("sys/vm/overcommit_memory", "1\n"),
    WORDS("sys/vm/overcommit_ratio", "50\n"),
    WORDS("sys/vm/swappiness", "0\n"),
    WORDS("sysvipc/msg",
          "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid"
          "  cuid  cgid      stime      rtime      ctime\n"),
    WORDS("sysvipc/sem",
          "       key      semid perms      nsems   uid   gid  cuid  cgid      otime "
          "     ctime\n"),
    WORDS("sysvipc/shm", "       key      shmid perms                  size  cpid  lpid nattch   "
                         "uid   gid  cuid  cgid      atime      dtime      ctime                   "
                         "rss                  swap\n"),
    {.path = "thread-self", .kind = ENTRY_LINK, .make = make_thread_self},
    WORDS("tty/drivers", ""),
    FILE_("uptime", uptime),
    FILE_("version", version),
    WORDS("vmstat", "nr_free_pages 0\npgfault 0\npgmajfault 0\npswpin 0\npswpout 0\n"),
};
const unsigned n_tree_proc = sizeof(tree_proc) / sizeof(tree_proc[0]);

const struct entry tree_sys[] = {
    WORDS("class/net/lo/address", "00:00:00:00:00:00\n"),
    WORDS("class/net/lo/broadcast", "00:00:00:00:00:00\n"),
    WORDS("class/net/lo/carrier", "1\n"),
    WORDS("class/net/lo/flags", "0x9\n"),
    WORDS("class/net/lo/ifindex", "1\n"),
    WORDS("class/net/lo/mtu", "65536\n"),
    WORDS("class/net/lo/operstate", "unknown\n"),
    WORDS("class/net/lo/tx_queue_len", "1000\n"),
    WORDS("class/net/lo/type", "772\n"),
    WORDS("devices/system/cpu/kernel_max", "1023\n"),
    WORDS("devices/system/cpu/offline", "\n"),
    FILE_("devices/system/cpu/online", cpus_online),
    FILE_("devices/system/cpu/possible", cpus_online),
    FILE_("devices/system/cpu/present", cpus_online),
    WORDS("devices/system/node/online", "0\n"),
    WORDS("devices/system/node/possible", "0\n"),
    WORDS("fs/cgroup/.keep", ""),
    WORDS("kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise madvise [never]\n"),
    WORDS("kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
    WORDS("kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n"),
    WORDS("kernel/mm/transparent_hugepage/shmem_enabled",
          "always within_size advise [never] deny force\n"),
};
const unsigned n_tree_sys = sizeof(tree_sys) / sizeof(tree_sys[0]);

const struct entry tree_cgroup[] = {
    WORDS("cgroup.controllers", "cpu memory pids\n"),
    WORDS("cgroup.events", "populated 1\nfrozen 0\n"),
    WORDS("cgroup.subtree_control", "\n"),
    WORDS("cgroup.type", "domain\n"),
    WORDS("cpu.max", "max 100000\n"),
    WORDS("cpu.weight", "100\n"),
    FILE_("memory.current", cgroup_memory_current),
    WORDS("memory.high", "max\n"),
    FILE_("memory.max", cgroup_memory_max),
    WORDS("memory.swap.current", "0\n"),
    WORDS("memory.swap.max", "0\n"),
    FILE_("pids.current", cgroup_pids_current),
    WORDS("pids.max", "max\n"),
};
const unsigned n_tree_cgroup = sizeof(tree_cgroup) / sizeof(tree_cgroup[0]);
