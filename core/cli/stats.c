/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* stats, update, pause, resume, stop, rm, call - one question to a warden each. */
#include <time.h>

#include "cli.h"

static void row_size(const json_t *s, const char *key, const char *label)
{
    char text[32];

    if (!json_object_get(s, key))
        return;
    human_size((uint64_t)json_int(s, key), text);
    printf("%-14s %s\n", label, text);
}

static void row_time(const json_t *s, const char *key, const char *label)
{
    if (json_object_get(s, key))
        printf("%-14s %.3f s\n", label, (double)json_int(s, key) / 1e9);
}

static void row_count(const json_t *s, const char *key, const char *label)
{
    if (json_object_get(s, key))
        printf("%-14s %lld\n", label, (long long)json_int(s, key));
}

static int print_stats(const struct options *o, const json_t *s)
{
    const json_t *hit;
    size_t i;

    if (o->json)
        return print_json(s);
    row_time(s, "cpu_user_ns", "cpu user");
    row_time(s, "cpu_system_ns", "cpu system");
    row_size(s, "memory_bytes", "memory");
    row_size(s, "memory_peak_bytes", "memory peak");
    row_count(s, "pids", "pids");
    row_count(s, "pids_peak", "pids peak");
    row_size(s, "disk_bytes", "disk");
    row_size(s, "io_read_bytes", "read");
    row_size(s, "io_write_bytes", "written");
    row_count(s, "oom_kills", "oom kills");
    row_count(s, "pids_refused", "forks refused");
    json_array_foreach(json_object_get(s, "limit_hit"), i, hit)
        printf("%-14s %s\n", "limit hit", json_is_string(hit) ? json_string_value(hit) : "?");
    return 0;
}

int verb_stats(const struct options *o, int argc, char **argv)
{
    struct timespec second = {1, 0};
    struct config *c;
    struct client *cl;
    int r = cli_connect(o, argv[0], &c, &cl);

    (void)argc;
    if (r < 0)
        return r;
    do {
        json_t *s = NULL;
        r = client_call(cl, "stats", NULL, &s, NULL, NULL, NULL, cli_err);
        if (r == 0)
            r = print_stats(o, s);
        json_decref(s);
        fflush(stdout);
        if (r == 0 && o->stream) {
            nanosleep(&second, NULL);
            putchar('\n');
        }
    } while (r == 0 && o->stream && !ferror(stdout));
    client_free(cl);
    config_free(c);
    return r;
}

/* One call without interest in its result but success. */
static int simple_call(const struct options *o, const char *cell, const char *call)
{
    struct config *c;
    struct client *cl;
    int r = cli_connect(o, cell, &c, &cl);

    if (r < 0)
        return r;
    r = client_call(cl, call, NULL, NULL, NULL, NULL, NULL, cli_err);
    if (r < 0)
        fail_wrap(cli_err, "%s %s", call, cell);
    client_free(cl);
    config_free(c);
    return r;
}

int verb_pause(const struct options *o, int argc, char **argv)
{
    (void)argc;
    return simple_call(o, argv[0], "pause");
}

int verb_resume(const struct options *o, int argc, char **argv)
{
    (void)argc;
    return simple_call(o, argv[0], "resume");
}

/* The warden ended before it read what it was asked. In an orderly end it records how, or removes its cell, before its
   connections go, and holds its lock a moment longer. 1: *ret is what it left; 0: nothing is left; else it died. */
static int left_behind(const struct config *c, const char *id, struct cell_info *ret)
{
    const struct timespec moment = {0, 10000000};
    struct errbuf eb;
    int i, r;

    for (i = 0; i < 100; i++) {
        r = store_find(c->state_dir, id, ret, errbuf_init(&eb));
        if (r < 0)
            return r == -ENOENT ? 0 : r;
        if (!ret->alive && !strcmp(ret->state, "stopped"))
            return 1;
        cell_info_fini(ret);
        nanosleep(&moment, NULL);
    }
    return -EPIPE;
}

/* Of a call to a warden that lived a moment ago: nobody was there to answer. */
static int unanswered(int r)
{
    return r == -EPIPE || r == -ECONNREFUSED || r == -ENOTCONN || r == -ENOENT;
}

static int ask(const struct config *c, const char *id, const char *call, json_t *args,
               json_t **ret_summary)
{
    struct client *cl = NULL;
    int r = client_connect(c, id, &cl, cli_err);

    if (r == 0)
        r = client_call(cl, call, args, ret_summary, NULL, NULL, NULL, cli_err);
    client_free(cl);
    return r;
}

static json_t *summary_of(const struct cell_info *info)
{
    return json_incref(json_object_get(info->json, "summary"));
}

static int stop_asked(const struct config *c, const struct cell_info *info, json_t *args,
                      const char *cell, json_t **ret_summary)
{
    struct cell_info left;
    int r = ask(c, info->id, "stop", args, ret_summary), what;

    if (!info->alive || !unanswered(r) || (what = left_behind(c, info->id, &left)) < 0)
        return r;
    if (what == 0)
        return fail(cli_err, -ENOENT, "cell %s ended and was removed meanwhile", cell);
    *ret_summary = summary_of(&left);
    cell_info_fini(&left);
    return 0;
}

/* A dead one's warden is gone, and only gc knows what it left. */
static int rm_stopped(const struct config *c, const struct cell_info *info, const char *cell,
                      json_t **ret_summary)
{
    if (strcmp(info->state, "stopped") != 0)
        return fail(cli_err, -EBUSY,
                    "cell %s is dead: its warden is gone; \"cella gc\" cleans up and removes it",
                    cell);
    *ret_summary = summary_of(info);
    return cell_remove_stopped(c, info, cli_err);
}

static int rm_asked(const struct config *c, const struct cell_info *info, json_t *args,
                    const char *cell, json_t **ret_summary)
{
    struct cell_info left;
    int r, what;

    if (!info->alive)
        return rm_stopped(c, info, cell, ret_summary);
    r = ask(c, info->id, "rm", args, ret_summary);
    if (!unanswered(r) || (what = left_behind(c, info->id, &left)) < 0)
        return r;
    if (what == 0) /* by somebody else; it is gone, as it was asked */
        return 0;
    r = rm_stopped(c, &left, cell, ret_summary);
    cell_info_fini(&left);
    return r;
}

/* `asked`: what is done about the cell that was found. */
static int end_one(const struct options *o, const char *cell, json_t *own_args,
                   int (*asked)(const struct config *c, const struct cell_info *info, json_t *args,
                                const char *cell, json_t **ret_summary))
{
    json_t *summary = NULL;
    struct cell_info info;
    struct config *c;
    int r = cli_config(o, &c);

    if (r == 0) {
        r = store_find(c->state_dir, cell, &info, cli_err);
        if (r == 0) {
            r = asked(c, &info, own_args, cell, &summary);
            cell_info_fini(&info);
        }
        config_free(c);
    }
    json_decref(own_args);
    if (r == 0 && o->json && summary)
        r = print_json(summary);
    json_decref(summary);
    return r;
}

static int stop_one(const struct options *o, const char *cell)
{
    json_int_t ms = o->grace ? (json_int_t)((o->grace + 999999) / 1000000) : 10000;

    return end_one(o, cell, json_pack("{s:b, s:I}", "kill", o->kill, "timeout_ms", ms), stop_asked);
}

static int rm_one(const struct options *o, const char *cell)
{
    return end_one(o, cell, json_pack("{s:b}", "force", o->force), rm_asked);
}

/* Each cell is tried; the first failure is the one that main() reports, the others are said here.
 */
static int each_named(const struct options *o, int argc, char **argv,
                      int (*one)(const struct options *o, const char *cell))
{
    int i, r, first = 0;

    for (i = 0; i < argc; i++) {
        r = one(o, argv[i]);
        if (r < 0 && i + 1 < argc) {
            cli_say("%s", cli_errbuf.text);
            first = CLI_FAILED;
        } else if (r < 0) {
            return r;
        }
    }
    return first;
}

static int update_one(const struct options *o, const char *cell)
{
    json_t *args = request_limits_given(o), *reply = NULL;
    struct config *c;
    struct client *cl;
    int r = cli_connect(o, cell, &c, &cl);

    if (r == 0) {
        r = client_call(cl, "update", args, &reply, NULL, NULL, NULL, cli_err);
        client_free(cl);
        config_free(c);
    }
    json_decref(args);
    if (r == 0 && o->json)
        r = print_json(reply);
    json_decref(reply);
    return r < 0 ? fail_wrap(cli_err, "cell %s", cell) : r;
}

int verb_update(const struct options *o, int argc, char **argv)
{
    return each_named(o, argc, argv, update_one);
}

int verb_stop(const struct options *o, int argc, char **argv)
{
    return each_named(o, argc, argv, stop_one);
}

int verb_rm(const struct options *o, int argc, char **argv)
{
    return each_named(o, argc, argv, rm_one);
}

int verb_call(const struct options *o, int argc, char **argv)
{
    json_error_t at;
    json_t *args = json_loads(argc > 2 ? argv[2] : "{}", JSON_REJECT_DUPLICATES, &at), *request,
           *result = NULL;
    struct config *c;
    struct client *cl;
    int r;

    if (!json_is_object(args)) {
        r = args ? fail(cli_err, -EINVAL,
                        "call: the arguments must be a JSON object, such as '{\"mib\":64}'")
                 : fail(cli_err, -EINVAL, "call: arguments, column %d: %s", at.column, at.text);
        json_decref(args);
        return r;
    }
    request = json_pack("{s:s, s:o}", "method", argv[1], "args", args);
    r = request ? cli_connect(o, argv[0], &c, &cl)
                : fail(cli_err, -EINVAL, "call: the method is not UTF-8");
    if (r == 0) {
        r = client_call(cl, "call", request, &result, NULL, NULL, NULL, cli_err);
        if (r == 0)
            r = print_json(json_object_get(result, "result"));
        client_free(cl);
        config_free(c);
    }
    json_decref(request);
    json_decref(result);
    return r;
}
