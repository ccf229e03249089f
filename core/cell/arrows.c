/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * arrows - the way from a request to a created cell, as a table of steps with their undo. Each
 * arrow that succeeds leaves one audit event; one that fails undoes those before it, in reverse,
 * and says which it was. The enforcer begins to attach before the backend may create anything, and has
 * done it before the backend may start: no code of a cell ever runs without its rules.
 */
#include <fcntl.h>

#include "warden.h"

/*
 * A spare (spare.c) goes the same way in two parts: first `go` of every arrow that is not `held`, of which nobody
 * is told; when it becomes a cell, `late` and `tell` of each arrow, in the same order.
 */
struct arrow {
    const char *stage;
    int (*go)(struct warden *w, struct cella_error *err);
    int (*tell)(struct warden *w, struct cella_error *err); /* what was done, to the audit */
    int (*late)(struct warden *w,
                struct cella_error *err); /* of a spare, what `go` could not know */
    void (*undo)(struct warden *w);
    int held; /* not before a spare becomes a cell */
};

/* ---- config ---- */

static int config_go(struct warden *w, struct cella_error *err)
{
    const char *class = w->req.class ? w->req.class : "default";
    int r;

    w->config = w->config_given;
    w->class = config_class_find(w->config, class);
    if (!w->class)
        return fail(err, -ENOENT, "class \"%s\": not in %s", class,
                    w->config->file ? w->config->file
                                    : "the built-in configuration (which has \"default\")");
    r = request_limits(&w->req, w->class, err);
    return r < 0 ? r : copy_open(w, err);
}

static void config_undo(struct warden *w)
{
    copy_undo(w);
    w->config = NULL;
    w->class = NULL;
}

/* ---- ready: the enforcer begins what takes longest, while everything else is still being found out ---- */

static int uplink_open(struct warden *w, struct cella_error *err)
{
    if (!w->config->uplink || w->uplink_fd >= 0)
        return 0;
    w->uplink_fd = open(w->config->uplink, O_RDONLY | O_CLOEXEC);
    return w->uplink_fd < 0
               ? fail(err, -errno, "uplink %s: %s; it must be a network namespace file",
                      w->config->uplink, strerror(errno))
               : 0;
}

/* The configured enforcer, else the one in tree; and its options. */
static int enforcer_find(struct warden *w, struct cella_error *err)
{
    int r = w->enforcer_plugin
                ? 0
                : catalog_configured(w->config, CELLA_KIND_ENFORCER, &w->enforcer_plugin, err);

    if (r == -ENOENT)
        r = catalog_find(w->config, CELLA_KIND_ENFORCER, "egress-nft", &w->enforcer_plugin, err);
    if (r == -ENOENT)
        return fail(err, r,
                    "no egress enforcer is installed; cella-enforcer-egress-nft.so belongs in %s",
                    plugin_dir());
    if (r == 0 && !w->enforcer_options)
        r = catalog_options(w->config, w->enforcer_plugin, NULL, &w->enforcer_options, err);
    return r;
}

/* Fails never: what is wrong here is met again, and told, by the arrows after the audit has begun. */
static int ready_go(struct warden *w, struct cella_error *err)
{
    struct cella_ready ready = {.hdr = CELLA_HDR_INIT(struct cella_ready, CELLA_KIND_READY)};
    const char *policy = w->req.policy ? w->req.policy : w->class->policy;
    struct errbuf eb;

    (void)err;
    if ((!w->req.policy_file && !strcmp(policy, "none")) ||
        enforcer_find(w, errbuf_init(&eb)) < 0 || uplink_open(w, errbuf_init(&eb)) < 0)
        return 0;
    ready.options = option_set_get(w->enforcer_options);
    ready.borrow_uplink_fd = w->uplink_fd;
    enforcer_ready(w->enforcer_plugin, &w->enforcer_host.table, &ready, &w->enforcer_ready);
    return 0;
}

static void ready_undo(struct warden *w)
{
    if (w->enforcer_ready)
        enforcer_unready(w->enforcer_plugin, steal_ptr(&w->enforcer_ready));
    if (w->uplink_fd >= 0)
        close(steal_fd(&w->uplink_fd));
    option_set_free(w->enforcer_options);
    w->enforcer_options = NULL;
    host_calls_drop(w, &w->enforcer_host);
    plugin_unload(w->enforcer_plugin);
    w->enforcer_plugin = NULL;
}

/* A child makes the cell's namespaces from here on; which ids they map is known with the slot. */
static int begin_go(struct warden *w, struct cella_error *err)
{
    return nspair_begin(1, &w->making, err);
}

static void begin_undo(struct warden *w)
{
    nspair_drop(&w->making);
}

/* ---- store ---- */

static int store_go(struct warden *w, struct cella_error *err)
{
    int r = store_init(w->config->state_dir, err);

    if (r == 0)
        r = store_create(w->config->state_dir, w->req.name, &w->dir, err);
    if (r < 0)
        return r;
    w->dir_held = 1;
    w->log_fd = openat(w->dir.dirfd, "warden.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    json_object_set_new(w->cell, "id", json_string(w->dir.id));
    json_object_set_new(w->cell, "name", json_string(w->req.name ? w->req.name : w->dir.id));
    json_object_set_new(w->cell, "state", json_string("new"));
    json_object_set_new(w->cell, "pid", json_integer(getpid()));
    json_object_set_new(w->cell, "class", json_string(w->class->name));
    json_object_set_new(w->cell, "created", json_integer((json_int_t)(wall_ns() / 1000000000u)));
    r = warden_save(w);
    if (r < 0)
        fail(err, r, "cell record in %s: %s", w->dir.path, strerror(-r));
    if (r == 0)
        r = control_listen(w, err);
    if (r < 0) {
        store_remove(w->config->state_dir, &w->dir, w->req.name);
        w->dir_held = 0;
    }
    return r;
}

static void store_undo(struct warden *w)
{
    if (w->listen_fd >= 0) {
        loop_unwatch(w->loop, w->listen_fd);
        close(steal_fd(&w->listen_fd));
    }
    if (w->log_fd >= 0)
        close(steal_fd(&w->log_fd));
    if (w->dir_held && w->keep_at_end)
        cell_dir_close(&w->dir);
    else if (w->dir_held)
        store_remove(w->config->state_dir, &w->dir, w->req.name);
    w->dir_held = 0;
}

/* ---- audit ---- */

static void sinks_free(struct warden *w)
{
    size_t i;

    for (i = 0; i < w->n_sinks; i++) {
        option_set_free(w->sinks[i].options);
        plugin_unload(w->sinks[i].plugin);
    }
    free(w->sinks);
    w->sinks = NULL;
    w->n_sinks = 0;
}

static int audit_go(struct warden *w, struct cella_error *err)
{
    struct audit_sink *sinks = NULL;
    auto_free char *dir = path_join(w->config->state_dir, "audit");
    auto_free char *argv = w->req.argv ? json_dumps(w->req.argv, JSON_COMPACT) : NULL;
    struct audit_parent parent;
    int r = sinks_load(w->config, &w->sinks, &w->n_sinks, &sinks, err);

    if (r == 0 && !dir)
        r = fail(err, -ENOMEM, "audit: out of memory");
    if (r == 0)
        r = audit_open_child(dir, w->dir.id, copy_parent(w, &parent) ? &parent : NULL,
                             &w->plain.table, sinks, w->n_sinks, &w->audit, err);
    free(sinks);
    if (r < 0) {
        sinks_free(w);
        return r;
    }
    r = warden_audit(w, err, "cell.request", "s:name", w->req.name, "s:class", w->class->name,
                     "s:backend", w->req.backend, "s:image", w->req.image, "s:policy",
                     w->req.policy ? w->req.policy : w->req.policy_file, "s:argv", argv,
                     "s:snapshot", w->copy.manifest ? w->copy.id : NULL, NULL);
    if (r < 0) {
        audit_free(w->audit);
        w->audit = NULL;
        sinks_free(w);
    }
    return r;
}

static void audit_undo(struct warden *w)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    if (w->audit && !w->audit_closed && audit_close(w->audit, err) < 0)
        warden_log(w, CELLA_LOG_ERROR, "audit", "closing the chain: %s", eb.text);
    audit_free(w->audit);
    w->audit = NULL;
    sinks_free(w);
}

/* ---- select ---- */

static int select_go(struct warden *w, struct cella_error *err)
{
    int r = select_backend(w, err);

    if (r == 0)
        r = copy_fits_backend(w, err);
    if (r < 0)
        return r;
    r = catalog_options(w->config, w->backend_plugin, w->req.options, &w->backend_options, err);
    json_object_set_new(w->cell, "backend", json_string(w->backend_plugin->name));
    json_object_set_new(w->cell, "backend_path", json_string(w->backend_plugin->path));
    json_object_set_new(w->cell, "strength", json_string(strength_name(w->probe.probe.strength)));
    return r;
}

static int select_tell(struct warden *w, struct cella_error *err)
{
    return warden_audit(w, err, "cell.select", "s:backend", w->backend_plugin->name, "s:version",
                        w->backend_plugin->version, "s:strength",
                        strength_name(w->probe.probe.strength), "s:floor",
                        strength_name(w->class->floor), NULL);
}

static void select_undo(struct warden *w)
{
    option_set_free(w->backend_options);
    w->backend_options = NULL;
    host_calls_drop(w, &w->backend_host);
    plugin_unload(w->backend_plugin);
    w->backend_plugin = NULL;
}

/* ---- policy ---- */

static int policy_go(struct warden *w, struct cella_error *err)
{
    struct cella_policy policy;
    int r = policy_find(w, err);

    if (r == 0)
        r = enforcer_find(w, err);
    if (r < 0)
        return r;
    w->generation = w->generation_last = 1;
    policy = policy_struct(w, &w->policy, w->generation);
    json_object_set_new(w->cell, "enforcer_path", json_string(w->enforcer_plugin->path));
    r = enforcer_check(w->enforcer_plugin, &policy, err);
    return r < 0 ? r : policy_record(w, err);
}

static void policy_undo(struct warden *w)
{
    policy_text_fini(&w->policy);
}

/* ---- image ---- */

static int image_go(struct warden *w, struct cella_error *err)
{
    const char *state_dir = w->config->state_dir;
    uint32_t need = w->probe.probe.root_need;
    int copy = w->copy.manifest || w->req.spare_of;
    int r;

    if (w->req.kernel && need != CELLA_ROOT_IMAGE)
        return fail(err, -EINVAL, "kernel %.128s: the backend %s boots none", w->req.kernel,
                    w->backend_plugin->name);
    r = copy && need == CELLA_ROOT_IMAGE
            ? image_resolve_copy(state_dir, request_image(w), &w->image, err)
            : image_resolve(state_dir, request_image(w), need, request_kernel(w), &w->image, err);
    if (r < 0)
        return r;
    w->image_held = 1;
    r = copy_fits_image(w, err);
    if (r < 0)
        return r;
    json_object_set_new(w->cell, "image", json_string(w->image.name));
    json_object_set_new(w->cell, "digest", json_string(w->image.digest));
    if (w->image.kernel_version)
        json_object_set_new(w->cell, "kernel", json_string(w->image.kernel_version));
    return 0;
}

static int image_tell(struct warden *w, struct cella_error *err)
{
    return warden_audit(w, err, "cell.image", "s:image", w->image.name, "s:digest", w->image.digest,
                        "s:kernel", w->image.kernel_version, NULL);
}

static void image_undo(struct warden *w)
{
    if (w->image_held)
        image_fini(&w->image);
    w->image_held = 0;
}

/* ---- slot: ids, addresses and the cell's own namespaces ---- */

static int slot_go(struct warden *w, struct cella_error *err)
{
    struct nspair pair;
    int r = store_slot_take(w->config->state_dir, w->dir.id, &w->slot, &w->slot_fd, err);

    if (r < 0)
        return r;
    r = nspair_finish(&w->making, CELLA_UID_BASE + w->slot * CELLA_UID_COUNT, CELLA_UID_COUNT,
                      &pair, err);
    if (r == 0) {
        w->userns_fd = pair.userns_fd;
        w->netns_fd = pair.netns_fd;
    }
    json_object_set_new(w->cell, "slot", json_integer(w->slot));
    if (r == 0) { /* what comes next leaves traces that only these members lead to (gc.c) */
        r = warden_save(w);
        if (r < 0)
            fail(err, r, "the record of the cell: %s", strerror(-r));
    }
    return r;
}

static void slot_undo(struct warden *w)
{
    if (w->userns_fd >= 0)
        close(steal_fd(&w->userns_fd));
    if (w->netns_fd >= 0)
        close(steal_fd(&w->netns_fd));
    if (w->slot_fd >= 0) {
        if (ftruncate(w->slot_fd, 0) <
            0) /* then the id stays, and its directory is gone: same meaning */
            warden_log(w, CELLA_LOG_WARN, "slot", "truncate: %s", strerror(errno));
        close(steal_fd(&w->slot_fd));
    }
}

/* ---- attach ---- */

static uint32_t link_kind(const struct warden *w)
{
    if (!strcmp(w->policy.name, "none") || w->probe.probe.net_need == CELLA_NET_NONE)
        return CELLA_LINK_NONE;
    return w->probe.probe.net_need == CELLA_NET_TAP ? CELLA_LINK_TAP : CELLA_LINK_NETNS;
}

static int attach_go(struct warden *w, struct cella_error *err)
{
    struct cella_policy policy = policy_struct(w, &w->policy, w->generation);
    struct cella_attach attach = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                  .cell_id = w->dir.id,
                                  .link = CELLA_LINK_NETNS,
                                  .slot = w->slot,
                                  .borrow_netns_fd = w->netns_fd,
                                  .borrow_uplink_fd = -1,
                                  .policy = &policy,
                                  .options = option_set_get(w->enforcer_options),
                                  .early = 1};
    auto_free char *scratch = path_join(w->dir.path, "scratch");
    int r = uplink_open(w, err);

    if (r < 0 || !scratch)
        return r < 0 ? r : fail(err, -ENOMEM, "attach: out of memory");
    attach.scratch = scratch;
    attach.borrow_uplink_fd = w->uplink_fd;
    attach.link = w->link_kind = link_kind(w);
    attach.own_ready = steal_ptr(&w->enforcer_ready);
    r = enforcer_attach(w->enforcer_plugin, &w->enforcer_host.table, &attach, &w->enforcer,
                        &w->attached, err);
    if (r < 0)
        return r;
    w->enforcer_on = 1;
    json_object_set_new(w->cell, "address", json_string(w->attached.address));
    return gate_watch(w, err);
}

/* The rules have been made while the backend built the cell; it may start only when they hold. */
static int rules_go(struct warden *w, struct cella_error *err)
{
    return enforcer_wait(&w->enforcer, err);
}

static int rules_tell(struct warden *w, struct cella_error *err)
{
    int r = warden_audit(w, err, "net.attach", "s:enforcer", w->enforcer_plugin->name, "s:policy",
                         w->policy.name, "s:link", w->link_kind == CELLA_LINK_NONE ? "none" : "l3",
                         "s:address", w->attached.address, "i:gen", (int64_t)w->generation, NULL);

    if (r == 0)
        r = create_cell_record(w, err);
    return r < 0 ? r : copy_phase(w, err);
}

static void attach_undo(struct warden *w)
{
    if (w->enforcer_on) {
        gate_unwatch(w);
        enforcer_detach(&w->enforcer);
    }
    w->enforcer_on = 0;
}

/* ---- the table ---- */

static const struct arrow arrows[] = {
    [0] = {"config", config_go, .undo = config_undo},
    [1] = {"ready", ready_go, .undo = ready_undo},
    [2] = {"namespaces", begin_go, .undo = begin_undo},
    [3] = {"store", store_go, .late = spare_name, .undo = store_undo},
    [ARROWS_AUDIT - 1] = {"audit", audit_go, .late = audit_go, .undo = audit_undo, .held = 1},
    [ARROWS_AUDIT] = {"select", select_go, select_tell, copy_fits_backend, select_undo},
    {"policy", policy_go, .late = policy_late, .undo = policy_undo},
    {"secrets", secrets_load, .undo = secrets_undo},
    {"admit", admit_cell, .late = admit_cell, .held = 1},
    {"slot", slot_go, .undo = slot_undo},
    {"attach", attach_go, .late = policy_apply_late, .undo = attach_undo},
    {"image", image_go, image_tell, copy_fits_image, image_undo},
    {"create", create_cell, .late = create_cell_late, .undo = create_cell_undo},
    {"rules", rules_go, rules_tell},
};

/* What failed half way has its undo called too: it copes. */
static int failed(struct warden *w, int r, struct cella_error *err)
{
    if (w->audit)
        audit_emit(w->audit, NULL, "cell.refused", "s:stage", arrows[w->arrows_done].stage,
                   "s:message", err && err->msg ? err->msg : "", NULL);
    w->arrows_done++;
    arrows_undo(w, 0);
    return r;
}

int arrows_run(struct warden *w, struct cella_error *err)
{
    int spare = w->req.spare_of != NULL, r;

    for (w->arrows_done = 0; w->arrows_done < ARRAY_LEN(arrows); w->arrows_done++) {
        const struct arrow *a = &arrows[w->arrows_done];
        warden_step(w, a->stage, now_ns());
        r = spare && a->held ? 0 : a->go(w, err);
        if (r == 0 && !spare && a->tell)
            r = a->tell(w, err);
        if (r < 0)
            return failed(w, r, err);
    }
    return 0;
}

int arrows_become(struct warden *w, struct cella_error *err)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ARRAY_LEN(arrows); i++) {
        const struct arrow *a = &arrows[i];
        r = a->late ? a->late(w, err) : 0;
        if (r == 0 && a->tell)
            r = a->tell(w, err);
        if (r < 0 && w->audit)
            audit_emit(w->audit, NULL, "cell.refused", "s:stage", a->stage, "s:message",
                       err && err->msg ? err->msg : "", NULL);
    }
    if (r < 0)
        arrows_undo(w, 0);
    return r;
}

void arrows_undo(struct warden *w, size_t until)
{
    while (w->arrows_done > until) {
        const struct arrow *a = &arrows[--w->arrows_done];
        if (a->undo)
            a->undo(w);
    }
}
