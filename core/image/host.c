/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - the built-in image: this machine's /usr, and an /etc made for the cell.
 *
 * A skeleton <state_dir>/images/host-<fingerprint>/root is made once; what is large or changes
 * (/usr, the alternatives, the certificates) is mounted over it read-only. The skeleton holds what
 * programs of /usr need to start and nothing that says who uses this machine: passwd, group, hosts
 * and hostname are generated, and from /etc only the entries of a list are copied, of them only
 * what every local user may read. The fingerprint covers everything the skeleton is made from, so
 * an upgrade of the host makes a new one. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include <sodium.h>

#include "image_int.h"

#define SKELETON_VERSION "1"
#define COPY_FILES_MAX 4096u
#define COPY_BYTES_MAX (32u << 20)

static const struct {
    const char *path;
    unsigned mode, uid;
} directories[] = {
    {"etc", 0755, 0},       {"etc/ssl", 0755, 0}, {"home", 0755, 0},      {"home/user", 0755, 1000},
    {"root", 0700, 0},      {"tmp", 01777, 0},    {"var", 0755, 0},       {"var/tmp", 01777, 0},
    {"var/lib", 0755, 0},   {"var/log", 0755, 0}, {"var/cache", 0755, 0}, {"run", 0755, 0},
    {"run/lock", 01777, 0}, {"proc", 0555, 0},    {"sys", 0555, 0},       {"dev", 0755, 0},
    {"mnt", 0755, 0},       {"opt", 0755, 0},     {"srv", 0755, 0},       {"media", 0755, 0},
    {"usr", 0755, 0},
};

static const struct {
    const char *path, *text;
} files[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"
                   "user:x:1000:1000:user:/home/user:/bin/sh\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\nadm:x:4:\ntty:x:5:\nusers:x:100:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
    {"etc/hostname", "cell\n"},
    {"etc/nsswitch.conf",
     "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
     "protocols: files\nservices: files\nethers: files\nrpc: files\n"},
    {"etc/resolv.conf", ""}, /* the warden mounts the cell's own */
    {"etc/fstab", ""},
    {"etc/machine-id", ""},
};

/* Copied from the host's /etc when they are there. */
static const char *const copied[] = {
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld-musl-x86_64.path",
    "ca-certificates.conf",
    "ssl/openssl.cnf",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "perl",
    "mime.types",
    "localtime",
    "timezone",
    "terminfo",
    "inputrc",
    "os-release",
    "debian_version",
    "services",
    "protocols",
    "rpc",
    "ethertypes",
    "gai.conf",
    "host.conf",
    "locale.alias",
    "magic",
    "magic.mime",
    "java-17-openjdk",
    "java-21-openjdk",
    "fonts",
    "nanorc",
    "vim",
    "lsb-release",
    "login.defs",
    "shells",
};

/* Mounted read-only over the skeleton when they are there. */
static const char *const mounted[] = {"/usr", "/etc/alternatives", "/etc/ssl/certs"};

static const char *const top_links[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

struct copy {
    uint32_t files;
    uint64_t bytes;
};

static void digest_stat(crypto_hash_sha256_state *h, const char *path)
{
    char line[PATH_MAX + 128];
    struct stat st;
    int n;

    if (stat(path, &st) < 0)
        return;
    n = snprintf(line, sizeof(line), "%s %llu %llu %lld %lld.%09ld\n", path,
                 (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                 (long long)st.st_size, (long long)st.st_mtim.tv_sec, (long)st.st_mtim.tv_nsec);
    crypto_hash_sha256_update(h, (const uint8_t *)line, (size_t)n);
}

/* Hex of 16 bytes. */
static void fingerprint(char out[33])
{
    static const char *const facts[] = {
        "/usr",   "/usr/lib/os-release", "/var/lib/dpkg/status", "/bin", "/sbin", "/lib", "/lib32",
        "/lib64", "/etc/alternatives",   "/etc/ssl/certs"};
    uint8_t digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_state h;
    char path[PATH_MAX];
    size_t i;

    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, (const uint8_t *)SKELETON_VERSION, sizeof(SKELETON_VERSION));
    for (i = 0; i < ARRAY_LEN(facts); i++)
        digest_stat(&h, facts[i]);
    for (i = 0; i < ARRAY_LEN(copied); i++) {
        snprintf(path, sizeof(path), "/etc/%s", copied[i]);
        digest_stat(&h, path);
    }
    crypto_hash_sha256_final(&h, digest);
    hex_encode(digest, 16, out);
}

static int copy_file(int from, const char *name, int to, const struct stat *st, struct copy *c)
{
    auto_close int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int out = -1;
    char chunk[16384];
    ssize_t n;
    int r = 0;

    if (in < 0)
        return -errno;
    out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return -errno;
    while (r == 0 && (n = read(in, chunk, sizeof(chunk))) != 0) {
        if (n < 0)
            return -errno;
        c->bytes += (uint64_t)n;
        r = c->bytes > COPY_BYTES_MAX ? -EFBIG : write_all(out, chunk, (size_t)n);
    }
    return r < 0 ? r : fchmod(out, st->st_mode & 0555) < 0 ? -errno : 0;
}

static int copy_entry(int from, const char *name, int to, unsigned depth, struct copy *c);

static int copy_directory(int from, const char *name, int to, unsigned depth, struct copy *c)
{
    auto_close int target = -1;
    DIR *d = dir_open_at(from, name);
    struct dirent *e;
    int r = 0;

    if (!d)
        return -errno;
    if (mkdirat(to, name, 0755) < 0 && errno != EEXIST)
        r = -errno;
    target = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r == 0 && target < 0)
        r = -errno;
    while (r == 0 && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            r = copy_entry(dirfd(d), e->d_name, target, depth + 1, c);
    closedir(d);
    return r;
}

/* Copies what every user of the host may read; passes over the rest, and over what is no file. */
static int copy_entry(int from, const char *name, int to, unsigned depth, struct copy *c)
{
    char link[PATH_MAX];
    struct stat st;
    ssize_t n;

    if (depth > 16 || ++c->files > COPY_FILES_MAX)
        return -EFBIG;
    if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISLNK(st.st_mode)) {
        n = readlinkat(from, name, link, sizeof(link) - 1);
        if (n < 0)
            return -errno;
        link[n] = 0;
        return symlinkat(link, to, name) < 0 && errno != EEXIST ? -errno : 0;
    }
    if (!(st.st_mode & S_IROTH))
        return 0;
    if (S_ISDIR(st.st_mode))
        return copy_directory(from, name, to, depth, c);
    return S_ISREG(st.st_mode) ? copy_file(from, name, to, &st, c) : 0;
}

/* "ssl/openssl.cnf": the parent below etc/ exists already. */
static int copy_listed(int rootfd, struct cella_error *err)
{
    struct copy c = {0, 0};
    size_t i;

    for (i = 0; i < ARRAY_LEN(copied); i++) {
        const char *slash = strrchr(copied[i], '/'), *name = slash ? slash + 1 : copied[i];
        int len = slash ? (int)(slash - copied[i]) : 0, r;
        char from_path[256], to_path[256];
        auto_close int from = -1, to = -1;

        snprintf(from_path, sizeof(from_path), "/etc/%.*s", len, copied[i]);
        snprintf(to_path, sizeof(to_path), "etc/%.*s", len, copied[i]);
        from = open(from_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (from < 0)
            continue;
        to = openat(rootfd, to_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = to < 0 ? -errno : copy_entry(from, name, to, 0, &c);
        if (r < 0)
            return fail(err, r, "image host: copying /etc/%s: %s", copied[i], strerror(-r));
    }
    return 0;
}

/* bin -> usr/bin as on the host; a real directory of a system that is not merged becomes a mount
 * point. */
static int make_top(int rootfd, struct cella_error *err)
{
    char path[32], link[PATH_MAX];
    struct stat st;
    size_t i;

    for (i = 0; i < ARRAY_LEN(top_links); i++) {
        ssize_t n;
        int r;
        snprintf(path, sizeof(path), "/%s", top_links[i]);
        if (lstat(path, &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            r = mkdirat(rootfd, top_links[i], 0755);
        } else {
            n = readlink(path, link, sizeof(link) - 1);
            if (n <= 0)
                continue;
            link[n] = 0;
            r = symlinkat(link, rootfd, top_links[i]);
        }
        if (r < 0)
            return fail(err, -errno, "image host: making /%s: %s", top_links[i], strerror(errno));
    }
    return 0;
}

static int make_files(int rootfd, struct cella_error *err)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(files); i++) {
        auto_close int fd = openat(rootfd, files[i].path,
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : write_all(fd, files[i].text, strlen(files[i].text));
        if (r == 0 && fchmod(fd, 0644) < 0)
            r = -errno;
        if (r < 0)
            return fail(err, r, "image host: making /%s: %s", files[i].path, strerror(-r));
    }
    if (symlinkat("/proc/self/mounts", rootfd, "etc/mtab") < 0 ||
        symlinkat("/run", rootfd, "var/run") < 0 || symlinkat("/run/lock", rootfd, "var/lock") < 0)
        return fail(err, -errno, "image host: making links: %s", strerror(errno));
    return 0;
}

static int make_skeleton(int rootfd, struct cella_error *err)
{
    size_t i;
    int r;

    for (i = 0; i < ARRAY_LEN(directories); i++) {
        const char *path = directories[i].path;
        if (mkdirat(rootfd, path, 0700) < 0 || fchmodat(rootfd, path, directories[i].mode, 0) < 0 ||
            fchownat(rootfd, path, directories[i].uid, directories[i].uid, AT_SYMLINK_NOFOLLOW) < 0)
            return fail(err, -errno, "image host: making /%s: %s", path, strerror(errno));
    }
    for (i = 1; i < ARRAY_LEN(mounted); i++)
        if (access(mounted[i], F_OK) == 0 && mkdirat(rootfd, mounted[i] + 1, 0755) < 0)
            return fail(err, -errno, "image host: making %s: %s", mounted[i], strerror(errno));
    r = make_top(rootfd, err);
    if (r == 0)
        r = make_files(rootfd, err);
    return r < 0 ? r : copy_listed(rootfd, err);
}

static int add_mount(struct image *img, const char *path)
{
    struct cella_mount *m = realloc(img->mounts, (img->n_mounts + 1) * sizeof(*m));

    if (!m)
        return -ENOMEM;
    img->mounts = m;
    m = &m[img->n_mounts++];
    *m = (struct cella_mount){.source = strdup(path),
                              .target = strdup(path),
                              .type = CELLA_MOUNT_BIND,
                              .flags = CELLA_MOUNT_IMAGE};
    return m->source && m->target ? 0 : -ENOMEM;
}

static int add_mounts(struct image *img)
{
    char path[32];
    struct stat st;
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ARRAY_LEN(mounted); i++)
        if (lstat(mounted[i], &st) == 0 && S_ISDIR(st.st_mode))
            r = add_mount(img, mounted[i]);
    for (i = 0; r == 0 && i < ARRAY_LEN(top_links); i++) {
        snprintf(path, sizeof(path), "/%s", top_links[i]);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            r = add_mount(img, path);
    }
    return r;
}

static int host_make(struct image_dir *d, const char *key, struct cella_error *err)
{
    char tmp[32];
    auto_close int rootfd = -1;
    int r = image_tmp_new(d, tmp, &rootfd, err);

    if (r < 0)
        return r;
    r = make_skeleton(rootfd, err);
    if (r == 0)
        r = image_tmp_commit(d, tmp, key, err);
    if (r < 0)
        image_tmp_drop(d, tmp);
    return r;
}

int image_host(const char *state_dir, struct image *img, struct cella_error *err)
{
    struct image_dir d;
    char print[33], key[48];
    int r;

    if (sodium_init() < 0)
        return fail(err, -EIO, "image host: libsodium does not start");
    fingerprint(print);
    snprintf(key, sizeof(key), "host-%s", print);
    /* The usual case needs no lock: what has its final name is whole and never changes. */
    if (asprintf(&img->root, "%s/images/%s/root", state_dir, key) < 0) {
        img->root = NULL;
        return fail(err, -ENOMEM, "out of memory");
    }
    if (access(img->root, F_OK) < 0) {
        r = image_dir_open(state_dir, &d, err);
        if (r < 0)
            return r;
        if (!image_ready(&d, key))
            r = host_make(&d, key, err);
        image_dir_close(&d);
        if (r < 0)
            return r;
    }
    if (asprintf(&img->digest, "host:%s", print) < 0) {
        img->digest = NULL;
        return fail(err, -ENOMEM, "out of memory");
    }
    r = add_mounts(img);
    return r < 0 ? fail(err, r, "out of memory") : 0;
}
