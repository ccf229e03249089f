/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* why - a reason in words on its way up, and the end of the program with one. */
#ifndef CELLA_VMM_WHY_H
#define CELLA_VMM_WHY_H

#include <stdint.h>

#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

/* Exit status, as control.h says. */
enum vmm_exit { VMM_EXIT_GUEST_DONE, VMM_EXIT_GUEST_BROKE, VMM_EXIT_HOST };

struct why {
    char text[400];
};

/* Fills w unless it is NULL; returns code, which is negative. */
int why(struct why *w, int code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* One line to VMM_FD_STDERR, then the whole process ends. Any thread; the first one's word counts. */
void vmm_end(enum vmm_exit status, const char *fmt, ...) PRINTF_LIKE(2, 3)
    __attribute__((noreturn));

#endif
