/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * boot - what a guest starts from: the kernel of this host, and an initramfs of this build's init
 * and agent, kept beside the kernel under a digest of all of it. And which kernels there are.
 *
 * A cell holds a shared lock on its kernel's directory until it is gone, so a kernel in use is not
 * removed. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <sodium.h>

#include "artefact.h"
#include "initrd.h"
#include "kernel.h"
#include "kernel_int.h"

#define INITRD_KEEP_S 86400 /* another build's may be about to be started from */
#define MODULES_OF_KERNEL_MAX 128u

/* ---- which one ---- */

static int default_version(const char *state_dir, char ret[128])
{
    char path[4096];
    ssize_t n;

    snprintf(path, sizeof(path), "%s/kernels/default", state_dir);
    n = readlink(path, ret, 127);
    if (n < 0)
        return -errno;
    ret[n] = 0;
    return kernel_version_valid(ret) ? 0 : -EINVAL;
}

/* The one that is asked for, else the default. */
static int chosen_version(const char *state_dir, const char *asked, char ret[128],
                          struct cella_error *err)
{
    if (!asked && default_version(state_dir, ret) < 0)
        return fail(err, -ENOENT,
                    "there is no guest kernel in %s/kernels; \"cella image kernel fetch\" gets "
                    "Debian's, --from and --file take one that is here",
                    state_dir);
    if (!asked)
        return 0;
    if (!kernel_version_valid(asked))
        return fail(err, -EINVAL, "\"%.64s\" is no version of a kernel", asked);
    snprintf(ret, 128, "%s", asked);
    return 0;
}

int kernel_possible(const char *state_dir, const char *version, struct cella_error *err)
{
    auto_free char *path = NULL;
    char chosen[128];
    int r = chosen_version(state_dir, version, chosen, err);

    if (r < 0)
        return r;
    if (asprintf(&path, "%s/kernels/%s", state_dir, chosen) < 0)
        return fail(err, -ENOMEM, "out of memory");
    return access(path, F_OK) == 0
               ? 0
               : fail(err, -ENOENT,
                      "guest kernel %s: there is none; \"cella image kernel ls\" shows them",
                      chosen);
}

/* Opens and holds it. */
static int kernel_open(const char *state_dir, const char *version, int *ret_own_fd,
                       json_t **ret_record, struct cella_error *err)
{
    char path[4096];
    auto_close int fd = -1;
    json_t *record;
    int r;

    snprintf(path, sizeof(path), "%s/kernels/%s", state_dir, version);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH) < 0)
        return fail(err, -errno, "guest kernel %s: %s", version, strerror(errno));
    record = artefact_read(fd, "kernel.json");
    if (!record)
        return fail(err, -EBADMSG, "guest kernel %s: its record %s/kernel.json cannot be read",
                    version, path);
    r = kernel_stale(record)
            ? fail(err, -ESTALE,
                   "another version of cella took it out of its package, without all that this one "
                   "needs; \"cella image kernel fetch\" takes it again")
            : file_same(fd, "vmlinuz", json_object_get(record, "vmlinuz"), err);
    if (r < 0) {
        json_decref(record);
        return fail_wrap(err, "guest kernel %s", version);
    }
    *ret_own_fd = steal_fd(&fd);
    *ret_record = record;
    return 0;
}

/* ---- the initramfs ---- */

static int initrd_key(int fd, const char *init, const char *agent, char ret[40],
                      struct cella_error *err)
{
    const char *const files[] = {init, agent};
    crypto_hash_sha256_state h;
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[2 * crypto_hash_sha256_BYTES + 1];
    auto_free char *record = NULL;
    size_t i, len;
    int r = read_file_at(fd, "kernel.json", ARTEFACT_JSON_MAX, &record, &len);

    if (r < 0 || sodium_init() < 0)
        return fail(err, r < 0 ? r : -EIO, "kernel.json: %s", strerror(r < 0 ? -r : EIO));
    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, (const uint8_t *)record, len);
    for (i = 0; i < ARRAY_LEN(files); i++) {
        auto_close int file = open(files[i], O_RDONLY | O_CLOEXEC);
        r = file < 0 ? -errno : file_sha256(file, hex);
        if (r < 0)
            return fail(err, r, "%s: %s", files[i], strerror(-r));
        crypto_hash_sha256_update(&h, (const uint8_t *)hex, 64);
    }
    crypto_hash_sha256_final(&h, digest);
    hex_encode(digest, 16, hex);
    snprintf(ret, 40, "initrd-%s", hex);
    return 0;
}

static int module_paths(const char *dir, const json_t *record,
                        const char *ret[MODULES_OF_KERNEL_MAX], size_t *ret_n)
{
    const json_t *list = json_object_get(record, "modules");
    size_t i;

    *ret_n = 0;
    for (i = 0; i < json_array_size(list) && i < MODULES_OF_KERNEL_MAX; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        char *path;
        if (!name || strchr(name, '/') || asprintf(&path, "%s/modules/%s", dir, name) < 0)
            return -EINVAL;
        ret[(*ret_n)++] = path;
    }
    return 0;
}

static int initrd_make(struct image_dir *d, int fd, const char *dir, const char *key,
                       const char *init, const char *agent, const json_t *record,
                       struct cella_error *err)
{
    const char *modules[MODULES_OF_KERNEL_MAX];
    auto_close int out = -1;
    size_t n, i;
    int r = module_paths(dir, record, modules, &n);

    (void)d;
    if (r < 0)
        fail(err, r, "%s/kernel.json: its list of modules is damaged", dir);
    if (r == 0 && unlinkat(fd, ".tmp-initrd", 0) < 0 && errno != ENOENT)
        r = fail(err, -errno, "%s/.tmp-initrd: %s", dir, strerror(errno));
    if (r == 0) {
        out = openat(fd, ".tmp-initrd", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        r = out < 0 ? fail(err, -errno, "%s/.tmp-initrd: %s", dir, strerror(errno))
                    : initrd_write(out, init, agent, modules, n, err);
    }
    if (r == 0 && renameat(fd, ".tmp-initrd", fd, key) < 0)
        r = fail(err, -errno, "%s/%s: %s", dir, key, strerror(errno));
    if (r < 0)
        unlinkat(fd, ".tmp-initrd", 0);
    for (i = 0; i < n; i++)
        free((char *)(uintptr_t)modules[i]);
    return r;
}

/* Those of other builds go when they have not been asked for lately. */
static void initrd_drop_old(int fd, const char *keep)
{
    DIR *dir = dir_open_at(fd, ".");
    struct dirent *e;
    struct stat st;

    if (!dir)
        return;
    while ((e = readdir(dir)))
        if (!strncmp(e->d_name, "initrd-", 7) && strcmp(e->d_name, keep) &&
            fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtim.tv_sec + INITRD_KEEP_S < (int64_t)(wall_ns() / 1000000000u))
            unlinkat(fd, e->d_name, 0);
    closedir(dir);
}

static int initrd_ensure(const char *state_dir, int fd, const char *dir, const json_t *record,
                         char ret_key[40], struct cella_error *err)
{
    const char *found = helper_path("cella-guest");
    auto_free char *init = found ? strdup(found) : NULL, *agent = NULL;
    struct image_dir d;
    int r;

    found = helper_path("cella-agent");
    agent = found ? strdup(found) : NULL;
    if (!init || !agent)
        return fail(err, -ENOENT, "%s: not found beside cella; build or install it",
                    init ? "cella-agent" : "cella-guest");
    r = initrd_key(fd, init, agent, ret_key, err);
    if (r < 0 || faccessat(fd, ret_key, R_OK, 0) == 0)
        return r;
    r = image_dir_open_as(state_dir, "kernels", &d, err);
    if (r < 0)
        return r;
    if (faccessat(fd, ret_key, R_OK, 0) < 0) {
        r = initrd_make(&d, fd, dir, ret_key, init, agent, record, err);
        if (r == 0)
            initrd_drop_old(fd, ret_key);
    }
    image_dir_close(&d);
    return r;
}

int kernel_for_image(const char *state_dir, const char *asked, struct image *img,
                     struct cella_error *err)
{
    char version[128], key[40];
    auto_free char *dir = NULL, *real = NULL;
    const char *sha;
    json_t *record;
    int fd, r = chosen_version(state_dir, asked, version, err);

    if (r == 0)
        r = kernel_possible(state_dir, version, err);
    if (r < 0)
        return r;
    r = kernel_open(state_dir, version, &fd, &record, err);
    if (r < 0)
        return r;
    img->own_kernel_hold = fd;
    if (asprintf(&dir, "%s/kernels/%s", state_dir, version) < 0)
        dir = NULL;
    r = dir ? initrd_ensure(state_dir, fd, dir, record, key, err)
            : fail(err, -ENOMEM, "out of memory");
    sha = json_string_value(json_object_get(json_object_get(record, "vmlinuz"), "sha256"));
    real = r == 0 ? realpath(dir, NULL) : NULL; /* what a backend is given has no links in it */
    if (r == 0 && !real)
        r = fail(err, -errno, "guest kernel %s: %s", dir, strerror(errno));
    if (r == 0) {
        img->kernel_version = strdup(version);
        img->kernel = path_join(real, "vmlinuz");
        img->initrd = path_join(real, key);
        if (!sha || asprintf(&img->kernel_digest, "sha256:%s", sha) < 0)
            img->kernel_digest = NULL;
        if (!img->kernel_version || !img->kernel || !img->initrd || !img->kernel_digest)
            r = fail(err, -ENOMEM, "out of memory");
    }
    json_decref(record);
    return r;
}

/* ---- ls, rm ---- */

static json_t *row_new(const struct image_dir *d, const char *version, const char *chosen)
{
    auto_close int fd = openat(d->fd, version, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int mine = -1;
    json_t *row = fd < 0 ? NULL : artefact_read(fd, "kernel.json");
    json_int_t size = json_integer_value(json_object_get(json_object_get(row, "vmlinuz"), "size"));

    if (!json_is_object(row)) {
        json_decref(row);
        return NULL;
    }
    json_object_set_new(row, "bytes", json_integer(size));
    json_object_set_new(row, "stale", json_boolean(kernel_stale(row)));
    json_object_set_new(row, "default", json_boolean(!strcmp(version, chosen)));
    json_object_set_new(row, "in_use", json_boolean(artefact_claim(d, version, &mine) == -EBUSY));
    return row;
}

int kernel_list(const char *state_dir, json_t **ret, struct cella_error *err)
{
    char chosen[128] = "";
    struct image_dir d;
    struct dirent *e;
    json_t *rows = json_array();
    DIR *dir;
    int r = image_dir_open_as(state_dir, "kernels", &d, err);

    if (r < 0) {
        json_decref(rows);
        return r;
    }
    if (default_version(state_dir, chosen) < 0)
        chosen[0] = 0;
    dir = dir_open_at(d.fd, ".");
    while (dir && (e = readdir(dir))) {
        json_t *row = kernel_version_valid(e->d_name) ? row_new(&d, e->d_name, chosen) : NULL;
        if (row)
            json_array_append_new(rows, row);
    }
    if (dir)
        closedir(dir);
    image_dir_close(&d);
    *ret = rows;
    return 0;
}

int kernel_remove(const char *state_dir, const char *version, struct cella_error *err)
{
    char id[CELLA_ID_LEN + 1], tmp[32], chosen[128];
    auto_close int mine = -1;
    struct image_dir d;
    int r;

    r = kernels_open(state_dir, version, &d, err);
    if (r < 0)
        return r;
    r = artefact_claim(&d, version, &mine);
    if (r == 0)
        r = random_id(id);
    snprintf(tmp, sizeof(tmp), ".tmp-%s", r == 0 ? id : "");
    if (r == 0 && renameat(d.fd, version, d.fd, tmp) < 0)
        r = -errno;
    if (r == 0)
        r = remove_tree_at(d.fd, tmp);
    if (r == 0 && default_version(state_dir, chosen) == 0 && !strcmp(chosen, version) &&
        unlinkat(d.fd, "default", 0) < 0)
        r = -errno;
    image_dir_close(&d);
    return r < 0 ? fail(err, r, "guest kernel %s: %s", version,
                        r == -EBUSY    ? "a cell uses it"
                        : r == -ENOENT ? "there is none; \"cella image kernel ls\" shows them"
                                       : strerror(-r))
                 : 0;
}
