/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * image - names to roots; archives written by libarchive here, most of them hostile. After each
 * refusal the directory of images must hold nothing but its lock.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail /* util.h has its own */

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <archive.h>
#include <archive_entry.h>

#include "image_int.h"

#define FAIL_MSG(...)                                                                              \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

static char state[64], tarfile[96];
static int sparse; /* of what make_tar_as() writes, all but a file's beginning is a hole */

struct item {
    const char *path;
    mode_t type;
    const char *text; /* content, or target of a link */
    int hard;
    mode_t perm;
    int64_t uid;
};

static int setup(void **ctx)
{
    (void)ctx;
    snprintf(state, sizeof(state), "/tmp/cella-test-image-XXXXXX");
    assert_non_null(mkdtemp(state));
    snprintf(tarfile, sizeof(tarfile), "%s/a.tar", state);
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    return remove_tree_at(AT_FDCWD, state);
}

static void make_tar_as(const struct item *items, size_t n, int zstd)
{
    struct archive *a = archive_write_new();
    size_t i;

    assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    if (zstd)
        assert_int_equal(archive_write_add_filter_zstd(a), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, tarfile), ARCHIVE_OK);
    for (i = 0; i < n; i++) {
        struct archive_entry *e = archive_entry_new();
        const struct item *it = &items[i];
        archive_entry_set_pathname(e, it->path);
        archive_entry_set_perm(e, it->perm ? it->perm : 0755);
        archive_entry_set_uid(e, it->uid);
        archive_entry_set_filetype(e, it->type);
        if (it->hard) {
            archive_entry_set_hardlink(e, it->text);
        } else if (it->type == AE_IFLNK) {
            archive_entry_set_symlink(e, it->text);
        } else if (it->type == AE_IFREG) {
            archive_entry_set_size(e, it->text ? (la_int64_t)strlen(it->text) : 0);
        } else if (it->type == AE_IFCHR) {
            archive_entry_set_rdev(e, makedev(1, 3));
        }
        if (sparse)
            archive_entry_sparse_add_entry(e, 0, 512);
        assert_true(archive_write_header(a, e) >= ARCHIVE_WARN);
        if (it->type == AE_IFREG && !it->hard && it->text)
            archive_write_data(a, it->text, strlen(it->text));
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
}

static void make_tar(const struct item *items, size_t n)
{
    make_tar_as(items, n, 0);
}

/* Entries of images/ but the lock. */
static int images_count(void)
{
    char path[96];
    struct dirent *e;
    int n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "%s/images", state);
    d = opendir(path);
    if (!d)
        return 0;
    while ((e = readdir(d)))
        n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, ".lock");
    closedir(d);
    return n;
}

static int resolve(const char *name, struct image *img, struct errbuf *eb)
{
    return image_resolve(state, name, CELLA_ROOT_DIR, NULL, img, errbuf_init(eb));
}

static int resolve_tar(struct image *img, struct errbuf *eb)
{
    char name[128];

    snprintf(name, sizeof(name), "tar:%s", tarfile);
    return resolve(name, img, eb);
}

static void refused(const struct item *items, size_t n, const char *words)
{
    struct errbuf eb;
    struct image img;
    int r;

    make_tar(items, n);
    r = resolve_tar(&img, &eb);
    if (r >= 0)
        FAIL_MSG("accepted; expected: %s", words);
    if (!strstr(eb.text, words))
        FAIL_MSG("\"%s\" lacks \"%s\"", eb.text, words);
    assert_int_equal(images_count(), 0);
}
#define REFUSED(words, ...)                                                                        \
    do {                                                                                           \
        const struct item items_[] = {__VA_ARGS__};                                                \
        refused(items_, ARRAY_LEN(items_), words);                                                 \
    } while (0)

static char *slurp(const char *root, const char *path)
{
    char full[512], *text = NULL;

    snprintf(full, sizeof(full), "%s/%s", root, path);
    read_file_at(AT_FDCWD, full, 1 << 20, &text, NULL);
    return text;
}

static void check_tree(const char *root)
{
    char path[512];
    struct stat st, hard;
    char *text = slurp(root, "etc/motd");

    assert_string_equal(text, "hello\n");
    free(text);
    snprintf(path, sizeof(path), "%s/bin/su", root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755); /* no setuid */
    assert_int_equal(st.st_uid, 1000);
    snprintf(path, sizeof(path), "%s/bin/su2", root);
    assert_int_equal(stat(path, &hard), 0);
    assert_true(hard.st_ino == st.st_ino);
    snprintf(path, sizeof(path), "%s/abs", root);
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    snprintf(path, sizeof(path), "%s/d\xc3\xa9j\xc3\xa0", root);
    assert_int_equal(lstat(path, &st), 0);
    snprintf(path, sizeof(path), "%s/dev/null", root);
    assert_int_equal(lstat(path, &st), -1);
    snprintf(path, sizeof(path), "%s/tmp", root);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 01777);
}

static void test_tar_good(void **ctx)
{
    static const struct item items[] = {
        {".", AE_IFDIR, NULL, 0, 0, 0},
        {"./tmp/", AE_IFDIR, NULL, 0, 01777, 0},
        {"etc/motd", AE_IFREG, "old", 0, 0644, 0},
        {"etc/motd", AE_IFREG, "hello\n", 0, 0644, 0},
        {"bin/su", AE_IFREG, "x", 0, 04755, 1000},
        {"bin/su2", AE_IFREG, "bin/su", 1, 0755, 1000},
        {"abs", AE_IFLNK, "/etc/shadow", 0, 0, 0},
        {"d\xc3\xa9j\xc3\xa0", AE_IFREG, "x", 0, 0, 0},
        {"dev/null", AE_IFCHR, NULL, 0, 0666, 0},
    };
    struct errbuf eb;
    struct image img, again;
    char name[256];
    int zstd;

    (void)ctx;
    for (zstd = 0; zstd < 2; zstd++) {
        make_tar_as(items, ARRAY_LEN(items), zstd);
        if (resolve_tar(&img, &eb) < 0)
            FAIL_MSG("%s", eb.text);
        check_tree(img.root);
        assert_int_equal(strncmp(img.digest, "sha256:", 7), 0);
        assert_int_equal(images_count(), zstd + 1);
        assert_int_equal(resolve_tar(&again, &eb), 0); /* found, not made again */
        assert_string_equal(again.root, img.root);
        assert_int_equal(images_count(), zstd + 1);
        image_fini(&again);
        snprintf(name, sizeof(name), "tar:%s@%s", tarfile, img.digest);
        assert_int_equal(resolve(name, &again, &eb), 0);
        image_fini(&again);
        name[strlen(name) - 1] = name[strlen(name) - 1] == '0' ? '1' : '0';
        assert_int_equal(resolve(name, &again, &eb), -EBADMSG);
        image_fini(&img);
    }
}

static void test_tar_escapes(void **ctx)
{
    (void)ctx;
    REFUSED("would leave the image", {"/etc/x", AE_IFREG, "x", 0, 0, 0});
    REFUSED("would leave the image", {"a/../../x", AE_IFREG, "x", 0, 0, 0});
    REFUSED("would leave the image", {"..", AE_IFDIR, NULL, 0, 0, 0});
    REFUSED("a link or a file", {"out", AE_IFLNK, "/tmp", 0, 0, 0},
            {"out/x", AE_IFREG, "x", 0, 0, 0});
    REFUSED("a link or a file", {"up", AE_IFLNK, "..", 0, 0, 0},
            {"up/up/x", AE_IFDIR, NULL, 0, 0, 0});
    REFUSED("a link or a file", {"f", AE_IFREG, "x", 0, 0, 0}, {"f/x", AE_IFREG, "x", 0, 0, 0});
    REFUSED("outside the archive", {"h", AE_IFREG, "/etc/passwd", 1, 0, 0});
    REFUSED("outside the archive", {"h", AE_IFREG, "../../etc/passwd", 1, 0, 0});
    REFUSED("target", {"out", AE_IFLNK, "/etc", 0, 0, 0}, {"h", AE_IFREG, "out/passwd", 1, 0, 0});
    REFUSED("what is no file", {"d", AE_IFDIR, NULL, 0, 0, 0}, {"h", AE_IFREG, "d", 1, 0, 0});
    REFUSED("hard link to itself", {"h", AE_IFREG, "h", 1, 0, 0});
}

/* A link that is replaced by a file must not be written through. */
static void test_tar_replaces_link(void **ctx)
{
    char victim[128], link[160], *text;
    struct item items[2] = {{"x", AE_IFLNK, link, 0, 0, 0}, {"x", AE_IFREG, "evil", 0, 0, 0}};
    struct errbuf eb;
    struct image img;

    (void)ctx;
    snprintf(victim, sizeof(victim), "%s/victim", state);
    snprintf(link, sizeof(link), "%s", victim);
    assert_int_equal(replace_file_at(AT_FDCWD, victim, "good", 4, 0644), 0);
    make_tar(items, 2);
    assert_int_equal(resolve_tar(&img, &eb), 0);
    text = slurp(state, "victim");
    assert_string_equal(text, "good");
    free(text);
    text = slurp(img.root, "x");
    assert_string_equal(text, "evil");
    free(text);
    image_fini(&img);
}

static void test_tar_kinds(void **ctx)
{
    char deep[1024] = "";
    int i;

    (void)ctx;
    REFUSED("an image holds none", {"null", AE_IFCHR, NULL, 0, 0666, 0});
    REFUSED("an image holds none", {"dev2/null", AE_IFCHR, NULL, 0, 0666, 0});
    REFUSED("an image holds none", {"pipe", AE_IFIFO, NULL, 0, 0666, 0});
    REFUSED("not within 0", {"x", AE_IFREG, "x", 0, 0, 70000});
    REFUSED("must be a directory", {".", AE_IFREG, "x", 0, 0, 0});
    for (i = 0; i < 200; i++)
        strcat(deep, "a/");
    REFUSED("too deep", {deep, AE_IFDIR, NULL, 0, 0, 0});
}

static void test_tar_damaged(void **ctx)
{
    static const struct item items[] = {{"a", AE_IFREG, "0123456789", 0, 0, 0},
                                        {"b", AE_IFDIR, NULL, 0, 0, 0}};
    struct errbuf eb;
    struct image img;

    (void)ctx;
    make_tar(items, ARRAY_LEN(items));
    assert_int_equal(truncate(tarfile, 515), 0);
    assert_int_equal(resolve_tar(&img, &eb), -EBADMSG);
    assert_int_equal(replace_file_at(AT_FDCWD, tarfile, "this is no archive at all", 25, 0644), 0);
    assert_true(resolve_tar(&img, &eb) < 0);
    assert_int_equal(replace_file_at(AT_FDCWD, tarfile, "", 0, 0644), 0);
    assert_true(resolve_tar(&img, &eb) < 0);
    assert_int_equal(images_count(), 0);
    assert_int_equal(resolve("tar:/nonexistent/x.tar", &img, &eb), -ENOENT);
    assert_int_equal(resolve("tar:/tmp", &img, &eb), -EINVAL);
    assert_non_null(strstr(eb.text, "dir:PATH"));
}

static int unpack_with(const struct unpack_limits *limits, struct errbuf *eb)
{
    char out[96];
    int fd = open(tarfile, O_RDONLY | O_CLOEXEC), rootfd, r;

    snprintf(out, sizeof(out), "%s/out", state);
    remove_tree_at(AT_FDCWD, out);
    assert_int_equal(mkdir(out, 0755), 0);
    rootfd = open(out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = unpack_tar(fd, rootfd, limits, NULL, errbuf_init(eb));
    close(fd);
    close(rootfd);
    return r;
}

static void test_tar_limits(void **ctx)
{
    struct unpack_limits l = {.entries = 3, .bytes = 1 << 20, .ratio = 10, .ratio_from = 1 << 16};
    char *zeros = calloc(1, (1 << 19) + 1);
    struct item items[] = {{"a", AE_IFREG, "x", 0, 0, 0},
                           {"b", AE_IFREG, "x", 0, 0, 0},
                           {"c", AE_IFREG, "x", 0, 0, 0},
                           {"d", AE_IFREG, "x", 0, 0, 0}};
    struct errbuf eb;

    (void)ctx;
    make_tar(items, 3);
    assert_int_equal(unpack_with(&l, &eb), 0);
    make_tar(items, 4);
    assert_int_equal(unpack_with(&l, &eb), -EFBIG);
    assert_non_null(strstr(eb.text, "3 entries"));

    memset(zeros, 'z', 1 << 19);
    items[0].text = items[1].text = items[2].text = zeros;
    make_tar(items, 1);
    assert_int_equal(unpack_with(&l, &eb), 0);
    make_tar(items, 3);
    assert_int_equal(unpack_with(&l, &eb), -EFBIG);
    assert_non_null(strstr(eb.text, "unpacks to more than"));
    make_tar_as(items, 1, 1); /* 512 KiB from some hundred bytes */
    assert_int_equal(unpack_with(&l, &eb), -EFBIG);
    assert_non_null(strstr(eb.text, "bomb"));
    free(zeros);
}

static void test_tar_sizes(void **ctx)
{
    struct unpack_limits l = {.entries = 9, .bytes = 1 << 20, .ratio = 99, .ratio_from = 1 << 20};
    char *half = calloc(1, (1 << 19) + 1);
    struct item files[] = {{"a", AE_IFREG, half, 0, 0, 0},
                           {"b", AE_IFREG, half, 0, 0, 0},
                           {"c", AE_IFREG, half, 0, 0, 0}};
    struct item links[] = {{"a", AE_IFREG, half, 0, 0, 0},
                           {"b", AE_IFREG, "a", 1, 0, 0},
                           {"c", AE_IFREG, "a", 1, 0, 0},
                           {"d", AE_IFREG, "a", 1, 0, 0}};
    struct errbuf eb;

    (void)ctx;
    memset(half, 'z', 1 << 19);
    make_tar(links, 3);
    assert_int_equal(unpack_with(&l, &eb), 0);
    make_tar(links, 4);
    assert_int_equal(unpack_with(&l, &eb), -EFBIG);
    assert_non_null(strstr(eb.text, "unpacks to more than"));
    sparse = 1;
    make_tar(files, 2);
    assert_int_equal(unpack_with(&l, &eb), 0);
    make_tar(files, 3);
    sparse = 0;
    assert_int_equal(unpack_with(&l, &eb), -EFBIG);
    assert_non_null(strstr(eb.text, "unpacks to more than"));
    free(half);
}

static void test_dir(void **ctx)
{
    struct errbuf eb;
    struct image img;
    char name[128], elsewhere[] = "/tmp/cella-test-dir-XXXXXX";

    (void)ctx;
    assert_non_null(mkdtemp(elsewhere));
    snprintf(name, sizeof(name), "dir:%s", elsewhere);
    assert_int_equal(resolve(name, &img, &eb), 0);
    assert_string_equal(img.root, elsewhere);
    assert_int_equal(img.n_mounts, 0);
    image_fini(&img);
    assert_int_equal(rmdir(elsewhere), 0);
    assert_int_equal(resolve(name, &img, &eb), -ENOENT);
    assert_int_equal(resolve("dir:/", &img, &eb), -EACCES);
    assert_int_equal(resolve("dir:/proc", &img, &eb), -EACCES);
    assert_int_equal(resolve("dir:/sys/kernel", &img, &eb), -EACCES);
    assert_int_equal(resolve("dir:tmp", &img, &eb), -EINVAL);
    assert_int_equal(resolve("dir:/etc/passwd", &img, &eb), -ENOTDIR);
    snprintf(name, sizeof(name), "dir:%s", state);
    assert_int_equal(resolve(name, &img, &eb), -EACCES);
    assert_int_equal(resolve("alpine:latest", &img, &eb), -ENOENT);
    assert_int_equal(image_resolve(state, "host", CELLA_ROOT_IMAGE, NULL, &img, errbuf_init(&eb)),
                     -ENOTSUP);
}

static void test_host(void **ctx)
{
    struct errbuf eb;
    struct image img, again;
    struct stat st;
    char path[256], *text;
    size_t i, usr = 0;

    (void)ctx;
    if (resolve("host", &img, &eb) < 0)
        FAIL_MSG("%s", eb.text);
    for (i = 0; i < img.n_mounts; i++) {
        assert_int_equal(img.mounts[i].flags, CELLA_MOUNT_IMAGE); /* so: read-only */
        usr += !strcmp(img.mounts[i].target, "/usr");
        snprintf(path, sizeof(path), "%s%s", img.root, img.mounts[i].target);
        assert_int_equal(stat(path, &st), 0); /* its place exists */
    }
    assert_int_equal(usr, 1);
    text = slurp(img.root, "etc/passwd");
    assert_int_equal(strncmp(text, "root:x:0:0:", 11), 0);
    assert_null(strstr(text, "daemon"));
    free(text);
    text = slurp(img.root, "etc/resolv.conf");
    assert_string_equal(text, "");
    free(text);
    snprintf(path, sizeof(path), "%s/tmp", img.root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 01777);
    snprintf(path, sizeof(path), "%s/root", img.root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    for (i = 0; i < 3; i++) {
        static const char *const absent[] = {"etc/shadow", "etc/ssl/private", "etc/ssh"};
        snprintf(path, sizeof(path), "%s/%s", img.root, absent[i]);
        assert_int_equal(lstat(path, &st), -1);
    }
    assert_int_equal(resolve("host", &again, &eb), 0);
    assert_string_equal(img.root, again.root);
    assert_int_equal(images_count(), 1);
    image_fini(&again);
    image_fini(&img);
}

/* What a killed maker left is removed by the next one. */
static void test_stale(void **ctx)
{
    static const struct item items[] = {{"a", AE_IFREG, "x", 0, 0, 0}};
    char path[128];
    struct errbuf eb;
    struct image img;

    (void)ctx;
    snprintf(path, sizeof(path), "%s/images/.tmp-dead/root/x", state);
    assert_int_equal(mkdir_p(path, 0755), 0);
    make_tar(items, 1);
    assert_int_equal(resolve_tar(&img, &eb), 0);
    image_fini(&img);
    assert_int_equal(images_count(), 1);
}

static void test_entry_path(void **ctx)
{
    char out[64];

    (void)ctx;
    assert_int_equal(entry_path("./a//b/./c/", out, sizeof(out)), 0);
    assert_string_equal(out, "a/b/c");
    assert_int_equal(entry_path("./", out, sizeof(out)), 0);
    assert_string_equal(out, "");
    assert_int_equal(entry_path("a/..", out, sizeof(out)), -EINVAL);
    assert_int_equal(entry_path("a..b/...", out, sizeof(out)), 0);
    assert_int_equal(entry_path("/a", out, sizeof(out)), -EINVAL);
    assert_int_equal(
        entry_path("0123456789012345678901234567890123456789012345678901234567890123", out, 64),
        -ENAMETOOLONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_tar_good, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_escapes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_replaces_link, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tar_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dir, setup, teardown),
        cmocka_unit_test_setup_teardown(test_host, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stale, setup, teardown),
        cmocka_unit_test(test_entry_path),
    };

    unpack_program = UNPACK_PROGRAM;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
