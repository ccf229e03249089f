/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * file - put, get, list, stat inside the cell, and the worker of these and of what changes names (file_change.c).
 *
 * Why a forked worker for each: a file system can be slow, a tree deep, a file huge; PID 1 must
 * never wait for one. The worker holds one socket to the agent and, for content, one pipe; it can
 * be killed at any moment. Paths are the host's, absolute, at most PATH_MAX_ bytes, and are
 * resolved in the cell, links in the directories followed: they can reach nothing that is not in
 * the cell. What is replaced, removed or described is the last component itself, never what a link
 * there points to; GET alone follows it, like `cat`. Only regular files are opened for reading, so
 * a FIFO or device cannot hold a worker. Threads: one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "agent.h"
#include "file.h"

#define PATH_MAX_ 4095u
#define DATA_FD 4

static char copy_buf[65536]; /* touched in workers only */

_Noreturn void job_fail(int err, const char *step, const char *path)
{
    char msg[512] = "";

    text_add(msg, sizeof(msg), step);
    text_add(msg, sizeof(msg), " ");
    text_add(msg, 400, path);
    text_add(msg, sizeof(msg), ": ");
    text_add(msg, sizeof(msg), strerror(err));
    report_error(LINK_FD, err, msg);
    _exit(0);
}

_Noreturn void job_done(const struct fields *f)
{
    static const struct fields none;

    report_send(LINK_FD, CELLA_FRAME_RESULT, f ? f : &none);
    _exit(0);
}

static int write_full(int fd, const void *buf, size_t n)
{
    const char *p = buf;

    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return -errno;
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int open_parent(char *path, char **ret_name)
{
    char *slash = strrchr(path, '/');
    int fd;

    *ret_name = slash + 1;
    if (!**ret_name || strcmp(*ret_name, ".") == 0 || strcmp(*ret_name, "..") == 0)
        job_fail(EINVAL, "the last part of the path must be a name:", path);
    if (slash == path)
        return open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *slash = 0;
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *slash = '/';
    return fd;
}

/* ---- put, get ---- */

struct target {
    int dir;
    char *name;
    char tmp[32];
    struct stat old;
    int exists;
};

static _Noreturn void put_fail(const struct target *t, int err, const char *step, const char *path)
{
    unlinkat(t->dir, t->tmp, 0);
    job_fail(err, step, path);
}

static int put_create(const struct job *j, struct target *t)
{
    uint8_t rnd[8];
    int fd, i;

    t->dir = open_parent(j->path, &t->name);
    if (t->dir < 0)
        job_fail(errno, "open the directory of", j->path);
    t->exists = fstatat(t->dir, t->name, &t->old, AT_SYMLINK_NOFOLLOW) == 0;
    if (t->exists && !S_ISREG(t->old.st_mode))
        job_fail(S_ISDIR(t->old.st_mode)   ? EISDIR
                 : S_ISLNK(t->old.st_mode) ? ELOOP
                                           : EINVAL,
                 "replace what is not a regular file,", j->path);
    if (getrandom(rnd, sizeof(rnd), 0) != (ssize_t)sizeof(rnd))
        job_fail(errno, "choose a temporary name for", j->path);
    strcpy(t->tmp, ".cella-");
    for (i = 0; i < 16; i++)
        t->tmp[7 + i] = "0123456789abcdef"[rnd[i / 2] >> (i % 2 * 4) & 15];
    t->tmp[23] = 0;
    fd = openat(t->dir, t->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        job_fail(errno, "create a file beside", j->path);
    return fd;
}

static _Noreturn void put(const struct job *j)
{
    struct target t = {0};
    int fd = put_create(j, &t), r;
    struct fields f = {0};
    struct command c = {0};
    uint64_t size = 0;
    ssize_t n;

    while ((n = read(DATA_FD, copy_buf, sizeof(copy_buf))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        r = n < 0 ? -errno : write_full(fd, copy_buf, (size_t)n);
        if (r < 0)
            put_fail(&t, -r, "write", j->path);
        size += (uint64_t)n;
    }
    if (recv(LINK_FD, &c, sizeof(c), 0) != (ssize_t)sizeof(c) || c.cmd != CMD_COMMIT) {
        unlinkat(t.dir, t.tmp, 0);
        _exit(0);
    }
    if (t.exists && fchown(fd, t.old.st_uid, t.old.st_gid) < 0)
        put_fail(&t, errno, "keep the owner of", j->path);
    if (fchmod(fd, j->has_mode ? j->mode & 07777 : t.exists ? t.old.st_mode & 07777 : 0644) < 0)
        put_fail(&t, errno, "set the mode of", j->path);
    if (close(fd) < 0 || renameat(t.dir, t.tmp, t.dir, t.name) < 0)
        put_fail(&t, errno, "put in place", j->path);
    put_u64(&f, CELLA_TAG_SIZE, size);
    job_done(&f);
}

/* A regular file or an error, decided before anything with a side effect on open can be opened. */
static int open_regular(const char *path, struct stat *st)
{
    int at = open(path, O_PATH | O_CLOEXEC), fd;
    char via[40] = "/proc/self/fd/", num[2] = {0};

    if (at < 0)
        return -errno;
    if (fstat(at, st) < 0)
        return -errno;
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
    if (at < 10) {
        num[0] = (char)('0' + at);
        text_add(via, sizeof(via), num);
        fd = open(via, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    } else {
        fd = -1;
    }
    if (fd < 0)
        fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return fstat(fd, st) < 0 ? -errno : S_ISREG(st->st_mode) ? fd : -EINVAL;
}

static _Noreturn void get(const struct job *j)
{
    struct fields f = {0};
    struct stat st;
    uint64_t size = 0;
    int fd = open_regular(j->path, &st), r;
    ssize_t n;

    if (fd == -EINVAL)
        job_fail(EINVAL, "read what is not a regular file,", j->path);
    if (fd < 0)
        job_fail(-fd, "open", j->path);
    while ((n = read(fd, copy_buf, sizeof(copy_buf))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            job_fail(errno, "read", j->path);
        r = write_full(DATA_FD, copy_buf, (size_t)n);
        if (r < 0)
            _exit(0); /* abandoned */
        size += (uint64_t)n;
    }
    close(DATA_FD);
    put_u64(&f, CELLA_TAG_SIZE, size);
    put_u32(&f, CELLA_TAG_MODE, st.st_mode & 07777);
    job_done(&f);
}

/* ---- list, stat ---- */

static void put_stat(struct fields *f, const struct stat *st)
{
    put_u32(f, CELLA_TAG_TYPE, st->st_mode & S_IFMT);
    put_u32(f, CELLA_TAG_MODE, st->st_mode & 07777);
    put_u64(f, CELLA_TAG_SIZE, (uint64_t)st->st_size);
    put_u64(f, CELLA_TAG_MTIME_NS,
            (uint64_t)st->st_mtim.tv_sec * NSEC + (uint64_t)st->st_mtim.tv_nsec);
    put_u32(f, CELLA_TAG_UID, st->st_uid);
    put_u32(f, CELLA_TAG_GID, st->st_gid);
}

static int list_entry(int dir, const char *name)
{
    struct fields f = {0};
    struct stat st;
    uint8_t len[4];

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone meanwhile */
    put_bytes(&f, CELLA_TAG_NAME, name, strlen(name));
    put_stat(&f, &st);
    len[0] = (uint8_t)f.len;
    len[1] = (uint8_t)(f.len >> 8);
    len[2] = len[3] = 0;
    if (write_full(DATA_FD, len, sizeof(len)) < 0 || write_full(DATA_FD, f.b, f.len) < 0)
        _exit(0); /* abandoned */
    return 1;
}

static _Noreturn void list(const struct job *j)
{
    int dir = open(j->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(8) char buf[8192];
    struct fields f = {0};
    uint32_t count = 0;
    long n, at;

    if (dir < 0)
        job_fail(errno, "open the directory", j->path);
    while ((n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0)
        for (at = 0; at < n;) {
            struct dir_entry *e = (void *)(buf + at);
            at += e->reclen;
            if (!is_dot(e->name))
                count += (uint32_t)list_entry(dir, e->name);
        }
    if (n < 0)
        job_fail(errno, "read the directory", j->path);
    close(DATA_FD);
    put_u32(&f, CELLA_TAG_COUNT, count);
    job_done(&f);
}

static _Noreturn void stat_path(const struct job *j)
{
    struct fields f = {0};
    struct stat st;
    ssize_t n;

    if (lstat(j->path, &st) < 0)
        job_fail(errno, "look at", j->path);
    put_stat(&f, &st);
    if (S_ISLNK(st.st_mode)) {
        n = readlink(j->path, copy_buf, PATH_MAX_);
        if (n < 0)
            job_fail(errno, "read the link", j->path);
        put_bytes(&f, CELLA_TAG_LINK, copy_buf, (size_t)n);
    }
    job_done(&f);
}

/* ---- the worker, and the agent's part ---- */

static _Noreturn void worker_main(struct job *j, int ctrl, int data)
{
    static void (*const run[])(const struct job *) = {
        [CELLA_OP_PUT] = put,
        [CELLA_OP_GET] = get,
        [CELLA_OP_LIST] = list,
        [CELLA_OP_STAT] = stat_path,
        [CELLA_OP_REMOVE] = file_remove,
        [CELLA_OP_RENAME] = file_rename,
        [CELLA_OP_MKDIR] = file_mkdir,
    };
    int c = fcntl(ctrl, F_DUPFD_CLOEXEC, 16), d = data < 0 ? -1 : fcntl(data, F_DUPFD_CLOEXEC, 16);

    if (c < 0 || (data >= 0 && d < 0) || dup3(c, LINK_FD, O_CLOEXEC) < 0 ||
        (d >= 0 && dup3(d, DATA_FD, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, d >= 0 ? DATA_FD + 1 : DATA_FD, ~0u, 0) < 0)
        _exit(125);
    prctl(PR_SET_NAME, "cella-file", 0, 0, 0);
    umask(022);
    run[j->op](j);
    _exit(125);
}

static int path_get(uint8_t *payload, size_t len, uint16_t tag, char *ret)
{
    struct field f = {0};
    size_t pos = 0;
    int r;

    while ((r = field_next(payload, len, &pos, &f)) > 0 && f.tag != tag)
        ;
    if (r <= 0 || !f.len || f.len > PATH_MAX_ || f.p[0] != '/' || memchr(f.p, 0, f.len))
        return -EINVAL;
    while (f.len > 1 && f.p[f.len - 1] == '/')
        f.len--;
    memcpy(ret, f.p, f.len);
    ret[f.len] = 0;
    return 0;
}

static int parse(struct job *j, uint8_t *payload, size_t len, const char **ret_why)
{
    static char path[PATH_MAX_ + 1], path2[PATH_MAX_ + 1];
    int r;

    *ret_why = "unknown operation";
    if (j->op < CELLA_OP_PUT || j->op > CELLA_OP_MKDIR)
        return -ENOSYS;
    *ret_why = "the path must be absolute, without NUL, at most 4095 bytes";
    j->path = path;
    j->path2 = path2;
    if (path_get(payload, len, CELLA_TAG_PATH, path) < 0 ||
        (j->op == CELLA_OP_RENAME && path_get(payload, len, CELLA_TAG_PATH2, path2) < 0))
        return -EINVAL;
    *ret_why = "malformed request";
    r = get_u32(payload, len, CELLA_TAG_MODE, &j->mode);
    if (r < 0 && r != -ENOENT)
        return r;
    j->has_mode = r == 0;
    r = get_u32(payload, len, j->op == CELLA_OP_MKDIR ? CELLA_TAG_PARENTS : CELLA_TAG_RECURSIVE,
                &j->flag);
    return r == -ENOENT ? 0 : r;
}

static int start(struct stream *s, struct job *j, int data[2], int sock[2])
{
    int mine = j->op == CELLA_OP_PUT ? 1 : 0, has_data = j->op <= CELLA_OP_LIST;

    if (has_data && pipe2(data, O_CLOEXEC) < 0)
        return -errno;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock) < 0)
        return -errno;
    s->child = fork();
    if (s->child < 0) {
        s->child = 0;
        return -errno;
    }
    if (s->child == 0)
        worker_main(j, sock[1], has_data ? data[!mine] : -1);
    s->ctrl = sock[0];
    sock[0] = -1;
    if (!has_data)
        return 0;
    set_nonblock(data[mine]);
    if (mine)
        s->in = data[mine];
    else
        s->out[CELLA_CHANNEL_OUT] = data[mine];
    data[mine] = -1;
    return 0;
}

int file_open(struct stream *s, uint8_t *payload, size_t len, const char **ret_why)
{
    struct job j = {.op = s->op};
    int data[2] = {-1, -1}, sock[2] = {-1, -1}, r;

    r = parse(&j, payload, len, ret_why);
    if (r < 0)
        return r;
    *ret_why = "start a process for the file operation: the cell may be at its limit of processes";
    r = start(s, &j, data, sock);
    close_fd(&data[0]);
    close_fd(&data[1]);
    close_fd(&sock[0]);
    close_fd(&sock[1]);
    return r;
}
