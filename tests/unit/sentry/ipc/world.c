/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * world - see world.h. Two halves: the scenarios' driver, and what ipc/ asks of other rooms.
 * Threads: the driver's own; each has a task of ours as `current`.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "fakes.h"
#include "ipc/state.h"
#include "world.h"

#define TEXT_MAX (1u << 18)
#define PATIENCE 10000u /* of 2 ms each, for a call: a loaded machine is late, not wrong */

bool ours;
unsigned host_run;
static FILE *text;
static volatile sig_atomic_t pipes_seen;
static volatile uint64_t signals_seen;

struct row {
    long number;
    syscall_function function;
};

#define CALL(name_, status_, note_) SYSCALL(name_);
#define REFUSE(name_, error_, note_)
#include "ipc/calls.def"
#undef CALL
#undef REFUSE
#define CALL(name_, status_, note_) {SYS_##name_, sys_##name_},
#define REFUSE(name_, error_, note_)
static const struct row rows[] = {
#include "ipc/calls.def"
    {-1, NULL},
};

static int64_t on_ours(long number, const uint64_t a[6])
{
    const struct row *row = rows;
    int64_t r = -ENOSYS;

    kernel_lock();
    while (row->function && row->number != number)
        row++;
    r = row->function ? row->function(a) : fake_call(number, a);
    kernel_unlock();
    return r;
}

int64_t call_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    const uint64_t arguments[6] = {a, b, c, d, e, f};
    int64_t r;

    if (ours)
        r = on_ours(number, arguments);
    else
        r = syscall(number, a, b, c, d, e, f);
    if (!ours && r < 0)
        r = -errno;
    switch (r) { /* as the boundary makes them, without a handler's SA_RESTART */
    case -ERESTARTSYS:
    case -ERESTARTNOINTR:
    case -ERESTARTNOHAND:
    case -ERESTART_RESTARTBLOCK:
        return -EINTR;
    }
    return r;
}

void note(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(text, format, arguments);
    va_end(arguments);
    fputc('\n', text);
    fflush(text);
}

/* ---- other tasks ---- */

struct other {
    pthread_t thread;
    pid_t tid;
    struct task *task; /* ours: while it makes its call */
    long number;
    uint64_t a[6];
    int64_t result;
    bool begun, done;
};

static void of_task(struct other *o, struct task *task)
{
    kernel_lock();
    o->task = task;
    kernel_unlock();
}

static void *run_other(void *data)
{
    struct other *o = data;

    o->tid = gettid();
    if (ours) {
        fake_task_begin();
        of_task(o, current);
    }
    __atomic_store_n(&o->begun, true, __ATOMIC_RELEASE);
    o->result = call_(o->number, o->a[0], o->a[1], o->a[2], o->a[3], o->a[4], o->a[5]);
    if (ours) {
        of_task(o, NULL);
        fake_task_end();
    }
    __atomic_store_n(&o->done, true, __ATOMIC_RELEASE);
    return NULL;
}

struct other *begin_(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
                     uint64_t f)
{
    struct other *o = calloc(1, sizeof(*o));

    if (!o)
        abort();
    o->number = number;
    memcpy(o->a, (uint64_t[6]){a, b, c, d, e, f}, sizeof(o->a));
    if (pthread_create(&o->thread, NULL, run_other, o))
        abort();
    return o;
}

void pause_ms(unsigned ms)
{
    usleep(ms * 1000);
}

/* A seed is given to look for one that differs: the scenarios without chance are no part of that. */
__attribute__((constructor)) static void choose(void)
{
    if (getenv("IPC_TEST_SEED"))
        cmocka_set_test_filter("test_random*");
}

uint32_t seed_or(uint32_t usual)
{
    const char *given = getenv("IPC_TEST_SEED");

    return given ? (uint32_t)strtoul(given, NULL, 10) : usual;
}

static bool done(struct other *o)
{
    return __atomic_load_n(&o->done, __ATOMIC_ACQUIRE);
}

/* Between its begin and the call nothing makes the host's thread sleep. */
static bool host_sleeps(pid_t tid)
{
    char path[64], line[256] = "", *state;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
    f = fopen(path, "re");
    if (!f)
        return false;
    state = fgets(line, sizeof(line), f) ? strrchr(line, ')') : NULL;
    fclose(f);
    return state && state[1] == ' ' && state[2] == 'S';
}

static bool sleeps(struct other *o)
{
    bool r;

    if (!__atomic_load_n(&o->begun, __ATOMIC_ACQUIRE))
        return false;
    if (!ours)
        return host_sleeps(o->tid);
    kernel_lock();
    r = o->task && o->task->sleeping;
    kernel_unlock();
    return r;
}

static void does_not_end(const struct other *o)
{
    note("a call of %ld does not end", o->number);
    fflush(text);
    _exit(3);
}

/* A thread that has not come to its call yet would have waited for nothing. */
bool waits(struct other *o)
{
    unsigned i;

    for (i = 0; i < PATIENCE && !done(o) && !sleeps(o); i++)
        pause_ms(2);
    for (i = 0; i < 10 && !done(o); i++)
        pause_ms(2);
    return !done(o);
}

void one_ends(struct other *a, struct other *b)
{
    unsigned i;

    for (i = 0; !done(a) && !done(b); i++) {
        if (i == PATIENCE)
            does_not_end(a);
        pause_ms(2);
    }
}

int64_t end(struct other *o)
{
    int64_t result;
    unsigned i;

    for (i = 0; i < PATIENCE && !done(o); i++)
        pause_ms(2);
    if (!done(o))
        does_not_end(o);
    pthread_join(o->thread, NULL);
    result = o->result;
    free(o);
    return result;
}

/* ---- signals ---- */

static void handler(int signo)
{
    pipes_seen += signo == SIGPIPE;
    signals_seen |= 1ull << (signo - 1);
}

void raise_signal(int signo)
{
    if (ours)
        fake_raise(signo);
    else
        kill(getpid(), signo);
}

unsigned sigpipes(void)
{
    unsigned n = ours ? fake_sigpipes() : (unsigned)pipes_seen;

    pipes_seen = 0;
    return n;
}

uint64_t signals(void)
{
    uint64_t seen = ours ? fake_signals() : signals_seen;

    signals_seen = 0;
    return seen;
}

/* ---- a scenario in a process of its own ---- */

static void run_in_child(scenario run, bool on_us, int to)
{
    static const int handled[] = {SIGPIPE,  SIGUSR1, SIGINT,  SIGQUIT, SIGTSTP,
                                  SIGWINCH, SIGHUP,  SIGCONT, SIGTTOU, SIGTTIN};
    struct sigaction action = {.sa_handler = handler};
    unsigned i;

    ours = on_us;
    text = fdopen(to, "w");
    if (!text)
        _exit(4);
    for (i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
        sigaction(handled[i], &action, NULL);
    setsid();
    alarm(120);
    if (on_us)
        fake_begin();
    run();
    if (on_us)
        fake_end();
    fflush(text);
    _exit(0);
}

static void run_one(scenario run, bool on_us, char *into)
{
    size_t at = 0;
    ssize_t n;
    int ends[2], status;
    pid_t pid;

    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        if (dup2(ends[1], 99) == 99) /* out of the way of the scenario's own */
            close(ends[1]);
        run_in_child(run, on_us, 99);
    }
    close(ends[1]);
    while (at < TEXT_MAX - 1 && (n = read(ends[0], into + at, TEXT_MAX - 1 - at)) > 0)
        at += (size_t)n;
    into[at] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("%s ended with status %#x after:\n%s", on_us ? "ours" : "the host's", status,
                 into);
}

/* The first line that differs, with what stands before it. */
static void compare(const char *host, const char *own)
{
    size_t same = 0, from;

    if (!strcmp(host, own))
        return;
    while (host[same] && host[same] == own[same])
        same++;
    from = same > 400 ? same - 400 : 0;
    fail_msg("both:\n%.*s\nhost: %.300s\nours: %.300s", (int)(same - from), host + from,
             host + same, own + same);
}

static void both_of(scenario run, unsigned tries)
{
    char *host = malloc(TEXT_MAX), *own = malloc(TEXT_MAX);

    assert_non_null(host);
    assert_non_null(own);
    run_one(run, true, own);
    host_run = 0;
    do {
        host_run++;
        run_one(run, false, host);
    } while (strcmp(host, own) != 0 && host_run < tries);
    compare(host, own);
    assert_true(strlen(own) > 0);
    free(host);
    free(own);
}

void both(scenario run)
{
    both_of(run, 1);
}

void both_sometimes(scenario run)
{
    both_of(run, 5);
}

void ours_alone(scenario run, const char *expected)
{
    char *own = malloc(TEXT_MAX);

    assert_non_null(own);
    run_one(run, true, own);
    compare(expected, own);
    free(own);
}
