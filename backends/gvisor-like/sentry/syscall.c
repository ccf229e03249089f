/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * syscall - the table of system calls: one row for each number, made of the rooms' calls.def.
 * What the workload asked for and did not get is counted: refused rows and numbers without one.
 * Threads: the kernel lock.
 */
#include "syscall.h"
#include "task/numbers.h"

#define NUMBERS 1024 /* above the highest number that Linux has */

#define CALL(name_, status_, note_) int64_t sys_##name_(const uint64_t a[6]);
#define REFUSE(name_, error_, note_)
#include "calls.h"
#undef CALL
#undef REFUSE

static uint16_t by_number[NUMBERS];   /* 1 + index of syscall_rows; 0: none */
static uint64_t missing[NUMBERS + 1]; /* the last: all numbers above */

const struct syscall_row *syscall_find(uint64_t number)
{
    return number < NUMBERS && by_number[number] ? &syscall_rows[by_number[number] - 1] : NULL;
}

static int64_t refuse(const struct syscall_row *row, uint64_t number)
{
    missing[number < NUMBERS ? number : NUMBERS]++;
    return row ? -(int64_t)row->error : -ENOSYS;
}

int64_t syscall_dispatch(struct task *task)
{
    const struct user_regs_struct *r = &task->regs;
    const uint64_t arguments[6] = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9};
    const struct syscall_row *row = syscall_find(r->orig_rax);

    task->syscalls++;
    task->last_syscall = r->orig_rax;
    return row && row->function ? row->function(arguments) : refuse(row, r->orig_rax);
}

bool syscall_next_missing(int64_t after, uint64_t *ret_number, uint64_t *ret_count)
{
    uint64_t number;

    for (number = (uint64_t)(after + 1); number <= NUMBERS; number++)
        if (missing[number]) {
            *ret_number = number;
            *ret_count = missing[number];
            return true;
        }
    return false;
}

int syscall_init(void)
{
    unsigned i;

    for (i = 0; syscall_rows[i].name; i++) {
        if (by_number[syscall_rows[i].number])
            return -EEXIST; /* two rooms claim it: a bug, and a test's matter */
        by_number[syscall_rows[i].number] = (uint16_t)(i + 1);
    }
    return 0;
}

#define CALL(name_, status_, note_) {SYS_##name_, status_, 0, #name_, note_, sys_##name_},
#define REFUSE(name_, error_, note_) {SYS_##name_, SYSCALL_REFUSED, error_, #name_, note_, NULL},
const struct syscall_row syscall_rows[] = {
#include "calls.h"
    {0}};
