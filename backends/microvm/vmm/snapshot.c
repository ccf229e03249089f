/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * snapshot - a stopped machine without its memory as one file, and back.
 *
 * Saving: devices first, since what they finish may raise interrupts; then processors; then controllers, timer and
 * clock. The order in the file is the order of loading: processors, controllers, devices. Interrupts of devices
 * go through a work queue of the kernel and may miss the controllers' state; the devices raise them again when the
 * machine goes on. Last comes the new generation id, with its interrupt. Threads: the VMM thread, with the lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "boot.h"
#include "layout.h"
#include "vmm.h"

#define TAG STATE_TAG('C', 'V', 'M', 'M')
#define TAG_END STATE_TAG('E', 'N', 'D', '.')
#define VERSION VMM_STATE_VERSION

static void head_save(const struct machine *m, struct state_out *o)
{
    state_begin(o, TAG, VERSION);
    state_put_u64(o, m->config.ram_bytes);
    state_put_u64(o, m->config.disk_bytes);
    state_put_u32(o, m->config.vcpus);
    state_put_u32(o, devices_mask(m));
    cpuid_save(&m->kvm.cpuid, o);
    state_end(o);
}

static int gather(struct machine *m, struct state_out *o, struct state_out *devices, struct why *w)
{
    uint32_t i;
    int r;

    serial_save(m->serial, devices);
    r = devices_save(m, devices, w);
    if (r < 0)
        return r;
    head_save(m, o);
    for (i = 0; i < m->n_cpu && r == 0; i++)
        r = vcpu_save(&m->cpu[i], o, w);
    if (r < 0)
        return r;
    kvm_save(&m->kvm, o, w);
    state_put(o, devices->data, devices->len);
    state_begin(o, TAG_END, VERSION);
    state_end(o);
    if (o->oom || devices->oom)
        return why(w, -ENOMEM, "the state cannot be gathered: no memory, or KVM refused");
    return 0;
}

/* @seccomp vmm: pwrite64 */
static int write_out(int fd, const struct state_out *o, struct why *w)
{
    size_t at = 0;

    while (at < o->len) {
        ssize_t n = pwrite(fd, o->data + at, o->len - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return why(w, n < 0 ? -errno : -EIO, "the state cannot be written: %s",
                       n < 0 ? strerror(errno) : "nothing was taken");
        at += (size_t)n;
    }
    return 0;
}

int machine_save(struct machine *m, int borrow_fd, struct why *w)
{
    struct state_out o = {0}, devices = {0};
    int r;

    m->drained = 1;
    r = gather(m, &o, &devices, w);
    if (r == 0)
        r = write_out(borrow_fd, &o, w);
    state_out_free(&o);
    state_out_free(&devices);
    return r;
}

/* ------------------------------------------------------------------------- load */

static int head_load(struct machine *m, struct state_in *i, struct why *w)
{
    uint64_t ram, disk;
    uint32_t vcpus, mask;
    struct cpuid id;
    int r;

    state_enter(i, TAG, VERSION);
    ram = state_get_u64(i);
    disk = state_get_u64(i);
    vcpus = state_get_u32(i);
    mask = state_get_u32(i);
    (void)cpuid_load(&id, i);
    state_leave(i);
    if (i->bad)
        return why(w, -EBADMSG, "this is no state of a machine of this build");
    if (ram != m->config.ram_bytes || disk != m->config.disk_bytes || vcpus != m->config.vcpus ||
        mask != devices_mask(m))
        return why(w, -EINVAL,
                   "the state is of a machine with %llu MiB, %u processors, a disk of %llu MiB and "
                   "devices 0x%x; this one has %llu, %u, %llu and 0x%x",
                   (unsigned long long)ram >> 20, vcpus, (unsigned long long)disk >> 20, mask,
                   (unsigned long long)m->config.ram_bytes >> 20, m->config.vcpus,
                   (unsigned long long)m->config.disk_bytes >> 20, devices_mask(m));
    r = cpuid_covers(&m->kvm.cpuid, &id, w);
    if (r == 0)
        m->kvm.cpuid = id;
    return r;
}

static int rest_load(struct machine *m, struct state_in *i, struct why *w)
{
    int r;

    if (serial_load(m->serial, i) < 0)
        return why(w, -EBADMSG, "serial line: its state is not as it was written");
    r = devices_load(m, i, w);
    if (r < 0)
        return r;
    state_enter(i, TAG_END, VERSION);
    state_leave(i);
    return i->bad || i->at != i->len ? why(w, -EBADMSG, "the state does not end where it should")
                                     : 0;
}

static int generation_new(struct machine *m, struct why *w)
{
    int r = ram_write(&m->ram, AT_GENERATION, m->config.generation, sizeof(m->config.generation));

    if (r == 0)
        r = kvm_pulse(&m->kvm, GSI_GENERATION);
    return r < 0 ? why(w, r, "generation id: %s", strerror(-r)) : 0;
}

static int apply(struct machine *m, struct state_in *i, struct why *w)
{
    uint32_t n;
    int r = head_load(m, i, w);

    for (n = 0; n < m->n_cpu && r == 0; n++)
        r = vcpu_load(&m->cpu[n], i, w);
    if (r == 0)
        r = kvm_load(&m->kvm, i, w);
    if (r == 0)
        r = rest_load(m, i, w);
    return r == 0 ? generation_new(m, w) : r;
}

/* @seccomp vmm: pread64 newfstatat fstat */
int machine_load(struct machine *m, int borrow_fd, struct why *w)
{
    struct state_in in;
    struct stat st;
    void *data;
    int r;

    if (fstat(borrow_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)STATE_MAX)
        return why(w, -EBADMSG, "the state is no file, or too long");
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return why(w, -ENOMEM, "no memory for the state");
    r = boot_read(borrow_fd, 0, data, (uint64_t)st.st_size);
    if (r < 0) {
        why(w, r, "the state cannot be read");
    } else {
        state_open(&in, data, (size_t)st.st_size);
        r = apply(m, &in, w);
    }
    free(data);
    if (r == 0)
        m->loaded = m->drained = 1;
    return r;
}
