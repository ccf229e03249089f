/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vmm_machine - a whole machine of cella-vmm on a KVM in this process. The first byte says what the rest is: a state to
 * be loaded, or a true state with changed bytes, or what a guest does with ports and device memory: records of
 * seven bytes {direction and width, where, value}.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_kvm.h"
#include "layout.h"

#define RAM (32ull << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct machine m;
static struct cpuid own;
static int state_fd = -1;
static uint8_t good[1 << 20];
static size_t good_len;

static void start(void)
{
    uint8_t kernel[4096];
    struct vmm_config c;
    struct why w;
    ssize_t n;

    fake_fds(kernel, fake_kernel(kernel), RAM);
    fake_config(&c, RAM);
    c.flags = VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    state_fd = memfd_create("state", MFD_CLOEXEC);
    if (state_fd < 0 || fake_machine(&m, &c) < 0 || machine_save(&m, state_fd, &w) < 0)
        abort();
    n = pread(state_fd, good, sizeof(good), 0);
    if (n <= 0)
        abort();
    good_len = (size_t)n;
    own = m.kvm.cpuid;
}

static void load(const uint8_t *data, size_t size)
{
    struct why w = {.text = ""};

    if (ftruncate(state_fd, 0) < 0 || pwrite(state_fd, data, size, 0) != (ssize_t)size)
        abort();
    if (machine_load(&m, state_fd, &w) < 0 && !w.text[0])
        abort();
    m.kvm.cpuid = own;
    devices_resumed(&m);
}

/* Records {place (3), value (1)} over a true state; a load that succeeds is saved again. */
static void load_changed(const uint8_t *data, size_t size)
{
    static uint8_t text[sizeof(good)];
    struct why w;

    memcpy(text, good, good_len);
    for (; size >= 4; data += 4, size -= 4)
        text[(data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % good_len] ^= data[3];
    load(text, good_len);
    (void)machine_save(&m, state_fd, &w);
}

static void reach(const uint8_t *r)
{
    static const uint64_t places[] = {0, VIRTIO_MMIO_BASE - 0x100, LAPIC_BASE, AT_GENERATION};
    unsigned len = 1u << (r[0] & 3);
    uint64_t value = 0, at = r[1] | (uint64_t)r[2] << 8;
    struct bus *bus = r[0] & 4 ? &m.ports : &m.memory;

    if (bus == &m.memory)
        at += places[r[0] >> 4 & 3];
    memcpy(&value, r + 3, 4);
    if (r[0] & 8)
        bus_write(bus, at, &value, len);
    else
        bus_read(bus, at, &value, len);
}

static void access_one(const uint8_t *r)
{
    fake_end_armed = 1;
    if (setjmp(fake_end) == 0) /* switching itself off is a guest's right */
        reach(r);
    fake_end_armed = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (state_fd < 0)
        start();
    fake_log_n = 0;
    if (!size)
        return 0;
    if (data[0] % 3 == 0)
        load(data + 1, size - 1);
    else if (data[0] % 3 == 1)
        load_changed(data + 1, size - 1);
    else
        for (data++, size--; size >= 7; data += 7, size -= 7)
            access_one(data);
    return 0;
}
