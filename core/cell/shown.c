/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * shown - the one directory of the broker that a cell sees, read-only, as /run/cella: ca.pem (the authority of its gate,
 * when there is one), ca-bundle.pem (what its image trusts, and that), cacerts (the same for Java) and denials (denials.c). The bundle is also
 * mounted over every bundle that the image has, for programs that read no environment.
 *
 * Being one mount of a directory, nothing in /run/cella can be replaced from inside, although /run is the cell's to
 * write. An authority that grows while the cell runs is written into the files that are there, at their end, because the
 * mounts show those; a program that reads meanwhile sees the old text or the new. Threads: one.
 */
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <sys/stat.h>

#include "trust.h"
#include "warden.h"

/* In place, from the first byte that differs on. -ENOENT: there is none yet. */
static int file_grown(int dir, const char *name, const char *text, size_t len)
{
    auto_close int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    auto_free char *old = NULL;
    size_t had = 0, same = 0;
    int r = fd < 0 ? -errno : read_file_at(dir, name, TRUST_KEYSTORE_MAX, &old, &had);

    if (r < 0)
        return r;
    while (same < had && same < len && old[same] == text[same])
        same++;
    if (pwrite(fd, text + same, len - same, (off_t)same) != (ssize_t)(len - same) ||
        (had > len && ftruncate(fd, (off_t)len) < 0))
        return errno ? -errno : -EIO;
    return 0;
}

static int file_shown(int dir, const char *name, const char *text, size_t len,
                      struct cella_error *err)
{
    int r = file_grown(dir, name, text, len);

    if (r == -ENOENT)
        r = replace_file_at(dir, name, text, len, 0444);
    return r < 0 ? fail(err, r, "%s of the cell: %s", name, strerror(-r)) : 0;
}

/* What the user gives is the user's: a file inside the cell cannot be read before the cell is. */
static void env_kept(const struct warden *w, struct buf *ret)
{
    const char *env;
    size_t i, k;
    json_t *v;

    for (i = 0; (env = trust_env(i)); i++)
        json_array_foreach(w->req.env, k, v)
        {
            size_t n = strcspn(env, "=");
            const char *s = json_string_value(v);
            if (!strncmp(s, env, n) && (s[n] == '=' || !s[n]))
                buf_addf(ret, "%s%.*s", ret->len ? "," : "", (int)n, env);
        }
}

static int tell(struct warden *w, int certificates, const struct trust_bundle *b,
                struct cella_error *err)
{
    auto_buf struct buf places = BUF_INIT, kept = BUF_INIT;
    size_t i;

    for (i = 0; i < b->n_places; i++)
        buf_addf(&places, "%s%s", places.len ? "," : "", b->places[i]);
    for (i = 0; i < b->n_keystores; i++)
        buf_addf(&places, "%s%s", places.len ? "," : "", b->keystores[i]);
    for (i = 0; i < b->n_anchors; i++)
        buf_addf(&places, "%s%s", places.len ? "," : "", b->anchors[i]);
    env_kept(w, &kept);
    if (kept.len)
        warden_log(w, CELLA_LOG_WARN, "trust",
                   "%s: the values given for this cell are kept; programs that read them trust the "
                   "cell's authority only if those files hold it (" TRUST_ALONE_PATH ")",
                   kept.ptr);
    return warden_audit(w, err, "cell.trust", "i:certificates", (int64_t)certificates, "s:bundle",
                        b->from, "i:bytes", (int64_t)b->text.len, "s:mounted",
                        places.len ? places.ptr : NULL, "s:kept", kept.len ? kept.ptr : NULL, NULL);
}

/* `file` of the directory over each of the image's. The strings are valid as long as the cell. */
static int mounts_over(struct warden *w, const char *file, char source[720],
                       const char *const *places, size_t n_places, struct cella_mount *mounts,
                       uint32_t *n)
{
    size_t i;

    if (snprintf(source, 720, "%s/%s", w->shown_source, file) >= 720)
        return -ENAMETOOLONG;
    for (i = 0; i < n_places; i++)
        mounts[(*n)++] = (struct cella_mount){source, places[i], CELLA_MOUNT_BIND,
                                              CELLA_MOUNT_FILE | CELLA_MOUNT_IMAGE, 0};
    return 0;
}

static int files_write(int dir, const struct cella_span *ca, const struct trust_bundle *b,
                       struct cella_error *err)
{
    int r = file_shown(dir, "ca.pem", ca->ptr, ca->len, err);

    if (r == 0)
        r = file_shown(dir, "ca-bundle.pem", b->text.ptr, b->text.len, err);
    if (r == 0 && b->n_keystores)
        r = file_shown(dir, "cacerts", b->keystore.ptr, b->keystore.len, err);
    return r;
}

/* mounts NULL: the cell is there already, and none are made any more. */
static int ca_wire(struct warden *w, int dir, const struct cella_span *ca,
                   struct cella_mount *mounts, uint32_t *n, struct cella_error *err)
{
    struct trust_bundle b;
    const char *why = "";
    int count = trust_pem_check(ca->ptr, ca->len, &why), r;

    if (count < 0)
        return fail(err, -EPROTO, "enforcer %s: the authority it gave cannot be used: %s",
                    w->enforcer_plugin->name, why);
    r = trust_bundle_build(&w->image, ca->ptr, ca->len, &b, err);
    if (r < 0)
        return r;
    r = files_write(dir, ca, &b, err);
    if (!mounts)
        b.n_places = b.n_keystores = b.n_anchors = 0;
    if (r == 0 &&
        (mounts_over(w, "ca-bundle.pem", w->trust_source, b.places, b.n_places, mounts, n) < 0 ||
         mounts_over(w, "cacerts", w->keystore_source, b.keystores, b.n_keystores, mounts, n) < 0 ||
         mounts_over(w, "ca.pem", w->anchor_source, b.anchors, b.n_anchors, mounts, n) < 0))
        r = fail(err, -ENAMETOOLONG, "%s: the path is too long", w->shown_source);
    if (r == 0)
        r = tell(w, count, &b, err);
    trust_bundle_fini(&b);
    if (r == 0)
        crypto_hash_sha256(w->trust_digest, (const unsigned char *)ca->ptr, ca->len);
    w->trust_on |= r == 0;
    return r;
}

int shown_trust(struct warden *w, const struct cella_span *ca, struct cella_error *err)
{
    unsigned char digest[sizeof(w->trust_digest)];
    auto_close int dir = -1;
    int r;

    if (!ca->len)
        return 0;
    crypto_hash_sha256(digest, (const unsigned char *)ca->ptr, ca->len);
    if (w->trust_on && !memcmp(digest, w->trust_digest, sizeof(digest)))
        return 0;
    dir = openat(w->dir.dirfd, SHOWN_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return fail(err, -errno, "%s: %s", w->shown_source, strerror(errno));
    r = ca_wire(w, dir, ca, NULL, NULL, err);
    if (r == 0 && w->machine && (r = machine_shown(w)) < 0)
        fail(err, r, "showing the guest its certificates: %s", strerror(-r));
    return r;
}

int shown_mounts(struct warden *w, struct cella_mount *mounts, uint32_t *n, struct cella_error *err)
{
    auto_close int dir = -1;
    char link[64], real[PATH_MAX];
    ssize_t len;
    int r;

    if (!w->attached.address[0] && !w->attached.ca_pem.len)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", w->dir.dirfd);
    len = readlink(link, real, sizeof(real) - 1); /* a mount source has no links in it */
    if (len < 0 || (mkdirat(w->dir.dirfd, SHOWN_DIR, 0755) < 0 && errno != EEXIST))
        return fail(err, -errno, "%s/" SHOWN_DIR ": %s", w->dir.path, strerror(errno));
    real[len] = 0;
    if (snprintf(w->shown_source, sizeof(w->shown_source), "%s/" SHOWN_DIR, real) >=
        (int)sizeof(w->shown_source))
        return fail(err, -ENAMETOOLONG, "%s: the path is too long", real);
    dir = openat(w->dir.dirfd, SHOWN_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return fail(err, -errno, "%s: %s", w->shown_source, strerror(errno));
    r = denials_open(&w->denials, dir);
    if (r < 0)
        return fail(err, r, "%s/denials: %s", w->shown_source, strerror(-r));
    if (w->attached.ca_pem.len)
        r = ca_wire(w, dir, &w->attached.ca_pem, mounts, n, err);
    if (r == 0)
        mounts[(*n)++] =
            (struct cella_mount){w->shown_source, SHOWN_TARGET, CELLA_MOUNT_BIND, 0, 0};
    return r;
}
