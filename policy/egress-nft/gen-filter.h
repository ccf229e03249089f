/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* gen-filter - what calls.c of the gate and of the HTTP engine give to gen-filter.c. */
#ifndef CELLA_EGRESS_GEN_FILTER_H
#define CELLA_EGRESS_GEN_FILTER_H

#include <seccomp.h>

/* Allows what the program needs. 0, or -errno. */
int filter_calls(scmp_filter_ctx c);

#endif
