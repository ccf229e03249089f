/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A guest and a network that sends anything. */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../backends/microvm/vmm/net.h"
#include "vmm_guest.h"

static struct net *n;
static int pair[2];
static uint8_t how;

static void again(struct guest *g)
{
    static const uint8_t mac[6] = {2};

    net_free(n);
    n = net_on(&g->d.bind, DEV_NET, pair[0], mac, how & 1, how & 2);
    if (!n)
        abort();
    g->v = net_virtio(n);
}

static void host(struct guest *g, uint8_t op, struct input *i)
{
    static uint8_t frame[70000];
    size_t len = op & 0x80 ? in_u16(i) : in_u8(i);

    in_bytes(i, frame, 64);
    (void)send(pair[1], frame, len, MSG_DONTWAIT);
    if (op & 1)
        guest_turn(g);
    while ((op & 2) && recv(pair[1], frame, sizeof(frame), MSG_DONTWAIT) > 0)
        ;
    if (op & 4)
        net_limit(n, in_u16(i), in_u16(i));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guest g = {.again = again, .host = host, .n_queues = 2};
    struct input i = {data, size};

    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    guest_begin(&g);
    how = in_u8(&i);
    n = NULL;
    again(&g);
    guest_run(&g, &i);
    net_free(n);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
