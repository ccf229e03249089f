/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* /proc, /sys and /sys/fs/cgroup as a program meets them: all of the tree is listed, looked up and read. */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "fake_platform.h"
#include "ipc/tty.h"
#include "proc/proc.h"

/* ---- of rooms that these tests do without ---- */

__attribute__((weak)) void inotify_event(struct inode *inode, struct dentry *dentry, uint32_t mask,
                                         const char *name, uint32_t cookie)
{
    (void)inode;
    (void)dentry;
    (void)mask;
    (void)name;
    (void)cookie;
}

int64_t sys_execve(const uint64_t a[6]) __attribute__((weak));
int64_t sys_execve(const uint64_t a[6])
{
    (void)a;
    return -ENOSYS;
}

int64_t sys_execveat(const uint64_t a[6]) __attribute__((weak));
int64_t sys_execveat(const uint64_t a[6])
{
    (void)a;
    return -ENOSYS;
}

static unsigned n_files, n_links, n_directories;
static char bytes[65536];

static int64_t slurp(const char *name)
{
    struct file *file;
    int64_t n, total = 0;
    int error = path_open(AT_FDCWD, name, O_RDONLY, 0, &file);

    if (error)
        return error;
    while ((n = file_read_at(file, bytes + total, sizeof(bytes) - 1 - (size_t)total,
                             (uint64_t)total)) > 0)
        total += n;
    file_put(file);
    bytes[n < 0 ? 0 : total] = '\0';
    return n < 0 ? n : total;
}

static void walk(const char *name, int depth);

static void entry(const char *directory, const char *name, uint8_t type, int depth)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (type == DT_DIR) {
        n_directories++;
        walk(path, depth + 1);
    } else if (type == DT_LNK) {
        struct path at;
        char target[256];
        int error = path_lookup(AT_FDCWD, path, 0, &at);
        if (error)
            fail_msg("%s: %d", path, error);
        assert_true(S_ISLNK(at.dentry->inode->mode));
        if (inode_ops[at.dentry->inode->kind]->readlink(at.dentry->inode, target, sizeof(target)) <
                0 &&
            !strstr(path, "/exe"))
            fail_msg("%s: no text", path);
        path_put(&at);
        n_links++;
    } else {
        int64_t n = slurp(path);
        if (n < 0 && !strstr(path, "/mem"))
            fail_msg("%s: %lld", path, (long long)n);
        n_files++;
    }
}

static void walk(const char *name, int depth)
{
    char listing[4096];
    struct file *file;
    struct dir_context context = {0};
    struct uio uio;
    struct iovec part;
    int error = path_open(AT_FDCWD, name, O_RDONLY | O_DIRECTORY, 0, &file);

    if (error)
        fail_msg("%s: %d", name, error);
    assert_true(depth < 8);
    do {
        size_t at = 0, used;
        uio_one(&uio, &part, NULL, (uintptr_t)listing, 400); /* few at a time */
        context = (struct dir_context){.to = &uio};
        assert_int_equal(file_ops[file->kind]->iterate(file, &context), 0);
        used = 400 - uio.left;
        while (at < used) {
            const struct dirent64 *e = (const void *)(listing + at);
            if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                entry(name, e->d_name, e->d_type, depth);
            at += e->d_reclen;
        }
    } while (context.entries);
    file_put(file);
}

static void is_whole(void **state)
{
    (void)state;
    walk("/proc", 0);
    walk("/sys", 0);
    assert_true(n_files > 150);
    assert_true(n_links > 10);
    assert_true(n_directories > 20);
}

static void tells_of_itself(void **state)
{
    struct path path;
    char text[64];

    (void)state;
    assert_true(slurp("/proc/self/status") > 0);
    assert_non_null(strstr(bytes, "\nPid:\t1\n"));
    assert_true(slurp("/proc/1/stat") > 0);
    assert_true(!strncmp(bytes, "1 (", 3));
    assert_true(slurp("/proc/thread-self/comm") > 0);
    assert_true(slurp("/proc/meminfo") > 0);
    assert_non_null(strstr(bytes, "MemTotal:          65536 kB"));
    assert_true(slurp("/proc/mounts") > 0);
    assert_non_null(strstr(bytes, "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"));
    assert_non_null(strstr(bytes, "cgroup2 /sys/fs/cgroup cgroup2 ro,"));
    assert_true(slurp("/sys/fs/cgroup/memory.max") > 0);
    assert_string_equal(bytes, "67108864\n");
    assert_true(slurp("/proc/sys/kernel/ostype") > 0);
    assert_string_equal(bytes, "Linux\n");
    assert_int_equal(slurp("/proc/2/status"), -ENOENT);
    assert_int_equal(slurp("/proc/01/status"), -ENOENT);
    assert_int_equal(slurp("/proc/sys/kernel/ost"), -ENOENT);
    assert_int_equal(slurp("/proc/sys/kern/ostype"), -ENOENT);
    assert_int_equal(slurp("/proc/1/task/1/task"), -ENOENT);
    assert_int_equal(path_lookup(AT_FDCWD, "/proc/self/root", LOOKUP_FOLLOW, &path), 0);
    assert_int_equal(path_name(&path, text, sizeof(text)), 1);
    path_put(&path);
}

/* Its terminal and who is in the foreground there; a name that would be lines of its own is none. */
static void tells_no_tales(void **state)
{
    static struct tty tty = {.index = 3, .pgrp = 77};
    char comm[sizeof(current->comm)];

    (void)state;
    memcpy(comm, current->comm, sizeof(comm));
    memcpy(current->comm, "a\nUid:\t0\\", 10);
    current->process->tty = &tty;
    assert_true(slurp("/proc/1/stat") > 0);
    assert_non_null(strstr(bytes, " 0 1 1 34819 77 0 "));
    assert_true(slurp("/proc/1/status") > 0);
    assert_true(!strncmp(bytes, "Name:\ta\\nUid:\t0\\\\\nUmask:", 23));
    current->process->tty = NULL;
    assert_true(slurp("/proc/1/stat") > 0);
    assert_non_null(strstr(bytes, " 0 1 1 0 -1 0 "));
    memcpy(current->comm, comm, sizeof(comm));
}

static void shows_descriptors(void **state)
{
    struct path path;
    struct file *file, *again;
    char text[64];
    int fd;

    (void)state;
    assert_int_equal(path_open(AT_FDCWD, "/dev/null", O_RDWR, 0, &file), 0);
    fd = fd_install(file, 0, 7);
    assert_int_equal(fd, 7);
    assert_int_equal(path_lookup(AT_FDCWD, "/proc/self/fd/7", 0, &path), 0);
    assert_int_equal(path.dentry->inode->mode, S_IFLNK | 0700);
    assert_int_equal(inode_ops[INODE_PROC]->readlink(path.dentry->inode, text, sizeof(text)), 9);
    assert_memory_equal(text, "/dev/null", 9);
    path_put(&path);
    assert_int_equal(path_open(AT_FDCWD, "/dev/fd/7", O_RDONLY, 0, &again), 0);
    assert_int_equal(again->kind, FILE_NULL);
    file_put(again);
    assert_true(slurp("/proc/self/fdinfo/7") > 0);
    assert_true(!strncmp(bytes, "pos:\t0\n", 7));
    fd_close(7);
    assert_int_equal(path_lookup(AT_FDCWD, "/proc/self/fd/7", 0, &path), -ENOENT);
}

static void takes_a_name(void **state)
{
    struct file *file;
    struct uio uio;
    struct iovec part;

    (void)state;
    assert_int_equal(path_open(AT_FDCWD, "/proc/self/comm", O_WRONLY, 0, &file), 0);
    uio_one(&uio, &part, NULL, (uintptr_t) "a-name-that-is-too-long\n", 24);
    assert_int_equal(file_write(file, &uio, NULL), 24);
    file_put(file);
    slurp("/proc/self/comm");
    assert_string_equal(bytes, "a-name-that-is-\n");
    assert_true(
        path_open(AT_FDCWD, "/proc/sys/kernel/ostype", O_WRONLY, 0, &file) < 0 ||
        (uio_one(&uio, &part, NULL, (uintptr_t) "x", 1), file_write(file, &uio, NULL) == -EIO));
}

/* ---- the stream of the host's ---- */

static void streams(void **state)
{
    int pair[2];
    struct file *file;
    struct uio uio;
    struct iovec part;
    char text[16] = "";
    static char much[1 << 20];
    int64_t n;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    file = file_host(pair[0]);
    assert_non_null(file);
    file->flags |= O_NONBLOCK;
    uio_one(&uio, &part, NULL, (uintptr_t)text, sizeof(text));
    assert_int_equal(file_read(file, &uio, NULL), -EAGAIN);
    assert_int_equal(file_poll(file, NULL) & (POLLIN | POLLOUT), POLLOUT);
    assert_int_equal(write(pair[1], "hello", 5), 5);
    assert_int_equal(file_poll(file, NULL) & (POLLIN | POLLOUT), POLLIN | POLLOUT);
    assert_int_equal(file_read(file, &uio, NULL), 5);
    assert_string_equal(text, "hello");
    uio_one(&uio, &part, NULL, (uintptr_t)much, sizeof(much));
    n = file_write(file, &uio, NULL);
    assert_true(n > 0 && n < (int64_t)sizeof(much));
    assert_int_equal(uio.left, sizeof(much) - (size_t)n);
    assert_int_equal(file_write(file, &uio, NULL), -EAGAIN);
    close(pair[1]);
    assert_true(file_poll(file, NULL) & POLLHUP);
    uio_one(&uio, &part, NULL, (uintptr_t)text, sizeof(text));
    assert_int_equal(file_read(file, &uio, NULL), 0);
    file_put(file);
}

/* What one waiter waits for is still told after something else was told that it does not wait for. */
static void watches_on(void **state)
{
    static char much[1 << 20];
    int pair[2];
    struct file *file;
    struct uio uio;
    struct iovec part;
    struct waiter waiter = {.events = POLLIN};

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    file = file_host(pair[0]);
    file->flags |= O_NONBLOCK;
    uio_one(&uio, &part, NULL, (uintptr_t)much, sizeof(much));
    assert_true(file_write(file, &uio, NULL) > 0);
    assert_int_equal(file_poll(file, &waiter) & (POLLIN | POLLOUT), 0);
    while (recv(pair[1], much, sizeof(much), MSG_DONTWAIT) > 0)
        ;
    task_sleep(clock_monotonic() + 100000000); /* POLLOUT is told meanwhile */
    assert_int_equal(write(pair[1], "x", 1), 1);
    assert_int_equal(task_sleep(clock_monotonic() + 10000000000ull), 0);
    waiter_remove(&waiter);
    file_put(file);
    close(pair[1]);
}

static int set_up(void **state)
{
    struct task *task;

    (void)state;
    fake_sentry(64 << 20);
    assert_int_equal(events_begin(), 0);
    assert_int_equal(task_first("cell", &task), 0);
    current = task;
    assert_int_equal(fs_setup(0, NULL, false, 0, NULL, 0), 0);
    task->files = fdtable_new();
    task->fs = fsctx_new();
    return task->files && task->fs ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_whole),       cmocka_unit_test(tells_of_itself),
        cmocka_unit_test(tells_no_tales), cmocka_unit_test(shows_descriptors),
        cmocka_unit_test(takes_a_name),   cmocka_unit_test(streams),
        cmocka_unit_test(watches_on),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
