/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vsock_world - clients of a real unix socket on one side, a guest's packets on the other. */
#ifndef TEST_VSOCK_WORLD_H
#define TEST_VSOCK_WORLD_H

#include <linux/virtio_vsock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "driver.h"
#include "vsock_int.h"
#define RX_BUFFERS 16u
#define RX_AT(i) (DRV_BUFFERS + 0x10000ull + 0x2000ull * (i))
#define RX_LEN 4096u
#define TX_AT DRV_BUFFERS
#define EVENT_AT (DRV_BUFFERS + 0x8000ull)
#define HDR sizeof(struct virtio_vsock_hdr)

struct world {
    struct drv d;
    struct vsock *v;
    int listen_fd;
    struct sockaddr_un addr;
    socklen_t addr_len;
    uint32_t alloc; /* what the guest says that it can take */
    struct virtio_vsock_hdr h;
    uint8_t data[RX_LEN];
};

/* The connection that the last packet was of. */
struct id {
    uint32_t host, guest, fwd;
};

extern struct world w;

void post(uint32_t i);
void ready(void);
int setup(void **state);
int teardown(void **state);
void turn(unsigned ms);
int client(const char *line);
int next(void);
void expect(uint16_t op);
void nothing(void);
void packet(struct virtio_vsock_hdr h, const void *data);
struct id this(void);
void say(const struct id *c, uint16_t op, uint32_t flags, const void *data, uint32_t len);
ssize_t have(int fd, char *out, size_t len);
void assert_closed(int fd);
void assert_open(int fd);
struct id connected(int *ret_fd);

#endif
