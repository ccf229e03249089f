/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * What the warden says to the init of a guest, in which order, and what it does when the guest does not play along:
 * guest.c and take.c between a scripted guest (a process of its own, for the first step of a copy waits) and
 * stand-ins for the rest of the warden. Everything that happens, on either side, becomes a word in one log.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>
#undef fail

#include "guest_int.h"
#include "link_internal.h"

/* In the guest's process, which has no test to fail. */
#define check(x) ((x) ? (void)0 : _exit(99))
#define PATIENCE 5
#define AGENT_SAYS "H" /* what comes behind the nonce */

static struct errbuf eb;
static int log_fds[2];
static char text[8192];

static void word(const char *fmt, ...) CELLA_PRINTF(1, 2);

static void word(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vdprintf(log_fds[1], fmt, ap);
    va_end(ap);
}

static const char *log_text(void)
{
    size_t n = strlen(text);
    ssize_t got;

    while ((got = read(log_fds[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    return text;
}

/* ---- the guest ---- */

struct script {
    uint32_t errs; /* this op is answered by an error */
    int other;     /* RESET is answered by another nonce, and the end */
    int agent_old; /* the agent's port has no nonce, only what is left of the parent's */
};

static int guest_fds[2], agent_fds[2];

static void guest_sends(uint16_t type, uint32_t stream, const struct buf *b)
{
    auto_buf struct buf frame = BUF_INIT;

    frame_encode(&frame, type, stream, b->ptr, b->len);
    check(write(guest_fds[1], frame.ptr, frame.len) == (ssize_t)frame.len);
}

static void guest_hello(void)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_VERSION, CELLA_LINK_VERSION);
    field_add_u32(&b, CELLA_TAG_PID, 1);
    guest_sends(CELLA_FRAME_HELLO, 0, &b);
}

static const struct field *find(const uint8_t *p, size_t len, uint16_t tag)
{
    static struct field f;
    size_t pos = 0;

    while (field_next(p, len, &pos, &f) > 0)
        if (f.tag == tag)
            return &f;
    return NULL;
}

/* What a copy must be told, all of it, and what only it must. */
static void identity_words(const uint8_t *p, size_t len)
{
    static const struct {
        uint16_t tag;
        size_t least;
        const char *name;
    } wanted[] = {
        {CELLA_TAG_HOSTNAME, 1, "hostname"}, {CELLA_TAG_MACHINE_ID, 16, "machine"},
        {CELLA_TAG_BOOT_ID, 16, "boot"},     {CELLA_TAG_GENERATION, 8, "generation"},
        {CELLA_TAG_MAC, 6, "mac"},           {CELLA_TAG_ADDRESS, 1, "address"},
        {CELLA_TAG_GATEWAY, 1, "gateway"},   {CELLA_TAG_NONCE, CELLA_GUEST_NONCE, "nonce"},
        {CELLA_TAG_ENTROPY, 64, "entropy"},  {CELLA_TAG_EPOCH_NS, 8, "epoch"}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(wanted); i++) {
        const struct field *f = find(p, len, wanted[i].tag);
        if (f && f->len >= wanted[i].least)
            word("+%s", wanted[i].name);
    }
}

static void agent_says(const struct script *s, const struct field *nonce)
{
    static const char left[] = "what the parent's agent was saying";

    check(write(agent_fds[1], left, sizeof(left)) == sizeof(left));
    if (!s->agent_old && nonce)
        check(write(agent_fds[1], nonce->p, nonce->len) == (ssize_t)nonce->len);
    check(write(agent_fds[1], AGENT_SAYS, 1) == 1);
    if (s->agent_old)
        shutdown(agent_fds[1], SHUT_WR);
}

static void guest_answers(const struct script *s, uint32_t op, uint32_t stream, const uint8_t *p,
                          size_t len)
{
    static const char *const names[] = {"BOOT",   "FREEZE",   "SETTLE", "THAW", "USAGE",
                                        "RESIZE", "POWEROFF", "RESET",  "SHOW", "CLOCK"};
    auto_buf struct buf b = BUF_INIT;
    const struct field *f;

    word("%s", names[op - CELLA_GUEST_BOOT]);
    if (op == CELLA_GUEST_RESET) {
        static const uint8_t other[CELLA_GUEST_NONCE] = "not what you say";
        f = find(p, len, CELLA_TAG_NONCE);
        check(write(guest_fds[1], "rest", 4) == 4);
        check(write(guest_fds[1], s->other ? other : f->p, CELLA_GUEST_NONCE) == CELLA_GUEST_NONCE);
        word(" ");
        if (s->other)
            _exit(0);
        guest_hello();
        return;
    }
    if (op == CELLA_GUEST_SETTLE || op == CELLA_GUEST_BOOT)
        identity_words(p, len);
    if (op == CELLA_GUEST_SHOW && (f = find(p, len, CELLA_TAG_NAME)))
        word(":%.*s", (int)f->len, (const char *)f->p);
    word(" ");
    if (op == CELLA_GUEST_SETTLE)
        agent_says(s, find(p, len, CELLA_TAG_NONCE));
    if (op == s->errs) {
        field_add_u32(&b, CELLA_TAG_ERRNO, EIO);
        field_add_str(&b, CELLA_TAG_MESSAGE, "not today");
    }
    guest_sends(op == s->errs ? CELLA_FRAME_ERROR : CELLA_FRAME_RESULT, stream, &b);
}

static void read_whole(void *p, size_t len)
{
    char *at = p;

    while (len) {
        ssize_t n = read(guest_fds[1], at, len);
        if (n <= 0)
            _exit(0);
        at += n;
        len -= (size_t)n;
    }
}

static pid_t guest_process(const struct script *s, int copy)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    close(guest_fds[0]);
    if (!copy)
        guest_hello();
    for (;;) {
        static uint8_t payload[CELLA_FRAME_MAX];
        struct cella_frame f;
        uint32_t op = 0;
        read_whole(&f, sizeof(f));
        read_whole(payload, f.length);
        check(field_get_u32(payload, f.length, CELLA_TAG_OP, &op) == 0);
        guest_answers(s, op, f.stream, payload, f.length);
    }
}

/* ---- stand-ins for the warden's other rooms ---- */

static int audit_fails, snapshot_code;

int backend_connect(struct backend *b, uint32_t port, int *ret_fd, struct cella_error *err)
{
    (void)b;
    (void)err;
    *ret_fd = fcntl(port ? guest_fds[0] : agent_fds[0], F_DUPFD_CLOEXEC, 3);
    return 0;
}

int cell_link(struct warden *w, int own_fd, struct cella_error *err)
{
    char c = 0;

    (void)err;
    word("LINK%c ", recv(own_fd, &c, 1, MSG_DONTWAIT) == 1 ? c : '-');
    close(own_fd);
    loop_stop(w->loop);
    return 0;
}

void cell_end(struct warden *w, const char *reason, const char *fmt, ...)
{
    char why[300];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    word("END(%s: %s) ", reason, why);
    w->ended = reason;
    loop_stop(w->loop);
}

int audit_emit(struct audit *a, struct cella_error *err, const char *kind, ...)
{
    (void)a;
    word("audit:%s ", kind);
    return audit_fails ? fail(err, -ENOSPC, "the audit is full") : 0;
}

int warden_audited(struct warden *w, int r)
{
    (void)w;
    return r;
}

int backend_snapshot(struct backend *b, int dirfd, void (*taken)(void *ctx), void *ctx,
                     struct cella_error *err)
{
    (void)b;
    (void)dirfd;
    word("backend ");
    if (snapshot_code == 0)
        taken(ctx);
    return snapshot_code ? fail(err, snapshot_code, "no room") : 0;
}

/* Asked for by take.c, and by no test here. */
int backend_restore(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                    int dirfd, struct backend *ret, struct cella_error *err)
{
    (void)p;
    (void)host;
    (void)spec;
    (void)dirfd;
    (void)ret;
    return fail(err, -ENOTSUP, "none");
}

int policy_phase(struct warden *wd, json_t *args, json_t **ret, struct cella_error *err)
{
    (void)wd;
    (void)args;
    (void)ret;
    return fail(err, -ENOTSUP, "none");
}

int snapshot_open(const char *state_dir, const char *path, struct snapshot *ret,
                  struct cella_error *err)
{
    (void)state_dir;
    (void)path;
    (void)ret;
    return fail(err, -ENOTSUP, "none");
}

void snapshot_release(const char *state_dir, struct snapshot *s)
{
    (void)state_dir;
    (void)s;
}

void audit_head(const struct audit *a, uint64_t *ret_seq, char ret_hex[65])
{
    (void)a;
    (void)ret_hex;
    *ret_seq = 0;
}

json_t *limits_json(const struct config_limits *l)
{
    (void)l;
    return json_object();
}

void limits_activity(struct warden *wd)
{
    (void)wd;
}

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
    pid_t pid;

    alarm(PATIENCE); /* a request that is never answered would take its own time */
    memset(&w, 0, sizeof(w));
    text[0] = 0;
    audit_fails = snapshot_code = 0;
    assert_int_equal(pipe2(log_fds, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, guest_fds), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, agent_fds), 0);
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
    pid = guest_process(s, copy);
    close(guest_fds[1]);
    close(agent_fds[1]);
    return pid;
}

static const char *end(pid_t pid)
{
    int status;

    alarm(0);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    machine_free(&w);
    loop_free(w.loop);
    close(w.dir.dirfd);
    close(guest_fds[0]);
    close(agent_fds[0]);
    log_text();
    close(log_fds[0]);
    close(log_fds[1]);
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

#define SETTLED                                                                                    \
    "RESET SETTLE+hostname+machine+boot+generation+mac+address+gateway+nonce+entropy+epoch "

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
    assert_int_equal(strncmp(text, SETTLED, strlen(SETTLED)), 0);
    assert_true(comes_before("SETTLE", "audit:cell.settled "));
    assert_true(comes_before("audit:cell.settled ", "THAW"));
    assert_true(comes_before("CLOCK ", "THAW"));
    assert_true(comes_before("SHOW:ca.pem ", "THAW")); /* in the place of the parent's */
    assert_true(comes_before("SHOW:denials ", "THAW"));
    assert_true(comes_before("THAW ", "LINK" AGENT_SAYS)); /* and nothing of the parent's agent */
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
        cmocka_unit_test(a_copy_settles_before_anything_of_it_runs),
        cmocka_unit_test(a_copy_that_does_not_confirm_is_not_handed_out),
        cmocka_unit_test(no_two_copies_hear_the_same),
        cmocka_unit_test(a_cell_goes_on_when_its_snapshot_fails),
    };

    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return cmocka_run_group_tests(tests, setup, teardown);
}
