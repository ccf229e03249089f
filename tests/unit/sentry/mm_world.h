/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* mm_world - an address space against a platform that only notes what it is told; each test gives all back. */
#ifndef CELLA_TEST_MM_WORLD_H
#define CELLA_TEST_MM_WORLD_H

#include "mm_touch.h"
#include "mm/space.h"

static inline int set_up(void **state)
{
    (void)state;
    fake_task();
    fake_changes = fake_faults = fake_interrupts = 0;
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    fake_task_end();
    assert_int_equal(memfile_used(), 0); /* each test gives all back */
    assert_int_equal(arena_count(ARENA_VMA), 0);
    assert_int_equal(arena_count(ARENA_OBJECT), 0);
    assert_int_equal(arena_count(ARENA_MM), 0);
    return 0;
}

static inline int64_t map(uint64_t address, uint64_t size, int prot, unsigned flags)
{
    return mm_map(current->mm, address, size, prot, RWX, flags, NULL, NULL, 0);
}

#endif
