/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The devices of cella-vmm under Debian's kernel (device_init.c is its init), then those of a copy of that machine. Needs
 * KVM, hence the lab; skipped (77) elsewhere.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "initrd.h"
#include "layers.h"
#include "vmm_host.h"

#define BOOT_MS 180000
#define MIB (1u << 20)
#define DISK (8u * MIB)
#define KERNEL TEST_BUILD "/test-cache/state/kernels/default/"

static int make_tap(void)
{
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK),
        s = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct ifreq r;

    memset(&r, 0, sizeof(r));
    strcpy(r.ifr_name, "guest");
    r.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
        return -1;
    inet_aton("10.9.9.1", &a.sin_addr);
    memcpy(&r.ifr_addr, &a, sizeof(a));
    if (ioctl(s, SIOCSIFADDR, &r) < 0)
        return -1;
    inet_aton("255.255.255.0", &a.sin_addr);
    memcpy(&r.ifr_netmask, &a, sizeof(a));
    if (ioctl(s, SIOCSIFNETMASK, &r) < 0)
        return -1;
    r.ifr_flags = IFF_UP;
    if (ioctl(s, SIOCSIFFLAGS, &r) < 0)
        return -1;
    close(s);
    return fd;
}

/* Gives back what comes until it ends. */
static void echo(int fd)
{
    static char block[65536];
    ssize_t n;

    while ((n = read(fd, block, sizeof(block))) > 0)
        if (write_all(fd, block, (size_t)n) < 0)
            break;
    close(fd);
}

static pid_t echo_server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7)};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    pid_t pid;

    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    assert_int_equal(bind(s, (void *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s, 4), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            echo(accept(s, NULL, NULL));
    }
    close(s);
    return pid;
}

static int dial(struct vmm *v, const char *line)
{
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", v->vsock);
    assert_int_equal(connect(s, (void *)&a, sizeof(a)), 0);
    assert_int_equal(write_all(s, line, strlen(line)), 0);
    return s;
}

/* One byte there, one back. */
static char ask(struct vmm *v, char what)
{
    int s = dial(v, "PORT 1024\n");
    struct pollfd p = {.fd = s, .events = POLLIN};
    char answer = 0;

    assert_int_equal(write_all(s, &what, 1), 0);
    if (poll(&p, 1, 60000) == 1 && read(s, &answer, 1) != 1)
        answer = 0;
    close(s);
    return answer;
}

static int initrd(void)
{
    static const char *const names[] = {"crc32c_generic",
                                        "virtio_mmio",
                                        "vsock",
                                        "vmw_vsock_virtio_transport_common",
                                        "vmw_vsock_virtio_transport",
                                        "virtio_blk",
                                        "failover",
                                        "net_failover",
                                        "virtio_net",
                                        "virtio-rng",
                                        "virtio_balloon"};
    const char *path[ARRAY_LEN(names)];
    static char text[ARRAY_LEN(names)][256];
    size_t n = 0, i;
    struct errbuf eb;
    int fd = memfd_create("initrd", MFD_CLOEXEC);

    for (i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(text[i], sizeof(text[i]), KERNEL "modules/%s.ko", names[i]);
        if (access(text[i], R_OK) == 0) /* else it is part of the kernel */
            path[n++] = text[i];
    }
    if (initrd_write(fd, DEVICE_INIT, DEVICE_INIT, path, n, errbuf_init(&eb)) < 0)
        fprintf(stderr, "initrd: %s\n", eb.text);
    return fd;
}

static void fill(int fd, char c, size_t len)
{
    char *p = malloc(len);

    memset(p, c, len);
    assert_int_equal(write_all(fd, p, len), 0);
    free(p);
}

static int file_of(uint64_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* The balloon takes memory, and the free pages come back by themselves. */
static void balloon(struct vmm *v)
{
    struct vmm_request q = {.op = VMM_OP_STATS};
    struct vmm_reply r = {0};
    int i;

    assert_int_equal(vmm_op(v, VMM_OP_BALLOON, 96u * MIB, -1), 0);
    for (i = 0; i < 1200 && r.value < 16u * MIB; i++) {
        assert_int_equal(vmm_ask(v, &q, -1, &r), 0);
        usleep(100000);
    }
    fprintf(stderr, "balloon: %llu, %s\n", (unsigned long long)r.value, r.text);
    assert_true(r.value >= 16u * MIB);
    assert_int_equal(vmm_op(v, VMM_OP_BALLOON, 128u * MIB, -1), 0);
    for (i = 0; i < 1200 && r.value > 0; i++) {
        assert_int_equal(vmm_ask(v, &q, -1, &r), 0);
        usleep(100000);
    }
    assert_int_equal(r.value, 0);
}

static void copy_lives(struct vmm *source, struct vmm_parts *p)
{
    int state = memfd_create("state", MFD_CLOEXEC);
    static struct vmm v;
    struct vmm_parts q = *p;
    uint8_t bits = 0, c = 0;
    char path[64];

    assert_int_equal(vmm_op(source, VMM_OP_PAUSE, 0, -1), 0);
    assert_int_equal(vmm_op(source, VMM_OP_SAVE, 0, state), 0);
    vmm_kill(source);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", p->ram_fd);
    q.ram_fd = open(path, O_RDONLY | O_CLOEXEC);
    q.kernel_fd = q.initrd_fd = -1;
    q.layer_fd[1] = file_of(0);
    assert_int_equal(layer_create(q.layer_fd[1], DISK), 0);
    q.n_layers = 2;
    q.config.n_layers = 2;
    q.config.flags |= VMM_CONFIG_INCOMING | VMM_CONFIG_PRIVATE;
    q.config.append[0] = 0;
    assert_int_equal(vmm_start(&v, &q), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_LOAD, 0, state), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_CONT, 0, -1), 0);
    assert_int_equal(ask(&v, 'd'), 'y'); /* the parent's disk */
    assert_int_equal(ask(&v, 'w'), 'y'); /* and its own */
    assert_int_equal(pread(q.layer_fd[1], &bits, 1, LAYER_BLOCK), 1);
    assert_int_equal(bits, 1);
    assert_int_equal(pread(q.layer_fd[1], &c, 1, LAYER_CLUSTER + 512), 1);
    assert_int_equal(c, 'W');
    assert_int_equal(pread(q.layer_fd[0], &c, 1, 512), 1);
    assert_int_equal(c, 'w');
    (void)ask(&v, 'q');
    assert_int_equal(vmm_ended(&v, BOOT_MS), 0);
    vmm_kill(&v);
    close(q.layer_fd[1]);
    close(q.ram_fd);
    close(state);
}

static void every_device(void **state)
{
    static struct vmm v;
    struct vmm_parts p;
    pid_t server;
    const char *at;

    (void)state;
    vmm_parts_init(&p, KERNEL "vmlinuz",
                   "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on", 128);
    p.initrd_fd = initrd();
    p.tap_fd = make_tap();
    assert_true(p.tap_fd >= 0);
    p.config.flags |= VMM_CONFIG_NET;
    memcpy(p.config.mac, "\x02\0\0\0\0\x09", 6);
    fill(p.root_fd, 'r', MIB);
    server = echo_server();
    assert_int_equal(vmm_start(&v, &p), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_CONT, 0, -1), 0);
    at = vmm_says(&v, "dev: vsock is refused", NULL, BOOT_MS);
    if (at)
        echo(dial(&v, "PORT 1024\n"));
    at = vmm_says(&v, "dev: vsock echoes", NULL, at ? 60000 : 0);
    fprintf(stderr, "%s%s\n", v.log, v.why);
    assert_non_null(at);
    assert_null(strstr(v.log, " BAD "));
    balloon(&v);
    copy_lives(&v, &p);
    kill(server, SIGKILL);
    close(p.tap_fd);
    vmm_parts_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_device)};
    const char *missing = vmm_missing();

    if (missing) {
        printf("test-vmm-devices: skipped: %s\n", missing);
        return 77;
    }
    if (access(KERNEL "vmlinuz", R_OK) < 0) {
        printf("test-vmm-devices: skipped: no guest kernel in " KERNEL "\n");
        return 77;
    }
    if (unshare(CLONE_NEWNET) < 0)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
