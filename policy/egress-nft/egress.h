/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * egress - the plugin's own parts; it lives in the warden, single-threaded.
 *
 * egress-nft.c  operations and their order     helper.c  starting the helper, talking to it
 * change.c      policy changes of a running cell  events.c  gate messages to audit events
 * account.c     accounting, alerts              intercept.c  the HTTP engine's start, secrets, tables
 * authority.c   its certificates                revive.c     starting a gate, first and again
 * ready.c       a helper that waits for its cell
 */
#ifndef CELLA_EGRESS_H
#define CELLA_EGRESS_H

#include <cella/enforcer.h>

#include "ctl.h"
#include "document.h"
#include "util.h"

#define RESOLVERS_LEN 128

/* One line of report(). */
struct line {
    char rule[64];
    char *destination; /* owned; name or address, with port */
    char proto[8];
    uint64_t allowed, denied, tx, rx;
    uint64_t first_ns, last_ns;            /* wall clock */
    uint64_t untold, untold_tx, untold_rx; /* no event yet */
    uint64_t told_ns;
    int question; /* DNS: no flow */
};

struct alert_window {
    uint64_t began_ns, sum;
    int said;
};

struct egress {
    const struct cella_host *host;
    char cell_id[CELLA_ID_LEN + 1];
    uint32_t slot, link;
    int ctl, gate_ns, uplink, pidfd;
    int ledger, broken, exits; /* memory file; eventfd: the engine died; epoll of that and pidfd */
    char resolvers[RESOLVERS_LEN]; /* of the option, as the gate gets them */
    pid_t pid;
    int watched;
    int pending;            /* attach has begun; attach_wait ends it */
    int flushed;            /* CTL_FLUSHED came, as it was asked for */
    int last;               /* it was asked to end every flow */
    struct ctl_msg replied; /* last CTL_PUBLISHED */
    struct document document, ceiling;
    int has_ceiling;
    size_t phase;
    struct policy_table table; /* what the gate has */
    struct line *lines;
    size_t n_lines, cap_lines, n_denied;
    struct alert_window alerts[DOCUMENT_ALERTS_MAX]; /* of document.alerts */
    struct {
        int on, done, expired, lost; /* lost: with a gate that died */
        uint32_t twin_lo, twin_hi;
        uint64_t until, next; /* monotonic ns; where the gate goes on telling */
        uint64_t asked;       /* the number of the last question to the gate */
        struct ctl_seen *seen;
        size_t n_seen;
    } reach;
    struct {
        int ctl, roots; /* -1: no engine; no further authorities */
        int key;        /* the CA's, in a memory file for the next engine; never read here */
        pid_t pid;
        int watched, any_name, died;
        uint32_t flushed;
        struct ctl_msg replied;
        char *pem; /* the CA's certificate */
        size_t pem_len;
        char **names; /* what the CA may speak for; none: anything */
        size_t n_names;
    } http;
};

/* ---- helper.c ---- */
/* argv[0] is one of our programs. ns: cell or gate namespace, uplink, ledger; -1 = absent. *ret_ctl is the other end of FD_CTL. */
int helper_spawn(const struct cella_host *host, char *const argv[],
                 const struct policy_table *table, const int ns[3], pid_t *ret_pid, int *ret_ctl,
                 struct cella_error *err);
/* Next message before the deadline (ns, monotonic). fds as recv_fds. -ETIMEDOUT, -EPIPE. */
int ctl_wait(int ctl, uint64_t deadline, struct ctl_msg *ret, int *fds, int *nfds);
/* Runs a helper that ends by itself; its complaint becomes err. */
int helper_run(const struct cella_host *host, char *const argv[], const struct policy_table *table,
               const int ns[3], struct cella_error *err);
/* "table" as a memfd. */
int table_memfd(const struct policy_table *t);
/* Turns a CTL_ERROR into err; returns its code. */
int helper_failed(const struct ctl_msg *m, struct cella_error *err);

/* Where it lies; -ENOENT. */
int helper_program(const struct cella_host *host, const char *name, char ret[4096],
                   struct cella_error *err);

/* ---- ready.c ---- */
int egress_ready(const struct cella_host *host, const struct cella_ready *in, void **ret,
                 struct cella_error *err);
void egress_unready(void *ready);
/* Takes `ready` in any case; then as after a gate_spawn() of "attach". */
int ready_take(struct egress *e, void *ready, int borrow_ns, struct cella_error *err);

/* ---- resolvers.c ---- */
/* "a.b.c.d:port,…" from the options or the host; "" when there is none. */
int resolvers_find(const struct cella_options *options, char ret[RESOLVERS_LEN],
                   struct cella_error *err);

/* ---- revive.c ---- */
int revive_init(struct egress *e, struct cella_error *err);
void revive_fini(struct egress *e);
/* The exit descriptor becomes readable although the gate lives. */
void revive_wanted(struct egress *e);
/* cella-gate-setup MODE with the table in force; borrow_ns: FD_CELL. `ready`: NULL, or what was begun; taken. */
int gate_spawn(struct egress *e, char *mode, void *ready, int borrow_ns, struct cella_error *err);
int gate_wait_up(struct egress *e, uint64_t deadline, struct cella_error *err);
void gate_reap(struct egress *e);
int egress_restart(void *self, struct cella_attached *ret, struct cella_error *err);

/* ---- egress-nft.c ---- */
void egress_describe(const struct egress *e, int own_tap, struct cella_attached *ret);

/* ---- change.c ---- */
/* Puts *t in force, taking its contents; the gate resets what it no longer allows. */
int table_change(struct egress *e, struct policy_table *t, uint64_t *ret_killed,
                 struct cella_error *err);
void table_adopt(struct egress *e, struct policy_table *t);

/* ---- intercept.c ---- */
int intercept_options(struct egress *e, const struct cella_options *o, struct cella_error *err);
/* Does any phase look inside TLS or HTTP? */
int intercept_wanted(const struct document *d);
/* Before a document comes into force: an engine if a rule needs one, names its CA can speak for, secrets. */
int intercept_ready(struct egress *e, const struct document *d, const struct policy_table *t,
                    struct cella_error *err);
/* Adds to *ret_killed. On failure the engine is down. */
int intercept_publish(struct egress *e, const struct policy_table *t, uint64_t *ret_killed);
void intercept_flush(struct egress *e, int final, uint64_t deadline);
void intercept_down(struct egress *e);
/* An engine in the place of one that is gone, with the same authority. */
int intercept_again(struct egress *e, struct cella_error *err);
void intercept_fini(struct egress *e);

int intercept_message(struct egress *e, const struct ctl_msg *m);

/* ---- authority.c ---- */
#define HOSTS_MAX 64u /* more at the start: the CA is not constrained */
/* The next rule of layer http, of any phase; NULL at the end. */
const struct policy_rule *intercept_rule(const struct document *d, size_t *phase, size_t *rule);
/* Before the first engine of the cell. */
int authority_first(struct egress *e, const struct document *d, struct cella_error *err);
/* Certificates for hosts that have none yet. */
int authority_cover(struct egress *e, const struct document *d, struct cella_error *err);
/* What the cell is to trust. -EBADMSG: it cannot be that. */
int authority_pem(struct egress *e, const char *pem, size_t len);

/* ---- reach.c, expect.c: what the cell can reach ---- */
int egress_expect(void *self, void *ctx, void (*row)(void *, const struct cella_reach_row *),
                  struct cella_error *err);
int egress_reach_begin(void *self, const struct cella_reach *reach, struct cella_error *err);
int egress_reach_tighten(void *self, struct cella_error *err);
int egress_reach_end(void *self, void *ctx, void (*seen)(void *, const struct cella_reach_seen *),
                     struct cella_error *err);
/* CTL_REACH_SEEN and CTL_REACH_DONE. -EBADMSG: the gate lies. */
int reach_message(struct egress *e, const struct ctl_msg *m);

/* ---- account.c ---- */
/* Counts a message. 1: it is an event of its own; 0: it is told later with others; -EIO: an alert could
   not be recorded. */
int account(struct egress *e, const struct ctl_msg *m, const char *dst, const char *proto);
/* Tells what was not told and forgets everything. */
void account_end(struct egress *e);

/* ---- events.c ---- */
struct fields {
    struct cella_field f[18];
    uint32_t n;
};
void put_str(struct fields *f, const char *name, const char *value); /* nothing for "" */
void put_int(struct fields *f, const char *name, uint64_t value);
int emit(struct egress *e, const char *kind, const struct fields *f);
const char *reason_word(uint32_t reason);
/* Checks and digests one message. -EBADMSG: the gate lies; -EIO: an event could not be recorded. */
int gate_message(struct egress *e, const struct ctl_msg *m);
void gate_down(struct egress *e);
/* The event that something of the broker has died. */
void gate_broken(struct egress *e);
/* fd_watch callback; data is the struct egress. */
void gate_readable(void *data, int fd, uint32_t ready);
/* Reads until `*done` is set or the deadline passes. 0, -ETIMEDOUT, -EPIPE. */
int gate_drain(struct egress *e, const int *done, uint64_t deadline);
void gate_kill(struct egress *e);

#endif
