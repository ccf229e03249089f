/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * signature - the text form of a typed method ("u64 bytes, str why -> i32"), and the conversion of
 * JSON arguments by it. The grammar is in <cella/method.h>.
 *
 * Both inputs may be anything: the text comes from a plugin, the JSON from a client. Nothing here
 * allocates or calls libffi. Threads: no state.
 */
#include <math.h>

#include "plugin_int.h"

static const struct {
    const char *name;
    int type;
} types[] =
    {
        {"i32", SIG_I32}, {"u32", SIG_U32},   {"i64", SIG_I64}, {"u64", SIG_U64},
        {"f64", SIG_F64}, {"bool", SIG_BOOL}, {"str", SIG_STR},
},
  results[] = {
      {"i32", SIG_RESULT_I32},
      {"i64", SIG_RESULT_I64},
      {"json", SIG_RESULT_JSON},
};

const char *sig_type_name(enum sig_type t)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].type == (int)t)
            return types[i].name;
    return "?";
}

/* ---- the text ---- */
struct cursor {
    const char *text, *at;
};

static void skip_space(struct cursor *c)
{
    while (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')
        c->at++;
}

/* Reads [a-z][a-z0-9_]* into out; 0 when there is none or it does not fit. */
static size_t word(struct cursor *c, char *out, size_t cap)
{
    size_t n = 0;

    skip_space(c);
    if (*c->at < 'a' || *c->at > 'z')
        return 0;
    while ((*c->at >= 'a' && *c->at <= 'z') || (*c->at >= '0' && *c->at <= '9') || *c->at == '_') {
        if (n == cap - 1)
            return 0;
        out[n++] = *c->at++;
    }
    out[n] = 0;
    return n;
}

static int syntax(const struct cursor *c, const char *want, struct cella_error *err)
{
    return fail(err, -EINVAL, "signature \"%.128s\", column %zu: %s is expected", c->text,
                (size_t)(c->at - c->text) + 1, want);
}

static int param_parse(struct cursor *c, struct signature *s, struct cella_error *err)
{
    struct sig_param *p;
    char type[SIG_NAME_MAX];
    uint32_t i;

    if (s->n_params == CELLA_METHOD_PARAMS_MAX)
        return fail(err, -EINVAL, "signature \"%.128s\": more than %d parameters", c->text,
                    CELLA_METHOD_PARAMS_MAX);
    p = &s->params[s->n_params];
    if (!word(c, type, sizeof(type)))
        return syntax(c, "a type", err);
    for (i = 0; i < ARRAY_LEN(types) && strcmp(types[i].name, type); i++)
        ;
    if (i == ARRAY_LEN(types))
        return syntax(c, "one of the types i32 u32 i64 u64 f64 bool str", err);
    p->type = (enum sig_type)types[i].type;
    if (!word(c, p->name, sizeof(p->name)))
        return syntax(c, "a parameter name of at most 31 characters", err);
    for (i = 0; i < s->n_params; i++)
        if (!strcmp(s->params[i].name, p->name))
            return fail(err, -EINVAL, "signature \"%.128s\": parameter \"%s\" appears twice",
                        c->text, p->name);
    s->n_params++;
    return 0;
}

static int result_parse(struct cursor *c, struct signature *s, struct cella_error *err)
{
    char name[SIG_NAME_MAX];
    size_t i;

    if (c->at[0] != '-' || c->at[1] != '>')
        return syntax(c, "\",\" or \"->\"", err);
    c->at += 2;
    if (!word(c, name, sizeof(name)))
        return syntax(c, "a result type", err);
    for (i = 0; i < ARRAY_LEN(results) && strcmp(results[i].name, name); i++)
        ;
    if (i == ARRAY_LEN(results))
        return syntax(c, "one of the result types i32 i64 json", err);
    s->result = (enum sig_result)results[i].type;
    skip_space(c);
    return *c->at ? syntax(c, "the end", err) : 0;
}

int signature_parse(const char *text, struct signature *ret, struct cella_error *err)
{
    struct cursor c = {text, text};
    struct signature s = {0};
    int r;

    skip_space(&c);
    if (*c.at != '-') {
        for (;;) {
            r = param_parse(&c, &s, err);
            if (r < 0)
                return r;
            skip_space(&c);
            if (*c.at != ',')
                break;
            c.at++;
        }
    }
    r = result_parse(&c, &s, err);
    if (r == 0)
        *ret = s;
    return r;
}

/* ---- JSON arguments ---- */
static const char *json_kind(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a bool";
    case JSON_NULL:
        return "null";
    }
    return "nothing known";
}

struct range {
    int64_t min, max;
};

static struct range integer_range(enum sig_type t)
{
    switch (t) {
    case SIG_I32:
        return (struct range){INT32_MIN, INT32_MAX};
    case SIG_U32:
        return (struct range){0, UINT32_MAX};
    case SIG_U64:
        return (struct range){0, INT64_MAX}; /* all that a JSON integer of jansson holds */
    case SIG_I64:
    case SIG_F64:
    case SIG_BOOL:
    case SIG_STR:
        break;
    }
    return (struct range){INT64_MIN, INT64_MAX};
}

struct site {
    const char *who;
    const struct sig_param *p;
};

static int wrong_type(struct site at, const json_t *v, struct cella_error *err)
{
    return fail(err, -EINVAL, "%s: argument \"%s\": %s is expected, got %s", at.who, at.p->name,
                sig_type_name(at.p->type), json_kind(v));
}

static int integer_arg(struct site at, const json_t *v, union arg *ret, struct cella_error *err)
{
    struct range range = integer_range(at.p->type);
    int64_t n;

    if (!json_is_integer(v))
        return wrong_type(at, v, err);
    n = json_integer_value(v);
    if (n < range.min || n > range.max)
        return fail(err, -ERANGE, "%s: argument \"%s\": %lld is out of range for %s (%lld to %lld)",
                    at.who, at.p->name, (long long)n, sig_type_name(at.p->type),
                    (long long)range.min, (long long)range.max);
    if (at.p->type == SIG_I32)
        ret->i32 = (int32_t)n;
    else if (at.p->type == SIG_U32)
        ret->u32 = (uint32_t)n;
    else
        ret->i64 = n;
    return 0;
}

static int string_arg(struct site at, const json_t *v, union arg *ret, struct cella_error *err)
{
    const char *s = json_string_value(v);

    if (!s)
        return wrong_type(at, v, err);
    if (strlen(s) != json_string_length(v))
        return fail(err, -EINVAL, "%s: argument \"%s\": a NUL character inside a string is refused",
                    at.who, at.p->name);
    if (json_string_length(v) > METHOD_STR_MAX)
        return fail(err, -E2BIG, "%s: argument \"%s\": longer than %u bytes", at.who, at.p->name,
                    METHOD_STR_MAX);
    ret->str = s;
    return 0;
}

static int arg_convert(struct site at, const json_t *v, union arg *ret, struct cella_error *err)
{
    switch (at.p->type) {
    case SIG_F64:
        if (!json_is_number(v))
            return wrong_type(at, v, err);
        ret->f64 = json_number_value(v);
        if (!isfinite(ret->f64))
            return fail(err, -ERANGE, "%s: argument \"%s\": not a finite number", at.who,
                        at.p->name);
        return 0;
    case SIG_BOOL:
        if (!json_is_boolean(v))
            return wrong_type(at, v, err);
        ret->i32 = json_is_true(v);
        return 0;
    case SIG_STR:
        return string_arg(at, v, ret, err);
    case SIG_I32:
    case SIG_U32:
    case SIG_I64:
    case SIG_U64:
        break;
    }
    return integer_arg(at, v, ret, err);
}

static void params_list(const struct signature *s, char *out, size_t cap)
{
    size_t n = 0;
    uint32_t i;

    snprintf(out, cap, "%s", s->n_params ? "" : "no argument");
    for (i = 0; i < s->n_params && n < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, "%s%s %s", i ? ", " : "",
                              sig_type_name(s->params[i].type), s->params[i].name);
}

static int unknown_arg(const struct signature *s, const char *who, const json_t *args,
                       struct cella_error *err)
{
    char list[512];
    const char *key;
    json_t *v;
    uint32_t i;

    json_object_foreach((json_t *)(uintptr_t)args, key, v)
    {
        for (i = 0; i < s->n_params && strcmp(s->params[i].name, key); i++)
            ;
        if (i < s->n_params)
            continue;
        params_list(s, list, sizeof(list));
        return fail(err, -EINVAL, "%s: argument \"%.64s\": unknown; it takes %s", who, key, list);
    }
    return 0;
}

int signature_args(const struct signature *s, const char *who, const json_t *args,
                   union arg ret[CELLA_METHOD_PARAMS_MAX], struct cella_error *err)
{
    union arg out[CELLA_METHOD_PARAMS_MAX];
    uint32_t i;
    int r;

    memset(out, 0, sizeof(out));
    if (args && json_is_null(args))
        args = NULL;
    if (args && !json_is_object(args))
        return fail(err, -EINVAL, "%s: the arguments must be a JSON object, got %s", who,
                    json_kind(args));
    r = args ? unknown_arg(s, who, args, err) : 0;
    for (i = 0; r == 0 && i < s->n_params; i++) {
        const json_t *v = args ? json_object_get(args, s->params[i].name) : NULL;
        if (!v)
            return fail(err, -EINVAL, "%s: argument \"%s\" (%s) is missing", who, s->params[i].name,
                        sig_type_name(s->params[i].type));
        r = arg_convert((struct site){who, &s->params[i]}, v, &out[i], err);
    }
    if (r == 0)
        memcpy(ret, out, sizeof(out));
    return r;
}
