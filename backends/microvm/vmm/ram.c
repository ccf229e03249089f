/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ram - one mapping of one file, and the judgement of every guest-physical range.
 *
 * The mapping starts at a multiple of 2 MiB, so that the host may use large pages on both sides. Pages are
 * given back by a hole in the file while the mapping is shared; of a private mapping our copies are dropped, and what
 * the file has is there again: the guest's own from an earlier day. The mapping stays one piece, because the
 * warden reads in /proc how the memory is mapped before it makes a snapshot of it. Threads: any; giving back
 * pages that are in use is the caller's to avoid.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ram.h"

#define UNIT (1ull << 20)
#define ALIGN (2ull << 20)
#define PAGE 4096ull
#define RAM_MIN (32 * UNIT)
#define RAM_MOST (1ull << 40)

static int map_flags(int is_private)
{
    return is_private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE;
}

/* Address space only; what is not needed for the alignment is given back. */
static uint8_t *reserve(uint64_t bytes)
{
    uint8_t *p =
        mmap(NULL, bytes + ALIGN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t skip;

    if (p == MAP_FAILED)
        return NULL;
    skip = (ALIGN - (uintptr_t)p % ALIGN) % ALIGN;
    if (skip)
        munmap(p, skip);
    munmap(p + skip + bytes, ALIGN - skip);
    return p + skip;
}

static int file_fits(int fd, uint64_t bytes)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    return (uint64_t)st.st_size == bytes ? 0 : -EFBIG; /* past the end of a file there is SIGBUS */
}

static int map_over(uint8_t *at, uint64_t bytes, int fd, int is_private)
{
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, map_flags(is_private) | MAP_FIXED, fd, 0) ==
        MAP_FAILED)
        return -errno;
    (void)madvise(at, bytes, MADV_DONTDUMP);
    return 0;
}

int ram_map(struct ram *r, int borrow_fd, uint64_t bytes, int is_private)
{
    uint8_t *at;
    int code;

    if (bytes % UNIT || bytes < RAM_MIN || bytes > RAM_MOST)
        return -ERANGE;
    code = file_fits(borrow_fd, bytes);
    if (code < 0)
        return code;
    at = reserve(bytes);
    if (!at)
        return -errno;
    code = map_over(at, bytes, borrow_fd, is_private);
    if (code < 0) {
        munmap(at, bytes);
        return code;
    }
    r->base = at;
    r->low = bytes < RAM_HOLE ? bytes : RAM_HOLE;
    r->high = bytes - r->low;
    r->borrow_fd = borrow_fd;
    r->is_private = is_private;
    return 0;
}

void ram_unmap(struct ram *r)
{
    if (r->base)
        munmap(r->base, r->low + r->high);
    r->base = NULL;
    r->low = r->high = 0;
}

int ram_detach(struct ram *r)
{
    int code = r->is_private ? 0 : map_over(r->base, r->low + r->high, r->borrow_fd, 1);

    if (code == 0)
        r->is_private = 1;
    return code;
}

int ram_fill(struct ram *r, int borrow_fd)
{
    int code = r->is_private ? file_fits(borrow_fd, r->low + r->high) : -EINVAL;

    if (code == 0)
        code = map_over(r->base, r->low + r->high, borrow_fd, 1);
    if (code == 0)
        r->borrow_fd = borrow_fd;
    return code;
}

void *ram_at(const struct ram *r, uint64_t gpa, uint64_t len)
{
    if (gpa < r->low)
        return len <= r->low - gpa ? r->base + gpa : NULL;
    if (gpa < RAM_HIGH)
        return NULL;
    gpa -= RAM_HIGH;
    if (gpa >= r->high || len > r->high - gpa)
        return NULL;
    return r->base + r->low + gpa;
}

uint64_t ram_gpa(const struct ram *r, const void *p)
{
    uint64_t at = (uint64_t)((const uint8_t *)p - r->base);

    return at < r->low ? at : RAM_HIGH + (at - r->low);
}

int ram_read(const struct ram *r, uint64_t gpa, void *out, uint64_t len)
{
    const void *p = ram_at(r, gpa, len);

    if (!p)
        return -EFAULT;
    memcpy(out, p, len);
    return 0;
}

int ram_write(const struct ram *r, uint64_t gpa, const void *in, uint64_t len)
{
    void *p = ram_at(r, gpa, len);

    if (!p)
        return -EFAULT;
    memcpy(p, in, len);
    return 0;
}

/* @seccomp vmm: fallocate madvise */
int ram_discard(const struct ram *r, uint64_t gpa, uint64_t len)
{
    uint8_t *p = ram_at(r, gpa, len);
    uint64_t skip = (PAGE - gpa % PAGE) % PAGE;

    if (!p)
        return -EFAULT;
    if (len < skip + PAGE)
        return 0;
    p += skip;
    len = (len - skip) / PAGE * PAGE;
    if (!r->is_private)
        return fallocate(r->borrow_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p - r->base,
                         (off_t)len) < 0
                   ? -errno
                   : 0;
    return madvise(p, len, MADV_DONTNEED) < 0 ? -errno : 0;
}
