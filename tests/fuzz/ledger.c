/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* The ledger that a dead gate left, which may have been somebody else's: what the next one takes from it is bounded,
   terminated and, of names, canonical and there once; anything else and it does not start.
   Input: two counts of 16 bits, then one entry after another as {length, bytes}, uses first. */
#include <stdlib.h>
#include <string.h>

#include "limits.c"
#include "names.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ENTRIES 64u

static struct ledger l;

uint64_t watch_now(void)
{
    return 1;
}

static void fill(const uint8_t *data, size_t size)
{
    unsigned i;

    memset(l.uses, 0, ENTRIES * sizeof(l.uses[0]));
    memset(l.names, 0, ENTRIES * sizeof(l.names[0]));
    l.n_names = l.n_uses = 0;
    if (size < 4)
        return;
    l.n_uses = (uint32_t)data[0] | (uint32_t)data[1] << 8;
    l.n_names = (uint32_t)data[2] | (uint32_t)data[3] << 8;
    for (data += 4, size -= 4, i = 0; size && i < 2 * ENTRIES; i++) {
        char *to = i % 2 ? l.names[i / 2] : l.uses[i / 2].rule;
        size_t room = i % 2 ? sizeof(l.names[0]) : sizeof(l.uses[0].rule), n = *data++;
        size--;
        n = n < size ? n : size;
        memcpy(to, data, n < room ? n : room);
        data += n;
        size -= n;
    }
}

static void check_names(void)
{
    char canon[NAME_MAX_LEN + 1];
    unsigned i;

    if (n_names != l.n_names)
        abort();
    for (i = 0; i < n_names; i++)
        if (strlen(names[i]->text) > NAME_MAX_LEN ||
            name_canon(names[i]->text, strlen(names[i]->text), canon) < 0 ||
            strcmp(canon, names[i]->text) || name_known(canon) != names[i])
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gate g;

    fill(data, size);
    g.ledger = &l;
    if (uses_restore(&g) == 0 && (!use_get(&g, "") || l.n_uses > LEDGER_USES_MAX))
        abort();
    while (g.uses) {
        struct use *next = g.uses->next;
        free(g.uses);
        g.uses = next;
    }
    ledger = NULL;
    if (names_restore(&l) == 0)
        check_names();
    while (n_names)
        free(names[--n_names]);
    memset(buckets, 0, sizeof(buckets));
    return 0;
}
