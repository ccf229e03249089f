/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mm_touch - what a guest's access finds, and how many areas there are. */
#ifndef CELLA_TEST_MM_TOUCH_H
#define CELLA_TEST_MM_TOUCH_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_platform.h"

#define RW (PROT_READ | PROT_WRITE)
#define RWX (RW | PROT_EXEC)
#define A 0x20000000ul
#define MEMORY (64ul << 20)

static int signo, code;

static inline char *touch(struct mm *mm, uint64_t address, int access)
{
    signo = code = 0;
    return fake_touch(mm, address, access, &signo, &code);
}

static inline void put(struct mm *mm, uint64_t address, char byte)
{
    char *at = touch(mm, address, RW);

    assert_non_null(at);
    *at = byte;
}

static inline char get(struct mm *mm, uint64_t address)
{
    char *at = touch(mm, address, PROT_READ);

    assert_non_null(at);
    return *at;
}

static inline unsigned areas(struct mm *mm)
{
    struct vma_info info = {0};
    unsigned n = 0;

    while (mm_next_area(mm, info.end, &info))
        n++;
    return n;
}

#endif
