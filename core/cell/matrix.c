/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * matrix - the rows of a reach measurement and the judgement of each.
 *
 * A row that must be closed passes only when three things are known: nothing of it arrived at the enforcer's
 * sink and nothing came back, somebody refused it (the enforcer, or the cell's own kernel), and its twin,
 * the same try with the way opened, did succeed. What was not seen to be refused is not measured, and that is never
 * a pass. The probe's output comes out of the cell: it can make a row fail or unknown, and what it claims in favour
 * of an allowed row is believed only with the sink. Threads: none.
 */
#include "reach.h"

void matrix_fini(struct reach_matrix *m)
{
    size_t i;

    for (i = 0; i < m->n; i++)
        free(m->rows[i].text);
    free(m->rows);
    *m = (struct reach_matrix){0};
}

static struct reach_row *row_new(struct reach_matrix *m)
{
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 256;
        struct reach_row *rows = reallocarray(m->rows, cap, sizeof(*rows));
        if (!rows)
            return NULL;
        m->rows = rows;
        m->cap = cap;
    }
    return &m->rows[m->n++];
}

static int starts(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* Rows that need ports besides their own. What there are too many of cannot be tried. */
static void row_slot(struct reach_matrix *m, struct reach_row *r)
{
    r->held = starts(r->options, "held");
    r->via = !strcmp(r->kind, "redirect");
    if (r->held)
        r->slot = (uint16_t)m->n_held++;
    else if (r->via)
        r->slot = (uint16_t)m->n_via++;
}

/* The row's words in one block. */
static int row_copy(struct reach_row *r, const struct cella_reach_row *row)
{
    const char *const words[] = {row->id,
                                 row->group,
                                 row->kind,
                                 row->address,
                                 row->twin_address[0] ? row->twin_address : row->address,
                                 row->name,
                                 row->options,
                                 row->rule,
                                 row->why};
    const char **const to[] = {&r->id,   &r->group,   &r->kind, &r->address, &r->twin_address,
                               &r->name, &r->options, &r->rule, &r->why};
    size_t i, n = 0;

    *r = (struct reach_row){.port = (uint16_t)row->port,
                            .allow = row->expected == CELLA_REACH_ALLOW,
                            .by_cell = row->proof == CELLA_REACH_BY_CELL};
    for (i = 0; i < ARRAY_LEN(words); i++)
        n += strlen(words[i]) + 1;
    r->text = malloc(n);
    if (!r->text)
        return -ENOMEM;
    for (i = n = 0; i < ARRAY_LEN(words); i++) {
        *to[i] = strcpy(r->text + n, words[i]);
        n += strlen(words[i]) + 1;
    }
    return 0;
}

void matrix_row(void *ctx, const struct cella_reach_row *row)
{
    struct reach_matrix *m = ctx;
    struct reach_row *r, copy;

    if (m->own_kernel && !strcmp(row->kind, "socket"))
        return;
    if (m->n == REACH_ROWS_MAX) {
        m->dropped++;
        return;
    }
    if (row_copy(&copy, row) < 0 || !(r = row_new(m))) {
        free(copy.text);
        m->oom = 1;
        return;
    }
    *r = copy;
    row_slot(m, r);
}

/* What the row's source ports are. */
static uint32_t try_port(const struct reach_matrix *m, size_t i)
{
    return m->rows[i].held ? m->held + m->rows[i].slot : m->port + (uint32_t)(i - m->first);
}

static uint32_t twin_port(const struct reach_matrix *m, size_t i)
{
    return m->twin + (uint32_t)(i - m->first);
}

static struct reach_try *try_of(struct reach_matrix *m, uint32_t port)
{
    size_t i;

    if (port >= m->port && port < m->port + m->count) {
        struct reach_row *r = &m->rows[m->first + port - m->port];
        return r->held ? NULL : &r->try;
    }
    if (port >= m->twin && port < m->twin + m->count)
        return &m->rows[m->first + port - m->twin].twin;
    for (i = m->first; i < m->first + m->count; i++)
        if (m->rows[i].held && try_port(m, i) == port)
            return &m->rows[i].try;
    return NULL;
}

void matrix_seen(void *ctx, const struct cella_reach_seen *seen)
{
    struct reach_try *t = try_of(ctx, seen->port);

    if (!t)
        return;
    t->bytes += seen->bytes;
    t->carried += seen->carried;
    t->refused += seen->refused;
}

/* Below the ephemeral range, so that no connection of the workload has these ports by chance. */
int matrix_plan(struct reach_matrix *m)
{
    const uint32_t ports = REACH_BATCH + REACH_TWIN_PORTS + REACH_HELD_MAX;
    uint8_t random;
    int r = random_bytes(&random, sizeof(random));

    if (r == 0)
        r = random_id(m->nonce);
    if (r < 0)
        return r;
    m->port = REACH_PORT_LO + random % (REACH_PORT_HI - REACH_PORT_LO - ports);
    m->twin = m->port + REACH_BATCH;
    m->held = m->twin + REACH_TWIN_PORTS;
    return m->oom ? -ENOMEM : m->n ? 0 : -ENODATA;
}

size_t matrix_next(struct reach_matrix *m)
{
    m->first += m->count;
    m->count = m->n - m->first < REACH_BATCH ? m->n - m->first : REACH_BATCH;
    return m->count;
}

static const char *dash(const char *s)
{
    return *s ? s : "-";
}

/* What the probe has room for, and ports are left for. */
static int tryable(const struct reach_matrix *m, size_t i)
{
    const struct reach_row *r = &m->rows[i];

    return strlen(r->kind) < 16 && strlen(r->address) < 64 && strlen(r->twin_address) < 64 &&
           strlen(r->options) < 240 && !(r->held && (m->first || r->slot >= REACH_HELD_MAX)) &&
           !(r->via && r->slot >= REACH_VIA_MAX);
}

static void line(const struct reach_matrix *m, size_t i, int twin, struct buf *b)
{
    const struct reach_row *r = &m->rows[i];
    const char *options = r->options;

    if (twin) /* the plain form of the same: what a trick needs is not what it must show */
        options = r->by_cell ? "local"
                  : starts(options, "type=") || starts(options, "reuse") ||
                          starts(options, "held") || starts(options, "to=")
                      ? options
                  : starts(options, "lookup") ? "lookup"
                                              : "";
    buf_addf(b, "%c%zu %s %s %u %u %s %s", twin ? 't' : 'r', i, r->kind,
             dash(twin ? r->twin_address : r->address), r->port,
             (unsigned)(twin ? twin_port(m, i) : try_port(m, i)), dash(r->name), dash(options));
    if (r->via)
        buf_addf(b, ";via=%u", (unsigned)(m->twin + REACH_BATCH + 2u * r->slot + (unsigned)twin));
    buf_addf(b, "\n");
}

int matrix_lines(const struct reach_matrix *m, unsigned patience_ms, unsigned total_ms,
                 struct buf *ret)
{
    size_t i;
    int held;

    buf_addf(ret, "cella-probe-2 %s %u %u\n", m->nonce, patience_ms, total_ms);
    for (held = 1; held >= 0; held--) /* first what others wait for */
        for (i = m->first; i < m->first + m->count; i++) {
            if (m->rows[i].held != held || !tryable(m, i))
                continue;
            line(m, i, 0, ret);
            if (!m->rows[i].allow)
                line(m, i, 1, ret);
        }
    buf_addf(ret, ".\n");
    return ret->oom ? -ENOMEM : 0;
}

static int take_line(struct reach_matrix *m, const json_t *o)
{
    const char *id = json_string_value(json_object_get(o, "id"));
    json_int_t err = json_integer_value(json_object_get(o, "errno"));
    json_int_t got = json_integer_value(json_object_get(o, "got"));
    json_int_t us = json_integer_value(json_object_get(o, "us"));
    struct reach_try *t;
    int64_t i;

    if (!id || (id[0] != 'r' && id[0] != 't') || parse_i64(id + 1, &i) < 0 || i < 0 ||
        (size_t)i < m->first || (size_t)i >= m->first + m->count || err < 0 || err > 4095 ||
        got < -1 || us < 0)
        return -EPROTO;
    t = id[0] == 'r' ? &m->rows[i].
    try:
        &m->rows[i].twin;
    if (t->told)
        return -EPROTO;
    t->told = 1;
    t->errnum = (int)err;
    t->got = got;
    t->us = (uint64_t)us;
    t->connected = json_integer_value(json_object_get(o, "connected")) != 0;
    return 0;
}

int matrix_output(struct reach_matrix *m, const char *text, size_t len)
{
    while (len) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;
        json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
        int r = !json_is_object(o)           ? -EPROTO
                : json_object_get(o, "held") ? 0 /* it was for whoever waited */
                                             : take_line(m, o);
        json_decref(o);
        if (r < 0)
            return r;
        n += end != NULL;
        text += n;
        len -= n;
    }
    return 0;
}

/* ---- judgement ---- */

/* What is held was connected when it might be; it is what came later that counts. */
static int succeeded(const struct reach_row *r, const struct reach_try *t)
{
    return t->bytes > 0 || t->got > 0 || (!r->by_cell && !r->held && t->connected && !t->carried);
}

static const char *untried(const struct reach_try *t)
{
    return t->told && t->errnum == ETIMEDOUT ? "no time was left for it"
                                             : "the probe could not try it";
}

static void judge_allowed(struct reach_row *r)
{
    const struct reach_try *t = &r->try;

    r->result = REACH_FAIL;
    if (r->by_cell ? t->got > 0 : t->bytes > 0) {
        r->result = REACH_PASS;
        r->saw = "it arrived";
    } else if (t->got > 0) {
        r->saw = "something answered, but it is not where the enforcer should have brought it";
    } else if (!t->told || t->got < 0) {
        r->result = REACH_NOT_MEASURED;
        r->saw = untried(t);
    } else {
        r->saw = "nothing arrived";
    }
}

/* Nobody is known to have stopped it: not the enforcer, and silence is no answer. */
static int unanswered(const struct reach_row *r)
{
    const struct reach_try *t = &r->try;

    if (r->by_cell || t->refused)
        return 0;
    return t->errnum == ETIMEDOUT || (!t->errnum && !t->carried);
}

/* What goes by a name asks for it first, and the question counts at the sink as well: what the probe got back must
   show that it went on. */
static int twin_succeeded(const struct reach_row *r)
{
    int by_name = r->via || starts(r->options, "lookup") || !strcmp(r->kind, "tls") ||
                  !strcmp(r->kind, "http");

    return r->by_cell ? r->twin.got > 0 : r->twin.bytes > 0 && (!by_name || r->twin.got > 0);
}

static void judge_denied(struct reach_row *r)
{
    const struct reach_try *t = &r->try;

    r->result = REACH_NOT_MEASURED;
    if (t->bytes > 0 || succeeded(r, t)) {
        r->result = REACH_FAIL;
        r->saw = t->bytes > 0 ? "bytes arrived"
                 : t->got > 0 ? "something answered"
                              : "something accepted the connection that is not the enforcer";
    } else if (!t->told || t->got < 0) {
        r->saw = untried(t);
    } else if (unanswered(r)) {
        r->saw = "nobody saw it: neither the enforcer nor the cell's kernel refused it";
    } else if (!twin_succeeded(r)) {
        r->saw = "its twin did not succeed either, so the silence proves nothing";
    } else {
        r->result = REACH_PASS;
        r->saw = t->refused || t->carried ? "refused by the enforcer" : "refused inside the cell";
    }
}

void matrix_judge(struct reach_matrix *m)
{
    size_t i;

    m->pass = m->fail = m->not_measured = 0;
    for (i = 0; i < m->n; i++) {
        struct reach_row *r = &m->rows[i];
        if (i >= m->first + m->count) {
            r->result = REACH_NOT_MEASURED;
            r->saw = "no time was left for it";
        } else if (r->allow)
            judge_allowed(r);
        else
            judge_denied(r);
        *(r->result == REACH_PASS   ? &m->pass
          : r->result == REACH_FAIL ? &m->fail
                                    : &m->not_measured) += 1;
    }
}

const char *matrix_verdict(const struct reach_matrix *m)
{
    return m->fail ? "fail" : m->not_measured || m->dropped || !m->n ? "not_measured" : "pass";
}

static json_t *try_json(const struct reach_try *t)
{
    return json_pack("{s:b, s:i, s:b, s:I, s:I, s:I, s:I, s:I}", "told", t->told, "errno",
                     t->errnum, "connected", t->connected, "got", (json_int_t)t->got, "us",
                     (json_int_t)t->us, "bytes", (json_int_t)t->bytes, "carried",
                     (json_int_t)t->carried, "refused", (json_int_t)t->refused);
}

json_t *matrix_json(const struct reach_matrix *m)
{
    static const char *const words[] = {"not_measured", "pass", "fail"};
    json_t *all = json_array(), *o;
    size_t i;

    for (i = 0; i < m->n; i++) {
        const struct reach_row *r = &m->rows[i];
        o = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o}", "id",
                      r->id, "group", r->group, "kind", r->kind, "address", r->address, "port",
                      (int)r->port, "name", r->name, "options", r->options, "rule", r->rule, "why",
                      r->why, "expected", r->allow ? "allow" : "deny", "result", words[r->result],
                      "saw", r->saw, "try", try_json(&r->try));
        if (o && !r->allow)
            json_object_set_new(o, "twin", try_json(&r->twin));
        if (!o || json_array_append_new(all, o) < 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
