/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* exec - what the supervisor of a command (exec.c) and the child that becomes it (command.c) share. */
#ifndef CELLA_AGENT_EXEC_H
#define CELLA_AGENT_EXEC_H

#include <stddef.h>
#include <stdint.h>

#define ARGS_MAX 8191u

/* What a child that did not become the command says through its close-on-exec pipe. */
struct failure {
    int err;
    char msg[256];
};

struct request {
    uint8_t *payload;
    size_t len;
    int fail_fd;
    int tty;
    char *argv[ARGS_MAX + 1], *envp[ARGS_MAX + 1];
    char *cwd, *user;
};

_Noreturn void command_main(struct request *q);

#endif
