/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * warden - private to core/cell: the one cell this process owns, and what its files offer each
 * other. Threads: one. Everything hangs off one struct warden; callbacks get it as ctx.
 */
#ifndef CELLA_WARDEN_H
#define CELLA_WARDEN_H

#include "audit.h"
#include "config.h"
#include "denials.h"
#include "image.h"
#include "link.h"
#include "loop.h"
#include "nspair.h"
#include "plugin.h"
#include "snapshot.h"
#include "store.h"

#define WARDEN_LOG_MAX (1u << 20)
#define CELL_LOG_MAX (16u << 20) /* output of a detached main command that is kept */
#define CELL_MOUNTS_MAX 64
#define HELLO_TIMEOUT_NS 30000000000ull
#define GATE_RESTARTS_MAX 3u /* a minute */

/* W_SPARE: prepared to become a copy of another cell (spare.c) */
enum warden_state { W_NEW, W_CREATED, W_STARTING, W_RUNNING, W_PAUSED, W_ENDED, W_SPARE };

struct client;
struct peer;
struct machine;

/* The create request: borrowed strings point into `root`. */
struct request {
    json_t *root; /* owned */
    const char *name, *class, *backend, *image, *kernel, *policy, *policy_file, *user, *workdir,
        *hostname, *snapshot,    /* directory: the cell is a copy */
        *spare_of;               /* id: it will be one of that cell */
    struct config_limits limits; /* merged: request over class over built-in */
    int readonly, detach;
    int lease;                             /* the cell goes with the connection that asks for it */
    int start;                             /* and is started at once: one answer for both */
    json_t *env, *argv, *mounts, *options; /* borrowed, may be NULL */
};

struct sink_slot {
    struct plugin *plugin;
    struct option_set *options;
};

/* The host table as one plugin gets it, so that what runs later in its name can be named. */
struct plugin_host {
    struct cella_host table;
    struct warden *warden;
    struct plugin **plugin; /* NULL: sinks, deciders, probes; they get no callbacks */
};

/* A policy's text and what it says of itself; all strings owned. */
struct policy_text {
    char *name; /* built-in, of the config, or a file */
    char *text;
    int64_t revision; /* 0 = it has none */
    char phase[64];   /* "" = nameless */
    char sha256[65];  /* of text */
};

struct warden {
    struct loop *loop;
    void *enforcer_ready; /* what the enforcer has begun; goes into its attach */
    struct plugin_host plain, backend_host, enforcer_host;
    struct host_call *host_calls; /* watches and timers of plugins */
    struct config *config_given;  /* as the client read it */
    struct config *config;
    const struct config_class *class;
    struct request req;
    struct config_limits made; /* as the cell was made; req.limits may have been changed since */
    enum warden_state state;
    size_t arrows_done;

    struct cell_dir dir;
    int dir_held;
    uint32_t slot;
    int slot_fd, userns_fd, netns_fd, uplink_fd, agent_fd;
    struct nspair_making making; /* the namespaces of the cell, before its slot is known */
    int log_fd;                  /* warden.log */
    size_t log_bytes;
    unsigned log_told; /* plugin.log events so far */
    int log_telling;
    json_t *cell; /* cell.json */

    struct plugin *backend_plugin, *enforcer_plugin;
    struct option_set *backend_options, *enforcer_options;
    struct probe_result probe;
    struct backend backend;
    struct enforcer enforcer;
    struct cella_attached attached;
    uint32_t link_kind; /* enum cella_link_kind */
    struct cella_started started;
    int enforcer_on;
    unsigned gate_restarts;
    uint64_t gate_restarted[GATE_RESTARTS_MAX]; /* the last ones, monotonic */
    struct policy_text policy;
    struct reach *reach;                  /* a measurement under way */
    uint64_t generation, generation_last; /* in force; highest the enforcer has seen */
    char policy_trouble[512];             /* why the last change is not in force; "" = it is */

    int trust_on;                   /* the cell trusts the enforcer's authority */
    unsigned char trust_digest[32]; /* of that */
    struct denials denials;
    char shown_source[700], trust_source[720], keystore_source[720],
        anchor_source[720]; /* host paths of what trust.c mounts */

    struct sink_slot *sinks;
    size_t n_sinks;
    struct secret_slot *secrets; /* secrets.c */
    size_t n_secrets;
    int secrets_used, secrets_timer;
    struct audit *audit;
    int audit_failed, audit_closed;
    unsigned commands_ended;
    struct { /* an OPEN that came before the cell ran; stream 0 = none */
        uint64_t peer;
        uint32_t stream;
        struct buf fields;
    } held;
    struct image image;
    int image_held;

    struct link *link;
    struct snapshot copy;      /* take.c; manifest NULL: the cell is no copy */
    uint64_t copy_generation;  /* 1 in a cell that is none, larger in each child */
    struct machine *machine;   /* guest.c; NULL: the backend boots no guest */
    struct {                   /* spare.c */
        unsigned keep;         /* how many wait for the next fork of this cell */
        struct client *parent; /* of a spare that waits: it ends with this connection */
        json_t *prepared;      /* with which request it was prepared (owned) */
        char config[65];       /* and under which configuration */
    } spare;
    struct peer *peers;
    uint64_t peer_serial;
    int listen_fd;
    struct pending {
        uint64_t peer;
        uint32_t call;
    } waiters[32], starter;
    size_t n_waiters;
    int start_error;   /* why a start failed at once: -errno */
    uint64_t steps_to; /* the peer that wants to be told of steps; 0 = none */

    int wall_timer, idle_timer, poll_timer, hello_timer, stop_timer;
    uint64_t active_ns;   /* last time something passed between a client and the agent */
    uint32_t limits_told; /* CELLA_LIMIT_HIT_* already in the audit */

    int main_fd; /* log of the detached main command */
    size_t main_bytes;
    struct link_stream *main_stream;

    int stopping;      /* a graceful stop is under way */
    int leased;        /* some client's connection holds the cell */
    const char *ended; /* static word; NULL = not ended */
    char ended_message[512];
    int end_status, end_signal, remove_at_end, keep_at_end;
    json_t *summary;
};

/* request.c */
int request_parse(json_t *args, struct request *ret, struct cella_error *err);
int request_limits(struct request *req, const struct config_class *class, struct cella_error *err);
/* What `given` says, over *l; refuses what a running cell keeps. */
int limits_change(const json_t *given, struct config_limits *l, struct cella_error *err);
void request_fini(struct request *req);
/* The image of the request, else of the class, else "host". */
const char *request_image(const struct warden *w);
/* The version of the request's kernel, else of the class, else NULL: the default. */
const char *request_kernel(const struct warden *w);

/* catalog.c - finding plugins by kind and name */
int catalog_find(const struct config *c, uint16_t kind, const char *name, struct plugin **ret,
                 struct cella_error *err);
/* The first of the kind that the config lists; -ENOENT (err untouched) for none. */
int catalog_configured(const struct config *c, uint16_t kind, struct plugin **ret,
                       struct cella_error *err);
/* Every plugin of the kind, configured ones first. ret: array of owned plugins. A plugin that does
   not load is passed to `broken` (may be NULL) and left out. */
int catalog_all(const struct config *c, uint16_t kind, struct plugin ***ret, size_t *ret_n,
                void (*broken)(void *ctx, const char *path, const struct cella_error *err),
                void *ctx);
/* Config object and place of a plugin's options. */
const struct config_plugin *catalog_config(const struct config *c, const struct plugin *p);
int catalog_options(const struct config *c, const struct plugin *p, const json_t *request,
                    struct option_set **ret, struct cella_error *err);

/* select.c */
int select_backend(struct warden *w, struct cella_error *err);

/* arrows.c - from request to created cell, each arrow with its undo */
int arrows_run(struct warden *w, struct cella_error *err);
/* A spare becomes a cell. On failure nothing of it is left. */
int arrows_become(struct warden *w, struct cella_error *err);
#define ARROWS_AUDIT 5 /* up to and with "audit": what the end of a cell still needs */
void arrows_undo(struct warden *w, size_t until);

/* reach.c */
/* ms: the time it may take; 0: the usual. */
int reach_begin(struct warden *w, const struct pending *from, uint64_t ms, struct cella_error *err);
/* The cell ends: one that is under way has no result, and who asked for it is told. */
void reach_drop(struct warden *w);
/* 1: what the summary of an earlier measurement was bound to is not what is there now. */
int reach_stale(const struct warden *w, const json_t *summary);

/* policy.c */
int policy_find(struct warden *w, struct cella_error *err);
/* Is what is asked for "none" or "deny": nothing at all? */
int policy_is(const struct warden *w, const char *name); /* the one asked for has this name */
int policy_closed(const struct warden *w);
/* Under the ceiling of the cell's class. */
struct cella_policy policy_struct(const struct warden *w, const struct policy_text *p,
                                  uint64_t generation);
void policy_text_fini(struct policy_text *p);
int policy_record(struct warden *w, struct cella_error *err);
/* A spare was attached with a policy that lets nothing pass. The policy of now: found, in force. */
int policy_late(struct warden *w, struct cella_error *err);
int policy_apply_late(struct warden *w, struct cella_error *err);
/* The calls of that name. *ret: new reference. */
int policy_change(struct warden *w, json_t *args, json_t **ret, struct cella_error *err);
int policy_phase(struct warden *w, json_t *args, json_t **ret, struct cella_error *err);

/* The same text and phase under the next generation. */
int policy_again(struct warden *w, struct cella_error *err);

/* gate.c */
int gate_watch(struct warden *w, struct cella_error *err);
/* calls.c: what create answers; limits as inspect shows them. */
json_t *created_json(struct warden *w);
json_t *limits_json(const struct config_limits *l);
/* streams.c: opens what was held until the cell runs. */
void relay_held(struct warden *w);
/* control.c: for who asked (each one wakes the client, and most do not look): since `at`, of now_ns(), this is done. */
void warden_step(struct warden *w, const char *name, uint64_t at);
/* control.c: NULL = gone. */
struct peer *peer_find(struct warden *w, uint64_t serial);
void gate_unwatch(struct warden *w);

/* secrets.c */
int secrets_load(struct warden *w, struct cella_error *err);
void secrets_undo(struct warden *w);
/* As host->secret of <cella/host.h>. */
int64_t secret_value(struct warden *w, const char *name, const char *purpose, char *buf,
                     uint64_t cap, struct cella_error *err);

/* shown.c */
#define SHOWN_DIR "shown" /* in the cell's directory */
#define SHOWN_MOUNTS_MAX 15u
/* In a cell that runs: for commands that start from now on. */
int shown_trust(struct warden *w, const struct cella_span *ca, struct cella_error *err);
/* Adds at most SHOWN_MOUNTS_MAX mounts, whose strings are the warden's. */
int shown_mounts(struct warden *w, struct cella_mount *mounts, uint32_t *n,
                 struct cella_error *err);

/* create.c */
int create_cell(struct warden *w, struct cella_error *err);
int create_cell_record(struct warden *w, struct cella_error *err); /* built, and the rules hold */
void create_cell_undo(struct warden *w);
/* Of a spare: what its machine has been prepared for. */
int create_cell_late(struct warden *w, struct cella_error *err);

/* admit.c */
int admit_cell(struct warden *w, struct cella_error *err);

/* spare.c - machines that wait to become children of a cell */
#define SPARES_MAX 32u
/* The calls of these names: to a cell about its spares, from a spare to its cell, to a spare. */
int call_spares(struct peer *p, json_t *args, const struct pending *from, struct cella_error *err);
int call_spare(struct peer *p, json_t *args, const struct pending *from, struct cella_error *err);
int spare_become(struct warden *w, json_t *args, struct cella_error *err);
/* After arrows_run(): it waits. `kept`: as long as its parent lives, else as the client that asked for it. */
int spare_wait(struct warden *w, int kept, struct cella_error *err);
int spare_name(struct warden *w, struct cella_error *err);
/* For inspect; NULL: nothing to show. */
json_t *spares_json(const struct warden *w);
/* The cell ends: so do its spares. The second waits for it. */
void spares_end(struct warden *w);
void spares_gone(struct warden *w);

/* host.c - the host table of this process, sinks, audit consequences */
void host_init(struct warden *w);
void host_calls_drop(struct warden *w, const struct plugin_host *h);
int sinks_load(const struct config *c, struct sink_slot **ret_slots, size_t *ret_n,
               struct audit_sink **ret_sinks, struct cella_error *err);

/* run.c - start, pause, the detached main command */
int cell_start(struct warden *w, struct cella_error *err);
/* The stream to the agent, when it is there. Takes fd. */
int cell_link(struct warden *w, int own_fd, struct cella_error *err);
int cell_pause(struct warden *w, int on, struct cella_error *err);
int main_start(struct warden *w, struct cella_error *err);

/* update.c */
/* The call of that name; `from` is answered now or when the guest has been told. */
int cell_update(struct warden *w, json_t *args, const struct pending *from,
                struct cella_error *err);
/* The cell ends: who waits for its guest to be told hears that. */
void update_drop(struct warden *w);
/* After backend_start(): what was changed in the parent. */
int copy_limits(struct warden *w, struct cella_error *err);

/* take.c - snapshots of this cell, and a cell that is made of one. */
int cell_snapshot(struct warden *w, json_t *args, json_t **ret, struct cella_error *err);
int copy_open(struct warden *w, struct cella_error *err);
void copy_undo(struct warden *w);
/* 1 when it has one. */
int copy_parent(const struct warden *w, struct audit_parent *ret);
int copy_fits_backend(struct warden *w, struct cella_error *err);
int copy_fits_image(struct warden *w, struct cella_error *err);
/* In the place of backend_create(). */
int copy_backend(struct warden *w, const struct cella_spec *spec, struct cella_error *err);
/* The same for a spare, whose machine is there. */
int copy_load(struct warden *w, struct cella_error *err);
/* The create request of a spare of this cell, or why there can be none. */
int copy_recipe(const struct warden *w, json_t **ret, struct cella_error *err);
int copy_phase(struct warden *w, struct cella_error *err);

/* guest.c - a cell that is a machine. The first three are the ways of run.c and create.c; where w->machine is NULL
   they are not called. */
/* Before backend_create: takes what shown.c would mount, and what else BOOT tells. Sets w->machine. */
int machine_prepare(struct warden *w, const char *hostname, const struct cella_mount *shown,
                    uint32_t n_shown, const struct cella_mount *users, uint32_t n_users,
                    struct cella_error *err);
/* After backend_start: the agent's link follows by itself. */
int machine_start(struct warden *w, struct cella_error *err);
void machine_free(struct warden *w);
/* Asks for usage and does not wait / waits a moment. */
void machine_poll(struct warden *w);
void machine_refresh(struct warden *w);
/* What the backend does not know of the inside. */
void machine_merge(const struct warden *w, struct cella_stats *ret);
/* Files of /run/cella have changed; or denials have come. */
int machine_shown(struct warden *w);
void machine_denials(struct warden *w);
void machine_pause(struct warden *w, int on);
/* Around a snapshot; they wait. A machine that does not freeze goes on as if not asked. */
int machine_freeze(struct warden *w, struct cella_error *err);
int machine_thaw(struct warden *w, struct cella_error *err);
/* Before cell_start(): the backend's instance is a copy. It gets an identity of its own with this generation
   instead of a boot, and the cell runs only when it has confirmed. */
void machine_is_copy(struct warden *w, uint64_t generation);

/* end.c */
/* Ends the cell; idempotent, the first reason stays. `fmt` may be NULL. */
void cell_end(struct warden *w, const char *reason, const char *fmt, ...) CELLA_PRINTF(3, 4);
void cell_stop(struct warden *w, int kill, uint32_t timeout_ms);
json_t *stats_json(const struct cella_stats *s);
json_t *egress_json(struct warden *w);
/* Samples the backend and puts a newly hit limit into the audit. */
int limits_sample(struct warden *w, struct cella_stats *ret);

/* limits.c */
void limits_arm(struct warden *w);
void limits_disarm(struct warden *w);
void limits_activity(struct warden *w);

/* control.c */
int control_listen(struct warden *w, struct cella_error *err);
int peer_add(struct warden *w, int own_fd);
void peer_reply_ok(struct warden *w, const struct pending *to, json_t *own_result);
void peer_reply_error(struct warden *w, const struct pending *to, const struct cella_error *err);
void peers_flush_and_stop(struct warden *w);
/* Does a client hold the cell, so that it goes when the client goes? */
int peers_leased(const struct warden *w);

/* streams.c - between a client's streams and the agent's */
struct relay;
int relay_open(struct warden *w, struct peer *p, uint32_t stream, const uint8_t *payload,
               size_t len);
int relay_frame(struct warden *w, struct peer *p, const struct cella_frame *f,
                const uint8_t *payload);
void relay_drop_peer(struct warden *w, struct peer *p);
int peer_send(struct peer *p, const struct cella_frame *f, const void *payload);
struct relay **peer_relays(struct peer *p);

/* exec.c - the EXEC request: defaults of the cell merged in, audit text */
int exec_merge(struct warden *w, const uint8_t *fields, size_t len, struct buf *ret,
               struct cella_error *err);
int exec_from_request(struct warden *w, struct buf *ret);

/* Audit, with the fail-closed consequence applied: 0 or -errno (then the cell is being stopped). */
#define warden_log(w, level, topic, ...)                                                           \
    (w)->plain.table.log((w)->plain.table.ctx, (level), (topic), __VA_ARGS__)
#define warden_audit(w, err, ...) warden_audited((w), audit_emit((w)->audit, (err), __VA_ARGS__))
int warden_audited(struct warden *w, int r);
int warden_save(struct warden *w);

#endif
