/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * group - the one control group in which the agent and the workload are; init is not in it.
 *
 * It is what FREEZE stops, what the limits inside the machine hold, and where the figures come
 * from. Memory: the machine's RAM is the limit, but a group that ends a little below it makes the
 * kernel kill in the cell instead of searching init and itself for something to kill. Threads: one.
 */
#include <sys/statfs.h>
#include <time.h>

#include "guest.h"

#define ROOT "/sys/fs/cgroup"
#define GROUP ROOT "/cell/"
#define FREEZE_TRIES 5000 /* of 2 ms */

static const char *group_path(const char *file, char *buf, size_t cap)
{
    buf[0] = 0;
    text_add(buf, cap, GROUP);
    text_add(buf, cap, file);
    return buf;
}

static int group_write(const char *file, const char *text)
{
    char path[80];
    int r = write_text(group_path(file, path, sizeof(path)), text);

    return r < 0 ? blame(-r, "control group, cannot write", file) : 0;
}

static uint64_t parse_u64(const char *s)
{
    uint64_t v = 0;

    while (*s == ' ')
        s++;
    while (*s >= '0' && *s <= '9')
        v = v * 10 + (uint64_t)(*s++ - '0');
    return v;
}

/* The number behind `key` at the start of a line; key "" = the file's first number. -ENOENT. */
static int group_read(const char *path, const char *key, uint64_t *ret)
{
    char text[4096], *p = text;
    size_t n = strlen(key);
    long len = read_text(path, text, sizeof(text));

    for (; len > 0 && p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (strncmp(p, key, n) == 0 && (!n || p[n] == ' ' || p[n] == ':')) {
            p += n + (n && p[n] == ':');
            while (*p == ' ')
                p++;
            if (*p < '0' || *p > '9')
                return -ENOENT; /* "max" */
            *ret = parse_u64(p);
            return 0;
        }
    return -ENOENT;
}

int group_pids(uint64_t pids)
{
    char n[24];

    return group_write("pids.max", pids ? num_text(pids + PIDS_HEADROOM, n) : "max");
}

static uint64_t memory_most; /* what the cell can have of this machine */

static int memory_measure(void)
{
    uint64_t available = 0, keep;

    if (group_read("/proc/meminfo", "MemAvailable", &available) < 0)
        return blame(ENOENT, "cannot read", "/proc/meminfo");
    available *= 1024;
    keep = available / 32 < (4u << 20) ? 4u << 20 : available / 32;
    memory_most = available > 2 * keep ? available - keep : available / 2;
    return 0;
}

/* `bytes` 0: what the machine has. A part of it stays init's and the kernel's. */
static int memory_limit(uint64_t bytes)
{
    char n[24];

    return group_write("memory.max",
                       num_text(bytes && bytes < memory_most ? bytes : memory_most, n));
}

/* What is only kept for speed goes first. A limit below what the cell then still has would kill in it. */
int group_memory(uint64_t bytes)
{
    char path[80], n[24];
    uint64_t now = 0;

    group_path("memory.current", path, sizeof(path));
    if (bytes && group_read(path, "", &now) == 0 && now > bytes)
        write_text("/sys/fs/cgroup/cell/memory.reclaim", num_text(now - bytes, n));
    if (bytes && group_read(path, "", &now) == 0 && now > bytes)
        return blame(EBUSY, "the cell uses more memory than that, in bytes:", num_text(now, n));
    return memory_limit(bytes);
}

int group_make(const struct boot *b)
{
    int r;

    if (mount("cgroup2", ROOT, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return blame(errno, "cannot mount", ROOT);
    r = write_text(ROOT "/cgroup.subtree_control", "+cpu +memory +pids");
    if (r < 0)
        return blame(-r, "the kernel lacks the control groups cpu, memory or pids", NULL);
    if (mkdir(ROOT "/cell", 0755) < 0)
        return blame(errno, "cannot make the control group", NULL);
    r = group_pids(b->pids);
    if (r == 0)
        r = memory_measure();
    if (r == 0)
        r = memory_limit(b->memory);
    /* A machine barely larger than its limit would refuse a large allocation by a guess. What counts is what is
       touched, as in a cell on a large host. */
    write_text("/proc/sys/vm/overcommit_memory", "1");
    return r;
}

int group_enter(pid_t pid)
{
    char n[24];

    return group_write("cgroup.procs", num_text((uint64_t)pid, n));
}

static int frozen(void)
{
    char path[80];
    uint64_t v = 0;

    group_read(group_path("cgroup.events", path, sizeof(path)), "frozen", &v);
    return v == 1;
}

int group_freeze(int on)
{
    struct timespec nap = {0, 2000000};
    int i, r;

    if (on)
        sync();
    r = group_write("cgroup.freeze", on ? "1" : "0");
    for (i = 0; r == 0 && on && !frozen(); i++) {
        if (i == FREEZE_TRIES) {
            group_write("cgroup.freeze", "0");
            return blame(ETIMEDOUT, "a process of the cell waits in the kernel and does not stop",
                         NULL);
        }
        nanosleep(&nap, NULL);
    }
    return r;
}

static const struct {
    uint16_t tag;
    const char *file, *key;
    unsigned scale;
} figures[] = {{CELLA_TAG_CPU_USER_NS, "cpu.stat", "user_usec", 1000},
               {CELLA_TAG_CPU_SYSTEM_NS, "cpu.stat", "system_usec", 1000},
               {CELLA_TAG_MEMORY, "memory.current", "", 1},
               {CELLA_TAG_MEMORY_PEAK, "memory.peak", "", 1},
               {CELLA_TAG_TASKS, "pids.current", "", 1},
               {CELLA_TAG_TASKS_PEAK, "pids.peak", "", 1},
               {CELLA_TAG_OOM_KILLS, "memory.events", "oom_kill", 1},
               {CELLA_TAG_PIDS_REFUSED, "pids.events", "max", 1}};

void group_usage(struct fields *f)
{
    static uint64_t hit; /* once seen, always said */
    struct statfs fs;
    char path[80];
    uint64_t v;
    size_t i;

    for (i = 0; i < ARRAY_LEN(figures); i++) {
        if (group_read(group_path(figures[i].file, path, sizeof(path)), figures[i].key, &v) < 0)
            continue;
        put_u64(f, figures[i].tag, v * figures[i].scale);
        if (v && figures[i].tag == CELLA_TAG_OOM_KILLS)
            hit |= CELLA_LIMIT_HIT_MEMORY;
        if (v && figures[i].tag == CELLA_TAG_PIDS_REFUSED)
            hit |= CELLA_LIMIT_HIT_PIDS;
    }
    if (statfs("/rw", &fs) == 0) {
        put_u64(f, CELLA_TAG_DISK, (fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize);
        if (fs.f_bavail == 0 || fs.f_ffree == 0)
            hit |= CELLA_LIMIT_HIT_DISK;
    }
    put_u64(f, CELLA_TAG_LIMIT_HIT, hit);
}

/* Processor 0 is always there. */
int cpus_online(uint32_t n)
{
    uint32_t i;

    for (i = 1; i < 256; i++) {
        char path[80] = "/sys/devices/system/cpu/cpu", digits[24];
        const char *number = num_text(i, digits);
        int r;
        text_add(path, sizeof(path), number);
        text_add(path, sizeof(path), "/online");
        r = write_text(path, i < n ? "1" : "0");
        if (r == -ENOENT)
            return i < n ? blame(ENODEV, "the machine has only so many processors:", number) : 0;
        if (r < 0)
            return blame(-r, "cannot write", path);
    }
    return 0;
}
