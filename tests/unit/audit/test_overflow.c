/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* audit: each overflow rule, at every point at which a sink can stop. The verifier must find the files good. */
#include "audit_world.h"

static void test_drop(void **state)
{
    struct audit *a;
    int i;

    (void)state;
    sinks[0].overflow = OVERFLOW_DROP;
    a = open_chain("abc", 1);
    emit(a, 0);
    fa.fail_next = 5; /* 3 events; from the second on each is preceded by a try of audit.dropped */
    emit(a, 0);
    emit(a, 0);
    emit(a, 0);
    assert_int_equal(fa.failures,
                     3); /* the second and third were not offered: the report was refused first */
    assert_good(&fa, "abc", 2, 0);
    fa.fail_next = 0;
    for (i = 0; i < 3; i++)
        emit(a, 0);
    assert_string_equal(kind_of(&fa, "abc", 3), "audit.dropped");
    assert_int_equal(int_of(&fa, "abc", 3, "count"), 3);
    assert_int_equal(int_of(&fa, "abc", 3, "seq"), 3);
    assert_int_equal(int_of(&fa, "abc", 4, "seq"), 4);
    close_chain(a);
    assert_good(&fa, "abc", 7, 1);
}

/* The count survives the process. */
static void test_drop_crash(void **state)
{
    struct audit *a;

    (void)state;
    sinks[0].overflow = OVERFLOW_DROP;
    a = open_chain("abc", 1);
    fa.fail_next = -1;
    emit(a, 0);
    emit(a, 0);
    audit_free(a);
    fa.fail_next = 0;
    a = open_chain("abc", 1);
    close_chain(a);
    assert_string_equal(kind_of(&fa, "abc", 2), "audit.dropped");
    assert_int_equal(int_of(&fa, "abc", 2, "count"), 2);
    assert_good(&fa, "abc", 4, 1);
}

/* The end itself is dropped: the signed head says so. */
static void test_drop_end(void **state)
{
    struct audit_verify_result res;
    struct audit *a;

    (void)state;
    sinks[0].overflow = OVERFLOW_DROP;
    a = open_chain("abc", 1);
    fa.fail_next = -1;
    emit(a, 0);
    close_chain(a);
    res = verify(&fa, "abc");
    assert_int_equal(res.first_bad, 0);
    assert_string_equal(res.why, "2 records at the end were dropped by their sink");
}

static void test_fail_closed(void **state)
{
    struct audit *a = open_chain("abc", 1);
    struct errbuf eb;

    (void)state;
    fa.fail_next = 1;
    assert_int_equal(audit_emit(a, errbuf_init(&eb), "cell.exec", NULL), -ENOSPC);
    assert_string_equal(
        eb.text,
        "audit sink fake-a cannot store record 2 (cell.exec) of chain abc: fake: no room; its "
        "rule is fail-closed, so what the record is about is refused");
    assert_int_equal(audit_emit(a, errbuf_init(&eb), "cell.exec", NULL),
                     -ENOSPC); /* though it would work now */
    assert_string_equal(
        eb.text,
        "audit event cell.exec refused: an earlier record could not be stored (fail-closed)");
    assert_good(&fa, "abc", 1, 0);
    close_chain(a);
    assert_string_equal(kind_of(&fa, "abc", 2), "audit.dropped");
    assert_int_equal(int_of(&fa, "abc", 2, "count"), 2);
    assert_good(&fa, "abc", 3, 1);
}

/* It fails to the end; the next process ends the chain. */
static void test_fail_closed_end(void **state)
{
    struct audit *a = open_chain("abc", 1);
    struct errbuf eb;

    (void)state;
    fa.fail_next = -1;
    emit(a, -ENOSPC);
    assert_int_equal(audit_close(a, errbuf_init(&eb)), -ENOSPC);
    audit_free(a);
    assert_int_equal(audit_open(dir, "other", NULL, sinks, 1, &a, errbuf_init(&eb)), -ENOSPC);
    assert_int_equal(fa.open, 0);
    fa.fail_next = 0;
    a = open_chain("abc", 1);
    close_chain(a);
    assert_good(&fa, "abc", 0, 1);
    assert_good(&fa, "host", 0, 0);
}

static void test_block(void **state)
{
    struct audit *a;

    (void)state;
    sinks[0].overflow = OVERFLOW_BLOCK;
    a = open_chain("abc", 1);
    fa.fail_next = 5;
    emit(a, 0);
    assert_int_equal(fa.failures, 5);
    close_chain(a);
    assert_good(&fa, "abc", 3, 1);
    assert_string_equal(kind_of(&fa, "abc", 2), "cell.exec");
}

/* Two copies; one loses records in the middle and at the end of the other's. */
static void test_two_sinks(void **state)
{
    struct audit *a;

    (void)state;
    sinks[0].overflow = OVERFLOW_DROP;
    a = open_chain("abc", 2);
    emit(a, 0);
    fa.fail_next = -1;
    emit(a, 0);
    emit(a, 0);
    emit(a, 0);
    fa.fail_next = 0;
    emit(a, 0);
    assert_string_equal(kind_of(&fa, "abc", 3), "audit.dropped");
    assert_int_equal(int_of(&fa, "abc", 3, "seq"), 6);
    assert_int_equal(int_of(&fa, "abc", 3, "last_seq"), 2);
    assert_int_equal(int_of(&fa, "abc", 3, "count"), 3);
    fb.fail_next = 1; /* fail-closed: the strictest rule wins, and the other copy has the record */
    emit(a, -ENOSPC);
    emit(a, -ENOSPC);
    close_chain(a);
    assert_good(&fa, "abc", 0, 1);
    assert_good(&fb, "abc", 0, 1);
    assert_good(&fa, "host", 0, 0);
    assert_good(&fb, "host", 0, 0);
}

/* ---- a host that puts complaints into the audit, as a warden does ---- */

static struct audit *complained_to;
static unsigned complaints;

static void complain(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)topic;
    (void)fmt;
    complaints++;
    if (complained_to)
        audit_emit(complained_to, NULL, "plugin.log", "s:text", "a complaint", NULL);
}

static const struct cella_host complainer = {
    .hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST), .log = complain};

static struct audit *open_complaining(size_t n)
{
    struct audit *a = NULL;
    struct errbuf eb;

    complaints = 0;
    assert_int_equal(audit_open(dir, "abc", &complainer, sinks, n, &a, errbuf_init(&eb)), 0);
    complained_to = a;
    return a;
}

static void close_complaining(struct audit *a)
{
    close_chain(a);
    complained_to = NULL;
}

/* A warning in the middle of a record does not take that record's number. */
static void test_block_complains(void **state)
{
    struct audit *a;

    (void)state;
    sinks[0].overflow = OVERFLOW_BLOCK;
    a = open_complaining(1);
    fa.fail_next = 3;
    emit(a, 0);
    assert_int_equal(complaints, 2); /* it waits; it stores again */
    emit(a, 0);
    close_complaining(a);
    assert_good(&fa, "abc", 4, 1);
}

static void test_other_sink_complains(void **state)
{
    struct audit *a;

    (void)state;
    sinks[1].overflow = OVERFLOW_DROP;
    a = open_complaining(2);
    emit(a, 0);
    fb.fail_next = -1;
    emit(a, 0); /* the first sink has it already when the second one fails */
    assert_int_equal(complaints, 1);
    emit(a, 0);
    fb.fail_next = 0;
    emit(a, 0);
    close_complaining(a);
    assert_good(&fa, "abc", 0, 1);
    assert_good(&fb, "abc", 0, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_drop),        T(test_drop_crash),      T(test_drop_end),
        T(test_fail_closed), T(test_fail_closed_end), T(test_block),
        T(test_two_sinks),   T(test_block_complains), T(test_other_sink_complains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
