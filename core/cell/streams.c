/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * streams - a client's stream is one stream of the agent; frames pass in both directions under the
 * client's number. Credit passes end to end, so a client that does not read stops the program that
 * writes, and the warden buffers at most one window per channel.
 *
 * What passes is recorded here: commands with their end and resource use, files with size and
 * SHA-256.
 */
#include <sodium.h>

#include "control.h"

struct relay {
    struct peer *peer;
    struct warden *warden;
    struct link_stream *stream;
    struct relay *next;
    uint32_t id; /* the client's number */
    uint32_t op;
    char path[256]; /* file operations: for the audit, cut */
    char path2[256];
    crypto_hash_sha256_state hash; /* content of PUT and GET */
    uint64_t bytes;
};

static void relay_free(struct relay *r)
{
    struct relay **at = r->peer ? peer_relays(r->peer) : NULL;

    while (at && *at && *at != r)
        at = &(*at)->next;
    if (at && *at)
        *at = r->next;
    free(r);
}

/* ---- audit of what ended ---- */

static void audit_exec(struct relay *r, const struct cella_frame *f, const uint8_t *payload)
{
    uint32_t status = 0, sig = 0, timed_out = 0, number = 0;
    uint64_t utime = 0, stime = 0, rss = 0;

    if (f->type == CELLA_FRAME_ERROR) {
        field_get_u32(payload, f->length, CELLA_TAG_ERRNO, &number);
        warden_audit(r->warden, NULL, "exec.failed", "i:errno", (int64_t)number, NULL);
        return;
    }
    field_get_u32(payload, f->length, CELLA_TAG_STATUS, &status);
    field_get_u32(payload, f->length, CELLA_TAG_TERM_SIGNAL, &sig);
    field_get_u32(payload, f->length, CELLA_TAG_TIMED_OUT, &timed_out);
    field_get_u64(payload, f->length, CELLA_TAG_UTIME_NS, &utime);
    field_get_u64(payload, f->length, CELLA_TAG_STIME_NS, &stime);
    field_get_u64(payload, f->length, CELLA_TAG_MAXRSS, &rss);
    r->warden->commands_ended++;
    r->warden->end_status = (int)status;
    r->warden->end_signal = (int)sig;
    warden_audit(r->warden, NULL, "exec.exit", "i:status", (int64_t)status, "i:signal",
                 (int64_t)sig, "b:timed_out", (int)timed_out, "i:utime_ns", (int64_t)utime,
                 "i:stime_ns", (int64_t)stime, "i:maxrss", (int64_t)rss, NULL);
}

static const char *op_kind(uint32_t op)
{
    static const char *const kinds[] = {
        [CELLA_OP_PUT] = "file.put",       [CELLA_OP_GET] = "file.get",
        [CELLA_OP_LIST] = "file.list",     [CELLA_OP_STAT] = "file.stat",
        [CELLA_OP_REMOVE] = "file.remove", [CELLA_OP_RENAME] = "file.rename",
        [CELLA_OP_MKDIR] = "file.mkdir"};

    return op < ARRAY_LEN(kinds) ? kinds[op] : NULL;
}

static void audit_file(struct relay *r, const struct cella_frame *f, const uint8_t *payload)
{
    uint8_t digest[crypto_hash_sha256_BYTES];
    char hex[2 * sizeof(digest) + 1] = "";
    int content = r->op == CELLA_OP_PUT || r->op == CELLA_OP_GET;
    const char *kind = op_kind(r->op);
    uint32_t number = 0;

    if (!kind || r->op == CELLA_OP_LIST || r->op == CELLA_OP_STAT)
        return; /* looking changes nothing and carries nothing out but names */
    if (f->type == CELLA_FRAME_ERROR)
        field_get_u32(payload, f->length, CELLA_TAG_ERRNO, &number);
    if (content) {
        crypto_hash_sha256_final(&r->hash, digest);
        hex_encode(digest, sizeof(digest), hex);
    }
    warden_audit(r->warden, NULL, kind, "s:path", r->path, "s:to", r->path2[0] ? r->path2 : NULL,
                 "i:errno", (int64_t)number, "i:size", (int64_t)r->bytes, "s:sha256",
                 content ? hex : NULL, NULL);
}

/* ---- agent to client ---- */

static void credit_back(struct link_stream *s, const struct cella_frame *f)
{
    auto_buf struct buf b = BUF_INIT;

    field_add_u32(&b, CELLA_TAG_COUNT, f->length);
    if (!b.oom)
        link_send(s, CELLA_FRAME_CREDIT, f->channel, b.ptr, b.len);
}

static void agent_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                        const uint8_t *payload)
{
    struct relay *r = ctx;
    struct cella_frame out = *f;
    int terminal = f->type == CELLA_FRAME_EXIT || f->type == CELLA_FRAME_RESULT ||
                   f->type == CELLA_FRAME_ERROR;
    int last;

    limits_activity(r->warden);
    if (f->type == CELLA_FRAME_DATA && r->op == CELLA_OP_GET) {
        crypto_hash_sha256_update(&r->hash, payload, f->length);
        r->bytes += f->length;
    }
    last = terminal && r->op == CELLA_OP_EXEC && r->peer && r->peer->one_command &&
           !link_lost(r->warden->link); /* else that is what the cell ends of */
    if (last && r->warden->machine)     /* it can be asked no more, then */
        machine_refresh(r->warden);
    if (last) /* the cell ends while the rest is written down */
        backend_stop_begin(&r->warden->backend);
    if (terminal) {
        struct cella_stats stats;
        if (!last && r->warden->state == W_RUNNING) /* the end of a cell looks by itself */
            limits_sample(r->warden, &stats);       /* which limit it was, before the answer */
        if (r->op == CELLA_OP_EXEC)
            audit_exec(r, f, payload);
        else
            audit_file(r, f, payload);
    }
    out.stream = r->id;
    if (r->peer)
        peer_send(r->peer, &out, payload);
    else if (f->type == CELLA_FRAME_DATA)
        credit_back(s, f); /* nobody reads any more; the stream must still come to its end */
    if (last)
        cell_end(r->warden, r->warden->commands_ended ? "exit" : "stop", NULL);
    if (terminal)
        relay_free(r);
}

static const struct link_stream_events agent_events = {agent_frame};

/* ---- client to agent ---- */

static void refuse(struct peer *p, uint32_t stream, int code, const char *message)
{
    auto_buf struct buf b = BUF_INIT;
    struct cella_frame f = {.type = CELLA_FRAME_ERROR, .stream = stream};

    field_add_u32(&b, CELLA_TAG_ERRNO, (uint32_t)-code);
    field_add(&b, CELLA_TAG_MESSAGE, message, strlen(message) > 512 ? 512 : strlen(message));
    f.length = (uint32_t)b.len;
    if (!b.oom)
        peer_send(p, &f, b.ptr);
}

static struct relay *relay_find(struct peer *p, uint32_t stream)
{
    struct relay *r;

    for (r = *peer_relays(p); r; r = r->next)
        if (r->id == stream)
            return r;
    return NULL;
}

static void copy_path(const uint8_t *payload, size_t len, uint16_t tag, char *out, size_t cap)
{
    const char *s;
    size_t n;

    if (field_get_str(payload, len, tag, &s, &n) == 0)
        snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), s);
}

static int relay_start(struct relay *r, const uint8_t *payload, size_t len, struct cella_error *err)
{
    auto_buf struct buf merged = BUF_INIT;
    int code;

    if (field_get_u32(payload, len, CELLA_TAG_OP, &r->op) < 0 ||
        (r->op != CELLA_OP_EXEC && !op_kind(r->op)))
        return fail(err, -EINVAL, "open: no such operation");
    copy_path(payload, len, CELLA_TAG_PATH, r->path, sizeof(r->path));
    copy_path(payload, len, CELLA_TAG_PATH2, r->path2, sizeof(r->path2));
    crypto_hash_sha256_init(&r->hash);
    if (r->op == CELLA_OP_EXEC) {
        code = exec_merge(r->warden, payload, len, &merged, err);
        if (code < 0)
            return code;
        payload = (const uint8_t *)merged.ptr;
        len = merged.len;
    }
    code = link_open(r->warden->link, payload, len, &agent_events, r, &r->stream);
    return code < 0 ? fail(err, code, "open: %s", strerror(-code)) : 0;
}

/* A client may send its command with the request for the cell: one turn less before it runs. */
static int hold(struct warden *w, struct peer *p, uint32_t stream, const uint8_t *payload,
                size_t len)
{
    if (buf_add(&w->held.fields, payload, len) < 0)
        return -ENOMEM;
    w->held.peer = p->serial;
    w->held.stream = stream;
    return 0;
}

void relay_held(struct warden *w)
{
    auto_buf struct buf fields = w->held.fields;
    struct peer *p = w->held.stream ? peer_find(w, w->held.peer) : NULL;
    uint32_t stream = w->held.stream;

    w->held.fields = (struct buf)BUF_INIT;
    w->held.stream = 0;
    if (p && relay_open(w, p, stream, (const uint8_t *)fields.ptr, fields.len) < 0)
        refuse(p, stream, -ENOMEM, "out of memory");
}

int relay_open(struct warden *w, struct peer *p, uint32_t stream, const uint8_t *payload,
               size_t len)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct relay *r;
    int code;

    if (!stream || relay_find(p, stream))
        return -EPROTO;
    if (w->state == W_STARTING && !w->ended && !w->held.stream)
        return hold(w, p, stream, payload, len);
    if (w->state != W_RUNNING || w->ended || w->stopping) {
        refuse(p, stream, w->state == W_PAUSED ? -EBUSY : -ENOTCONN,
               w->state == W_PAUSED ? "the cell is paused; resume it first"
                                    : "the cell is not running");
        return 0;
    }
    r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->peer = p;
    r->warden = w;
    r->id = stream;
    code = relay_start(r, payload, len, err);
    if (code < 0) {
        refuse(p, stream, code, eb.text);
        free(r);
        return 0;
    }
    r->next = *peer_relays(p);
    *peer_relays(p) = r;
    limits_activity(w);
    return 0;
}

int relay_frame(struct warden *w, struct peer *p, const struct cella_frame *f,
                const uint8_t *payload)
{
    struct relay *r;
    int code;

    switch (f->type) {
    case CELLA_FRAME_OPEN:
        return relay_open(w, p, f->stream, payload, f->length);
    case CELLA_FRAME_DATA:
    case CELLA_FRAME_CREDIT:
    case CELLA_FRAME_EOF:
    case CELLA_FRAME_SIGNAL:
    case CELLA_FRAME_RESIZE:
    case CELLA_FRAME_CLOSE:
        break;
    default:
        return -EPROTO;
    }
    r = relay_find(p, f->stream);
    if (!r || !w->link) /* crossed the terminal frame, or the end of the link with its streams */
        return 0;
    if (f->type == CELLA_FRAME_DATA && r->op == CELLA_OP_PUT) {
        crypto_hash_sha256_update(&r->hash, payload, f->length);
        r->bytes += f->length;
    }
    if (f->type != CELLA_FRAME_CREDIT)
        limits_activity(w);
    code = link_send(r->stream, f->type, f->channel, payload, f->length);
    return code == -EAGAIN ? -EPROTO : 0; /* more than the agent granted */
}

/* The client is gone: its commands are killed, what they still say is dropped. */
void relay_drop_peer(struct warden *w, struct peer *p)
{
    struct relay *r;

    for (r = *peer_relays(p); r; r = r->next) {
        r->peer = NULL;
        if (!w->link || !r->stream)
            continue;
        link_send(r->stream, CELLA_FRAME_CLOSE, 0, NULL, 0);
        /* r stays the stream's ctx until the terminal frame: the end is still recorded */
    }
    *peer_relays(p) = NULL;
}
