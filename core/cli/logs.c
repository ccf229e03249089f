/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * logs - what a detached command wrote. The file is the warden's and bounded; the bytes are the
 * cell's: on a terminal they are shown without what could act on it, in a pipe as they are.
 */
#include <fcntl.h>
#include <limits.h>
#include <time.h>

#include "cli.h"

/* Keeps newlines and tabs. */
static void show(const char *p, size_t n)
{
    size_t i, from = 0;

    if (!isatty(1)) {
        fwrite(p, 1, n, stdout);
        return;
    }
    for (i = 0; i <= n; i++)
        if (i == n || p[i] == '\n' || p[i] == '\t') {
            print_safe(stdout, p + from, i - from);
            if (i < n)
                putchar(p[i]);
            from = i + 1;
        }
}

static int copy_new(int fd)
{
    char chunk[16384];
    ssize_t n;

    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        show(chunk, (size_t)n);
    if (fflush(stdout) != 0)
        return fail(cli_err, -errno, "writing the output: %s", strerror(errno));
    return n < 0 ? fail(cli_err, -errno, "reading the log: %s", strerror(errno)) : 0;
}

static int follow(const struct config *c, const char *id, int fd)
{
    struct timespec pause = {0, 200000000};
    struct cell_info info;
    struct errbuf eb;
    int alive = 1, r;

    do {
        if (store_find(c->state_dir, id, &info, errbuf_init(&eb)) < 0) {
            alive = 0;
        } else {
            alive = info.alive;
            cell_info_fini(&info);
        }
        r = copy_new(fd); /* after the look: what came before the end is shown */
        if (r == 0 && alive)
            nanosleep(&pause, NULL);
    } while (r == 0 && alive);
    return r;
}

int verb_logs(const struct options *o, int argc, char **argv)
{
    auto_close int fd = -1;
    struct cell_info info;
    struct config *c;
    char path[PATH_MAX];
    int r = cli_config(o, &c);

    (void)argc;
    if (r < 0)
        return r;
    r = store_find(c->state_dir, argv[0], &info, cli_err);
    if (r < 0) {
        config_free(c);
        return r;
    }
    snprintf(path, sizeof(path), "%s/cells/%s/log", c->state_dir, info.id);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        r = fail(cli_err, -ENOENT, "cell %s has no log: only a detached command has one",
                 info.name);
    else if (fd < 0)
        r = fail(cli_err, -errno, "%s: %s", path, strerror(errno));
    else
        r = o->follow ? follow(c, info.id, fd) : copy_new(fd);
    cell_info_fini(&info);
    config_free(c);
    return r;
}
