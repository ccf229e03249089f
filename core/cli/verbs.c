/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* verbs - the table of verbs: what each is called, which options it has, what runs it. */
#include "cli.h"

static const char *const run_opts[] = {
    "backend", "class",   "image",    "policy",   "memory",    "cpus",        "pids",
    "disk",    "io-read", "io-write", "timeout",  "idle",      "env",         "mount",
    "user",    "workdir", "name",     "hostname", "read-only", "interactive", "tty",
    "rm",      "detach",  "timings",  "json",     "config",    "kernel",      NULL};
static const char *const create_opts[] = {
    "backend", "class",    "image",     "policy",  "memory", "cpus",   "pids",   "disk",
    "io-read", "io-write", "timeout",   "idle",    "env",    "mount",  "user",   "workdir",
    "name",    "hostname", "read-only", "timings", "json",   "config", "kernel", NULL};
static const char *const update_opts[] = {"memory",   "cpus", "pids",   "io-read",
                                          "io-write", "json", "config", NULL};
static const char *const exec_opts[] = {"env",  "user",    "workdir", "interactive", "tty",
                                        "json", "timeout", "config",  NULL};
static const char *const config_only[] = {"config", NULL};
static const char *const json_config[] = {"json", "config", NULL};
static const char *const ps_opts[] = {"all", "json", "config", NULL};
static const char *const logs_opts[] = {"follow", "config", NULL};
static const char *const stats_opts[] = {"stream", "json", "config", NULL};
static const char *const reach_opts[] = {"policy", "backend", "class",  "image", "timeout",
                                         "json",   "config",  "kernel", NULL};
static const char *const stop_opts[] = {"time", "kill", "json", "config", NULL};
static const char *const rm_opts[] = {"force", "json", "config", NULL};
static const char *const audit_opts[] = {"lines", "follow", "kind", "cell", "json", "config", NULL};
static const char *const policy_opts[] = {"if-match", "json", "config", NULL};
static const char *const restore_opts[] = {"class",    "policy",  "timeout", "idle",   "name",
                                           "hostname", "timings", "json",    "config", NULL};
static const char *const fork_opts[] = {"count", "spares", "name", "policy",
                                        "json",  "config", NULL};
static const char *const fork_child_opts[] = {"name", "policy", "config", NULL};
static const char *const fork_spares_opts[] = {"count", "config", NULL};
static const char *const image_opts[] = {"packages", "suite", "mirror", "package", "from", "file",
                                         "aside",    "check", "json",   "config",  NULL};
static const char *const gc_opts[] = {"check", "json", "config", NULL};
static const char *const json_only[] = {"json", NULL};

const struct verb verbs[] = {
    {.name = "run",
     .operands = "[--] COMMAND [ARG...]",
     .opts = run_opts,
     .min = 1,
     .max = -1,
     .command = 1,
     .summary = "Run a command in a new cell and remove the cell",
     .run = verb_run},
    {.name = "create",
     .operands = "[[--] COMMAND [ARG...]]",
     .opts = create_opts,
     .max = -1,
     .command = 1,
     .summary = "Make a cell without starting it",
     .run = verb_create},
    {.name = "start",
     .operands = "CELL",
     .opts = json_config,
     .min = 1,
     .max = 1,
     .summary = "Start a created cell",
     .run = verb_start},
    {.name = "exec",
     .operands = "CELL [--] COMMAND [ARG...]",
     .opts = exec_opts,
     .min = 2,
     .max = -1,
     .command = 2,
     .summary = "Run a command in a running cell",
     .run = verb_exec},
    {.name = "cp",
     .operands = "SRC DST",
     .opts = config_only,
     .min = 2,
     .max = 2,
     .summary = "Copy files into or out of a cell; one side is CELL:PATH, the other may be -",
     .run = verb_cp},
    {.name = "ps", .operands = "", .opts = ps_opts, .summary = "List cells", .run = verb_ps},
    {.name = "inspect",
     .operands = "CELL",
     .opts = config_only,
     .min = 1,
     .max = 1,
     .summary = "Print everything known about a cell, as JSON",
     .run = verb_inspect},
    {.name = "logs",
     .operands = "CELL",
     .opts = logs_opts,
     .min = 1,
     .max = 1,
     .summary = "Print the output of a detached command",
     .run = verb_logs},
    {.name = "stats",
     .operands = "CELL",
     .opts = stats_opts,
     .min = 1,
     .max = 1,
     .summary = "Print the resource use of a cell",
     .run = verb_stats},
    {.name = "reach",
     .operands = "[CELL]",
     .opts = reach_opts,
     .max = 1,
     .summary = "Measure from inside what a cell can reach, and prove what it cannot",
     .run = verb_reach},
    {.name = "update",
     .operands = "CELL...",
     .opts = update_opts,
     .min = 1,
     .max = -1,
     .summary = "Change the limits of running cells",
     .run = verb_update},
    {.name = "pause",
     .operands = "CELL",
     .opts = config_only,
     .min = 1,
     .max = 1,
     .summary = "Freeze a cell",
     .run = verb_pause},
    {.name = "resume",
     .operands = "CELL",
     .opts = config_only,
     .min = 1,
     .max = 1,
     .summary = "Thaw a cell",
     .run = verb_resume},
    {.name = "stop",
     .operands = "CELL...",
     .opts = stop_opts,
     .min = 1,
     .max = -1,
     .summary = "End what runs in a cell; its record stays",
     .run = verb_stop},
    {.name = "rm",
     .operands = "CELL...",
     .opts = rm_opts,
     .min = 1,
     .max = -1,
     .summary = "Remove cells",
     .run = verb_rm},
    {.name = "call",
     .operands = "CELL METHOD [JSON]",
     .opts = config_only,
     .min = 2,
     .max = 3,
     .summary = "Call a typed method of a cell's plugins, such as container.mounts",
     .run = verb_call},
    {.name = "plugin",
     .operands = "ls|inspect ...",
     .max = -1,
     .opts = json_only,
     .summary = "List and inspect plugins",
     .run_raw = cmd_plugin},
    {.name = "config",
     .operands = "check [FILE]",
     .opts = json_config,
     .min = 1,
     .max = 2,
     .summary = "Check a config file; status 1 when it is wrong",
     .run = verb_config},
    {.name = "policy",
     .operands = "check FILE|show CELL|set CELL FILE|phase CELL PHASE",
     .opts = policy_opts,
     .min = 2,
     .max = 3,
     .summary = "Check a policy; show, replace or move on the one in force in a cell",
     .run = verb_policy},
    {.name = "snapshot",
     .operands = "CELL [NAME]|ls|rm SNAPSHOT|verify SNAPSHOT",
     .opts = json_config,
     .min = 1,
     .max = 2,
     .summary = "Save a running cell as it is; list, check and remove such snapshots",
     .run = verb_snapshot},
    {.name = "restore",
     .operands = "SNAPSHOT",
     .opts = restore_opts,
     .min = 1,
     .max = 1,
     .summary = "Start a new cell from a snapshot",
     .run = verb_restore},
    {.name = "fork",
     .operands = "CELL",
     .opts = fork_opts,
     .min = 1,
     .max = 1,
     .summary = "Start copies of a running cell",
     .run = verb_fork},
    {.name = "image",
     .operands = "ls|build|import|rm|verify|disk|gc|kernel ...",
     .opts = image_opts,
     .min = 1,
     .max = 4,
     .summary = "Make, list, check and remove images and guest kernels",
     .run = verb_image},
    {.name = "audit",
     .operands = "tail|show|verify [CELL|FILE]",
     .opts = audit_opts,
     .min = 1,
     .max = 2,
     .summary = "Read and verify audit chains",
     .run = verb_audit},
    {.name = "doctor",
     .operands = "",
     .opts = json_config,
     .summary = "Say what this host can do: plugins, kernel, limits, programs",
     .run = verb_doctor},
    {.name = "gc",
     .operands = "",
     .opts = gc_opts,
     .summary = "Remove what dead wardens left",
     .run = verb_gc},
    {.name = "version",
     .operands = "",
     .opts = json_only,
     .summary = "Print versions",
     .run = verb_version},
    {.name = "help",
     .operands = "[VERB]",
     .max = 1,
     .summary = "Explain a verb",
     .run = verb_help_topic},
    {.name = "__child",
     .operands = "",
     .opts = fork_child_opts,
     .hidden = 1,
     .summary = "Make one child of a fork",
     .run = verb_fork_child},
    {.name = "__spares",
     .operands = "CELL",
     .opts = fork_spares_opts,
     .min = 1,
     .max = 1,
     .hidden = 1,
     .summary = "Prepare machines for the forks of a cell",
     .run = verb_fork_spares},
    {.name = "__options",
     .operands = "[VERB]",
     .max = 1,
     .hidden = 1,
     .summary = "Print the option table of a verb, or the verbs",
     .run = verb_options_of},
};
const size_t n_verbs = ARRAY_LEN(verbs);

const struct verb *verb_find(const char *name)
{
    size_t i;

    for (i = 0; i < n_verbs; i++)
        if (!strcmp(verbs[i].name, name) && (verbs[i].run || verbs[i].run_raw))
            return &verbs[i];
    return NULL;
}

static const char *name_at(const void *ctx, size_t i)
{
    (void)ctx;
    return i < n_verbs && !verbs[i].hidden ? verbs[i].name : NULL;
}

const char *verb_nearest(const char *name)
{
    return nearest(name, strlen(name), name_at, NULL);
}
