/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * races - four threads call the kernel with buffers that the same four unmap, move, protect, shrink and fill at that moment.
 * What a call gives is any of what Linux may give; the process must live, and its memory be its own, until the seconds are
 * over. An argument: how many.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define PLACES 8
#define SIZE (16u * 4096)

static uint8_t *places[PLACES]; /* each is SIZE bytes of address space, mapped or not */
static int pipes[2], pair[2], file, epoll_fd;
static volatile int over;
static unsigned long calls[THREADS], odd[THREADS];

struct thread {
    int number;
    uint64_t state;
};

static uint32_t pick(struct thread *t, uint32_t n)
{
    t->state ^= t->state << 13;
    t->state ^= t->state >> 7;
    t->state ^= t->state << 17;
    return (uint32_t)(t->state >> 11) % n;
}

static void *any(struct thread *t)
{
    return places[pick(t, PLACES)] + pick(t, SIZE);
}

/* ---- what is done to the buffers ---- */

static void map_again(uint8_t *at, size_t size, struct thread *t)
{
    bool of_file = pick(t, 3) == 0;

    mmap(at, size, PROT_READ | PROT_WRITE,
         MAP_FIXED | (pick(t, 2) ? MAP_PRIVATE : MAP_SHARED) | (of_file ? 0 : MAP_ANONYMOUS),
         of_file ? file : -1, of_file ? (off_t)(pick(t, 8) * 4096) : 0);
}

static void disturb(struct thread *t)
{
    uint8_t *at = places[pick(t, PLACES)] + pick(t, 16) * 4096, *to = places[pick(t, PLACES)];
    size_t left = SIZE - (size_t)((uintptr_t)at % SIZE), size = 4096 * (1 + pick(t, 16));

    size = size < left ? size : left;
    switch (pick(t, 9)) {
    case 0:
        munmap(at, size);
        break;
    case 1:
        mprotect(at, size, (int)pick(t, 4));
        break;
    case 2:
        mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        break;
    case 3:
        madvise(at, size, pick(t, 2) ? MADV_DONTNEED : MADV_WILLNEED);
        break;
    case 4:
        if (ftruncate(file, (off_t)(pick(t, 2) ? 1u << 17 : pick(t, 1u << 15))))
            odd[t->number]++;
        break;
    case 5:
        mremap(at, size, 4096, 0);
        break;
    default:
        map_again(at, size, t);
    }
}

/* ---- calls with buffers: the library must not touch them, so what it would look into is called without it ---- */

static long io(struct thread *t)
{
    struct iovec v[3] = {{any(t), pick(t, 30000)}, {any(t), 100}, {any(t), pick(t, 8192)}};

    switch (pick(t, 10)) {
    case 0:
        return write(pipes[1], any(t), pick(t, 20000));
    case 1:
        return read(pipes[0], any(t), pick(t, 20000));
    case 2:
        return pwrite(file, any(t), pick(t, 60000), (off_t)pick(t, 60000));
    case 3:
        return pread(file, any(t), pick(t, 60000), (off_t)pick(t, 60000));
    case 4:
        return writev(pair[1], v, 3);
    case 5:
        return readv(pair[0], v, 3);
    case 6:
        return readv(file, any(t), (int)pick(t, 40)); /* the vector itself */
    case 7:
        return send(pair[0], any(t), pick(t, 9000), MSG_DONTWAIT | MSG_NOSIGNAL);
    case 8:
        return syscall(SYS_recvmsg, pair[1], any(t), MSG_DONTWAIT);
    default:
        return vmsplice(pipes[1], v, 3, SPLICE_F_NONBLOCK);
    }
}

static long ask(struct thread *t)
{
    switch (pick(t, 12)) {
    case 0:
        return syscall(SYS_stat, any(t), any(t));
    case 1:
        return poll(any(t), pick(t, 60), 0);
    case 2:
        return epoll_wait(epoll_fd, any(t), 20, 0);
    case 3:
        return syscall(SYS_futex, (uintptr_t)any(t) & ~3ul, 0, 0, &(struct timespec){0, 1000}, 0,
                       0);
    case 4:
        return syscall(SYS_futex, (uintptr_t)any(t) & ~3ul, 1, 3, 0, 0, 0);
    case 5:
        return syscall(SYS_getdents64, file, any(t), pick(t, 9000));
    case 6:
        return open(any(t), O_RDONLY);
    case 7:
        return syscall(SYS_rt_sigaction, SIGUSR2, any(t), any(t), 8);
    case 8:
        return syscall(SYS_clock_gettime, 1l, any(t)) | syscall(SYS_uname, any(t));
    case 9:
        return syscall(SYS_mincore, (uintptr_t)any(t) & ~4095ul, SIZE, any(t));
    case 10:
        return syscall(SYS_process_vm_readv, getpid(), any(t), 3ul, any(t), 3ul, 0ul);
    default:
        return syscall(SYS_getcwd, any(t), pick(t, 5000));
    }
}

static void *thread(void *argument)
{
    struct thread *t = argument;
    long r;

    while (!over) {
        if (pick(t, 3) == 0) {
            disturb(t);
            continue;
        }
        r = pick(t, 2) ? io(t) : ask(t);
        calls[t->number]++;
        if (r < -1 || (r < 0 && errno <= 0) || errno > 133)
            odd[t->number]++;
        if (r > 2 && r < 1000 && r != pipes[0] && r != pipes[1] && r != pair[0] && r != pair[1] &&
            r != file && r != epoll_fd && r > epoll_fd)
            close((int)r); /* perhaps opened */
    }
    return NULL;
}

/* A fault of the program's own: none is made, for only the kernel touches the buffers. */
static void begin(void)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
    char name[] = "/tmp/races-XXXXXX";
    int i;

    file = mkstemp(name);
    epoll_fd = epoll_create1(0);
    if (file < 0 || epoll_fd < 0 || unlink(name) || ftruncate(file, 1 << 17) ||
        pipe2(pipes, O_NONBLOCK) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair))
        exit(3);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pipes[0], &event);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, pair[0], &event);
    places[0] = mmap(NULL, (PLACES + 3) * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    places[0] += SIZE - (uintptr_t)places[0] % SIZE;
    for (i = 0; i < PLACES; i++) {
        places[i] = places[0] + (size_t)i * SIZE;
        mmap(places[i], SIZE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1,
             0);
    }
}

int main(int argc, char **argv)
{
    static struct thread threads[THREADS];
    pthread_t ids[THREADS];
    unsigned long all = 0, wrong = 0;
    uint64_t *mine =
        mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int i;

    /* Not of the heap: bytes of mincore() that are taken for a vector make addresses such as 0x1000000. */
    for (i = 0; i < (1 << 17); i++)
        mine[i] = (uint64_t)i * 0x9e3779b97f4a7c15ull;
    begin();
    for (i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){i, 0x9e3779b97f4a7c15ull *
                                            (uint64_t)(i + 1 + (argc > 2 ? atoi(argv[2]) : 0))};
        if (pthread_create(&ids[i], NULL, thread, &threads[i]))
            return 3;
    }
    sleep(argc > 1 ? (unsigned)atoi(argv[1]) : 20);
    over = 1;
    for (i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        all += calls[i];
        wrong += odd[i];
    }
    for (i = 0; i < (1 << 17); i++)
        wrong += mine[i] != (uint64_t)i * 0x9e3779b97f4a7c15ull;
    fprintf(stderr, "%lu calls\n", all);
    printf("enough calls: %d\nwrong: %lu\n", all > 1000, wrong);
    return 0;
}
