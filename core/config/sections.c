/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sections - what each top-level key of the file means.
 *
 * The tables at the bottom are the reference of every key; docs/config.md follows them. Sections
 * are read in the table's order, so a class can be checked against the policies above it. What is
 * left out gets the default that is written here and nowhere else. "floor" has no default in a
 * class: forgetting it must not give the weakest wall. Threads: no state.
 */
#include <sys/stat.h>

#include "plugin.h"
#include "sections.h"

#define ITEMS_MAX 1024
#define POLICY_MAX (1u << 20)

static const char *const overflows[] = {"block", "drop", "fail-closed", NULL};

/* ----------------------------------------------------------------- plugins */

/* Directory of the configuration file, with which relative paths start. */
static char *beside_config(struct reader *r, const char *path)
{
    const char *slash = strrchr(r->config->file, '/');
    char *out = NULL;

    if (path[0] == '/' || !slash)
        return strdup(path);
    if (asprintf(&out, "%.*s/%s", (int)(slash - r->config->file), r->config->file, path) < 0)
        return NULL;
    return out;
}

static int read_plugin_path(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                            void *member)
{
    auto_free char *path = NULL;
    const char *text;
    struct stat st;
    int bare;

    if (!json_is_string(v) || !*json_string_value(v))
        return read_string(r, k, pointer, v, member);
    text = json_string_value(v);
    bare = !strchr(text, '/');
    path = bare ? path_join(plugin_dir(), text) : beside_config(r, text);
    if (!path)
        return fail_memory(r);
    if (stat(path, &st) < 0)
        return json_at_fail(r->doc, pointer, 0, r->err, "cannot use plugin \"%.256s\": %s: %s%s",
                            text, path, strerror(errno),
                            bare ? " (a bare name is looked up in the plugin directory)" : "");
    if (!S_ISREG(st.st_mode))
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "cannot use plugin \"%.256s\": %s is not a regular file", text, path);
    *(char **)member = steal_ptr(&path);
    return 0;
}

static int read_options(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                        void *member)
{
    (void)k;
    if (!json_is_object(v))
        return fail_type(r, pointer, "an object", v);
    *(json_t **)member = v;
    return 0;
}

static const struct key plugin_keys[] = {
    {"path", read_plugin_path, offsetof(struct config_plugin, path), .required = 1},
    {"config", read_options, offsetof(struct config_plugin, options)},
};

static int read_plugin(struct reader *r, const char *pointer, json_t *v, void *item)
{
    struct config_plugin *p = item, *q;
    int ret;

    p->pointer = strdup(pointer);
    if (!p->pointer)
        return fail_memory(r);
    ret = read_object(r, pointer, v, plugin_keys, ARRAY_LEN(plugin_keys), p);
    for (q = r->config->plugins; ret == 0 && q < p; q++)
        if (!strcmp(q->path, p->path))
            ret = json_at_fail(r->doc, pointer, 0, r->err, "plugin %s is already listed at %s",
                               p->path, q->pointer);
    return ret;
}

static int read_plugins(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                        void *member)
{
    (void)k;
    (void)member;
    return read_array(r, pointer, v, sizeof(struct config_plugin), ITEMS_MAX, read_plugin,
                      &r->config->plugins, &r->config->n_plugins);
}

/* ---------------------------------------------------------------- policies */

static int read_policy_file(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                            void *member)
{
    struct config_policy *p = member;
    auto_free char *path = NULL, *text = NULL;
    struct errbuf eb;
    size_t len;

    if (!json_is_string(v) || !*json_string_value(v))
        return read_string(r, k, pointer, v, &p->file);
    path = beside_config(r, json_string_value(v));
    if (!path)
        return fail_memory(r);
    if (trusted_file_read(path, POLICY_MAX, &text, &len, errbuf_init(&eb)) < 0)
        return json_at_fail(r->doc, pointer, 0, r->err, "cannot use this policy file: %s", eb.text);
    p->file = steal_ptr(&path);
    p->document = steal_ptr(&text);
    return 0;
}

static const struct key policy_keys[] = {
    {"file", read_policy_file, 0, .required = 1},
};

static int read_policy(struct reader *r, const char *pointer, const char *name, json_t *v,
                       void *item)
{
    struct config_policy *p = item;

    if (!strcmp(name, "none") || !strcmp(name, "deny"))
        return json_at_fail(r->doc, pointer, 1, r->err,
                            "\"%s\" is a built-in policy; choose another name", name);
    p->name = strdup(name);
    if (!p->name)
        return fail_memory(r);
    return read_object(r, pointer, v, policy_keys, ARRAY_LEN(policy_keys), p);
}

static int read_policies(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                         void *member)
{
    (void)k;
    (void)member;
    return read_map(r, pointer, v, sizeof(struct config_policy), ITEMS_MAX, read_policy,
                    &r->config->policies, &r->config->n_policies);
}

/* ----------------------------------------- audit, deciders, secrets, mounts */

static int read_overflow(struct reader *r, const char *pointer, json_t *v,
                         enum config_overflow *ret)
{
    static const struct key k = {"overflow", NULL, 0, .words = overflows};
    int word = 0, e = read_word(r, &k, pointer, v, &word);

    if (e == 0)
        *ret = (enum config_overflow)((word + 1) * 1000);
    return e;
}

/* An entry that names a plugin: {KEY: NAME, …}. The plugin's own options stay unread until its table is
   known; the caller takes out of *ret_options what is not one. */
static int read_entry(struct reader *r, const char *pointer, json_t *v, const char *key,
                      char **ret_pointer, char **ret_name, json_t **ret_options)
{
    auto_free char *at_name = pointer_child(pointer, key);
    int ret;

    *ret_pointer = strdup(pointer);
    if (!*ret_pointer || !at_name)
        return fail_memory(r);
    if (!json_is_object(v))
        return fail_type(r, pointer, "an object", v);
    if (!json_object_get(v, key))
        return json_at_fail(r->doc, pointer, 0, r->err, "key \"%s\" is missing", key);
    ret = read_name(r, NULL, at_name, json_object_get(v, key), ret_name);
    if (ret < 0)
        return ret;
    *ret_options = json_copy(v);
    if (!*ret_options)
        return fail_memory(r);
    json_object_del(*ret_options, key);
    return 0;
}

static int read_sink(struct reader *r, const char *pointer, json_t *v, void *item)
{
    struct config_sink *s = item;
    auto_free char *at_overflow = pointer_child(pointer, "overflow");
    int ret;

    s->overflow = OVERFLOW_FAIL_CLOSED;
    if (!at_overflow)
        return fail_memory(r);
    ret = read_entry(r, pointer, v, "sink", &s->pointer, &s->name, &s->options);
    if (ret == 0 && json_object_get(v, "overflow"))
        ret = read_overflow(r, at_overflow, json_object_get(v, "overflow"), &s->overflow);
    if (ret == 0)
        json_object_del(s->options, "overflow");
    return ret;
}

static int read_secret(struct reader *r, const char *pointer, json_t *v, void *item)
{
    struct config_secret *s = item;

    return read_entry(r, pointer, v, "provider", &s->pointer, &s->name, &s->options);
}

static int read_secrets(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                        void *member)
{
    (void)k;
    (void)member;
    return read_array(r, pointer, v, sizeof(struct config_secret), 16, read_secret,
                      &r->config->secrets, &r->config->n_secrets);
}

static int read_audit(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member)
{
    (void)k;
    (void)member;
    if (json_is_array(v) && json_array_size(v) == 0)
        return json_at_fail(
            r->doc, pointer, 0, r->err,
            "no sink is left; name at least one, or leave the key out for \"audit-jsonl\"");
    return read_array(r, pointer, v, sizeof(struct config_sink), 16, read_sink, &r->config->sinks,
                      &r->config->n_sinks);
}

static int read_deciders(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                         void *member)
{
    (void)k;
    (void)member;
    return read_names(r, pointer, v, &r->config->deciders, &r->config->n_deciders);
}

static const struct key mount_keys[] = {
    {"path", read_path, offsetof(struct config_mount_rule, path), .required = 1},
    {"writable", read_bool, offsetof(struct config_mount_rule, writable)},
};

static int read_mount(struct reader *r, const char *pointer, json_t *v, void *item)
{
    struct config_mount_rule *m = item, *q;
    int ret = read_object(r, pointer, v, mount_keys, ARRAY_LEN(mount_keys), m);

    for (q = r->config->mounts; ret == 0 && q < m; q++)
        if (!strcmp(q->path, m->path))
            ret = json_at_fail(r->doc, pointer, 0, r->err, "path \"%.256s\" is listed twice",
                               m->path);
    return ret;
}

static int read_mounts(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                       void *member)
{
    (void)k;
    (void)member;
    return read_array(r, pointer, v, sizeof(struct config_mount_rule), ITEMS_MAX, read_mount,
                      &r->config->mounts, &r->config->n_mounts);
}

static int read_version(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                        void *member)
{
    (void)k;
    (void)member;
    if (!json_is_integer(v))
        return fail_type(r, pointer, "the number 1", v);
    if (json_integer_value(v) != 1)
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "version %lld is unknown; this cella reads version 1",
                            (long long)json_integer_value(v));
    return 0;
}

#define TOP(name) offsetof(struct config, name)
static const struct key top_keys[] = {
    {"version", read_version, 0, .required = 1},
    {"state_dir", read_path, TOP(state_dir)},
    {"uplink", read_path, TOP(uplink)},
    {"plugins", read_plugins, 0},
    {"policies", read_policies, 0},
    {"classes", read_classes, 0},
    {"audit", read_audit, 0},
    {"deciders", read_deciders, 0},
    {"secrets", read_secrets, 0},
    {"mounts", read_mounts, 0},
};

int sections_read(struct reader *r)
{
    return read_object(r, "", r->doc->root, top_keys, ARRAY_LEN(top_keys), r->config);
}

static int default_sink(struct config *c)
{
    c->sinks = calloc(1, sizeof(*c->sinks));
    if (!c->sinks)
        return -ENOMEM;
    c->n_sinks = 1;
    c->sinks[0].name = strdup("audit-jsonl");
    c->sinks[0].pointer = strdup("/audit/0");
    c->sinks[0].overflow = OVERFLOW_FAIL_CLOSED;
    return c->sinks[0].name && c->sinks[0].pointer ? 0 : -ENOMEM;
}

int sections_defaults(struct config *c)
{
    const char *env = secure_getenv("CELLA_STATE_DIR");

    if (!c->state_dir)
        c->state_dir = strdup(env && *env ? env : "/var/lib/cella");
    if (!c->state_dir)
        return -ENOMEM;
    if (!c->n_classes) {
        c->classes = calloc(1, sizeof(*c->classes));
        if (!c->classes)
            return -ENOMEM;
        c->n_classes = 1;
        if (class_defaults(&c->classes[0], "default", "/classes/default") < 0)
            return -ENOMEM;
    }
    return c->n_sinks ? 0 : default_sink(c);
}
