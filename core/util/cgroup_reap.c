/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cgroup_reap - the groups of a dead cell, found by its id alone.
 *
 * Where the dead process had put them depends on its own group and configuration, which nobody knows any more; so every
 * hierarchy is walked for a directory of that name. Ids are random and unique on the host. The walk is bounded in depth and in
 * entries. Threads: no state.
 */
#include <dirent.h>
#include <fcntl.h>

#include "cgroup.h"

#define WALK_DEPTH 12
#define WALK_ENTRIES 100000

struct walk {
    const char *id;
    struct cgroup *g;
    int version;
    unsigned entries;
};

static int is_group_of(const char *name, const struct walk *w)
{
    size_t n = w->version == 1 ? strlen(CGROUP_V1_PREFIX) : 0;

    return !strncmp(name, CGROUP_V1_PREFIX, n) && !strcmp(name + n, w->id);
}

/* Looks for groups of the cell below the open directory (takes fd). */
static void walk_dir(struct walk *w, int own_fd, const char *path, unsigned depth)
{
    DIR *d = fdopendir(own_fd);
    struct dirent *e;

    if (!d) {
        close(own_fd);
        return;
    }
    while ((e = readdir(d)) && w->entries++ < WALK_ENTRIES) {
        char child[CGROUP_PATH_MAX];
        int n, fd;
        if (e->d_type != DT_DIR || e->d_name[0] == '.')
            continue;
        n = snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        if (n < 0 || (size_t)n >= sizeof(child))
            continue;
        fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        if (is_group_of(e->d_name, w) && w->g->n_dirs < ARRAY_LEN(w->g->dirs)) {
            struct cgroup_dir *found = &w->g->dirs[w->g->n_dirs++];
            strcpy(found->path, child);
            found->fd = fd;
            found->version = w->version;
            found->controllers = 1u << CGROUP_FREEZER; /* thaw it when it is one */
            if (w->version == 2)
                w->g->v2 = (int)w->g->n_dirs - 1;
        } else if (depth < WALK_DEPTH) {
            walk_dir(w, fd, child, depth + 1);
        } else {
            close(fd);
        }
    }
    closedir(d);
}

static void walk_mount(const struct cgroup_mount *m, int version, const char *id, struct cgroup *g)
{
    struct walk w = {id, g, version, 0};
    int fd;

    if (!m->path[0])
        return;
    fd = open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        walk_dir(&w, fd, m->path, 0);
}

int cgroup_reap(const struct cgroup_layout *l, const char *id, int dry_run, void *ctx,
                void (*found)(void *ctx, const char *what), struct cella_error *err)
{
    struct cgroup g = {.v2 = -1};
    uint32_t i, n;
    int r = 0;

    walk_mount(&l->v2, 2, id, &g);
    for (i = 0; i < l->n_v1; i++)
        walk_mount(&l->v1[i], 1, id, &g);
    n = g.n_dirs;
    for (i = 0; found && i < n; i++) {
        char what[CGROUP_PATH_MAX + 16];
        snprintf(what, sizeof(what), "cgroup %s", g.dirs[i].path);
        found(ctx, what);
    }
    if (!dry_run && n) {
        cgroup_kill(&g);
        cgroup_wait_empty(&g, 5000000000u);
        for (i = 0; i < n; i++) {
            int e = cgroup_dir_rmdir(&g.dirs[i], 2000);
            if (e < 0 && r == 0)
                r = fail(err, e,
                         "control group %s: cannot remove it: %s; its processes are still there",
                         g.dirs[i].path, strerror(-e));
        }
    }
    cgroup_close(&g);
    return r < 0 ? r : (int)n;
}

int cgroup_reap_cell(const struct cella_reap *reap, struct cella_error *err)
{
    struct cgroup_layout layout;
    int r = cgroup_layout_read(&layout, err);

    if (r == 0)
        r = cgroup_reap(&layout, reap->cell_id, reap->dry_run != 0, reap->ctx, reap->found, err);
    return r;
}
