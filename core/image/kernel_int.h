/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* kernel_int - what kernel.c and boot.c share. */
#ifndef CELLA_IMAGE_KERNEL_INT_H
#define CELLA_IMAGE_KERNEL_INT_H

int kernel_version_valid(const char *s);

#endif
