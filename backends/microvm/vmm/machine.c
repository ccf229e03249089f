/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * machine - makes the machine that a configuration asks for, lets it run and stops it.
 *
 * Order: KVM, memory, devices (before the tables that describe them), then either kernel and processors' first
 * registers, or nothing, when a state is to be loaded. Processors' threads come last; they are confined and parked
 * when this is over. Threads: the VMM thread, with the lock when there are other threads.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "acpi.h"
#include "boot.h"
#include "layout.h"
#include "vmm.h"

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* What took how long, and how long after the start it was done, in microseconds. */
void machine_mark(struct machine *m, const char *what)
{
    uint64_t t = now();
    char line[128];
    int n;

    if (!(m->config.flags & VMM_CONFIG_TIMINGS))
        return;
    n = snprintf(line, sizeof(line), "timing: %s %llu %llu\n", what,
                 (unsigned long long)(t - m->marked_ns) / 1000,
                 (unsigned long long)(t - m->started_ns) / 1000);
    (void)!write(VMM_FD_STDERR, line, (size_t)n);
    m->marked_ns = t;
}

static int parts(struct machine *m, struct why *w)
{
    m->loop = loop_new();
    m->serial_irq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!m->loop || m->serial_irq_fd < 0)
        return why(w, -errno, "event loop: %s", strerror(errno));
    m->serial = serial_new(&m->ports, m->loop, VMM_FD_CONSOLE, m->serial_irq_fd);
    if (!m->serial)
        return why(w, -errno, "serial line: %s", strerror(errno));
    if (kvm_irqfd(&m->kvm, GSI_SERIAL, m->serial_irq_fd) < 0)
        return why(w, -errno, "serial line: KVM_IRQFD: %s", strerror(errno));
    if (platform_add(&m->ports) < 0)
        return why(w, -EEXIST, "ports: two devices want the same");
    return devices_make(m, w);
}

static int fill_memory(struct machine *m, struct boot_entry *ret, struct why *w)
{
    struct acpi_machine a = {.vcpus = m->config.vcpus, .virtio = devices_mask(m)};
    int r = boot_load(&m->ram, VMM_FD_KERNEL, VMM_FD_INITRD, m->config.append, ret, w);

    if (r < 0)
        return r;
    r = acpi_write(&m->ram, &a);
    if (r == 0)
        r = mptable_write(&m->ram, m->config.vcpus);
    if (r == 0)
        r = platform_firmware(&m->ram);
    if (r == 0)
        r = ram_write(&m->ram, AT_GENERATION, m->config.generation, sizeof(m->config.generation));
    return r < 0 ? why(w, r, "the machine's tables do not fit into its memory") : 0;
}

static int boot(struct machine *m, struct why *w)
{
    struct boot_entry entry;
    struct kvm_sregs sregs;
    struct kvm_regs regs;
    uint32_t i;
    int r = fill_memory(m, &entry, w);

    if (r < 0)
        return r;
    machine_mark(m, "kernel-in-memory");
    if (ioctl(m->cpu[0].fd, KVM_GET_SREGS, &sregs) < 0)
        return why(w, -errno, "KVM_GET_SREGS: %s", strerror(errno));
    boot_regs(&entry, &regs, &sregs);
    for (i = 0; i < m->n_cpu && r == 0; i++)
        r = vcpu_boot(&m->cpu[i], &regs, &sregs, w);
    return r;
}

static int processors(struct machine *m, struct why *w)
{
    uint32_t i;
    int r = 0;

    for (i = 0; i < m->config.vcpus && r == 0; i++) {
        r = vcpu_make(&m->cpu[i], m, i, w);
        m->n_cpu = i + 1;
    }
    return r;
}

static void wait_parked(struct machine *m)
{
    uint32_t i;

    for (i = 0; i < m->n_cpu; i++)
        while (!m->cpu[i].parked)
            pthread_cond_wait(&m->parked, &m->lock);
}

static int threads(struct machine *m, struct why *w)
{
    uint32_t i;
    int r = vcpu_signals();

    if (r < 0)
        return why(w, r, "signals: %s", strerror(-r));
    for (i = 0; i < m->n_cpu && r == 0; i++)
        r = vcpu_start(&m->cpu[i], w);
    if (r == 0) {
        pthread_mutex_lock(&m->lock);
        wait_parked(m);
        pthread_mutex_unlock(&m->lock);
    }
    return r;
}

int machine_make(struct machine *m, const struct vmm_config *c, struct why *w)
{
    int r;

    m->config = *c;
    m->late = !c->n_layers;
    m->started_ns = m->marked_ns = now();
    r = kvm_open(&m->kvm, VMM_FD_KVM, c->vcpus, w);
    if (r < 0)
        return r;
    machine_mark(m, "kvm");
    r = ram_map(&m->ram, VMM_FD_RAM, c->ram_bytes, !!(c->flags & VMM_CONFIG_PRIVATE));
    if (r < 0)
        return why(w, r, "memory: the file cannot be mapped as %llu MiB: %s",
                   (unsigned long long)(c->ram_bytes >> 20), strerror(-r));
    r = kvm_memory(&m->kvm, &m->ram, w);
    if (r == 0)
        r = parts(m, w);
    machine_mark(m, "memory-devices");
    if (r == 0)
        r = processors(m, w);
    machine_mark(m, "processors");
    if (r == 0 && !(c->flags & VMM_CONFIG_INCOMING))
        r = boot(m, w);
    if (r == 0)
        r = threads(m, w);
    machine_mark(m, "made");
    return r;
}

void machine_pause(struct machine *m)
{
    uint32_t i;

    m->running = 0;
    for (i = 0; i < m->n_cpu; i++)
        if (!m->cpu[i].parked)
            vcpu_kick(&m->cpu[i]);
    wait_parked(m);
    serial_flush(m->serial);
}

/* Devices look at their queues anew after a save or a load: kicks are in no state. The guest's watchdogs are told of the pause;
   a guest that has no KVM clock refuses that, and needs it not. @seccomp vmm: ioctl(KVM_KVMCLOCK_CTRL) */
int machine_cont(struct machine *m, struct why *w)
{
    uint32_t i;

    if ((m->config.flags & VMM_CONFIG_INCOMING) && !m->loaded)
        return why(w, -EPROTO, "there is nothing to run: no state was loaded");
    if (m->running)
        return 0;
    for (i = 0; i < m->n_cpu; i++) {
        (void)ioctl(m->cpu[i].fd, KVM_KVMCLOCK_CTRL, 0);
        __atomic_store_n(&m->cpu[i].run->immediate_exit, 0, __ATOMIC_SEQ_CST);
    }
    if (m->drained)
        devices_resumed(m);
    m->drained = 0;
    m->running = 1;
    pthread_cond_broadcast(&m->go);
    machine_mark(m, "running");
    return 0;
}
