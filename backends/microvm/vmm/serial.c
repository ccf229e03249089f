/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * serial - the registers of a 16550A at 0x3f8, as far as a transmitter that is always empty needs them.
 *
 * Bytes are gathered to lines, because each one costs the guest an exit already; a rest without end of line
 * goes out after a few milliseconds. The pipe never blocks: what does not fit is lost, and the guest cannot tell.
 * Threads: any with the machine's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "layout.h"
#include "serial.h"

#define LINE 256u
#define REST_NS 5000000u
#define TAG STATE_TAG('U', 'A', 'R', 'T')
#define VERSION 1u

enum { DATA, IER, IIR_FCR, LCR, MCR, LSR, MSR, SCR };

#define IER_THRI 2u
#define IER_MASK 0x0fu
#define IIR_NONE 1u
#define IIR_THRI 2u
#define IIR_FIFO 0xc0u
#define FCR_ON 1u
#define LCR_DLAB 0x80u
#define MCR_MASK 0x1fu
#define MCR_LOOP 0x10u
#define LSR_EMPTY 0x60u
#define MSR_ALIVE 0xb0u /* carrier, data set ready, clear to send */

struct serial {
    struct loop *loop;
    int console_fd, irq_fd;
    uint8_t ier, lcr, mcr, scr, fcr, divisor[2];
    uint8_t empty_told; /* the guest has read that the transmitter is empty */
    uint32_t len;
    char line[LINE];
};

/* @seccomp vmm vcpu: write */
static void irq(struct serial *s)
{
    uint64_t one = 1;

    if (s->irq_fd >= 0)
        (void)!write(s->irq_fd, &one, sizeof(one));
}

void serial_flush(struct serial *s)
{
    if (s->len)
        (void)!write(s->console_fd, s->line, s->len);
    s->len = 0;
}

static void rest(void *self)
{
    serial_flush(self);
}

static void transmit(struct serial *s, uint8_t c)
{
    s->line[s->len++] = (char)c;
    if (c == '\n' || s->len == sizeof(s->line))
        serial_flush(s);
    else if (s->len == 1)
        (void)loop_timer(s->loop, REST_NS, rest, s);
    s->empty_told = 0;
    if (s->ier & IER_THRI)
        irq(s);
}

/* Reading the reason answers it. */
static uint8_t reason(struct serial *s)
{
    uint8_t v = IIR_NONE;

    if ((s->ier & IER_THRI) && !s->empty_told) {
        v = IIR_THRI;
        s->empty_told = 1;
    }
    return (uint8_t)(v | (s->fcr & FCR_ON ? IIR_FIFO : 0));
}

/* In a loop the modem's outputs are its inputs. */
static uint8_t modem(const struct serial *s)
{
    if (!(s->mcr & MCR_LOOP))
        return MSR_ALIVE;
    return (uint8_t)((s->mcr & 1) << 5 | (s->mcr & 2) << 3 | (s->mcr & 4) << 4 | (s->mcr & 8) << 4);
}

static uint8_t get(struct serial *s, uint64_t offset)
{
    switch (offset) {
    case DATA:
        return s->lcr & LCR_DLAB ? s->divisor[0] : 0;
    case IER:
        return s->lcr & LCR_DLAB ? s->divisor[1] : s->ier;
    case IIR_FCR:
        return reason(s);
    case LCR:
        return s->lcr;
    case MCR:
        return s->mcr;
    case LSR:
        return LSR_EMPTY;
    case MSR:
        return modem(s);
    default:
        return s->scr;
    }
}

static void set_ier(struct serial *s, uint8_t v)
{
    int was = s->ier & IER_THRI;

    s->ier = v & IER_MASK;
    if (!was && (s->ier & IER_THRI)) {
        s->empty_told = 0;
        irq(s);
    }
}

static void set(struct serial *s, uint64_t offset, uint8_t v)
{
    switch (offset) {
    case DATA:
        if (s->lcr & LCR_DLAB)
            s->divisor[0] = v;
        else if (!(s->mcr & MCR_LOOP))
            transmit(s, v);
        break;
    case IER:
        if (s->lcr & LCR_DLAB)
            s->divisor[1] = v;
        else
            set_ier(s, v);
        break;
    case IIR_FCR:
        s->fcr = v & FCR_ON;
        break;
    case LCR:
        s->lcr = v;
        break;
    case MCR:
        s->mcr = v & MCR_MASK;
        break;
    case SCR:
        s->scr = v;
        break;
    default:
        break; /* LSR and MSR are read only */
    }
}

static void port_read(void *self, uint64_t offset, void *out, unsigned len)
{
    if (len == 1)
        *(uint8_t *)out = get(self, offset);
}

static void port_write(void *self, uint64_t offset, const void *in, unsigned len)
{
    if (len == 1)
        set(self, offset, *(const uint8_t *)in);
}

struct serial *serial_new(struct bus *ports, struct loop *loop, int borrow_console_fd,
                          int borrow_irq_fd)
{
    struct serial *s = calloc(1, sizeof(*s));
    struct bus_range r = {
        .base = PORT_SERIAL, .len = 8, .self = s, .read = port_read, .write = port_write};
    int e;

    if (!s)
        return NULL;
    s->loop = loop;
    s->console_fd = borrow_console_fd;
    s->irq_fd = borrow_irq_fd;
    s->divisor[0] = 1;
    e = bus_add(ports, &r);
    if (e < 0) {
        free(s);
        errno = -e;
        return NULL;
    }
    return s;
}

void serial_save(const struct serial *s, struct state_out *o)
{
    state_begin(o, TAG, VERSION);
    state_put_u8(o, s->ier);
    state_put_u8(o, s->lcr);
    state_put_u8(o, s->mcr);
    state_put_u8(o, s->scr);
    state_put_u8(o, s->fcr);
    state_put(o, s->divisor, sizeof(s->divisor));
    state_put_u8(o, s->empty_told);
    state_end(o);
}

/* What was half a line belongs to the one who was saved. An interrupt that was on its way may be in no state: the guest
   that waits for it gets it again. */
int serial_load(struct serial *s, struct state_in *i)
{
    state_enter(i, TAG, VERSION);
    s->ier = state_get_u8(i) & IER_MASK;
    s->lcr = state_get_u8(i);
    s->mcr = state_get_u8(i) & MCR_MASK;
    s->scr = state_get_u8(i);
    s->fcr = state_get_u8(i) & FCR_ON;
    state_get(i, s->divisor, sizeof(s->divisor));
    s->empty_told = state_get_u8(i) & 1;
    state_leave(i);
    s->len = 0;
    if (!i->bad && (s->ier & IER_THRI) && !s->empty_told)
        irq(s);
    return i->bad ? -EBADMSG : 0;
}

void serial_free(struct serial *s)
{
    if (!s)
        return;
    (void)loop_timer(s->loop, 0, rest, s);
    free(s);
}
