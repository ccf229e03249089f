/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The table of system calls has one row for each number of x86-64. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "syscall.h"
#include "task/numbers.h"

#define LAST 462
#define GAP_FIRST 335 /* numbers that were left out, up to 423 */
#define GAP_LAST 423

struct row {
    int number, error;
    const char *name, *note;
};

#define CALL(name_, status_, note_) {SYS_##name_, 0, #name_, note_},
#define REFUSE(name_, error_, note_) {SYS_##name_, error_, #name_, note_},
static const struct row rows[] = {
#include "calls.h"
};

static void each_number_has_one_row(void **state)
{
    unsigned seen[LAST + 1] = {0}, i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_in_range(rows[i].number, 0, LAST);
        seen[rows[i].number]++;
    }
    for (i = 0; i <= LAST; i++) {
        unsigned wanted = i >= GAP_FIRST && i <= GAP_LAST ? 0 : 1;

        if (seen[i] != wanted)
            print_error("number %u has %u rows\n", i, seen[i]);
        assert_int_equal(seen[i], wanted);
    }
}

static void what_is_refused_says_why(void **state)
{
    unsigned i;

    (void)state;
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].error) {
            assert_in_range(rows[i].error, 1, 133);
            assert_true(rows[i].note[0] != 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_number_has_one_row),
        cmocka_unit_test(what_is_refused_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
