/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * platform - the ports by which a guest ends itself: ACPI's sleep control and reset, and the reset line of the
 * keyboard controller, which is all there is of one. Each ends the program. Threads: a processor's.
 */
#include <string.h>

#include "layout.h"
#include "vmm.h"

#define SLEEP_ENABLE 0x20u
#define SLEEP_TYPE(v) ((v) >> 2 & 7u)
#define KEYBOARD_COMMAND 4u /* 0x64 */
#define PULSE_RESET 0xfeu

static void power_read(void *self, uint64_t offset, void *out, unsigned len)
{
    (void)self;
    (void)offset;
    memset(out, 0, len);
}

static void power_write(void *self, uint64_t offset, const void *in, unsigned len)
{
    uint8_t v = *(const uint8_t *)in;

    (void)self;
    if (len != 1)
        return;
    if (offset == POWER_CONTROL && (v & SLEEP_ENABLE) && SLEEP_TYPE(v) == POWER_S5)
        vmm_end(VMM_EXIT_GUEST_DONE, "guest: switched itself off");
    if (offset == POWER_RESET && v == POWER_RESET_VALUE)
        vmm_end(VMM_EXIT_GUEST_DONE, "guest: asked for a reset");
}

static void keyboard_write(void *self, uint64_t offset, const void *in, unsigned len)
{
    (void)self;
    if (offset == KEYBOARD_COMMAND && len == 1 && *(const uint8_t *)in == PULSE_RESET)
        vmm_end(VMM_EXIT_GUEST_DONE, "guest: asked for a reset (keyboard controller)");
}

static const struct bus_range ranges[] = {
    {.base = PORT_POWER, .len = 4, .read = power_read, .write = power_write},
    {.base = PORT_I8042, .len = 5, .read = power_read, .write = keyboard_write}, /* never busy */
};

/* A kernel that finds the hardware-reduced model and no EFI restarts by a jump to the firmware (Linux does, unless
   reboot= says otherwise). There is none, but these are its instructions: out of AL to the reset port. */
int platform_firmware(const struct ram *ram)
{
    static const uint8_t code[] = {
        0xb0,
        POWER_RESET_VALUE, /* mov al, value */
        0xba,
        (PORT_POWER + POWER_RESET) & 0xff,
        (PORT_POWER + POWER_RESET) >> 8, /* mov dx, port */
        0xee,                            /* out dx, al */
        0xf4,
        0xeb,
        0xfd, /* hlt; again */
    };

    return ram_write(ram, AT_FIRMWARE, code, sizeof(code));
}

int platform_add(struct bus *ports)
{
    int r = bus_add(ports, &ranges[0]);

    return r < 0 ? r : bus_add(ports, &ranges[1]);
}
