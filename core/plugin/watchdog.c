/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * watchdog - a plugin that hangs or crashes takes its hosting process with it, and the operator
 * reads which plugin and which operation it was.
 *
 * watchdog_enter/leave bracket every call into a plugin and nest (a plugin calls the host, the host
 * writes an audit record, a sink is another plugin). A timer sends SIGALRM at the innermost
 * deadline or before; time spent in an inner call is given back to the outer one. The handlers run
 * on their own stack and use only async-signal-safe calls: one line to report_fd, then _exit(125).
 *
 * The timer stays as it is when a call ends, and is set only when the next deadline is nearer: most
 * calls then cost no system call here. A signal that comes too early sets it anew.
 *
 * A crash while no plugin is being called is reported as such and then dies in the default way. A
 * child that a plugin forked is not us: it dies in the default way as well.
 *
 * Limits: a plugin that blocks SIGALRM for its thread, or replaces the handlers, is not caught
 * here; the process that waits for the host has its own limit. Threads: enter and leave from one
 * thread.
 */
#include <signal.h>
#include <time.h>

#include "plugin_int.h"

#define DEPTH_MAX 8
#define EXIT_PLUGIN 125

struct frame {
    char name[64], path[256];
    const char *op;
    uint64_t entered, deadline, allowed;
};

static struct {
    int report_fd;
    pid_t pid;
    timer_t timer;
    int ready;
    unsigned test_ms;
    volatile sig_atomic_t depth;
    volatile uint64_t armed; /* when SIGALRM comes; 0 = not at all */
    struct frame frames[DEPTH_MAX];
} dog = {.report_fd = -1};

static char alt_stack[64 * 1024];

/* ---- inside handlers: no locale, no stdio, no allocation ---- */
struct line {
    char text[512];
    size_t len;
};

static void put(struct line *l, const char *s)
{
    while (*s && l->len < sizeof(l->text) - 1)
        l->text[l->len++] = *s++;
}

static void put_number(struct line *l, uint64_t v)
{
    char digits[24];
    size_t n = sizeof(digits) - 1;

    digits[n] = 0;
    do
        digits[--n] = (char)('0' + v % 10);
    while (v /= 10);
    put(l, digits + n);
}

static void put_plugin(struct line *l, const struct frame *f)
{
    put(l, "plugin ");
    put(l, f->name);
    if (f->path[0]) {
        put(l, " (");
        put(l, f->path);
        put(l, ")");
    }
}

static void say(struct line *l)
{
    put(l, "\n");
    if (dog.report_fd >= 0)
        (void)!write(dog.report_fd, l->text, l->len);
}

static const struct {
    int number;
    const char *name;
} faults[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"},   {SIGILL, "SIGILL"},
    {SIGFPE, "SIGFPE"},   {SIGABRT, "SIGABRT"},
};

static void die_default(int sig)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t set;

    sigaction(sig, &dfl, NULL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    _exit(128 + sig);
}

static void on_fault(int sig)
{
    struct line l = {.len = 0};
    const char *name = "unknown";
    size_t i;

    if (getpid() != dog.pid)
        die_default(sig);
    for (i = 0; i < ARRAY_LEN(faults); i++)
        if (faults[i].number == sig)
            name = faults[i].name;
    if (dog.depth == 0) {
        put(&l, "crashed outside of any plugin call (signal ");
        put(&l, name);
        put(&l, ")");
        say(&l);
        die_default(sig);
    }
    put_plugin(&l, &dog.frames[dog.depth - 1]);
    put(&l, " crashed in ");
    put(&l, dog.frames[dog.depth - 1].op);
    put(&l, " (signal ");
    put(&l, name);
    put(&l, ")");
    say(&l);
    _exit(EXIT_PLUGIN);
}

static void arm(uint64_t deadline)
{
    struct itimerspec t = {.it_value = {.tv_sec = (time_t)(deadline / SECOND_NS),
                                        .tv_nsec = (long)(deadline % SECOND_NS)}};

    dog.armed = deadline;
    timer_settime(dog.timer, TIMER_ABSTIME, &t, NULL);
}

static void on_alarm(int sig)
{
    struct line l = {.len = 0};
    const struct frame *f;

    (void)sig;
    if (getpid() != dog.pid)
        return;
    if (dog.depth == 0) {
        dog.armed = 0;
        return;
    }
    f = &dog.frames[dog.depth - 1];
    if (now_ns() < f->deadline) {
        arm(f->deadline);
        return;
    }
    put_plugin(&l, f);
    put(&l, " did not return from ");
    put(&l, f->op);
    put(&l, " within ");
    if (f->allowed % SECOND_NS == 0) {
        put_number(&l, f->allowed / SECOND_NS);
        put(&l, " s");
    } else {
        put_number(&l, f->allowed / 1000000);
        put(&l, " ms");
    }
    say(&l);
    _exit(EXIT_PLUGIN);
}

/* ---- outside handlers ---- */
static int handler_set(int sig, void (*handler)(int))
{
    struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};

    sigfillset(&sa.sa_mask);
    return sigaction(sig, &sa, NULL) < 0 ? -errno : 0;
}

int watchdog_init(int report_fd)
{
    struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    stack_t stack = {.ss_sp = alt_stack, .ss_size = sizeof(alt_stack)};
    sigset_t set;
    size_t i;
    int r;

    dog.report_fd = report_fd;
    if (dog.ready && dog.pid == getpid())
        return 0;
    if (sigaltstack(&stack, NULL) < 0)
        return -errno;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    for (i = 0; i < ARRAY_LEN(faults); i++) {
        sigaddset(&set, faults[i].number);
        if ((r = handler_set(faults[i].number, on_fault)) < 0)
            return r;
    }
    if ((r = handler_set(SIGALRM, on_alarm)) < 0)
        return r;
    if (sigprocmask(SIG_UNBLOCK, &set, NULL) < 0 ||
        timer_create(CLOCK_MONOTONIC, &ev, &dog.timer) < 0)
        return -errno;
    dog.pid = getpid();
    dog.depth = 0;
    dog.armed = 0;
    dog.ready = 1;
    return 0;
}

void watchdog_test_deadline(unsigned ms)
{
    dog.test_ms = ms;
}

static void name_copy(struct frame *f, const struct plugin *p)
{
    const char *slash = p->path ? strrchr(p->path, '/') : NULL;

    snprintf(f->path, sizeof(f->path), "%s", p->path ? p->path : "");
    snprintf(f->name, sizeof(f->name), "%s", p->name ? p->name : slash ? slash + 1 : "unnamed");
}

void watchdog_enter(const struct plugin *p, const char *op, uint64_t deadline_ns)
{
    struct frame *f;

    if (!dog.ready)
        return;
    if (dog.depth >= DEPTH_MAX) { /* plugins calling each other through the host without end */
        errno = ELOOP;
        abort();
    }
    f = &dog.frames[dog.depth];
    name_copy(f, p);
    f->op = op;
    f->allowed = dog.test_ms ? dog.test_ms * 1000000ull : deadline_ns;
    f->entered = now_ns();
    if (__builtin_add_overflow(f->entered, f->allowed, &f->deadline))
        f->deadline = INT64_MAX;
    dog.depth++; /* first: a signal from here on finds the frame */
    if (!dog.armed || f->deadline < dog.armed)
        arm(f->deadline);
}

void watchdog_leave(void)
{
    uint64_t spent;

    if (!dog.ready || dog.depth == 0)
        return;
    dog.depth--;
    if (dog.depth == 0)
        return;
    spent = now_ns() - dog.frames[dog.depth].entered;
    dog.frames[dog.depth - 1].deadline += spent;
}
