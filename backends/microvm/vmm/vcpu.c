/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vcpu - one processor of the guest: how it is made, and the thread that runs it and answers its exits.
 *
 * Stopping: the VMM thread clears `running`, sets immediate_exit and sends a signal. The thread parks only when
 * KVM_RUN has come back with EINTR, because that entry is what completes an access that was answered before; so
 * whoever sees `parked` may read and write all of the processor's state. A signal between the look at `running` and
 * KVM_RUN is not lost: immediate_exit makes KVM_RUN return at once.
 * Order at birth: CPUID before registers, which KVM judges by it. Threads: one each; the rest on the VMM thread.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "confine.h"
#include "vmm.h"

#define KICK SIGUSR1
#define STACK (512u << 10)
#define LVT_LINT0 0x350u
#define LVT_LINT1 0x360u
#define MODE_NMI (4u << 8)
#define MODE_EXTINT (7u << 8)
#define MODE_MASK (7u << 8)

/* ------------------------------------------------------------------------- run */

static void port_exit(struct vcpu *c)
{
    struct kvm_run *run = c->run;
    uint64_t size = run->io.size, count = run->io.count;
    uint8_t *data = (uint8_t *)run + run->io.data_offset;

    pthread_mutex_lock(&c->m->lock);
    for (; count; count--, data += size) {
        if (run->io.direction == KVM_EXIT_IO_OUT)
            bus_write(&c->m->ports, run->io.port, data, (unsigned)size);
        else
            bus_read(&c->m->ports, run->io.port, data, (unsigned)size);
    }
    pthread_mutex_unlock(&c->m->lock);
}

static void memory_exit(struct vcpu *c)
{
    struct kvm_run *run = c->run;

    pthread_mutex_lock(&c->m->lock);
    if (run->mmio.is_write)
        bus_write(&c->m->memory, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
    else
        bus_read(&c->m->memory, run->mmio.phys_addr, run->mmio.data, run->mmio.len);
    pthread_mutex_unlock(&c->m->lock);
}

/* @seccomp vcpu: ioctl(KVM_GET_REGS) */
static unsigned long long rip(const struct vcpu *c)
{
    struct kvm_regs r;

    return ioctl(c->fd, KVM_GET_REGS, &r) < 0 ? 0 : r.rip;
}

static void internal_error(const struct vcpu *c)
{
    uint32_t why_not = c->run->internal.suberror;

    if (why_not == KVM_INTERNAL_ERROR_EMULATION)
        vmm_end(VMM_EXIT_GUEST_BROKE, "guest: processor %u did what KVM cannot emulate, at 0x%llx",
                c->index, rip(c));
    vmm_end(VMM_EXIT_HOST, "KVM: internal error %u on processor %u at 0x%llx", why_not, c->index,
            rip(c));
}

static void system_event(const struct vcpu *c)
{
    uint32_t type = c->run->system_event.type;

    if (type == KVM_SYSTEM_EVENT_SHUTDOWN)
        vmm_end(VMM_EXIT_GUEST_DONE, "guest: switched itself off");
    if (type == KVM_SYSTEM_EVENT_RESET)
        vmm_end(VMM_EXIT_GUEST_DONE, "guest: asked for a reset");
    vmm_end(VMM_EXIT_GUEST_BROKE, "guest: system event %u on processor %u", type, c->index);
}

static void answer(struct vcpu *c)
{
    switch (c->run->exit_reason) {
    case KVM_EXIT_IO:
        port_exit(c);
        break;
    case KVM_EXIT_MMIO:
        memory_exit(c);
        break;
    case KVM_EXIT_INTR:
    case KVM_EXIT_HLT: /* the controllers are in the kernel: it waits there */
    case KVM_EXIT_IRQ_WINDOW_OPEN:
        break;
    case KVM_EXIT_SHUTDOWN:
        vmm_end(VMM_EXIT_GUEST_BROKE, "guest: triple fault on processor %u at 0x%llx", c->index,
                rip(c));
    case KVM_EXIT_SYSTEM_EVENT:
        system_event(c);
        break;
    case KVM_EXIT_FAIL_ENTRY:
        vmm_end(VMM_EXIT_HOST, "KVM: the processor refuses to enter the guest: reason 0x%llx",
                (unsigned long long)c->run->fail_entry.hardware_entry_failure_reason);
    case KVM_EXIT_INTERNAL_ERROR:
        internal_error(c);
        break;
    default:
        vmm_end(VMM_EXIT_HOST, "KVM: exit %u on processor %u, which nobody asked for",
                c->run->exit_reason, c->index);
    }
}

/* @seccomp vcpu: futex */
static void park(struct vcpu *c)
{
    struct machine *m = c->m;

    pthread_mutex_lock(&m->lock);
    while (!m->running) {
        c->parked = 1;
        pthread_cond_signal(&m->parked);
        pthread_cond_wait(&m->go, &m->lock);
    }
    c->parked = 0;
    pthread_mutex_unlock(&m->lock);
}

/* @seccomp vcpu: ioctl(KVM_RUN) rt_sigreturn */
static void *thread(void *self)
{
    struct vcpu *c = self;
    int r = confine_vcpu();

    if (r < 0 && r != -ENOSYS)
        vmm_end(VMM_EXIT_HOST, "seccomp: processor %u cannot be confined: %s", c->index,
                strerror(-r));
    park(c);
    for (;;) {
        if (ioctl(c->fd, KVM_RUN, 0) == 0)
            answer(c);
        else if (errno == EINTR)
            park(c);
        else if (errno != EAGAIN) /* EAGAIN: nobody has started it yet */
            vmm_end(VMM_EXIT_HOST, "KVM_RUN: processor %u at 0x%llx: %s", c->index, rip(c),
                    strerror(errno));
    }
}

/* ------------------------------------------------------------------------ birth */

static void nothing(int signal)
{
    (void)signal;
}

int vcpu_signals(void)
{
    struct sigaction a;

    memset(&a, 0, sizeof(a));
    a.sa_handler = nothing; /* without SA_RESTART: it has to interrupt */
    return sigaction(KICK, &a, NULL) < 0 ? -errno : 0;
}

/* @seccomp vmm: tgkill getpid gettid */
void vcpu_kick(struct vcpu *c)
{
    __atomic_store_n(&c->run->immediate_exit, 1, __ATOMIC_SEQ_CST);
    pthread_kill(c->thread, KICK);
}

int vcpu_make(struct vcpu *c, struct machine *m, uint32_t index, struct why *w)
{
    void *run;

    c->m = m;
    c->index = index;
    c->fd = ioctl(m->kvm.vm, KVM_CREATE_VCPU, (unsigned long)index);
    if (c->fd < 0)
        return why(w, -errno, "KVM_CREATE_VCPU %u: %s", index, strerror(errno));
    run = mmap(NULL, m->kvm.run_len, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (run == MAP_FAILED)
        return why(w, -errno, "kvm_run of processor %u: %s", index, strerror(errno));
    c->run = run;
    c->made = 1;
    return 0;
}

static int boot_msrs(struct vcpu *c, struct why *w)
{
    struct {
        uint32_t n, pad;
        struct kvm_msr_entry v[16];
    } list = {.pad = 0};
    int done;

    list.n = msrs_boot(list.v, 16);
    done = ioctl(c->fd, KVM_SET_MSRS, &list);
    if (done != (int)list.n)
        return why(w, done < 0 ? -errno : -ENOTSUP, "KVM_SET_MSRS: register 0x%x is refused",
                   list.v[done < 0 ? 0 : done].index);
    return 0;
}

static void lvt_mode(struct kvm_lapic_state *l, uint32_t at, uint32_t mode)
{
    uint32_t v;

    memcpy(&v, l->regs + at, sizeof(v));
    v = (v & ~MODE_MASK) | mode;
    memcpy(l->regs + at, &v, sizeof(v));
}

/* The other processors wait for the first one's start-up interrupt: their local controllers see to that. */
int vcpu_boot(struct vcpu *c, const struct kvm_regs *regs, const struct kvm_sregs *want,
              struct why *w)
{
    struct cpuid id = c->m->kvm.cpuid;
    struct kvm_fpu fpu = {.fcw = 0x37f, .mxcsr = 0x1f80};
    struct kvm_lapic_state lapic;
    int r;

    cpuid_number(&id, c->index);
    if (ioctl(c->fd, KVM_SET_CPUID2, &id) < 0)
        return why(w, -errno, "KVM_SET_CPUID2: %s", strerror(errno));
    r = boot_msrs(c, w);
    if (r < 0)
        return r;
    if (c->index == 0 && ioctl(c->fd, KVM_SET_REGS, regs) < 0)
        return why(w, -errno, "KVM_SET_REGS: %s", strerror(errno));
    if (ioctl(c->fd, KVM_SET_FPU, &fpu) < 0)
        return why(w, -errno, "KVM_SET_FPU: %s", strerror(errno));
    if (c->index == 0 && ioctl(c->fd, KVM_SET_SREGS, want) < 0)
        return why(w, -errno, "KVM_SET_SREGS: %s", strerror(errno));
    if (ioctl(c->fd, KVM_GET_LAPIC, &lapic) < 0)
        return why(w, -errno, "KVM_GET_LAPIC: %s", strerror(errno));
    lvt_mode(&lapic, LVT_LINT0, MODE_EXTINT);
    lvt_mode(&lapic, LVT_LINT1, MODE_NMI);
    if (ioctl(c->fd, KVM_SET_LAPIC, &lapic) < 0)
        return why(w, -errno, "KVM_SET_LAPIC: %s", strerror(errno));
    return 0;
}

int vcpu_start(struct vcpu *c, struct why *w)
{
    pthread_attr_t a;
    int r;

    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK);
    r = pthread_create(&c->thread, &a, thread, c);
    pthread_attr_destroy(&a);
    return r ? why(w, -r, "a thread for processor %u: %s", c->index, strerror(r)) : 0;
}
