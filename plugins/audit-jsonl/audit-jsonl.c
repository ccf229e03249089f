/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit-jsonl - the sink that keeps each chain in a file of its own, <path>/<chain>.jsonl.
 *
 * A line and its newline go out in one write to a descriptor opened with O_APPEND. When the disk
 * takes only a part, the file is cut back to where it was, so a record is stored whole or not at
 * all. A process killed inside that write leaves a part behind; it is cut away when the file is
 * opened next, before anything is added. Files are 0600 in a directory 0700. Chain names are
 * checked again here: they become file names. Threads: none; one instance from one thread at a
 * time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cella/plugin.h>
#include <cella/sink.h>

#define OPEN_FILES 4
#define NAME_MAX_ 63

enum sync { SYNC_NONE, SYNC_CLOSE, SYNC_ALWAYS };
enum step { STEP_OPTIONS = 1, STEP_DIRECTORY, STEP_FILE, STEP_WRITE, STEP_SYNC };

struct file {
    char chain[NAME_MAX_ + 1];
    int fd;
    int dirty;
    off_t size; /* after our last write; another writer of the chain changes it */
};

struct jsonl {
    int dirfd;
    enum sync sync;
    struct file files[OPEN_FILES]; /* most recent first */
};

/* ------------------------------------------------------------------ opening */

/* Makes the directory and what is above it. */
static int make_directory(const char *path)
{
    char copy[4096];
    size_t n = strlen(path);
    char *p;

    if (n >= sizeof(copy))
        return -ENAMETOOLONG;
    memcpy(copy, path, n + 1);
    for (p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = 0;
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return -errno;
        *p = '/';
    }
    return mkdir(copy, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static enum sync sync_parse(const char *s)
{
    return !strcmp(s, "always") ? SYNC_ALWAYS : !strcmp(s, "close") ? SYNC_CLOSE : SYNC_NONE;
}

static int jsonl_open(const struct cella_host *host, const struct cella_options *options,
                      void **ret_self, struct cella_error *err)
{
    const struct cella_option_value *path = cella_options_get(options, "path");
    const struct cella_option_value *sync = cella_options_get(options, "sync");
    struct jsonl *j;
    int r, i;

    (void)host;
    if (!path || !path->str || path->str[0] != '/')
        return cella_error_set(err, -EINVAL, STEP_OPTIONS,
                               "option \"path\" must name an absolute directory");
    r = make_directory(path->str);
    if (r < 0)
        return cella_error_set(err, r, STEP_DIRECTORY, "cannot make directory %s: %s", path->str,
                               strerror(-r));
    j = calloc(1, sizeof(*j));
    if (!j)
        return cella_error_set(err, -ENOMEM, STEP_DIRECTORY, "out of memory");
    for (i = 0; i < OPEN_FILES; i++)
        j->files[i].fd = -1;
    j->sync = sync && sync->str ? sync_parse(sync->str) : SYNC_NONE;
    j->dirfd = open(path->str, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (j->dirfd < 0) {
        r = -errno;
        free(j);
        return cella_error_set(err, r, STEP_DIRECTORY, "cannot open directory %s: %s", path->str,
                               strerror(-r));
    }
    *ret_self = j;
    return 0;
}

/* -------------------------------------------------------------------- files */

static int chain_valid(const char *s)
{
    size_t n = s ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") : 0;

    return n > 0 && n <= NAME_MAX_ && !s[n];
}

/* Cuts a partial last line. The core holds the chain's lock: nobody else appends now. */
static int cut_partial(int fd)
{
    char chunk[4096];
    struct stat st;
    off_t end;

    if (fstat(fd, &st) < 0)
        return -errno;
    end = st.st_size;
    while (end > 0) {
        size_t want = end < (off_t)sizeof(chunk) ? (size_t)end : sizeof(chunk);
        ssize_t n = pread(fd, chunk, want, end - (off_t)want);
        const char *nl;

        if (n < 0 || (size_t)n != want)
            return n < 0 ? -errno : -EIO;
        nl = memrchr(chunk, '\n', want);
        if (nl) {
            end -= (off_t)want - (nl - chunk) - 1;
            break;
        }
        end -= (off_t)want;
    }
    return end != st.st_size && ftruncate(fd, end) < 0 ? -errno : 0;
}

static int file_open(const struct jsonl *j, const char *chain)
{
    char name[NAME_MAX_ + 8] = {0};
    struct stat st;
    int fd;

    strcpy(name, chain);
    strcat(name, ".jsonl");
    fd = openat(j->dirfd, name,
                O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EINVAL;
    }
    return fd;
}

static int file_sync(struct file *f)
{
    if (f->fd < 0 || !f->dirty)
        return 0;
    if (fdatasync(f->fd) < 0)
        return -errno;
    f->dirty = 0;
    return 0;
}

static void file_close(const struct jsonl *j, struct file *f)
{
    if (f->fd < 0)
        return;
    if (j->sync != SYNC_NONE)
        file_sync(f);
    close(f->fd);
    f->fd = -1;
}

/* The chain's file at place 0; opened, and another closed, when needed. */
static int file_get(struct jsonl *j, const char *chain)
{
    struct file f = {.fd = -1};
    int i, r;

    for (i = 0; i < OPEN_FILES; i++)
        if (j->files[i].fd >= 0 && !strcmp(j->files[i].chain, chain))
            break;
    if (i < OPEN_FILES) {
        f = j->files[i];
    } else {
        r = file_open(j, chain);
        if (r < 0)
            return r;
        f.fd = r;
        f.size = -1;
        strcpy(f.chain, chain);
        i = OPEN_FILES - 1;
        file_close(j, &j->files[i]);
    }
    memmove(&j->files[1], &j->files[0], (size_t)i * sizeof(f));
    j->files[0] = f;
    return 0;
}

/* ------------------------------------------------------------------- events */

/* Takes back the `n` bytes that were just appended. */
static int take_back(int fd, ssize_t n)
{
    struct stat st;

    if (n <= 0)
        return 0;
    if (fstat(fd, &st) < 0 || st.st_size < n || ftruncate(fd, st.st_size - n) < 0)
        return -EIO;
    return 0;
}

static int append(struct file *f, const struct cella_span *line, enum sync sync)
{
    struct iovec parts[2] = {{(void *)(uintptr_t)line->ptr, line->len}, {(char[]){'\n'}, 1}};
    size_t whole = line->len + 1;
    struct stat st;
    ssize_t n;
    int r = 0;

    if (fstat(f->fd, &st) < 0)
        return -errno;
    if (st.st_size != f->size)
        r = cut_partial(f->fd);
    if (r < 0)
        return r;
    do
        n = writev(f->fd, parts, 2);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        r = -errno;
    else if ((size_t)n != whole)
        r = -ENOSPC;
    else if (sync == SYNC_ALWAYS && fdatasync(f->fd) < 0)
        r = -errno;
    if (r < 0 && take_back(f->fd, n) < 0)
        r = -EIO;
    f->size = r == 0 && fstat(f->fd, &st) == 0 ? st.st_size : -1;
    return r;
}

static int jsonl_event(void *self, const struct cella_record *record, struct cella_error *err)
{
    struct jsonl *j = self;
    int r;

    if (!chain_valid(record->chain))
        return cella_error_set(err, -EINVAL, STEP_FILE, "chain name is not [a-z0-9]+");
    r = file_get(j, record->chain);
    if (r < 0)
        return cella_error_set(err, r, STEP_FILE, "cannot open %s.jsonl: %s", record->chain,
                               strerror(-r));
    r = append(&j->files[0], &record->line, j->sync);
    if (r < 0)
        return cella_error_set(err, r, STEP_WRITE, "cannot append to %s.jsonl: %s", record->chain,
                               strerror(-r));
    j->files[0].dirty = j->sync == SYNC_CLOSE;
    return 0;
}

static int jsonl_flush(void *self, struct cella_error *err)
{
    struct jsonl *j = self;
    int i, r;

    for (i = 0; i < OPEN_FILES; i++) {
        r = file_sync(&j->files[i]);
        if (r < 0)
            return cella_error_set(err, r, STEP_SYNC, "cannot sync %s.jsonl: %s", j->files[i].chain,
                                   strerror(-r));
    }
    return 0;
}

static void jsonl_close(void *self)
{
    struct jsonl *j = self;
    int i;

    if (!j)
        return;
    for (i = 0; i < OPEN_FILES; i++)
        file_close(j, &j->files[i]);
    close(j->dirfd);
    free(j);
}

static const struct cella_option options_table[] = {
    {.name = "path",
     .help = "directory of the files; left out, the core fills in that of its state directory",
     .type = CELLA_OPT_PATH},
    {.name = "sync",
     .help =
         "when records are forced to the disk: never, when a chain is closed, after each record",
     .def = "none",
     .choices = "none|close|always",
     .type = CELLA_OPT_ENUM},
};

static const struct cella_sink_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_sink_ops, CELLA_KIND_SINK),
    .name = "audit-jsonl",
    .version = "1.0",
    .summary = "one file of JSON lines per chain",
    .options = options_table,
    .n_options = sizeof(options_table) / sizeof(options_table[0]),
    .option_stride = sizeof(options_table[0]),
    .open = jsonl_open,
    .event = jsonl_event,
    .flush = jsonl_flush,
    .close = jsonl_close,
};

CELLA_REGISTER(CELLA_KIND_SINK, ops)
