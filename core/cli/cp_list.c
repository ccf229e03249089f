/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cp_list - what a cell says is in a directory of its. Every byte is the cell's: an entry's name
 * becomes a name on the host, so it must be one component. Threads: none.
 */
#include "cp_list.h"

#define ENTRY_MAX 65536u
#define ENTRIES_MAX 100000u

int cp_name_safe(const char *name, size_t len)
{
    if (len == 0 || len > 255)
        return 0;
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return 0;
    return !memchr(name, '/', len) && !memchr(name, 0, len);
}

static int entry_parse(const uint8_t *p, size_t len, struct cp_entry *e, struct cella_error *err)
{
    const char *name;
    size_t n;

    if (field_get_str(p, len, CELLA_TAG_NAME, &name, &n) < 0 ||
        field_get_u32(p, len, CELLA_TAG_TYPE, &e->type) < 0)
        return fail(err, -EBADMSG, "the cell's listing is malformed");
    if (!cp_name_safe(name, n)) {
        auto_buf struct buf safe = BUF_INIT;
        buf_json_string(&safe, name, n > 100 ? 100 : n);
        return fail(err, -EBADMSG, "the cell lists a file named %s, which is no file name; refused",
                    safe.ptr ? safe.ptr : "?");
    }
    memcpy(e->name, name, n);
    e->name[n] = 0;
    if (field_get_u32(p, len, CELLA_TAG_MODE, &e->mode) < 0)
        e->mode = 0644;
    if (field_get_u64(p, len, CELLA_TAG_SIZE, &e->size) < 0)
        e->size = 0;
    return 0;
}

int cp_list_parse(const uint8_t *p, size_t len, int (*each)(void *ctx, const struct cp_entry *e),
                  void *ctx, struct cella_error *err)
{
    unsigned count = 0;
    int r;

    while (len) {
        struct cp_entry e;
        uint32_t n;
        if (len < 4)
            return fail(err, -EBADMSG, "the cell's listing is cut off");
        n = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        if (n > ENTRY_MAX || n > len - 4)
            return fail(err, -EBADMSG, "the cell's listing is cut off");
        if (++count > ENTRIES_MAX)
            return fail(err, -EFBIG, "the cell lists more than %u files in one directory",
                        ENTRIES_MAX);
        r = entry_parse(p + 4, n, &e, err);
        if (r == 0)
            r = each(ctx, &e);
        if (r < 0)
            return r;
        p += 4 + n;
        len -= 4 + n;
    }
    return 0;
}
