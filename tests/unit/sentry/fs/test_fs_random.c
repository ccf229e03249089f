/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Calls about files at random, by a seed, on the host's tmpfs and on ours: every result, every attribute, the whole tree at
 * the end. FS_TEST_SEED=n runs one, FS_TEST_RUNS=n as many.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs_world.h"

#define OPERATIONS 400

static uint64_t seed, state;

static uint32_t pick(uint32_t n)
{
    uint64_t z = state += 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ z >> 31) % n);
}

static uint32_t one_of(const uint32_t *list, uint32_t n)
{
    return list[pick(n)];
}
#define ONE_OF(...)                                                                                \
    one_of((const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

/* ---- names ---- */

static const char *parts[] = {"a", "b", "c", "d", "l", "f", "..", ".", "dir", "sub", "ro", "x"};

static const char *name_to(char *to)
{
    uint32_t n = 1 + pick(3), i;

    *to = '\0';
    if (!pick(60))
        return strcpy(to, "");
    if (!pick(60))
        return strcpy(to, "/");
    if (!pick(4))
        strcat(to, "/");
    for (i = 0; i < n; i++) {
        if (i)
            strcat(to, pick(20) ? "/" : "//");
        strcat(to, parts[pick(sizeof(parts) / sizeof(parts[0]))]);
    }
    if (!pick(12))
        strcat(to, "/");
    if (!pick(200)) {
        memset(to, 'n', 256);
        to[256] = '\0';
    }
    return to;
}

static char name1[600], name2[600];
static const char *name(void)
{
    note(" %s", name_to(name1));
    return name1;
}

static const char *other_name(void)
{
    note(" %s", name_to(name2));
    return name2;
}

static int fd(void)
{
    int n = pick(15) ? (int)(3 + pick(8)) : (int)pick(3) - 1;

    note(" fd %d", n);
    return n;
}

static int at(void)
{
    return pick(3) ? AT_FDCWD : fd();
}

static uint32_t mode(void)
{
    return ONE_OF(0, 0600, 0644, 0755, 0777, 04755, 02755, 01777, 0400, 0200, 0111, 06777, 0070,
                  0007);
}

/* ---- what was seen ---- */

static struct stat seen;

static void note_stat(int64_t r)
{
    if (r)
        note("%lld", (long long)r);
    else
        note("%o %u %u:%u %lld %llx %lld %d%d", seen.st_mode, (unsigned)seen.st_nlink, seen.st_uid,
             seen.st_gid, (long long)seen.st_size, (unsigned long long)seen.st_rdev,
             (long long)seen.st_blksize, seen.st_mtim.tv_sec == 1000 || seen.st_mtim.tv_sec == 77,
             seen.st_atim.tv_sec == 1000 || seen.st_atim.tv_sec == 77);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void note_entries(int directory)
{
    static char bytes[1 << 16];
    char *names[2000], *text;
    int64_t got, i;
    unsigned n = 0, j;

    call(SYS_lseek, directory, 0, SEEK_SET);
    while ((got = call(SYS_getdents64, directory, bytes, 100 + pick(1000))) > 0)
        for (i = 0; i < got; i += *(uint16_t *)(bytes + i + 16)) {
            if (n == 2000 || asprintf(&text, "%s(%d)", bytes + i + 19, bytes[i + 18]) < 0)
                abort();
            names[n++] = text;
        }
    qsort(names, n, sizeof(*names), compare_names);
    for (j = 0; j < n; j++) {
        note(" %s", names[j]);
        free(names[j]);
    }
    note("%lld %u", (long long)got, n);
}

static char data[70000];

static void note_data(const char *what, int64_t r)
{
    note("%s %lld %llx", what, (long long)r,
         r > 0 ? (unsigned long long)hash_bytes(data, (size_t)r) : 0ull);
}

static void fill(void)
{
    memset(data, 'a' + (int)pick(26), sizeof(data));
    data[pick(1000)] = '!';
}

/* ---- operations ---- */

static void op_open(void)
{
    uint32_t flags = ONE_OF(O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_CREAT,
                            O_RDWR | O_CREAT | O_EXCL, O_WRONLY | O_TRUNC, O_RDWR | O_APPEND,
                            O_DIRECTORY, O_PATH, O_PATH | O_NOFOLLOW, O_NOFOLLOW,
                            O_CREAT | O_TRUNC | O_RDWR, O_CREAT | O_DIRECTORY, O_RDWR | O_DIRECTORY,
                            O_TMPFILE | O_RDWR, O_CREAT | O_NOFOLLOW | O_WRONLY, O_TRUNC, O_CREAT,
                            3, O_PATH | O_DIRECTORY, O_RDONLY | O_NOATIME);

    note("openat %x = %lld", flags,
         (long long)call(SYS_openat, at(), name(), flags | O_NONBLOCK, mode()));
}

static void op_openat2(void)
{
    struct {
        uint64_t flags, mode, resolve;
    } how = {ONE_OF(O_RDONLY, O_RDWR, O_RDWR | O_CREAT, O_PATH) | O_NONBLOCK, 0,
             ONE_OF(0, 1, 2, 4, 8, 16, 8, 16, 4, 9, 20)};

    if (how.flags & O_PATH)
        how.flags = O_PATH;
    if (how.flags & O_CREAT)
        how.mode = 0644;
    note("openat2 %x %x = %lld", (unsigned)how.flags, (unsigned)how.resolve,
         (long long)call(SYS_openat2, at(), name(), &how, sizeof(how)));
}

static void op_close(void)
{
    note("close = %lld", (long long)call(SYS_close, 3 + pick(8)));
}

static void op_read(void)
{
    uint64_t n = ONE_OF(0, 1, 10, 4096, 5000, 70000);

    if (pick(2))
        note_data("read", call(SYS_read, fd(), data, n));
    else
        note_data("pread", call(SYS_pread64, fd(), data, n, ONE_OF(0, 5, 4095, 4096, 100000)));
}

static void op_write(void)
{
    uint64_t n = ONE_OF(0, 1, 10, 4096, 5000, 70000);

    fill();
    if (pick(2))
        note("write = %lld", (long long)call(SYS_write, fd(), data, n));
    else
        note("pwrite = %lld", (long long)call(SYS_pwrite64, fd(), data, n,
                                              (int64_t)ONE_OF(0, 5, 4095, 4096, 100000)));
}

static void op_vectors(void)
{
    struct iovec v[3] = {{data, 10}, {data + 100, 5000}, {data + 9000, pick(100)}};
    int64_t offset = (int64_t)ONE_OF(0, 100, 9000) - (pick(3) == 0);

    fill();
    switch (pick(5)) {
    case 0:
        note("writev = %lld", (long long)call(SYS_writev, fd(), v, 1 + pick(3)));
        break;
    case 1:
        note_data("readv", call(SYS_readv, fd(), v, 1 + pick(3)) > 0 ? 15000 : 0);
        break;
    case 2:
        note("pwritev2 = %lld",
             (long long)call(SYS_pwritev2, fd(), v, 2, offset, 0, ONE_OF(0, 0, 2, 4, 16, 16)));
        break;
    case 3:
        note("preadv2 = %lld",
             (long long)call(SYS_preadv2, fd(), v, 2, offset, 0, ONE_OF(0, 2, 4, 64)));
        break;
    default:
        note("readv bad = %lld", (long long)call(SYS_readv, fd(), v, ONE_OF(0, 1025)));
    }
}

static void op_seek(void)
{
    int f = fd(), whence = (int)ONE_OF(0, 1, 2, 5);
    int64_t offset = (int64_t)ONE_OF(0, 1, 10, 4096, 8192, 100000) - (pick(4) ? 0 : 20);

    memset(&seen, 0, sizeof(seen));
    call(SYS_fstat, f, &seen);
    if (S_ISDIR(seen.st_mode))
        return; /* positions in directories are a file system's own */
    note("lseek %d = %lld", whence, (long long)call(SYS_lseek, f, offset, whence));
}

static void op_names(void)
{
    switch (pick(6)) {
    case 0:
        note("mkdir = %lld", (long long)call(SYS_mkdirat, at(), name(), mode()));
        break;
    case 1:
        note("rmdir = %lld", (long long)call(SYS_rmdir, name()));
        break;
    case 2:
        note("unlink = %lld", (long long)call(SYS_unlink, name()));
        break;
    case 3:
        note("unlinkat = %lld",
             (long long)call(SYS_unlinkat, at(), name(), ONE_OF(0, AT_REMOVEDIR, 1)));
        break;
    case 4:
        note("symlink = %lld", (long long)call(SYS_symlinkat, other_name(), at(), name()));
        break;
    default:
        note("mknod = %lld",
             (long long)call(
                 SYS_mknod, name(),
                 mode() | ONE_OF(0, S_IFREG, S_IFIFO, S_IFSOCK, S_IFDIR, S_IFLNK, S_IFCHR), 0));
    }
}

static void op_rename(void)
{
    if (pick(2))
        note("rename = %lld", (long long)call(SYS_rename, name(), other_name()));
    else
        note("renameat2 = %lld", (long long)call(SYS_renameat2, at(), name(), at(), other_name(),
                                                 ONE_OF(0, 1, 2, 2, 3, 8)));
}

static void op_link(void)
{
    if (pick(2))
        note("link = %lld", (long long)call(SYS_link, name(), other_name()));
    else
        note("linkat = %lld",
             (long long)call(SYS_linkat, at(), pick(4) ? name() : "", at(), other_name(),
                             ONE_OF(0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, AT_EMPTY_PATH, 1)));
}

static void op_stat(void)
{
    memset(&seen, 0, sizeof(seen));
    switch (pick(4)) {
    case 0:
        note_stat(call(SYS_stat, name(), &seen));
        break;
    case 1:
        note_stat(call(SYS_lstat, name(), &seen));
        break;
    case 2:
        note_stat(call(SYS_fstat, fd(), &seen));
        break;
    default:
        note_stat(call(SYS_newfstatat, at(), pick(3) ? name() : "", &seen,
                       ONE_OF(0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1)));
    }
}

static void op_statx(void)
{
    struct statx x;
    int64_t r = call(SYS_statx, at(), pick(3) ? name() : "",
                     ONE_OF(0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 0x6000, 1), 0x7ff, &x);

    if (r)
        note("statx = %lld", (long long)r);
    else
        note("statx %o %u %u:%u %llu %u", x.stx_mode, x.stx_nlink, x.stx_uid, x.stx_gid,
             (unsigned long long)x.stx_size, x.stx_rdev_minor);
}

static void op_access(void)
{
    if (pick(2))
        note("access = %lld", (long long)call(SYS_access, name(), pick(9)));
    else
        note("faccessat2 = %lld",
             (long long)call(SYS_faccessat2, at(), name(), pick(8),
                             ONE_OF(0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1)));
}

static void op_chmod(void)
{
    if (pick(2))
        note("chmod = %lld", (long long)call(SYS_fchmodat, at(), name(), mode()));
    else
        note("fchmod = %lld", (long long)call(SYS_fchmod, fd(), mode()));
}

static void op_chown(void)
{
    uint32_t uid = ONE_OF(0, 1000, 1001, UINT32_MAX), gid = ONE_OF(0, 1000, 1001, UINT32_MAX);

    if (pick(3))
        note("fchownat = %lld", (long long)call(SYS_fchownat, at(), name(), uid, gid,
                                                ONE_OF(0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, 1)));
    else
        note("fchown = %lld", (long long)call(SYS_fchown, fd(), uid, gid));
}

static void op_truncate(void)
{
    int64_t size = (int64_t)ONE_OF(0, 1, 100, 4096, 5000, 200000) - (pick(10) == 0);

    if (pick(2))
        note("truncate = %lld", (long long)call(SYS_truncate, name(), size));
    else
        note("ftruncate = %lld", (long long)call(SYS_ftruncate, fd(), size));
}

static void op_entries(void)
{
    note_entries(fd());
}

static void op_where(void)
{
    char buffer[600] = "";
    int64_t r;

    switch (pick(4)) {
    case 0:
        note("chdir = %lld", (long long)call(SYS_chdir, name()));
        break;
    case 1:
        note("fchdir = %lld", (long long)call(SYS_fchdir, fd()));
        break;
    case 2:
        note("umask = %lld", (long long)call(SYS_umask, ONE_OF(0, 022, 077, 0777)));
        break;
    default:
        r = call(SYS_getcwd, buffer, ONE_OF(0, 2, 600, 600, 600));
        note("getcwd = %lld %s", (long long)r, buffer);
    }
}

static void op_readlink(void)
{
    char buffer[600] = "";
    int64_t r = call(SYS_readlinkat, at(), pick(5) ? name() : "", buffer, ONE_OF(0, 1, 600, 600));

    note("readlink = %lld %s", (long long)r, buffer);
}

static void op_times(void)
{
    struct timespec t[2] = {{1000, 5}, {1000, 6}};

    if (!pick(3))
        t[0].tv_nsec = (long)ONE_OF(UTIME_NOW, UTIME_OMIT, 1000000000);
    if (!pick(3))
        t[1].tv_nsec = (long)ONE_OF(UTIME_NOW, UTIME_OMIT);
    switch (pick(3)) {
    case 0:
        note("utimensat = %lld", (long long)call(SYS_utimensat, at(), name(), pick(3) ? t : NULL,
                                                 ONE_OF(0, AT_SYMLINK_NOFOLLOW, 1)));
        break;
    case 1:
        note("futimens = %lld", (long long)call(SYS_utimensat, fd(), NULL, pick(3) ? t : NULL,
                                                ONE_OF(0, 0, AT_SYMLINK_NOFOLLOW)));
        break;
    default:
        t[0] = t[1] = (struct timespec){77, 77};
        note("utimes = %lld", (long long)call(SYS_utimes, name(), pick(3) ? t : NULL));
    }
}

static void op_dup(void)
{
    switch (pick(5)) {
    case 0:
        note("dup = %lld", (long long)call(SYS_dup, fd()));
        break;
    case 1:
        note("dup2 = %lld", (long long)call(SYS_dup2, fd(), 3 + pick(10)));
        break;
    case 2:
        note("dup3 = %lld", (long long)call(SYS_dup3, fd(), 3 + pick(10), ONE_OF(0, O_CLOEXEC, 1)));
        break;
    case 3:
        note("dupfd = %lld", (long long)call(SYS_fcntl, fd(), F_DUPFD, pick(15)));
        break;
    default:
        note("close_range = %lld",
             (long long)call(SYS_close_range, 3 + pick(9), 3 + pick(9), ONE_OF(0, 4, 4, 16)));
    }
}

static void op_fcntl(void)
{
    uint32_t flags;
    int f;

    switch (pick(5)) {
    case 0:
        note("getfl = %llx", (unsigned long long)call(SYS_fcntl, fd(), F_GETFL));
        break;
    case 1:
        flags = ONE_OF(0, O_APPEND, O_NONBLOCK, O_NOATIME);
        f = fd();
        memset(&seen, 0, sizeof(seen));
        call(SYS_fstat, f, &seen);
        if (S_ISFIFO(seen.st_mode))
            flags |= O_NONBLOCK; /* nobody would end the wait */
        note("setfl = %lld", (long long)call(SYS_fcntl, f, F_SETFL, flags));
        break;
    case 2:
        note("getfd = %lld", (long long)call(SYS_fcntl, fd(), F_GETFD));
        break;
    case 3:
        note("setfd = %lld", (long long)call(SYS_fcntl, fd(), F_SETFD, pick(2)));
        break;
    default:
        note("fcntl = %lld", (long long)call(SYS_fcntl, fd(), ONE_OF(999, F_GETSIG, F_GETOWN), 0));
    }
}

static void op_lock(void)
{
    struct flock lock = {.l_type = (short)ONE_OF(F_RDLCK, F_WRLCK, F_UNLCK),
                         .l_whence = (short)ONE_OF(0, 0, 1, 2, 7),
                         .l_start = (int)pick(20),
                         .l_len = (int)pick(12) - 2};
    int command = (int)ONE_OF(F_SETLK, F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_SETLK, F_OFD_GETLK);
    int64_t r;
    int f;

    if (!pick(4)) {
        note("flock = %lld",
             (long long)call(SYS_flock, fd(), ONE_OF(LOCK_SH, LOCK_EX, LOCK_UN, 3) | LOCK_NB));
        return;
    }
    f = fd();
    memset(&seen, 0, sizeof(seen));
    call(SYS_fstat, f, &seen);
    if (S_ISDIR(seen.st_mode) && lock.l_whence == SEEK_CUR)
        return; /* see op_seek */
    r = call(SYS_fcntl, f, command, &lock);
    note("lock %d = %lld %d %d %lld %lld %d", command, (long long)r, lock.l_type, lock.l_whence,
         (long long)lock.l_start, (long long)lock.l_len, lock.l_pid > 0);
}

static void op_allocate(void)
{
    note("fallocate = %lld",
         (long long)call(SYS_fallocate, fd(), ONE_OF(0, 1, 3, 0x20, 2, 8),
                         (int64_t)ONE_OF(0, 100, 4096, 5000), (int64_t)ONE_OF(1, 4096, 10000, 0)));
}

static void op_xattr(void)
{
    const char *key = pick(4) ? "user.k" : pick(2) ? "trusted.k" : pick(2) ? "security.k" : "what";
    char value[64] = "";
    int64_t r;

    switch (pick(5)) {
    case 0:
        note("setxattr = %lld", (long long)call(SYS_setxattr, name(), key, "value", pick(6),
                                                ONE_OF(0, 0, 1, 2, 3, 4)));
        break;
    case 1:
        r = call(SYS_lgetxattr, name(), key, value, ONE_OF(0, 1, 64, 64));
        note("getxattr = %lld %s", (long long)r, value);
        break;
    case 2:
        r = call(SYS_listxattr, name(), value, ONE_OF(0, 64));
        note("listxattr = %lld", (long long)r);
        break;
    case 3:
        note("fsetxattr = %lld", (long long)call(SYS_fsetxattr, fd(), key, "abc", 3, 0));
        break;
    default:
        note("removexattr = %lld", (long long)call(SYS_lremovexattr, name(), key));
    }
}

static void op_copy(void)
{
    int64_t in = (int64_t)pick(3000), out = (int64_t)pick(3000);
    bool use_in = pick(2), use_out = pick(2);
    int64_t r;

    if (pick(2)) {
        int to = fd(), from = fd();
        struct stat a = {0}, b = {0};

        if (!call(SYS_fstat, to, &a) && !call(SYS_fstat, from, &b) && a.st_ino == b.st_ino &&
            a.st_dev == b.st_dev)
            return; /* how far a file runs after its own end is an accident */
        r = call(SYS_sendfile, to, from, use_in ? &in : NULL, ONE_OF(0, 100, 70000));
        note("sendfile = %lld %lld", (long long)r, use_in ? (long long)in : 0);
    } else {
        r = call(SYS_copy_file_range, fd(), use_in ? &in : NULL, fd(), use_out ? &out : NULL,
                 ONE_OF(0, 100, 70000), pick(30) == 0);
        note("copy_file_range = %lld %lld %lld", (long long)r, use_in ? (long long)in : 0,
             use_out ? (long long)out : 0);
    }
}

static void op_become(void)
{
    uint32_t uid = ONE_OF(0, 0, 1000, 1001);

    become(uid);
    note("become %u", uid);
}

static void op_sync(void)
{
    switch (pick(5)) {
    case 0:
        note("fsync = %lld", (long long)call(SYS_fsync, fd()));
        break;
    case 1:
        note("fadvise = %lld", (long long)call(SYS_fadvise64, fd(), 0, 0, pick(7)));
        break;
    case 2:
        note("readahead = %lld", (long long)call(SYS_readahead, fd(), 0, 4096));
        break;
    case 3:
        note("ioctl = %lld",
             (long long)call(SYS_ioctl, fd(), ONE_OF(0x5451, 0x5450, 0x5401, 0x1234), 0));
        break;
    default:
        note("sync_file_range = %lld", (long long)call(SYS_sync_file_range, fd(), 0, 10, pick(9)));
    }
}

static void op_bad(void)
{
    int f;

    switch (pick(6)) {
    case 0:
        note("bad open = %lld", (long long)call(SYS_openat, AT_FDCWD, 8, O_RDWR, 0));
        break;
    case 1:
        note("bad stat = %lld", (long long)call(SYS_stat, name(), 16));
        break;
    case 2:
        note("bad read = %lld", (long long)call(SYS_read, fd(), 24, 10));
        break;
    case 3:
        f = fd();
        call(SYS_lseek, f, 0, SEEK_SET); /* past the end the host's tmpfs grows all the same */
        note("bad write = %lld", (long long)call(SYS_write, f, 24, 10));
        break;
    case 4:
        f = fd();
        call(SYS_lseek, f, 0,
             SEEK_SET); /* the host's tmpfs shows a reader at the end no newer name */
        note("bad getdents = %lld", (long long)call(SYS_getdents64, f, 24, 1000));
        break;
    default:
        note("bad readlink = %lld", (long long)call(SYS_readlink, name(), 24, 100));
    }
}

static void (*const operations[])(void) = {
    op_open,     op_open,    op_open,     op_open,  op_openat2, op_close, op_read,   op_write,
    op_write,    op_vectors, op_seek,     op_names, op_names,   op_names, op_rename, op_rename,
    op_link,     op_stat,    op_stat,     op_statx, op_access,  op_chmod, op_chown,  op_truncate,
    op_entries,  op_where,   op_readlink, op_times, op_dup,     op_fcntl, op_lock,   op_lock,
    op_allocate, op_xattr,   op_xattr,    op_copy,  op_become,  op_sync,  op_bad};

/* What the descriptors are now: one line. */
static void note_descriptors(void)
{
    char line[600];
    size_t n = 0;
    int f;

    for (f = 3; f < 11; f++) {
        memset(&seen, 0, sizeof(seen));
        if (call(SYS_fstat, f, &seen))
            continue;
        n += (size_t)snprintf(line + n, sizeof(line) - n, " %d:%o/%lld", f, seen.st_mode >> 12,
                              (long long)seen.st_size);
        if (S_ISREG(seen.st_mode))
            n += (size_t)snprintf(line + n, sizeof(line) - n, "@%lld",
                                  (long long)call(SYS_lseek, f, 0, SEEK_CUR));
    }
    memset(&seen, 0, sizeof(seen));
    call(SYS_stat, "/", &seen);
    note("%.*s %lld", (int)n, line, (long long)seen.st_size);
}

static void run(void)
{
    unsigned i;

    state = seed * 7919 + 1;
    for (i = 0; i < OPERATIONS; i++) {
        uint32_t n = pick(sizeof(operations) / sizeof(operations[0]));

        note("#%u", i);
        operations[n]();
        note_descriptors();
    }
    dump_tree();
}

/* ---- the tree it begins with ---- */

static void file_of(const char *path, size_t size, mode_t permissions)
{
    int f = open(path, O_CREAT | O_WRONLY, 0600);
    char *bytes = malloc(size + 1);

    memset(bytes, 'p', size + 1);
    if (f < 0 || write(f, bytes, size) != (ssize_t)size || fchmod(f, permissions))
        abort();
    close(f);
    free(bytes);
}

static void populate(void)
{
    int ok = mkdir("a", 0755) | mkdir("a/b", 0755) | mkdir("a/dir", 0777) | mkdir("dir", 01777) |
             mkdir("dir/sub", 0700) | mkdir("ro", 0555) | mkdir("d", 0) | mkdir("x", 02775);

    file_of("f", 5000, 0644);
    file_of("a/f", 100, 0600);
    file_of("a/b/f", 70000, 0666);
    file_of("dir/sub/f", 0, 04755);
    file_of("ro/f", 10, 0444);
    ok |= link("a/f", "dir/f") | link("a/f", "dir/x") | symlink("a/b", "l") |
          symlink("../f", "a/l") | symlink("/dir/sub", "dir/l") | symlink("l", "a/b/l") |
          symlink("loop", "loop") | symlink("nothing", "ro/l") | mkfifo("c", 0666) |
          chown("x", 1000, 1000) | chown("dir/sub", 1000, 1000) | chown("a/b/f", 1000, 0) |
          setxattr("f", "user.k", "image", 5, 0);
    if (ok)
        abort();
}

static void one_seed(scenario with, uint64_t n)
{
    seed = n;
    if (differs(with, run)) {
        print_error("seed %llu, %s\n", (unsigned long long)n, with ? "image" : "empty");
        fail();
    }
}

/* Seeds that have found something. */
static const uint64_t found[] = {1018, 1192, 1195, 1290, 2014};

static void many(scenario with)
{
    const char *given = getenv("FS_TEST_SEED"), *runs = getenv("FS_TEST_RUNS");
    uint64_t n;

    if (given) {
        one_seed(with, strtoull(given, NULL, 10));
        return;
    }
    for (n = 0; n < sizeof(found) / sizeof(found[0]); n++)
        one_seed(with, found[n]);
    for (n = 1; n <= (runs ? strtoull(runs, NULL, 10) : 25); n++)
        one_seed(with, n);
}

static void over_an_image(void **unused)
{
    (void)unused;
    many(populate);
}

static void in_memory_alone(void **unused)
{
    (void)unused;
    many(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory_alone),
        cmocka_unit_test(over_an_image),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
