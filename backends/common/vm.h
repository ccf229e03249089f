/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vm - a cell that is a machine, whichever engine runs it and whichever backend offers it: what is between the
 * ABI's operations and an engine. Backends give their names and their engines (struct vm_kind), nothing else.
 *
 * vm.c           lifecycle
 * vm_launch.c    from a spec to a machine that is built and stopped
 * vm_disk.c      the writable disk: a file system of a size
 * vm_snapshot.c  a running machine into a directory
 * vm_restore.c   a machine out of a directory
 * vm_manifest.c  what such a directory says of itself
 * vm_limits.c    limits and figures
 * vm_console.c   the guest's serial console, bounded
 * vm_probe.c     the answers
 * vm_methods.c   typed methods
 */
#ifndef CELLA_VM_H
#define CELLA_VM_H

#include <cella/backend.h>

#include "cgroup.h"
#include "engine.h"
#include "host.h"
#include "spec.h"
#include "util.h"

#define CONSOLE_KEPT 32768u
/* What the guest's kernel takes for itself; a limit is what is left for the cell. */
#define RAM_KERNEL(limit) ((96ull << 20) + (limit) / 32)
#define RAM_MIN (64ull << 20)
#define RAM_MAX (1ull << 40)
#define VCPUS_MAX 64u

enum step { STEP_SPEC = 1, STEP_HOST, STEP_CGROUP, STEP_DISK, STEP_MACHINE, STEP_SNAPSHOT };

struct console {
    const struct cella_host *host; /* NULL = nothing is watched */
    int fd, timer;
    char kept[CONSOLE_KEPT]; /* a ring; `total` bytes have come */
    uint64_t total;
};

/* A backend of this sort. */
struct vm_kind {
    const char *name;
    enum guest_board board;
    const struct engine_ops *kvm, *emulated; /* with KVM, and without */
    const char *choice;                      /* option that says which; "auto", or one of: */
    const char *choice_kvm, *choice_emulated;
};

struct vm {
    const struct vm_kind *kind;
    struct engine *engine; /* NULL before launch_new() and after launch_free() only */
    const struct cella_host *host;
    char id[CELLA_ID_LEN + 1];
    char *scratch;
    int scratch_fd;
    char *program, *kernel, *initrd; /* without links */
    int best_effort;
    struct cgroup cgroup;
    struct cella_limits limits;
    struct console console;
    int kvm;
    char cpu[64];
    uint64_t ram_bytes;
    uint32_t vcpus;
    int ram_fd;                      /* of the file that backs the RAM */
    int ram_private;                 /* the engine writes to copies of it */
    int layer_fds[GUEST_LAYERS_MAX]; /* of the writable disk, the lowest first */
    uint32_t n_layers;
    int top_fd; /* of a copy that has no content yet: the layer that it will write to */
    uint64_t disk_bytes;
    uint64_t root_bytes;
    uint64_t pause_ns; /* how long the last snapshot stopped the machine */
    int has_net, n_shares;
    int port_fds
        [2]; /* of a copy: connected before its machine is loaded; -1 = taken, or not a copy */
    int started, paused, stopping;
    uint32_t limit_hit;
};

/* vm.c: what a backend's table points to. own_tap_fd of the spec is closed in any case. */
int vm_create(const struct vm_kind *kind, const struct cella_host *host,
              const struct cella_spec *spec, void **ret_self, struct cella_error *err);
int vm_restore(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, const struct cella_snapshot *snapshot,
               void **ret_self, struct cella_error *err);
int vm_prepare(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, void **ret_self, struct cella_error *err);
int vm_load(void *self, const struct cella_snapshot *snapshot, struct cella_error *err);
int vm_start(void *self, struct cella_started *ret_started, struct cella_error *err);
int vm_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err);
void vm_destroy(void *self);
int vm_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err);
int vm_reap(const struct cella_host *host, const struct cella_reap *reap, struct cella_error *err);
int vm_pause(void *self, struct cella_error *err);
int vm_resume(void *self, struct cella_error *err);
int vm_stats(void *self, struct cella_stats *ret_stats, struct cella_error *err);
int vm_resize(void *self, const struct cella_limits *limits, struct cella_error *err);
int vm_snapshot(void *self, const struct cella_snapshot *snapshot, struct cella_error *err);
int vm_fork(void *self, const struct cella_spec *child, void **ret_self, struct cella_error *err);

/* vm_spec.c: refuses what cannot be; the engine; sizes and the processor */
int spec_check(const struct cella_spec *spec, int copy, struct cella_error *err);
int spec_engine(struct vm *f, const struct cella_spec *spec, struct cella_error *err);
int spec_machine(struct vm *f, const struct cella_spec *spec, struct cella_error *err);

/* vm_launch.c */
/* `copy`: of a snapshot, which boots no kernel. */
int launch_new(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, int copy, struct vm **ret, struct cella_error *err);
/* Fresh memory and disk, and launch_start(). */
int launch_fresh(struct vm *f, const struct cella_spec *spec, struct cella_error *err);
int launch_connect(struct vm *f, uint32_t port, int *ret_fd, struct cella_error *err);
int launch_start(struct vm *f, const struct cella_spec *spec, int incoming,
                 struct cella_error *err);
/* What has come of the RAM, as the kernel sees it. */
int launch_ram_check(struct vm *f, struct cella_error *err);
void launch_free(struct vm *f);

/* vm_snapshot.c, vm_restore.c: on failure the directory is empty, the cell as it was; launch_free() what could not be
   restored */
int snapshot_take(struct vm *f, const struct cella_snapshot *to, struct cella_error *err);
int snapshot_restore(struct vm *f, const struct cella_spec *spec, int dir, struct cella_error *err);
/* The same in two steps; -EOPNOTSUPP: with this engine there is only one. */
int snapshot_prepare(struct vm *f, const struct cella_spec *spec, struct cella_error *err);
int snapshot_load(struct vm *f, int dir, struct cella_error *err);

/* vm_disk.c */
int disk_new(struct vm *f, struct cella_error *err);

/* vm_limits.c */
int limits_apply(struct vm *f, struct cella_error *err);
int limits_resize(struct vm *f, const struct cella_limits *limits, struct cella_error *err);
void limits_stats(struct vm *f, struct cella_stats *ret);

/* vm_console.c */
void console_start(struct console *c, const struct cella_host *host, int fd);
void console_read(struct console *c, size_t most);
void console_stop(struct console *c);
/* The last bytes, oldest first; returns their number. */
size_t console_tail(const struct console *c, char *out, size_t cap);

/* vm_probe.c */
int vm_probe(const struct vm_kind *kind, const struct cella_host *host,
             const struct cella_probe_report *report, struct cella_probe *ret_probe,
             struct cella_error *err);

/* vm_methods.c */
#define VM_N_METHODS 4
extern const struct cella_method vm_methods[VM_N_METHODS];

/* The options that every machine has; a backend adds its own before them. */
#define VM_OPTIONS                                                                                 \
    {.name = "cpu",                                                                                \
     .help = "processor model; auto is the host's, or all that can be emulated",                   \
     .def = "auto",                                                                                \
     .type = CELLA_OPT_STRING},                                                                    \
        {.name = "memory",                                                                         \
         .help = "memory of a machine whose cell has no memory limit",                             \
         .def = "512M",                                                                            \
         .type = CELLA_OPT_SIZE,                                                                   \
         .min = 64 << 20,                                                                          \
         .max = 1ll << 40},                                                                        \
        {.name = "disk",                                                                           \
         .help = "writable disk of a machine whose cell has no disk limit",                        \
         .def = "1G",                                                                              \
         .type = CELLA_OPT_SIZE,                                                                   \
         .min = 1 << 20,                                                                           \
         .max = 1ll << 44},                                                                        \
        {.name = "append",                                                                         \
         .help = "more words for the guest kernel's command line",                                 \
         .def = "",                                                                                \
         .type = CELLA_OPT_STRING},                                                                \
        CGROUP_PARENT_OPTION,

#endif
