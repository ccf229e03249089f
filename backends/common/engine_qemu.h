/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* engine_qemu - what engine_qemu.c, its command line and the late content of a copy share. */
#ifndef CELLA_ENGINE_QEMU_H
#define CELLA_ENGINE_QEMU_H

#include "engine.h"
#include "qmp.h"

#define QEMU_RAM_PATH "/cella/ram" /* answered by ram_shim.c */
#define QEMU_NO_DISK "nothing"     /* node below the writable disk of a machine without content */
#define QEMU_ORDER (8 * QMP_SECOND)

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
    QEMU_FD_LAYERS /* of a copy: numbers of the sets that its layers are sent into */
};

struct qemu {
    struct engine base;
    struct qmp qmp;
    int ctl_fd;   /* of the shim */
    int migrated; /* what the last MIGRATION event said: 0 nothing yet, 1 completed, -1 failed */
};

/* The command line, NULL-terminated; -ENOMEM. */
int qemu_args(const struct guest *g, char ***ret);
void qemu_args_free(char **args);

/* An order for the shim, with a descriptor when it is >= 0. */
int qemu_shim(struct qemu *q, char order, int borrow_fd, struct cella_error *err);
/* engine_ops.fill */
int qemu_fill(struct engine *e, const struct guest *g, struct cella_error *err);

#endif
