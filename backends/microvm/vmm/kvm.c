/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * kvm - the machine's side of KVM: what the kernel must be able to do, the VM with its interrupt controllers and
 * timer, memory, event descriptors, and the state that belongs to no processor.
 *
 * Order: task segment, interrupt controllers and timer before any processor. A state is loaded after the processors
 * (PIT, clock, controllers). Threads: the VMM thread; kvm_pulse() on any.
 */
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "layout.h"
#include "vmm.h"

#define API 12
#define TAG STATE_TAG('K', 'V', 'M', ' ')
#define VERSION 1u

static int need(const struct kvm *k, struct why *w)
{
    static const struct {
        int cap;
        const char *name;
    } caps[] = {
        {KVM_CAP_IRQCHIP, "IRQCHIP"},
        {KVM_CAP_IOEVENTFD, "IOEVENTFD"},
        {KVM_CAP_IRQFD, "IRQFD"},
        {KVM_CAP_USER_MEMORY, "USER_MEMORY"},
        {KVM_CAP_SET_TSS_ADDR, "SET_TSS_ADDR"},
        {KVM_CAP_PIT2, "PIT2"},
        {KVM_CAP_PIT_STATE2, "PIT_STATE2"},
        {KVM_CAP_ADJUST_CLOCK, "ADJUST_CLOCK"},
        {KVM_CAP_DEBUGREGS, "DEBUGREGS"},
        {KVM_CAP_MP_STATE, "MP_STATE"},
        {KVM_CAP_VCPU_EVENTS, "VCPU_EVENTS"},
        {KVM_CAP_XCRS, "XCRS"},
        {KVM_CAP_XSAVE, "XSAVE"},
        {KVM_CAP_EXT_CPUID, "EXT_CPUID"},
        {KVM_CAP_IMMEDIATE_EXIT, "IMMEDIATE_EXIT"},
    };
    size_t i;
    int n;

    n = ioctl(k->fd, KVM_GET_API_VERSION, 0);
    if (n != API)
        return why(w, n < 0 ? -errno : -ENOTSUP, "/dev/kvm: API version %d, and %d is needed: %s",
                   n, API, n < 0 ? strerror(errno) : "another kernel");
    for (i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
        if (ioctl(k->fd, KVM_CHECK_EXTENSION, (unsigned long)caps[i].cap) <= 0)
            return why(w, -ENOTSUP, "/dev/kvm: this kernel's KVM has no %s", caps[i].name);
    n = ioctl(k->fd, KVM_CHECK_EXTENSION, (unsigned long)KVM_CAP_NR_MEMSLOTS);
    if (n > 0 && n < 2)
        return why(w, -ENOTSUP, "/dev/kvm: one memory slot only");
    return 0;
}

/* Is what KVM stands on itself an emulation? */
static int emulated(void)
{
    uint32_t eax, id[3];

    __cpuid(0x40000000, eax, id[0], id[1], id[2]);
    return eax >= 0x40000000 && !memcmp(id, "TCGTCGTCGTCG", sizeof(id));
}

static int describe(struct kvm *k, uint32_t vcpus, struct why *w)
{
    struct {
        uint32_t n, v[MSR_MAX * 4];
    } list = {.n = MSR_MAX * 4};

    k->cpuid.n = CPUID_MAX;
    if (ioctl(k->fd, KVM_GET_SUPPORTED_CPUID, &k->cpuid) < 0)
        return why(w, -errno, "KVM_GET_SUPPORTED_CPUID: %s", strerror(errno));
    k->tsc_deadline =
        ioctl(k->fd, KVM_CHECK_EXTENSION, (unsigned long)KVM_CAP_TSC_DEADLINE_TIMER) > 0;
    cpuid_filter(&k->cpuid, vcpus, k->tsc_deadline);
    if (emulated())
        cpuid_without_xsave(&k->cpuid);
    if (ioctl(k->fd, KVM_GET_MSR_INDEX_LIST, &list) < 0)
        return why(w, -errno, "KVM_GET_MSR_INDEX_LIST: %s", strerror(errno));
    msrs_choose(&k->msrs, list.v, list.n);
    return 0;
}

int kvm_open(struct kvm *k, int borrow_kvm_fd, uint32_t vcpus, struct why *w)
{
    struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};
    int r, n;

    k->fd = borrow_kvm_fd;
    r = need(k, w);
    if (r < 0)
        return r;
    n = ioctl(k->fd, KVM_CHECK_EXTENSION, (unsigned long)KVM_CAP_MAX_VCPUS);
    if (n > 0 && vcpus > (uint32_t)n)
        return why(w, -ERANGE, "%u processors were asked for; KVM here runs %d", vcpus, n);
    r = describe(k, vcpus, w);
    if (r < 0)
        return r;
    do
        k->vm = ioctl(k->fd, KVM_CREATE_VM, 0ul);
    while (k->vm < 0 && errno == EINTR);
    if (k->vm < 0)
        return why(w, -errno, "KVM_CREATE_VM: %s", strerror(errno));
    if (ioctl(k->vm, KVM_SET_TSS_ADDR, (unsigned long)TSS_BASE) < 0)
        return why(w, -errno, "KVM_SET_TSS_ADDR: %s", strerror(errno));
    if (ioctl(k->vm, KVM_CREATE_IRQCHIP, 0ul) < 0)
        return why(w, -errno, "KVM_CREATE_IRQCHIP: %s", strerror(errno));
    if (ioctl(k->vm, KVM_CREATE_PIT2, &pit) < 0)
        return why(w, -errno, "KVM_CREATE_PIT2: %s", strerror(errno));
    n = ioctl(k->fd, KVM_GET_VCPU_MMAP_SIZE, 0ul);
    if (n < (int)sizeof(struct kvm_run))
        return why(w, -EIO, "KVM_GET_VCPU_MMAP_SIZE: %d", n);
    k->run_len = (size_t)n;
    return 0;
}

static int slot(const struct kvm *k, uint32_t number, uint64_t gpa, uint64_t len, uint8_t *at)
{
    struct kvm_userspace_memory_region r = {.slot = number,
                                            .guest_phys_addr = gpa,
                                            .memory_size = len,
                                            .userspace_addr = (uintptr_t)at};

    return len && ioctl(k->vm, KVM_SET_USER_MEMORY_REGION, &r) < 0 ? -errno : 0;
}

int kvm_memory(const struct kvm *k, const struct ram *r, struct why *w)
{
    int e = slot(k, 0, 0, r->low, r->base);

    if (e == 0)
        e = slot(k, 1, RAM_HIGH, r->high, r->base + r->low);
    return e < 0 ? why(w, e, "KVM_SET_USER_MEMORY_REGION: %s", strerror(-e)) : 0;
}

int kvm_irqfd(const struct kvm *k, uint32_t gsi, int borrow_fd)
{
    struct kvm_irqfd a = {.fd = (uint32_t)borrow_fd, .gsi = gsi};

    return ioctl(k->vm, KVM_IRQFD, &a) < 0 ? -errno : 0;
}

int kvm_ioeventfd(const struct kvm *k, uint64_t address, uint32_t value, int borrow_fd)
{
    struct kvm_ioeventfd a = {.datamatch = value,
                              .addr = address,
                              .len = 4,
                              .fd = borrow_fd,
                              .flags = KVM_IOEVENTFD_FLAG_DATAMATCH};

    return ioctl(k->vm, KVM_IOEVENTFD, &a) < 0 ? -errno : 0;
}

/* @seccomp vmm: ioctl(KVM_IRQ_LINE) */
int kvm_pulse(const struct kvm *k, uint32_t gsi)
{
    struct kvm_irq_level l = {.irq = gsi, .level = 1};
    int r = ioctl(k->vm, KVM_IRQ_LINE, &l) < 0 ? -errno : 0;

    l.level = 0;
    return ioctl(k->vm, KVM_IRQ_LINE, &l) < 0 ? -errno : r;
}

/* ------------------------------------------------------------------------ state */

static const uint32_t chips[] = {KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE, KVM_IRQCHIP_IOAPIC};

/* @seccomp vmm: ioctl(KVM_GET_PIT2) ioctl(KVM_GET_CLOCK) ioctl(KVM_GET_IRQCHIP) */
void kvm_save(const struct kvm *k, struct state_out *o, struct why *w)
{
    struct kvm_pit_state2 pit;
    struct kvm_clock_data clock;
    struct kvm_irqchip chip;
    size_t i;

    memset(&pit, 0, sizeof(pit));
    memset(&clock, 0, sizeof(clock));
    if (ioctl(k->vm, KVM_GET_PIT2, &pit) < 0 || ioctl(k->vm, KVM_GET_CLOCK, &clock) < 0) {
        o->oom = 1;
        why(w, -errno, "KVM_GET_PIT2, KVM_GET_CLOCK: %s", strerror(errno));
    }
    state_begin(o, TAG, VERSION);
    state_put(o, &pit, sizeof(pit));
    state_put_u64(o, clock.clock);
    for (i = 0; i < sizeof(chips) / sizeof(chips[0]); i++) {
        memset(&chip, 0, sizeof(chip));
        chip.chip_id = chips[i];
        if (ioctl(k->vm, KVM_GET_IRQCHIP, &chip) < 0) {
            o->oom = 1;
            why(w, -errno, "KVM_GET_IRQCHIP %u: %s", chips[i], strerror(errno));
        }
        state_put(o, &chip.chip, sizeof(chip.chip));
    }
    state_end(o);
}

/* @seccomp vmm: ioctl(KVM_SET_PIT2) ioctl(KVM_SET_CLOCK) ioctl(KVM_SET_IRQCHIP) */
int kvm_load(const struct kvm *k, struct state_in *i, struct why *w)
{
    struct kvm_pit_state2 pit;
    struct kvm_clock_data clock;
    struct kvm_irqchip chip[3];
    size_t n;

    memset(&clock, 0, sizeof(clock));
    memset(chip, 0, sizeof(chip));
    state_enter(i, TAG, VERSION);
    state_get(i, &pit, sizeof(pit));
    clock.clock = state_get_u64(i);
    for (n = 0; n < 3; n++) {
        chip[n].chip_id = chips[n];
        state_get(i, &chip[n].chip, sizeof(chip[n].chip));
    }
    state_leave(i);
    if (i->bad)
        return why(w, -EBADMSG, "the state of the machine's timers is not as it was written");
    if (ioctl(k->vm, KVM_SET_PIT2, &pit) < 0)
        return why(w, -errno, "KVM_SET_PIT2: %s", strerror(errno));
    if (ioctl(k->vm, KVM_SET_CLOCK, &clock) < 0)
        return why(w, -errno, "KVM_SET_CLOCK: %s", strerror(errno));
    for (n = 0; n < 3; n++)
        if (ioctl(k->vm, KVM_SET_IRQCHIP, &chip[n]) < 0)
            return why(w, -errno, "KVM_SET_IRQCHIP %u: %s", chips[n], strerror(errno));
    return 0;
}
