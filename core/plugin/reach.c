/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach - the wrappers of an enforcer's reach operations, and the build id of a loaded plugin.
 *
 * The rows go to a probe inside a cell as lines of words, so every string is checked here to be one:
 * an enforcer that lies about its own matrix must not be able to forge a second row. Threads: as enforcer.c.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "plugin_int.h"

#define ROW_LEAST (offsetof(struct cella_reach_row, reserved0) + sizeof(uint32_t))
#define SEEN_LEAST (offsetof(struct cella_reach_seen, refused) + sizeof(uint64_t))
#define WORD_MAX 255

static int refused(const struct enforcer *e, const char *op, struct cella_error *err)
{
    if (!e->self)
        return fail(err, -EPROTO, "%s: %s is not possible before attach or after detach",
                    e->plugin ? e->plugin->name : "enforcer", op);
    return fail(err, -EOPNOTSUPP,
                "enforcer %s has no %s: what a cell under it can reach cannot be measured",
                e->plugin->name, op);
}

static int word_ok(const char *s, int spaces, int empty)
{
    size_t n = s ? strnlen(s, WORD_MAX + 1) : WORD_MAX + 1, i;

    if (n > WORD_MAX || (!n && !empty))
        return 0;
    for (i = 0; i < n; i++)
        if (!(isgraph((unsigned char)s[i]) || (spaces && s[i] == ' ')))
            return 0;
    return 1;
}

static int row_ok(const struct cella_reach_row *r)
{
    return word_ok(r->id, 0, 0) && word_ok(r->group, 0, 0) && word_ok(r->kind, 0, 0) &&
           word_ok(r->address, 0, 1) && word_ok(r->twin_address, 0, 1) && word_ok(r->name, 0, 1) &&
           word_ok(r->options, 0, 1) && word_ok(r->rule, 0, 1) && word_ok(r->why, 1, 0) &&
           r->port <= 65535 && !r->reserved0 &&
           (r->expected == CELLA_REACH_DENY || r->expected == CELLA_REACH_ALLOW) &&
           (r->proof == CELLA_REACH_BY_SINK || r->proof == CELLA_REACH_BY_CELL);
}

struct expect_ctx {
    void *ctx;
    void (*row)(void *, const struct cella_reach_row *);
    int bad;
};

static void on_row(void *ctx, const struct cella_reach_row *row)
{
    struct expect_ctx *c = ctx;
    struct cella_reach_row out;

    if (c->bad)
        return;
    c->bad = row ? data_take(&out, sizeof(out), ROW_LEAST, CELLA_KIND_REACH_ROW, row) : -EPROTO;
    if (c->bad == 0 && !row_ok(&out))
        c->bad = -EPROTO;
    if (c->bad == 0)
        c->row(c->ctx, &out);
}

int enforcer_expect(struct enforcer *e, void *ctx,
                    void (*row)(void *, const struct cella_reach_row *), struct cella_error *err)
{
    struct expect_ctx ec = {ctx, row, 0};
    struct call c;
    int r;

    if (!e->self || !e->plugin->ops.enforcer.expect)
        return refused(e, "expect", err);
    struct cella_error *own = call_begin(&c, e->plugin, "expect", DEADLINE_CALL);
    r = e->plugin->ops.enforcer.expect(e->self, &ec, on_row, own);
    r = call_end(&c, r, err);
    if (r == 0 && ec.bad)
        r = call_broken(&c, err, "a row of its reach matrix is malformed (%s)", strerror(-ec.bad));
    return r;
}

int enforcer_reach_begin(struct enforcer *e, const struct cella_reach *reach,
                         struct cella_error *err)
{
    struct call c;
    int r;

    if (!e->self || !e->plugin->ops.enforcer.reach_begin || !e->plugin->ops.enforcer.reach_end)
        return refused(e, "reach_begin", err);
    struct cella_error *own = call_begin(&c, e->plugin, "reach_begin", DEADLINE_CALL);
    r = e->plugin->ops.enforcer.reach_begin(e->self, reach, own);
    return call_end(&c, r, err);
}

int enforcer_reach_tighten(struct enforcer *e, struct cella_error *err)
{
    struct call c;
    int r;

    if (!e->self || !e->plugin->ops.enforcer.reach_tighten)
        return refused(e, "reach_tighten", err);
    struct cella_error *own = call_begin(&c, e->plugin, "reach_tighten", DEADLINE_CALL);
    r = e->plugin->ops.enforcer.reach_tighten(e->self, own);
    return call_end(&c, r, err);
}

struct seen_ctx {
    void *ctx;
    void (*seen)(void *, const struct cella_reach_seen *);
    int bad;
};

static void on_seen(void *ctx, const struct cella_reach_seen *seen)
{
    struct seen_ctx *c = ctx;
    struct cella_reach_seen out;

    if (c->bad)
        return;
    c->bad = seen ? data_take(&out, sizeof(out), SEEN_LEAST, CELLA_KIND_REACH_SEEN, seen) : -EPROTO;
    if (c->bad == 0 && (out.port > 65535 || out.reserved0))
        c->bad = -EPROTO;
    if (c->bad == 0 && c->seen)
        c->seen(c->ctx, &out);
}

int enforcer_reach_end(struct enforcer *e, void *ctx,
                       void (*seen)(void *, const struct cella_reach_seen *),
                       struct cella_error *err)
{
    struct seen_ctx sc = {ctx, seen, 0};
    struct call c;
    int r;

    if (!e->self || !e->plugin->ops.enforcer.reach_end)
        return refused(e, "reach_end", err);
    struct cella_error *own = call_begin(&c, e->plugin, "reach_end", DEADLINE_CALL);
    r = e->plugin->ops.enforcer.reach_end(e->self, &sc, on_seen, own);
    r = call_end(&c, r, err);
    if (r == 0 && sc.bad)
        r = call_broken(&c, err, "what it says of its sink is malformed (%s)", strerror(-sc.bad));
    return r;
}

/* ---- build id ---- */

struct build {
    uintptr_t base;
    char *ret;
};

static void note_scan(const uint8_t *p, size_t len, char *ret)
{
    while (len >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) h;
        size_t name, desc, total;
        memcpy(&h, p, sizeof(h));
        name = ((size_t)h.n_namesz + 3) & ~(size_t)3;
        desc = ((size_t)h.n_descsz + 3) & ~(size_t)3;
        total = sizeof(h) + name + desc;
        if (total > len)
            return;
        if (h.n_type == NT_GNU_BUILD_ID && h.n_namesz == 4 && !memcmp(p + sizeof(h), "GNU", 4) &&
            h.n_descsz <= 32)
            hex_encode(p + sizeof(h) + name, h.n_descsz, ret);
        p += total;
        len -= total;
    }
}

static int on_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct build *b = data;
    int i;

    (void)size;
    if (info->dlpi_addr != b->base)
        return 0;
    for (i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            note_scan((const uint8_t *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                      info->dlpi_phdr[i].p_memsz, b->ret);
    return 1;
}

void plugin_build_id(const struct plugin *p, char ret[65])
{
    struct link_map *map = NULL;
    struct build b = {0, ret};

    ret[0] = 0;
    if (!p->dl || dlinfo(p->dl, RTLD_DI_LINKMAP, &map) < 0 || !map)
        return;
    b.base = map->l_addr;
    dl_iterate_phdr(on_object, &b);
}
