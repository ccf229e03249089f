/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What an enforcer may hand back as the cell's certificate authority, at attach and with a change; and attaching early. */
#include "harness.h"

static struct cella_span given;
static int attached, detached, waited, wait_result;
static uint32_t asked_early;
static void *taken;

static int e_attach(const struct cella_host *host, const struct cella_attach *attach,
                    void **ret_self, struct cella_attached *ret, struct cella_error *err)
{
    (void)host, (void)err;
    asked_early = attach->early;
    taken = attach->own_ready;
    ret->ca_pem = given;
    *ret_self = &attached;
    attached++;
    return 0;
}

static void e_detach(void *self)
{
    (void)self;
    detached++;
}

static int e_apply(void *self, const struct cella_policy *policy, struct cella_applied *ret,
                   struct cella_error *err)
{
    (void)self, (void)err;
    ret->generation = policy->generation;
    ret->ca_pem = given;
    return 0;
}

static int e_wait(void *self, struct cella_error *err)
{
    (void)self, (void)err;
    waited++;
    return wait_result;
}

static int e_report(void *self, void *ctx, void (*flow)(void *, const struct cella_flow *),
                    struct cella_error *err)
{
    (void)self, (void)ctx, (void)flow, (void)err;
    return 0;
}

static int begun, dropped, finished;
static int e_ready(const struct cella_host *host, const struct cella_ready *ready, void **ret,
                   struct cella_error *err)
{
    (void)host, (void)ready, (void)err;
    *ret = &begun;
    begun++;
    return 0;
}

static void e_unready(void *ready)
{
    dropped += ready == &begun;
}

static int e_finish(void *self, struct cella_error *err)
{
    (void)self, (void)err;
    finished++;
    return 0;
}

static int restart_result, given_tap = -1, given_exit = -1;

static int e_restart(void *self, struct cella_attached *ret, struct cella_error *err)
{
    (void)self, (void)err;
    ret->ca_pem = given;
    ret->gate_pid = 7;
    ret->own_tap_fd = given_tap;
    ret->borrow_exit_fd = given_exit;
    return restart_result;
}

static struct plugin walls = {
    .kind = CELLA_KIND_ENFORCER,
    .name = "walls",
    .ops.enforcer = {.attach = e_attach, .detach = e_detach, .apply = e_apply}};

static void test_authority(void **state)
{
    static char pem[CELLA_CA_PEM_MAX + 1];
    static const struct {
        const char *ptr;
        uint64_t len;
        int ok;
    } rows[] = {{NULL, 0, 1},
                {pem, 0, 1},
                {pem, 1, 1},
                {pem, CELLA_CA_PEM_MAX, 1},
                {pem, CELLA_CA_PEM_MAX + 1, 0},
                {NULL, 1, 0},
                {pem, UINT64_MAX, 0}};
    const struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                    .link = CELLA_LINK_NONE};
    const struct cella_policy policy = {
        .hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY), .generation = 2};
    struct cella_applied applied;
    struct errbuf eb;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        struct enforcer e = {NULL, NULL, 0};
        struct cella_attached got = {.reserved0 = 7};
        given = (struct cella_span){rows[i].ptr, rows[i].len};
        if (rows[i].ok) {
            assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
            assert_int_equal(got.ca_pem.len, rows[i].len);
            assert_ok(enforcer_apply(&e, &policy, &applied, errbuf_init(&eb)), eb);
            assert_int_equal(applied.ca_pem.len, rows[i].len);
            enforcer_detach(&e);
        } else {
            assert_int_equal(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)),
                             -EPROTO);
            assert_says(eb.text, "certificate authority");
            assert_null(e.self);
            e = (struct enforcer){&walls, &attached};
            assert_int_equal(enforcer_apply(&e, &policy, &applied, errbuf_init(&eb)), -EPROTO);
            assert_says(eb.text, "certificate authority");
            assert_int_equal(got.reserved0, 7);
        }
        assert_int_equal(attached, detached);
    }
}

/* Nothing but the wait and detach reaches an enforcer that has not said that its rules hold. */
static void test_early(void **state)
{
    const struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                    .link = CELLA_LINK_NONE,
                                    .early = 1};
    struct cella_attached got;
    struct enforcer e = {NULL, NULL, 0};
    struct errbuf eb;

    (void)state;
    given = (struct cella_span){NULL, 0};
    assert_int_equal(enforcer_wait(&e, errbuf_init(&eb)), -EPROTO);
    assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
    assert_int_equal(asked_early, 0); /* it has no attach_wait: attach did everything */
    assert_ok(enforcer_wait(&e, errbuf_init(&eb)), eb);
    assert_ok(enforcer_report(&e, NULL, NULL, errbuf_init(&eb)), eb);
    assert_int_equal(waited, 0);
    enforcer_detach(&e);

    walls.ops.enforcer.attach_wait = e_wait;
    walls.ops.enforcer.report = e_report;
    assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
    assert_int_equal(asked_early, 1);
    assert_int_equal(enforcer_report(&e, NULL, NULL, errbuf_init(&eb)), -EPROTO);
    wait_result = -EIO;
    assert_int_equal(enforcer_wait(&e, errbuf_init(&eb)), -EIO);
    assert_int_equal(enforcer_report(&e, NULL, NULL, errbuf_init(&eb)), -EPROTO);
    wait_result = 0;
    assert_ok(enforcer_wait(&e, errbuf_init(&eb)), eb);
    assert_ok(enforcer_wait(&e, errbuf_init(&eb)), eb);
    assert_int_equal(waited, 2); /* once it holds, it is not asked again */
    assert_ok(enforcer_report(&e, NULL, NULL, errbuf_init(&eb)), eb);
    enforcer_detach(&e);
    assert_int_equal(attached, detached);
}

/* What was begun before the cell was known goes to attach or is dropped, and is no duty. */
static void test_ready(void **state)
{
    const struct cella_ready ready = {.hdr = CELLA_HDR_INIT(struct cella_ready, CELLA_KIND_READY)};
    struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                              .link = CELLA_LINK_NONE};
    struct cella_attached got;
    struct enforcer e = {NULL, NULL, 0};
    struct errbuf eb;
    void *handle = &eb;

    (void)state;
    given = (struct cella_span){NULL, 0};
    enforcer_ready(&walls, &test_host, &ready, &handle);
    assert_null(handle); /* it has none */
    walls.ops.enforcer.ready = e_ready;
    walls.ops.enforcer.unready = e_unready;
    enforcer_ready(&walls, &test_host, &ready, &handle);
    assert_ptr_equal(handle, &begun);
    enforcer_unready(&walls, handle);
    enforcer_unready(&walls, NULL);
    assert_int_equal(dropped, 1);
    at.own_ready = handle;
    assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
    assert_ptr_equal(taken, &begun);
    enforcer_detach(&e);
}

/* After its last words only the report and detach reach an enforcer. */
static void test_finish(void **state)
{
    const struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                    .link = CELLA_LINK_NONE};
    const struct cella_policy policy = {
        .hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY), .generation = 2};
    struct cella_applied applied;
    struct cella_attached got;
    struct enforcer e = {NULL, NULL, 0};
    struct errbuf eb;

    (void)state;
    enforcer_finish(&e); /* nothing is attached */
    assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
    enforcer_finish(&e); /* it has none */
    assert_ok(enforcer_apply(&e, &policy, &applied, errbuf_init(&eb)), eb);
    walls.ops.enforcer.finish = e_finish;
    enforcer_finish(&e);
    assert_int_equal(finished, 1);
    assert_int_equal(enforcer_apply(&e, &policy, &applied, errbuf_init(&eb)), -EPROTO);
    assert_ok(enforcer_report(&e, NULL, NULL, errbuf_init(&eb)), eb);
    enforcer_detach(&e);
    assert_int_equal(attached, detached);
}

/* A gate in the place of a dead one: optional, and what comes back is checked as after an attach. */
static void test_restart(void **state)
{
    const struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                    .link = CELLA_LINK_NONE};
    struct cella_attached got = {.gate_pid = 1};
    struct enforcer e = {NULL, NULL, 0};
    struct errbuf eb;

    (void)state;
    given = (struct cella_span){NULL, 0};
    walls.ops.enforcer.attach_wait = NULL;
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EPROTO);
    assert_ok(enforcer_attach(&walls, &test_host, &at, &e, &got, errbuf_init(&eb)), eb);
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EOPNOTSUPP);
    assert_says(eb.text, "ends with its gate");
    walls.ops.enforcer.restart = e_restart;
    assert_ok(enforcer_restart(&e, &got, errbuf_init(&eb)), eb);
    assert_int_equal(got.gate_pid, 7);
    got.gate_pid = 1;
    restart_result = -EIO;
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EIO);
    restart_result = 0;
    given_exit = 4000; /* nobody has it */
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "exit descriptor");
    given_exit = -1;
    given_tap = dup(2);
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "tap descriptor");
    given_tap = -1;
    given = (struct cella_span){NULL, 1};
    assert_int_equal(enforcer_restart(&e, &got, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "certificate authority");
    given = (struct cella_span){NULL, 0};
    assert_int_equal(got.gate_pid, 1);
    enforcer_detach(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_authority),
                                       cmocka_unit_test(test_early), cmocka_unit_test(test_ready),
                                       cmocka_unit_test(test_finish),
                                       cmocka_unit_test(test_restart)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
