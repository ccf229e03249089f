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

#define RAM_DEFAULT (512 << 20)
#define DISK_DEFAULT (1ll << 30)
#define MIB (1ull << 20)
#define APPEND_MAX 320 /* of the option; with our own words it is still below what a kernel reads */

/* ---- the spec ---- */

static int file_check(const char *what, const char *path, const char *hint, struct cella_error *err)
{
    struct stat st;

    if (!path)
        return cella_error_set(err, -ENOENT, STEP_SPEC, "the guest has no %s: %s", what, hint);
    if (stat(path, &st) < 0)
        return cella_error_set(err, -errno, STEP_SPEC, "%s %s: %s; %s", what, path, strerror(errno),
                               hint);
    if (!S_ISREG(st.st_mode) || !st.st_size)
        return cella_error_set(err, -EINVAL, STEP_SPEC, "%s %s: it is no file with anything in it",
                               what, path);
    if (!(st.st_mode & S_IROTH))
        return cella_error_set(err, -EACCES, STEP_SPEC,
                               "%s %s: it is read without privilege; chmod a+r %s", what, path,
                               path);
    return 0;
}

/* The engine serves it under an id of its own and would not start. */
static int mount_readable(const char *source, uint32_t id, struct cella_error *err)
{
    unsigned need = S_IROTH | S_IXOTH;
    struct stat st;

    if (stat(source, &st) < 0)
        return cella_error_set(err, -errno, STEP_SPEC, "mount %s: %s", source, strerror(errno));
    if (st.st_uid == id)
        need <<= 6;
    else if (st.st_gid == id)
        need <<= 3;
    if ((st.st_mode & need) == need)
        return 0;
    return cella_error_set(err, -EACCES, STEP_SPEC,
                           "mount %s: the id %u may not look into it, and a machine gets nothing "
                           "more than that; chmod o+rx %s",
                           source, id, source);
}

static int mounts_check(const struct cella_spec *spec, struct cella_error *err)
{
    uint32_t i;
    int r;

    if (spec->n_mounts > GUEST_SHARES_MAX)
        return cella_error_set(err, -E2BIG, STEP_SPEC, "%u mounts: at most %d", spec->n_mounts,
                               GUEST_SHARES_MAX);
    for (i = 0; i < spec->n_mounts; i++) {
        const struct cella_mount *m = spec_mount(spec, i);
        if (m->type == CELLA_MOUNT_TMPFS)
            continue; /* the guest's own */
        if (m->type != CELLA_MOUNT_BIND || !m->source || m->source[0] != '/')
            return cella_error_set(err, -EINVAL, STEP_SPEC, "mount %s: no absolute source",
                                   m->target ? m->target : "?");
        if (m->flags & CELLA_MOUNT_FILE)
            return cella_error_set(err, -ENOTSUP, STEP_SPEC,
                                   "mount %s: a machine is shown directories, not single files; "
                                   "mount the directory, or copy the file with cella cp",
                                   m->source);
        r = mount_readable(m->source, spec->uid_base, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int spec_check(const struct cella_spec *spec, int copy, struct cella_error *err)
{
    static const char *const hint = "cella image kernel fetch gets one";
    int r = spec_check_id(spec, STEP_SPEC, err);

    if (r < 0)
        return r;
    if (!spec->uid_base)
        return cella_error_set(err, -EINVAL, STEP_SPEC,
                               "id range: a machine needs an id of its own that is not 0");
    if (!copy)
        r = file_check("kernel", spec->kernel, hint, err);
    if (r == 0 && !copy)
        r = file_check("initramfs", spec->initrd, hint, err);
    if (r == 0 && (!spec->root || spec->root[0] != '/'))
        r = cella_error_set(err, -EINVAL, STEP_SPEC, "root \"%s\": expected a disk image",
                            spec->root ? spec->root : "");
    return r < 0 ? r : mounts_check(spec, err);
}

/* ---- sizes ---- */

static int sizes(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    uint64_t limit = f->limits.memory_bytes;
    uint64_t ram = limit && limit < RAM_MAX
                       ? limit + RAM_KERNEL(limit)
                       : (uint64_t)option_int(spec->options, "memory", RAM_DEFAULT);
    uint64_t cpus = (f->limits.cpu_millis + 999) / 1000;

    f->ram_bytes = (ram + MIB - 1) & ~(MIB - 1);
    f->vcpus = cpus ? (uint32_t)(cpus < VCPUS_MAX ? cpus : VCPUS_MAX) : 1;
    f->disk_bytes = f->limits.disk_bytes
                        ? f->limits.disk_bytes
                        : (uint64_t)option_int(spec->options, "disk", DISK_DEFAULT);
    f->disk_bytes &= ~4095ull;
    if (f->ram_bytes < RAM_MIN || limit >= RAM_MAX)
        return cella_error_set(err, -EINVAL, STEP_SPEC,
                               "memory limit of %llu bytes: a machine has %llu to %llu",
                               (unsigned long long)(limit ? limit : ram),
                               (unsigned long long)RAM_MIN, (unsigned long long)RAM_MAX);
    return 0;
}

/* Which engine. Emulated on a host with KVM is refused: the class's floor was checked against the other. */
static int engine_choose(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    const struct vm_kind *k = f->kind;
    const char *choice = option_str(spec->options, k->choice, "auto");
    int emulated = !strcmp(choice, k->choice_emulated);
    char why[200];
    int kvm = host_kvm(why, sizeof(why));

    if (!strcmp(choice, k->choice_kvm) && !kvm)
        return cella_error_set(err, -ENOTSUP, STEP_HOST, "option \"%s\": %s: %s", k->choice, choice,
                               why);
    if (emulated && kvm && !f->best_effort)
        return cella_error_set(err, -ENOTSUP, STEP_HOST,
                               "option \"%s\": %s: this host has KVM and the class was checked "
                               "against the strength vm, which an emulated processor has not; set "
                               "\"best_effort\" in the class, or leave the option out",
                               k->choice, choice);
    f->kvm = kvm && !emulated;
    f->engine = engine_new(f->kvm ? k->kvm : k->emulated);
    return f->engine ? 0 : cella_error_set(err, -ENOMEM, STEP_MACHINE, "out of memory");
}

static int processor(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    const char *cpu = option_str(spec->options, "cpu", "auto");

    if (strcmp(cpu, "auto") && f->engine->ops->helper)
        return cella_error_set(err, -ENOTSUP, STEP_SPEC,
                               "option \"cpu\": %s knows no models: it shows the guest what of the "
                               "host's processor a guest can use; leave the option out",
                               f->engine->ops->name);
    if (!strcmp(cpu, "auto")) /* no virtualisation inside: it doubles what a guest can attack */
        cpu = f->kvm ? "host,migratable=on,-svm,-vmx" : "max,-svm,-la57";
    if (strlen(cpu) >= sizeof(f->cpu) || strspn(cpu, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRS"
                                                     "TUVWXYZ0123456789-_.,=+") != strlen(cpu))
        return cella_error_set(err, -EINVAL, STEP_SPEC, "option \"cpu\": \"%s\" is no model", cpu);
    strcpy(f->cpu, cpu);
    return 0;
}

static int append_check(const struct cella_spec *spec, struct cella_error *err)
{
    size_t n = strlen(option_str(spec->options, "append", ""));

    return n <= APPEND_MAX
               ? 0
               : cella_error_set(err, -E2BIG, STEP_SPEC, "option \"append\": %zu bytes, at most %d",
                                 n, APPEND_MAX);
}

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

static int no_mounts(const struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    uint32_t i;

    for (i = 0; i < spec->n_mounts; i++)
        if (spec_mount(spec, i)->type == CELLA_MOUNT_BIND)
            return cella_error_set(err, -ENOTSUP, STEP_SPEC,
                                   "mount %s: %s shows no directories of the host; copy what the "
                                   "cell needs with cella cp, or choose the backend fullvm",
                                   spec_mount(spec, i)->target, f->engine->ops->name);
    return 0;
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
        r = engine_choose(f, spec, err);
    if (r == 0 && (!f->engine->ops->shares || f->kind->board == BOARD_MICROVM))
        r = no_mounts(f, spec, err);
    if (r == 0)
        r = paths(f, spec, copy, err);
    if (r == 0)
        r = sizes(f, spec, err);
    if (r == 0)
        r = processor(f, spec, err);
    if (r == 0)
        r = append_check(spec, err);
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
