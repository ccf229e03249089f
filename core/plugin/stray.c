/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * stray - what a plugin left lying about after a call: descriptors without close-on-exec, which a
 * later exec would hand to a cell, and text on the standard streams, which would corrupt what a
 * program of ours prints. Both are made harmless and said once, with plugin and operation.
 *
 * Descriptors that were already inheritable before the first plugin was loaded are not counted.
 * Threads: from the thread that calls plugins.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "plugin_int.h"

#define KNOWN_MAX 4096
#define SAY_MAX 8u
#define OUTPUT_MAX 65536
#define QUOTE_MAX 160

static uint8_t known[KNOWN_MAX / 8];
static int baseline_taken;
static unsigned n_known;
static int guard_fd = -1; /* shares its offset with descriptors 1 and 2 */
static struct {
    int fd; /* our own /proc/self/fd */
    pid_t pid;
} listing = {.fd = -1};

static void say(const struct plugin *p, unsigned *count, const char *text)
{
    const struct cella_host *h = p->rt ? p->rt->host : NULL;

    if (!p->rt || (*count)++ >= SAY_MAX)
        return;
    if (h && CELLA_HOST_HAS(h, log))
        h->log(h->ctx, CELLA_LOG_WARN, "plugin", "%s", text);
    else if (!p->rt->pending[0])
        snprintf(p->rt->pending, sizeof(p->rt->pending), "%s", text);
}

void plugin_host_seen(const struct plugin *p, const struct cella_host *host)
{
    if (!p->rt || !host)
        return;
    p->rt->host = host;
    if (p->rt->pending[0] && CELLA_HOST_HAS(host, log)) {
        host->log(host->ctx, CELLA_LOG_WARN, "plugin", "%s", p->rt->pending);
        p->rt->pending[0] = 0;
    }
}

/* Above 2, open, and an exec would pass it on: calls cb. 1 = open. */
static int inheritable_one(int fd, void (*cb)(int fd, void *ctx), void *ctx)
{
    int flags = fcntl(fd, F_GETFD);

    if (fd > 2 && flags >= 0 && !(flags & FD_CLOEXEC))
        cb(fd, ctx);
    return flags >= 0;
}

static void inheritable_listed(void (*cb)(int fd, void *ctx), void *ctx)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *e;

    while (d && (e = readdir(d))) {
        int64_t fd;
        if (parse_i64(e->d_name, &fd) == 0 && fd != dirfd(d))
            inheritable_one((int)fd, cb, ctx);
    }
    if (d)
        closedir(d);
}

/* How many descriptors are open, as the kernel says since Linux 6.2 (the directory's size); 0 = not known. The directory
   stays open, for looking its path up costs several times the answer. */
static off_t open_count(void)
{
    struct stat st;

    if (listing.fd < 0 || listing.pid != getpid()) {
        /* after a fork the number may be another's by now: it is not closed */
        listing.fd = open("/proc/self/fd", O_PATH | O_DIRECTORY | O_CLOEXEC);
        listing.pid = getpid();
    }
    return listing.fd >= 0 && fstat(listing.fd, &st) == 0 ? st.st_size : 0;
}

/* Calls cb for every descriptor above 2 that an exec would pass on. This runs after nearly every call, and listing the
   directory is what costs; with their number known they are soon found, for they lie close. */
static void inheritable_each(void (*cb)(int fd, void *ctx), void *ctx)
{
    off_t left = open_count(), end;
    int fd;

    if (left > 0) {
        end = left * 2 + 64;
        for (fd = 0; left > 0 && fd < end; fd++)
            left -= inheritable_one(fd, cb, ctx);
        if (left <= 0)
            return;
    }
    inheritable_listed(cb, ctx);
}

static void baseline_add(int fd, void *ctx)
{
    (void)ctx;
    n_known++;
    if (fd < KNOWN_MAX)
        known[fd / 8] |= (uint8_t)(1u << (fd % 8));
}

void stray_baseline(void)
{
    if (!baseline_taken)
        inheritable_each(baseline_add, NULL);
    baseline_taken = 1;
}

struct found {
    int first;
    unsigned n;
};

static void stray_close_on_exec(int fd, void *ctx)
{
    struct found *f = ctx;

    if (fd < KNOWN_MAX && (known[fd / 8] & (1u << (fd % 8))))
        return;
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && !f->n++)
        f->first = fd;
}

static void descriptors_check(const struct plugin *p, const char *op)
{
    static off_t clean; /* so many were open when none was inheritable */
    struct found f = {-1, 0};
    char link[64], target[64] = "", text[256];
    ssize_t n;

    if (!baseline_taken) /* a plugin that the loader did not load: nothing to compare with */
        return;
    /* As many as then: at most one was put in another's place, and that is made harmless without a word. */
    if (!n_known && clean && open_count() == clean &&
        syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    inheritable_each(stray_close_on_exec, &f);
    clean = f.n ? 0 : open_count();
    if (!f.n)
        return;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", f.first);
    n = readlink(link, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = 0;
    snprintf(text, sizeof(text),
             "plugin %s left %u descriptor%s without close-on-exec in %s (first: %d, %s); set now",
             p->name ? p->name : "?", f.n, f.n == 1 ? "" : "s", op, f.first, target);
    say(p, &p->rt->stray_said, text);
}

static void output_check(const struct plugin *p, const char *op)
{
    auto_buf struct buf quoted = BUF_INIT;
    char head[QUOTE_MAX], text[1280];
    off_t n = lseek(guard_fd, 0, SEEK_CUR);
    ssize_t got;

    if (n <= 0)
        return;
    got = pread(guard_fd, head, n < QUOTE_MAX ? (size_t)n : QUOTE_MAX, 0);
    lseek(guard_fd, 0, SEEK_SET);
    if (got < 0 || buf_json_string(&quoted, head, (size_t)got) < 0)
        return;
    snprintf(text, sizeof(text), "plugin %s wrote %lld bytes to the standard streams in %s: %s",
             p->name ? p->name : "?", (long long)n, op, quoted.ptr);
    say(p, &p->rt->output_said, text);
}

void stray_check(const struct plugin *p, const char *op)
{
    if (!p->rt)
        return;
    descriptors_check(p, op);
    if (guard_fd >= 0)
        output_check(p, op);
}

#if PLUGIN_ASAN
void __sanitizer_set_report_fd(void *fd);
/* Reports of the sanitizer keep going to the real stderr. */
static void sanitizer_keep(void)
{
    int fd = fcntl(2, F_DUPFD_CLOEXEC, 3);

    if (fd >= 0)
        __sanitizer_set_report_fd((void *)(uintptr_t)fd);
}
#else
static void sanitizer_keep(void)
{
}
#endif

int plugin_stdio_guard(void)
{
    auto_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    auto_close int mem = memfd_create("cella-plugin-output", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (null < 0 || mem < 0 || ftruncate(mem, OUTPUT_MAX) < 0 ||
        fcntl(mem, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return -errno;
    fflush(stdout);
    setvbuf(stdout, NULL, _IONBF, 0);
    sanitizer_keep();
    if (dup2(null, 0) < 0 || dup2(mem, 1) < 0 || dup2(mem, 2) < 0)
        return -errno;
    if (guard_fd >= 0)
        close(guard_fd);
    guard_fd = steal_fd(&mem);
    return 0;
}
