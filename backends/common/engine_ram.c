/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ram - the guest's RAM as the kernel knows it, not as its engine says. /proc/PID/maps tells where the file is
 * mapped, whole, and whether writes go to it or to copies; /proc/PID/pagemap which pages are copies. Threads: none.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "engine.h"

#define MAPS_MAX (4u << 20)

struct mapping {
    uint64_t from, to, offset, inode;
    unsigned major, minor;
    char perms[5];
};

static int line_read(const char *line, struct mapping *m)
{
    unsigned long long from, to, offset, inode;

    if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu", &from, &to, m->perms, &offset, &m->major,
               &m->minor, &inode) != 7)
        return -EBADMSG;
    m->from = from;
    m->to = to;
    m->offset = offset;
    m->inode = inode;
    return 0;
}

int engine_ram_find(const struct engine *e, int borrow_ram_fd, int private, uint64_t ram_bytes,
                    uint64_t *ret_address, struct cella_error *err)
{
    char path[48];
    auto_free char *text = NULL;
    struct mapping m;
    struct stat st;
    uint64_t at = 0, len = 0;
    char *line;
    int r;

    snprintf(path, sizeof(path), "/proc/%d/maps", (int)e->pid);
    r = read_file_at(AT_FDCWD, path, MAPS_MAX, &text, NULL);
    if (r < 0 || fstat(borrow_ram_fd, &st) < 0)
        return fail(err, r < 0 ? r : -errno, "memory of the guest: %s",
                    strerror(r < 0 ? -r : errno));
    for (line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (line_read(line, &m) < 0 || m.inode != st.st_ino || m.major != major(st.st_dev) ||
            m.minor != minor(st.st_dev))
            continue;
        if (m.perms[3] != (private ? 'p' : 's') || m.offset != len || (len && m.from != at + len))
            return fail(err, -EPROTO,
                        "memory of the guest: %s has mapped it in another way than it was told; "
                        "is this a version that cella does not know?",
                        e->ops->name);
        if (!len)
            at = m.from;
        len += m.to - m.from;
    }
    if (len != ram_bytes)
        return fail(err, -EPROTO,
                    "memory of the guest: %s has mapped %llu bytes of its file instead of %llu",
                    e->ops->name, (unsigned long long)len, (unsigned long long)ram_bytes);
    *ret_address = at;
    return 0;
}

/* ---- copies ---- */

#define PAGE 4096u
#define WINDOW 4096u /* pages looked at in one go */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_FILE (1ull << 61) /* the file's own page, or shared memory */

static int is_copy(uint64_t entry)
{
    return (entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entry & ENTRY_FILE);
}

struct copies {
    int pagemap, mem, to;
    uint64_t address, bytes;
    char *room; /* WINDOW pages */
};

static int run_write(struct copies *c, uint64_t page, uint64_t n)
{
    size_t len = (size_t)n * PAGE;
    ssize_t got = pread(c->mem, c->room, len, (off_t)(c->address + page * PAGE));

    if (got != (ssize_t)len)
        return got < 0 ? -errno : -EIO;
    got = pwrite(c->to, c->room, len, (off_t)(page * PAGE));
    if (got != (ssize_t)len)
        return got < 0 ? -errno : -ENOSPC;
    c->bytes += len;
    return 0;
}

static int window_write(struct copies *c, uint64_t first, uint64_t n)
{
    uint64_t entries[WINDOW], i, from;
    size_t len = (size_t)n * sizeof(entries[0]);
    ssize_t got =
        pread(c->pagemap, entries, len, (off_t)((c->address / PAGE + first) * sizeof(entries[0])));
    int r = got == (ssize_t)len ? 0 : got < 0 ? -errno : -EIO;

    for (i = 0; r == 0 && i < n; i++) {
        if (!is_copy(entries[i]))
            continue;
        for (from = i; i < n && is_copy(entries[i]); i++)
            ;
        r = run_write(c, first + from, i - from);
    }
    return r;
}

int engine_ram_copies(const struct engine *e, uint64_t address, uint64_t ram_bytes, int borrow_to,
                      uint64_t *ret_bytes, struct cella_error *err)
{
    struct copies c = {.pagemap = -1, .mem = -1, .to = borrow_to, .address = address};
    uint64_t pages = ram_bytes / PAGE, at;
    char path[48];
    int r = 0;

    snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)e->pid);
    c.pagemap = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)e->pid);
    c.mem = open(path, O_RDONLY | O_CLOEXEC);
    if (c.pagemap < 0 || c.mem < 0)
        r = -errno;
    c.room = malloc((size_t)WINDOW * PAGE);
    if (!c.room)
        r = -ENOMEM;
    for (at = 0; r == 0 && at < pages; at += WINDOW)
        r = window_write(&c, at, pages - at < WINDOW ? pages - at : WINDOW);
    free(c.room);
    if (c.pagemap >= 0)
        close(c.pagemap);
    if (c.mem >= 0)
        close(c.mem);
    *ret_bytes = c.bytes;
    return r < 0 ? fail(err, r, "memory of the guest: %s", strerror(-r)) : 0;
}
