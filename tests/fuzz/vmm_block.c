/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A guest against its disks: one file, or layers, of which the last byte of the input decides. What is below is never
   written: that is what is checked. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../backends/microvm/vmm/layers.h"
#include "vmm_guest.h"

#define DISK ((1u << 20) + 512)

static struct block *b;
static int fd[3];
static uint32_t n_layers;

static int file(uint64_t bytes)
{
    int f = memfd_create("disk", MFD_CLOEXEC);

    if (f < 0 || ftruncate(f, (off_t)bytes) < 0)
        abort();
    return f;
}

static void again(struct guest *g)
{
    block_free(b);
    b = block_new(&g->d.bind, DEV_RW, "cella-rw", fd, n_layers, DISK, 0);
    if (!b)
        abort();
    g->v = block_virtio(b);
}

/* A request with a good header, of any type. */
static void host(struct guest *g, uint8_t op, struct input *i)
{
    uint32_t type = op % 16;
    uint64_t sector = op & 0x40 ? in_u64(i) : in_u16(i);
    struct piece p[] = {{DRV_BUFFERS, 16, 0},
                        {DRV_BUFFERS + 4096, in_u16(i) * 16u, op >> 7},
                        {DRV_BUFFERS + 64, 1, 1}};

    if (!g->d.q[0].size)
        return;
    memcpy(drv_at(&g->d, DRV_BUFFERS), &type, 4);
    memcpy(drv_at(&g->d, DRV_BUFFERS + 8), &sector, 8);
    drv_add(&g->d, 0, p, 3);
    if (op & 0x20)
        drv_kick(&g->d, 0);
}

static void same(int f, uint64_t at, uint8_t want)
{
    uint8_t c;

    if (pread(f, &c, 1, (off_t)at) != 1 || c != want)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guest g = {.again = again, .host = host, .n_queues = 1};
    struct input i = {data, size};
    uint32_t k;

    guest_begin(&g);
    n_layers = 1 + in_u8(&i) % 3;
    for (k = 0; k < n_layers; k++) {
        fd[k] = file(k ? 0 : DISK);
        if (k && layer_create(fd[k], DISK) < 0)
            abort();
    }
    if (n_layers > 1 && pwrite(fd[0], "\x5a", 1, 70000) != 1)
        abort();
    b = NULL;
    again(&g);
    guest_run(&g, &i);
    block_free(b);
    if (n_layers > 1) {
        struct layers l;
        same(fd[0], 70000, 0x5a);
        same(fd[0], 70001, 0);
        if (layers_open(&l, fd, n_layers, DISK) < 0) /* whatever it did, its disk is one */
            abort();
        layers_close(&l);
    }
    for (k = 0; k < n_layers; k++)
        close(fd[k]);
    return 0;
}
