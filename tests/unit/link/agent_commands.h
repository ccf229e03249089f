/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* agent_commands - a command of the built agent, run and waited for. */
#ifndef CELLA_TEST_AGENT_COMMANDS_H
#define CELLA_TEST_AGENT_COMMANDS_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "agent_harness.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define ARGV(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SH(text) ARGV("sh", "-c", text)
#define FIELDS auto_buf struct buf

static inline void run(struct cell *c, struct op *o, const char *const *argv,
                       const struct buf *extra)
{
    op_exec(c, o, argv, extra);
    assert_int_equal(op_wait(o, 10000), 0);
}

/* Only the agent is left (its supervisors leave a moment after their report). */
static inline void assert_alone(struct cell *c)
{
    int i;

    for (i = 0; i < 1000 && descendants(c->agent); i++)
        cell_turn(c, 10);
    assert_int_equal(descendants(c->agent), 0);
}

static inline void wait_output(struct op *o, const char *text)
{
    int i;

    for (i = 0; i < 1000 && !strstr(o->out.ptr, text) && !o->ended; i++)
        cell_turn(o->cell, 10);
    if (!strstr(o->out.ptr, text))
        fail_msg("no '%s' in '%s' (ended %d, %s)", text, o->out.ptr, o->ended, o->msg);
}

/* Two that leave their session, and two that do not mind signals. */
#define DAEMONS                                                                                    \
    "(setsid sh -c 'setsid sleep 300 & sleep 300 & wait' >/dev/null 2>&1 &) ; "                    \
    "(trap '' TERM HUP INT; sleep 300 & sleep 300) & "

#endif
