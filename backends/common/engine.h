/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine - one process in a jail that runs one machine: what the machine is (struct guest), and the orders that every
 * engine takes. Knows nothing of cells beyond the names of <cella/guest.h>. Which engine runs a machine is a
 * choice of the backend; what a machine is, is not.
 */
#ifndef CELLA_ENGINE_H
#define CELLA_ENGINE_H

#include "jail.h"
#include "util.h"

#define GUEST_LAYERS_MAX 16
#define GUEST_SHARES_MAX 64

enum guest_board {
    BOARD_Q35,    /* a PC with PCI */
    BOARD_MICROVM /* virtio-mmio devices and next to nothing else */
};

struct guest_share {
    const char *source;
    uint32_t number;
    int writable;
};

/* The machine. A clone's is the same, or its state does not fit. */
struct guest {
    const char *program; /* of the host: the engine's */
    const char *shim;    /* ram_shim.c built, of the host; NULL for an engine that needs none */
    const char *name;
    enum guest_board board;
    const char *kernel, *initrd; /* initrd NULL: a clone never boots */
    const char *append;          /* kernel command line */
    const char *cpu;
    int kvm;
    uint64_t ram_bytes, disk_bytes;
    uint32_t vcpus;
    const uint8_t *mac; /* NULL = no network device */
    uint64_t read_bps, write_bps;
    struct guest_share shares[GUEST_SHARES_MAX];
    uint32_t n_shares;
    int borrow_root_fd;
    int borrow_layer_fds[GUEST_LAYERS_MAX]; /* lowest first; the first is raw, the others layers */
    uint32_t n_layers;                      /* the last is written to; 0 = they come with fill() */
    int borrow_ram_fd, ram_private;
    int borrow_tap_fd;
    int incoming; /* waits for load() */
};

struct engine_place {
    const char *at; /* empty directory for the jail's root */
    uint32_t id;
    const struct cgroup *cgroup;
    int borrow_listen_fds[2];      /* of the engine's sockets */
    const struct cella_host *host; /* who is told of the steps; may be NULL */
};

struct engine {
    const struct engine_ops *ops;
    int begun;         /* start() was called: there are channels to close */
    pid_t pid;         /* 0 = none or waited for */
    int pidfd;         /* kept after the end, until engine_free() */
    int stderr_fd;     /* what it complained about */
    int console_fd;    /* the guest's serial console, non-blocking */
    int status;        /* of waitpid, when pid is 0 again */
    char identity[64]; /* what a saved state depends on: name, version, board */
};

struct engine_ops {
    const char *name;
    size_t size;         /* of its own struct, which begins with struct engine */
    const char *helper;  /* its program, of this build; NULL = the host's QEMU */
    const char *preload; /* an object of this build for it, or NULL */
    /* Names of unix sockets in scratch that it listens on: one for each port, or one for both. */
    const char *sockets[2];
    int needs_kernel; /* to build a copy's machine, too: anything with a kernel's head */
    int shares;       /* it can show directories of the host */
    uint64_t overhead_kvm_bytes,
        overhead_bytes; /* of its own memory at most, with KVM and without */
    /* Starts it, stopped before the guest's first instruction. On failure nothing is left, and err has what it said. */
    int (*start)(struct engine *e, const struct guest *g, const struct engine_place *place,
                 struct cella_error *err);
    void (*close)(struct engine *e); /* its channels; the process is gone */
    int (*cont)(struct engine *e, struct cella_error *err);
    int (*pause)(struct engine *e, struct cella_error *err);
    /* The devices' state, without RAM, to a file / from one. The machine is stopped before and after. */
    int (*save)(struct engine *e, int borrow_fd, struct cella_error *err);
    int (*load)(struct engine *e, int borrow_fd, struct cella_error *err);
    /* Of a copy that was started without layers and with an empty file as its RAM: both, before load(). What else is
       in `g` is as it was. NULL: a copy's process is started when its content is there. */
    int (*fill)(struct engine *e, const struct guest *g, struct cella_error *err);
    /* From now on the RAM's file is not written to any more. The machine must be stopped. */
    int (*ram_detach)(struct engine *e, struct cella_error *err);
    int (*balloon)(struct engine *e, uint64_t ram_bytes, struct cella_error *err);
    int (*io_limit)(struct engine *e, uint64_t read_bps, uint64_t write_bps,
                    struct cella_error *err);
    /* First words on a connection to one of its sockets. May be NULL. */
    int (*greet)(int borrow_fd, uint32_t port, struct cella_error *err);
    /* A copy, before load(): how many of its ports somebody is connected to. NULL: ports are connected later. */
    int (*ports_open)(struct engine *e, struct cella_error *err);
    void (*drain)(struct engine *e); /* events that nobody waits for; may be NULL */
    /* An empty layer of a disk of that size, as a new file. */
    int (*layer_new)(const char *path, uint64_t bytes, struct cella_error *err);
};

/* NULL: out of memory. */
struct engine *engine_new(const struct engine_ops *ops);
int engine_start(struct engine *e, const struct guest *g, const struct engine_place *place,
                 struct cella_error *err);
/* From now on `name` is done, for --timings: "jail", then "vmm" as soon as its process is there. */
void engine_step(const struct engine_place *place, const char *name);
void engine_free(struct engine *e); /* and its process */
/* SIGKILL and wait. */
void engine_kill(struct engine *e);
/* Waits for its own end. 1 = ended, 0 = not in time. */
int engine_wait(struct engine *e, uint64_t timeout_ns);
/* The last line of what it has complained about, cleaned. */
void engine_complaint(struct engine *e, char *out, size_t cap);
/* Where the engine has mapped its RAM; checks that it is mapped as it should be. */
int engine_ram_find(const struct engine *e, int borrow_ram_fd, int private, uint64_t ram_bytes,
                    uint64_t *ret_address, struct cella_error *err);
/* Writes the pages that it has copies of, of RAM mapped privately at `address`, to the same offsets of a file. */
int engine_ram_copies(const struct engine *e, uint64_t address, uint64_t ram_bytes, int borrow_to,
                      uint64_t *ret_bytes, struct cella_error *err);

/* Copies a text of an engine or the guest: one line, printable ASCII, cut to `cap`. */
void text_clean(const char *s, size_t len, char *out, size_t cap);

extern const struct engine_ops engine_qemu;

#endif
