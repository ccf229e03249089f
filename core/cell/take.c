/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * take - the warden's half of snapshots: what it writes of its own cell, and what a cell that is a
 * copy takes over from its parent.
 *
 * A copy gets: the machine, the image by its digest, limits and defaults of commands, the phase of
 * the policy. It does not get: an identity, an address, secrets, the policy's text as it was; those
 * are found anew as for any cell, so what was tightened since holds from its first packet on. It is
 * handed out when its guest has confirmed who it is now (guest.c). Threads: one.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/utsname.h>

#include <cella/link.h>
#include <sodium.h>

#include "snapshot.h"
#include "warden.h"

#define CPUINFO_MAX (4u << 20)

/* ---- facts ---- */

static const char *cpu_line(const char *text, const char *key, int *ret_len)
{
    const char *at = strstr(text, key), *colon = at ? strchr(at, ':') : NULL;

    *ret_len = 0;
    if (!colon)
        return "";
    colon += strspn(colon, ": \t");
    *ret_len = (int)strcspn(colon, "\n");
    return colon;
}

/* Model and features of this host's processor, as one digest and words before it. */
static char *cpu_text(void)
{
    auto_free char *text = NULL;
    const char *model, *flags;
    char hex[33];
    uint8_t digest[32];
    char *out = NULL;
    int n_model, n_flags;

    if (read_file_at(AT_FDCWD, "/proc/cpuinfo", CPUINFO_MAX, &text, NULL) < 0)
        return NULL;
    model = cpu_line(text, "\nmodel name", &n_model);
    flags = cpu_line(text, "\nflags", &n_flags);
    crypto_hash_sha256(digest, (const unsigned char *)flags, (unsigned long long)n_flags);
    hex_encode(digest, 16, hex);
    return asprintf(&out, "%.*s, features %s", n_model > 100 ? 100 : n_model, model, hex) < 0 ? NULL
                                                                                              : out;
}

/* A policy that can be found again is found again; a text that came by itself is in the snapshot. */
static void add_policy(const struct warden *w, json_t *o)
{
    const char *name = w->policy.name;

    if (name[0] == '/')
        json_object_set_new(o, "policy_file", json_string(name));
    else if (!strcmp(name, "none") || !strcmp(name, "deny") || config_policy_find(w->config, name))
        json_object_set_new(o, "policy", json_string(name));
}

/* An archive or a disk is found by its digest, whatever its name means by then. */
static const char *image_again(const struct warden *w)
{
    const char *digest = w->image.digest;

    return strncmp(digest, "sha256:", 7) && strncmp(digest, "dir-", 4) ? w->image.name : digest;
}

/* With what a copy is made: the request, its open ends closed. */
static json_t *request_of(const struct warden *w)
{
    static const char *const kept[] = {"class", "user", "workdir", "env", "options", "readonly"};
    json_t *o = json_object(), *v;
    size_t i;

    for (i = 0; i < ARRAY_LEN(kept); i++)
        if ((v = json_object_get(w->req.root, kept[i])) && !json_is_null(v))
            json_object_set(o, kept[i], v);
    json_object_set_new(o, "class", json_string(w->class->name));
    json_object_set_new(o, "backend", json_string(w->backend_plugin->name));
    json_object_set_new(o, "image", json_string(image_again(w)));
    json_object_set_new(o, "limits", limits_json(&w->made));
    add_policy(w, o);
    return o;
}

static void config_digest(const json_t *request, char hex[65])
{
    auto_free char *text = json_dumps(request, JSON_COMPACT | JSON_SORT_KEYS);
    uint8_t digest[32];

    crypto_hash_sha256(digest, (const unsigned char *)(text ? text : ""), text ? strlen(text) : 0);
    hex_encode(digest, sizeof(digest), hex);
}

/* What copy_limits() gives a copy: its machine is made as this one was, and works under these. */
static void add_changed(const struct warden *w, json_t *m)
{
    const struct config_limits *l = &w->req.limits;

    if (memcmp(l, &w->made, sizeof(*l)) != 0)
        json_object_set_new(
            m, "limits",
            json_pack("{s:I, s:I, s:I, s:I, s:I}", "memory", (json_int_t)l->memory, "cpu_millis",
                      (json_int_t)l->cpu_millis, "pids", (json_int_t)l->pids, "io_read_bps",
                      (json_int_t)l->io_read_bps, "io_write_bps", (json_int_t)l->io_write_bps));
}

static json_t *facts(const struct warden *w, uint64_t frozen_ns)
{
    auto_free char *cpu = cpu_text();
    json_t *request = request_of(w), *m;
    char config[65], head[65] = "";
    struct utsname u = {.release = ""};
    uint64_t seq = 0;

    config_digest(request, config);
    audit_head(w->audit, &seq, head);
    uname(&u);
    m = json_pack("{s:i, s:i, s:s, s:I, s:I, s:I}", "format", SNAPSHOT_FORMAT, "link",
                  (int)CELLA_LINK_VERSION, "created_by", "cella", "created",
                  (json_int_t)(wall_ns() / 1000000000u), "generation",
                  (json_int_t)w->copy_generation, "frozen_ns", (json_int_t)frozen_ns);
    json_object_set_new(m, "cell",
                        json_pack("{s:s, s:O, s:s}", "id", w->dir.id, "name",
                                  json_object_get(w->cell, "name"), "class", w->class->name));
    add_changed(w, m);
    json_object_set_new(m, "backend",
                        json_pack("{s:s, s:s, s:s}", "name", w->backend_plugin->name, "version",
                                  w->backend_plugin->version, "strength",
                                  strength_name(w->probe.probe.strength)));
    json_object_set_new(m, "image",
                        json_pack("{s:s, s:s}", "name", w->image.name, "digest", w->image.digest));
    if (w->image.kernel_version)
        json_object_set_new(m, "kernel",
                            json_pack("{s:s, s:s}", "version", w->image.kernel_version, "digest",
                                      w->image.kernel_digest));
    else if (json_object_get(w->copy.manifest, "kernel"))
        json_object_set(m, "kernel", json_object_get(w->copy.manifest, "kernel"));
    json_object_set_new(m, "host",
                        json_pack("{s:s, s:s}", "cpu", cpu ? cpu : "", "kernel", u.release));
    json_object_set_new(m, "policy",
                        json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", w->policy.name, "phase",
                                  w->policy.phase, "sha256", w->policy.sha256, "revision",
                                  (json_int_t)w->policy.revision, "generation",
                                  (json_int_t)w->generation));
    json_object_set_new(m, "chain", json_pack("{s:I, s:s}", "seq", (json_int_t)seq, "head", head));
    json_object_set_new(m, "config_digest", json_string(config));
    json_object_set_new(m, "request", request);
    return m;
}

/* ---- taking one ---- */

static int take_possible(const struct warden *w, struct cella_error *err)
{
    const struct capability *c = NULL;
    size_t i;

    for (i = 0; i < w->probe.n_caps; i++)
        if (!strcmp(w->probe.caps[i].name, "snapshot"))
            c = &w->probe.caps[i];
    if (w->state != W_RUNNING)
        return fail(err, -EPROTO, "snapshot: the cell is not running%s",
                    w->state == W_PAUSED ? " but paused; resume it first" : "");
    if (c && c->answer == CELLA_NONE)
        return fail(err, -EOPNOTSUPP, "snapshot: backend %s cannot: %s", w->backend_plugin->name,
                    c->reason);
    if (json_array_size(w->req.mounts))
        return fail(
            err, -EOPNOTSUPP,
            "snapshot: the cell has directories of this host mounted, which cannot be saved "
            "with it; make it without --mount and copy files with \"cella cp\"");
    return 0;
}

/* The client's directory, which only root can have made. */
static int target_open(const char *dir, struct cella_error *err)
{
    auto_close int fd =
        dir && dir[0] == '/' ? open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    auto_close int machine = -1;

    if (fd < 0)
        return fail(err, -errno, "snapshot: directory %s: %s", dir ? dir : "(none)",
                    strerror(errno));
    machine = openat(fd, SNAPSHOT_MACHINE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (machine < 0)
        return fail(err, -errno, "snapshot: directory %s/" SNAPSHOT_MACHINE ": %s", dir,
                    strerror(errno));
    return steal_fd(&fd);
}

struct standing {
    struct warden *w;
    uint64_t from, ns; /* ns: how long the cell stood still */
    int done, thawed;
    struct errbuf eb;
};

static void go_on(void *ctx)
{
    struct standing *s = ctx;

    if (s->done)
        return;
    s->done = 1;
    s->thawed = s->w->machine ? machine_thaw(s->w, errbuf_init(&s->eb)) : 0;
    s->ns = now_ns() - s->from;
}

/* What fails between freeze and thaw must not leave the cell standing still. */
static int take_frozen(struct warden *w, int dirfd_, int brief, uint64_t *ret_ns,
                       struct cella_error *err)
{
    auto_close int machine =
        openat(dirfd_, SNAPSHOT_MACHINE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct standing s = {.w = w, .from = now_ns()};
    int r = w->machine ? machine_freeze(w, err) : 0;

    if (r < 0)
        return r;
    r = backend_snapshot(&w->backend, machine, brief, go_on, &s, err);
    go_on(&s);
    *ret_ns = s.ns;
    if (s.thawed < 0) {
        cell_end(w, "backend", "after a snapshot the cell did not go on: %s", s.eb.text);
        return r < 0 ? r
                     : fail(err, s.thawed, "snapshot: the cell did not go on after it: %s",
                            s.eb.text);
    }
    return r;
}

int cell_snapshot(struct warden *w, json_t *args, json_t **ret, struct cella_error *err)
{
    const char *dir = json_string_value(json_object_get(args, "dir"));
    auto_close int fd = -1;
    uint64_t frozen_ns = 0;
    int r = take_possible(w, err);

    if (r < 0)
        return r;
    fd = target_open(dir, err);
    if (fd < 0)
        return fd;
    limits_activity(w);
    r = take_frozen(w, fd, json_is_true(json_object_get(args, "brief")), &frozen_ns, err);
    if (r == 0) {
        r = create_file_at(fd, SNAPSHOT_POLICY, w->policy.text, strlen(w->policy.text), 0600);
        if (r < 0)
            fail(err, r, "snapshot: %s/" SNAPSHOT_POLICY ": %s", dir, strerror(-r));
    }
    if (r < 0) {
        warden_audit(w, NULL, "cell.snapshot", "s:verdict", "failed", "s:message",
                     err && err->msg ? err->msg : "", NULL);
        return r;
    }
    r = warden_audit(w, err, "cell.snapshot", "s:verdict", "taken", "s:directory",
                     strrchr(dir, '/') + 1, "i:frozen_ns", (int64_t)frozen_ns, NULL);
    if (r < 0)
        return r;
    *ret = facts(w, frozen_ns);
    return *ret ? 0 : fail(err, -ENOMEM, "snapshot: out of memory");
}

/* ---- a copy ---- */

static const char *said(const struct warden *w, const char *object, const char *name)
{
    return json_string_value(json_object_get(json_object_get(w->copy.manifest, object), name));
}

int copy_open(struct warden *w, struct cella_error *err)
{
    if (!w->req.snapshot)
        return 0;
    if (json_array_size(w->req.mounts))
        return fail(err, -EINVAL, "restore: a copy cannot get mounts that its parent did not have");
    return snapshot_open(w->config_given->state_dir, w->req.snapshot, &w->copy, err);
}

void copy_undo(struct warden *w)
{
    if (w->config_given)
        snapshot_release(w->config_given->state_dir, &w->copy);
}

int copy_parent(const struct warden *w, struct audit_parent *ret)
{
    if (!w->copy.manifest)
        return 0;
    ret->chain = said(w, "cell", "id");
    ret->head = said(w, "chain", "head");
    ret->seq = (uint64_t)json_integer_value(
        json_object_get(json_object_get(w->copy.manifest, "chain"), "seq"));
    return 1;
}

static int differs(const struct warden *w, const char *what, const char *was, const char *is,
                   struct cella_error *err)
{
    if (!strcmp(was, is))
        return 0;
    return fail(err, -ENOTSUP,
                "snapshot %s does not fit here: %s was \"%s\" when it was taken, and is \"%s\"",
                w->copy.id, what, was, is);
}

int copy_fits_backend(struct warden *w, struct cella_error *err)
{
    const char *strength = strength_name(w->probe.probe.strength);
    auto_free char *cpu = NULL;
    int r;

    if (!w->copy.manifest)
        return 0;
    r = differs(w, "the backend", said(w, "backend", "name"), w->backend_plugin->name, err);
    if (r == 0)
        r = differs(w, "the backend's version", said(w, "backend", "version"),
                    w->backend_plugin->version, err);
    if (r == 0)
        r = differs(w, "the strength", said(w, "backend", "strength"), strength, err);
    if (r < 0 || w->probe.probe.strength != CELLA_STRENGTH_VM)
        return r; /* an emulated processor is the same everywhere */
    cpu = cpu_text();
    return differs(w, "the processor", said(w, "host", "cpu"), cpu ? cpu : "", err);
}

int copy_fits_image(struct warden *w, struct cella_error *err)
{
    return w->copy.manifest
               ? differs(w, "the image", said(w, "image", "digest"), w->image.digest, err)
               : 0;
}

static int copy_machine(struct warden *w, const struct cella_spec *spec, struct cella_error *err)
{
    auto_close int machine =
        openat(w->copy.dirfd, SNAPSHOT_MACHINE, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r;

    if (machine < 0)
        return fail(err, -errno, "snapshot %s: %s", w->copy.id, strerror(errno));
    r = spec ? backend_restore(w->backend_plugin, &w->backend_host.table, spec, machine,
                               &w->backend, err)
             : backend_load(&w->backend, machine, err);
    if (r < 0)
        return r;
    w->copy_generation =
        (uint64_t)json_integer_value(json_object_get(w->copy.manifest, "generation")) + 1;
    json_object_set_new(w->cell, "parent",
                        json_pack("{s:s, s:s, s:I}", "cell", said(w, "cell", "id"), "snapshot",
                                  w->copy.id, "copy_generation", (json_int_t)w->copy_generation));
    if (w->machine)
        machine_is_copy(w, w->copy_generation);
    return 0;
}

int copy_backend(struct warden *w, const struct cella_spec *spec, struct cella_error *err)
{
    return copy_machine(w, spec, err);
}

int copy_load(struct warden *w, struct cella_error *err)
{
    return copy_machine(w, NULL, err);
}

int copy_recipe(const struct warden *w, json_t **ret, struct cella_error *err)
{
    const struct cella_backend_ops *ops = &w->backend_plugin->ops.backend;
    int r = take_possible(w, err);

    if (r == 0 && (!w->machine || !ops->prepare || !ops->load))
        r = fail(err, -EOPNOTSUPP, "spares: backend %s does not prepare copies",
                 w->backend_plugin->name);
    if (r < 0)
        return r;
    *ret = request_of(w);
    json_object_del(*ret, "policy_file");
    json_object_set_new(*ret, "policy",
                        json_string(w->link_kind == CELLA_LINK_NONE ? "none" : "deny"));
    json_object_set_new(*ret, "spare_of", json_string(w->dir.id));
    return 0;
}

/* The parent had left phases behind; so has the copy, as long as it is the same policy. */
int copy_phase(struct warden *w, struct cella_error *err)
{
    const char *phase = w->copy.manifest ? said(w, "policy", "phase") : "";
    size_t n = strlen(w->copy.path);
    json_t *args, *reply = NULL;
    int same, r;

    if (!*phase || !strcmp(phase, w->policy.phase))
        return 0;
    same = !strcmp(w->policy.name, said(w, "policy", "name")) ||
           (!strncmp(w->policy.name, w->copy.path, n) && w->policy.name[n] == '/');
    if (!same)
        return 0;
    args = json_pack("{s:s}", "to", phase);
    r = policy_phase(w, args, &reply, err);
    json_decref(args);
    json_decref(reply);
    return r < 0 ? fail_wrap(err,
                             "the parent was in phase %s, and its policy as it is now cannot go "
                             "there (--policy gives the copy another)",
                             phase)
                 : 0;
}
