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
    if (req->detach && !json_array_size(req->argv))
        return fail(err, -EINVAL, "detach: needs a command");
    for (i = 0; req->user && req->user[i]; i++)
        if (isspace((unsigned char)req->user[i]) || i > 128)
            return fail(err, -EINVAL, "user \"%.64s\": must be uid, uid:gid, name or name:group",
                        req->user);
    return 0;
}

static int limit_get(const json_t *limits, const char *name, uint64_t least, uint64_t *ret,
                     struct cella_error *err)
{
    json_t *v = json_object_get(limits, name);

    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return fail(err, -EINVAL, "limits.%s: must be a whole number, 0 or more", name);
    if (json_integer_value(v) > 0 && (uint64_t)json_integer_value(v) < least)
        return fail(err, -ERANGE, "limits.%s: %lld is below the smallest that works, %llu", name,
                    (long long)json_integer_value(v), (unsigned long long)least);
    if (json_integer_value(v) > 0)
        *ret = (uint64_t)json_integer_value(v);
    return 0;
}

/* Request over class over built-in default. */
int request_limits(struct request *req, const struct config_class *class, struct cella_error *err)
{
    const json_t *given = json_object_get(req->root, "limits");
    struct config_limits l = class->limits;
    const struct {
        const char *name;
        uint64_t *at;
        uint64_t fallback, least; /* the least is that of the config */
    } table[] = {
        {"memory", &l.memory, 512ull << 20, 4 << 20},
        {"disk", &l.disk, 256ull << 20, 1 << 20},
        {"cpu_millis", &l.cpu_millis, 1000, 10},
        {"pids", &l.pids, 256, 1},
        {"io_read_bps", &l.io_read_bps, 0, 4 << 10},
        {"io_write_bps", &l.io_write_bps, 0, 4 << 10},
        {"wall_ns", &l.wall_ns, 600000000000ull, 1000000},
        {"idle_ns", &l.idle_ns, 0, 1000000},
    };
    const char *key;
    json_t *v;
    size_t i;
    int r;

    json_object_foreach((json_t *)(uintptr_t)given, key, v)
    {
        for (i = 0; i < ARRAY_LEN(table) && strcmp(table[i].name, key); i++)
            ;
        if (i == ARRAY_LEN(table))
            return fail(err, -EINVAL, "limits.%s: no such limit", key);
    }
    for (i = 0; i < ARRAY_LEN(table); i++) {
        if (!*table[i].at)
            *table[i].at = table[i].fallback;
        r = limit_get(given, table[i].name, table[i].least, table[i].at, err);
        if (r < 0)
            return r;
    }
    req->limits = l;
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
    {"policy", M_STRING, offsetof(struct request, policy)},
    {"policy_file", M_STRING, offsetof(struct request, policy_file)},
    {"user", M_STRING, offsetof(struct request, user)},
    {"workdir", M_STRING, offsetof(struct request, workdir)},
    {"hostname", M_STRING, offsetof(struct request, hostname)},
    {"snapshot", M_STRING, offsetof(struct request, snapshot)},
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

const char *request_image(const struct warden *w)
{
    return w->req.image ? w->req.image : w->class->image ? w->class->image : "host";
}
