/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What the machine's parts stand on: memory, bus, loop, state. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#include "bus.h"
#include "layout.h"
#include "loop.h"
#include "ram.h"
#include "serial.h"
#include "state.h"

#define MIB (1ull << 20)

/* -------------------------------------------------------------------------- ram */

static int memory(uint64_t bytes)
{
    int fd = memfd_create("ram", MFD_CLOEXEC);

    assert_true(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static void ram_sizes(void **state)
{
    struct ram r = {0};
    int fd = memory(64 * MIB);

    (void)state;
    assert_int_equal(ram_map(&r, fd, 31 * MIB, 0), -ERANGE);
    assert_int_equal(ram_map(&r, fd, 64 * MIB + 1, 0), -ERANGE);
    assert_int_equal(ram_map(&r, fd, UINT64_MAX / MIB * MIB, 0), -ERANGE);
    assert_int_equal(ram_map(&r, fd, 65 * MIB, 0), -EFBIG);
    assert_int_equal(ram_map(&r, fd, 64 * MIB, 0), 0);
    assert_int_equal((uintptr_t)r.base % (2 * MIB), 0);
    assert_ptr_equal(ram_at(&r, 0, 64 * MIB), r.base);
    assert_ptr_equal(ram_at(&r, 64 * MIB - 1, 1), r.base + 64 * MIB - 1);
    assert_null(ram_at(&r, 64 * MIB - 1, 2));
    assert_null(ram_at(&r, 64 * MIB, 0));
    assert_null(ram_at(&r, 1, UINT64_MAX));
    assert_null(ram_at(&r, RAM_HIGH, 1));
    assert_null(ram_at(&r, UINT64_MAX, 1));
    ram_unmap(&r);
    close(fd);
}

static void ram_above_the_hole(void **state)
{
    struct ram r = {0};
    int fd = memory(RAM_HOLE + 16 * MIB);
    char c = 'x';

    (void)state;
    assert_int_equal(ram_map(&r, fd, RAM_HOLE + 16 * MIB, 0), 0);
    assert_int_equal(r.high, 16 * MIB);
    assert_null(ram_at(&r, RAM_HOLE, 1));
    assert_null(ram_at(&r, RAM_HOLE - 1, 2));
    assert_null(ram_at(&r, RAM_HIGH - 1, 1));
    assert_ptr_equal(ram_at(&r, RAM_HIGH, 16 * MIB), r.base + RAM_HOLE);
    assert_null(ram_at(&r, RAM_HIGH, 16 * MIB + 1));
    assert_int_equal(ram_write(&r, RAM_HIGH + 16 * MIB - 1, &c, 1), 0);
    assert_int_equal(ram_write(&r, RAM_HIGH + 16 * MIB, &c, 1), -EFAULT);
    c = 0;
    assert_int_equal(pread(fd, &c, 1, (off_t)(RAM_HOLE + 16 * MIB - 1)), 1);
    assert_int_equal(c, 'x');
    ram_unmap(&r);
    close(fd);
}

static long blocks(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (long)st.st_blocks;
}

static void discard(void **state)
{
    struct ram r = {0};
    int fd = memory(32 * MIB);
    char page[3 * 4096], back[3 * 4096];

    (void)state;
    memset(page, 'a', sizeof(page));
    assert_int_equal(ram_map(&r, fd, 32 * MIB, 0), 0);
    assert_int_equal(ram_write(&r, 8192, page, sizeof(page)), 0);
    assert_int_equal(blocks(fd), 24);
    assert_int_equal(ram_discard(&r, 8192 + 1, 4096), 0); /* no whole page */
    assert_int_equal(blocks(fd), 24);
    assert_int_equal(ram_discard(&r, 8192 + 1, 2 * 4096), 0); /* one */
    assert_int_equal(blocks(fd), 16);
    assert_int_equal(ram_read(&r, 8192, back, sizeof(back)), 0);
    assert_int_equal(back[4095], 'a');
    assert_int_equal(back[4096], 0);
    assert_int_equal(back[8192], 'a');
    assert_int_equal(ram_detach(&r), 0);
    /* Private from here: our copy is dropped, the file keeps what it has. */
    assert_int_equal(ram_write(&r, 8192, "b", 1), 0);
    assert_int_equal(ram_discard(&r, 8192, 4096), 0);
    assert_int_equal(((char *)r.base)[8192], 'a');
    assert_int_equal(pread(fd, back, 1, 8192), 1);
    assert_int_equal(back[0], 'a');
    assert_int_equal(ram_discard(&r, 32 * MIB - 4096, 8192), -EFAULT);
    ram_unmap(&r);
    close(fd);
}

static void detached(void **state)
{
    struct ram r = {0}, copy = {0};
    int fd = memory(32 * MIB), again;
    char path[64], c = 'o';

    (void)state;
    assert_int_equal(ram_map(&r, fd, 32 * MIB, 0), 0);
    assert_int_equal(ram_write(&r, 5 * MIB, &c, 1), 0);
    assert_int_equal(ram_detach(&r), 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    again = open(path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(ram_map(&copy, again, 32 * MIB, 1), 0);
    c = 'n';
    assert_int_equal(ram_write(&r, 5 * MIB, &c, 1), 0);
    assert_int_equal(ram_read(&copy, 5 * MIB, &c, 1), 0);
    assert_int_equal(c, 'o');
    c = 'k';
    assert_int_equal(ram_write(&copy, 5 * MIB, &c, 1), 0);
    assert_int_equal(pread(fd, &c, 1, 5 * MIB), 1);
    assert_int_equal(c, 'o');
    ram_unmap(&r);
    ram_unmap(&copy);
    close(again);
    close(fd);
}

/* -------------------------------------------------------------------------- bus */

struct cell {
    uint8_t bytes[16];
    unsigned reads, writes;
};

static void cell_read(void *self, uint64_t offset, void *out, unsigned len)
{
    struct cell *c = self;

    assert_true(offset + len <= sizeof(c->bytes));
    memcpy(out, c->bytes + offset, len);
    c->reads++;
}

static void cell_write(void *self, uint64_t offset, const void *in, unsigned len)
{
    struct cell *c = self;

    assert_true(offset + len <= sizeof(c->bytes));
    memcpy(c->bytes + offset, in, len);
    c->writes++;
}

static void bus_finds(void **state)
{
    struct cell a = {{0}, 0, 0}, top = {{0}, 0, 0};
    struct bus b = {.n = 0};
    struct bus_range r = {
        .base = 0x1000, .len = 16, .self = &a, .read = cell_read, .write = cell_write};
    uint64_t v = 0x1122334455667788;

    (void)state;
    assert_int_equal(bus_add(&b, &r), 0);
    r.base = 0x100f;
    assert_int_equal(bus_add(&b, &r), -EEXIST);
    r.base = UINT64_MAX - 3;
    assert_int_equal(bus_add(&b, &r), -ERANGE);
    r.base = 0x1010;
    r.self = &top;
    assert_int_equal(bus_add(&b, &r), 0);
    bus_write(&b, 0x1008, &v, 8);
    bus_write(&b, 0x100c, &v, 8); /* over the edge */
    bus_write(&b, 0x1008, &v, 3);
    bus_write(&b, 0xfff, &v, 4);
    assert_int_equal(a.writes, 1);
    assert_int_equal(top.writes, 0);
    v = 0;
    bus_read(&b, 0x1008, &v, 8);
    assert_int_equal(v, 0x1122334455667788);
    v = 0;
    bus_read(&b, 0x1020, &v, 4);
    assert_int_equal(v, 0xffffffff);
    while (b.n < BUS_MAX) {
        r.base += 0x100;
        assert_int_equal(bus_add(&b, &r), 0);
    }
    r.base += 0x100;
    assert_int_equal(bus_add(&b, &r), -ENOSPC);
}

/* ------------------------------------------------------------------------- loop */

struct turn {
    struct loop *l;
    int a, b, locks, a_ready, b_ready, due, other;
};

static void lock(void *ctx)
{
    ((struct turn *)ctx)->locks++;
}

static void unlock(void *ctx)
{
    ((struct turn *)ctx)->locks--;
}

/* Both are ready in one batch: whoever comes first takes the other away. */
static void take_away(void *self, int fd, uint32_t events)
{
    struct turn *t = self;

    assert_int_equal(t->locks, 1);
    assert_true(events & EPOLLIN);
    if (fd == t->a)
        t->a_ready++;
    else
        t->b_ready++;
    loop_unwatch(t->l, fd == t->a ? t->b : t->a);
    assert_int_equal(loop_change(t->l, fd, 0), 0);
}

static void never(void *self)
{
    ((struct turn *)self)->other++;
}

static void end_it(void *self)
{
    struct turn *t = self;

    assert_int_equal(t->locks, 1);
    if (++t->due < 3) {
        assert_int_equal(loop_timer(t->l, 1000000, end_it, t), 0);
        return;
    }
    loop_end(t->l);
}

static void loop_turns(void **state)
{
    struct turn t = {.l = loop_new(),
                     .a = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK),
                     .b = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};

    (void)state;
    assert_non_null(t.l);
    assert_int_equal(loop_watch(t.l, -1, EPOLLIN, take_away, &t), -EBADF);
    assert_int_equal(loop_watch(t.l, t.a, EPOLLIN, take_away, &t), 0);
    assert_int_equal(loop_watch(t.l, t.a, EPOLLIN, take_away, &t), -EEXIST);
    assert_int_equal(loop_watch(t.l, t.b, EPOLLIN, take_away, &t), 0);
    assert_int_equal(loop_change(t.l, 900, EPOLLIN), -ENOENT);
    assert_int_equal(loop_timer(t.l, 1000000, never, &t), 0);
    assert_int_equal(loop_timer(t.l, 20000000, end_it, &t), 0);
    assert_int_equal(loop_timer(t.l, 10000000, end_it, &t), 0); /* moved, not doubled */
    assert_int_equal(loop_timer(t.l, 0, never, &t), 0);
    assert_int_equal(loop_run(t.l, lock, unlock, &t), 0);
    assert_int_equal(t.a_ready + t.b_ready, 1);
    assert_int_equal(t.due, 3);
    assert_int_equal(t.other, 0);
    assert_int_equal(t.locks, 0);
    loop_free(t.l);
    close(t.a);
    close(t.b);
}

/* ------------------------------------------------------------------------ state */

#define TAG STATE_TAG('T', 'E', 'S', 'T')

static void written(struct state_out *o)
{
    state_begin(o, TAG, 2);
    state_put_u8(o, 1);
    state_put_u16(o, 2);
    state_put_u32(o, 3);
    state_put_u64(o, 4);
    state_put(o, "five", 4);
    state_end(o);
    state_begin(o, TAG + 1, 1);
    state_end(o);
    assert_false(o->oom);
}

static void state_round(void **state)
{
    struct state_out o = {0};
    struct state_in i;
    char five[4];

    (void)state;
    written(&o);
    state_open(&i, o.data, o.len);
    state_enter(&i, TAG, 2);
    assert_int_equal(state_get_u8(&i), 1);
    assert_int_equal(state_get_u16(&i), 2);
    assert_int_equal(state_get_u32(&i), 3);
    assert_int_equal(state_get_max(&i, 4), 4);
    state_get(&i, five, 4);
    assert_memory_equal(five, "five", 4);
    state_leave(&i);
    state_enter(&i, TAG + 1, 1);
    state_leave(&i);
    assert_false(i.bad);
    state_enter(&i, TAG + 1, 1);
    assert_true(i.bad);
    state_out_free(&o);
}

static void state_bad(void **state)
{
    struct state_out o = {0};
    struct state_in i;
    size_t cut;

    (void)state;
    written(&o);
    for (cut = 0; cut < 16 + 19; cut++) {
        state_open(&i, o.data, cut);
        state_enter(&i, TAG, 2);
        assert_true(i.bad);
    }
    state_open(&i, o.data, o.len);
    state_enter(&i, TAG, 1);
    assert_true(i.bad);
    state_open(&i, o.data, o.len);
    state_enter(&i, TAG, 2);
    state_leave(&i); /* unread */
    assert_true(i.bad);
    state_open(&i, o.data, o.len);
    state_enter(&i, TAG, 2);
    (void)state_get_max(&i, 1);
    assert_true(i.bad);
    assert_int_equal(state_get_u8(&i), 0);
    state_open(&i, o.data, o.len);
    state_enter(&i, TAG, 2);
    (void)state_get_u64(&i);
    (void)state_get_u64(&i);
    assert_false(i.bad);
    assert_int_equal(state_get_u32(&i), 0); /* three are left, and more behind the section */
    assert_true(i.bad);
    state_out_free(&o);
}

static void state_bound(void **state)
{
    static uint8_t much[1 << 20];
    struct state_out o = {0};
    int n;

    (void)state;
    for (n = 0; n < 17; n++)
        state_put(&o, much, sizeof(much));
    assert_true(o.oom);
    assert_true(o.len <= STATE_MAX);
    state_out_free(&o);
}

/* In a child, where mremap() is death, as it is for the monitor's threads. */
static void grow_without_mremap(void)
{
    struct sock_filter list[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(list) / sizeof(list[0]), .filter = list};
    struct state_out o = {0};
    uint64_t i;

    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* as it is before other tests have freed what is large */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0)
        _exit(2);
    for (i = 0; i < MIB / sizeof(i); i++)
        state_put_u64(&o, i);
    for (i = 0; i < MIB / sizeof(i) && !o.oom; i++)
        if (memcmp(o.data + i * sizeof(i), &i, sizeof(i)) != 0)
            _exit(3);
    _exit(o.oom || o.len != MIB);
}

/* The state of a machine with twenty processors is longer than what malloc() gives a mapping of its own. */
static void state_grows(void **state)
{
    pid_t pid = fork();
    int status = 0;

    (void)state;
    if (pid == 0)
        grow_without_mremap();
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ----------------------------------------------------------------------- serial */

/* A serial line with the state of another: how many interrupts came of that. */
static uint64_t serial_copy(const struct serial *from)
{
    int irq = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct loop *l = loop_new();
    struct bus ports = {0};
    struct serial *s = serial_new(&ports, l, -1, irq);
    struct state_out o = {0};
    struct state_in i;
    uint64_t n = 0;

    assert_non_null(s);
    serial_save(from, &o);
    state_open(&i, o.data, o.len);
    assert_int_equal(serial_load(s, &i), 0);
    (void)!read(irq, &n, sizeof(n));
    state_out_free(&o);
    serial_free(s);
    loop_free(l);
    close(irq);
    return n;
}

/* The controllers' state may lack an interrupt that was on its way. */
static void serial_told_again(void **state)
{
    const uint8_t wanted = 2;
    struct loop *l = loop_new();
    struct bus ports = {0};
    struct serial *s = serial_new(&ports, l, -1, -1);
    uint8_t reason = 0;

    (void)state;
    assert_non_null(s);
    assert_int_equal(serial_copy(s), 0);
    bus_write(&ports, PORT_SERIAL + 1, &wanted, 1);
    assert_int_equal(serial_copy(s), 1);
    bus_read(&ports, PORT_SERIAL + 2, &reason, 1);
    assert_int_equal(reason, 2);
    assert_int_equal(serial_copy(s), 0); /* it has been told */
    serial_free(s);
    loop_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ram_sizes),         cmocka_unit_test(ram_above_the_hole),
        cmocka_unit_test(discard),           cmocka_unit_test(detached),
        cmocka_unit_test(bus_finds),         cmocka_unit_test(loop_turns),
        cmocka_unit_test(state_round),       cmocka_unit_test(state_bad),
        cmocka_unit_test(state_bound),       cmocka_unit_test(state_grows),
        cmocka_unit_test(serial_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
