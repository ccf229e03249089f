/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * control - what the backend (in the warden) and cella-vmm (in its jail) say to each other, over a SOCK_SEQPACKET pair.
 * One request, one answer; both come from one build, and neither trusts the other: the guest may have taken the VMM
 * over, so the backend bounds and cleans what comes back, and the VMM judges every figure before it uses it.
 *
 * The first request is CONFIG; the VMM then builds the machine and stands still. A VMM that ends by itself wrote one
 * line about why to VMM_FD_STDERR; exit status 0 = the guest switched off or asked for a reset, 1 = the guest
 * broke (triple fault, a device driven out of its rules), 2 = the host's side failed.
 */
#ifndef CELLA_VMM_CONTROL_H
#define CELLA_VMM_CONTROL_H

#include <stdint.h>

#define VMM_LAYERS_MAX 16u
#define VMM_VCPUS_MAX 32u

/* Descriptors that cella-vmm starts with. The paths of its jail are /cella/kernel and /cella/initrd: none, they
   are descriptors too. */
enum vmm_fd {
    VMM_FD_STDERR = 2,
    VMM_FD_CONTROL,
    VMM_FD_KVM,
    VMM_FD_KERNEL,  /* readable; -1 (/dev/null) in a copy */
    VMM_FD_INITRD,  /* likewise */
    VMM_FD_RAM,     /* file of exactly ram_bytes; opened for reading only in a copy */
    VMM_FD_CONSOLE, /* a pipe, non-blocking: what does not fit is the guest's loss */
    VMM_FD_VSOCK,   /* listening unix stream socket of the vsock multiplexer */
    VMM_FD_TAP,     /* or /dev/null */
    VMM_FD_ROOT,    /* image, readable */
    VMM_FD_LAYERS   /* n_layers of them, the lowest first; the last is writable */
};

#define VMM_CONFIG_NET 1u      /* there is a tap */
#define VMM_CONFIG_PRIVATE 2u  /* RAM is mapped privately: the file is never written */
#define VMM_CONFIG_INCOMING 4u /* waits for LOAD; boots nothing */
#define VMM_CONFIG_TIMINGS 8u  /* where time goes, to stderr */

struct vmm_config {
    uint32_t size; /* of this struct: both sides are of one build */
    uint32_t flags;
    uint64_t ram_bytes; /* a multiple of 1 MiB, at least 32 MiB */
    uint32_t vcpus;     /* 1 to VMM_VCPUS_MAX */
    uint32_t n_layers; /* 1 to VMM_LAYERS_MAX; 0 with INCOMING: MEMORY and LAYER come before LOAD */
    uint64_t disk_bytes;
    uint64_t read_bps, write_bps; /* of the writable disk, 0 = no limit */
    uint64_t rx_bps, tx_bps;      /* of the network, 0 = no limit */
    uint8_t mac[6];
    uint8_t generation[16]; /* VM generation id of this life */
    uint8_t pad[2];
    char append[512]; /* kernel command line, NUL-terminated */
};

enum vmm_op {
    VMM_OP_CONFIG = 1, /* payload: struct vmm_config */
    VMM_OP_CONT,
    VMM_OP_PAUSE,
    VMM_OP_SAVE,     /* fd: the state, without RAM, is written to it. Stopped only */
    VMM_OP_LOAD,     /* fd: a state. INCOMING only, once */
    VMM_OP_DETACH,   /* maps the RAM privately from now on. Stopped only */
    VMM_OP_BALLOON,  /* arg: bytes of RAM to leave to the guest */
    VMM_OP_IO_LIMIT, /* arg, arg2: read and write bytes a second of the writable disk, 0 = none */
    VMM_OP_STATS, /* value: bytes of RAM that the balloon has taken; read and written bytes in text as JSON */
    VMM_OP_BUTTON, /* presses the power button; what the guest does then is its own affair */
    /* The content of a copy that was started with no layers and a placeholder for its RAM: each once, before LOAD */
    VMM_OP_MEMORY, /* fd: the file of its RAM */
    VMM_OP_LAYER   /* fd: a layer, number arg of arg2, the lowest (0) first */
};

#define VMM_MESSAGE_MAX 2048u
/* Raised when the layout of a state changes; snapshots name it. */
#define VMM_STATE_VERSION 1u

struct vmm_request {
    uint32_t op;
    uint32_t reserved0; /* 0 */
    uint64_t arg, arg2;
    struct vmm_config config; /* of CONFIG, else zeros */
};

struct vmm_reply {
    int32_t code; /* 0, or negative errno */
    uint32_t reserved0;
    uint64_t value;
    char text[500]; /* why, or what STATS says; NUL-terminated */
};

#endif
