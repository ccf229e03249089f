/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* calls.h - all rows of the table of system calls. Included more than once, with CALL and REFUSE defined by the includer. */
/* clang-format off */
#include "mm/calls.def"
#include "task/calls.def"
#include "fs/calls.def"
#include "ipc/calls.def"
