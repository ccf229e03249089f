/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * msr - which model-specific registers are part of a machine's state, in which order they are set, and with what a
 * processor starts.
 *
 * Order: the TSC first and its deadline last, because a deadline is judged against the TSC when it is set.
 * MCG_CTL is left out on purpose: KVM lists it and refuses it. Threads: none of its own.
 */
#include <string.h>

#include "cpu.h"

#define TSC 0x10u
#define MISC_ENABLE 0x1a0u
#define MTRR_DEF_TYPE 0x2ffu
#define TSC_DEADLINE 0x6e0u

static const struct {
    uint32_t first, last;
} known[] = {
    {0x10, 0x10},   /* TSC: stays first */
    {0x3b, 0x3b},   /* TSC_ADJUST */
    {0x1b, 0x1b},   /* APICBASE */
    {0x3a, 0x3a},   /* FEATURE_CONTROL */
    {0x48, 0x48},   /* SPEC_CTRL */
    {0xfe, 0xfe},   /* MTRRcap */
    {0x10a, 0x10a}, /* ARCH_CAPABILITIES */
    {0x174, 0x176}, /* SYSENTER_* */
    {0x17a, 0x17a}, /* MCG_STATUS */
    {0x1a0, 0x1a0}, /* MISC_ENABLE */
    {0x1d9, 0x1d9}, /* DEBUGCTL */
    {0x200, 0x20f}, /* MTRR variable ranges */
    {0x250, 0x250}, /* MTRR fixed ranges */
    {0x258, 0x259},
    {0x268, 0x26f},
    {0x277, 0x277},           /* PAT */
    {0x2ff, 0x2ff},           /* MTRR default type */
    {0x400, 0x47f},           /* machine check banks */
    {0xda0, 0xda0},           /* XSS */
    {0xc0000080, 0xc0000084}, /* EFER STAR LSTAR CSTAR SFMASK */
    {0xc0000100, 0xc0000103}, /* FS GS KERNEL_GS TSC_AUX */
    {0xc001011f, 0xc001011f}, /* VIRT_SPEC_CTRL */
    {0x4b564d00, 0x4b564d01}, /* KVM clock */
    {0x4b564d03, 0x4b564d05}, /* steal time, EOI, poll control */
    {0x6e0, 0x6e0},           /* TSC_DEADLINE: stays last */
};

int msr_known(uint32_t index)
{
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (index >= known[i].first && index <= known[i].last)
            return 1;
    return 0;
}

void msrs_choose(struct msrs *ret, const uint32_t *kvm, uint32_t n_kvm)
{
    size_t i;
    uint32_t k;

    ret->n = 0;
    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        for (k = 0; k < n_kvm && ret->n < MSR_MAX; k++)
            if (kvm[k] >= known[i].first && kvm[k] <= known[i].last)
                ret->index[ret->n++] = kvm[k];
}

uint32_t msrs_boot(struct kvm_msr_entry *ret, uint32_t max)
{
    static const struct {
        uint32_t index;
        uint64_t value;
    } boot[] = {
        {0x174, 0},
        {0x175, 0},
        {0x176, 0},
        {0xc0000081, 0},
        {0xc0000083, 0},
        {0xc0000102, 0},
        {0xc0000084, 0},
        {0xc0000082, 0},
        {TSC, 0},
        {MISC_ENABLE, 1},              /* fast strings */
        {MTRR_DEF_TYPE, 1u << 11 | 6}, /* on; write-back */
    };
    uint32_t i, n = sizeof(boot) / sizeof(boot[0]);

    for (i = 0; i < n && i < max; i++) {
        memset(&ret[i], 0, sizeof(ret[i]));
        ret[i].index = boot[i].index;
        ret[i].data = boot[i].value;
    }
    return i;
}
