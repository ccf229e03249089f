/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/backend.h - a backend boots one root file system with the agent in it behind a boundary,
 * and hands back one byte stream to that agent. Everything else (exec, PTY, files, signals) is
 * the agent's protocol, <cella/link.h>; a backend never parses it. A backend never sees policy.
 *
 * Lifecycle, enforced by the host (an out-of-order call never reaches the plugin):
 *
 *   probe*                                            no instance
 *   create -> CREATED                                 cell built, no cell code has run
 *   restore -> CREATED                                the same, out of a snapshot
 *   prepare -> PREPARED                               as restore, of what is not known yet
 *   PREPARED load -> CREATED                          now it is; PREPARED once it failed: stop and destroy
 *   CREATED  start -> RUNNING                         agent is starting; connect() may be called
 *   RUNNING  pause -> PAUSED   PAUSED resume -> RUNNING
 *   RUNNING|PAUSED  stats resize snapshot fork        state unchanged
 *   RUNNING|PAUSED|CREATED|PREPARED  stop -> STOPPED  nothing of the cell runs when stop returns
 *   STOPPED  stats                                    final figures
 *   any      destroy                                  last call; removes everything of the cell
 *   reap                                              no instance: cleans up after a dead warden
 *
 * Guarantees a backend gives:
 * - No cell code runs before start(). No descriptor, environment variable or credential of the
 *   host process reaches the cell except the agent's descriptor and its end of the stream.
 * - If the host process dies, the cell dies with it.
 * - A limit that cannot be enforced on this host makes create() fail with -ENOTSUP naming it, unless
 *   CELLA_SPEC_BEST_EFFORT is set; then it is reported through host->emit("limit.unenforced").
 * - A failed create() leaves nothing. destroy() accepts an instance in any state.
 */
#ifndef CELLA_BACKEND_H
#define CELLA_BACKEND_H

#include <cella/abi.h>
#include <cella/host.h>
#include <cella/method.h>
#include <cella/reap.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ordinal of a boundary. Ordered; a class states a floor. */
enum cella_strength {
    CELLA_STRENGTH_PROCESS = 1000,     /* shared host kernel */
    CELLA_STRENGTH_USER_KERNEL = 2000, /* application kernel in user space */
    CELLA_STRENGTH_VM_EMULATED = 3000, /* own kernel, software CPU */
    CELLA_STRENGTH_VM = 4000           /* own kernel, hardware virtualisation */
};

enum cella_net_need {
    /* wants spec.borrow_netns_fd: the cell's network namespace, link inside */
    CELLA_NET_NETNS = 1000,
    CELLA_NET_TAP = 2000, /* wants spec.own_tap_fd */
    /* has no network device: the host gives it only cells that nothing is allowed (policies "none" and "deny") */
    CELLA_NET_NONE = 3000
};

enum cella_root_need {
    CELLA_ROOT_DIR = 1000,  /* wants spec.root as a directory tree */
    CELLA_ROOT_IMAGE = 2000 /* wants spec.root as a read-only disk image file */
};

/*
 * Capability names a backend may report:
 *   limit.memory limit.cpu limit.pids limit.disk limit.io  pause stats resize snapshot restore fork
 *   rootfs.readonly  userns  timens  seccomp  methods
 */
struct cella_probe {
    struct cella_hdr hdr; /* CELLA_KIND_PROBE; supplied by the host, filled by the plugin */
    uint32_t strength;    /* enum cella_strength this host would get */
    uint32_t net_need;    /* enum cella_net_need */
    uint32_t root_need;   /* enum cella_root_need */
    uint32_t reserved0;
};

/* 0 in a member = no limit of that kind asked for. */
struct cella_limits {
    struct cella_hdr hdr;  /* CELLA_KIND_LIMITS */
    uint64_t memory_bytes; /* RAM; swap is always off for a cell */
    uint64_t disk_bytes;   /* writable layer */
    uint64_t cpu_millis;   /* 1000 = one CPU */
    uint64_t pids;         /* tasks, not counting the agent */
    uint64_t io_read_bps, io_write_bps;
};

enum cella_mount_type {
    CELLA_MOUNT_BIND = 1000, /* host path onto cell path */
    CELLA_MOUNT_TMPFS = 2000 /* empty, `size_bytes` limit */
};
#define CELLA_MOUNT_WRITABLE 1u /* default is read-only */
#define CELLA_MOUNT_IMAGE 2u    /* part of the image; owner ids mapped if possible */
#define CELLA_MOUNT_FILE 4u     /* source is a regular file */

struct cella_mount {
    const char *source; /* absolute host path; NULL for TMPFS */
    const char *target; /* absolute cell path, normalised, never "/" */
    uint32_t type;      /* enum cella_mount_type */
    uint32_t flags;     /* CELLA_MOUNT_* */
    uint64_t size_bytes;
};

#define CELLA_SPEC_READONLY_ROOT 1u
#define CELLA_SPEC_BEST_EFFORT 2u

struct cella_spec {
    struct cella_hdr hdr; /* CELLA_KIND_SPEC; hdr.flags: CELLA_SPEC_* */
    const char *cell_id;  /* [a-z0-9]{12}, unique on the host; use it to name host objects */
    const char *hostname; /* for the cell */
    const char *root;     /* directory or image, by probe.root_need; never written to */
    const char *scratch;  /* directory of this cell, mode 0700, exists; the core removes it after
                               destroy() or reap() */
    uint32_t uid_base;    /* first host id of this cell's range; 0 in the cell maps to it */
    uint32_t uid_count;   /* length of the range, at least 65536 */
    int32_t borrow_userns_fd; /* the cell's user namespace (already mapped as above), or -1 */
    int32_t borrow_netns_fd; /* the cell's network namespace, owned by that user namespace, or -1 */
    int32_t own_tap_fd;      /* or -1 */
    int32_t borrow_agent_fd; /* sealed memfd with the agent program (static ELF) */
    const struct cella_mount *mounts; /* in mount order */
    uint32_t n_mounts;
    uint32_t mount_stride;
    const struct cella_limits *limits;
    const struct cella_options *options; /* this backend's option table, filled */
    /* For CELLA_ROOT_IMAGE: files of the guest's kernel (bzImage) and initramfs, whose /init mounts
       the root, speaks on port 1 and starts the agent on port 0 (<cella/guest.h>). Else NULL. */
    const char *kernel, *initrd;
    uint8_t mac[8]; /* hardware address of the cell's end of own_tap_fd, first 6 bytes */
};

struct cella_started {
    struct cella_hdr hdr;   /* CELLA_KIND_STARTED */
    int32_t borrow_exit_fd; /* readable (poll) when the cell has ended; the plugin keeps it until
                               destroy(). A pidfd is fine. */
    uint32_t reserved0;
    uint64_t host_pid; /* leading host process of the cell, for display */
};

#define CELLA_LIMIT_HIT_MEMORY 1u /* something in the cell was killed for memory */
#define CELLA_LIMIT_HIT_PIDS 2u   /* a fork was refused */
#define CELLA_LIMIT_HIT_DISK 4u   /* the writable layer is full */

struct cella_stats {
    struct cella_hdr hdr; /* CELLA_KIND_STATS */
    uint64_t cpu_user_ns, cpu_system_ns;
    uint64_t memory_bytes, memory_peak_bytes;
    uint64_t pids, pids_peak;
    uint64_t disk_bytes; /* used in the writable layer */
    uint64_t io_read_bytes, io_write_bytes;
    uint64_t oom_kills;    /* since create */
    uint64_t pids_refused; /* forks refused, since create */
    uint32_t limit_hit;    /* CELLA_LIMIT_HIT_* seen since create */
    uint32_t unknown; /* bit n set: member n (0 = cpu_user_ns … 10 = pids_refused) not measured */
};

struct cella_snapshot {
    struct cella_hdr hdr;  /* CELLA_KIND_SNAPSHOT */
    int32_t borrow_dir_fd; /* empty directory to write to, or the one to read from */
    uint32_t reserved0;
    void *ctx;
    /* snapshot() calls it, at most once, when the moment that is saved is over: the cell goes on, and what is still
       to be written takes nothing more from it. Not called, or NULL: the cell goes on when snapshot() returns. */
    void (*taken)(void *ctx);
    /* Not 0 in snapshot(): it is read in the next moments or never. What would serve only later, such as digests,
       need not be made. */
    uint32_t brief, reserved1;
};

enum cella_stop_how {
    /* the core has already asked the agent; wait up to the timeout, then kill */
    CELLA_STOP_GRACEFUL = 1000,
    CELLA_STOP_KILL = 2000,
    /* As KILL, but it need not be waited for: KILL follows at once. To treat it as KILL, or to refuse it, is right too. */
    CELLA_STOP_BEGIN = 3000
};

struct cella_backend_ops {
    struct cella_hdr hdr; /* CELLA_KIND_BACKEND */
    const char *name;     /* [a-z][a-z0-9-]*, the name in the config */
    const char *version;
    const char *summary;                /* one line: the boundary and its mechanism */
    const struct cella_option *options; /* may be NULL when n_options is 0 */
    uint32_t n_options, option_stride;
    const struct cella_method *methods; /* typed methods, self = instance */
    uint32_t n_methods, method_stride;

    /* Can this host run it? Required. A negative return means unusable, err says why and what to do.
       Must not leave anything behind and must take under a second. */
    int (*probe)(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err);
    /* Required. */
    int (*create)(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                  struct cella_error *err);
    /* Required. Returns when the agent has been started; its HELLO may still be on the way. */
    int (*start)(void *self, struct cella_started *ret_started, struct cella_error *err);
    /* Required. Idempotent. `timeout_ns` bounds a graceful stop; the cell is gone at return in any case. */
    int (*stop)(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err);
    /* Required. NULL-safe. Last call on self. */
    void (*destroy)(void *self);
    /* Required. Gives the byte stream (stream socket or equivalent, both directions) to port 0 = the
       agent. Port 1 = the guest's own init, required of a backend with CELLA_ROOT_IMAGE. Other
       ports: -ENOTSUP unless the backend has them. The caller owns the descriptor; a port that was
       closed may be connected again. */
    int (*connect)(void *self, uint32_t port, int *ret_fd, struct cella_error *err);
    /* Required. Removes (or with dry_run only reports) what a dead host process left of this cell:
       kills its processes first. Returns the number of objects found, or -errno. */
    int (*reap)(const struct cella_host *host, const struct cella_reap *reap,
                struct cella_error *err);
    /* Optional: -EOPNOTSUPP. */
    int (*pause)(void *self, struct cella_error *err);
    int (*resume)(void *self, struct cella_error *err);
    /* Optional: everything unknown. The host zeroes and heads ret_stats. */
    int (*stats)(void *self, struct cella_stats *ret_stats, struct cella_error *err);
    /* Optional: -EOPNOTSUPP. Members of `limits` that are 0 stay as they are. */
    int (*resize)(void *self, const struct cella_limits *limits, struct cella_error *err);
    /* Optional: -EOPNOTSUPP, each. */
    int (*snapshot)(void *self, const struct cella_snapshot *snapshot, struct cella_error *err);
    int (*restore)(const struct cella_host *host, const struct cella_spec *spec,
                   const struct cella_snapshot *snapshot, void **ret_self, struct cella_error *err);
    int (*fork)(void *self, const struct cella_spec *child, void **ret_self,
                struct cella_error *err);
    /* Optional: -EOPNOTSUPP. Re-adopts a cell whose host process was replaced. */
    int (*recover)(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                   struct cella_error *err);
    /* Optional, both or none: copies are made by restore() alone. A copy's machine up to the point where only
       a snapshot's content is missing: what restore() would begin with, done before the snapshot is taken. What is
       in `spec` must be what the copy's restore() would be given; -EOPNOTSUPP when this spec cannot be prepared
       (restore() is used then). */
    int (*prepare)(const struct cella_host *host, const struct cella_spec *spec, void **ret_self,
                   struct cella_error *err);
    /* Once. The directory may be removed afterwards, as after restore(). What failed is stopped and destroyed. */
    int (*load)(void *self, const struct cella_snapshot *snapshot, struct cella_error *err);
};

/* Size every host of major 1 requires: up to and with `reap`. */
#define CELLA_BACKEND_OPS_BASELINE                                                                 \
    (__builtin_offsetof(struct cella_backend_ops, reap) + sizeof(void *))

#ifdef __cplusplus
}
#endif
#endif
