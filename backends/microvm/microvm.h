/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * microvm - what the files of this backend share.
 *
 * microvm.c     names, options, operation table
 * engine_vmm.c  the engine cella-vmm, from the warden's side
 * vmm/          the monitor itself: a program of its own
 */
#ifndef CELLA_MICROVM_H
#define CELLA_MICROVM_H

#include "vm.h"

extern const struct engine_ops engine_vmm;

#endif
