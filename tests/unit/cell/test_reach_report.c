/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* reach_report - what a result is bound to: each of it, when it is another one, makes the result stale. */
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail

#include "reach.h"
#include "warden.h"

static struct warden w;
static struct plugin backend, enforcer;
static struct reach_matrix m;
static char image[] = "sha256:1", other_image[] = "sha256:2", policy[] = "deny";
static char dir[64];
static int saved, audit_result;

/* In place of the audit library's. */
int audit_emit(struct audit *a, struct cella_error *err, const char *kind, ...)
{
    (void)a;
    assert_string_equal(kind, "reach.result");
    return audit_result < 0 ? fail(err, audit_result, "no room") : 0;
}

int warden_audited(struct warden *warden, int r)
{
    (void)warden;
    return r;
}

int warden_save(struct warden *warden)
{
    (void)warden;
    saved++;
    return 0;
}

static void row(uint32_t expected)
{
    struct cella_reach_row r = {.hdr = CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                .id = "x",
                                .group = "g",
                                .kind = "tcp",
                                .address = "203.0.113.1",
                                .twin_address = "",
                                .name = "",
                                .options = "",
                                .rule = "",
                                .why = "why",
                                .port = 80,
                                .expected = expected,
                                .proof = CELLA_REACH_BY_SINK};

    matrix_row(&m, &r);
}

static struct reach_taken now(void)
{
    struct reach_taken t = {.started = now_ns(), .generation = w.generation};

    snprintf(t.sha256, sizeof(t.sha256), "%s", w.policy.sha256);
    return t;
}

static int setup(void **state)
{
    (void)state;
    w = (struct warden){.backend_plugin = &backend,
                        .enforcer_plugin = &enforcer,
                        .generation = 3,
                        .cell = json_object()};
    backend = (struct plugin){
        .name = "container", .version = "1", .dl = dlopen("libjansson.so.4", RTLD_NOW)};
    enforcer = (struct plugin){.name = "egress-nft", .version = "1"};
    snprintf(w.dir.id, sizeof(w.dir.id), "abcdefghijkl");
    w.image.digest = image;
    snprintf(w.policy.sha256, sizeof(w.policy.sha256), "aa");
    w.policy.name = policy;
    snprintf(dir, sizeof(dir), "/tmp/cella-report-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(w.dir.path, sizeof(w.dir.path), "%s", dir);
    w.dir.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    m = (struct reach_matrix){0};
    row(CELLA_REACH_ALLOW);
    m.count = 1;
    m.rows[0].try = (struct reach_try){.told = 1, .got = 5, .bytes = 5};
    saved = audit_result = 0;
    return 0;
}

static int teardown(void **state)
{
    char file[128];

    (void)state;
    matrix_fini(&m);
    json_decref(w.cell);
    dlclose(backend.dl);
    close(w.dir.dirfd);
    snprintf(file, sizeof(file), "%s/reach.json", dir);
    unlink(file);
    rmdir(dir);
    return 0;
}

static const json_t *measured(void)
{
    struct reach_taken t = now();
    json_t *told = NULL;
    struct errbuf eb;

    assert_int_equal(reach_report(&w, &m, &t, &told, errbuf_init(&eb)), 0);
    assert_string_equal(json_string_value(json_object_get(told, "verdict")), "pass");
    json_decref(told);
    assert_int_equal(saved, 1);
    return json_object_get(w.cell, "reach");
}

static void stale_with_another_cell(void **state)
{
    const json_t *r = measured();

    (void)state;
    assert_false(reach_stale(&w, r));
    w.dir.id[0] = 'b';
    assert_true(reach_stale(&w, r));
    w.dir.id[0] = 'a';
    assert_false(reach_stale(&w, r));
}

static void stale_with_another_image(void **state)
{
    const json_t *r = measured();

    (void)state;
    w.image.digest = other_image;
    assert_true(reach_stale(&w, r));
}

static void stale_with_another_policy(void **state)
{
    const json_t *r = measured();

    (void)state;
    snprintf(w.policy.sha256, sizeof(w.policy.sha256), "ab");
    assert_true(reach_stale(&w, r));
}

static void stale_with_another_generation(void **state)
{
    const json_t *r = measured();

    (void)state;
    w.generation++;
    assert_true(reach_stale(&w, r));
}

/* The same name and version, another build. */
static void stale_with_another_build(void **state)
{
    const json_t *r = measured();
    void *before = backend.dl;

    (void)state;
    backend.dl = dlopen("libsodium.so.23", RTLD_NOW);
    assert_non_null(backend.dl);
    assert_true(reach_stale(&w, r));
    dlclose(backend.dl);
    backend.dl = before;
    assert_false(reach_stale(&w, r));
    enforcer.dl = before;
    assert_true(reach_stale(&w, r));
    enforcer.dl = NULL;
    backend.version = "2";
    assert_true(reach_stale(&w, r));
}

static void no_result_of_a_policy_that_moved(void **state)
{
    struct reach_taken t = now();
    json_t *told = NULL;
    struct errbuf eb;

    (void)state;
    w.generation++;
    assert_int_equal(reach_report(&w, &m, &t, &told, errbuf_init(&eb)), -EAGAIN);
    w.generation--;
    snprintf(w.policy.sha256, sizeof(w.policy.sha256), "ab");
    assert_int_equal(reach_report(&w, &m, &t, &told, errbuf_init(&eb)), -EAGAIN);
    assert_null(told);
    assert_int_equal(saved, 0);
}

static void no_result_that_cannot_be_kept(void **state)
{
    struct reach_taken t = now();
    json_t *told = NULL;
    struct errbuf eb;
    int before = w.dir.dirfd;

    (void)state;
    w.dir.dirfd = -1;
    assert_true(reach_report(&w, &m, &t, &told, errbuf_init(&eb)) < 0);
    w.dir.dirfd = before;
    assert_null(told);
    assert_null(json_object_get(w.cell, "reach"));
}

static void no_result_that_cannot_be_recorded(void **state)
{
    struct reach_taken t = now();
    json_t *told = NULL;
    struct errbuf eb;

    (void)state;
    audit_result = -ENOSPC;
    assert_int_equal(reach_report(&w, &m, &t, &told, errbuf_init(&eb)), -ENOSPC);
    assert_null(told);
    assert_null(json_object_get(w.cell, "reach"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(stale_with_another_cell),       T(stale_with_another_image),
        T(stale_with_another_policy),     T(stale_with_another_generation),
        T(stale_with_another_build),      T(no_result_of_a_policy_that_moved),
        T(no_result_that_cannot_be_kept), T(no_result_that_cannot_be_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
