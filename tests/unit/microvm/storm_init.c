/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * storm_init - the init of a guest that attacks its machine (storm.h) for secs=… seconds, through /dev/mem, with the serial
 * line's registers beside; then uses a device as it should be, and says so. Each line begins with "storm:". The
 * host's side is test_vmm_storm_lab.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

#include "storm.h"

#define DEVICES_AT 0xc0001000
#define SERIAL 0x3f8
#define PEACE (unsigned long)-1 /* the round after the last */

static volatile uint8_t *registers;
static struct storm storm;
static int kmsg_fd; /* the kernel waits for the line, and needs no interrupt of it */

static void set(struct storm *s, uint32_t dev, uint32_t reg, unsigned width, uint32_t v)
{
    volatile uint8_t *at = registers + dev * STORM_PAGE + reg;

    (void)s;
    if (width == 1)
        *at = (uint8_t)v;
    else if (width == 2)
        *(volatile uint16_t *)at = (uint16_t)v;
    else
        *(volatile uint32_t *)at = v;
}

static uint32_t get(struct storm *s, uint32_t dev, uint32_t reg)
{
    (void)s;
    return *(volatile uint32_t *)(registers + dev * STORM_PAGE + reg);
}

/* In peace the serial line is left alone: what the device gave is told through it. */
static void moment(struct storm *s)
{
    unsigned port = SERIAL + 1 + storm_below(s, 7);

    if (s->rounds == PEACE)
        usleep(1000);
    else if (storm_below(s, 8) == 0)
        outb((unsigned char)storm_random(s), (unsigned short)port);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Where its pages are, in the machine. */
static int pages(void)
{
    int fd = open("/proc/self/pagemap", O_RDONLY);
    uint64_t entry;
    size_t i, n = STORM_DEVICES * STORM_PAGES;
    void *at = mmap(NULL, n * STORM_PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);

    if (fd < 0 || at == MAP_FAILED)
        return -1;
    storm.mem = at;
    for (i = 0; i < n; i++) {
        storm.mem[i * STORM_PAGE] = 1;
        if (pread(fd, &entry, 8, (off_t)((uintptr_t)at / STORM_PAGE + i) * 8) != 8 ||
            !(entry & ((1ull << 55) - 1)))
            return -1;
        storm.gpa[i] = (entry & ((1ull << 55) - 1)) * STORM_PAGE;
    }
    return 0;
}

static void say(const char *what, long figure)
{
    dprintf(kmsg_fd, "<1>storm: %s %ld\n", what, figure);
}

static void serial_as_it_should_be(void)
{
    outb(0, SERIAL + 1);
    outb(3, SERIAL + 3);
    outb(0, SERIAL + 4);
}

int main(void)
{
    double until = now() + (getenv("secs") ? atof(getenv("secs")) : 5);
    int fd;

    mount("proc", "/proc", "proc", 0, "");
    mount("dev", "/dev", "devtmpfs", 0, "");
    kmsg_fd = open("/dev/kmsg", O_WRONLY);
    fd = open("/dev/mem", O_RDWR | O_SYNC);
    registers =
        mmap(NULL, STORM_DEVICES * STORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, DEVICES_AT);
    storm.set = set;
    storm.get = get;
    storm.moment = moment;
    storm.seed = (uint64_t)(now() * 1e9) | 1;
    storm.devices = STORM_DEVICES;
    if (fd < 0 || registers == MAP_FAILED || pages() < 0 || iopl(3) < 0) {
        say("cannot begin", errno);
        reboot(RB_POWER_OFF);
    }
    say("begins", STORM_DEVICES);
    while (now() < until)
        storm_round(&storm);
    serial_as_it_should_be();
    say("rounds", (long)storm.rounds);
    say("writes", (long)storm.writes);
    storm.rounds = PEACE;
    say("bytes by the book", storm_rng_works(&storm));
    for (fd = 0; fd < 200; fd++) {
        say("alive", fd);
        usleep(100000);
    }
    reboot(RB_POWER_OFF);
    for (;;)
        pause();
}
