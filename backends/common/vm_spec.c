/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vm_spec - what a machine is to be, from the description of its cell: refused where it cannot be so, before anything is
 * made. Threads: no state.
 */
#include <sys/stat.h>

#include "vm.h"

#define RAM_DEFAULT (512 << 20)
#define DISK_DEFAULT (1ll << 30)
#define MIB (1ull << 20)
#define APPEND_MAX 320 /* of the option; with our own words it is still below what a kernel reads */

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

int spec_check(const struct cella_spec *spec, int copy, struct cella_error *err)
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

int spec_engine(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    int r = engine_choose(f, spec, err);

    if (r == 0 && (!f->engine->ops->shares || f->kind->board == BOARD_MICROVM))
        r = no_mounts(f, spec, err);
    return r;
}

int spec_machine(struct vm *f, const struct cella_spec *spec, struct cella_error *err)
{
    int r = sizes(f, spec, err);

    if (r == 0)
        r = processor(f, spec, err);
    return r < 0 ? r : append_check(spec, err);
}
