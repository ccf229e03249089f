/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * snapshot - what is kept of a cell that goes on running: <state_dir>/snapshots.
 *
 *   <id>/manifest.json   versions, digests, the request a copy is made with, sizes of the files
 *   <id>/policy.json     the text that was in force
 *   <id>/machine/        the backend's files, whatever they are
 *
 * A snapshot is made as ".tmp-<id>" and renamed; what has its name is whole and never changes.
 * Who makes or uses one holds a lock on its directory (exclusive, shared): a free ".tmp-" is what a
 * dead maker left. A hidden one belongs to a fork: it goes with its last user.
 */
#ifndef CELLA_SNAPSHOT_H
#define CELLA_SNAPSHOT_H

#include <jansson.h>

#include "config.h"
#include "util.h"

#define SNAPSHOT_FORMAT 1
#define SNAPSHOT_MANIFEST "manifest.json"
#define SNAPSHOT_MACHINE "machine"
#define SNAPSHOT_POLICY "policy.json"

struct snapshot {
    char id[CELLA_ID_LEN + 1];
    char path[512]; /* of its directory */
    int dirfd;      /* locked, shared */
    json_t *manifest;
};
#define SNAPSHOT_INIT                                                                              \
    {                                                                                              \
        "", "", -1, NULL                                                                           \
    }
void snapshot_close(struct snapshot *s);

/* Asks the cell's warden. `name` may be NULL. `digests`: of every file, for snapshot_verify(). */
int snapshot_take(const struct config *c, const char *cell, const char *name, int hidden,
                  struct snapshot *ret, struct cella_error *err);
/* By name, id or unique prefix (4 or more) of an id. */
int snapshot_find(const char *state_dir, const char *name_or_id, struct snapshot *ret,
                  struct cella_error *err);
/* Opens the directory `path` below state_dir, checks that its files are as they were made. */
int snapshot_open(const char *state_dir, const char *path, struct snapshot *ret,
                  struct cella_error *err);
/* Array of manifests with "id", "apparent", "unique" (bytes) and "in_use"; hidden ones, too. */
int snapshot_list(const char *state_dir, json_t **ret, struct cella_error *err);
int snapshot_remove(const char *state_dir, const char *name_or_id, struct cella_error *err);
/* Every file again by its digest. */
int snapshot_verify(const struct snapshot *s, struct cella_error *err);
/* Removes it if it is hidden and nobody else uses it; closes it in any case. */
void snapshot_release(const char *state_dir, struct snapshot *s);
/* The create request of a copy: borrowed members are the manifest's, "snapshot" is its path. */
json_t *snapshot_request(const struct snapshot *s);
/* 1 when a snapshot needs the image of that digest. */
int snapshot_uses(const char *state_dir, const char *digest, char who[128]);
/* What dead makers and forks left. Returns how many. */
int snapshot_gc(const char *state_dir, int dry_run, void (*found)(void *ctx, const char *what),
                void *ctx, struct cella_error *err);

/* ---- for tests, and shared by the two sides ---- */
/* Why a manifest cannot be used: format, versions, members of the wrong type. -EBADMSG, -ENOTSUP */
int manifest_check(const json_t *manifest, struct cella_error *err);
/* Array of {"name","size","mtime_ns","sha256"?} of the files below dirfd, without the manifest. */
int manifest_files(int dirfd, int digests, json_t **ret, struct cella_error *err);
int manifest_files_same(int dirfd, const json_t *files, int digests, struct cella_error *err);

#endif
