/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* splice, tee, vmsplice, on the host's kernel and on ours. Files are judged by the programs of the integration tests. */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "world.h"

static int p[2], q[2], u[2];
static char bytes[70000];

static void begin_all(void)
{
    unsigned i;

    for (i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)('a' + i % 23);
    call(SYS_pipe2, p, O_NONBLOCK);
    call(SYS_pipe2, q, O_NONBLOCK);
    call(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, u);
    note("begin");
}

static void waiting(int fd)
{
    int n = -1;

    call(SYS_ioctl, fd, FIONREAD, &n);
    note(" has %d", n);
}

static void splice_(int in, int out, size_t n)
{
    note("splice %zu %ld", n, (long)call(SYS_splice, in, NULL, out, NULL, n, SPLICE_F_NONBLOCK));
    waiting(p[0]);
    waiting(q[0]);
}

static void read_(int fd, size_t n)
{
    static char own[70000];
    int64_t r = call(SYS_read, fd, own, n), i;
    unsigned sum = 0;

    for (i = 0; i < r; i++)
        sum = sum * 31 + (unsigned char)own[i];
    note("read %ld %x", (long)r, sum);
}

static void pipes(void)
{
    begin_all();
    splice_(p[0], q[1], 10);
    call(SYS_write, p[1], bytes, 100);
    call(SYS_write, p[1], bytes, 5000);
    splice_(p[0], q[1], 30);
    splice_(p[0], q[1], 10000);
    call(SYS_write, q[1], bytes, 10);
    read_(q[0], 20);
    note("tee %ld", (long)call(SYS_tee, q[0], p[1], 1000, SPLICE_F_NONBLOCK));
    waiting(p[0]);
    waiting(q[0]);
    note("tee %ld", (long)call(SYS_tee, q[0], p[1], 100000, SPLICE_F_NONBLOCK));
    read_(p[0], 70000);
    read_(q[0], 70000);
    call(SYS_close, p[1]);
    splice_(p[0], q[1], 10);
    note("tee %ld", (long)call(SYS_tee, p[0], q[1], 10, 0));
    note("same %ld %ld", (long)call(SYS_splice, q[0], NULL, q[1], NULL, 1, 0),
         (long)call(SYS_tee, q[0], q[1], 1, 0));
    call(SYS_close, q[0]);
    call(SYS_pipe2, p, O_NONBLOCK);
    call(SYS_write, p[1], bytes, 5);
    note("no reader %ld", (long)call(SYS_splice, p[0], NULL, q[1], NULL, 5, 0));
    note("SIGPIPE %u", sigpipes());
}

static void with_sockets(void)
{
    begin_all();
    splice_(u[0], q[1], 10);
    call(SYS_write, u[1], bytes, 300);
    splice_(u[0], q[1], 100);
    splice_(u[0], q[1], 1000);
    read_(q[0], 1000);
    call(SYS_write, p[1], bytes, 9000);
    splice_(p[0], u[0], 100);
    splice_(p[0], u[0], 100000);
    read_(u[1], 70000);
    call(SYS_close, u[1]);
    splice_(u[0], q[1], 10);
}

static void refusals(void)
{
    int64_t at = 0;

    begin_all();
    note("nothing %ld", (long)call(SYS_splice, p[0], NULL, q[1], NULL, 0, 0));
    note("flags %ld %ld", (long)call(SYS_splice, p[0], NULL, q[1], NULL, 1, 16),
         (long)call(SYS_tee, p[0], q[1], 1, 16));
    note("closed %ld %ld", (long)call(SYS_splice, 777, NULL, q[1], NULL, 1, 0),
         (long)call(SYS_tee, p[0], 777, 1, 0));
    note("wrong ends %ld %ld", (long)call(SYS_splice, p[1], NULL, q[1], NULL, 1, 0),
         (long)call(SYS_tee, p[0], q[0], 1, 0));
    note("seek %ld %ld", (long)call(SYS_splice, p[0], &at, q[1], NULL, 1, 0),
         (long)call(SYS_splice, p[0], NULL, u[0], &at, 1, 0));
    note("no pipe %ld %ld", (long)call(SYS_splice, u[0], NULL, u[1], NULL, 1, 0),
         (long)call(SYS_tee, u[0], q[1], 1, 0));
    note("vmsplice %ld", (long)call(SYS_vmsplice, u[0], NULL, 0, 0));
}

static void memory(void)
{
    struct iovec v[2] = {{bytes, 10}, {bytes + 100, 70000 - 100}};

    begin_all();
    note("vmsplice %ld", (long)call(SYS_vmsplice, p[1], v, 1, 0));
    note("vmsplice %ld", (long)call(SYS_vmsplice, p[1], &v[1], 0, 0));
    waiting(p[0]);
    v[0].iov_len = 4;
    note("back %ld", (long)call(SYS_vmsplice, p[0], v, 1, 0));
    waiting(p[0]);
    read_(p[0], 100);
    note("empty %ld", (long)call(SYS_vmsplice, p[0], v, 1, SPLICE_F_NONBLOCK));
}

static void blocking(void)
{
    struct other *o;

    begin_all();
    call(SYS_fcntl, p[0], F_SETFL, 0);
    call(SYS_fcntl, p[1], F_SETFL, 0);
    call(SYS_fcntl, q[1], F_SETFL, 0);
    o = begin(SYS_splice, p[0], NULL, q[1], NULL, 10, 0);
    note("waits %d", waits(o));
    call(SYS_write, p[1], bytes, 4);
    note("spliced %ld", (long)end(o));
    o = begin(SYS_tee, p[0], q[1], 10, 0);
    note("waits %d", waits(o));
    call(SYS_close, p[1]);
    note("teed %ld", (long)end(o));
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both(name);                                                                                \
    }
BOTH(pipes)
BOTH(with_sockets)
BOTH(refusals)
BOTH(memory)
BOTH(blocking)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipes),    cmocka_unit_test(test_with_sockets),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_blocking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
