/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit - tail, show, verify. A chain is a file <path>/<chain>.jsonl of the audit-jsonl sink, where
 * <chain> is "host" or a cell's id. Lines hold text that cells chose: the core escaped it, and it
 * is escaped again here for the terminal by writing JSON in ASCII. Should: verify exits 1 and names
 * the first broken line. Mustn't: trust that a line is JSON.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <time.h>

#include "audit.h"
#include "cli.h"

#define LINE_CAP (1u << 20)

struct target {
    struct config *c;
    char dir[PATH_MAX];  /* where the sink writes */
    char keys[PATH_MAX]; /* heads and public key */
    char file[PATH_MAX];
};

static void find_dirs(struct target *t)
{
    const char *path = NULL;
    size_t i;

    snprintf(t->keys, sizeof(t->keys), "%s/audit", t->c->state_dir);
    for (i = 0; i < t->c->n_sinks && !path; i++)
        if (!strcmp(t->c->sinks[i].name, "audit-jsonl"))
            path = json_string_value(json_object_get(t->c->sinks[i].options, "path"));
    snprintf(t->dir, sizeof(t->dir), "%s", path ? path : t->keys);
}

/* A file, "host", a cell (alive or not) or the id of one that is gone. */
static int find_file(struct target *t, const char *what)
{
    struct cell_info info;
    struct errbuf eb;

    if (strchr(what, '/') || access(what, R_OK) == 0) {
        snprintf(t->file, sizeof(t->file), "%s", what);
        return 0;
    }
    if ((size_t)snprintf(t->file, sizeof(t->file), "%s/%s.jsonl", t->dir, what) < sizeof(t->file) &&
        access(t->file, R_OK) == 0)
        return 0;
    if (store_find(t->c->state_dir, what, &info, errbuf_init(&eb)) == 0) {
        int n = snprintf(t->file, sizeof(t->file), "%s/%s.jsonl", t->dir, info.id);
        cell_info_fini(&info);
        if (n > 0 && (size_t)n < sizeof(t->file) && access(t->file, R_OK) == 0)
            return 0;
    }
    return fail(cli_err, -ENOENT,
                "audit: no chain of \"%s\": neither a file, nor \"host\", nor a cell with a chain "
                "in %s",
                what, t->dir);
}

static int kind_matches(const struct options *o, const char *kind)
{
    size_t n = o->kind ? strlen(o->kind) : 0;

    return !o->kind || (!strncmp(kind, o->kind, n) && (kind[n] == 0 || kind[n] == '.'));
}

/* seq, time and kind first, then the other fields as they come. */
static void print_event(const json_t *e)
{
    static const char *const head[] = {"v", "chain", "seq", "ts", "prev", "kind", "sig", NULL};
    const char *key;
    json_t *v;
    size_t i;

    printf("%6lld ", (long long)json_int(e, "seq"));
    print_safe(stdout, json_str(e, "ts"), strlen(json_str(e, "ts")));
    putchar(' ');
    print_safe(stdout, json_str(e, "kind"), strlen(json_str(e, "kind")));
    json_object_foreach((json_t *)(uintptr_t)e, key, v)
    {
        auto_free char *text = NULL;
        for (i = 0; head[i] && strcmp(head[i], key); i++)
            ;
        if (head[i])
            continue;
        text = json_dumps(v, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
        putchar(' ');
        print_safe(stdout, key, strlen(key));
        printf("=%s", text ? text : "?");
    }
    putchar('\n');
}

/* 1 = shown. */
static int show_line(const struct options *o, const char *line, size_t len, unsigned long number)
{
    json_t *e = json_loadb(line, len, 0, NULL);
    auto_free char *text = NULL;

    if (!json_is_object(e)) {
        json_decref(e);
        cli_say("audit: line %lu is not a JSON object", number);
        return 0;
    }
    if (!kind_matches(o, json_str(e, "kind"))) {
        json_decref(e);
        return 0;
    }
    if (o->json) {
        text = json_dumps(e, JSON_COMPACT | JSON_ENSURE_ASCII);
        puts(text ? text : "");
    } else {
        print_event(e);
    }
    json_decref(e);
    return 1;
}

/* Shows from the current place to the end. `skip` lines are passed over. */
static int show_rest(const struct options *o, FILE *f, uint64_t skip, unsigned long *number)
{
    auto_free char *line = NULL;
    size_t cap = 0;
    ssize_t n;

    while ((n = getline(&line, &cap, f)) > 0) {
        ++*number;
        if (n > (ssize_t)LINE_CAP)
            return fail(cli_err, -EFBIG, "audit: line %lu is longer than any event", *number);
        if (*number > skip)
            show_line(o, line, (size_t)n, *number);
    }
    return 0;
}

static uint64_t count_lines(FILE *f)
{
    char chunk[16384];
    uint64_t lines = 0;
    size_t n, i;

    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        for (i = 0; i < n; i++)
            lines += chunk[i] == '\n';
    rewind(f);
    return lines;
}

static int show(const struct options *o, const char *file, int tail)
{
    auto_fclose FILE *f = fopen(file, "re");
    struct timespec pause = {0, 200000000};
    unsigned long number = 0;
    uint64_t keep = o->lines ? o->lines : 20, lines;
    int r;

    if (!f)
        return fail(cli_err, -errno, "audit: %s: %s", file, strerror(errno));
    lines = tail ? count_lines(f) : 0;
    r = show_rest(o, f, tail && lines > keep ? lines - keep : 0, &number);
    while (r == 0 && o->follow && fflush(stdout) == 0) {
        nanosleep(&pause, NULL);
        clearerr(f);
        r = show_rest(o, f, 0, &number);
    }
    return r;
}

/* Prints one verdict. 0 verified, 1 broken. */
static int report(const struct options *o, const char *file, const struct audit_verify_result *v,
                  json_t *results)
{
    if (o->json) {
        json_array_append_new(results,
                              json_pack("{s:s, s:b, s:I, s:b, s:s, s:I, s:s}", "file", file, "ok",
                                        v->first_bad == 0, "lines", (json_int_t)v->lines, "closed",
                                        v->closed, "head", v->head, "first_bad",
                                        (json_int_t)v->first_bad, "why", v->why));
        return v->first_bad ? 1 : 0;
    }
    if (v->first_bad == 0) {
        printf("chain verified: %llu lines, head %s%s: ", (unsigned long long)v->lines, v->head,
               v->closed ? "" : " (still open)");
        print_safe(stdout, file, strlen(file));
        putchar('\n');
        return 0;
    }
    printf("chain BROKEN: ");
    print_safe(stdout, file, strlen(file));
    printf(": line %llu: ", (unsigned long long)v->first_bad);
    print_safe(stdout, v->why, strlen(v->why));
    putchar('\n');
    return 1;
}

/* 0 verified, 1 broken, <0 cannot be read. */
static int verify_file(const struct options *o, const struct target *t, const char *file,
                       json_t *results)
{
    struct audit_verify_result v = {.lines = 0};
    int r = audit_verify(t->keys, file, &v, cli_err);

    return r < 0 ? r : report(o, file, &v, results);
}

/* Are the cells' files there, with the lines the host's chain recorded? Says something only when not. */
static int verify_links(const struct options *o, const struct target *t, json_t *results)
{
    struct audit_verify_result v = {.lines = 0};
    char file[PATH_MAX];
    int r;

    if ((size_t)snprintf(file, sizeof(file), "%s/host.jsonl", t->dir) >= sizeof(file) ||
        access(file, F_OK) < 0)
        return 0;
    r = audit_verify_host_links(file, t->dir, &v, cli_err);
    return r < 0 || v.first_bad == 0 ? r : report(o, file, &v, results);
}

/* Every chain of the directory, the host's first. A chain that cannot be read is broken. */
static int verify_all(const struct options *o, const struct target *t, json_t *results)
{
    struct dirent **names = NULL;
    int n = scandir(t->dir, &names, NULL, alphasort), i, bad = 0, seen = 0;

    if (n < 0)
        return fail(cli_err, -errno, "audit: %s: %s", t->dir, strerror(errno));
    for (i = 0; i < n; i++) {
        size_t len = strlen(names[i]->d_name);
        char file[PATH_MAX];
        if (len > 6 && !strcmp(names[i]->d_name + len - 6, ".jsonl") &&
            (size_t)snprintf(file, sizeof(file), "%s/%s", t->dir, names[i]->d_name) <
                sizeof(file)) {
            int r = verify_file(o, t, file, results);
            if (r < 0)
                cli_say("%s", cli_errbuf.text);
            bad += r != 0;
            seen++;
        }
        free(names[i]);
    }
    free(names);
    if (!seen && !o->json)
        printf("no chains in %s\n", t->dir);
    if (verify_links(o, t, results) != 0)
        bad++;
    return bad ? 1 : 0;
}

static int verify(const struct options *o, struct target *t, const char *what)
{
    json_t *results = json_array();
    int r;

    if (!what) {
        r = verify_all(o, t, results);
    } else {
        r = find_file(t, what);
        if (r == 0)
            r = verify_file(o, t, t->file, results);
    }
    if (o->json && r >= 0)
        print_json(results);
    json_decref(results);
    return r;
}

int verb_audit(const struct options *o, int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : o->cell;
    struct target t;
    int r = cli_config(o, &t.c);

    if (r < 0)
        return r;
    find_dirs(&t);
    if (!strcmp(argv[0], "verify")) {
        r = verify(o, &t, what);
    } else if (!strcmp(argv[0], "show") || !strcmp(argv[0], "tail")) {
        r = find_file(&t, what ? what : "host");
        if (r == 0)
            r = show(o, t.file, !strcmp(argv[0], "tail"));
    } else {
        r = fail(cli_err, -EINVAL, "audit: \"%s\" is not known; expected tail, show or verify",
                 argv[0]);
    }
    config_free(t.c);
    return r;
}
