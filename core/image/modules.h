/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* modules - which files of a kernel's modules are needed, in load order. Text in, text out. */
#ifndef CELLA_IMAGE_MODULES_H
#define CELLA_IMAGE_MODULES_H

#include "util.h"

#define MODULES_MAX 128u
#define MODULE_PATH_MAX 256u

struct modules {
    char v[MODULES_MAX][MODULE_PATH_MAX]; /* as modules.dep has them: kernel/fs/erofs/erofs.ko.xz */
    size_t n;
};

/* modules.dep and modules.builtin as text; `dep` may be compressed names (.ko, .ko.xz, .ko.gz,
   .ko.zst). Adds the module and before it what it depends on. '-' and '_' are the same.
   1: added or there already, 2: built in, 0: the kernel has none. -EBADMSG: the text is damaged. */
int modules_need(const char *dep, const char *builtin, const char *name, struct modules *m,
                 struct cella_error *err);

/* The version in a bzImage's header, "6.12.117+deb12-cloud-amd64". -EBADMSG */
int bzimage_version(const void *image, size_t len, char ret[128], struct cella_error *err);

#endif
