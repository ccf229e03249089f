/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * shm - shared memory by keys: a segment is an object and a file, which every area that shows it holds.
 * So fork, exit and munmap count attachments without knowing of them: nattch is the file's references without the segment's own.
 * Invariants: a segment that is removed gives up its reference (SHM_DEST), and has its number until the file's end frees it.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "sysv.h"

#define SIZE_MAX_SEGMENT (1ull << 40)

struct segment {
    struct sysv_head head;
    struct object *object;
    struct file *file; /* reference, until it is removed */
    uint64_t size;
    int64_t attached, detached;
    int32_t creator, last;
};

static void shm_release(struct file *file)
{
    struct segment *segment = file->data;

    if (!segment)
        return;
    sysv_remove(&sysv()->shm, &segment->head);
    object_put(segment->object);
    arena_free(segment);
}

static int shm_map(struct file *file, struct object **ret_object)
{
    *ret_object = ((struct segment *)file->data)->object;
    return 0;
}

const struct file_ops shm_ops = {
    .map = shm_map,
    .release = shm_release,
};

static int64_t make(int32_t key, uint64_t size, uint32_t flags)
{
    struct segment *segment;

    if (!size || size > SIZE_MAX_SEGMENT)
        return -EINVAL;
    segment = arena_alloc(ARENA_SYSV, sizeof(*segment));
    if (!segment)
        return -ENOMEM;
    segment->object = object_new((size + PAGE_SIZE - 1) & PAGE_MASK);
    segment->file = segment->object ? file_new(FILE_SHM, O_RDWR) : NULL;
    if (segment->file)
        segment->file->inode = inode_new(INODE_ANON, S_IFREG | (flags & 0777));
    if (!segment->file || !segment->file->inode) {
        if (segment->file)
            file_put(segment->file); /* its data is not set: nothing else goes */
        if (segment->object)
            object_put(segment->object);
        arena_free(segment);
        return -ENOMEM;
    }
    segment->file->data = segment;
    segment->size = size;
    segment->creator = current->process->pid;
    sysv_add(&sysv()->shm, &segment->head, key, flags);
    return segment->head.id;
}

SYSCALL(shmget)
{
    struct sysv_head *head;
    int r = sysv_get(&sysv()->shm, (int32_t)a[0], (uint32_t)a[2], &head);

    if (r < 0)
        return r;
    if (!head)
        return make((int32_t)a[0], a[1], (uint32_t)a[2]);
    return a[1] > ((struct segment *)head)->size ? -EINVAL : head->id;
}

static struct segment *find(uint64_t id)
{
    return (struct segment *)sysv_find(&sysv()->shm, (int32_t)id);
}

SYSCALL(shmat)
{
    struct segment *s = find(a[0]);
    uint32_t flags = (uint32_t)a[2];
    bool write = !(flags & SHM_RDONLY);
    int prot = PROT_READ | (write ? PROT_WRITE : 0) | (flags & SHM_EXEC ? PROT_EXEC : 0);
    uint64_t address = a[1];
    unsigned how = MM_SHARED;
    int64_t r;

    if (!s)
        return -EINVAL;
    if (address % PAGE_SIZE && (flags & SHM_RND))
        address &= PAGE_MASK;
    if (address % PAGE_SIZE || (!address && (flags & SHM_REMAP)))
        return -EINVAL;
    r = sysv_may(&s->head, write ? 6 : 4);
    if (r < 0)
        return r;
    if (address)
        how |= MM_FIXED | (flags & SHM_REMAP ? 0 : MM_NOREPLACE);
    file_get(s->file); /* a failing map may not be the last to hold it */
    r = mm_map(current->mm, address, s->object->size, prot,
               PROT_READ | PROT_EXEC | (write ? PROT_WRITE : 0), how, s->file, s->object, 0);
    if (r >= 0) {
        s->attached = now_seconds();
        s->last = current->process->pid;
    }
    file_put(s->file);
    return r == -EEXIST ? -EINVAL : r;
}

SYSCALL(shmdt)
{
    struct vma_info area;
    struct file *file = NULL;
    struct segment *s;
    uint64_t at = a[0], end;

    if (at % PAGE_SIZE)
        return -EINVAL;
    if (!mm_next_area(current->mm, at, &area) || area.start != at || area.offset || !area.file ||
        area.file->kind != FILE_SHM)
        return -EINVAL;
    file = area.file;
    file_get(file);
    s = file->data;
    s->detached = now_seconds();
    s->last = current->process->pid;
    end = at + s->object->size;
    while (mm_next_area(current->mm, at, &area) && area.start < end) {
        if (area.file == file && area.start - area.offset == a[0])
            mm_unmap(current->mm, area.start, area.end - area.start);
        at = area.end;
    }
    file_put(file);
    return 0;
}

static int64_t status(const struct segment *s, uint64_t guest)
{
    struct shmid_ds ds = {.shm_segsz = s->size,
                          .shm_atime = s->attached,
                          .shm_dtime = s->detached,
                          .shm_ctime = s->head.changed,
                          .shm_cpid = s->creator,
                          .shm_lpid = s->last,
                          .shm_nattch = s->file->refs - !(s->head.mode & SHM_DEST)};
    int r = sysv_may(&s->head, 4);

    if (r < 0)
        return r;
    sysv_show(&s->head, &ds.shm_perm);
    return copy_out(current->mm, guest, &ds, sizeof(ds));
}

/* Its key is free at once; its number and memory go with the last attachment. */
static void remove_segment(struct segment *s)
{
    if (s->head.mode & SHM_DEST)
        return;
    s->head.mode |= SHM_DEST;
    s->head.key = IPC_PRIVATE;
    file_put(s->file);
}

static int64_t info(uint64_t guest)
{
    struct shminfo limits = {
        SIZE_MAX_SEGMENT, 1, SYSV_MAX, SYSV_MAX, SIZE_MAX_SEGMENT / PAGE_SIZE, 0, 0, 0, 0};
    uint32_t i, highest = 0;
    int r = copy_out(current->mm, guest, &limits, sizeof(limits));

    for (i = 0; i < SYSV_MAX; i++)
        highest = sysv()->shm.at[i] ? i : highest;
    return r < 0 ? r : (int64_t)highest;
}

SYSCALL(shmctl)
{
    struct segment *s;
    struct shmid_ds ds;
    int r;

    if ((int)a[1] == IPC_INFO)
        return info(a[2]);
    s = find(a[0]);
    if (!s || (int)a[1] < 0)
        return -EINVAL;
    switch ((int)a[1]) {
    case IPC_STAT:
        return status(s, a[2]);
    case IPC_SET:
        if (copy_in(current->mm, &ds, a[2], sizeof(ds)) < 0)
            return -EFAULT;
        r = sysv_owner(&s->head);
        if (r == 0)
            sysv_change(&s->head, &ds.shm_perm);
        return r;
    case IPC_RMID:
        r = sysv_owner(&s->head);
        if (r == 0)
            remove_segment(s);
        return r;
    case SHM_LOCK:
    case SHM_UNLOCK:
        return sysv_owner(&s->head);
    default:
        return -EINVAL;
    }
}
