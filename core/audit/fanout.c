/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fanout - one line to every sink, and what happens when a sink cannot take it.
 *
 * A record gets its sequence number when at least one sink stored it; a record no sink stored
 * leaves the chain as it was, so numbers have no gaps. A sink that missed records gets, before its
 * next line, one record "audit.dropped" with the count and the last line it has; that record is
 * offered to it first, so it is made only when the sink works again. With several sinks the others
 * see it too: all copies are one chain, and a gap in one copy is explained by the line after it.
 * Rules: block retries here with growing pauses; drop counts; fail-closed makes the failure the
 * caller's, and stay. Invariant: state says "on its way" before the first sink sees a line and
 * "known" after the last one has. A sink that complains meanwhile gets no record of that (`giving`):
 * it would have the number of the one on its way. Threads: one per chain; the host's chain is locked
 * by its state file.
 */
#include <inttypes.h>
#include <time.h>

#include "chain.h"
#include "plugin.h"

#define PAUSE_FIRST_NS 1000000u
#define PAUSE_MAX_NS 250000000u

int fan_open(struct fan *f, const struct cella_host *host, const struct audit_sink *sinks, size_t n,
             struct cella_error *err)
{
    size_t i;
    int r;

    *f = (struct fan){.host = host};
    if (n == 0 || n > SINKS_MAX)
        return fail(err, -EINVAL, "audit needs 1 to %d sinks, got %zu", SINKS_MAX, n);
    for (i = 0; i < n; i++, f->n++) {
        f->sinks[i] = sinks[i];
        r = sink_open(sinks[i].plugin, host, sinks[i].options, &f->selves[i], err);
        if (r < 0) {
            fan_close(f);
            fail_wrap(err, "cannot open audit sink %s", sinks[i].plugin->name);
            return r;
        }
    }
    return 0;
}

void fan_close(struct fan *f)
{
    size_t i;

    for (i = 0; i < f->n; i++)
        sink_close(f->sinks[i].plugin, f->selves[i]);
    f->n = 0;
}

int fan_flush(struct fan *f, struct cella_error *err)
{
    int first = 0;
    size_t i;

    for (i = 0; i < f->n; i++) {
        int r = sink_flush(f->sinks[i].plugin, f->selves[i], first < 0 ? NULL : err);
        if (r < 0 && first == 0) {
            fail_wrap(err, "audit sink %s cannot make its records durable",
                      f->sinks[i].plugin->name);
            first = r;
        }
    }
    return first;
}

uint64_t fan_lost(const struct fan *f, const struct chain *c)
{
    uint64_t lost = 0;
    size_t i;

    for (i = 0; i < f->n; i++)
        if (c->sinks[i].dropped > lost)
            lost = c->sinks[i].dropped;
    return lost;
}

static void pause_ns(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
        ;
}

static void warn(const struct fan *f, size_t i, const struct chain *c, const char *what,
                 const char *why)
{
    if (f->host && CELLA_HOST_HAS(f->host, log))
        f->host->log(f->host->ctx, CELLA_LOG_WARN, "audit", "sink %s, chain %s: %s: %s",
                     f->sinks[i].plugin->name, c->name, what, why);
}

static int give_once(const struct fan *f, size_t i, const struct cella_record *rec,
                     struct errbuf *eb)
{
    int r = sink_event(f->sinks[i].plugin, f->selves[i], rec, errbuf_init(eb));

    if (r < 0 && !eb->text[0])
        fail(&eb->err, r, "%s", strerror(-r));
    return r;
}

/* One sink, by its rule. 0 stored; -errno not. */
static int give(const struct fan *f, size_t i, const struct chain *c,
                const struct cella_record *rec, struct errbuf *eb)
{
    uint64_t pause = PAUSE_FIRST_NS;
    int r = give_once(f, i, rec, eb);

    if (r == 0 || f->sinks[i].overflow != OVERFLOW_BLOCK)
        return r;
    warn(f, i, c, "cannot store, waiting", eb->text);
    while (r < 0) {
        pause_ns(pause);
        pause = pause * 2 < PAUSE_MAX_NS ? pause * 2 : PAUSE_MAX_NS;
        r = give_once(f, i, rec, eb);
    }
    warn(f, i, c, "stores again", "waited");
    return 0;
}

static void count_drop(const struct fan *f, struct chain *c, size_t i, const char *why)
{
    if (c->sinks[i].dropped++ == 0)
        warn(f, i, c, "records are lost", why);
    state_save_sink(c, i);
}

void fan_refused(const struct fan *f, struct chain *c)
{
    size_t i;

    for (i = 0; i < f->n; i++)
        if (f->sinks[i].overflow == OVERFLOW_FAIL_CLOSED)
            count_drop(f, c, i, "refused");
}

static void stored_by(struct chain *c, size_t i, const struct cella_record *rec, const char *hash)
{
    struct sink_state *s = &c->sinks[i];

    s->last_seq = rec->seq;
    memcpy(s->last, hash, HASH_HEX);
    if (s->dropped) {
        s->dropped = 0;
        state_save_sink(c, i);
    }
}

/* All sinks but `first`, which has the record already (SINKS_MAX: none). Returns stores;
 *ret_failed the first -errno of a fail-closed one. */
static unsigned give_all(struct fan *f, struct chain *c, size_t first,
                         const struct cella_record *rec, const char *hash, int *ret_failed,
                         struct cella_error *err)
{
    unsigned stored = 0;
    struct errbuf eb;
    size_t i;
    int r;

    for (i = 0; i < f->n; i++) {
        if (i == first)
            continue;
        if (c->sinks[i].dropped) { /* still failing: fan_report() has just tried it */
            count_drop(f, c, i, "still failing");
            r = c->sinks[i].code ? c->sinks[i].code : -EIO;
            fail(errbuf_init(&eb), r, "it has not stored earlier records either");
        } else {
            r = give(f, i, c, rec, &eb);
            if (r == 0) {
                stored_by(c, i, rec, hash);
                stored++;
                continue;
            }
            c->sinks[i].code = r;
            count_drop(f, c, i, eb.text);
        }
        if (f->sinks[i].overflow == OVERFLOW_FAIL_CLOSED && !*ret_failed)
            *ret_failed = fail(err, r,
                               "audit sink %s cannot store record %" PRIu64
                               " (%s) of chain %s: %s; its rule is "
                               "fail-closed, so what the record is about is refused",
                               f->sinks[i].plugin->name, rec->seq, rec->kind, c->name, eb.text);
    }
    return stored;
}

static int offer_whole(struct fan *f, struct chain *c, size_t first, const char *kind,
                       const struct cella_field *fields, uint32_t n, uint32_t stride,
                       struct cella_error *err)
{
    struct line_head head = {c->name, c->seq + 1, wall_ns(), c->hash, kind};
    struct cella_record rec = {.hdr = CELLA_HDR_INIT(struct cella_record, CELLA_KIND_RECORD),
                               .chain = c->name,
                               .seq = c->seq + 1,
                               .kind = kind};
    auto_buf struct buf line = BUF_INIT;
    char hash[HASH_HEX];
    struct errbuf eb;
    int r, failed = 0;
    unsigned stored = 0;

    if (line_render(&line, &head, fields, n, stride) < 0)
        return fail(err, -ENOMEM, "out of memory for an audit record");
    line_hash(line.ptr, line.len, hash);
    rec.line = (struct cella_span){line.ptr, line.len};
    r = state_save(c, rec.seq, hash);
    if (r < 0)
        return fail(err, r, "cannot save the state of audit chain %s: %s", c->name, strerror(-r));
    if (first < SINKS_MAX) {
        r = give(f, first, c, &rec, &eb);
        if (r == 0)
            stored_by(c, first, &rec, hash);
        c->sinks[first].code = r;
        stored += r == 0;
    }
    if (stored || first == SINKS_MAX)
        stored += give_all(f, c, first, &rec, hash, &failed, err);
    if (stored) {
        c->seq = c->known_seq = rec.seq;
        memcpy(c->hash, hash, HASH_HEX);
        memcpy(c->known, hash, HASH_HEX);
    }
    r = state_save(c, c->seq, c->hash);
    if (failed)
        return failed;
    if (r < 0)
        return fail(err, r, "cannot save the state of audit chain %s: %s", c->name, strerror(-r));
    return stored > 0;
}

/* `first` (SINKS_MAX: none) is asked first; when it cannot, nobody gets the record: 0. */
static int offer(struct fan *f, struct chain *c, size_t first, const char *kind,
                 const struct cella_field *fields, uint32_t n, uint32_t stride,
                 struct cella_error *err)
{
    int r;

    f->giving = 1;
    r = offer_whole(f, c, first, kind, fields, n, stride, err);
    f->giving = 0;
    return r;
}

int fan_report(struct fan *f, struct chain *c, struct cella_error *err)
{
    size_t i;

    for (i = 0; i < f->n; i++) {
        const struct sink_state *s = &c->sinks[i];
        struct cella_field fields[4];
        char last[HASH_HEX];
        int r;

        if (!s->dropped)
            continue;
        memcpy(last, s->last, HASH_HEX);
        fields[0] = field_str("sink", f->sinks[i].plugin->name);
        fields[1] = field_int("count", (int64_t)s->dropped);
        fields[2] = field_int("last_seq", (int64_t)s->last_seq);
        fields[3] = field_str("last", last);
        r = offer(f, c, i, "audit.dropped", fields, ARRAY_LEN(fields), sizeof(fields[0]), err);
        if (r < 0)
            return r;
    }
    return 0;
}

int fan_record(struct fan *f, struct chain *c, const char *kind, const struct cella_field *fields,
               uint32_t n, uint32_t stride, struct cella_error *err)
{
    return offer(f, c, SINKS_MAX, kind, fields, n, stride, err);
}
