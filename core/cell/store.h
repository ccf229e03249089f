/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * store - what cells exist on this host, as files below the state directory.
 *
 *   <state_dir>/cells/<id>/       0700, one per cell
 *     lock                        flocked by the warden for its whole life: free lock = dead warden
 *     cell.json                   struct cell_info, replaced atomically on every change
 *     control.sock                the warden's socket
 *     log                         output of a detached main command, bounded
 *     scratch/                    the backend's and the enforcer's
 *   <state_dir>/names/<name>      symbolic link to the id
 *   <state_dir>/slots/<n>         flocked while slot n is in use; holds the id
 *   <state_dir>/audit/            chains, heads, key pair (core/audit)
 *   <state_dir>/images/           unpacked images (core/image)
 */
#ifndef CELLA_STORE_H
#define CELLA_STORE_H

#include <jansson.h>

#include "util.h"

struct config;

#define CELLA_SLOTS 4096
#define CELLA_UID_BASE                                                                             \
    0x70000000u /* above the ranges systemd, useradd and container tools hand out */
#define CELLA_UID_COUNT 65536u

struct cell_info {
    char id[CELLA_ID_LEN + 1];
    char name[64];
    char state[16]; /* created running paused stopped; "dead" when the warden died */
    int alive;      /* a warden holds the lock */
    json_t *json; /* all of cell.json: id name state pid class backend strength image policy created
                     slot limits chain … (owned) */
};

/* Makes the directories. */
int store_init(const char *state_dir, struct cella_error *err);
int store_find(const char *state_dir, const char *name_or_id, struct cell_info *ret,
               struct cella_error *err);
/* Calls `each` for every cell; stops when it returns non-zero. */
int store_list(const char *state_dir, int (*each)(void *ctx, const struct cell_info *info),
               void *ctx, struct cella_error *err);
void cell_info_fini(struct cell_info *info);

/* ---- for the warden and gc ---- */
struct cell_dir {
    int dirfd;
    int lockfd;
    char id[CELLA_ID_LEN + 1];
    char path[512];
};
/* New directory, locked. -EEXIST when the name is taken (message names the owner). */
int store_create(const char *state_dir, const char *name, struct cell_dir *ret,
                 struct cella_error *err);
/* Gives a cell that has none a name. -EEXIST as above. */
int store_name(const char *state_dir, const struct cell_dir *d, const char *name,
               struct cella_error *err);
/* Locks the directory of a dead cell; -EBUSY when its warden lives. */
int store_adopt(const char *state_dir, const char *id, struct cell_dir *ret,
                struct cella_error *err);
int store_save(const struct cell_dir *d, const json_t *cell);
/* Removes name and directory, releases the lock. */
int store_remove(const char *state_dir, struct cell_dir *d, const char *name);
void cell_dir_close(struct cell_dir *d);
/* Takes the lowest free slot; *ret_fd holds the lock. */
int store_slot_take(const char *state_dir, const char *id, uint32_t *ret_slot, int *ret_fd,
                    struct cella_error *err);

/* Cleans up after dead wardens: backends' and enforcers' reap, audit chain closed, directory
   removed. With `dry_run` only reports. `found` gets one line per object. Returns the number found.
   (core/cell/gc.c) */
/* Removes what a cell leaves whose warden ended in order ("stopped"): record, log, name. Its audit
 * stays. */
int cell_remove_stopped(const struct config *c, const struct cell_info *info,
                        struct cella_error *err);
int cell_gc(const struct config *c, int dry_run, void (*found)(void *ctx, const char *what),
            void *ctx, struct cella_error *err);

#endif
