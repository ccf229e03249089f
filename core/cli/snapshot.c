/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * snapshot, restore, fork - copies of cells.
 *
 * A fork is one hidden snapshot of the running parent and as many restores of it. Each child is made
 * by a process of its own, this program again: a warden is a fork of what asked for it, and wardens
 * of one process would share one layout of addresses. All children or none: when one cannot be made,
 * the others go again.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "cli.h"
#include "snapshot.h"

#define FORK_MAX 1000u
#define OUTPUT_MAX 65536u

static void note(const char *text)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%s", text);
}

/* ---- snapshot ---- */

static void date_text(int64_t created, char out[32])
{
    time_t t = (time_t)created;
    struct tm tm;

    if (created <= 0 || !gmtime_r(&t, &tm) || !strftime(out, 32, "%Y-%m-%d %H:%M", &tm))
        snprintf(out, 32, "-");
}

static void column(const char *text, int width)
{
    auto_free char *safe = safe_string(*text ? text : "-", strlen(*text ? text : "-"));

    printf("%-*.*s ", width, width < 40 ? 40 : width, safe);
}

static void print_row(const json_t *row)
{
    char apparent[32], unique[32], date[32];

    human_size((uint64_t)json_int(row, "apparent"), apparent);
    human_size((uint64_t)json_int(row, "unique"), unique);
    date_text(json_int(row, "created"), date);
    column(json_str(row, "id"), 14);
    column(json_str(row, "name"), 20);
    column(json_str(json_object_get(row, "cell"), "name"), 16);
    column(json_str(json_object_get(row, "backend"), "name"), 10);
    printf("%-9s %-8s %-17s %s\n", apparent, unique, date,
           json_is_true(json_object_get(row, "damaged"))  ? "damaged"
           : json_is_true(json_object_get(row, "in_use")) ? "in use"
                                                          : "-");
}

static int snapshot_ls(const struct options *o, const struct config *c)
{
    json_t *rows, *row;
    size_t i;
    int r = snapshot_list(c->state_dir, &rows, cli_err);

    if (r < 0)
        return r;
    if (o->json) {
        r = print_json(rows);
    } else {
        printf("%-14s %-20s %-16s %-10s %-9s %-8s %-17s %s\n", "ID", "NAME", "OF", "BACKEND",
               "APPARENT", "UNIQUE", "MADE", "USE");
        json_array_foreach(rows, i, row) if (!json_is_true(json_object_get(row, "hidden")))
            print_row(row);
    }
    json_decref(rows);
    return r;
}

static int snapshot_new(const struct options *o, const struct config *c, const char *cell,
                        const char *name)
{
    struct snapshot s = SNAPSHOT_INIT;
    int r;

    note("taking a snapshot");
    r = snapshot_take(c, cell, name, 0, &s, cli_err);
    note("");
    if (r == 0)
        r = o->json ? print_json(s.manifest) : puts(name ? name : s.id) < 0;
    snapshot_close(&s);
    return r;
}

static int snapshot_check(const struct config *c, const char *name)
{
    struct snapshot s = SNAPSHOT_INIT;
    int r = snapshot_find(c->state_dir, name, &s, cli_err);

    if (r == 0)
        r = snapshot_verify(&s, cli_err);
    snapshot_close(&s);
    return r < 0 ? r : printf("%s: as recorded\n", name) < 0;
}

/* "snapshot ls" is the verb even when a cell has that name: then its id names it. */
int verb_snapshot(const struct options *o, int argc, char **argv)
{
    struct config *c;
    int r = cli_config(o, &c);

    if (r < 0)
        return r;
    if (!strcmp(argv[0], "ls") && argc == 1)
        r = snapshot_ls(o, c);
    else if (!strcmp(argv[0], "rm") && argc == 2)
        r = snapshot_remove(c->state_dir, argv[1], cli_err);
    else if (!strcmp(argv[0], "verify") && argc == 2)
        r = snapshot_check(c, argv[1]);
    else if (!strcmp(argv[0], "ls") || !strcmp(argv[0], "rm") || !strcmp(argv[0], "verify"))
        r = fail(cli_err, -EINVAL,
                 "expected: cella snapshot CELL [NAME], snapshot ls, snapshot rm|verify SNAPSHOT");
    else
        r = snapshot_new(o, c, argv[0], argc > 1 ? argv[1] : NULL);
    config_free(c);
    return r;
}

/* ---- restore ---- */

/* What the command line says beats what the snapshot says. */
static int request_override(const struct options *o, json_t *request)
{
    json_t *given = request_build(o, 0, NULL, 0), *v, *limits;
    const char *key;

    if (!given)
        return cli_err->code;
    if (json_object_get(given, "policy") || json_object_get(given, "policy_file")) {
        json_object_del(request, "policy");
        json_object_del(request, "policy_file");
    }
    limits = json_object_get(given, "limits");
    json_object_update(json_object_get(request, "limits"), limits);
    json_object_foreach(given, key, v)
    {
        if (!strcmp(key, "limits") || (json_is_array(v) && !json_array_size(v)) ||
            json_is_false(v) || json_is_null(v))
            continue;
        json_object_set(request, key, v);
    }
    json_decref(given);
    return 0;
}

static int restore(const struct options *o, struct config *c, const struct snapshot *s,
                   json_t **ret_created, int *ret_exit)
{
    json_t *request = snapshot_request(s);
    struct client *cl = NULL;
    int r = request ? request_override(o, request)
                    : fail(cli_err, -EBADMSG, "snapshot %s: its manifest is damaged", s->id);

    json_object_set_new(request, "start", json_true());
    if (r == 0)
        r = client_spawn(c, &cl, cli_err);
    if (r == 0)
        r = client_call(cl, "create", request, ret_created, ret_exit, NULL, NULL, cli_err);
    json_decref(request);
    client_free(cl);
    return r;
}

int verb_restore(const struct options *o, int argc, char **argv)
{
    struct snapshot s = SNAPSHOT_INIT;
    struct config *c;
    json_t *created = NULL;
    int r = cli_config(o, &c), status = CLI_FAILED;

    (void)argc;
    if (r < 0)
        return r;
    r = snapshot_find(c->state_dir, argv[0], &s, cli_err);
    if (r == 0)
        r = manifest_check(s.manifest, cli_err);
    if (r == 0)
        r = restore(o, c, &s, &created, &status);
    if (r == 0 && o->json)
        r = print_json(created);
    else if (r == 0)
        r = printf("%s\n", json_str(created, "name")) < 0;
    json_decref(created);
    snapshot_close(&s);
    config_free(c);
    return r;
}

/* ---- fork ---- */

struct child {
    pid_t pid;
    int out, errors;
    char name[CELLA_ID_LEN + 80];
    int failed;
};

static void __attribute__((noreturn))
child_exec(const struct options *o, const struct config *c, const char *id, const char *name,
           int out, int errors)
{
    const char *argv[16] = {"cella", "restore"};
    size_t n = 2;

    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (dup2(out, 1) < 0 || dup2(errors, 2) < 0)
        _exit(125);
    if (c->file) {
        argv[n++] = "--config";
        argv[n++] = c->file;
    }
    if (o->policy) {
        argv[n++] = "--policy";
        argv[n++] = o->policy;
    }
    if (name) {
        argv[n++] = "--name";
        argv[n++] = name;
    }
    argv[n++] = id;
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(126);
}

static int child_start(const struct options *o, const struct config *c, const char *id,
                       unsigned number, struct child *ret)
{
    char name[96];
    int out[2], errors[2], r = 0;

    *ret = (struct child){.out = -1, .errors = -1};
    if (pipe2(out, O_CLOEXEC) < 0)
        return fail(cli_err, -errno, "pipe: %s", strerror(errno));
    if (pipe2(errors, O_CLOEXEC) < 0) {
        r = fail(cli_err, -errno, "pipe: %s", strerror(errno));
        close(out[0]);
        close(out[1]);
        return r;
    }
    snprintf(name, sizeof(name), "%s-%u", o->name ? o->name : "", number);
    fflush(NULL);
    ret->pid = fork();
    if (ret->pid == 0)
        child_exec(o, c, id, o->name ? name : NULL, out[1], errors[1]);
    if (ret->pid < 0)
        r = fail(cli_err, -errno, "fork: %s", strerror(errno));
    close(out[1]);
    close(errors[1]);
    ret->out = out[0];
    ret->errors = errors[0];
    return r;
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

/* As many at a time as the host has processors, and one: each waits for its machine most of the time. */
static int make_children(const struct options *o, const struct config *c, const char *id,
                         struct child *v, unsigned n)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned begun = 0, ended = 0, at_once = cpus > 0 && cpus < 64 ? 2 * (unsigned)cpus : 8;
    int r = 0;

    while (ended < begun || (r == 0 && begun < n)) {
        if (r == 0 && begun < n && begun - ended < at_once) {
            r = child_start(o, c, id, begun + 1, &v[begun]);
            begun++;
            continue;
        }
        if (child_end(&v[ended]) < 0 && r == 0)
            r = cli_err->code ? cli_err->code : -EIO;
        ended++;
    }
    if (r < 0)
        take_back(c, v, begun);
    return r;
}

int verb_fork(const struct options *o, int argc, char **argv)
{
    unsigned n = o->count ? (unsigned)o->count : 1;
    struct snapshot s = SNAPSHOT_INIT;
    struct child *v;
    struct config *c;
    int r;

    (void)argc;
    if (o->count > FORK_MAX)
        return fail(cli_err, -E2BIG, "fork: at most %u children at a time", FORK_MAX);
    if (o->name && (!name_valid(o->name) || strlen(o->name) > 56))
        return fail(cli_err, -EINVAL, "fork: --name %s: cannot begin the names of cells", o->name);
    r = cli_config(o, &c);
    if (r < 0)
        return r;
    v = calloc(n, sizeof(*v));
    r = v ? 0 : fail(cli_err, -ENOMEM, "out of memory");
    note("taking a snapshot of the parent");
    if (r == 0)
        r = snapshot_take(c, argv[0], NULL, 1, &s, cli_err);
    note("making the children");
    if (r == 0)
        r = make_children(o, c, s.id, v, n);
    note("");
    if (r == 0)
        r = print_children(o, v, n);
    snapshot_release(c->state_dir, &s);
    free(v);
    config_free(c);
    return r;
}
