/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * disks - what the machine has: kernel modules, disks by serial number, ports by name; and the file
 * systems on the disks, joined to the cell's root.
 *
 * Names of devices (vda, vport1p2) depend on the order in which a machine is described and are not
 * used. The image is the host's to vouch for, but its content is a stranger's: it is mounted
 * without devices and without set-user-id. Threads: one.
 */
#include <dirent.h>
#include <stdlib.h>
#include <time.h>

#include "guest.h"

#define DEVICE_TRIES 2000 /* of 5 ms */

int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), e = 0;

    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        e = errno;
    close(fd);
    return -e;
}

long read_text(const char *path, char *buf, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), e;
    size_t len = 0;
    ssize_t n = 1;

    if (fd < 0)
        return -errno;
    while (n > 0 && len < cap - 1) {
        n = read(fd, buf + len, cap - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    e = errno;
    close(fd);
    buf[len] = 0;
    return n < 0 ? -e : (long)len;
}

char *num_text(uint64_t v, char buf[24])
{
    char *p = buf + 23;

    *p = 0;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    return p;
}

void system_mounts(void)
{
    static const struct {
        const char *type, *path;
    } mounts[] = {{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(mounts); i++)
        if (mount(mounts[i].type, mounts[i].path, mounts[i].type, MS_NOSUID | MS_NOEXEC, NULL) <
                0 &&
            errno != EBUSY)
            say("cannot mount", mounts[i].path);
}

static void module_load(const char *name)
{
    char path[300] = "/modules/";
    int fd;

    text_add(path, sizeof(path), name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
        say("cannot load the module", name);
    if (fd >= 0)
        close(fd);
    unlink(path); /* its memory is the cell's */
}

/* What a machine can do without at first, an emulated processor takes long to load. */
static const struct {
    const char *name;
    enum modules when;
} late[] = {{"virtio_console.ko", MODULES_PORTS},
            {"vsock.ko", MODULES_VSOCK},
            {"vmw_vsock_virtio_transport_common.ko", MODULES_VSOCK},
            {"vmw_vsock_virtio_transport.ko", MODULES_VSOCK},
            {"netfs.ko", MODULES_SHARES},
            {"9pnet.ko", MODULES_SHARES},
            {"9pnet_virtio.ko", MODULES_SHARES},
            {"9p.ko", MODULES_SHARES},
            {"inet_diag.ko", MODULES_COPY},
            {"tcp_diag.ko", MODULES_COPY},
            {"udp_diag.ko", MODULES_COPY},
            {"virtio-rng.ko", MODULES_IDLE},
            {"virtio_balloon.ko", MODULES_IDLE},
            {"virtio_mem.ko", MODULES_IDLE}};

static enum modules group_of(const char *name)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(late); i++)
        if (strcmp(late[i].name, name) == 0)
            return late[i].when;
    return MODULES_START;
}

/* What is missing shows by what does not work then; the console says why. */
void modules_load(enum modules when)
{
    static char list[16384];
    static unsigned done;
    char *p = list, *end;

    if (done & 1u << when)
        return;
    done |= 1u << when;
    if (!list[0] && read_text("/modules/list", list, sizeof(list)) < 0)
        return;
    for (; (end = strchr(p, '\n')); p = end + 1) {
        *end = 0;
        if (*p && group_of(p) == when)
            module_load(p);
        *end = '\n';
    }
}

static void nap(void)
{
    struct timespec ts = {0, 5000000};

    nanosleep(&ts, NULL);
}

/* The entry of dir whose file `attribute` holds `value`; ret has room for 64 bytes. */
static int find_by(const char *dir, const char *attribute, const char *value, char *ret)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    char path[400], text[64];
    int found = 0;

    while (d && !found && (e = readdir(d))) {
        long n;
        if (e->d_name[0] == '.' || strlen(e->d_name) >= 60)
            continue;
        path[0] = 0;
        text_add(path, sizeof(path), dir);
        text_add(path, sizeof(path), "/");
        text_add(path, sizeof(path), e->d_name);
        text_add(path, sizeof(path), attribute);
        n = read_text(path, text, sizeof(text));
        if (n <= 0)
            continue;
        if (text[n - 1] == '\n')
            text[n - 1] = 0;
        if (strcmp(text, value) == 0) {
            strcpy(ret, e->d_name);
            found = 1;
        }
    }
    if (d)
        closedir(d);
    return found ? 0 : -ENOENT;
}

#define VIRTIO_DEVICES "/sys/bus/virtio/devices"

int virtio_has(unsigned number)
{
    static const char digits[] = "0123456789abcdef";
    char text[8] = "0x0000", name[64];
    int i;

    text[4] = digits[number >> 4 & 15];
    text[5] = digits[number & 15];
    for (i = 0; access(VIRTIO_DEVICES "/virtio0", F_OK) < 0 && i < DEVICE_TRIES; i++)
        nap();
    return find_by(VIRTIO_DEVICES, "/device", text, name) == 0;
}

/* Drivers find devices in their own time. */
static int device_find(const char *dir, const char *attribute, const char *value, char *ret,
                       size_t cap)
{
    char name[64];
    int i;

    for (i = 0; find_by(dir, attribute, value, name) < 0; i++) {
        if (i == DEVICE_TRIES)
            return blame(ENODEV, "the machine has no device", value);
        nap();
    }
    ret[0] = 0;
    text_add(ret, cap, "/dev/");
    text_add(ret, cap, name);
    for (i = 0; access(ret, F_OK) < 0 && i < DEVICE_TRIES; i++)
        nap();
    return 0;
}

int port_open(const char *name)
{
    char path[80];
    int fd, r = device_find("/sys/class/virtio-ports", "/name", name, path, sizeof(path));

    if (r < 0)
        return r;
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? blame(errno, "cannot open the port", name) : fd;
}

static int disk_mount(const char *serial, const char *type, const char *path, unsigned long flags,
                      const char *options)
{
    char device[80];
    int r = device_find("/sys/block", "/serial", serial, device, sizeof(device));

    if (r < 0)
        return r;
    mkdir(path, 0755);
    if (mount(device, path, type, flags | MS_NOSUID | MS_NODEV, options) < 0)
        return blame(errno, "cannot mount the disk", serial);
    return 0;
}

static const struct {
    const char *name;
    unsigned mode;
} layer_dirs[] = {{"upper", 0755}, {"work", 0755}, {"tmp", 01777},
                  {"run", 0755},   {"home", 0700}, {"vartmp", 01777}};

static int layer_make(void)
{
    size_t i;
    int r = disk_mount("cella-rw", "ext4", "/rw", MS_NOATIME, NULL);

    for (i = 0; r == 0 && i < ARRAY_LEN(layer_dirs); i++) {
        char path[32] = "/rw/";
        text_add(path, sizeof(path), layer_dirs[i].name);
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return blame(errno, "cannot make the directory", path);
        if (chmod(path, layer_dirs[i].mode) < 0)
            return blame(errno, "cannot set the mode of", path);
    }
    return r;
}

int root_mount(void)
{
    int r = disk_mount("cella-root", "erofs", "/lower", MS_RDONLY, NULL);

    if (r == 0)
        r = layer_make();
    mkdir("/cell", 0755);
    if (r == 0 && mount("overlay", "/cell", "overlay", MS_NOSUID | MS_NODEV,
                        "lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work") < 0)
        r = blame(errno, "cannot join the image and the writable layer", NULL);
    return r;
}
