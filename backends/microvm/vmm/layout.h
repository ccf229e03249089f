/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * layout - what lies where in the guest's physical memory when it starts, and which ports and interrupts are
 * whose. [0x9fc00, 1 MiB) is reserved in the memory map that the guest is given.
 */
#ifndef CELLA_VMM_LAYOUT_H
#define CELLA_VMM_LAYOUT_H

#include "virtio.h"

#define AT_GDT 0x500ull
#define AT_PVH_INFO 0x6000ull
#define AT_PVH_MODULES 0x6040ull
#define AT_ZERO_PAGE 0x7000ull /* of the 64-bit boot; or the memory map of a PVH boot */
#define AT_STACK 0x8ff0ull
#define AT_PML4 0x9000ull
#define AT_PDPT 0xa000ull
#define AT_PD 0xb000ull /* 1 GiB in large pages */
#define AT_CMDLINE 0x20000ull
#define AT_RESERVED 0x9fc00ull
#define AT_GENERATION 0xdf000ull /* 16 bytes in a page of their own */
#define AT_ACPI 0xe0000ull       /* root pointer first */
#define ACPI_ROOM 0x10000ull
#define AT_MPTABLE 0xf0000ull
#define AT_FIRMWARE 0xffff0ull /* where a jump to the firmware arrives in real mode */
#define AT_KERNEL 0x100000ull

#define IOAPIC_BASE 0xfec00000u
#define LAPIC_BASE 0xfee00000u
#define TSS_BASE 0xfffbd000u
#define GSI_N 24u

#define GSI_SERIAL 4u
#define GSI_GENERATION (VIRTIO_GSI_BASE + 8u)
#define GSI_BUTTON (VIRTIO_GSI_BASE + 9u)

#define PORT_SERIAL 0x3f8u
#define PORT_I8042 0x60u
#define PORT_POWER 0x600u /* sleep control, sleep status, reset */
#define POWER_CONTROL 0u
#define POWER_STATUS 1u
#define POWER_RESET 2u
#define POWER_RESET_VALUE 0x5au
#define POWER_S5 5u

#endif
