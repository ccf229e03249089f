/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* engine_qemu - what engine_qemu.c and its command line share. */
#ifndef CELLA_ENGINE_QEMU_H
#define CELLA_ENGINE_QEMU_H

#include "engine.h"

#define QEMU_RAM_PATH "/cella/ram" /* answered by ram_shim.c */

/* Descriptors that QEMU starts with. */
enum qemu_fd {
    QEMU_FD_STDERR = 2,
    QEMU_FD_QMP,
    QEMU_FD_AGENT, /* listening sockets */
    QEMU_FD_GUEST,
    QEMU_FD_CONSOLE,
    QEMU_FD_RAM,
    QEMU_FD_RAM_CTL,
    QEMU_FD_TAP,
    QEMU_FD_ROOT,
    QEMU_FD_LAYERS
};

/* The command line, NULL-terminated; -ENOMEM. */
int qemu_args(const struct guest *g, char ***ret);
void qemu_args_free(char **args);

#endif
