/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kernel - the kernels that guests run, in <state_dir>/kernels.
 *
 *   <version>/vmlinuz          bzImage
 *   <version>/modules/NAME.ko  decompressed, what a guest may need
 *   <version>/kernel.json      digests, load order of the modules, where it came from
 *   <version>/initrd-<hex>     initramfs with the init and the agent of this build, made when needed
 *   default                    link to the version that was added last, or chosen
 */
#ifndef CELLA_IMAGE_KERNEL_H
#define CELLA_IMAGE_KERNEL_H

#include <jansson.h>

#include "image.h"
#include "run.h"

#define KERNEL_META "linux-image-6.12-amd64"

/* Debian's kernel package by apt, its signature checks on. `package` NULL: KERNEL_META. */
int kernel_fetch(const char *state_dir, const char *package, run_line *line, void *ctx,
                 char ret_version[128], struct cella_error *err);
/* From a package file, or from a kernel that has all it needs built in; `aside`: the default stays what it is. */
int kernel_from_deb(const char *state_dir, const char *file, char ret_version[128],
                    struct cella_error *err);
int kernel_from_file(const char *state_dir, const char *file, int aside, char ret_version[128],
                     struct cella_error *err);
/* Array of kernel.json with "version", "default", "bytes", "in_use". */
int kernel_list(const char *state_dir, json_t **ret, struct cella_error *err);
/* A cell holds its kernel; a copy runs without. -EBUSY, -ENOENT. */
int kernel_remove(const char *state_dir, const char *version, struct cella_error *err);

/* Of cells that name none. -ENOENT. */
int kernel_use(const char *state_dir, const char *version, struct cella_error *err);

/* Fills kernel, initrd, kernel_version, kernel_digest of `img`, and holds them. `version` NULL: the default. */
int kernel_for_image(const char *state_dir, const char *version, struct image *img,
                     struct cella_error *err);
/* Is it there? Without effect. */
int kernel_possible(const char *state_dir, const char *version, struct cella_error *err);

#endif
