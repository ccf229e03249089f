/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * catalog - plugins by kind and name: those the config lists, then the in-tree ones, which are
 * files named cella-<kind>-<name>.so in the plugin directory. The note tells the kind without
 * running anything of the object; only objects of the wanted kind are loaded.
 */
#include <fcntl.h>
#include <glob.h>

#include "warden.h"

static const char *kind_word(uint16_t kind)
{
    static const struct {
        uint16_t kind;
        const char *word;
    } words[] = {{CELLA_KIND_BACKEND, "backend"},
                 {CELLA_KIND_ENFORCER, "enforcer"},
                 {CELLA_KIND_DECIDER, "decider"},
                 {CELLA_KIND_SINK, "sink"},
                 {CELLA_KIND_SECRET, "secret"}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(words); i++)
        if (words[i].kind == kind)
            return words[i].word;
    return "plugin";
}

/* 1 = the object at path is of this kind, 0 = another kind, -errno. */
static int kind_is(const char *path, uint16_t kind, struct cella_error *err)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct cella_note note;
    int r;

    if (fd < 0)
        return fail(err, -errno, "plugin %s: %s", path, strerror(errno));
    r = plugin_note_read(fd, &note, err);
    if (r == 0 && !strcmp(kind_word((uint16_t)note.kind), "plugin"))
        r = fail(err, -ENOEXEC, "its note names an unknown plugin kind (%u)", note.kind);
    return r < 0 ? fail_wrap(err, "plugin %s", path) : note.kind == kind;
}

int catalog_find(const struct config *c, uint16_t kind, const char *name, struct plugin **ret,
                 struct cella_error *err)
{
    char path[1024];
    size_t i;
    int r;

    for (i = 0; i < c->n_plugins; i++) {
        struct plugin *p;
        r = kind_is(c->plugins[i].path, kind, err);
        if (r == 0)
            continue;
        if (r > 0)
            r = plugin_load(c->plugins[i].path, &p, err);
        if (r < 0)
            return r;
        if (!strcmp(p->name, name)) {
            *ret = p;
            return 0;
        }
        plugin_unload(p);
    }
    if (!name_valid(name))
        return fail(err, -EINVAL, "%s \"%s\": no such name", kind_word(kind), name);
    snprintf(path, sizeof(path), "%s/cella-%s-%s.so", plugin_dir(), kind_word(kind), name);
    if (access(path, F_OK) < 0)
        return fail(err, -ENOENT,
                    "%s \"%s\": not in the config's \"plugins\" and not %s; see cella plugin ls",
                    kind_word(kind), name, path);
    return plugin_load(path, ret, err);
}

int catalog_configured(const struct config *c, uint16_t kind, struct plugin **ret,
                       struct cella_error *err)
{
    size_t i;

    for (i = 0; i < c->n_plugins; i++) {
        int r = kind_is(c->plugins[i].path, kind, err);
        if (r > 0)
            r = plugin_load(c->plugins[i].path, ret, err) < 0 ? -EINVAL : 1;
        if (r != 0)
            return r < 0 ? -EINVAL : 0;
    }
    return -ENOENT;
}

struct list {
    struct plugin **v;
    size_t n;
    uint16_t kind;
    void (*broken)(void *ctx, const char *path, const struct cella_error *err);
    void *ctx;
};

static int list_has(const struct list *l, const char *path, const char *name)
{
    size_t i;

    for (i = 0; i < l->n; i++)
        if (!strcmp(l->v[i]->path, path) || (name && !strcmp(l->v[i]->name, name)))
            return 1;
    return 0;
}

static int list_add(struct list *l, const char *path)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct plugin *p, **v;
    int r;

    if (list_has(l, path, NULL))
        return 0;
    r = kind_is(path, l->kind, err);
    if (r > 0)
        r = plugin_load(path, &p, err) < 0 ? -EINVAL : 1;
    if (r < 0 && l->broken)
        l->broken(l->ctx, path, err);
    if (r <= 0)
        return 0;
    v = list_has(l, path, p->name) ? NULL : realloc(l->v, (l->n + 1) * sizeof(*v));
    if (!v) {
        plugin_unload(p);
        return 0;
    }
    l->v = v;
    l->v[l->n++] = p;
    return 0;
}

int catalog_all(const struct config *c, uint16_t kind, struct plugin ***ret, size_t *ret_n,
                void (*broken)(void *ctx, const char *path, const struct cella_error *err),
                void *ctx)
{
    struct list l = {NULL, 0, kind, broken, ctx};
    char pattern[1024];
    glob_t g;
    size_t i;

    for (i = 0; i < c->n_plugins; i++)
        list_add(&l, c->plugins[i].path);
    snprintf(pattern, sizeof(pattern), "%s/cella-%s-*.so", plugin_dir(), kind_word(kind));
    if (glob(pattern, 0, NULL, &g) == 0) {
        for (i = 0; i < g.gl_pathc; i++)
            list_add(&l, g.gl_pathv[i]);
        globfree(&g);
    }
    *ret = l.v;
    *ret_n = l.n;
    return 0;
}

const struct config_plugin *catalog_config(const struct config *c, const struct plugin *p)
{
    size_t i;

    for (i = 0; i < c->n_plugins; i++)
        if (!strcmp(c->plugins[i].path, p->path))
            return &c->plugins[i];
    return NULL;
}

int catalog_options(const struct config *c, const struct plugin *p, const json_t *request,
                    struct option_set **ret, struct cella_error *err)
{
    const struct config_plugin *entry = catalog_config(c, p);
    json_t *merged;
    int r;

    if (!request)
        return option_set_parse(p->options, p->n_options, p->option_stride, entry ? &c->doc : NULL,
                                entry ? entry->pointer : "", entry ? entry->options : NULL, ret,
                                err);
    merged = entry && entry->options ? json_copy(entry->options) : json_object();
    if (!merged || json_object_update(merged, (json_t *)(uintptr_t)request) < 0) {
        json_decref(merged);
        return fail(err, -ENOMEM, "options of %s: out of memory", p->name);
    }
    r = option_set_parse(p->options, p->n_options, p->option_stride, NULL, "/options", merged, ret,
                         err);
    json_decref(merged);
    return r;
}
