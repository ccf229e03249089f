/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - one measurement of what this cell can reach, from inside it.
 *
 * expect -> the probe is put into the cell -> begin -> it runs, as root of the cell -> end -> it is removed -> judged,
 * recorded, answered. From begin to end the enforcer lets nothing of the measurement leave. Whatever fails on the way
 * ends it: the enforcer is told, the client is answered, nothing is recorded as a result. The result counts for this
 * cell, image, policy, generation and these two plugins; when any of them changes, `inspect` calls it stale.
 * One at a time per cell. Threads: one.
 */
#include <fcntl.h>
#include <sodium.h>

#include "reach.h"
#include "warden.h"

#define PROGRAM_MAX (2u << 20)
#define CHUNK 32768u
#define PROBE_MS 1500u
#define EXEC_MS 6000u
#define BEGIN_MS 8000u
#define TOTAL_NS 9500000000ull
#define REPORT_FILE "reach.json" /* in the cell's directory: the last matrix */

struct reach {
    struct warden *warden;
    struct pending from;
    struct reach_matrix matrix;
    struct link_stream *stream;
    char *program;
    size_t program_len, sent;
    struct buf input, output, complaint;
    char path[64];
    unsigned place;
    int begun, timer;
    uint64_t started;
    uint64_t generation;
    char sha256[2 * crypto_hash_sha256_BYTES + 1]; /* of the policy */
};

static const char *const places[] = {"/tmp", "/dev/shm", "/run", "/var/tmp"};

static void reach_free(struct reach *x)
{
    x->warden->reach = NULL;
    if (x->stream)
        link_stream_orphan(x->stream);
    loop_timer_cancel(x->warden->loop, x->timer);
    matrix_fini(&x->matrix);
    buf_fini(&x->input);
    buf_fini(&x->output);
    buf_fini(&x->complaint);
    free(x->program);
    free(x);
}

/* ---- leaving the cell ---- */

static void removed(void *ctx, struct link_stream *s, const struct cella_frame *f,
                    const uint8_t *payload)
{
    (void)ctx;
    (void)s;
    (void)f;
    (void)payload;
}

static const struct link_stream_events remove_events = {removed};

static void probe_remove(struct reach *x)
{
    struct warden *w = x->warden;
    auto_buf struct buf b = BUF_INIT;
    struct link_stream *s;

    if (!x->path[0] || !w->link || w->ended)
        return;
    field_add_u32(&b, CELLA_TAG_OP, CELLA_OP_REMOVE);
    field_add_str(&b, CELLA_TAG_PATH, x->path);
    if (!b.oom)
        link_open(w->link, b.ptr, b.len, &remove_events, NULL, &s);
}

/* Ends it without a result. `err` says why. */
static void reach_fail(struct reach *x, const struct cella_error *err)
{
    struct warden *w = x->warden;

    if (x->stream) {
        struct link_stream *s = x->stream;
        link_stream_orphan(s);
        x->stream = NULL;
        link_send(s, CELLA_FRAME_CLOSE, 0, NULL, 0);
    }
    if (x->begun)
        enforcer_reach_end(&w->enforcer, NULL, NULL, NULL);
    probe_remove(x);
    warden_audit(w, NULL, "reach.failed", "s:reason", err ? err->msg : NULL, NULL);
    peer_reply_error(w, &x->from, err);
    reach_free(x);
}

static void reach_fail_text(struct reach *x, int code, const char *text)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    fail(err, code, "reach: %s", text);
    reach_fail(x, err);
}

static void reach_late(void *data)
{
    struct reach *x = data;

    x->timer = 0;
    reach_fail_text(x, -ETIMEDOUT, "the cell did not run the probe in time; is it paused or busy?");
}

/* ---- the result ---- */

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
static int report_write(struct reach *x, json_t *report, char hex[65], struct cella_error *err)
{
    auto_free char *text = json_dumps(report, JSON_COMPACT | JSON_SORT_KEYS);
    uint8_t digest[crypto_hash_sha256_BYTES];
    int r = text ? replace_file_at(x->warden->dir.dirfd, REPORT_FILE, text, strlen(text), 0600)
                 : -ENOMEM;

    if (r < 0)
        return fail(err, r, "reach: writing the matrix: %s", strerror(-r));
    crypto_hash_sha256(digest, (const unsigned char *)text, strlen(text));
    hex_encode(digest, sizeof(digest), hex);
    return 0;
}

static int audit_result(struct reach *x, const json_t *bound, const char *digest,
                        struct cella_error *err)
{
    const struct reach_matrix *m = &x->matrix;
    const json_t *backend = json_object_get(bound, "backend");
    const json_t *enforcer = json_object_get(bound, "enforcer");

#define TEXT(o, k) json_string_value(json_object_get((o), (k)))
    return warden_audit(
        x->warden, err, "reach.result", "s:verdict", matrix_verdict(m), "i:pass", (int64_t)m->pass,
        "i:fail", (int64_t)m->fail, "i:not_measured", (int64_t)m->not_measured, "s:matrix", digest,
        "i:gen", (int64_t)x->generation, "s:policy", TEXT(bound, "policy_sha256"), "s:image",
        TEXT(bound, "image"), "s:backend", TEXT(backend, "name"), "s:backend_version",
        TEXT(backend, "version"), "s:backend_build", TEXT(backend, "build"), "s:enforcer",
        TEXT(enforcer, "name"), "s:enforcer_version", TEXT(enforcer, "version"), "s:enforcer_build",
        TEXT(enforcer, "build"), NULL);
#undef TEXT
}

static int report(struct reach *x, json_t **ret, struct cella_error *err)
{
    struct warden *w = x->warden;
    const struct reach_matrix *m = &x->matrix;
    json_t *bound = binding_json(w), *rows = matrix_json(m), *o;
    char digest[65] = "";
    int r;

    o = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o}", "verdict", matrix_verdict(m), "when",
                  (json_int_t)(wall_ns() / 1000000000u), "took_ms",
                  (json_int_t)((now_ns() - x->started) / 1000000u), "pass", (json_int_t)m->pass,
                  "fail", (json_int_t)m->fail, "not_measured", (json_int_t)m->not_measured, "bound",
                  bound);
    if (!o || !rows) {
        json_decref(rows);
        json_decref(o);
        return fail(err, -ENOMEM, "reach: out of memory");
    }
    json_object_set_new(o, "rows", rows);
    r = report_write(x, o, digest, err);
    json_object_del(o, "rows");
    if (r == 0)
        r = audit_result(x, bound, digest, err);
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

static void reach_finish(struct reach *x)
{
    struct warden *w = x->warden;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    json_t *result = NULL;
    int r;

    x->begun = 0;
    r = enforcer_reach_end(&w->enforcer, &x->matrix, matrix_seen, err);
    if (r == 0 && matrix_output(&x->matrix, x->output.ptr ? x->output.ptr : "", x->output.len) < 0)
        r = fail(err, -EPROTO, "reach: what came out of the cell is not what the probe prints%s%s",
                 x->complaint.len ? ": " : "", x->complaint.len ? x->complaint.ptr : "");
    if (r == 0 && (x->generation != w->generation || strcmp(x->sha256, w->policy.sha256)))
        r = fail(err, -EAGAIN, "reach: the policy changed while it was measured; measure again");
    if (r == 0) {
        matrix_judge(&x->matrix);
        r = report(x, &result, err);
    }
    if (r < 0) {
        reach_fail(x, err);
        return;
    }
    probe_remove(x);
    peer_reply_ok(w, &x->from, result);
    reach_free(x);
}

/* ---- running it ---- */

static void send_more(struct reach *x, const char *p, size_t len)
{
    while (x->sent < len) {
        size_t n = link_credit(x->stream);
        if (n > CHUNK)
            n = CHUNK;
        if (n > len - x->sent)
            n = len - x->sent;
        if (!n || link_send(x->stream, CELLA_FRAME_DATA, CELLA_CHANNEL_IN, p + x->sent, n) < 0)
            return; /* CREDIT comes, or the stream's end does */
        x->sent += n;
    }
    if (x->sent == len) {
        x->sent++; /* once */
        link_send(x->stream, CELLA_FRAME_EOF, CELLA_CHANNEL_IN, NULL, 0);
    }
}

static void take_output(struct reach *x, struct link_stream *s, const struct cella_frame *f,
                        const uint8_t *payload)
{
    struct buf *to = f->channel == CELLA_CHANNEL_OUT ? &x->output : &x->complaint;
    size_t max = f->channel == CELLA_CHANNEL_OUT ? REACH_OUTPUT_MAX : 256, n = f->length;
    auto_buf struct buf credit = BUF_INIT;

    if (to->len + n > max && f->channel == CELLA_CHANNEL_OUT) {
        reach_fail_text(x, -EFBIG, "the cell printed more than a probe does");
        return;
    }
    if (to->len + n > max)
        n = max - to->len;
    buf_add(to, payload, n);
    buf_add(to, "", 1); /* for messages */
    to->len--;
    field_add_u32(&credit, CELLA_TAG_COUNT, f->length);
    if (!credit.oom)
        link_send(s, CELLA_FRAME_CREDIT, f->channel, credit.ptr, credit.len);
}

static void run_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                      const uint8_t *payload)
{
    struct reach *x = ctx;
    const char *message = "it could not be started";
    size_t len = 23;
    char text[600];
    uint32_t status = 255;

    switch (f->type) {
    case CELLA_FRAME_CREDIT:
        send_more(x, x->input.ptr, x->input.len);
        return;
    case CELLA_FRAME_DATA:
        take_output(x, s, f, payload);
        return;
    case CELLA_FRAME_EXIT:
        x->stream = NULL;
        field_get_u32(payload, f->length, CELLA_TAG_STATUS, &status);
        if (status == 0) {
            reach_finish(x);
            return;
        }
        snprintf(text, sizeof(text), "the probe ended with status %u%s%s", status,
                 x->complaint.len ? ": " : "", x->complaint.len ? x->complaint.ptr : "");
        reach_fail_text(x, -EIO, text);
        return;
    case CELLA_FRAME_ERROR:
        x->stream = NULL;
        field_get_str(payload, f->length, CELLA_TAG_MESSAGE, &message, &len);
        snprintf(text, sizeof(text), "running the probe in the cell: %.*s", (int)len, message);
        reach_fail_text(x, -EIO, text);
        return;
    default:
        return;
    }
}

static const struct link_stream_events run_events = {run_frame};

static void probe_run(struct reach *x)
{
    struct warden *w = x->warden;
    struct reach_matrix *m = &x->matrix;
    struct cella_reach reach = {.hdr = CELLA_HDR_INIT(struct cella_reach, CELLA_KIND_REACH),
                                .nonce = m->nonce,
                                .port_lo = m->port,
                                .port_hi = m->port + (uint32_t)m->n - 1,
                                .twin_lo = m->twin,
                                .twin_hi = m->twin + (uint32_t)m->n - 1,
                                .timeout_ms = BEGIN_MS};
    auto_buf struct buf b = BUF_INIT;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int r = enforcer_reach_begin(&w->enforcer, &reach, err);

    if (r < 0) {
        reach_fail(x, err);
        return;
    }
    x->begun = 1;
    x->sent = 0;
    field_add_u32(&b, CELLA_TAG_OP, CELLA_OP_EXEC);
    field_add_str(&b, CELLA_TAG_ARG, x->path);
    field_add_str(&b, CELLA_TAG_USER, "0:0");
    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    field_add_u64(&b, CELLA_TAG_TIMEOUT_MS, EXEC_MS);
    r = b.oom ? -ENOMEM : link_open(w->link, b.ptr, b.len, &run_events, x, &x->stream);
    if (r < 0) {
        reach_fail_text(x, r, strerror(-r));
        return;
    }
    send_more(x, x->input.ptr, x->input.len);
}

/* ---- putting it there ---- */

static int put_begin(struct reach *x);

static void put_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                      const uint8_t *payload)
{
    struct reach *x = ctx;
    const char *message = "";
    size_t len = 0;
    char text[600];

    (void)s;
    switch (f->type) {
    case CELLA_FRAME_CREDIT:
        send_more(x, x->program, x->program_len);
        return;
    case CELLA_FRAME_RESULT:
        x->stream = NULL;
        probe_run(x);
        return;
    case CELLA_FRAME_ERROR:
        x->stream = NULL;
        field_get_str(payload, f->length, CELLA_TAG_MESSAGE, &message, &len);
        snprintf(text, sizeof(text),
                 "there is no directory in the cell for the probe (tried /tmp, /dev/shm, /run, "
                 "/var/tmp): %.*s",
                 (int)len, message);
        x->path[0] = 0;
        if (x->warden->ended || ++x->place == ARRAY_LEN(places) || put_begin(x) < 0)
            reach_fail_text(x, -EROFS, text);
        return;
    default:
        return;
    }
}

static const struct link_stream_events put_events = {put_frame};

static int put_begin(struct reach *x)
{
    auto_buf struct buf b = BUF_INIT;
    int r;

    snprintf(x->path, sizeof(x->path), "%s/.cella-probe-%s", places[x->place], x->matrix.nonce);
    x->sent = 0;
    field_add_u32(&b, CELLA_TAG_OP, CELLA_OP_PUT);
    field_add_str(&b, CELLA_TAG_PATH, x->path);
    field_add_u32(&b, CELLA_TAG_MODE, 0700);
    r = b.oom ? -ENOMEM : link_open(x->warden->link, b.ptr, b.len, &put_events, x, &x->stream);
    if (r == 0)
        send_more(x, x->program, x->program_len);
    return r;
}

static int prepare(struct reach *x, struct cella_error *err)
{
    struct warden *w = x->warden;
    const char *path = helper_path("cella-probe");
    int r =
        path ? read_file_at(AT_FDCWD, path, PROGRAM_MAX, &x->program, &x->program_len) : -ENOENT;

    if (r < 0)
        return fail(err, r, "reach: the program cella-probe beside cella: %s", strerror(-r));
    x->matrix.own_kernel = w->probe.probe.strength >= CELLA_STRENGTH_USER_KERNEL;
    r = enforcer_expect(&w->enforcer, &x->matrix, matrix_row, err);
    if (r < 0)
        return r;
    r = matrix_plan(&x->matrix);
    if (r == 0)
        r = matrix_lines(&x->matrix, PROBE_MS, &x->input);
    return r < 0 ? fail(err, r, "reach: the enforcer's matrix of %zu rows (%zu too many): %s",
                        x->matrix.n, x->matrix.dropped, strerror(-r))
                 : 0;
}

int reach_begin(struct warden *w, const struct pending *from, struct cella_error *err)
{
    struct reach *x;
    int r;

    if (w->reach)
        return fail(err, -EBUSY, "reach: this cell is being measured already");
    if (w->state != W_RUNNING || w->ended || w->stopping || !w->enforcer_on)
        return fail(err, -ENOTCONN,
                    "reach: the cell is %s; it must run to be looked at from inside",
                    w->state == W_PAUSED ? "paused" : "not running");
    x = calloc(1, sizeof(*x));
    if (!x)
        return fail(err, -ENOMEM, "reach: out of memory");
    *x = (struct reach){.warden = w,
                        .from = *from,
                        .started = now_ns(),
                        .generation = w->generation,
                        .input = BUF_INIT,
                        .output = BUF_INIT,
                        .complaint = BUF_INIT};
    w->reach = x;
    snprintf(x->sha256, sizeof(x->sha256), "%s", w->policy.sha256);
    r = prepare(x, err);
    if (r == 0) {
        x->timer = loop_timer(w->loop, TOTAL_NS, reach_late, x);
        r = put_begin(x);
        if (r < 0)
            fail(err, r, "reach: putting the probe into the cell: %s", strerror(-r));
    }
    if (r == 0)
        r = warden_audit(w, err, "reach.start", "i:rows", (int64_t)x->matrix.n, NULL);
    if (r < 0)
        reach_free(x);
    return r;
}
