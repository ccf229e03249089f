/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* names - private to core/image: the records of names. */
#ifndef CELLA_IMAGE_NAMES_H
#define CELLA_IMAGE_NAMES_H

#include <jansson.h>

#include "image_int.h"

int name_check(const char *name, struct cella_error *err);
/* The directory of names, made when it is not there; -errno. */
int names_open(const struct image_dir *d);
/* `own_how` says how the image came to be. */
int name_set(const char *state_dir, const char *name, const char *key, json_t *own_how,
             struct cella_error *err);

#endif
