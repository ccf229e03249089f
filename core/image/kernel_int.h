/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* kernel_int - what kernel.c and boot.c share. */
#ifndef CELLA_IMAGE_KERNEL_INT_H
#define CELLA_IMAGE_KERNEL_INT_H

#include <jansson.h>

int kernel_version_valid(const char *s);
/* Taken out of its package by a cella that looked for other modules than this one. */
int kernel_stale(const json_t *record);

#endif
