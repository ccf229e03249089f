/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * request - options to a create request and to the fields of an exec. Only what is wrong here
 * whatever the cell is refused here (a malformed mount); all else is the warden's to judge, once.
 */
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "cli.h"
#include "mounts.h"

/* "NAME=VALUE", or "NAME" taken from this process; malloc. NULL: not set here, or not a name. */
static char *env_entry(const char *arg)
{
    const char *value = strchr(arg, '=');
    char *out = NULL;

    if (value)
        return value == arg ? NULL : strdup(arg);
    value = *arg ? getenv(arg) : NULL;
    if (!value || asprintf(&out, "%s=%s", arg, value) < 0)
        return NULL;
    return out;
}

static int add_env(const struct options *o, json_t *env)
{
    size_t i;

    for (i = 0; i < o->env.n; i++) {
        auto_free char *entry = env_entry(o->env.v[i]);
        if (!entry && (strchr(o->env.v[i], '=') || !*o->env.v[i]))
            return fail(cli_err, -EINVAL, "--env \"%s\": expected NAME=VALUE or NAME", o->env.v[i]);
        if (entry && json_array_append_new(env, json_string(entry)) < 0)
            return fail(cli_err, -EINVAL, "--env %s: not UTF-8", o->env.v[i]);
    }
    return 0;
}

static int add_mounts(const struct options *o, json_t *mounts)
{
    struct mount_arg m;
    size_t i;

    for (i = 0; i < o->mounts.n; i++) {
        int r = mount_parse(o->mounts.v[i], &m, cli_err);
        if (r < 0)
            return r;
        if (json_array_append_new(mounts, json_pack("{s:s, s:s, s:b}", "source", m.source, "target",
                                                    m.target, "rw", m.writable)) < 0)
            return fail(cli_err, -EINVAL, "--mount %s: not UTF-8", o->mounts.v[i]);
    }
    return 0;
}

json_t *request_limits_given(const struct options *o)
{
    json_t *limits = json_object();
    const struct {
        const char *name;
        uint64_t value;
    } given[] = {{"memory", o->memory},       {"cpu_millis", o->cpu_millis},
                 {"pids", o->pids},           {"disk", o->disk},
                 {"io_read_bps", o->io_read}, {"io_write_bps", o->io_write},
                 {"wall_ns", o->timeout},     {"idle_ns", o->idle}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(given); i++)
        if (given[i].value)
            json_object_set_new(limits, given[i].name, json_integer((json_int_t)given[i].value));
    return limits;
}

/* A word names a policy; what has a '/' or ends in .json is a file, sent by its absolute path. */
static int add_policy(const struct options *o, json_t *request)
{
    char real[PATH_MAX];
    size_t n = o->policy ? strlen(o->policy) : 0;

    if (!o->policy)
        return 0;
    if (!strchr(o->policy, '/') && (n < 6 || strcmp(o->policy + n - 5, ".json")))
        return json_object_set_new(request, "policy", json_string(o->policy));
    if (!realpath(o->policy, real))
        return fail(cli_err, -errno, "--policy %s: %s", o->policy, strerror(errno));
    return json_object_set_new(request, "policy_file", json_string(real));
}

/* "tar:x.tar" and "dir:x" of the user's directory, made absolute: the warden lives in another. */
static int add_image(const struct options *o, json_t *request)
{
    const char *colon = o->image ? strchr(o->image, ':') : NULL;
    auto_free char *name = NULL;
    char real[PATH_MAX];

    if (!o->image)
        return 0;
    if (!colon || colon[1] == '/' || !colon[1] || strchr(colon, '@') ||
        !strncmp(o->image, "sha256:", 7))
        return json_object_set_new(request, "image", json_string(o->image));
    if (!realpath(colon + 1, real))
        return fail(cli_err, -errno, "--image %s: %s", o->image, strerror(errno));
    if (asprintf(&name, "%.*s:%s", (int)(colon - o->image), o->image, real) < 0) {
        name = NULL;
        return fail(cli_err, -ENOMEM, "out of memory");
    }
    return json_object_set_new(request, "image", json_string(name));
}

static int add_strings(const struct options *o, json_t *request)
{
    const struct {
        const char *name, *value;
    } given[] = {{"backend", o->backend}, {"class", o->class},     {"name", o->name},
                 {"user", o->user},       {"workdir", o->workdir}, {"hostname", o->hostname},
                 {"kernel", o->kernel}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(given); i++)
        if (given[i].value &&
            json_object_set_new(request, given[i].name, json_string(given[i].value)) < 0)
            return fail(cli_err, -EINVAL, "--%s: not UTF-8", given[i].name);
    return 0;
}

json_t *request_build(const struct options *o, int argc, char **argv, int detach)
{
    json_t *env = json_array(), *mounts = json_array(), *args = json_array(),
           *limits = request_limits_given(o);
    json_t *request = json_pack("{s:o, s:o, s:o, s:o}", "env", env, "mounts", mounts, "argv", args,
                                "limits", limits);
    int i, r;

    if (!request) {
        fail(cli_err, -ENOMEM, "out of memory");
        return NULL;
    }
    r = add_env(o, env);
    if (r == 0)
        r = add_mounts(o, mounts);
    if (r == 0)
        r = add_policy(o, request);
    if (r == 0)
        r = add_image(o, request);
    if (r == 0)
        r = add_strings(o, request);
    for (i = 0; r == 0 && i < argc; i++)
        if (json_array_append_new(args, json_string(argv[i])) < 0)
            r = fail(cli_err, -EINVAL, "argument %d of the command is not UTF-8", i);
    if (detach)
        json_object_set_new(request, "detach", json_true());
    if (o->readonly)
        json_object_set_new(request, "readonly", json_true());
    if (r < 0) {
        json_decref(request);
        return NULL;
    }
    return request;
}

static void add_terminal(struct buf *b)
{
    const char *term = getenv("TERM");
    auto_free char *entry = NULL;
    struct winsize w;

    field_add_u32(b, CELLA_TAG_TTY, 1);
    if (ioctl(0, TIOCGWINSZ, &w) == 0 || ioctl(1, TIOCGWINSZ, &w) == 0) {
        field_add_u32(b, CELLA_TAG_ROWS, w.ws_row);
        field_add_u32(b, CELLA_TAG_COLS, w.ws_col);
    }
    if (term && strlen(term) < 64 && asprintf(&entry, "TERM=%s", term) >= 0)
        field_add_str(b, CELLA_TAG_ENV, entry);
}

int exec_fields(const struct options *o, int argc, char **argv, int full, struct buf *ret)
{
    size_t i;
    int n;

    field_add_u32(ret, CELLA_TAG_OP, CELLA_OP_EXEC);
    for (n = 0; n < argc; n++)
        field_add_str(ret, CELLA_TAG_ARG, argv[n]);
    for (i = 0; full && i < o->env.n; i++) {
        auto_free char *entry = env_entry(o->env.v[i]);
        if (!entry && strchr(o->env.v[i], '='))
            return fail(cli_err, -EINVAL, "--env \"%s\": expected NAME=VALUE or NAME", o->env.v[i]);
        if (entry)
            field_add_str(ret, CELLA_TAG_ENV, entry);
    }
    if (full && o->user)
        field_add_str(ret, CELLA_TAG_USER, o->user);
    if (full && o->workdir)
        field_add_str(ret, CELLA_TAG_CWD, o->workdir);
    if (full && o->timeout)
        field_add_u64(ret, CELLA_TAG_TIMEOUT_MS, (o->timeout + 999999) / 1000000);
    if (o->tty)
        add_terminal(ret);
    if (o->interactive)
        field_add_u32(ret, CELLA_TAG_STDIN, 1);
    return ret->oom ? fail(cli_err, -ENOMEM, "out of memory") : 0;
}
