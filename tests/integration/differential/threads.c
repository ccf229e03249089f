/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Threads, futexes, robust locks, signals to threads, exec and exit beside them. */
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "say.h"

static int word, other;

static long futex(int *address, int operation, int value, const struct timespec *time, int *second,
                  int third)
{
    return syscall(SYS_futex, address, operation, value, time, second, third);
}

static void errors(void)
{
    struct timespec wrong = {.tv_nsec = 1000000000}, past = {0}, brief = {.tv_nsec = 10000000};

    say("WAIT another value", futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0));
    say("WAIT unaligned", futex((int *)((char *)&word + 1), FUTEX_WAIT, 0, NULL, NULL, 0));
    say("WAIT nowhere", futex(BAD, FUTEX_WAIT, 0, NULL, NULL, 0));
    say("WAIT wrong time", futex(&word, FUTEX_WAIT, 0, &wrong, NULL, 0));
    say("WAIT brief", futex(&word, FUTEX_WAIT, 0, &brief, NULL, 0));
    say("BITSET past", futex(&word, FUTEX_WAIT_BITSET, 0, &past, NULL, -1));
    say("BITSET of none", futex(&word, FUTEX_WAIT_BITSET, 0, &past, NULL, 0));
    say("BITSET realtime",
        futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, NULL, -1));
    say("WAKE none", futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    say("CMP_REQUEUE other", futex(&word, FUTEX_CMP_REQUEUE, 1, NULL, &other, 5));
    say("operation 99", futex(&word, 99, 1, NULL, NULL, 0));
    say("WAKE_OP", futex(&word, FUTEX_WAKE_OP, 1, (void *)1, &other,
                         FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)));
    say_value("added", other);
    say("robust size", syscall(SYS_set_robust_list, &word, 8));
}

static void *sleeper(void *unused)
{
    (void)unused;
    while (futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EINTR)
        ;
    return NULL;
}

static void wakes(void)
{
    pthread_t threads[5];
    long woken = 0;
    int i;

    word = 0;
    for (i = 0; i < 5; i++)
        pthread_create(&threads[i], NULL, sleeper, NULL);
    usleep(100000);
    say("requeue", futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)2, &other, 0));
    say("wake moved", futex(&other, FUTEX_WAKE, INT_MAX, NULL, NULL, 0));
    woken = futex(&word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    say_value("woken", woken);
    for (i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int turn;
static long sum;

static void *adds(void *which)
{
    long i;

    for (i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutex);
        while (turn != (int)(long)which)
            pthread_cond_wait(&cond, &mutex);
        sum = sum * 3 % 1000003 + (long)which + i;
        turn = (turn + 1) % 3;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return which;
}

static void locks(void)
{
    pthread_t threads[3];
    void *result;
    long i;

    for (i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, adds, (void *)i);
    for (i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        say_value("joined", (long)result);
    }
    say_value("sum", sum);
}

static void robust(void)
{
    pthread_mutexattr_t attr;
    pthread_mutex_t *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid;
    int status;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(shared, &attr);
    pid = fork();
    if (!pid) {
        pthread_mutex_lock(shared);
        usleep(100000);
        _exit(0);
    }
    usleep(50000);
    say_value("its owner has died", pthread_mutex_lock(shared) == EOWNERDEAD);
    say_value("consistent", pthread_mutex_consistent(shared));
    say_value("unlock", pthread_mutex_unlock(shared));
    waitpid(pid, &status, 0);
}

static volatile int handled_by_main, handled;
static pthread_t main_thread;

static void note(int signo)
{
    (void)signo;
    handled++;
    handled_by_main = pthread_equal(pthread_self(), main_thread);
}

static void *gets_signals(void *unused)
{
    int i;

    (void)unused;
    for (i = 0; i < 200 && !handled; i++)
        usleep(10000);
    return NULL;
}

static void directed(void)
{
    pthread_t thread;
    sigset_t set;

    main_thread = pthread_self();
    signal(SIGUSR1, note);
    pthread_create(&thread, NULL, gets_signals, NULL);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    say_value("by main", handled_by_main);
    handled = 0;
    pthread_create(&thread, NULL, gets_signals, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGUSR1);
    pthread_join(thread, NULL);
    say_value("handled", handled);
    say_value("by main", handled_by_main);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void *forever(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void *ends_all(void *unused)
{
    (void)unused;
    usleep(20000);
    exit(21);
}

static void *execs(void *unused)
{
    char *const argv[] = {"threads", "exec", NULL};

    (void)unused;
    usleep(20000);
    execv("/proc/self/exe", argv);
    return NULL;
}

static void *main_leaves(void *unused)
{
    (void)unused;
    usleep(50000);
    _exit(23);
}

static void in_child(const char *name, void *(*one)(void *), void *(*two)(void *), int leave)
{
    pthread_t thread;
    int status;
    pid_t pid = fork();

    if (!pid) {
        pthread_create(&thread, NULL, one, NULL);
        pthread_create(&thread, NULL, two, NULL);
        if (leave)
            pthread_exit(NULL);
        pause();
        _exit(99);
    }
    waitpid(pid, &status, 0);
    printf("%s: 0x%x\n", name, status);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return syscall(SYS_gettid) == getpid() ? 22 : 98;
    setvbuf(stdout, NULL, _IONBF, 0);
    errors();
    wakes();
    locks();
    robust();
    directed();
    in_child("exit in a thread", forever, ends_all, 0);
    in_child("exec in a thread", forever, execs, 0);
    in_child("main is gone", forever, main_leaves, 1);
    return 0;
}
