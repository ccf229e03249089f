/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * launch - from a spec to a machine that is built and has not run one instruction: memory, control group, disk,
 * listening sockets of the ports, the engine. Each is a descriptor that this process holds; by name there are
 * only the control group and two sockets in the cell's scratch directory.
 *
 * Invariants: launch_free() takes an object in any state. Threads: one.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "vm.h"

/* ---- what the machine is made of ---- */

static int ram_new(struct vm *f, struct cella_error *err)
{
    f->ram_fd = memfd_create("cella-ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (f->ram_fd < 0 || ftruncate(f->ram_fd, (off_t)f->ram_bytes) < 0 ||
        fcntl(f->ram_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0)
        return cella_error_set(err, -errno, STEP_MACHINE, "memory of the guest: %s",
                               strerror(errno));
    return 0;
}

/* Scratch paths may be longer than a socket's name can be. */
static int address(const struct vm *f, const char *name, struct sockaddr_un *ret)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", f->scratch_fd,
                    name);
}

static int listener(struct vm *f, const char *name, int *ret, struct cella_error *err)
{
    struct sockaddr_un a;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address(f, name, &a);
    unlinkat(f->scratch_fd, name, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1) < 0) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return cella_error_set(err, -e, STEP_MACHINE, "port %s: %s", name, strerror(e));
    }
    *ret = fd;
    return 0;
}

/* The name of the socket behind a port: an engine may have one for all of them. */
static const char *socket_name(const struct vm *f, uint32_t port)
{
    const char *const *names = f->engine->ops->sockets;

    return names[port] ? names[port] : names[0];
}

int launch_connect(struct vm *f, uint32_t port, int *ret_fd, struct cella_error *err)
{
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un a;
    int r = 0;

    address(f, socket_name(f, port), &a);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return cella_error_set(err, -errno, 0, "port %u: %s; has %s ended?", port, strerror(errno),
                               f->engine->ops->name);
    if (f->engine->ops->greet)
        r = f->engine->ops->greet(fd, port, err);
    if (r == 0)
        *ret_fd = steal_fd(&fd);
    return r;
}

static void shares(struct vm *f, const struct cella_spec *spec, struct guest *m)
{
    uint32_t i;

    for (i = 0; i < spec->n_mounts; i++) {
        const struct cella_mount *mount = spec_mount(spec, i);
        if (mount->type == CELLA_MOUNT_BIND)
            m->shares[m->n_shares++] =
                (struct guest_share){mount->source, i, (mount->flags & CELLA_MOUNT_WRITABLE) != 0};
    }
    f->n_shares = (int)m->n_shares;
}

/* Emulated, a mitigation costs a fifth of the time and hides nothing: there is no speculation. The small board has no
   timer to measure the processor's clock by, which is the host's: the guest is told. A copy reads no command line, and
   measuring costs 20 ms. */
static void tuning(const struct vm *f, int copy, char *out, size_t cap)
{
    out[0] = 0;
    if (!f->kvm)
        snprintf(out, cap, " mitigations=off no_timer_check");
    if (!f->kvm && f->kind->board == BOARD_MICROVM && !copy)
        snprintf(out, cap, " mitigations=off no_timer_check tsc=reliable tsc_early_khz=%llu",
                 (unsigned long long)host_tsc_khz());
}

int launch_ram_check(struct vm *f, struct cella_error *err)
{
    uint64_t at;

    return engine_ram_find(f->engine, f->ram_fd, f->ram_private, f->ram_bytes, &at, err);
}

static int started(struct vm *f, const struct guest *g, const struct cella_spec *spec,
                   struct cella_error *err)
{
    struct engine_place place = {
        .at = f->scratch, .id = spec->uid_base, .cgroup = &f->cgroup, .host = f->host};
    const char *const *names = f->engine->ops->sockets;
    auto_close int first = -1, second = -1;
    int r = listener(f, names[0], &first, err);

    if (r == 0 && names[1])
        r = listener(f, names[1], &second, err);
    if (r < 0)
        return r;
    place.borrow_listen_fds[0] = first;
    place.borrow_listen_fds[1] = second;
    r = engine_start(f->engine, g, &place, err);
    if (r == 0)
        r = launch_ram_check(f, err);
    if (r == 0)
        console_start(&f->console, f->host, f->engine->console_fd);
    return r;
}

/* A helper of this build; the next call of helper_path() changes its answer. */
static int helper(const struct vm *f, const char *name, char **ret, struct cella_error *err)
{
    const char *path =
        CELLA_HOST_HAS(f->host, helper_path) ? f->host->helper_path(f->host->ctx, name) : NULL;

    if (!path)
        return cella_error_set(err, -ENOENT, STEP_HOST, "%s is not there: build or install it",
                               name);
    *ret = strdup(path);
    return *ret ? 0 : cella_error_set(err, -ENOMEM, STEP_HOST, "out of memory");
}

int launch_start(struct vm *f, const struct cella_spec *spec, int incoming, struct cella_error *err)
{
    auto_free char *shim = NULL;
    auto_free struct guest *m = calloc(1, sizeof(*m));
    auto_close int root = open(spec->root, O_RDONLY | O_CLOEXEC);
    char name[32], append[512], tuned[120];
    int r = 0;

    if (!m)
        return cella_error_set(err, -ENOMEM, STEP_MACHINE, "out of memory");
    if (f->engine->ops->preload)
        r = helper(f, f->engine->ops->preload, &shim, err);
    if (r < 0)
        return r;
    if (root < 0)
        return cella_error_set(err, -errno, STEP_SPEC, "image %s: %s", spec->root, strerror(errno));
    tuning(f, incoming, tuned, sizeof(tuned));
    snprintf(name, sizeof(name), "cella-%s", f->id);
    snprintf(append, sizeof(append), "console=ttyS0 quiet loglevel=4 panic=-1 cella=1%s%s%s", tuned,
             *option_str(spec->options, "append", "") ? " " : "",
             option_str(spec->options, "append", ""));
    *m = (struct guest){.program = f->program,
                        .shim = shim,
                        .name = name,
                        .board = f->kind->board,
                        .kernel = f->kernel,
                        .initrd = incoming ? NULL : f->initrd,
                        .append = append,
                        .cpu = f->cpu,
                        .kvm = f->kvm,
                        .ram_bytes = f->ram_bytes,
                        .disk_bytes = f->disk_bytes,
                        .vcpus = f->vcpus,
                        .mac = spec->own_tap_fd >= 0 ? spec->mac : NULL,
                        .read_bps = f->limits.io_read_bps,
                        .write_bps = f->limits.io_write_bps,
                        .borrow_root_fd = root,
                        .n_layers = f->n_layers,
                        .borrow_ram_fd = f->ram_fd,
                        .ram_private = f->ram_private,
                        .borrow_tap_fd = spec->own_tap_fd,
                        .incoming = incoming};
    memcpy(m->borrow_layer_fds, f->layer_fds, sizeof(f->layer_fds));
    f->has_net = spec->own_tap_fd >= 0;
    shares(f, spec, m);
    return started(f, m, spec, err);
}

/* ---- the object ---- */

static uint32_t wanted(const struct cgroup_layout *l)
{
    uint32_t want = 1u << CGROUP_MEMORY | 1u << CGROUP_PIDS | 1u << CGROUP_CPU;

    if (!l->v2.path[0])
        want |= 1u << CGROUP_CPUACCT | 1u << CGROUP_FREEZER;
    return want | (l->v2.controllers & (1u << CGROUP_IO));
}

static int group(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    struct cgroup_layout layout;
    int r = cgroup_layout_read(&layout, err);

    if (r == 0)
        r = cgroup_create(&layout, option_str(spec->options, "cgroup-parent", "cella"), f->id,
                          wanted(&layout), &f->cgroup, err);
    return r < 0 ? r : limits_apply(f, err);
}

/* The jail follows no link. */
static int program(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    const char *qemu = option_str(spec->options, "qemu", QEMU_DEFAULT);
    auto_free char *path = NULL;
    int r = f->engine->ops->helper ? helper(f, f->engine->ops->helper, &path, err)
                                   : host_qemu(qemu, NULL, 0, err);

    if (r < 0)
        return r;
    f->program = realpath(path ? path : qemu, NULL);
    return f->program ? 0
                      : cella_error_set(err, -errno, STEP_HOST, "%s: %s", path ? path : qemu,
                                        strerror(errno));
}

static int paths(struct vm *f, const struct cella_spec *spec, int copy, struct cella_error *err)
{
    struct stat st;
    int r = program(f, spec, err);

    if (r < 0)
        return r;
    if (stat(spec->root, &st) < 0)
        return cella_error_set(err, -errno, STEP_SPEC, "image %s: %s", spec->root, strerror(errno));
    f->root_bytes = (uint64_t)st.st_size;
    if (copy)
        return 0;
    f->kernel = realpath(spec->kernel, NULL);
    f->initrd = f->kernel ? realpath(spec->initrd, NULL) : NULL;
    return f->initrd ? 0
                     : cella_error_set(err, -errno, STEP_SPEC, "kernel %s: %s", spec->kernel,
                                       strerror(errno));
}

static int object(const struct vm_kind *kind, const struct cella_host *host,
                  const struct cella_spec *spec, struct vm **ret, struct cella_error *err)
{
    struct vm *f = calloc(1, sizeof(*f));
    size_t i;

    if (!f)
        return cella_error_set(err, -ENOMEM, STEP_SPEC, "out of memory");
    f->kind = kind;
    f->host = host;
    f->console.fd = f->ram_fd = f->scratch_fd = f->top_fd = -1;
    f->port_fds[0] = f->port_fds[1] = -1;
    f->cgroup.v2 = -1;
    for (i = 0; i < ARRAY_LEN(f->layer_fds); i++)
        f->layer_fds[i] = -1;
    memcpy(f->id, spec->cell_id, CELLA_ID_LEN);
    f->best_effort = (spec->hdr.flags & CELLA_SPEC_BEST_EFFORT) != 0;
    if (spec->limits)
        f->limits = *spec->limits;
    f->scratch = realpath(spec->scratch, NULL);
    f->scratch_fd = open(spec->scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!f->scratch || f->scratch_fd < 0) {
        int e = errno;
        launch_free(f);
        return cella_error_set(err, -e, STEP_SPEC, "scratch directory %s: %s", spec->scratch,
                               strerror(e));
    }
    *ret = f;
    return 0;
}

int launch_new(const struct vm_kind *kind, const struct cella_host *host,
               const struct cella_spec *spec, int copy, struct vm **ret, struct cella_error *err)
{
    struct vm *f = NULL;
    int r = spec_check(spec, copy, err);

    if (r == 0)
        r = object(kind, host, spec, &f, err);
    if (r == 0)
        r = spec_engine(f, spec, err);
    if (r == 0)
        r = paths(f, spec, copy, err);
    if (r == 0)
        r = spec_machine(f, spec, err);
    if (r == 0)
        r = group(f, spec, err);
    if (r < 0) {
        launch_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

int launch_fresh(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    int r = ram_new(f, err);

    if (r == 0)
        r = disk_new(f, err);
    return r < 0 ? r : launch_start(f, spec, 0, err);
}

static void sockets_remove(const struct vm *f)
{
    size_t i;

    for (i = 0; f->engine && i < ARRAY_LEN(f->engine->ops->sockets); i++)
        if (f->engine->ops->sockets[i])
            unlinkat(f->scratch_fd, f->engine->ops->sockets[i], 0);
}

void launch_free(struct vm *f)
{
    uint32_t i;

    if (!f)
        return;
    console_stop(&f->console);
    if (f->engine)
        engine_kill(f->engine);
    cgroup_remove(&f->cgroup);
    for (i = 0; i < GUEST_LAYERS_MAX; i++)
        if (f->layer_fds[i] >= 0)
            close(f->layer_fds[i]);
    for (i = 0; i < ARRAY_LEN(f->port_fds); i++)
        if (f->port_fds[i] >= 0)
            close(f->port_fds[i]);
    if (f->ram_fd >= 0)
        close(f->ram_fd);
    if (f->top_fd >= 0)
        close(f->top_fd);
    if (f->scratch_fd >= 0) {
        sockets_remove(f);
        close(f->scratch_fd);
    }
    engine_free(f->engine);
    free(f->scratch);
    free(f->program);
    free(f->kernel);
    free(f->initrd);
    free(f);
}
