/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* config, gc - the two verbs that check, with status 1 for "found something". */
#include "cli.h"

int verb_config(const struct options *o, int argc, char **argv)
{
    const char *file = argc > 1 ? argv[1] : o->config;
    struct config *c;

    if (strcmp(argv[0], "check"))
        return fail(cli_err, -EINVAL,
                    "config: \"%s\" is not known; expected: cella config check [FILE]", argv[0]);
    if (config_load(file, &c, cli_err) < 0) {
        if (o->json) {
            json_t *j = json_pack("{s:b, s:s}", "ok", 0, "error", cli_errbuf.text);
            print_json(j);
            json_decref(j);
        } else {
            cli_say("%s", cli_errbuf.text);
        }
        return 1;
    }
    if (o->json) {
        json_t *j = json_pack("{s:b, s:s?}", "ok", 1, "file", c->file);
        print_json(j);
        json_decref(j);
    } else {
        printf("%s: OK (%zu classes, %zu policies, %zu plugins)\n",
               c->file ? c->file : "built-in default", c->n_classes, c->n_policies, c->n_plugins);
    }
    config_free(c);
    return 0;
}

static void found(void *ctx, const char *what)
{
    json_t *list = ctx;

    if (list) {
        json_array_append_new(list, json_stringn_nocheck(what, strlen(what)));
        return;
    }
    print_safe(stdout, what, strlen(what));
    putchar('\n');
}

int verb_gc(const struct options *o, int argc, char **argv)
{
    json_t *list = o->json ? json_array() : NULL;
    struct config *c;
    int r = cli_config(o, &c);

    (void)argc;
    (void)argv;
    if (r == 0) {
        r = cell_gc(c, o->check, found, list, cli_err);
        config_free(c);
    }
    if (r >= 0 && list && print_json(list) < 0)
        r = -ENOMEM;
    json_decref(list);
    if (r < 0)
        return r;
    return o->check && r > 0 ? 1 : 0;
}
