/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* script - see script.h. The guest is a process: the first step of a copy waits for it. */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "link_internal.h"
#include "script.h"

static int log_fds[2];
char text[8192];

void word(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vdprintf(log_fds[1], fmt, ap);
    va_end(ap);
}

const char *log_text(void)
{
    size_t n = strlen(text);
    ssize_t got;

    while ((got = read(log_fds[0], text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    return text;
}

/* ---- the guest ---- */

/* In the guest's process, which has no test to fail. */
#define check(x) ((x) ? (void)0 : _exit(99))

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

static void resize_words(const uint8_t *p, size_t len)
{
    uint64_t v;
    uint32_t n;

    if (field_get_u32(p, len, CELLA_TAG_CPUS, &n) == 0)
        word("+cpus=%u", n);
    if (field_get_u64(p, len, CELLA_TAG_PIDS, &v) == 0)
        word("+pids=%llu", (unsigned long long)v);
    if (field_get_u64(p, len, CELLA_TAG_MEMORY, &v) == 0)
        word("+memory=%llu", (unsigned long long)v >> 20);
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
    static unsigned clocks;
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
    if (op == CELLA_GUEST_RESIZE)
        resize_words(p, len);
    if (op == CELLA_GUEST_SHOW && (f = find(p, len, CELLA_TAG_NAME)))
        word(":%.*s", (int)f->len, (const char *)f->p);
    word(" ");
    if (op == CELLA_GUEST_SETTLE)
        agent_says(s, find(p, len, CELLA_TAG_NONCE));
    if (op == s->errs) {
        field_add_u32(&b, CELLA_TAG_ERRNO, EIO);
        field_add_str(&b, CELLA_TAG_MESSAGE, "not today");
    }
    if (op == CELLA_GUEST_BOOT && s->slow_ms)
        usleep(s->slow_ms * 1000);
    if (op == CELLA_GUEST_CLOCK && clocks++ < s->late_clocks)
        usleep(50000);
    if (op == CELLA_GUEST_BOOT && s->steps)
        field_add(&b, CELLA_TAG_STEPS, s->steps, CELLA_GUEST_STEPS * sizeof(uint64_t));
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

int audit_fails, snapshot_code, resize_code;

int backend_connect(struct backend *b, uint32_t port, int *ret_fd, struct cella_error *err)
{
    (void)b;
    (void)err;
    *ret_fd = fcntl(port ? guest_fds[0] : agent_fds[0], F_DUPFD_CLOEXEC, 3);
    return 0;
}

/* In milliseconds since the machine began; -1: before that, or yet to come. */
void warden_step(struct warden *w, const char *name, uint64_t at)
{
    uint64_t began = w->machine->began;

    word("step:%s:%lld ", name,
         at > now_ns() || at < began ? -1ll : (long long)(at - began) / 1000000);
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

int backend_snapshot(struct backend *b, int dirfd, int brief, void (*taken)(void *ctx), void *ctx,
                     struct cella_error *err)
{
    (void)b;
    (void)dirfd;
    (void)brief;
    word("backend ");
    if (snapshot_code == 0)
        taken(ctx);
    return snapshot_code ? fail(err, snapshot_code, "no room") : 0;
}

int backend_resize(struct backend *b, const struct cella_limits *l, struct cella_error *err)
{
    int r;

    (void)b;
    word("resize(%llu %llu %llu %llu) ", (unsigned long long)l->memory_bytes >> 20,
         (unsigned long long)l->cpu_millis, (unsigned long long)l->pids,
         (unsigned long long)l->io_read_bps);
    r = resize_code; /* once: what was is possible again */
    resize_code = 0;
    return r ? fail(err, r, "beyond") : 0;
}

void peer_reply_ok(struct warden *wd, const struct pending *to, json_t *own_result)
{
    (void)wd;
    word("ok%u ", to->call);
    json_decref(own_result);
}

void peer_reply_error(struct warden *wd, const struct pending *to, const struct cella_error *err)
{
    (void)wd;
    word("error%u(%s) ", to->call, err->msg);
}

/* Asked for by take.c, and by no test here. */
int backend_load(struct backend *b, int dirfd, struct cella_error *err)
{
    (void)b;
    (void)dirfd;
    return fail(err, -EOPNOTSUPP, "not here");
}

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

pid_t script_begin(const struct script *s, int copy)
{
    pid_t pid;

    text[0] = 0;
    audit_fails = snapshot_code = resize_code = 0;
    if (pipe2(log_fds, O_CLOEXEC | O_NONBLOCK) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, guest_fds) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, agent_fds) < 0)
        return -1;
    pid = guest_process(s, copy);
    close(guest_fds[1]);
    close(agent_fds[1]);
    return pid;
}

void script_end(pid_t pid)
{
    int status;

    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    close(guest_fds[0]);
    close(agent_fds[0]);
    log_text();
    close(log_fds[0]);
    close(log_fds[1]);
}
