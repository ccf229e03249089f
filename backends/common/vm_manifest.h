/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * manifest - machine.json of a snapshot directory: what the machine was, and the files that hold it.
 *
 *   ram        the memory, sparse; mapped by clones and never written to again
 *   state      the devices' state, for the same engine
 *   disk.N     the writable disk from the lowest layer up: the first is raw, the others the engine's own
 */
#ifndef CELLA_MANIFEST_H
#define CELLA_MANIFEST_H

#include "engine.h"
#include "sparse.h"
#include "util.h"

#define MANIFEST_NAME "machine.json"
#define MANIFEST_MAX 65536u
#define MANIFEST_FORMAT 2

struct manifest_file {
    char name[16];
    uint64_t size;
    unsigned char digest[SPARSE_DIGEST];
    int undigested; /* and has none: it is right only as long as its times are */
    /* As it was when the digest was made: the same now means that nobody has changed it since. */
    uint64_t inode;
    int64_t mtime_ns, ctime_ns;
};

struct manifest {
    char engine[64], cpu[64], host_cpu[160], accel[8];
    uint64_t ram_bytes, disk_bytes, root_bytes;
    uint32_t vcpus;
    int network;
    struct manifest_file files[GUEST_LAYERS_MAX + 2];
    uint32_t n_files, n_layers;
};

/* Text with a digest of itself; malloc'd. */
int manifest_write(const struct manifest *m, char **ret_text);
/* Refuses what is not whole, not known or not consistent, in words. */
int manifest_read(const char *text, size_t len, struct manifest *ret, struct cella_error *err);
const struct manifest_file *manifest_find(const struct manifest *m, const char *name);
/* Notes size, digest (unless `brief`) and times of an open file. */
int manifest_note(struct manifest *m, const char *name, int fd, int brief);
/* Is the file what was noted? Reads all of it only when its times are others. */
int manifest_check(const struct manifest_file *f, int fd, struct cella_error *err);

#endif
