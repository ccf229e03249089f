/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * artefact - one directory of <state_dir>/images: an image by its digest.
 *
 *   <key>/root             the tree, owners as in the archive
 *   <key>/image.json       digest, source, and what the tree holds
 *   <key>/root.erofs       the same as a disk, made when a backend first asks for one
 *   <key>/root.erofs.json  its digest, size and time
 *
 * <key> is 64 hex digits of the archive, or "dir-" and 32 of what stat() says of a directory (then
 * root is empty: the directory itself is the tree). Who uses an artefact holds a shared flock on
 * its directory; who removes it needs the exclusive one.
 */
#ifndef CELLA_IMAGE_ARTEFACT_H
#define CELLA_IMAGE_ARTEFACT_H

#include <jansson.h>

#include "image_int.h"

#define ARTEFACT_JSON_MAX 65536u
#define EROFS_FILE "root.erofs"

/* Writes image.json into the open directory of an artefact that is being made. */
int artefact_describe(int dirfd, const char *digest, const char *source, struct cella_error *err);
/* NULL: not there or not readable. New reference. */
json_t *artefact_read(int dirfd, const char *file);
/* Opens and holds it. -ENOENT without words when there is none. */
int artefact_hold(const char *state_dir, const char *key, int *ret_own_fd, struct cella_error *err);
/* Opens it for removal: -EBUSY when somebody holds it. */
int artefact_claim(const struct image_dir *d, const char *key, int *ret_own_fd);
/* Makes the disk of the held artefact from the tree unless it is there; checks size and time. */
int artefact_disk(const char *state_dir, int dirfd, int treefd, struct cella_error *err);
/* 1: there and as it was recorded, 0: not there. */
int artefact_disk_ready(int dirfd, struct cella_error *err);
/* Reads everything again: the tree and the disk are what was recorded. */
int artefact_verify(int dirfd, struct cella_error *err);
int file_sha256(int fd, char ret_hex[65]);
int is_digest_key(const char *s); /* 64 hex digits */

/* A file as {"sha256", "size", "mtime_ns"}, and a look whether it still is that one. */
json_t *file_facts(int dirfd, const char *name, struct cella_error *err);
int file_same(int dirfd, const char *name, const json_t *facts, struct cella_error *err);

#endif
