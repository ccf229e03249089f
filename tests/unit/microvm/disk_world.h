/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* disk_world - a driver's requests against real files. */
#ifndef TEST_DISK_WORLD_H
#define TEST_DISK_WORLD_H

#include <linux/virtio_blk.h>

#include "driver.h"
#include "layers.h"
#define MIB (1ull << 20)
#define DISK (8 * MIB + 512) /* the last cluster is a short one */
#define ALL (~0ull)
#define HEAD DRV_BUFFERS
#define STATUS (DRV_BUFFERS + 64)
#define DATA (DRV_BUFFERS + 4096)

struct world {
    struct drv d;
    struct block *b;
    int fd[4];
    uint32_t n, slot; /* header and status of each of 32 requests have their own place */
};

int new_file(uint64_t bytes);
void fill(int fd, uint64_t at, uint64_t len, char c);
void open_disk(struct world *w, uint32_t n, int read_only);
void start(struct world *w, uint32_t n, int read_only);
void stop(struct world *w);
void reopen(struct world *w);
void add(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len);
int request(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len);
int write_bytes(struct world *w, uint64_t at, uint64_t len, char c);
void assert_bytes(struct world *w, uint64_t at, uint64_t len, char c);
int zero_request(struct world *w, uint32_t type, uint64_t at, uint64_t len, uint32_t flags);
uint64_t used(int fd);

#endif
