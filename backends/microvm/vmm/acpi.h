/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * acpi - what the guest's kernel finds of its machine: RSDP, XSDT, FADT (hardware-reduced), MADT, DSDT.
 * aml - a writer for the few terms of ACPI's language that the DSDT needs.
 */
#ifndef CELLA_VMM_ACPI_H
#define CELLA_VMM_ACPI_H

#include <stddef.h>
#include <stdint.h>

#include "ram.h"

struct acpi_machine {
    uint32_t vcpus;
    uint32_t virtio; /* bit n: there is a device n */
};

int acpi_write(const struct ram *ram, const struct acpi_machine *m);
int mptable_write(const struct ram *ram, uint32_t vcpus);

struct aml {
    uint8_t data[4096];
    size_t len;
    int full;
};

/* Blocks: open returns where it began; close writes the length there. */
size_t aml_scope(struct aml *a, const char *path);
size_t aml_device(struct aml *a, const char *name);
size_t aml_method(struct aml *a, const char *name, unsigned args);
size_t aml_if_arg0(struct aml *a, uint8_t value);
size_t aml_package(struct aml *a, uint8_t n);
void aml_close(struct aml *a, size_t at);

void aml_name(struct aml *a, const char *name); /* Name(name, …): one of these must follow */
void aml_int(struct aml *a, uint64_t v);
void aml_text(struct aml *a, const char *s);
void aml_eisa(struct aml *a, const char *id); /* "PNP0501" */
/* Name(_CRS, …) of at most one memory window, one port range and n interrupts (edge, active high). */
struct aml_resources {
    uint32_t memory, memory_len;
    uint16_t port;
    uint8_t port_len;
    uint32_t irq[2];
    uint32_t n_irq;
};
void aml_resources(struct aml *a, const struct aml_resources *r);
void aml_notify(struct aml *a, const char *path, uint8_t value);

#endif
