/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The devices of a machine in a storm (storm.h), on a KVM that is not one: with sanitizers, in this process. What was driven
 * wildly can be saved, and works when it is driven as it should be.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fake_kvm.h"
#include "layout.h"
#include "storm.h"

#define RAM (32ull << 20)
#define PAGES_AT (16ull << 20)
#define ROUNDS 3000

static struct machine m;

static void reach(uint32_t dev, uint32_t reg, unsigned width, uint32_t *v, int write)
{
    uint64_t at = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * dev + reg;

    if (write)
        bus_write(&m.memory, at, v, width);
    else
        bus_read(&m.memory, at, v, width);
}

static void set(struct storm *s, uint32_t dev, uint32_t reg, unsigned width, uint32_t v)
{
    (void)s;
    reach(dev, reg, width, &v, 1);
}

static uint32_t get(struct storm *s, uint32_t dev, uint32_t reg)
{
    uint32_t v = 0;

    (void)s;
    reach(dev, reg, 4, &v, 0);
    return v;
}

static void enough(void *self)
{
    loop_end(((struct machine *)self)->loop);
}

static void nothing(void *self)
{
    (void)self;
}

static void moment(struct storm *s)
{
    (void)s;
    assert_int_equal(loop_timer(m.loop, 20000, enough, &m), 0);
    assert_int_equal(loop_run(m.loop, nothing, nothing, &m), 0);
}

static void in_a_storm(void **state)
{
    static struct storm s = {.set = set, .get = get, .moment = moment, .devices = DEV_NET};
    const char *seed = getenv("CELLA_STORM_SEED");
    uint64_t taken, read, written;
    int fd, i;
    struct vmm_config c;
    uint8_t kernel[4096];
    struct why w = {.text = ""};

    (void)state;
    fake_fds(kernel, fake_kernel(kernel), RAM);
    fake_config(&c, RAM);
    fd = memfd_create("state", MFD_CLOEXEC);
    assert_int_equal(fake_machine(&m, &c), 0);
    s.seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)getpid() << 20 | 1;
    s.mem = m.ram.base + PAGES_AT;
    for (i = 0; i < STORM_DEVICES * STORM_PAGES; i++)
        s.gpa[i] = PAGES_AT + (uint64_t)i * STORM_PAGE;
    print_message("seed 0x%llx\n", (unsigned long long)s.seed);
    while (s.rounds < ROUNDS)
        storm_round(&s);
    devices_figures(&m, &taken, &read, &written);
    print_message("%lu rounds, %lu writes; the disk has read %llu bytes and written %llu\n",
                  s.rounds, s.writes, (unsigned long long)read, (unsigned long long)written);
    assert_true(read > 0 && written > 0); /* some of it was believed */
    assert_int_equal(machine_save(&m, fd, &w), 0);
    devices_resumed(&m);
    assert_in_range(storm_rng_works(&s), 48, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_a_storm)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
