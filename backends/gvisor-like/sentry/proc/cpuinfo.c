/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cpuinfo - what the processor says of itself, by CPUID, which guests can ask, too. Flags are those that programs look for.
 * Threads: the kernel lock.
 */
#include <cpuid.h>
#include <string.h>

#include "proc.h"

enum leaf { L1_EDX, L1_ECX, L7_EBX, L7_ECX, L7_EDX, LX_EDX, LX_ECX, LEAVES };

static const struct {
    uint8_t leaf, bit;
    const char *name;
} flags[] = {
    {L1_EDX, 0, "fpu"},
    {L1_EDX, 1, "vme"},
    {L1_EDX, 2, "de"},
    {L1_EDX, 3, "pse"},
    {L1_EDX, 4, "tsc"},
    {L1_EDX, 5, "msr"},
    {L1_EDX, 6, "pae"},
    {L1_EDX, 7, "mce"},
    {L1_EDX, 8, "cx8"},
    {L1_EDX, 9, "apic"},
    {L1_EDX, 11, "sep"},
    {L1_EDX, 12, "mtrr"},
    {L1_EDX, 13, "pge"},
    {L1_EDX, 14, "mca"},
    {L1_EDX, 15, "cmov"},
    {L1_EDX, 16, "pat"},
    {L1_EDX, 17, "pse36"},
    {L1_EDX, 19, "clflush"},
    {L1_EDX, 23, "mmx"},
    {L1_EDX, 24, "fxsr"},
    {L1_EDX, 25, "sse"},
    {L1_EDX, 26, "sse2"},
    {L1_EDX, 28, "ht"},
    {LX_EDX, 11, "syscall"},
    {LX_EDX, 20, "nx"},
    {LX_EDX, 26, "pdpe1gb"},
    {LX_EDX, 27, "rdtscp"},
    {LX_EDX, 29, "lm"},
    {L1_ECX, 0, "pni"},
    {L1_ECX, 1, "pclmulqdq"},
    {L1_ECX, 9, "ssse3"},
    {L1_ECX, 12, "fma"},
    {L1_ECX, 13, "cx16"},
    {L1_ECX, 19, "sse4_1"},
    {L1_ECX, 20, "sse4_2"},
    {L1_ECX, 22, "movbe"},
    {L1_ECX, 23, "popcnt"},
    {L1_ECX, 25, "aes"},
    {L1_ECX, 26, "xsave"},
    {L1_ECX, 28, "avx"},
    {L1_ECX, 29, "f16c"},
    {L1_ECX, 30, "rdrand"},
    {L1_ECX, 31, "hypervisor"},
    {LX_ECX, 0, "lahf_lm"},
    {LX_ECX, 5, "abm"},
    {LX_ECX, 6, "sse4a"},
    {LX_ECX, 8, "3dnowprefetch"},
    {L7_EBX, 0, "fsgsbase"},
    {L7_EBX, 3, "bmi1"},
    {L7_EBX, 5, "avx2"},
    {L7_EBX, 8, "bmi2"},
    {L7_EBX, 9, "erms"},
    {L7_EBX, 16, "avx512f"},
    {L7_EBX, 17, "avx512dq"},
    {L7_EBX, 18, "rdseed"},
    {L7_EBX, 19, "adx"},
    {L7_EBX, 23, "clflushopt"},
    {L7_EBX, 24, "clwb"},
    {L7_EBX, 28, "avx512cd"},
    {L7_EBX, 29, "sha_ni"},
    {L7_EBX, 30, "avx512bw"},
    {L7_EBX, 31, "avx512vl"},
    {L7_ECX, 1, "avx512vbmi"},
    {L7_ECX, 8, "gfni"},
    {L7_ECX, 9, "vaes"},
    {L7_ECX, 10, "vpclmulqdq"},
    {L7_ECX, 11, "avx512_vnni"},
    {L7_ECX, 12, "avx512_bitalg"},
    {L7_ECX, 14, "avx512_vpopcntdq"},
    {L7_EDX, 4, "fsrm"},
};

struct processor {
    char vendor[13], model_name[49];
    unsigned family, model, stepping, leaves[LEAVES];
};

static void names_read(struct processor *p)
{
    unsigned r[12] = {0}, i, highest = __get_cpuid_max(0x80000000u, NULL);
    unsigned a, b, c, d;

    __cpuid(0, a, b, c, d);
    memcpy(p->vendor, &b, 4);
    memcpy(p->vendor + 4, &d, 4);
    memcpy(p->vendor + 8, &c, 4);
    for (i = 0; i < 3 && highest >= 0x80000004u; i++)
        __cpuid(0x80000002u + i, r[i * 4], r[i * 4 + 1], r[i * 4 + 2], r[i * 4 + 3]);
    memcpy(p->model_name, r, sizeof(r));
}

static void processor_read(struct processor *p)
{
    unsigned a, b, c, d;

    memset(p, 0, sizeof(*p));
    names_read(p);
    __cpuid(1, a, b, p->leaves[L1_ECX], p->leaves[L1_EDX]);
    p->stepping = a & 15;
    p->model = (a >> 4 & 15) | (a >> 12 & 0xf0);
    p->family = (a >> 8 & 15) + ((a >> 8 & 15) == 15 ? a >> 20 & 255 : 0);
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        p->leaves[L7_EBX] = b;
        p->leaves[L7_ECX] = c;
        p->leaves[L7_EDX] = d;
    }
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) {
        p->leaves[LX_ECX] = c;
        p->leaves[LX_EDX] = d;
    }
}

MAKER(cpuinfo)
{
    struct processor p;
    unsigned i, n = sched_cpus();
    size_t k;

    (void)node;
    processor_read(&p);
    for (i = 0; i < n; i++) {
        text_add(text, "processor\t: %u\nvendor_id\t: %s\ncpu family\t: %u\nmodel\t\t: %u\n", i,
                 p.vendor, p.family, p.model);
        text_add(text, "model name\t: %s\nstepping\t: %u\ncpu MHz\t\t: 2000.000\n", p.model_name,
                 p.stepping);
        text_add(text,
                 "cache size\t: 512 KB\nphysical id\t: 0\nsiblings\t: %u\ncore id\t\t: %u\n"
                 "cpu cores\t: %u\napicid\t\t: %u\ninitial apicid\t: %u\n",
                 n, i, n, i, i);
        text_add(text, "fpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: 13\nwp\t\t: yes\n"
                       "flags\t\t:");
        for (k = 0; k < sizeof(flags) / sizeof(flags[0]); k++)
            if (p.leaves[flags[k].leaf] >> flags[k].bit & 1)
                text_add(text, " %s", flags[k].name);
        text_add(text, "\nbugs\t\t:\nbogomips\t: 4000.00\nclflush size\t: 64\n"
                       "cache_alignment\t: 64\naddress sizes\t: 48 bits physical, 48 bits virtual\n"
                       "power management:\n\n");
    }
}
