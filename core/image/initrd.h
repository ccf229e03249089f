/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * initrd - the initramfs of a guest: /init (agent/guest), /agent, the kernel modules below /modules with
 * their order in /modules/list, /dev/console, /dev/null, and the empty directories that init mounts on.
 */
#ifndef CELLA_INITRD_H
#define CELLA_INITRD_H

#include <stddef.h>

#include "util.h"

/* Writes the archive to fd. `modules`: paths of kernel modules, not compressed, each after what it
   depends on; two of the same name are refused. The same files give the same bytes. */
int initrd_write(int fd, const char *init, const char *agent, const char *const *modules,
                 size_t n_modules, struct cella_error *err);

#endif
