/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The state of any device from any bytes, then what a resumed machine would do with it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../backends/microvm/vmm/net.h"
#include "vmm_guest.h"

struct all {
    struct block *b;
    struct rng *r;
    struct balloon *l;
    struct net *n;
    struct vsock *s;
};

static struct virtio *make(struct all *a, struct guest *g, uint8_t which, const int *disk, int sock)
{
    static const uint8_t mac[6] = {2};

    switch (which % 5) {
    case 0:
        a->b = block_new(&g->d.bind, DEV_RW, "cella-rw", disk, 1, 1 << 20, 0);
        return a->b ? block_virtio(a->b) : NULL;
    case 1:
        a->r = rng_new(&g->d.bind, DEV_RW);
        return a->r ? rng_virtio(a->r) : NULL;
    case 2:
        a->l = balloon_new(&g->d.bind, DEV_RW, DRV_RAM);
        return a->l ? balloon_virtio(a->l) : NULL;
    case 3:
        a->n = net_on(&g->d.bind, DEV_RW, sock, mac, 1, 1);
        return a->n ? net_virtio(a->n) : NULL;
    default:
        a->s = vsock_new(&g->d.bind, DEV_RW, sock);
        return a->s ? vsock_virtio(a->s) : NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int disk = -1, pair[2];
    struct guest g = {0};
    struct input i = {data, size};
    struct state_out o = {0};
    struct state_in in;
    struct all a = {0};
    uint8_t which = in_u8(&i);

    if (disk < 0) {
        disk = memfd_create("disk", MFD_CLOEXEC);
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
            abort();
    }
    if (ftruncate(disk, 1 << 20) < 0)
        abort();
    guest_begin(&g);
    g.v = make(&a, &g, which, &disk, pair[0]);
    if (!g.v)
        abort();
    if (which & 0x80) { /* a true one, changed */
        drv_start(&g.d, g.v, ~0ull, g.v->ops->n_queues);
        virtio_save(g.v, &o);
        while (i.n > 2)
            o.data[in_u16(&i) % o.len] = in_u8(&i);
        drv_set(&g.d, VIRTIO_MMIO_STATUS, 0);
        state_open(&in, o.data, o.len);
    } else
        state_open(&in, i.p, i.n);
    if (virtio_load(g.v, &in) == 0) {
        virtio_resume(g.v);
        guest_turn(&g);
    }
    block_free(a.b);
    rng_free(a.r);
    balloon_free(a.l);
    net_free(a.n);
    vsock_free(a.s);
    state_out_free(&o);
    return 0;
}
