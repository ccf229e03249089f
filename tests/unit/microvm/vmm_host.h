/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* vmm_host - the backend's side of cella-vmm, as small as a test needs it. */
#ifndef CELLA_TEST_VMM_HOST_H
#define CELLA_TEST_VMM_HOST_H

#include <sys/types.h>

#include "control.h"

#define VMM_LOG 262144

struct vmm {
    pid_t pid;
    int control, console, errors;
    int vsock_fd; /* listening; the path is `vsock` */
    char vsock[64];
    int status; /* of the end, -1 = it lives */
    size_t log_len, why_len;
    char log[VMM_LOG], why[8192]; /* console; stderr */
};

struct vmm_parts {
    int kernel_fd, initrd_fd, ram_fd, tap_fd, root_fd; /* -1 = /dev/null */
    int layer_fd[VMM_LAYERS_MAX];
    int n_layers;
    struct vmm_config config;
};

/* NULL when a machine can be started here, or why not. */
const char *vmm_missing(void);
void vmm_parts_init(struct vmm_parts *p, const char *kernel, const char *append, uint64_t ram_mib);
void vmm_parts_fini(struct vmm_parts *p);
int vmm_initrd(const char *init); /* an archive with that program as /init */

/* The ELF file inside of a bzImage; `pvh` 0 = without the note that names the PVH entry. -1 = it cannot be had. */
int vmm_unpack(const char *kernel, int pvh);

/* Starts the program; asks nothing. */
void vmm_spawn(struct vmm *v, const struct vmm_parts *p);
/* vmm_spawn() and CONFIG; returns the code of the answer. */
int vmm_start(struct vmm *v, const struct vmm_parts *p);
int vmm_ask(struct vmm *v, const struct vmm_request *q, int fd, struct vmm_reply *ret);
int vmm_op(struct vmm *v, uint32_t op, uint64_t arg, int fd); /* code */
/* Until the console has said it, after `from`; returns where in the log, or NULL at the time limit or the end. */
const char *vmm_says(struct vmm *v, const char *what, const char *from, int ms);
int vmm_ended(struct vmm *v, int ms); /* exit status, 1000 + signal, -1 = not yet */
void vmm_kill(struct vmm *v);

#endif
