/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - what can this cell reach, and how do we know? For a running cell, or for a throw-away one made from a
 * policy. What a person needs first comes first, and no list is longer than a screen. Status 0 only when every row came out as the policy says and was measured; 1 when something failed, 2 when
 * something was not measured. Strings of the report come from plugins: printed escaped.
 */
#include <fcntl.h>

#include "cli.h"

#define REPORT_MAX (16u << 20)
#define LINES_MAX 30u /* of one list */

struct view {
    const json_t *summary, *rows;
};

static const char *field(const json_t *row, const char *key)
{
    return json_str(row, key);
}

static void cut(const char *s)
{
    print_safe(stdout, s, strlen(s));
}

/* "tcp 203.0.113.1:80", "tls example.com:443", "dns-udp example.com at 10.200.0.1:53" */
static void target(const json_t *row)
{
    const char *address = field(row, "address"), *name = field(row, "name");
    const char *kind = field(row, "kind");
    auto_buf struct buf b = BUF_INIT;
    int six = strchr(address, ':') != NULL;

    if (!strcmp(kind, "tls") || !strcmp(kind, "http") ||
        !strncmp(field(row, "options"), "lookup", 6))
        address = ""; /* the resolver's */

    buf_addf(&b, "%s ", kind);
    if (*name)
        buf_addf(&b, "%s%s", name, *address ? " at " : "");
    if (*address)
        buf_addf(&b, six ? "[%s]" : "%s", address);
    if ((*address || *name) && json_int(row, "port"))
        buf_addf(&b, ":%lld", (long long)json_int(row, "port"));
    if (!*address && !*name)
        buf_addf(&b, "%s", field(row, "options"));
    if (!b.oom)
        printf("%-44s ", b.ptr);
}

static int has(const json_t *row, const char *result, const char *expected)
{
    return !strcmp(field(row, "result"), result) &&
           (!expected || !strcmp(field(row, "expected"), expected));
}

static void more(size_t n, const char *what)
{
    if (n > LINES_MAX)
        printf("  … and %zu more %s; --json has all of them\n", n - LINES_MAX, what);
}

static void list(const struct view *v, const char *title, const char *result)
{
    const json_t *row;
    size_t i, n = 0;

    json_array_foreach(v->rows, i, row)
    {
        if (!has(row, result, NULL))
            continue;
        if (!n++)
            printf("\n%s\n", title);
        if (n > LINES_MAX)
            continue;
        printf("  ");
        if (!*field(row, "address") && !*field(row, "options")) { /* no try at all */
            cut(field(row, "why"));
            putchar('\n');
            continue;
        }
        target(row);
        printf("must be %s: ", has(row, result, "allow") ? "reachable" : "closed");
        cut(field(row, "saw"));
        printf(" (");
        cut(field(row, "why"));
        printf("%s", *field(row, "rule") ? ", rule " : "");
        cut(field(row, "rule"));
        puts(")");
    }
    more(n, "rows");
}

/* Says what a rule opens: not a question for its name, not a try of the catalogue that it happens to cover. */
static int speaks_for_its_rule(const json_t *row)
{
    const char *group = field(row, "group"), *kind = field(row, "kind");

    return !strcmp(group, "rule") ||
           (!strcmp(group, "names") && strncmp(kind, "dns", 3) != 0 && strcmp(kind, "http") != 0);
}

static void print_reachable(const json_t *row)
{
    printf("  ");
    target(row);
    printf("rule ");
    cut(field(row, "rule"));
    printf(": ");
    cut(field(row, "why"));
    putchar('\n');
}

/* Each thing that a rule opens once, in its own words. */
static void list_reachable(const struct view *v)
{
    json_t *said = json_object();
    const json_t *row;
    size_t i, n = 0;
    int pass;

    printf("\nreachable, and bytes arrived\n");
    for (pass = 0; pass < 2; pass++)
        json_array_foreach(v->rows, i, row)
        {
            auto_free char *key = NULL;
            if (!has(row, "pass", "allow") || (!pass && !speaks_for_its_rule(row)) ||
                (pass && json_object_get(said, field(row, "rule"))))
                continue;
            if (asprintf(&key, "%s %s", field(row, "rule"), field(row, "why")) < 0 ||
                json_object_get(said, key))
                continue;
            json_object_set_new(said, key, json_true());
            json_object_set_new(said, field(row, "rule"), json_true());
            if (++n <= LINES_MAX)
                print_reachable(row);
        }
    more(n, "ways that rules open");
    if (!n)
        puts("  nothing");
    json_decref(said);
}

/* One line for each group, in the order of the matrix. */
static void list_closed(const struct view *v)
{
    json_t *counts = json_object(), *words = json_object(), *count;
    const char *group;
    const json_t *row;
    size_t i;

    json_array_foreach(v->rows, i, row)
    {
        const char *why = field(row, "why");
        const char *had;
        group = field(row, "group");
        if (!has(row, "pass", "deny"))
            continue;
        json_object_set_new(counts, group, json_integer(json_int(counts, group) + 1));
        had = json_str(words, group);
        if (!strstr(had, why) && strlen(had) + strlen(why) < 110)
            json_object_set_new(words, group, json_sprintf("%s%s%s", had, *had ? "; " : "", why));
    }
    printf("\nproved closed, each with a twin that did get through\n");
    json_object_foreach(counts, group, count)
    {
        printf("  %-12.12s %4lld   ", group, (long long)json_integer_value(count));
        cut(json_str(words, group));
        putchar('\n');
    }
    json_decref(counts);
    json_decref(words);
}

static const char *loud(const char *verdict)
{
    return !strcmp(verdict, "pass") ? "PASS" : !strcmp(verdict, "fail") ? "FAIL" : "NOT MEASURED";
}

static void print_table(const struct view *v)
{
    const json_t *s = v->summary, *bound = json_object_get(s, "bound");
    const json_t *backend = json_object_get(bound, "backend");

    printf("%s  cell ", loud(json_str(s, "verdict")));
    cut(json_str(bound, "cell"));
    printf(", backend ");
    cut(json_str(backend, "name"));
    printf(", policy ");
    cut(json_str(bound, "policy"));
    printf(", generation %lld: %lld passed, %lld failed, %lld not measured, %.1f s\n",
           (long long)json_int(bound, "generation"), (long long)json_int(s, "pass"),
           (long long)json_int(s, "fail"), (long long)json_int(s, "not_measured"),
           (double)json_int(s, "took_ms") / 1000);
    if (json_int(s, "beyond"))
        printf("\nnot even tried: %lld rows more than one measurement holds\n",
               (long long)json_int(s, "beyond"));
    list(v, "FAILED", "fail");
    list(v, "not measured, so not known", "not_measured");
    list_reachable(v);
    list_closed(v);
}

static int report_print(const struct options *o, json_t *summary)
{
    auto_free char *text = NULL;
    const char *file = json_str(summary, "file");
    struct view v = {.summary = summary};
    json_t *whole;
    size_t len;
    int r = read_file_at(AT_FDCWD, file, REPORT_MAX, &text, &len);

    if (r < 0)
        return fail(cli_err, r, "reach: reading %s: %s", file, strerror(-r));
    whole = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    v.rows = json_object_get(whole, "rows");
    if (!json_is_array(v.rows)) {
        json_decref(whole);
        return fail(cli_err, -EBADMSG, "reach: %s holds no rows", file);
    }
    if (o->json) {
        json_object_set(summary, "rows", json_object_get(whole, "rows"));
        json_object_del(summary, "file");
        r = print_json(summary);
    } else {
        print_table(&v);
    }
    json_decref(whole);
    if (r < 0)
        return r;
    return !strcmp(json_str(summary, "verdict"), "pass")   ? 0
           : !strcmp(json_str(summary, "verdict"), "fail") ? 1
                                                           : 2;
}

static int measure(const struct options *o, struct client *cl)
{
    json_t *summary = NULL, *args = json_pack("{s:I}", "ms", (json_int_t)(o->timeout / 1000000u));
    int r = client_call(cl, "reach", args, &summary, NULL, NULL, NULL, cli_err);

    if (r == 0)
        r = report_print(o, summary);
    json_decref(summary);
    json_decref(args);
    return r;
}

/* A cell that exists for this question; it goes with this process, whatever happens. */
static int measure_new(const struct options *o)
{
    struct options cell = *o;
    json_t *request, *force = json_pack("{s:b}", "force", 1);
    struct config *c = NULL;
    struct client *cl = NULL;
    int r;

    cell.timeout = 0; /* the measurement's, not the cell's */
    request = request_build(&cell, 0, NULL, 0);
    r = request ? cli_config(o, &c) : cli_err->code;

    if (r == 0)
        r = client_spawn(c, &cl, cli_err);
    json_object_set_new(request, "lease", json_true());
    json_object_set_new(request, "start", json_true());
    if (r == 0)
        r = client_call(cl, "create", request, NULL, NULL, NULL, NULL, cli_err);
    if (r == 0) {
        struct errbuf eb;
        r = measure(o, cl);
        client_call(cl, "rm", force, NULL, NULL, NULL, NULL, errbuf_init(&eb));
    }
    json_decref(request);
    json_decref(force);
    client_free(cl);
    config_free(c);
    return r;
}

int verb_reach(const struct options *o, int argc, char **argv)
{
    int made = o->policy || o->backend || o->image || o->class;
    struct config *c;
    struct client *cl;
    int r;

    if (argc && made)
        return fail(cli_err, -EINVAL,
                    "reach: a cell, or --policy, --class, --backend and --image "
                    "for a throw-away cell; not both");
    if (!argc && !made)
        return fail(cli_err, -EINVAL, "reach: needs a cell, or --policy for a throw-away cell");
    if (!argc)
        return measure_new(o);
    r = cli_connect(o, argv[0], &c, &cl);
    if (r < 0)
        return r;
    r = measure(o, cl);
    client_free(cl);
    config_free(c);
    return r;
}
