/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * option - values of a plugin's option table.
 *
 * The plugin states the knobs, the core reads them: types, ranges, defaults and unknown names are
 * handled here once, so that no plugin parses configuration. The table itself comes from the plugin
 * and may be newer than this code: it is walked by stride, and an option type unknown here is
 * refused. Threads: no state.
 */
#include "read.h"

#define OPTIONS_MAX 256

struct option_set {
    struct cella_options options;
    struct cella_option_value *values; /* str owned; name is the table's */
};

static const struct cella_option *option_at(const struct cella_option *table, uint32_t stride,
                                            uint32_t i)
{
    return (const struct cella_option *)(const void *)((const char *)table + (size_t)i * stride);
}

static int is_number(uint32_t type)
{
    return type == CELLA_OPT_BOOL || type == CELLA_OPT_INT || type == CELLA_OPT_SIZE ||
           type == CELLA_OPT_DURATION;
}

static int is_text(uint32_t type)
{
    return type == CELLA_OPT_STRING || type == CELLA_OPT_ENUM || type == CELLA_OPT_PATH;
}

static int set_text(struct reader *r, const char *text, struct cella_option_value *ret)
{
    ret->str = strdup(text);
    return ret->str ? 0 : fail_memory(r);
}

/* Splits "a|b|c" in place; returns the number of words. */
static size_t split_choices(char *choices, const char *words[], size_t max)
{
    char *save = NULL, *w;
    size_t n = 0;

    for (w = strtok_r(choices, "|", &save); w && n < max; w = strtok_r(NULL, "|", &save))
        words[n++] = w;
    return n;
}

static int check_choice(struct reader *r, const struct cella_option *o, const char *pointer,
                        const char *text)
{
    auto_free char *choices = strdup(o->choices ? o->choices : "");
    const char *words[64];
    size_t n, i;

    if (!choices)
        return fail_memory(r);
    n = split_choices(choices, words, ARRAY_LEN(words));
    for (i = 0; i < n; i++)
        if (!strcmp(words[i], text))
            return 0;
    return fail_word(r, pointer, text, words, n);
}

static int set_given(struct reader *r, const struct cella_option *o, const char *pointer,
                     const json_t *v, struct cella_option_value *ret)
{
    const char *text = json_string_value(v);
    int e;

    if (is_number(o->type))
        return number_read(r, pointer, v, o->type, o->min, o->max, &ret->i64);
    if (!text)
        return fail_type(r, pointer, o->type == CELLA_OPT_PATH ? "an absolute path" : "a string",
                         v);
    if (o->type == CELLA_OPT_PATH && text[0] != '/')
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "\"%.128s\" is not an absolute path; it must start with '/'", text);
    if (o->type == CELLA_OPT_ENUM) {
        e = check_choice(r, o, pointer, text);
        if (e < 0)
            return e;
    }
    return set_text(r, text, ret);
}

static int set_default(struct reader *r, const struct cella_option *o, const char *pointer,
                       struct cella_option_value *ret)
{
    if (!o->def)
        return json_at_fail(r->doc, pointer, 0, r->err, "option \"%s\" is required: %s", o->name,
                            o->help ? o->help : "it has no default");
    if (!is_number(o->type))
        return set_text(r, o->def, ret);
    if (number_of_text(o->def, o->type, &ret->i64) < 0)
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "the plugin's own default \"%.64s\" of option \"%s\" cannot be read; "
                            "the plugin is broken",
                            o->def, o->name);
    return 0;
}

static int set_value(struct reader *r, const struct cella_option *o, const char *pointer,
                     const json_t *object, struct cella_option_value *ret)
{
    auto_free char *at = NULL;
    json_t *v;

    if (!o->name || o->flags || (!is_number(o->type) && !is_text(o->type)))
        return json_at_fail(
            r->doc, pointer, 0, r->err,
            "the plugin's option \"%s\" has type %u and flags %u, unknown to this version of cella",
            o->name ? o->name : "?", o->type, o->flags);
    ret->name = o->name;
    v = json_object_get(object, o->name);
    if (!v)
        return set_default(r, o, pointer, ret);
    at = pointer_child(pointer, o->name);
    return at ? set_given(r, o, at, v, ret) : fail_memory(r);
}

static int check_known(struct reader *r, const struct cella_option *table, uint32_t n,
                       uint32_t stride, const char *pointer, const json_t *object)
{
    const char *words[OPTIONS_MAX];
    uint32_t i;

    for (i = 0; i < n; i++)
        words[i] = option_at(table, stride, i)->name ? option_at(table, stride, i)->name : "";
    return read_known(r, pointer, object, "option", words, n);
}

int option_set_parse(const struct cella_option *table, uint32_t n, uint32_t stride,
                     const struct json_at *doc, const char *pointer, const json_t *object,
                     struct option_set **ret, struct cella_error *err)
{
    struct reader r = {.doc = doc, .err = err};
    struct option_set *s;
    uint32_t i;
    int e;

    if (n > OPTIONS_MAX || (n && (!table || stride < sizeof(struct cella_option))))
        return fail(err, -EINVAL,
                    "%s: the plugin's option table (%u options, stride %u) is malformed", pointer,
                    n, stride);
    if (object && !json_is_object(object))
        return fail_type(&r, pointer, "an object", object);
    e = check_known(&r, table, n, stride, pointer, object);
    if (e < 0)
        return e;
    s = calloc(1, sizeof(*s));
    if (s)
        s->values = calloc(n ? n : 1, sizeof(*s->values));
    if (!s || !s->values) {
        free(s);
        return fail(err, -ENOMEM, "out of memory while reading options");
    }
    s->options =
        (struct cella_options){.hdr = CELLA_HDR_INIT(struct cella_options, CELLA_KIND_OPTIONS),
                               .values = s->values,
                               .n_values = n,
                               .value_stride = sizeof(*s->values)};
    for (i = 0; e == 0 && i < n; i++)
        e = set_value(&r, option_at(table, stride, i), pointer, object, &s->values[i]);
    if (e < 0) {
        option_set_free(s);
        return e;
    }
    *ret = s;
    return 0;
}

const struct cella_options *option_set_get(const struct option_set *s)
{
    return &s->options;
}

void option_set_free(struct option_set *s)
{
    uint32_t i;

    if (!s)
        return;
    for (i = 0; i < s->options.n_values; i++)
        free((char *)(uintptr_t)s->values[i].str);
    free(s->values);
    free(s);
}
