/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * chain - the parts of core/audit; internal.
 *
 *   line.c     one event to one canonical line
 *   key.c      the key pair and signed heads
 *   state.c    <chain>.state and <chain>.head: what a later process needs to go on, what a verifier
 * compares fanout.c   one line to every sink, overflow rules audit.c    the public calls: which
 * lines a chain begins, goes on and ends with scan.c     lines of a file, bounded and parsed
 *   verify.c   the verdict on a file
 */
#ifndef CELLA_AUDIT_CHAIN_H
#define CELLA_AUDIT_CHAIN_H

#include <stdarg.h>

#include "audit.h"
#include "util.h"

#define HASH_LEN 32
#define HASH_HEX 65
#define SIG_HEX 129
#define CHAIN_NAME_MAX 63
#define SINKS_MAX 16
#define LINE_MAX_BYTES 65536u /* of one line without its newline */
#define SIGN_EVERY 64u        /* lines between two signed heads */

/* ---- line.c ---- */
struct line_head {
    const char *chain;
    uint64_t seq;
    uint64_t ts_ns;   /* wall clock */
    const char *prev; /* hex */
    const char *kind;
};
int chain_name_valid(const char *s); /* [a-z0-9]+ */
int kind_valid(const char *s);       /* [a-z0-9]+(.[a-z0-9_]+)* */
/* Appends the line to `out`. Never fails but for memory: what cannot be shown is dropped and
 * counted in the line. */
int line_render(struct buf *out, const struct line_head *head, const struct cella_field *fields,
                uint32_t n, uint32_t stride);
void line_hash(const char *line, size_t len, char ret_hex[HASH_HEX]);
/* Collects (spec, value) pairs as of audit_emit(); returns the number of fields. */
uint32_t fields_collect(va_list ap, struct cella_field *fields, uint32_t max);
struct cella_field field_str(const char *name, const char *value);
struct cella_field field_int(const char *name, int64_t value);

/* ---- key.c ---- */
struct head {
    char chain[CHAIN_NAME_MAX + 1];
    uint64_t seq;
    char hash[HASH_HEX];
    uint32_t closed; /* nothing follows */
    uint64_t lost;   /* records dropped since the last audit.dropped, chain.close among them */
};
struct key;
int key_open(int dirfd, struct key **ret,
             struct cella_error *err); /* makes the pair when there is none */
void key_free(struct key *k);
const char *key_public_hex(const struct key *k);
void key_sign(const struct key *k, const struct head *h, char ret_hex[SIG_HEX]);
int key_public_read(int dirfd, char ret_hex[HASH_HEX], struct cella_error *err);
/* 1 when `sig` is the signature of `h` under the public key. */
int head_signed_by(const char *public_hex, const struct head *h, const char *sig);
int head_write(int dirfd, const struct key *k, const struct head *h);
/* -ENOENT when there is none. */
int head_read(int dirfd, const char *chain, struct head *ret, char ret_sig[SIG_HEX],
              struct cella_error *err);

/* ---- state.c ---- */
struct sink_state {
    uint64_t dropped;  /* records this sink did not get since its last line */
    uint64_t last_seq; /* last line this sink stored; 0 = none */
    char last[HASH_HEX];
    int code; /* -errno of its last failure in this process */
};
struct chain {
    char name[CHAIN_NAME_MAX + 1];
    uint64_t seq;        /* of the line the next one follows; 0 = none */
    char hash[HASH_HEX]; /* its hash; zeros */
    uint64_t known_seq;  /* of the last line known to be stored; less than seq only after a crash */
    char known[HASH_HEX];
    uint32_t closed;   /* chain.close is stored */
    int failed;        /* -errno of a fail-closed sink: events are refused */
    uint64_t head_seq; /* of the last signed head this process wrote */
    int fd;            /* of the .state file, or -1 */
    struct sink_state sinks[SINKS_MAX];
};
void chain_init(struct chain *c, const char *name);
/* Opens (with `create`, makes) and locks <chain>.state, and reads it when it holds something.
 * -ENOENT, -EBUSY. */
int state_open(int dirfd, struct chain *c, int create, int wait, struct cella_error *err);
/* Saves what is known, and that line `seq` with `hash` may have been stored. */
int state_save(const struct chain *c, uint64_t seq, const char *hash);
int state_save_sink(const struct chain *c, size_t i);
void state_close(struct chain *c);
void state_remove(int dirfd, const struct chain *c);
/* Reads without locking, for the verifier. */
int state_peek(int dirfd, struct chain *c);

/* ---- fanout.c ---- */
struct fan {
    const struct cella_host *host;
    struct audit_sink sinks[SINKS_MAX];
    void *selves[SINKS_MAX];
    size_t n;
    int giving; /* a record is on its way to the sinks: its number and the hash before it are taken */
};
int fan_open(struct fan *f, const struct cella_host *host, const struct audit_sink *sinks, size_t n,
             struct cella_error *err);
void fan_close(struct fan *f);
int fan_flush(struct fan *f, struct cella_error *err);
/* Tells every sink that dropped records and works again how many, with a record in the chain. 0 or
 * -errno. */
int fan_report(struct fan *f, struct chain *c, struct cella_error *err);
/* Writes one record, after fan_report(). 1 stored by at least one sink; 0 dropped by all, the chain
   is unchanged; -errno a fail-closed sink failed (others may have stored it), or the state could
   not be saved. */
int fan_record(struct fan *f, struct chain *c, const char *kind, const struct cella_field *fields,
               uint32_t n, uint32_t stride, struct cella_error *err);
/* Counts an event that was refused before any sink saw it. */
void fan_refused(const struct fan *f, struct chain *c);
/* Records lost and not yet reported in the chain. */
uint64_t fan_lost(const struct fan *f, const struct chain *c);

/* ---- scan.c ---- */
struct scanned {
    char hash[HASH_HEX];
    char chain[CHAIN_NAME_MAX + 1], kind[64], prev[HASH_HEX];
    uint64_t seq;
    /* of the kinds that have them, else 0 and "" */
    uint64_t last_seq, head_seq, lost, cell_seq;
    uint32_t closed;
    char last[HASH_HEX], head[HASH_HEX], key[HASH_HEX], cell_head[HASH_HEX];
    char sig[SIG_HEX], cell[CHAIN_NAME_MAX + 1];
};
struct scanner;
int scanner_open(const char *file, struct scanner **ret, struct cella_error *err);
void scanner_free(struct scanner *s);
/* 1 a line; 0 end of file; -EBADMSG a malformed line, `why` says how (*ret has its hash only);
 * other -errno. */
int scanner_next(struct scanner *s, struct scanned *ret, char why[128]);

#endif
