/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * device_bench - the init of a guest that measures its disk and its network (tests/bench/devices.py): one line "bench: NAME
 * FIGURE" each, for as many seconds each as secs=… on the kernel's command line says, of the disk disk=…. Disk: MiB/s of 64 KiB in sequence,
 * requests a second of 4 KiB anywhere, by one and by eight processes, past the page cache. Network: MiB/s of one TCP
 * connection to port 9 of 10.9.9.1, which takes, and to port 19, which gives.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DISK (192ull << 20)
#define BLOCK 65536u
#define AT_ONCE 8

static double seconds = 3;
static char *block;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void modules(void)
{
    FILE *list = fopen("/modules/list", "r");
    char name[128], path[160];
    int fd;

    while (list && fgets(name, sizeof(name), list)) {
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof(path), "/modules/%s", name);
        fd = open(path, O_RDONLY);
        syscall(SYS_finit_module, fd, "", 0);
        close(fd);
    }
}

static int disk(void)
{
    const char *path = getenv("disk");
    int tries, fd;

    for (tries = 0; path && tries < 200; tries++, usleep(20000))
        if ((fd = open(path, O_RDWR | O_DIRECT)) >= 0)
            return fd;
    return -1;
}

/* Requests a second. */
static double requests(int fd, int writes, unsigned size, int anywhere)
{
    unsigned long long at = 0;
    double from = now(), past = 0;
    unsigned long n = 0;
    ssize_t r;

    while ((past = now() - from) < seconds) {
        if (anywhere)
            at = (unsigned long long)random() % (DISK / size) * size;
        r = writes ? pwrite(fd, block, size, (off_t)at) : pread(fd, block, size, (off_t)at);
        if (r != (ssize_t)size)
            return 0;
        at = (at + size) % DISK;
        n++;
    }
    return (double)n / past;
}

static double together(int fd, int writes)
{
    double sum = 0, one;
    int p[2], i;

    if (pipe(p) < 0)
        return 0;
    for (i = 0; i < AT_ONCE; i++)
        if (fork() == 0) {
            srandom((unsigned)i);
            one = requests(fd, writes, 4096, 1);
            _exit(write(p[1], &one, sizeof(one)) != (ssize_t)sizeof(one));
        }
    for (i = 0; i < AT_ONCE; i++) {
        if (read(p[0], &one, sizeof(one)) == (ssize_t)sizeof(one))
            sum += one;
        wait(NULL);
    }
    return sum;
}

static void address(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq q;

    memset(&q, 0, sizeof(q));
    strcpy(q.ifr_name, "eth0");
    inet_aton("10.9.9.2", &a.sin_addr);
    memcpy(&q.ifr_addr, &a, sizeof(a));
    ioctl(s, SIOCSIFADDR, &q);
    inet_aton("255.255.255.0", &a.sin_addr);
    memcpy(&q.ifr_netmask, &a, sizeof(a));
    ioctl(s, SIOCSIFNETMASK, &q);
    q.ifr_flags = IFF_UP | IFF_RUNNING;
    ioctl(s, SIOCSIFFLAGS, &q);
    close(s);
}

static double stream(int port, int takes)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int s = socket(AF_INET, SOCK_STREAM, 0);
    unsigned long long n = 0;
    double from, past = 1;
    ssize_t r;

    inet_aton("10.9.9.1", &a.sin_addr);
    if (connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
        return 0;
    from = now();
    while ((past = now() - from) < seconds) {
        r = takes ? read(s, block, BLOCK) : write(s, block, BLOCK);
        if (r <= 0)
            break;
        n += (unsigned long long)r;
    }
    close(s);
    return (double)n / past / 1048576;
}

static void say(const char *name, double figure)
{
    printf("bench: %s %.2f\n", name, figure);
    fflush(stdout);
}

int main(void)
{
    int fd;

    printf("bench: init\n");
    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("dev", "/dev", "devtmpfs", 0, "");
    if (getenv("secs"))
        seconds = atof(getenv("secs"));
    block = aligned_alloc(4096, BLOCK);
    memset(block, 'b', BLOCK);
    modules();
    fd = disk();
    say("write-64k", requests(fd, 1, BLOCK, 0) / 16);
    say("read-64k", requests(fd, 0, BLOCK, 0) / 16);
    say("read-4k", requests(fd, 0, 4096, 1));
    say("write-4k", requests(fd, 1, 4096, 1));
    say("read-4k-by-8", together(fd, 0));
    say("write-4k-by-8", together(fd, 1));
    address();
    sleep(1);
    say("net-to-host", stream(9, 0));
    say("net-to-guest", stream(19, 1));
    printf("bench: end\n");
    fflush(stdout);
    reboot(RB_POWER_OFF);
    return 0;
}
