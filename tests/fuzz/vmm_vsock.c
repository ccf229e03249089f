/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The vsock multiplexer between clients that say and do anything and a guest that sends any packet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/virtio_vsock.h>

#include "vmm_guest.h"

#define CLIENTS 8

static struct vsock *s;
static int listen_fd = -1, client[CLIENTS];
static struct sockaddr_un addr = {.sun_family = AF_UNIX};
static socklen_t addr_len;

static void again(struct guest *g)
{
    vsock_free(s);
    s = vsock_new(&g->d.bind, DEV_VSOCK, listen_fd);
    if (!s)
        abort();
    g->v = vsock_virtio(s);
}

static void listen_once(void)
{
    if (listen_fd >= 0)
        return;
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    addr_len =
        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                    (size_t)snprintf(addr.sun_path + 1, 60, "cella-fuzz-vsock-%d", (int)getpid()));
    if (bind(listen_fd, (struct sockaddr *)&addr, addr_len) < 0 || listen(listen_fd, 128) < 0)
        abort();
}

/* A buffer for packets to the guest, or a packet of it whose fields are near to what is true. */
static void guest_packet(struct guest *g, uint8_t op, struct input *i)
{
    struct piece rx = {DRV_BUFFERS + 0x2000, 512, 1};
    struct piece tx[] = {{DRV_BUFFERS, sizeof(struct virtio_vsock_hdr), 0},
                         {DRV_BUFFERS + 512, 0, 0}};
    struct virtio_vsock_hdr h = {.src_cid = 3, .dst_cid = 2, .type = 1};

    if (!g->d.q[0].size || !g->d.q[1].size)
        return;
    if (op & 1) {
        drv_add(&g->d, 0, &rx, 1);
        drv_kick(&g->d, 0);
        return;
    }
    h.op = in_u8(i) % 9;
    h.src_port = in_u8(i) % 4;
    h.dst_port = 1024u + in_u8(i) % 16;
    h.flags = in_u8(i);
    h.buf_alloc = in_u16(i);
    h.fwd_cnt = op & 2 ? in_u32(i) : in_u8(i);
    h.len = op & 4 ? in_u16(i) : 0;
    tx[1].len = h.len + (op & 0x10 ? 1u : 0u);
    memcpy(drv_at(&g->d, DRV_BUFFERS), &h, sizeof(h));
    drv_add(&g->d, 1, tx, tx[1].len ? 2 : 1);
    drv_kick(&g->d, 1);
}

static void say(int fd, uint8_t op, struct input *i)
{
    char text[300];
    int n;

    if (op & 2)
        n = snprintf(text, sizeof(text), "%s %u\n", op & 1 ? "PORT" : "CONNECT", in_u8(i) % 4u);
    else
        n = (int)in_bytes(i, text, in_u8(i));
    (void)send(fd, text, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void host(struct guest *g, uint8_t op, struct input *i)
{
    static char text[66000];
    int *c = &client[in_u8(i) % CLIENTS];

    switch (op >> 5) {
    case 0:
        if (*c >= 0)
            close(*c);
        *c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(*c, (struct sockaddr *)&addr, addr_len);
        say(*c, op, i);
        guest_turn(g);
        return;
    case 1:
        if (*c >= 0)
            say(*c, 0, i);
        guest_turn(g);
        return;
    case 2:
        if (*c >= 0)
            (void)!recv(*c, text, op & 1 ? sizeof(text) : 100, MSG_DONTWAIT);
        guest_turn(g);
        return;
    case 3:
        if (*c >= 0)
            shutdown(*c, op % 3);
        guest_turn(g);
        return;
    case 4:
        if (*c >= 0)
            (void)send(*c, text, op & 1 ? sizeof(text) : 1000, MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
    default:
        guest_packet(g, op, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct guest g = {.again = again, .host = host, .n_queues = 3};
    struct input i = {data, size};
    int k, late;

    listen_once();
    guest_begin(&g);
    memset(client, 0xff, sizeof(client));
    s = NULL;
    again(&g);
    drv_start(&g.d, g.v, in_u64(&i), 3);
    guest_run(&g, &i);
    vsock_free(s);
    for (k = 0; k < CLIENTS; k++)
        if (client[k] >= 0)
            close(client[k]);
    while ((late = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0)
        close(late);
    return 0;
}
