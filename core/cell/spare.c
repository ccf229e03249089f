/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * spare - machines that are prepared for the next fork of a cell, from both sides.
 *
 * A spare is a warden that has gone the way of a cell (arrows.c) as far as it can without a snapshot: directory, slot,
 * namespaces, a gate that lets nothing pass, a machine without content. No code of a cell has run in it. It has
 * no audit chain: that begins when it becomes a cell, and tells everything then. Its policy is found then, not before.
 *
 * It belongs to one cell. One that is kept holds a connection to that cell's warden, which lists it by
 * that; one that a fork makes for itself is leased by the fork. With the connection it goes, however its other end died.
 * A spare that does not fit any more (another configuration, request or cell) says so and is gone; the fork then
 * makes that child as if there had been none. Threads: one; it waits for its parent's warden when it begins.
 */
#include <sodium.h>
#include <sys/socket.h>
#include <time.h>

#include "client_int.h"
#include "control.h"
#include "warden.h"

#define GONE_NS 5000000000ull

/* ---- the configuration, as far as a cell is made by it ---- */

void spare_config(const struct config *c, char hex[65])
{
    auto_free char *text =
        c->doc.root ? json_dumps(c->doc.root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    crypto_generichash_state s;
    uint8_t digest[32];
    size_t i;

    crypto_generichash_init(&s, NULL, 0, sizeof(digest));
    crypto_generichash_update(&s, (const uint8_t *)c->state_dir, strlen(c->state_dir) + 1);
    if (text)
        crypto_generichash_update(&s, (const uint8_t *)text, strlen(text) + 1);
    for (i = 0; i < c->n_policies; i++) /* files beside it */
        crypto_generichash_update(&s, (const uint8_t *)c->policies[i].document,
                                  strlen(c->policies[i].document) + 1);
    crypto_generichash_final(&s, digest, sizeof(digest));
    hex_encode(digest, sizeof(digest), hex);
}

/* ---- the cell's half ---- */

static unsigned waiting(const struct warden *w)
{
    const struct peer *p;
    unsigned n = 0;

    for (p = w->peers; p; p = p->next)
        n += !p->dead && p->spare[0];
    return n;
}

static json_t *waiting_json(const struct warden *w)
{
    json_t *ids = json_array();
    const struct peer *p;

    for (p = w->peers; p; p = p->next)
        if (!p->dead && p->spare[0])
            json_array_append_new(ids, json_string(p->spare));
    return ids;
}

json_t *spares_json(const struct warden *w)
{
    return w->spare.keep || waiting(w)
               ? json_pack("{s:i, s:o}", "keep", (int)w->spare.keep, "waiting", waiting_json(w))
               : NULL;
}

/* All but `n`; their connections end, and so do they. */
static void drop(struct warden *w, unsigned n)
{
    struct peer *p;

    for (p = w->peers; p; p = p->next)
        if (!p->dead && p->spare[0]) {
            if (n)
                n--;
            else
                shutdown(p->fd, SHUT_RDWR);
        }
}

void spares_end(struct warden *w)
{
    drop(w, 0);
}

/* Nobody who has removed a cell shall find its spares. */
void spares_gone(struct warden *w)
{
    const struct timespec moment = {0, 2000000};
    uint64_t end = now_ns() + GONE_NS;
    const struct peer *p;
    char path[600];

    for (p = w->peers; p && w->config_given; p = p->next) {
        snprintf(path, sizeof(path), "%s/cells/%s", w->config_given->state_dir, p->spare);
        while (p->spare[0] && access(path, F_OK) == 0 && now_ns() < end)
            nanosleep(&moment, NULL);
    }
}

static int keep_set(struct warden *w, const json_t *keep, struct cella_error *err)
{
    json_int_t n = json_integer_value(keep);

    if (!json_is_integer(keep) || n < 0 || n > (json_int_t)SPARES_MAX)
        return fail(err, -ERANGE, "spares: at most %u machines can wait for the forks of one cell",
                    SPARES_MAX);
    if ((unsigned)n == w->spare.keep)
        return 0;
    w->spare.keep = (unsigned)n;
    drop(w, (unsigned)n);
    return warden_audit(w, err, "cell.spares", "i:keep", (int64_t)n, NULL);
}

int call_spares(struct peer *p, json_t *args, const struct pending *from, struct cella_error *err)
{
    struct warden *w = p->warden;
    json_t *recipe = NULL, *keep = json_object_get(args, "keep");
    int r = copy_recipe(w, &recipe, err);

    if (r == 0 && keep)
        r = keep_set(w, keep, err);
    if (r < 0) {
        json_decref(recipe);
        return r;
    }
    peer_reply_ok(w, from,
                  json_pack("{s:i, s:o, s:o}", "keep", (int)w->spare.keep, "waiting",
                            waiting_json(w), "recipe", recipe));
    return 0;
}

int call_spare(struct peer *p, json_t *args, const struct pending *from, struct cella_error *err)
{
    struct warden *w = p->warden;
    const char *id = json_string_value(json_object_get(args, "id"));

    if (w->ended || !id || strlen(id) != CELLA_ID_LEN)
        return fail(err, -EINVAL, "spare: the cell has ended, or \"id\" is none");
    if (waiting(w) >= w->spare.keep)
        return fail(err, -EBUSY, "spare: %u machines wait for the next fork already", waiting(w));
    memcpy(p->spare, id, CELLA_ID_LEN + 1);
    peer_reply_ok(w, from, NULL);
    return 0;
}

/* ---- the spare's half ---- */

static void parent_leave(struct warden *w)
{
    if (!w->spare.parent)
        return;
    loop_unwatch(w->loop, w->spare.parent->fd);
    client_free(steal_ptr(&w->spare.parent));
}

static void parent_gone(void *data, int fd, uint32_t ready)
{
    struct warden *w = data;

    (void)fd;
    (void)ready;
    parent_leave(w);
    cell_end(w, "stop", "the cell that it was prepared for does not wait for it any more");
}

static int parent_hold(struct warden *w, struct cella_error *err)
{
    json_t *args = json_pack("{s:s}", "id", w->dir.id);
    int r = client_connect(w->config, w->req.spare_of, &w->spare.parent, err);

    if (r == 0)
        r = client_call(w->spare.parent, "spare", args, NULL, NULL, NULL, NULL, err);
    json_decref(args);
    if (r == 0 && loop_watch(w->loop, w->spare.parent->fd, CELLA_FD_IN, parent_gone, w) < 0)
        r = fail(err, -ENOMEM, "spare: its parent cannot be watched");
    if (r < 0)
        client_free(steal_ptr(&w->spare.parent));
    return r;
}

int spare_wait(struct warden *w, int kept, struct cella_error *err)
{
    int r;

    spare_config(w->config, w->spare.config);
    w->spare.prepared = json_incref(w->req.root); /* kept: strings of it are in use */
    w->state = W_SPARE;
    json_object_set_new(w->cell, "state", json_string("spare"));
    json_object_set_new(w->cell, "spare_of", json_string(w->req.spare_of));
    r = warden_save(w);
    if (r < 0)
        fail(err, r, "the record of the cell: %s", strerror(-r));
    else if (kept)
        r = parent_hold(w, err);
    if (r < 0)
        w->state = W_NEW;
    return r;
}

/* What the machine, its slot and its gate were made by must be what a restore would be given. */
static int fits(const struct warden *w, const struct request *to, const char *config,
                struct cella_error *err)
{
    static const char *const same[] = {"class",  "backend", "image",
                                       "limits", "options", "readonly"};
    size_t i;

    if (!config || strcmp(config, w->spare.config) != 0)
        return fail(err, -ESTALE, "become: the configuration has changed since it was prepared");
    for (i = 0; i < ARRAY_LEN(same); i++) {
        json_t *was = json_object_get(w->spare.prepared, same[i]);
        json_t *is = json_object_get(to->root, same[i]);
        if (was != is && !json_equal(was, is))
            return fail(err, -ESTALE, "become: \"%s\" is not what it was prepared with", same[i]);
    }
    return to->snapshot && !to->spare_of
               ? 0
               : fail(err, -EINVAL, "become: needs the request of a copy of a snapshot");
}

/* Its parent's snapshot, and no other cell's. */
static int snapshot_take_over(struct warden *w, const char *parent, struct cella_error *err)
{
    const char *of;
    int r = copy_open(w, err);

    if (r < 0)
        return r;
    of = json_string_value(json_object_get(json_object_get(w->copy.manifest, "cell"), "id"));
    return of && !strcmp(of, parent)
               ? 0
               : fail(err, -ESTALE, "become: the snapshot is not of the cell it was prepared for");
}

static int request_take_over(struct warden *w, json_t *args, struct cella_error *err)
{
    const char *parent = json_string_value(json_object_get(w->spare.prepared, "spare_of"));
    const char *config = json_string_value(json_object_get(args, "config"));
    struct request to;
    int r = request_parse(json_object_get(args, "request"), &to, err);

    if (r < 0)
        return r;
    r = fits(w, &to, config, err);
    if (r == 0)
        r = request_limits(&to, w->class, err);
    if (r < 0) {
        request_fini(&to);
        return r;
    }
    request_fini(&w->req);
    w->req = to;
    return snapshot_take_over(w, parent, err);
}

int spare_become(struct warden *w, json_t *args, struct cella_error *err)
{
    int r = request_take_over(w, args, err);

    parent_leave(w);
    if (r < 0)
        arrows_undo(w, 0);
    else
        r = arrows_become(w, err);
    if (r < 0) {
        request_fini(&w->req);
        w->state = W_NEW; /* ends with its last client */
        return r;
    }
    w->state = W_CREATED;
    json_object_set_new(w->cell, "state", json_string("created"));
    return w->req.start ? 0 : warden_save(w);
}

int spare_name(struct warden *w, struct cella_error *err)
{
    json_object_del(w->cell, "spare_of");
    json_object_set_new(w->cell, "prepared", json_true());
    json_object_set_new(w->cell, "created", json_integer((json_int_t)(wall_ns() / 1000000000u)));
    if (!w->req.name)
        return 0;
    json_object_set_new(w->cell, "name", json_string(w->req.name));
    return store_name(w->config->state_dir, &w->dir, w->req.name, err);
}
