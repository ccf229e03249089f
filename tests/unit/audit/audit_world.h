/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* audit_world - a directory, two sinks that can fail, chains, and what the verifier says of them. */
#ifndef CELLA_TEST_AUDIT_WORLD_H
#define CELLA_TEST_AUDIT_WORLD_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "chain.h"
#include "fake_sink.h"

static char dir[64];
static struct fake fa, fb;
static struct audit_sink sinks[2];

static inline int setup(void **state)
{
    char path[96];

    (void)state;
    strcpy(dir, "/tmp/cella-test-audit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/a", dir);
    fake_init(&fa, "fake-a", path);
    snprintf(path, sizeof(path), "%s/b", dir);
    fake_init(&fb, "fake-b", path);
    sinks[0] = (struct audit_sink){.plugin = &fa.plugin, .overflow = OVERFLOW_FAIL_CLOSED};
    sinks[1] = (struct audit_sink){.plugin = &fb.plugin, .overflow = OVERFLOW_FAIL_CLOSED};
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

static inline struct audit *open_chain(const char *cell, size_t n)
{
    struct audit *a = NULL;
    struct errbuf eb;

    if (audit_open(dir, cell, NULL, sinks, n, &a, errbuf_init(&eb)) < 0)
        print_error("%s\n", eb.text);
    assert_non_null(a);
    return a;
}

static inline void emit(struct audit *a, int expected)
{
    struct errbuf eb;
    int r = audit_emit(a, errbuf_init(&eb), "cell.exec", "s:cwd", "/tmp", "i:status", (int64_t)3,
                       "b:tty", 1, "s:absent", NULL, NULL);

    if (r != expected)
        print_error("%s\n", eb.text);
    assert_int_equal(r, expected);
}

static inline void close_chain(struct audit *a)
{
    struct errbuf eb;

    if (audit_close(a, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        assert_true(0);
    }
    audit_free(a);
}

static inline struct audit_verify_result verify(const struct fake *f, const char *chain)
{
    struct audit_verify_result res;
    struct errbuf eb;
    char file[192];

    snprintf(file, sizeof(file), "%s/%s.jsonl", f->dir, chain);
    if (audit_verify(dir, file, &res, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        assert_true(0);
    }
    return res;
}

static inline void assert_good(const struct fake *f, const char *chain, uint64_t lines, int closed)
{
    struct audit_verify_result res = verify(f, chain);

    if (res.first_bad)
        print_error("%s: line %llu: %s\n", chain, (unsigned long long)res.first_bad, res.why);
    assert_int_equal(res.first_bad, 0);
    if (lines)
        assert_int_equal(res.lines, lines);
    assert_int_equal(res.closed, closed);
}

/* Line `n` (from 1) of a chain's file, as JSON. */
static inline json_t *line_of(const struct fake *f, const char *chain, unsigned n)
{
    auto_free char *text = NULL;
    char file[192], *p;
    size_t len;
    json_t *o;

    snprintf(file, sizeof(file), "%s/%s.jsonl", f->dir, chain);
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 24, &text, &len), 0);
    for (p = text; n > 1; n--)
        p = strchr(p, '\n') + 1;
    *strchr(p, '\n') = 0;
    o = json_loads(p, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    return o;
}

static inline const char *kind_of(const struct fake *f, const char *chain, unsigned n)
{
    static char kind[64];
    json_t *o = line_of(f, chain, n);

    snprintf(kind, sizeof(kind), "%s", json_string_value(json_object_get(o, "kind")));
    json_decref(o);
    return kind;
}

static inline int64_t int_of(const struct fake *f, const char *chain, unsigned n, const char *key)
{
    json_t *o = line_of(f, chain, n);
    int64_t v = json_integer_value(json_object_get(o, key));

    json_decref(o);
    return v;
}

static inline int exists(const char *name)
{
    char path[192];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

#endif
