/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * options - is a plugin's option table sane? Checked once at load, so that the config code may rely
 * on it: names, types, ranges, and that every default is a value the table itself accepts.
 * The table lies in the plugin; only this file and the config read it. Threads: no state.
 */
#include <limits.h>

#include "plugin_int.h"

static const struct {
    uint32_t type;
    const char *name;
} types[] = {
    {CELLA_OPT_BOOL, "bool"},         {CELLA_OPT_INT, "int"},       {CELLA_OPT_SIZE, "size"},
    {CELLA_OPT_DURATION, "duration"}, {CELLA_OPT_STRING, "string"}, {CELLA_OPT_ENUM, "enum"},
    {CELLA_OPT_PATH, "path"},
};

const char *option_type_name(uint32_t type)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].type == type)
            return types[i].name;
    return "unknown";
}

int option_type_known(uint32_t type)
{
    return strcmp(option_type_name(type), "unknown") != 0;
}

/* Bounded: the text is the plugin's. */
static int short_text(const char *s)
{
    return s && strnlen(s, PLUGIN_TEXT_MAX) < PLUGIN_TEXT_MAX;
}

static int option_name_ok(const char *s)
{
    return short_text(s) && s[0] && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-")] == 0;
}

static int choice_has(const char *choices, const char *word)
{
    size_t n = strlen(word);
    const char *at = choices;

    while (n && at) {
        if (!strncmp(at, word, n) && (at[n] == 0 || at[n] == '|'))
            return 1;
        at = strchr(at, '|');
        at = at ? at + 1 : NULL;
    }
    return 0;
}

static int in_range(const struct cella_option *o, int64_t v)
{
    return (o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max);
}

static int number_default(const struct cella_option *o)
{
    uint64_t u = 0;
    int64_t v = 0;
    int r;

    if (o->type == CELLA_OPT_INT)
        r = parse_i64(o->def, &v);
    else
        r = o->type == CELLA_OPT_SIZE ? parse_size(o->def, &u) : parse_duration(o->def, &u);
    if (r == 0 && u > INT64_MAX)
        r = -ERANGE;
    if (r == 0 && o->type != CELLA_OPT_INT)
        v = (int64_t)u;
    return r == 0 && in_range(o, v);
}

static int default_ok(const struct cella_option *o)
{
    if (!o->def)
        return 1;
    switch (o->type) {
    case CELLA_OPT_BOOL:
        return !strcmp(o->def, "true") || !strcmp(o->def, "false") || !strcmp(o->def, "0") ||
               !strcmp(o->def, "1");
    case CELLA_OPT_INT:
    case CELLA_OPT_SIZE:
    case CELLA_OPT_DURATION:
        return number_default(o);
    case CELLA_OPT_ENUM:
        return choice_has(o->choices, o->def);
    case CELLA_OPT_PATH:
        return o->def[0] == '/';
    default:
        return 1;
    }
}

static int option_check(const struct plugin *p, uint32_t i, struct cella_error *err)
{
    const struct cella_option *o = option_at(p, i);
    uint32_t k;

    if (!option_name_ok(o->name))
        return fail(err, -EINVAL, "option %u has no valid name ([a-z0-9_-]+)", i);
    if (!short_text(o->help))
        return fail(err, -EINVAL, "option \"%s\" has no help text", o->name);
    if (!option_type_known(o->type))
        return fail(err, -EINVAL, "option \"%s\" has unknown type %u", o->name, o->type);
    if (o->flags || !bytes_zero(o + 1, p->option_stride - sizeof(*o)))
        return fail(err, -EINVAL, "option \"%s\" has flags or a newer part that must be zero",
                    o->name);
    if (o->type == CELLA_OPT_ENUM && (!short_text(o->choices) || !o->choices[0]))
        return fail(err, -EINVAL, "option \"%s\" is an enum without choices", o->name);
    if (o->min > o->max)
        return fail(err, -EINVAL, "option \"%s\" has an empty range", o->name);
    if (o->def && !short_text(o->def))
        return fail(err, -EINVAL, "option \"%s\" has an overlong default", o->name);
    if (!default_ok(o))
        return fail(err, -EINVAL,
                    "option \"%s\": its default \"%s\" is not a valid %s of its range", o->name,
                    o->def, option_type_name(o->type));
    for (k = 0; k < i; k++)
        if (!strcmp(option_at(p, k)->name, o->name))
            return fail(err, -EINVAL, "option \"%s\" appears twice", o->name);
    return 0;
}

int plugin_options_check(const struct plugin *p, struct cella_error *err)
{
    uint32_t i;
    int r = 0;

    if (p->n_options == 0)
        return 0;
    if (!p->options || p->n_options > PLUGIN_OPTIONS_MAX)
        return fail(err, -EINVAL, "its option table is missing or has more than %u entries",
                    PLUGIN_OPTIONS_MAX);
    if (p->option_stride < sizeof(struct cella_option) || p->option_stride > PLUGIN_STRIDE_MAX ||
        p->option_stride % _Alignof(struct cella_option))
        return fail(err, -EINVAL, "its option table has a stride of %u bytes, %zu are needed",
                    p->option_stride, sizeof(struct cella_option));
    for (i = 0; r == 0 && i < p->n_options; i++)
        r = option_check(p, i, err);
    return r;
}
