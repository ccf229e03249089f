/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * parse - JSON text of a policy document to struct document.
 *
 * The author of a document is hostile: he may be the workload's owner, not the operator. So every
 * member is known or refused, every number has a range, every array a limit, and nothing has a
 * default that opens anything. Threads: none; no state outlives a call.
 */
#include <malloc.h>
#include <stdarg.h>

#include "parse_int.h"

#define TRIM_BYTES 65536u

/* -------------------------------------------------------------- complaints */

/* Pointer to a member or element below r->at; the text of a hostile key is bounded. */
static void below(const struct reader *r, const char *key, char out[768])
{
    char esc[160];
    size_t n = 0;

    if (!*key) {
        snprintf(out, 768, "%s", r->at);
        return;
    }
    for (; *key && n < sizeof(esc) - 3; key++) { /* RFC 6901 */
        if (*key == '~' || *key == '/') {
            esc[n++] = '~';
            esc[n++] = *key == '~' ? '0' : '1';
        } else {
            esc[n++] = *key;
        }
    }
    esc[n] = 0;
    snprintf(out, 768, "%s/%s", r->at, esc);
}

static int CELLA_PRINTF(4, 0)
    complain(const struct reader *r, const char *key, int at_name, const char *fmt, va_list ap)
{
    char at[768], text[800];

    below(r, key, at);
    vsnprintf(text, sizeof(text), fmt, ap);
    return json_at_fail(r->json, at, at_name, r->err, "%s", text);
}

int reject(const struct reader *r, const char *key, const char *fmt, ...)
{
    va_list ap;
    int e;

    va_start(ap, fmt);
    e = complain(r, key, 0, fmt, ap);
    va_end(ap);
    return e;
}

int reject_key(const struct reader *r, const char *key, const char *fmt, ...)
{
    va_list ap;
    int e;

    va_start(ap, fmt);
    e = complain(r, key, 1, fmt, ap);
    va_end(ap);
    return e;
}

int keys_known(struct reader *r, json_t *object, const char *const *known, const char *what)
{
    const char *key;
    json_t *value;
    size_t i;

    json_object_foreach(object, key, value)
    {
        for (i = 0; known[i] && strcmp(known[i], key); i++)
            ;
        if (known[i])
            continue;
        return *key ? reject_key(r, key, "%s has no member of this name; remove it", what)
                    : reject(r, "", "%s has no member with an empty name; remove it", what);
    }
    return 0;
}

/* ------------------------------------------------------------------ memory */

struct document_block {
    struct document_block *next;
    max_align_t data[];
};

void *keep(struct reader *r, size_t n)
{
    struct document_block *b = calloc(1, sizeof(*b) + n + 1);

    if (!b) {
        fail(r->err, -ENOMEM, "out of memory while reading the policy");
        return NULL;
    }
    b->next = r->d->blocks;
    r->d->blocks = b;
    return b->data;
}

const char *keep_text(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    char *p = keep(r, n + 1);

    if (p)
        memcpy(p, s, n);
    return p;
}

/* ------------------------------------------------------------------ places */

size_t enter(struct reader *r, const char *key)
{
    size_t mark = strlen(r->at);

    snprintf(r->at + mark, sizeof(r->at) - mark, "/%s", key);
    return mark;
}

size_t enter_at(struct reader *r, const char *key, size_t i)
{
    size_t mark = strlen(r->at);

    snprintf(r->at + mark, sizeof(r->at) - mark, "/%s/%zu", key, i);
    return mark;
}

void leave(struct reader *r, size_t mark)
{
    r->at[mark] = 0;
}

int read_number(struct reader *r, json_t *object, const char *key, uint64_t min, uint64_t max,
                uint64_t *ret)
{
    const json_t *v = json_object_get(object, key);

    if (!v)
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)min ||
        json_integer_value(v) > (json_int_t)max)
        return reject(r, key, "expected a whole number from %llu to %llu", (unsigned long long)min,
                      (unsigned long long)max);
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

int read_flag(struct reader *r, json_t *object, const char *key, int *ret)
{
    const json_t *v = json_object_get(object, key);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return reject(r, key, "expected true or false");
    *ret = json_is_true(v);
    return 0;
}

/* ------------------------------------------------------------------ phases */

static int id_valid(const char *s)
{
    return name_valid(s) && strlen(s) <= POLICY_ID_MAX;
}

/* The lists of one phase: `object` holds "allow" and "deny", r->at points to it. */
static int read_lists(struct reader *r, json_t *object)
{
    static const char *const lists[] = {"deny", "allow"};
    size_t base = strlen(r->at), l, i;
    json_t *rule;
    int e;

    for (l = 0; l < ARRAY_LEN(lists); l++) {
        json_t *list = json_object_get(object, lists[l]);
        if (!list)
            continue;
        if (!json_is_array(list))
            return reject(r, lists[l], "expected a list of rules");
        r->deny = l == 0;
        json_array_foreach(list, i, rule)
        {
            snprintf(r->at + base, sizeof(r->at) - base, "/%s/%zu", lists[l], i);
            e = read_rule(r, rule);
            if (e < 0)
                return e;
        }
        r->at[base] = 0;
    }
    return 0;
}

static int read_phases(struct reader *r, json_t *phases, struct document *d)
{
    static const char *const known[] = {"allow", "deny", NULL};
    const char *name;
    json_t *phase;
    int e;

    if (!json_is_object(phases) || !json_object_size(phases))
        return reject(r, "phases", "expected an object of at least one phase");
    if (json_object_size(phases) > DOCUMENT_PHASES_MAX)
        return reject(r, "phases", "more than %u phases", DOCUMENT_PHASES_MAX);
    d->phases = calloc(json_object_size(phases), sizeof(*d->phases));
    if (!d->phases)
        return fail(r->err, -ENOMEM, "out of memory while reading the policy");
    json_object_foreach(phases, name, phase)
    {
        snprintf(r->at, sizeof(r->at), "/phases");
        if (!id_valid(name))
            return reject(r, name, "a phase name is 1 to %u letters, digits, '.', '_' and '-'",
                          POLICY_ID_MAX);
        if (!json_is_object(phase))
            return reject(r, name, "expected an object with \"allow\" and \"deny\"");
        r->phase = &d->phases[d->n_phases++];
        seen_clear(r);
        snprintf(r->phase->name, sizeof(r->phase->name), "%s", name);
        snprintf(r->at, sizeof(r->at), "/phases/%s", name);
        e = keys_known(r, phase, known, "a phase");
        if (e == 0)
            e = read_lists(r, phase);
        if (e < 0)
            return e;
    }
    r->at[0] = 0;
    return 0;
}

static int read_active(struct reader *r, json_t *root, struct document *d)
{
    const json_t *v = json_object_get(root, "active");
    int i;

    if (!v) {
        if (d->n_phases > 1)
            return reject(r, "phases", "\"active\" must name the phase to begin with");
        return 0;
    }
    i = json_is_string(v) ? document_phase_find(d, json_string_value(v)) : -ENOENT;
    if (i < 0 || !json_object_get(root, "phases"))
        return reject(r, "active", "expected the name of one of the phases of this document");
    d->active = (size_t)i;
    return 0;
}

static int read_scalars(struct reader *r, json_t *root, struct document *d)
{
    const json_t *v = json_object_get(root, "version");
    int e;

    if (!v && json_object_size(root))
        return reject(r, "", "the document has no \"version\"; add \"version\": 1");
    if (v && (!json_is_integer(v) || json_integer_value(v) != 1))
        return reject(r, "version", "expected 1, the only version known here");
    v = json_object_get(root, "default");
    if (v && (!json_is_string(v) || strcmp(json_string_value(v), "deny")))
        return reject(r, "default", "expected \"deny\"; there is no other default");
    v = json_object_get(root, "on_tighten");
    if (v && (!json_is_string(v) || strcmp(json_string_value(v), "kill")))
        return reject(r, "on_tighten",
                      "expected \"kill\"; flows that are no longer allowed never "
                      "stay open");
    e = read_number(r, root, "revision", 0, UINT64_C(1) << 53, &d->revision);
    return e < 0 ? e : read_flag(r, root, "reopen", &d->reopen);
}

static int read_root(struct reader *r, json_t *root, struct document *d)
{
    static const char *const known[] = {"version",    "revision", "default", "active",  "reopen",
                                        "on_tighten", "dns",      "limits",  "observe", "phases",
                                        "allow",      "deny",     NULL};
    int flat, e;

    if (json_is_array(root) && !json_array_size(root))
        return 0; /* [] denies as {} does */
    if (!json_is_object(root))
        return reject(r, "", "expected the policy document, an object");
    e = keys_known(r, root, known, "the policy document");
    if (e == 0)
        e = read_scalars(r, root, d);
    if (e == 0)
        e = read_settings(r, root);
    if (e < 0)
        return e;
    flat = json_object_get(root, "allow") || json_object_get(root, "deny");
    if (json_object_get(root, "phases")) {
        if (flat)
            return reject(r, "phases",
                          "\"allow\" and \"deny\" belong into the phases when there are "
                          "phases");
        e = read_phases(r, json_object_get(root, "phases"), d);
    } else if (flat) {
        d->phases = calloc(1, sizeof(*d->phases));
        if (!d->phases)
            return fail(r->err, -ENOMEM, "out of memory while reading the policy");
        d->n_phases = 1;
        r->phase = d->phases;
        e = read_lists(r, root);
    }
    return e < 0 ? e : read_active(r, root, d);
}

static int blank(const char *text, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return 0;
    return 1;
}

int document_parse(const char *file, const char *text, size_t len, struct document *ret,
                   struct cella_error *err)
{
    struct document d = {.dns = {.types = POLICY_DNS_A | POLICY_DNS_AAAA,
                                 .max_label = 63,
                                 .log_allowed = 1,
                                 .max_qps = 50}};
    struct json_at json;
    struct reader r = {.json = &json, .err = err, .d = &d, .rules_max = DOCUMENT_RULES_MAX};
    int e;

    if (len > DOCUMENT_BYTES_MAX)
        return fail(err, -EFBIG, "%s: the policy is %zu bytes long; at most %u are accepted", file,
                    len, DOCUMENT_BYTES_MAX);
    if (blank(text, len)) {
        *ret = d;
        return 0;
    }
    e = json_at_parse(file, text, len, &json, err);
    if (e < 0)
        return e;
    e = read_root(&r, json.root, &d);
    seen_clear(&r);
    suffixes_fini(&r.suffixes);
    json_at_fini(&json);
    if (len > TRIM_BYTES)
        malloc_trim(
            0); /* the tree of a large text is ten times its size, and a warden lives long */
    if (e < 0) {
        document_fini(&d);
        return e;
    }
    *ret = d;
    return 0;
}

void document_fini(struct document *d)
{
    struct document_block *b, *next;
    size_t i;

    if (!d)
        return;
    for (b = d->blocks; b; b = next) {
        next = b->next;
        free(b);
    }
    for (i = 0; i < d->n_phases; i++)
        free(d->phases[i].rules);
    free(d->phases);
    memset(d, 0, sizeof(*d));
}

int document_phase_find(const struct document *d, const char *name)
{
    size_t i;

    for (i = 0; i < d->n_phases; i++)
        if (!strcmp(d->phases[i].name, name))
            return (int)i;
    return -ENOENT;
}
