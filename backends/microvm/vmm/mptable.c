/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mptable - the older description of processors and interrupts (MultiProcessor Specification 1.4), for a kernel
 * without ACPI or with acpi=off: processors, one ISA bus, one I/O APIC whose inputs are the ISA interrupts of
 * the same number, and the two local inputs. Threads: none of its own.
 */
#include <errno.h>
#include <string.h>

#include "acpi.h"
#include "layout.h"

#define ENTRIES_AT                                                                                 \
    44u /* behind the floating pointer (16, padded) comes the table; its header is 44 bytes */
#define FLOATING 16u
#define APIC_VERSION 0x14u

struct mp {
    uint8_t t[2048];
    size_t len;
    uint16_t entries;
};

static void entry(struct mp *m, const void *p, size_t n)
{
    memcpy(m->t + m->len, p, n);
    m->len += n;
    m->entries++;
}

static void processors(struct mp *m, uint32_t vcpus)
{
    uint32_t i;

    for (i = 0; i < vcpus; i++) {
        uint8_t e[20] = {0, (uint8_t)i, APIC_VERSION, (uint8_t)(1 | (i == 0) << 1)};
        entry(m, e, sizeof(e));
    }
}

static void interrupts(struct mp *m, uint8_t ioapic)
{
    uint8_t bus[8] = {1, 0, 'I', 'S', 'A', ' ', ' ', ' '};
    uint8_t io[8] = {2, ioapic, APIC_VERSION, 1};
    uint32_t at = IOAPIC_BASE;
    uint8_t i;

    entry(m, bus, sizeof(bus));
    memcpy(io + 4, &at, 4);
    entry(m, io, sizeof(io));
    for (i = 0; i < 16; i++) {
        uint8_t e[8] = {3, 0, 0, 0, 0, i, ioapic, i};
        entry(m, e, sizeof(e));
    }
    for (i = 0; i < 2; i++) { /* ExtINT and NMI, of all processors */
        uint8_t e[8] = {4, (uint8_t)(i == 0 ? 3 : 1), 0, 0, 0, 0, 0xff, i};
        entry(m, e, sizeof(e));
    }
}

static uint8_t checksum(const uint8_t *p, size_t n)
{
    uint8_t s = 0;

    while (n--)
        s = (uint8_t)(s + *p++);
    return (uint8_t)-s;
}

int mptable_write(const struct ram *ram, uint32_t vcpus)
{
    uint8_t floating[FLOATING] = {'_', 'M', 'P', '_'};
    uint32_t at = (uint32_t)AT_MPTABLE + FLOATING, lapic = LAPIC_BASE;
    struct mp m = {.len = ENTRIES_AT};

    if (!vcpus || ENTRIES_AT + vcpus * 20 + 20 * 8 > sizeof(m.t))
        return -ERANGE;
    processors(&m, vcpus);
    interrupts(&m, (uint8_t)vcpus);
    memcpy(m.t, "PCMP", 4);
    memcpy(m.t + 4, &m.len, 2);
    m.t[6] = 4; /* 1.4 */
    memcpy(m.t + 8, "CELLA   MICROVM     ", 20);
    memcpy(m.t + 34, &m.entries, 2);
    memcpy(m.t + 36, &lapic, 4);
    m.t[7] = checksum(m.t, m.len);
    memcpy(floating + 4, &at, 4);
    floating[8] = 1; /* sixteen-byte units */
    floating[9] = 4;
    floating[10] = checksum(floating, sizeof(floating));
    return ram_write(ram, AT_MPTABLE, floating, sizeof(floating)) | ram_write(ram, at, m.t, m.len);
}
