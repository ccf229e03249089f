/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * collect - which images there are, who uses them, and taking away what nobody does.
 *
 * An artefact stays as long as a name, a cell or a snapshot has it: names are files here, cells
 * hold a lock on its directory for as long as they live, snapshots are told by the caller. It is
 * renamed before it is emptied, so nobody finds half of one. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "artefact.h"
#include "images.h"
#include "names.h"

static int each_entry(int dirfd_, int (*each)(void *ctx, int dir, const char *name), void *ctx)
{
    DIR *d = dirfd_ < 0 ? NULL : dir_open_at(dirfd_, ".");
    struct dirent *e;
    int r = 0;

    if (!d)
        return -errno;
    while (r == 0 && (e = readdir(d)))
        if (e->d_name[0] != '.')
            r = each(ctx, dirfd_, e->d_name);
    closedir(d);
    return r;
}

/* ---- the list ---- */

struct list {
    struct image_dir *d;
    json_t *names; /* name -> its record */
    json_t *out;
};

static int names_add(void *ctx, int dir, const char *name)
{
    json_t *j = image_name_valid(name) ? artefact_read(dir, name) : NULL;

    if (j)
        json_object_set_new(ctx, name, j);
    return 0;
}

static json_t *names_read(const struct image_dir *d)
{
    auto_close int fd = names_open(d);
    json_t *names = json_object();

    if (fd >= 0)
        each_entry(fd, names_add, names);
    return names;
}

static int is_artefact(const char *key)
{
    return is_digest_key(key) || !strncmp(key, "dir-", 4) || !strncmp(key, "host-", 5);
}

static json_t *row_new(struct list *l, const char *key)
{
    auto_close int fd = openat(l->d->fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_close int mine = -1;
    json_t *row = fd < 0 ? NULL : artefact_read(fd, "image.json");
    char digest[80];
    struct stat st;

    if (!json_is_object(row)) {
        json_decref(row);
        row = json_object();
    }
    snprintf(digest, sizeof(digest), is_digest_key(key) ? "sha256:%s" : "%s", key);
    json_object_set_new(row, "digest", json_string(digest));
    json_object_set_new(row, "key", json_string(key));
    if (fd >= 0 && fstatat(fd, EROFS_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0)
        json_object_set_new(row, "image_bytes", json_integer((json_int_t)st.st_blocks * 512));
    json_object_set_new(row, "in_use", json_boolean(artefact_claim(l->d, key, &mine) == -EBUSY));
    return row;
}

static int list_add(void *ctx, int dir, const char *key)
{
    struct list *l = ctx;
    const char *name;
    json_t *row, *how;
    size_t n = json_array_size(l->out);

    (void)dir;
    if (!is_artefact(key))
        return 0;
    row = row_new(l, key);
    json_object_foreach(l->names, name, how)
    {
        const char *of = json_string_value(json_object_get(how, "key"));
        json_t *copy;
        if (!of || strcmp(of, key))
            continue;
        copy = json_deep_copy(row);
        json_object_set_new(copy, "name", json_string(name));
        json_object_set(copy, "how", how);
        json_array_append_new(l->out, copy);
    }
    if (json_array_size(l->out) == n) {
        json_object_set_new(row, "name", json_null());
        json_array_append(l->out, row);
    }
    json_decref(row);
    return 0;
}

int image_list(const char *state_dir, json_t **ret, struct cella_error *err)
{
    struct image_dir d;
    struct list l;
    int r = image_dir_open(state_dir, &d, err);

    if (r < 0)
        return r;
    l = (struct list){.d = &d, .names = names_read(&d), .out = json_array()};
    r = each_entry(d.fd, list_add, &l);
    image_dir_close(&d);
    json_decref(l.names);
    if (r < 0) {
        json_decref(l.out);
        return fail(err, r, "images in %s: %s", state_dir, strerror(-r));
    }
    *ret = l.out;
    return 0;
}

/* ---- taking away ---- */

static int named_by_other(const json_t *names, const char *key, const char *not_this)
{
    const char *name;
    json_t *how;

    json_object_foreach((json_t *)(uintptr_t)names, name, how)
    {
        const char *of = json_string_value(json_object_get(how, "key"));
        if (of && !strcmp(of, key) && (!not_this || strcmp(name, not_this)))
            return 1;
    }
    return 0;
}

/* 0: nobody uses it, and it is claimed. */
static int claim(const struct image_dir *d, const char *key, const struct image_refs *refs,
                 int *ret_own_fd, struct cella_error *err)
{
    char digest[80], who[128] = "";
    int r;

    snprintf(digest, sizeof(digest), is_digest_key(key) ? "sha256:%s" : "%s", key);
    if (refs && refs->used(refs->ctx, digest, who))
        return fail(err, -EBUSY, "image %s is used by %s", digest, who);
    r = artefact_claim(d, key, ret_own_fd);
    if (r == -EBUSY)
        return fail(err, r, "image %s is used by a cell; cella ps shows which", digest);
    return r < 0 ? fail(err, r, "image %s: %s", digest, strerror(-r)) : 0;
}

static int take_away(const struct image_dir *d, const char *key, struct cella_error *err)
{
    char id[CELLA_ID_LEN + 1], tmp[32];
    int r = random_id(id);

    snprintf(tmp, sizeof(tmp), ".tmp-%s", id);
    if (r == 0 && renameat(d->fd, key, d->fd, tmp) < 0)
        r = -errno;
    if (r == 0)
        r = remove_tree_at(d->fd, tmp);
    return r < 0 ? fail(err, r, "removing %s/%s: %s", d->path, key, strerror(-r)) : 0;
}

static int remove_key(const struct image_dir *d, const char *key, const json_t *names,
                      const char *name, const struct image_refs *refs, struct cella_error *err)
{
    auto_close int mine = -1;
    int r = named_by_other(names, key, name);

    if (r)
        return name ? 0 : fail(err, -EBUSY, "image sha256:%s has a name; remove that", key);
    r = claim(d, key, refs, &mine, err);
    if (r == -ENOENT)
        return 0;
    return r < 0 ? r : take_away(d, key, err);
}

static int unname(const struct image_dir *d, const char *name, struct cella_error *err)
{
    auto_close int fd = names_open(d);

    if (fd < 0 || unlinkat(fd, name, 0) < 0)
        return fail(err, -errno, "the name %s: %s", name, strerror(errno));
    return 0;
}

int image_remove(const char *state_dir, const char *name, const struct image_refs *refs,
                 struct cella_error *err)
{
    int by_digest = !strncmp(name, "sha256:", 7) && is_digest_key(name + 7), r;
    char key[80];
    struct image_dir d;
    json_t *names;

    if (by_digest)
        snprintf(key, sizeof(key), "%s", name + 7);
    r = by_digest ? 0 : image_name_find(state_dir, name, key, err);
    if (r == -ENOENT)
        return fail(err, r, "image \"%s\": there is none; \"cella image ls\" shows them", name);
    if (r == 0)
        r = image_dir_open(state_dir, &d, err);
    if (r < 0)
        return r;
    names = names_read(&d);
    if (by_digest && !image_ready(&d, key))
        r = fail(err, -ENOENT, "image %s: there is none; \"cella image ls\" shows them", name);
    if (r == 0)
        r = remove_key(&d, key, names, by_digest ? NULL : name, refs, err);
    if (r == 0 && !by_digest)
        r = unname(&d, name, err);
    json_decref(names);
    image_dir_close(&d);
    return r;
}

int image_verify(const char *state_dir, const char *name, struct cella_error *err)
{
    int by_digest = !strncmp(name, "sha256:", 7) && is_digest_key(name + 7), hold = -1, r = 0;
    char key[80];

    if (by_digest)
        snprintf(key, sizeof(key), "%s", name + 7);
    else if (!strncmp(name, "dir-", 4) && strlen(name) == 36)
        snprintf(key, sizeof(key), "%s", name);
    else
        r = image_name_find(state_dir, name, key, err);
    if (r == 0)
        r = artefact_hold(state_dir, key, &hold, err);
    if (r == -ENOENT)
        return fail(err, r, "image \"%s\": there is none; \"cella image ls\" shows them", name);
    if (r < 0)
        return r;
    r = artefact_verify(hold, err);
    close(hold);
    return r < 0 ? fail_wrap(err, "image %s", name) : 0;
}

/* ---- collection ---- */

struct collect {
    struct image_dir *d;
    json_t *names;
    const struct image_refs *refs;
    void (*found)(void *ctx, const char *what);
    void *ctx;
    struct cella_error *err;
    int dry_run, n;
};

static int collect_one(void *ctx, int dir, const char *key)
{
    struct collect *c = ctx;
    auto_close int mine = -1;
    char line[160];
    struct errbuf eb;

    (void)dir;
    /* what the built-in image is made of costs nothing to keep, and is found by no lock */
    if (!is_artefact(key) || !strncmp(key, "host-", 5) || named_by_other(c->names, key, NULL) ||
        claim(c->d, key, c->refs, &mine, errbuf_init(&eb)) < 0)
        return 0;
    snprintf(line, sizeof(line), "image %s%s", is_digest_key(key) ? "sha256:" : "", key);
    c->n++;
    if (c->found)
        c->found(c->ctx, line);
    return c->dry_run ? 0 : take_away(c->d, key, c->err);
}

int image_collect(const char *state_dir, int dry_run, const struct image_refs *refs,
                  void (*found)(void *ctx, const char *what), void *ctx, struct cella_error *err)
{
    struct image_dir d;
    struct collect c = {
        .d = &d, .refs = refs, .found = found, .ctx = ctx, .err = err, .dry_run = dry_run};
    int r = image_dir_open(state_dir, &d, err);

    if (r < 0)
        return r;
    c.names = names_read(&d);
    r = each_entry(d.fd, collect_one, &c);
    json_decref(c.names);
    image_dir_close(&d);
    return r < 0 ? r : c.n;
}
