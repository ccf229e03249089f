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

#include "artefact.h"
#include "image_int.h"
#include "images.h"
#include "kernel.h"
#include "mounts.h"
#include "tree.h"

struct stale {
    const char *where; /* for messages */
    int dry_run, n;
    void (*found)(void *ctx, const char *what); /* may be NULL */
    void *ctx;
};

/* What is made under the directory's lock, which the caller has, is nobody's then. ".build-" is made without it, for
   it takes minutes; its maker holds that directory's own. */
static int is_stale(int dirfd_, const char *name)
{
    auto_close int fd = -1;

    if (!strncmp(name, ".tmp-", 5))
        return 1;
    if (strncmp(name, ".build-", 7))
        return 0;
    fd = openat(dirfd_, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void drop_stale(int dirfd_, struct stale *s)
{
    DIR *d = dir_open_at(dirfd_, ".");
    char line[700];
    struct dirent *e;

    if (!d)
        return;
    while ((e = readdir(d))) {
        if (!is_stale(dirfd_, e->d_name))
            continue;
        snprintf(line, sizeof(line), "%s/%s: what a killed command was making", s->where,
                 e->d_name);
        s->n++;
        if (s->found)
            s->found(s->ctx, line);
        if (!s->dry_run)
            remove_tree_at(dirfd_, e->d_name);
    }
    closedir(d);
}

int image_gc_stale(const char *state_dir, int dry_run, void (*found)(void *ctx, const char *what),
                   void *ctx)
{
    static const char *const places[] = {"images", "kernels"};
    struct stale s = {.dry_run = dry_run, .found = found, .ctx = ctx};
    size_t i;

    for (i = 0; i < ARRAY_LEN(places); i++) {
        auto_free char *path = path_join(state_dir, places[i]);
        auto_close int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
        auto_close int lock = fd < 0 ? -1 : openat(fd, ".lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
            continue; /* there is none, or whoever works there cleans up */
        s.where = path;
        drop_stale(fd, &s);
    }
    return s.n;
}

int image_dir_open(const char *state_dir, struct image_dir *ret, struct cella_error *err)
{
    return image_dir_open_as(state_dir, "images", ret, err);
}

int image_dir_open_as(const char *state_dir, const char *sub, struct image_dir *ret,
                      struct cella_error *err)
{
    struct image_dir d = {-1, -1, path_join(state_dir, sub)};
    struct stale stale = {.where = sub};
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
    drop_stale(d.fd, &stale);
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

int image_by_key(const char *state_dir, const char *key, struct image *img, struct cella_error *err)
{
    int hold = -1, r;

    if (strchr(key, '/') || key[0] == '.' || strlen(key) > 64)
        return fail(err, -EINVAL, "image \"%s\": no key of an image", key);
    r = artefact_hold(state_dir, key, &hold, err);
    if (r == -ENOENT)
        return fail(err, r, "image %s: it is not on this host", key);
    if (r < 0)
        return r;
    img->own_hold = hold;
    if (asprintf(&img->root, "%s/images/%s/root", state_dir, key) < 0)
        img->root = NULL;
    if (asprintf(&img->digest, is_digest_key(key) ? "sha256:%s" : "%s", key) < 0)
        img->digest = NULL;
    return img->root && img->digest ? 0 : fail(err, -ENOMEM, "out of memory");
}

static int image_named(const char *state_dir, const char *name, struct image *img,
                       struct cella_error *err)
{
    char key[80];
    int r = image_name_find(state_dir, name, key, err);

    if (r == -ENOENT)
        return fail(err, r,
                    "image \"%s\": not known; expected host, dir:PATH, tar:FILE, or a name that "
                    "\"cella image ls\" shows (cella image build makes one)",
                    name);
    r = r < 0 ? r : image_by_key(state_dir, key, img, err);
    return r < 0 ? fail_wrap(err, "image %s", name) : 0;
}

static int resolve_tree(const char *state_dir, const char *name, struct image *img,
                        struct cella_error *err)
{
    if (!strcmp(name, "host"))
        return image_host(state_dir, img, err);
    if (!strncmp(name, "dir:", 4))
        return image_directory(state_dir, name + 4, img, err);
    if (!strncmp(name, "tar:", 4))
        return image_tar(state_dir, name + 4, img, err);
    if (!strncmp(name, "sha256:", 7) && is_digest_key(name + 7))
        return image_by_key(state_dir, name + 7, img, err);
    return image_named(state_dir, name, img, err);
}

/* ---- as a disk ---- */

static int open_tree_at(const char *path, struct cella_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? fail(err, -errno, "%s: %s", path, strerror(errno)) : fd;
}

/* A directory of the user's may change at any time: what stat() says of all that is in it names the artefact. */
static int directory_key(int treefd, char ret_key[80], struct cella_error *err)
{
    struct tree_facts facts;
    int r = tree_digest(treefd, TREE_STAT, &facts, err);

    snprintf(ret_key, 80, "dir-%.32s", r < 0 ? "" : facts.sha256);
    return r;
}

static int directory_artefact(const char *state_dir, const char *key, const char *source,
                              struct cella_error *err)
{
    struct image_dir d;
    char tmp[32];
    auto_close int rootfd = -1, fd = -1;
    int r = image_dir_open(state_dir, &d, err);

    if (r < 0)
        return r;
    if (!image_ready(&d, key)) {
        r = image_tmp_new(&d, tmp, &rootfd, err);
        if (r == 0) {
            fd = openat(d.fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            r = fd < 0 ? fail(err, -errno, "%s: %s", tmp, strerror(errno))
                       : artefact_describe(fd, key, source, err);
            if (r == 0)
                r = image_tmp_commit(&d, tmp, key, err);
            if (r < 0)
                image_tmp_drop(&d, tmp);
        }
    }
    image_dir_close(&d);
    return r;
}

/* The disk of a directory, whose files nobody keeps still: it is taken again when they moved. */
static int directory_disk(const char *state_dir, int treefd, struct image *img,
                          struct cella_error *err)
{
    char key[80], after[80], *source = img->name;
    int hold = -1, r = directory_key(treefd, key, err);

    if (r == 0)
        r = directory_artefact(state_dir, key, source, err);
    if (r == 0)
        r = artefact_hold(state_dir, key, &hold, err);
    if (r < 0)
        return r;
    img->own_hold = hold;
    r = artefact_disk(state_dir, hold, treefd, err);
    if (r == 0)
        r = directory_key(treefd, after, err);
    if (r == 0 && strcmp(key, after)) {
        struct image_dir d;
        r = fail(err, -ESTALE, "files of it changed while its disk was made; try again");
        if (image_dir_open(state_dir, &d, NULL) == 0) {
            remove_tree_at(d.fd, key);
            image_dir_close(&d);
        }
    }
    if (r < 0)
        return r;
    free(img->digest);
    img->digest = strdup(key);
    return img->digest ? 0 : fail(err, -ENOMEM, "out of memory");
}

/* By the key that directory_disk() gave it: the directory itself may be gone. */
static int known_disk(const char *state_dir, const char *key, struct image *img,
                      struct cella_error *err)
{
    int r = image_by_key(state_dir, key, img, err);

    if (r == 0)
        r = artefact_disk_ready(img->own_hold, err);
    if (r <= 0)
        return r < 0 ? r : fail(err, -ENOENT, "its disk is not on this host any more");
    free(img->root);
    if (asprintf(&img->root, "%s/images/%s/" EROFS_FILE, state_dir, key) < 0)
        img->root = NULL;
    return img->root ? 0 : fail(err, -ENOMEM, "out of memory");
}

static int to_disk(const char *state_dir, struct image *img, struct cella_error *err)
{
    auto_close int treefd = open_tree_at(img->root, err);
    const char *key;
    int r;

    if (treefd < 0)
        return treefd;
    r = !img->own_hold ? directory_disk(state_dir, treefd, img, err)
                       : artefact_disk(state_dir, img->own_hold, treefd, err);
    if (r < 0)
        return r;
    img->tree = steal_ptr(&img->root);
    key = !strncmp(img->digest, "sha256:", 7) ? img->digest + 7 : img->digest;
    if (asprintf(&img->root, "%s/images/%s/" EROFS_FILE, state_dir, key) < 0) {
        img->root = NULL;
        return fail(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int no_disk(const char *name, struct cella_error *err)
{
    if (strcmp(name, "host"))
        return 0;
    return fail(err, -ENOTSUP,
                "image host: this backend boots a disk, and the programs of this host are not made "
                "into one; \"cella image build base\" makes an image, --image base takes it");
}

int image_disk(const char *state_dir, const char *name, char **ret_path, struct cella_error *err)
{
    struct image img = {.name = strdup(name)};
    int r = img.name ? no_disk(name, err) : fail(err, -ENOMEM, "out of memory");

    if (r == 0)
        r = resolve_tree(state_dir, name, &img, err);
    if (r == 0)
        r = to_disk(state_dir, &img, err);
    if (r == 0)
        *ret_path = steal_ptr(&img.root);
    image_fini(&img);
    return r;
}

int image_possible(const char *state_dir, const char *name, uint32_t root_need, const char *kernel,
                   struct cella_error *err)
{
    int r = root_need == CELLA_ROOT_IMAGE ? no_disk(name, err) : 0;

    if (r < 0 || root_need != CELLA_ROOT_IMAGE)
        return r;
    return kernel_possible(state_dir, kernel, err);
}

static int resolve_disk(const char *state_dir, const char *name, struct image *img,
                        struct cella_error *err)
{
    int known = !strncmp(name, "dir-", 4) && strlen(name) == 36, r = no_disk(name, err);

    if (r == 0 && known)
        r = known_disk(state_dir, name, img, err);
    else if (r == 0 && (r = resolve_tree(state_dir, name, img, err)) == 0)
        r = to_disk(state_dir, img, err);
    else
        return r; /* it names the image */
    return r < 0 ? fail_wrap(err, "image %s", name) : 0;
}

int image_resolve_copy(const char *state_dir, const char *name, struct image *ret,
                       struct cella_error *err)
{
    struct image img = {.name = strdup(name)};
    int r =
        img.name ? resolve_disk(state_dir, name, &img, err) : fail(err, -ENOMEM, "out of memory");

    if (r < 0) {
        image_fini(&img);
        return r;
    }
    *ret = img;
    return 0;
}

int image_resolve(const char *state_dir, const char *name, uint32_t root_need, const char *kernel,
                  struct image *ret, struct cella_error *err)
{
    struct image img = {.name = strdup(name)};
    int r;

    if (!img.name)
        return fail(err, -ENOMEM, "out of memory");
    if (root_need == CELLA_ROOT_IMAGE) {
        r = resolve_disk(state_dir, name, &img, err);
        if (r == 0 && (r = kernel_for_image(state_dir, kernel, &img, err)) < 0)
            fail_wrap(err, "image %s", name);
    } else
        r = resolve_tree(state_dir, name, &img, err);
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
