/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * names - the names this cell has asked for, and the addresses that stand for them.
 *
 * A synthetic address belongs to one name from the first question on, as long as the cell lives:
 * the order of first questions decides, nothing is given back, so an answer in somebody's cache can
 * never come to mean another name. In mode "real" an address of the world is pinned to the names
 * that resolved to it, here, for this cell, and for a bounded time. Nothing of this grants
 * anything: every use asks the policy again. What is cached are unchecked addresses; who dials
 * checks them.
 *
 * Untouched table pages cost nothing. The ledger holds the names in order, for the gate that takes the place of
 * this one; a name is in it before its address is told to anybody. One thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../ledger.h"
#include "gate.h"

#define BUCKETS (2 * NAMES_MAX)
#define PINS_MAX 4096u
#define CACHE_SECS_MAX 30u
#define DATA_LABEL 24u /* shorter labels say too little to tell */

struct name {
    uint64_t fresh_until;
    uint32_t addrs[ADDRS_MAX];
    uint16_t n_addrs, number;
    char text[];
};

struct pin {
    uint64_t until;
    uint32_t addr;
    uint16_t name;
};

_Static_assert(NAMES_MAX == LEDGER_NAMES_MAX, "a line per name");
_Static_assert(sizeof(((struct ledger *)0)->names[0]) > NAME_MAX_LEN, "that holds it");

static struct ledger *ledger; /* NULL: none is kept */
static struct name *names[NAMES_MAX];
static unsigned n_names;
static uint16_t buckets[BUCKETS]; /* number + 1 */
static struct pin pins[PINS_MAX];
static unsigned n_pins;

static unsigned bucket(const char *host)
{
    uint32_t h = 2166136261u;
    unsigned at;

    for (; *host; host++)
        h = (h ^ (unsigned char)*host) * 16777619u;
    at = (h ^ h >> 15) % BUCKETS;
    return at;
}

static unsigned find(const char *host)
{
    unsigned at = bucket(host);

    while (buckets[at] && strcmp(names[buckets[at] - 1]->text, host) != 0)
        at = (at + 1) % BUCKETS;
    return at;
}

struct name *name_known(const char *host)
{
    unsigned at = find(host);

    return buckets[at] ? names[buckets[at] - 1] : NULL;
}

struct name *name_get(const char *host)
{
    unsigned at = find(host);
    struct name *n;

    if (buckets[at])
        return names[buckets[at] - 1];
    if (n_names == NAMES_MAX)
        return NULL;
    n = calloc(1, sizeof(*n) + strlen(host) + 1);
    if (!n)
        return NULL;
    memcpy(n->text, host, strlen(host) + 1);
    n->number = (uint16_t)n_names;
    names[n_names++] = n;
    buckets[at] = (uint16_t)n_names;
    if (ledger) {
        memcpy(ledger->names[n->number], host, strlen(host) + 1);
        __atomic_store_n(&ledger->n_names, n_names, __ATOMIC_RELEASE);
    }
    return n;
}

int names_restore(struct ledger *l)
{
    uint32_t i;

    if (l->n_names > LEDGER_NAMES_MAX)
        return -1;
    for (i = 0; i < l->n_names; i++) {
        char canon[NAME_MAX_LEN + 1];
        size_t len = strnlen(l->names[i], sizeof(l->names[i]));
        if (name_canon(l->names[i], len, canon) < 0 || strcmp(canon, l->names[i]) != 0 ||
            name_known(canon) || !name_get(canon))
            return -1;
    }
    ledger = l;
    return 0;
}

const char *name_text(const struct name *n)
{
    return n->text;
}

uint32_t name_addr(const struct name *n)
{
    return POLICY_SYNTHETIC_LO + 1u + n->number;
}

struct name *name_at(uint32_t addr)
{
    return addr > POLICY_SYNTHETIC_LO && addr - POLICY_SYNTHETIC_LO <= n_names
               ? names[addr - POLICY_SYNTHETIC_LO - 1]
               : NULL;
}

int pin_add(uint32_t addr, struct name *n, uint32_t secs)
{
    uint64_t now = watch_now(), until = now + secs * 1000000000ull;
    struct pin *free_one = NULL;
    unsigned i;

    for (i = 0; i < n_pins; i++) {
        if (pins[i].addr == addr && pins[i].name == n->number) {
            pins[i].until = until;
            return 0;
        }
        if (pins[i].until < now)
            free_one = &pins[i];
    }
    if (!free_one && n_pins < PINS_MAX)
        free_one = &pins[n_pins++];
    if (!free_one)
        return -1;
    *free_one = (struct pin){until, addr, n->number};
    return 0;
}

struct name *pin_next(uint32_t addr, unsigned *at)
{
    uint64_t now = watch_now();

    while (*at < n_pins) {
        const struct pin *p = &pins[(*at)++];
        if (p->addr == addr && p->until >= now)
            return names[p->name];
    }
    return NULL;
}

unsigned name_cached(const struct name *n, uint32_t addrs[ADDRS_MAX], uint32_t *ret_ttl)
{
    uint64_t now = watch_now();

    if (n->fresh_until <= now)
        return 0;
    memcpy(addrs, n->addrs, sizeof(n->addrs));
    *ret_ttl = (uint32_t)((n->fresh_until - now) / 1000000000u);
    return n->n_addrs;
}

void name_cache(struct name *n, const uint32_t *addrs, unsigned n_addrs, uint32_t ttl)
{
    n->n_addrs = (uint16_t)(n_addrs < ADDRS_MAX ? n_addrs : ADDRS_MAX);
    memcpy(n->addrs, addrs, n->n_addrs * sizeof(*addrs));
    n->fresh_until = watch_now() + (ttl < CACHE_SECS_MAX ? ttl : CACHE_SECS_MAX) * 1000000000ull;
}

/* Shannon entropy of a label's bytes above 4 bits: more than sixteen equally frequent ones. Words,
   hexadecimal digests and UUIDs stay below, base32 and base64 of random bytes do not. */
static int looks_like_data(const char *label, size_t len)
{
    unsigned count[128] = {0};
    double bits = 0;
    size_t i;

    if (len < DATA_LABEL)
        return 0;
    for (i = 0; i < len; i++)
        count[label[i] & 127]++;
    for (i = 0; i < 128; i++)
        if (count[i])
            bits -= count[i] * log2((double)count[i] / (double)len);
    return bits > 4.0 * (double)len;
}

int name_suspect(const char *host, size_t *ret_longest)
{
    int data = 0;

    *ret_longest = 0;
    while (*host) {
        size_t n = strcspn(host, ".");
        if (n > *ret_longest)
            *ret_longest = n;
        data |= looks_like_data(host, n);
        host += n + (host[n] == '.');
    }
    return data;
}
