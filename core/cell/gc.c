/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * gc - cleaning up after wardens that died. A cell whose lock is free and that was not stopped in
 * order is dead: its backend's and enforcer's reap work from the id alone, its audit chain is
 * continued with what happened and closed, its directory and name go. Stopped cells are kept until
 * `cella rm`.
 */
#include <stdarg.h>

#include "images.h"
#include "warden.h"

struct gc {
    const struct config *config;
    struct cella_host host;
    int dry_run;
    void (*found)(void *ctx, const char *what);
    void *ctx;
    int count;
    int failed;
    char first_error[512];
};

static void gc_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);

static void gc_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)topic;
    (void)fmt;
}

static int gc_emit(void *ctx, const struct cella_event *event)
{
    (void)ctx;
    (void)event;
    return 0;
}

static void tell(struct gc *g, const char *fmt, ...) CELLA_PRINTF(2, 3);

static void tell(struct gc *g, const char *fmt, ...)
{
    char line[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    g->count++;
    if (g->found)
        g->found(g->ctx, line);
}

static void reap_found(void *ctx, const char *what)
{
    tell(ctx, "%s", what);
}

static void note_error(struct gc *g, const char *text)
{
    g->failed++;
    if (!g->first_error[0])
        snprintf(g->first_error, sizeof(g->first_error), "%s", text);
}

/* Loads the plugin the cell was made with and lets it clean up. */
static void reap_with(struct gc *g, const struct cell_info *info, const char *member,
                      struct cella_reap *reap)
{
    const char *path = json_string_value(json_object_get(info->json, member));
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct plugin *p;
    int r;

    if (!path)
        return; /* it had not come that far */
    r = plugin_load(path, &p, err);
    if (r == 0) {
        r = p->kind == CELLA_KIND_BACKEND ? backend_reap(p, &g->host, reap, err)
                                          : enforcer_reap(p, &g->host, reap, err);
        plugin_unload(p);
    }
    if (r < 0)
        note_error(g, eb.text);
}

static void chain_close(struct gc *g, const struct cell_info *info)
{
    auto_free char *dir = path_join(g->config->state_dir, "audit");
    struct sink_slot *slots = NULL;
    struct audit_sink *sinks = NULL;
    struct audit *a = NULL;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    size_t n = 0, i;
    int r = sinks_load(g->config, &slots, &n, &sinks, err);

    if (r == 0 && dir)
        r = audit_open(dir, info->id, &g->host, sinks, n, &a, err);
    if (r == 0)
        r = audit_emit(a, err, "cell.end", "s:reason", "warden", "s:message",
                       "the warden died; the cell was cleaned up afterwards", NULL);
    if (r == 0 || (r == -ESHUTDOWN && a)) /* its last line may be there already */
        r = audit_close(a, err);
    if (r < 0 && r != -EALREADY) /* the warden closed the chain before it died */
        note_error(g, eb.text);
    audit_free(a);
    for (i = 0; i < n; i++) {
        option_set_free(slots[i].options);
        plugin_unload(slots[i].plugin);
    }
    free(slots);
    free(sinks);
}

/* A machine that waited for a fork: nothing has happened that a chain could tell (spare.c). */
static int never_a_cell(const struct gc *g, const struct cell_info *info)
{
    char path[600];

    snprintf(path, sizeof(path), "%s/audit/%s.jsonl", g->config->state_dir, info->id);
    return json_object_get(info->json, "spare_of") && access(path, F_OK) < 0;
}

static void clean_cell(struct gc *g, const struct cell_info *info)
{
    struct cell_dir d = {.dirfd = -1, .lockfd = -1};
    struct errbuf eb;
    json_t *slot = json_object_get(info->json, "slot");
    struct cella_reap reap = {.hdr = CELLA_HDR_INIT(struct cella_reap, CELLA_KIND_REAP),
                              .cell_id = info->id,
                              .dry_run = (uint32_t)g->dry_run,
                              .ctx = g,
                              .found = reap_found};
    auto_free char *scratch = NULL;
    int failed = g->failed;

    if (store_adopt(g->config->state_dir, info->id, &d, errbuf_init(&eb)) < 0)
        return; /* somebody else cleans it, or it lives after all */
    scratch = path_join(d.path, "scratch");
    reap.scratch = scratch;
    if (json_is_integer(slot)) {
        reap.uid_base = CELLA_UID_BASE + (uint32_t)json_integer_value(slot) * CELLA_UID_COUNT;
        reap.uid_count = CELLA_UID_COUNT;
    }
    reap_with(g, info, "backend_path", &reap);
    reap_with(g, info, "enforcer_path", &reap);
    tell(g, "cell %s%s%s: directory %s", info->id, info->name[0] ? " " : "", info->name, d.path);
    if (g->dry_run || g->failed > failed) {
        cell_dir_close(&d); /* what could not be cleaned stays findable */
        return;
    }
    if (!never_a_cell(g, info))
        chain_close(g, info);
    store_remove(g->config->state_dir, &d, info->name);
}

static int each_cell(void *ctx, const struct cell_info *info)
{
    struct gc *g = ctx;

    if (!info->alive && !strcmp(info->state, "dead"))
        clean_cell(g, info);
    return 0;
}

int cell_gc(const struct config *c, int dry_run, void (*found)(void *ctx, const char *what),
            void *ctx, struct cella_error *err)
{
    struct gc g = {.config = c, .dry_run = dry_run, .found = found, .ctx = ctx};
    int r;

    g.host = (struct cella_host){.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                 .ctx = &g,
                                 .log = gc_log,
                                 .emit = gc_emit};
    r = store_list(c->state_dir, each_cell, &g, err);
    if (r < 0)
        return r;
    r = snapshot_gc(c->state_dir, dry_run, found, ctx, err);
    if (r < 0)
        return r;
    g.count += r + image_gc_stale(c->state_dir, dry_run, found, ctx);
    if (g.failed)
        return fail(err, -EIO, "gc: %d steps failed; the first: %s", g.failed, g.first_error);
    return g.count;
}

int cell_remove_stopped(const struct config *c, const struct cell_info *info,
                        struct cella_error *err)
{
    struct cell_dir d;
    int r;

    if (info->alive || strcmp(info->state, "stopped"))
        return fail(err, -EBUSY, "cell %s is %s; only a stopped cell is removed this way", info->id,
                    info->state);
    r = store_adopt(c->state_dir, info->id, &d, err);
    if (r < 0)
        return r;
    r = store_remove(c->state_dir, &d, info->name);
    return r < 0 ? fail(err, r, "remove %s: %s", d.path, strerror(-r)) : 0;
}
