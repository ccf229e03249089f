/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tree - signal every descendant of a process, as /proc tells who descends from whom.
 *
 * Why here: a process group or session is a thing a workload leaves at will; descent from a
 * subreaper is not. One call is one pass over a moving target: the caller repeats it until it has
 * no children left, which is the exact test (a subreaper without children has no descendants). A
 * process is signalled through its open /proc directory, checked once more after opening, so a
 * number that was reused in between is never hit. What remains: if a parent's number is reused by
 * another exec of the same cell between two reads of one pass, its children may be taken for ours.
 * Threads: one; no state.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include "agent.h"

#define PROC_MAGIC 0x9fa0

enum { UNKNOWN, INSIDE, OUTSIDE };

struct entry {
    pid_t pid, ppid, group;
    uint8_t where;
    char state;
};

struct table {
    struct entry *e;
    size_t n, cap;
};

static int read_stat(int dirfd, pid_t *ret_ppid, pid_t *ret_group, char *ret_state)
{
    char buf[512], *p, *end;
    int fd = openat(dirfd, "stat", O_RDONLY | O_CLOEXEC);
    ssize_t n;
    pid_t ppid = 0, group = 0;

    if (fd < 0)
        return -errno;
    n = read(fd, buf, sizeof(buf) - 1);
    close(fd);
    if (n <= 0)
        return -ESRCH;
    buf[n] = 0;
    for (p = NULL, end = buf; *end; end++) /* the name may hold anything but this is its last ')' */
        if (*end == ')')
            p = end;
    if (!p || p[1] != ' ' || !p[2] || p[3] != ' ')
        return -ESRCH;
    *ret_state = p[2];
    for (p += 4; *p >= '0' && *p <= '9'; p++)
        ppid = ppid * 10 + (*p - '0');
    if (*p == ' ')
        for (p++; *p >= '0' && *p <= '9'; p++)
            group = group * 10 + (*p - '0');
    *ret_ppid = ppid;
    *ret_group = group;
    return 0;
}

static int table_add(struct table *t, int proc, const char *name)
{
    int64_t pid = parse_num(name);
    struct entry e = {.pid = (pid_t)pid}, *grown;
    int fd, r;

    if (pid <= 0)
        return 0;
    fd = openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    r = read_stat(fd, &e.ppid, &e.group, &e.state);
    close(fd);
    if (r < 0)
        return 0;
    if (t->n == t->cap) {
        grown = realloc(t->e, (t->cap ? t->cap * 2 : 128) * sizeof(*grown));
        if (!grown)
            return -ENOMEM; /* a pass over a part still makes progress */
        t->e = grown;
        t->cap = t->cap ? t->cap * 2 : 128;
    }
    t->e[t->n++] = e;
    return 0;
}

static void table_read(struct table *t, int proc)
{
    _Alignas(8) char buf[8192];
    long n, at;

    while ((n = syscall(SYS_getdents64, proc, buf, sizeof(buf))) > 0)
        for (at = 0; at < n; at += ((struct dir_entry *)(void *)(buf + at))->reclen)
            if (table_add(t, proc, ((struct dir_entry *)(void *)(buf + at))->name) < 0)
                return;
}

/* /proc lists pids in ascending order. */
static struct entry *table_find(const struct table *t, pid_t pid)
{
    size_t lo = 0, hi = t->n;

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (t->e[mid].pid == pid)
            return &t->e[mid];
        if (t->e[mid].pid < pid)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Walks up until somebody knows, then tells everybody on the way. Reads race, so a ring is
 * possible: bounded. */
static void table_place(struct table *t, struct entry *e, pid_t root)
{
    struct entry *p = e;
    uint8_t where = UNKNOWN;
    size_t steps;

    for (steps = 0; where == UNKNOWN; steps++) {
        if (p->where != UNKNOWN)
            where = p->where;
        else if (p->ppid == root)
            where = INSIDE;
        else if (steps > t->n || p->ppid <= 0 || !(p = table_find(t, p->ppid)))
            where = OUTSIDE;
    }
    for (p = e; p && p->where == UNKNOWN && steps-- > 0; p = table_find(t, p->ppid))
        p->where = where;
}

static int hit(int proc, const struct entry *e, pid_t root, int sig)
{
    char name[16], state;
    pid_t ppid, group, pid = e->pid;
    int i = sizeof(name) - 1, fd, sent = 0;

    name[i] = 0;
    for (; pid; pid /= 10)
        name[--i] = (char)('0' + pid % 10);
    fd = openat(proc, name + i, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (read_stat(fd, &ppid, &group, &state) == 0 && (ppid == e->ppid || ppid == root)) {
        if (syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) == 0)
            sent = 1;
        else if (errno != ESRCH)
            sent = kill(e->pid, sig) == 0; /* a seccomp filter without pidfds */
        sent = sent && state != 'Z' && state != 'X' && !(sig == SIGSTOP && state == 'T');
    }
    close(fd);
    return sent;
}

/* `group`: members of this process group have had it. */
static int tree_pass(pid_t root, const pid_t *skip, size_t n_skip, pid_t group, int sig)
{
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), count = 0;
    struct table t = {0};
    struct statfs fs;
    struct entry *e;
    size_t i;

    if (proc < 0)
        return -errno;
    if (fstatfs(proc, &fs) < 0 || fs.f_type != PROC_MAGIC) {
        close(proc);
        return -ENOENT;
    }
    table_read(&t, proc);
    e = table_find(&t, root);
    if (e)
        e->where = OUTSIDE;
    for (i = 0; i < n_skip; i++) {
        e = table_find(&t, skip[i]);
        if (e)
            e->where = OUTSIDE;
    }
    for (i = 0; i < t.n; i++)
        table_place(&t, &t.e[i], root);
    for (i = 0; i < t.n; i++)
        if (t.e[i].where == INSIDE && (!group || t.e[i].group != group))
            count += hit(proc, &t.e[i], root, sig);
    free(t.e);
    close(proc);
    return count;
}

int tree_signal(pid_t root, const pid_t *skip, size_t n_skip, int sig)
{
    return tree_pass(root, skip, n_skip, 0, sig);
}

int tree_signal_once(pid_t root, pid_t leader, int sig)
{
    if (!leader || kill(-leader, sig) < 0)
        leader = 0;
    return tree_pass(root, NULL, 0, leader, sig);
}
