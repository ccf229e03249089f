/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * maps - address spaces and mounts as text: maps, smaps, mounts, mountinfo.
 * Threads: the kernel lock.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "proc.h"

#define NAME_COLUMN 73

void memory_use(struct mm *mm, struct memory_use *ret)
{
    struct vma_info a;
    uint64_t at = 0, size;

    memset(ret, 0, sizeof(*ret));
    while (mm_next_area(mm, at, &a)) {
        size = a.end - a.start;
        ret->size += size;
        ret->resident += a.resident << PAGE_SHIFT;
        ret->anonymous += (a.file && !a.shared ? a.private_pages
                           : a.file            ? 0
                                               : a.resident)
                          << PAGE_SHIFT;
        if (a.grows_down)
            ret->stack += size;
        else if (a.prot & PROT_WRITE && !a.shared)
            ret->data += size;
        else if (a.prot & PROT_EXEC)
            ret->code += size;
        at = a.end;
    }
}

static void area_line(struct text *text, const struct vma_info *a)
{
    size_t start = text->length;
    char name[PATH_MAX + 16];
    int64_t n = -1;

    text_add(text, "%08" PRIx64 "-%08" PRIx64 " %c%c%c%c %08" PRIx64 " ", a->start, a->end,
             a->prot & PROT_READ ? 'r' : '-', a->prot & PROT_WRITE ? 'w' : '-',
             a->prot & PROT_EXEC ? 'x' : '-', a->shared ? 's' : 'p', a->file ? a->offset : 0);
    if (a->file && a->file->inode)
        text_add(text, "%02x:%02x %" PRIu64 " ", major(a->file->inode->device),
                 minor(a->file->inode->device), a->file->inode->number);
    else
        text_add(text, "00:00 0 ");
    if (a->file && a->file->dentry) {
        struct path path = {.mount = a->file->mount, .dentry = a->file->dentry};
        n = path_name(&path, name, sizeof(name) - 1);
    }
    if (n >= 0 || a->name) {
        text_pad(text, start, NAME_COLUMN);
        text_bytes(text, n >= 0 ? name : a->name, n >= 0 ? (size_t)n : strlen(a->name));
    }
    text_bytes(text, "\n", 1);
}

MAKER(task_maps)
{
    struct task *task = node_task(node);
    struct vma_info a;
    uint64_t at = 0;

    while (task->mm && mm_next_area(task->mm, at, &a)) {
        area_line(text, &a);
        at = a.end;
    }
}

static void figures(struct text *text, uint64_t size, uint64_t resident, uint64_t private_pages,
                    bool whole)
{
    uint64_t rss = resident << 2, own = private_pages << 2, other = rss > own ? rss - own : 0;

    if (whole)
        text_add(text,
                 "Size:           %8" PRIu64 " kB\nKernelPageSize:        4 kB\n"
                 "MMUPageSize:           4 kB\n",
                 size >> 10);
    text_add(text, "Rss:            %8" PRIu64 " kB\nPss:            %8" PRIu64 " kB\n", rss, rss);
    text_add(text, "Shared_Clean:   %8" PRIu64 " kB\nShared_Dirty:          0 kB\n", other);
    text_add(text, "Private_Clean:         0 kB\nPrivate_Dirty:  %8" PRIu64 " kB\n", own);
    text_add(text, "Referenced:     %8" PRIu64 " kB\nAnonymous:      %8" PRIu64 " kB\n", rss, own);
    text_add(text, "LazyFree:              0 kB\nAnonHugePages:         0 kB\n"
                   "ShmemPmdMapped:        0 kB\nFilePmdMapped:         0 kB\n"
                   "Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:       0 kB\n"
                   "Swap:                  0 kB\nSwapPss:               0 kB\n"
                   "Locked:                0 kB\n");
}

MAKER(task_smaps)
{
    struct task *task = node_task(node);
    struct vma_info a;
    uint64_t at = 0;

    while (task->mm && mm_next_area(task->mm, at, &a)) {
        area_line(text, &a);
        figures(text, a.end - a.start, a.resident, a.file ? a.private_pages : a.resident, true);
        text_add(text, "THPeligible:           0\nVmFlags:%s%s%s%s mr mw me%s\n",
                 a.prot & PROT_READ ? " rd" : "", a.prot & PROT_WRITE ? " wr" : "",
                 a.prot & PROT_EXEC ? " ex" : "", a.shared ? " sh" : "", a.grows_down ? " gd" : "");
        at = a.end;
    }
}

MAKER(task_smaps_rollup)
{
    struct task *task = node_task(node);
    struct vma_info a;
    uint64_t at = 0, first = 0, last = 0, resident = 0, own = 0;

    while (task->mm && mm_next_area(task->mm, at, &a)) {
        if (!last)
            first = a.start;
        last = at = a.end;
        resident += a.resident;
        own += a.file ? a.private_pages : a.resident;
    }
    text_add(text,
             "%08" PRIx64 "-%08" PRIx64 " ---p 00000000 00:00 0                          "
             "        [rollup]\n",
             first, last);
    figures(text, 0, resident, own, false);
}

/* ---- mounts ---- */

static void options(struct text *text, const struct mount *m)
{
    text_add(text, "%s%s%s%s,relatime", m->flags & MS_RDONLY ? "ro" : "rw",
             m->flags & MS_NOSUID ? ",nosuid" : "", m->flags & MS_NODEV ? ",nodev" : "",
             m->flags & MS_NOEXEC ? ",noexec" : "");
}

/* Where it is, as the reader sees it. */
static int64_t place(const struct mount *m, char *name, size_t size)
{
    struct path path = {.mount = (struct mount *)(uintptr_t)m, .dentry = m->root};
    int64_t n = path_name(&path, name, size - 1);

    if (n >= 0)
        name[n] = '\0';
    return n;
}

MAKER(task_mounts)
{
    const struct mount *m;
    char name[PATH_MAX + 16];

    (void)node;
    TAILQ_FOREACH(m, &fs_state->mounts, link)
    {
        if (place(m, name, sizeof(name)) < 0)
            continue;
        text_escaped(text, m->source);
        text_add(text, " ");
        text_escaped(text, name);
        text_add(text, " %s ", m->type);
        options(text, m);
        text_add(text, " 0 0\n");
    }
}

MAKER(task_mountinfo)
{
    const struct mount *m;
    char name[PATH_MAX + 16];

    (void)node;
    TAILQ_FOREACH(m, &fs_state->mounts, link)
    {
        if (place(m, name, sizeof(name)) < 0)
            continue;
        text_add(text, "%u %u %u:%u / ", m->id, m->parent ? m->parent->id : 1,
                 major(m->root->inode->device), minor(m->root->inode->device));
        text_escaped(text, name);
        text_add(text, " ");
        options(text, m);
        text_add(text, " - %s ", m->type);
        text_escaped(text, m->source);
        text_add(text, " %s\n", m->flags & MS_RDONLY ? "ro" : "rw");
    }
}
