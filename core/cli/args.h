/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * args - one table of options, from which come parsing, --help, `cella __options` and with it the
 * checks of man pages and completion.
 */
#ifndef CELLA_CLI_ARGS_H
#define CELLA_CLI_ARGS_H

#include "util.h"

enum opt_kind { OPT_FLAG, OPT_STR, OPT_LIST, OPT_SIZE, OPT_DURATION, OPT_CPUS, OPT_COUNT };

struct opt {
    const char *name;
    char letter; /* 0 = none */
    enum opt_kind kind;
    const char *arg; /* name of the value in help; NULL for flags */
    const char *help;
    size_t offset; /* of its member in struct options */
};

struct strlist {
    const char **v;
    size_t n;
};

/* Values of all options; what a verb does not offer stays zero. */
struct options {
    const char *backend, *class, *image, *policy, *user, *workdir, *name, *hostname, *config, *kind,
        *cell, *if_match, *kernel, *packages, *suite, *mirror, *package, *from, *file, *spares;
    uint64_t memory, cpu_millis, pids, disk, io_read, io_write, timeout, idle, grace, lines, count;
    struct strlist env, mounts;
    int interactive, tty, rm, detach, timings, json, readonly, help, all, force, follow, check,
        stream, quiet, kill, aside;
};

struct verb {
    const char *name, *operands, *summary;
    const char *const *opts; /* names, NULL-terminated */
    int min, max;            /* operands; max < 0 = any number */
    int command; /* the operands end with a command: options stop at the first operand … */
    int hidden;
    int raw; /* gets argc and argv unparsed */
    int (*run)(const struct options *o, int argc, char **argv);
    int (*run_raw)(int argc, char **argv);
};

const struct opt *opt_find(const struct verb *v, const char *name, size_t len);
/* i-th option of the verb, NULL at the end. Every verb also has --help. */
const struct opt *opt_at(const struct verb *v, size_t i);
/* argv[0] is the verb. Operands are moved together: *ret_n of them from ret_operands (into argv).
 */
int args_parse(const struct verb *v, int argc, char **argv, struct options *ret, int *ret_n,
               char ***ret_operands, struct cella_error *err);
void options_fini(struct options *o);
void verb_help(const struct verb *v, FILE *to);
/* One line for each option: "--name<TAB>-x<TAB>ARG<TAB>help", "-" where there is none. */
void verb_options(const struct verb *v, FILE *to);
/* The entry of `names` (stride bytes apart) nearest to `word`, or NULL when none is near. */
const char *nearest(const char *word, size_t len, const char *(*at)(const void *ctx, size_t i),
                    const void *ctx);

#endif
