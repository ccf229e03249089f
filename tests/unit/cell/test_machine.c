/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * What the warden says to the init of a guest, in which order, and what it does when the guest does not play along.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail

#include "script.h"

#define PATIENCE 20

static struct errbuf eb;

/* ---- one run ---- */

static struct warden w;
static struct plugin plugin = {.name = (char *)(uintptr_t) "fake"}; /* has no console */
static char dir[] = "/tmp/cella-test-machine.XXXXXX";

static void put(const char *name, const char *content)
{
    char path[200];
    int fd;

    snprintf(path, sizeof(path), "%s/" SHOWN_DIR "/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, content, strlen(content)) >= 0);
    close(fd);
}

static pid_t begin(const struct script *s, int copy)
{
    alarm(PATIENCE); /* a request that is never answered would take its own time */
    memset(&w, 0, sizeof(w));
    assert_int_equal(loop_new(&w.loop), 0);
    w.dir.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w.denials.fd = -1;
    w.backend_plugin = &plugin;
    w.state = W_STARTING;
    snprintf(w.attached.address, sizeof(w.attached.address), "10.0.0.2/30");
    snprintf(w.attached.gateway, sizeof(w.attached.gateway), "10.0.0.1");
    assert_int_equal(machine_prepare(&w, "name", NULL, 0, NULL, 0, errbuf_init(&eb)), 0);
    if (copy)
        machine_is_copy(&w, 7);
    return script_begin(s, copy);
}

static const char *end(pid_t pid)
{
    alarm(0);
    machine_free(&w);
    loop_free(w.loop);
    close(w.dir.dirfd);
    script_end(pid);
    return text;
}

/* From the start to the agent's link or the end of the cell; the log. */
static const char *way(const struct script *s, int copy, int full_audit)
{
    pid_t pid = begin(s, copy);

    audit_fails = full_audit;
    if (machine_start(&w, errbuf_init(&eb)) < 0)
        word("START(%s) ", eb.text);
    else
        loop_run(w.loop);
    return end(pid);
}

#define SETTLED "SETTLE+hostname+machine+boot+generation+mac+address+gateway+nonce+entropy+epoch "

static int comes_before(const char *a, const char *b)
{
    const char *first = strstr(text, a), *second = strstr(text, b);

    if (!first || !second)
        print_error("%s\n", text);
    return first && second && first < second;
}

static void boots(void **state)
{
    const struct script s = {0};

    (void)state;
    way(&s, 0, 0);
    assert_true(comes_before("SHOW:ca.pem ", "BOOT+hostname"));
    assert_true(comes_before("BOOT+", "CLOCK "));
    assert_true(comes_before("CLOCK ", "LINK"));
    assert_null(strstr(text, "+nonce"));
    assert_null(strstr(text, "SETTLE"));
}

static void a_copy_settles_before_anything_of_it_runs(void **state)
{
    const struct script s = {0};

    (void)state;
    way(&s, 1, 0);
    assert_int_equal(strncmp(text, "RESET step:settle:", strlen("RESET step:settle:")), 0);
    assert_int_equal(strncmp(strchr(text + strlen("RESET "), ' ') + 1, SETTLED, strlen(SETTLED)),
                     0);
    assert_true(comes_before("SETTLE", "audit:cell.settled "));
    assert_true(comes_before("audit:cell.settled ", "THAW"));
    assert_true(comes_before("CLOCK ", "THAW"));
    assert_true(comes_before("SHOW:ca.pem ", "THAW")); /* in the place of the parent's */
    assert_true(comes_before("SHOW:denials ", "THAW"));
    assert_true(comes_before("THAW ", "LINK" AGENT_SAYS)); /* and nothing of the parent's agent */
}

/* Milliseconds from the start to the step's begin, as they were told. */
static int begins(const char *step)
{
    char word[64], *at;

    snprintf(word, sizeof(word), "step:%s:", step);
    at = strstr(text, word);
    assert_non_null(at);
    return atoi(at + strlen(word));
}

/* Seconds of the guest's life as the answer to BOOT tells them, after a start that took 600 ms of the host's. */
static void steps_of(const uint64_t steps[CELLA_GUEST_STEPS])
{
    const struct script s = {.steps = steps, .slow_ms = 600};

    way(&s, 0, 0);
    assert_int_equal(begins("guest-entry"), 0);
    assert_true(comes_before("step:guest-cell:", "step:clock:"));
    assert_true(comes_before("step:clock:", "LINK"));
    assert_null(strstr(text, ":-1 "));
}

#define TENTH 100000000ull

static void the_guest_tells_its_steps(void **state)
{
    static const uint64_t true_ones[] = {TENTH / 2, TENTH / 2, TENTH / 2,    TENTH / 2,
                                         TENTH / 2, TENTH / 2, 5 * TENTH / 2},
                          ages[] = {0, 0, 0, 0, 0, 0, INT64_MAX};

    (void)state;
    steps_of(true_ones);
    assert_true(comes_before("step:guest-drivers:", "step:guest-ports:"));
    /* 200 ms before the answer, whenever that was: however late the host is with it */
    assert_in_range(begins("guest-drivers"), 400, begins("clock") - 200);
    assert_int_equal(begins("guest-drivers") - begins("guest-kernel"), 50);
    assert_int_equal(begins("guest-ports"), begins("guest-drivers"));
    assert_int_equal(begins("guest-cell"), begins("guest-drivers"));
    steps_of(ages); /* more than there was: all of it */
    assert_true(begins("guest-kernel") == 0 && begins("guest-drivers") == 0);
}

static void a_clock_is_told_until_it_is_right(void **state)
{
    const struct script s = {.late_clocks = 7};
    const char *at;
    int told = 0;

    (void)state;
    way(&s, 1, 0);
    for (at = text; (at = strstr(at, "CLOCK ")); at++)
        told++;
    assert_in_range(told, 8, 100);
    assert_non_null(strstr(text, "LINK" AGENT_SAYS));
}

static void never_handed_out(const struct script *s, int full_audit, const char *why)
{
    way(s, 1, full_audit);
    if (strstr(text, "LINK") || !strstr(text, why))
        print_error("%s\n", text);
    assert_null(strstr(text, "LINK"));
    assert_non_null(strstr(text, why));
}

static void a_copy_that_does_not_confirm_is_not_handed_out(void **state)
{
    static const struct script wrong_nonce = {.other = 1}, settle = {.errs = CELLA_GUEST_SETTLE},
                               clock = {.errs = CELLA_GUEST_CLOCK},
                               thaw = {.errs = CELLA_GUEST_THAW}, old_agent = {.agent_old = 1},
                               none = {0};

    (void)state;
    never_handed_out(&wrong_nonce, 0, "START(guest: it is gone");
    never_handed_out(&settle, 0, "END(backend: the guest did not start: SETTLE: not today");
    assert_null(strstr(text, "THAW"));
    never_handed_out(&clock, 0, "END(backend");
    assert_null(strstr(text, "THAW"));
    never_handed_out(&thaw, 0, "END(backend");
    never_handed_out(&old_agent, 0, "END(backend");
    never_handed_out(&none, 1, "END(backend: the guest did not start: the audit is full");
    assert_null(strstr(text, "THAW"));
}

static void no_two_copies_hear_the_same(void **state)
{
    const struct script s = {0};
    uint8_t first[CELLA_GUEST_NONCE];
    pid_t pid = begin(&s, 1);

    (void)state;
    assert_int_equal(machine_start(&w, errbuf_init(&eb)), 0);
    memcpy(first, w.machine->nonce, sizeof(first));
    loop_run(w.loop);
    end(pid);
    pid = begin(&s, 1);
    assert_int_equal(machine_start(&w, errbuf_init(&eb)), 0);
    assert_memory_not_equal(first, w.machine->nonce, sizeof(first));
    loop_run(w.loop);
    end(pid);
}

/* ---- snapshots ---- */

static const char *taken(const struct script *s, int code, int *ret)
{
    char machine[64];
    pid_t pid = begin(s, 0);
    json_t *args = json_pack("{s:s}", "dir", dir), *manifest = NULL;

    snprintf(machine, sizeof(machine), "%s/" SNAPSHOT_MACHINE, dir);
    mkdir(machine, 0700);
    assert_int_equal(machine_start(&w, errbuf_init(&eb)), 0);
    loop_run(w.loop);
    log_text();
    text[0] = 0; /* of the start */
    w.state = W_RUNNING;
    snapshot_code = code;
    *ret = cell_snapshot(&w, args, &manifest, errbuf_init(&eb));
    json_decref(args);
    json_decref(manifest);
    return end(pid);
}

static void a_cell_goes_on_when_its_snapshot_fails(void **state)
{
    static const struct script none = {0}, freeze = {.errs = CELLA_GUEST_FREEZE};
    int r;

    (void)state;
    taken(&none, -ENOSPC, &r);
    assert_int_equal(r, -ENOSPC);
    assert_true(comes_before("FREEZE backend CLOCK ", "THAW audit:cell.snapshot "));
    assert_null(strstr(text, "END"));
    taken(&freeze, 0, &r);
    assert_int_equal(r, -EIO);
    assert_null(strstr(text, "backend")); /* a cell that does not stand still is not saved */
}

/* ---- limits ---- */

/* A running machine of 2 processors, 128 MiB, 64 tasks; the log begins here. */
static pid_t limited(const struct script *s)
{
    pid_t pid = begin(s, 0);

    assert_int_equal(machine_start(&w, errbuf_init(&eb)), 0);
    loop_run(w.loop);
    log_text();
    text[0] = 0;
    w.state = W_RUNNING;
    w.made = (struct config_limits){.memory = 128 << 20, .cpu_millis = 2000, .pids = 64};
    w.req.limits = w.made;
    return pid;
}

static const char *updated(const struct script *s, const char *change, int code, int *ret)
{
    const struct pending from = {.peer = 1, .call = 9};
    pid_t pid = limited(s);
    json_t *args = json_loads(change, 0, NULL);

    resize_code = code;
    *ret = cell_update(&w, args, &from, errbuf_init(&eb));
    json_decref(args);
    if (w.machine->update.under_way) {
        json_t *more = json_pack("{s:i}", "pids", 3);
        assert_int_equal(cell_update(&w, more, &from, errbuf_init(&eb)), -EBUSY);
        json_decref(more);
        guest_turn(w.machine->guest, 4000000000ull);
    }
    return end(pid);
}

#define CHANGE "{\"memory\": 67108864, \"cpu_millis\": 500, \"pids\": 9, \"io_read_bps\": 8192}"

static void new_limits_reach_backend_and_guest(void **state)
{
    const struct script s = {0};
    int r;

    (void)state;
    updated(&s, CHANGE, 0, &r);
    assert_int_equal(r, 0);
    assert_string_equal(text, "resize(64 500 9 8192) RESIZE+cpus=1+pids=9+memory=64 "
                              "audit:cell.update ok9 ");
    assert_int_equal(w.req.limits.pids, 9);
    assert_int_equal(w.req.limits.io_read_bps, 8192);
    assert_int_equal(w.made.pids, 64); /* a copy's machine is as large as this one was made */
    updated(&s, "{\"pids\": 9}", 0, &r);
    assert_string_equal(text, "resize(0 0 9 0) RESIZE+pids=9 audit:cell.update ok9 ");
}

static void limits_that_one_refuses_are_nobodys(void **state)
{
    static const struct script none = {0}, refuses = {.errs = CELLA_GUEST_RESIZE};
    int r;

    (void)state;
    updated(&refuses, CHANGE, 0, &r);
    assert_string_equal(text, "resize(64 500 9 8192) RESIZE+cpus=1+pids=9+memory=64 "
                              "resize(128 2000 64 0) audit:cell.update "
                              "error9(update: RESIZE: not today) ");
    assert_int_equal(w.req.limits.pids, 64);
    updated(&none, CHANGE, -EINVAL, &r);
    assert_int_equal(r, -EINVAL);
    assert_null(strstr(text, "RESIZE"));
    assert_non_null(strstr(text, "audit:cell.update"));
    assert_int_equal(w.req.limits.memory, 128 << 20);
    updated(&none, "{\"disk\": 9000000}", 0, &r);
    assert_true(r < 0 && !text[0]);
}

/* The cell ends while its guest is being told: once. */
static void who_waits_for_a_guest_hears_of_the_end(void **state)
{
    static const struct script s = {0};
    const struct pending from = {.peer = 1, .call = 9};
    json_t *args = json_pack("{s:i}", "pids", 9);
    pid_t pid = limited(&s);
    const char *told;

    (void)state;
    assert_int_equal(cell_update(&w, args, &from, errbuf_init(&eb)), 0);
    json_decref(args);
    update_drop(&w);
    update_drop(&w);
    told = strstr(end(pid), "error9(update: the cell ended before");
    assert_non_null(told);
    assert_null(strstr(told + 1, "error9"));
    assert_non_null(strstr(text, "audit:cell.update"));
    assert_null(strstr(text, "ok9"));
    assert_int_equal(w.req.limits.pids, 64);
}

static int setup(void **state)
{
    char shown[64];

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(dir))
        return -1;
    snprintf(shown, sizeof(shown), "%s/" SHOWN_DIR, dir);
    if (mkdir(shown, 0700) < 0)
        return -1;
    put("ca.pem", "this cell's\n");
    put("denials", "");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boots),
        cmocka_unit_test(the_guest_tells_its_steps),
        cmocka_unit_test(a_copy_settles_before_anything_of_it_runs),
        cmocka_unit_test(a_clock_is_told_until_it_is_right),
        cmocka_unit_test(a_copy_that_does_not_confirm_is_not_handed_out),
        cmocka_unit_test(no_two_copies_hear_the_same),
        cmocka_unit_test(a_cell_goes_on_when_its_snapshot_fails),
        cmocka_unit_test(new_limits_reach_backend_and_guest),
        cmocka_unit_test(limits_that_one_refuses_are_nobodys),
        cmocka_unit_test(who_waits_for_a_guest_hears_of_the_end),
    };

    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, setup, teardown);
}
