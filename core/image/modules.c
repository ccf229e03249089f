/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * modules - reads what depmod wrote, and the head of a bzImage.
 *
 * modules.dep has a line for each module: its file, a colon, and the files it depends on, each
 * before what it depends on itself; so they are loaded from the last to the first. The text comes
 * out of a package: what would lead out of the package's directory is refused. Threads: no state.
 */
#include "modules.h"

#define BZ_MAGIC 0x202u   /* "HdrS" */
#define BZ_VERSION 0x20eu /* u16: where the version is, less 0x200 */

static int path_plain(const char *p, size_t n)
{
    size_t i;

    if (n == 0 || n >= MODULE_PATH_MAX || p[0] == '/')
        return 0;
    for (i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c <= 0x20 || c >= 0x7f || c == '\\' || c == '\'' || c == '"')
            return 0;
        if (c == '.' && (i == 0 || p[i - 1] == '/') &&
            (i + 1 == n || p[i + 1] == '.' || p[i + 1] == '/'))
            return 0;
    }
    return 1;
}

/* Is the file `p` the module `name`? */
static int is_module(const char *p, size_t n, const char *name)
{
    size_t len = strlen(name), at = n, i;

    while (at > 0 && p[at - 1] != '/')
        at--;
    if (n - at < len + 3 || strncmp(p + at + len, ".ko", 3))
        return 0;
    for (i = 0; i < len; i++)
        if (p[at + i] != name[i] &&
            !((p[at + i] == '-' && name[i] == '_') || (p[at + i] == '_' && name[i] == '-')))
            return 0;
    return n - at == len + 3 || p[at + len + 3] == '.';
}

static int add(struct modules *m, const char *p, size_t n, struct cella_error *err)
{
    size_t i;

    if (!path_plain(p, n))
        return fail(err, -EBADMSG, "modules.dep: a file name that cannot be one");
    for (i = 0; i < m->n; i++)
        if (strlen(m->v[i]) == n && !memcmp(m->v[i], p, n))
            return 0;
    if (m->n == MODULES_MAX)
        return fail(err, -E2BIG, "modules.dep: more than %u modules are needed", MODULES_MAX);
    memcpy(m->v[m->n], p, n);
    m->v[m->n++][n] = 0;
    return 0;
}

/* The words of one line from the last to the first, then the module itself. */
static int add_line(struct modules *m, const char *line, size_t colon, size_t end,
                    struct cella_error *err)
{
    size_t at = end;
    int r = 0;

    while (r == 0 && at > colon + 1) {
        size_t stop = at;
        while (at > colon + 1 && line[at - 1] != ' ')
            at--;
        if (stop > at)
            r = add(m, line + at, stop - at, err);
        while (at > colon + 1 && line[at - 1] == ' ')
            at--;
    }
    return r < 0 ? r : add(m, line, colon, err);
}

static int has_builtin(const char *builtin, const char *name)
{
    const char *p = builtin;

    while (p && *p) {
        size_t n = strcspn(p, "\n");
        if (is_module(p, n, name))
            return 1;
        p += n + (p[n] == '\n');
    }
    return 0;
}

int modules_need(const char *dep, const char *builtin, const char *name, struct modules *m,
                 struct cella_error *err)
{
    const char *p = dep;

    while (p && *p) {
        size_t end = strcspn(p, "\n"), colon = strcspn(p, ":\n");
        if (colon < end && is_module(p, colon, name)) {
            int r = add_line(m, p, colon, end, err);
            return r < 0 ? r : 1;
        }
        p += end + (p[end] == '\n');
    }
    return has_builtin(builtin, name) ? 2 : 0;
}

int bzimage_version(const void *image, size_t len, char ret[128], struct cella_error *err)
{
    const unsigned char *p = image;
    size_t at, n = 0;

    if (len < 0x260 || memcmp(p + BZ_MAGIC, "HdrS", 4))
        return fail(err, -EBADMSG, "not a bzImage (an x86 kernel, such as /boot/vmlinuz-…)");
    at = (size_t)p[BZ_VERSION] + ((size_t)p[BZ_VERSION + 1] << 8);
    if (!at || at + 0x200 >= len)
        return fail(err, -EBADMSG, "a bzImage without a version");
    at += 0x200;
    while (at + n < len && n < 127) {
        unsigned char c = p[at + n];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              strchr("._+~-", c)) ||
            !c)
            break;
        ret[n++] = (char)c;
    }
    ret[n] = 0;
    if (n < 3 || ret[0] < '0' || ret[0] > '9')
        return fail(err, -EBADMSG, "a bzImage with an odd version");
    return 0;
}
