/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * task - what /proc/PID says of one process or thread: stat, status, limits and their like. Fields that this kernel has no
 * figure for are there, as zero, because programs count columns.
 * Threads: the kernel lock.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sched.h>
#include <stdlib.h>

#include "ipc/ipc.h"
#include "proc.h"

#define TICK_NS 10000000ul /* USER_HZ is 100 */
#define CMDLINE_MAX (1u << 20)

int proc_process(const struct file *file, struct process **ret_process)
{
    const struct node *node =
        file->inode && file->inode->kind == INODE_PROC ? file->inode->data : NULL;
    struct task *task;

    if (!node || node->tree != TREE_TASK || node->length || node->of_task || node->fd >= 0)
        return -EBADF;
    task = node_task(node);
    *ret_process = task ? task->process : NULL;
    return task ? 0 : -ESRCH;
}

static char state_of(const struct task *task)
{
    if (task->exited || task->process->state >= PROCESS_ZOMBIE)
        return 'Z';
    if (task->stopped)
        return 'T';
    return task->sleeping ? 'S' : 'R';
}

static const char *state_word(char state)
{
    return state == 'Z'   ? "Z (zombie)"
           : state == 'T' ? "T (stopped)"
           : state == 'S' ? "S (sleeping)"
                          : "R (running)";
}

static void cpu_of(const struct node *node, struct task *task, uint64_t *ret_user,
                   uint64_t *ret_system)
{
    if (node->of_task)
        task_cpu(task, ret_user, ret_system);
    else
        process_cpu(task->process, ret_user, ret_system);
}

static sigbits ignored_or_caught(const struct process *process, bool ignored)
{
    sigbits bits = 0;
    int i;

    for (i = 0; process->sighand && i < SIGNALS; i++) {
        uint64_t handler = process->sighand->actions[i].handler;
        if (ignored ? handler == 1 : handler > 1)
            bits |= 1ull << i;
    }
    return bits;
}

static int32_t parent_pid(const struct process *process)
{
    return process->parent ? process->parent->pid : 0;
}

MAKER(task_stat)
{
    struct task *task = node_task(node);
    const struct process *p = task->process;
    const struct mm *mm = task->mm;
    struct memory_use use = {0};
    uint64_t user, system;

    cpu_of(node, task, &user, &system);
    if (mm)
        memory_use(task->mm, &use);
    text_add(text, "%d (%s) %c %d %d %d %d %d 0 %" PRIu64 " 0 0 0", node->tid, task->comm,
             state_of(task), parent_pid(p), p->pgid, p->sid, (int)tty_number(p), tty_foreground(p),
             task->minor_faults);
    text_add(text, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %d %u 0 %" PRIu64,
             user / TICK_NS, system / TICK_NS, p->children_user_ns / TICK_NS,
             p->children_system_ns / TICK_NS, 20 + task->nice, task->nice, p->n_tasks,
             (task->start_time - (clock_monotonic() - clock_boottime())) / TICK_NS);
    text_add(text, " %" PRIu64 " %" PRIu64 " %" PRIu64, use.size, use.resident >> PAGE_SHIFT,
             (uint64_t)p->limits[RLIMIT_RSS].rlim_cur);
    text_add(text, " 0 0 %" PRIu64 " 0 0 0 %" PRIu64 " %" PRIu64 " %" PRIu64,
             mm ? mm->stack_start : 0, task->blocked, ignored_or_caught(p, true),
             ignored_or_caught(p, false));
    text_add(text, " 0 0 0 %d 0 0 %d 0 0 0 0 0 %" PRIu64 " %" PRIu64 " %" PRIu64, p->exit_signal,
             task->policy, mm ? mm->brk_start : 0, mm ? mm->arg_start : 0, mm ? mm->arg_end : 0);
    text_add(text, " %" PRIu64 " %" PRIu64 " %d\n", mm ? mm->env_start : 0, mm ? mm->env_end : 0,
             task->exited ? p->exit_status : 0);
}

MAKER(task_statm)
{
    struct task *task = node_task(node);
    struct memory_use use = {0};

    if (task->mm)
        memory_use(task->mm, &use);
    text_add(text, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " 0 %" PRIu64 " 0\n",
             use.size >> PAGE_SHIFT, use.resident >> PAGE_SHIFT,
             (use.resident - use.anonymous) >> PAGE_SHIFT, use.code >> PAGE_SHIFT,
             (use.data + use.stack) >> PAGE_SHIFT);
}

static void status_ids(struct text *text, const struct task *task)
{
    const struct cred *c = task->cred;
    uint32_t i;

    text_add(text, "Uid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\n", c->uid, c->euid, c->suid,
             c->fsuid, c->gid, c->egid, c->sgid, c->fsgid);
    text_add(text, "FDSize:\t64\nGroups:\t");
    for (i = 0; i < c->n_groups; i++)
        text_add(text, "%u ", c->groups[i]);
    text_add(text, "\nNStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\n", task->process->pid,
             task->tid, task->process->pgid, task->process->sid);
}

static void status_memory(struct text *text, struct mm *mm)
{
    uint64_t peak = mm->pages_peak << PAGE_SHIFT;
    struct memory_use use;

    memory_use(mm, &use);
    text_add(text, "VmPeak:\t%8" PRIu64 " kB\nVmSize:\t%8" PRIu64 " kB\nVmLck:\t%8" PRIu64 " kB\n",
             use.size >> 10, use.size >> 10, mm->locked >> 10);
    text_add(text, "VmPin:\t       0 kB\nVmHWM:\t%8" PRIu64 " kB\nVmRSS:\t%8" PRIu64 " kB\n",
             (use.resident > peak ? use.resident : peak) >> 10, use.resident >> 10);
    text_add(text, "RssAnon:\t%8" PRIu64 " kB\nRssFile:\t%8" PRIu64 " kB\nRssShmem:\t       0 kB\n",
             use.anonymous >> 10, (use.resident - use.anonymous) >> 10);
    text_add(text, "VmData:\t%8" PRIu64 " kB\nVmStk:\t%8" PRIu64 " kB\nVmExe:\t%8" PRIu64 " kB\n",
             use.data >> 10, use.stack >> 10, use.code >> 10);
    text_add(text, "VmLib:\t       0 kB\nVmPTE:\t       4 kB\nVmSwap:\t       0 kB\n"
                   "HugetlbPages:\t       0 kB\nCoreDumping:\t0\nTHP_enabled:\t0\n");
}

static void status_signals(struct text *text, const struct task *task)
{
    const struct process *p = task->process;

    text_add(text, "Threads:\t%u\nSigQ:\t0/%" PRIu64 "\n", p->n_tasks,
             (uint64_t)p->limits[RLIMIT_SIGPENDING].rlim_cur);
    text_add(text, "SigPnd:\t%016" PRIx64 "\nShdPnd:\t%016" PRIx64 "\nSigBlk:\t%016" PRIx64 "\n",
             task->pending.bits, p->pending.bits, task->blocked);
    text_add(text, "SigIgn:\t%016" PRIx64 "\nSigCgt:\t%016" PRIx64 "\n", ignored_or_caught(p, true),
             ignored_or_caught(p, false));
}

static void status_caps(struct text *text, const struct cred *c)
{
    text_add(text, "CapInh:\t%016" PRIx64 "\nCapPrm:\t%016" PRIx64 "\nCapEff:\t%016" PRIx64 "\n",
             c->cap_inheritable, c->cap_permitted, c->cap_effective);
    text_add(text, "CapBnd:\t%016" PRIx64 "\nCapAmb:\t%016" PRIx64 "\nNoNewPrivs:\t%u\n",
             c->cap_bounding, c->cap_ambient, c->no_new_privs);
    text_add(text, "Seccomp:\t0\nSeccomp_filters:\t0\n");
}

/* A line of its own, whatever its task calls itself. */
static void status_name(struct text *text, const char *name)
{
    text_add(text, "Name:\t");
    for (; *name; name++)
        if (*name == '\n' || *name == '\\')
            text_add(text, "\\%c", *name == '\n' ? 'n' : '\\');
        else
            text_bytes(text, name, 1);
}

MAKER(task_status)
{
    struct task *task = node_task(node);
    unsigned cpus = sched_cpus(), i;

    status_name(text, task->comm);
    text_add(text, "\nUmask:\t%04o\nState:\t%s\n", task->fs ? task->fs->umask : 0,
             state_word(state_of(task)));
    text_add(text, "Tgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\n", task->process->pid,
             task->tid, parent_pid(task->process));
    status_ids(text, task);
    if (task->mm)
        status_memory(text, task->mm);
    status_signals(text, task);
    status_caps(text, task->cred);
    text_add(text, "Cpus_allowed:\t%" PRIx64 "\nCpus_allowed_list:\t",
             cpus < 64 ? (1ul << cpus) - 1 : UINT64_MAX);
    for (i = 0; i < 1; i++)
        text_add(text, cpus > 1 ? "0-%u\n" : "%u\n", cpus - 1);
    text_add(text, "Mems_allowed:\t1\nMems_allowed_list:\t0\n");
    text_add(text, "voluntary_ctxt_switches:\t%" PRIu64 "\nnonvoluntary_ctxt_switches:\t0\n",
             task->switches);
}

/* Bytes of the task's own memory. */
static void memory_bytes(struct text *text, const struct task *task, uint64_t start, uint64_t end)
{
    char chunk[4096];

    if (!task->mm || end < start || end - start > CMDLINE_MAX)
        return;
    while (start < end) {
        size_t size = end - start < sizeof(chunk) ? (size_t)(end - start) : sizeof(chunk);
        int64_t n = copy_in_some(task->mm, chunk, start, size);
        if (n <= 0)
            return;
        text_bytes(text, chunk, (size_t)n);
        start += (uint64_t)n;
    }
}

MAKER(task_cmdline)
{
    struct task *task = node_task(node);

    if (task->mm)
        memory_bytes(text, task, task->mm->arg_start, task->mm->arg_end);
}

MAKER(task_environ)
{
    struct task *task = node_task(node);

    if (task->mm)
        memory_bytes(text, task, task->mm->env_start, task->mm->env_end);
}

MAKER(task_auxv)
{
    struct task *task = node_task(node);

    if (task->mm && task->mm->auxv_size <= sizeof(task->mm->auxv))
        text_bytes(text, task->mm->auxv, task->mm->auxv_size);
}

MAKER(task_comm)
{
    text_add(text, "%s\n", node_task(node)->comm);
}

static int put_comm(const struct node *node, const char *bytes, size_t length)
{
    struct task *task = node_task(node);

    if (!task)
        return -ESRCH;
    if (task->process != current->process)
        return -EINVAL;
    length -= length && bytes[length - 1] == '\n';
    if (length >= sizeof(task->comm))
        length = sizeof(task->comm) - 1;
    memset(task->comm, 0, sizeof(task->comm));
    memcpy(task->comm, bytes, length);
    return 0;
}

static const struct {
    const char *name, *unit;
    int resource;
} limits[] = {
    {"Max cpu time", "seconds", RLIMIT_CPU},
    {"Max file size", "bytes", RLIMIT_FSIZE},
    {"Max data size", "bytes", RLIMIT_DATA},
    {"Max stack size", "bytes", RLIMIT_STACK},
    {"Max core file size", "bytes", RLIMIT_CORE},
    {"Max resident set", "bytes", RLIMIT_RSS},
    {"Max processes", "processes", RLIMIT_NPROC},
    {"Max open files", "files", RLIMIT_NOFILE},
    {"Max locked memory", "bytes", RLIMIT_MEMLOCK},
    {"Max address space", "bytes", RLIMIT_AS},
    {"Max file locks", "locks", RLIMIT_LOCKS},
    {"Max pending signals", "signals", RLIMIT_SIGPENDING},
    {"Max msgqueue size", "bytes", RLIMIT_MSGQUEUE},
    {"Max nice priority", "", RLIMIT_NICE},
    {"Max realtime priority", "", RLIMIT_RTPRIO},
    {"Max realtime timeout", "us", RLIMIT_RTTIME},
};

static void limit_value(struct text *text, rlim_t value)
{
    if (value == RLIM_INFINITY)
        text_add(text, "%-20s ", "unlimited");
    else
        text_add(text, "%-20" PRIu64 " ", (uint64_t)value);
}

MAKER(task_limits)
{
    const struct process *p = node_task(node)->process;
    size_t i;

    text_add(text, "%-25s %-20s %-20s %-10s\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for (i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        text_add(text, "%-25s ", limits[i].name);
        limit_value(text, p->limits[limits[i].resource].rlim_cur);
        limit_value(text, p->limits[limits[i].resource].rlim_max);
        text_add(text, "%-10s\n", limits[i].unit);
    }
}

MAKER(task_io)
{
    (void)node;
    text_add(text, "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n"
                   "cancelled_write_bytes: 0\n");
}

MAKER(task_children)
{
    struct process *child;

    TAILQ_FOREACH(child, &node_task(node)->process->children, siblings)
    text_add(text, "%d ", child->pid);
}

MAKER(task_personality)
{
    text_add(text, "%08x\n", node_task(node)->process->personality);
}

MAKER(task_fdinfo)
{
    struct file *file = node_file(node);

    if (!file)
        return;
    text_add(text, "pos:\t%" PRId64 "\nflags:\t0%o\nmnt_id:\t%u\nino:\t%" PRIu64 "\n",
             file->position, file->flags, file->mount ? file->mount->id : 0,
             file->inode ? file->inode->number : 0);
}

/* A number in a range; what is asked for is kept by nobody, as in a container that may not change it. */
static int put_score(const struct node *node, const char *bytes, size_t length)
{
    char *end;
    long n = strtol(bytes, &end, 10);

    (void)length;
    if (!node_task(node))
        return -ESRCH;
    if (end == bytes || (*end && *end != '\n') || n < -1000 || n > 1000)
        return -EINVAL;
    return 0;
}

#define FILE_(path_, maker)                                                                        \
    {                                                                                              \
        .path = path_, .mode = 0444, .make = make_##maker                                          \
    }
#define OWN(path_, maker)                                                                          \
    {                                                                                              \
        .path = path_, .mode = 0400, .secret = true, .make = make_##maker                          \
    }
#define WORDS(path_, text_)                                                                        \
    {                                                                                              \
        .path = path_, .mode = 0444, .fixed = text_                                                \
    }
#define SPECIAL(path_, kind_)                                                                      \
    {                                                                                              \
        .path = path_, .kind = kind_                                                               \
    }
#define SPACE(name_, number_)                                                                      \
    {                                                                                              \
        .path = "ns/" name_, .kind = ENTRY_NAMESPACE, .fixed = name_ ":[" number_ "]"              \
    }
#define ONE_TO_ONE "         0          0 4294967295\n"

const struct entry tree_task[] = {
    WORDS("attr/current", "unconfined\n"),
    OWN("auxv", task_auxv),
    WORDS("cgroup", "0::/\n"),
    FILE_("cmdline", task_cmdline),
    {.path = "comm", .mode = 0644, .make = make_task_comm, .put = put_comm},
    {.path = "coredump_filter", .mode = 0644, .fixed = "00000033\n", .put = put_score},
    SPECIAL("cwd", ENTRY_CWD),
    OWN("environ", task_environ),
    SPECIAL("exe", ENTRY_EXE),
    SPECIAL("fd", ENTRY_FDS),
    SPECIAL("fdinfo", ENTRY_FDINFO),
    WORDS("gid_map", ONE_TO_ONE),
    OWN("io", task_io),
    FILE_("limits", task_limits),
    WORDS("loginuid", "4294967295"),
    FILE_("maps", task_maps),
    {.path = "mem", .mode = 0600, .kind = ENTRY_MEMORY, .secret = true},
    FILE_("mountinfo", task_mountinfo),
    FILE_("mounts", task_mounts),
    WORDS("net/arp",
          "IP address       HW type     Flags       HW address            Mask     Device\n"),
    FILE_("net/dev", net_dev),
    FILE_("net/if_inet6", net_if_inet6),
    FILE_("net/ipv6_route", net_ipv6_route),
    FILE_("net/netlink", net_netlink),
    FILE_("net/route", net_route),
    FILE_("net/sockstat", net_sockstat),
    FILE_("net/tcp", net_tcp),
    FILE_("net/tcp6", net_tcp6),
    FILE_("net/udp", net_udp),
    FILE_("net/udp6", net_udp6),
    FILE_("net/unix", net_unix),
    SPACE("cgroup", "4026531835"),
    SPACE("ipc", "4026531839"),
    SPACE("mnt", "4026531841"),
    SPACE("net", "4026531840"),
    SPACE("pid", "4026531836"),
    SPACE("user", "4026531837"),
    SPACE("uts", "4026531838"),
    WORDS("oom_adj", "0\n"),
    WORDS("oom_score", "0\n"),
    {.path = "oom_score_adj", .mode = 0644, .fixed = "0\n", .put = put_score},
    OWN("personality", task_personality),
    SPECIAL("root", ENTRY_ROOT),
    WORDS("schedstat", "0 0 0\n"),
    WORDS("sessionid", "4294967295"),
    WORDS("setgroups", "allow\n"),
    FILE_("smaps", task_smaps),
    FILE_("smaps_rollup", task_smaps_rollup),
    FILE_("stat", task_stat),
    FILE_("statm", task_statm),
    FILE_("status", task_status),
    SPECIAL("task", ENTRY_TASKS),
    FILE_("children", task_children),
    WORDS("timerslack_ns", "50000\n"),
    WORDS("uid_map", ONE_TO_ONE),
    WORDS("wchan", "0"),
};
const unsigned n_tree_task = sizeof(tree_task) / sizeof(tree_task[0]);
