/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The warden's orders, answered by a kernel with one task that never runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake_platform.h"
#include "fs.h"

#include "control.h"

#define MEMORY (64ul << 20)

uint64_t fs_disk_used(void)
{
    return 4711;
}

uint64_t fs_disk_refused(void)
{
    return 2;
}

static struct sentry_reply reply;

static bool ask(uint32_t op, uint64_t arg, uint64_t arg2)
{
    struct sentry_request q = {.op = op, .serial = 7, .arg = arg, .arg2 = arg2};

    return control_answer(&q, &reply);
}

static void starts_once(void **state)
{
    struct sentry_request bad = {.op = SENTRY_OP_STATS, .serial = 0};

    (void)state;
    assert_true(ask(SENTRY_OP_START, 0, 0));
    assert_int_equal(reply.code, 0);
    assert_int_equal(reply.serial, 7);
    assert_true(ask(SENTRY_OP_START, 0, 0));
    assert_int_equal(reply.code, -EALREADY);
    assert_false(ask(0, 0, 0));
    assert_false(ask(SENTRY_OP_PROCESSES + 1, 0, 0));
    assert_false(control_answer(&bad, &reply));
}

static void counts(void **state)
{
    struct page *page;

    (void)state;
    kernel_lock();
    page = page_alloc();
    kernel_unlock();
    control_oom_kill();
    assert_true(ask(SENTRY_OP_STATS, 0, 0));
    assert_int_equal(reply.stats.oom_kills, 1);
    assert_int_equal(reply.stats.disk_refused, 2);
    assert_int_equal(reply.stats.disk_bytes, 4711);
    assert_int_equal(reply.stats.memory_bytes, PAGE_SIZE);
    assert_int_equal(reply.stats.tasks, 1);
    assert_int_equal(reply.stats.tasks_peak, 1);
    kernel_lock();
    page_put(page);
    kernel_unlock();
    assert_true(ask(SENTRY_OP_STATS, 0, 0));
    assert_int_equal(reply.stats.memory_bytes, 0);
    assert_int_equal(reply.stats.memory_peak, PAGE_SIZE);
}

static void resizes(void **state)
{
    struct page *page;

    (void)state;
    assert_true(ask(SENTRY_OP_RESIZE, 2 * MEMORY, 0));
    assert_int_equal(reply.code, 0);
    assert_int_equal(memfile_limit(), 2 * MEMORY);
    assert_true(ask(SENTRY_OP_RESIZE, 100 * MEMORY, 0));
    assert_int_equal(reply.code, -EINVAL);
    assert_non_null(strstr(reply.text, "make a new cell"));
    assert_int_equal(memfile_limit(), 2 * MEMORY);
    kernel_lock();
    page = page_alloc();
    kernel_unlock();
    assert_non_null(page);
    assert_true(ask(SENTRY_OP_RESIZE, PAGE_SIZE, 0));
    kernel_lock();
    assert_null(page_alloc());
    page_put(page);
    kernel_unlock();
    ask(SENTRY_OP_RESIZE, MEMORY, 0);
}

static void lists(void **state)
{
    (void)state;
    assert_true(ask(SENTRY_OP_PROCESSES, 0, 0));
    assert_int_equal(reply.n, 1);
    assert_int_equal(reply.processes[0].pid, 1);
    assert_true(ask(SENTRY_OP_PROCESSES, 1, 0));
    assert_int_equal(reply.n, 0);
    assert_true(ask(SENTRY_OP_MISSING, UINT64_MAX, 0));
    assert_int_equal(reply.code, 0);
}

static int set_up(void **state)
{
    struct task *task;

    (void)state;
    fake_sentry(MEMORY);
    if (task_first("cell", &task))
        return -1;
    kernel_unlock();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_once),
        cmocka_unit_test(counts),
        cmocka_unit_test(resizes),
        cmocka_unit_test(lists),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
