/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * words - what to say about a word that is not known: the nearest one that is, or all of them.
 *
 * Near is an edit distance that grows with the length of the word, or a known word cut short.
 * Threads: no state.
 */
#include "read.h"

#define WORD_MAX 32

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    return a < b ? (a < c ? a : c) : (b < c ? b : c);
}

/* Levenshtein distance of two words of at most WORD_MAX bytes. */
static unsigned distance(const char *a, size_t la, const char *b, size_t lb)
{
    unsigned row[WORD_MAX + 1], diagonal, above;
    size_t i, j;

    for (j = 0; j <= lb; j++)
        row[j] = (unsigned)j;
    for (i = 1; i <= la; i++) {
        diagonal = row[0];
        row[0] = (unsigned)i;
        for (j = 1; j <= lb; j++) {
            above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[lb];
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    size_t len = strlen(word), i;
    unsigned best = len < 3 ? 2 : len < 6 ? 3 : 4; /* less than this is near */
    const char *found = NULL;

    if (len > WORD_MAX)
        return NULL;
    for (i = 0; i < n; i++) {
        size_t other = strlen(words[i]);
        unsigned d = other > WORD_MAX ? best : distance(word, len, words[i], other);

        if (len >= 3 && other > len && !strncmp(words[i], word, len))
            d = 1; /* cut short: "mem" */
        if (d < best && d < other) {
            best = d;
            found = words[i];
        }
    }
    return found;
}

static void list_words(struct buf *b, const char *const *words, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        buf_addf(b, "%s%s", i ? ", " : "", words[i]);
}

int fail_word(struct reader *r, const char *pointer, const char *word, const char *const *words,
              size_t n)
{
    const char *near_ = nearest_word(word, words, n);
    auto_buf struct buf known = BUF_INIT;

    list_words(&known, words, n);
    if (known.oom)
        return fail_memory(r);
    if (near_)
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "\"%.64s\" is not one of %s; did you mean \"%s\"?", word, known.ptr,
                            near_);
    return json_at_fail(r->doc, pointer, 0, r->err, "\"%.64s\" is not one of %s", word,
                        n ? known.ptr : "()");
}

int fail_unknown(struct reader *r, const char *pointer, const char *what, const char *word,
                 const char *const *words, size_t n)
{
    const char *near_ = nearest_word(word, words, n);
    auto_buf struct buf known = BUF_INIT;

    if (near_)
        return json_at_fail(r->doc, pointer, 1, r->err,
                            "unknown %s \"%.64s\"; did you mean \"%s\"?", what, word, near_);
    list_words(&known, words, n);
    if (known.oom)
        return fail_memory(r);
    return json_at_fail(r->doc, pointer, 1, r->err, "unknown %s \"%.64s\"; known: %s", what, word,
                        n ? known.ptr : "none");
}
