/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* ps, inspect - what cells there are, from their records; inspect asks the warden when it lives. */
#include <time.h>

#include "cli.h"

struct listing {
    const struct options *o;
    const char *state_dir;
    json_t *json;
    int rows;
};

static void age_text(int64_t created, char out[32])
{
    int64_t s = (int64_t)(wall_ns() / 1000000000u) - created;

    if (created <= 0 || s < 0)
        snprintf(out, 32, "-");
    else if (s < 120)
        snprintf(out, 32, "%llds", (long long)s);
    else if (s < 7200)
        snprintf(out, 32, "%lldm", (long long)(s / 60));
    else if (s < 172800)
        snprintf(out, 32, "%lldh", (long long)(s / 3600));
    else
        snprintf(out, 32, "%lldd", (long long)(s / 86400));
}

static void column(const char *text, int width)
{
    auto_free char *safe = safe_string(*text ? text : "-", strlen(*text ? text : "-"));

    printf("%-*.*s ", width, width < 40 ? 40 : width, safe);
}

/* A machine that waits for the next fork of a cell has no name of its own. */
static void name_text(const struct listing *l, const struct cell_info *info, char out[80])
{
    const char *of = json_str(info->json, "spare_of");
    struct cell_info parent;
    struct errbuf eb;

    snprintf(out, 80, "%s", info->name);
    if (!*of)
        return;
    snprintf(out, 80, "spare of %.12s", of);
    if (store_find(l->state_dir, of, &parent, errbuf_init(&eb)) == 0) {
        snprintf(out, 80, "spare of %s", parent.name);
        cell_info_fini(&parent);
    }
}

static int each_cell(void *ctx, const struct cell_info *info)
{
    struct listing *l = ctx;
    char age[32], name[80];
    json_t *row;

    if (!l->o->all && !info->alive)
        return 0;
    if (l->json) {
        row = info->json ? json_deep_copy(info->json) : json_object();
        json_object_set_new(row, "id", json_string(info->id));
        json_object_set_new(row, "state", json_string(info->state));
        json_object_set_new(row, "alive", json_boolean(info->alive));
        json_array_append_new(l->json, row);
        return 0;
    }
    if (!l->rows++)
        printf("%-14s %-20s %-8s %-12s %-12s %-12s %-12s %s\n", "ID", "NAME", "STATE", "CLASS",
               "BACKEND", "STRENGTH", "POLICY", "AGE");
    age_text(json_int(info->json, "created"), age);
    column(info->id, 14);
    name_text(l, info, name);
    column(name, 20);
    column(info->state, 8);
    column(json_str(info->json, "class"), 12);
    column(json_str(info->json, "backend"), 12);
    column(json_str(info->json, "strength"), 12);
    column(json_str(json_object_get(info->json, "policy"), "name"), 12);
    puts(age);
    return 0;
}

int verb_ps(const struct options *o, int argc, char **argv)
{
    struct listing l = {.o = o, .json = o->json ? json_array() : NULL};
    struct config *c;
    int r = cli_config(o, &c);

    (void)argc;
    (void)argv;
    if (r == 0) {
        l.state_dir = c->state_dir;
        r = store_list(c->state_dir, each_cell, &l, cli_err);
        config_free(c);
    }
    if (r >= 0 && o->json)
        r = print_json(l.json);
    json_decref(l.json);
    return r < 0 ? r : 0;
}

/* What the workload asked for and did not get, where the backend has a method that knows: <backend>.missing. */
static void add_missing(struct client *cl, json_t *result)
{
    struct errbuf eb;
    const char *backend = json_str(result, "backend");
    json_t *request, *answer = NULL;
    char method[96];

    snprintf(method, sizeof(method), "%s.missing", backend);
    request = json_pack("{s:s, s:{}}", "method", method, "args");
    if (request &&
        client_call(cl, "call", request, &answer, NULL, NULL, NULL, errbuf_init(&eb)) == 0)
        json_object_set(result, "missing", json_object_get(answer, "result"));
    json_decref(answer);
    json_decref(request);
}

int verb_inspect(const struct options *o, int argc, char **argv)
{
    struct cell_info info;
    struct client *cl = NULL;
    struct config *c;
    json_t *result = NULL;
    int r = cli_config(o, &c);

    (void)argc;
    if (r < 0)
        return r;
    r = store_find(c->state_dir, argv[0], &info, cli_err);
    if (r < 0) {
        config_free(c);
        return r;
    }
    if (info.alive) {
        r = client_connect(c, info.id, &cl, cli_err);
        if (r == 0)
            r = client_call(cl, "inspect", NULL, &result, NULL, NULL, NULL, cli_err);
        if (r == 0)
            add_missing(cl, result);
        client_free(cl);
    } else {
        result = info.json ? json_incref(info.json) : json_object();
        json_object_set_new(result, "state", json_string(info.state));
    }
    if (r == 0)
        r = print_json(result);
    json_decref(result);
    cell_info_fini(&info);
    config_free(c);
    return r;
}
