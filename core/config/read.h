/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * read - typed values out of located JSON; internal to core/config.
 *
 * An object is read by a table of keys: what the table does not know is refused, and each key has
 * one reader that checks type and range and stores the value.
 */
#ifndef CELLA_CONFIG_READ_H
#define CELLA_CONFIG_READ_H

#include "config.h"

struct reader {
    const struct json_at *doc; /* may be NULL: messages carry the pointer only */
    struct config *config;
    struct cella_error *err;
};

struct key {
    const char *name;
    /* `member` is the record's address plus `offset`. */
    int (*read)(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                void *member);
    size_t offset;
    int required;
    int64_t min, max;         /* for numbers; both 0 = no range */
    const char *const *words; /* for words, NULL-terminated */
};

/* Calls the reader of every key present; refuses unknown and missing ones. */
int read_object(struct reader *r, const char *pointer, json_t *v, const struct key *keys, size_t n,
                void *record);

/* Readers for the table; strings are allocated copies. */
int read_string(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                void *member);
int read_path(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);
int read_name(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);
int read_bool(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);
int read_size(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);
int read_size_or_none(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member);
int read_time_or_none(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member);
int read_count(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);
/* Stores the index of the word as int. */
int read_word(struct reader *r, const struct key *k, const char *pointer, json_t *v, void *member);

/* Array of at most `max` elements of `size` bytes each, zeroed before `each` fills them. *ret_n
   counts the started ones, so that the owner frees a half-filled last one too. */
typedef int (*read_each_fn)(struct reader *r, const char *pointer, json_t *v, void *item);
int read_array(struct reader *r, const char *pointer, json_t *v, size_t size, size_t max,
               read_each_fn each, void *ret_items, size_t *ret_n);
/* The same for the members of an object; `each` finds the name in the last part of the pointer
 * through `name`. */
typedef int (*read_member_fn)(struct reader *r, const char *pointer, const char *name, json_t *v,
                              void *item);
int read_map(struct reader *r, const char *pointer, json_t *v, size_t size, size_t max,
             read_member_fn each, void *ret_items, size_t *ret_n);

/* Array of names, no two alike. */
int read_names(struct reader *r, const char *pointer, json_t *v, char ***ret_names, size_t *ret_n);

/* One number by an option type (BOOL, INT, SIZE, DURATION), of JSON or of text. */
int number_read(struct reader *r, const char *pointer, const json_t *v, uint32_t type, int64_t min,
                int64_t max, int64_t *ret);
int number_of_text(const char *text, uint32_t type, int64_t *ret);

int fail_memory(struct reader *r);
/* "expected WHAT, got an array" at `pointer`. */
int fail_type(struct reader *r, const char *pointer, const char *what, const json_t *v);
/* "\"WORD\" is not one of a, b; did you mean \"a\"?" at `pointer`. */
int fail_word(struct reader *r, const char *pointer, const char *word, const char *const *words,
              size_t n);
/* "unknown key \"WORD\"; did you mean \"a\"?" at the key `pointer`; `what` is "key" or "option". */
int fail_unknown(struct reader *r, const char *pointer, const char *what, const char *word,
                 const char *const *words, size_t n);
/* 0 when every name in the object is one of the words. */
int read_known(struct reader *r, const char *pointer, const json_t *object, const char *what,
               const char *const *words, size_t n);
/* The word nearest to a misspelt one, or NULL when none is near. */
const char *nearest_word(const char *word, const char *const *words, size_t n);
/* "/a" + "b/c" = "/a/b~1c"; malloc. */
char *pointer_child(const char *pointer, const char *name);

#endif
