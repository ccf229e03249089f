/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ram - the guest's memory, and the one place where a number of the guest becomes an address of ours.
 *
 * Guest-physical [0, low) and [4 GiB, 4 GiB + high); between 3 GiB and 4 GiB there are devices. In the file, high
 * follows low without a gap. What is returned may change under the reader at any time: copy, then judge the copy.
 */
#ifndef CELLA_VMM_RAM_H
#define CELLA_VMM_RAM_H

#include <stdint.h>

#define RAM_HOLE (3ull << 30)
#define RAM_HIGH (4ull << 30)

struct ram {
    uint8_t *base; /* one mapping of the whole file */
    uint64_t low, high;
    int borrow_fd;
    int is_private;
};

int ram_map(struct ram *r, int borrow_fd, uint64_t bytes, int is_private);
void ram_unmap(struct ram *r);
/* Over the same addresses, privately; the machine stands still. */
int ram_detach(struct ram *r);
/* Another file of the same length over the same addresses, of a private mapping that nobody has used yet. */
int ram_fill(struct ram *r, int borrow_fd);
/* Where [gpa, gpa + len) is, or NULL when any byte of it is no RAM, or it crosses from low to high. */
void *ram_at(const struct ram *r, uint64_t gpa, uint64_t len);
/* The guest-physical address of what ram_at() has returned. */
uint64_t ram_gpa(const struct ram *r, const void *p);
/* Copies; -EFAULT as above. */
int ram_read(const struct ram *r, uint64_t gpa, void *out, uint64_t len);
int ram_write(const struct ram *r, uint64_t gpa, const void *in, uint64_t len);
/* Gives whole pages back. They read as zeros afterwards, or, of a private mapping, as the file has them: the guest may
   rely on neither (VIRTIO 1.2, 5.5.6.7: no page poison is offered). */
int ram_discard(const struct ram *r, uint64_t gpa, uint64_t len);

#endif
