/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * main - one verb, one status. Everything a verb reports as a failure of cella itself is one line
 * on stderr and status 125; what a verb returns otherwise is the status of the command it ran.
 */
#include <fcntl.h>
#include <malloc.h>

#include "cli.h"

struct errbuf cli_errbuf;

/* A program started with 0, 1 or 2 closed must not get a socket there. */
static void standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

static int unknown_verb(const char *name)
{
    const char *near = verb_nearest(name);

    if (near)
        cli_say("unknown verb \"%s\" (did you mean \"%s\"?)", name, near);
    else
        cli_say("unknown verb \"%s\"; \"cella help\" lists the verbs", name);
    return CLI_FAILED;
}

static int verb_go(const struct verb *v, int argc, char **argv, struct options *o)
{
    char **operands;
    int n, r;

    if (v->run_raw)
        return v->run_raw(argc, argv);
    r = args_parse(v, argc, argv, o, &n, &operands, cli_err);
    if (r < 0) {
        fail_wrap(cli_err, "%s", v->name);
        return r;
    }
    if (o->help) {
        verb_help(v, stdout);
        return 0;
    }
    return v->run(o, n, operands);
}

int main(int argc, char **argv)
{
    struct options o = {.backend = NULL};
    const struct verb *v;
    int r;

    /* Buffers of a frame and more come from fresh pages: what is not used of them is then never cleared, nor touched. */
    mallopt(M_MMAP_THRESHOLD, 32 * 1024);
    proc_title_init(argc, argv);
    standard_descriptors();
    errbuf_init(&cli_errbuf);
    if (argc > 2 && !strcmp(argv[1], "--config")) { /* before the verb, as well as after it */
        o.config = argv[2];
        argv += 2;
        argc -= 2;
    }
    if (argc < 2) {
        verb_help_topic(&o, 0, NULL);
        return CLI_FAILED;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
        return verb_help_topic(&o, 0, NULL);
    if (!strcmp(argv[1], "--version"))
        return verb_version(&o, 0, NULL);
    v = verb_find(argv[1]);
    if (!v)
        return unknown_verb(argv[1]);
    r = verb_go(v, argc - 1, argv + 1, &o);
    options_fini(&o);
    if (r < 0) {
        cli_say("%s", cli_errbuf.text);
        r = CLI_FAILED;
    }
    if (fflush(stdout) != 0 && r == 0) {
        cli_say("writing the output: %s", strerror(errno));
        r = CLI_FAILED;
    }
    return r;
}
