/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * boot - a kernel file, an initrd and a command line in the guest's memory, and where the first processor starts.
 * Files are read through their descriptors and believed in nothing: they may be any bytes of any length.
 */
#ifndef CELLA_VMM_BOOT_H
#define CELLA_VMM_BOOT_H

#include <linux/kvm.h>

#include "ram.h"
#include "why.h"

#define CMDLINE_MAX 2048u

struct boot_image { /* what a loader found and put into memory */
    uint64_t entry;
    uint64_t end;         /* the kernel needs everything below it */
    uint64_t initrd_max;  /* the last byte of an initrd may be here */
    uint32_t cmdline_max; /* without NUL */
    int pvh;              /* entry is 32-bit code that takes a start_info */
    uint8_t header[0x80]; /* of a bzImage: its setup header */
    uint32_t header_len;  /* 0 = none */
};

struct boot_entry {
    int pvh;
    uint64_t rip;
    uint64_t arg; /* address of the zero page, or of start_info */
};

int elf_load(const struct ram *ram, int borrow_fd, uint64_t size, struct boot_image *ret,
             struct why *w);
int bzimage_load(const struct ram *ram, int borrow_fd, uint64_t size, struct boot_image *ret,
                 struct why *w);

int boot_load(const struct ram *ram, int borrow_kernel_fd, int borrow_initrd_fd,
              const char *cmdline, struct boot_entry *ret, struct why *w);
/* What the first processor starts with. sregs comes filled from KVM_GET_SREGS. */
void boot_regs(const struct boot_entry *e, struct kvm_regs *ret, struct kvm_sregs *sregs);

/* Whole, or -EIO. */
int boot_read(int borrow_fd, uint64_t at, void *out, uint64_t len);

#endif
