/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* exec - a further command in a running cell. The cell outlives it, and us. */
#include <signal.h>

#include "cli.h"

/* The cell ended under the command: ask what the record says. */
static int cell_gone(const struct config *c, const struct options *o, const char *cell)
{
    struct cell_info info;
    int r = store_find(c->state_dir, cell, &info, cli_err);

    if (r < 0) {
        cli_say("the cell ended and was removed while the command ran");
        return CLI_FAILED;
    }
    if (json_is_object(json_object_get(info.json, "summary")))
        r = summary_status(o, json_object_get(info.json, "summary"), info.json, -1);
    else
        r = fail(cli_err, -EPIPE, "cell %s ended while the command ran", cell);
    cell_info_fini(&info);
    return r;
}

/* The warden's connection ended without a word about the command. One that removes its cell, or records how it ended,
   does so first: what is there now tells that from a warden that died. */
static int warden_gone(const struct config *c, const struct options *o, const char *cell)
{
    struct cell_info info;
    struct errbuf eb;
    int ended = 0, r = store_find(c->state_dir, cell, &info, errbuf_init(&eb));

    if (r == 0) {
        ended = json_is_object(json_object_get(info.json, "summary"));
        cell_info_fini(&info);
    }
    return ended || r == -ENOENT ? cell_gone(c, o, cell) : -EPIPE;
}

static int exec_status(struct client *cl, const struct config *c, const struct options *o,
                       const char *cell, const struct session_end *end)
{
    int sig, status = session_status(end, &sig);
    struct errbuf eb;
    char text[32];

    if (status < 0) {
        /* that the agent is gone is told at once; how the cell ended is recorded before this is answered */
        client_call(cl, "wait", NULL, NULL, NULL, NULL, NULL, errbuf_init(&eb));
        return cell_gone(c, o, cell);
    }
    if (status == CLI_TIMEOUT && end->type == CELLA_FRAME_EXIT && o->timeout) {
        human_time(o->timeout, text);
        cli_say("killed: wall-clock limit %s reached", text);
    } else if (sig == SIGKILL) {
        cli_say("killed by signal 9");
    }
    return status;
}

int verb_exec(const struct options *o, int argc, char **argv)
{
    auto_buf struct buf fields = BUF_INIT;
    struct session s = {.in = o->interactive ? 0 : -1, .out = 1, .err = 2, .forward_signals = 1};
    struct session_end end = {.type = 0};
    struct config *c;
    struct client *cl;
    int r = cli_connect(o, argv[0], &c, &cl);

    if (r < 0)
        return r;
    r = exec_fields(o, argc - 1, argv + 1, 1, &fields);
    if (r == 0) {
        s.fields = fields.ptr;
        s.fields_len = fields.len;
        s.tty = o->tty && o->interactive && isatty(0);
        r = client_session(cl, &s, &end, cli_err);
    }
    if (r == -EPIPE && end.type)
        r = 128 + SIGPIPE;
    else if (r == 0)
        r = exec_status(cl, c, o, argv[0], &end);
    else if (r == -EPIPE)
        r = warden_gone(c, o, argv[0]);
    client_free(cl);
    config_free(c);
    return r;
}
