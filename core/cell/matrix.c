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

    for (i = 0; i < m->n; i++) {
        struct reach_row *r = &m->rows[i];
        char *const owned[] = {r->id,   r->group,   r->kind, r->address, r->twin_address,
                               r->name, r->options, r->rule, r->why};
        size_t k;
        for (k = 0; k < ARRAY_LEN(owned); k++)
            free(owned[k]);
    }
    free(m->rows);
    *m = (struct reach_matrix){0};
}

void matrix_row(void *ctx, const struct cella_reach_row *row)
{
    struct reach_matrix *m = ctx;
    struct reach_row *r;

    if (m->own_kernel && !strcmp(row->kind, "socket"))
        return;
    if (!m->rows)
        m->rows = calloc(REACH_ROWS_MAX, sizeof(*m->rows));
    if (!m->rows || m->n == REACH_ROWS_MAX) {
        m->dropped++;
        return;
    }
    r = &m->rows[m->n++];
    *r = (struct reach_row){.id = strdup(row->id),
                            .group = strdup(row->group),
                            .kind = strdup(row->kind),
                            .address = strdup(row->address),
                            .twin_address =
                                strdup(row->twin_address[0] ? row->twin_address : row->address),
                            .name = strdup(row->name),
                            .options = strdup(row->options),
                            .rule = strdup(row->rule),
                            .why = strdup(row->why),
                            .port = (uint16_t)row->port,
                            .allow = row->expected == CELLA_REACH_ALLOW,
                            .by_cell = row->proof == CELLA_REACH_BY_CELL};
    if (!r->id || !r->group || !r->kind || !r->address || !r->twin_address || !r->name ||
        !r->options || !r->rule || !r->why)
        m->dropped++; /* out of memory: the run is refused by matrix_plan() */
}

void matrix_seen(void *ctx, const struct cella_reach_seen *seen)
{
    struct reach_matrix *m = ctx;
    struct reach_try *t;

    if (seen->port >= m->port && seen->port < m->port + m->n)
        t = &m->rows[seen->port - m->port].try;
    else if (seen->port >= m->twin && seen->port < m->twin + m->n)
        t = &m->rows[seen->port - m->twin].twin;
    else
        return;
    t->bytes += seen->bytes;
    t->carried += seen->carried;
    t->refused += seen->refused;
}

/* Below the ephemeral range, so that no connection of the workload has these ports by chance. */
int matrix_plan(struct reach_matrix *m)
{
    uint8_t random;
    int r = random_bytes(&random, sizeof(random));

    if (r == 0)
        r = random_id(m->nonce);
    if (r < 0)
        return r;
    m->port = 20000u + 2 * REACH_ROWS_MAX * (random % 12u);
    m->twin = m->port + REACH_ROWS_MAX;
    return m->dropped ? -E2BIG : m->n ? 0 : -ENODATA;
}

static const char *dash(const char *s)
{
    return *s ? s : "-";
}

static void line(const struct reach_matrix *m, size_t i, int twin, struct buf *b)
{
    const struct reach_row *r = &m->rows[i];
    const char *options = r->options;

    if (twin) /* the plain form of the same: what a trick needs is not what it must show */
        options = r->by_cell                          ? "local"
                  : !strncmp(r->options, "type=", 5)  ? r->options
                  : !strncmp(r->options, "lookup", 6) ? "lookup"
                                                      : "";
    buf_addf(b, "%c%zu %s %s %u %u %s %s\n", twin ? 't' : 'r', i, r->kind,
             dash(twin ? r->twin_address : r->address), r->port,
             (unsigned)((twin ? m->twin : m->port) + i), dash(r->name), dash(options));
}

int matrix_lines(const struct reach_matrix *m, unsigned timeout_ms, struct buf *ret)
{
    size_t i;

    buf_addf(ret, "cella-probe-1 %s %u\n", m->nonce, timeout_ms);
    for (i = 0; i < m->n; i++) {
        line(m, i, 0, ret);
        if (!m->rows[i].allow)
            line(m, i, 1, ret);
    }
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
        (size_t)i >= m->n || err < 0 || err > 4095 || got < -1 || us < 0)
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
        int r = json_is_object(o) ? take_line(m, o) : -EPROTO;
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

static int succeeded(const struct reach_row *r, const struct reach_try *t)
{
    return t->bytes > 0 || t->got > 0 || (!r->by_cell && t->connected && !t->carried);
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
        r->saw = "the probe could not try it";
    } else {
        r->saw = "nothing arrived";
    }
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
        r->saw = "the probe could not try it";
    } else if (!r->by_cell && !t->refused && !t->carried &&
               (!t->errnum || t->errnum == ETIMEDOUT)) {
        r->saw = "nobody saw it: neither the enforcer nor the cell's kernel refused it";
    } else if (!(r->by_cell ? r->twin.got > 0 : r->twin.bytes > 0)) {
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
        if (r->allow)
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
    return m->fail ? "fail" : m->not_measured || !m->n ? "not_measured" : "pass";
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
