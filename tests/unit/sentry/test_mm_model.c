/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The model of tests/fuzz/sentry_mm.c with operations by chance, the same ones each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void test_chance(void **state)
{
    const char *from = getenv("SENTRY_MM_SEED");
    unsigned seed = from ? (unsigned)atoi(from) : 1, end = from ? seed + 1 : 1500, i;
    uint8_t data[1200];

    (void)state;
    for (; seed < end; seed++) {
        uint32_t x = seed * 2654435761u + 1;

        if (getenv("SENTRY_MM_TELL"))
            fprintf(stderr, "seed %u\n", seed);
        for (i = 0; i < sizeof(data); i++) {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            data[i] = (uint8_t)(x >> 11);
        }
        LLVMFuzzerTestOneInput(data, sizeof(data));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chance)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
