/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit - the public calls: which lines a chain begins, goes on and ends with.
 *
 * A cell's chain begins with chain.open (public key, head of the host's chain), goes on after a
 * crash with chain.resume, ends with chain.close. Every SIGN_EVERY lines chain.head carries a
 * signature. The host's chain gets cell.open and cell.close with the cell's heads, so that a
 * missing file is noticed. It is written by many processes: each locks host.state, appends, signs
 * host.head, unlocks. Invariant: a .head file never names a line that was not stored. Lock order:
 * cell's state, then host's state. Threads: one per struct audit.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "chain.h"

#define HOST_CHAIN "host"

struct audit {
    int dirfd;
    struct key *key;
    struct fan fan;
    struct chain cell;
    const struct audit_parent *parent; /* while it is opened */
};

/* ------------------------------------------------------------------- chains */

static struct head chain_head(const struct audit *a, const struct chain *c, uint32_t closed)
{
    struct head h = {.seq = c->seq, .closed = closed, .lost = fan_lost(&a->fan, c)};

    memcpy(h.chain, c->name, sizeof(h.chain));
    memcpy(h.hash, c->hash, HASH_HEX);
    return h;
}

static int head_save(const struct audit *a, struct chain *c, uint32_t closed,
                     struct cella_error *err)
{
    struct head h = chain_head(a, c, closed);
    int r = head_write(a->dirfd, a->key, &h);

    if (r < 0)
        return fail(err, r, "cannot write the signed head of audit chain %s: %s", c->name,
                    strerror(-r));
    c->head_seq = c->seq;
    return 0;
}

/* chain.head or chain.close: a record that carries the signature of the line before it. */
static int signed_record(struct audit *a, struct chain *c, const char *kind, uint32_t closed,
                         struct cella_error *err)
{
    struct cella_field fields[5];
    char sig[SIG_HEX], hash[HASH_HEX];
    struct head h;
    int r = fan_report(&a->fan, c, err);

    if (r < 0)
        return r;
    h = chain_head(a, c, closed);
    key_sign(a->key, &h, sig);
    memcpy(hash, c->hash, HASH_HEX);
    fields[0] = field_int("head_seq", (int64_t)h.seq);
    fields[1] = field_str("head", hash);
    fields[2] = field_int("closed", (int64_t)h.closed);
    fields[3] = field_int("lost", (int64_t)h.lost);
    fields[4] = field_str("sig", sig);
    return fan_record(&a->fan, c, kind, fields, ARRAY_LEN(fields), sizeof(fields[0]), err);
}

static int record(struct audit *a, struct chain *c, const char *kind,
                  const struct cella_field *fields, uint32_t n, uint32_t stride,
                  struct cella_error *err)
{
    int r = fan_report(&a->fan, c, err);

    return r < 0 ? r : fan_record(&a->fan, c, kind, fields, n, stride, err);
}

static int chain_write(struct audit *a, struct chain *c, const char *kind,
                       const struct cella_field *fields, uint32_t n, uint32_t stride,
                       struct cella_error *err)
{
    struct errbuf eb;
    int r = record(a, c, kind, fields, n, stride, err);

    if (r <= 0 || c->seq / SIGN_EVERY == c->head_seq / SIGN_EVERY)
        return r;
    r = signed_record(a, c, "chain.head", 0, err);
    if (r > 0 && head_save(a, c, 0, errbuf_init(&eb)) < 0)
        c->head_seq = c->seq; /* the line has the signature; the file gets the next one */
    return r < 0 ? r : 1;
}

/* chain.open; `host` is the host's chain for a cell's, NULL for the host's own. */
static int chain_begin(struct audit *a, struct chain *c, const struct chain *host,
                       struct cella_error *err)
{
    struct cella_field fields[6];
    uint32_t n = 0;

    fields[n++] = field_str("key", key_public_hex(a->key));
    if (host) {
        fields[n++] = field_int("host_seq", (int64_t)host->seq);
        fields[n++] = field_str("host_head", host->hash);
    }
    if (host && a->parent) {
        fields[n++] = field_str("parent", a->parent->chain);
        fields[n++] = field_int("parent_seq", (int64_t)a->parent->seq);
        fields[n++] = field_str("parent_head", a->parent->head);
    }
    return record(a, c, "chain.open", fields, n, sizeof(fields[0]), err);
}

static int chain_resume(struct audit *a, struct chain *c, struct cella_error *err)
{
    struct cella_field fields[2];
    char known[HASH_HEX];

    memcpy(known, c->known, HASH_HEX);
    fields[0] = field_int("last_seq", (int64_t)c->known_seq);
    fields[1] = field_str("last", known);
    return record(a, c, "chain.resume", fields, 2, sizeof(fields[0]), err);
}

/* Without a state file the signed head tells where the chain stands. -EALREADY when it is closed.
 */
static int chain_adopt_head(struct audit *a, struct chain *c, struct cella_error *err)
{
    char sig[SIG_HEX];
    struct errbuf eb;
    struct head h;
    size_t i;
    int r = head_read(a->dirfd, c->name, &h, sig, errbuf_init(&eb));

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return fail(err, r, "%s", eb.text);
    if (!head_signed_by(key_public_hex(a->key), &h, sig))
        return fail(err, -EBADMSG, "the head of audit chain %s is not signed by this host's key",
                    c->name);
    if (h.closed)
        return fail(err, -EALREADY, "audit chain %s is closed", c->name);
    c->seq = c->known_seq = c->head_seq = h.seq;
    memcpy(c->hash, h.hash, HASH_HEX);
    memcpy(c->known, h.hash, HASH_HEX);
    for (i = 0; i < SINKS_MAX; i++) {
        c->sinks[i].last_seq = h.seq;
        memcpy(c->sinks[i].last, h.hash, HASH_HEX);
    }
    return 0;
}

static int chain_open(struct audit *a, struct chain *c, const char *name, int wait,
                      struct cella_error *err)
{
    int r;

    chain_init(c, name);
    r = state_open(a->dirfd, c, 1, wait, err);
    if (r == 0 && c->seq == 0)
        r = chain_adopt_head(a, c, err);
    if (c->head_seq == 0)
        c->head_seq = c->seq;
    if (r < 0)
        state_close(c);
    return r;
}

/* --------------------------------------------------------------- host's chain */

static int host_lock(struct audit *a, struct chain *host, struct cella_error *err)
{
    int r = chain_open(a, host, HOST_CHAIN, 1, err);

    if (r < 0)
        return r;
    if (host->seq == 0)
        r = chain_begin(a, host, NULL, err);
    else if (host->seq != host->known_seq)
        r = chain_resume(a, host, err);
    if (r < 0)
        state_close(host);
    return r;
}

static int host_write(struct audit *a, struct chain *host, const char *kind,
                      const struct cella_field *fields, uint32_t n, struct cella_error *err)
{
    int r = chain_write(a, host, kind, fields, n, sizeof(fields[0]), err);

    return r <= 0 ? r : head_save(a, host, 0, err);
}

/* cell.open or cell.close, with the cell's head. */
static int host_link(struct audit *a, struct chain *host, const char *kind, struct cella_error *err)
{
    struct cella_field fields[3];

    fields[0] = field_str("cell", a->cell.name);
    fields[1] = field_int("cell_seq", (int64_t)a->cell.seq);
    fields[2] = field_str("cell_head", a->cell.hash);
    return host_write(a, host, kind, fields, ARRAY_LEN(fields), err);
}

/* ------------------------------------------------------------------- opening */

static int cell_begin(struct audit *a, struct cella_error *err)
{
    struct chain host;
    int r = host_lock(a, &host, err);

    if (r < 0)
        return r;
    r = chain_begin(a, &a->cell, &host, err);
    if (r >= 0)
        r = host_link(a, &host, "cell.open", err);
    state_close(&host);
    return r < 0 ? r : head_save(a, &a->cell, 0, err);
}

static int open_dir(struct audit *a, const char *dir, struct cella_error *err)
{
    int r = mkdir_p(dir, 0700);

    if (r < 0)
        return fail(err, r, "cannot make the audit directory %s: %s", dir, strerror(-r));
    a->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->dirfd < 0)
        return fail(err, -errno, "cannot open the audit directory %s: %s", dir, strerror(errno));
    return 0;
}

static int open_cell(struct audit *a, const char *cell_id, struct cella_error *err)
{
    int r = chain_open(a, &a->cell, cell_id, 0, err);

    if (r < 0 && r != -EBUSY && a->cell.seq == 0)
        state_remove(a->dirfd, &a->cell); /* the empty one just made */
    if (r < 0 || a->cell.closed)
        return r;
    if (a->cell.seq != 0) {
        r = chain_resume(a, &a->cell, err);
        return r < 0 ? r : head_save(a, &a->cell, 0, err);
    }
    r = cell_begin(a, err);
    if (r < 0 && a->cell.seq == 0)
        state_remove(a->dirfd, &a->cell);
    return r;
}

static int parts_open(struct audit *a, const char *dir, const struct cella_host *host,
                      const struct audit_sink *sinks, size_t n_sinks, struct cella_error *err)
{
    int r = open_dir(a, dir, err);

    if (r == 0)
        r = key_open(a->dirfd, &a->key, err);
    return r == 0 ? fan_open(&a->fan, host, sinks, n_sinks, err) : r;
}

int audit_open(const char *dir, const char *cell_id, const struct cella_host *host,
               const struct audit_sink *sinks, size_t n_sinks, struct audit **ret,
               struct cella_error *err)
{
    return audit_open_child(dir, cell_id, NULL, host, sinks, n_sinks, ret, err);
}

int audit_open_child(const char *dir, const char *cell_id, const struct audit_parent *parent,
                     const struct cella_host *host, const struct audit_sink *sinks, size_t n_sinks,
                     struct audit **ret, struct cella_error *err)
{
    struct audit *a;
    int r;

    if (!chain_name_valid(cell_id) || !strcmp(cell_id, HOST_CHAIN))
        return fail(err, -EINVAL, "\"%.32s\" cannot name an audit chain; use a-z and 0-9", cell_id);
    a = calloc(1, sizeof(*a));
    if (!a)
        return fail(err, -ENOMEM, "out of memory for the audit");
    chain_init(&a->cell, cell_id);
    a->dirfd = -1;
    a->parent = parent;
    r = parts_open(a, dir, host, sinks, n_sinks, err);
    if (r == 0)
        r = open_cell(a, cell_id, err);
    a->parent = NULL;
    if (r < 0) {
        a->cell.closed = 1; /* nothing more is written */
        audit_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

int audit_open_host(const char *dir, const struct cella_host *host, const struct audit_sink *sinks,
                    size_t n_sinks, struct audit **ret, struct cella_error *err)
{
    struct audit *a = calloc(1, sizeof(*a));
    int r;

    if (!a)
        return fail(err, -ENOMEM, "out of memory for the audit");
    chain_init(&a->cell, "");
    a->cell.closed = 1; /* there is none */
    a->dirfd = -1;
    r = parts_open(a, dir, host, sinks, n_sinks, err);
    if (r < 0)
        audit_free(a);
    else
        *ret = a;
    return r;
}

/* ------------------------------------------------------------------- events */

static int event_check(const struct cella_event *e, struct cella_error *err)
{
    if (!kind_valid(e->kind))
        return fail(err, -EINVAL, "audit event without a valid kind; use [a-z0-9.]+");
    if (!strncmp(e->kind, "chain.", 6) || !strncmp(e->kind, "audit.", 6))
        return fail(err, -EPERM, "audit event kind %s is the audit's own; use another name",
                    e->kind);
    if (e->n_fields && (!e->fields || e->field_stride < sizeof(struct cella_field)))
        return fail(err, -EINVAL, "audit event %s has a malformed field table", e->kind);
    return 0;
}

int audit_event(struct audit *a, const struct cella_event *event, struct cella_error *err)
{
    int r = event_check(event, err);

    if (r < 0)
        return r;
    if (a->fan.giving)
        return fail(err, -EBUSY, "audit event %s came while another record is being stored",
                    event->kind);
    if (a->cell.closed)
        return fail(err, -ESHUTDOWN, "audit chain %s is closed; event %s came too late",
                    a->cell.name, event->kind);
    if (a->cell.failed) {
        fan_refused(&a->fan, &a->cell);
        return fail(err, a->cell.failed,
                    "audit event %s refused: an earlier record could not be stored (fail-closed)",
                    event->kind);
    }
    r = chain_write(a, &a->cell, event->kind, event->fields, event->n_fields, event->field_stride,
                    err);
    if (r < 0)
        a->cell.failed = r;
    return r < 0 ? r : 0;
}

int audit_emit(struct audit *a, struct cella_error *err, const char *kind, ...)
{
    struct cella_field fields[CELLA_EVENT_FIELDS_MAX];
    struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                            .kind = kind,
                            .fields = fields,
                            .field_stride = sizeof(fields[0])};
    va_list ap;

    va_start(ap, kind);
    e.n_fields = fields_collect(ap, fields, ARRAY_LEN(fields));
    va_end(ap);
    return audit_event(a, &e, err);
}

int audit_host_emit(struct audit *a, struct cella_error *err, const char *kind, ...)
{
    struct cella_field fields[CELLA_EVENT_FIELDS_MAX];
    struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                            .kind = kind,
                            .fields = fields,
                            .field_stride = sizeof(fields[0])};
    struct chain host;
    va_list ap;
    int r;

    va_start(ap, kind);
    e.n_fields = fields_collect(ap, fields, ARRAY_LEN(fields));
    va_end(ap);
    r = event_check(&e, err);
    if (r == 0 && (!strcmp(kind, "cell.open") || !strcmp(kind, "cell.close")))
        r = fail(err, -EPERM,
                 "audit event kind %s of the host's chain is the audit's own; use another name",
                 kind);
    if (r == 0)
        r = host_lock(a, &host, err);
    if (r < 0)
        return r;
    r = host_write(a, &host, kind, fields, e.n_fields, err);
    state_close(&host);
    return r < 0 ? r : 0;
}

void audit_head(const struct audit *a, uint64_t *ret_seq, char ret_hex[65])
{
    *ret_seq = a->cell.seq;
    memcpy(ret_hex, a->cell.hash, HASH_HEX);
}

/* ------------------------------------------------------------------- closing */

static int cell_end(struct audit *a, struct cella_error *err)
{
    int r = signed_record(a, &a->cell, "chain.close", 1, err);

    if (r < 0)
        return r;
    a->cell.closed =
        1; /* also when every sink dropped it: the signed head says how many are lost */
    r = state_save(&a->cell, a->cell.seq, a->cell.hash);
    return r < 0 ? fail(err, r, "cannot save the state of audit chain %s: %s", a->cell.name,
                        strerror(-r))
                 : 0;
}

int audit_close(struct audit *a, struct cella_error *err)
{
    struct chain host;
    int r = 0;

    a->cell.failed = 0; /* the end is worth another try */
    if (!a->cell.closed)
        r = cell_end(a, err);
    if (r == 0)
        r = head_save(a, &a->cell, 1, err);
    if (r == 0)
        r = host_lock(a, &host, err);
    if (r < 0)
        return r;
    r = host_link(a, &host, "cell.close", err);
    state_close(&host);
    if (r < 0)
        return r;
    state_remove(a->dirfd, &a->cell);
    return fan_flush(&a->fan, err);
}

void audit_free(struct audit *a)
{
    struct errbuf eb;

    if (!a)
        return;
    if (!a->cell.closed && a->cell.head_seq != a->cell.seq)
        head_save(a, &a->cell, 0, errbuf_init(&eb));
    state_close(&a->cell);
    fan_close(&a->fan);
    key_free(a->key);
    auto_close_(&a->dirfd);
    free(a);
}
