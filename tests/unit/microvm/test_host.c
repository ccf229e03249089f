/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a host says of itself before a machine is tried: the setting that takes io_uring away. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "host.h"

static int with(const char *text, struct errbuf *eb)
{
    char path[] = "/tmp/cella-io-uring-XXXXXX";
    int fd = mkstemp(path), r;

    assert_int_equal(write_all(fd, text, strlen(text)), 0);
    r = host_io_uring(path, errbuf_init(eb));
    close(fd);
    unlink(path);
    return r;
}

static void test_io_uring(void **state)
{
    struct errbuf eb;

    (void)state;
    assert_int_equal(with("0\n", &eb), 0);
    assert_int_equal(with("1\n", &eb),
                     -ENOTSUP); /* for the privileged only, which cella-vmm is not */
    assert_int_equal(with("2\n", &eb), -ENOTSUP);
    assert_non_null(strstr(eb.text, "kernel.io_uring_disabled is 2"));
    assert_int_equal(host_io_uring("/nonexistent", errbuf_init(&eb)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_io_uring)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
