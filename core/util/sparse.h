/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sparse - copies and digests of large files that are mostly holes: a guest's memory, a guest's disk.
 */
#ifndef CELLA_SPARSE_H
#define CELLA_SPARSE_H

#include <sys/types.h>

#include "util.h"

#define SPARSE_DIGEST 32

/* Copies `size` bytes into an empty file, holes as holes; a file system that can share blocks does. `from` is read at
   offsets, its position is not used. -errno of what failed, -ENOSPC among it. */
int sparse_copy(int from, int to, uint64_t size);
/* BLAKE2b of the content; holes and zeros are the same. */
int sparse_digest(int fd, uint64_t size, unsigned char ret[SPARSE_DIGEST]);

#endif
