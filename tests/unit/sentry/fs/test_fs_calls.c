/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What chance does not find: limits, big directories, memory given back, links of the image, locks that wait, mounts, seals. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "fake_gofer.h"
#include "fs/vfs.h"
#include "fs_world.h"

#define MANY 10000

/* In a scenario of ours alone: what is not so is said, and the test fails. */
#define IS(expression_, expected_)                                                                 \
    do {                                                                                           \
        long long got_ = (long long)(expression_), wanted_ = (long long)(expected_);               \
        if (got_ != wanted_)                                                                       \
            note("WRONG line %d: %s is %lld, not %lld", __LINE__, #expression_, got_, wanted_);    \
    } while (0)

static struct stat st;
static char bytes[1 << 17];

/* ---- a big directory of the image ---- */

static void populate_many(void)
{
    char name[32];
    int i;

    if (mkdir("big", 0755))
        abort();
    for (i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "big/file%05d", i);
        close(open(name, O_CREAT | O_WRONLY, 0644));
    }
}

/* Removes what it reads: each name is seen once all the same. */
static void read_and_remove(void)
{
    static uint8_t seen[MANY];
    int64_t fd = call(SYS_open, "/big", O_RDONLY), got, at;
    int n, total = 0;
    char name[300];

    IS(fd >= 0, 1);
    while ((got = call(SYS_getdents64, fd, bytes, 1000)) > 0)
        for (at = 0; at < got; at += *(uint16_t *)(bytes + at + 16)) {
            if (sscanf(bytes + at + 19, "file%d", &n) != 1)
                continue;
            IS(seen[n]++, 0);
            total++;
            snprintf(name, sizeof(name), "/big/%s", bytes + at + 19);
            IS(call(SYS_unlink, name), 0);
        }
    IS(got, 0);
    IS(total, MANY);
    IS(call(SYS_close, fd), 0);
    IS(call(SYS_rmdir, "/big"), 0);
    IS(call(SYS_stat, "/big", &st), -ENOENT);
}

/* d_off of an entry leads to the next one, whatever was made or removed since. */
static void seek_in_directory(void)
{
    int64_t fd = call(SYS_open, "/big", O_RDONLY), got, back;
    char next[300] = "", after[1000];
    uint16_t first;

    call(SYS_lseek, fd, 5000, SEEK_SET);
    got = call(SYS_getdents64, fd, bytes, 1000);
    IS(got > 200, 1);
    memcpy(&back, bytes + 8, 8);
    first = *(uint16_t *)(bytes + 16);
    strcpy(next, bytes + first + 19);
    call(SYS_open, "/big/new", O_CREAT | O_WRONLY, 0600);
    call(SYS_unlink, "/big/file00000");
    call(SYS_stat, "/big/file00001", &st);
    fs_shrink(UINT64_MAX);
    IS(call(SYS_lseek, fd, back, SEEK_SET), back);
    IS(call(SYS_getdents64, fd, after, sizeof(after)) > 0, 1);
    IS(strcmp(after + 19, next), 0);
}

static void memory_comes_back(void)
{
    char name[64];
    uint64_t inode, questions;
    int i;

    for (i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "/big/file%05d", i);
        IS(call(SYS_stat, name, &st), 0);
    }
    IS(call(SYS_stat, "/big/none", &st), -ENOENT);
    call(SYS_stat, "/big/file00007", &st);
    inode = st.st_ino;
    questions = gofer_questions;
    IS(call(SYS_stat, "/big/file00007", &st), 0);
    IS(call(SYS_stat, "/big/none", &st), -ENOENT);
    IS(gofer_questions, questions); /* both are remembered */
    IS(call(SYS_chmod, "/big/file00001", 0611), 0);
    IS(call(SYS_unlink, "/big/file00002"), 0);
    IS(call(SYS_rename, "/big/file00003", "/moved"), 0);
    IS(fs_shrink(UINT64_MAX) > 100000, 1);
    IS(fs_state->n_names < 100, 1);
    IS(fake_gofer_open_handles < 100, 1);
    IS(call(SYS_stat, "/big/file00007", &st), 0);
    IS(st.st_ino, inode);
    IS(call(SYS_stat, "/big/file00001", &st), 0);
    IS(st.st_mode & 07777, 0611);
    IS(call(SYS_stat, "/big/file00002", &st), -ENOENT);
    IS(call(SYS_stat, "/big/file00003", &st), -ENOENT);
    IS(call(SYS_stat, "/moved", &st), 0);
    fake_gofer_error = -EMFILE;
    IS(call(SYS_stat, "/big/file00100", &st),
       0); /* something was forgotten, and it was asked again */
    fake_gofer_error = -EIO;
    IS(call(SYS_stat, "/big/file00101", &st), -EIO);
    IS(call(SYS_stat, "/big/file00101", &st), 0);
}

/* A changed file stays, but not the descriptors that it was asked with. */
static void changed_files_are_thin(void)
{
    static char name[64], text[16];
    int64_t fd;
    int i;

    for (i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "/big/file%05d", i);
        IS(call(SYS_chmod, name, 0611), 0);
    }
    fd = call(SYS_open, "/big/file00000", O_RDONLY);
    fs_shrink(UINT64_MAX);
    IS(fake_gofer_open_handles < 10, 1);
    for (i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "/big/file%05d", i);
        IS(call(SYS_stat, name, &st), 0);
        IS(st.st_mode & 07777, 0611);
    }
    IS(call(SYS_getxattr, "/big/file00005", "user.k", text, 16), -ENODATA);
    IS(call(SYS_unlink, "/big/file00006"), 0);
    IS(call(SYS_close, fd), 0);
}

/* Content, too: it comes again from the image. */
static void thin_content(void)
{
    char text[16] = "";
    int64_t fd = call(SYS_open, "/a", O_RDONLY);

    IS(call(SYS_fchmod, fd, 0600), 0);
    IS(call(SYS_close, fd), 0);
    fs_shrink(UINT64_MAX);
    IS(fake_gofer_open_handles, 1);
    fd = call(SYS_open, "/a", O_RDWR);
    IS(call(SYS_read, fd, text, 16), 5);
    IS(strcmp(text, "image"), 0);
    IS(call(SYS_pwrite64, fd, "W", 1, 0), 1);
    IS(call(SYS_close, fd), 0);
    fs_shrink(UINT64_MAX);
    fd = call(SYS_open, "/b", O_RDONLY);
    IS(call(SYS_read, fd, text, 16), 5);
    IS(strcmp(text, "Wmage"), 0);
}

static void big_directories(void **unused)
{
    (void)unused;
    ours_alone(populate_many, read_and_remove);
    ours_alone(populate_many, seek_in_directory);
    ours_alone(populate_many, memory_comes_back);
    ours_alone(populate_many, changed_files_are_thin);
}

/* ---- names of one file in the image ---- */

static void populate_links(void)
{
    int fd = open("a", O_CREAT | O_WRONLY, 0644);

    if (write(fd, "image", 5) != 5 || link("a", "b") || link("a", "c"))
        abort();
    close(fd);
}

static void links_of_the_image(void)
{
    char text[16] = "";
    int64_t fd = call(SYS_open, "/a", O_WRONLY), other;

    IS(call(SYS_write, fd, "W", 1), 1);
    IS(call(SYS_close, fd), 0);
    fs_shrink(UINT64_MAX);
    fd = call(SYS_open, "/b", O_RDONLY);
    IS(call(SYS_read, fd, text, 16), 5);
    IS(strcmp(text, "Wmage"), 0);
    IS(call(SYS_close, fd), 0);
    IS(call(SYS_unlink, "/a"), 0);
    IS(call(SYS_unlink, "/b"), 0);
    fs_shrink(UINT64_MAX);
    IS(call(SYS_stat, "/c", &st), 0);
    IS(st.st_nlink, 1);
    other = call(SYS_open, "/c", O_RDONLY);
    IS(call(SYS_read, other, text, 1), 1);
    IS(text[0], 'W');
    IS(call(SYS_unlink, "/c"), 0);
    IS(call(SYS_fstat, other, &st), 0);
    IS(st.st_nlink, 0);
    IS(call(SYS_close, other), 0);
    IS(fake_gofer_open_handles, 1); /* the root */
}

static void one_file_with_names(void **unused)
{
    (void)unused;
    ours_alone(populate_links, links_of_the_image);
    ours_alone(populate_links, thin_content);
}

/* ---- the limit of the disk, a root that is only read ---- */

static void populate_disk(void)
{
    int fd = open("image", O_CREAT | O_WRONLY, 0644);

    memset(bytes, 'i', sizeof(bytes));
    if (write(fd, bytes, sizeof(bytes)) != (ssize_t)sizeof(bytes))
        abort();
    close(fd);
}

static void fill_the_disk(void)
{
    uint64_t before = fs_disk_used(), total = 0;
    struct statfs fs;
    int64_t fd, n;

    fd = call(SYS_open, "/full", O_CREAT | O_RDWR, 0600);
    while ((n = call(SYS_write, fd, bytes, 10000)) > 0)
        total += (uint64_t)n;
    IS(n, -ENOSPC);
    IS(total, disk_limit - before);
    IS(fs_disk_used(), disk_limit);
    IS(call(SYS_statfs, "/", &fs), 0);
    IS(fs.f_bfree, 0);
    IS(fs.f_blocks, disk_limit / 4096);
    IS(call(SYS_fstat, fd, &st), 0);
    IS(st.st_blocks * 512, total);
    IS(call(SYS_pwrite64, fd, "x", 1, 0), 1); /* where there is a page, none is needed */
    n = call(SYS_open, "/image", O_RDWR);
    IS(call(SYS_pwrite64, n, "x", 1, 5000), -ENOSPC);
    IS(call(SYS_ftruncate, fd, 4096 * 10), 0);
    IS(fs_disk_used(), before + 4096 * 10);
    IS(call(SYS_pwrite64, n, "x", 1, 5000), 1);
    IS(fs_disk_used(), before + 4096 * 11);
    IS(call(SYS_fallocate, fd, 3, 0, 8192), 0);
    IS(fs_disk_used(), before + 4096 * 9);
    IS(call(SYS_fallocate, fd, 0, 0, disk_limit * 2), -ENOSPC);
    IS(call(SYS_fstat, fd, &st), 0);
    IS(st.st_size, 4096 * 10);
    IS(call(SYS_unlink, "/full"), 0);
    IS(call(SYS_close, fd), 0);
    IS(fs_disk_used(), before + 4096);
}

static void write_nowhere(void)
{
    int64_t fd;

    IS(call(SYS_open, "/image", O_RDWR), -EROFS);
    IS(call(SYS_open, "/new", O_CREAT | O_RDWR, 0600), -EROFS);
    IS(call(SYS_mkdir, "/new", 0700), -EROFS);
    IS(call(SYS_unlink, "/image"), -EROFS);
    IS(call(SYS_rename, "/image", "/other"), -EROFS);
    IS(call(SYS_link, "/image", "/other"), -EROFS);
    IS(call(SYS_symlink, "/image", "/other"), -EROFS);
    IS(call(SYS_mknod, "/new", S_IFIFO | 0600, 0), -EROFS);
    IS(call(SYS_chmod, "/image", 0600), -EROFS);
    IS(call(SYS_chown, "/image", 1, 1), -EROFS);
    IS(call(SYS_truncate, "/image", 0), -EROFS);
    IS(call(SYS_utimes, "/image", NULL), -EROFS);
    IS(call(SYS_setxattr, "/image", "user.a", "b", 1, 0), -EROFS);
    IS(call(SYS_access, "/image", W_OK), -EROFS);
    IS(call(SYS_mount, "none", "/", "", MS_REMOUNT, NULL), -EPERM);
    fd = call(SYS_open, "/image", O_RDONLY);
    IS(call(SYS_read, fd, bytes, 10), 10);
    fd = call(SYS_open, "/dev/shm/new", O_CREAT | O_RDWR, 0600);
    IS(call(SYS_write, fd, bytes, 10), 10);
}

static void disk(void **unused)
{
    (void)unused;
    disk_limit = 1 << 20;
    ours_alone(populate_disk, fill_the_disk);
    disk_limit = 0;
    readonly_root = true;
    ours_alone(populate_disk, write_nowhere);
    readonly_root = false;
}

/* ---- walks ---- */

static void links_and_depth(void)
{
    static char name[5000], cwd[5000];
    char from[32], to[32];
    int i;

    call(SYS_mkdir, "t", 0755);
    for (i = 0; i < 41; i++) {
        snprintf(from, sizeof(from), "l%d", i);
        snprintf(to, sizeof(to), i ? "l%d" : "t", i - 1);
        call(SYS_symlink, to, from);
    }
    note("39 %lld", (long long)call(SYS_stat, "l39", &st));
    note("40 %lld", (long long)call(SYS_stat, "l40", &st));
    for (i = 0; i < 20; i++) /* 40 and 42 in one walk */
        strcat(name, "l1/../");
    note("40 on the way %lld", (long long)call(SYS_stat, name, &st));
    strcat(name, "l1");
    note("42 on the way %lld", (long long)call(SYS_stat, name, &st));
    for (i = 0; i < 1000; i++)
        if (call(SYS_mkdir, "deep", 0755) || call(SYS_chdir, "deep"))
            note("stopped at %d", i);
    note("cwd %lld", (long long)call(SYS_getcwd, cwd, sizeof(cwd)));
    for (i = 0; i < 500; i++)
        call(SYS_chdir, "..");
    note("cwd %lld", (long long)call(SYS_getcwd, cwd, sizeof(cwd)));
    memset(name, '/', sizeof(name));
    name[4094] = 't';
    name[4095] = '\0';
    note("4095 %lld", (long long)call(SYS_stat, name, &st));
    name[4095] = '/';
    name[4096] = '\0';
    note("4096 %lld", (long long)call(SYS_stat, name, &st));
}

static void chroot_holds(void)
{
    char text[300];

    call(SYS_mkdir, "/jail", 0755);
    call(SYS_mkdir, "/jail/in", 0755);
    call(SYS_symlink, "/in", "/jail/link");
    call(SYS_symlink, "../../../../jail", "/jail/out");
    note("%lld", (long long)call(SYS_chroot, "/jail"));
    note("%lld", (long long)call(SYS_chdir, "/../.."));
    note("%lld %s", (long long)call(SYS_getcwd, text, sizeof(text)), text);
    note("%lld", (long long)call(SYS_stat, "/link", &st));
    note("%lld", (long long)call(SYS_stat, "/out", &st));
    note("%lld", (long long)call(SYS_stat, "/../jail", &st));
    become(1000);
    note("%lld", (long long)call(SYS_chroot, "/in"));
}

static void size_limit(void)
{
    int64_t fd = call(SYS_open, "f", O_CREAT | O_RDWR, 0600);

    limit_size(100);
    note("%lld", (long long)call(SYS_write, fd, bytes, 60));
    note("%lld", (long long)call(SYS_write, fd, bytes, 60));
    note("%lld", (long long)call(SYS_write, fd, bytes, 60));
    note("%lld", (long long)call(SYS_ftruncate, fd, 101));
    note("%lld", (long long)call(SYS_fallocate, fd, 0, 0, 101));
    note("%lld", (long long)call(SYS_pwrite64, fd, bytes, 60, 90));
}

static void unnamed(void)
{
    int64_t fd = call(SYS_open, "/", O_TMPFILE | O_RDWR, 0640);
    int64_t shut = call(SYS_open, "/", O_TMPFILE | O_EXCL | O_RDWR, 0640);

    note("%lld", (long long)call(SYS_fstat, fd, &st));
    note("%u %o", (unsigned)st.st_nlink, st.st_mode);
    note("%lld", (long long)call(SYS_linkat, fd, "", AT_FDCWD, "named", AT_EMPTY_PATH));
    note("%lld", (long long)call(SYS_linkat, shut, "", AT_FDCWD, "never", AT_EMPTY_PATH));
    note("%lld %u", (long long)call(SYS_stat, "named", &st), (unsigned)st.st_nlink);
}

static void seals(void)
{
    int64_t fd = call(SYS_memfd_create, "x", MFD_ALLOW_SEALING),
            closed = call(SYS_memfd_create, "", 0);

    note("%lld %lld", (long long)call(SYS_fcntl, fd, F_GET_SEALS),
         (long long)call(SYS_fcntl, closed, F_GET_SEALS));
    note("%lld", (long long)call(SYS_write, fd, bytes, 100));
    note("%lld", (long long)call(SYS_fcntl, closed, F_ADD_SEALS, F_SEAL_WRITE));
    note("%lld", (long long)call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_GROW));
    note("%lld", (long long)call(SYS_write, fd, bytes, 1));
    note("%lld", (long long)call(SYS_pwrite64, fd, bytes, 100, 50));
    note("%lld", (long long)call(SYS_ftruncate, fd, 101));
    note("%lld", (long long)call(SYS_ftruncate, fd, 99));
    note("%lld", (long long)call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SHRINK));
    note("%lld", (long long)call(SYS_ftruncate, fd, 98));
    note("%lld", (long long)call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_WRITE));
    note("%lld", (long long)call(SYS_pwrite64, fd, bytes, 1, 0));
    note("%lld", (long long)call(SYS_fallocate, fd, 3, 0, 10));
    note("%lld", (long long)call(SYS_pread64, fd, bytes, 200, 0));
    note("%lld", (long long)call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_SEAL));
    note("%lld", (long long)call(SYS_fcntl, fd, F_ADD_SEALS, F_SEAL_GROW));
    note("%lld", (long long)call(SYS_fcntl, fd, F_GET_SEALS));
}

static void descriptors(void)
{
    int64_t fd = call(SYS_open, "/", O_RDONLY), i = 0;

    limit_files(500);
    while (call(SYS_dup, fd) >= 0)
        i++;
    note("%lld %lld", (long long)call(SYS_dup, fd), (long long)call(SYS_dup2, fd, 500));
    note("%lld %lld", (long long)i, (long long)call(SYS_close, 77));
    note("%lld", (long long)call(SYS_dup, fd));
    note("%lld", (long long)call(SYS_close_range, 5, 300, 0));
    note("%lld %lld", (long long)call(SYS_dup, fd), (long long)call(SYS_fcntl, fd, F_DUPFD, 300));
}

static void many_descriptors(void)
{
    struct fdtable *copy;
    int64_t fd = call(SYS_open, "/", O_RDONLY), i;

    limit_files(70000);
    for (i = 4; i < 70000; i++)
        IS(call(SYS_dup, fd), i);
    IS(call(SYS_dup, fd), -EMFILE);
    IS(call(SYS_close, 65537), 0);
    IS(fdtable_fork(current->files, &copy), 0);
    IS(fdtable_next(copy, 65536, NULL, NULL), 65536);
    IS(fdtable_next(copy, 65537, NULL, NULL), 65538);
    fdtable_put(copy);
    IS(call(SYS_close_range, 4, ~0u, 0), 0);
    IS(call(SYS_dup, fd), 4);
}

static void on_both(void **unused)
{
    (void)unused;
    both(NULL, links_and_depth);
    both(NULL, chroot_holds);
    both(NULL, size_limit);
    both(NULL, unnamed);
    both(NULL, seals);
    both(NULL, descriptors);
}

/* ---- locks that wait ---- */

static struct flock range_lock(short type, int64_t start)
{
    return (struct flock){.l_type = type, .l_start = start, .l_len = 1};
}

static struct task *second;
static int64_t second_result = 1;
static bool second_runs; /* seen with the kernel's lock: it waits, or is done */

static void *second_task(void *fd)
{
    struct flock lock = range_lock(F_WRLCK, 1);

    kernel_lock();
    current = second;
    second_runs = true;
    second_result = call(SYS_fcntl, (intptr_t)fd, F_SETLKW, &lock);
    kernel_unlock();
    return NULL;
}

static void locks_that_wait(void)
{
    int64_t fd = call(SYS_open, "f", O_CREAT | O_RDWR, 0600);
    struct task *first = current;
    struct process *process = arena_alloc(ARENA_PROCESS, sizeof(*process));
    struct flock lock = range_lock(F_WRLCK, 1);
    pthread_t thread;

    second = arena_alloc(ARENA_TASK, sizeof(*second));
    *second = *first;
    *process = *first->process;
    process->pid = 77;
    second->process = process;
    IS(fdtable_fork(first->files, &second->files), 0);
    IS(call(SYS_fcntl, fd, F_SETLK, &lock), 0);
    current = second;
    lock = range_lock(F_WRLCK, 2);
    IS(call(SYS_fcntl, fd, F_SETLK, &lock), 0);
    lock = range_lock(F_WRLCK, 1);
    IS(call(SYS_fcntl, fd, F_SETLK, &lock), -EAGAIN);
    current = first;
    lock = range_lock(F_RDLCK, 2);
    IS(call(SYS_fcntl, fd, F_GETLK, &lock), 0);
    IS(lock.l_pid, 77);
    IS(lock.l_type, F_WRLCK);
    kernel_unlock();
    IS(pthread_create(&thread, NULL, second_task, (void *)(intptr_t)fd), 0);
    for (kernel_lock(); !second_runs; kernel_lock()) {
        kernel_unlock();
        usleep(1000);
    }
    current = first;
    IS(second_result, 1); /* it waits for us: now we must not wait for it */
    lock = range_lock(F_WRLCK, 2);
    IS(call(SYS_fcntl, fd, F_SETLKW, &lock), -EDEADLK);
    IS(call(SYS_close, call(SYS_dup, fd)),
       0); /* any descriptor of it that is closed takes them all */
    kernel_unlock();
    pthread_join(thread, NULL);
    kernel_lock();
    current = first;
    IS(second_result, 0);
    fdtable_put(second->files);
    lock = range_lock(F_WRLCK, 1);
    IS(call(SYS_fcntl, fd, F_SETLK, &lock), 0);
}

static void locks(void **unused)
{
    (void)unused;
    ours_alone(NULL, locks_that_wait);
}

/* ---- mounts, programs that run, nothing left behind ---- */

static void mounts(void)
{
    int64_t fd, n;
    uint64_t device;

    call(SYS_mkdir, "/m", 0755);
    call(SYS_mkdir, "/m/under", 0755);
    IS(call(SYS_mount, "none", "/m", "tmpfs", MS_NOSUID, "size=64k,mode=700"), 0);
    IS(call(SYS_stat, "/m", &st), 0);
    IS(st.st_mode & 07777, 0700);
    device = st.st_dev;
    IS(call(SYS_stat, "/m/..", &st), 0);
    IS(st.st_dev != device, 1);
    IS(call(SYS_stat, "/m/under", &st), -ENOENT);
    fd = call(SYS_open, "/m/f", O_CREAT | O_RDWR, 0600);
    n = call(SYS_write, fd, bytes, sizeof(bytes));
    IS(n, 65536);
    IS(call(SYS_rename, "/m/f", "/f"), -EXDEV);
    IS(call(SYS_link, "/m/f", "/f"), -EXDEV);
    IS(call(SYS_umount2, "/m", 0), -EBUSY);
    IS(call(SYS_rmdir, "/m"), -EBUSY);
    IS(call(SYS_close, fd), 0);
    call(SYS_mkdir, "/bound", 0755);
    IS(call(SYS_mount, "/m", "/bound", "", MS_BIND, NULL), 0);
    IS(call(SYS_stat, "/bound/f", &st), 0);
    IS(st.st_dev, device);
    IS(call(SYS_mount, "", "/bound", "", MS_REMOUNT | MS_BIND | MS_RDONLY, NULL), 0);
    IS(call(SYS_unlink, "/bound/f"), -EROFS);
    IS(call(SYS_unlink, "/m/f"), 0);
    IS(call(SYS_umount2, "/bound", 0), 0);
    IS(call(SYS_umount2, "/m", 0), 0);
    IS(call(SYS_stat, "/m/under", &st), 0);
    IS(call(SYS_mount, "/dev/sda", "/m", "ext4", 0, NULL), -EPERM);
    IS(call(SYS_umount2, "/", 0), -EPERM);
    become(1000);
    IS(call(SYS_mount, "none", "/m", "tmpfs", 0, NULL), -EPERM);
    IS(call(SYS_umount2, "/m", 0), -EPERM);
}

/* Names, links' texts and attributes are memory of the sentry's own. */
static void names_are_bounded(void)
{
    static char target[4000], name[32];
    struct statfs fs;
    int64_t n = 0, i;

    memset(target, 't', sizeof(target) - 1);
    call(SYS_mkdir, "/m", 0755);
    IS(call(SYS_mount, "none", "/m", "tmpfs", 0, NULL), 0);
    IS(call(SYS_statfs, "/m", &fs), 0);
    call(SYS_close, call(SYS_open, "/m/f", O_CREAT | O_RDWR, 0600));
    for (i = 0; i < 100000 && n == 0; i++) {
        snprintf(name, sizeof(name), "/m/%lld", (long long)i);
        n = call(SYS_link, "/m/f", name);
    }
    IS(n, -ENOSPC);
    IS(i, (int64_t)fs.f_files);
    IS(call(SYS_open, "/m/new", O_CREAT | O_RDWR, 0600), -ENOSPC);
    IS(call(SYS_unlink, "/m/7"), 0);
    IS(call(SYS_mkdir, "/m/new", 0700), 0);
    for (i--; i >= 0; i--) {
        snprintf(name, sizeof(name), "/m/%lld", (long long)i);
        call(SYS_unlink, name);
    }
    for (i = 0, n = 0; i < 100000 && n == 0; i++) {
        snprintf(name, sizeof(name), "/m/%lld", (long long)i);
        n = call(SYS_symlink, target, name);
    }
    IS(n, -ENOSPC);
    IS(i < 1000, 1);
    IS(call(SYS_setxattr, "/m", "user.k", bytes, 4000, 0), -ENOSPC);
    IS(call(SYS_unlink, "/m/0"), 0);
    IS(call(SYS_setxattr, "/m", "user.k", bytes, 3000, 0), 0);
}

static void busy_programs(void)
{
    int64_t fd = call(SYS_open, "p", O_CREAT | O_RDWR, 0755);
    struct path path;

    IS(path_lookup(AT_FDCWD, "p", 0, &path), 0);
    IS(path.dentry->inode->n_writers, 1);
    IS(call(SYS_close, fd), 0);
    IS(path.dentry->inode->n_writers, 0);
    path.dentry->inode->n_exec++;
    IS(call(SYS_open, "p", O_RDWR), -ETXTBSY);
    IS(call(SYS_open, "p", O_RDONLY | O_TRUNC), -ETXTBSY);
    IS(call(SYS_truncate, "p", 0), -ETXTBSY);
    path.dentry->inode->n_exec--;
    IS(call(SYS_open, "p", O_RDWR), fd);
    path_put(&path);
    IS(call(SYS_mknod, "/disk", S_IFBLK | 0600, 0x800), -EPERM); /* no such device here */
    IS(call(SYS_mknod, "/null", S_IFCHR | 0600, 0x103), 0);
    become(1000);
    IS(call(SYS_mknod, "/dev/shm/null", S_IFCHR | 0600, 0x103), -ENOENT);
    become(0);
    IS(call(SYS_mkdir, "/open", 0777), 0);
    IS(call(SYS_chmod, "/open", 0777), 0);
    become(1000);
    IS(call(SYS_mknod, "/open/null", S_IFCHR | 0600, 0x103), -EPERM);
}

static void some_life(void)
{
    int64_t fd;

    call(SYS_mkdir, "d", 0755);
    fd = call(SYS_open, "d/f", O_CREAT | O_RDWR, 0600);
    call(SYS_write, fd, bytes, 70000);
    call(SYS_setxattr, "d/f", "user.k", "v", 1, 0);
    call(SYS_flock, fd, 2);
    call(SYS_link, "d/f", "d/g");
    call(SYS_rename, "d/g", "d/h");
    call(SYS_symlink, "h", "d/l");
    call(SYS_renameat2, AT_FDCWD, "d/l", AT_FDCWD, "d/h", 2);
    call(SYS_stat, "d/none", &st);
    call(SYS_unlink, "d/f");
    call(SYS_unlink, "d/h");
    call(SYS_unlink, "d/l");
    call(SYS_rmdir, "d");
    call(SYS_close, fd);
    call(SYS_close, call(SYS_memfd_create, "m", 0));
    call(SYS_close, call(SYS_open, "/", O_TMPFILE | O_RDWR, 0600));
}

static void nothing_left(void)
{
    static const enum arena_kind kinds[] = {ARENA_INODE, ARENA_DENTRY, ARENA_FILE, ARENA_OBJECT,
                                            ARENA_LOCKF};
    uint64_t before[5];
    size_t i;

    some_life(); /* what is made once and stays */
    for (i = 0; i < 5; i++)
        before[i] = arena_count(kinds[i]);
    some_life();
    some_life();
    for (i = 0; i < 5; i++)
        IS(arena_count(kinds[i]), before[i]);
    IS(fs_disk_used(), 0);
}

static void the_rest(void **unused)
{
    (void)unused;
    ours_alone(NULL, mounts);
    ours_alone(NULL, names_are_bounded);
    ours_alone(NULL, busy_programs);
    ours_alone(NULL, many_descriptors);
    ours_alone(NULL, nothing_left);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(big_directories),
        cmocka_unit_test(one_file_with_names),
        cmocka_unit_test(disk),
        cmocka_unit_test(on_both),
        cmocka_unit_test(locks),
        cmocka_unit_test(the_rest),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
