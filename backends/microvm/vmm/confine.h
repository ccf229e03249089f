/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * confine - what each thread may ask of the host's kernel: the lists are the @seccomp annotations beside the code
 * that asks (core/util/confine). A call that is on no list ends the program with status 2 and its number.
 */
#ifndef CELLA_VMM_CONFINE_H
#define CELLA_VMM_CONFINE_H

#include <linux/filter.h>

#include "why.h"

/* Once, before the first filter: no new privileges, and the handler of SIGSYS. */
int confine_prepare(struct why *w);
/* For the calling thread. -ENOSYS in a build with sanitizers, whose run time needs more. */
int confine_vmm(void);
int confine_vcpu(void);

/* For tests. */
extern const struct sock_fprog confine_vmm_program, confine_vcpu_program;

#endif
