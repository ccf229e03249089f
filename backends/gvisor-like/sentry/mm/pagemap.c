/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * pagemap - pages by index: private pages by address, an object's by offset.
 * Why a tree of small nodes: address spaces and files have holes, and areas that are cut, merged or moved need not move pages.
 * Invariants: a node that holds nothing is freed; height 0 has no root. A page in it has one reference for being there.
 * Threads: the kernel lock.
 */
#include <string.h>

#include "space.h"

#define FAN_BITS 6
#define FAN (1u << FAN_BITS)
#define HEIGHT_MAX 9 /* 54 bits of index: more than an offset has */

struct node {
    uint32_t used, reserved;
    void *slots[FAN]; /* nodes; pages in the lowest */
};

static uint64_t reach(unsigned height) /* indexes that a tree of this height has */
{
    return 1ull << (height * FAN_BITS);
}

static unsigned slot_of(uint64_t index, unsigned level)
{
    return (unsigned)(index >> (level * FAN_BITS)) & (FAN - 1);
}

struct page *pagemap_get(const struct pagemap *map, uint64_t index)
{
    const struct node *node = map->root;
    unsigned level = map->height;

    if (!node || index >= reach(level))
        return NULL;
    while (node && level-- > 1)
        node = node->slots[slot_of(index, level)];
    return node ? node->slots[slot_of(index, 0)] : NULL;
}

static int grow(struct pagemap *map, uint64_t index)
{
    unsigned height = map->height ? map->height : 1;
    struct node *node;

    if (index >= reach(HEIGHT_MAX))
        return -EFBIG;
    if (!map->root) { /* as high as it must be, at once: no node without a page below */
        while (index >= reach(height))
            height++;
        map->root = arena_alloc(ARENA_BYTES, sizeof(*node));
        map->height = map->root ? height : 0;
        return map->root ? 0 : -ENOMEM;
    }
    while (index >= reach(map->height)) {
        node = arena_alloc(ARENA_BYTES, sizeof(*node));
        if (!node)
            return -ENOMEM;
        node->slots[0] = map->root;
        node->used = 1;
        map->root = node;
        map->height++;
    }
    return 0;
}

/* Frees the nodes on the way to index that hold nothing. */
static void prune(struct pagemap *map, uint64_t index)
{
    struct node *way[HEIGHT_MAX];
    struct node *node = map->root;
    unsigned level = map->height, depth;

    if (!node || index >= reach(level))
        return;
    for (depth = 0; node; depth++) {
        way[depth] = node;
        if (--level == 0) {
            depth++;
            break;
        }
        node = node->slots[slot_of(index, level)];
    }
    while (depth > 0 && way[depth - 1]->used == 0) {
        arena_free(way[--depth]);
        if (depth == 0) {
            map->root = NULL;
            map->height = 0;
            break;
        }
        way[depth - 1]->slots[slot_of(index, map->height - depth)] = NULL;
        way[depth - 1]->used--;
    }
}

int pagemap_set(struct pagemap *map, uint64_t index, struct page *page)
{
    struct node *node;
    unsigned level, slot;
    int error = grow(map, index);

    if (error)
        return error;
    node = map->root;
    for (level = map->height - 1; level > 0; level--) {
        slot = slot_of(index, level);
        if (!node->slots[slot]) {
            node->slots[slot] = arena_alloc(ARENA_BYTES, sizeof(*node));
            if (!node->slots[slot]) {
                prune(map, index);
                return -ENOMEM;
            }
            node->used++;
        }
        node = node->slots[slot];
    }
    slot = slot_of(index, 0);
    if (!node->slots[slot]) {
        node->used++;
        map->count++;
    }
    node->slots[slot] = page;
    return 0;
}

struct page *pagemap_take(struct pagemap *map, uint64_t index)
{
    struct node *node = map->root;
    unsigned level = map->height, slot = slot_of(index, 0);
    struct page *page;

    if (!node || index >= reach(level))
        return NULL;
    while (node && level-- > 1)
        node = node->slots[slot_of(index, level)];
    if (!node || !node->slots[slot])
        return NULL;
    page = node->slots[slot];
    node->slots[slot] = NULL;
    node->used--;
    map->count--;
    if (node->used == 0)
        prune(map, index);
    return page;
}

static struct page *next_in(const struct node *node, unsigned level, uint64_t *index, uint64_t end)
{
    unsigned slot = slot_of(*index, level);
    uint64_t step = reach(level);

    for (; slot < FAN && *index < end; slot++) {
        uint64_t behind = (*index | (step - 1)) + 1; /* of this slot: what is below moves *index */

        if (node->slots[slot]) {
            struct page *page =
                level ? next_in(node->slots[slot], level - 1, index, end) : node->slots[slot];

            if (page)
                return page;
        }
        *index = behind;
    }
    return NULL;
}

struct page *pagemap_next(const struct pagemap *map, uint64_t *index, uint64_t end)
{
    struct page *page;

    if (!map->root || *index >= reach(map->height) || *index >= end)
        return NULL;
    page = next_in(map->root, map->height - 1, index, end);
    return page && *index < end ? page : NULL;
}

static void clear(struct node *node, unsigned level)
{
    unsigned slot;

    for (slot = 0; slot < FAN; slot++) {
        if (!node->slots[slot])
            continue;
        if (level)
            clear(node->slots[slot], level - 1);
        else
            page_put(node->slots[slot]);
    }
    arena_free(node);
}

void pagemap_clear(struct pagemap *map)
{
    if (map->root)
        clear(map->root, map->height - 1);
    *map = (struct pagemap){0};
}

static struct node *copy(const struct node *from, unsigned level)
{
    struct node *node = arena_alloc(ARENA_BYTES, sizeof(*node));
    unsigned slot;

    if (!node)
        return NULL;
    for (slot = 0; slot < FAN; slot++) {
        if (!from->slots[slot])
            continue;
        if (level) {
            node->slots[slot] = copy(from->slots[slot], level - 1);
            if (!node->slots[slot]) {
                clear(node, level);
                return NULL;
            }
        } else {
            node->slots[slot] = from->slots[slot];
            page_get(node->slots[slot]);
        }
        node->used++;
    }
    return node;
}

int pagemap_copy(struct pagemap *to, const struct pagemap *from)
{
    *to = (struct pagemap){0};
    if (!from->root)
        return 0;
    to->root = copy(from->root, from->height - 1);
    if (!to->root)
        return -ENOMEM;
    to->height = from->height;
    to->count = from->count;
    return 0;
}
