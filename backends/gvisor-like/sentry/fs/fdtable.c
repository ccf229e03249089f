/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fdtable - descriptors of a process: numbers, open files, close-on-exec; dup and its family, close_range.
 *
 * An array that doubles, at most 1,048,576 entries (nr_open). `hint` is at or below the lowest free number.
 * Threads: the kernel lock.
 */
#include "vfs.h"

#include <fcntl.h>
#include <string.h>

#define NR_OPEN 1048576u
#define CLOSE_RANGE_UNSHARE_ 2u
#define CLOSE_RANGE_CLOEXEC_ 4u

struct fd_entry {
    struct file *file; /* reference; NULL: free */
    uint32_t flags;    /* FD_CLOEXEC */
};

struct fdtable {
    uint32_t refs;
    uint32_t n_entries, hint;
    uint32_t n_open;
    struct fd_entry *entries;
};

struct fdtable *fdtable_new(void)
{
    struct fdtable *table = arena_alloc(ARENA_FDTABLE, sizeof(*table));

    if (!table)
        return NULL;
    table->refs = 1;
    table->n_entries = 64;
    table->entries = arena_alloc(ARENA_BYTES, table->n_entries * sizeof(*table->entries));
    if (!table->entries) {
        arena_free(table);
        return NULL;
    }
    return table;
}

static int grow(struct fdtable *table, uint32_t needed)
{
    uint32_t n = table->n_entries;
    struct fd_entry *larger;

    if (needed <= n)
        return 0;
    if (needed > NR_OPEN)
        return -EMFILE;
    while (n < needed)
        n *= 2;
    larger = arena_alloc(ARENA_BYTES, (size_t)n * sizeof(*larger));
    if (!larger)
        return -ENOMEM;
    memcpy(larger, table->entries, table->n_entries * sizeof(*larger));
    arena_free(table->entries);
    table->entries = larger;
    table->n_entries = n;
    return 0;
}

int fdtable_fork(struct fdtable *from, struct fdtable **ret_table)
{
    struct fdtable *table = fdtable_new();
    uint32_t i, n = from->n_entries;
    int error;

    if (!table)
        return -ENOMEM;
    while (n > 64 && !from->entries[n - 1].file)
        n--;
    error = grow(table, n);
    if (error) {
        fdtable_put(table);
        return error;
    }
    for (i = 0; i < n; i++)
        if (from->entries[i].file) {
            table->entries[i] = from->entries[i];
            file_get(table->entries[i].file);
        }
    table->hint = from->hint;
    table->n_open = from->n_open;
    *ret_table = table;
    return 0;
}

void fdtable_get(struct fdtable *table)
{
    table->refs++;
}

/* What a close of a descriptor does to its file. */
static void let_go(struct fdtable *table, struct file *file)
{
    if (file->inode && file->kind != FILE_PATH)
        locks_remove_posix(file->inode, table);
    if (file_ops[file->kind] && file_ops[file->kind]->flush)
        file_ops[file->kind]->flush(file);
    file_put(file);
}

static struct file *take_out(struct fdtable *table, uint32_t fd)
{
    struct file *file = table->entries[fd].file;

    if (!file)
        return NULL;
    table->entries[fd] = (struct fd_entry){0};
    table->n_open--;
    if (fd < table->hint)
        table->hint = fd;
    return file;
}

void fdtable_put(struct fdtable *table)
{
    struct file *file;
    uint32_t i;

    if (!table || table->refs-- > 1)
        return;
    table->refs = 1; /* a file that is let go may sleep, and must not find a dead table */
    for (i = 0; i < table->n_entries; i++) {
        file = take_out(table, i);
        if (file)
            let_go(table, file);
    }
    arena_free(table->entries);
    arena_free(table);
}

void fdtable_close_on_exec(struct fdtable *table)
{
    struct file *file;
    uint32_t i;

    for (i = 0; i < table->n_entries; i++)
        if (table->entries[i].flags & FD_CLOEXEC) {
            file = take_out(table, i);
            if (file)
                let_go(table, file);
        }
}

static struct fd_entry *entry(int fd)
{
    struct fdtable *table = current->files;

    return fd >= 0 && (uint32_t)fd < table->n_entries && table->entries[fd].file
               ? &table->entries[fd]
               : NULL;
}

static uint64_t limit(void)
{
    uint64_t soft = current->process->limits[RLIMIT_NOFILE].rlim_cur;

    return soft < NR_OPEN ? soft : NR_OPEN;
}

int fd_install(struct file *file, uint32_t flags, int lowest)
{
    struct fdtable *table = current->files;
    uint32_t fd = (uint32_t)lowest > table->hint ? (uint32_t)lowest : table->hint;
    int error;

    while (fd < table->n_entries && table->entries[fd].file)
        fd++;
    if (fd >= limit())
        return -EMFILE;
    error = grow(table, fd + 1);
    if (error)
        return error;
    if ((uint32_t)lowest <= table->hint)
        table->hint = fd + 1;
    table->entries[fd] = (struct fd_entry){file, flags & O_CLOEXEC ? FD_CLOEXEC : 0};
    table->n_open++;
    return (int)fd;
}

int fd_install_at(struct file *file, uint32_t flags, int fd)
{
    struct fdtable *table = current->files;
    struct file *old;
    int error;

    if (fd < 0 || (uint64_t)fd >= limit())
        return -EBADF;
    error = grow(table, (uint32_t)fd + 1);
    if (error)
        return error;
    old = take_out(table, (uint32_t)fd);
    table->entries[fd] = (struct fd_entry){file, flags & O_CLOEXEC ? FD_CLOEXEC : 0};
    table->n_open++;
    if (table->hint == (uint32_t)fd)
        table->hint++;
    if (old)
        let_go(table, old);
    return fd;
}

struct file *fd_get(int fd)
{
    struct fd_entry *e = entry(fd);

    if (!e)
        return NULL;
    file_get(e->file);
    return e->file;
}

struct file *fd_get_io(int fd)
{
    struct fd_entry *e = entry(fd);

    if (!e || e->file->kind == FILE_PATH)
        return NULL;
    file_get(e->file);
    return e->file;
}

int fd_close(int fd)
{
    struct fdtable *table = current->files;
    struct file *file = entry(fd) ? take_out(table, (uint32_t)fd) : NULL;

    if (!file)
        return -EBADF;
    let_go(table, file);
    return 0;
}

int fdtable_next(struct fdtable *table, int fd, struct file **ret_borrowed, uint32_t *ret_flags)
{
    uint32_t i;

    for (i = fd < 0 ? 0 : (uint32_t)fd; i < table->n_entries; i++)
        if (table->entries[i].file) {
            if (ret_borrowed)
                *ret_borrowed = table->entries[i].file;
            if (ret_flags)
                *ret_flags = table->entries[i].flags & FD_CLOEXEC ? O_CLOEXEC : 0;
            return (int)i;
        }
    return -1;
}

/* F_GETFD, F_SETFD; set < 0: only asks. */
int fd_flags(int fd, int set)
{
    struct fd_entry *e = entry(fd);

    if (!e)
        return -EBADF;
    if (set >= 0)
        e->flags = (uint32_t)set & FD_CLOEXEC;
    return set >= 0 ? 0 : (int)e->flags;
}

/* ---- dup ---- */

int64_t fd_dup(int fd, uint32_t flags, uint64_t lowest)
{
    struct file *file;
    int to;

    if (lowest >= limit())
        return -EINVAL;
    file = fd_get(fd);
    if (!file)
        return -EBADF;
    to = fd_install(file, flags, (int)lowest);
    if (to < 0)
        file_put(file);
    return to;
}

static int64_t dup_to(int from, int to, uint32_t flags)
{
    struct file *file;
    int error;

    if (to < 0 || (uint64_t)to >= limit())
        return -EBADF;
    file = fd_get(from);
    if (!file)
        return -EBADF;
    error = fd_install_at(file, flags, to);
    if (error < 0)
        file_put(file);
    return error;
}

SYSCALL(dup)
{
    struct file *file = fd_get((int)a[0]);
    int to;

    if (!file)
        return -EBADF;
    to = fd_install(file, 0, 0);
    if (to < 0)
        file_put(file);
    return to;
}

SYSCALL(dup2)
{
    if ((int)a[0] == (int)a[1])
        return entry((int)a[0]) ? (int)a[0] : -EBADF;
    return dup_to((int)a[0], (int)a[1], 0);
}

SYSCALL(dup3)
{
    if (a[2] & ~(uint64_t)O_CLOEXEC || (int)a[0] == (int)a[1])
        return -EINVAL;
    return dup_to((int)a[0], (int)a[1], (uint32_t)a[2]);
}

static int unshare_table(void)
{
    struct fdtable *table;
    int error;

    if (current->files->refs == 1)
        return 0;
    error = fdtable_fork(current->files, &table);
    if (error)
        return error;
    fdtable_put(current->files);
    current->files = table;
    return 0;
}

SYSCALL(close_range)
{
    uint32_t first = (uint32_t)a[0], last = (uint32_t)a[1], flags = (uint32_t)a[2], fd;
    struct fdtable *table;
    struct file *file;
    int error;

    if (flags & ~(CLOSE_RANGE_UNSHARE_ | CLOSE_RANGE_CLOEXEC_) || first > last)
        return -EINVAL;
    error = flags & CLOSE_RANGE_UNSHARE_ ? unshare_table() : 0;
    if (error)
        return error;
    table = current->files;
    for (fd = first; fd <= last && fd < table->n_entries; fd++) {
        if (!table->entries[fd].file)
            continue;
        if (flags & CLOSE_RANGE_CLOEXEC_) {
            table->entries[fd].flags |= FD_CLOEXEC;
            continue;
        }
        file = take_out(table, fd);
        if (file)
            let_go(table, file);
    }
    return 0;
}
