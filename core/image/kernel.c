/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kernel - where guests' kernels come from.
 *
 * Debian's package (kernel_apt.c fetches it) is unpacked; nothing is installed. Of its modules those stay that a guest needs, decompressed, because the init of a
 * guest should not carry a decompressor. A version is made as ".tmp-<id>" and renamed, under a lock
 * of its own; what is there is whole. A kernel that is taken out of a file must have everything
 * built in. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "artefact.h"
#include "kernel.h"
#include "kernel_int.h"
#include "modules.h"

#define KERNEL_MAX (128u << 20)
#define DEP_MAX (4u << 20)

static const struct {
    const char *name;
    int needed;                                           /* without it no guest boots */
} wanted[] = {{"crc32c_generic", 0}, {"crc32c_intel", 0}, /* asked for by name: no dependency */
              {"virtio_pci", 1},     {"virtio_mmio", 0},    {"vmw_vsock_virtio_transport", 0},
              {"virtio_blk", 1},     {"virtio_console", 1}, {"erofs", 1},
              {"ext4", 1},           {"overlay", 1},        {"virtio_net", 1},
              {"virtio_rng", 0},     {"virtio_balloon", 0}, {"vmgenid", 0},
              {"af_packet", 0},      {"inet_diag", 0},      {"tcp_diag", 0},
              {"udp_diag", 0},       {"9pnet_virtio", 0},   {"9p", 0},
              {"virtiofs", 0}};

/* ---- one version being made ---- */

struct making {
    struct image_dir d;
    char tmp[32];
    int fd; /* of tmp */
};

static void making_fini(struct making *m)
{
    if (m->fd >= 0) {
        close(m->fd);
        remove_tree_at(m->d.fd, m->tmp);
    }
    image_dir_close(&m->d);
}

static int making_new(const char *state_dir, struct making *ret, struct cella_error *err)
{
    struct making m = {.fd = -1};
    int rootfd, r = image_dir_open_as(state_dir, "kernels", &m.d, err);

    if (r < 0)
        return r;
    r = image_tmp_new(&m.d, m.tmp, &rootfd, err);
    if (r == 0) {
        close(rootfd); /* "root": where the package is unpacked */
        m.fd = openat(m.d.fd, m.tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (m.fd < 0 || mkdirat(m.fd, "modules", 0755) < 0)
            r = fail(err, -errno, "%s/%s: %s", m.d.path, m.tmp, strerror(errno));
    }
    if (r < 0) {
        making_fini(&m);
        return r;
    }
    *ret = m;
    return 0;
}

static int set_default(const struct image_dir *d, const char *version, struct cella_error *err)
{
    if ((unlinkat(d->fd, ".default", 0) < 0 && errno != ENOENT) ||
        symlinkat(version, d->fd, ".default") < 0 ||
        renameat(d->fd, ".default", d->fd, "default") < 0)
        return fail(err, -errno, "%s/default: %s", d->path, strerror(errno));
    return 0;
}

int kernels_open(const char *state_dir, const char *version, struct image_dir *ret,
                 struct cella_error *err)
{
    if (!kernel_version_valid(version))
        return fail(err, -EINVAL, "\"%s\" is no version of a kernel", version);
    return image_dir_open_as(state_dir, "kernels", ret, err);
}

int kernel_use(const char *state_dir, const char *version, struct cella_error *err)
{
    struct image_dir d;
    int r;

    r = kernels_open(state_dir, version, &d, err);
    if (r < 0)
        return r;
    r = kernel_possible(state_dir, version, err); /* under the lock that kernel_remove() takes */
    if (r == 0)
        r = set_default(&d, version, err);
    image_dir_close(&d);
    return r;
}

/* Writes the record, takes the place of an older one of the same version. */
static int making_commit(struct making *m, const char *version, json_t *own_record, int aside,
                         struct cella_error *err)
{
    auto_free char *text =
        own_record ? json_dumps(own_record, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    char id[CELLA_ID_LEN + 1], old[32];
    int r = text ? create_file_at(m->fd, "kernel.json", text, strlen(text), 0644) : -ENOMEM;

    json_decref(own_record);
    if (r == 0)
        r = remove_tree_at(m->fd, "root");
    if (r == 0)
        r = random_id(id);
    if (r < 0)
        return fail(err, r, "%s/%s: %s", m->d.path, m->tmp, strerror(-r));
    snprintf(old, sizeof(old), ".tmp-%s", id);
    if (renameat(m->d.fd, version, m->d.fd, old) < 0 && errno != ENOENT)
        return fail(err, -errno, "%s/%s: %s", m->d.path, version, strerror(errno));
    if (renameat(m->d.fd, m->tmp, m->d.fd, version) < 0)
        return fail(err, -errno, "%s/%s: %s", m->d.path, version, strerror(errno));
    remove_tree_at(m->d.fd, old);
    close(steal_fd(&m->fd)); /* it is not temporary any more */
    return aside ? 0 : set_default(&m->d, version, err);
}

int kernel_version_valid(const char *s)
{
    size_t n = strlen(s);

    return n >= 3 && n < 120 && s[0] >= '0' && s[0] <= '9' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+~-") == n;
}

/* ---- out of a package ---- */

static int unpack_deb(struct making *m, int deb, struct cella_error *err)
{
    static const char *const argv[] = {"dpkg-deb", "-x", "/proc/self/fd/0", "/work/root", NULL};
    const struct run run = {.mode = RUN_BOX,
                            .argv = argv,
                            .borrow_work_fd = m->fd,
                            .work_writable = 1,
                            .borrow_in_fd = deb,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1};

    return run_program(&run, "dpkg", err);
}

/* The one directory below lib/modules, or usr/lib/modules. */
static int find_version(struct making *m, char ret[128], char ret_dir[192], struct cella_error *err)
{
    static const char *const places[] = {"root/lib/modules", "root/usr/lib/modules"};
    struct dirent *e;
    unsigned n = 0;
    size_t i;

    for (i = 0; i < ARRAY_LEN(places); i++) {
        DIR *d = dir_open_at(m->fd, places[i]);
        if (!d)
            continue;
        while ((e = readdir(d))) {
            if (e->d_name[0] == '.' || !kernel_version_valid(e->d_name))
                continue;
            snprintf(ret, 128, "%s", e->d_name);
            snprintf(ret_dir, 192, "%s/%.127s", places[i], e->d_name);
            n++;
        }
        closedir(d);
    }
    return n == 1 ? 0 : fail(err, -EBADMSG, "the package holds %u kernels, not one", n);
}

static int run_depmod(struct making *m, const char *dir, const char *version,
                      struct cella_error *err)
{
    const char *const argv[] = {"depmod", "-b",
                                strncmp(dir, "root/usr", 8) ? "/work/root" : "/work/root/usr",
                                version, NULL};
    const struct run run = {.mode = RUN_BOX,
                            .argv = argv,
                            .borrow_work_fd = m->fd,
                            .work_writable = 1,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1};

    return run_program(&run, "kmod", err);
}

/* One module to modules/<name>.ko. */
static int take_module(struct making *m, const char *dir, const char *file, char ret_name[160],
                       struct cella_error *err)
{
    static const struct {
        const char *suffix, *program, *package;
    } kinds[] = {{".ko", "cat", "coreutils"},
                 {".ko.xz", "xz", "xz-utils"},
                 {".ko.gz", "gzip", "gzip"},
                 {".ko.zst", "zstd", "zstd"}};
    const char *base = strrchr(file, '/') ? strrchr(file, '/') + 1 : file,
               *dot = strstr(base, ".ko");
    char from[512], to[200];
    auto_close int in = -1, out = -1;
    size_t i;

    for (i = 0; dot && i < ARRAY_LEN(kinds) && strcmp(dot, kinds[i].suffix); i++)
        ;
    if (!dot || i == ARRAY_LEN(kinds) || dot - base > 120)
        return fail(err, -EBADMSG, "module %s: a name or compression that is not known", file);
    snprintf(ret_name, 160, "%.*s.ko", (int)(dot - base), base);
    snprintf(from, sizeof(from), "%s/%s", dir, file);
    snprintf(to, sizeof(to), "modules/%s", ret_name);
    in = openat(m->fd, from, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    out = openat(m->fd, to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (in < 0 || out < 0)
        return fail(err, -errno, "module %s: %s", file, strerror(errno));
    {
        const char *const plain[] = {"cat", NULL}, *const packed[] = {kinds[i].program, "-dc",
                                                                      NULL};
        const struct run run = {.mode = RUN_BOX,
                                .argv = i ? packed : plain,
                                .borrow_work_fd = m->fd,
                                .borrow_in_fd = in,
                                .borrow_out_fd = out,
                                .borrow_userns_fd = -1};
        return run_program(&run, kinds[i].package, err);
    }
}

static int choose_modules(struct making *m, const char *dir, struct modules *list, json_t *absent,
                          struct cella_error *err)
{
    auto_free char *dep = NULL, *builtin = NULL;
    char path[256];
    size_t i;
    int r;

    snprintf(path, sizeof(path), "%s/modules.dep", dir);
    r = read_file_at(m->fd, path, DEP_MAX, &dep, NULL);
    snprintf(path, sizeof(path), "%s/modules.builtin", dir);
    if (r == 0)
        r = read_file_at(m->fd, path, DEP_MAX, &builtin, NULL);
    if (r < 0)
        return fail(err, r, "%s: %s", path, strerror(-r));
    for (i = 0; r >= 0 && i < ARRAY_LEN(wanted); i++) {
        r = modules_need(dep, builtin, wanted[i].name, list, err);
        if (r == 0 && wanted[i].needed)
            r = fail(err, -ENOTSUP, "this kernel has no %s, without which no guest boots",
                     wanted[i].name);
        else if (r == 0)
            json_array_append_new(absent, json_string(wanted[i].name));
    }
    return r < 0 ? r : 0;
}

/* What a kernel was searched for; another build of cella may want more. */
static json_t *wanted_names(void)
{
    json_t *names = json_array();
    size_t i;

    for (i = 0; i < ARRAY_LEN(wanted); i++)
        json_array_append_new(names, json_string(wanted[i].name));
    return names;
}

static int take_modules(struct making *m, const char *dir, json_t *record, struct cella_error *err)
{
    auto_free struct modules *list = calloc(1, sizeof(*list));
    json_t *order = json_array(), *absent = json_array();
    int r = list ? choose_modules(m, dir, list, absent, err) : fail(err, -ENOMEM, "out of memory");
    size_t i;

    for (i = 0; r == 0 && i < list->n; i++) {
        char name[160];
        r = take_module(m, dir, list->v[i], name, err);
        if (r == 0)
            json_array_append_new(order, json_string(name));
    }
    json_object_set_new(record, "modules", order);
    json_object_set_new(record, "absent", absent);
    json_object_set_new(record, "wanted", wanted_names());
    return r;
}

static int take_vmlinuz(struct making *m, const char *version, struct cella_error *err)
{
    char path[192];

    snprintf(path, sizeof(path), "root/boot/vmlinuz-%s", version);
    if (renameat(m->fd, path, m->fd, "vmlinuz") < 0 || fchmodat(m->fd, "vmlinuz", 0644, 0) < 0)
        return fail(err, -errno, "boot/vmlinuz-%s: %s", version, strerror(errno));
    return 0;
}

int kernel_stale(const json_t *record)
{
    const char *from = json_string_value(json_object_get(record, "from"));
    json_t *names = wanted_names();
    int stale =
        !(from && !strcmp(from, "file")) && !json_equal(json_object_get(record, "wanted"), names);

    json_decref(names);
    return stale;
}

static json_t *record_new(const char *version, const char *from, const char *source)
{
    return json_pack("{s:i, s:s, s:s, s:s, s:I}", "format", 1, "version", version, "from", from,
                     "source", source, "created", (json_int_t)(wall_ns() / 1000000000u));
}

/* Takes what is needed of the package at `deb` and gives it its place. */
int kernel_from_package(const char *state_dir, int deb, const char *from, const char *source,
                        char ret_version[128], struct cella_error *err)
{
    char version[128] = "", dir[192];
    json_t *record = NULL, *facts;
    struct making m;
    int r = making_new(state_dir, &m, err);

    if (r < 0)
        return r;
    r = unpack_deb(&m, deb, err);
    if (r == 0)
        r = find_version(&m, version, dir, err);
    if (r == 0)
        r = run_depmod(&m, dir, version, err);
    record = record_new(version, from, source);
    if (r == 0)
        r = take_modules(&m, dir, record, err);
    if (r == 0)
        r = take_vmlinuz(&m, version, err);
    if (r == 0) {
        facts = file_facts(m.fd, "vmlinuz", err);
        r = facts ? 0 : -EIO;
        json_object_set_new(record, "vmlinuz", facts);
    }
    if (r == 0)
        r = making_commit(&m, version, json_incref(record), 0, err);
    if (r == 0)
        snprintf(ret_version, 128, "%s", version);
    json_decref(record);
    making_fini(&m);
    return r;
}

int kernel_from_deb(const char *state_dir, const char *file, char ret_version[128],
                    struct cella_error *err)
{
    auto_close int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int r;

    if (fd < 0)
        return fail(err, -errno, "kernel %s: %s", file, strerror(errno));
    r = kernel_from_package(state_dir, fd, "deb", file, ret_version, err);
    return r < 0 ? fail_wrap(err, "kernel %s", file) : 0;
}

int kernel_from_file(const char *state_dir, const char *file, int aside, char ret_version[128],
                     struct cella_error *err)
{
    auto_free char *image = NULL;
    char version[128];
    json_t *record, *facts;
    struct making m;
    size_t len = 0;
    int r = read_file_at(AT_FDCWD, file, KERNEL_MAX, &image, &len);

    if (r < 0)
        return fail(err, r, "kernel %s: %s", file,
                    r == -EFBIG ? "longer than 128 MiB" : strerror(-r));
    r = bzimage_version(image, len, version, err);
    if (r == 0 && !kernel_version_valid(version))
        r = fail(err, -EBADMSG, "its version \"%s\" is odd", version);
    if (r == 0)
        r = making_new(state_dir, &m, err);
    if (r < 0)
        return fail_wrap(err, "kernel %s", file);
    r = create_file_at(m.fd, "vmlinuz", image, len, 0644);
    if (r < 0)
        fail(err, r, "%s/%s: %s", m.d.path, m.tmp, strerror(-r));
    record = record_new(version, "file", file);
    facts = r == 0 ? file_facts(m.fd, "vmlinuz", err) : NULL;
    if (r == 0 && !facts)
        r = -EIO;
    if (r == 0) {
        json_object_set_new(record, "vmlinuz", facts);
        json_object_set_new(record, "modules", json_array());
        r = making_commit(&m, version, json_incref(record), aside, err);
    }
    json_decref(record);
    making_fini(&m);
    if (r == 0)
        snprintf(ret_version, 128, "%s", version);
    return r < 0 ? fail_wrap(err, "kernel %s", file) : 0;
}
