/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * identity - who this guest is: entropy, clock, names, addresses, and the files that say so.
 *
 * The files lie on one small tmpfs of init's, and the cell sees them through read-only mounts: they
 * are written in place, so what is mounted shows the new text, and nobody in the cell can write
 * them. Order: entropy first, so that nothing later is drawn from a state that another guest has,
 * too; the network last, when everything else is this guest's own. Threads: one.
 */
#include <sys/ioctl.h>
#include <time.h>

#include "guest.h"

#define RNDADDENTROPY_ 0x40085203ul
#define RNDRESEEDCRNG_ 0x5207ul
#define SHOWN_DIR STATE "/shown/"

static int entropy_add(const struct identity *id)
{
    struct {
        int bits, size;
        uint8_t bytes[512];
    } pool = {(int)id->entropy_len * 8, (int)id->entropy_len, {0}};
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC), e = 0;

    if (fd < 0)
        return blame(errno, "cannot open", "/dev/urandom");
    memcpy(pool.bytes, id->entropy, id->entropy_len);
    if (ioctl(fd, RNDADDENTROPY_, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG_, 0) < 0)
        e = errno;
    close(fd);
    return e ? blame(e, "cannot reseed the random generator", NULL) : 0;
}

static int clock_set(const struct identity *id)
{
    uint64_t now = id->epoch_ns + (now_ns() - id->heard_ns); /* mounting may come between */
    struct timespec ts = {(time_t)(now / NSEC), (long)(now % NSEC)};

    return clock_settime(CLOCK_REALTIME, &ts) < 0 ? blame(errno, "cannot set the clock", NULL) : 0;
}

static int file_write(const char *path, const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644), e = 0;

    if (fd < 0 || write(fd, text, len) != (ssize_t)len)
        e = errno ? errno : EIO;
    if (fd >= 0)
        close(fd);
    return e ? blame(e, "cannot write", path) : 0;
}

static void hex(const uint8_t *p, size_t n, int dashes, char *to)
{
    static const char digits[] = "0123456789abcdef";
    size_t i;

    for (i = 0; i < n; i++) {
        if (dashes && (i == 4 || i == 6 || i == 8 || i == 10))
            *to++ = '-';
        *to++ = digits[p[i] >> 4];
        *to++ = digits[p[i] & 15];
    }
    *to++ = '\n';
    *to = 0;
}

static void add_ipv4(char *buf, size_t cap, uint32_t address)
{
    uint8_t b[4];
    char n[24];
    int i;

    memcpy(b, &address, 4);
    for (i = 0; i < 4; i++) {
        text_add(buf, cap, i ? "." : "");
        text_add(buf, cap, num_text(b[i], n));
    }
}

static int hosts_write(const struct identity *id)
{
    char text[256] = "127.0.0.1 localhost\n127.0.1.1 ", name[80] = "";
    int r;

    text_add(text, sizeof(text), id->hostname);
    text_add(text, sizeof(text), "\n");
    text_add(name, sizeof(name), id->hostname);
    text_add(name, sizeof(name), "\n");
    r = file_write(STATE "/etc/hosts", text, strlen(text));
    return r == 0 ? file_write(STATE "/etc/hostname", name, strlen(name)) : r;
}

static int resolver_write(const struct identity *id)
{
    char text[128] = "";

    if (id->has_net) {
        text_add(text, sizeof(text), "nameserver ");
        add_ipv4(text, sizeof(text), id->gateway);
        text_add(text, sizeof(text), "\noptions timeout:2 attempts:1\n");
    }
    return file_write(STATE "/etc/resolv.conf", text, strlen(text));
}

static int names_set(const struct identity *id)
{
    char text[64], n[24];
    int r;

    if (syscall(SYS_sethostname, id->hostname, strlen(id->hostname)) < 0 ||
        syscall(SYS_setdomainname, "", 0) < 0)
        return blame(errno, "cannot set the host name", id->hostname);
    r = hosts_write(id);
    if (r == 0)
        r = resolver_write(id);
    hex(id->machine_id, 16, 0, text);
    if (r == 0)
        r = file_write(STATE "/etc/machine-id", text, strlen(text));
    hex(id->boot_id, 16, 1, text);
    if (r == 0)
        r = file_write(STATE "/etc/boot-id", text, strlen(text));
    text[0] = 0;
    text_add(text, sizeof(text), num_text(id->generation, n));
    text_add(text, sizeof(text), "\n");
    return r == 0 ? file_write(SHOWN_DIR "generation", text, strlen(text)) : r;
}

int state_make(void)
{
    mkdir(STATE, 0755);
    if (mount("tmpfs", STATE, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "mode=0755,size=64m,nr_inodes=128") < 0)
        return blame(errno, "cannot mount", STATE);
    if (mkdir(STATE "/etc", 0755) < 0 || mkdir(STATE "/shown", 0755) < 0)
        return blame(errno, "cannot make the directories of", STATE);
    return 0;
}

int clock_apply(const struct identity *id)
{
    int r = entropy_add(id);

    return r == 0 ? clock_set(id) : r;
}

int identity_apply(const struct identity *id)
{
    int r = clock_apply(id);

    if (r == 0)
        r = names_set(id);
    return r == 0 ? net_apply(id) : r;
}

/* In place: a mount over a file of the image shows this file, whatever takes its name later. */
int shown_write(const char *name, uint64_t offset, uint64_t size, const uint8_t *p, size_t n)
{
    char path[128] = SHOWN_DIR;
    int fd, e = 0;

    text_add(path, sizeof(path), name);
    if (offset > CELLA_GUEST_SHOWN_BYTES || size > CELLA_GUEST_SHOWN_BYTES ||
        n > CELLA_GUEST_SHOWN_CHUNK || offset + n > size)
        return blame(EFBIG, "too long for /run/cella:", name);
    fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return blame(errno, "cannot open", name);
    if (pwrite(fd, p, n, (off_t)offset) != (ssize_t)n || ftruncate(fd, (off_t)size) < 0)
        e = errno ? errno : EIO;
    close(fd);
    return e ? blame(e, "cannot write", name) : 0;
}
