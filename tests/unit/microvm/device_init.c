/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * device_init - the init of a test's guest: uses every device of the machine and says on the console what came of it.
 * Every line begins with "dev:". The host's side is test_vmm_devices.c.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MIB (1u << 20)
#define BLOCK 65536u

static char *block; /* aligned */

static void say(const char *what, int ok)
{
    printf("dev: %s %s (%s)\n", what, ok ? "good" : "BAD", ok ? "0" : strerror(errno));
    fflush(stdout);
}

static void modules(void)
{
    FILE *list = fopen("/modules/list", "r");
    char name[128], path[160];

    while (list && fgets(name, sizeof(name), list)) {
        int fd;
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof(path), "/modules/%s", name);
        fd = open(path, O_RDONLY);
        if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
            printf("dev: module %s: %s\n", name, strerror(errno));
        close(fd);
    }
}

static int disk(const char *serial, int flags)
{
    char path[64], text[32];
    int n, fd, tries;
    FILE *f;

    for (tries = 0; tries < 100; tries++, usleep(20000))
        for (n = 'a'; n < 'e'; n++) {
            snprintf(path, sizeof(path), "/sys/block/vd%c/serial", n);
            f = fopen(path, "r");
            if (!f)
                continue;
            text[0] = 0;
            (void)!fgets(text, sizeof(text), f);
            fclose(f);
            text[strcspn(text, "\n")] = 0;
            if (strcmp(text, serial))
                continue;
            snprintf(path, sizeof(path), "/dev/vd%c", n);
            fd = open(path, flags);
            return fd;
        }
    errno = ENODEV;
    return -1;
}

static int filled(int fd, off_t at, char c)
{
    unsigned i;

    memset(block, c + 1, BLOCK);
    if (pread(fd, block, BLOCK, at) != (ssize_t)BLOCK)
        return 0;
    for (i = 0; i < BLOCK; i++)
        if (block[i] != c)
            return 0;
    return 1;
}

/* Leaves 'w' at 0, zeros at 1 MiB, 'v' at 2 MiB + 4096. */
static void disks(void)
{
    unsigned long long range[2] = {MIB, MIB}, hole[2] = {4 * MIB, MIB};
    int rw = disk("cella-rw", O_RDWR | O_DIRECT), root = disk("cella-root", O_RDONLY | O_DIRECT), i;
    int ok = 1;

    say("disks", rw >= 0 && root >= 0);
    i = disk("cella-root", O_RDWR | O_DIRECT);
    memset(block, 'x', BLOCK);
    say("root is read-only", i < 0 || pwrite(i, block, 4096, 0) < 0);
    say("root reads", filled(root, 0, 'r'));
    for (i = 0; i < 64; i++) { /* 4 MiB */
        memset(block, 'w', BLOCK);
        ok = ok && pwrite(rw, block, BLOCK, (off_t)i * BLOCK) == (ssize_t)BLOCK;
    }
    say("disk writes", ok && fsync(rw) == 0);
    say("disk reads", filled(rw, 0, 'w') && filled(rw, 4 * MIB - BLOCK, 'w'));
    say("disk zeroes",
        ioctl(rw, BLKZEROOUT, range) == 0 && filled(rw, MIB, 0) && filled(rw, 2 * MIB, 'w'));
    say("disk discards", ioctl(rw, BLKDISCARD, hole) == 0);
    memset(block, 'v', BLOCK);
    say("disk writes in pieces", pwrite(rw, block, 4096, 2 * MIB + 4096) == 4096 && fsync(rw) == 0);
    say("disk ends", pread(rw, block, 4096, 8 * MIB) == 0);
    close(rw);
    close(root);
}

static void random_numbers(void)
{
    char text[64] = "", a[32] = "", b[32] = "";
    FILE *f = fopen("/sys/class/misc/hw_random/rng_current", "r");
    int fd = open("/dev/hwrng", O_RDONLY);

    if (f) {
        (void)!fgets(text, sizeof(text), f);
        fclose(f);
    }
    say("rng is virtio", !strncmp(text, "virtio_rng", 10));
    say("rng differs", read(fd, a, 32) == 32 && read(fd, b, 32) == 32 && memcmp(a, b, 32) != 0);
    close(fd);
}

static int address(const char *name)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_DGRAM, 0), r;
    struct ifreq q;

    memset(&q, 0, sizeof(q));
    strcpy(q.ifr_name, name);
    inet_aton("10.9.9.2", &a.sin_addr);
    memcpy(&q.ifr_addr, &a, sizeof(a));
    r = ioctl(s, SIOCSIFADDR, &q);
    inet_aton("255.255.255.0", &a.sin_addr);
    memcpy(&q.ifr_netmask, &a, sizeof(a));
    r = r < 0 ? r : ioctl(s, SIOCSIFNETMASK, &q);
    q.ifr_flags = IFF_UP | IFF_RUNNING;
    r = r < 0 ? r : ioctl(s, SIOCSIFFLAGS, &q);
    close(s);
    return r;
}

/* 4 MiB there and back: the host answers with what it got. */
static int echoed(int s, unsigned mib)
{
    unsigned long in = 0, out = 0, all = (unsigned long)mib * MIB;
    ssize_t n;

    while (in < all) {
        if (out < all && out - in < 2 * BLOCK) {
            memset(block, 'a' + (int)(out / BLOCK % 26), BLOCK);
            n = write(s, block, BLOCK - out % BLOCK);
            if (n <= 0)
                return 0;
            out += (unsigned long)n;
            continue;
        }
        n = read(s, block, BLOCK - in % BLOCK);
        if (n <= 0)
            return 0;
        if (block[0] != 'a' + (int)(in / BLOCK % 26) || block[n - 1] != block[0])
            return 0;
        in += (unsigned long)n;
    }
    return 1;
}

static void network(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7)};
    struct timeval limit = {.tv_sec = 60};
    int s;

    say("net comes up", address("eth0") == 0);
    inet_aton("10.9.9.1", &a.sin_addr);
    s = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    say("net connects", connect(s, (struct sockaddr *)&a, sizeof(a)) == 0);
    say("net echoes", echoed(s, 4));
    close(s);
}

static void sockets(void)
{
    struct sockaddr_vm a = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = 1024};
    int s = socket(AF_VSOCK, SOCK_STREAM, 0), c, out;

    say("vsock listens", bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(s, 4) == 0);
    out = socket(AF_VSOCK, SOCK_STREAM, 0);
    a.svm_cid = 2;
    a.svm_port = 5;
    say("vsock is refused",
        connect(out, (struct sockaddr *)&a, sizeof(a)) < 0 && errno == ECONNRESET);
    close(out);
    c = accept(s, NULL, NULL);
    say("vsock accepts", c >= 0);
    say("vsock echoes", echoed(c, 4));
    close(c);
    /* and in the next life: one byte a connection, for as long as somebody asks */
    for (;;) {
        int rw;
        char what = 0;
        c = accept(s, NULL, NULL);
        if (c < 0 || read(c, &what, 1) != 1) {
            close(c);
            continue;
        }
        rw = disk("cella-rw", O_RDWR | O_DIRECT);
        if (what == 'd')
            what = rw >= 0 && filled(rw, 0, 'w') && filled(rw, MIB, 0) ? 'y' : 'n';
        if (what == 'w') {
            memset(block, 'W', BLOCK);
            what = pwrite(rw, block, 512, 512) == 512 && fsync(rw) == 0 ? 'y' : 'n';
        }
        if (what == 'q')
            reboot(RB_POWER_OFF);
        close(rw);
        (void)!write(c, &what, 1);
        close(c);
    }
}

int main(void)
{
    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("dev", "/dev", "devtmpfs", 0, "");
    block = aligned_alloc(4096, BLOCK);
    modules();
    disks();
    random_numbers();
    network();
    sockets();
    return 0;
}
