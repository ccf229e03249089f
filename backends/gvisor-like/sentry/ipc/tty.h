/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tty.h - the inside of terminals. All are pseudo-terminals: what the master writes is the terminal's input (ipc/ldisc.c makes lines
 * and signals of it), what the terminal's files write is what the master reads.
 */
#ifndef SENTRY_IPC_TTY_H
#define SENTRY_IPC_TTY_H

#include "state.h"

#include <asm/termbits.h>

#define TTY_IN 4096u
#define TTY_OUT 16384u

struct tty {
    uint32_t refs, index;     /* refs: files, processes whose terminal it is */
    uint32_t n_slaves, hangs; /* open files of the terminal; how often it was hung up */
    bool master, locked, packet, stopped, used; /* used: it was opened once */
    bool next_literal, erasing;
    uint8_t status; /* TIOCPKT_*, not told yet */
    struct termios termios;
    struct { /* struct winsize */
        uint16_t rows, columns, x, y;
    } size;
    int32_t session, pgrp; /* 0: none */
    /* Input: from tail to head; whole lines to canon. Free-running, modulo TTY_IN. An end of a line has its bit. */
    uint32_t tail, head, canon;
    uint8_t in[TTY_IN], ends[TTY_IN / 8];
    uint32_t column, canon_column; /* of the output; where the line that is typed began */
    uint32_t out_tail, out_head;   /* modulo TTY_OUT */
    uint8_t out[TTY_OUT];
    struct waitq waitq, master_waitq;
};

struct tty_state {
    struct tty *ttys[PTYS_MAX];
    struct dentry *root; /* of /dev/pts */
};

/* ---- ldisc.c ---- */

void ldisc_begin(struct tty *tty);
bool ldisc_room(const struct tty *tty);                 /* for one more byte of input */
void ldisc_input(struct tty *tty, uint8_t byte);        /* from the master */
bool ldisc_output(struct tty *tty, uint8_t byte);       /* to the master; false: no room */
bool ldisc_ready(const struct tty *tty, bool for_poll); /* a read gives something */
int64_t ldisc_read(struct tty *tty, struct uio *to);    /* what is there, by the mode */
void ldisc_set(struct tty *tty, const struct termios *termios);
void ldisc_flush_input(struct tty *tty);
void ldisc_flush_output(struct tty *tty);
uint32_t ldisc_waiting(const struct tty *tty); /* FIONREAD */
void tty_signal(struct tty *tty, int signo);   /* to its foreground group */

/* ---- tty.c, job.c ---- */

struct tty *tty_find(uint32_t index);
void tty_put(struct tty *tty);
int tty_check_change(
    struct tty *tty); /* may current change it? 0, -EIO, -ERESTARTSYS (SIGTTOU is sent) */
int tty_check_read(struct tty *tty); /* 0, -EIO, -ERESTARTSYS (SIGTTIN) */
void tty_take(struct tty *tty);      /* becomes current's */
int tty_set_controlling(struct tty *tty, bool force);
int tty_give_up(struct tty *tty);  /* TIOCNOTTY */
void tty_hang_up(struct tty *tty); /* its files are dead, its session has none */
int64_t tty_job_ioctl(struct tty *tty, bool master, uint32_t request,
                      uint64_t argument); /* NOT_MINE */
#define NOT_MINE (-515)
int64_t tty_peer(struct file *master, uint32_t flags); /* TIOCGPTPEER */
int64_t tty_ioctl(struct file *file, uint32_t request, uint64_t argument);

#endif
