/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * bzimage - a compressed Linux kernel, started at its 64-bit entry: the part behind the setup sectors goes to the
 * address it prefers, and unpacks itself there. The setup header of the file, cut to what it says it has, becomes
 * part of the zero page. Threads: none of its own.
 */
#include <asm/bootparam.h>
#include <errno.h>
#include <string.h>

#include "boot.h"
#include "layout.h"

#define SECTOR 512u
#define HEADER_AT 0x1f1u
#define JUMP_AT 0x201u   /* its value + 0x202 is the header's end */
#define MAGIC 0x53726448 /* "HdrS" */
#define ENTRY64 0x200u

static int header_judge(const struct setup_header *h, struct why *w)
{
    if (h->boot_flag != 0xaa55 || h->header != MAGIC)
        return why(w, -ENOEXEC, "kernel: neither an ELF file nor a bzImage");
    if (h->version < 0x20c || !(h->xloadflags & XLF_KERNEL_64))
        return why(w, -ENOEXEC,
                   "kernel: a bzImage of boot protocol 0x%x without a 64-bit entry; version 0x20c "
                   "(Linux 3.8) is the oldest that can be started",
                   h->version);
    if (!(h->loadflags & LOADED_HIGH))
        return why(w, -ENOEXEC, "kernel: a zImage, which is loaded below 1 MiB");
    return 0;
}

static int place(const struct ram *ram, const struct setup_header *h, uint64_t body,
                 uint64_t *ret_at, uint64_t *ret_end, struct why *w)
{
    uint64_t at = h->relocatable_kernel ? h->pref_address : AT_KERNEL, need;

    if (at < AT_KERNEL)
        at = AT_KERNEL;
    need = h->init_size > body ? h->init_size : body;
    if (at >= ram->low || !ram_at(ram, at, need))
        return why(w, -ENOMEM,
                   "kernel: needs %llu MiB above 0x%llx to unpack itself, and there are %llu MiB "
                   "of memory",
                   (unsigned long long)(need >> 20), (unsigned long long)at,
                   (unsigned long long)((ram->low + ram->high) >> 20));
    *ret_at = at;
    *ret_end = at + need;
    return 0;
}

int bzimage_load(const struct ram *ram, int borrow_fd, uint64_t size, struct boot_image *ret,
                 struct why *w)
{
    uint8_t head[HEADER_AT + sizeof(ret->header)];
    struct setup_header h;
    uint64_t setup, at = 0;
    int r;

    if (size < sizeof(head) || boot_read(borrow_fd, 0, head, sizeof(head)) < 0)
        return why(w, -ENOEXEC, "kernel: too short for a kernel (%llu bytes)",
                   (unsigned long long)size);
    memcpy(&h, head + HEADER_AT, sizeof(h));
    r = header_judge(&h, w);
    if (r < 0)
        return r;
    setup = ((uint64_t)(h.setup_sects ? h.setup_sects : 4) + 1) * SECTOR;
    if (size <= setup + ENTRY64)
        return why(w, -ENOEXEC, "kernel: the bzImage ends behind its setup sectors");
    r = place(ram, &h, size - setup, &at, &ret->end, w);
    if (r < 0)
        return r;
    if (boot_read(borrow_fd, setup, ram_at(ram, at, size - setup), size - setup) < 0)
        return why(w, -EIO, "kernel: cannot be read");
    ret->entry = at + ENTRY64;
    ret->initrd_max = h.initrd_addr_max;
    ret->cmdline_max = h.cmdline_size;
    ret->header_len = 0x202u + head[JUMP_AT] - HEADER_AT;
    if (ret->header_len > sizeof(h))
        ret->header_len = sizeof(h);
    h.code32_start = (uint32_t)at;
    memcpy(ret->header, &h, ret->header_len);
    return 0;
}
