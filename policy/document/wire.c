/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * wire - building, saving and loading of compiled policies.
 *
 * Serialised: struct policy_head, the TCP entries, the UDP entries, the rules one after the other:
 * struct wire_rule, its ports, then texts as u16 length and bytes: id, host, methods, paths, and for
 * each injection two bytes (surface, require) and four texts. Same machine, trusted writer; load
 * still has it judged (wire_check.c).
 *
 * In memory all rules point into one pool: arrays first (aligned), texts after them. Threads: none.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "table_int.h"

struct wire_rule {
    struct policy_limits limits;
    uint32_t methods;
    uint16_t n_ports, n_methods, n_paths, n_inject;
    uint8_t stratum, verdict, proto, layer, kind, websocket;
    uint8_t zero[6];
};

/* ---------------------------------------------------------------- writing */

struct bytes {
    char *p;
    size_t n, cap;
};

struct policy_builder {
    struct policy_head head;
    struct bytes entries[2], blob;
    int error;
};

static void put(struct policy_builder *b, struct bytes *to, const void *p, size_t n)
{
    if (b->error || !n)
        return;
    if (to->n + n > to->cap) {
        size_t cap = to->cap ? to->cap * 2 : 256;
        char *grown;
        while (cap < to->n + n)
            cap *= 2;
        grown = realloc(to->p, cap);
        if (!grown) {
            b->error = -ENOMEM;
            return;
        }
        to->p = grown;
        to->cap = cap;
    }
    memcpy(to->p + to->n, p, n);
    to->n += n;
}

static void put_text(struct policy_builder *b, const char *s)
{
    size_t n = s ? strlen(s) : 0;
    uint16_t len = (uint16_t)n;

    if (n > POLICY_TEXT_MAX) {
        b->error = -EBADMSG;
        return;
    }
    put(b, &b->blob, &len, sizeof(len));
    put(b, &b->blob, s, n);
}

struct policy_builder *policy_builder_new(const struct policy_head *head)
{
    struct policy_builder *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->head = *head;
    b->head.magic = POLICY_MAGIC;
    b->head.n_entries = b->head.n_udp = b->head.n_rules = b->head.blob_len = 0;
    return b;
}

void policy_builder_rule(struct policy_builder *b, const struct policy_rule *r)
{
    struct wire_rule w;
    size_t i;

    memset(&w, 0, sizeof(w));
    w.limits = r->limits;
    w.methods = r->methods;
    w.n_ports = r->n_ports;
    w.n_methods = r->n_methods;
    w.n_paths = r->n_paths;
    w.n_inject = r->n_inject;
    w.stratum = r->stratum;
    w.verdict = r->verdict;
    w.proto = r->proto;
    w.layer = r->layer;
    w.kind = r->kind;
    w.websocket = r->websocket;
    put(b, &b->blob, &w, sizeof(w));
    put(b, &b->blob, r->ports, r->n_ports * sizeof(*r->ports));
    put_text(b, r->id);
    put_text(b, r->host);
    for (i = 0; i < r->n_methods; i++)
        put_text(b, r->method[i]);
    for (i = 0; i < r->n_paths; i++)
        put_text(b, r->path[i]);
    for (i = 0; i < r->n_inject; i++) {
        const struct policy_inject *j = &r->inject[i];
        const uint8_t kind[2] = {j->surface, j->require};
        put(b, &b->blob, kind, sizeof(kind));
        put_text(b, j->secret);
        put_text(b, j->name);
        put_text(b, j->placeholder);
        put_text(b, j->prefix);
    }
    b->head.n_rules++;
    if (b->head.n_rules > POLICY_RULES_MAX || b->blob.n > POLICY_BLOB_MAX)
        b->error = -E2BIG;
}

void policy_builder_entry(struct policy_builder *b, int udp, const struct policy_entry *e)
{
    uint32_t *n = udp ? &b->head.n_udp : &b->head.n_entries;

    put(b, &b->entries[udp != 0], e, sizeof(*e));
    if (++*n > POLICY_ENTRIES_MAX)
        b->error = -E2BIG;
}

int policy_builder_finish(struct policy_builder *b, struct policy_table *ret)
{
    struct bytes all = {0};
    int r;

    b->head.blob_len = (uint32_t)b->blob.n;
    put(b, &all, &b->head, sizeof(b->head));
    put(b, &all, b->entries[0].p, b->entries[0].n);
    put(b, &all, b->entries[1].p, b->entries[1].n);
    put(b, &all, b->blob.p, b->blob.n);
    r = b->error;
    if (r == 0)
        r = policy_table_load(all.p, all.n, ret);
    free(all.p);
    free(b->entries[0].p);
    free(b->entries[1].p);
    free(b->blob.p);
    free(b);
    return r;
}

int policy_table_save(const struct policy_table *t, void **ret, size_t *ret_len)
{
    struct policy_builder *b = policy_builder_new(&t->head);
    struct bytes all = {0};
    uint32_t i;
    int r;

    if (!b)
        return -ENOMEM;
    for (i = 0; i < t->head.n_rules; i++)
        policy_builder_rule(b, &t->rules[i]);
    b->head.n_entries = t->head.n_entries;
    b->head.n_udp = t->head.n_udp;
    b->head.blob_len = (uint32_t)b->blob.n;
    put(b, &all, &b->head, sizeof(b->head));
    put(b, &all, t->entries, t->head.n_entries * sizeof(*t->entries));
    put(b, &all, t->udp, t->head.n_udp * sizeof(*t->udp));
    put(b, &all, b->blob.p, b->blob.n);
    r = b->error;
    free(b->blob.p);
    free(b);
    if (r < 0) {
        free(all.p);
        return r;
    }
    *ret = all.p;
    *ret_len = all.n;
    return 0;
}

/* ---------------------------------------------------------------- reading */

/* Two passes over the blob: the first counts, the second fills. */
struct reader {
    const char *p;
    size_t left;
    struct policy_ports *ports; /* next free; NULL while counting */
    const char **texts;
    struct policy_inject *inject;
    char *text;
    size_t n_ports, n_texts, n_inject, n_text;
};

static int take(struct reader *r, void *to, size_t n)
{
    if (n > r->left)
        return -EBADMSG;
    if (n)
        memcpy(to, r->p, n);
    r->p += n;
    r->left -= n;
    return 0;
}

/* *ret is NULL while counting. */
static int take_text(struct reader *r, const char **ret)
{
    uint16_t n;

    *ret = NULL;
    if (take(r, &n, sizeof(n)) < 0 || n > POLICY_TEXT_MAX || n > r->left || memchr(r->p, 0, n))
        return -EBADMSG;
    if (r->text) {
        memcpy(r->text, r->p, n);
        r->text[n] = 0;
        *ret = r->text;
        r->text += n + 1u;
    }
    r->n_text += n + 1u;
    r->p += n;
    r->left -= n;
    return 0;
}

static int take_texts(struct reader *r, size_t n, const char *const **ret)
{
    const char *s;
    size_t i;

    *ret = r->texts;
    r->n_texts += n;
    for (i = 0; i < n; i++) {
        if (take_text(r, &s) < 0)
            return -EBADMSG;
        if (r->texts)
            *r->texts++ = s;
    }
    return 0;
}

static int take_inject(struct reader *r, size_t n, const struct policy_inject **ret)
{
    size_t i;

    *ret = r->inject;
    r->n_inject += n;
    for (i = 0; i < n; i++) {
        struct policy_inject j = {0};
        if (take(r, &j.surface, 1) < 0 || take(r, &j.require, 1) < 0 ||
            take_text(r, &j.secret) < 0 || take_text(r, &j.name) < 0 ||
            take_text(r, &j.placeholder) < 0 || take_text(r, &j.prefix) < 0)
            return -EBADMSG;
        if (r->inject)
            *r->inject++ = j;
    }
    return 0;
}

static int take_rule(struct reader *r, struct policy_rule *ret)
{
    static const uint8_t zero[6];
    struct wire_rule w;

    if (take(r, &w, sizeof(w)) < 0 || memcmp(w.zero, zero, sizeof(zero)) != 0 ||
        w.n_ports > POLICY_LIST_MAX || w.n_methods > POLICY_LIST_MAX ||
        w.n_paths > POLICY_LIST_MAX || w.n_inject > POLICY_LIST_MAX)
        return -EBADMSG;
    *ret = (struct policy_rule){.limits = w.limits,
                                .methods = w.methods,
                                .n_ports = w.n_ports,
                                .n_methods = w.n_methods,
                                .n_paths = w.n_paths,
                                .n_inject = w.n_inject,
                                .stratum = w.stratum,
                                .verdict = w.verdict,
                                .proto = w.proto,
                                .layer = w.layer,
                                .kind = w.kind,
                                .websocket = w.websocket,
                                .ports = r->ports};
    r->n_ports += w.n_ports;
    if (r->ports) {
        if (take(r, r->ports, w.n_ports * sizeof(*r->ports)) < 0)
            return -EBADMSG;
        r->ports += w.n_ports;
    } else if (w.n_ports * sizeof(*r->ports) > r->left) {
        return -EBADMSG;
    } else {
        r->p += w.n_ports * sizeof(*r->ports);
        r->left -= w.n_ports * sizeof(*r->ports);
    }
    if (take_text(r, &ret->id) < 0 || take_text(r, &ret->host) < 0 ||
        take_texts(r, w.n_methods, &ret->method) < 0 || take_texts(r, w.n_paths, &ret->path) < 0)
        return -EBADMSG;
    return take_inject(r, w.n_inject, &ret->inject);
}

static int count(const struct policy_table *t, const char *blob, struct reader *r)
{
    struct policy_rule ignored;
    uint32_t i;

    *r = (struct reader){.p = blob, .left = t->head.blob_len};
    for (i = 0; i < t->head.n_rules; i++)
        if (take_rule(r, &ignored) < 0)
            return -EBADMSG;
    return r->left ? -EBADMSG : 0;
}

static int fill(struct policy_table *t, const char *blob)
{
    struct reader r, n;
    uint32_t i;
    char *p;

    if (count(t, blob, &n) < 0)
        return -EBADMSG;
    t->rules = calloc(t->head.n_rules + 1u, sizeof(*t->rules));
    t->pool = p = calloc(1, n.n_inject * sizeof(*n.inject) + n.n_texts * sizeof(*n.texts) +
                                n.n_ports * sizeof(*n.ports) + n.n_text + 1);
    if (!t->rules || !p)
        return -ENOMEM;
    r = (struct reader){.p = blob, .left = t->head.blob_len};
    r.inject = (struct policy_inject *)(void *)p;
    p += n.n_inject * sizeof(*n.inject);
    r.texts = (const char **)(void *)p;
    p += n.n_texts * sizeof(*n.texts);
    r.ports = (struct policy_ports *)(void *)p;
    r.text = p + n.n_ports * sizeof(*n.ports);
    for (i = 0; i < t->head.n_rules; i++)
        if (take_rule(&r, &t->rules[i]) < 0)
            return -EBADMSG;
    return policy_index_build(t);
}

static struct policy_entry *copy_entries(const char **from, uint32_t n)
{
    struct policy_entry *e = malloc(n * sizeof(*e) + 1);

    if (e && n)
        memcpy(e, *from, n * sizeof(*e));
    *from += n * sizeof(*e);
    return e;
}

int policy_table_load(const void *data, size_t len, struct policy_table *ret)
{
    struct policy_table t = {0};
    const char *p = (const char *)data + sizeof(t.head);
    uint32_t i;
    int r;

    if (len < sizeof(t.head))
        return -EBADMSG;
    memcpy(&t.head, data, sizeof(t.head));
    if (!policy_head_valid(&t.head, len))
        return -EBADMSG;
    t.entries = copy_entries(&p, t.head.n_entries);
    t.udp = copy_entries(&p, t.head.n_udp);
    r = t.entries && t.udp ? fill(&t, p) : -ENOMEM;
    if (r == 0 && (!policy_entries_valid(&t, t.entries, t.head.n_entries) ||
                   !policy_entries_valid(&t, t.udp, t.head.n_udp)))
        r = -EBADMSG;
    for (i = 0; r == 0 && i < t.head.n_rules; i++)
        if (!policy_rule_valid(&t, &t.rules[i]))
            r = -EBADMSG;
    if (r < 0)
        policy_table_fini(&t);
    else
        *ret = t;
    return r;
}

int policy_table_read(int borrow_fd, struct policy_table *ret)
{
    const uint64_t most = sizeof(struct policy_head) + POLICY_BLOB_MAX +
                          2ull * POLICY_ENTRIES_MAX * sizeof(struct policy_entry);
    struct stat st;
    void *p;
    int r;

    if (fstat(borrow_fd, &st) < 0)
        return -errno;
    if (st.st_size <= 0 || (uint64_t)st.st_size > most)
        return -EBADMSG;
    p = malloc((size_t)st.st_size);
    if (!p)
        return -ENOMEM;
    r = pread(borrow_fd, p, (size_t)st.st_size, 0) != (ssize_t)st.st_size
            ? -EIO
            : policy_table_load(p, (size_t)st.st_size, ret);
    free(p);
    return r;
}

void policy_table_fini(struct policy_table *t)
{
    if (!t)
        return;
    free(t->entries);
    free(t->udp);
    free(t->rules);
    free(t->pool);
    free(t->index);
    memset(t, 0, sizeof(*t));
}
