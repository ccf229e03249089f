/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cpu - what a processor of the guest is: its CPUID leaves and its model-specific registers. Leaves that are not
 * named in cpuid.c and registers that are not named in msr.c do not exist for a guest, and are in no state.
 */
#ifndef CELLA_VMM_CPU_H
#define CELLA_VMM_CPU_H

#include <linux/kvm.h>
#include <stdint.h>

#include "state.h"
#include "why.h"

#define CPUID_MAX 256u
#define MSR_MAX 256u

/* As struct kvm_cpuid2, with its array. */
struct cpuid {
    uint32_t n, padding;
    struct kvm_cpuid_entry2 v[CPUID_MAX];
};

/* In: what KVM supports. Out: what a processor of a machine with that many has. */
void cpuid_filter(struct cpuid *c, uint32_t vcpus, int tsc_deadline);
void cpuid_without_xsave(struct cpuid *c);
/* The same for one of them. */
void cpuid_number(struct cpuid *c, uint32_t index);
/* -ENOTSUP when a processor that is `want` would use what `have` has not. Neither is numbered. */
int cpuid_covers(const struct cpuid *have, const struct cpuid *want, struct why *w);
struct kvm_cpuid_entry2 *cpuid_find(struct cpuid *c, uint32_t leaf, uint32_t sub);
void cpuid_save(const struct cpuid *c, struct state_out *o);
int cpuid_load(struct cpuid *c, struct state_in *i);

struct msrs {
    uint32_t n;
    uint32_t index[MSR_MAX]; /* in the order in which they must be set */
};

/* Of those that KVM lists, the ones that a state holds. */
void msrs_choose(struct msrs *ret, const uint32_t *kvm, uint32_t n_kvm);
int msr_known(uint32_t index);
uint32_t msrs_boot(struct kvm_msr_entry *ret, uint32_t max);

#endif
