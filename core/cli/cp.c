/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cp - files into and out of a cell, one stream per file. The warden records path, size and digest.
 *
 * Out of a cell is the dangerous direction: names are one component each (cp_list.c), every file is
 * opened below a directory descriptor without following links, special files and symbolic links are
 * left out with a word, setuid bits are dropped, depth and listings are bounded. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cli.h"
#include "cp_list.h"

#define DEPTH_MAX 64
#define LIST_MAX (64u << 20)

struct job {
    struct client *cl;
    int skipped;
};

static char *remote_join(const char *dir, const char *name)
{
    char *p = path_join(dir, name);

    if (!p) {
        fputs("cella: out of memory\n", stderr);
        exit(CLI_FAILED);
    }
    return p;
}

/* One file operation. ERROR becomes the error; "PATH: what". */
static int operation(struct job *j, uint32_t op, const char *path, const struct buf *more, int in,
                     int out, size_t out_max, struct session_end *end)
{
    auto_buf struct buf fields = BUF_INIT;
    struct session s = {.in = in, .out = out, .err = -1, .out_max = out_max};
    const char *message = "";
    size_t len = 0;
    int r;

    field_add_u32(&fields, CELLA_TAG_OP, op);
    field_add_str(&fields, CELLA_TAG_PATH, path);
    if (more)
        buf_add(&fields, more->ptr, more->len);
    s.fields = fields.ptr;
    s.fields_len = fields.len;
    end->type = 0;
    r = fields.oom ? fail(cli_err, -ENOMEM, "out of memory")
                   : client_session(j->cl, &s, end, cli_err);
    if (r < 0)
        return fail_wrap(cli_err, "%s in the cell", path);
    if (end->type == CELLA_FRAME_RESULT)
        return 0;
    if (field_get_str(end->payload, end->len, CELLA_TAG_MESSAGE, &message, &len) < 0)
        len = 0;
    r = -(int)session_errno(end);
    r = r < 0 && r > -4096 ? r : -EIO;
    return fail(cli_err, r, "%s in the cell: %.*s", path, len ? (int)len : 40,
                len ? message : strerror(-r));
}

/* Type of a remote path; follows nothing. */
static int remote_stat(struct job *j, const char *path, uint32_t *ret_type, uint32_t *ret_mode)
{
    struct session_end end;
    int r = operation(j, CELLA_OP_STAT, path, NULL, -1, -1, 0, &end);

    if (r < 0)
        return r;
    if (field_get_u32(end.payload, end.len, CELLA_TAG_TYPE, ret_type) < 0)
        return fail(cli_err, -EBADMSG, "%s in the cell: the answer is malformed", path);
    if (field_get_u32(end.payload, end.len, CELLA_TAG_MODE, ret_mode) < 0)
        *ret_mode = 0644;
    return 0;
}

/* ---- out of the cell ---- */

static int get_to_fd(struct job *j, const char *remote, int fd)
{
    struct session_end end;
    struct stat st;
    uint64_t size;
    int r = operation(j, CELLA_OP_GET, remote, NULL, -1, fd, 0, &end);

    if (r == 0 && fd > 2 && fstat(fd, &st) == 0 &&
        field_get_u64(end.payload, end.len, CELLA_TAG_SIZE, &size) == 0 &&
        (uint64_t)st.st_size != size)
        r = fail(cli_err, -EIO, "%s in the cell: %lld bytes arrived, the cell says it sent %llu",
                 remote, (long long)st.st_size, (unsigned long long)size);
    return r;
}

/* Beside the target first, so that a failure leaves what was there. */
static int get_file(struct job *j, const char *remote, int dir, const char *name, uint32_t mode)
{
    char tmp[64], id[CELLA_ID_LEN + 1];
    auto_close int fd = -1;
    int r = random_id(id);

    if (r < 0)
        return fail(cli_err, r, "no random bytes");
    snprintf(tmp, sizeof(tmp), ".cella-cp-%s", id);
    fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    r = get_to_fd(j, remote, fd);
    if (r == 0 && (fchmod(fd, mode & 0777) < 0 || renameat(dir, tmp, dir, name) < 0))
        r = fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    if (r < 0)
        unlinkat(dir, tmp, 0);
    return r;
}

static int get_tree(struct job *j, const char *remote, int parent, const char *name, uint32_t mode,
                    int depth);

struct listing {
    struct cp_entry *v;
    size_t n;
};

static int listing_add(void *ctx, const struct cp_entry *e)
{
    struct listing *l = ctx;

    if ((l->n & (l->n - 1)) == 0) { /* grow at powers of two */
        struct cp_entry *v = realloc(l->v, (l->n ? 2 * l->n : 1) * sizeof(*v));
        if (!v)
            return fail(cli_err, -ENOMEM, "out of memory");
        l->v = v;
    }
    l->v[l->n++] = *e;
    return 0;
}

static int list_remote(struct job *j, const char *remote, struct listing *ret)
{
    auto_close int fd = memfd_create("cella-list", MFD_CLOEXEC);
    struct session_end end;
    struct stat st;
    void *p = NULL;
    int r;

    if (fd < 0)
        return fail(cli_err, -errno, "memfd: %s", strerror(errno));
    r = operation(j, CELLA_OP_LIST, remote, NULL, -1, fd, LIST_MAX, &end);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0 || st.st_size == 0)
        return 0;
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return fail(cli_err, -errno, "mmap: %s", strerror(errno));
    r = cp_list_parse(p, (size_t)st.st_size, listing_add, ret, cli_err);
    munmap(p, (size_t)st.st_size);
    return r < 0 ? fail_wrap(cli_err, "%s in the cell", remote) : 0;
}

static void say_skipped(struct job *j, const char *path, const char *what)
{
    j->skipped++;
    cli_say("cp: %s left out: it is %s", path, what);
}

static int get_entry(struct job *j, const char *remote, int dir, const struct cp_entry *e,
                     int depth)
{
    auto_free char *path = remote_join(remote, e->name);

    if (S_ISREG(e->type))
        return get_file(j, path, dir, e->name, e->mode);
    if (S_ISDIR(e->type))
        return get_tree(j, path, dir, e->name, e->mode, depth + 1);
    say_skipped(j, path, S_ISLNK(e->type) ? "a symbolic link" : "a special file");
    return 0;
}

static int get_tree(struct job *j, const char *remote, int parent, const char *name, uint32_t mode,
                    int depth)
{
    struct listing l = {NULL, 0};
    auto_close int dir = -1;
    size_t i;
    int r;

    if (depth > DEPTH_MAX)
        return fail(cli_err, -ELOOP, "%s in the cell: deeper than %d directories", remote,
                    DEPTH_MAX);
    if (mkdirat(parent, name, 0700) < 0 && errno != EEXIST)
        return fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    r = list_remote(j, remote, &l);
    for (i = 0; r == 0 && i < l.n; i++)
        r = get_entry(j, remote, dir, &l.v[i], depth);
    free(l.v);
    if (r == 0)
        fchmod(dir, mode & 0777);
    return r;
}

/* Last component without trailing slashes; "" for "/". */
static void base_name(const char *path, char out[256])
{
    size_t n = strlen(path), start;

    while (n && path[n - 1] == '/')
        n--;
    for (start = n; start && path[start - 1] != '/'; start--)
        ;
    snprintf(out, 256, "%.*s", n - start > 255 ? 255 : (int)(n - start), path + start);
}

/* Splits a local target into an open directory and a name in it. */
static int local_target(const char *local, const char *remote, char name[256])
{
    char dir[PATH_MAX];
    const char *slash;
    struct stat st;
    int fd;

    if (stat(local, &st) == 0 && S_ISDIR(st.st_mode)) {
        base_name(remote, name);
        fd = open(local, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else {
        slash = strrchr(local, '/');
        snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - local + 1) : 1,
                 slash ? local : ".");
        base_name(local, name);
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && local[strlen(local) - 1] == '/') {
            close(fd);
            fd = -1;
            errno = ENOENT;
        }
    }
    if (fd < 0)
        return fail(cli_err, -errno, "%s: %s", local, strerror(errno));
    if (!cp_name_safe(name, strlen(name))) {
        close(fd);
        return fail(cli_err, -EINVAL, "%s: give the copy a name", local);
    }
    return fd;
}

static int copy_out(struct job *j, const char *remote, const char *local)
{
    auto_close int dir = -1;
    uint32_t type, mode;
    char name[256];
    int r;

    if (!strcmp(local, "-"))
        return get_to_fd(j, remote, 1);
    r = remote_stat(j, remote, &type, &mode);
    if (r < 0)
        return r;
    if (!S_ISREG(type) && !S_ISDIR(type))
        return fail(cli_err, -EINVAL, "%s in the cell is neither a file nor a directory", remote);
    dir = local_target(local, remote, name);
    if (dir < 0)
        return dir;
    return S_ISDIR(type) ? get_tree(j, remote, dir, name, mode, 0)
                         : get_file(j, remote, dir, name, mode);
}

/* ---- into the cell ---- */

static int put_file(struct job *j, int fd, const char *remote, uint32_t mode)
{
    auto_buf struct buf more = BUF_INIT;
    struct session_end end;

    field_add_u32(&more, CELLA_TAG_MODE, mode & 0777);
    return operation(j, CELLA_OP_PUT, remote, &more, fd, -1, 0, &end);
}

static int put_tree(struct job *j, int own_fd, const char *remote, int depth);

static int put_entry(struct job *j, int dir, const char *name, const char *remote, int depth)
{
    auto_free char *path = remote_join(remote, name);
    auto_close int fd = -1;
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        say_skipped(j, name, S_ISLNK(st.st_mode) ? "a symbolic link" : "a special file");
        return 0;
    }
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(cli_err, -errno, "%s: %s", name, strerror(errno));
    return S_ISDIR(st.st_mode) ? put_tree(j, steal_fd(&fd), path, depth + 1)
                               : put_file(j, fd, path, st.st_mode);
}

static int put_tree(struct job *j, int own_fd, const char *remote, int depth)
{
    auto_buf struct buf more = BUF_INIT;
    struct session_end end;
    struct dirent *e;
    struct stat st;
    DIR *d = fdopendir(own_fd);
    int r;

    if (!d) {
        close(own_fd);
        return fail(cli_err, -ENOMEM, "out of memory");
    }
    if (depth > DEPTH_MAX) {
        closedir(d);
        return fail(cli_err, -ELOOP, "%s: deeper than %d directories", remote, DEPTH_MAX);
    }
    field_add_u32(&more, CELLA_TAG_MODE, fstat(dirfd(d), &st) == 0 ? st.st_mode & 0777 : 0755);
    field_add_u32(&more, CELLA_TAG_PARENTS, 1);
    r = operation(j, CELLA_OP_MKDIR, remote, &more, -1, -1, 0, &end);
    while (r == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            r = put_entry(j, dirfd(d), e->d_name, remote, depth);
    closedir(d);
    return r;
}

static int copy_in(struct job *j, const char *local, const char *remote)
{
    auto_close int fd = -1;
    auto_free char *target = NULL;
    uint32_t type, mode;
    struct stat st;
    char name[256];

    if (!strcmp(local, "-"))
        return put_file(j, 0, remote, 0644);
    fd = open(local, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail(cli_err, -errno, "%s: %s", local, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return fail(cli_err, -EINVAL, "%s is neither a file nor a directory", local);
    if (remote_stat(j, remote, &type, &mode) == 0 && S_ISDIR(type)) {
        base_name(local, name);
        if (!cp_name_safe(name, strlen(name)))
            return fail(cli_err, -EINVAL, "%s: give the copy a name in the cell", local);
        target = remote_join(remote, name);
    } else {
        target = remote_join(remote, "");
        target[strlen(target) - 1] = 0;
        cli_err->code = 0; /* that it is not there yet is no failure */
    }
    return S_ISDIR(st.st_mode) ? put_tree(j, steal_fd(&fd), target, 0)
                               : put_file(j, fd, target, st.st_mode);
}

/* "CELL:/path": the path, or NULL. A name of a file with a ':' is written with a '/', "./a:b". */
static const char *remote_path(const char *arg, char cell[80])
{
    const char *colon = strchr(arg, ':'), *slash = strchr(arg, '/');

    if (!colon || colon == arg || (slash && slash < colon) || (size_t)(colon - arg) > 79)
        return NULL;
    snprintf(cell, 80, "%.*s", (int)(colon - arg), arg);
    return colon + 1;
}

int verb_cp(const struct options *o, int argc, char **argv)
{
    char from_cell[80], to_cell[80];
    const char *from = remote_path(argv[0], from_cell), *to = remote_path(argv[1], to_cell);
    const char *remote = from ? from : to;
    struct job j = {.cl = NULL};
    struct config *c;
    int r;

    (void)argc;
    if (!from == !to)
        return fail(cli_err, -EINVAL, "cp: exactly one of SRC and DST must be CELL:PATH");
    if (remote[0] != '/')
        return fail(cli_err, -EINVAL, "cp: \"%s\": a path in a cell must be absolute", remote);
    r = cli_connect(o, from ? from_cell : to_cell, &c, &j.cl);
    if (r < 0)
        return r;
    r = from ? copy_out(&j, from, argv[1]) : copy_in(&j, argv[0], to);
    client_free(j.cl);
    config_free(c);
    return r;
}
