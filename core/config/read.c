/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * read - typed values out of located JSON.
 *
 * Each reader says what it expected and what it got, at the place of the value. Nothing here
 * guesses: a number is no string, a string is no list. Sizes and durations may be text with a unit
 * or a plain number. Invariant: a record is valid for its owner's free function at any time, also
 * after a failure. Threads: no state.
 */
#include "read.h"

char *pointer_child(const char *pointer, const char *name)
{
    struct buf b = BUF_INIT;

    buf_add(&b, pointer, strlen(pointer));
    buf_add(&b, "/", 1);
    for (; *name; name++) {
        if (*name == '~')
            buf_add(&b, "~0", 2);
        else if (*name == '/')
            buf_add(&b, "~1", 2);
        else
            buf_add(&b, name, 1);
    }
    if (b.oom)
        buf_fini(&b);
    return b.ptr;
}

int fail_memory(struct reader *r)
{
    return fail(r->err, -ENOMEM, "out of memory while reading the configuration");
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a number";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

int fail_type(struct reader *r, const char *pointer, const char *what, const json_t *v)
{
    return json_at_fail(r->doc, pointer, 0, r->err, "expected %s, got %s", what, type_name(v));
}

/* ----------------------------------------------------------------- objects */

int read_known(struct reader *r, const char *pointer, const json_t *object, const char *what,
               const char *const *words, size_t n)
{
    const char *name;
    json_t *value;
    size_t i;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        auto_free char *at = NULL;

        for (i = 0; i < n && strcmp(words[i], name); i++)
            ;
        if (i < n)
            continue;
        at = pointer_child(pointer, name);
        return at ? fail_unknown(r, at, what, name, words, n) : fail_memory(r);
    }
    return 0;
}

static int check_names(struct reader *r, const char *pointer, json_t *v, const struct key *keys,
                       size_t n)
{
    const char *words[32];
    size_t i;

    for (i = 0; i < n && i < ARRAY_LEN(words); i++)
        words[i] = keys[i].name;
    return read_known(r, pointer, v, "key", words, i);
}

int read_object(struct reader *r, const char *pointer, json_t *v, const struct key *keys, size_t n,
                void *record)
{
    size_t i;
    int ret;

    if (!json_is_object(v))
        return fail_type(r, pointer, "an object", v);
    ret = check_names(r, pointer, v, keys, n);
    for (i = 0; ret == 0 && i < n; i++) {
        json_t *value = json_object_get(v, keys[i].name);
        auto_free char *at = NULL;

        if (!value) {
            if (keys[i].required)
                ret =
                    json_at_fail(r->doc, pointer, 0, r->err, "key \"%s\" is missing", keys[i].name);
            continue;
        }
        at = pointer_child(pointer, keys[i].name);
        ret = at ? keys[i].read(r, &keys[i], at, value, (char *)record + keys[i].offset)
                 : fail_memory(r);
    }
    return ret;
}

static int items_new(struct reader *r, const char *pointer, size_t n, size_t max, size_t size,
                     char **ret)
{
    if (n > max)
        return json_at_fail(r->doc, pointer, 0, r->err, "%zu entries; at most %zu are allowed", n,
                            max);
    *ret = calloc(n ? n : 1, size);
    return *ret ? 0 : fail_memory(r);
}

int read_array(struct reader *r, const char *pointer, json_t *v, size_t size, size_t max,
               read_each_fn each, void *ret_items, size_t *ret_n)
{
    char *items, number[24];
    size_t i, n;
    int ret = 0;

    if (!json_is_array(v))
        return fail_type(r, pointer, "an array", v);
    n = json_array_size(v);
    ret = items_new(r, pointer, n, max, size, &items);
    if (ret < 0)
        return ret;
    *(void **)ret_items = items;
    for (i = 0; ret == 0 && i < n; i++) {
        auto_free char *at = NULL;

        snprintf(number, sizeof(number), "%zu", i);
        at = pointer_child(pointer, number);
        *ret_n = i + 1;
        ret = at ? each(r, at, json_array_get(v, i), items + i * size) : fail_memory(r);
    }
    return ret;
}

int read_map(struct reader *r, const char *pointer, json_t *v, size_t size, size_t max,
             read_member_fn each, void *ret_items, size_t *ret_n)
{
    const char *name;
    json_t *value;
    char *items;
    size_t n;
    int ret = 0;

    if (!json_is_object(v))
        return fail_type(r, pointer, "an object", v);
    n = json_object_size(v);
    ret = items_new(r, pointer, n, max, size, &items);
    if (ret < 0)
        return ret;
    *(void **)ret_items = items;
    json_object_foreach(v, name, value)
    {
        auto_free char *at = pointer_child(pointer, name);
        size_t i = (*ret_n)++;

        if (!at)
            ret = fail_memory(r);
        else if (!name_valid(name))
            ret = json_at_fail(
                r->doc, at, 1, r->err,
                "\"%.64s\" is not a name; use letters, digits, '_', '.' and '-', at most 63", name);
        else
            ret = each(r, at, name, value, items + i * size);
        if (ret < 0)
            break;
    }
    return ret;
}

/* ----------------------------------------------------------------- numbers */

static int read_number(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                       uint32_t type, void *member)
{
    int64_t n = 0;
    int ret = number_read(r, pointer, v, type, k->min, k->max, &n);

    if (ret == 0)
        *(uint64_t *)member = (uint64_t)n;
    return ret;
}

int read_size(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    return read_number(r, k, pointer, v, CELLA_OPT_SIZE, member);
}

int read_count(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    return read_number(r, k, pointer, v, CELLA_OPT_INT, member);
}

static int is_none(const json_t *v)
{
    return json_is_string(v) && !strcmp(json_string_value(v), "none");
}

int read_size_or_none(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member)
{
    if (!is_none(v))
        return read_number(r, k, pointer, v, CELLA_OPT_SIZE, member);
    *(uint64_t *)member = 0;
    return 0;
}

int read_time_or_none(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member)
{
    if (!is_none(v))
        return read_number(r, k, pointer, v, CELLA_OPT_DURATION, member);
    *(uint64_t *)member = 0;
    return 0;
}

int read_bool(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    int64_t n = 0;
    int ret = number_read(r, pointer, v, CELLA_OPT_BOOL, 0, 0, &n);

    (void)k;
    if (ret == 0)
        *(int *)member = (int)n;
    return ret;
}

/* ----------------------------------------------------------------- strings */

int read_string(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    char *copy;

    (void)k;
    if (!json_is_string(v))
        return fail_type(r, pointer, "a string", v);
    if (!*json_string_value(v))
        return json_at_fail(r->doc, pointer, 0, r->err, "must not be empty");
    copy = strdup(json_string_value(v));
    if (!copy)
        return fail_memory(r);
    free(*(char **)member);
    *(char **)member = copy;
    return 0;
}

int read_path(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    if (!json_is_string(v))
        return fail_type(r, pointer, "an absolute path", v);
    if (json_string_value(v)[0] != '/')
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "\"%.128s\" is not an absolute path; it must start with '/'",
                            json_string_value(v));
    return read_string(r, k, pointer, v, member);
}

int read_name(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    if (json_is_string(v) && *json_string_value(v) && !name_valid(json_string_value(v)))
        return json_at_fail(
            r->doc, pointer, 0, r->err,
            "\"%.64s\" is not a name; use letters, digits, '_', '.' and '-', at most 63",
            json_string_value(v));
    return read_string(r, k, pointer, v, member);
}

int read_word(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member)
{
    size_t n = 0;
    int i, found = -1;

    if (!json_is_string(v))
        return fail_type(r, pointer, "a string", v);
    for (i = 0; k->words[i]; i++, n++)
        if (!strcmp(k->words[i], json_string_value(v)))
            found = i;
    if (found < 0)
        return fail_word(r, pointer, json_string_value(v), k->words, n);
    *(int *)member = found;
    return 0;
}

/* ------------------------------------------------------------------- lists */

#define NAMES_MAX 1024

/* One name of a list, no two alike. `list` is where the list starts. */
static int read_listed_name(struct reader *r, const char *pointer, json_t *v, char **list,
                            char **item)
{
    int ret = read_name(r, NULL, pointer, v, item);
    char **q;

    for (q = list; ret == 0 && q < item; q++)
        if (!strcmp(*q, *item))
            ret = json_at_fail(r->doc, pointer, 0, r->err, "\"%s\" is listed twice", *item);
    return ret;
}

int read_names(struct reader *r, const char *pointer, json_t *v, char ***ret_names, size_t *ret_n)
{
    char number[24];
    size_t i, n;
    int ret = 0;

    if (!json_is_array(v))
        return fail_type(r, pointer, "an array of names", v);
    n = json_array_size(v);
    if (n > NAMES_MAX)
        return json_at_fail(r->doc, pointer, 0, r->err, "%zu entries; at most %d are allowed", n,
                            NAMES_MAX);
    *ret_names = calloc(n + 1, sizeof(char *));
    if (!*ret_names)
        return fail_memory(r);
    for (i = 0; ret == 0 && i < n; i++) {
        auto_free char *at = NULL;

        snprintf(number, sizeof(number), "%zu", i);
        at = pointer_child(pointer, number);
        *ret_n = i + 1;
        ret = at ? read_listed_name(r, at, json_array_get(v, i), *ret_names, *ret_names + i)
                 : fail_memory(r);
    }
    return ret;
}
