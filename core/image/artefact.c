/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * artefact - what an image is made of on this host, and the disk that backends with a machine boot.
 *
 * The disk is EROFS and holds nothing that the tree does not: a fixed UUID, times and owners of the
 * files, no extended attributes, no time of its making; so the same tree gives the same bytes. It
 * is not compressed: a guest on an emulated processor pays for that at every start, and the pages
 * are shared by all guests as they are. mkfs.erofs reads a tree that a stranger's archive made, in
 * a box (run.h). Invariants: a disk with its .json beside it is whole; both are made under the lock
 * of the images. Threads: none.
 */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <sodium.h>

#include "artefact.h"
#include "run.h"
#include "tree.h"

#define DISK_TMP ".tmp-erofs"
/* Where the superblock keeps the time of its making, 8 + 4 bytes. */
#define EROFS_BUILD_TIME 1048

int is_digest_key(const char *s)
{
    return strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

int file_sha256(int fd, char ret_hex[65])
{
    crypto_hash_sha256_state h;
    uint8_t digest[crypto_hash_sha256_BYTES];
    static const size_t cap = 1u << 18;
    auto_free uint8_t *chunk = malloc(cap);
    off_t at = 0;
    ssize_t n;

    if (!chunk || sodium_init() < 0)
        return -ENOMEM;
    crypto_hash_sha256_init(&h);
    while ((n = pread(fd, chunk, cap, at)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        crypto_hash_sha256_update(&h, chunk, (size_t)n);
        at += n;
    }
    crypto_hash_sha256_final(&h, digest);
    hex_encode(digest, sizeof(digest), ret_hex);
    return 0;
}

json_t *artefact_read(int dirfd_, const char *file)
{
    auto_free char *text = NULL;
    size_t len;

    if (read_file_at(dirfd_, file, ARTEFACT_JSON_MAX, &text, &len) < 0)
        return NULL;
    return json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
}

static int json_write(int dirfd_, const char *file, json_t *own, struct cella_error *err)
{
    auto_free char *text = own ? json_dumps(own, JSON_INDENT(1) | JSON_SORT_KEYS) : NULL;
    int r = text ? replace_file_at(dirfd_, file, text, strlen(text), 0644) : -ENOMEM;

    json_decref(own);
    return r < 0 ? fail(err, r, "%s: %s", file, strerror(-r)) : 0;
}

static int64_t mtime_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

json_t *file_facts(int dirfd_, const char *name, struct cella_error *err)
{
    auto_close int fd = openat(dirfd_, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    char hex[65];
    int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : file_sha256(fd, hex);
    json_t *j = NULL;

    if (r == 0)
        j = json_pack("{s:s, s:I, s:I}", "sha256", hex, "size", (json_int_t)st.st_size, "mtime_ns",
                      (json_int_t)mtime_ns(&st));
    if (!j)
        fail(err, r < 0 ? r : -ENOMEM, "%s: %s", name, strerror(r < 0 ? -r : ENOMEM));
    return j;
}

int file_same(int dirfd_, const char *name, const json_t *facts, struct cella_error *err)
{
    struct stat st;

    if (fstatat(dirfd_, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -errno, "%s: %s", name, strerror(errno));
    if (S_ISREG(st.st_mode) &&
        json_integer_value(json_object_get(facts, "size")) == (json_int_t)st.st_size &&
        json_integer_value(json_object_get(facts, "mtime_ns")) == (json_int_t)mtime_ns(&st))
        return 0;
    return fail(err, -ESTALE, "%s: it is not what was recorded when it was made", name);
}

int artefact_describe(int dirfd_, const char *digest, const char *source, struct cella_error *err)
{
    auto_close int tree = openat(dirfd_, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct tree_facts facts = {0};
    int r = tree < 0 ? fail(err, -errno, "root: %s", strerror(errno))
                     : tree_digest(tree, TREE_CONTENT, &facts, err);

    if (r < 0)
        return r;
    return json_write(dirfd_, "image.json",
                      json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "version", 1, "digest",
                                digest, "source", source, "created",
                                (json_int_t)(wall_ns() / 1000000000u), "entries",
                                (json_int_t)facts.entries, "bytes", (json_int_t)facts.bytes, "disk",
                                (json_int_t)facts.disk, "tree", facts.sha256),
                      err);
}

int artefact_hold(const char *state_dir, const char *key, int *ret_own_fd, struct cella_error *err)
{
    char path[4096];
    auto_close int fd = -1;
    struct stat st;

    snprintf(path, sizeof(path), "%s/images/%s", state_dir, key);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_SH) < 0)
        return fail(err, -errno, "%s: %s", path, strerror(errno));
    /* Whoever removes it renames it first. */
    if (fstatat(fd, "root", &st, AT_SYMLINK_NOFOLLOW) < 0 || access(path, F_OK) < 0)
        return -ENOENT;
    *ret_own_fd = steal_fd(&fd);
    return 0;
}

int artefact_claim(const struct image_dir *d, const char *key, int *ret_own_fd)
{
    auto_close int fd = openat(d->fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    *ret_own_fd = steal_fd(&fd);
    return 0;
}

/* ---- the disk ---- */

static int disk_make(int dirfd_, int treefd, struct cella_error *err)
{
    static const char *const argv[] = {"mkfs.erofs",
                                       "--quiet",
                                       "-x-1",
                                       "-U00000000-0000-0000-0000-000000000000",
                                       "--preserve-mtime",
                                       "-Eforce-inode-extended,nosbcrc",
                                       "/proc/self/fd/0",
                                       ".",
                                       NULL};
    static const char zeros[12];
    auto_close int out = -1;
    struct run run = {.mode = RUN_BOX,
                      .argv = argv,
                      .borrow_work_fd = treefd,
                      .borrow_out_fd = -1,
                      .borrow_userns_fd = -1};
    int r;

    if (unlinkat(dirfd_, DISK_TMP, 0) < 0 && errno != ENOENT)
        return fail(err, -errno, DISK_TMP ": %s", strerror(errno));
    out = openat(dirfd_, DISK_TMP, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return fail(err, -errno, DISK_TMP ": %s", strerror(errno));
    run.borrow_in_fd = out;
    r = run_program(&run, "erofs-utils", err);
    if (r == 0 && (pwrite(out, zeros, sizeof(zeros), EROFS_BUILD_TIME) != sizeof(zeros) ||
                   fchmod(out, 0444) < 0 || fsync(out) < 0))
        r = fail(err, -errno, DISK_TMP ": %s", strerror(errno));
    if (r < 0)
        unlinkat(dirfd_, DISK_TMP, 0);
    return r;
}

/* The disk first, then its record: a disk without one is not there. */
static int disk_commit(int dirfd_, struct cella_error *err)
{
    json_t *facts;

    if (unlinkat(dirfd_, EROFS_FILE ".json", 0) < 0 && errno != ENOENT)
        return fail(err, -errno, EROFS_FILE ".json: %s", strerror(errno));
    if (renameat(dirfd_, DISK_TMP, dirfd_, EROFS_FILE) < 0)
        return fail(err, -errno, EROFS_FILE ": %s", strerror(errno));
    facts = file_facts(dirfd_, EROFS_FILE, err);
    return facts ? json_write(dirfd_, EROFS_FILE ".json", facts, err) : -EIO;
}

int artefact_disk_ready(int dirfd_, struct cella_error *err)
{
    json_t *facts = artefact_read(dirfd_, EROFS_FILE ".json");
    int r = facts ? file_same(dirfd_, EROFS_FILE, facts, err) : -ENOENT;

    json_decref(facts);
    if (!facts || r == -ENOENT)
        return 0;
    return r < 0 ? r : 1;
}

int artefact_disk(const char *state_dir, int dirfd_, int treefd, struct cella_error *err)
{
    struct image_dir d;
    int r = artefact_disk_ready(dirfd_, err);

    if (r != 0)
        return r < 0 ? r : 0;
    r = image_dir_open(state_dir, &d, err);
    if (r < 0)
        return r;
    r = artefact_disk_ready(dirfd_, err);
    if (r == 0) {
        r = disk_make(dirfd_, treefd, err);
        if (r == 0)
            r = disk_commit(dirfd_, err);
    }
    image_dir_close(&d);
    return r < 0 ? r : 0;
}

/* ---- verify ---- */

static int verify_disk(int dirfd_, struct cella_error *err)
{
    json_t *was = artefact_read(dirfd_, EROFS_FILE ".json"), *is;
    int r = 0;

    if (!was)
        return 0;
    is = file_facts(dirfd_, EROFS_FILE, err);
    if (!is)
        r = -EIO;
    else if (!json_equal(json_object_get(was, "sha256"), json_object_get(is, "sha256")))
        r = fail(err, -EBADMSG, EROFS_FILE ": its digest is sha256:%s, recorded was sha256:%s",
                 json_string_value(json_object_get(is, "sha256")),
                 json_is_string(json_object_get(was, "sha256"))
                     ? json_string_value(json_object_get(was, "sha256"))
                     : "none");
    json_decref(is);
    json_decref(was);
    return r;
}

int artefact_verify(int dirfd_, struct cella_error *err)
{
    auto_close int tree = openat(dirfd_, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    json_t *meta = artefact_read(dirfd_, "image.json");
    const char *want = json_string_value(json_object_get(meta, "tree"));
    struct tree_facts facts;
    int r = 0;

    if (tree < 0)
        r = fail(err, -errno, "root: %s", strerror(errno));
    else if (!want)
        r = fail(err, -ENODATA,
                 "image.json: what the tree held was not recorded; remove the image and make it "
                 "again");
    else
        r = tree_digest(tree, TREE_CONTENT, &facts, err);
    if (r == 0 && strcmp(want, facts.sha256))
        r = fail(err, -EBADMSG, "root: the tree is not what was recorded when it was made");
    json_decref(meta);
    return r < 0 ? r : verify_disk(dirfd_, err);
}
