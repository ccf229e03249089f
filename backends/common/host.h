/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* host - what this host can run machines with, and its programs. */
#ifndef CELLA_HOST_MACHINES_H
#define CELLA_HOST_MACHINES_H

#include "util.h"

#define QEMU_DEFAULT "/usr/bin/qemu-system-x86_64"

/* Is there a QEMU that can be used? ret_version (may be NULL): "7.2.22"; asking costs more than the rest. */
int host_qemu(const char *qemu, char *ret_version, size_t cap, struct cella_error *err);
/* Does KVM run guests here? 0 with the reason in `why`. */
int host_kvm(char *why, size_t cap);
/* May a program without privileges have io_uring? `setting`: IO_URING_SETTING. -ENOTSUP. */
#define IO_URING_SETTING "/proc/sys/kernel/io_uring_disabled"
int host_io_uring(const char *setting, struct cella_error *err);
/* How fast the time stamp counter counts, in kHz, measured for 20 ms. */
uint64_t host_tsc_khz(void);
/* One line that is the same on hosts whose processors look the same to a guest. */
int host_cpu(char *out, size_t cap);
/* A program of the host's own; NULL = not there. Static storage of the caller's list. */
const char *host_program(const char *const *paths);
extern const char *const mke2fs_paths[], *const qemu_img_paths[];
/* Runs a program of the host with nothing but /dev/null; 0, or -EIO with its name. */
int run_program(const char *path, char *const argv[], struct cella_error *err);

#endif
