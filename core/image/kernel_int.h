/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* kernel_int - what kernel.c, kernel_apt.c and boot.c share. */
#ifndef CELLA_IMAGE_KERNEL_INT_H
#define CELLA_IMAGE_KERNEL_INT_H

#include <jansson.h>

#include "util.h"

int kernel_version_valid(const char *s);
/* The directory of kernels, locked; `version` is a possible name in it. */
struct image_dir;
int kernels_open(const char *state_dir, const char *version, struct image_dir *ret,
                 struct cella_error *err);
/* Taken out of its package by a cella that looked for other modules than this one. */
int kernel_stale(const json_t *record);
/* Out of an open package; `from` and `source` are for its record. */
int kernel_from_package(const char *state_dir, int deb, const char *from, const char *source,
                        char ret_version[128], struct cella_error *err);

#endif
