/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * proc.h - files whose content is made when they are read: /proc, /sys and /sys/fs/cgroup.
 *
 * A tree is a table of paths (struct entry), in order of names of a directory beside each other. A node is a
 * place in such a table: the first `length` bytes of the path of entry `index`; the whole of it is the entry itself, less is
 * a directory on the way to it. Nodes are in the arena, so they hold numbers, never pointers to a table.
 */
#ifndef SENTRY_PROC_H
#define SENTRY_PROC_H

#include "fs/vfs.h"

/* ---- text (text.c) ---- */

struct text {
    char *bytes;
    size_t length, room;
    bool failed; /* no memory */
};
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_bytes(struct text *text, const void *bytes, size_t size);
void text_pad(struct text *text, size_t line_start, size_t column); /* spaces */
void text_escaped(struct text *text, const char *name); /* as names are in mounts: space is \040 */

/* ---- trees ---- */

enum tree { TREE_PROC, TREE_TASK, TREE_SYS, TREE_CGROUP, TREES };

enum entry_kind {
    ENTRY_TEXT,
    ENTRY_LINK, /* an ordinary link: the text is where it leads */
    ENTRY_EXE,  /* links that lead to the thing itself */
    ENTRY_CWD,
    ENTRY_ROOT,
    ENTRY_NAMESPACE, /* a link that nobody may follow */
    ENTRY_FDS,       /* directories of descriptors, of tasks */
    ENTRY_FDINFO,
    ENTRY_TASKS,
    ENTRY_MEMORY, /* /proc/PID/mem */
};

struct node {           /* inode->data, in the arena */
    uint8_t tree, kind; /* enum tree, entry_kind */
    uint16_t length;
    uint32_t index;
    int32_t tid;         /* TREE_TASK */
    bool of_task;        /* below task/: one thread, not its process */
    int32_t fd;          /* a descriptor in an ENTRY_FDS, ENTRY_FDINFO directory; -1 */
    uint64_t start_time; /* of the task: an id may be given again */
};

struct entry {
    const char *path;
    uint16_t mode;
    uint8_t kind;
    bool secret; /* of a task: for those only who may look at it as a debugger would */
    void (*make)(struct text *text, const struct node *node);
    int (*put)(const struct node *node, const char *text, size_t length); /* a write; or NULL */
    const char *fixed;                                                    /* instead of make */
};

extern const struct entry tree_proc[], tree_task[], tree_sys[], tree_cgroup[];
extern const unsigned n_tree_proc, n_tree_task, n_tree_sys, n_tree_cgroup;

const struct entry *node_entry(const struct node *node);
struct task *node_task(const struct node *node); /* NULL: it has ended */
struct file *node_file(const struct node *node); /* of an fd; borrowed; NULL: it is closed */
bool node_may_look(const struct node *node);     /* the caller, at what is its task's alone */

/* ---- links.c ---- */
int tree_follow(struct inode *inode, struct path *ret);
int64_t tree_readlink(struct inode *inode, char *buffer, size_t size);

/* ---- makers ---- */

#define MAKER(name) void make_##name(struct text *text, const struct node *node)
MAKER(meminfo);
MAKER(stat);
MAKER(uptime);
MAKER(loadavg);
MAKER(version);
MAKER(cpuinfo);
MAKER(cpus_online);
MAKER(self);
MAKER(thread_self);
MAKER(hostname);
MAKER(osrelease);
MAKER(os_version);
MAKER(boot_id);
MAKER(uuid);
MAKER(threads_max);
MAKER(cgroup_memory_max);
MAKER(cgroup_memory_current);
MAKER(cgroup_pids_current);
MAKER(task_stat);
MAKER(task_statm);
MAKER(task_status);
MAKER(task_cmdline);
MAKER(task_environ);
MAKER(task_auxv);
MAKER(task_comm);
MAKER(task_limits);
MAKER(task_maps);
MAKER(task_smaps);
MAKER(task_smaps_rollup);
MAKER(task_mounts);
MAKER(task_mountinfo);
MAKER(task_io);
MAKER(task_children);
MAKER(task_personality);
MAKER(task_fdinfo);
MAKER(net_dev);
MAKER(net_if_inet6);
MAKER(net_ipv6_route);
MAKER(net_netlink);
MAKER(net_route);
MAKER(net_sockstat);
MAKER(net_tcp);
MAKER(net_tcp6);
MAKER(net_udp);
MAKER(net_udp6);
MAKER(net_unix);

/* Sums over the areas of an address space, in bytes. */
struct memory_use {
    uint64_t size, resident, anonymous, data, stack, code, writable_private;
};
void memory_use(struct mm *mm, struct memory_use *ret);

#endif
