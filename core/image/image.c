/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * image - image names to roots, and the directory unpacked images live in.
 *
 * Everything below <state_dir>/images is made in ".tmp-<id>" and renamed, under one lock: a name
 * that exists is whole. A maker that dies leaves a ".tmp-" directory and no lock; the next maker
 * removes it. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "image_int.h"
#include "mounts.h"

static void drop_stale(int dirfd_)
{
    int fd = openat(dirfd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((e = readdir(d)))
        if (!strncmp(e->d_name, ".tmp-", 5))
            remove_tree_at(dirfd_, e->d_name);
    closedir(d);
}

int image_dir_open(const char *state_dir, struct image_dir *ret, struct cella_error *err)
{
    struct image_dir d = {-1, -1, path_join(state_dir, "images")};
    int r;

    if (!d.path)
        return fail(err, -ENOMEM, "out of memory");
    r = mkdir_p(d.path, 0711);
    if (r < 0) {
        fail(err, r, "image directory %s: %s", d.path, strerror(-r));
        goto out;
    }
    d.fd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d.lock = d.fd < 0 ? -1 : openat(d.fd, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d.lock < 0 || flock(d.lock, LOCK_EX) < 0) {
        r = fail(err, -errno, "image directory %s: %s", d.path, strerror(errno));
        goto out;
    }
    drop_stale(d.fd);
    *ret = d;
    return 0;
out:
    image_dir_close(&d);
    return r;
}

void image_dir_close(struct image_dir *d)
{
    if (d->lock >= 0)
        close(d->lock);
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    *d = (struct image_dir){-1, -1, NULL};
}

int image_tmp_new(struct image_dir *d, char ret_name[32], int *ret_rootfd, struct cella_error *err)
{
    char id[CELLA_ID_LEN + 1];
    auto_close int fd = -1;
    int r = random_id(id), rootfd;

    if (r < 0)
        return fail(err, r, "no random bytes: %s", strerror(-r));
    snprintf(ret_name, 32, ".tmp-%s", id);
    if (mkdirat(d->fd, ret_name, 0711) < 0)
        return fail(err, -errno, "%s/%s: %s", d->path, ret_name, strerror(errno));
    fd = openat(d->fd, ret_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || mkdirat(fd, "root", 0755) < 0)
        goto out;
    rootfd = openat(fd, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (rootfd < 0)
        goto out;
    fchmod(fd, 0711); /* whatever the umask is */
    fchmod(rootfd, 0755);
    *ret_rootfd = rootfd;
    return 0;
out:
    r = fail(err, -errno, "%s/%s: %s", d->path, ret_name, strerror(errno));
    image_tmp_drop(d, ret_name);
    return r;
}

int image_tmp_commit(struct image_dir *d, const char *tmp, const char *key, struct cella_error *err)
{
    if (renameat(d->fd, tmp, d->fd, key) < 0)
        return fail(err, -errno, "%s/%s: cannot be put in place: %s", d->path, key,
                    strerror(errno));
    return 0;
}

void image_tmp_drop(struct image_dir *d, const char *tmp)
{
    remove_tree_at(d->fd, tmp);
}

int image_ready(const struct image_dir *d, const char *key)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof(path), "%s/root", key);
    return fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int image_directory(const char *state_dir, const char *path, struct image *img,
                           struct cella_error *err)
{
    char real[PATH_MAX];
    const char *why;
    struct stat st;

    if (path[0] != '/')
        return fail(err, -EINVAL, "image dir:%s: not an absolute path", path);
    if (!realpath(path, real) || stat(real, &st) < 0)
        return fail(err, -errno, "image dir:%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return fail(err, -ENOTDIR, "image dir:%s: not a directory; an archive is named tar:%s",
                    path, path);
    why = path_refused(state_dir, NULL, real, 0, NULL);
    if (why)
        return fail(err, -EACCES, "image dir:%s: refused: %s", path, why);
    img->root = strdup(real);
    if (!img->root || asprintf(&img->digest, "dir:%llu:%llu", (unsigned long long)st.st_dev,
                               (unsigned long long)st.st_ino) < 0)
        return fail(err, -ENOMEM, "out of memory");
    return 0;
}

int image_resolve(const char *state_dir, const char *name, uint32_t root_need, struct image *ret,
                  struct cella_error *err)
{
    struct image img = {.name = strdup(name)};
    int r;

    if (!img.name)
        return fail(err, -ENOMEM, "out of memory");
    if (root_need != CELLA_ROOT_DIR)
        r = fail(err, -ENOTSUP,
                 "image %s: this backend boots a disk image, and images are made only as "
                 "directories so far; "
                 "use a backend whose root is a directory",
                 name);
    else if (!strcmp(name, "host"))
        r = image_host(state_dir, &img, err);
    else if (!strncmp(name, "dir:", 4))
        r = image_directory(state_dir, name + 4, &img, err);
    else if (!strncmp(name, "tar:", 4))
        r = image_tar(state_dir, name + 4, &img, err);
    else
        r = fail(err, -ENOENT, "image \"%s\": not known; expected host, dir:PATH or tar:FILE",
                 name);
    if (r < 0) {
        image_fini(&img);
        return r;
    }
    *ret = img;
    return 0;
}

void image_fini(struct image *img)
{
    size_t i;

    for (i = 0; i < img->n_mounts; i++) {
        free((char *)(uintptr_t)img->mounts[i].source);
        free((char *)(uintptr_t)img->mounts[i].target);
    }
    free(img->mounts);
    free(img->name);
    free(img->digest);
    free(img->root);
    free(img->tree);
    free(img->kernel);
    free(img->initrd);
    free(img->kernel_version);
    free(img->kernel_digest);
    if (img->own_hold > 0)
        close(img->own_hold);
    if (img->own_kernel_hold > 0)
        close(img->own_kernel_hold);
    *img = (struct image){.name = NULL};
}
