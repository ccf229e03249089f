/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * acpi - the tables of a machine without PCI, legacy timers or a power management block of the old kind: the
 * "hardware-reduced" model, in which every device is a node of the DSDT, events are interrupts of one Generic Event
 * Device, and power is three registers.
 *
 * All lies from AT_ACPI on, the root pointer first, in the order of the table at the end; the guest is also
 * told that address by its boot protocol. Threads: none of its own.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "acpi.h"
#include "layout.h"

#define HEADER 36u
#define FADT_LEN 276u
#define IO_SPACE 1u

struct tables {
    const struct ram *ram;
    uint64_t at; /* where the next one goes */
    int r;
};

static uint8_t checksum(const uint8_t *p, size_t n)
{
    uint8_t s = 0;

    while (n--)
        s = (uint8_t)(s + *p++);
    return (uint8_t)-s;
}

static void set(uint8_t *t, size_t at, uint64_t v, size_t n)
{
    memcpy(t + at, &v, n);
}

/* Fills the header of a table that lies in t[0, len), puts it into memory and returns where. */
static uint64_t table_put(struct tables *s, uint8_t *t, size_t len, const char *name,
                          uint8_t revision)
{
    uint64_t at = s->at;

    memcpy(t, name, 4);
    set(t, 4, len, 4);
    t[8] = revision;
    t[9] = 0;
    memcpy(t + 10, "CELLA ", 6);
    memcpy(t + 16, "CELLAVMM", 8);
    set(t, 24, 1, 4);
    memcpy(t + 28, "CLLA", 4);
    set(t, 32, 1, 4);
    t[9] = checksum(t, len);
    if (at + len > AT_ACPI + ACPI_ROOM)
        s->r = -ENOSPC;
    else
        s->r |= ram_write(s->ram, at, t, len);
    s->at = (at + len + 15) & ~15ull;
    return at;
}

/* ------------------------------------------------------------------------- DSDT */

static void virtio_node(struct aml *a, uint32_t n)
{
    struct aml_resources r = {.memory = (uint32_t)(VIRTIO_MMIO_BASE + n * VIRTIO_MMIO_SIZE),
                              .memory_len = VIRTIO_MMIO_SIZE,
                              .irq = {VIRTIO_GSI_BASE + n},
                              .n_irq = 1};
    char name[5] = {'V', 'R', '0', (char)('0' + n), 0};
    size_t d = aml_device(a, name);

    aml_name(a, "_HID");
    aml_text(a, "LNRO0005");
    aml_name(a, "_UID");
    aml_int(a, n);
    aml_name(a, "_CCA");
    aml_int(a, 1);
    aml_resources(a, &r);
    aml_close(a, d);
}

static void serial_node(struct aml *a)
{
    struct aml_resources r = {.port = PORT_SERIAL, .port_len = 8, .irq = {GSI_SERIAL}, .n_irq = 1};
    size_t d = aml_device(a, "COM1");

    aml_name(a, "_HID");
    aml_eisa(a, "PNP0501");
    aml_name(a, "_UID");
    aml_int(a, 0);
    aml_resources(a, &r);
    aml_close(a, d);
}

/* The maker's own name, and the one that drivers know, which is a compatible one because no _HID may look like it. */
static void generation_node(struct aml *a)
{
    size_t d = aml_device(a, "VGEN"), p;

    aml_name(a, "_HID");
    aml_text(a, "CLLA0001");
    aml_name(a, "_CID");
    aml_text(a, "VM_Gen_Counter");
    aml_name(a, "_DDN");
    aml_text(a, "VM_Gen_Counter");
    aml_name(a, "ADDR");
    p = aml_package(a, 2);
    aml_int(a, (uint32_t)AT_GENERATION);
    aml_int(a, AT_GENERATION >> 32);
    aml_close(a, p);
    aml_close(a, d);
}

static void button_node(struct aml *a)
{
    size_t d = aml_device(a, "PWRB");

    aml_name(a, "_HID");
    aml_eisa(a, "PNP0C0C");
    aml_name(a, "_UID");
    aml_int(a, 0);
    aml_close(a, d);
}

/* The Generic Event Device: which interrupt means which notification. */
static void events_node(struct aml *a)
{
    struct aml_resources r = {.irq = {GSI_GENERATION, GSI_BUTTON}, .n_irq = 2};
    size_t d = aml_device(a, "GEDV"), m, i;

    aml_name(a, "_HID");
    aml_text(a, "ACPI0013");
    aml_name(a, "_UID");
    aml_int(a, 0);
    aml_resources(a, &r);
    m = aml_method(a, "_EVT", 1);
    i = aml_if_arg0(a, GSI_GENERATION);
    aml_notify(a, "\\_SB.VGEN", 0x80);
    aml_close(a, i);
    i = aml_if_arg0(a, GSI_BUTTON);
    aml_notify(a, "\\_SB.PWRB", 0x80);
    aml_close(a, i);
    aml_close(a, m);
    aml_close(a, d);
}

static uint64_t dsdt_put(struct tables *s, const struct acpi_machine *m)
{
    static struct aml a; /* one machine is built in the life of the program */
    size_t sb, p;
    uint32_t n;

    memset(&a, 0, sizeof(a));
    a.len = HEADER;
    sb = aml_scope(&a, "\\_SB");
    serial_node(&a);
    for (n = 0; n < 8; n++)
        if (m->virtio & 1u << n)
            virtio_node(&a, n);
    generation_node(&a);
    button_node(&a);
    events_node(&a);
    aml_close(&a, sb);
    aml_name(&a, "\\_S5");
    p = aml_package(&a, 4);
    aml_int(&a, POWER_S5);
    aml_int(&a, POWER_S5);
    aml_int(&a, 0);
    aml_int(&a, 0);
    aml_close(&a, p);
    if (a.full)
        s->r = -ENOSPC;
    return table_put(s, a.data, a.len, "DSDT", 2);
}

/* ----------------------------------------------------------------- other tables */

/* A register in a port of one byte. */
static void port_register(uint8_t *t, size_t at, uint32_t port)
{
    t[at] = IO_SPACE;
    t[at + 1] = 8; /* bits */
    t[at + 3] = 1; /* byte access */
    set(t, at + 4, port, 8);
}

static uint64_t fadt_put(struct tables *s, uint64_t dsdt)
{
    enum { NO_VGA = 1 << 2, NO_MSI = 1 << 3, NO_ASPM = 1 << 4, NO_RTC = 1 << 5 };
    enum { WBINVD = 1 << 0, RESET = 1 << 10, REDUCED = 1 << 20 };
    uint8_t t[FADT_LEN] = {0};

    set(t, 40, dsdt, 4);
    set(t, 109, NO_VGA | NO_MSI | NO_ASPM | NO_RTC, 2);
    set(t, 112, WBINVD | RESET | REDUCED, 4);
    port_register(t, 116, PORT_POWER + POWER_RESET);
    t[128] = POWER_RESET_VALUE;
    t[131] = 3; /* minor revision: 6.3 */
    set(t, 140, dsdt, 8);
    port_register(t, 244, PORT_POWER + POWER_CONTROL);
    port_register(t, 256, PORT_POWER + POWER_STATUS);
    memcpy(t + 268, "CELLA\0\0", 8);
    return table_put(s, t, sizeof(t), "FACP", 6);
}

static uint64_t madt_put(struct tables *s, uint32_t vcpus)
{
    uint8_t t[HEADER + 8 + 256 * 8 + 12] = {0};
    size_t at = HEADER + 8;
    uint32_t i;

    set(t, HEADER, LAPIC_BASE, 4);
    for (i = 0; i < vcpus && i < 255; i++, at += 8) {
        t[at + 1] = 8; /* type 0: a processor's local APIC */
        t[at + 2] = t[at + 3] = (uint8_t)i;
        t[at + 4] = 1; /* enabled */
    }
    t[at] = 1; /* type 1: I/O APIC */
    t[at + 1] = 12;
    t[at + 2] = (uint8_t)vcpus;
    set(t, at + 4, IOAPIC_BASE, 4);
    return table_put(s, t, at + 12, "APIC", 5);
}

static uint64_t xsdt_put(struct tables *s, const uint64_t *v, size_t n)
{
    uint8_t t[HEADER + 4 * 8] = {0};

    memcpy(t + HEADER, v, n * 8);
    return table_put(s, t, HEADER + n * 8, "XSDT", 1);
}

static void rsdp_put(struct tables *s, uint64_t xsdt)
{
    uint8_t t[36] = {0};

    memcpy(t, "RSD PTR ", 8);
    memcpy(t + 9, "CELLA ", 6);
    t[15] = 2;
    set(t, 20, sizeof(t), 4);
    set(t, 24, xsdt, 8);
    t[8] = checksum(t, 20);
    t[32] = checksum(t, sizeof(t));
    s->r |= ram_write(s->ram, AT_ACPI, t, sizeof(t));
}

int acpi_write(const struct ram *ram, const struct acpi_machine *m)
{
    struct tables s = {.ram = ram, .at = AT_ACPI + 48};
    uint64_t v[2];

    v[0] = fadt_put(&s, dsdt_put(&s, m));
    v[1] = madt_put(&s, m->vcpus);
    rsdp_put(&s, xsdt_put(&s, v, 2));
    return s.r;
}
