/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach_report - a measured matrix as a result: bound to what it holds for, recorded, in the audit chain.
 *
 * It holds for this cell, image, policy, generation, backend and enforcer, as they are built. When one of them is
 * another one the result is stale. Threads: one.
 */
#include <sodium.h>

#include "reach.h"
#include "warden.h"

#define REPORT_FILE "reach.json" /* in the cell's directory: the last matrix */

static json_t *plugin_json(const struct plugin *p)
{
    char build[65];

    plugin_build_id(p, build);
    return json_pack("{s:s, s:s, s:s}", "name", p->name, "version", p->version, "build", build);
}

/* What the result is bound to. */
static json_t *binding_json(const struct warden *w)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "cell", w->dir.id, "image",
                     w->image.digest, "policy", w->policy.name, "policy_sha256", w->policy.sha256,
                     "generation", (json_int_t)w->generation, "backend",
                     plugin_json(w->backend_plugin), "enforcer", plugin_json(w->enforcer_plugin));
}

int reach_stale(const struct warden *w, const json_t *summary)
{
    json_t *now = binding_json(w);
    int same = now && json_equal(now, json_object_get(summary, "bound"));

    json_decref(now);
    return !same;
}

/* The matrix beside the cell's record; hex of its SHA-256. */
static int report_write(struct warden *w, json_t *report, char hex[65], struct cella_error *err)
{
    auto_free char *text = json_dumps(report, JSON_COMPACT | JSON_SORT_KEYS);
    uint8_t digest[crypto_hash_sha256_BYTES];
    int r = text ? replace_file_at(w->dir.dirfd, REPORT_FILE, text, strlen(text), 0600) : -ENOMEM;

    if (r < 0)
        return fail(err, r, "reach: writing the matrix: %s", strerror(-r));
    crypto_hash_sha256(digest, (const unsigned char *)text, strlen(text));
    hex_encode(digest, sizeof(digest), hex);
    return 0;
}

static int audit_result(struct warden *w, const struct reach_matrix *m, const json_t *bound,
                        const char *digest, struct cella_error *err)
{
    const json_t *backend = json_object_get(bound, "backend");
    const json_t *enforcer = json_object_get(bound, "enforcer");

#define TEXT(o, k) json_string_value(json_object_get((o), (k)))
    return warden_audit(
        w, err, "reach.result", "s:verdict", matrix_verdict(m), "i:pass", (int64_t)m->pass,
        "i:fail", (int64_t)m->fail, "i:not_measured", (int64_t)m->not_measured, "s:matrix", digest,
        "i:gen", json_integer_value(json_object_get(bound, "generation")), "s:policy",
        TEXT(bound, "policy_sha256"), "s:image", TEXT(bound, "image"), "s:backend",
        TEXT(backend, "name"), "s:backend_version", TEXT(backend, "version"), "s:backend_build",
        TEXT(backend, "build"), "s:enforcer", TEXT(enforcer, "name"), "s:enforcer_version",
        TEXT(enforcer, "version"), "s:enforcer_build", TEXT(enforcer, "build"), NULL);
#undef TEXT
}

static int report(struct warden *w, const struct reach_matrix *m, uint64_t started, json_t **ret,
                  struct cella_error *err)
{
    json_t *bound = binding_json(w), *rows = matrix_json(m), *o;
    char digest[65] = "";
    int r;

    o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "verdict", matrix_verdict(m), "when",
                  (json_int_t)(wall_ns() / 1000000000u), "took_ms",
                  (json_int_t)((now_ns() - started) / 1000000u), "pass", (json_int_t)m->pass,
                  "fail", (json_int_t)m->fail, "not_measured", (json_int_t)m->not_measured,
                  "beyond", (json_int_t)m->dropped, "bound", bound);
    if (!o || !rows) {
        json_decref(rows);
        json_decref(o);
        return fail(err, -ENOMEM, "reach: out of memory");
    }
    json_object_set_new(o, "rows", rows);
    r = report_write(w, o, digest, err);
    json_object_del(o, "rows");
    if (r == 0)
        r = audit_result(w, m, bound, digest, err);
    if (r < 0) {
        json_decref(o);
        return r;
    }
    json_object_set_new(o, "matrix", json_string(digest));
    json_object_set(w->cell, "reach", o);
    warden_save(w);
    *ret = json_deep_copy(o);
    json_object_set_new(*ret, "file", json_sprintf("%s/%s", w->dir.path, REPORT_FILE));
    json_decref(o);
    return 0;
}

int reach_report(struct warden *w, struct reach_matrix *m, const struct reach_taken *t,
                 json_t **ret, struct cella_error *err)
{
    if (t->generation != w->generation || strcmp(t->sha256, w->policy.sha256))
        return fail(err, -EAGAIN, "reach: the policy changed while it was measured; measure again");
    matrix_judge(m);
    return report(w, m, t->started, ret, err);
}
