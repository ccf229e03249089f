/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kernel_apt - Debian's kernel package, by apt-get, which checks its signature.
 *
 * It is downloaded into a locked directory among the kernels, not into /tmp: what a killed command leaves there is
 * found and removed by the next that adds an image or a kernel, and by `cella gc`. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "image_int.h"
#include "kernel.h"
#include "kernel_int.h"

/* What the meta package stands for today; the package itself when it is none. */
static int apt_find(const char *package, char ret[128], struct cella_error *err)
{
    const char *const argv[] = {"apt-cache", "depends", package, NULL};
    char output[8192] = "";
    const struct run run = {.mode = RUN_PLAIN,
                            .argv = argv,
                            .borrow_work_fd = -1,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1,
                            .ret_output = output,
                            .output_cap = sizeof(output)};
    const char *p;
    int r = run_program(&run, "apt", err);

    if (r < 0)
        return r;
    if (strncmp(output, package, strlen(package)))
        return fail(err, -ENOENT, "apt knows no package %s", package);
    p = strstr(output, "Depends: linux-image-");
    if (p)
        snprintf(ret, 128, "%.*s", (int)strcspn(p + 9, " \n"), p + 9);
    else
        snprintf(ret, 128, "%s", package);
    return 0;
}

static int apt_update(run_line *line, void *ctx, struct cella_error *err)
{
    static const char *const argv[] = {"apt-get", "update", "-q", NULL};
    const struct run run = {.mode = RUN_PLAIN,
                            .argv = argv,
                            .borrow_work_fd = -1,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1,
                            .line = line,
                            .ctx = ctx};

    return run_program(&run, "apt", err);
}

static int apt_download(int dirfd_, const char *package, run_line *line, void *ctx,
                        struct cella_error *err)
{
    const char *const argv[] = {"apt-get", "download", "-q", package, NULL};
    const struct run run = {.mode = RUN_PLAIN,
                            .argv = argv,
                            .borrow_work_fd = dirfd_,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1,
                            .line = line,
                            .ctx = ctx};

    return run_program(&run, "apt", err);
}

/* The one .deb in the directory. */
static int open_deb(int dirfd_)
{
    DIR *d = dir_open_at(dirfd_, ".");
    int deb = -ENOENT;
    struct dirent *e;

    while (d && (e = readdir(d))) {
        size_t n = strlen(e->d_name);
        if (n > 4 && !strcmp(e->d_name + n - 4, ".deb") && deb < 0)
            deb = openat(dirfd_, e->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (d)
        closedir(d);
    return deb;
}

static int package_valid(const char *s)
{
    size_t n = strlen(s);

    return n > 12 && n < 120 && !strncmp(s, "linux-image-", 12) &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.+-") == n;
}

/* ---- where it is downloaded to ---- */

struct place {
    struct image_dir kernels; /* its lock is given back at once: a download takes long */
    char name[32];
    int fd; /* locked; that of a dead command is removed with what else such left */
};

static void place_fini(struct place *p)
{
    if (p->fd >= 0) {
        remove_tree_at(p->kernels.fd, p->name);
        close(p->fd);
    }
    image_dir_close(&p->kernels);
}

static int place_new(const char *state_dir, struct place *p, struct cella_error *err)
{
    char id[CELLA_ID_LEN + 1];
    int r = image_dir_open_as(state_dir, "kernels", &p->kernels, err);

    p->fd = -1;
    if (r < 0)
        return r;
    r = random_id(id);
    snprintf(p->name, sizeof(p->name), ".build-%s", r == 0 ? id : "");
    if (r == 0 && mkdirat(p->kernels.fd, p->name, 0700) < 0)
        r = -errno;
    if (r == 0)
        p->fd = openat(p->kernels.fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0 && (p->fd < 0 || flock(p->fd, LOCK_EX | LOCK_NB) < 0))
        r = -errno;
    if (r < 0) {
        fail(err, r, "%s/%s: %s", p->kernels.path, p->name, strerror(-r));
        place_fini(p);
        return r;
    }
    close(steal_fd(&p->kernels.lock));
    return 0;
}

static int fetch(const char *state_dir, const char *package, run_line *line, void *ctx,
                 char ret_version[128], struct cella_error *err)
{
    auto_close int deb = -1;
    struct place p;
    int r = place_new(state_dir, &p, err);

    if (r < 0)
        return r;
    r = apt_download(p.fd, package, line, ctx, err);
    if (r == 0) {
        deb = open_deb(p.fd);
        r = deb < 0 ? fail(err, deb, "apt-get download left no package")
                    : kernel_from_package(state_dir, deb, "apt", package, ret_version, err);
    }
    place_fini(&p);
    return r;
}

int kernel_fetch(const char *state_dir, const char *package, run_line *line, void *ctx,
                 char ret_version[128], struct cella_error *err)
{
    const char *meta = package ? package : KERNEL_META;
    char real[128];
    int r, updated;

    if (!package_valid(meta))
        return fail(err, -EINVAL, "package \"%s\": expected one named linux-image-…", meta);
    for (updated = 0;;
         updated = 1) { /* the lists may be absent, or name what the archive has replaced */
        snprintf(real, sizeof(real), "%s", meta);
        r = apt_find(meta, real, err);
        if (r == 0)
            r = fetch(state_dir, real, line, ctx, ret_version, err);
        if (r == 0 || updated || apt_update(line, ctx, err) < 0)
            break;
    }
    return r < 0 ? fail_wrap(err, "kernel package %s", real) : 0;
}
