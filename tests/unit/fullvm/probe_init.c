/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe_init - stands in for the guest's init: loads what /modules/list names, finds both ports, and answers one
 * line with one line on each, "<number> [text]". Numbers below zero are negative errnos.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

static char text[4096];
static unsigned char *memory;
static long memory_len;

static void modules(void)
{
    FILE *list = fopen("/modules/list", "r");
    char name[128], path[160];

    while (list && fgets(name, sizeof(name), list)) {
        int fd;
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof(path), "/modules/%s", name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
            fprintf(stderr, "probe: %s: %s\n", path, strerror(errno));
        close(fd);
    }
}

static int port(const char *want)
{
    DIR *d = opendir("/sys/class/virtio-ports");
    struct dirent *e;
    char path[300], name[64];
    int fd = -1;

    while (d && fd < 0 && (e = readdir(d))) {
        FILE *f;
        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
        f = fopen(path, "r");
        name[0] = 0;
        if (f && fgets(name, sizeof(name), f))
            name[strcspn(name, "\n")] = 0;
        if (f)
            fclose(f);
        if (strcmp(name, want))
            continue;
        snprintf(path, sizeof(path), "/dev/%s", e->d_name);
        fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    }
    if (d)
        closedir(d);
    return fd;
}

/* The block device with that serial number, as /dev/vdX. */
static long disk(const char *serial, char *out)
{
    char path[64], name[32];
    int i;

    for (i = 'a'; i <= 'd'; i++) {
        FILE *f;
        snprintf(path, sizeof(path), "/sys/block/vd%c/serial", i);
        f = fopen(path, "r");
        name[0] = 0;
        if (f && fgets(name, sizeof(name), f))
            name[strcspn(name, "\n")] = 0;
        if (f)
            fclose(f);
        if (!strcmp(name, serial)) {
            sprintf(out, "/dev/vd%c", i);
            return 0;
        }
    }
    return -ENODEV;
}

static long get(const char *path)
{
    int fd = open(path, O_RDONLY), i;
    ssize_t n;

    if (fd < 0)
        return -errno;
    n = read(fd, text, 2000);
    if (n < 0)
        n = -errno;
    close(fd);
    text[n > 0 ? n : 0] = 0;
    for (i = 0; text[i]; i++)
        if (text[i] < ' ')
            text[i] = '|';
    return n;
}

static long put(const char *path, long bytes)
{
    static char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    long done = 0;

    if (fd < 0)
        return -errno;
    memset(block, 'x', sizeof(block));
    while (done < bytes) {
        ssize_t n = write(
            fd, block, bytes - done < (long)sizeof(block) ? (size_t)(bytes - done) : sizeof(block));
        if (n < 0) {
            done = -errno;
            break;
        }
        done += n;
    }
    if (done >= 0 && fsync(fd) < 0)
        done = -errno;
    close(fd);
    return done;
}

static long mount_rw(void)
{
    char dev[32];
    struct statfs fs;
    long r = disk("cella-rw", dev);

    mkdir("/rw", 0755);
    if (r == 0 && mount(dev, "/rw", "ext4", 0, "") < 0)
        return -errno;
    if (r == 0 && statfs("/rw", &fs) == 0)
        r = (long)(fs.f_blocks * (unsigned long)fs.f_bsize);
    return r;
}

static long root_write(void)
{
    char dev[32];
    long r = disk("cella-root", dev);
    int fd = r == 0 ? open(dev, O_WRONLY) : -1;

    if (r == 0 && fd < 0)
        return -errno;
    return r == 0 && pwrite(fd, "x", 1, 0) < 0 ? -errno : 0;
}

static long share(const char *tag)
{
    mkdir("/share", 0755);
    if (mount(tag, "/share", "9p", 0, "trans=virtio,version=9p2000.L") < 0)
        return -errno;
    return 0;
}

/* mem fill BYTES SEED / mem sum: what the memory of the guest holds */
static long fill(long bytes, long seed)
{
    long i;

    if (memory)
        munmap(memory, (size_t)memory_len);
    memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        memory = NULL;
        return -errno;
    }
    memory_len = bytes;
    for (i = 0; i < bytes; i += 512)
        memory[i] = (unsigned char)(seed + i / 512 * 7);
    return bytes;
}

static long sum(void)
{
    unsigned long s = 5381;
    long i;

    for (i = 0; i < memory_len; i += 512)
        s = (s * 33 + memory[i]) & 0xffffffful;
    return (long)s;
}

static long burn(long ms)
{
    struct timespec a, b;

    clock_gettime(CLOCK_MONOTONIC, &a);
    do
        clock_gettime(CLOCK_MONOTONIC, &b);
    while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
    return 0;
}

static long flood(long bytes)
{
    int fd = open("/dev/ttyS0", O_WRONLY | O_NONBLOCK);
    static char line[4096];
    long done = 0, tries = 0;

    memset(line, 'F', sizeof(line));
    while (done < bytes && tries++ < 200000) {
        ssize_t n = write(fd, line, sizeof(line));
        if (n > 0)
            done += n;
    }
    close(fd);
    return done;
}

static long now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static long answer(char *line)
{
    char *arg = strchr(line, ' '), *rest;
    struct sysinfo si;
    unsigned long random;

    if (arg)
        *arg++ = 0;
    else
        arg = line + strlen(line);
    rest = strchr(arg, ' ');
    if (rest)
        *rest++ = 0;
    if (!strcmp(line, "ping"))
        return 1;
    if (!strcmp(line, "pid"))
        return getpid();
    if (!strcmp(line, "uptime"))
        return now();
    if (!strcmp(line, "ram"))
        return sysinfo(&si) == 0 ? (long)(si.totalram * si.mem_unit >> 20) : -errno;
    if (!strcmp(line, "free"))
        return sysinfo(&si) == 0 ? (long)(si.freeram * si.mem_unit >> 20) : -errno;
    if (!strcmp(line, "cpus"))
        return sysconf(_SC_NPROCESSORS_ONLN);
    if (!strcmp(line, "random")) {
        getrandom(&random, sizeof(random), 0);
        return (long)(random >> 2);
    }
    if (!strcmp(line, "get"))
        return get(arg);
    if (!strcmp(line, "put") && rest)
        return put(arg, atol(rest));
    if (!strcmp(line, "rm"))
        return unlink(arg) < 0 ? -errno : 0;
    if (!strcmp(line, "rw"))
        return mount_rw();
    if (!strcmp(line, "sync")) {
        sync();
        return 0;
    }
    if (!strcmp(line, "rootwrite"))
        return root_write();
    if (!strcmp(line, "share"))
        return share(arg);
    if (!strcmp(line, "list")) {
        DIR *d = opendir(arg);
        long n = 0;
        if (!d)
            return -errno;
        while (readdir(d))
            n++;
        closedir(d);
        return n;
    }
    if (!strcmp(line, "fill") && rest)
        return fill(atol(arg), atol(rest));
    if (!strcmp(line, "sum"))
        return sum();
    if (!strcmp(line, "burn"))
        return burn(atol(arg));
    if (!strcmp(line, "flood"))
        return flood(atol(arg));
    if (!strcmp(line, "off")) {
        sync();
        reboot(RB_POWER_OFF);
    }
    if (!strcmp(line, "panic")) {
        put("/proc/sys/kernel/sysrq", 0);
        exit(0); /* process 1 ends: the kernel panics */
    }
    return -EINVAL;
}

static void reply(int fd, long number)
{
    char out[5000];
    int len = snprintf(out, sizeof(out), "%ld %s\n", number, text), at = 0;

    while (at < len) {
        ssize_t n = write(fd, out + at, (size_t)(len - at));
        if (n > 0)
            at += (int)n;
        else if (n < 0 && errno != EAGAIN)
            return;
    }
}

struct line {
    int fd;
    size_t len;
    char text[512];
};

static void serve(struct line *l)
{
    char c;

    while (read(l->fd, &c, 1) == 1) {
        if (c != '\n') {
            if (l->len < sizeof(l->text) - 1)
                l->text[l->len++] = c;
            continue;
        }
        l->text[l->len] = 0;
        l->len = 0;
        text[0] = 0;
        reply(l->fd, answer(l->text));
    }
}

int main(void)
{
    static struct line lines[2];

    mount("proc", "/proc", "proc", 0, "");
    mount("sysfs", "/sys", "sysfs", 0, "");
    mount("dev", "/dev", "devtmpfs", 0, "");
    modules();
    lines[0].fd = port("cella.agent");
    lines[1].fd = port("cella.guest");
    fprintf(stderr, "probe: ports %d %d\n", lines[0].fd, lines[1].fd);
    for (;;) {
        struct pollfd p[2] = {{.fd = lines[0].fd, .events = POLLIN},
                              {.fd = lines[1].fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents & POLLIN)
            serve(&lines[0]);
        if (p[1].revents & POLLIN)
            serve(&lines[1]);
        if ((p[0].revents | p[1].revents) & POLLHUP)
            usleep(20000); /* the host is away */
    }
}
