/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * verify: every change of a file is found, and the message names the line. Each byte of small files
 * is changed, each line deleted, doubled, swapped; each tail cut; heads and names forged.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "chain.h"
#include "fake_sink.h"

static char dir[64];
static struct fake fake;
static struct audit *writing; /* of a chain that is still being written */

enum how { CLOSED, LEFT, WRITING };

/* Chain "abc": chain.open, 3 events, and chain.close when CLOSED. LEFT by its writer it has a signed head of the last line;
   while WRITING, one of the first. Returns its text. */
static char *make_chain(enum how how, size_t *ret_len, char file[192])
{
    struct audit_sink sink = {.plugin = &fake.plugin, .overflow = OVERFLOW_FAIL_CLOSED};
    char path[96], *text = NULL;
    struct audit *a = NULL;
    int i;

    strcpy(dir, "/tmp/cella-test-verify-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/a", dir);
    fake_init(&fake, "fake", path);
    assert_int_equal(audit_open(dir, "abc", NULL, &sink, 1, &a, NULL), 0);
    for (i = 0; i < 3; i++)
        assert_int_equal(
            audit_emit(a, NULL, "cell.exec", "s:argv", "true\n", "i:n", (int64_t)i, NULL), 0);
    if (how == CLOSED)
        assert_int_equal(audit_close(a, NULL), 0);
    if (how == WRITING)
        writing = a;
    else
        audit_free(a);
    snprintf(file, 192, "%s/a/abc.jsonl", dir);
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 20, &text, ret_len), 0);
    return text;
}

static void drop_chain(char *text)
{
    free(text);
    audit_free(writing);
    writing = NULL;
    assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

static struct audit_verify_result verdict(const char *file, const char *text, size_t len)
{
    struct audit_verify_result res;
    struct errbuf eb;

    assert_int_equal(replace_file_at(AT_FDCWD, file, text, len, 0600), 0);
    if (audit_verify(dir, file, &res, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        assert_true(0);
    }
    return res;
}

/* `gap`: the line after a gap; its changed number shows in the line after it. */
static void every_flip(const char *file, const char *text, size_t len, size_t gap)
{
    static const unsigned char masks[] = {0x01, 0x20, 0x80};
    char *copy = malloc(len);
    size_t i, k, line = 1;

    for (i = 0; i < len; i++) {
        for (k = 0; k < sizeof(masks); k++) {
            struct audit_verify_result res;

            memcpy(copy, text, len);
            copy[i] = (char)(copy[i] ^ masks[k]);
            res = verdict(file, copy, len);
            if (!res.first_bad)
                print_error("byte %zu (line %zu) changed by %#x: not noticed\n", i, line, masks[k]);
            assert_int_not_equal(res.first_bad, 0);
            assert_in_range(res.first_bad, line > 1 ? line - 1 : 1, line + (line == gap));
            if (text[i] != '\n' && res.first_bad != line && line != gap)
                print_error("byte %zu of line %zu: %s\n", i, line, res.why);
            if (text[i] != '\n' && line != gap)
                assert_int_equal(res.first_bad, line);
        }
        line += text[i] == '\n';
    }
    free(copy);
    assert_int_equal(verdict(file, text, len).first_bad, 0);
}

static void test_flip_closed(void **state)
{
    char file[192];
    size_t len;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    every_flip(file, text, len, 0);
    drop_chain(text);
}

static void test_flip_open(void **state)
{
    char file[192];
    size_t len;
    char *text = make_chain(LEFT, &len, file);

    (void)state;
    every_flip(file, text, len, 0);
    drop_chain(text);
}

/* Between two signed heads the writer's state tells what the last line is. */
static void test_flip_writing(void **state)
{
    char file[192];
    size_t len;
    char *text = make_chain(WRITING, &len, file);

    (void)state;
    every_flip(file, text, len, 0);
    assert_int_equal(verdict(file, text, len - 100).first_bad, 4);
    drop_chain(text);
}

static void test_flip_host(void **state)
{
    char file[192];
    size_t len;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    free(text);
    text = NULL;
    snprintf(file, sizeof(file), "%s/a/host.jsonl", dir);
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 20, &text, &len), 0);
    every_flip(file, text, len, 0);
    drop_chain(text);
}

/* A copy whose sink missed two records that another sink has. */
static void test_flip_gap(void **state)
{
    static struct fake other;
    struct audit_sink sinks[2] = {{.plugin = &fake.plugin, .overflow = OVERFLOW_DROP},
                                  {.plugin = &other.plugin, .overflow = OVERFLOW_DROP}};
    char file[192], path[96], *text = NULL;
    struct audit *a = NULL;
    size_t len;
    int i;

    (void)state;
    strcpy(dir, "/tmp/cella-test-verify-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/a", dir);
    fake_init(&fake, "fake", path);
    snprintf(path, sizeof(path), "%s/b", dir);
    fake_init(&other, "other", path);
    assert_int_equal(audit_open(dir, "abc", NULL, sinks, 2, &a, NULL), 0);
    for (i = 0; i < 4; i++) {
        fake.fail_next = i == 1 || i == 2 ? -1 : 0;
        assert_int_equal(audit_emit(a, NULL, "cell.exec", "i:n", (int64_t)i, NULL), 0);
    }
    assert_int_equal(audit_close(a, NULL), 0);
    audit_free(a);
    snprintf(file, sizeof(file), "%s/a/abc.jsonl", dir);
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 20, &text, &len), 0);
    assert_non_null(strstr(text, "\"seq\":2,"));
    assert_null(strstr(text, "\"seq\":3,"));
    assert_null(strstr(text, "\"seq\":4,"));
    every_flip(file, text, len, 3);
    drop_chain(text);
}

/* The signed head and the public key themselves. */
static void test_flip_head(void **state)
{
    static const char *const names[] = {"abc.head", "key.pub"};
    char file[192], path[128];
    size_t len, n, i, k;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    for (k = 0; k < ARRAY_LEN(names); k++) {
        char *head = NULL;

        snprintf(path, sizeof(path), "%s/%s", dir, names[k]);
        assert_int_equal(read_file_at(AT_FDCWD, path, 4096, &head, &n), 0);
        for (i = 0; i + 1 < n; i++) {
            struct audit_verify_result res = {0};

            head[i] ^= 1;
            assert_int_equal(replace_file_at(AT_FDCWD, path, head, n, 0600), 0);
            if (audit_verify(dir, file, &res, NULL) == 0)
                assert_int_not_equal(res.first_bad, 0);
            head[i] ^= 1;
        }
        assert_int_equal(replace_file_at(AT_FDCWD, path, head, n, 0600), 0);
        free(head);
    }
    assert_int_equal(verdict(file, text, len).first_bad, 0);
    drop_chain(text);
}

/* Lines of `text` in the order given ("1,2,2,4"), each with its newline. */
static size_t arrange(const char *text, const char *order, char *out)
{
    size_t n = 0;

    for (; *order; order++) {
        const char *p = text;
        int k;

        if (*order == ',')
            continue;
        for (k = *order - '1'; k > 0; k--)
            p = strchr(p, '\n') + 1;
        memcpy(out + n, p, (size_t)(strchr(p, '\n') - p) + 1);
        n += (size_t)(strchr(p, '\n') - p) + 1;
    }
    return n;
}

struct arrangement {
    const char *order;
    uint64_t first_bad;
    const char *why;
};

static const struct arrangement arrangements[] = {
    {"1,2,3,4,5", 0, ""},
    {"2,3,4,5", 1, "records 1 to 1 are missing before line 1"},
    {"1,3,4,5", 2, "records 2 to 2 are missing before line 2"},
    {"1,4,5", 2, "records 2 to 3 are missing before line 2"},
    {"1,3,2,4,5", 2, "lines 2 and 3 are out of order: sequence numbers 3, 2"},
    {"1,4,3,2,5", 2, "records 2 to 3 are missing before line 2"},
    {"1,2,2,3,4,5", 3, "line 3 is a copy of the line before it"},
    {"1,2,3,2,4,5", 4, "line 4 is out of order: sequence number 2 after 3"},
    {"1,2,3,4,5,5", 6, "line 6 is a copy of the line before it"},
    {"1,2,3,4,5,2", 6, "line 6 is out of order: sequence number 2 after 5"},
    {"1,2,3,4", 5, "records 5 to 5 are missing at the end: the signed head names 5"},
    {"1,2", 3, "records 3 to 5 are missing at the end: the signed head names 5"},
    {"", 1, "records 1 to 5 are missing at the end: the signed head names 5"},
};

static void test_arrange(void **state)
{
    char file[192], out[8192];
    size_t len, i;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    for (i = 0; i < ARRAY_LEN(arrangements); i++) {
        size_t n = arrange(text, arrangements[i].order, out);
        struct audit_verify_result res = verdict(file, out, n);

        assert_string_equal(res.why, arrangements[i].why);
        assert_int_equal(res.first_bad, arrangements[i].first_bad);
    }
    drop_chain(text);
}

static void test_cut(void **state)
{
    char file[192];
    enum how how;

    (void)state;
    for (how = CLOSED; how <= WRITING; how++) {
        size_t len, n;
        char *text = make_chain(how, &len, file);

        for (n = 0; n < len; n++)
            assert_int_not_equal(verdict(file, text, n).first_bad, 0);
        assert_string_equal(verdict(file, text, len - 1).why + 7,
                            "has no newline at its end: the file was cut inside it");
        drop_chain(text);
    }
}

/* A whole chain made anew by somebody who has not the key: consistent in itself. */
static void test_forged(void **state)
{
    char file[192], keep[64], path[192];
    struct audit_verify_result res;
    struct errbuf eb;
    size_t len, n;
    char *text = make_chain(CLOSED, &len, file), *forged;

    (void)state;
    strcpy(keep, dir);
    forged = make_chain(CLOSED, &n, path);
    drop_chain(NULL);
    strcpy(dir, keep);
    res = verdict(file, forged, n);
    assert_int_equal(res.first_bad, 1);
    assert_string_equal(res.why, "line 1 names another signing key than this host's");
    assert_int_equal(audit_verify(NULL, file, &res, errbuf_init(&eb)),
                     0); /* by itself it is whole */
    assert_int_equal(res.first_bad, 0);
    assert_int_equal(res.closed, 1);
    free(forged);
    snprintf(path, sizeof(path), "%s/abc.head", dir);
    unlink(path);
    res = verdict(file, text, len);
    assert_int_equal(res.first_bad, 6);
    assert_string_equal(res.why, "there is no signed head of chain abc in the audit directory");
    drop_chain(text);
}

/* Replaces `len` bytes in place. */
static void patch(char *at, const char *with, size_t len)
{
    assert_non_null(at);
    memcpy(at, with, len);
}

/* Line 2 changed and every hash after it made to fit; `heads` also makes chain.close speak of the new line. */
static void relink(char *text, int heads)
{
    char hash[HASH_HEX], *line = strchr(text, '\n') + 1, *end;

    patch(strstr(line, "true"), "evil", 4);
    for (; (end = strchr(line, '\n')) && end[1]; line = end + 1) {
        line_hash(line, (size_t)(end - line), hash);
        patch(strstr(end + 1, "\"prev\":\"") + 8, hash, HASH_HEX - 1);
        if (heads && strstr(end + 1, "\"head\":\""))
            patch(strstr(end + 1, "\"head\":\"") + 8, hash, HASH_HEX - 1);
    }
}

static void test_relinked(void **state)
{
    char file[192];
    int heads;

    (void)state;
    for (heads = 0; heads <= 1; heads++) {
        struct audit_verify_result res;
        size_t len;
        char *text = make_chain(CLOSED, &len, file);

        relink(text, heads);
        res = verdict(file, text, len);
        assert_int_equal(res.first_bad, 5);
        assert_string_equal(
            res.why, heads ? "line 5 (chain.close) has a wrong signature"
                           : "line 5 (chain.close) signs something other than the line before it");
        assert_int_equal(audit_verify(NULL, file, &res, NULL), 0); /* by its own key, too */
        assert_int_equal(res.first_bad, 5);
        drop_chain(text);
    }
}

static void test_other(void **state)
{
    char file[192], path[192], big[80000], why[96];
    struct audit_verify_result res;
    struct errbuf eb;
    size_t len, n;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    snprintf(path, sizeof(path), "%s/a/xyz.jsonl", dir);
    assert_string_equal(verdict(path, text, len).why, "line 1 belongs to chain abc, not xyz");
    snprintf(path, sizeof(path), "%s/a/copy.txt", dir);
    assert_int_equal(verdict(path, text, len).first_bad, 0); /* its first line says whose it is */
    assert_int_equal(verdict(path, text, 0).first_bad, 1);
    memset(big, 'x', sizeof(big));
    memcpy(big, text, len);
    res = verdict(file, big, sizeof(big));
    assert_int_equal(res.first_bad, 6);
    assert_string_equal(res.why, "line 6 is longer than 65536 bytes");
    n = len;
    memcpy(big, text, len);
    n += (size_t)sprintf(big + n, "{\"v\":1}\n");
    snprintf(why, sizeof(why), "line 6 has no valid \"chain\"");
    assert_string_equal(verdict(file, big, n).why, why);
    assert_int_equal(audit_verify(dir, "/nowhere/abc.jsonl", &res, errbuf_init(&eb)), -ENOENT);
    assert_string_equal(eb.text,
                        "cannot read audit file /nowhere/abc.jsonl: No such file or directory");
    assert_int_equal(audit_verify(NULL, file, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 6);
    drop_chain(text);
}

static void test_links(void **state)
{
    char file[192], host[192];
    struct audit_verify_result res;
    struct errbuf eb;
    size_t len;
    char *text = make_chain(CLOSED, &len, file);

    (void)state;
    snprintf(host, sizeof(host), "%s/a/host.jsonl", dir);
    assert_int_equal(audit_verify_host_links(host, fake.dir, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 0);
    assert_int_equal(res.lines, 3);
    text[len - 3] ^= 1; /* in the last line: the host's cell.close */
    assert_int_equal(replace_file_at(AT_FDCWD, file, text, len, 0600), 0);
    assert_int_equal(audit_verify_host_links(host, fake.dir, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 3);
    unlink(file);
    assert_int_equal(audit_verify_host_links(host, fake.dir, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 2);
    assert_non_null(strstr(res.why, "cell abc: cannot read audit file"));
    drop_chain(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flip_closed),  cmocka_unit_test(test_flip_open),
        cmocka_unit_test(test_flip_writing), cmocka_unit_test(test_flip_gap),
        cmocka_unit_test(test_relinked),     cmocka_unit_test(test_flip_host),
        cmocka_unit_test(test_flip_head),    cmocka_unit_test(test_arrange),
        cmocka_unit_test(test_cut),          cmocka_unit_test(test_forged),
        cmocka_unit_test(test_other),        cmocka_unit_test(test_links),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
