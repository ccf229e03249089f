/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * artefact - names, locks, disks and their removal; programs in their box. Trees are made here;
 * mkfs.erofs and tar are the host's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail

#include <fcntl.h>
#include <sys/stat.h>

#include "artefact.h"
#include "images.h"
#include "run.h"
#include "tree.h"

static char state[64], source[96], name[128];

static void make(const char *path, const char *text, unsigned mode, unsigned uid)
{
    char full[256];
    int fd;

    snprintf(full, sizeof(full), "%s/%s", source, path);
    fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchown(fd, uid, uid), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

/* A file system's clock may stand still for longer than a test takes. */
static void at_another_time(const char *path)
{
    const struct timespec t[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    char full[256];

    snprintf(full, sizeof(full), "%s/%s", source, path);
    assert_int_equal(utimensat(AT_FDCWD, full, t, 0), 0);
}

static int setup(void **ctx)
{
    char path[160];

    (void)ctx;
    snprintf(state, sizeof(state), "/tmp/cella-test-artefact-XXXXXX");
    assert_non_null(mkdtemp(state));
    snprintf(source, sizeof(source), "/tmp/cella-test-source-XXXXXX");
    assert_non_null(mkdtemp(source));
    snprintf(name, sizeof(name), "dir:%s", source);
    snprintf(path, sizeof(path), "%s/sub", source);
    assert_int_equal(mkdir(path, 0755), 0);
    make("a", "hello\n", 0644, 0);
    make("sub/b", "secret\n", 0600, 1000);
    snprintf(path, sizeof(path), "%s/link", source);
    assert_int_equal(symlink("sub/b", path), 0);
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    remove_tree_at(AT_FDCWD, source);
    return remove_tree_at(AT_FDCWD, state);
}

static void import(const char *as, char digest[80])
{
    struct errbuf eb;

    if (image_import(state, as, name, digest, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        _fail(__FILE__, __LINE__);
    }
}

static int used_not(void *ctx, const char *digest, char who[128])
{
    (void)ctx;
    (void)digest;
    (void)who;
    return 0;
}

static int used_always(void *ctx, const char *digest, char who[128])
{
    (void)ctx;
    (void)digest;
    snprintf(who, 128, "snapshot s1");
    return 1;
}

static const struct image_refs unused = {used_not, NULL}, snapshot = {used_always, NULL};

static void test_names(void **ctx)
{
    static const char *const good[] = {"base", "a", "python-3.11", "x_y"},
                             *const bad[] = {"",      "host",  "Base",     "../x", ".x",
                                             "-x",    "a/b",   "dir-abc",  "a b",  "none",
                                             "names", "tar:x", "host-1234"};
    struct errbuf eb;
    char digest[80];
    size_t i;

    (void)ctx;
    for (i = 0; i < ARRAY_LEN(good); i++)
        assert_true(image_name_valid(good[i]));
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(image_name_valid(bad[i]));
        assert_int_equal(image_import(state, bad[i], name, digest, errbuf_init(&eb)), -EINVAL);
    }
    assert_int_equal(image_import(state, "x", "/etc", digest, errbuf_init(&eb)), -EINVAL);
}

/* The name resolves to a tree with the owners of the source; the same content gives the same digest. */
static void test_import(void **ctx)
{
    char digest[80], again[80], path[256];
    struct errbuf eb;
    struct image img;
    struct stat st;

    (void)ctx;
    import("one", digest);
    assert_int_equal(strncmp(digest, "sha256:", 7), 0);
    assert_int_equal(image_resolve(state, "one", CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)), 0);
    assert_string_equal(img.digest, digest);
    snprintf(path, sizeof(path), "%s/sub/b", img.root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, 1000);
    assert_int_equal(st.st_mode & 07777, 0600);
    image_fini(&img);
    import("two", again);
    assert_string_equal(digest, again);
    assert_int_equal(image_resolve(state, digest, CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)), 0);
    image_fini(&img);
    assert_int_equal(image_resolve(state, "three", CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)),
                     -ENOENT);
    assert_non_null(strstr(eb.text, "cella image"));
}

/* What a cell holds stays; so does what a snapshot has, and what has another name. */
static void test_removal(void **ctx)
{
    char digest[80];
    struct errbuf eb;
    struct image img;

    (void)ctx;
    import("one", digest);
    import("two", digest);
    assert_int_equal(image_remove(state, digest, &unused, errbuf_init(&eb)), -EBUSY);
    assert_int_equal(image_remove(state, "two", &unused, errbuf_init(&eb)), 0);
    assert_int_equal(image_resolve(state, "one", CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)), 0);
    assert_int_equal(image_remove(state, "one", &unused, errbuf_init(&eb)), -EBUSY);
    assert_non_null(strstr(eb.text, "cell"));
    assert_int_equal(access(img.root, F_OK), 0);
    image_fini(&img);
    assert_int_equal(image_remove(state, "one", &snapshot, errbuf_init(&eb)), -EBUSY);
    assert_non_null(strstr(eb.text, "snapshot s1"));
    assert_int_equal(image_remove(state, "one", &unused, errbuf_init(&eb)), 0);
    assert_int_equal(image_remove(state, "one", &unused, errbuf_init(&eb)), -ENOENT);
    assert_int_equal(image_resolve(state, digest, CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)),
                     -ENOENT);
}

static void count_found(void *ctx, const char *what)
{
    (void)what;
    ++*(int *)ctx;
}

static void test_collect(void **ctx)
{
    char digest[80];
    struct errbuf eb;
    struct image img;
    json_t *rows;
    int n = 0;

    (void)ctx;
    import("one", digest);
    make("a", "changed\n", 0644, 0);
    import("one", digest); /* the first has no name any more */
    assert_int_equal(image_list(state, &rows, errbuf_init(&eb)), 0);
    assert_int_equal(json_array_size(rows), 2);
    json_decref(rows);
    assert_int_equal(image_collect(state, 1, &unused, count_found, &n, errbuf_init(&eb)), 1);
    assert_int_equal(image_collect(state, 0, &snapshot, count_found, &n, errbuf_init(&eb)), 0);
    assert_int_equal(image_collect(state, 0, &unused, count_found, &n, errbuf_init(&eb)), 1);
    assert_int_equal(n, 2);
    assert_int_equal(image_collect(state, 1, &unused, NULL, NULL, errbuf_init(&eb)), 0);
    assert_int_equal(image_resolve(state, "one", CELLA_ROOT_DIR, NULL, &img, errbuf_init(&eb)), 0);
    image_fini(&img);
}

static void write_over(const char *key, const char *file, off_t at)
{
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/images/%s/%s", state, key, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "!", 1, at), 1);
    close(fd);
}

/* The disk: the same bytes whenever it is made, not made twice, and an edit is noticed. */
static void test_disk(void **ctx)
{
    char digest[80], path[256];
    struct errbuf eb;
    struct tree_facts facts;
    json_t *one, *two;
    int hold, tree;

    (void)ctx;
    import("one", digest);
    assert_int_equal(artefact_hold(state, digest + 7, &hold, errbuf_init(&eb)), 0);
    snprintf(path, sizeof(path), "%s/images/%s/root", state, digest + 7);
    tree = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (artefact_disk(state, hold, tree, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        _fail(__FILE__, __LINE__);
    }
    one = file_facts(hold, EROFS_FILE, errbuf_init(&eb));
    assert_int_equal(artefact_disk(state, hold, tree, errbuf_init(&eb)), 0);
    two = file_facts(hold, EROFS_FILE, errbuf_init(&eb));
    assert_true(json_equal(one, two));
    json_decref(two);
    assert_int_equal(unlinkat(hold, EROFS_FILE ".json", 0), 0); /* it was never there, then */
    assert_int_equal(artefact_disk(state, hold, tree, errbuf_init(&eb)), 0);
    two = file_facts(hold, EROFS_FILE, errbuf_init(&eb));
    assert_true(json_equal(json_object_get(one, "sha256"), json_object_get(two, "sha256")));
    json_decref(one);
    json_decref(two);
    assert_int_equal(image_verify(state, "one", errbuf_init(&eb)), 0);
    write_over(digest + 7, EROFS_FILE, 2000);
    assert_int_equal(artefact_disk(state, hold, tree, errbuf_init(&eb)), -ESTALE);
    assert_int_equal(image_verify(state, "one", errbuf_init(&eb)), -EBADMSG);
    assert_int_equal(unlinkat(hold, EROFS_FILE ".json", 0), 0);
    assert_int_equal(image_verify(state, "one", errbuf_init(&eb)), 0);
    write_over(digest + 7, "root/a", 0);
    assert_int_equal(image_verify(state, "one", errbuf_init(&eb)), -EBADMSG);
    assert_non_null(strstr(eb.text, "tree"));
    assert_int_equal(tree_digest(tree, TREE_CONTENT, &facts, errbuf_init(&eb)), 0);
    assert_int_equal(facts.entries, 4);
    assert_int_equal(facts.bytes, 13);
    close(tree);
    close(hold);
}

static void facts_of(enum tree_how how, char out[65])
{
    int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct tree_facts facts;
    struct errbuf eb;

    assert_int_equal(tree_digest(fd, how, &facts, errbuf_init(&eb)), 0);
    memcpy(out, facts.sha256, 65);
    close(fd);
}

static void test_tree(void **ctx)
{
    char before[65], after[65], stat_before[65], path[160];

    (void)ctx;
    facts_of(TREE_CONTENT, before);
    facts_of(TREE_STAT, stat_before);
    make("a", "hello\n", 0644, 0); /* the same again */
    at_another_time("a");
    facts_of(TREE_CONTENT, after);
    assert_string_equal(before, after);
    facts_of(TREE_STAT, after);
    assert_string_not_equal(stat_before, after);
    make("a", "hellO\n", 0644, 0);
    facts_of(TREE_CONTENT, after);
    assert_string_not_equal(before, after);
    make("a", "hello\n", 0600, 0);
    facts_of(TREE_CONTENT, after);
    assert_string_not_equal(before, after);
    make("a", "hello\n", 0644, 5);
    facts_of(TREE_CONTENT, after);
    assert_string_not_equal(before, after);
    make("a", "hello\n", 0644, 0);
    snprintf(path, sizeof(path), "%s/link", source);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("sub/c", path), 0);
    facts_of(TREE_CONTENT, after);
    assert_string_not_equal(before, after);
}

static int box(const char *script, char *output, size_t cap)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
    struct errbuf eb;
    const struct run run = {.mode = RUN_BOX,
                            .argv = argv,
                            .borrow_work_fd = fd,
                            .borrow_in_fd = -1,
                            .borrow_out_fd = -1,
                            .borrow_userns_fd = -1,
                            .ret_output = output,
                            .output_cap = cap};

    r = run_program(&run, "dash", errbuf_init(&eb));
    close(fd);
    if (r < 0 && !*output)
        snprintf(output, cap, "%s", eb.text);
    return r;
}

/* It sees /usr and its work, cannot change either, has no network, and dies with its first process. */
static void test_box(void **ctx)
{
    char out[1024];

    (void)ctx;
    assert_int_equal(box("cat a sub/b", out, sizeof(out)), 0);
    assert_string_equal(out, "hello\nsecret\n");
    assert_int_equal(box("ls /etc /home /root /var 2>/dev/null | grep .", out, sizeof(out)), -EIO);
    assert_int_equal(box("echo x >a", out, sizeof(out)), -EIO);
    assert_int_equal(box("echo x >/usr/cella-test", out, sizeof(out)), -EIO);
    assert_int_equal(box("grep -c : /proc/net/dev", out, sizeof(out)), 0);
    assert_string_equal(out, "1\n"); /* lo */
    assert_int_equal(box("mount -t tmpfs x /work", out, sizeof(out)), -EIO);
    assert_int_equal(box("ls /proc | grep -c '^[0-9]'", out, sizeof(out)), 0);
    assert_true(atoi(out) <= 4);
    assert_int_equal(box("exit 3", out, sizeof(out)), -EIO);
}

/* 1: the tree is not there, 2: nothing else is, either. */
static void test_directory_disk(void **ctx)
{
    struct errbuf eb;
    struct image img;
    char path[80];
    int r;

    (void)ctx;
    r = image_resolve(state, name, CELLA_ROOT_IMAGE, NULL, &img, errbuf_init(&eb));
    assert_int_equal(r, -ENOENT); /* the disk is made; there is no kernel */
    assert_non_null(strstr(eb.text, "kernel fetch"));
    assert_int_equal(image_resolve_copy(state, name, &img, errbuf_init(&eb)), 0);
    assert_null(img.kernel);
    snprintf(path, sizeof(path), "%s", img.digest);
    image_fini(&img);
    make("new", "x", 0644, 0); /* the directory is another one now; its old disk is still here */
    assert_int_equal(image_resolve_copy(state, path, &img, errbuf_init(&eb)), 0);
    assert_string_equal(img.digest, path);
    assert_null(img.tree);
    image_fini(&img);
    assert_int_equal(
        image_resolve_copy(state, "dir-00000000000000000000000000000000", &img, errbuf_init(&eb)),
        -ENOENT);
    assert_int_equal(image_resolve(state, "host", CELLA_ROOT_IMAGE, NULL, &img, errbuf_init(&eb)),
                     -ENOTSUP);
    assert_non_null(strstr(eb.text, "cella image build"));
}

static void test_build_refusals(void **ctx)
{
    static const struct {
        const char *name, *packages, *suite, *mirror, *words;
    } rows[] = {
        {"Bad Name", NULL, "bookworm", NULL, "cannot name"},
        {"x", "python3,--foo", "bookworm", NULL, "--foo"},
        {"x", "python3,,y", "bookworm", NULL, "packages"},
        {"x", "python3,", "bookworm", NULL, "end"},
        {"x", "./evil.deb", "bookworm", NULL, "evil"},
        {"x", NULL, "--suite", NULL, "suite"},
        {"x", NULL, "bookworm", "file:///etc", "mirror"},
        {"x", NULL, "bookworm", "http://a [trusted=yes]", "mirror"},
    };
    char digest[80];
    size_t i;

    (void)ctx;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        struct image_build b = {.name = rows[i].name,
                                .packages = rows[i].packages,
                                .suite = rows[i].suite,
                                /* nothing listens there: a refusal that is missing costs no time */
                                .mirror = rows[i].mirror ? rows[i].mirror : "http://127.0.0.1:9/",
                                .uid_base = 0x70000000,
                                .uid_count = 65536};
        struct errbuf eb;
        assert_int_equal(image_build(state, &b, digest, errbuf_init(&eb)), -EINVAL);
        assert_non_null(strstr(eb.text, rows[i].words));
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_names), T(test_import),         T(test_removal), T(test_collect),       T(test_disk),
        T(test_tree),  T(test_directory_disk), T(test_box),     T(test_build_refusals)};

    unpack_program = UNPACK_PROGRAM;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
