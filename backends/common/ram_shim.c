/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ram_shim - preloaded into QEMU; decides how the guest's RAM is mapped.
 *
 * Why: QEMU 7.2 leaves RAM out of a migration stream (x-ignore-shared) only when it believes that the
 * memory is a shared file. A clone needs the opposite, a private mapping of a file that nobody may write;
 * QEMU opens the file of a private mapping for writing all the same, and punches holes into it for a balloon.
 * And a machine whose memory has become the image of others must go on without touching it, at once, in
 * the same process. So QEMU is told "shared" always, and this object answers for the rest:
 *
 *   open of CELLA_RAM_PATH  gives the descriptor CELLA_RAM_FD; in a clone it is open for reading only
 *   mmap of it              shared, or private when CELLA_RAM_PRIVATE is set or after a remap
 *   fallocate of it         nothing while private: QEMU's own madvise gives the pages back
 *   a datagram "P" on CELLA_RAM_CTL  maps the whole RAM privately over the same file; answered by "p", or "!"
 *                                    and errno. The machine is stopped when that is asked.
 *   a datagram "F" with a descriptor the same over that file, which is the RAM's from then on: a copy's process
 *                                    that was started before there was a snapshot.
 *
 * The host does not trust this object more than QEMU: it checks the mapping in /proc/PID/maps, seals the
 * memory, and gives clones nothing that can be written. Threads: one more, which waits for the datagram.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RAM_PATH "/cella/ram"
#define EXPORT __attribute__((visibility("default")))

static struct {
    int opened; /* QEMU's descriptor of the RAM */
    int ctl;
    int private;
    void *at;
    size_t len;
} ram = {.opened = -1, .ctl = -1};

static int number(const char *name)
{
    const char *v = getenv(name);

    return v ? atoi(v) : -1;
}

/* What came with an order; -1 = nothing. */
static int order_take(char *order, int *ret_fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {order, 1};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof(control.room)};
    struct cmsghdr *c;

    *ret_fd = -1;
    if (recvmsg(ram.ctl, &m, MSG_CMSG_CLOEXEC) != 1)
        return -1;
    c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof(int));
    return 0;
}

/* QEMU's number for the file stays the same: fallocate64() knows it by that. */
static int file_take(int fd)
{
    int r = fd < 0 ? -1 : dup3(fd, ram.opened, O_CLOEXEC);

    if (fd < 0)
        errno = EBADF;
    else
        close(fd);
    return r;
}

static int map_again(void)
{
    void *p = (void *)syscall(SYS_mmap, ram.at, ram.len, PROT_READ | PROT_WRITE,
                              MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE, ram.opened, 0);

    if (p == MAP_FAILED)
        return -1;
    madvise(ram.at, ram.len, MADV_DONTDUMP); /* as QEMU had asked for the mapping before */
    __atomic_store_n(&ram.private, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static void *serve(void *unused)
{
    char order, reply[1 + sizeof(int)];
    int fd, e;

    (void)unused;
    while (order_take(&order, &fd) == 0) {
        e = (order == 'F' && file_take(fd) < 0) || map_again() < 0 ? errno : 0;
        reply[0] = e ? '!' : 'p';
        memcpy(reply + 1, &e, sizeof(e));
        if (send(ram.ctl, reply, sizeof(reply), MSG_NOSIGNAL) < 0)
            break;
    }
    return NULL;
}

static void serve_start(void)
{
    sigset_t all, old;
    pthread_t thread;

    sigfillset(&all); /* QEMU's signals are for its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (pthread_create(&thread, NULL, serve, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static int open_ram(void)
{
    int fd = number("CELLA_RAM_FD");

    if (fd < 0 || ram.opened >= 0) {
        errno = ENOENT;
        return -1;
    }
    ram.private = number("CELLA_RAM_PRIVATE") == 1;
    ram.ctl = number("CELLA_RAM_CTL");
    ram.opened = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return ram.opened;
}

EXPORT int open64(const char *path, int flags, ...);
EXPORT int open64(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list ap;

    if (!strcmp(path, RAM_PATH))
        return open_ram();
    va_start(ap, flags);
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE)
        mode = va_arg(ap, mode_t);
    va_end(ap);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORT int __open64_2(const char *path, int flags);
EXPORT int __open64_2(const char *path, int flags)
{
    return open64(path, flags);
}

EXPORT void *mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset);
EXPORT void *mmap64(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    int mine = fd >= 0 && fd == ram.opened;
    void *p;

    if (mine && ram.private)
        flags = (flags & ~(MAP_SHARED | MAP_SHARED_VALIDATE)) | MAP_PRIVATE | MAP_NORESERVE;
    p = (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
    if (mine && p != MAP_FAILED && !ram.at) {
        ram.at = p;
        ram.len = len;
        if (ram.ctl >= 0)
            serve_start();
    }
    return p;
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t len);
EXPORT int fallocate64(int fd, int mode, off_t offset, off_t len)
{
    if (fd >= 0 && fd == ram.opened && __atomic_load_n(&ram.private, __ATOMIC_SEQ_CST))
        return 0;
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}
