/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * build - images from Debian's archive (mmdebstrap) and from directories (tar).
 *
 * Both end as an archive that goes the way of every other: hashed, unpacked by cella-unpack, kept
 * by its digest. The build runs scripts of packages; it is root of a user namespace whose ids no
 * other process has, in its own mount, pid and ipc namespaces, with this host read-only. It has the
 * host's network, for apt has to fetch, and checks signatures with the keys that this host trusts.
 * It is not done under the lock of the images, for it takes minutes: its directory ".build-<id>" is
 * locked instead. Threads: none.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "artefact.h"
#include "images.h"
#include "mounts.h"
#include "names.h"
#include "nspair.h"

struct workplace {
    struct image_dir images; /* its lock is given back at once */
    char name[32];
    int fd, tar, work;
};

static void workplace_fini(struct workplace *p)
{
    if (p->images.fd >= 0)
        remove_tree_at(p->images.fd, p->name);
    if (p->work >= 0)
        close(p->work);
    if (p->tar >= 0)
        close(p->tar);
    if (p->fd >= 0)
        close(p->fd);
    image_dir_close(&p->images);
}

static int workplace_fill(struct workplace *p, uint32_t uid)
{
    if (mkdirat(p->images.fd, p->name, 0711) < 0)
        return -errno;
    p->fd = openat(p->images.fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (p->fd < 0 || flock(p->fd, LOCK_EX) < 0 || mkdirat(p->fd, "work", 0700) < 0)
        return -errno;
    p->work = openat(p->fd, "work", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    p->tar = openat(p->fd, "tar", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->work < 0 || p->tar < 0 || fchown(p->work, uid, uid) < 0)
        return -errno;
    return 0;
}

static int workplace_new(const char *state_dir, uint32_t uid, struct workplace *ret,
                         struct cella_error *err)
{
    struct workplace p = {.images = {-1, -1, NULL}, .fd = -1, .tar = -1, .work = -1};
    char id[CELLA_ID_LEN + 1];
    int r = random_id(id);

    if (r == 0)
        r = image_dir_open(state_dir, &p.images, err);
    if (r < 0)
        return r;
    snprintf(p.name, sizeof(p.name), ".build-%s", id);
    r = workplace_fill(&p, uid);
    if (r < 0) {
        fail(err, r, "%s/%s: %s", p.images.path, p.name, strerror(-r));
        workplace_fini(&p);
        return r;
    }
    close(steal_fd(&p.images.lock));
    *ret = p;
    return 0;
}

/* The archive becomes an artefact, and the artefact gets the name while it is held. */
static int name_archive(const char *state_dir, const char *name, int tar, const char *source,
                        json_t *own_how, char *ret_digest, struct cella_error *err)
{
    struct image img = {.name = NULL};
    int r = image_tar_fd(state_dir, tar, source, &img, err);

    if (r == 0)
        r = name_set(state_dir, name, img.digest + 7, json_incref(own_how), err);
    if (r == 0)
        snprintf(ret_digest, 80, "%s", img.digest);
    json_decref(own_how);
    image_fini(&img);
    return r;
}

/* ---- import ---- */

static int import_tar(const char *state_dir, const char *name, const char *source, char *ret_digest,
                      struct cella_error *err)
{
    struct image img = {.name = NULL};
    int r = image_tar(state_dir, source + 4, &img, err);

    if (r == 0)
        r = name_set(state_dir, name, img.digest + 7,
                     json_pack("{s:s, s:s}", "from", "import", "source", source), err);
    if (r == 0)
        snprintf(ret_digest, 80, "%s", img.digest);
    image_fini(&img);
    return r;
}

static int pack_directory(int dirfd_, int tar, struct cella_error *err)
{
    static const char *const argv[] = {"tar",
                                       "--create",
                                       "--file=-",
                                       "--format=pax",
                                       "--pax-option=exthdr.name=%d/PaxHeaders/"
                                       "%f,delete=atime,delete=ctime",
                                       "--sort=name",
                                       "--numeric-owner",
                                       "--one-file-system",
                                       ".",
                                       NULL};
    const struct run run = {.mode = RUN_BOX,
                            .argv = argv,
                            .borrow_work_fd = dirfd_,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = tar,
                            .borrow_userns_fd = -1};

    return run_program(&run, "tar", err);
}

static int import_directory(const char *state_dir, const char *name, const char *source,
                            char *ret_digest, struct cella_error *err)
{
    struct workplace p;
    struct image dir;
    auto_close int fd = -1;
    int r =
        image_resolve(state_dir, source, CELLA_ROOT_DIR, NULL, &dir, err); /* may it be shown? */

    if (r < 0)
        return r;
    fd = open(dir.root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = fd < 0 ? fail(err, -errno, "%s: %s", source, strerror(errno))
               : workplace_new(state_dir, 0, &p, err);
    image_fini(&dir);
    if (r < 0)
        return r;
    r = pack_directory(fd, p.tar, err);
    if (r == 0)
        r = name_archive(state_dir, name, p.tar, source,
                         json_pack("{s:s, s:s}", "from", "import", "source", source), ret_digest,
                         err);
    workplace_fini(&p);
    return r;
}

int image_import(const char *state_dir, const char *name, const char *source, char *ret_digest,
                 struct cella_error *err)
{
    int r = name_check(name, err);

    if (r < 0)
        return r;
    if (!strncmp(source, "tar:", 4))
        return import_tar(state_dir, name, source, ret_digest, err);
    if (!strncmp(source, "dir:", 4))
        return import_directory(state_dir, name, source, ret_digest, err);
    return fail(err, -EINVAL, "image import: \"%s\": expected tar:FILE or dir:PATH", source);
}

/* ---- build ---- */

/* [a-z0-9][a-z0-9.+-]*, comma-separated; what apt and mmdebstrap would take as an option or a file is none. */
static int packages_check(const char *s, struct cella_error *err)
{
    const char *p = s;

    while (*p) {
        size_t n = strcspn(p, ",");
        if (n < 2 || n > 100 || strspn(p, "abcdefghijklmnopqrstuvwxyz0123456789.+-") < n ||
            strchr("+-.", *p))
            return fail(err, -EINVAL,
                        "--packages %s: \"%.*s\" is no name of a Debian package; expected names "
                        "with commas between them",
                        s, (int)n, p);
        p += n;
        p += *p == ',' && p[1];
        if (*p == ',')
            return fail(err, -EINVAL, "--packages %s: a name is missing at the end", s);
    }
    return 0;
}

static int build_check(const struct image_build *b, struct cella_error *err)
{
    size_t n = strlen(b->suite);
    int r = name_check(b->name, err);

    if (r == 0 && b->packages)
        r = packages_check(b->packages, err);
    if (r < 0)
        return r;
    if (n < 2 || n > 40 || strspn(b->suite, "abcdefghijklmnopqrstuvwxyz0123456789-") != n ||
        b->suite[0] == '-')
        return fail(err, -EINVAL, "--suite %s: expected a name such as bookworm", b->suite);
    if (b->mirror && ((strncmp(b->mirror, "http://", 7) && strncmp(b->mirror, "https://", 8)) ||
                      strpbrk(b->mirror, " \t\r\n[]")))
        return fail(err, -EINVAL, "--mirror %s: expected http:// or https:// and no blanks",
                    b->mirror);
    return 0;
}

/* Times later than this day's beginning are set to it: the same packages on the same day give the same digest. */
static void day_text(char out[48])
{
    snprintf(out, 48, "SOURCE_DATE_EPOCH=%llu",
             (unsigned long long)(wall_ns() / 1000000000u / 86400 * 86400));
}

static int bootstrap(const struct image_build *b, const struct workplace *p, int userns,
                     struct cella_error *err)
{
    static const char *const passed[] = {"http_proxy", "https_proxy", "no_proxy"};
    char include[4096], day[48], proxies[3][512];
    const char *extra[] = {day, "DEBIAN_FRONTEND=noninteractive", NULL, NULL, NULL, NULL};
    const char *argv[16] = {"mmdebstrap", "--mode=unshare", "--variant=essential", "--format=tar"};
    size_t n = 4, k = 2, i;
    struct run run = {.mode = RUN_GUEST_ROOT,
                      .argv = argv,
                      .extra = extra,
                      .borrow_work_fd = p->work,
                      .borrow_in_fd = -1,
                      .borrow_out_fd = p->tar,
                      .borrow_userns_fd = userns,
                      .line = b->line,
                      .ctx = b->ctx};

    day_text(day);
    for (i = 0; i < ARRAY_LEN(passed); i++) {
        const char *value = getenv(passed[i]);
        if (value && snprintf(proxies[i], sizeof(proxies[i]), "%s=%s", passed[i], value) <
                         (int)sizeof(proxies[i]))
            extra[k++] = proxies[i];
    }
    argv[n++] = "--dpkgopt=path-exclude=/usr/share/man/*";
    argv[n++] = "--dpkgopt=path-exclude=/usr/share/info/*";
    argv[n++] = "--dpkgopt=path-exclude=/usr/share/locale/*";
    argv[n++] = "--dpkgopt=path-exclude=/usr/share/doc/*";
    argv[n++] = "--dpkgopt=path-include=/usr/share/doc/*/copyright";
    if (b->packages && *b->packages) {
        if (snprintf(include, sizeof(include), "--include=%s", b->packages) >= (int)sizeof(include))
            return fail(err, -E2BIG, "--packages: longer than %zu bytes", sizeof(include));
        argv[n++] = include;
    }
    argv[n++] = b->suite;
    argv[n++] = "-";
    if (b->mirror)
        argv[n++] = b->mirror;
    return run_program(&run, "mmdebstrap", err);
}

int image_build(const char *state_dir, const struct image_build *b, char *ret_digest,
                struct cella_error *err)
{
    struct nspair ns = NSPAIR_INIT;
    struct workplace p;
    int r = build_check(b, err);

    if (r < 0)
        return r;
    r = workplace_new(state_dir, b->uid_base, &p, err);
    if (r < 0)
        return r;
    r = nspair_user_new(b->uid_base, b->uid_count, &ns, err);
    if (r == 0)
        r = bootstrap(b, &p, ns.userns_fd, err);
    nspair_close(&ns);
    if (r == 0 && b->line)
        b->line(b->ctx, "unpacking and recording the image");
    if (r == 0)
        r = name_archive(state_dir, b->name, p.tar, "build",
                         json_pack("{s:s, s:s, s:s?, s:s}", "from", "build", "suite", b->suite,
                                   "mirror", b->mirror, "packages", b->packages ? b->packages : ""),
                         ret_digest, err);
    workplace_fini(&p);
    return r;
}
