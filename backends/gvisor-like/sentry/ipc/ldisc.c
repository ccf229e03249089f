/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ldisc - the line discipline: what is typed becomes lines, signals and echo; what is written becomes what a screen shows.
 * Invariants: head - tail <= TTY_IN - 1; canon is between them; a byte that ends a line has its bit in ends[]. An end of file is a
 * zero byte with its bit, that no reader sees.
 * Threads: the kernel lock.
 */
#include <ctype.h>
#include <string.h>

#include "tty.h"

#define L(flag) (tty->termios.c_lflag & (flag))
#define I(flag) (tty->termios.c_iflag & (flag))
#define O(flag) (tty->termios.c_oflag & (flag))
#define CC(name) (tty->termios.c_cc[name])

/* A character of the table, unless it is switched off. */
static bool is(const struct tty *tty, uint8_t byte, int name)
{
    return CC(name) && CC(name) == byte;
}

static bool end_at(const struct tty *tty, uint32_t at)
{
    return tty->ends[at % TTY_IN / 8] >> (at % 8) & 1;
}

static void set_end(struct tty *tty, uint32_t at, bool end)
{
    uint8_t bit = (uint8_t)(1u << (at % 8));

    if (end)
        tty->ends[at % TTY_IN / 8] |= bit;
    else
        tty->ends[at % TTY_IN / 8] &= (uint8_t)~bit;
}

void ldisc_begin(struct tty *tty)
{
    static const uint8_t cc[NCCS] = {
        [VINTR] = 3,     [VQUIT] = 28,   [VERASE] = 127, [VKILL] = 21, [VEOF] = 4,
        [VMIN] = 1,      [VSTART] = 17,  [VSTOP] = 19,   [VSUSP] = 26, [VREPRINT] = 18,
        [VDISCARD] = 15, [VWERASE] = 23, [VLNEXT] = 22};

    tty->termios.c_iflag = ICRNL | IXON;
    tty->termios.c_oflag = OPOST | ONLCR;
    tty->termios.c_cflag = B38400 | CS8 | CREAD;
    tty->termios.c_lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN;
    memcpy(tty->termios.c_cc, cc, sizeof(cc));
}

/* ---- to the master ---- */

static uint32_t out_room(const struct tty *tty)
{
    return TTY_OUT - (tty->out_head - tty->out_tail);
}

static void out(struct tty *tty, uint8_t byte)
{
    if (out_room(tty))
        tty->out[tty->out_head++ % TTY_OUT] = byte;
}

static bool out_tab(struct tty *tty)
{
    uint32_t n = 8 - tty->column % 8;

    if (O(TABDLY) != XTABS) {
        out(tty, '\t');
        tty->column += n;
        return true;
    }
    if (out_room(tty) < n)
        return false;
    tty->column += n;
    while (n-- > 0)
        out(tty, ' ');
    return true;
}

static bool out_newline(struct tty *tty)
{
    if (O(ONLRET))
        tty->column = 0;
    if (O(ONLCR)) {
        if (out_room(tty) < 2)
            return false;
        tty->column = 0;
        out(tty, '\r');
    }
    tty->canon_column = tty->column;
    out(tty, '\n');
    return true;
}

bool ldisc_output(struct tty *tty, uint8_t byte)
{
    if (!out_room(tty))
        return false;
    if (O(OPOST)) {
        if (byte == '\n')
            return out_newline(tty);
        if (byte == '\t')
            return out_tab(tty);
        if (byte == '\r' && O(ONOCR) && !tty->column)
            return true;
        if (byte == '\r' && O(OCRNL))
            byte = '\n';
        if (byte == '\r' || (byte == '\n' && O(ONLRET)))
            tty->canon_column = tty->column = 0; /* a tab that is erased is measured from here */
        else if (byte == '\b')
            tty->column -= tty->column > 0;
        else if (!iscntrl(byte) && (!I(IUTF8) || (byte & 0xc0) != 0x80))
            tty->column++;
        if (O(OLCUC))
            byte = (uint8_t)toupper(byte);
    }
    out(tty, byte);
    return true;
}

/* ---- echo ---- */

static void echo_raw(struct tty *tty, const char *text)
{
    while (*text)
        ldisc_output(tty, (uint8_t)*text++);
}

static void echo(struct tty *tty, uint8_t byte)
{
    if (L(ECHOCTL) && iscntrl(byte) && byte != '\t') {
        ldisc_output(tty, '^');
        byte ^= 0x40;
    }
    ldisc_output(tty, byte);
}

static void erasing_over(struct tty *tty)
{
    if (tty->erasing)
        ldisc_output(tty, '/');
    tty->erasing = false;
}

/* How many columns the typed line took, to its head. */
static uint32_t typed_columns(const struct tty *tty)
{
    uint32_t column = tty->canon_column, at;

    for (at = tty->canon; at != tty->head; at++) {
        uint8_t c = tty->in[at % TTY_IN];

        if (c == '\t')
            column += 8 - column % 8;
        else if (iscntrl(c))
            column += L(ECHOCTL) ? 2 : 0;
        else if (!I(IUTF8) || (c & 0xc0) != 0x80)
            column++;
    }
    return column;
}

/* One byte is gone from the typed line: off the screen with it. */
static void echo_erased(struct tty *tty, uint8_t c, int name)
{
    uint32_t n;

    if (!L(ECHO))
        return;
    if (name == VERASE && !L(ECHOE)) {
        echo(tty, CC(VERASE));
    } else if (c == '\t') {
        n = 8 - typed_columns(tty) % 8;
        while (n-- > 0)
            ldisc_output(tty, '\b');
    } else {
        if (iscntrl(c) && L(ECHOCTL))
            echo_raw(tty, "\b \b");
        if (!iscntrl(c) || L(ECHOCTL))
            echo_raw(tty, "\b \b");
    }
}

static bool kill_at_once(struct tty *tty)
{
    if (L(ECHO) && L(ECHOK) && L(ECHOKE) && L(ECHOE))
        return false;
    tty->head = tty->canon;
    if (!L(ECHO))
        return true;
    erasing_over(tty);
    echo(tty, CC(VKILL));
    if (L(ECHOK))
        ldisc_output(tty, '\n');
    return true;
}

static void erase(struct tty *tty, int name)
{
    bool word = false;
    uint32_t head;
    uint8_t c;

    if (tty->head == tty->canon || (name == VKILL && kill_at_once(tty)))
        return;
    while (tty->head != tty->canon) {
        head = tty->head;
        do
            c = tty->in[--head % TTY_IN];
        while (I(IUTF8) && (c & 0xc0) == 0x80 && head != tty->canon);
        if (name == VWERASE && (isalnum(c) || c == '_'))
            word = true;
        else if (name == VWERASE && word)
            break;
        tty->head = head;
        echo_erased(tty, c, name);
        if (name == VERASE)
            break;
    }
}

static void reprint(struct tty *tty)
{
    uint32_t at;

    erasing_over(tty);
    echo(tty, CC(VREPRINT));
    ldisc_output(tty, '\n');
    for (at = tty->canon; at != tty->head; at++)
        echo(tty, tty->in[at % TTY_IN]);
}

/* ---- input ---- */

bool ldisc_room(const struct tty *tty)
{
    return tty->head - tty->tail < TTY_IN - 1 || (L(ICANON) && tty->canon == tty->tail);
}

static void put(struct tty *tty, uint8_t byte, bool end)
{
    if (tty->head - tty->tail >= TTY_IN - (end ? 0 : 1))
        return; /* a line that is too long loses its middle */
    tty->in[tty->head % TTY_IN] = byte;
    set_end(tty, tty->head, end);
    tty->head++;
    if (end || !L(ICANON))
        tty->canon = end ? tty->head : tty->canon;
    if (end || !L(ICANON))
        waitq_wake(&tty->waitq, READY_IN);
}

void ldisc_flush_input(struct tty *tty)
{
    tty->tail = tty->canon = tty->head;
    tty->erasing = false; /* but what comes after a VLNEXT is literal still */
    memset(tty->ends, 0, sizeof(tty->ends));
    if (tty->packet)
        tty->status |= TIOCPKT_FLUSHREAD;
    waitq_wake(&tty->master_waitq, READY_OUT | POLLPRI);
}

void ldisc_flush_output(struct tty *tty)
{
    tty->out_tail = tty->out_head;
    if (tty->packet)
        tty->status |= TIOCPKT_FLUSHWRITE;
    waitq_wake(&tty->waitq, READY_OUT);
    waitq_wake(&tty->master_waitq, POLLPRI);
}

/* True: the byte was one that makes a signal. */
static bool signal_byte(struct tty *tty, uint8_t byte)
{
    int signo = is(tty, byte, VINTR)   ? SIGINT
                : is(tty, byte, VQUIT) ? SIGQUIT
                : is(tty, byte, VSUSP) ? SIGTSTP
                                       : 0;

    if (!L(ISIG) || !signo)
        return false;
    if (!L(NOFLSH)) {
        ldisc_flush_input(tty);
        ldisc_flush_output(tty);
    }
    tty_signal(tty, signo);
    if (I(IXON))
        tty->stopped = false;
    if (L(ECHO))
        echo(tty, byte);
    waitq_wake(&tty->waitq, READY_OUT);
    return true;
}

static bool flow_byte(struct tty *tty, uint8_t byte)
{
    if (!I(IXON))
        return false;
    if (is(tty, byte, VSTOP))
        tty->stopped = true;
    else if (is(tty, byte, VSTART) || (tty->stopped && I(IXANY)))
        tty->stopped = false;
    if (!tty->stopped)
        waitq_wake(&tty->waitq, READY_OUT);
    return is(tty, byte, VSTOP) || is(tty, byte, VSTART);
}

/* Bytes that edit a line or end it; false: one that is kept. */
static bool line_byte(struct tty *tty, uint8_t byte)
{
    if (is(tty, byte, VERASE) || is(tty, byte, VKILL) || (L(IEXTEN) && is(tty, byte, VWERASE))) {
        erase(tty, is(tty, byte, VERASE) ? VERASE : is(tty, byte, VKILL) ? VKILL : VWERASE);
        return true;
    }
    if (L(IEXTEN) && is(tty, byte, VLNEXT)) {
        tty->next_literal = true;
        if (L(ECHO) && L(ECHOCTL))
            echo_raw(tty, "^\b");
        return true;
    }
    if (L(IEXTEN) && L(ECHO) && is(tty, byte, VREPRINT)) {
        reprint(tty);
        return true;
    }
    if (byte == '\n') {
        if (L(ECHO) || L(ECHONL))
            ldisc_output(tty, '\n');
    } else if (is(tty, byte, VEOF)) {
        byte = 0;
    } else if (is(tty, byte, VEOL) || (L(IEXTEN) && is(tty, byte, VEOL2))) {
        if (L(ECHO))
            echo(tty, byte);
    } else {
        return false;
    }
    put(tty, byte, true);
    return true;
}

/* newline: it was a carriage return; one that was typed as such, with no lines made, is shown as ^J. */
static void kept_byte(struct tty *tty, uint8_t byte, bool newline)
{
    if (L(ECHO)) {
        erasing_over(tty);
        if (tty->canon == tty->head)
            tty->canon_column = tty->column;
        if (newline)
            ldisc_output(tty, '\n');
        else
            echo(tty, byte);
    }
    put(tty, byte, false);
}

void ldisc_input(struct tty *tty, uint8_t byte)
{
    bool newline;

    if (I(ISTRIP))
        byte &= 0x7f;
    if (tty->next_literal) {
        tty->next_literal = false;
        kept_byte(tty, byte, false);
        return;
    }
    if (flow_byte(tty, byte) || signal_byte(tty, byte))
        return;
    if (byte == '\r' && I(IGNCR))
        return;
    newline = byte == '\r' && I(ICRNL);
    if (newline)
        byte = '\n';
    else if (byte == '\n' && I(INLCR))
        byte = '\r';
    if (!L(ICANON) || !line_byte(tty, byte))
        kept_byte(tty, byte, newline);
}

/* ---- reading ---- */

bool ldisc_ready(const struct tty *tty, bool for_poll)
{
    uint32_t least = for_poll && !CC(VTIME) && CC(VMIN) ? CC(VMIN) : 1;

    return L(ICANON) ? tty->canon != tty->tail : tty->head - tty->tail >= least;
}

static int64_t give(struct tty *tty, struct uio *to, uint32_t n)
{
    uint32_t at = tty->tail % TTY_IN, part = n < TTY_IN - at ? n : TTY_IN - at;
    int64_t done = uio_to(to, tty->in + at, part);

    if (done == (int64_t)part && n > part) {
        int64_t more = uio_to(to, tty->in, n - part);

        done += more > 0 ? more : 0;
    }
    if (done > 0)
        tty->tail += (uint32_t)done;
    return done;
}

static int64_t read_line(struct tty *tty, struct uio *to)
{
    uint32_t n = 0, most = tty->canon - tty->tail;
    bool end = false, end_of_file = false;
    int64_t done;

    while (n < most && n < to->left && !end) {
        end = end_at(tty, tty->tail + n);
        end_of_file = end && !tty->in[(tty->tail + n) % TTY_IN];
        n += !end_of_file;
    }
    if (!end && n < most) /* an end of file right behind what was asked for */
        end_of_file = end_at(tty, tty->tail + n) && !tty->in[(tty->tail + n) % TTY_IN];
    done = give(tty, to, n);
    if (end_of_file && done == (int64_t)n)
        tty->tail++;
    return done;
}

int64_t ldisc_read(struct tty *tty, struct uio *to)
{
    uint32_t n = tty->head - tty->tail;
    int64_t done;

    if (L(ICANON)) {
        done = read_line(tty, to);
    } else {
        done = give(tty, to, n < to->left ? n : (uint32_t)to->left);
        tty->canon = tty->tail;
    }
    waitq_wake(&tty->master_waitq, READY_OUT);
    return done;
}

uint32_t ldisc_waiting(const struct tty *tty)
{
    uint32_t n = tty->canon - tty->tail, at;

    if (!L(ICANON))
        return tty->head - tty->tail;
    for (at = tty->tail; at != tty->canon; at++)
        n -= end_at(tty, at) && !tty->in[at % TTY_IN];
    return n;
}

void ldisc_set(struct tty *tty, const struct termios *termios)
{
    bool was = L(ICANON), before = tty->termios.c_iflag & IXON;

    tty->termios = *termios;
    if (was != !!L(ICANON)) {
        tty->next_literal = tty->erasing = false;
        memset(tty->ends, 0, sizeof(tty->ends));
        if (!L(ICANON) || tty->head == tty->tail) {
            tty->canon = tty->tail;
        } else {
            set_end(tty, tty->head - 1, true);
            tty->canon = tty->head;
        }
    }
    if (before && !I(IXON))
        tty->stopped = false;
    waitq_wake(&tty->waitq, READY_IN | READY_OUT);
    waitq_wake(&tty->master_waitq, READY_OUT);
}
