/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * agent_harness - the built agent as an ordinary process, or as PID 1 of new pid, user and mount
 * namespaces. Threads: one.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <dirent.h>

#include "agent_harness.h"

static void write_map(pid_t pid, const char *file)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    if (write_file_at(AT_FDCWD, path, "0 0 65536\n") < 0)
        perror(path);
}

static void start_agent(int sock)
{
    const char *path = getenv("CELLA_AGENT");
    char *argv[] = {(char *)"cella-agent", NULL}, *envp[] = {NULL};

    if (sock == 3)
        fcntl(3, F_SETFD, 0);
    else
        dup2(sock, 3);
    execve(path ? path : CELLA_AGENT_PATH, argv, envp);
    _exit(126);
}

/* The outer process keeps the namespaces' birth in order; its only child is PID 1. */
static void outer(int sock, int ready, int go)
{
    char c;
    pid_t pid;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0)
        _exit(125);
    if (write(ready, "r", 1) != 1 || read(go, &c, 1) != 1)
        _exit(125);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
            _exit(125);
        close(ready);
        close(go);
        start_agent(sock);
    }
    if (write(ready, &pid, sizeof(pid)) != sizeof(pid))
        _exit(125);
    close(sock);
    waitpid(pid, NULL, 0);
    _exit(0);
}

static void on_hello(void *ctx, uint32_t version)
{
    ((struct cell *)ctx)->hello = (int)version;
}

static void on_closed(void *ctx, int code, const char *why)
{
    struct cell *c = ctx;

    c->closed = 1;
    c->closed_code = code;
    snprintf(c->why, sizeof(c->why), "%s", why);
}

static const struct link_events events = {on_hello, on_closed};

static int start_as_init(struct cell *c, int sock, int host_end)
{
    int ready[2], go[2];
    char b;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(go, O_CLOEXEC) < 0)
        return -errno;
    c->pid = fork();
    if (c->pid == 0) {
        close(host_end); /* it never execs: the agent would not see the host go */
        outer(sock, ready[1], go[0]);
    }
    close(ready[1]);
    if (read(ready[0], &b, 1) != 1)
        return -EPERM;
    write_map(c->pid, "uid_map");
    write_map(c->pid, "gid_map");
    if (write(go[1], "g", 1) != 1 ||
        read(ready[0], &c->agent, sizeof(c->agent)) != sizeof(c->agent))
        return -EIO;
    close(ready[0]);
    close(go[0]);
    close(go[1]);
    return 0;
}

int cell_start(struct cell *c, int as_init)
{
    int sv[2], r = 0;

    *c = (struct cell){.as_init = as_init};
    signal(SIGPIPE, SIG_IGN);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return -errno;
    if (as_init) {
        r = start_as_init(c, sv[1], sv[0]);
    } else {
        c->pid = c->agent = fork();
        if (c->pid == 0)
            start_agent(sv[1]);
    }
    close(sv[1]);
    if (r < 0 || loop_new(&c->loop) < 0)
        return r < 0 ? r : -ENOMEM;
    r = link_new(c->loop, sv[0], &events, c, &c->link);
    return r < 0 ? r : cell_wait(c, &c->hello, 20000);
}

void cell_stop(struct cell *c)
{
    link_free(c->link);
    loop_free(c->loop);
    c->link = NULL;
    waitpid(c->pid, NULL, 0);
}

static struct cell the_cell;

int cell_setup(void **state)
{
    *state = &the_cell;
    return cell_start(&the_cell, 0);
}

int cell_setup_init(void **state)
{
    *state = &the_cell;
    return cell_start(&the_cell, 1);
}

int cell_teardown(void **state)
{
    cell_stop(*state);
    return 0;
}

void cell_turn(struct cell *c, unsigned ms)
{
    uint64_t until = now_ns() + ms * 1000000ull, now;

    while ((now = now_ns()) < until)
        loop_turn(c->loop, (int64_t)(until - now));
}

int cell_wait(struct cell *c, const int *flag, unsigned ms)
{
    uint64_t until = now_ns() + ms * 1000000ull, now;

    while (!*flag && (now = now_ns()) < until)
        loop_turn(c->loop, (int64_t)(until - now));
    return *flag ? 0 : -ETIMEDOUT;
}

static void terminal(struct op *o, const struct cella_frame *f, const uint8_t *p)
{
    const char *s;
    size_t n;

    o->ended = 1;
    o->s = NULL;
    o->type = f->type;
    field_get_u32(p, f->length, CELLA_TAG_STATUS, &o->status);
    field_get_u32(p, f->length, CELLA_TAG_TERM_SIGNAL, &o->sig);
    field_get_u32(p, f->length, CELLA_TAG_TIMED_OUT, &o->timed_out);
    field_get_u32(p, f->length, CELLA_TAG_ERRNO, &o->err_no);
    field_get_u32(p, f->length, CELLA_TAG_COUNT, &o->count);
    field_get_u32(p, f->length, CELLA_TAG_MODE, &o->mode);
    field_get_u32(p, f->length, CELLA_TAG_TYPE, &o->ftype);
    field_get_u32(p, f->length, CELLA_TAG_UID, &o->uid);
    field_get_u32(p, f->length, CELLA_TAG_GID, &o->gid);
    field_get_u64(p, f->length, CELLA_TAG_SIZE, &o->size);
    field_get_u64(p, f->length, CELLA_TAG_UTIME_NS, &o->utime);
    field_get_u64(p, f->length, CELLA_TAG_MAXRSS, &o->maxrss);
    if (field_get_str(p, f->length, CELLA_TAG_MESSAGE, &s, &n) == 0)
        snprintf(o->msg, sizeof(o->msg), "%.*s", (int)n, s);
    if (field_get_str(p, f->length, CELLA_TAG_LINK, &s, &n) == 0)
        snprintf(o->link, sizeof(o->link), "%.*s", (int)n, s);
}

static void on_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                     const uint8_t *p)
{
    struct op *o = ctx;

    (void)s;
    switch (f->type) {
    case CELLA_FRAME_OPENED:
        o->opened = 1;
        field_get_u32(p, f->length, CELLA_TAG_PID, &o->pid);
        break;
    case CELLA_FRAME_DATA:
        if (f->channel == CELLA_CHANNEL_OUT)
            o->got += f->length;
        if (o->keep)
            buf_add(f->channel == CELLA_CHANNEL_OUT ? &o->out : &o->err, p, f->length);
        if (!o->no_credit)
            op_credit(o, f->channel, f->length);
        break;
    case CELLA_FRAME_EOF:
        *(f->channel == CELLA_CHANNEL_OUT ? &o->eof_out : &o->eof_err) = 1;
        break;
    case CELLA_FRAME_CREDIT:
        break;
    default:
        terminal(o, f, p);
    }
}

static const struct link_stream_events stream_events = {on_frame};

void op_fields(struct cell *c, struct op *o, const struct buf *fields)
{
    int r;

    *o = (struct op){.cell = c, .keep = 1};
    buf_add(&o->out, "", 0);
    buf_add(&o->err, "", 0);
    r = link_open(c->link, fields->ptr, fields->len, &stream_events, o, &o->s);
    if (r < 0) {
        fprintf(stderr, "link_open: %d\n", r);
        abort();
    }
}

void op_exec(struct cell *c, struct op *o, const char *const *argv, const struct buf *extra)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_OP, CELLA_OP_EXEC);
    for (; *argv; argv++)
        field_add_str(&b, CELLA_TAG_ARG, *argv);
    field_add_str(&b, CELLA_TAG_ENV, "PATH=/usr/bin:/bin");
    if (extra)
        buf_add(&b, extra->ptr, extra->len);
    op_fields(c, o, &b);
}

void op_path(struct cell *c, struct op *o, uint32_t op, const char *path, const struct buf *extra)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_OP, op);
    field_add_str(&b, CELLA_TAG_PATH, path);
    if (extra)
        buf_add(&b, extra->ptr, extra->len);
    op_fields(c, o, &b);
}

int op_wait(struct op *o, unsigned ms)
{
    return cell_wait(o->cell, &o->ended, ms);
}

size_t op_write(struct op *o, const void *p, size_t n, unsigned ms)
{
    uint64_t until = now_ns() + ms * 1000000ull;
    size_t sent = 0;

    while (sent < n && o->s && now_ns() < until) {
        size_t k = link_credit(o->s);
        k = k > CELLA_FRAME_MAX ? CELLA_FRAME_MAX : k;
        k = k > n - sent ? n - sent : k;
        if (k &&
            link_send(o->s, CELLA_FRAME_DATA, CELLA_CHANNEL_IN, (const char *)p + sent, k) == 0) {
            sent += k;
            until = now_ns() + ms * 1000000ull;
        } else {
            loop_turn(o->cell->loop, 20000000);
        }
    }
    return sent;
}

void op_eof(struct op *o)
{
    if (o->s)
        link_send(o->s, CELLA_FRAME_EOF, CELLA_CHANNEL_IN, NULL, 0);
}

void op_credit(struct op *o, uint16_t channel, uint32_t n)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_COUNT, n);
    if (o->s)
        link_send(o->s, CELLA_FRAME_CREDIT, channel, b.ptr, b.len);
}

void op_signal(struct op *o, uint32_t sig, uint32_t scope)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_SIGNAL, sig);
    field_add_u32(&b, CELLA_TAG_SCOPE, scope);
    if (o->s)
        link_send(o->s, CELLA_FRAME_SIGNAL, 0, b.ptr, b.len);
}

void op_fini(struct op *o)
{
    buf_fini(&o->out);
    buf_fini(&o->err);
}

static int parent_of(const char *pid)
{
    auto_free char *text = NULL;
    char path[300], *p;
    int ppid = -1;

    snprintf(path, sizeof(path), "/proc/%s/stat", pid);
    if (read_file_at(AT_FDCWD, path, 4096, &text, NULL) < 0)
        return -1;
    p = strrchr(text, ')');
    if (!p || sscanf(p + 1, " %*c %d", &ppid) != 1)
        return -1;
    return ppid;
}

int descendants(pid_t pid)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && parent_of(e->d_name) == pid)
            n += 1 + descendants(atoi(e->d_name));
    if (d)
        closedir(d);
    return n;
}

long vm_rss_kib(pid_t pid)
{
    auto_free char *text = NULL;
    char path[64], *p;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (read_file_at(AT_FDCWD, path, 65536, &text, NULL) < 0)
        return -1;
    p = strstr(text, "VmRSS:");
    return p ? atol(p + 6) : -1;
}
