/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* version, help, __options - what this program is and takes. */
#include <jansson.h>

#include "cli.h"

int verb_version(const struct options *o, int argc, char **argv)
{
    json_t *j;
    int r;

    (void)argc;
    (void)argv;
    if (!o->json) {
        printf("cella %s, plugin ABI %d.%d\n", CELLA_VERSION, CELLA_ABI_MAJOR, CELLA_ABI_MINOR);
        return 0;
    }
    j = json_pack("{s:s, s:{s:i, s:i}, s:i}", "version", CELLA_VERSION, "abi", "major",
                  CELLA_ABI_MAJOR, "minor", CELLA_ABI_MINOR, "link", (int)CELLA_LINK_VERSION);
    r = print_json(j);
    json_decref(j);
    return r;
}

static int print_overview(void)
{
    size_t i;

    puts("cella VERB [OPTIONS] ...\n\nRuns code that nobody trusts, in cells.\n");
    for (i = 0; i < n_verbs; i++)
        if (!verbs[i].hidden && verb_find(verbs[i].name))
            printf("  %-8s %s\n", verbs[i].name, verbs[i].summary);
    puts("\n\"cella help VERB\" explains a verb; cella(1) has the exit statuses.");
    return 0;
}

int verb_help_topic(const struct options *o, int argc, char **argv)
{
    const struct verb *v;

    (void)o;
    if (argc == 0)
        return print_overview();
    v = verb_find(argv[0]);
    if (!v)
        return fail(cli_err, -ENOENT, "help: there is no verb \"%s\"", argv[0]);
    verb_help(v, stdout);
    return 0;
}

int verb_options_of(const struct options *o, int argc, char **argv)
{
    const struct verb *v;
    size_t i;

    (void)o;
    if (argc == 0) {
        for (i = 0; i < n_verbs; i++)
            if (!verbs[i].hidden && verb_find(verbs[i].name))
                puts(verbs[i].name);
        return 0;
    }
    v = verb_find(argv[0]);
    if (!v)
        return fail(cli_err, -ENOENT, "there is no verb \"%s\"", argv[0]);
    verb_options(v, stdout);
    return 0;
}
