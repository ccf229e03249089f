/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* EPOLLEXCLUSIVE: of epolls that watch one file, how many are woken. Who has slept and who is woken is seen in /proc. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "say.h"

#define WAITERS 4

static int watched, epolls[WAITERS], n_epolls;
static pid_t tids[WAITERS];
static uint32_t wanted;
static unsigned awake;

static void *waiter(void *number)
{
    int which = (int)(intptr_t)number;
    struct epoll_event event;

    __atomic_store_n(&tids[which], (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    if (epoll_wait(epolls[which % n_epolls], &event, 1, -1) == 1)
        __atomic_add_fetch(&awake, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static char state_of(pid_t tid)
{
    char path[64], text[512] = "", *at;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        return 'X';
    if (read(fd, text, sizeof(text) - 1) < 0)
        text[0] = 0;
    close(fd);
    at = strrchr(text, ')');
    return at && at[1] ? at[2] : 'X';
}

static void wait_asleep(int which)
{
    while (!__atomic_load_n(&tids[which], __ATOMIC_SEQ_CST))
        usleep(1000);
    usleep(20000); /* it may be in another call yet; one that is late only wakes later */
    while (state_of(tids[which]) != 'S')
        usleep(1000);
}

static unsigned woken(unsigned least)
{
    while (__atomic_load_n(&awake, __ATOMIC_SEQ_CST) < least)
        usleep(1000);
    usleep(50000); /* those that should not wake have the time to */
    return __atomic_load_n(&awake, __ATOMIC_SEQ_CST);
}

/* Waits by this many epolls of the file; event() makes something to take, one each time. */
static void herd(const char *name, int epolls_wanted, uint32_t flags, void (*event)(void),
                 unsigned least_once)
{
    struct epoll_event how = {.events = wanted | flags};
    pthread_t threads[WAITERS];
    unsigned all = 0;
    intptr_t i;

    printf("%s\n", name);
    n_epolls = epolls_wanted;
    awake = 0;
    memset(tids, 0, sizeof(tids));
    for (i = 0; i < n_epolls; i++) {
        epolls[i] = epoll_create1(0);
        say("add", epoll_ctl(epolls[i], EPOLL_CTL_ADD, watched, &how));
    }
    for (i = 0; i < WAITERS; i++) {
        pthread_create(&threads[i], NULL, waiter, (void *)i);
        wait_asleep((int)i);
    }
    while (all < WAITERS) {
        event();
        all = woken(all + 1 > least_once ? all + 1 : least_once);
        say_value("awake", all);
    }
    for (i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    for (i = 0; i < n_epolls; i++)
        close(epolls[i]);
}

static struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0exclusive"};

static void listen_here(void)
{
    watched = socket(AF_UNIX, SOCK_STREAM, 0);
    say("bind", bind(watched, (struct sockaddr *)&name, sizeof(name)));
    say("listen", listen(watched, 16));
}

static void come(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (connect(fd, (struct sockaddr *)&name, sizeof(name)) < 0)
        perror("connect");
}

static void count(void)
{
    uint64_t one = 1;

    if (write(watched, &one, sizeof(one)) != sizeof(one))
        perror("write");
}

static int other_end;

static void end(void)
{
    close(other_end);
}

int main(void)
{
    int ends[2];

    wanted = EPOLLIN;
    listen_here();
    herd("connections, an epoll each", WAITERS, EPOLLEXCLUSIVE, come, 1);
    close(watched);
    listen_here();
    herd("connections, at an edge", WAITERS, EPOLLEXCLUSIVE | EPOLLET, come, 1);
    close(watched);
    listen_here();
    herd("connections, one epoll, at an edge", 1, EPOLLET, come, 1);
    close(watched);
    watched = eventfd(0, EFD_NONBLOCK);
    herd("numbers, for all", WAITERS, 0, count, WAITERS);
    close(watched);
    watched = eventfd(0, EFD_NONBLOCK);
    herd("numbers, exclusive", WAITERS, EPOLLEXCLUSIVE, count, 1);
    close(watched);
    if (pipe(ends) < 0)
        return 1;
    watched = ends[0];
    other_end = ends[1];
    herd("an end, exclusive", WAITERS, EPOLLEXCLUSIVE, end, WAITERS);
    return 0;
}
