/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/guest.h - what a backend that boots a guest kernel gives to the guest, and what the host and
 * the guest's init say to each other on port 1. The init is the program /init of the initramfs
 * (spec.initrd); it stays PID 1 of the guest, and starts the agent as its child.
 *
 * The machine, whatever backend emulates it:
 *
 *   disk "cella-root"   (virtio-blk, serial number) the image: EROFS, read-only
 *   disk "cella-rw"     (virtio-blk, serial number) the writable layer: ext4, its size is the limit
 *   port "cella.agent"  (virtio-serial port by name, or vsock port 1024) port 0 of connect()
 *   port "cella.guest"  (virtio-serial port by name, or vsock port 1025) port 1 of connect()
 *   share "cella.mN"    (virtiofs, or 9p over virtio; tag) user mount number N of spec.mounts, from 0
 *   one virtio-net device with spec.mac, no configuration by the backend
 *   kernel command line "cella=1" and what the kernel itself needs; nothing of the cell's identity
 *
 * Port 1 carries frames of <cella/link.h>. The guest's init sends HELLO (VERSION) when it is ready for
 * BOOT, and again after each RESET. Every request is an OPEN with an op below on a stream number
 * that is never reused, answered by RESULT or ERROR. One request at a time.
 *
 *   boot:     HELLO, BOOT -> RESULT; then the agent's HELLO comes on port 0
 *   snapshot: FREEZE -> RESULT; the backend takes the snapshot; THAW -> RESULT in the source
 *   a restored or forked guest: the host connects port 1 and sends RESET with a fresh nonce; the guest
 *             throws away what it had half read or half written, sends the nonce's 16 bytes and HELLO;
 *             then SETTLE -> RESULT, which closes the old agent link, and THAW -> RESULT. Nothing of
 *             the workload runs between FREEZE and THAW, so never before SETTLE has succeeded.
 *             The agent, too, sends the nonce of SETTLE before its new HELLO; commands of the parent
 *             run on without a reader.
 *
 * The host treats every byte of the guest as hostile, the init's included.
 */
#ifndef CELLA_GUEST_H
#define CELLA_GUEST_H

#include <cella/link.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLA_GUEST_NONCE 16u

/* Port numbers where the ports are sockets: the guest listens, the host connects. */
#define CELLA_GUEST_VSOCK_AGENT 1024u
#define CELLA_GUEST_VSOCK_GUEST 1025u

/* Values of CELLA_TAG_OP on port 1. */
enum cella_guest_op {
    /* Identity as in SETTLE, without NONCE; MOUNT* COVER* PIDS? MEMORY? READONLY? : mounts the
       root, starts the agent. RESULT: STEPS? */
    CELLA_GUEST_BOOT = 101,
    /* Stops every process of the workload and the agent (cgroup freezer), writes dirty pages out */
    CELLA_GUEST_FREEZE = 102,
    /* Identity: EPOCH_NS ENTROPY HOSTNAME MACHINE_ID BOOT_ID GENERATION NONCE, and with a network
       MAC ADDRESS GATEWAY. Reseeds the kernel's generator, sets the clock, names and addresses, and
       resets every connection of the former address */
    CELLA_GUEST_SETTLE = 103,
    CELLA_GUEST_THAW = 104,
    /* RESULT: every tag from CPU_USER_NS to LIMIT_HIT that is known */
    CELLA_GUEST_USAGE = 105,
    /* CPUS? PIDS? MEMORY? : so many of the machine's processors are in use from now on, the limits
       are these. A MEMORY of less than the workload cannot give up is refused with EBUSY */
    CELLA_GUEST_RESIZE = 106,
    /* Writes everything out and switches the machine off; no answer */
    CELLA_GUEST_POWEROFF = 107,
    /* NONCE: see above; answered by the nonce's bytes and HELLO instead of a RESULT */
    CELLA_GUEST_RESET = 108,
    /* NAME OFFSET CONTENT SIZE? : bytes of a file of /run/cella, which is SIZE bytes long then, or
       ends with CONTENT. Written in place; the cell sees it read-only. Before BOOT, too */
    CELLA_GUEST_SHOW = 109,
    /* EPOCH_NS ENTROPY: after a pause, the machine is the same but the world has gone on */
    CELLA_GUEST_CLOCK = 110
};

/* Limits of SHOW. */
#define CELLA_GUEST_SHOWN_MAX 16u            /* files */
#define CELLA_GUEST_SHOWN_BYTES (9u << 20)   /* of each */
#define CELLA_GUEST_SHOWN_CHUNK (48u * 1024) /* of CONTENT */

enum cella_guest_tag {
    CELLA_TAG_EPOCH_NS = 200,   /* u64, wall clock, nanoseconds since 1970 */
    CELLA_TAG_ENTROPY = 201,    /* 64 … 512 random bytes */
    CELLA_TAG_HOSTNAME = 202,   /* str, 1 … 64 bytes */
    CELLA_TAG_MACHINE_ID = 203, /* 16 bytes */
    CELLA_TAG_BOOT_ID = 204,    /* 16 bytes */
    CELLA_TAG_GENERATION = 205, /* u64, larger in each child; /run/cella/generation */
    CELLA_TAG_NONCE = 206,      /* CELLA_GUEST_NONCE random bytes */
    CELLA_TAG_MAC = 207,        /* 6 bytes */
    CELLA_TAG_ADDRESS = 208,    /* str "address/prefix" */
    CELLA_TAG_GATEWAY = 209,    /* str, also the resolver */
    CELLA_TAG_MOUNT = 210,      /* {u32 number, u32 CELLA_MOUNT_*, str target}, repeats */
    CELLA_TAG_PIDS = 211,       /* u64, tasks of the workload, the agent not counted */
    CELLA_TAG_READONLY = 212,   /* u32 1: the root is not writable */
    CELLA_TAG_CPUS = 213,       /* u32 */
    /* str "NAME:PATH", repeats: the file NAME of /run/cella is also seen at PATH, if the image has a
       file there */
    CELLA_TAG_COVER = 214,
    CELLA_TAG_OFFSET = 215,  /* u64 */
    CELLA_TAG_CONTENT = 216, /* bytes, at most CELLA_GUEST_SHOWN_CHUNK */
    /* u64 each, as the members of struct cella_stats; MEMORY in a request: the workload's limit */
    CELLA_TAG_CPU_USER_NS = 220,
    CELLA_TAG_CPU_SYSTEM_NS = 221,
    CELLA_TAG_MEMORY = 222,
    CELLA_TAG_MEMORY_PEAK = 223,
    CELLA_TAG_TASKS = 224,
    CELLA_TAG_TASKS_PEAK = 225,
    CELLA_TAG_DISK = 226,
    CELLA_TAG_OOM_KILLS = 227,
    CELLA_TAG_PIDS_REFUSED = 228,
    CELLA_TAG_LIMIT_HIT = 229, /* u64, CELLA_LIMIT_HIT_* */
    /* u64 for each of enum cella_guest_step, none less than the one before: nanoseconds since the
       guest's kernel began to count. For --timings alone: it is what the guest says */
    CELLA_TAG_STEPS = 230
};

/* What the init had done at that moment; RESULT of BOOT. */
enum cella_guest_step {
    CELLA_GUEST_STEP_KERNEL = 0, /* nothing: its first instruction */
    CELLA_GUEST_STEP_DRIVERS = 1,
    CELLA_GUEST_STEP_PORTS = 2, /* HELLO was sent */
    CELLA_GUEST_STEP_HELLO = 3, /* BOOT came */
    CELLA_GUEST_STEP_ROOT = 4,
    CELLA_GUEST_STEP_IDENTITY = 5,
    CELLA_GUEST_STEP_CELL = 6, /* the agent's process is there */
    CELLA_GUEST_STEPS = 7
};

#ifdef __cplusplus
}
#endif
#endif
