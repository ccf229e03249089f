/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * restore - a machine out of a snapshot directory: stopped, at the moment at which it was taken. Nothing of the
 * directory is written to, and it may be removed afterwards: the files stay open. Memory is shared with every other
 * machine from the same directory until it is written; the disk's new writes go to a layer of its own.
 *
 * An engine that takes memory and disk late is started before anything is known of the snapshot; with
 * prepare and load that is long before, in a restore just before. Any other is started when the files are open.
 *
 * Invariants: the engine sees no byte of a snapshot before the manifest fits this host and this spec, and every file
 * is what was saved. Threads: one.
 */
#include <fcntl.h>
#include <time.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "vm.h"
#include "vm_manifest.h"

static int foreign(struct cella_error *err, const char *what, const char *theirs, const char *ours)
{
    return cella_error_set(err, -ENOTSUP, STEP_SNAPSHOT,
                           "snapshot: it was taken with %s %s, here it is %s: it does not fit; "
                           "make a new one here",
                           what, theirs, ours);
}

static int fits_host(const struct vm *f, const struct manifest *m, struct cella_error *err)
{
    char cpu[160];

    if (strcmp(m->accel, f->kvm ? "kvm" : "tcg"))
        return foreign(err, "the accelerator", m->accel, f->kvm ? "kvm" : "tcg");
    if (strcmp(m->cpu, f->cpu))
        return foreign(err, "the processor model", m->cpu, f->cpu);
    if (host_cpu(cpu, sizeof(cpu)) < 0)
        return cella_error_set(err, -EIO, STEP_SNAPSHOT, "snapshot: /proc/cpuinfo: unreadable");
    /* an emulated processor of the small board counts with the host's clock */
    return (f->kvm || f->kind->board == BOARD_MICROVM) && strcmp(m->host_cpu, cpu)
               ? foreign(err, "the processor", m->host_cpu, cpu)
               : 0;
}

static int fits_size(const char *what, uint64_t theirs, uint64_t ours, struct cella_error *err)
{
    if (theirs == ours)
        return 0;
    return cella_error_set(err, -EINVAL, STEP_SNAPSHOT,
                           "snapshot: its machine has %s %llu, the cell asks for %llu; a copy has "
                           "what its parent had",
                           what, (unsigned long long)theirs, (unsigned long long)ours);
}

static int fits_spec(const struct vm *f, const struct manifest *m, struct cella_error *err)
{
    int r = fits_size("bytes of memory:", m->ram_bytes, f->ram_bytes, err);

    if (r == 0)
        r = fits_size("bytes of disk:", m->disk_bytes, f->disk_bytes, err);
    if (r == 0)
        r = fits_size("processors:", m->vcpus, f->vcpus, err);
    if (r == 0)
        r = fits_size("an image of bytes:", m->root_bytes, f->root_bytes, err);
    if (r == 0)
        r = fits_size("network devices:", (uint64_t)m->network, (uint64_t)f->has_net, err);
    if (r == 0 && m->n_layers == GUEST_LAYERS_MAX)
        r = cella_error_set(err, -ENOTSUP, STEP_SNAPSHOT, "snapshot: it has %u layers of disk",
                            m->n_layers);
    return r;
}

static int file_open(int dir, const struct manifest *m, const char *name, int *ret,
                     struct cella_error *err)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r;

    if (fd < 0)
        return cella_error_set(err, -errno, STEP_SNAPSHOT, "snapshot: %s: %s", name,
                               strerror(errno));
    r = manifest_check(manifest_find(m, name), fd, err);
    if (r < 0) {
        close(fd);
        return fail_wrap(err, "snapshot");
    }
    *ret = fd;
    return 0;
}

/* What this copy writes goes to a layer of its own, whose file has no name once it is open. */
static int top_new(struct vm *f, struct cella_error *err)
{
    auto_free char *path = path_join(f->scratch, "rw.layer");
    int r;

    if (!path)
        return cella_error_set(err, -ENOMEM, STEP_DISK, "out of memory");
    r = f->engine->ops->layer_new(path, f->disk_bytes, err);
    f->top_fd = r == 0 ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW) : -1;
    if (r == 0 && f->top_fd < 0)
        r = cella_error_set(err, -errno, STEP_DISK, "%s: %s", path, strerror(errno));
    unlink(path);
    return r;
}

static int files_open(struct vm *f, const struct manifest *m, int dir, int *ret_state,
                      struct cella_error *err)
{
    char name[16];
    uint32_t i;
    int r;

    if (f->ram_fd >= 0) /* the placeholder */
        close(steal_fd(&f->ram_fd));
    r = file_open(dir, m, "ram", &f->ram_fd, err);
    if (r == 0)
        r = file_open(dir, m, "state", ret_state, err);
    for (i = 0; r == 0 && i < m->n_layers; i++) {
        snprintf(name, sizeof(name), "disk.%u", i);
        r = file_open(dir, m, name, &f->layer_fds[i], err);
        f->n_layers += r == 0;
    }
    f->ram_private = 1;
    if (r == 0)
        f->layer_fds[f->n_layers++] = steal_fd(&f->top_fd);
    return r;
}

static int manifest_load(int dir, struct manifest *m, struct cella_error *err)
{
    auto_free char *text = NULL;
    size_t len;
    int r = read_file_at(dir, MANIFEST_NAME, MANIFEST_MAX, &text, &len);

    if (r < 0)
        return cella_error_set(err, r, STEP_SNAPSHOT, "snapshot: " MANIFEST_NAME ": %s",
                               strerror(-r));
    r = manifest_read(text, len, m, err);
    return r < 0 ? fail_wrap(err, "snapshot") : 0;
}

/* Nothing is opened that does not fit. */
static int content_open(struct vm *f, int dir, struct manifest *m, int *ret_state,
                        struct cella_error *err)
{
    int r = manifest_load(dir, m, err);

    if (r == 0)
        r = fits_host(f, m, err);
    if (r == 0)
        r = fits_spec(f, m, err);
    return r < 0 ? r : files_open(f, m, dir, ret_state, err);
}

/* ---- the machine ---- */

/* QEMU builds the same machine only with a kernel to boot, which a copy never does: a head as in
   Documentation/arch/x86/boot.rst, of a kernel with nothing in it. */
static int kernel_stand_in(struct vm *f, struct cella_error *err)
{
    static const char head[8192] = {
        [0x1f1] = 4, /* sectors of the setup */
        [0x1fe] = 0x55, [0x1ff] = (char)0xaa, [0x202] = 'H',  [0x203] = 'd',
        [0x204] = 'r',  [0x205] = 'S',        [0x206] = 0x0f, [0x207] = 2, /* version 2.15 */
        [0x211] = 1,                                                       /* loaded high */
    };
    int r = create_file_at(f->scratch_fd, "kernel", head, sizeof(head), 0444);

    free(f->kernel);
    f->kernel = path_join(f->scratch, "kernel");
    if (r == 0 && !f->kernel)
        r = -ENOMEM;
    return r < 0 ? cella_error_set(err, r, STEP_MACHINE, "scratch: kernel: %s", strerror(-r)) : 0;
}

/* Before the machine is loaded: what the parent was sending just then goes out at once, and QEMU 7.2 never
   tries again when nobody is there to take it. */
static int ports_take(struct vm *f, struct cella_error *err)
{
    const struct timespec moment = {0, 1000000};
    int tries = 5000, r = 0;
    uint32_t port;

    if (!f->engine->ops->ports_open)
        return 0;
    for (port = 0; r == 0 && port < ARRAY_LEN(f->port_fds); port++)
        r = launch_connect(f, port, &f->port_fds[port], err);
    while (r == 0 && (r = f->engine->ops->ports_open(f->engine, err)) >= 0 &&
           r < (int)ARRAY_LEN(f->port_fds)) {
        r = --tries > 0 ? 0
                        : cella_error_set(err, -ETIMEDOUT, STEP_MACHINE,
                                          "%s did not take the connections to its ports",
                                          f->engine->ops->name);
        nanosleep(&moment, NULL);
    }
    return r < 0 ? r : 0;
}

static int start(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    int r = f->engine->ops->needs_kernel ? kernel_stand_in(f, err) : 0;

    if (r == 0)
        r = launch_start(f, spec, 1, err);
    unlinkat(f->scratch_fd, "kernel", 0);
    return r < 0 ? r : ports_take(f, err);
}

static int run_state(struct vm *f, const struct manifest *m, int state, struct cella_error *err)
{
    return strcmp(f->engine->identity, m->engine)
               ? foreign(err, "the engine", m->engine, f->engine->identity)
               : f->engine->ops->load(f->engine, state, err);
}

/* ---- in two steps ---- */

/* Private: what the engine writes into it before the content is there is lost with the mapping. */
static int ram_placeholder(struct vm *f, struct cella_error *err)
{
    f->ram_fd = memfd_create("cella-no-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (f->ram_fd < 0 || ftruncate(f->ram_fd, (off_t)f->ram_bytes) < 0 ||
        fcntl(f->ram_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return cella_error_set(err, -errno, STEP_MACHINE, "memory of the guest: %s",
                               strerror(errno));
    f->ram_private = 1;
    return 0;
}

int snapshot_prepare(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    int r;

    if (!f->engine->ops->fill)
        return cella_error_set(err, -EOPNOTSUPP, STEP_MACHINE,
                               "%s is started with its content and cannot be prepared",
                               f->engine->ops->name);
    if (spec->n_mounts)
        return cella_error_set(err, -ENOTSUP, STEP_SPEC,
                               "snapshot: a copy of a machine cannot have mounts of the host");
    r = ram_placeholder(f, err);
    if (r == 0)
        r = top_new(f, err);
    return r < 0 ? r : start(f, spec, err);
}

static int fill(struct vm *f, struct cella_error *err)
{
    struct guest *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return cella_error_set(err, -ENOMEM, STEP_MACHINE, "out of memory");
    g->borrow_ram_fd = f->ram_fd;
    g->ram_private = 1;
    g->n_layers = f->n_layers;
    memcpy(g->borrow_layer_fds, f->layer_fds, sizeof(f->layer_fds));
    r = f->engine->ops->fill(f->engine, g, err);
    free(g);
    return r < 0 ? r : launch_ram_check(f, err);
}

int snapshot_load(struct vm *f, int dir, struct cella_error *err)
{
    auto_free struct manifest *m = calloc(1, sizeof(*m));
    auto_close int state = -1;
    struct errbuf eb;
    int r = m ? 0 : -ENOMEM;

    if (!err)
        err = errbuf_init(&eb);
    if (r == 0)
        r = content_open(f, dir, m, &state, err);
    if (r == 0)
        r = fill(f, err);
    return r < 0 ? r : run_state(f, m, state, err);
}

/* ---- in one ---- */

static int restore_at_once(struct vm *f, const struct cella_spec *spec, int dir,
                           struct cella_error *err)
{
    auto_free struct manifest *m = calloc(1, sizeof(*m));
    auto_close int state = -1;
    int r = m ? 0 : -ENOMEM;

    f->has_net = spec->own_tap_fd >= 0;
    if (r == 0 && spec->n_mounts)
        r = cella_error_set(err, -ENOTSUP, STEP_SNAPSHOT,
                            "snapshot: a copy of a machine cannot have mounts of the host");
    if (r == 0)
        r = top_new(f, err);
    if (r == 0)
        r = content_open(f, dir, m, &state, err);
    if (r == 0)
        r = start(f, spec, err);
    return r < 0 ? r : run_state(f, m, state, err);
}

int snapshot_restore(struct vm *f, const struct cella_spec *spec, int dir, struct cella_error *err)
{
    struct errbuf eb;
    int r;

    if (!err)
        err = errbuf_init(&eb);
    if (!f->engine->ops->fill)
        return restore_at_once(f, spec, dir, err);
    r = snapshot_prepare(f, spec, err);
    return r < 0 ? r : snapshot_load(f, dir, err);
}
