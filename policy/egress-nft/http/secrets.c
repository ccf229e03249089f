/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * secrets - values by name, in pages of their own: locked, left out of core dumps, wiped when replaced.
 *
 * A value that could break out of a header field (CR, LF, NUL, control characters) is refused here, so
 * that no later step has to think of it. Names and values come from the warden only.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "http.h"

/* One page range per secret. Locking may fail (RLIMIT_MEMLOCK); the value is still never dumped. */
static char *page_take(void)
{
    char *p =
        mmap(NULL, ENGINE_SECRET_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    madvise(p, ENGINE_SECRET_MAX, MADV_DONTDUMP);
    mlock(p, ENGINE_SECRET_MAX);
    return p;
}

const struct secret *secret_find(const struct engine *e, const char *name)
{
    unsigned i;

    for (i = 0; i < e->n_secrets; i++)
        if (e->secrets[i].len && !strcmp(e->secrets[i].name, name))
            return &e->secrets[i];
    return NULL;
}

int secret_put(struct engine *e, const char *name, const char *value, size_t len)
{
    struct secret *s = NULL;
    unsigned i;

    if (!*name || strlen(name) >= sizeof(s->name) || len > ENGINE_SECRET_MAX ||
        !value_valid(value, len) || memchr(value, '\t', len))
        return -EINVAL;
    if (len && (value[0] == ' ' || value[len - 1] == ' '))
        return -EINVAL;
    for (i = 0; i < e->n_secrets && !s; i++)
        if (!strcmp(e->secrets[i].name, name))
            s = &e->secrets[i];
    for (i = 0; i < e->n_secrets && !s; i++) /* the place of one that was forgotten */
        if (!e->secrets[i].len)
            s = &e->secrets[i];
    if (!s) {
        if (!len)
            return 0;
        if (e->n_secrets == SECRETS_MAX)
            return -E2BIG;
        s = &e->secrets[e->n_secrets];
        s->value = page_take();
        if (!s->value)
            return -ENOMEM;
        e->n_secrets++;
    }
    snprintf(s->name, sizeof(s->name), "%s", name);
    explicit_bzero(s->value, ENGINE_SECRET_MAX);
    if (len)
        memcpy(s->value, value, len);
    s->len = len;
    return 0;
}

static int needed(const struct engine *e, const char *name)
{
    uint32_t i;
    unsigned k;

    for (i = 0; i < e->table.head.n_rules; i++)
        for (k = 0; k < e->table.rules[i].n_inject; k++)
            if (!strcmp(e->table.rules[i].inject[k].secret, name))
                return 1;
    return 0;
}

void secret_trim(struct engine *e)
{
    unsigned i;

    for (i = 0; i < e->n_secrets; i++)
        if (e->secrets[i].len && !needed(e, e->secrets[i].name)) {
            explicit_bzero(e->secrets[i].value, ENGINE_SECRET_MAX);
            e->secrets[i].len = 0;
        }
}
