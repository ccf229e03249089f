/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cpuid - an allow-list of leaves over what KVM supports, then bits taken away and bits set, by table.
 *
 * Taken away: nested virtualization, performance counters, debug stores, power and thermal interfaces, memory
 * encryption, enclaves, tracing, matrix tiles (whose state needs a permission and 8 KiB a thread), supervisor
 * states. The result is pinned: a snapshot holds it, and is refused where `covers` finds a bit that is not here.
 * Topology: one socket, n cores of one thread. Threads: none of its own.
 */
#include <asm/kvm_para.h>
#include <errno.h>
#include <string.h>

#include "cpu.h"

#define BIT(n) (1u << (n))
#define ANY 0xffffffffu

enum reg { EAX, EBX, ECX, EDX };

static uint32_t *reg_of(struct kvm_cpuid_entry2 *e, enum reg r)
{
    return r == EAX ? &e->eax : r == EBX ? &e->ebx : r == ECX ? &e->ecx : &e->edx;
}

struct rule {
    uint32_t leaf, sub;
    enum reg reg;
    uint32_t keep, set;
};

/* The KVM features that a guest may use; asynchronous page faults are not among them, nor what a state cannot hold. */
#define KVM_KEPT                                                                                   \
    (BIT(KVM_FEATURE_CLOCKSOURCE) | BIT(KVM_FEATURE_NOP_IO_DELAY) |                                \
     BIT(KVM_FEATURE_CLOCKSOURCE2) | BIT(KVM_FEATURE_STEAL_TIME) | BIT(KVM_FEATURE_PV_EOI) |       \
     BIT(KVM_FEATURE_PV_UNHALT) | BIT(KVM_FEATURE_PV_TLB_FLUSH) | BIT(KVM_FEATURE_PV_SEND_IPI) |   \
     BIT(KVM_FEATURE_CLOCKSOURCE_STABLE_BIT))

#define XCR0_KEPT (BIT(0) | BIT(1) | BIT(2) | BIT(5) | BIT(6) | BIT(7) | BIT(9))

static const uint32_t leaves[] = {
    0,          1,          2,          4,          6,          7,
    0xd,        0x40000000, 0x40000001, 0x80000000, 0x80000001, 0x80000005,
    0x80000006, 0x80000007, 0x80000008, 0x8000001d, 0x8000001e, 0x80000021,
};

static const struct rule rules[] = {
    /* DTES64 MONITOR DS-CPL VMX SMX EIST TM2 CNXT-ID SDBG xTPR PDCM DCA TSC-DEADLINE OSXSAVE; HYPERVISOR */
    {1, ANY, ECX,
     ~(BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(10) | BIT(11) | BIT(14) |
       BIT(15) | BIT(18) | BIT(24) | BIT(27)),
     BIT(31)},
    /* DS ACPI HTT TM PBE */
    {1, ANY, EDX, ~(BIT(21) | BIT(22) | BIT(28) | BIT(29) | BIT(31)), 0},
    /* the local timer runs in every sleep state; nothing else */
    {6, ANY, EAX, BIT(2), 0},
    {6, ANY, EBX, 0, 0},
    {6, ANY, ECX, 0, 0},
    {6, ANY, EDX, 0, 0},
    /* SGX HLE RTM PQM MPX PQE PT */
    {7, 0, EBX, ~(BIT(2) | BIT(4) | BIT(11) | BIT(12) | BIT(14) | BIT(15) | BIT(25)), 0},
    /* WAITPKG CET-SS ENQCMD SGX-LC PKS */
    {7, 0, ECX, ~(BIT(5) | BIT(7) | BIT(29) | BIT(30) | BIT(31)), 0},
    /* UINTR HYBRID PCONFIG ARCH-LBR CET-IBT AMX CORE-CAPABILITIES */
    {7, 0, EDX,
     ~(BIT(5) | BIT(15) | BIT(18) | BIT(19) | BIT(20) | BIT(22) | BIT(24) | BIT(25) | BIT(30)), 0},
    /* AMX-FP16 LAM */
    {7, 1, EAX, ~(BIT(21) | BIT(26)), 0},
    {0xd, 0, EAX, XCR0_KEPT, 0},
    {0xd, 0, EDX, 0, 0},
    {0xd, 1, EAX, BIT(0) | BIT(1) | BIT(2) | BIT(3), 0},
    {0xd, 1, ECX, 0, 0},
    {0xd, 1, EDX, 0, 0},
    {0x40000001, ANY, EAX, KVM_KEPT, 0},
    {0x40000001, ANY, EDX, 0, 0},
    /* SVM OSVW IBS SKINIT WDT LWP PERFCTR-CORE PERFCTR-NB PTSC PERFCTR-LLC MWAITX */
    {0x80000001, ANY, ECX,
     ~(BIT(2) | BIT(9) | BIT(10) | BIT(12) | BIT(13) | BIT(15) | BIT(23) | BIT(24) | BIT(27) |
       BIT(28) | BIT(29)),
     0},
    {0x80000007, ANY, EAX, 0, 0},
    {0x80000007, ANY, EBX, 0, 0},
    {0x80000007, ANY, ECX, 0, 0},
    {0x80000007, ANY, EDX, BIT(8), 0}, /* the TSC is invariant */
};

struct kvm_cpuid_entry2 *cpuid_find(struct cpuid *c, uint32_t leaf, uint32_t sub)
{
    uint32_t i;

    for (i = 0; i < c->n; i++)
        if (c->v[i].function == leaf &&
            (!(c->v[i].flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) || c->v[i].index == sub))
            return &c->v[i];
    return NULL;
}

static struct kvm_cpuid_entry2 *add(struct cpuid *c, uint32_t leaf, uint32_t sub, uint32_t flags)
{
    struct kvm_cpuid_entry2 *e;

    if (c->n == CPUID_MAX)
        return NULL;
    e = &c->v[c->n++];
    memset(e, 0, sizeof(*e));
    e->function = leaf;
    e->index = sub;
    e->flags = flags;
    return e;
}

static int kept(const struct kvm_cpuid_entry2 *e)
{
    size_t i;

    if (e->function == 0xd && e->index > 1)
        return e->index < 32 && (XCR0_KEPT & BIT(e->index));
    for (i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++)
        if (leaves[i] == e->function)
            return 1;
    return 0;
}

static void apply(struct cpuid *c, const struct rule *r)
{
    uint32_t i;

    for (i = 0; i < c->n; i++) {
        struct kvm_cpuid_entry2 *e = &c->v[i];
        if (e->function != r->leaf || (r->sub != ANY && e->index != r->sub))
            continue;
        *reg_of(e, r->reg) = (*reg_of(e, r->reg) & r->keep) | r->set;
    }
}

static int is_amd(struct cpuid *c)
{
    const struct kvm_cpuid_entry2 *e = cpuid_find(c, 0, 0);

    return e && (e->ebx == 0x68747541 || e->ebx == 0x6f677948); /* AuthenticAMD, HygonGenuine */
}

static uint32_t width(uint32_t n) /* bits for numbers below n */
{
    uint32_t w = 0;

    while (1u << w < n)
        w++;
    return w;
}

/* Caches: the first levels belong to one core, the last to all of them. */
static void caches(struct cpuid *c, uint32_t leaf, uint32_t vcpus)
{
    uint32_t i;

    for (i = 0; i < c->n; i++) {
        struct kvm_cpuid_entry2 *e = &c->v[i];
        uint32_t sharing = ((e->eax >> 5) & 7) >= 3 ? vcpus - 1 : 0;
        if (e->function != leaf || !(e->eax & 31))
            continue;
        e->eax = (e->eax & 0x3fff) | sharing << 14;
        if (leaf == 4)
            e->eax |= (vcpus - 1) << 26;
    }
}

static void topology_leaf(struct cpuid *c, uint32_t leaf, uint32_t vcpus)
{
    struct kvm_cpuid_entry2 *e = add(c, leaf, 0, KVM_CPUID_FLAG_SIGNIFCANT_INDEX);

    if (e) {
        e->ebx = 1;
        e->ecx = 1 << 8; /* threads of a core */
    }
    e = add(c, leaf, 1, KVM_CPUID_FLAG_SIGNIFCANT_INDEX);
    if (e) {
        e->eax = width(vcpus);
        e->ebx = vcpus;
        e->ecx = 2 << 8 | 1; /* cores of a socket */
    }
}

static void topology(struct cpuid *c, uint32_t vcpus)
{
    struct kvm_cpuid_entry2 *e = cpuid_find(c, 1, 0);

    if (e) {
        e->ebx = (e->ebx & 0xff) | 8 << 8 | vcpus << 16; /* CLFLUSH of 8 quads */
        e->edx |= vcpus > 1 ? BIT(28) : 0;
    }
    caches(c, 4, vcpus);
    caches(c, 0x8000001d, vcpus);
    topology_leaf(c, 0xb, vcpus);
    e = cpuid_find(c, 0x80000008, 0);
    if (e)
        e->ecx = is_amd(c) ? width(vcpus) << 12 | (vcpus - 1) : 0;
    e = cpuid_find(c, 0x8000001e, 0);
    if (e)
        e->eax = e->ebx = e->ecx = e->edx = 0;
    e = cpuid_find(c, 7, 0);
    if (e && is_amd(c))
        e->edx &= ~BIT(29); /* ARCH_CAPABILITIES is Intel's */
}

/* The name says nothing of the host. */
static void brand(struct cpuid *c)
{
    static const char name[48] = "cella virtual processor";
    uint32_t i;

    for (i = 0; i < 3; i++) {
        struct kvm_cpuid_entry2 *e = add(c, 0x80000002 + i, 0, 0);
        if (!e)
            return;
        memcpy(&e->eax, name + i * 16, 4);
        memcpy(&e->ebx, name + i * 16 + 4, 4);
        memcpy(&e->ecx, name + i * 16 + 8, 4);
        memcpy(&e->edx, name + i * 16 + 12, 4);
    }
}

static void highest(struct cpuid *c, uint32_t base)
{
    struct kvm_cpuid_entry2 *e = cpuid_find(c, base, 0);
    uint32_t i, max = base;

    for (i = 0; i < c->n; i++)
        if (c->v[i].function >= base && c->v[i].function < base + 0x10000 && c->v[i].function > max)
            max = c->v[i].function;
    if (e)
        e->eax = max;
}

void cpuid_filter(struct cpuid *c, uint32_t vcpus, int tsc_deadline)
{
    struct kvm_cpuid_entry2 *e;
    uint32_t i, n = 0;

    for (i = 0; i < c->n; i++)
        if (kept(&c->v[i]))
            c->v[n++] = c->v[i];
    c->n = n;
    for (i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        apply(c, &rules[i]);
    topology(c, vcpus);
    brand(c);
    e = cpuid_find(c, 1, 0);
    if (e && tsc_deadline)
        e->ecx |= BIT(24);
    highest(c, 0);
    highest(c, 0x40000000);
    highest(c, 0x80000000);
}

/* QEMU's emulation of SVM does not tell KVM of XSETBV: the guest's XCR0 would be lost at its next entry, and with it
   what XSAVE does. There, a guest has none of it. */
void cpuid_without_xsave(struct cpuid *c)
{
    static const struct rule without[] = {
        /* FMA XSAVE AVX F16C */
        {1, ANY, ECX, ~(BIT(12) | BIT(26) | BIT(28) | BIT(29)), 0},
        /* AVX2, AVX512 of all kinds */
        {7, 0, EBX,
         ~(BIT(5) | BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31)),
         0},
        /* VBMI PKU VBMI2 VAES VPCLMULQDQ VNNI BITALG VPOPCNTDQ */
        {7, 0, ECX, ~(BIT(1) | BIT(3) | BIT(6) | BIT(9) | BIT(10) | BIT(11) | BIT(12) | BIT(14)),
         0},
        {7, 0, EDX, ~(BIT(2) | BIT(3) | BIT(8) | BIT(23)), 0},
        {7, 1, EAX, ~(BIT(4) | BIT(5) | BIT(23)), 0},
        {0x80000001, ANY, ECX, ~(BIT(11) | BIT(15) | BIT(16)), 0}, /* XOP LWP FMA4 */
    };
    uint32_t i, n = 0;

    for (i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        apply(c, &without[i]);
    for (i = 0; i < c->n; i++)
        if (c->v[i].function != 0xd)
            c->v[n++] = c->v[i];
    c->n = n;
}

void cpuid_number(struct cpuid *c, uint32_t index)
{
    struct kvm_cpuid_entry2 *e;
    uint32_t i;

    for (i = 0; i < c->n; i++) {
        e = &c->v[i];
        if (e->function == 1)
            e->ebx = (e->ebx & 0xffffff) | index << 24;
        else if (e->function == 0xb)
            e->edx = index;
        else if (e->function == 0x8000001e) {
            e->eax = index;
            e->ebx = index; /* its core; one thread in it */
        }
    }
}

/* Leaves whose registers are lists of features: no bit may be wanted that is not there. Leaves that this program
   would not show are wanted by nobody who was its guest. */
int cpuid_covers(const struct cpuid *have, const struct cpuid *want, struct why *w)
{
    static const struct {
        uint32_t leaf, sub;
        enum reg reg;
    } f[] = {{1, 0, ECX},          {1, 0, EDX},          {7, 0, EBX},
             {7, 0, ECX},          {7, 0, EDX},          {7, 1, EAX},
             {0xd, 0, EAX},        {0xd, 1, EAX},        {0x40000001, 0, EAX},
             {0x80000001, 0, ECX}, {0x80000001, 0, EDX}, {0x80000007, 0, EDX}};
    struct cpuid h = *have, n = *want;
    size_t i;

    for (i = 0; i < n.n; i++)
        if (!kept(&n.v[i]) && n.v[i].function != 0xb &&
            (n.v[i].function < 0x80000002 || n.v[i].function > 0x80000004))
            return why(w, -ENOTSUP,
                       "the snapshot's processor has a CPUID leaf 0x%x, which none here has",
                       n.v[i].function);
    for (i = 0; i < sizeof(f) / sizeof(f[0]); i++) {
        struct kvm_cpuid_entry2 *a = cpuid_find(&h, f[i].leaf, f[i].sub);
        struct kvm_cpuid_entry2 *b = cpuid_find(&n, f[i].leaf, f[i].sub);
        uint32_t missing = b ? *reg_of(b, f[i].reg) & ~(a ? *reg_of(a, f[i].reg) : 0) : 0;
        if (missing)
            return why(w, -ENOTSUP,
                       "this processor lacks what the snapshot's had: CPUID 0x%x.%u %s bits 0x%x",
                       f[i].leaf, f[i].sub,
                       (const char *const[]){"EAX", "EBX", "ECX", "EDX"}[f[i].reg], missing);
    }
    return 0;
}

void cpuid_save(const struct cpuid *c, struct state_out *o)
{
    state_put_u32(o, c->n);
    state_put(o, c->v, c->n * sizeof(c->v[0]));
}

int cpuid_load(struct cpuid *c, struct state_in *i)
{
    c->n = state_get_u32(i);
    c->padding = 0;
    if (c->n > CPUID_MAX) {
        i->bad = 1;
        c->n = 0;
    }
    state_get(i, c->v, c->n * sizeof(c->v[0]));
    return i->bad ? -EBADMSG : 0;
}
