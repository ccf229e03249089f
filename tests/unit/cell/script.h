/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* script - a guest that says what it is told to, and stand-ins for the rooms of the warden around guest.c, take.c and
   update.c. Everything that happens, on either side, becomes a word in one log. */
#ifndef CELLA_TEST_CELL_SCRIPT_H
#define CELLA_TEST_CELL_SCRIPT_H

#include "guest_int.h"

#define AGENT_SAYS "H" /* what comes behind the nonce */

struct script {
    uint32_t errs;         /* this op is answered by an error */
    int other;             /* RESET is answered by another nonce, and the end */
    const uint64_t *steps; /* of the answer to BOOT; or none */
    unsigned slow_ms;      /* BOOT takes this long */
    unsigned late_clocks;  /* so many CLOCKs are answered too late for the contract */
    int agent_old;         /* the agent's port has no nonce, only what is left of the parent's */
};

/* What the stand-ins are to answer; set anew by script_begin(). */
extern int audit_fails, snapshot_code, resize_code;

extern char text[8192]; /* the log so far */
const char *log_text(void);
void word(const char *fmt, ...) CELLA_PRINTF(1, 2);

/* A guest and its agent's port; script_end() reads the last of the log. */
pid_t script_begin(const struct script *s, int copy);
void script_end(pid_t pid);

#endif
