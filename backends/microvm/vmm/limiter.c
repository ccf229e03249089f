/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * limiter - a bucket that fills at the rate and holds a tenth of a second. Requests are of bounded size, so the
 * debt that one can leave is bounded too. Sizes and times are capped so that no product overflows.
 * Threads: the caller has the machine's lock.
 */
#include <time.h>

#include "limiter.h"

#define SECOND 1000000000ull
#define MICRO 1000000ull /* in a second */
#define BPS_MAX (1ull << 40)
#define BYTES_MAX (1ull << 32)

/* @seccomp vmm vcpu: clock_gettime */
uint64_t limiter_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static int64_t room(const struct limiter *l)
{
    return (int64_t)(l->bps / 10 + 1);
}

void limiter_set(struct limiter *l, uint64_t bps, uint64_t now)
{
    l->bps = bps < BPS_MAX ? bps : BPS_MAX;
    l->left = room(l);
    l->at = now;
}

/* Whole microseconds. Less than a byte is left to grow: otherwise calls in quick succession would lose it. */
static void refill(struct limiter *l, uint64_t now)
{
    uint64_t us, bytes;

    if (now <= l->at)
        return;
    us = (now - l->at) / 1000;
    if (us >= 4096 * MICRO) {
        l->left = room(l);
        l->at = now;
        return;
    }
    bytes = us / MICRO * l->bps + us % MICRO * l->bps / MICRO;
    if (bytes == 0)
        return;
    l->left = l->left + (int64_t)bytes < room(l) ? l->left + (int64_t)bytes : room(l);
    l->at += us * 1000;
}

uint64_t limiter_take(struct limiter *l, uint64_t bytes, uint64_t now)
{
    if (l->bps == 0)
        return 0;
    refill(l, now);
    if (l->left > 0) {
        l->left -= (int64_t)(bytes < BYTES_MAX ? bytes : BYTES_MAX);
        return 0;
    }
    return ((uint64_t)(1 - l->left) * MICRO / l->bps + 1) * 1000;
}
