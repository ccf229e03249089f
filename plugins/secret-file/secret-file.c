/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * secret-file - a secret provider: one file per secret in one directory.
 *
 * The directory belongs to root (or the user cella runs as) and is closed to everybody else; it is opened once. A file
 * counts only when it is a regular one with one name, of the same owner, mode 0400 or 0600; a link is never followed. Values
 * are read on demand, straight into the buffer of who asks, with read(2): no copy of a value exists here, ever.
 * One newline at the end is not part of a value, since editors put it there.
 *
 * Changes are noticed by inotify on the directory; writing a new file and renaming it over the old one gives a
 * reader the old value or the new, never half. Threads: one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cella/plugin.h>
#include <cella/secret.h>

#define NAME_MAX_ 63
#define CHANGES (IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_ATTRIB)

struct provider {
    int dir, notify; /* notify -1: no changes are seen */
    char *path;      /* for messages */
};

static void file_destroy(void *self)
{
    struct provider *p = self;

    if (!p)
        return;
    if (p->dir >= 0)
        close(p->dir);
    if (p->notify >= 0)
        close(p->notify);
    free(p->path);
    free(p);
}

static int owner_trusted(const struct stat *st)
{
    return st->st_uid == 0 || st->st_uid == geteuid();
}

static int dir_open(struct provider *p, struct cella_error *err)
{
    struct stat st;

    p->dir = open(p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0 || fstat(p->dir, &st) < 0)
        return cella_error_set(err, -errno, 1, "secrets directory %s: %s", p->path,
                               strerror(errno));
    if (!owner_trusted(&st))
        return cella_error_set(err, -EPERM, 1,
                               "secrets directory %s: owned by user %u; it must belong to root",
                               p->path, st.st_uid);
    if (st.st_mode & 077)
        return cella_error_set(
            err, -EPERM, 1, "secrets directory %s: open to others (mode %04o); run: chmod 0700 %s",
            p->path, st.st_mode & 07777, p->path);
    return 0;
}

static void notify_open(struct provider *p, const struct cella_host *host)
{
    char link[64];

    snprintf(link, sizeof(link), "/proc/self/fd/%d",
             p->dir); /* this directory, whatever its path is by now */
    p->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (p->notify >= 0 && inotify_add_watch(p->notify, link, CHANGES | IN_ONLYDIR) >= 0)
        return;
    if (CELLA_HOST_HAS(host, log))
        host->log(host->ctx, CELLA_LOG_WARN, "secret-file",
                  "%s: cannot watch it (%s); a changed secret is seen when it is next asked for",
                  p->path, strerror(errno));
    if (p->notify >= 0)
        close(p->notify);
    p->notify = -1;
}

static int file_create(const struct cella_host *host, const struct cella_options *options,
                       void **ret_self, struct cella_error *err)
{
    const struct cella_option_value *path = cella_options_get(options, "path");
    struct provider *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return cella_error_set(err, -ENOMEM, 1, "out of memory");
    p->dir = p->notify = -1;
    p->path = path && path->str ? strdup(path->str) : NULL;
    r = p->path ? dir_open(p, err) : cella_error_set(err, -EINVAL, 1, "option path is missing");
    if (r < 0) {
        file_destroy(p);
        return r;
    }
    notify_open(p, host);
    *ret_self = p;
    return 0;
}

/* [A-Za-z0-9][A-Za-z0-9_.-]{0,62}: never a path, never hidden. */
static int name_ok(const char *s)
{
    static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t n;

    if (!s || !*s || !strchr(alnum, *s))
        return 0;
    for (n = 0; s[n] && (strchr(alnum, s[n]) || strchr("_.-", s[n])); n++)
        ;
    return !s[n] && n <= NAME_MAX_;
}

static int value_open(const struct provider *p, const char *name, struct cella_error *err)
{
    int fd = openat(p->dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    int r = 0;

    if (fd < 0)
        return errno == ENOENT
                   ? cella_error_set(err, -ENOENT, 2,
                                     "no secret \"%s\": there is no file of that name in %s", name,
                                     p->path)
                   : cella_error_set(err, -errno, 2, "secret \"%s\" in %s: %s", name, p->path,
                                     errno == ELOOP
                                         ? "it is a symbolic link; put the file itself there"
                                         : strerror(errno));
    if (fstat(fd, &st) < 0)
        r = cella_error_set(err, -errno, 2, "secret \"%s\" in %s: %s", name, p->path,
                            strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        r = cella_error_set(err, -EPERM, 2,
                            "secret \"%s\" in %s: must be a regular file with no other name", name,
                            p->path);
    else if (!owner_trusted(&st))
        r = cella_error_set(err, -EPERM, 2,
                            "secret \"%s\" in %s: owned by user %u; it must belong to root", name,
                            p->path, st.st_uid);
    else if ((st.st_mode & 07777) != 0400 && (st.st_mode & 07777) != 0600)
        r = cella_error_set(err, -EPERM, 2,
                            "secret \"%s\" in %s: mode %04o; only 0400 and 0600 are accepted: "
                            "chmod 0600 %s/%s",
                            name, p->path, st.st_mode & 07777, p->path, name);
    if (r == 0)
        return fd;
    close(fd);
    return r;
}

/* The whole file but one final newline. */
static int64_t value_read(int fd, char *buf, uint64_t cap)
{
    char beyond[2] = "";
    uint64_t n = 0;
    ssize_t got;

    for (;;) {
        got = n < cap ? read(fd, buf + n, cap - n) : read(fd, beyond, sizeof(beyond));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0 || n == cap)
            break;
        n += (uint64_t)got;
    }
    if (got > 0) { /* full, and more follows: that may only be the newline */
        int newline = got == 1 && beyond[0] == '\n';
        explicit_bzero(beyond, sizeof(beyond));
        return newline && n ? (int64_t)n : -ENOBUFS;
    }
    if (n && buf[n - 1] == '\n')
        n--;
    return n ? (int64_t)n : -ENODATA;
}

/* What has changed is seen by reading; from here on only later changes count. */
static void notify_drain(const struct provider *p)
{
    char events[4096] __attribute__((aligned(8)));

    while (p->notify >= 0 && read(p->notify, events, sizeof(events)) > 0)
        ;
}

static int64_t file_get(void *self, const struct cella_secret_query *query, char *buf, uint64_t cap,
                        struct cella_error *err)
{
    struct provider *p = self;
    int64_t n;
    int fd;

    notify_drain(p);
    if (!name_ok(query->name))
        return cella_error_set(err, -EINVAL, 2,
                               "a secret's name has letters, digits, '_', '.' and '-', at most %d",
                               NAME_MAX_);
    if (query->tenant && *query->tenant)
        return cella_error_set(err, -EACCES, 2,
                               "secret \"%s\": secret-file keeps nothing for single tenants",
                               query->name);
    fd = value_open(p, query->name, err);
    if (fd < 0)
        return fd;
    n = value_read(fd, buf, cap);
    close(fd);
    if (n > 0)
        return n;
    explicit_bzero(buf, cap);
    return cella_error_set(err, (int)n, 2, "secret \"%s\" in %s: %s", query->name, p->path,
                           n == -ENOBUFS   ? "it is longer than what may be used"
                           : n == -ENODATA ? "the file is empty"
                                           : strerror((int)-n));
}

static int file_rotate_fd(void *self)
{
    return ((struct provider *)self)->notify;
}

static const struct cella_option options[] = {
    {"path", "directory with one file per secret, owned by root, mode 0700", NULL, NULL,
     CELLA_OPT_PATH, 0, 0, 0},
};

static const struct cella_secret_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_secret_ops, CELLA_KIND_SECRET),
    .name = "secret-file",
    .version = "0.1.0",
    .summary = "secrets from a directory, one file each",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .create = file_create,
    .get = file_get,
    .destroy = file_destroy,
    .rotate_fd = file_rotate_fd,
};

CELLA_REGISTER(CELLA_KIND_SECRET, ops)
