/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * outcome - how a command or a cell ended, to an exit status and at most a few lines:
 * the command's status; 124 wall-clock limit; 125 cella itself; 126 and 127 as a shell; 128+n
 * signal n; 137 killed by a limit.
 */
#include <signal.h>

#include "cli.h"

uint32_t session_errno(const struct session_end *end)
{
    uint32_t number = 0;

    if (end->type == CELLA_FRAME_ERROR &&
        field_get_u32(end->payload, end->len, CELLA_TAG_ERRNO, &number) < 0)
        number = EIO;
    return number;
}

static int error_status(const struct session_end *end)
{
    uint32_t number = session_errno(end);
    const char *message = "";
    size_t len = 0;

    if (number == EPIPE)
        return -1; /* the cell ended; its summary says why */
    if (field_get_str(end->payload, end->len, CELLA_TAG_MESSAGE, &message, &len) < 0)
        len = 0;
    if (len)
        cli_say("%.*s", (int)len, message);
    else
        cli_say("the command could not be started: %s", strerror((int)number));
    if (number == ENOENT)
        return CLI_NOT_FOUND;
    return number == EACCES || number == ENOEXEC || number == EPERM || number == EISDIR ||
                   number == ENOTDIR
               ? CLI_NOT_EXECUTABLE
               : CLI_FAILED;
}

int session_status(const struct session_end *end, int *ret_signal)
{
    uint32_t status = 0, sig = 0, late = 0;

    *ret_signal = 0;
    if (end->type == CELLA_FRAME_ERROR)
        return error_status(end);
    if (end->type != CELLA_FRAME_EXIT)
        return CLI_FAILED;
    if (field_get_u32(end->payload, end->len, CELLA_TAG_TIMED_OUT, &late) == 0 && late)
        return CLI_TIMEOUT;
    if (field_get_u32(end->payload, end->len, CELLA_TAG_TERM_SIGNAL, &sig) == 0 && sig) {
        *ret_signal = (int)(sig & 127);
        return 128 + (int)(sig & 127);
    }
    if (field_get_u32(end->payload, end->len, CELLA_TAG_STATUS, &status) < 0)
        return CLI_FAILED;
    return (int)(status & 255);
}

static int limit_was_hit(const json_t *summary, const char *limit)
{
    const json_t *v;
    size_t i;

    json_array_foreach(json_object_get(summary, "limit_hit"), i,
                       v) if (json_is_string(v) && !strcmp(json_string_value(v), limit)) return 1;
    return 0;
}

/* " 64M" when the limit is known, "" otherwise. */
static void limit_text(uint64_t given, const json_t *created, const char *key, int size,
                       char out[40])
{
    uint64_t v = given ? given : (uint64_t)json_int(json_object_get(created, "limits"), key);
    char text[32];

    out[0] = 0;
    if (!v)
        return;
    if (size)
        human_size(v, text);
    else
        snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    snprintf(out, 40, " %s", text);
}

/* Limits that were met: one line each. Returns 1 when memory killed the command itself. */
static int say_limits(const struct options *o, const json_t *summary, const json_t *created,
                      int status)
{
    const json_t *usage = json_object_get(summary, "usage");
    int64_t kills = json_int(usage, "oom_kills"), refused = json_int(usage, "pids_refused");
    char text[40];
    int killed = 0;

    if (limit_was_hit(summary, "memory")) {
        killed = status == CLI_KILLED || !strcmp(json_str(summary, "ended"), "memory");
        limit_text(o->memory, created, "memory", 1, text);
        if (killed)
            cli_say("killed: memory limit%s reached (%lld %s killed)", text,
                    (long long)(kills ? kills : 1), kills > 1 ? "processes" : "process");
        else
            cli_say("limit hit: memory%s: %lld %s killed", text, (long long)(kills ? kills : 1),
                    kills > 1 ? "processes" : "process");
    }
    if (limit_was_hit(summary, "pids")) {
        limit_text(o->pids, created, "pids", 0, text);
        cli_say("limit hit: pids%s: %lld forks refused", text, (long long)refused);
    }
    if (limit_was_hit(summary, "disk")) {
        limit_text(o->disk, created, "disk", 1, text);
        cli_say("limit hit: disk%s: the writable layer is full", text);
    }
    return killed;
}

static int say_ended(const json_t *summary, const char *what, uint64_t limit)
{
    const char *message = json_str(summary, "message");
    char text[32];

    if (limit)
        human_time(limit, text);
    else
        text[0] = 0;
    if (*message)
        cli_say("killed: %s", message);
    else
        cli_say("killed: %s%s%s reached", what, limit ? " " : "", text);
    return 0;
}

int summary_status(const struct options *o, const json_t *summary, const json_t *created,
                   int status)
{
    const char *ended = json_str(summary, "ended"), *message = json_str(summary, "message");
    int killed = say_limits(o, summary, created, status);

    if (!strcmp(ended, "wall")) {
        say_ended(summary, "wall-clock limit", o->timeout);
        return CLI_TIMEOUT;
    }
    if (!strcmp(ended, "idle")) {
        say_ended(summary, "idle limit", o->idle);
        return CLI_KILLED;
    }
    if (!strcmp(ended, "memory"))
        return CLI_KILLED;
    if (!strcmp(ended, "gate") || !strcmp(ended, "audit") || !strcmp(ended, "backend") ||
        (!strcmp(ended, "agent") && status < 0)) {
        cli_say("the cell was ended: %s%s%s", ended, *message ? ": " : "", message);
        return CLI_FAILED;
    }
    if (status < 0) { /* stopped by somebody else while the command ran */
        cli_say("the cell was stopped%s%s", *message ? ": " : "", message);
        return CLI_KILLED;
    }
    if (status > 128 && status != CLI_KILLED && status != 128 + SIGPIPE && isatty(2))
        cli_say("killed by signal %d (%s)", status - 128, strsignal(status - 128));
    if (status == CLI_KILLED && !killed)
        cli_say("killed by signal 9");
    return status;
}
