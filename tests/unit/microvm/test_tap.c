/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* net.c over a real tap in a network namespace of its own, with offloads and without. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>

#include "driver.h"
#include "net.h"

#define HDR sizeof(struct virtio_net_hdr_v1)
#define BIT(f) (1ull << (f))
#define ALL (~0ull)
#define RX_AT(i) (DRV_BUFFERS + 0x20000ull * (i))
#define TX_AT (DRV_BUFFERS + 0x400000ull)

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 7};
static struct drv d;
static struct net *n;

static void rx_buffer(unsigned i, uint32_t len)
{
    struct piece p = {RX_AT(i), len, 1};

    memset(drv_at(&d, RX_AT(i)), 0xee, len);
    drv_add(&d, 0, &p, 1);
    drv_kick(&d, 0);
}

static int open_tap(int flags)
{
    struct ifreq r;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC), s = socket(AF_INET, SOCK_DGRAM, 0);

    if (fd < 0 || s < 0)
        return -1;
    memset(&r, 0, sizeof(r));
    strcpy(r.ifr_name, "celltest");
    r.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | flags);
    if (ioctl(fd, TUNSETIFF, &r) < 0)
        return -1;
    r.ifr_flags = IFF_UP;
    if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return -1;
    close(s);
    return fd;
}

static int packet_socket(void)
{
    int s = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(0x88b5)), i;
    struct sockaddr_ll a = {.sll_family = AF_PACKET, .sll_protocol = htons(0x88b5)};
    struct ifreq r;

    memset(&r, 0, sizeof(r));
    strcpy(r.ifr_name, "celltest");
    i = ioctl(s, SIOCGIFINDEX, &r);
    a.sll_ifindex = i == 0 ? r.ifr_ifindex : 0;
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
    return s;
}

static void through_tap(int flags, int offloads)
{
    static const struct virtio_net_hdr_v1 plain;
    uint8_t f[100], out[200];
    struct piece p[] = {{TX_AT, HDR + sizeof(f), 0}};
    uint32_t len;
    int tap = open_tap(flags), s;

    assert_true(tap >= 0);
    s = packet_socket();
    n = net_new(&d.bind, DEV_NET, tap, mac);
    assert_non_null(n);
    drv_start(&d, net_virtio(n), ALL, 2);
    assert_int_equal((net_virtio(n)->driver_features & BIT(VIRTIO_NET_F_HOST_TSO4)) != 0, offloads);
    rx_buffer(0, 2048);
    memset(f, 'f', sizeof(f));
    memset(f, 0xff, 6);
    f[12] = 0x88;
    f[13] = 0xb5;
    assert_int_equal(send(s, f, sizeof(f), 0), sizeof(f));
    do { /* the kernel's own multicast comes, too */
        assert_true(drv_wait(&d, 0, &len) >= 0);
        rx_buffer(0, 2048);
    } while (len != HDR + sizeof(f));
    memcpy(drv_at(&d, TX_AT), &plain, HDR);
    memcpy(drv_at(&d, TX_AT + HDR), f, sizeof(f));
    drv_add(&d, 1, p, 1);
    drv_kick(&d, 1);
    assert_true(drv_wait(&d, 1, &len) >= 0);
    assert_int_equal(recv(s, out, sizeof(out), 0), sizeof(f));
    assert_memory_equal(out, f, sizeof(f));
    close(s);
    net_free(n);
    n = NULL;
    close(tap);
}

static void test_tap(void **state)
{
    int not_tap = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)state;
    assert_int_equal(drv_init(&d), 0);
    assert_int_equal(unshare(CLONE_NEWNET), 0);
    through_tap(IFF_VNET_HDR, 1);
    memset(&d.bus, 0, sizeof(d.bus));
    through_tap(0, 0);
    memset(&d.bus, 0, sizeof(d.bus));
    assert_null(net_new(&d.bind, DEV_NET, not_tap, mac));
    close(not_tap);
    drv_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tap)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
