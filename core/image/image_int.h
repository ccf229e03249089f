/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* image_int - what the files of this room share. */
#ifndef CELLA_IMAGE_INT_H
#define CELLA_IMAGE_INT_H

#include "image.h"

/* <state_dir>/images, locked: the directory, and the lock that lets one process at a time add to
 * it. */
struct image_dir {
    int fd;
    int lock;
    char *path;
};
int image_dir_open(const char *state_dir, struct image_dir *ret, struct cella_error *err);
/* The same for another directory of the state, such as "kernels". */
int image_dir_open_as(const char *state_dir, const char *sub, struct image_dir *ret,
                      struct cella_error *err);
void image_dir_close(struct image_dir *d);
/* A new directory ".tmp-…" with an empty "root"; a failed maker removes it, a dead one's is removed
 * by the next. */
int image_tmp_new(struct image_dir *d, char ret_name[32], int *ret_rootfd, struct cella_error *err);
/* Renames it to `key`. */
int image_tmp_commit(struct image_dir *d, const char *tmp, const char *key,
                     struct cella_error *err);
void image_tmp_drop(struct image_dir *d, const char *tmp);
int image_ready(const struct image_dir *d, const char *key);

int image_host(const char *state_dir, struct image *img, struct cella_error *err);
int image_tar(const char *state_dir, const char *file, struct image *img, struct cella_error *err);
/* The same with the archive open; `source` is for its record, and for messages. */
int image_tar_fd(const char *state_dir, int fd, const char *source, struct image *img,
                 struct cella_error *err);
/* names.c: a name to its artefact's key; -ENOENT without words when nothing has it. */
int image_name_find(const char *state_dir, const char *name, char ret_key[80],
                    struct cella_error *err);
/* The tree and digest of the artefact; it is held until image_fini(). */
int image_by_key(const char *state_dir, const char *key, struct image *img,
                 struct cella_error *err);

struct unpack_limits {
    uint64_t entries, bytes; /* of the unpacked tree */
    uint64_t ratio;          /* bytes out per byte in … */
    uint64_t ratio_from;     /* … once this many came out */
};
/* Unpacks the archive at fd (from its offset) below rootfd. `ret_sha256` (32 bytes, may be NULL)
   gets the digest of every byte of the file from there. */
int unpack_tar(int fd, int rootfd, const struct unpack_limits *limits, uint8_t *ret_sha256,
               struct cella_error *err);
/* The same in a process of its own, "cella-unpack": no other namespace than an empty network, its
   root changed to rootfd, four capabilities, a system call filter. What it reports is bounded and
   escaped. (unpack_spawn.c, unpack_main.c) */
int unpack_spawn(int fd, int rootfd, const struct unpack_limits *limits, uint8_t ret_sha256[32],
                 struct cella_error *err);
/* Path of the program; NULL = beside the running program. Tests set it. */
extern const char *unpack_program;

/* What cella-unpack writes to its result pipe, once. */
struct unpack_result {
    int32_t code;
    uint8_t sha256[32];
    char message[1024];
};
enum { UNPACK_FD_ARCHIVE = 3, UNPACK_FD_ROOT = 4, UNPACK_FD_RESULT = 5 };

/* "a/./b//c/" to "a/b/c"; "" for the root itself. -EINVAL absolute or "..", -ENAMETOOLONG. */
int entry_path(const char *in, char *out, size_t cap);

#endif
