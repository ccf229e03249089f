/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mmap - the system calls that map, unmap and protect, and the heap.
 * Invariants: what a mapping may ever become (max_prot) is judged by how its file was opened, here and only here.
 * Threads: the kernel lock.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "../fs.h"
#include "space.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#define PROT_ALL (PROT_READ | PROT_WRITE | PROT_EXEC)
#define PROT_SEM_ 8 /* accepted, means nothing on this processor */
#define LOW_END 0x80000000ul
#define VALIDATED                                                                                  \
    (MAP_SHARED | MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_32BIT | MAP_GROWSDOWN |            \
     MAP_DENYWRITE | MAP_EXECUTABLE | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK |   \
     MAP_STACK | MAP_FIXED_NOREPLACE)

struct request {
    uint64_t address, size, offset;
    int prot, max_prot;
    uint64_t flags; /* MAP_* */
    struct file *file;
    struct object *object; /* borrowed of the file, or own_object */
    struct object *own_object;
};

static bool shared(const struct request *request)
{
    return (request->flags & MAP_TYPE) != MAP_PRIVATE;
}

static int judge_flags(const struct request *request)
{
    switch (request->flags & MAP_TYPE) {
    case MAP_SHARED:
    case MAP_PRIVATE:
        break;
    case MAP_SHARED_VALIDATE: /* of files only */
        if (request->flags & MAP_ANONYMOUS)
            return -EINVAL;
        if (request->flags & ~(uint64_t)(VALIDATED | MAP_SHARED_VALIDATE))
            return -EOPNOTSUPP;
        break;
    default:
        return -EINVAL;
    }
    if (request->flags & MAP_HUGETLB)
        return -ENOMEM; /* none are set aside */
    if (request->offset % PAGE_SIZE || request->size == 0)
        return -EINVAL;
    if (request->size > PLATFORM_GUEST_MAX)
        return -ENOMEM;
    if (request->offset + request->size < request->offset)
        return -EOVERFLOW;
    return 0;
}

/* What the file allows, and its object. */
static int judge_file(struct request *request)
{
    struct file *file = request->file;
    bool sealed = file->inode && file->inode->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);

    if (request->flags & MAP_GROWSDOWN)
        return -EINVAL;
    if (!(file->mode & FMODE_READ))
        return -EACCES;
    if (shared(request) && (sealed || !(file->mode & FMODE_WRITE))) {
        if (request->prot & PROT_WRITE)
            return file->mode & FMODE_WRITE ? -EPERM : -EACCES;
        request->max_prot &= ~PROT_WRITE;
    }
    if (file->mount && file->mount->flags & MS_NOEXEC) {
        if (request->prot & PROT_EXEC)
            return -EPERM;
        request->max_prot &= ~PROT_EXEC;
    }
    if (!file_ops[file->kind] || !file_ops[file->kind]->map)
        return -ENODEV;
    return file_ops[file->kind]->map(file, &request->object);
}

static int64_t map(struct request *request)
{
    unsigned flags =
        (request->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) ? MM_FIXED : 0) |
        (request->flags & MAP_FIXED_NOREPLACE ? MM_NOREPLACE : 0) |
        (shared(request) ? MM_SHARED : 0) | (request->flags & MAP_GROWSDOWN ? MM_GROWSDOWN : 0) |
        (request->flags & (MAP_POPULATE | MAP_LOCKED) && !(request->flags & MAP_NONBLOCK)
             ? MM_POPULATE
             : 0);
    struct mm *mm = current->mm;
    uint64_t top = mm->top;
    int64_t at;

    if (shared(request) && !request->object) { /* shared by those it is forked to */
        request->own_object = request->object =
            object_new((request->size + PAGE_SIZE - 1) & PAGE_MASK);
        if (!request->object)
            return -ENOMEM;
        request->offset = 0;
        request->file = NULL;
    }
    if (request->flags & MAP_32BIT && !(flags & MM_FIXED) && top > LOW_END)
        mm->top = LOW_END;
    at = mm_map(mm, request->address, request->size, request->prot, request->max_prot, flags,
                request->object ? request->file : NULL, request->object, request->offset);
    mm->top = top;
    return at;
}

SYSCALL(mmap)
{
    struct request request = {.address = a[0],
                              .size = a[1],
                              .prot = (int)a[2] & PROT_ALL,
                              .max_prot = PROT_ALL,
                              .flags = a[3],
                              .offset = a[5]};
    struct mm *mm = current->mm;
    struct file *file = NULL;
    int64_t at;

    if (request.offset % PAGE_SIZE)
        return -EINVAL;
    if (!(request.flags & MAP_ANONYMOUS)) {
        request.file = file = fd_get_io((int)a[4]);
        if (!file)
            return -EBADF;
    }
    at = judge_flags(&request);
    if (at == 0 && request.flags & MAP_LOCKED && !mm_may_lock(mm, request.size))
        at = -EAGAIN;
    if (at == 0 && request.file)
        at = judge_file(&request);
    if (at == 0)
        at = map(&request);
    if (at > 0 && request.flags & MAP_LOCKED)
        mm_lock(mm, (uint64_t)at, request.size, true);
    object_put(request.own_object);
    if (file)
        file_put(file);
    return at;
}

SYSCALL(munmap)
{
    return mm_unmap(current->mm, a[0], a[1]);
}

static int64_t protect(const uint64_t a[6])
{
    uint64_t grows = a[2] & (PROT_GROWSDOWN | PROT_GROWSUP), start = a[0], size = a[1];
    struct vma *vma;

    if (a[2] & ~(uint64_t)(PROT_ALL | PROT_SEM_ | PROT_GROWSDOWN | PROT_GROWSUP) ||
        grows == (PROT_GROWSDOWN | PROT_GROWSUP) || start % PAGE_SIZE)
        return -EINVAL;
    if (size == 0)
        return 0;
    if (grows) { /* down to where its stack begins */
        vma = area_find(current->mm, start);
        if (!vma)
            return -ENOMEM;
        if (grows == PROT_GROWSUP || !(vma->flags & VMA_GROWSDOWN))
            return -EINVAL;
        size += start - vma->start;
        start = vma->start;
    }
    return mm_protect(current->mm, start, size, (int)a[2] & PROT_ALL);
}

SYSCALL(mprotect)
{
    return protect(a);
}

SYSCALL(pkey_mprotect)
{
    return (int)a[3] == -1 ? protect(a) : -EINVAL;
}

SYSCALL(brk)
{
    struct mm *mm = current->mm;
    uint64_t end = (mm->brk + PAGE_SIZE - 1) & PAGE_MASK,
             wanted = (a[0] + PAGE_SIZE - 1) & PAGE_MASK;

    if (a[0] < mm->brk_start || a[0] >= PLATFORM_GUEST_MAX || !mm->brk_start ||
        mm_exceeds(mm, RLIMIT_DATA, a[0] - mm->brk_start))
        return (int64_t)mm->brk;
    if (wanted < end && mm_unmap(mm, wanted, end - wanted))
        return (int64_t)mm->brk;
    if (wanted > end && (!area_is_free(mm, end, wanted + PAGE_SIZE) ||
                         mm_map(mm, end, wanted - end, PROT_READ | PROT_WRITE, PROT_ALL, MM_FIXED,
                                NULL, NULL, 0) < 0))
        return (int64_t)mm->brk;
    mm->brk = a[0];
    return (int64_t)mm->brk;
}
