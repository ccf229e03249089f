/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * world.h - little scenarios that run twice, on the host's kernel and on ours, and must say the same.
 * A scenario is a function that makes system calls by call() and says what it saw by note(). Guest addresses are those of the
 * test's own process; what ipc/ asks of other rooms is in world.c, as small as it can be.
 */
#ifndef TEST_IPC_WORLD_H
#define TEST_IPC_WORLD_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

typedef void (*scenario)(void);

/* Runs it on both, each in a process of its own; fails with both texts when they differ. Ours must leave nothing behind. */
void both(scenario run);
/* Where the host's own answers depend on its threads (its terminals' do, and its network's when it has much to do): one of
   some runs there must equal ours. */
void both_sometimes(scenario run);
/* Ours alone: for what the host cannot be asked. */
void ours_alone(scenario run, const char *expected);

extern bool ours;
extern unsigned
    host_run; /* which of those runs this is, from 1: each can leave the host more time */
/* A system call: its result or -errno. */
int64_t call_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
#define CALL6(n, a, b, c, d, e, f, ...)                                                            \
    call_(n, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e),            \
          (uint64_t)(f))
#define call(...) CALL6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Another task of the same process, that makes one call: begun, and asked for after a while. */
struct other;
struct other *begin_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                     uint64_t f);
#define BEGIN6(n, a, b, c, d, e, f, ...)                                                           \
    begin_(n, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e),           \
           (uint64_t)(f))
#define begin(...) BEGIN6(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
bool waits(struct other *other);                 /* it sleeps in its call, and 20 ms later still */
void one_ends(struct other *a, struct other *b); /* until one of two has; within 20 s */
int64_t end(struct other *other);                /* its result; within 20 s */
void pause_ms(unsigned ms);
/* Where a scenario by chance begins: IPC_TEST_SEED, without it `usual`. */
uint32_t seed_or(uint32_t usual);

/* Signals of the calling task, ours: pending in its process. On the host: kill(getpid()). */
void raise_signal(int signo);
unsigned sigpipes(void); /* since the last time */
uint64_t signals(void);  /* all that came since the last time, bit n - 1 is signal n */

#endif
