/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* machine - a test cell of the backend fullvm: loads the plugin by its entry symbol, boots the lab's kernel
 * with an init that answers lines. */
#ifndef CELLA_TEST_MACHINE_H
#define CELLA_TEST_MACHINE_H

#include <cella/backend.h>

#include "util.h"

#define TEST_UID_BASE 1879179264u

struct machine {
    char id[CELLA_ID_LEN + 1];
    char dir[64], scratch[96], root[96], initrd[96], kernel[300];
    struct cella_limits limits;
    struct cella_spec spec;
    struct cella_mount mounts[4];
    struct cella_option_value values[8];
    struct cella_options options;
    int ports[2];
    void *self;
    struct cella_started started;
    struct errbuf eb;
    char reply[8192];
    char events[1024];
    char log[2048];
};

const struct cella_backend_ops *machine_ops(void);
/* 0, or 77 with the reason on stderr: nothing here can boot. */
int machine_possible(void);
extern struct cella_host machine_host;
void machine_init(struct machine *m);
void machine_option(struct machine *m, const char *name, const char *str, int64_t i64);
int machine_create(struct machine *m);
/* start, connect both ports, wait for the first answer */
int machine_run(struct machine *m);
int machine_run_ms(struct machine *m, int ms); /* a copy need not boot */
int machine_boot(struct machine *m);           /* create and run */
/* Sends a line on a port, returns the number of the answer. -EPIPE: gone. -ETIMEDOUT. */
long machine_ask(struct machine *m, int port, const char *fmt, ...) CELLA_PRINTF(3, 4);
int machine_connect(struct machine *m, int port);
long machine_ask_ms(struct machine *m, int port, int ms, const char *line);
/* Takes the answer to a ping that a pause has held up, and one to an empty line after it. */
int machine_catch_up(struct machine *m, int port);
int64_t machine_json(struct machine *m, const char *name, char *buf, uint64_t cap);
struct cella_stats machine_stats(struct machine *m);
int machine_entries(const char *dir); /* how many there are; 0 = none, or no directory */
void machine_fini(struct machine *m);

#endif
