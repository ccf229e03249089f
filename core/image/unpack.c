/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * unpack - a hostile tar archive to a directory tree.
 *
 * Why not libarchive's own disk writer: its checks walk paths by name. Here every parent is opened
 * with openat2 (beneath the root, through no symbolic link, on the same file system), and every
 * object is made by a call that never follows a link: an escape is refused by the kernel, whatever
 * the archive says. Should: keep owner, mode, times of files; replace an earlier entry of the same
 * name, as tar does. Mustn't: write outside rootfd; make a device, FIFO or socket; keep setuid,
 * setgid or extended attributes; exceed a limit; run a helper program (only filters that libarchive
 * has built in are enabled). Threads: none.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <archive.h>
#include <archive_entry.h>
#include <sodium.h>

#include "image_int.h"

#define DEPTH_MAX 128u
#define ID_MAX 65535 /* a cell owns 65536 ids */
#define READ_CHUNK (1u << 16)

struct unpack {
    struct archive *a;
    const struct unpack_limits *limits;
    int fd, rootfd;
    uint64_t entries, bytes, in_bytes;
    uint64_t sizes, linked; /* of files with their holes, of the files under further names */
    int read_error;
    crypto_hash_sha256_state hash;
    uint8_t chunk[READ_CHUNK];
    char path[PATH_MAX]; /* of the current entry, normalised */
    char shown[256];     /* the same, safe to print */
};

int entry_path(const char *in, char *out, size_t cap)
{
    size_t n = 0, depth = 0;

    if (in[0] == '/')
        return -EINVAL;
    while (*in) {
        size_t part = strcspn(in, "/");
        if (part == 2 && in[0] == '.' && in[1] == '.')
            return -EINVAL;
        if (part > NAME_MAX || ++depth > DEPTH_MAX || n + part + 2 > cap)
            return -ENAMETOOLONG;
        if (part && !(part == 1 && in[0] == '.')) {
            if (n)
                out[n++] = '/';
            memcpy(out + n, in, part);
            n += part;
        }
        in += part;
        in += *in == '/';
    }
    out[n] = 0;
    return 0;
}

static int beneath(int rootfd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC | O_NOFOLLOW,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV |
                                      RESOLVE_NO_MAGICLINKS};
    long r = syscall(SYS_openat2, rootfd, *path ? path : ".", &how, sizeof(how));

    return r < 0 ? -errno : (int)r;
}

/* Opens the parent of `path`, making what is missing; *ret_name is the last component. */
static int open_parent(struct unpack *u, const char *path, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    size_t i, len = slash ? (size_t)(slash - path) : 0;
    int fd;

    *ret_name = slash ? slash + 1 : path;
    memcpy(parent, path, len);
    parent[len] = 0;
    fd = beneath(u->rootfd, parent, O_PATH | O_DIRECTORY);
    if (fd != -ENOENT)
        return fd;
    for (i = 1; i <= len; i++) {
        auto_close int up = -1;
        char saved = parent[i];
        char *last;
        if (saved != '/' && saved != 0)
            continue;
        parent[i] = 0;
        last = strrchr(parent, '/');
        if (last)
            *last = 0;
        up = beneath(u->rootfd, last ? parent : "", O_PATH | O_DIRECTORY);
        if (last)
            *last = '/';
        if (up < 0)
            return up;
        if (mkdirat(up, last ? last + 1 : parent, 0755) < 0 && errno != EEXIST)
            return -errno;
        parent[i] = saved;
    }
    return beneath(u->rootfd, parent, O_PATH | O_DIRECTORY);
}

static la_ssize_t read_cb(struct archive *a, void *data, const void **ret)
{
    struct unpack *u = data;
    ssize_t n;

    (void)a;
    do
        n = read(u->fd, u->chunk, sizeof(u->chunk));
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        u->read_error = errno;
        archive_set_error(u->a, errno, "read: %s", strerror(errno));
        return -1;
    }
    crypto_hash_sha256_update(&u->hash, u->chunk, (size_t)n);
    u->in_bytes += (uint64_t)n;
    *ret = u->chunk;
    return n;
}

static int count_bytes(struct unpack *u, uint64_t n, struct cella_error *err)
{
    if (__builtin_add_overflow(u->bytes, n, &u->bytes) || u->bytes > u->limits->bytes)
        return fail(err, -EFBIG, "entry %s: the archive unpacks to more than %llu bytes", u->shown,
                    (unsigned long long)u->limits->bytes);
    if (u->bytes > u->limits->ratio_from && u->bytes / u->limits->ratio > u->in_bytes)
        return fail(err, -EFBIG,
                    "entry %s: the archive expands more than %llu times; refused as a bomb",
                    u->shown, (unsigned long long)u->limits->ratio);
    return 0;
}

/* A hole and a second name take no room here, but a digest reads them, and a disk writes the holes out. */
static int count_size(struct unpack *u, uint64_t *sum, off_t n, struct cella_error *err)
{
    if (n < 0 || (uint64_t)n > u->limits->bytes - *sum)
        return fail(err, -EFBIG,
                    "entry %s: the archive unpacks to more than %llu bytes with its holes or hard "
                    "links counted",
                    u->shown, (unsigned long long)u->limits->bytes);
    *sum += (uint64_t)n;
    return 0;
}

static int archive_fail(struct unpack *u, struct cella_error *err, const char *what)
{
    const char *why = archive_error_string(u->a);
    auto_buf struct buf b = BUF_INIT;

    if (u->read_error)
        return fail(err, -u->read_error, "%s: read: %s", what, strerror(u->read_error));
    buf_json_string(&b, why ? why : "damaged", strnlen(why ? why : "damaged", 200));
    return fail(err, -EBADMSG, "%s: not a tar archive that can be read (%s)", what,
                b.ptr ? b.ptr : "");
}

static int write_content(struct unpack *u, int fd, struct cella_error *err)
{
    for (;;) {
        const void *p;
        size_t n;
        la_int64_t off, end;
        int r = archive_read_data_block(u->a, &p, &n, &off);
        if (r == ARCHIVE_EOF)
            return 0;
        if (r != ARCHIVE_OK)
            return archive_fail(u, err, u->shown);
        if (off < 0 || __builtin_add_overflow(off, (la_int64_t)n, &end) ||
            (uint64_t)end > u->limits->bytes)
            return fail(err, -EFBIG, "entry %s: a hole leads past the size limit", u->shown);
        r = count_bytes(u, n, err);
        while (r == 0 && n) {
            ssize_t w = pwrite(fd, p, n, off);
            if (w < 0 && errno == EINTR)
                continue;
            if (w <= 0)
                return fail(err, -errno, "entry %s: write: %s%s", u->shown, strerror(errno),
                            errno == ENOSPC ? "; free some space and try again" : "");
            p = (const char *)p + w;
            off += w;
            n -= (size_t)w;
        }
        if (r < 0)
            return r;
    }
}

static int make_file(struct unpack *u, struct archive_entry *e, int dir, const char *name,
                     struct cella_error *err)
{
    struct timespec times[2] = {{0, UTIME_OMIT},
                                {archive_entry_mtime(e), archive_entry_mtime_nsec(e)}};
    auto_close int fd = -1;
    la_int64_t size = archive_entry_size(e);
    struct stat st;
    int r;

    if (archive_entry_size_is_set(e) && (size < 0 || (uint64_t)size > u->limits->bytes))
        return fail(err, -EFBIG, "entry %s: %lld bytes is more than an image may hold", u->shown,
                    (long long)size);
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return fail(err, -errno, "entry %s: cannot replace what an earlier entry made: %s",
                    u->shown, strerror(errno));
    fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    r = write_content(u, fd, err);
    if (r < 0)
        return r;
    if ((archive_entry_size_is_set(e) && ftruncate(fd, size) < 0) /* a hole at the end */ ||
        fstat(fd, &st) < 0)
        return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    r = count_size(u, &u->sizes, st.st_size, err);
    if (r < 0)
        return r;
    if (fchown(fd, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e)) < 0 ||
        fchmod(fd, archive_entry_perm(e) & 0777) < 0)
        return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    if (archive_entry_mtime_is_set(e))
        futimens(fd, times); /* a strange time is no reason to refuse */
    return 0;
}

static int make_directory(struct unpack *u, struct archive_entry *e, int dir, const char *name,
                          struct cella_error *err)
{
    auto_close int fd = -1;

    if (*name) {
        if (unlinkat(dir, name, 0) < 0 && errno != ENOENT && errno != EISDIR && errno != EPERM)
            return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
        if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
            return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    }
    fd = openat(dir, *name ? name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchown(fd, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e)) < 0 ||
        fchmod(fd, archive_entry_perm(e) & 01777) < 0)
        return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    return 0;
}

static int make_symlink(struct unpack *u, struct archive_entry *e, int dir, const char *name,
                        struct cella_error *err)
{
    const char *target = archive_entry_symlink(e);

    if (!target || !*target || strlen(target) >= PATH_MAX)
        return fail(err, -EINVAL, "entry %s: a symbolic link without a usable target", u->shown);
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return fail(err, -errno, "entry %s: cannot replace what an earlier entry made: %s",
                    u->shown, strerror(errno));
    if (symlinkat(target, dir, name) < 0 ||
        fchownat(dir, name, (uid_t)archive_entry_uid(e), (gid_t)archive_entry_gid(e),
                 AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -errno, "entry %s: %s", u->shown, strerror(errno));
    return 0;
}

static int make_hardlink(struct unpack *u, const char *target, int dir, const char *name,
                         struct cella_error *err)
{
    char path[PATH_MAX];
    auto_close int from = -1;
    const char *from_name;
    struct stat st;
    int r;

    if (entry_path(target, path, sizeof(path)) < 0 || !*path)
        return fail(err, -EINVAL, "entry %s: a hard link to a path outside the archive", u->shown);
    if (!strcmp(path, u->path))
        return fail(err, -EINVAL, "entry %s: a hard link to itself", u->shown);
    from = open_parent(u, path, &from_name);
    if (from < 0)
        return fail(err, from, "entry %s: its hard link's target: %s", u->shown, strerror(-from));
    if (fstatat(from, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -errno, "entry %s: its hard link's target: %s", u->shown, strerror(errno));
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return fail(err, -EINVAL, "entry %s: a hard link to what is no file", u->shown);
    r = count_size(u, &u->linked, st.st_size, err);
    if (r < 0)
        return r;
    if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
        return fail(err, -errno, "entry %s: cannot replace what an earlier entry made: %s",
                    u->shown, strerror(errno));
    if (linkat(from, from_name, dir, name, 0) < 0)
        return fail(err, -errno, "entry %s: hard link: %s", u->shown, strerror(errno));
    return 0;
}

static int check_entry(struct unpack *u, struct archive_entry *e, struct cella_error *err)
{
    const char *raw = archive_entry_pathname(e);
    auto_buf struct buf b = BUF_INIT;
    int r;

    if (++u->entries > u->limits->entries)
        return fail(err, -EFBIG, "more than %llu entries", (unsigned long long)u->limits->entries);
    if (!raw)
        return fail(err, -EINVAL, "entry %llu: a name that cannot be read",
                    (unsigned long long)u->entries);
    buf_json_string(&b, raw, strnlen(raw, 160));
    snprintf(u->shown, sizeof(u->shown), "%.250s", b.ptr ? b.ptr : "?");
    r = entry_path(raw, u->path, sizeof(u->path));
    if (r == -ENAMETOOLONG)
        return fail(err, r, "entry %s: the path is too long or too deep", u->shown);
    if (r < 0)
        return fail(err, r, "entry %s: an absolute path or \"..\" would leave the image; refused",
                    u->shown);
    if (archive_entry_uid(e) < 0 || archive_entry_uid(e) > ID_MAX || archive_entry_gid(e) < 0 ||
        archive_entry_gid(e) > ID_MAX)
        return fail(err, -ERANGE,
                    "entry %s: owner %lld:%lld is not within 0…65535, the ids of a cell", u->shown,
                    (long long)archive_entry_uid(e), (long long)archive_entry_gid(e));
    return 0;
}

static int unpack_entry(struct unpack *u, struct archive_entry *e, struct cella_error *err)
{
    const char *hard, *name;
    auto_close int dir = -1;
    mode_t type = archive_entry_filetype(e);
    int r = check_entry(u, e, err);

    if (r < 0)
        return r;
    hard = archive_entry_hardlink(e);
    if (!hard && (type == AE_IFCHR || type == AE_IFBLK) && !strncmp(u->path, "dev/", 4))
        return 0; /* a cell has its own /dev: nothing is lost */
    if (!hard && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
        return fail(err, -EINVAL, "entry %s: a device, FIFO or socket; an image holds none",
                    u->shown);
    if (!*u->path && type != AE_IFDIR)
        return fail(err, -EINVAL, "entry %s: the root of an image must be a directory", u->shown);
    dir = open_parent(u, u->path, &name);
    if (dir == -ELOOP || dir == -ENOTDIR)
        return fail(err, dir,
                    "entry %s: a parent of it is not a directory but a link or a file; refused",
                    u->shown);
    if (dir < 0)
        return fail(err, dir, "entry %s: %s", u->shown, strerror(-dir));
    if (hard)
        return make_hardlink(u, hard, dir, name, err);
    return type == AE_IFREG   ? make_file(u, e, dir, name, err)
           : type == AE_IFDIR ? make_directory(u, e, dir, name, err)
                              : make_symlink(u, e, dir, name, err);
}

static int unpack_entries(struct unpack *u, struct cella_error *err)
{
    struct archive_entry *e;

    for (;;) {
        int r = archive_read_next_header(u->a, &e);
        if (r == ARCHIVE_EOF)
            return u->entries ? 0 : fail(err, -EBADMSG, "the archive is empty");
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
            return archive_fail(u, err, "the archive");
        r = unpack_entry(u, e, err);
        if (r < 0)
            return r;
    }
}

static int unpack_open(struct unpack *u, struct cella_error *err)
{
    int r = archive_read_support_format_tar(u->a);

    r |= archive_read_support_filter_none(u->a);
    r |= archive_read_support_filter_gzip(u->a);
    r |= archive_read_support_filter_bzip2(u->a);
    r |= archive_read_support_filter_xz(u->a);
    r |= archive_read_support_filter_lzma(u->a);
    r |= archive_read_support_filter_zstd(u->a);
    r |= archive_read_support_filter_lz4(u->a);
    if (r != ARCHIVE_OK)
        return fail(err, -ENOTSUP, "libarchive was built without a compression that images need");
    /* Names are bytes: no conversion by the locale of this process. Older versions do not know the
     * option. */
    archive_read_set_format_option(u->a, "tar", "hdrcharset", "BINARY");
    if (archive_read_open(u->a, u, NULL, read_cb, NULL) != ARCHIVE_OK)
        return archive_fail(u, err, "the file");
    return 0;
}

int unpack_tar(int fd, int rootfd, const struct unpack_limits *limits, uint8_t *ret_sha256,
               struct cella_error *err)
{
    auto_free struct unpack *u = calloc(1, sizeof(*u));
    const void *rest;
    int r;

    if (!u)
        return fail(err, -ENOMEM, "out of memory");
    u->fd = fd;
    u->rootfd = rootfd;
    u->limits = limits;
    crypto_hash_sha256_init(&u->hash);
    u->a = archive_read_new();
    if (!u->a)
        return fail(err, -ENOMEM, "out of memory");
    r = unpack_open(u, err);
    if (r == 0)
        r = unpack_entries(u, err);
    while (r == 0 && ret_sha256 && read_cb(u->a, u, &rest) > 0) /* what follows the archive's end */
        ;
    if (r == 0 && u->read_error)
        r = archive_fail(u, err, "the file");
    archive_read_free(u->a);
    if (r == 0 && ret_sha256)
        crypto_hash_sha256_final(&u->hash, ret_sha256);
    return r;
}
