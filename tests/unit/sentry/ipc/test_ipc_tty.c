/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Terminals, on the host's kernel and on ours: lines, echo, signals, modes, ends. */
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "world.h"

static int m, s;
static char bytes[8192];

/* The host brings what was typed to the terminal by a thread of its own. */
static void settle(void)
{
    if (!ours)
        pause_ms(25 * host_run);
}

static void say_poll(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLPRI};
    int64_t r;

    settle();
    r = call(SYS_poll, &p, 1, 0);
    note("poll %s %ld %x", fd == m ? "m" : "s", (long)r, (unsigned)p.revents);
}

static void open_slave(int flags)
{
    char name[32];
    int n = 0;

    call(SYS_ioctl, m, TIOCGPTN, &n);
    snprintf(name, sizeof(name), "/dev/pts/%d", n);
    s = (int)call(SYS_openat, AT_FDCWD, name, O_RDWR | O_NONBLOCK | flags, 0);
    note("slave %d", s > 0 ? 1 : s);
}

static void open_both(int flags)
{
    int n = 0;

    m = (int)call(SYS_openat, AT_FDCWD, "/dev/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK, 0);
    note("master %d", m > 0);
    call(SYS_ioctl, m, TIOCGPTLCK, &n);
    note("locked %d", n);
    open_slave(flags);
    n = 0;
    note("unlock %ld", (long)call(SYS_ioctl, m, TIOCSPTLCK, &n));
    open_slave(flags);
}

static void show(const char *who, int64_t n)
{
    char text[3 * 512];
    int64_t i;
    int at = 0;

    for (i = 0; i < n && i < 400; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at,
                       bytes[i] < 32 || bytes[i] == 127 ? "%02x." : "%c", (unsigned char)bytes[i]);
    text[at] = 0;
    note("%s %ld: %s", who, (long)n, text);
}

static void read_(int fd, size_t n)
{
    settle();
    show(fd == m ? "m" : "s", call(SYS_read, fd, bytes, n));
}

static void type(const char *text, size_t n)
{
    note("type %ld", (long)call(SYS_write, m, text, n));
}

#define TYPE(text) type(text, sizeof(text) - 1)

static struct termios mode(void)
{
    struct termios t;

    call(SYS_ioctl, s, TCGETS, &t);
    return t;
}

static void set(struct termios t)
{
    settle();
    note("set %ld", (long)call(SYS_ioctl, s, TCSETS, &t));
}

static void first_mode(void)
{
    struct termios t;
    int i, n = -1;

    open_both(O_NOCTTY);
    t = mode();
    note("%x %x %x %x %d", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag, (int)t.c_line);
    for (i = 0; i < NCCS; i++)
        note(" %d", (int)t.c_cc[i]);
    note("of the master %ld %x", (long)call(SYS_ioctl, m, TCGETS, &t), t.c_lflag);
    note("size %ld", (long)call(SYS_ioctl, s, TIOCGWINSZ, bytes));
    note("pgrp %ld", (long)call(SYS_ioctl, s, TIOCGPGRP, &n));
    note("sid %ld %ld", (long)call(SYS_ioctl, s, TIOCGSID, &n),
         (long)call(SYS_ioctl, m, TIOCGSID, &n));
    note("pgrp of the master %ld", (long)call(SYS_ioctl, m, TIOCGPGRP, &n));
    note("%d", n);
    note("odd %ld %ld", (long)call(SYS_ioctl, s, 0x5499, &n), (long)call(SYS_ioctl, m, 0x5499, &n));
    note("not a master %ld", (long)call(SYS_ioctl, s, TIOCGPTN, &n));
    note("fault %ld %ld", (long)call(SYS_ioctl, s, TCGETS, 8), (long)call(SYS_ioctl, s, TCSETS, 8));
    note("flush %ld %ld", (long)call(SYS_ioctl, s, TCFLSH, 2), (long)call(SYS_ioctl, s, TCFLSH, 3));
    note("break %ld", (long)call(SYS_ioctl, s, TCSBRK, 1));
}

static void lines(void)
{
    int n = 0;

    open_both(O_NOCTTY);
    say_poll(m);
    say_poll(s);
    read_(s, 10);
    read_(m, 10);
    TYPE("hello");
    read_(m, 100);
    say_poll(s);
    read_(s, 100);
    settle();
    call(SYS_ioctl, s, FIONREAD, &n);
    note("FIONREAD %d", n);
    TYPE("\r");
    say_poll(s);
    settle();
    call(SYS_ioctl, s, FIONREAD, &n);
    note("FIONREAD %d", n);
    read_(m, 100);
    read_(s, 3);
    read_(s, 100);
    TYPE("one\ntwo\nthree");
    read_(s, 100);
    read_(s, 100);
    read_(s, 100);
    TYPE("\x04");
    read_(s, 100);
    TYPE("\x04");
    say_poll(s);
    read_(s, 100);
    read_(s, 100);
    TYPE("abc\x04");
    read_(s, 3);
    read_(s, 3);
    read_(m, 1000);
}

static void editing(void)
{
    open_both(O_NOCTTY);
    TYPE("abcd\x7f\x7f"
         "e\n");
    read_(s, 100);
    read_(m, 100);
    TYPE("two words  \x17here\x17\x17\n");
    read_(s, 100);
    read_(m, 200);
    TYPE("a\tb\x01\x7f\x7f\x7f\x7f\x7f\n");
    read_(s, 100);
    read_(m, 200);
    TYPE("killed\x15not\n");
    read_(s, 100);
    read_(m, 200);
    TYPE("lit\x16\x03\x16\x7f"
         "x\x12\n");
    read_(s, 100);
    read_(m, 200);
    TYPE("\x1b[A\n");
    read_(s, 100);
    read_(m, 200);
}

static void modes(void)
{
    static const unsigned lflags[] = {ICANON,
                                      ICANON | ECHO,
                                      ICANON | ECHO | ECHOE,
                                      ICANON | ECHO | ECHOK,
                                      ICANON | ECHONL,
                                      ICANON | ECHO | ECHOCTL | IEXTEN,
                                      ECHO,
                                      0,
                                      ISIG | ECHO | ECHOCTL};
    struct termios t;
    unsigned i;

    open_both(O_NOCTTY);
    for (i = 0; i < sizeof(lflags) / sizeof(lflags[0]); i++) {
        t = mode();
        t.c_lflag = lflags[i];
        set(t);
        TYPE("ab\x7f"
             "c d\x17"
             "e\x15"
             "f\x01\t\n");
        read_(s, 100);
        read_(s, 100);
        read_(m, 200);
    }
    t = mode();
    t.c_lflag = 0;
    for (i = 0; i < 16; i++) {
        t.c_iflag =
            (i & 1 ? ICRNL : 0) | (i & 2 ? INLCR : 0) | (i & 4 ? IGNCR : 0) | (i & 8 ? ISTRIP : 0);
        set(t);
        TYPE("a\rb\nc\xc1");
        read_(s, 100);
    }
    for (i = 0; i < 64; i++) {
        t.c_oflag = (i & 1 ? OPOST : 0) | (i & 2 ? ONLCR : 0) | (i & 4 ? OCRNL : 0) |
                    (i & 8 ? ONOCR : 0) | (i & 16 ? ONLRET : 0) | (i & 32 ? XTABS : 0);
        set(t);
        note("write %ld", (long)call(SYS_write, s, "\rab\tc\r\nd\b\b\te\n", 14));
        read_(m, 200);
    }
}

static void raw(void)
{
    struct termios t;

    open_both(O_NOCTTY);
    TYPE("half");
    t = mode();
    t.c_lflag &= ~(unsigned)(ICANON | ECHO);
    t.c_cc[VMIN] = 3;
    set(t);
    say_poll(s);
    read_(s, 100);
    TYPE("ab");
    say_poll(s);
    TYPE("c");
    say_poll(s);
    read_(s, 2);
    read_(s, 2);
    t.c_cc[VMIN] = 0;
    set(t);
    say_poll(s);
    call(SYS_fcntl, s, F_SETFL, O_RDWR);
    read_(s, 2);
    t.c_cc[VTIME] = 1;
    set(t);
    read_(s, 2);
    t.c_cc[VMIN] = 3;
    set(t);
    TYPE("x");
    read_(s, 5);
    TYPE("back");
    t.c_lflag |= ICANON;
    set(t);
    read_(s, 100);
    TYPE("\n");
    read_(s, 100);
}

static void typed_signals(void)
{
    struct {
        unsigned short rows, columns, x, y;
    } size = {24, 80, 0, 0};
    int n = 0;

    open_both(0);
    note("session %ld %d", (long)call(SYS_ioctl, s, TIOCGSID, &n), n == getpid() ? 1 : 0);
    note("sid %d", n == getpid());
    call(SYS_ioctl, s, TIOCGPGRP, &n);
    note("pgrp %d", n == getpid());
    TYPE("lost\x03kept");
    settle();
    note("signals %lx", (long)signals());
    read_(m, 100);
    TYPE("\x1c\x1a\n");
    settle();
    note("signals %lx", (long)signals());
    read_(m, 100);
    read_(s, 100);
    note("size %ld", (long)call(SYS_ioctl, m, TIOCSWINSZ, &size));
    settle();
    note("signals %lx", (long)signals());
    note("same %ld", (long)call(SYS_ioctl, s, TIOCSWINSZ, &size));
    settle();
    note("signals %lx", (long)signals());
    size.rows = 0;
    call(SYS_ioctl, s, TIOCGWINSZ, &size);
    note("rows %d", (int)size.rows);
    note("again %ld", (long)call(SYS_ioctl, s, TIOCSCTTY, 0));
    n = (int)call(SYS_openat, AT_FDCWD, "/dev/tty", O_RDWR | O_NONBLOCK, 0);
    note("tty %d", n > 0);
    note("write %ld", (long)call(SYS_write, n, "x", 1));
    call(SYS_close, n);
    n = getpid() + 1000000;
    note("pgrp %ld", (long)call(SYS_ioctl, s, TIOCSPGRP, &n));
    call(SYS_close, m);
    settle();
    note("signals %lx", (long)signals());
    say_poll(s);
    read_(s, 1);
    note("dead %ld %ld", (long)call(SYS_write, s, "x", 1), (long)call(SYS_ioctl, s, TCGETS, bytes));
    note("tty %ld", (long)call(SYS_openat, AT_FDCWD, "/dev/tty", O_RDWR, 0));
}

static void ends(void)
{
    open_both(O_NOCTTY);
    note("write %ld", (long)call(SYS_write, s, "last", 4));
    call(SYS_close, s);
    say_poll(m);
    read_(m, 100);
    read_(m, 100);
    TYPE("typed ahead\n");
    open_slave(O_NOCTTY);
    say_poll(m);
    read_(m, 100);
    read_(s, 100);
    call(SYS_close, m);
    read_(s, 100);
}

static void flow(void)
{
    open_both(O_NOCTTY);
    TYPE("\x13");
    settle();
    note("write %ld", (long)call(SYS_write, s, "held", 4));
    TYPE("\x11");
    settle();
    note("write %ld", (long)call(SYS_write, s, "let go", 6));
    read_(m, 100);
    note("off %ld", (long)call(SYS_ioctl, s, TCXONC, TCOOFF));
    note("write %ld", (long)call(SYS_write, s, "held", 4));
    note("on %ld", (long)call(SYS_ioctl, s, TCXONC, TCOON));
    note("write %ld", (long)call(SYS_write, s, "let go", 6));
    read_(m, 100);
}

static void packets(void)
{
    int one = 1;

    open_both(O_NOCTTY);
    note("packet %ld", (long)call(SYS_ioctl, m, TIOCPKT, &one));
    note("write %ld", (long)call(SYS_write, s, "data", 4));
    read_(m, 100);
    note("flush %ld", (long)call(SYS_ioctl, s, TCFLSH, TCIOFLUSH));
    say_poll(m);
    read_(m, 100);
    read_(m, 100);
}

static void waiting(void)
{
    struct other *o;

    open_both(O_NOCTTY);
    call(SYS_fcntl, s, F_SETFL, O_RDWR);
    call(SYS_fcntl, m, F_SETFL, O_RDWR);
    o = begin(SYS_read, s, bytes, 100);
    note("waits %d", waits(o));
    call(SYS_write, m, "abc", 3);
    note("waits %d", waits(o));
    call(SYS_write, m, "\n", 1);
    note("read %ld", (long)end(o));
    read_(m, 5);
    o = begin(SYS_read, m, bytes, 100);
    note("waits %d", waits(o));
    call(SYS_write, s, "xyz", 3);
    note("read %ld", (long)end(o));
    o = begin(SYS_read, m, bytes, 100);
    note("waits %d", waits(o));
    call(SYS_close, s);
    note("read %ld", (long)end(o));
}

static void random_typing(void)
{
    static const char keys[] = "ab c\t\n\r\x7f\x15\x17\x16\x04\x12\x01z9_";
    uint32_t seed = seed_or(5), i, n;
    struct termios t;

    open_both(O_NOCTTY);
    for (i = 0; i < 1000; i++) {
        seed = seed * 1664525 + 1013904223;
        n = seed >> 27 & 7;
        if (seed >> 24 & 1 || n) {
            note("%u", i);
            type(keys + (seed >> 8) % (sizeof(keys) - 1), 1);
        }
        if (n == 1)
            read_(s, (seed >> 12) % 20 + 1);
        if (n == 2)
            read_(m, 400);
        if ((seed >> 16 & 0x3f) == 7) {
            t = mode();
            t.c_lflag ^= seed >> 9 & 1 ? ECHO : ECHOCTL;
            set(t);
        }
        if (i % 200 == 199)
            settle();
        if (i % 200 == 199)
            note("flush %ld", (long)call(SYS_ioctl, s, TCFLSH, TCIFLUSH));
    }
}

static void long_line(void)
{
    struct pollfd p;
    struct termios t;
    unsigned i;
    int n = 0;

    open_both(O_NOCTTY);
    t = mode();
    t.c_lflag &= ~(unsigned)ECHO;
    set(t);
    memset(bytes, 'x', 100);
    for (i = 0; i < 50; i++)
        call(SYS_write, m, bytes, 100);
    settle();
    call(SYS_write, m, "end\n", 4);
    p = (struct pollfd){.fd = s, .events = POLLIN};
    note("poll %ld", (long)call(SYS_poll, &p, 1, 5000));
    call(SYS_ioctl, s, FIONREAD, &n);
    note("FIONREAD %d", n);
    note("read %ld", (long)call(SYS_read, s, bytes, sizeof(bytes)));
    note("last %d", bytes[4095]);
}

#define BOTH(name)                                                                                 \
    static void test_##name(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        both_sometimes(name);                                                                      \
    }
BOTH(first_mode)
BOTH(lines)
BOTH(long_line)
BOTH(editing)
BOTH(modes)
BOTH(raw)
BOTH(typed_signals)
BOTH(ends)
BOTH(flow)
BOTH(packets)
BOTH(waiting)
BOTH(random_typing)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_mode),    cmocka_unit_test(test_lines),
        cmocka_unit_test(test_long_line),     cmocka_unit_test(test_editing),
        cmocka_unit_test(test_modes),         cmocka_unit_test(test_raw),
        cmocka_unit_test(test_typed_signals), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_flow),          cmocka_unit_test(test_packets),
        cmocka_unit_test(test_waiting),       cmocka_unit_test(test_random_typing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
