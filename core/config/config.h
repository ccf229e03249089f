/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * config - the operator's file as typed data. Everything is checked here, before anything starts:
 * unknown keys, types, ranges, duplicates, missing files, names that refer to nothing. A message is
 * "file:line:column: /pointer: …". The only user of jansson's parser besides policy documents.
 */
#ifndef CELLA_CONFIG_H
#define CELLA_CONFIG_H

#include <cella/backend.h>

#include "json_at.h"

struct config_plugin {
    char *path; /* as written, or resolved: a bare file name is looked up in the plugin directory */
    char *pointer;   /* "/plugins/0", for later messages about its options */
    json_t *options; /* the "config" object (borrowed from the document); may be NULL */
};

struct config_policy {
    char *name;
    char *file;     /* absolute */
    char *document; /* its text */
};

struct config_limits {
    uint64_t memory, disk, cpu_millis, pids, io_read_bps, io_write_bps;
    uint64_t wall_ns, idle_ns;
};

struct config_class {
    char *name, *pointer;
    uint32_t floor;  /* enum cella_strength */
    char **backends; /* in order of preference; NULL = every loaded one, strongest first */
    size_t n_backends;
    char *policy;   /* "none", "deny" or a policy's name */
    char *ceiling;  /* "deny" or a policy's name: no policy of the class opens more; NULL = none */
    char *image;    /* default image, "host" */
    char *kernel;   /* version of the guest kernel; NULL = the default of cella image kernel ls */
    char **secrets; /* the only ones that policies of the class may use */
    size_t n_secrets;
    int secrets_listed; /* 0: every one that a provider has */
    /* defaults filled in; 0 = no limit, possible for wall, idle and io only */
    struct config_limits limits;
    int best_effort;   /* accept limits that this host cannot enforce */
    int on_gate_death; /* 0 stop the cell (default), 1 start the gate again */
};

enum { CONFIG_GATE_STOP, CONFIG_GATE_RESTART }; /* on_gate_death */
enum config_overflow { OVERFLOW_BLOCK = 1000, OVERFLOW_DROP = 2000, OVERFLOW_FAIL_CLOSED = 3000 };

struct config_sink {
    char *name, *pointer;
    json_t *options;               /* the entry's other members; NULL for the built-in default */
    enum config_overflow overflow; /* default fail-closed */
};

struct config_secret {
    char *name, *pointer;
    json_t *options; /* the entry's other members */
};

struct config_mount_rule {
    char *path; /* absolute host path that may be mounted although it is in the refused set */
    int writable;
};

struct config {
    struct json_at doc; /* root NULL for the built-in default */
    char *file;         /* NULL for the built-in default */
    char *state_dir;    /* default /var/lib/cella */
    /* network namespace the gates dial from: path such as /run/netns/x; NULL = host's */
    char *uplink;
    struct config_plugin *plugins;
    size_t n_plugins; /* in-tree ones are always known by bare name */
    struct config_policy *policies;
    size_t n_policies;
    struct config_class *classes;
    size_t n_classes;
    struct config_sink *sinks;
    size_t n_sinks; /* default: audit-jsonl in <state_dir>/audit */
    char **deciders;
    size_t n_deciders; /* names of decider plugins, in order */
    struct config_secret *secrets;
    size_t n_secrets; /* secret providers, asked in order */
    struct config_mount_rule *mounts;
    size_t n_mounts;
};

/* file NULL: CELLA_CONFIG, else /etc/cella/cella.json when it exists, else the built-in default. */
int config_load(const char *file, struct config **ret, struct cella_error *err);
void config_free(struct config *c);
const struct config_class *config_class_find(const struct config *c, const char *name);
const struct config_policy *config_policy_find(const struct config *c, const char *name);

struct option_set; /* values of one option table, owning its strings */
/* Parses `object` (may be NULL = all defaults) by the table. `pointer` locates it in `doc` (doc may be NULL). */
int option_set_parse(const struct cella_option *table, uint32_t n, uint32_t stride,
                     const struct json_at *doc, const char *pointer, const json_t *object,
                     struct option_set **ret, struct cella_error *err);
const struct cella_options *option_set_get(const struct option_set *s);
void option_set_free(struct option_set *s);

const char *strength_name(uint32_t strength); /* "process", …; "unknown" */
int strength_parse(const char *s, uint32_t *ret);

#endif
