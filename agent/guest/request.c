/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * request - the fields of BOOT and SETTLE, into structs of fixed size. The host made them, so what
 * is wrong here is a fault of ours and refused with its name, never guessed at. Threads: no state.
 */
#include "guest.h"

static uint64_t num(const struct field *f)
{
    uint64_t v = 0;
    uint32_t i;

    for (i = f->len; i > 0; i--)
        v = v << 8 | f->p[i - 1];
    return v;
}

static int text(const struct field *f, char *to, size_t cap)
{
    if (f->len >= cap || !f->len || memchr(f->p, 0, f->len))
        return -EINVAL;
    memcpy(to, f->p, f->len);
    to[f->len] = 0;
    return 0;
}

int parse_ipv4(const char *s, uint32_t *ret, const char **ret_rest)
{
    uint8_t b[4];
    int i;

    for (i = 0; i < 4; i++) {
        unsigned v = 0, digits = 0;
        if (i && *s++ != '.')
            return -EINVAL;
        for (; *s >= '0' && *s <= '9' && digits < 3; digits++)
            v = v * 10 + (unsigned)(*s++ - '0');
        if (!digits || v > 255)
            return -EINVAL;
        b[i] = (uint8_t)v;
    }
    memcpy(ret, b, 4);
    *ret_rest = s;
    return 0;
}

int name_ok(const char *s, size_t len)
{
    size_t i;

    for (i = 0; i < len; i++)
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') ||
              (i && (s[i] == '.' || s[i] == '-'))))
            return 0;
    return len > 0 && len < 64;
}

static int address(const struct field *f, struct identity *id)
{
    char s[48];
    const char *rest;
    int64_t prefix;

    if (text(f, s, sizeof(s)) < 0 || parse_ipv4(s, &id->address, &rest) < 0 || *rest != '/')
        return -EINVAL;
    prefix = parse_num(rest + 1);
    if (prefix < 1 || prefix > 32)
        return -EINVAL;
    id->prefix = (uint8_t)prefix;
    id->has_net |= 1;
    return 0;
}

static int gateway(const struct field *f, struct identity *id)
{
    char s[48];
    const char *rest;

    if (text(f, s, sizeof(s)) < 0 || parse_ipv4(s, &id->gateway, &rest) < 0 || *rest)
        return -EINVAL;
    id->has_net |= 2;
    return 0;
}

static int fixed(const struct field *f, uint8_t *to, uint32_t len)
{
    if (f->len != len)
        return -EINVAL;
    memcpy(to, f->p, len);
    return 0;
}

/* -ENOENT: not a field of an identity. */
static int identity_field(const struct field *f, struct identity *id)
{
    switch (f->tag) {
    case CELLA_TAG_EPOCH_NS:
        id->epoch_ns = num(f);
        id->heard_ns = now_ns();
        return f->len == 8 ? 0 : -EINVAL;
    case CELLA_TAG_GENERATION:
        id->generation = num(f);
        return f->len == 8 ? 0 : -EINVAL;
    case CELLA_TAG_ENTROPY:
        id->entropy = f->p;
        id->entropy_len = f->len;
        return f->len >= 64 && f->len <= 512 ? 0 : -EINVAL;
    case CELLA_TAG_HOSTNAME:
        return text(f, id->hostname, sizeof(id->hostname));
    case CELLA_TAG_MACHINE_ID:
        return fixed(f, id->machine_id, 16);
    case CELLA_TAG_BOOT_ID:
        return fixed(f, id->boot_id, 16);
    case CELLA_TAG_NONCE:
        id->has_nonce = 1;
        return fixed(f, id->nonce, CELLA_GUEST_NONCE);
    case CELLA_TAG_MAC:
        id->has_net |= 4;
        return fixed(f, id->mac, 6);
    case CELLA_TAG_ADDRESS:
        return address(f, id);
    case CELLA_TAG_GATEWAY:
        return gateway(f, id);
    default:
        return -ENOENT;
    }
}

static int identity_whole(struct identity *id)
{
    if (!id->epoch_ns || !id->entropy || !id->hostname[0])
        return blame(EINVAL, "a field of the identity is missing", NULL);
    if (id->has_net && id->has_net != 7)
        return blame(EINVAL, "an address needs MAC, ADDRESS and GATEWAY", NULL);
    return 0;
}

static int fields_parse(uint8_t *payload, size_t len, struct identity *ret)
{
    size_t pos = 0;
    struct field f;
    int r;

    *ret = (struct identity){0};
    while ((r = field_next(payload, len, &pos, &f)) > 0)
        if (f.tag != CELLA_TAG_OP && identity_field(&f, ret) < 0)
            return blame(EINVAL, "a field of the identity is not valid", NULL);
    return r < 0 ? blame(EBADMSG, "malformed request", NULL) : 0;
}

int clock_parse(uint8_t *payload, size_t len, struct identity *ret)
{
    int r = fields_parse(payload, len, ret);

    if (r == 0 && (!ret->epoch_ns || !ret->entropy))
        r = blame(EINVAL, "CLOCK needs EPOCH_NS and ENTROPY", NULL);
    return r;
}

int identity_parse(uint8_t *payload, size_t len, struct identity *ret)
{
    int r = fields_parse(payload, len, ret);

    if (r < 0)
        return r;
    if (!ret->has_nonce)
        return blame(EINVAL, "SETTLE needs NONCE", NULL);
    return identity_whole(ret);
}

static int mount_field(const struct field *f, struct boot *b)
{
    struct guest_mount *m = &b->mounts[b->n_mounts];
    struct field part = *f;

    if (b->n_mounts == MOUNTS_MAX || f->len < 9)
        return -EINVAL;
    part.len = 4;
    m->number = (uint32_t)num(&part);
    part.p += 4;
    m->flags = (uint32_t)num(&part);
    part.p += 4;
    part.len = f->len - 8;
    if (text(&part, m->target, sizeof(m->target)) < 0 || m->target[0] != '/')
        return -EINVAL;
    b->n_mounts++;
    return 0;
}

static int cover_field(const struct field *f, struct boot *b)
{
    struct guest_cover *c = &b->covers[b->n_covers];
    char s[sizeof(c->name) + sizeof(c->path)], *colon;

    if (b->n_covers == COVERS_MAX || text(f, s, sizeof(s)) < 0 || !(colon = strchr(s, ':')) ||
        !name_ok(s, (size_t)(colon - s)) || colon[1] != '/' || strlen(colon + 1) >= sizeof(c->path))
        return -EINVAL;
    *colon = 0;
    strcpy(c->name, s);
    strcpy(c->path, colon + 1);
    b->n_covers++;
    return 0;
}

static int boot_field(const struct field *f, struct boot *b)
{
    switch (f->tag) {
    case CELLA_TAG_OP:
        return 0;
    case CELLA_TAG_MOUNT:
        return mount_field(f, b);
    case CELLA_TAG_COVER:
        return cover_field(f, b);
    case CELLA_TAG_PIDS:
        b->pids = num(f);
        return f->len == 8 ? 0 : -EINVAL;
    case CELLA_TAG_MEMORY:
        b->memory = num(f);
        return f->len == 8 ? 0 : -EINVAL;
    case CELLA_TAG_READONLY:
        b->readonly = num(f) != 0;
        return f->len == 4 ? 0 : -EINVAL;
    default:
        return identity_field(f, &b->id);
    }
}

int boot_parse(uint8_t *payload, size_t len, struct boot *ret)
{
    size_t pos = 0;
    struct field f;
    int r;

    memset(ret, 0, sizeof(*ret));
    while ((r = field_next(payload, len, &pos, &f)) > 0)
        if (boot_field(&f, ret) < 0)
            return blame(EINVAL, "a field of BOOT is not valid", NULL);
    return r < 0 ? blame(EBADMSG, "malformed BOOT", NULL) : identity_whole(&ret->id);
}
