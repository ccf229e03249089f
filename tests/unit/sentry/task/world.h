/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * world.h - task/ with guests that are functions: a platform whose run() asks a C function what the guest does next.
 *
 * A program is a function that is called whenever its guest has no system call to make: r15 says where in it the guest is, rax
 * what the last call gave. It makes one call by call(), a fault by fault(), or ends by quit(). fork copies r15, so the child goes
 * on in the same place. After a call rip is 2 behind where it is made, so that a restart (rip -= 2) makes it again.
 * A handler is a program, too: begin_handler() says which.
 */
#ifndef TASK_WORLD_H
#define TASK_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "fake_platform.h"
#include "task/room.h"

#define MEMORY 0x100000ul /* 64 KiB that all guests have, at the same address */
#define STACK (MEMORY + 0xf000)
#define XSTATE 832      /* bytes: x87, SSE, AVX */
#define PROGRAM 0x200ul /* rip of a guest that has no call to make */
#define HANDLER 0x300ul /* sa_handler of the handler program */

typedef void (*program)(struct user_regs_struct *r);

int world_begin(void **state); /* once for a test program: the set-up of its group */
void world_count(bool on);     /* whether address spaces have processor clocks: fake_use() */
/* Runs a cell whose first process is `first`; `handler` may be NULL. Its status. Fails the test when objects are left. */
int world_run(program first, program handler);
void call(struct user_regs_struct *r, long number, uint64_t a0, uint64_t a1, uint64_t a2,
          uint64_t a3, uint64_t a4, uint64_t a5);
void call3(struct user_regs_struct *r, long number, uint64_t a0, uint64_t a1, uint64_t a2);
void quit(struct user_regs_struct *r, int status); /* exit_group */
void fault(struct user_regs_struct *r, int signo); /* an exception */
void spin(struct user_regs_struct *r);             /* runs, a millisecond */
void handler_return(struct user_regs_struct *r);   /* rt_sigreturn from a handler's frame */
unsigned sleepers(void);     /* how many tasks sleep in their calls just now */
unsigned char *xstate(void); /* x87, SSE and AVX registers of the guest, as XSAVE has them */
/* A guest's memory, seen from a program. */
uint64_t peek(uint64_t address), poke(uint64_t address, uint64_t value);
uint32_t peek32(uint64_t address);
/* Struct sigaction at MEMORY + 0x800 for the handler program; its address. */
uint64_t action(uint64_t handler, uint64_t flags, uint64_t mask);
/* A struct timespec at `at`; its address. */
uint64_t timespec(uint64_t at, uint64_t ns);

#endif
