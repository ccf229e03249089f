/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mounts - which host paths a user may mount into a cell, and the text form "SRC:DST[:ro|rw]".
 * Refused unless the operator's config names exactly that path: anything that is no plain file or
 * directory, /proc /sys /dev /run, credentials of any home, and every directory that contains such
 * a thing. "/" and the state directory are refused always.
 */
#ifndef CELLA_IMAGE_MOUNTS_H
#define CELLA_IMAGE_MOUNTS_H

#include <limits.h>

#include "util.h"

struct config;

struct mount_arg {
    char source[PATH_MAX]; /* as written, absolute */
    char target[PATH_MAX]; /* absolute, normalised, not "/" */
    int writable;          /* default 0 */
};
int mount_parse(const char *text, struct mount_arg *ret, struct cella_error *err);

/* 0, or -EACCES (policy), -ENOENT, -EINVAL with words. Pure: opens nothing for writing. */
int mount_check(const struct config *c, const char *source, int writable, struct cella_error *err);
/* The same, and the path that was checked, free of symbolic links: mount this one, not `source`. */
int mount_resolve(const struct config *c, const char *source, int writable, char ret_real[PATH_MAX],
                  struct cella_error *err);

/* The policy alone, for an existing path without symbolic links: NULL = may be shown to a cell,
   else the reason. *ret_never (may be NULL) = 1 when no config may allow it. `passwd` is NULL for
   /etc/passwd (tests give another). */
const char *path_refused(const char *state_dir, const char *passwd, const char *real, int writable,
                         int *ret_never);

#endif
