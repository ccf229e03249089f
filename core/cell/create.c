/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * create - the arrow to the backend: everything it needs in one spec. The agent goes into sealed
 * memory, the per-cell files of /etc are written beside the cell, the user's mounts are checked
 * against the operator's rules.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "mounts.h"
#include "warden.h"

#define AGENT_MAX (16 << 20)

/* The agent runs from memory that nobody can change: a file in the cell could be replaced. */
static int agent_memfd(struct warden *w, struct cella_error *err)
{
    const char *path = helper_path("cella-agent");
    auto_close int file = -1, mem = -1;
    struct stat st;
    off_t at = 0;

    if (!path)
        return fail(err, -ENOENT, "cella-agent: not found beside cella; build or install it");
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &st) < 0)
        return fail(err, -errno, "agent %s: %s", path, strerror(errno));
    if (st.st_size <= 0 || st.st_size > AGENT_MAX)
        return fail(err, -EINVAL, "agent %s: %lld bytes is no agent", path, (long long)st.st_size);
    mem = memfd_create("cella-agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    while (mem >= 0 && at < st.st_size)
        if (sendfile(mem, file, &at, (size_t)(st.st_size - at)) <= 0)
            return fail(err, -EIO, "agent %s: copy to memory: %s", path, strerror(errno));
    if (mem < 0 ||
        fcntl(mem, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return fail(err, -errno, "agent: sealed memory: %s", strerror(errno));
    w->agent_fd = steal_fd(&mem);
    return 0;
}

struct mount_list {
    struct cella_mount v[CELL_MOUNTS_MAX + 80]; /* user's, image's, etc and trust */
    uint32_t n;
    char *own[CELL_MOUNTS_MAX]; /* resolved sources of the user's mounts */
    size_t n_own;
};

static void mount_list_fini(struct mount_list *l)
{
    while (l->n_own)
        free(l->own[--l->n_own]);
}

/* Absolute, no empty, "." or ".." component, not "/" and not below what the backend makes itself.
 */
static int target_check(const char *target, struct cella_error *err)
{
    static const char *const reserved[] = {"/proc", "/sys", "/dev"};
    const char *p = target;
    size_t i, n;

    if (target[0] != '/' || !target[1] || strlen(target) >= 4096)
        return fail(err, -EINVAL, "mount target \"%s\": must be an absolute path other than /",
                    target);
    while (*p) {
        p++;
        n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return fail(err, -EINVAL, "mount target \"%s\": must be normalised (no //, . or ..)",
                        target);
        p += n;
    }
    for (i = 0; i < ARRAY_LEN(reserved); i++) {
        n = strlen(reserved[i]);
        if (!strncmp(target, reserved[i], n) && (!target[n] || target[n] == '/'))
            return fail(err, -EINVAL, "mount target \"%s\": %s belongs to the backend", target,
                        reserved[i]);
    }
    return 0;
}

static int user_mounts(struct warden *w, struct mount_list *l, struct cella_error *err)
{
    size_t i;
    json_t *m;
    int r;

    json_array_foreach(w->req.mounts, i, m)
    {
        const char *source = json_string_value(json_object_get(m, "source"));
        const char *target = json_string_value(json_object_get(m, "target"));
        int rw = json_is_true(json_object_get(m, "rw"));
        char real[PATH_MAX];
        struct stat st;
        if (!source || !target)
            return fail(err, -EINVAL, "mounts[%zu]: needs \"source\" and \"target\"", i);
        r = mount_resolve(w->config, source, rw, real, err);
        if (r == 0)
            r = target_check(target, err);
        if (r < 0)
            return r;
        if (stat(real, &st) < 0)
            return fail(err, -errno, "mount %s: %s", source, strerror(errno));
        l->own[l->n_own] = strdup(real);
        if (!l->own[l->n_own])
            return fail(err, -ENOMEM, "mount %s: out of memory", source);
        l->v[l->n++] = (struct cella_mount){
            l->own[l->n_own++], target, CELLA_MOUNT_BIND,
            (rw ? CELLA_MOUNT_WRITABLE : 0u) | (S_ISDIR(st.st_mode) ? 0u : CELLA_MOUNT_FILE), 0};
        r = warden_audit(w, err, "cell.mount", "s:source", source, "s:target", target, "b:writable",
                         rw, NULL);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Per-cell files below /etc, generated in the cell's directory. */
static int etc_file(struct warden *w, struct mount_list *l, char *const source, const char *target,
                    const char *text, struct cella_error *err)
{
    const char *name = strrchr(target, '/') + 1;
    int r;

    snprintf(source, 600, "%s/etc.%s", w->dir.path, name);
    r = create_file_at(w->dir.dirfd, source + strlen(w->dir.path) + 1, text, strlen(text), 0644);
    if (r < 0)
        return fail(err, r, "%s: %s", source, strerror(-r));
    l->v[l->n++] = (struct cella_mount){source, target, CELLA_MOUNT_BIND,
                                        CELLA_MOUNT_FILE | CELLA_MOUNT_IMAGE, 0};
    return 0;
}

struct etc_paths {
    char resolv[600], hosts[600], hostname[600];
};

static const char *cell_hostname(const struct warden *w)
{
    return w->req.hostname ? w->req.hostname : w->req.name ? w->req.name : w->dir.id;
}

static int etc_mounts(struct warden *w, struct mount_list *l, struct etc_paths *p,
                      struct cella_error *err)
{
    char resolv[128], hosts[256], hostname[80];
    int r;

    snprintf(resolv, sizeof(resolv), "%s%s%s", w->attached.gateway[0] ? "nameserver " : "",
             w->attached.gateway, w->attached.gateway[0] ? "\noptions timeout:2 attempts:1\n" : "");
    snprintf(hosts, sizeof(hosts), "127.0.0.1 localhost\n127.0.1.1 %s\n", cell_hostname(w));
    snprintf(hostname, sizeof(hostname), "%s\n", cell_hostname(w));
    r = etc_file(w, l, p->resolv, "/etc/resolv.conf", resolv, err);
    if (r == 0)
        r = etc_file(w, l, p->hosts, "/etc/hosts", hosts, err);
    if (r == 0)
        r = etc_file(w, l, p->hostname, "/etc/hostname", hostname, err);
    return r;
}

/* A guest gets only the user's mounts from its backend; init makes the others of what it is told. */
static int guest_mounts(struct warden *w, struct mount_list *l, struct cella_error *err)
{
    struct cella_mount shown[SHOWN_MOUNTS_MAX + 1];
    uint32_t n_shown = 0;
    int r = l->n ? fail(err, -ENOTSUP, "image %s: it is made of mounts, which a guest cannot have",
                        w->image.name)
                 : shown_mounts(w, shown, &n_shown, err);

    if (r == 0)
        r = user_mounts(w, l, err);
    return r == 0 ? machine_prepare(w, cell_hostname(w), shown, n_shown, l->v, l->n, err) : r;
}

int create_cell_late(struct warden *w, struct cella_error *err)
{
    struct mount_list mounts = {.n = 0};
    int r = guest_mounts(w, &mounts, err);

    mount_list_fini(&mounts);
    return r < 0 ? r : copy_load(w, err);
}

static int backend_make(struct warden *w, const struct cella_spec *spec, struct cella_error *err)
{
    const struct cella_host *host = &w->backend_host.table;

    if (w->copy.manifest)
        return copy_backend(w, spec, err);
    return w->req.spare_of ? backend_prepare(w->backend_plugin, host, spec, &w->backend, err)
                           : backend_create(w->backend_plugin, host, spec, &w->backend, err);
}

/* Everything that is mounted in the cell: the image's own, ours, the user's. */
static int all_mounts(struct warden *w, struct mount_list *mounts, struct etc_paths *etc,
                      struct cella_error *err)
{
    int r;

    if (w->image.n_mounts > 64)
        return fail(err, -E2BIG, "image %s: %zu mounts", w->image.name, w->image.n_mounts);
    for (; mounts->n < w->image.n_mounts; mounts->n++)
        mounts->v[mounts->n] = w->image.mounts[mounts->n];
    if (w->probe.probe.root_need == CELLA_ROOT_IMAGE)
        return w->req.spare_of ? 0 : guest_mounts(w, mounts, err);
    if (w->req.spare_of)
        return fail(err, -EOPNOTSUPP, "spares: only machines are prepared for a fork");
    r = etc_mounts(w, mounts, etc, err);
    if (r == 0)
        r = shown_mounts(w, mounts->v, &mounts->n, err);
    return r < 0 ? r : user_mounts(w, mounts, err);
}

int create_cell(struct warden *w, struct cella_error *err)
{
    struct cella_limits limits = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS),
                                  .memory_bytes = w->req.limits.memory,
                                  .disk_bytes = w->req.limits.disk,
                                  .cpu_millis = w->req.limits.cpu_millis,
                                  .pids = w->req.limits.pids,
                                  .io_read_bps = w->req.limits.io_read_bps,
                                  .io_write_bps = w->req.limits.io_write_bps};
    struct cella_spec spec = {.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC),
                              .cell_id = w->dir.id,
                              .hostname = cell_hostname(w),
                              .root = w->image.root,
                              .kernel = w->image.kernel,
                              .initrd = w->image.initrd,
                              .uid_base = CELLA_UID_BASE + w->slot * CELLA_UID_COUNT,
                              .uid_count = CELLA_UID_COUNT,
                              .borrow_userns_fd = w->userns_fd,
                              .borrow_netns_fd = w->netns_fd,
                              .own_tap_fd = -1,
                              .limits = &limits,
                              .options = option_set_get(w->backend_options)};
    auto_free char *scratch = path_join(w->dir.path, "scratch");
    struct mount_list mounts = {.n = 0};
    struct etc_paths etc;
    int r = agent_memfd(w, err);

    w->made = w->req.limits;
    if (r == 0)
        r = all_mounts(w, &mounts, &etc, err);
    if (r < 0) {
        mount_list_fini(&mounts);
        return r;
    }
    spec.hdr.flags = (w->req.readonly ? CELLA_SPEC_READONLY_ROOT : 0u) |
                     (w->class->best_effort ? CELLA_SPEC_BEST_EFFORT : 0u);
    spec.scratch = scratch;
    spec.own_tap_fd = w->attached.own_tap_fd;
    w->attached.own_tap_fd = -1;
    memcpy(spec.mac, w->attached.mac, sizeof(spec.mac));
    spec.borrow_agent_fd = w->agent_fd;
    spec.mounts = mounts.v;
    spec.n_mounts = mounts.n;
    spec.mount_stride = sizeof(mounts.v[0]);
    r = backend_make(w, &spec, err);
    mount_list_fini(&mounts);
    if (r < 0)
        return r;
    close(steal_fd(&w->agent_fd));
    return 0;
}

int create_cell_record(struct warden *w, struct cella_error *err)
{
    return warden_audit(w, err, "cell.create", "s:backend", w->backend_plugin->name, "i:memory",
                        (int64_t)w->req.limits.memory, "i:disk", (int64_t)w->req.limits.disk,
                        "i:cpu_millis", (int64_t)w->req.limits.cpu_millis, "i:pids",
                        (int64_t)w->req.limits.pids, "i:wall_ns", (int64_t)w->req.limits.wall_ns,
                        NULL);
}

void create_cell_undo(struct warden *w)
{
    struct errbuf eb;

    denials_close(&w->denials);
    w->trust_on = 0;

    if (w->backend.self && w->backend.state != BACKEND_STOPPED)
        backend_stop(&w->backend, CELLA_STOP_KILL, 0, errbuf_init(&eb));
    if (w->machine)
        machine_free(w);
    if (w->backend.self)
        backend_destroy(&w->backend);
    if (w->agent_fd >= 0)
        close(steal_fd(&w->agent_fd));
}
