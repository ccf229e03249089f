/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vcpu_state - a parked processor as bytes, and back.
 *
 * Saving: MP_STATE first, because asking for it can still deliver to the local controller; VCPU_EVENTS last. Loading:
 * CPUID before all that is judged by it; REGS before VCPU_EVENTS, since it drops pending exceptions; SREGS (which
 * has the controller's address, and CR4.OSXSAVE) before XCRS, XSAVE and LAPIC; LAPIC before the MSRs, for the timer's
 * deadline; VCPU_EVENTS last. KVM judges every value; a refusal ends the load. Threads: the VMM thread.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "vmm.h"

#define TAG STATE_TAG('V', 'C', 'P', 'U')
#define VERSION 1u
#define TSC 0x10u
#define TSC_DEADLINE 0x6e0u
#define TSC_TOLERANCE_PPM 250u

struct msr_list {
    uint32_t n, pad;
    struct kvm_msr_entry v[MSR_MAX];
};

static_assert(sizeof(struct kvm_xsave) == 4096, "no dynamic features are let through");

struct cpu_state {
    struct kvm_mp_state mp;
    struct kvm_regs regs;
    struct kvm_sregs sregs;
    struct kvm_xcrs xcrs;
    struct kvm_xsave xsave;
    struct kvm_debugregs debug;
    struct kvm_lapic_state lapic;
    struct kvm_vcpu_events events;
};

struct part {
    unsigned long get, set;
    size_t at, len;
    const char *name;
};

#define PART(field, NAME)                                                                          \
    {                                                                                              \
        KVM_GET_##NAME, KVM_SET_##NAME, offsetof(struct cpu_state, field),                         \
            sizeof(((struct cpu_state *)0)->field), #NAME                                          \
    }

/* In the order of loading; MSRs come between LAPIC and VCPU_EVENTS. Saved in this order, too: MP_STATE is first.
   @seccomp vmm: ioctl(KVM_GET_MP_STATE) ioctl(KVM_GET_REGS) ioctl(KVM_GET_SREGS) ioctl(KVM_GET_XCRS)
   @seccomp vmm: ioctl(KVM_GET_XSAVE) ioctl(KVM_GET_DEBUGREGS) ioctl(KVM_GET_LAPIC) ioctl(KVM_GET_VCPU_EVENTS)
   @seccomp vmm: ioctl(KVM_SET_MP_STATE) ioctl(KVM_SET_REGS) ioctl(KVM_SET_SREGS) ioctl(KVM_SET_XCRS)
   @seccomp vmm: ioctl(KVM_SET_XSAVE) ioctl(KVM_SET_DEBUGREGS) ioctl(KVM_SET_LAPIC) ioctl(KVM_SET_VCPU_EVENTS) */
static const struct part parts[] = {
    PART(mp, MP_STATE), PART(regs, REGS),       PART(sregs, SREGS), PART(xcrs, XCRS),
    PART(xsave, XSAVE), PART(debug, DEBUGREGS), PART(lapic, LAPIC), PART(events, VCPU_EVENTS),
};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))
#define BEFORE_MSRS (N_PARTS - 1)

/* Registers that this processor cannot read after all are left out.
   @seccomp vmm: ioctl(KVM_GET_MSRS) */
static int msrs_get(const struct vcpu *c, struct msr_list *ret, struct why *w)
{
    const struct msrs *m = &c->m->kvm.msrs;
    struct msr_list ask;
    uint32_t at = 0, i;

    ret->n = ret->pad = 0;
    while (at < m->n) {
        int got;
        memset(&ask, 0, sizeof(ask));
        for (i = at; i < m->n; i++)
            ask.v[ask.n++].index = m->index[i];
        got = ioctl(c->fd, KVM_GET_MSRS, &ask);
        if (got < 0)
            return why(w, -errno, "KVM_GET_MSRS: %s", strerror(errno));
        for (i = 0; i < (uint32_t)got && i < ask.n; i++)
            ret->v[ret->n++] = ask.v[i];
        at += (uint32_t)got + 1; /* the one at which it stopped */
    }
    return 0;
}

/* A deadline that has passed reads as zero, and setting zero would stop the timer whose interrupt may not have
   arrived: it is due now. */
static void deadline_judge(struct msr_list *l)
{
    uint64_t tsc = 0;
    uint32_t i;

    for (i = 0; i < l->n; i++) {
        if (l->v[i].index == TSC)
            tsc = l->v[i].data;
        if (l->v[i].index == TSC_DEADLINE && l->v[i].data == 0)
            l->v[i].data = tsc;
    }
}

int vcpu_save(const struct vcpu *c, struct state_out *o, struct why *w)
{
    static struct cpu_state s;
    static struct msr_list msrs;
    size_t i;
    int khz, r;

    memset(&s, 0, sizeof(s));
    for (i = 0; i < BEFORE_MSRS; i++)
        if (ioctl(c->fd, parts[i].get, (uint8_t *)&s + parts[i].at) < 0)
            return why(w, -errno, "KVM_GET_%s of processor %u: %s", parts[i].name, c->index,
                       strerror(errno));
    khz = ioctl(c->fd, KVM_GET_TSC_KHZ, 0); /* @seccomp vmm: ioctl(KVM_GET_TSC_KHZ) */
    r = msrs_get(c, &msrs, w);
    if (r < 0)
        return r;
    deadline_judge(&msrs);
    if (ioctl(c->fd, KVM_GET_VCPU_EVENTS, &s.events) < 0)
        return why(w, -errno, "KVM_GET_VCPU_EVENTS: %s", strerror(errno));
    state_begin(o, TAG, VERSION);
    state_put_u32(o, khz > 0 ? (uint32_t)khz : 0);
    for (i = 0; i < N_PARTS; i++)
        state_put(o, (uint8_t *)&s + parts[i].at, parts[i].len);
    state_put_u32(o, msrs.n);
    for (i = 0; i < msrs.n; i++) {
        state_put_u32(o, msrs.v[i].index);
        state_put_u64(o, msrs.v[i].data);
    }
    state_end(o);
    return 0;
}

/* ------------------------------------------------------------------------- load */

/* @seccomp vmm: ioctl(KVM_SET_TSC_KHZ) */
static int tsc_rate(struct vcpu *c, uint32_t want, struct why *w)
{
    int have = ioctl(c->fd, KVM_GET_TSC_KHZ, 0);
    uint64_t off;

    if (!want || have <= 0)
        return 0;
    off = want > (uint32_t)have ? want - (uint32_t)have : (uint32_t)have - want;
    if (off * 1000000 <= (uint64_t)want * TSC_TOLERANCE_PPM)
        return 0;
    if (ioctl(c->fd, KVM_SET_TSC_KHZ, (unsigned long)want) < 0)
        return why(w, -errno,
                   "the snapshot's clock runs at %u kHz, this processor's at %d, and KVM cannot "
                   "scale it here: %s",
                   want, have, strerror(errno));
    return 0;
}

/* What KVM refuses is left out when it would have been zero.
   @seccomp vmm: ioctl(KVM_SET_MSRS) */
static int msrs_set(struct vcpu *c, const struct msr_list *l, struct why *w)
{
    struct msr_list ask;
    uint32_t at = 0;

    while (at < l->n) {
        int done;
        memset(&ask, 0, sizeof(ask));
        ask.n = l->n - at;
        memcpy(ask.v, l->v + at, ask.n * sizeof(ask.v[0]));
        done = ioctl(c->fd, KVM_SET_MSRS, &ask);
        if (done < 0)
            return why(w, -errno, "KVM_SET_MSRS: %s", strerror(errno));
        at += (uint32_t)done;
        if (at < l->n && l->v[at].data != 0)
            return why(w, -ENOTSUP, "KVM_SET_MSRS: register 0x%x = 0x%llx is refused",
                       l->v[at].index, (unsigned long long)l->v[at].data);
        at++;
    }
    return 0;
}

static void msrs_read(struct state_in *i, struct msr_list *ret)
{
    uint32_t n = state_get_u32(i), k;

    memset(ret, 0, sizeof(*ret));
    if (n > MSR_MAX) {
        i->bad = 1;
        return;
    }
    ret->n = n;
    for (k = 0; k < n; k++) {
        ret->v[k].index = state_get_u32(i);
        ret->v[k].data = state_get_u64(i);
        if (!msr_known(ret->v[k].index))
            i->bad = 1;
    }
}

static int put(struct vcpu *c, const struct part *p, struct cpu_state *s, struct why *w)
{
    if (ioctl(c->fd, p->set, (uint8_t *)s + p->at) < 0)
        return why(w, -errno, "KVM_SET_%s of processor %u: %s", p->name, c->index, strerror(errno));
    return 0;
}

/* @seccomp vmm: ioctl(KVM_SET_CPUID2) */
int vcpu_load(struct vcpu *c, struct state_in *i, struct why *w)
{
    static struct cpu_state s;
    static struct msr_list msrs;
    struct cpuid id = c->m->kvm.cpuid;
    uint32_t khz;
    size_t n;
    int r;

    memset(&s, 0, sizeof(s));
    state_enter(i, TAG, VERSION);
    khz = state_get_u32(i);
    for (n = 0; n < N_PARTS; n++)
        state_get(i, (uint8_t *)&s + parts[n].at, parts[n].len);
    msrs_read(i, &msrs);
    state_leave(i);
    if (i->bad)
        return why(w, -EBADMSG, "the state of processor %u is not as it was written", c->index);
    cpuid_number(&id, c->index);
    if (ioctl(c->fd, KVM_SET_CPUID2, &id) < 0)
        return why(w, -errno, "KVM_SET_CPUID2: %s", strerror(errno));
    r = tsc_rate(c, khz, w);
    for (n = 0; r == 0 && n < BEFORE_MSRS; n++)
        r = put(c, &parts[n], &s, w);
    if (r == 0)
        r = msrs_set(c, &msrs, w);
    if (r == 0)
        r = put(c, &parts[BEFORE_MSRS], &s, w);
    return r;
}
