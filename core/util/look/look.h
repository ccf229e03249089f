/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * look - what a cell is not shown and may not do, the same on every backend that has a Linux kernel below it: lists
 * only, for the container's launcher and for the init of a guest. syscalls.h beside it is the table of system
 * calls, seccomp_gen.c makes two BPF programs of it at build time.
 */
#ifndef CELLA_LOOK_H
#define CELLA_LOOK_H

/* What shows the machine, which a program in a cell has no use for. */
#define LOOK_MASKED                                                                                \
    "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/key-users",                  \
        "/proc/kallsyms", "/proc/kmsg", "/proc/latency_stats", "/proc/timer_list",                 \
        "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts",                \
        "/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/iomem",                \
        "/proc/ioports", "/proc/vmallocinfo", "/proc/slabinfo", "/proc/swaps", "/proc/modules",    \
        "/proc/diskstats", "/sys/firmware", "/sys/kernel/security", "/sys/kernel/debug",           \
        "/sys/kernel/tracing", "/sys/devices/virtual/powercap", "/sys/module", "/sys/fs/pstore",   \
        "/sys/devices/virtual/dmi", "/proc/cmdline"

/* What may be read and not written. */
#define LOOK_FROZEN "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"

#endif
