/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * initrd - writes the initramfs of a guest, in the one format that every kernel unpacks: cpio
 * "newc", Documentation/driver-api/early-userspace/buffer-format.
 *
 * Why by hand and not by libarchive: that library stays out of every process but the one that
 * unpacks strangers' archives, and this is one header. Why not compressed: a guest on an emulated
 * processor pays more for unpacking than the host for reading. Invariants: nothing of the host gets
 * in but the bytes of the files named (no times, owners or inode numbers), so an archive can be
 * found again by a digest of its inputs. Threads: no state.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "initrd.h"

#define FILE_MAX (64u << 20)
#define MODULES_MAX 128u

struct archive {
    int fd;
    unsigned ino;
    struct cella_error *err;
};

struct entry {
    const char *name; /* without the first '/' */
    unsigned mode;
    dev_t dev;
    const char *data;
    size_t len;
};

static int put(struct archive *a, const void *p, size_t n)
{
    return write_all(a->fd, p, n) < 0 ? fail(a->err, -errno, "initramfs: %s", strerror(errno)) : 0;
}

/* Header and name together, and the data, each end on a multiple of four. */
static int pad(struct archive *a, size_t n)
{
    return n % 4 ? put(a, "\0\0\0", 4 - n % 4) : 0;
}

static int add(struct archive *a, const struct entry *e)
{
    size_t name = strlen(e->name) + 1;
    char head[111];
    int r;

    snprintf(head, sizeof(head), "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
             ++a->ino, e->mode, 0, 0, S_ISDIR(e->mode) ? 2 : 1, 0, (unsigned)e->len, 0, 0,
             major(e->dev), minor(e->dev), (unsigned)name, 0);
    r = put(a, head, 110);
    if (r == 0)
        r = put(a, e->name, name);
    if (r == 0)
        r = pad(a, 110 + name);
    if (r == 0 && e->len)
        r = put(a, e->data, e->len);
    return r == 0 ? pad(a, e->len) : r;
}

static int add_file(struct archive *a, const char *name, const char *path, unsigned mode)
{
    auto_free char *text = NULL;
    size_t len = 0;
    int r = read_file_at(AT_FDCWD, path, FILE_MAX, &text, &len);

    if (r == 0 && !len)
        r = -ENODATA;
    if (r < 0)
        return fail(a->err, r, "initramfs: %s: %s", path, strerror(-r));
    return add(a, &(struct entry){name, S_IFREG | mode, 0, text, len});
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int add_modules(struct archive *a, const char *const *modules, size_t n)
{
    auto_buf struct buf list = BUF_INIT;
    char name[160];
    size_t i, k;
    int r;

    buf_add(&list, "", 0);
    for (i = 0; i < n; i++) {
        const char *b = base(modules[i]);
        for (k = 0; k < i; k++)
            if (!strcmp(b, base(modules[k])))
                return fail(a->err, -EEXIST, "initramfs: two modules named %s", b);
        if (snprintf(name, sizeof(name), "modules/%s", b) >= (int)sizeof(name) || !*b)
            return fail(a->err, -ENAMETOOLONG, "initramfs: module %s: bad name", modules[i]);
        r = add_file(a, name, modules[i], 0644);
        if (r < 0)
            return r;
        buf_addf(&list, "%s\n", b);
    }
    if (list.oom)
        return fail(a->err, -ENOMEM, "initramfs: out of memory");
    return add(a, &(struct entry){"modules/list", S_IFREG | 0644, 0, list.ptr, list.len});
}

int initrd_write(int fd, const char *init, const char *agent, const char *const *modules,
                 size_t n_modules, struct cella_error *err)
{
    static const char *const dirs[] = {"dev", "modules", "proc", "sys", "cell"};
    const struct entry console = {"dev/console", S_IFCHR | 0600, makedev(5, 1), NULL, 0},
                       null = {"dev/null", S_IFCHR | 0666, makedev(1, 3), NULL, 0},
                       end = {"TRAILER!!!", 0, 0, NULL, 0};
    struct archive a = {fd, 0, err};
    size_t i;
    int r = 0;

    if (n_modules > MODULES_MAX)
        return fail(err, -E2BIG, "initramfs: %zu modules, at most %u", n_modules, MODULES_MAX);
    for (i = 0; r == 0 && i < ARRAY_LEN(dirs); i++)
        r = add(&a, &(struct entry){dirs[i], S_IFDIR | 0755, 0, NULL, 0});
    if (r == 0)
        r = add(&a, &console);
    if (r == 0)
        r = add(&a, &null);
    if (r == 0)
        r = add_file(&a, "init", init, 0755);
    if (r == 0)
        r = add_file(&a, "agent", agent, 0755);
    if (r == 0)
        r = add_modules(&a, modules, n_modules);
    return r == 0 ? add(&a, &end) : r;
}
