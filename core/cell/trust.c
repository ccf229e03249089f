/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * trust - what a cell has to be given so that it trusts the certificate authority of its own gate, without losing
 * what its image trusts: hosts that are not looked into still show their own chains.
 *
 * Should: bound what is read of an image, whose files may be anything. Mustn't: hand a key into the
 * cell, follow a link of the image out of it. Threads: no state.
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "trust.h"

/* Where systems keep the bundle, in the order in which they are looked for. */
static const char *const bundle_paths[] = {
    "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Alpine, Arch */
    "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
    "/etc/ssl/ca-bundle.pem",                            /* SUSE */
    "/etc/ssl/cert.pem",                                 /* Alpine */
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* Fedora, RHEL */
    "/etc/pki/tls/cert.pem",
};
_Static_assert(ARRAY_LEN(bundle_paths) <= TRUST_PLACES_MAX, "a place per path");

/* Where Java runtimes keep theirs. */
static const char *const keystore_paths[] = {
    "/etc/ssl/certs/java/cacerts",              /* Debian, Ubuntu, Alpine */
    "/etc/pki/ca-trust/extracted/java/cacerts", /* Fedora, RHEL */
    "/etc/pki/java/cacerts",                    /* the same, older */
    "/opt/java/openjdk/lib/security/cacerts",   /* images of Eclipse Temurin */
};
_Static_assert(ARRAY_LEN(keystore_paths) <= TRUST_KEYSTORES_MAX, "a place per path");

/* What update-ca-certificates and update-ca-trust add to the bundles they write. */
static const char *const anchor_paths[] = {
    "/usr/local/share/ca-certificates/cella-gate.crt", /* Debian, Ubuntu, Alpine */
    "/etc/pki/ca-trust/source/anchors/cella-gate.pem", /* Fedora, RHEL */
};
_Static_assert(ARRAY_LEN(anchor_paths) <= TRUST_ANCHORS_MAX, "a place per path");

#define BUNDLE TRUST_BUNDLE_PATH
#define ALONE TRUST_ALONE_PATH

/* Variables that replace a program's trust get the whole bundle, those that add to it the CA alone. */
static const char *const environment[] = {
    "SSL_CERT_FILE=" BUNDLE,
    "CURL_CA_BUNDLE=" BUNDLE,
    "REQUESTS_CA_BUNDLE=" BUNDLE,
    "PIP_CERT=" BUNDLE,
    "GIT_SSL_CAINFO=" BUNDLE,
    "AWS_CA_BUNDLE=" BUNDLE,
    "CARGO_HTTP_CAINFO=" BUNDLE,
    "NODE_EXTRA_CA_CERTS=" ALONE,
    "DENO_CERT=" ALONE,
    "UV_NATIVE_TLS=1",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=" BUNDLE,
};

const char *trust_env(size_t i)
{
    return i < ARRAY_LEN(environment) ? environment[i] : NULL;
}

/* ---- PEM ---- */

static int line_is(const char *line, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(line, word, n);
}

static int base64_line(const char *line, size_t n)
{
    size_t i;

    if (n == 0 || n > 76)
        return 0;
    for (i = 0; i < n; i++) {
        char c = line[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '+' || c == '/' || (c == '=' && i + 2 >= n)))
            return 0;
    }
    return 1;
}

int trust_pem_check(const char *pem, size_t len, const char **ret_why)
{
    size_t at = 0, body = 0;
    int inside = 0, found = 0;

    while (at < len) {
        const char *line = pem + at, *end = memchr(line, '\n', len - at);
        size_t n = end ? (size_t)(end - line) : len - at;
        at += n + 1;
        if (n && line[n - 1] == '\r')
            n--;
        if (!inside && n == 0)
            continue;
        if (!inside && line_is(line, n, "-----BEGIN CERTIFICATE-----")) {
            inside = 1;
            body = 0;
        } else if (inside && body && line_is(line, n, "-----END CERTIFICATE-----")) {
            inside = 0;
            found++;
        } else if (inside && base64_line(line, n)) {
            body++;
        } else {
            *ret_why = "it holds something that is no PEM certificate";
            return -EINVAL;
        }
    }
    *ret_why = inside ? "its last certificate has no end" : "it holds no certificate";
    return inside || !found ? -EINVAL : found;
}

/* ---- the image ---- */

/* Where this process reads the image: a disk has a directory of the same content. */
static const char *tree_of(const struct image *img)
{
    return img->tree ? img->tree : img->root;
}

/* The directory under which the cell finds `path`, and the rest of the path below it. */
static const char *root_of(const struct image *img, const char *path, const char **ret_rest)
{
    const char *root = tree_of(img);
    size_t longest = 0, i;

    *ret_rest = path;
    for (i = 0; i < img->n_mounts; i++) {
        const struct cella_mount *m = &img->mounts[i];
        size_t n = strlen(m->target);
        if (m->type != CELLA_MOUNT_BIND || n < longest || strncmp(path, m->target, n) ||
            path[n] != '/')
            continue;
        longest = n;
        root = m->source;
        *ret_rest = path + n;
    }
    return root;
}

int trust_image_open(const struct image *img, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    const char *rest, *root = root_of(img, path, &rest);
    auto_close int dir = root ? open(root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    auto_close int fd = -1;
    struct stat st;

    if (dir < 0)
        return -ENOENT;
    fd = (int)syscall(SYS_openat2, dir, rest, &how, sizeof(how));
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? steal_fd(&fd) : -EINVAL;
}

static int own_read(int path_fd, const char *path, struct buf *ret, struct cella_error *err)
{
    auto_free char *text = NULL;
    char link[64];
    size_t len = 0;
    int r;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", path_fd);
    r = read_file_at(AT_FDCWD, link, TRUST_BUNDLE_MAX, &text, &len);
    if (r < 0)
        return fail(err, r, "the image's certificates, %s: %s", path,
                    r == -EFBIG ? "the file is longer than 4 MiB" : strerror(-r));
    buf_add(ret, text, len);
    return 0;
}

/* Those of `paths` that the image has, each file once: a mount over one name covers all. The first is read. */
static int places_find(const struct image *img, const char *const *paths, size_t n_paths,
                       const char **places, size_t *ret_n, struct buf *ret, struct cella_error *err)
{
    struct stat seen[TRUST_PLACES_MAX];
    size_t i, k, n = 0;
    int r = 0;

    for (i = 0; r == 0 && i < n_paths; i++) {
        auto_close int fd = trust_image_open(img, paths[i]);
        if (fd < 0 || fstat(fd, &seen[n]) < 0)
            continue;
        for (k = 0; k < n && (seen[k].st_dev != seen[n].st_dev || seen[k].st_ino != seen[n].st_ino);
             k++)
            ;
        if (k < n)
            continue;
        if (!n)
            r = own_read(fd, paths[i], ret, err);
        places[n++] = paths[i];
    }
    *ret_n = n;
    return r;
}

static void line_end(struct buf *b)
{
    if (b->len && b->ptr[b->len - 1] != '\n')
        buf_add(b, "\n", 1);
}

static int keystore_build(const struct image *img, const char *ca, size_t len,
                          struct trust_bundle *b, struct cella_error *err)
{
    auto_buf struct buf old = BUF_INIT;
    int r = places_find(img, keystore_paths, ARRAY_LEN(keystore_paths), b->keystores,
                        &b->n_keystores, &old, err);

    if (r == 0 && b->n_keystores &&
        trust_keystore(old.ptr, old.len, b->text.ptr, b->text.len, ca, len, wall_ns() / 1000000u,
                       &b->keystore) < 0)
        r = -ENOMEM;
    return r;
}

/* Where the directory is the image's own: below one of its mounts no file can be added. */
static void anchors_find(const struct image *img, struct trust_bundle *b)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    const char *tree = tree_of(img);
    auto_close int root = tree ? open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    const char *rest;
    size_t i;

    for (i = 0; root >= 0 && i < ARRAY_LEN(anchor_paths); i++) {
        char dir[64];
        auto_close int fd = -1;
        snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(anchor_paths[i], '/') - anchor_paths[i]),
                 anchor_paths[i]);
        if (root_of(img, anchor_paths[i], &rest) != tree)
            continue;
        fd = (int)syscall(SYS_openat2, root, dir, &how, sizeof(how));
        if (fd >= 0)
            b->anchors[b->n_anchors++] = anchor_paths[i];
    }
}

int trust_bundle_build(const struct image *img, const char *ca, size_t len,
                       struct trust_bundle *ret, struct cella_error *err)
{
    struct trust_bundle b = {.text = BUF_INIT, .keystore = BUF_INIT};
    int r = places_find(img, bundle_paths, ARRAY_LEN(bundle_paths), b.places, &b.n_places, &b.text,
                        err);

    if (r == 0) {
        b.from = b.n_places ? b.places[0] : NULL;
        line_end(&b.text);
        buf_add(&b.text, ca, len);
        line_end(&b.text);
        r = keystore_build(img, ca, len, &b, err);
        anchors_find(img, &b);
    }
    if (b.text.oom || b.keystore.oom)
        r = fail(err, -ENOMEM, "certificates: out of memory");
    if (r < 0)
        trust_bundle_fini(&b);
    else
        *ret = b;
    return r;
}

void trust_bundle_fini(struct trust_bundle *b)
{
    buf_fini(&b->text);
    buf_fini(&b->keystore);
}
