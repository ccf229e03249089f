/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* limiter - bytes a second. What is asked for is had as long as there is no debt, and may leave one: on average the
   rate is exact, whatever the requests' sizes. */
#ifndef CELLA_VMM_LIMITER_H
#define CELLA_VMM_LIMITER_H

#include <stdint.h>

struct limiter {
    uint64_t bps; /* 0 = no limit */
    int64_t left; /* bytes; negative = debt */
    uint64_t at;  /* when `left` was right, CLOCK_MONOTONIC in ns */
};

uint64_t limiter_now(void);
void limiter_set(struct limiter *l, uint64_t bps, uint64_t now);
/* 0 = taken; else nothing was, and it is worth to ask again in so many ns. */
uint64_t limiter_take(struct limiter *l, uint64_t bytes, uint64_t now);

#endif
