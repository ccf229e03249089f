/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* fakes - what fs/ asks of other rooms, as small as it can be. Guest addresses: those of the test; below 1 MiB none is good. */
#include <stdlib.h>
#include <string.h>

#include "fs/vfs.h"

static bool bad(uint64_t address)
{
    return address < 1ul << 20 || address >= 1ul << 47;
}

int copy_in(struct mm *mm, void *to, uint64_t from, size_t size)
{
    (void)mm;
    if (size && bad(from))
        return -EFAULT;
    memcpy(to, (const void *)(uintptr_t)from, size);
    return 0;
}

int copy_out(struct mm *mm, uint64_t to, const void *from, size_t size)
{
    (void)mm;
    if (size && bad(to))
        return -EFAULT;
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}

int64_t copy_in_some(struct mm *mm, void *to, uint64_t from, size_t size)
{
    return copy_in(mm, to, from, size) ? -EFAULT : (int64_t)size;
}

int64_t copy_out_some(struct mm *mm, uint64_t to, const void *from, size_t size)
{
    return copy_out(mm, to, from, size) ? -EFAULT : (int64_t)size;
}

int zero_out(struct mm *mm, uint64_t to, size_t size)
{
    (void)mm;
    if (bad(to))
        return -EFAULT;
    memset((void *)(uintptr_t)to, 0, size);
    return 0;
}

int64_t copy_in_string(struct mm *mm, char *to, uint64_t from, size_t size)
{
    size_t length;

    (void)mm;
    if (bad(from))
        return -EFAULT;
    length = strnlen((const char *)(uintptr_t)from, size);
    if (length == size)
        return -ENAMETOOLONG;
    memcpy(to, (const char *)(uintptr_t)from, length + 1);
    return (int64_t)length;
}

int guest_word_load(struct mm *mm, uint64_t address, uint32_t *ret_value)
{
    return copy_in(mm, ret_value, address, 4);
}

int guest_word_cas(struct mm *mm, uint64_t address, uint32_t expected, uint32_t value,
                   uint32_t *ret_seen)
{
    (void)mm;
    (void)address;
    (void)expected;
    (void)value;
    (void)ret_seen;
    return -EFAULT;
}

int futex_key(struct mm *mm, uint64_t address, bool shared, struct futex_key *ret_key)
{
    (void)mm;
    (void)address;
    (void)shared;
    (void)ret_key;
    return -EFAULT;
}

/* ---- what is not asked for here ---- */

#define NOT_HERE(name_)                                                                            \
    int64_t name_(const uint64_t a[6]);                                                            \
    __attribute__((weak)) int64_t name_(const uint64_t a[6])                                       \
    {                                                                                              \
        (void)a;                                                                                   \
        return -ENOSYS;                                                                            \
    }

NOT_HERE(sys_execve)
NOT_HERE(sys_execveat)

__attribute__((weak)) void inotify_event(struct inode *inode, struct dentry *dentry, uint32_t mask,
                                         const char *name, uint32_t cookie)
{
    (void)inode;
    (void)dentry;
    (void)mask;
    (void)name;
    (void)cookie;
}
