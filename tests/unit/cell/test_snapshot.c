/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* snapshot - the store without a warden: what is refused, who keeps what, what a dead maker leaves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail

#include <fcntl.h>
#include <sys/stat.h>

#include "snapshot.h"

#define HEAD "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char state[64];

static int setup(void **ctx)
{
    (void)ctx;
    snprintf(state, sizeof(state), "/tmp/cella-test-snapshot-XXXXXX");
    assert_non_null(mkdtemp(state));
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    return remove_tree_at(AT_FDCWD, state);
}

static json_t *good(void)
{
    json_t *m = json_pack(
        "{s:i, s:i, s:s, s:i, s:{s:s,s:s}, s:{s:s,s:s,s:s}, s:{s:s}, s:{s:i,s:s}, s:{s:s}, "
        "s:{s:s,s:s}, s:{}}",
        "format", SNAPSHOT_FORMAT, "link", 1, "created_by", "x", "generation", 1, "cell", "id",
        "abc", "class", "default", "backend", "name", "b", "version", "1", "strength", "vm",
        "image", "digest", "sha256:1", "chain", "seq", 3, "head", HEAD, "host", "cpu", "c",
        "policy", "name", "deny", "phase", "", "request");

    assert_non_null(m);
    return m;
}

static void put(const char *id, const char *file, const char *text)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/snapshots/%s/machine", state, id);
    assert_int_equal(mkdir_p(path, 0700), 0);
    if (!file)
        return;
    snprintf(path, sizeof(path), "%s/snapshots/%s/%s", state, id, file);
    assert_int_equal(replace_file_at(AT_FDCWD, path, text, strlen(text), 0600), 0);
}

static void put_manifest(const char *id, json_t *own, const char *name, int hidden)
{
    char path[256], *text;
    struct errbuf eb;
    json_t *files;
    int fd;

    put(id, NULL, NULL);
    snprintf(path, sizeof(path), "%s/snapshots/%s", state, id);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(manifest_files(fd, 1, &files, errbuf_init(&eb)), 0);
    close(fd);
    json_object_set_new(own, "files", files);
    json_object_set_new(own, "hidden", json_boolean(hidden));
    if (name)
        json_object_set_new(own, "name", json_string(name));
    text = json_dumps(own, 0);
    put(id, SNAPSHOT_MANIFEST, text);
    free(text);
    json_decref(own);
}

static void test_manifest(void **ctx)
{
    static const char *const members[] = {"format",  "link",    "created_by", "cell",
                                          "backend", "image",   "chain",      "host",
                                          "policy",  "request", "generation"};
    struct errbuf eb;
    size_t i;
    json_t *m = good();

    (void)ctx;
    assert_int_equal(manifest_check(m, errbuf_init(&eb)), 0);
    json_decref(m);
    assert_int_equal(manifest_check(NULL, errbuf_init(&eb)), -EBADMSG);
    for (i = 0; i < ARRAY_LEN(members); i++) { /* each away, and each of the wrong type */
        m = good();
        json_object_set_new(m, members[i], json_real(1.5));
        assert_true(manifest_check(m, errbuf_init(&eb)) < 0);
        json_object_del(m, members[i]);
        assert_true(manifest_check(m, errbuf_init(&eb)) < 0);
        json_decref(m);
    }
    m = good();
    json_object_set_new(m, "format", json_integer(SNAPSHOT_FORMAT + 1));
    assert_int_equal(manifest_check(m, errbuf_init(&eb)), -ENOTSUP);
    json_decref(m);
    m = good();
    json_object_set_new(json_object_get(m, "chain"), "head", json_string("00"));
    assert_int_equal(manifest_check(m, errbuf_init(&eb)), -EBADMSG);
    json_decref(m);
}

/* No name in the list leads out of the snapshot. */
static void test_file_names(void **ctx)
{
    static const char *const bad[] = {"/etc/passwd",     "../x",     "machine/../x", "machine/",
                                      "machine/.hidden", "manifest", "machine/a/b",  ""};
    struct errbuf eb;
    char path[128];
    size_t i;
    int fd;

    (void)ctx;
    put("aaaaaaaaaaaa", "machine/m", "memory");
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa", state);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        json_t *files = json_pack("[{s:s, s:i, s:i}]", "name", bad[i], "size", 1, "mtime_ns", 1);
        assert_int_equal(manifest_files_same(fd, files, 0, errbuf_init(&eb)), -EBADMSG);
        assert_non_null(strstr(eb.text, "list of files"));
        json_decref(files);
    }
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa/machine/link", state);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    {
        json_t *files;
        assert_int_equal(manifest_files(fd, 0, &files, errbuf_init(&eb)), -EINVAL);
    }
    close(fd);
}

static void test_find(void **ctx)
{
    struct snapshot s = SNAPSHOT_INIT;
    struct errbuf eb;
    json_t *rows;
    char who[128];

    (void)ctx;
    put_manifest("aaaaaaaaaaaa", good(), "one", 0);
    put_manifest("aaaabbbbbbbb", good(), "two", 0);
    assert_int_equal(snapshot_find(state, "one", &s, errbuf_init(&eb)), 0);
    assert_string_equal(s.id, "aaaaaaaaaaaa");
    snapshot_close(&s);
    assert_int_equal(snapshot_find(state, "aaaab", &s, errbuf_init(&eb)), 0);
    snapshot_close(&s);
    assert_int_equal(snapshot_find(state, "aaaa", &s, errbuf_init(&eb)), -EEXIST);
    assert_int_equal(snapshot_find(state, "aa", &s, errbuf_init(&eb)), -ENOENT);
    assert_int_equal(snapshot_list(state, &rows, errbuf_init(&eb)), 0);
    assert_int_equal(json_array_size(rows), 2);
    json_decref(rows);
    assert_true(snapshot_uses(state, "sha256:1", who));
    assert_non_null(strstr(who, "snapshot "));
    assert_false(snapshot_uses(state, "sha256:2", who));
}

/* The warden opens only what is below the state directory, and only what is whole. */
static void test_open(void **ctx)
{
    const struct timespec another[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    struct snapshot s = SNAPSHOT_INIT;
    struct errbuf eb;
    char path[128];

    (void)ctx;
    put("aaaaaaaaaaaa", "machine/m", "memory");
    put_manifest("aaaaaaaaaaaa", good(), NULL, 0);
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa", state);
    assert_int_equal(snapshot_open(state, path, &s, errbuf_init(&eb)), 0);
    snapshot_close(&s);
    assert_int_equal(snapshot_open(state, "/etc", &s, errbuf_init(&eb)), -EINVAL);
    assert_int_equal(snapshot_open("/elsewhere", path, &s, errbuf_init(&eb)), -EINVAL);
    snprintf(path, sizeof(path), "%s/snapshots/../snapshots/aaaaaaaaaaaa", state);
    assert_int_equal(snapshot_open(state, path, &s, errbuf_init(&eb)), -EINVAL);
    put("aaaaaaaaaaaa", "machine/m", "memory"); /* the same again, at another time */
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa/machine/m", state);
    assert_int_equal(utimensat(AT_FDCWD, path, another, 0), 0);
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa", state);
    assert_int_equal(snapshot_open(state, path, &s, errbuf_init(&eb)), -EBADMSG);
    assert_non_null(strstr(eb.text, "changed"));
    put("aaaaaaaaaaaa", "machine/m", "memorY");
    snprintf(path, sizeof(path), "%s/snapshots/aaaaaaaaaaaa", state);
    assert_int_equal(snapshot_open(state, path, &s, errbuf_init(&eb)), -EBADMSG);
    assert_int_equal(s.dirfd, -1);
}

static int there(const char *id)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/snapshots/%s", state, id);
    return access(path, F_OK) == 0;
}

static void test_users(void **ctx)
{
    struct snapshot a = SNAPSHOT_INIT, b = SNAPSHOT_INIT;
    struct errbuf eb;

    (void)ctx;
    put_manifest("aaaaaaaaaaaa", good(), "one", 0);
    put_manifest("bbbbbbbbbbbb", good(), NULL, 1);
    assert_int_equal(snapshot_find(state, "one", &a, errbuf_init(&eb)), 0);
    assert_int_equal(snapshot_remove(state, "one", errbuf_init(&eb)), -EBUSY);
    snapshot_release(state, &a); /* not hidden: it stays */
    assert_true(there("aaaaaaaaaaaa"));
    assert_int_equal(snapshot_remove(state, "one", errbuf_init(&eb)), 0);
    assert_false(there("aaaaaaaaaaaa"));
    assert_int_equal(snapshot_find(state, "bbbbb", &a, errbuf_init(&eb)), 0);
    assert_int_equal(snapshot_find(state, "bbbbb", &b, errbuf_init(&eb)), 0);
    assert_int_equal(snapshot_gc(state, 0, NULL, NULL, errbuf_init(&eb)), 0);
    snapshot_release(state, &a);
    assert_true(there("bbbbbbbbbbbb")); /* b has it */
    snapshot_release(state, &b);
    assert_false(there("bbbbbbbbbbbb"));
}

static void count(void *ctx, const char *what)
{
    (void)what;
    ++*(int *)ctx;
}

static void test_gc(void **ctx)
{
    struct errbuf eb;
    int n = 0;

    (void)ctx;
    assert_int_equal(snapshot_gc(state, 0, count, &n, errbuf_init(&eb)), 0); /* no directory yet */
    put_manifest("aaaaaaaaaaaa", good(), "kept", 0);
    put_manifest("bbbbbbbbbbbb", good(), NULL, 1);
    put(".tmp-cccccccccccc", "machine/m", "half");
    put("dddddddddddd", "machine/m", "no manifest: not ours to judge");
    assert_int_equal(snapshot_gc(state, 1, count, &n, errbuf_init(&eb)), 2);
    assert_true(there("bbbbbbbbbbbb"));
    assert_int_equal(snapshot_gc(state, 0, count, &n, errbuf_init(&eb)), 2);
    assert_int_equal(n, 4);
    assert_true(there("aaaaaaaaaaaa") && there("dddddddddddd"));
    assert_false(there("bbbbbbbbbbbb") || there(".tmp-cccccccccccc"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {T(test_manifest), T(test_file_names), T(test_find),
                                       T(test_open),     T(test_users),      T(test_gc)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
