/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * store - cells as directories below the state directory.
 *
 * Invariants: a cell directory is created and its lock taken under the store lock, so nobody sees
 * an unlocked directory of a live cell. A free lock means a dead warden. Who only looks shares the
 * lock for that moment: lookers are not taken for wardens, and who takes it over waits for them.
 * A name is a symbolic link, made with the exclusive semantics of symlink(2). A slot file is locked
 * before it is used and never unlinked, so that two processes cannot hold different inodes of one
 * slot. Lock order: store lock, then cell lock.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "store.h"

#define CELL_JSON_MAX (1u << 20)

static int sub(char *out, size_t cap, const char *a, const char *b, const char *c)
{
    int n = snprintf(out, cap, "%s/%s%s%s", a, b, c ? "/" : "", c ? c : "");

    return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

int store_init(const char *state_dir, struct cella_error *err)
{
    static const struct {
        const char *name;
        unsigned mode;
    } dirs[] = {{"cells", 0700}, {"names", 0700},  {"slots", 0700},
                {"audit", 0700}, {"images", 0755}, {"snapshots", 0700}};
    char path[512];
    size_t i;
    int r = mkdir_p(state_dir, 0711);

    if (r < 0)
        return fail(err, r, "state directory %s: %s; set state_dir to a place that can be written",
                    state_dir, strerror(-r));
    for (i = 0; i < ARRAY_LEN(dirs); i++) {
        r = sub(path, sizeof(path), state_dir, dirs[i].name, NULL);
        if (r == 0 && mkdir(path, dirs[i].mode) < 0 && errno != EEXIST)
            r = -errno;
        if (r < 0)
            return fail(err, r, "state directory %s/%s: %s", state_dir, dirs[i].name, strerror(-r));
    }
    return 0;
}

/* Opens and locks <state_dir>/lock. */
static int store_lock(const char *state_dir, struct cella_error *err)
{
    auto_close int fd = -1;
    char path[512];

    if (sub(path, sizeof(path), state_dir, "lock", NULL) < 0)
        return fail(err, -ENAMETOOLONG, "state directory %s: path too long", state_dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return fail(err, -errno, "lock %s: %s", path, strerror(errno));
    return steal_fd(&fd);
}

/* 1 when a warden, or who cleans up after one, holds the lock of the cell directory. */
static int cell_alive(int dirfd)
{
    auto_close int fd = openat(dirfd, "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return 0;
    return flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

static void copy_member(const json_t *json, const char *key, char *out, size_t cap)
{
    const char *s = json_string_value(json_object_get(json, key));

    snprintf(out, cap, "%s", s ? s : "");
}

static int info_read(const char *state_dir, const char *id, struct cell_info *ret)
{
    auto_free char *text = NULL;
    auto_close int dirfd = -1;
    struct cell_info info = {0};
    char path[512];
    int r = sub(path, sizeof(path), state_dir, "cells", id);

    if (r < 0)
        return r;
    dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dirfd < 0)
        return -errno;
    info.alive = cell_alive(dirfd);
    if (read_file_at(dirfd, "cell.json", CELL_JSON_MAX, &text, NULL) == 0)
        info.json = json_loads(text, 0, NULL);
    if (!info.json)
        info.json = json_object(); /* the warden died before its first save */
    snprintf(info.id, sizeof(info.id), "%s", id);
    copy_member(info.json, "name", info.name, sizeof(info.name));
    copy_member(info.json, "state", info.state, sizeof(info.state));
    if (!info.alive && strcmp(info.state, "stopped"))
        snprintf(info.state, sizeof(info.state), "dead");
    *ret = info;
    return 0;
}

void cell_info_fini(struct cell_info *info)
{
    json_decref(info->json);
    info->json = NULL;
}

static int id_valid(const char *s)
{
    return strlen(s) == CELLA_ID_LEN &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == CELLA_ID_LEN;
}

/* Name, id or unique prefix (4 or more characters) of an id. */
static int resolve(const char *state_dir, const char *cell, char id[CELLA_ID_LEN + 1],
                   struct cella_error *err)
{
    char path[512], target[CELLA_ID_LEN + 2];
    struct dirent *e;
    unsigned matches = 0;
    ssize_t n;
    DIR *d;

    if (!name_valid(cell))
        return fail(err, -EINVAL, "\"%s\" is no cell name or id", cell);
    if (sub(path, sizeof(path), state_dir, "names", cell) < 0)
        return fail(err, -ENAMETOOLONG, "state directory %s: path too long", state_dir);
    n = readlink(path, target, sizeof(target) - 1);
    if (n == CELLA_ID_LEN) {
        target[n] = 0;
        memcpy(id, target, CELLA_ID_LEN + 1);
        return 0;
    }
    sub(path, sizeof(path), state_dir, "cells", NULL);
    d = strlen(cell) >= 4 ? opendir(path) : NULL;
    while (d && (e = readdir(d)))
        if (id_valid(e->d_name) && !strncmp(e->d_name, cell, strlen(cell)) && ++matches == 1)
            memcpy(id, e->d_name, CELLA_ID_LEN + 1);
    if (d)
        closedir(d);
    if (matches == 1)
        return 0;
    return fail(err, matches ? -EEXIST : -ENOENT,
                matches ? "\"%s\" fits %u cells; give more of the id"
                        : "no cell is named \"%s\"; see cella ps -a",
                cell, matches);
}

int store_find(const char *state_dir, const char *cell, struct cell_info *ret,
               struct cella_error *err)
{
    char id[CELLA_ID_LEN + 1];
    int r = resolve(state_dir, cell, id, err);

    if (r < 0)
        return r;
    r = info_read(state_dir, id, ret);
    return r < 0 ? fail(err, r, "cell %s: %s", cell, strerror(-r)) : 0;
}

int store_list(const char *state_dir, int (*each)(void *ctx, const struct cell_info *info),
               void *ctx, struct cella_error *err)
{
    char path[512];
    struct dirent **names = NULL;
    int n, i, r = 0, stop = 0;

    if (sub(path, sizeof(path), state_dir, "cells", NULL) < 0)
        return fail(err, -ENAMETOOLONG, "state directory %s: path too long", state_dir);
    n = scandir(path, &names, NULL, alphasort);
    if (n < 0)
        return errno == ENOENT ? 0 : fail(err, -errno, "list %s: %s", path, strerror(errno));
    for (i = 0; i < n; i++) {
        struct cell_info info;
        if (!stop && id_valid(names[i]->d_name) &&
            info_read(state_dir, names[i]->d_name, &info) == 0) {
            stop = each(ctx, &info);
            cell_info_fini(&info);
        }
        free(names[i]);
    }
    free(names);
    return r;
}

void cell_dir_close(struct cell_dir *d)
{
    if (d->dirfd >= 0)
        close(d->dirfd);
    if (d->lockfd >= 0)
        close(d->lockfd);
    d->dirfd = d->lockfd = -1;
}

/* Nobody but lookers can have that of a new directory. */
static int lock_take(struct cell_dir *d, int new)
{
    const struct timespec moment = {0, 5000000};
    int i, r;

    d->lockfd = openat(d->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->lockfd < 0)
        return -errno;
    if (new)
        return flock(d->lockfd, LOCK_EX) < 0 ? -errno : 0;
    for (i = 0; (r = flock(d->lockfd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && i < 100;
         i++)
        nanosleep(&moment, NULL);
    return r == 0 ? 0 : errno == EWOULDBLOCK ? -EBUSY : -errno;
}

static int dir_open(const char *state_dir, const char *id, int make, struct cell_dir *ret)
{
    struct cell_dir d = {.dirfd = -1, .lockfd = -1};
    int r;

    if (sub(d.path, sizeof(d.path), state_dir, "cells", id) < 0)
        return -ENAMETOOLONG;
    memcpy(d.id, id, CELLA_ID_LEN + 1);
    if (make && mkdir(d.path, 0700) < 0)
        return -errno;
    d.dirfd = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    r = d.dirfd < 0 ? -errno : lock_take(&d, make);
    if (r == 0 && make && mkdirat(d.dirfd, "scratch", 0700) < 0)
        r = -errno;
    if (r < 0) {
        cell_dir_close(&d);
        if (make)
            remove_tree_at(AT_FDCWD, d.path);
        return r;
    }
    *ret = d;
    return 0;
}

static int name_link(const char *link, const char *id, const char *name, struct cella_error *err)
{
    char owner[CELLA_ID_LEN + 2];
    ssize_t n;
    int r;

    if (symlink(id, link) == 0)
        return 0;
    r = -errno;
    n = readlink(link, owner, sizeof(owner) - 1);
    owner[n > 0 ? n : 0] = 0;
    return fail(err, r, "name \"%s\": %s%s%s", name, r == -EEXIST ? "taken by cell " : strerror(-r),
                r == -EEXIST ? owner : "",
                r == -EEXIST ? "; choose another, or cella rm it (cella gc when it is dead)" : "");
}

int store_name(const char *state_dir, const struct cell_dir *d, const char *name,
               struct cella_error *err)
{
    auto_close int lock = store_lock(state_dir, err);
    char link[512];

    if (lock < 0)
        return lock;
    return sub(link, sizeof(link), state_dir, "names", name) < 0
               ? fail(err, -ENAMETOOLONG, "name \"%s\": path too long", name)
               : name_link(link, d->id, name, err);
}

int store_create(const char *state_dir, const char *name, struct cell_dir *ret,
                 struct cella_error *err)
{
    auto_close int lock = -1;
    char link[512], id[CELLA_ID_LEN + 1];
    struct cell_dir d;
    int r;

    lock = store_lock(state_dir, err);
    if (lock < 0)
        return lock;
    r = random_id(id);
    if (r == 0)
        r = sub(link, sizeof(link), state_dir, "names", name && name[0] ? name : id);
    if (r == 0)
        r = dir_open(state_dir, id, 1, &d);
    if (r < 0)
        return fail(err, r, "new cell directory in %s/cells: %s", state_dir, strerror(-r));
    if (name && name[0] && (r = name_link(link, id, name, err)) < 0) {
        store_remove(state_dir, &d, NULL);
        return r;
    }
    *ret = d;
    return 0;
}

int store_adopt(const char *state_dir, const char *id, struct cell_dir *ret,
                struct cella_error *err)
{
    auto_close int lock = store_lock(state_dir, err);
    int r;

    if (lock < 0)
        return lock;
    r = dir_open(state_dir, id, 0, ret);
    return r < 0 ? fail(err, r, "cell %s: %s", id, r == -EBUSY ? "its warden lives" : strerror(-r))
                 : 0;
}

int store_save(const struct cell_dir *d, const json_t *cell)
{
    auto_free char *text = json_dumps(cell, JSON_INDENT(1));

    return text ? replace_file_at(d->dirfd, "cell.json", text, strlen(text), 0600) : -ENOMEM;
}

/* Removes the name if it leads to this cell. */
static void name_unlink(const char *state_dir, const char *id, const char *name)
{
    char link[512], target[CELLA_ID_LEN + 2];
    ssize_t n;

    if (sub(link, sizeof(link), state_dir, "names", name) < 0)
        return;
    n = readlink(link, target, sizeof(target) - 1);
    if (n == CELLA_ID_LEN && !memcmp(target, id, CELLA_ID_LEN))
        unlink(link);
}

/* A warden that died before its first record leaves a name that only the link itself tells. */
static void names_unlink(const char *state_dir, const char *id)
{
    char path[512];
    struct dirent *e;
    DIR *d;

    d = sub(path, sizeof(path), state_dir, "names", NULL) == 0 ? opendir(path) : NULL;
    while (d && (e = readdir(d)))
        if (e->d_type == DT_LNK)
            name_unlink(state_dir, id, e->d_name);
    if (d)
        closedir(d);
}

int store_remove(const char *state_dir, struct cell_dir *d, const char *name)
{
    int r;

    if (name && name[0])
        name_unlink(state_dir, d->id, name);
    else
        names_unlink(state_dir, d->id);
    r = remove_tree_at(AT_FDCWD, d->path);
    cell_dir_close(d);
    return r;
}

/* 1 when the last user of the slot is a cell that nobody has cleaned up yet: its addresses and ids
 * wait. */
static int slot_unclean(const char *state_dir, int fd)
{
    char id[CELLA_ID_LEN + 1] = "", path[512];
    ssize_t n = pread(fd, id, CELLA_ID_LEN, 0);

    if (n != CELLA_ID_LEN || !id_valid(id))
        return 0;
    return sub(path, sizeof(path), state_dir, "cells", id) == 0 && access(path, F_OK) == 0;
}

int store_slot_take(const char *state_dir, const char *id, uint32_t *ret_slot, int *ret_fd,
                    struct cella_error *err)
{
    char path[512], name[16];
    uint32_t slot;

    for (slot = 0; slot < CELLA_SLOTS; slot++) {
        auto_close int fd = -1;
        snprintf(name, sizeof(name), "%u", slot);
        if (sub(path, sizeof(path), state_dir, "slots", name) < 0)
            return fail(err, -ENAMETOOLONG, "state directory %s: path too long", state_dir);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
            return fail(err, -errno, "slot file %s: %s", path, strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 || slot_unclean(state_dir, fd))
            continue;
        if (ftruncate(fd, 0) < 0 || write_all(fd, id, strlen(id)) < 0)
            return fail(err, -errno, "slot file %s: %s", path, strerror(errno));
        *ret_slot = slot;
        *ret_fd = steal_fd(&fd);
        return 0;
    }
    return fail(err, -EBUSY, "all %d slots of %s are in use; remove cells (cella ps)", CELLA_SLOTS,
                state_dir);
}
