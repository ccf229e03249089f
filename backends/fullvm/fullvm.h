/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fullvm - what the files of this backend share.
 *
 * fullvm.c    operation table, options, lifecycle
 * launch.c    from a spec to a machine that is built and stopped
 * disk.c      the writable disk: a file system of a size, layers above it
 * snapshot.c  a running machine into a directory
 * restore.c   a machine out of a directory
 * manifest.c  what such a directory says of itself
 * limits.c    limits and figures
 * console.c   the guest's serial console, bounded
 * host.c      what this host's QEMU and KVM are
 * probe.c     the answers
 * methods.c   typed methods
 */
#ifndef CELLA_FULLVM_H
#define CELLA_FULLVM_H

#include <cella/backend.h>

#include "cgroup.h"
#include "qemu.h"
#include "util.h"

#define CONSOLE_KEPT 32768u
/* What the guest's kernel takes for itself; a limit is what is left for the cell. */
#define RAM_KERNEL(limit) ((96ull << 20) + (limit) / 32)
#define RAM_MIN (64ull << 20)
#define RAM_MAX (1ull << 40)
#define VCPUS_MAX 64u
#define QEMU_DEFAULT "/usr/bin/qemu-system-x86_64"
#define SHIM_NAME "cella-qemu-ram.so"

enum step { STEP_SPEC = 1, STEP_HOST, STEP_CGROUP, STEP_DISK, STEP_MACHINE, STEP_SNAPSHOT };

struct console {
    const struct cella_host *host; /* NULL = nothing is watched */
    int fd, timer;
    char kept[CONSOLE_KEPT]; /* a ring; `total` bytes have come */
    uint64_t total;
};

struct fullvm {
    const struct cella_host *host;
    char id[CELLA_ID_LEN + 1];
    char *scratch;
    int scratch_fd;
    char *program, *kernel, *initrd; /* without links */
    int kernel_fd;                   /* of a copy: only its head */
    int best_effort;
    struct cgroup cgroup;
    struct cella_limits limits;
    struct qemu qemu;
    struct console console;
    int kvm;
    char cpu[64];
    uint64_t ram_bytes;
    uint32_t vcpus;
    int ram_fd;                     /* of the file that backs the RAM */
    int ram_private;                /* QEMU writes to copies of it */
    int layer_fds[QEMU_LAYERS_MAX]; /* of the writable disk, the lowest first */
    uint32_t n_layers;
    uint64_t disk_bytes;
    uint64_t root_bytes;
    uint64_t pause_ns; /* how long the last snapshot stopped the machine */
    int has_net, n_shares;
    int port_fds
        [2]; /* of a copy: connected before its machine is loaded; -1 = taken, or not a copy */
    int started, paused, stopping;
    uint32_t limit_hit;
};

static inline const struct cella_mount *spec_mount(const struct cella_spec *spec, uint32_t i)
{
    return (const struct cella_mount *)(const void *)((const char *)spec->mounts +
                                                      (uint64_t)i * spec->mount_stride);
}

/* fullvm.c */
const char *option_str(const struct cella_options *o, const char *name, const char *def);
int64_t option_int(const struct cella_options *o, const char *name, int64_t def);

/* host.c */
struct host_facts {
    char qemu[4096];  /* path */
    char version[64]; /* "7.2.22"; "" = not asked */
    int kvm;          /* it runs guests */
    char kvm_why[200];
};
/* `quick` does not ask QEMU for its version. */
int host_facts(const char *qemu, int quick, struct host_facts *ret, struct cella_error *err);
/* One line that is the same on hosts whose processors look the same to a guest. */
int host_cpu(char *out, size_t cap);
/* A program of the host's own; NULL = not there. Static storage of the caller's list. */
const char *host_program(const char *const *paths);
extern const char *const mke2fs_paths[], *const qemu_img_paths[];

/* launch.c */
/* `copy`: of a snapshot, which boots no kernel. */
int launch_new(const struct cella_host *host, const struct cella_spec *spec, int copy,
               struct fullvm **ret, struct cella_error *err);
/* Fresh memory and disk, and launch_start(). */
int launch_fresh(struct fullvm *f, const struct cella_spec *spec, struct cella_error *err);
int launch_connect(struct fullvm *f, const char *name, int *ret_fd, struct cella_error *err);
int launch_start(struct fullvm *f, const struct cella_spec *spec, int incoming,
                 struct cella_error *err);
void launch_free(struct fullvm *f);

/* snapshot.c, restore.c: on failure the directory is empty, the cell as it was; launch_free() what could not be
   restored */
int snapshot_take(struct fullvm *f, const struct cella_snapshot *to, struct cella_error *err);
int snapshot_restore(struct fullvm *f, const struct cella_spec *spec, int dir,
                     struct cella_error *err);

/* disk.c */
int disk_new(struct fullvm *f, struct cella_error *err);
/* Runs a program of the host with nothing but /dev/null; 0, or -EIO with its name. */
int run_program(const char *path, char *const argv[], struct cella_error *err);

/* limits.c */
int limits_apply(struct fullvm *f, struct cella_error *err);
int limits_resize(struct fullvm *f, const struct cella_limits *limits, struct cella_error *err);
void limits_stats(struct fullvm *f, struct cella_stats *ret);

/* console.c */
void console_start(struct console *c, const struct cella_host *host, int fd);
void console_read(struct console *c, size_t most);
void console_stop(struct console *c);
/* The last bytes, oldest first; returns their number. */
size_t console_tail(const struct console *c, char *out, size_t cap);

/* probe.c */
int fullvm_probe(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err);

/* methods.c */
#define FULLVM_N_METHODS 4
extern const struct cella_method fullvm_methods[FULLVM_N_METHODS];

#endif
