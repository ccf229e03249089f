/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * plugin - loading, inspecting and calling plugins.
 *
 * loader.c   path checks, ELF note before dlopen, copy of the operation table
 * dispatch.c one wrapper per operation: every default for NULL, every check of what comes back
 * lifecycle.c {state, operation, allowed, next} table
 * watchdog.c per-call deadline and crash report that name plugin and operation, for the process
 *            that hosts plugins
 * method.c   typed methods
 */
#ifndef CELLA_CORE_PLUGIN_H
#define CELLA_CORE_PLUGIN_H

#include <jansson.h>

#include <cella/backend.h>
#include <cella/decider.h>
#include <cella/enforcer.h>
#include <cella/secret.h>
#include <cella/sink.h>

#include "util.h"

struct plugin {
    char *path;
    uint16_t kind;
    uint32_t note_minor, note_min_host_minor;
    uint32_t table_size; /* as the plugin states it */
    const char *name, *version, *summary;
    const struct cella_option *options;
    uint32_t n_options, option_stride;
    const struct cella_method *methods;
    uint32_t n_methods, method_stride;
    union { /* zero-extended copies */
        struct cella_backend_ops backend;
        struct cella_enforcer_ops enforcer;
        struct cella_decider_ops decider;
        struct cella_sink_ops sink;
        struct cella_secret_ops secret;
    } ops;
    struct method_set *method_set; /* parsed signatures */
    void *dl;
    /* what the host has learned about it; NULL is allowed (a table made by a test) */
    struct plugin_runtime *rt;
};

/* Reads the note only; nothing of the object runs. `path` absolute. */
int plugin_note_read(int fd, struct cella_note *ret_note, struct cella_error *err);
int plugin_load(const char *path, struct plugin **ret, struct cella_error *err);
void plugin_unload(struct plugin *p);
/* From now on nothing is unmapped: the end of the process does that, and nobody waits for it. */
void plugin_process_ends(void);
/* Directory of in-tree plugins: CELLA_PLUGIN_DIR (only for a checkout or tests), else beside the running program,
   else the installed one. */
const char *plugin_dir(void);
/* JSON description for `cella plugin inspect`: kind, versions, sizes, operations present|defaulted,
   options, methods, capabilities when `probe`. New reference. Runs no plugin code but the entry and the probe. */
json_t *plugin_describe(struct plugin *p, const struct cella_host *host, int probe);

/* ---- watchdog: SIGALRM/SIGSEGV/… in the hosting process; writes one line to report_fd, then _exit(125) ---- */
int watchdog_init(int report_fd);
void watchdog_enter(const struct plugin *p, const char *op, uint64_t deadline_ns);
void watchdog_leave(void);

/* For a process that hosts plugins, after it has taken its own copies of what it needs: descriptor 0 becomes
   /dev/null, 1 and 2 a small buffer. What a plugin writes there is reported after the call, with plugin and
   operation, through the log of the host table the plugin was given. */
int plugin_stdio_guard(void);

/* ---- backend instance with its lifecycle state ---- */
enum backend_state {
    BACKEND_NONE,
    BACKEND_CREATED,
    BACKEND_RUNNING,
    BACKEND_PAUSED,
    BACKEND_STOPPED,
    BACKEND_PREPARED /* a copy's machine without its content */
};
struct backend {
    struct plugin *plugin;
    const struct cella_host *host;
    void *self;
    enum backend_state state;
};
struct capability {
    char name[48];
    uint32_t answer;
    char reason[256];
};
struct probe_result {
    struct cella_probe probe;
    struct capability caps[48];
    size_t n_caps;
};
/* `flags`: CELLA_PROBE_QUICK or 0. */
int backend_probe(struct plugin *p, const struct cella_host *host, uint32_t flags,
                  struct probe_result *ret, struct cella_error *err);
int backend_create(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                   struct backend *ret, struct cella_error *err);
int backend_start(struct backend *b, struct cella_started *ret, struct cella_error *err);
int backend_stop(struct backend *b, uint32_t how, uint64_t timeout_ns, struct cella_error *err);
/* Kills without waiting, where the backend can; backend_stop(KILL) follows and is what counts. */
void backend_stop_begin(struct backend *b);
int backend_connect(struct backend *b, uint32_t port, int *ret_fd, struct cella_error *err);
int backend_pause(struct backend *b, struct cella_error *err);
int backend_resume(struct backend *b, struct cella_error *err);
int backend_stats(struct backend *b, struct cella_stats *ret, struct cella_error *err);
int backend_resize(struct backend *b, const struct cella_limits *limits, struct cella_error *err);
/* Into an empty directory. The cell runs on whatever comes of it. `taken` may be called on the way, once: from then on
   the cell need not stand still. `brief`: it is used at once or never. */
int backend_snapshot(struct backend *b, int dirfd, int brief, void (*taken)(void *ctx), void *ctx,
                     struct cella_error *err);
/* As backend_create(), from such a directory: a copy in the state "created". */
int backend_restore(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                    int dirfd, struct backend *ret, struct cella_error *err);
/* The same in two steps: all but the content, in the state "prepared", and the content, once. A backend that cannot:
   -EOPNOTSUPP. What could not be loaded is stopped and destroyed. */
int backend_prepare(struct plugin *p, const struct cella_host *host, const struct cella_spec *spec,
                    struct backend *ret, struct cella_error *err);
int backend_load(struct backend *b, int dirfd, struct cella_error *err);
void backend_destroy(struct backend *b);
int backend_reap(struct plugin *p, const struct cella_host *host, const struct cella_reap *reap,
                 struct cella_error *err);

/* ---- enforcer instance ---- */
struct enforcer {
    struct plugin *plugin;
    void *self;
    int waiting;  /* attached early: only enforcer_wait and enforcer_detach are possible */
    int finished; /* only enforcer_report and enforcer_detach are */
};
int enforcer_probe(struct plugin *p, const struct cella_host *host, struct probe_result *ret,
                   struct cella_error *err);
int enforcer_check(struct plugin *p, const struct cella_policy *policy, struct cella_error *err);
/* Never fails: without a handle (*ret NULL) attach begins from nothing. The handle goes into attach or unready. */
void enforcer_ready(struct plugin *p, const struct cella_host *host,
                    const struct cella_ready *ready, void **ret);
void enforcer_unready(struct plugin *p, void *ready);
int enforcer_attach(struct plugin *p, const struct cella_host *host,
                    const struct cella_attach *attach, struct enforcer *ret,
                    struct cella_attached *ret_attached, struct cella_error *err);
/* After an attach with `early`: returns when the rules are in force. On failure: detach. */
int enforcer_wait(struct enforcer *e, struct cella_error *err);
/* After the exit descriptor became readable. On failure nothing passes; detach. */
int enforcer_restart(struct enforcer *e, struct cella_attached *ret, struct cella_error *err);
int enforcer_apply(struct enforcer *e, const struct cella_policy *policy, struct cella_applied *ret,
                   struct cella_error *err);
int enforcer_phase(struct enforcer *e, const char *phase, uint64_t generation,
                   struct cella_applied *ret, struct cella_error *err);
int enforcer_report(struct enforcer *e, void *ctx, void (*flow)(void *, const struct cella_flow *),
                    struct cella_error *err);
/* reach.c. Rows are checked copies: every string is set, printable, bounded. */
int enforcer_expect(struct enforcer *e, void *ctx,
                    void (*row)(void *ctx, const struct cella_reach_row *row),
                    struct cella_error *err);
int enforcer_reach_begin(struct enforcer *e, const struct cella_reach *reach,
                         struct cella_error *err);
int enforcer_reach_tighten(struct enforcer *e, struct cella_error *err);
int enforcer_reach_end(struct enforcer *e, void *ctx,
                       void (*seen)(void *ctx, const struct cella_reach_seen *seen),
                       struct cella_error *err);
/* Build id of the loaded object in hex, "" when it has none. `ret` holds at least 65 bytes. */
void plugin_build_id(const struct plugin *p, char ret[65]);
/* Nothing of the cell runs any more; only report and detach follow. A failure has been said as well as it could be. */
void enforcer_finish(struct enforcer *e);
void enforcer_detach(struct enforcer *e);
int enforcer_reap(struct plugin *p, const struct cella_host *host, const struct cella_reap *reap,
                  struct cella_error *err);

/* ---- deciders: the whole chain; fills one verdict. n == 0 gives ALLOW with rule "no-decider" ---- */
struct decider {
    struct plugin *plugin;
    void *self;
};
int decider_create(struct plugin *p, const struct cella_host *host,
                   const struct cella_options *options, struct decider *ret,
                   struct cella_error *err);
void decider_destroy(struct decider *d);
void deciders_decide(struct decider *chain, size_t n, const struct cella_request *request,
                     struct cella_verdict *ret_verdict, const char **ret_decider);

/* ---- sinks ---- */
int sink_open(const struct plugin *p, const struct cella_host *host,
              const struct cella_options *options, void **ret_self, struct cella_error *err);
int sink_event(const struct plugin *p, void *self, const struct cella_record *record,
               struct cella_error *err);
int sink_flush(const struct plugin *p, void *self, struct cella_error *err);
void sink_close(const struct plugin *p, void *self);

/* ---- secret providers ---- */
struct secret_provider {
    struct plugin *plugin;
    void *self;
};
int secret_create(struct plugin *p, const struct cella_host *host,
                  const struct cella_options *options, struct secret_provider *ret,
                  struct cella_error *err);
/* Length of the value in buf. Behind it, and everywhere on failure, buf is wiped. */
int64_t secret_get(struct secret_provider *s, const struct cella_secret_query *query, char *buf,
                   uint64_t cap, struct cella_error *err);
/* Borrowed; -1 = secrets never rotate. */
int secret_rotate_fd(struct secret_provider *s);
void secret_destroy(struct secret_provider *s);

/* ---- typed methods ---- */
int method_set_new(const struct plugin *p, struct method_set **ret, struct cella_error *err);
void method_set_free(struct method_set *m);
/* args: JSON object by parameter name. *ret_result: new reference. An argument error names it:
   "container.limit-memory: argument \"bytes\": …". */
int method_call(struct plugin *p, void *self, const char *method, const json_t *args,
                json_t **ret_result, struct cella_error *err);

#endif
