/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * names - rules by host name: canonical names, the index, and every verdict about a name.
 *
 * All precedence is here so that DNS, relay and HTTP engine cannot disagree: a denial of any
 * stratum beats everything, every stratum must allow, and the strictest layer of the document's
 * matching rules is the one that counts.
 *
 * Index: t->index holds 2^k buckets and then one link per rule, both rule numbers + 1; a chain is
 * in the order of the rules. A name asks for itself among exact hosts and for each of its parents
 * among suffixes, so the cost does not grow with the number of rules. Threads: none needed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "table_int.h"

/* ------------------------------------------------------------------ names */

/* Length of the label at s, or 0 unless it is LDH without a hyphen at either end. */
static size_t label(const char *s)
{
    size_t n = 0;

    for (; s[n] && s[n] != '.'; n++)
        if (!((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9') || s[n] == '-'))
            return 0;
    return n && n <= 63 && s[0] != '-' && s[n - 1] != '-' ? n : 0;
}

/* inet_aton() and URL parsers read a last label of digits or 0x… as part of an address. */
static int numeric(const char *last)
{
    if (last[0] == '0' && last[1] == 'x')
        return !last[2 + strspn(last + 2, "0123456789abcdef")];
    return !last[strspn(last, "0123456789")];
}

static int host_valid(const char *s, size_t labels_min)
{
    const char *last = s;
    size_t labels = 0;

    if (strlen(s) > POLICY_NAME_MAX)
        return 0;
    for (;;) {
        size_t n = label(s);
        if (!n)
            return 0;
        labels++;
        last = s;
        s += n;
        if (!*s)
            break;
        s++;
    }
    return labels >= labels_min && !numeric(last);
}

int policy_host_valid(const char *host, int kind)
{
    return host_valid(host, kind == POLICY_SUFFIX ? 1 : 2);
}

int policy_name_canon(const char *name, char out[POLICY_NAME_MAX + 1])
{
    size_t n = strnlen(name, POLICY_NAME_MAX + 2), i;

    if (n && name[n - 1] == '.')
        n--;
    if (!n || n > POLICY_NAME_MAX)
        return -EINVAL;
    for (i = 0; i < n; i++)
        out[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + ('a' - 'A')) : name[i];
    out[n] = 0;
    return host_valid(out, 2) ? 0 : -EINVAL;
}

/* ------------------------------------------------------------------ index */

static uint32_t hash(const char *host, int kind)
{
    uint32_t h = 2166136261u ^ (uint32_t)kind;

    for (; *host; host++)
        h = (h ^ (unsigned char)*host) * 16777619u;
    return h ^ h >> 15;
}

static uint32_t buckets(const struct policy_table *t)
{
    uint32_t n = 8;

    while (n < t->head.n_rules)
        n *= 2;
    return n;
}

int policy_index_build(struct policy_table *t)
{
    uint32_t n = buckets(t), i;

    t->index = calloc((size_t)n + t->head.n_rules, sizeof(*t->index));
    if (!t->index)
        return -ENOMEM;
    for (i = t->head.n_rules; i-- > 0;) {
        uint32_t *bucket;
        if (t->rules[i].kind == POLICY_HOST_NONE)
            continue;
        bucket = &t->index[hash(t->rules[i].host, t->rules[i].kind) & (n - 1)];
        t->index[n + i] = *bucket;
        *bucket = i + 1;
    }
    return 0;
}

/* Walks the rules that cover a canonical name. */
struct walk {
    const struct policy_table *t;
    const char *host; /* what the chain being walked must name; NULL at the end */
    int kind;
    uint32_t next; /* rule number + 1 */
};

static void chain(struct walk *w)
{
    w->next = w->t->index[hash(w->host, w->kind) & (buckets(w->t) - 1)];
}

static void walk_init(struct walk *w, const struct policy_table *t, const char *name)
{
    *w = (struct walk){.t = t, .kind = POLICY_EXACT};
    if (!t->index)
        return;
    w->host = name;
    chain(w);
}

static const struct policy_rule *walk_next(struct walk *w)
{
    while (w->host) {
        while (w->next) {
            const struct policy_rule *r = &w->t->rules[w->next - 1];
            w->next = w->t->index[buckets(w->t) + w->next - 1];
            if (r->kind == w->kind && !strcmp(r->host, w->host))
                return r;
        }
        w->host = strchr(w->host, '.');
        if (w->host) {
            w->host++;
            w->kind = POLICY_SUFFIX;
            chain(w);
        }
    }
    return NULL;
}

/* --------------------------------------------------------------- verdicts */

static int ports_cover(const struct policy_rule *r, uint16_t port)
{
    size_t lo = 0, hi = r->n_ports;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (r->ports[mid].hi < port)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < r->n_ports && r->ports[lo].lo <= port;
}

static int narrowed(const struct policy_rule *r)
{
    return r->methods || r->n_methods || r->n_paths;
}

static uint32_t method_bit(const char *method)
{
    static const char *const names[] = {"GET",    "HEAD",    "POST",  "PUT",
                                        "DELETE", "OPTIONS", "PATCH", "TRACE"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!strcmp(names[i], method))
            return 1u << i;
    return 0;
}

/* One request, its path already in canonical form; NULL when it has none. */
struct request {
    const char *method, *path;
    int websocket;
};

static int request_matches(const struct policy_rule *r, const struct request *q)
{
    size_t i;

    if (r->methods || r->n_methods) {
        int found = (r->methods & method_bit(q->method)) != 0;
        for (i = 0; !found && i < r->n_methods; i++)
            found = !strcmp(r->method[i], q->method);
        if (!found)
            return 0;
    }
    if (r->n_paths && !q->path)
        return r->verdict == POLICY_DENY;
    for (i = 0; i < r->n_paths; i++)
        if (policy_path_match(r->path[i], q->path))
            return 1;
    return !r->n_paths;
}

/* What the rules say; deny, sometime and best are the first in order among equals. */
struct said {
    const struct policy_rule *deny; /* the whole connection, or the request */
    const struct policy_rule *best; /* stratum 0, of its strictest layer; matches the request */
    const struct policy_rule
        *some[POLICY_STRATA_MAX];   /* denies some requests: only http sees which */
    int level[POLICY_STRATA_MAX];   /* strictest layer + 1 among what the stratum allows */
    int request[POLICY_STRATA_MAX]; /* an http rule of the stratum allows the request */
};

static void say_deny(struct said *s, const struct policy_rule *r, const struct request *q)
{
    const struct policy_rule **where = narrowed(r) && !q ? &s->some[r->stratum] : &s->deny;

    if (narrowed(r) && q && !request_matches(r, q))
        return;
    if (!*where || r < *where)
        *where = r;
}

static void say_allow(struct said *s, const struct policy_rule *r, const struct request *q)
{
    int matches =
        !q || (r->layer == POLICY_HTTP && request_matches(r, q) && (!q->websocket || r->websocket));

    if (r->layer + 1 > s->level[r->stratum])
        s->level[r->stratum] = r->layer + 1;
    if (!matches)
        return;
    s->request[r->stratum] = 1;
    if (r->stratum == 0 &&
        (!s->best || r->layer > s->best->layer || (r->layer == s->best->layer && r < s->best)))
        s->best = r;
}

/* Every stratum must allow, none by a stricter look than the document's rule takes, and one that
   denies some requests must allow by http. */
static int judge(const struct policy_table *t, const struct said *s, const struct request *q,
                 const struct policy_rule **ret)
{
    uint32_t i;

    *ret = s->deny;
    if (s->deny || !s->best)
        return POLICY_DENY;
    for (i = 0; i < t->head.n_strata; i++) {
        if (s->level[i] == 0 || s->level[i] > s->best->layer + 1 ||
            (q && s->level[i] == POLICY_HTTP + 1 && !s->request[i]))
            return POLICY_DENY;
        if (s->some[i] && s->level[i] < POLICY_HTTP + 1) {
            *ret = s->some[i];
            return POLICY_DENY;
        }
    }
    *ret = s->best;
    return POLICY_ALLOW;
}

/* `name` is canonical. */
static int find(const struct policy_table *t, const char *name, uint16_t port,
                enum policy_proto proto, const struct request *q, const struct policy_rule **ret)
{
    const struct policy_rule *r;
    struct said said = {0};
    struct walk w;

    *ret = NULL;
    if (port == 0 || (port == POLICY_HARD_PORT && proto == POLICY_TCP))
        return POLICY_DENY;
    for (walk_init(&w, t, name); (r = walk_next(&w));)
        if (r->proto & proto && ports_cover(r, port)) {
            if (r->verdict == POLICY_DENY)
                say_deny(&said, r, q);
            else
                say_allow(&said, r, q);
        }
    return judge(t, &said, q, ret);
}

int policy_name_find(const struct policy_table *t, const char *name, uint16_t port,
                     enum policy_proto proto, const struct policy_rule **ret)
{
    char canon[POLICY_NAME_MAX + 1];

    *ret = NULL;
    if (policy_name_canon(name, canon) < 0)
        return POLICY_DENY;
    return find(t, canon, port, proto, NULL, ret);
}

int policy_http_find(const struct policy_table *t, const char *name, uint16_t port,
                     const char *method, const char *path, int websocket,
                     const struct policy_rule **ret)
{
    char canon[POLICY_NAME_MAX + 1], plain[POLICY_PATH_MAX];
    struct request q = {.method = method, .websocket = websocket};

    *ret = NULL;
    if (policy_name_canon(name, canon) < 0 || !strcmp(method, "CONNECT"))
        return POLICY_DENY;
    if (policy_path_canon(path, plain) == 0)
        q.path = plain;
    return find(t, canon, port, POLICY_TCP, &q, ret);
}

static int open_at(const struct policy_table *t, const char *canon, uint32_t port)
{
    const struct policy_rule *ignored;

    return port <= UINT16_MAX &&
           (find(t, canon, (uint16_t)port, POLICY_TCP, NULL, &ignored) == POLICY_ALLOW ||
            find(t, canon, (uint16_t)port, POLICY_UDP, NULL, &ignored) == POLICY_ALLOW);
}

/* Hostile documents repeat a name thousands of times; what is not found open by then is closed. */
#define LISTED_WORK_MAX 2000000u

/* A verdict can change only where a range begins or has ended. */
int policy_name_listed(const struct policy_table *t, const char *name)
{
    char canon[POLICY_NAME_MAX + 1];
    const struct policy_rule *r;
    struct walk w;
    size_t i, rules = 0, tried = 0;

    if (policy_name_canon(name, canon) < 0)
        return 0;
    for (walk_init(&w, t, canon); walk_next(&w);)
        rules++;
    for (walk_init(&w, t, canon); (r = walk_next(&w));)
        for (i = 0; i < r->n_ports && tried * rules < LISTED_WORK_MAX; i++, tried++)
            if (open_at(t, canon, r->ports[i].lo) || open_at(t, canon, r->ports[i].hi + 1u))
                return 1;
    return 0;
}

/* ------------------------------------------------------------------ ports */

static int ports_order(const void *pa, const void *pb)
{
    const struct policy_ports *a = pa, *b = pb;

    return a->lo < b->lo ? -1 : a->lo > b->lo;
}

size_t policy_ports_merge(struct policy_ports *p, size_t n)
{
    size_t i, kept = 0;

    qsort(p, n, sizeof(*p), ports_order);
    for (i = 0; i < n; i++) {
        if (kept && p[i].lo <= p[kept - 1].hi + 1u) {
            if (p[i].hi > p[kept - 1].hi)
                p[kept - 1].hi = p[i].hi;
        } else {
            p[kept++] = p[i];
        }
    }
    return kept;
}

/* The union of what one stratum allows. */
static int stratum_ports(const struct policy_table *t, uint32_t stratum, enum policy_proto proto,
                         struct policy_ports **ret, size_t *ret_n)
{
    struct policy_ports *p;
    size_t n = 0, i, j;

    for (i = 0; i < t->head.n_rules; i++)
        n += t->rules[i].n_ports;
    p = malloc((n + 1) * sizeof(*p));
    if (!p)
        return -ENOMEM;
    for (i = n = 0; i < t->head.n_rules; i++) {
        const struct policy_rule *r = &t->rules[i];
        if (r->kind == POLICY_HOST_NONE || r->verdict != POLICY_ALLOW || r->stratum != stratum ||
            !(r->proto & proto))
            continue;
        for (j = 0; j < r->n_ports; j++)
            p[n++] = r->ports[j];
    }
    *ret = p;
    *ret_n = policy_ports_merge(p, n);
    return 0;
}

/* Both sorted and disjoint; the result takes the place of `a`. */
static int ports_common(struct policy_ports **a, size_t *na, const struct policy_ports *b,
                        size_t nb)
{
    struct policy_ports *out = malloc((*na + nb + 1) * sizeof(*out));
    size_t i = 0, j = 0, n = 0;

    if (!out)
        return -ENOMEM;
    while (i < *na && j < nb) {
        uint16_t lo = (*a)[i].lo > b[j].lo ? (*a)[i].lo : b[j].lo;
        uint16_t hi = (*a)[i].hi < b[j].hi ? (*a)[i].hi : b[j].hi;
        if (lo <= hi)
            out[n++] = (struct policy_ports){lo, hi};
        if ((*a)[i].hi < b[j].hi)
            i++;
        else
            j++;
    }
    free(*a);
    *a = out;
    *na = n;
    return 0;
}

int policy_name_ports(const struct policy_table *t, enum policy_proto proto,
                      struct policy_ports **ret, size_t *ret_n)
{
    struct policy_ports *p = NULL, *q;
    size_t n = 0, nq;
    uint32_t i;
    int r = stratum_ports(t, 0, proto, &p, &n);

    for (i = 1; r == 0 && i < t->head.n_strata; i++) {
        r = stratum_ports(t, i, proto, &q, &nq);
        if (r == 0) {
            r = ports_common(&p, &n, q, nq);
            free(q);
        }
    }
    if (r < 0) {
        free(p);
        return r;
    }
    *ret = p;
    *ret_n = n;
    return 0;
}

int policy_needs_http(const struct policy_table *t)
{
    uint32_t i;

    for (i = 0; i < t->head.n_rules; i++)
        if (t->rules[i].stratum == 0 && t->rules[i].verdict == POLICY_ALLOW &&
            t->rules[i].layer == POLICY_HTTP)
            return 1;
    return 0;
}
