/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - one measurement of what this cell can reach, from inside it.
 *
 * expect -> the probe is put into the cell -> begin -> it runs, as root of the cell -> end, again for each batch of rows ->
 * it is removed -> judged, recorded, answered (reach_report.c). From begin to end the enforcer lets nothing of the measurement
 * leave. In the first batch the probe says when it holds the connections that a tightening must end; then the enforcer is
 * asked to tighten, and the probe told. What there is no time for is not measured. Whatever fails on the way ends it: the
 * enforcer is told, the client is answered, nothing is recorded as a result.
 * One at a time per cell. Threads: one.
 */
#include <fcntl.h>

#include "reach.h"
#include "warden.h"

#define PROGRAM_MAX (2u << 20)
#define CHUNK 32768u
#define TOTAL_MS 9500u /* of a measurement, when nobody says another time */
#define TOTAL_LEAST 3000u
#define TOTAL_MOST 50000u
#define PATIENCE(total) ((total)*3u / 19u) /* with one row */
#define REST_MS 1200u                      /* for what comes after the last run */
#define BATCH_MS 1200u                     /* the least that a run is begun with */

struct reach {
    struct warden *warden;
    struct pending from;
    struct reach_matrix matrix;
    struct link_stream *stream;
    struct reach_host host;
    char *program;
    size_t program_len, sent;
    struct buf input, output, complaint;
    char path[64];
    unsigned place;
    int begun, timer;
    unsigned total_ms;
    int eof;   /* nothing more is to be sent than is there */
    int asked; /* the enforcer was asked to tighten, or never will be */
    struct reach_taken taken;
};

static const char *const places[] = {"/tmp", "/dev/shm", "/run", "/var/tmp"};

static void reach_free(struct reach *x)
{
    x->warden->reach = NULL;
    if (x->stream)
        link_stream_orphan(x->stream);
    loop_timer_cancel(x->warden->loop, x->timer);
    reach_host_end(&x->host, &x->matrix);
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

void reach_drop(struct warden *w)
{
    if (!w->reach)
        return;
    w->reach->begun = 0; /* the gate goes with the cell */
    reach_fail_text(w->reach, -ENOTCONN, "the cell ended during the measurement");
}

static void reach_late(void *data)
{
    struct reach *x = data;

    x->timer = 0;
    reach_fail_text(
        x, -ETIMEDOUT,
        "the cell did not run the probe in time; is it paused or busy? --timeout gives more time");
}

/* ---- the result ---- */

static unsigned left_ms(const struct reach *x)
{
    uint64_t past = (now_ns() - x->taken.started) / 1000000u;

    return past < x->total_ms ? (unsigned)(x->total_ms - past) : 0;
}

static void reach_done(struct reach *x)
{
    struct warden *w = x->warden;
    struct errbuf eb;
    json_t *result = NULL;

    reach_host_end(&x->host, &x->matrix);
    if (reach_report(w, &x->matrix, &x->taken, &result, errbuf_init(&eb)) < 0) {
        reach_fail(x, &eb.err);
        return;
    }
    probe_remove(x);
    peer_reply_ok(w, &x->from, result);
    reach_free(x);
}

static void probe_run(struct reach *x);

/* One run of the probe is over. */
static void batch_finish(struct reach *x)
{
    struct warden *w = x->warden;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int r;

    x->begun = 0;
    r = enforcer_reach_end(&w->enforcer, &x->matrix, matrix_seen, err);
    if (r == 0 && matrix_output(&x->matrix, x->output.ptr ? x->output.ptr : "", x->output.len) < 0)
        r = fail(err, -EPROTO, "reach: what came out of the cell is not what the probe prints%s%s",
                 x->complaint.len ? ": " : "", x->complaint.len ? x->complaint.ptr : "");
    if (r < 0)
        reach_fail(x, err);
    else if (left_ms(x) < BATCH_MS + REST_MS || !matrix_next(&x->matrix))
        reach_done(x);
    else
        probe_run(x);
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
    if (x->sent == len && x->eof) {
        x->sent++; /* once */
        link_send(x->stream, CELLA_FRAME_EOF, CELLA_CHANNEL_IN, NULL, 0);
    }
}

/* The probe holds what a tightening must end. That it says so is believed: at worst its own rows come to nothing. */
static void tighten(struct reach *x)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int r = enforcer_reach_tighten(&x->warden->enforcer, err);

    if (r == 0)
        buf_addf(&x->input, "tight\n");
    x->eof = 1;
    if (r < 0 && r != -EOPNOTSUPP)
        reach_fail(x, err);
    else if (x->input.oom)
        reach_fail_text(x, -ENOMEM, "out of memory");
    else
        send_more(x, x->input.ptr, x->input.len);
}

static int says_held(const struct reach *x)
{
    static const char word[] = "{\"held\":";

    return x->output.len > sizeof(word) && !memcmp(x->output.ptr, word, sizeof(word) - 1) &&
           memchr(x->output.ptr, '\n', x->output.len);
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
    if (x->begun && !x->asked && says_held(x)) {
        x->asked = 1;
        tighten(x);
    }
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
            batch_finish(x);
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

static int begin(struct reach *x, struct cella_error *err)
{
    const struct reach_matrix *m = &x->matrix;
    unsigned n_held = m->n_held < REACH_HELD_MAX ? m->n_held : REACH_HELD_MAX;
    int holds = n_held && !m->first;
    struct cella_reach reach = {.hdr = CELLA_HDR_INIT(struct cella_reach, CELLA_KIND_REACH),
                                .nonce = m->nonce,
                                .port_lo = m->port,
                                .port_hi = m->port + REACH_BATCH - 1,
                                .twin_lo = m->twin,
                                .twin_hi = m->twin + REACH_TWIN_PORTS - 1,
                                .held_lo = holds ? m->held : 0,
                                .held_hi = holds ? m->held + n_held - 1 : 0,
                                .timeout_ms = left_ms(x)};

    x->asked = x->eof = !holds;
    return enforcer_reach_begin(&x->warden->enforcer, &reach, err);
}

static void probe_run(struct reach *x)
{
    struct warden *w = x->warden;
    auto_buf struct buf b = BUF_INIT;
    unsigned ms = left_ms(x) > REST_MS ? left_ms(x) - REST_MS : 1;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int r;

    x->input.len = x->output.len = x->complaint.len = x->sent = 0;
    r = matrix_lines(&x->matrix, PATIENCE(x->total_ms), ms, &x->input);
    if (r < 0) {
        reach_fail_text(x, r, strerror(-r));
        return;
    }
    if (begin(x, err) < 0) {
        reach_fail(x, err);
        return;
    }
    x->begun = 1;
    field_add_u32(&b, CELLA_TAG_OP, CELLA_OP_EXEC);
    field_add_str(&b, CELLA_TAG_ARG, x->path);
    field_add_str(&b, CELLA_TAG_USER, "0:0");
    field_add_u32(&b, CELLA_TAG_STDIN, 1);
    field_add_u64(&b, CELLA_TAG_TIMEOUT_MS, ms + REST_MS);
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
    reach_host_begin(&x->host, &x->matrix);
    r = matrix_plan(&x->matrix);
    if (r < 0)
        return fail(err, r, "reach: the enforcer's matrix of %zu rows: %s", x->matrix.n,
                    strerror(-r));
    matrix_next(&x->matrix);
    return 0;
}

int reach_begin(struct warden *w, const struct pending *from, uint64_t ms, struct cella_error *err)
{
    struct reach *x;
    int r;

    if (!ms)
        ms = TOTAL_MS;
    if (ms < TOTAL_LEAST || ms > TOTAL_MOST)
        return fail(err, -EINVAL, "reach: a measurement takes from %u to %u seconds",
                    TOTAL_LEAST / 1000, TOTAL_MOST / 1000);
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
                        .host = {.tcp = -1, .abstract = -1},
                        .taken = {.started = now_ns(), .generation = w->generation},
                        .total_ms = (unsigned)ms,
                        .eof = 1,
                        .input = BUF_INIT,
                        .output = BUF_INIT,
                        .complaint = BUF_INIT};
    w->reach = x;
    snprintf(x->taken.sha256, sizeof(x->taken.sha256), "%s", w->policy.sha256);
    r = prepare(x, err);
    if (r == 0) {
        x->timer = loop_timer(w->loop, ms * 1000000u, reach_late, x);
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
