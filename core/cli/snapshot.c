/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* snapshot, restore - cells saved, and made again. */
#include <fcntl.h>
#include <time.h>

#include "cli.h"
#include "copies.h"

void copies_note(const char *text)
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

    copies_note("taking a snapshot");
    r = snapshot_take(c, cell, name, 0, &s, cli_err);
    copies_note("");
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

json_t *copies_request(const struct options *o, const struct snapshot *s)
{
    json_t *request = snapshot_request(s);

    if (!request) {
        fail(cli_err, -EBADMSG, "snapshot %s: its manifest is damaged", s->id);
        return NULL;
    }
    if (request_override(o, request) < 0) {
        json_decref(request);
        return NULL;
    }
    json_object_set_new(request, "start", json_true());
    return request;
}

int copies_restore(const struct options *o, struct config *c, const struct snapshot *s,
                   struct stages *stages, json_t **ret_created, int *ret_exit)
{
    struct stages unheard = {0};
    json_t *request = copies_request(o, s);
    struct client *cl = NULL;
    int r = request ? 0 : cli_err->code;

    stages = stages ? stages : &unheard;
    stages_next(stages, "spawn");
    if (r == 0)
        r = client_spawn(c, &cl, cli_err);
    if (r == 0)
        r = client_call(cl, "create", request, ret_created, ret_exit, stages_listener(stages),
                        stages, cli_err);
    json_decref(request);
    client_free(cl);
    return r;
}

int verb_restore(const struct options *o, int argc, char **argv)
{
    struct snapshot s = SNAPSHOT_INIT;
    struct stages stages = {.on = o->timings};
    struct config *c;
    json_t *created = NULL;
    int r, status = CLI_FAILED;

    (void)argc;
    stages_next(&stages, "snapshot");
    r = cli_config(o, &c);
    if (r < 0)
        return r;
    r = snapshot_find(c->state_dir, argv[0], &s, cli_err);
    if (r == 0)
        r = manifest_check(s.manifest, cli_err);
    if (r == 0)
        r = copies_restore(o, c, &s, &stages, &created, &status);
    if (r == 0)
        stages_print(&stages);
    if (r == 0 && o->json)
        r = print_json(created);
    else if (r == 0)
        r = printf("%s\n", json_str(created, "name")) < 0;
    json_decref(created);
    snapshot_close(&s);
    config_free(c);
    return r;
}
