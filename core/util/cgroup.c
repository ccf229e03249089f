/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cgroup - where the hierarchies are, and the directories of one cell in them.
 *
 * The layout comes from two texts of /proc, so that every mix of v1 and v2 can be tested on any
 * host. A v1 mount can show only a part of its hierarchy (its "root" in mountinfo, as inside a
 * container): paths of /proc/self/cgroup are then relative to the whole hierarchy and the root is
 * taken off again.
 *
 * Invariants: a path is absolute and fits CGROUP_PATH_MAX or the call fails; a failed
 * cgroup_create() removes what it made, except the shared parent directory. Threads: one; cgroup_layout_read() keeps what it read for a moment.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "cgroup.h"

#define LAYOUT_NS 100000000u /* a probe and the create after it see one layout */
#define TEXT_MAX (1u << 20)

static const struct {
    const char *v1, *v2;
} names[CGROUP_N] = {
    [CGROUP_MEMORY] = {"memory", "memory"}, [CGROUP_PIDS] = {"pids", "pids"},
    [CGROUP_CPU] = {"cpu", "cpu"},          [CGROUP_CPUACCT] = {"cpuacct", NULL},
    [CGROUP_FREEZER] = {"freezer", NULL},   [CGROUP_IO] = {"blkio", "io"},
};

const char *cgroup_controller_name(enum cgroup_controller c)
{
    return names[c].v2 ? names[c].v2 : names[c].v1;
}

/* Controllers in a list with separator `sep`. */
static uint32_t controllers_of(const char *list, size_t len, char sep, int version)
{
    uint32_t mask = 0, i;
    size_t at = 0;

    while (at < len) {
        const char *end = memchr(list + at, sep, len - at);
        size_t n = end ? (size_t)(end - list) - at : len - at;
        for (i = 0; i < CGROUP_N; i++) {
            const char *want = version == 2 ? names[i].v2 : names[i].v1;
            if (want && strlen(want) == n && memcmp(want, list + at, n) == 0)
                mask |= 1u << i;
        }
        at += n + 1;
    }
    return mask;
}

/* Copies one field of mountinfo, undoing its \ooo escapes. */
static int field_copy(const char *p, size_t len, char out[CGROUP_PATH_MAX])
{
    size_t i, o = 0;

    for (i = 0; i < len; i++) {
        char c = p[i];
        if (c == '\\' && len - i >= 4) {
            c = (char)((p[i + 1] - '0') * 64 + (p[i + 2] - '0') * 8 + (p[i + 3] - '0'));
            i += 3;
        }
        if (o + 1 >= CGROUP_PATH_MAX || !c)
            return -ENAMETOOLONG;
        out[o++] = c;
    }
    out[o] = 0;
    return 0;
}

struct mount_line {
    const char *f[64]; /* field starts */
    size_t len[64];
    size_t n, dash; /* dash: index of the "-" field */
};

static int line_split(const char *line, size_t len, struct mount_line *ret)
{
    size_t at = 0;

    memset(ret, 0, sizeof(*ret));
    while (at < len && ret->n < ARRAY_LEN(ret->f)) {
        const char *end = memchr(line + at, ' ', len - at);
        size_t n = end ? (size_t)(end - line) - at : len - at;
        if (n == 1 && line[at] == '-' && !ret->dash)
            ret->dash = ret->n;
        ret->f[ret->n] = line + at;
        ret->len[ret->n++] = n;
        at += n + 1;
    }
    /* id parent dev root point options … - type source superoptions */
    return ret->dash >= 6 && ret->n >= ret->dash + 4 ? 0 : -EINVAL;
}

static int field_is(const struct mount_line *l, size_t i, const char *s)
{
    return l->len[i] == strlen(s) && memcmp(l->f[i], s, l->len[i]) == 0;
}

/* The caller's group in the hierarchy of `m`, below the mount's root. */
static int own_find(const char *self_cgroup, int version, const char *root, struct cgroup_mount *m)
{
    const char *line = self_cgroup;

    while (*line) {
        const char *end = strchrnul(line, '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path) {
            size_t n = (size_t)(path - list) - 1;
            int match = version == 2 ? n == 0 && line[0] == '0'
                                     : (controllers_of(list + 1, n, ',', 1) & m->controllers) != 0;
            if (match) {
                size_t skip = strcmp(root, "/") ? strlen(root) : 0;
                size_t len = (size_t)(end - path) - 1;
                path++;
                if (skip > len || memcmp(path, root, skip) || (skip < len && path[skip] != '/'))
                    skip = len; /* outside what is mounted: start at the mount */
                if (len - skip >= sizeof(m->own))
                    return -ENAMETOOLONG;
                memcpy(m->own, path + skip, len - skip);
                m->own[len - skip] = 0;
                if (!strcmp(m->own, "/") || strstr(m->own, "/.."))
                    m->own[0] = 0;
                return 0;
            }
        }
        line = *end ? end + 1 : end;
    }
    m->own[0] = 0;
    return 0;
}

static int mount_take(struct cgroup_layout *l, const struct mount_line *line,
                      const char *self_cgroup, const char *v2_controllers)
{
    int version = field_is(line, line->dash + 1, "cgroup2")  ? 2
                  : field_is(line, line->dash + 1, "cgroup") ? 1
                                                             : 0;
    struct cgroup_mount m = {0};
    char root[CGROUP_PATH_MAX];
    uint32_t i, taken = 0;
    int r;

    if (!version)
        return 0;
    m.controllers =
        version == 2 ? controllers_of(v2_controllers, strcspn(v2_controllers, "\n"), ' ', 2)
                     : controllers_of(line->f[line->dash + 3], line->len[line->dash + 3], ',', 1);
    for (i = 0; i < l->n_v1; i++)
        taken |= l->v1[i].controllers;
    if (version == 2 ? l->v2.path[0] != 0 : !m.controllers || (m.controllers & taken))
        return 0; /* a second mount of a hierarchy we have, or one without use to us */
    r = field_copy(line->f[3], line->len[3], root);
    if (r == 0)
        r = field_copy(line->f[4], line->len[4], m.path);
    if (r == 0 && m.path[0] != '/')
        return 0;
    if (r == 0)
        r = own_find(self_cgroup, version, root, &m);
    if (r < 0)
        return r;
    if (version == 2)
        l->v2 = m;
    else if (l->n_v1 < CGROUP_N)
        l->v1[l->n_v1++] = m;
    return 0;
}

int cgroup_layout_parse(const char *mountinfo, const char *self_cgroup, const char *v2_controllers,
                        struct cgroup_layout *ret)
{
    struct cgroup_layout l = {0};
    const char *p = mountinfo;

    while (*p) {
        const char *end = strchrnul(p, '\n');
        struct mount_line line;
        if (line_split(p, (size_t)(end - p), &line) == 0) {
            int r = mount_take(&l, &line, self_cgroup, v2_controllers);
            if (r < 0)
                return r;
        }
        p = *end ? end + 1 : end;
    }
    if (!l.v2.path[0] && !l.n_v1)
        return -EINVAL;
    *ret = l;
    return 0;
}

int cgroup_layout_read(struct cgroup_layout *ret, struct cella_error *err)
{
    static struct cgroup_layout l;
    static uint64_t read_ns;
    auto_free char *mountinfo = NULL, *own = NULL, *controllers = NULL;
    int r;

    if (read_ns && now_ns() - read_ns < LAYOUT_NS) {
        *ret = l;
        return 0;
    }
    r = read_file_at(AT_FDCWD, "/proc/self/mountinfo", TEXT_MAX, &mountinfo, NULL);

    if (r == 0)
        r = read_file_at(AT_FDCWD, "/proc/self/cgroup", TEXT_MAX, &own, NULL);
    if (r == 0)
        r = cgroup_layout_parse(mountinfo, own, "", &l);
    if (r < 0)
        return fail(
            err, r,
            "control groups: no hierarchy found in /proc/self/mountinfo (%s); mount cgroup2 on "
            "/sys/fs/cgroup",
            strerror(-r));
    if (l.v2.path[0]) {
        char path[CGROUP_PATH_MAX + 32];
        snprintf(path, sizeof(path), "%s/cgroup.controllers", l.v2.path);
        if (read_file_at(AT_FDCWD, path, 4096, &controllers, NULL) == 0)
            l.v2.controllers = controllers_of(controllers, strcspn(controllers, "\n"), ' ', 2);
    }
    read_ns = now_ns();
    *ret = l;
    return 0;
}

int cgroup_layout_version(const struct cgroup_layout *l, enum cgroup_controller c)
{
    uint32_t i;

    if (l->v2.path[0] && (!names[c].v2 || (l->v2.controllers & (1u << c))))
        return 2;
    for (i = 0; i < l->n_v1; i++)
        if (l->v1[i].controllers & (1u << c))
            return 1;
    return 0;
}

/* ------------------------------------------------------------- one cell's group */

static int dir_add(struct cgroup *g, int version, uint32_t controllers, const char *base,
                   const char *id, struct cella_error *err)
{
    struct cgroup_dir *d = &g->dirs[g->n_dirs];
    int n = snprintf(d->path, sizeof(d->path), "%s/%s", base, id);
    int made;

    if (n < 0 || (size_t)n >= sizeof(d->path))
        return fail(err, -ENAMETOOLONG, "control group %s/%s: path is too long", base, id);
    made = mkdir(d->path, 0755);
    if (made < 0 && errno == ENOENT && (mkdir(base, 0755) == 0 || errno == EEXIST))
        made = mkdir(d->path, 0755);
    if (made < 0)
        return fail(err, -errno, "control group %s: cannot create it: %s%s", d->path,
                    strerror(errno), errno == EEXIST ? "; run `cella gc`" : "");
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) {
        int e = errno;
        rmdir(d->path);
        return fail(err, -e, "control group %s: cannot open it: %s", d->path, strerror(e));
    }
    d->version = version;
    d->controllers = controllers;
    g->n_dirs++;
    return 0;
}

/* Enables `mask` for the children of `path`. Already enabled is the common case and costs one read.
 */
static int v2_enable(const char *path, uint32_t mask, struct cella_error *err)
{
    char file[CGROUP_PATH_MAX + 32], text[128] = "";
    auto_free char *now = NULL;
    uint32_t i, have;
    int r;

    if (!mask)
        return 0;
    snprintf(file, sizeof(file), "%s/cgroup.subtree_control", path);
    r = read_file_at(AT_FDCWD, file, 4096, &now, NULL);
    if (r < 0)
        return fail(err, r, "control group %s: cannot read it: %s", file, strerror(-r));
    have = controllers_of(now, strcspn(now, "\n"), ' ', 2);
    for (i = 0; i < CGROUP_N; i++)
        if ((mask & ~have) & (1u << i)) {
            strcat(text, text[0] ? " +" : "+");
            strcat(text, names[i].v2);
        }
    if (!text[0])
        return 0;
    r = write_file_at(AT_FDCWD, file, text);
    if (r < 0)
        return fail(
            err, r, "control group %s: cannot enable \"%s\": %s%s", file, text, strerror(-r),
            r == -EBUSY ? "; a group with processes of its own cannot have limited children: "
                          "set the container backend's cgroup-parent to an empty group"
                        : "");
    return 0;
}

static int v2_create(const struct cgroup_layout *l, const char *parent, const char *id,
                     uint32_t want, struct cgroup *g, struct cella_error *err)
{
    char base[CGROUP_PATH_MAX];
    uint32_t use = want & l->v2.controllers;
    size_t root = strlen(l->v2.path), at;
    int n = snprintf(base, sizeof(base), "%s/%s", l->v2.path, parent), r;

    if (n < 0 || (size_t)n >= sizeof(base))
        return fail(err, -ENAMETOOLONG, "control group %s/%s: path is too long", l->v2.path,
                    parent);
    /* every ancestor from the root down to the parent passes the controllers on */
    for (at = root; use; at++) {
        char c = base[at];
        if (c && c != '/')
            continue;
        base[at] = 0;
        if (at > root && mkdir(base, 0755) < 0 && errno != EEXIST)
            return fail(err, -errno, "control group %s: cannot create it: %s", base,
                        strerror(errno));
        r = v2_enable(base, use, err);
        base[at] = c;
        if (r < 0)
            return r;
        if (!c)
            break;
    }
    r = dir_add(g, 2, use, base, id, err);
    if (r == 0)
        g->v2 = (int)g->n_dirs - 1;
    return r;
}

int cgroup_create(const struct cgroup_layout *l, const char *parent, const char *id, uint32_t want,
                  struct cgroup *ret, struct cella_error *err)
{
    struct cgroup g = {.v2 = -1};
    uint32_t i;
    int r = 0;

    if (!parent || !*parent)
        parent = "cella";
    if (parent[0] == '/' || strstr(parent, "..") || strstr(parent, "//"))
        return fail(
            err, -EINVAL,
            "cgroup-parent \"%s\": expected a path below the root of the cgroup tree, such as "
            "\"cella\"",
            parent);
    if (l->v2.path[0])
        r = v2_create(l, parent, id, want, &g, err);
    for (i = 0; r == 0 && i < l->n_v1; i++) {
        const struct cgroup_mount *m = &l->v1[i];
        char base[CGROUP_PATH_MAX], name[64];
        int n;
        if (!(m->controllers & want))
            continue;
        /* no parent of all cells here: it would stay behind in somebody else's group, or cost two calls a cell */
        snprintf(name, sizeof(name), CGROUP_V1_PREFIX "%s", id);
        n = snprintf(base, sizeof(base), "%s%s", m->path, m->own);
        if (n < 0 || (size_t)n >= sizeof(base))
            r = fail(err, -ENAMETOOLONG, "control group %s%s: path is too long", m->path, m->own);
        else
            r = dir_add(&g, 1, m->controllers, base, name, err);
    }
    if (r < 0) {
        cgroup_remove(&g);
        return r;
    }
    *ret = g;
    return 0;
}

int cgroup_has(const struct cgroup *g, enum cgroup_controller c)
{
    uint32_t i;

    for (i = 0; i < g->n_dirs; i++)
        if (g->dirs[i].controllers & (1u << c))
            return 1;
    return 0;
}

int cgroup_entry(const struct cgroup *g, int *ret_v2_fd, int own_fds[CGROUP_N],
                 struct cella_error *err)
{
    uint32_t i;
    int n = 0;

    for (i = 0; i < g->n_dirs; i++) {
        if (g->dirs[i].version != 1)
            continue;
        own_fds[n] = openat(g->dirs[i].fd, "tasks", O_WRONLY | O_CLOEXEC);
        if (own_fds[n] < 0) {
            int e = errno;
            while (n)
                close(own_fds[--n]);
            return fail(err, -e, "control group %s/tasks: %s", g->dirs[i].path, strerror(e));
        }
        n++;
    }
    *ret_v2_fd = g->v2 >= 0 ? g->dirs[g->v2].fd : -1;
    return n;
}

void cgroup_close(struct cgroup *g)
{
    uint32_t i;

    for (i = 0; i < g->n_dirs; i++)
        if (g->dirs[i].fd >= 0) {
            close(g->dirs[i].fd);
            g->dirs[i].fd = -1;
        }
}

int cgroup_dir_rmdir(const struct cgroup_dir *d, int tries)
{
    while (rmdir(d->path) < 0) {
        if (errno == ENOENT)
            break;
        if (errno != EBUSY || tries-- <= 0)
            return -errno;
        usleep(1000); /* a group is busy for a moment after its last process was reaped */
    }
    return 0;
}

void cgroup_remove(struct cgroup *g)
{
    uint32_t i;

    for (i = 0; i < g->n_dirs; i++) {
        if (cgroup_dir_rmdir(&g->dirs[i], 0) == 0)
            continue;
        cgroup_kill(g);
        cgroup_wait_empty(g, 5000000000u);
        cgroup_dir_rmdir(&g->dirs[i], 2000);
    }
    cgroup_close(g);
    g->n_dirs = 0;
    g->v2 = -1;
}
