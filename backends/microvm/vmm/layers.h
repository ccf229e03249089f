/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * layers - what a disk is made of: one file, or a writable file over files that nobody writes any more.
 *
 * The lowest is the disk, byte for byte. Every other is a sparse file of
 *
 *   struct layer_head      at 0, padded with zeros to LAYER_BLOCK
 *   bitmap                 at LAYER_BLOCK: bit n % 8 of byte n / 8 = the layer has cluster n
 *   clusters               at data_at, each in its place: cluster n at data_at + n * LAYER_CLUSTER
 *
 * A cluster that a layer has hides those of the layers below, and is all there.
 */
#ifndef CELLA_VMM_LAYERS_H
#define CELLA_VMM_LAYERS_H

#include <stdint.h>

#define LAYERS_MAX 16u
#define LAYER_CLUSTER_BITS 16u
#define LAYER_CLUSTER (1ull << LAYER_CLUSTER_BITS)
#define LAYER_BLOCK 4096ull         /* what of the bitmap is written at once */
#define LAYER_DISK_MAX (4ull << 40) /* bytes: 8 MiB of bitmap */
#define LAYER_BUSY 0x80u            /* of owner[]: is being copied or written for the first time */

struct layer_head {
    char magic[8];
    uint32_t version, cluster_bits;
    uint64_t bytes; /* of the disk */
    uint64_t bitmap_bytes, data_at;
};

struct layers {
    uint32_t n;
    int borrow_fd[LAYERS_MAX];
    uint64_t bytes, data_at[LAYERS_MAX];
    uint64_t clusters;
    uint8_t *owner; /* of each cluster: the layer that has it, | LAYER_BUSY. NULL when n is 1 */
    uint8_t *bits;  /* the highest layer's bitmap, in whole blocks */
    uint8_t *dirty; /* of each block of it: the file does not know yet */
    uint64_t blocks;
};

/* Makes an empty file a layer that has nothing. */
int layer_create(int borrow_fd, uint64_t bytes);
/* Reads and judges headers and bitmaps. -EUCLEAN: one of the files is no layer of a disk of so many bytes. */
int layers_open(struct layers *l, const int *borrow_fds, uint32_t n, uint64_t bytes);
void layers_close(struct layers *l);
/* Who has the byte at pos, and where the run of clusters that it has ends, at most `end`. */
uint64_t layers_run(const struct layers *l, uint64_t pos, uint64_t end, uint32_t *ret_layer);
/* The highest layer has clusters [from, to) now. */
void layers_own(struct layers *l, uint64_t from, uint64_t to);
void layers_busy(struct layers *l, uint64_t from, uint64_t to, int busy);

#endif
