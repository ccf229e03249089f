/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * qemu - one QEMU in a jail: what its command line says, its start, its orders, its end. Knows nothing of cells
 * beyond the names of <cella/guest.h>. Used by the backends that let QEMU emulate the machine.
 */
#ifndef CELLA_QEMU_H
#define CELLA_QEMU_H

#include "jail.h"
#include "qmp.h"

#define QEMU_LAYERS_MAX 16
#define QEMU_SHARES_MAX 64
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

struct qemu_share {
    const char *source;
    uint32_t number;
    int writable;
};

/* The machine. A clone's is the same, or its state does not fit. */
struct qemu_machine {
    const char *program; /* of the host */
    const char *shim;    /* ram_shim.c built, of the host */
    const char *name;
    const char *kernel, *initrd; /* initrd NULL: a clone never boots */
    const char *append;          /* kernel command line */
    const char *cpu;
    int kvm;
    uint64_t ram_bytes;
    uint32_t vcpus;
    const uint8_t *mac; /* NULL = no network device */
    uint64_t read_bps, write_bps;
    struct qemu_share shares[QEMU_SHARES_MAX];
    uint32_t n_shares;
    int borrow_root_fd;
    int borrow_layer_fds[QEMU_LAYERS_MAX]; /* lowest first; the first is raw, the others qcow2 */
    uint32_t n_layers;                     /* at least 1; the last is written to */
    int borrow_ram_fd, ram_private;
    int borrow_tap_fd;
    int incoming; /* waits for qemu_load() */
};

struct qemu {
    pid_t pid; /* 0 = none or waited for */
    int pidfd; /* kept after the end, until qemu_fini() */
    struct qmp qmp;
    int ctl_fd;     /* of the shim */
    int stderr_fd;  /* what QEMU complained about */
    int console_fd; /* the guest's serial console, non-blocking */
    int status;     /* of waitpid, when pid is 0 again */
    int migrated;   /* what the last MIGRATION event said: 0 nothing yet, 1 completed, -1 failed */
};
#define QEMU_INIT                                                                                  \
    {                                                                                              \
        .pidfd = -1, .qmp = {.fd = -1}, .ctl_fd = -1, .stderr_fd = -1, .console_fd = -1            \
    }

/* The command line, NULL-terminated; -ENOMEM. */
int qemu_args(const struct qemu_machine *m, char ***ret);
void qemu_args_free(char **args);

struct qemu_place {
    const char *at; /* empty directory for the jail's root */
    uint32_t id;
    const struct cgroup *cgroup;
    int borrow_agent_fd, borrow_guest_fd; /* listening */
};
/* Starts it, stopped before the guest's first instruction, and greets it. On failure nothing is left, and err
   has what QEMU said. */
int qemu_start(struct qemu *q, const struct qemu_machine *m, const struct qemu_place *place,
               struct cella_error *err);
/* SIGKILL and wait. */
void qemu_kill(struct qemu *q);
void qemu_fini(struct qemu *q);
/* Waits for its own end. 1 = ended, 0 = not in time. */
int qemu_wait(struct qemu *q, uint64_t timeout_ns);

int qemu_cont(struct qemu *q, struct cella_error *err);
int qemu_pause(struct qemu *q, struct cella_error *err);
/* The devices' state, without RAM, to a file / from one. The machine is stopped before and after. */
int qemu_save(struct qemu *q, int borrow_fd, struct cella_error *err);
int qemu_load(struct qemu *q, int borrow_fd, struct cella_error *err);
/* From now on the RAM's file is not written to any more. The machine must be stopped. */
int qemu_ram_detach(struct qemu *q, struct cella_error *err);
/* Where QEMU has mapped its RAM; checks that it is mapped as it should be. */
int qemu_ram_find(const struct qemu *q, int borrow_ram_fd, int private, uint64_t ram_bytes,
                  uint64_t *ret_address, struct cella_error *err);
/* Writes the pages that QEMU has copies of, of RAM mapped privately at `address`, to the same offsets of a file. */
int qemu_ram_copies(const struct qemu *q, uint64_t address, uint64_t ram_bytes, int borrow_to,
                    uint64_t *ret_bytes, struct cella_error *err);
int qemu_balloon(struct qemu *q, uint64_t ram_bytes, struct cella_error *err);

#endif
