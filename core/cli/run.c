/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * run, create, start - a new cell. `run` holds a lease: when this process dies in whatever way, the
 * warden removes the cell. The call "wait" is sent before the command starts, so that its answer is
 * there also when a limit ends cell and warden in the middle of the session.
 */
#include <signal.h>
#include <sys/wait.h>

#include "cli.h"
#include "stages.h"

static void say_strength(const json_t *created)
{
    if (!isatty(2))
        return;
    cli_say("cell %s: strength %s (backend %s), image %s, policy %s", json_str(created, "name"),
            json_str(created, "strength"), json_str(created, "backend"), json_str(created, "image"),
            json_str(created, "policy"));
}

/* NEW_RUN: started, and the cell goes when this process goes, from the first moment on. */
enum new_kind { NEW_CREATED, NEW_STARTED, NEW_RUN };

/* The command goes with the request for its cell, and "wait" before it. */
static int send_command(struct client *cl, const struct buf *fields, uint32_t *ret_stream)
{
    json_t *command = json_pack("{s:b}", "command", 1);
    int r = client_call_begin(cl, "wait", command, cli_err);

    json_decref(command);
    return r < 0 ? r : client_open(cl, fields->ptr, fields->len, ret_stream, cli_err);
}

/* A spawned warden with its cell; NEW_RUN: with `fields` of its command, whose stream is *ret_stream. A refusal
   may ask for its own exit status: *ret_exit. */
static int cell_new(const struct options *o, int argc, char **argv, int detach, enum new_kind kind,
                    const struct buf *fields, uint32_t *ret_stream, struct config **ret_config,
                    struct client **ret, json_t **ret_created, struct stages *stages, int *ret_exit)
{
    json_t *request = request_build(o, argc, argv, detach);
    struct config *c = NULL;
    struct client *cl = NULL;
    int r = request ? cli_config(o, &c) : cli_err->code;

    *ret_exit = CLI_FAILED;
    json_object_set_new(request, "lease", json_boolean(kind == NEW_RUN));
    json_object_set_new(request, "start", json_boolean(kind != NEW_CREATED));
    stages_next(stages, "spawn");
    if (r == 0)
        r = client_spawn(c, &cl, cli_err);
    if (r == 0)
        r = client_call_send(cl, "create", request, stages->on, cli_err);
    if (r == 0 && kind == NEW_RUN)
        r = send_command(cl, fields, ret_stream);
    if (r == 0)
        r = client_call_wait(cl, ret_created, ret_exit, stages_listener(stages), stages, cli_err);
    json_decref(request);
    if (r < 0) {
        client_free(cl);
        config_free(c);
        return r;
    }
    *ret_config = c;
    *ret = cl;
    return 0;
}

static int print_cell(const struct options *o, const json_t *created)
{
    if (o->json)
        return print_json(created);
    print_safe(stdout, json_str(created, "name"), strlen(json_str(created, "name")));
    putchar('\n');
    return 0;
}

/* The record of a cell that ended by itself while we held the lease. */
static void drop_record(const struct config *c, const char *id)
{
    struct cell_info info;
    struct errbuf eb;

    if (!*id || store_find(c->state_dir, id, &info, errbuf_init(&eb)) < 0)
        return;
    if (!info.alive && !strcmp(info.state, "stopped"))
        cell_remove_stopped(c, &info, errbuf_init(&eb));
    cell_info_fini(&info);
}

struct run {
    const struct options *o;
    struct config *config;
    struct client *client;
    json_t *created, *summary;
    struct stages stages;
    struct session_end end;
    int session; /* result of client_session() */
};

static void run_command(struct run *run, uint32_t stream)
{
    const struct options *o = run->o;
    struct session s = {.stream = stream,
                        .in = o->interactive ? 0 : -1,
                        .out = 1,
                        .err = 2,
                        .tty = o->tty && o->interactive && isatty(0),
                        .forward_signals = 1};

    run->end.type = 0;
    run->session = client_session(run->client, &s, &run->end, cli_err);
}

/* The last word of the warden: the cell has ended, with its command or by itself, and is gone. */
static int run_summary(struct run *run)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    stages_next(&run->stages, "rm");
    if (client_call_end(run->client, &run->summary, err) < 0)
        return run->session < 0 && !run->end.type
                   ? run->session /* the session has said how the warden died */
                   : fail(cli_err, err->code, "%s", eb.text);
    return 0;
}

/* The cell was removed by our "rm" after the command had ended by itself: say that, and how. */
static void print_summary(const struct run *run, int status, int sig)
{
    json_t *line = json_object();
    auto_free char *text = NULL;

    json_object_update(line, run->summary);
    if (run->end.type == CELLA_FRAME_EXIT && !strcmp(json_str(line, "ended"), "stop")) {
        json_object_set_new(line, "ended", json_string("exit"));
        json_object_set_new(line, "status", json_integer(sig ? 0 : status));
        json_object_set_new(line, "signal", json_integer(sig));
    }
    json_object_set(line, "cell", run->created);
    text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text)
        fprintf(stderr, "%s\n", text);
    json_decref(line);
}

/* One line for a person: what it used, what it reached for, where the proof is. */
static void say_summary(const struct run *run)
{
    const json_t *usage = json_object_get(run->summary, "usage");
    const json_t *chain = json_object_get(run->summary, "chain"), *flow;
    int64_t allowed = 0, denied = 0;
    char memory[32], cpu[32];
    size_t i;

    if (!isatty(2))
        return;
    json_array_foreach(json_object_get(run->summary, "egress"), i, flow)
    {
        allowed += json_int(flow, "allowed");
        denied += json_int(flow, "denied");
    }
    human_size((uint64_t)json_int(usage, "memory_peak_bytes"), memory);
    human_time((uint64_t)(json_int(usage, "cpu_user_ns") + json_int(usage, "cpu_system_ns")), cpu);
    cli_say("cpu %s, memory peak %s; connections allowed %lld, denied %lld; chain head %.16s (%lld "
            "lines)",
            cpu, memory, (long long)allowed, (long long)denied, json_str(chain, "head"),
            (long long)json_int(chain, "seq"));
}

static int run_finish(struct run *run)
{
    int sig = 0, status = run->end.type ? session_status(&run->end, &sig) : -1, r;

    if (run->session == -EINTR) /* the warden removes the cell when we have gone, and when it can */
        return run->session;
    if (run->session == -EPIPE && run->end.type)
        status = 128 + SIGPIPE;
    r = run_summary(run);
    drop_record(run->config, json_str(run->created, "id"));
    stages_print(&run->stages);
    if (r < 0)
        return r;
    if (run->o->json)
        print_summary(run, status, sig);
    else
        say_summary(run);
    if (run->session < 0 && run->session != -EPIPE)
        return run->session;
    return summary_status(run->o, run->summary, run->created, status);
}

static int run_attached(struct run *run, uint32_t stream)
{
    stages_next(&run->stages, "exec");
    run_command(run, stream);
    return run_finish(run);
}

int verb_run(const struct options *o, int argc, char **argv)
{
    struct run run = {.o = o, .stages = {.on = o->timings}};
    auto_buf struct buf fields = BUF_INIT;
    uint32_t stream = 0;
    int r, status;

    if (o->detach && o->rm)
        return fail(cli_err, -EINVAL,
                    "run: --rm and --detach exclude each other; \"cella rm\" removes the cell");
    if (o->detach && (o->interactive || o->tty))
        return fail(cli_err, -EINVAL, "run: --detach excludes --interactive and --tty");
    r = o->detach ? 0 : exec_fields(o, argc, argv, 0, &fields);
    if (r < 0)
        return r;
    r = cell_new(o, argc, argv, o->detach, o->detach ? NEW_STARTED : NEW_RUN, &fields, &stream,
                 &run.config, &run.client, &run.created, &run.stages, &status);
    if (r < 0) {
        cli_say("%s", cli_errbuf.text);
        return status;
    }
    say_strength(run.created);
    if (o->detach) {
        stages_print(&run.stages);
        r = print_cell(o, run.created);
    } else {
        r = run_attached(&run, stream);
    }
    json_decref(run.created);
    json_decref(run.summary);
    client_free(run.client);
    config_free(run.config);
    return r;
}

int verb_create(const struct options *o, int argc, char **argv)
{
    struct stages stages = {.on = o->timings};
    struct config *c;
    struct client *cl;
    json_t *created = NULL;
    int r, status;

    r = cell_new(o, argc, argv, argc > 0, NEW_CREATED, NULL, NULL, &c, &cl, &created, &stages,
                 &status);
    if (r < 0) {
        cli_say("%s", cli_errbuf.text);
        return status;
    }
    say_strength(created);
    stages_print(&stages);
    r = print_cell(o, created);
    json_decref(created);
    client_free(cl);
    config_free(c);
    return r;
}

int verb_start(const struct options *o, int argc, char **argv)
{
    struct config *c;
    struct client *cl;
    json_t *result = NULL;
    int r = cli_connect(o, argv[0], &c, &cl);

    (void)argc;
    if (r < 0)
        return r;
    r = client_call(cl, "start", NULL, &result, NULL, NULL, NULL, cli_err);
    if (r == 0 && o->json)
        r = print_json(result);
    json_decref(result);
    client_free(cl);
    config_free(c);
    return r;
}
