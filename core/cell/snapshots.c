/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * snapshots - the store: which snapshots there are, made and removed as a whole.
 *
 * The client makes the directory, the warden fills it (take.c), the client adds what it finds there
 * and gives it its name. Invariants as in snapshot.h. Lock order: the store's lock, then a
 * snapshot's. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "artefact.h"
#include "client.h"
#include "snapshot.h"

#define MANIFEST_MAX (1u << 20)

void snapshot_close(struct snapshot *s)
{
    if (s->dirfd >= 0)
        close(s->dirfd);
    json_decref(s->manifest);
    *s = (struct snapshot)SNAPSHOT_INIT;
}

/* The directory of snapshots; `lock`: nobody else adds or removes. */
static int store_open(const char *state_dir, int *ret_lock, struct cella_error *err)
{
    char path[512];
    auto_close int fd = -1;
    int lock;

    snprintf(path, sizeof(path), "%s/snapshots", state_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return fail(err, -errno, "%s: %s", path, strerror(errno));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(err, -errno, "%s: %s", path, strerror(errno));
    if (ret_lock) {
        lock = openat(fd, ".lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0 || flock(lock, LOCK_EX) < 0)
            return fail(err, -errno, "%s/.lock: %s", path, strerror(errno));
        *ret_lock = lock;
    }
    return steal_fd(&fd);
}

static int id_valid(const char *s)
{
    return strlen(s) == CELLA_ID_LEN &&
           strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789") == CELLA_ID_LEN;
}

static json_t *manifest_read(int dirfd_)
{
    auto_free char *text = NULL;
    size_t len;

    if (read_file_at(dirfd_, SNAPSHOT_MANIFEST, MANIFEST_MAX, &text, &len) < 0)
        return NULL;
    return json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
}

static int opened(const char *state_dir, const char *id, struct snapshot *ret,
                  struct cella_error *err)
{
    struct snapshot s = SNAPSHOT_INIT;

    snprintf(s.id, sizeof(s.id), "%s", id);
    snprintf(s.path, sizeof(s.path), "%s/snapshots/%s", state_dir, id);
    s.dirfd = open(s.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (s.dirfd < 0)
        return fail(err, -errno, "snapshot %s: %s", id, strerror(errno));
    if (flock(s.dirfd, LOCK_SH) < 0 || access(s.path, F_OK) < 0) {
        int r = fail(err, -ENOENT, "snapshot %s: it is being removed", id);
        snapshot_close(&s);
        return r;
    }
    s.manifest = manifest_read(s.dirfd);
    *ret = s;
    return 0;
}

/* ---- which there are ---- */

static int each_id(const char *state_dir, int (*each)(void *ctx, int dir, const char *name),
                   void *ctx, struct cella_error *err)
{
    int fd = store_open(state_dir, NULL, err), r = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (fd < 0)
        return fd;
    if (!d) {
        close(fd);
        return fail(err, -ENOMEM, "out of memory");
    }
    while (r == 0 && (e = readdir(d)))
        if (id_valid(e->d_name) || !strncmp(e->d_name, ".tmp-", 5))
            r = each(ctx, dirfd(d), e->d_name);
    closedir(d);
    return r;
}

struct search {
    const char *wanted;
    char found[CELLA_ID_LEN + 1];
    unsigned n;
};

static int search_one(void *ctx, int dir, const char *id)
{
    struct search *s = ctx;
    auto_close int fd = -1;
    const char *name;
    json_t *m;

    if (id[0] == '.')
        return 0;
    if (strlen(s->wanted) >= 4 && !strncmp(id, s->wanted, strlen(s->wanted))) {
        snprintf(s->found, sizeof(s->found), "%s", id);
        s->n++;
        return 0;
    }
    fd = openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    m = fd < 0 ? NULL : manifest_read(fd);
    name = json_string_value(json_object_get(m, "name"));
    if (name && !strcmp(name, s->wanted)) {
        snprintf(s->found, sizeof(s->found), "%s", id);
        s->n++;
    }
    json_decref(m);
    return 0;
}

int snapshot_find(const char *state_dir, const char *name_or_id, struct snapshot *ret,
                  struct cella_error *err)
{
    struct search s = {.wanted = name_or_id};
    int r = each_id(state_dir, search_one, &s, err);

    if (r < 0)
        return r;
    if (s.n != 1)
        return fail(err, s.n ? -EEXIST : -ENOENT, "snapshot \"%s\": %s", name_or_id,
                    s.n ? "more than one has an id that begins so"
                        : "there is none; \"cella snapshot ls\" shows them");
    return opened(state_dir, s.found, ret, err);
}

int snapshot_open(const char *state_dir, const char *path, struct snapshot *ret,
                  struct cella_error *err)
{
    struct snapshot s = SNAPSHOT_INIT;
    const char *id = strrchr(path, '/');
    char expected[512];
    int r;

    snprintf(expected, sizeof(expected), "%s/snapshots/%s", state_dir, id ? id + 1 : "");
    if (!id || !id_valid(id + 1) || strcmp(expected, path))
        return fail(err, -EINVAL, "snapshot %s: it is not one of %s/snapshots", path, state_dir);
    r = opened(state_dir, id + 1, &s, err);
    if (r < 0)
        return r;
    r = manifest_check(s.manifest, err);
    if (r == 0)
        r = manifest_files_same(s.dirfd, json_object_get(s.manifest, "files"), 0, err);
    if (r < 0) {
        fail_wrap(err, "snapshot %s", s.id);
        snapshot_close(&s);
        return r;
    }
    *ret = s;
    return 0;
}

/* ---- sizes and the list ---- */

static void add_sizes(int dirfd_, const json_t *files, json_t *to)
{
    json_int_t apparent = 0, unique = 0;
    struct stat st;
    size_t i;
    json_t *file;

    json_array_foreach((json_t *)(uintptr_t)files, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "name"));
        if (!name || fstatat(dirfd_, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        apparent += st.st_size;
        if (st.st_nlink == 1) /* else another snapshot has the same bytes */
            unique += (json_int_t)st.st_blocks * 512;
    }
    json_object_set_new(to, "apparent", json_integer(apparent));
    json_object_set_new(to, "unique", json_integer(unique));
}

static int in_use(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 1;
    flock(fd, LOCK_UN);
    return 0;
}

static int list_one(void *ctx, int dir, const char *id)
{
    auto_close int fd =
        id[0] == '.' ? -1 : openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    json_t *row = fd < 0 ? NULL : manifest_read(fd);

    if (fd < 0)
        return 0;
    if (!json_is_object(row)) {
        json_decref(row);
        row = json_object();
        json_object_set_new(row, "damaged", json_true());
    }
    json_object_set_new(row, "id", json_string(id));
    add_sizes(fd, json_object_get(row, "files"), row);
    json_object_set_new(row, "in_use", json_boolean(in_use(fd)));
    json_array_append_new(ctx, row);
    return 0;
}

int snapshot_list(const char *state_dir, json_t **ret, struct cella_error *err)
{
    json_t *rows = json_array();
    int r = each_id(state_dir, list_one, rows, err);

    if (r < 0) {
        json_decref(rows);
        return r;
    }
    *ret = rows;
    return 0;
}

struct use {
    const char *digest;
    char *who;
};

static int use_one(void *ctx, int dir, const char *id)
{
    struct use *u = ctx;
    auto_close int fd = openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    json_t *m = fd < 0 ? NULL : manifest_read(fd);
    const char *digest = json_string_value(json_object_get(json_object_get(m, "image"), "digest"));
    const char *name = json_string_value(json_object_get(m, "name"));

    if (digest && !strcmp(digest, u->digest))
        snprintf(u->who, 128, "snapshot %s", name ? name : id);
    json_decref(m);
    return u->who[0] != 0;
}

int snapshot_uses(const char *state_dir, const char *digest, char who[128])
{
    struct use u = {digest, who};
    struct errbuf eb;

    who[0] = 0;
    each_id(state_dir, use_one, &u, errbuf_init(&eb));
    return who[0] != 0;
}

/* ---- taking one ---- */

static int name_free(const char *state_dir, const char *name, struct cella_error *err)
{
    struct search s = {.wanted = name};
    int r;

    if (!name)
        return 0;
    if (!name_valid(name) || id_valid(name))
        return fail(err, -EINVAL,
                    "snapshot \"%s\": letters, digits, '_', '.', '-', at most 63, starting with a "
                    "letter or digit, and not like an id",
                    name);
    r = each_id(state_dir, search_one, &s, err);
    if (r == 0 && s.n)
        return fail(err, -EEXIST, "snapshot \"%s\": taken by %s; choose another name", name,
                    s.found);
    return r;
}

static int ask_warden(const struct config *c, const char *cell, const char *path, int hidden,
                      json_t **ret, struct cella_error *err)
{
    struct client *cl;
    json_t *args;
    int r = client_connect(c, cell, &cl, err);

    if (r < 0)
        return r;
    args = json_pack("{s:s, s:b}", "dir", path, "brief", hidden);
    r = client_call(cl, "snapshot", args, ret, NULL, NULL, NULL, err);
    json_decref(args);
    client_free(cl);
    return r;
}

static int finish(struct snapshot *s, const char *name, int hidden, json_t *manifest,
                  struct cella_error *err)
{
    auto_free char *text = NULL;
    json_t *files;
    int r = manifest_files(s->dirfd, !hidden, &files, err);

    if (r < 0)
        return r;
    json_object_set_new(manifest, "files", files);
    json_object_set_new(manifest, "id", json_string(s->id));
    json_object_set_new(manifest, "hidden", json_boolean(hidden));
    if (name)
        json_object_set_new(manifest, "name", json_string(name));
    text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    r = text ? create_file_at(s->dirfd, SNAPSHOT_MANIFEST, text, strlen(text), 0600) : -ENOMEM;
    return r < 0 ? fail(err, r, SNAPSHOT_MANIFEST ": %s", strerror(-r)) : 0;
}

/* An empty directory, locked. */
static int directory_new(int store, const char *tmp, struct cella_error *err)
{
    auto_close int fd = -1;

    if (mkdirat(store, tmp, 0700) < 0)
        return fail(err, -errno, "snapshots/%s: %s", tmp, strerror(errno));
    fd = openat(store, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH) < 0 || mkdirat(fd, SNAPSHOT_MACHINE, 0700) < 0)
        return fail(err, -errno, "snapshots/%s: %s", tmp, strerror(errno));
    return steal_fd(&fd);
}

int snapshot_take(const struct config *c, const char *cell, const char *name, int hidden,
                  struct snapshot *ret, struct cella_error *err)
{
    struct snapshot s = SNAPSHOT_INIT;
    char tmp[32], path[600];
    auto_close int lock = -1, store = -1;
    int r;

    store = store_open(c->state_dir, name ? &lock : NULL, err);
    r = store < 0 ? store : name_free(c->state_dir, name, err);
    if (r == 0)
        r = random_id(s.id);
    if (r < 0)
        return r;
    snprintf(tmp, sizeof(tmp), ".tmp-%s", s.id);
    snprintf(s.path, sizeof(s.path), "%s/snapshots/%s", c->state_dir, s.id);
    snprintf(path, sizeof(path), "%s/snapshots/%s", c->state_dir, tmp);
    s.dirfd = directory_new(store, tmp, err);
    r = s.dirfd < 0 ? s.dirfd : ask_warden(c, cell, path, hidden, &s.manifest, err);
    if (r == 0)
        r = finish(&s, name, hidden, s.manifest, err);
    if (r == 0 && !hidden && syncfs(s.dirfd) < 0)
        r = fail(err, -errno, "snapshots/%s: %s", tmp, strerror(errno));
    if (r == 0 && renameat(store, tmp, store, s.id) < 0)
        r = fail(err, -errno, "snapshots/%s: %s", s.id, strerror(errno));
    if (r < 0) {
        snapshot_close(&s);
        remove_tree_at(store, tmp);
        return r;
    }
    *ret = s;
    return 0;
}

json_t *snapshot_request(const struct snapshot *s)
{
    json_t *request = json_deep_copy(json_object_get(s->manifest, "request"));

    char file[600];

    if (!request)
        return NULL;
    json_object_set_new(request, "snapshot", json_string(s->path));
    snprintf(file, sizeof(file), "%s/" SNAPSHOT_POLICY, s->path);
    if (!json_object_get(request, "policy") && !json_object_get(request, "policy_file"))
        json_object_set_new(request, "policy_file", json_string(file));
    return request;
}

int snapshot_verify(const struct snapshot *s, struct cella_error *err)
{
    int r = manifest_check(s->manifest, err);

    if (r == 0)
        r = manifest_files_same(s->dirfd, json_object_get(s->manifest, "files"), 1, err);
    return r < 0 ? fail_wrap(err, "snapshot %s", s->id) : 0;
}

/* ---- taking away ---- */

/* Renamed first: nobody finds half of one. */
static int take_away(int store, const char *id)
{
    char tmp[32];

    snprintf(tmp, sizeof(tmp), ".tmp-%s", id);
    if (id[0] != '.' && renameat(store, id, store, tmp) < 0)
        return -errno;
    return remove_tree_at(store, id[0] == '.' ? id : tmp);
}

int snapshot_remove(const char *state_dir, const char *name_or_id, struct cella_error *err)
{
    struct snapshot s = SNAPSHOT_INIT;
    auto_close int lock = -1, store = -1;
    int r = snapshot_find(state_dir, name_or_id, &s, err);

    if (r < 0)
        return r;
    store = store_open(state_dir, &lock, err);
    if (store < 0)
        r = store;
    else if (flock(s.dirfd, LOCK_EX | LOCK_NB) < 0)
        r = fail(err, -EBUSY, "snapshot %s: a cell that was made of it runs; cella ps shows which",
                 name_or_id);
    else if ((r = take_away(store, s.id)) < 0)
        fail(err, r, "snapshot %s: %s", name_or_id, strerror(-r));
    snapshot_close(&s);
    return r;
}

void snapshot_release(const char *state_dir, struct snapshot *s)
{
    auto_close int store = -1;
    struct errbuf eb;

    if (s->dirfd >= 0 && json_is_true(json_object_get(s->manifest, "hidden")) &&
        flock(s->dirfd, LOCK_EX | LOCK_NB) == 0 &&
        (store = store_open(state_dir, NULL, errbuf_init(&eb))) >= 0)
        take_away(store, s->id);
    snapshot_close(s);
}

struct gc {
    int dry_run, n;
    void (*found)(void *ctx, const char *what);
    void *ctx;
};

static int gc_one(void *ctx, int dir, const char *id)
{
    struct gc *g = ctx;
    auto_close int fd = openat(dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    json_t *m = fd < 0 || id[0] == '.' ? NULL : manifest_read(fd);
    int garbage = id[0] == '.' || json_is_true(json_object_get(m, "hidden"));
    char line[64];

    json_decref(m);
    if (fd < 0 || !garbage || flock(fd, LOCK_EX | LOCK_NB) < 0)
        return 0;
    snprintf(line, sizeof(line), "snapshot %s", id);
    g->n++;
    if (g->found)
        g->found(g->ctx, line);
    return g->dry_run ? 0 : take_away(dir, id);
}

int snapshot_gc(const char *state_dir, int dry_run, void (*found)(void *ctx, const char *what),
                void *ctx, struct cella_error *err)
{
    struct gc g = {.dry_run = dry_run, .found = found, .ctx = ctx};
    char path[512];
    int r;

    snprintf(path, sizeof(path), "%s/snapshots", state_dir);
    if (access(path, F_OK) < 0)
        return 0;
    r = each_id(state_dir, gc_one, &g, err);
    return r < 0 ? fail(err, r, "gc of snapshots: %s", strerror(-r)) : g.n;
}
