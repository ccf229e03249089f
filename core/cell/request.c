/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * request - the create request of core/cell/README.md, checked once. The client is trusted with its
 * own cells but not to be correct: unknown members and wrong types are refused by name.
 */
#include <ctype.h>

#include "warden.h"

enum member_type { M_STRING, M_BOOL, M_OBJECT, M_ARRAY };

struct member {
    const char *name;
    enum member_type type;
    size_t offset;
};

static int member_set(struct request *req, const struct member *m, json_t *v)
{
    void *at = (char *)req + m->offset;

    switch (m->type) {
    case M_STRING:
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
            return -EINVAL;
        *(const char **)at = json_string_value(v);
        return 0;
    case M_BOOL:
        if (!json_is_boolean(v))
            return -EINVAL;
        *(int *)at = json_is_true(v);
        return 0;
    case M_OBJECT:
    case M_ARRAY:
        if (m->type == M_OBJECT ? !json_is_object(v) : !json_is_array(v))
            return -EINVAL;
        *(json_t **)at = v;
        return 0;
    }
    return -EINVAL;
}

static int strings_only(const json_t *array)
{
    size_t i;
    json_t *v;

    json_array_foreach(array, i, v) if (!json_is_string(v) || strlen(json_string_value(v)) !=
                                                                  json_string_length(v)) return 0;
    return 1;
}

static int env_valid(const json_t *env)
{
    size_t i;
    json_t *v;

    json_array_foreach(env, i, v)
    {
        const char *s = json_string_value(v), *eq = strchr(s, '=');
        if (!eq || eq == s)
            return 0;
    }
    return 1;
}

static int request_check(const struct request *req, struct cella_error *err)
{
    size_t i;

    if (req->name && !name_valid(req->name))
        return fail(err, -EINVAL,
                    "name \"%s\": letters, digits, '_', '.', '-', at most 63, starting with a "
                    "letter or digit",
                    req->name);
    if (req->hostname && !name_valid(req->hostname))
        return fail(err, -EINVAL, "hostname \"%s\": letters, digits, '.', '-', at most 63",
                    req->hostname);
    if (req->workdir && req->workdir[0] != '/')
        return fail(err, -EINVAL, "workdir \"%s\": must be an absolute path in the cell",
                    req->workdir);
    if ((req->env && !strings_only(req->env)) || (req->argv && !strings_only(req->argv)))
        return fail(err, -EINVAL, "env and argv: must hold strings without NUL");
    if (req->env && !env_valid(req->env))
        return fail(err, -EINVAL, "env: each entry must be NAME=value");
    if (json_array_size(req->mounts) > CELL_MOUNTS_MAX)
        return fail(err, -E2BIG, "mounts: %zu given, at most %d", json_array_size(req->mounts),
                    CELL_MOUNTS_MAX);
    if (req->spare_of && (req->snapshot || req->start || req->argv || req->mounts || req->name))
        return fail(
            err, -EINVAL,
            "spare_of: a machine that is prepared for a fork has no name, command, mounts or "
            "snapshot yet");
    if (req->detach && !json_array_size(req->argv))
        return fail(err, -EINVAL, "detach: needs a command");
    for (i = 0; req->user && req->user[i]; i++)
        if (isspace((unsigned char)req->user[i]) || i > 128)
            return fail(err, -EINVAL, "user \"%.64s\": must be uid, uid:gid, name or name:group",
                        req->user);
    return 0;
}

static const struct limit_row {
    const char *name;
    size_t at;                /* in struct config_limits */
    uint64_t fallback, least; /* the least is that of the config */
    int running;              /* can be changed in a cell that runs */
} limit_rows[] = {
    {"memory", offsetof(struct config_limits, memory), 512ull << 20, 4 << 20, 1},
    {"disk", offsetof(struct config_limits, disk), 256ull << 20, 1 << 20, 0},
    {"cpu_millis", offsetof(struct config_limits, cpu_millis), 1000, 10, 1},
    {"pids", offsetof(struct config_limits, pids), 256, 1, 1},
    {"io_read_bps", offsetof(struct config_limits, io_read_bps), 0, 4 << 10, 1},
    {"io_write_bps", offsetof(struct config_limits, io_write_bps), 0, 4 << 10, 1},
    {"wall_ns", offsetof(struct config_limits, wall_ns), 600000000000ull, 1000000, 0},
    {"idle_ns", offsetof(struct config_limits, idle_ns), 0, 1000000, 0},
};

static const struct limit_row *limit_find(const char *name)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(limit_rows); i++)
        if (!strcmp(limit_rows[i].name, name))
            return &limit_rows[i];
    return NULL;
}

/* A 0 leaves it as it is. */
static int limit_set(struct config_limits *l, const struct limit_row *row, const json_t *v,
                     struct cella_error *err)
{
    json_int_t n = json_integer_value(v);

    if (!json_is_integer(v) || n < 0)
        return fail(err, -EINVAL, "limits.%s: must be a whole number, 0 or more", row->name);
    if (n > 0 && (uint64_t)n < row->least)
        return fail(err, -ERANGE, "limits.%s: %lld is below the smallest that works, %llu",
                    row->name, (long long)n, (unsigned long long)row->least);
    if (n > 0)
        *(uint64_t *)((char *)l + row->at) = (uint64_t)n;
    return 0;
}

/* Request over class over built-in default. */
int request_limits(struct request *req, const struct config_class *class, struct cella_error *err)
{
    const json_t *given = json_object_get(req->root, "limits");
    struct config_limits l = class->limits;
    const char *key;
    json_t *v;
    size_t i;
    int r;

    for (i = 0; i < ARRAY_LEN(limit_rows); i++) {
        uint64_t *at = (uint64_t *)((char *)&l + limit_rows[i].at);
        if (!*at)
            *at = limit_rows[i].fallback;
    }
    json_object_foreach((json_t *)(uintptr_t)given, key, v)
    {
        const struct limit_row *row = limit_find(key);
        r = row ? limit_set(&l, row, v, err) : fail(err, -EINVAL, "limits.%s: no such limit", key);
        if (r < 0)
            return r;
    }
    req->limits = l;
    return 0;
}

int limits_change(const json_t *given, struct config_limits *l, struct cella_error *err)
{
    struct config_limits is = *l;
    const char *key;
    json_t *v;
    int r;

    if (!json_object_size(given))
        return fail(err, -EINVAL, "no limit is given; memory, cpus, pids and io can be changed");
    json_object_foreach((json_t *)(uintptr_t)given, key, v)
    {
        const struct limit_row *row = limit_find(key);
        if (!row)
            return fail(err, -EINVAL, "limits.%s: no such limit", key);
        if (!row->running)
            return fail(err, -EINVAL, "limits.%s: a cell keeps it as it was made; make a new cell",
                        key);
        r = limit_set(&is, row, v, err);
        if (r < 0)
            return r;
    }
    *l = is;
    return 0;
}

void request_fini(struct request *req)
{
    json_decref(req->root);
    memset(req, 0, sizeof(*req));
}

static const struct member members[] = {
    {"name", M_STRING, offsetof(struct request, name)},
    {"class", M_STRING, offsetof(struct request, class)},
    {"backend", M_STRING, offsetof(struct request, backend)},
    {"image", M_STRING, offsetof(struct request, image)},
    {"kernel", M_STRING, offsetof(struct request, kernel)},
    {"policy", M_STRING, offsetof(struct request, policy)},
    {"policy_file", M_STRING, offsetof(struct request, policy_file)},
    {"user", M_STRING, offsetof(struct request, user)},
    {"workdir", M_STRING, offsetof(struct request, workdir)},
    {"hostname", M_STRING, offsetof(struct request, hostname)},
    {"snapshot", M_STRING, offsetof(struct request, snapshot)},
    {"spare_of", M_STRING, offsetof(struct request, spare_of)},
    {"readonly", M_BOOL, offsetof(struct request, readonly)},
    {"detach", M_BOOL, offsetof(struct request, detach)},
    {"lease", M_BOOL, offsetof(struct request, lease)},
    {"start", M_BOOL, offsetof(struct request, start)},
    {"env", M_ARRAY, offsetof(struct request, env)},
    {"argv", M_ARRAY, offsetof(struct request, argv)},
    {"mounts", M_ARRAY, offsetof(struct request, mounts)},
    {"options", M_OBJECT, offsetof(struct request, options)},
};

int request_parse(json_t *args, struct request *ret, struct cella_error *err)
{
    struct request req = {0};
    const char *key;
    json_t *v;
    size_t i;
    int r;

    if (!json_is_object(args))
        return fail(err, -EINVAL, "create: args must be an object");
    json_object_foreach(args, key, v)
    {
        if (!strcmp(key, "limits") && json_is_object(v))
            continue;
        for (i = 0; i < ARRAY_LEN(members) && strcmp(members[i].name, key); i++)
            ;
        if (i == ARRAY_LEN(members))
            return fail(err, -EINVAL, "create: no member \"%s\"", key);
        if (!json_is_null(v) && member_set(&req, &members[i], v) < 0)
            return fail(err, -EINVAL, "create: member \"%s\" has the wrong type", key);
    }
    r = request_check(&req, err);
    if (r < 0)
        return r;
    req.root = json_incref(args);
    *ret = req;
    return 0;
}

const char *request_kernel(const struct warden *w)
{
    return w->req.kernel ? w->req.kernel : w->class->kernel;
}

const char *request_image(const struct warden *w)
{
    return w->req.image ? w->req.image : w->class->image ? w->class->image : "host";
}
