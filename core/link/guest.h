/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * guest - the host's side of port 1: requests to the init of a guest, <cella/guest.h>.
 *
 * Every byte from the guest is hostile: one answer per request, only the fields the request has,
 * within its deadline, or the connection ends with one sentence.
 */
#ifndef CELLA_CORE_GUEST_H
#define CELLA_CORE_GUEST_H

#include <cella/backend.h>
#include <cella/guest.h>

#include "link.h"

struct guest;

struct guest_events {
    /* HELLO has come: it takes requests. Once. */
    void (*ready)(void *ctx);
    /* Once; never from inside a call of the owner. -ECONNRESET, -EPROTO, -ETIMEDOUT. */
    void (*closed)(void *ctx, int code, const char *why);
};

/* How a request ended: 0 and the checked fields of RESULT, or -errno and `why`. */
typedef void (*guest_done)(void *ctx, int code, const char *why, const uint8_t *payload,
                           size_t len);

int guest_new(struct loop *loop, int own_fd, const struct guest_events *events, void *ctx,
              struct guest **ret);
void guest_free(struct guest *g);
/* Queues a request; requests are sent one after another once HELLO has come, each with `ns` to be
   answered in. `fields` without OP. `done` may be NULL; it is not called after guest_free(). */
int guest_send(struct guest *g, uint32_t op, const void *fields, size_t len, uint64_t ns,
               guest_done done, void *ctx);
/* The same, waiting: nothing else of this process runs meanwhile, but what was queued before is
   done first. ret: usage of CELLA_GUEST_USAGE, or NULL. */
int guest_call(struct guest *g, uint32_t op, const void *fields, size_t len, uint64_t ns,
               struct cella_stats *ret, struct cella_error *err);

/* Waits for what was queued, at most `ns`, and ends nothing when it is late. 0, or -ETIMEDOUT. */
int guest_turn(struct guest *g, uint64_t ns);
/* While the machine stands still nothing is sent, and no deadline runs. */
void guest_hold(struct guest *g, int on);

/* From the fields of a RESULT of USAGE, checked: members that are there replace those of ret. */
void guest_usage(const uint8_t *payload, size_t len, struct cella_stats *ret);

/* From the fields of a RESULT of BOOT: 1 = it has said when it got to each step. */
int guest_steps(const uint8_t *payload, size_t len, uint64_t ret[CELLA_GUEST_STEPS]);

/* A connection to a guest that was restored, before guest_new(): sends RESET and reads up to the
   nonce, so that HELLO comes next. */
int guest_reset(int fd, const uint8_t nonce[CELLA_GUEST_NONCE], uint64_t ns,
                struct cella_error *err);
/* Reads and drops what is left of an older connection, up to and with the nonce. */
int guest_skip(int fd, const uint8_t nonce[CELLA_GUEST_NONCE], uint64_t ns,
               struct cella_error *err);

#endif
