/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fork - children of a running cell: one hidden snapshot of it, and as many copies of that.
 *
 * What a child needs that is not in the snapshot takes longest, so it is begun first: machines that wait for this fork
 * (spares) are taken, and others are prepared while the parent's snapshot is taken. Each child is the work of a process
 * of its own (fork_child.c). All children or none: when one cannot be made, the others go again. What the cell keeps as
 * spares is made good afterwards, by a process that nobody waits for.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "copies.h"

#define FORK_MAX 1000u

struct child {
    pid_t pid;
    int in, out, errors;
    char spare[CELLA_ID_LEN + 1]; /* the machine that waits for it; "" = none */
    char name[CELLA_ID_LEN + 80];
    int failed;
};

/* One fork. */
struct forking {
    const struct options *o;
    struct config *c;
    json_t *recipe; /* of a machine that is prepared; NULL: this cell's copies are not */
    struct child *v;
    unsigned n, begun, ended;
    unsigned n_spares; /* the first of `v` have one */
};

static void __attribute__((noreturn))
child_exec(const struct forking *f, const char *name, int in, int out, int errors)
{
    const char *argv[16] = {"cella", "__child"};
    size_t n = 2;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(errors, 2) < 0)
        _exit(125);
    if (f->c->file) {
        argv[n++] = "--config";
        argv[n++] = f->c->file;
    }
    if (f->o->policy) {
        argv[n++] = "--policy";
        argv[n++] = f->o->policy;
    }
    if (name) {
        argv[n++] = "--name";
        argv[n++] = name;
    }
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(126);
}

static void ends_close(int v[6])
{
    size_t i;

    for (i = 0; i < 6; i++)
        if (v[i] >= 0)
            close(v[i]);
}

/* A child that ended early shows when its end is waited for. */
static void child_tell(const struct child *ch, const char *line)
{
    auto_buf struct buf b = BUF_INIT;
    ssize_t n;
    size_t at = 0;

    buf_addf(&b, "%s\n", line);
    while (!b.oom && at < b.len && (n = send(ch->in, b.ptr + at, b.len - at, MSG_NOSIGNAL)) != 0) {
        if (n < 0 && errno != EINTR)
            return;
        at += n > 0 ? (size_t)n : 0;
    }
}

/* With what it begins before there is a snapshot. */
static void child_prepare(const struct forking *f, const struct child *ch)
{
    json_t *how = ch->spare[0] ? json_pack("{s:s}", "spare", ch->spare)
                  : f->recipe  ? json_pack("{s:O}", "recipe", f->recipe)
                               : json_object();
    auto_free char *line = how ? json_dumps(how, JSON_COMPACT) : NULL;

    json_decref(how);
    child_tell(ch, line ? line : "{}");
}

static int child_start(struct forking *f)
{
    struct child *ch = &f->v[f->begun];
    int e[6] = {-1, -1, -1, -1, -1, -1}; /* in, out, errors: theirs and ours in turn */
    char name[96];
    int r = 0;

    ch->in = ch->out = ch->errors = -1;
    f->begun++;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e) < 0 || pipe2(e + 2, O_CLOEXEC) < 0 ||
        pipe2(e + 4, O_CLOEXEC) < 0) {
        r = fail(cli_err, -errno, "fork: its channels: %s", strerror(errno));
        ends_close(e);
        return r;
    }
    snprintf(name, sizeof(name), "%s-%u", f->o->name ? f->o->name : "", f->begun);
    fflush(NULL);
    ch->pid = fork();
    if (ch->pid == 0)
        child_exec(f, f->o->name ? name : NULL, e[0], e[3], e[5]);
    if (ch->pid < 0)
        r = fail(cli_err, -errno, "fork: %s", strerror(errno));
    ch->in = steal_fd(&e[1]);
    ch->out = steal_fd(&e[2]);
    ch->errors = steal_fd(&e[4]);
    ends_close(e);
    if (r == 0)
        child_prepare(f, ch);
    return r;
}

/* The snapshot is there; NULL: there will be none. */
static void child_go(struct child *ch, const char *id)
{
    if (ch->in < 0)
        return;
    if (id)
        child_tell(ch, id);
    close(steal_fd(&ch->in));
}

static void read_line(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t got;

    while (n + 1 < cap && (got = read(fd, out + n, cap - 1 - n)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        n += (size_t)got;
    }
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
}

/* Its name, or the first failure's words. */
static int child_end(struct child *ch)
{
    char errors[1024];
    int status = 0;

    if (ch->pid <= 0)
        return -ECHILD;
    read_line(ch->out, ch->name, sizeof(ch->name));
    read_line(ch->errors, errors, sizeof(errors));
    close(ch->out);
    close(ch->errors);
    while (waitpid(ch->pid, &status, 0) < 0 && errno == EINTR)
        ;
    ch->failed = !WIFEXITED(status) || WEXITSTATUS(status) || !ch->name[0];
    if (!ch->failed)
        return 0;
    return fail(cli_err, -EIO, "a child could not be made: %s",
                !strncmp(errors, "cella: ", 7) ? errors + 7 : errors);
}

static void take_back(const struct config *c, const struct child *v, unsigned n)
{
    json_t *args = json_pack("{s:b}", "force", 1);
    unsigned i;

    for (i = 0; i < n; i++) {
        struct errbuf eb;
        struct client *cl;
        json_t *reply = NULL;
        if (v[i].pid <= 0 || v[i].failed || !v[i].name[0] ||
            client_connect(c, v[i].name, &cl, errbuf_init(&eb)) < 0)
            continue;
        client_call(cl, "rm", args, &reply, NULL, NULL, NULL, errbuf_init(&eb));
        json_decref(reply);
        client_free(cl);
    }
    json_decref(args);
}

static int print_children(const struct options *o, const struct child *v, unsigned n)
{
    json_t *names = json_array();
    unsigned i;
    int r = 0;

    for (i = 0; i < n; i++)
        json_array_append_new(names, json_string(v[i].name));
    if (o->json)
        r = print_json(names);
    for (i = 0; !o->json && i < n; i++)
        puts(v[i].name);
    json_decref(names);
    return r;
}

/* As many at a time as the host has processors, and one: each waits for its machine most of the time. Those whose
   machine is there already wait for the snapshot alone. */
static int may_begin(const struct forking *f)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned at_once = cpus > 0 && cpus < 64 ? 2 * (unsigned)cpus : 8;

    return f->begun < f->n &&
           (f->begun < f->n_spares || f->begun - f->ended < at_once + f->n_spares);
}

static int begin_some(struct forking *f)
{
    int r = 0;

    while (r == 0 && may_begin(f))
        r = child_start(f);
    return r;
}

/* `r`: of what was before. */
static int make_children(struct forking *f, const char *id, int r)
{
    unsigned i;

    for (i = 0; i < f->begun; i++)
        child_go(&f->v[i], r == 0 ? id : NULL);
    while (f->ended < f->begun || (r == 0 && f->begun < f->n)) {
        if (r == 0 && may_begin(f)) {
            r = child_start(f);
            child_go(&f->v[f->begun - 1], id);
            continue;
        }
        if (r < 0) { /* the first failure's words stay */
            struct errbuf first = cli_errbuf;
            child_end(&f->v[f->ended++]);
            cli_errbuf = first;
            cli_errbuf.err.msg = cli_errbuf.text;
        } else {
            r = child_end(&f->v[f->ended++]);
        }
    }
    if (r < 0)
        take_back(f->c, f->v, f->begun);
    return r;
}

/* ---- spares ---- */

/* What the cell says of its spares; with `keep` >= 0 they are that many from now on. */
static int ask_spares(const struct config *c, const char *cell, int64_t keep, json_t **ret,
                      struct cella_error *err)
{
    json_t *args = keep >= 0 ? json_pack("{s:I}", "keep", (json_int_t)keep) : json_object();
    struct client *cl = NULL;
    int r = client_connect(c, cell, &cl, err);

    if (r == 0)
        r = client_call(cl, "spares", args, ret, NULL, NULL, NULL, err);
    json_decref(args);
    client_free(cl);
    return r;
}

static pid_t spares_start(const struct forking *f, const char *cell, int64_t missing, int wait)
{
    char count[24];
    const char *argv[8] = {"cella", "__spares", "--count", count};
    size_t n = 4;
    pid_t pid;
    int null;

    snprintf(count, sizeof(count), "%lld", (long long)missing);
    if (f->c->file) {
        argv[n++] = "--config";
        argv[n++] = f->c->file;
    }
    argv[n++] = cell;
    fflush(NULL);
    pid = fork();
    if (pid != 0)
        return pid;
    null = open("/dev/null", O_RDWR);
    if (!wait && (setsid() < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0))
        _exit(125);
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(126);
}

/* Makes good what was taken. Nobody waits: a cell whose spares are not there is forked without. `keep`: so many from
   now on; -1: as before. */
static int spares_after(const struct forking *f, const char *cell, const json_t *before,
                        int64_t keep)
{
    int64_t left = (int64_t)json_array_size(json_object_get(before, "waiting")) - f->n_spares;
    json_t *now = NULL;
    int r = 0;

    if (keep >= 0) {
        r = ask_spares(f->c, cell, keep, &now, cli_err);
        left = (int64_t)json_array_size(json_object_get(now, "waiting"));
        json_decref(now);
    } else {
        keep = json_int(before, "keep");
    }
    if (r == 0 && keep > left)
        spares_start(f, cell, keep - left, 0);
    return r;
}

static int spares_print(const struct options *o, const json_t *now, const char *cell)
{
    json_t *safe;

    if (!o->json) {
        auto_free char *name = safe_string(cell, strlen(cell));
        return printf("%zu of %lld machines wait for the next fork of %s\n",
                      json_array_size(json_object_get(now, "waiting")),
                      (long long)json_int(now, "keep"), name) < 0;
    }
    safe = json_pack("{s:O, s:O}", "keep", json_object_get(now, "keep"), "waiting",
                     json_object_get(now, "waiting"));
    print_json(safe);
    json_decref(safe);
    return 0;
}

/* No children: only machines for the next fork. */
static int spares_only(const struct forking *f, const char *cell, int64_t keep)
{
    json_t *now = NULL;
    int status = 0, r = ask_spares(f->c, cell, keep, &now, cli_err);
    pid_t pid;

    if (r < 0)
        return r;
    copies_note("preparing machines");
    pid = keep ? spares_start(f, cell, keep, 1) : 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    copies_note("");
    json_decref(now);
    now = NULL;
    if (pid < 0)
        return fail(cli_err, -errno, "fork: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return CLI_FAILED; /* it has said why */
    r = ask_spares(f->c, cell, -1, &now, cli_err);
    if (r == 0)
        r = spares_print(f->o, now, cell);
    json_decref(now);
    return r;
}

static int spares_wanted(const struct options *o, int64_t *ret)
{
    int64_t n = -1;

    if (o->spares && (parse_i64(o->spares, &n) < 0 || n < 0))
        return fail(cli_err, -EINVAL, "--spares \"%s\": expected a whole number, 0 or more",
                    o->spares);
    *ret = n;
    return 0;
}

/* Of what waits, one for each child. Without any answer the snapshot says what is wrong. */
static int spares_take(struct forking *f, const char *cell, int must, json_t **ret_now)
{
    json_t *ids, *id;
    struct errbuf eb;
    size_t i;
    int r = ask_spares(f->c, cell, -1, ret_now, must ? cli_err : errbuf_init(&eb));

    if (r < 0)
        return must ? r : 0;
    f->recipe = json_object_get(*ret_now, "recipe");
    ids = json_object_get(*ret_now, "waiting");
    json_array_foreach(ids, i, id)
    {
        if (i == f->n || !json_is_string(id))
            break;
        snprintf(f->v[i].spare, sizeof(f->v[i].spare), "%s", json_string_value(id));
        f->n_spares++;
    }
    return 0;
}

/* ---- the verb ---- */

static int forked(struct forking *f, const char *cell, int64_t keep)
{
    struct snapshot s = SNAPSHOT_INIT;
    json_t *now = NULL;
    int r = spares_take(f, cell, keep >= 0, &now), after;

    if (r == 0)
        r = begin_some(f);
    copies_note("taking a snapshot of the parent");
    if (r == 0)
        r = snapshot_take(f->c, cell, NULL, 1, &s, cli_err);
    copies_note("making the children");
    r = make_children(f, s.id, r);
    copies_note("");
    if (r == 0)
        r = print_children(f->o, f->v, f->n);
    snapshot_release(f->c->state_dir, &s);
    after = now && (r == 0 || keep < 0) ? spares_after(f, cell, now, keep) : 0;
    json_decref(now);
    return r < 0 ? r : after;
}

int verb_fork(const struct options *o, int argc, char **argv)
{
    struct forking f = {.o = o, .n = o->count ? (unsigned)o->count : 1};
    int64_t keep = -1;
    int r = spares_wanted(o, &keep);

    (void)argc;
    if (r < 0)
        return r;
    if (o->count > FORK_MAX)
        return fail(cli_err, -E2BIG, "fork: at most %u children at a time", FORK_MAX);
    if (o->name && (!name_valid(o->name) || strlen(o->name) > 56))
        return fail(cli_err, -EINVAL, "fork: --name %s: cannot begin the names of cells", o->name);
    r = cli_config(o, &f.c);
    if (r < 0)
        return r;
    f.v = calloc(f.n, sizeof(*f.v));
    if (!f.v)
        r = fail(cli_err, -ENOMEM, "out of memory");
    else if (o->spares && !o->count)
        r = spares_only(&f, argv[0], keep);
    else
        r = forked(&f, argv[0], keep);
    free(f.v);
    config_free(f.c);
    return r;
}
