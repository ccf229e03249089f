/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fake_kvm - KVM's requests answered in this process (linked with --wrap=ioctl), for tests of what stands on them where
 * there is no KVM: what was set is what is got, each request is on record, processors do nothing until they are
 * stopped. The descriptors of control.h are set up with files in memory.
 */
#ifndef CELLA_TEST_FAKE_KVM_H
#define CELLA_TEST_FAKE_KVM_H

#include <setjmp.h>
#include <stdint.h>

#include "vmm.h"

#define FAKE_LOG 4096

extern unsigned long fake_log[FAKE_LOG]; /* requests in their order */
extern int fake_log_n;
extern unsigned long fake_refuse; /* this request fails with EINVAL; 0 = none */

/* vmm_end() goes there while it is armed: setjmp(fake_end) first. */
extern jmp_buf fake_end;
extern int fake_end_armed, fake_end_status;
extern char fake_end_text[512];

/* A machine's descriptors; the kernel is the bytes given. Returns the other end of the control socket. */
int fake_fds(const void *kernel, size_t kernel_len, uint64_t ram_bytes);
void fake_config(struct vmm_config *c, uint64_t ram_bytes);
/* A bzImage that all loaders take. */
size_t fake_kernel(uint8_t out[4096]);
/* Without processors' threads, kernel and tables: for dispatch and snapshots. */
int fake_machine(struct machine *m, const struct vmm_config *c);
/* Where in the log the request is for the first time at or after `from`; -1 = nowhere. */
int fake_at(unsigned long request, int from);
/* One request to a machine over its control socket, whose other end is `host`: carried out at once. Returns the code. */
int fake_order(int host, struct machine *to, const struct vmm_request *q, size_t len, int fd,
               struct vmm_reply *ret);
int __wrap_ioctl(int fd, unsigned long request, ...);

#endif
