/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Accesses of any width to any address of the bus, with devices on it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm_guest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int disk = -1;
    struct guest g = {0};
    struct input i = {data, size};
    struct block *b;
    struct rng *r;
    struct balloon *l;

    if (disk < 0)
        disk = memfd_create("disk", MFD_CLOEXEC);
    if (ftruncate(disk, 1 << 20) < 0)
        abort();
    guest_begin(&g);
    b = block_new(&g.d.bind, DEV_ROOT, "cella-root", &disk, 1, 1 << 20, 1);
    r = rng_new(&g.d.bind, DEV_RNG);
    l = balloon_new(&g.d.bind, DEV_BALLOON, DRV_RAM);
    if (!b || !r || !l)
        abort();
    while (i.n > 0) {
        uint8_t how = in_u8(&i);
        uint64_t at = VIRTIO_MMIO_BASE + VIRTIO_MMIO_SIZE * (how % 8) + in_u16(&i) % 0x1010, v;
        unsigned len = 1u << (how >> 3) % 4;
        if (how & 0x20)
            at = at & ~3ull;
        if (how & 0x40) {
            v = how & 0x80 ? in_u8(&i) : in_u64(&i);
            bus_write(&g.d.bus, at, &v, len);
        } else
            bus_read(&g.d.bus, at, &v, len);
    }
    guest_turn(&g);
    block_free(b);
    rng_free(r);
    balloon_free(l);
    return 0;
}
