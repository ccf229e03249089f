/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * number - booleans, whole numbers, sizes and durations, as JSON and as text, with ranges in the
 * words of the person who wrote them. Threads: no state.
 */
#include "read.h"

struct number_type {
    uint32_t type;
    const char *expected, *syntax;
};

static const struct number_type number_types[] = {
    {CELLA_OPT_BOOL, "true or false", "is neither true nor false"},
    {CELLA_OPT_INT, "a whole number", "is not a whole number"},
    {CELLA_OPT_SIZE, "a size such as \"64M\" or a number of bytes",
     "is not a size; write a whole number with K, M, G or T, such as \"64M\""},
    {CELLA_OPT_DURATION, "a duration such as \"250ms\" or \"10m\", or a number of seconds",
     "is not a duration; write a whole number with ns, us, ms, s, m, h or d, such as \"10m\""},
};

static const struct number_type *number_type(uint32_t type)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(number_types) - 1 && number_types[i].type != type; i++)
        ;
    return &number_types[i];
}

int number_of_text(const char *text, uint32_t type, int64_t *ret)
{
    uint64_t v;
    int r;

    if (type == CELLA_OPT_INT)
        return parse_i64(text, ret);
    if (type == CELLA_OPT_BOOL) {
        if (!strcmp(text, "true") || !strcmp(text, "1"))
            *ret = 1;
        else if (!strcmp(text, "false") || !strcmp(text, "0"))
            *ret = 0;
        else
            return -EINVAL;
        return 0;
    }
    r = type == CELLA_OPT_SIZE ? parse_size(text, &v) : parse_duration(text, &v);
    if (r == 0)
        *ret = (int64_t)v;
    return r;
}

/* The number in the largest unit that divides it, as a person would write it. */
static const char *number_text(char out[32], int64_t v, uint32_t type)
{
    static const struct {
        int64_t factor;
        const char *name;
    } sizes[] = {{1ll << 40, "T"}, {1 << 30, "G"}, {1 << 20, "M"}, {1 << 10, "K"}},
      times[] = {{86400000000000ll, "d"},
                 {3600000000000ll, "h"},
                 {60000000000ll, "m"},
                 {1000000000, "s"},
                 {1000000, "ms"},
                 {1000, "us"},
                 {1, "ns"}};
    size_t i;

    snprintf(out, 32, "%lld", (long long)v);
    for (i = 0; v && type == CELLA_OPT_SIZE && i < ARRAY_LEN(sizes); i++)
        if (v % sizes[i].factor == 0) {
            snprintf(out, 32, "%lld%s", (long long)(v / sizes[i].factor), sizes[i].name);
            break;
        }
    for (i = 0; v && type == CELLA_OPT_DURATION && i < ARRAY_LEN(times); i++)
        if (v % times[i].factor == 0) {
            snprintf(out, 32, "%lld%s", (long long)(v / times[i].factor), times[i].name);
            break;
        }
    return out;
}

static int fail_range(struct reader *r, const char *pointer, const char *got, uint32_t type,
                      int64_t min, int64_t max)
{
    char a[32], b[32];

    return json_at_fail(r->doc, pointer, 0, r->err, "%.64s is out of range; allowed is %s to %s",
                        got, number_text(a, min, type), number_text(b, max, type));
}

/* JSON integer to the type's unit; -ERANGE. */
static int number_of_integer(json_int_t given, uint32_t type, int64_t *ret)
{
    int64_t v = given;

    if (type == CELLA_OPT_DURATION && __builtin_mul_overflow(v, 1000000000, &v))
        return -ERANGE;
    *ret = v;
    return 0;
}

int number_read(struct reader *r, const char *pointer, const json_t *v, uint32_t type, int64_t min,
                int64_t max, int64_t *ret)
{
    const struct number_type *t = number_type(type);
    int ranged = min || max, with_unit = type == CELLA_OPT_SIZE || type == CELLA_OPT_DURATION,
        ret_code;
    char number[32];
    const char *got = number;
    int64_t n = 0;

    if (type == CELLA_OPT_BOOL) {
        if (!json_is_boolean(v))
            return fail_type(r, pointer, t->expected, v);
        *ret = json_is_true(v);
        return 0;
    }
    if (json_is_integer(v)) {
        snprintf(number, sizeof(number), "%lld", (long long)json_integer_value(v));
        ret_code = number_of_integer(json_integer_value(v), type, &n);
    } else if (with_unit && json_is_string(v)) {
        got = json_string_value(v);
        ret_code = number_of_text(got, type, &n);
        if (ret_code == -EINVAL)
            return json_at_fail(r->doc, pointer, 0, r->err, "\"%.64s\" %s", got, t->syntax);
    } else {
        return fail_type(r, pointer, t->expected, v);
    }
    if (!ranged) {
        min = with_unit ? 0 : INT64_MIN;
        max = INT64_MAX;
    }
    if (ret_code < 0 || n < min || n > max)
        return fail_range(r, pointer, got, type, min, max);
    *ret = n;
    return 0;
}
