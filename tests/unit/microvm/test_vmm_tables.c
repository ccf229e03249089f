/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What describes the machine to its guest: ACPI and MP tables, CPUID leaves, registers of a state. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "acpi.h"
#include "cpu.h"
#include "layout.h"

static struct ram ram;
static int ram_fd = -1;

static int memory(void **state)
{
    (void)state;
    ram_fd = memfd_create("ram", MFD_CLOEXEC);
    assert_true(ram_fd >= 0 && ftruncate(ram_fd, 32 << 20) == 0);
    return ram_map(&ram, ram_fd, 32 << 20, 0);
}

static int memory_end(void **state)
{
    (void)state;
    ram_unmap(&ram);
    close(ram_fd);
    return 0;
}

static uint64_t le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    memcpy(&v, p, n);
    return v;
}

static void sums_to_zero(const uint8_t *p, size_t n)
{
    uint8_t s = 0;

    while (n--)
        s = (uint8_t)(s + *p++);
    assert_int_equal(s, 0);
}

/* ------------------------------------------------------------------------- ACPI */

static const uint8_t *table(uint64_t at, const char *name)
{
    const uint8_t *t = ram_at(&ram, at, 36);

    assert_non_null(t);
    assert_true(at >= AT_ACPI && at < AT_MPTABLE);
    assert_memory_equal(t, name, 4);
    assert_true(at + le(t + 4, 4) <= AT_MPTABLE);
    sums_to_zero(t, le(t + 4, 4));
    return t;
}

/* A block's length: two bytes, four bits and eight. */
static size_t block(const uint8_t *p)
{
    assert_int_equal(p[0] >> 4, 4);
    return (p[0] & 15u) | (size_t)p[1] << 4;
}

/* The device of that name: its body, and where it ends. */
static const uint8_t *device(const uint8_t *dsdt, const char *name, size_t *ret_len)
{
    size_t len = le(dsdt + 4, 4), at = 36 + 1 + 2 + 5; /* scope, length, \_SB_ */

    while (at + 4 < len && dsdt[at] == 0x5b && dsdt[at + 1] == 0x82) {
        size_t n = block(dsdt + at + 2);
        assert_true(at + 2 + n <= len);
        if (!memcmp(dsdt + at + 4, name, 4)) {
            *ret_len = n - 6;
            return dsdt + at + 8;
        }
        at += 2 + n;
    }
    return NULL;
}

static const uint8_t *tables_of(const struct acpi_machine *m, uint32_t *ret_madt)
{
    const uint8_t *rsdp, *xsdt, *fadt;

    assert_int_equal(acpi_write(&ram, m), 0);
    rsdp = ram_at(&ram, AT_ACPI, 36);
    assert_memory_equal(rsdp, "RSD PTR ", 8);
    sums_to_zero(rsdp, 20);
    sums_to_zero(rsdp, 36);
    xsdt = table(le(rsdp + 24, 8), "XSDT");
    assert_int_equal(le(xsdt + 4, 4), 36 + 2 * 8);
    fadt = table(le(xsdt + 36, 8), "FACP");
    assert_true(le(fadt + 112, 4) & 1u << 20); /* hardware-reduced */
    assert_int_equal(le(fadt + 244 + 4, 8), PORT_POWER);
    assert_int_equal(le(fadt + 116 + 4, 8), PORT_POWER + POWER_RESET);
    assert_int_equal(le(fadt + 40, 4), le(fadt + 140, 8));
    *ret_madt = (uint32_t)le(xsdt + 44, 8);
    return table(le(fadt + 140, 8), "DSDT");
}

static void acpi_devices(void **state)
{
    struct acpi_machine m = {.vcpus = 3, .virtio = 0x2b};
    const uint8_t *dsdt, *madt, *d;
    uint32_t at, n, processors = 0, io = 0;
    char name[5];
    size_t len;

    (void)state;
    dsdt = tables_of(&m, &at);
    for (n = 0; n < 8; n++) {
        uint8_t memory_window[8];
        uint32_t base = 0xc0001000u + n * 0x1000, size = 0x1000, gsi = 5 + n;
        snprintf(name, sizeof(name), "VR0%u", n);
        d = device(dsdt, name, &len);
        if (!(m.virtio & 1u << n)) {
            assert_null(d);
            continue;
        }
        assert_non_null(d);
        assert_non_null(memmem(d, len, "_HID\x0dLNRO0005", 14));
        memcpy(memory_window, &base, 4);
        memcpy(memory_window + 4, &size, 4);
        assert_non_null(memmem(d, len, memory_window, 8));
        assert_non_null(memmem(d, len, &gsi, 4));
    }
    d = device(dsdt, "VGEN", &len);
    assert_non_null(d);
    assert_non_null(memmem(d, len, "VM_Gen_Counter", 15));
    assert_non_null(memmem(d, len, "\x0c\x00\xf0\x0d\x00", 5)); /* the address */
    assert_non_null(device(dsdt, "COM1", &len));
    assert_non_null(device(dsdt, "PWRB", &len));
    d = device(dsdt, "GEDV", &len);
    assert_non_null(d);
    assert_non_null(memmem(d, len, "\x86\\.VGEN", 7) ? d : memmem(d, len, "_SB_VGEN", 8));
    assert_non_null(memmem(dsdt, le(dsdt + 4, 4), "_S5_", 4));
    madt = table(at, "APIC");
    len = le(madt + 4, 4);
    for (n = 44; n < len; n += madt[n + 1]) {
        assert_true(madt[n + 1] >= 8);
        processors += madt[n] == 0;
        io += madt[n] == 1;
    }
    assert_int_equal(n, len);
    assert_int_equal(processors, 3);
    assert_int_equal(io, 1);
}

static void acpi_largest(void **state)
{
    struct acpi_machine m = {.vcpus = 32, .virtio = 0xff};
    uint32_t at;

    (void)state;
    tables_of(&m, &at);
    table(at, "APIC");
}

static void mp_table(void **state)
{
    const uint8_t *p = ram.base + AT_MPTABLE, *t;
    uint32_t n, at, kinds[5] = {0};

    (void)state;
    assert_int_equal(mptable_write(&ram, 2), 0);
    assert_memory_equal(p, "_MP_", 4);
    sums_to_zero(p, 16);
    t = ram.base + le(p + 4, 4);
    assert_memory_equal(t, "PCMP", 4);
    sums_to_zero(t, le(t + 4, 2));
    for (n = 0, at = 44; n < le(t + 34, 2); n++) {
        assert_in_range(t[at], 0, 4);
        kinds[t[at]]++;
        at += t[at] == 0 ? 20 : 8;
    }
    assert_int_equal(at, le(t + 4, 2));
    assert_int_equal(kinds[0], 2);
    assert_int_equal(kinds[2], 1);
    assert_int_equal(kinds[3], 16);
    assert_int_equal(kinds[4], 2);
    assert_int_equal(mptable_write(&ram, 32), 0);
    assert_int_equal(mptable_write(&ram, 0), -ERANGE);
    assert_int_equal(mptable_write(&ram, 500), -ERANGE);
}

/* ------------------------------------------------------------------------ CPUID */

#define SIG KVM_CPUID_FLAG_SIGNIFCANT_INDEX

/* Leaves as a host with everything would show them, in the shape of KVM_GET_SUPPORTED_CPUID. */
static const struct kvm_cpuid_entry2 recorded[] = {
    {.function = 0, .eax = 0x20, .ebx = 0x756e6547, .ecx = 0x6c65746e, .edx = 0x49656e69},
    {.function = 1, .eax = 0x806f8, .ebx = 0x05400800, .ecx = 0xffffffff, .edx = 0xffffffff},
    {.function = 4, .index = 0, .flags = SIG, .eax = 0xfc004121, .ebx = 0x2c0003f},
    {.function = 4, .index = 3, .flags = SIG, .eax = 0xfc1fc163, .ebx = 0x380003f},
    {.function = 5, .eax = 0x40, .ebx = 0x40, .ecx = 3, .edx = 0x2020},
    {.function = 6, .eax = 0xffffffff, .ebx = 2, .ecx = 9, .edx = 7},
    {.function = 7, .index = 0, .flags = SIG, .eax = 2, .ebx = ~0u, .ecx = ~0u, .edx = ~0u},
    {.function = 7, .index = 1, .flags = SIG, .eax = ~0u},
    {.function = 0xa, .eax = 0x8300805, .edx = 0x8603},
    {.function = 0xb, .index = 0, .flags = SIG, .eax = 1, .ebx = 2, .ecx = 0x100, .edx = 5},
    {.function = 0xd, .index = 0, .flags = SIG, .eax = 0x602e7, .ebx = 0x240, .ecx = 0x2b00},
    {.function = 0xd, .index = 1, .flags = SIG, .eax = 0x1f, .ecx = 0x1900},
    {.function = 0xd, .index = 2, .flags = SIG, .eax = 0x100, .ebx = 0x240},
    {.function = 0xd, .index = 17, .flags = SIG, .eax = 0x40, .ebx = 0xac0},
    {.function = 0xd, .index = 18, .flags = SIG, .eax = 0x2000, .ebx = 0xb00},
    {.function = 0x12, .index = 0, .flags = SIG, .eax = 3},
    {.function = 0x14, .index = 0, .flags = SIG, .eax = 1, .ebx = 0xf},
    {.function = 0x1d, .index = 0, .flags = SIG, .eax = 1},
    {.function = 0x40000000, .eax = 0x40000001, .ebx = 0x4b4d564b},
    {.function = 0x40000001, .eax = ~0u, .edx = ~0u},
    {.function = 0x80000000, .eax = 0x80000022},
    {.function = 0x80000001, .ecx = ~0u, .edx = 0x2c100800},
    {.function = 0x80000002, .eax = 0x65746e49},
    {.function = 0x80000007, .eax = 7, .edx = ~0u},
    {.function = 0x80000008, .eax = 0x3034, .ecx = 0x6007},
    {.function = 0x8000000a, .eax = 1, .edx = ~0u},
    {.function = 0x8000001f, .eax = ~0u},
};

static struct cpuid filtered(uint32_t vcpus, int tsc_deadline)
{
    struct cpuid c = {.n = sizeof(recorded) / sizeof(recorded[0])};

    memcpy(c.v, recorded, sizeof(recorded));
    cpuid_filter(&c, vcpus, tsc_deadline);
    return c;
}

static void cpuid_is_filtered(void **state)
{
    struct cpuid c = filtered(4, 0);
    const struct kvm_cpuid_entry2 *e;

    (void)state;
    assert_null(cpuid_find(&c, 5, 0));
    assert_null(cpuid_find(&c, 0xa, 0));  /* performance counters */
    assert_null(cpuid_find(&c, 0x12, 0)); /* enclaves */
    assert_null(cpuid_find(&c, 0x14, 0));
    assert_null(cpuid_find(&c, 0xd, 17)); /* tiles */
    assert_null(cpuid_find(&c, 0xd, 18));
    assert_null(cpuid_find(&c, 0x8000000a, 0)); /* SVM */
    assert_null(cpuid_find(&c, 0x8000001f, 0));
    assert_non_null(cpuid_find(&c, 0xd, 2));
    e = cpuid_find(&c, 1, 0);
    assert_false(e->ecx & (1u << 5 | 1u << 6 | 1u << 15 | 1u << 27)); /* VMX SMX PDCM OSXSAVE */
    assert_true(e->ecx & 1u << 31);                                   /* hypervisor */
    assert_false(e->ecx & 1u << 24);
    assert_true(e->ecx & 1u << 28); /* AVX stays */
    assert_true(e->edx & 1u << 28);
    assert_int_equal(e->ebx >> 16 & 0xff, 4);
    e = cpuid_find(&c, 7, 0);
    assert_false(e->ebx & (1u << 2 | 1u << 11)); /* SGX RTM */
    assert_false(e->edx & (1u << 22 | 1u << 24 | 1u << 25));
    assert_true(e->edx & 1u << 29); /* Intel's ARCH_CAPABILITIES */
    assert_int_equal(cpuid_find(&c, 0xd, 0)->eax, 0x2e7);
    assert_int_equal(cpuid_find(&c, 0xd, 1)->eax, 0xf);
    assert_int_equal(cpuid_find(&c, 0xd, 1)->ecx, 0);
    e = cpuid_find(&c, 0x80000001, 0);
    assert_false(e->ecx & (1u << 2 | 1u << 23));
    assert_int_equal(cpuid_find(&c, 0x80000007, 0)->edx, 1u << 8);
    assert_false(cpuid_find(&c, 0x40000001, 0)->eax & 1u << 4); /* asynchronous page faults */
    assert_true(cpuid_find(&c, 0x40000001, 0)->eax & 1u << 3);  /* clock */
    assert_int_equal(cpuid_find(&c, 0, 0)->eax, 0xd);
    assert_int_equal(cpuid_find(&c, 0x80000000, 0)->eax, 0x80000008);
    assert_memory_equal(&cpuid_find(&c, 0x80000002, 0)->eax, "cell", 4);
    assert_true(cpuid_find(&(struct cpuid){.n = 0}, 0, 0) == NULL);
}

static void cpuid_emulated(void **state)
{
    struct cpuid c = filtered(1, 1);

    (void)state;
    cpuid_without_xsave(&c);
    assert_null(cpuid_find(&c, 0xd, 0));
    assert_null(cpuid_find(&c, 0xd, 1));
    assert_false(cpuid_find(&c, 1, 0)->ecx & (1u << 26 | 1u << 28));
    assert_false(cpuid_find(&c, 7, 0)->ebx & (1u << 5 | 1u << 16));
    assert_true(cpuid_find(&c, 1, 0)->ecx & 1u << 31);
    assert_true(cpuid_find(&c, 7, 0)->ebx & 1u); /* FSGSBASE */
}

static void cpuid_topology(void **state)
{
    struct cpuid c = filtered(4, 1), one = filtered(1, 1);

    (void)state;
    assert_true(cpuid_find(&c, 1, 0)->ecx & 1u << 24);
    assert_int_equal(cpuid_find(&c, 4, 0)->eax >> 14 & 0xfff, 0);
    assert_int_equal(cpuid_find(&c, 4, 3)->eax >> 14 & 0xfff, 3);
    assert_int_equal(cpuid_find(&c, 4, 3)->eax >> 26, 3);
    assert_int_equal(cpuid_find(&c, 0xb, 0)->ebx, 1);
    assert_int_equal(cpuid_find(&c, 0xb, 1)->ebx, 4);
    assert_int_equal(cpuid_find(&c, 0xb, 1)->eax, 2);
    cpuid_number(&c, 2);
    assert_int_equal(cpuid_find(&c, 1, 0)->ebx >> 24, 2);
    assert_int_equal(cpuid_find(&c, 0xb, 1)->edx, 2);
    assert_false(cpuid_find(&one, 1, 0)->edx & 1u << 28);
    assert_int_equal(cpuid_find(&one, 0xb, 1)->eax, 0);
}

static void cpuid_pinned(void **state)
{
    struct cpuid have = filtered(2, 1), want = filtered(2, 1), back;
    struct state_out o = {0};
    struct state_in i;
    struct why w;

    (void)state;
    assert_int_equal(cpuid_covers(&have, &want, &w), 0);
    cpuid_find(&want, 7, 0)->ebx &= ~(1u << 5);
    assert_int_equal(cpuid_covers(&have, &want, &w), 0); /* less is no harm */
    assert_int_equal(cpuid_covers(&want, &have, &w), -ENOTSUP);
    assert_non_null(strstr(w.text, "CPUID 0x7.0 EBX bits 0x20"));
    want.v[0].function = 0x8000000a;
    assert_int_equal(cpuid_covers(&have, &want, &w), -ENOTSUP);
    state_begin(&o, 1, 1);
    cpuid_save(&have, &o);
    state_end(&o);
    state_open(&i, o.data, o.len);
    state_enter(&i, 1, 1);
    assert_int_equal(cpuid_load(&back, &i), 0);
    state_leave(&i);
    assert_false(i.bad);
    assert_memory_equal(back.v, have.v, have.n * sizeof(have.v[0]));
    memset(o.data + 16, 0xff, 4); /* how many */
    state_open(&i, o.data, o.len);
    state_enter(&i, 1, 1);
    assert_int_equal(cpuid_load(&back, &i), -EBADMSG);
    assert_int_equal(back.n, 0);
    state_out_free(&o);
}

static void msr_list(void **state)
{
    static const uint32_t kvm[] = {0x6e0,      0xc0000080, 0x17b,      0x10,
                                   0x4b564d02, 0x1b,       0x4b564d01, 0x9e};
    struct kvm_msr_entry boot[16];
    struct msrs m;
    uint32_t i, n;

    (void)state;
    msrs_choose(&m, kvm, sizeof(kvm) / sizeof(kvm[0]));
    assert_int_equal(m.n, 5);
    assert_int_equal(m.index[0], 0x10);  /* the clock first, */
    assert_int_equal(m.index[4], 0x6e0); /* its deadline last */
    assert_false(msr_known(0x17b));
    assert_false(msr_known(0x4b564d02));
    n = msrs_boot(boot, 16);
    assert_int_equal(n, 11);
    for (i = 0; i < n; i++)
        if (boot[i].index == 0x2ff)
            assert_int_equal(boot[i].data, 0x806);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acpi_devices),   cmocka_unit_test(acpi_largest),
        cmocka_unit_test(mp_table),       cmocka_unit_test(cpuid_is_filtered),
        cmocka_unit_test(cpuid_topology), cmocka_unit_test(cpuid_emulated),
        cmocka_unit_test(cpuid_pinned),   cmocka_unit_test(msr_list),
    };
    return cmocka_run_group_tests(tests, memory, memory_end);
}
