/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cli - what the verbs share. A verb is one file; verbs.c is the table. A verb returns the exit
 * status of the program, or a negative errno with `cli_err` filled, which main() prints (status
 * 125).
 */
#ifndef CELLA_CLI_H
#define CELLA_CLI_H

#include <jansson.h>

#include "args.h"
#include "client.h"
#include "config.h"

enum {
    CLI_TIMEOUT = 124,
    CLI_FAILED = 125,
    CLI_NOT_EXECUTABLE = 126,
    CLI_NOT_FOUND = 127,
    CLI_KILLED = 137
};

extern struct errbuf cli_errbuf; /* of the one failure that main() reports */
#define cli_err (&cli_errbuf.err)

extern const struct verb verbs[];
extern const size_t n_verbs;
const struct verb *verb_find(const char *name);
const char *verb_nearest(const char *name);

/* "cella: …" on stderr, one line, escaped. */
void cli_say(const char *fmt, ...) CELLA_PRINTF(1, 2);
/* Text from outside, for a terminal: control characters and broken UTF-8 become \x.. */
void print_safe(FILE *to, const char *s, size_t len);
char *safe_string(const char *s, size_t len);           /* malloc; never NULL: exits on OOM */
int print_json(const json_t *j);                        /* indented, escaped, on stdout */
const char *json_str(const json_t *o, const char *key); /* "" when absent */
int64_t json_int(const json_t *o, const char *key);     /* 0 when absent */
void human_size(uint64_t bytes, char out[32]);
void human_time(uint64_t ns, char out[32]);
int cli_config(const struct options *o, struct config **ret);
/* Loads the config and connects. */
int cli_connect(const struct options *o, const char *cell, struct config **ret_config,
                struct client **ret);

/* ---- run.c and request.c: shared by run, create, exec ---- */
json_t *request_build(const struct options *o, int argc, char **argv,
                      int detach); /* NULL: cli_err */
/* The limits that were given, as the request and the call "update" take them. */
json_t *request_limits_given(const struct options *o);
/* Fields of an EXEC; with `full` also env, user, workdir (run gives them in the request). */
int exec_fields(const struct options *o, int argc, char **argv, int full, struct buf *ret);
/* Exit status of a session that ended; says on stderr why when it is not the command's own status.
 */
int session_status(const struct session_end *end, int *ret_signal);
/* ERRNO of an ERROR frame, else 0. */
uint32_t session_errno(const struct session_end *end);
/* The status of a whole cell: what ended it, limits, notes. `status` from session_status(), -1 =
 * none. */
int summary_status(const struct options *o, const json_t *summary, const json_t *created,
                   int status);

int verb_run(const struct options *o, int argc, char **argv);
int verb_create(const struct options *o, int argc, char **argv);
int verb_start(const struct options *o, int argc, char **argv);
int verb_exec(const struct options *o, int argc, char **argv);
int verb_cp(const struct options *o, int argc, char **argv);
int verb_ps(const struct options *o, int argc, char **argv);
int verb_inspect(const struct options *o, int argc, char **argv);
int verb_logs(const struct options *o, int argc, char **argv);
int verb_stats(const struct options *o, int argc, char **argv);
int verb_reach(const struct options *o, int argc, char **argv);
int verb_update(const struct options *o, int argc, char **argv);
int verb_pause(const struct options *o, int argc, char **argv);
int verb_resume(const struct options *o, int argc, char **argv);
int verb_stop(const struct options *o, int argc, char **argv);
int verb_rm(const struct options *o, int argc, char **argv);
int verb_call(const struct options *o, int argc, char **argv);
int verb_config(const struct options *o, int argc, char **argv);
int verb_policy(const struct options *o, int argc, char **argv);
int verb_snapshot(const struct options *o, int argc, char **argv);
int verb_restore(const struct options *o, int argc, char **argv);
int verb_fork(const struct options *o, int argc, char **argv);
int verb_fork_child(const struct options *o, int argc, char **argv);
int verb_fork_spares(const struct options *o, int argc, char **argv);
int verb_image(const struct options *o, int argc, char **argv);
int verb_audit(const struct options *o, int argc, char **argv);
int verb_doctor(const struct options *o, int argc, char **argv);
int verb_gc(const struct options *o, int argc, char **argv);
int verb_version(const struct options *o, int argc, char **argv);
int verb_help_topic(const struct options *o, int argc, char **argv);
int verb_options_of(const struct options *o, int argc, char **argv);
int cmd_plugin(int argc, char **argv); /* core/plugin */

#endif
