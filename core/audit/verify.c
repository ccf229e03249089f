/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * verify - the verdict on an audit file: good, or the first line that does not fit and why.
 *
 * A line fits when it follows the line before it: number one higher, "prev" its hash. Records that
 * a crash or a dropping sink took are explained by the line after the gap, which names the last
 * line this copy has; no other gap is accepted. When a hash does not match, the line after tells
 * which of the two was changed. The end is compared with the signed head and with the writer's
 * state, which are read before the file, so that a chain being written verifies. Threads: no state.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>

#include "chain.h"

struct verdict {
    struct audit_verify_result *ret;
    struct scanner *scanner;
    int dirfd; /* or -1 */
    char name[CHAIN_NAME_MAX + 1];
    char key[HASH_HEX]; /* "" until known */
    struct head head;   /* seq 0: none */
    int has_head;
    struct chain state; /* as it was before the file was read */
    int has_state;
    struct scanned prev, cur, next;
    int more; /* of scanner_next() for `next` */
    char next_why[128];
    int has_close;
};

static int bad(struct verdict *v, uint64_t line, const char *fmt, ...) CELLA_PRINTF(3, 4);
static int bad(struct verdict *v, uint64_t line, const char *fmt, ...)
{
    va_list ap;

    v->ret->first_bad = line ? line : 1;
    va_start(ap, fmt);
    vsnprintf(v->ret->why, sizeof(v->ret->why), fmt, ap);
    va_end(ap);
    return 1;
}

static int same(const char *a, const char *b)
{
    return !strcmp(a, b);
}

/* Is the current line as it was written, by what comes after it? */
static int cur_is_intact(const struct verdict *v)
{
    if (v->more == 1)
        return same(v->next.prev, v->cur.hash) || same(v->next.last, v->cur.hash);
    if (v->has_head && v->head.seq == v->cur.seq)
        return same(v->head.hash, v->cur.hash);
    if (v->has_state && v->state.known_seq == v->cur.seq)
        return same(v->state.known, v->cur.hash);
    return 0;
}

/* Does the current line say that records lie between, directly after the line before it? */
static int tells_gap(const struct verdict *v)
{
    return (same(v->cur.kind, "chain.resume") || same(v->cur.kind, "audit.dropped")) &&
           v->cur.seq > v->prev.seq && v->cur.last_seq == v->prev.seq;
}

/* The current line does not follow the one before it: which one is to blame, and for what? */
static int blame(struct verdict *v)
{
    uint64_t line = v->ret->lines, expected = v->prev.seq + 1;

    if (same(v->cur.hash, v->prev.hash))
        return bad(v, line, "line %" PRIu64 " is a copy of the line before it", line);
    if (v->cur.seq == v->prev.seq)
        return bad(v, line, "line %" PRIu64 " repeats sequence number %" PRIu64, line, v->cur.seq);
    if (v->cur.seq < expected)
        return bad(v, line,
                   "line %" PRIu64 " is out of order: sequence number %" PRIu64 " after %" PRIu64,
                   line, v->cur.seq, v->prev.seq);
    if (v->cur.seq > expected && tells_gap(v) && cur_is_intact(v))
        return bad(v, line - 1,
                   "line %" PRIu64 " was changed: line %" PRIu64 " carries another hash of it",
                   line - 1, line);
    if (v->cur.seq > expected && same(v->cur.prev, v->prev.hash))
        return bad(v, line,
                   "line %" PRIu64 " was changed: its sequence number is %" PRIu64
                   ", expected %" PRIu64,
                   line, v->cur.seq, expected);
    if (v->cur.seq > expected && v->more == 1 && v->next.seq == expected)
        return bad(v, line,
                   "lines %" PRIu64 " and %" PRIu64 " are out of order: sequence numbers %" PRIu64
                   ", %" PRIu64,
                   line, line + 1, v->cur.seq, v->next.seq);
    if (v->cur.seq > expected)
        return bad(v, line, "records %" PRIu64 " to %" PRIu64 " are missing before line %" PRIu64,
                   expected, v->cur.seq - 1, line);
    if (line > 1 && cur_is_intact(v))
        return bad(v, line - 1,
                   "line %" PRIu64 " was changed: line %" PRIu64 " carries another hash of it",
                   line - 1, line);
    return bad(v, line,
               "line %" PRIu64 " was changed: it does not carry the hash of the line before it",
               line);
}

static int check_signature(struct verdict *v)
{
    uint64_t line = v->ret->lines;
    struct head h = {.seq = v->cur.head_seq, .closed = v->cur.closed, .lost = v->cur.lost};

    if (!v->key[0])
        return 0; /* a copy without its first line and without the key: nothing to compare with */
    memcpy(h.chain, v->cur.chain, sizeof(h.chain));
    memcpy(h.hash, v->cur.head, sizeof(h.hash));
    if (h.seq != v->cur.seq - 1 || !same(h.hash, v->cur.prev) ||
        h.closed != (uint32_t)same(v->cur.kind, "chain.close"))
        return bad(v, line, "line %" PRIu64 " (%s) signs something other than the line before it",
                   line, v->cur.kind);
    if (!head_signed_by(v->key, &h, v->cur.sig))
        return bad(v, line, "line %" PRIu64 " (%s) has a wrong signature", line, v->cur.kind);
    return 0;
}

static int check_first(struct verdict *v)
{
    if (!same(v->cur.kind, "chain.open") && !same(v->cur.kind, "audit.dropped") &&
        !same(v->cur.kind, "chain.resume"))
        return bad(v, 1,
                   "line 1 is %s; a chain begins with chain.open: earlier records are missing",
                   v->cur.kind);
    if (v->dirfd >= 0 && v->cur.key[0] && !same(v->cur.key, v->key))
        return bad(v, 1, "line 1 names another signing key than this host's");
    if (v->dirfd < 0)
        memcpy(v->key, v->cur.key, HASH_HEX);
    return 0;
}

/* Compares with what the head and the state say about this sequence number. */
static int check_known(struct verdict *v)
{
    uint64_t line = v->ret->lines;

    if (v->has_head && v->head.seq == v->cur.seq && !same(v->head.hash, v->cur.hash))
        return bad(v, line,
                   "line %" PRIu64 " was changed: the signed head carries another hash of it",
                   line);
    if (v->has_state && v->state.known_seq == v->cur.seq && !same(v->state.known, v->cur.hash))
        return bad(v, line,
                   "line %" PRIu64 " was changed: its writer's state carries another hash of it",
                   line);
    return 0;
}

static int check_line(struct verdict *v)
{
    uint64_t line = v->ret->lines;
    int follows = v->cur.seq == v->prev.seq + 1 && same(v->cur.prev, v->prev.hash), r = 0;

    if (!same(v->cur.chain, v->name))
        return bad(v, line, "line %" PRIu64 " belongs to chain %s, not %s", line, v->cur.chain,
                   v->name);
    if (!follows && !(tells_gap(v) && same(v->cur.last, v->prev.hash)))
        return blame(v);
    if (v->has_close && !(same(v->cur.kind, "chain.resume") && v->cur.last_seq + 1 == v->prev.seq))
        return bad(v, line, "line %" PRIu64 " comes after chain.close", line);
    v->has_close = same(v->cur.kind, "chain.close");
    if (line == 1)
        r = check_first(v);
    if (r == 0 && (v->has_close || same(v->cur.kind, "chain.head")))
        r = check_signature(v);
    return r;
}

/* Every line with one line of foresight. 1 bad, 0 good, -errno. */
static int check_lines(struct verdict *v)
{
    char why[128];
    int r;

    v->more = scanner_next(v->scanner, &v->next, v->next_why);
    while (v->more != 0) {
        v->ret->lines++;
        memcpy(why, v->next_why, sizeof(why));
        v->cur = v->next;
        if (v->more == -EBADMSG)
            return bad(v, v->ret->lines, "line %" PRIu64 " %s", v->ret->lines, why);
        if (v->more < 0)
            return v->more;
        v->more = scanner_next(v->scanner, &v->next, v->next_why);
        r = check_line(v);
        if (r == 0)
            r = check_known(v);
        if (r != 0)
            return r;
        v->prev = v->cur;
    }
    return 0;
}

/* ------------------------------------------------------------------- the end */

static int check_end(struct verdict *v)
{
    uint64_t line = v->ret->lines, last = v->prev.seq;
    struct chain after;

    if (!v->has_head && !v->has_state)
        return bad(v, line + 1, "there is no signed head of chain %s in the audit directory",
                   v->name);
    if (v->has_head && v->head.seq > last)
        return bad(v, line + 1,
                   "records %" PRIu64 " to %" PRIu64
                   " are missing at the end: the signed head names %" PRIu64,
                   last + 1, v->head.seq, v->head.seq);
    if (v->has_head && v->head.closed && v->head.seq < last)
        return bad(v, line, "line %" PRIu64 " comes after the chain was closed", line);
    if (v->has_head && v->head.closed && !v->has_close && !v->head.lost)
        return bad(v, line + 1,
                   "chain.close is missing: the signed head says the chain was closed");
    if (v->has_state && v->state.known_seq > last)
        return bad(v, line + 1,
                   "records %" PRIu64 " to %" PRIu64
                   " are missing at the end: their writer stored them",
                   last + 1, v->state.known_seq);
    chain_init(&after, v->name);
    if (v->has_state && state_peek(v->dirfd, &after) == 0 && after.seq < last)
        return bad(v, line,
                   "line %" PRIu64 " was never written: its writer's state ends at record %" PRIu64,
                   line, after.seq);
    if (v->has_head && v->head.lost)
        snprintf(v->ret->why, sizeof(v->ret->why),
                 "%" PRIu64 " records at the end were dropped by their sink", v->head.lost);
    return 0;
}

static int read_known(struct verdict *v, struct cella_error *err)
{
    char sig[SIG_HEX];
    struct errbuf eb;
    int r = key_public_read(v->dirfd, v->key, err);

    if (r < 0 || !v->name[0])
        return r;
    chain_init(&v->state, v->name);
    v->has_state = state_peek(v->dirfd, &v->state) == 0 && v->state.seq > 0;
    r = head_read(v->dirfd, v->name, &v->head, sig, errbuf_init(&eb));
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return bad(v, 0, "signed head %s", eb.text);
    v->has_head = 1;
    if (!head_signed_by(v->key, &v->head, sig))
        return bad(v, 0, "the head in %s.head is not signed by this host's key", v->name);
    return 0;
}

/* "…/abc.jsonl": "abc"; "" when the name says nothing. */
static void chain_of_file(const char *file, char ret[CHAIN_NAME_MAX + 1])
{
    const char *base = strrchr(file, '/');
    size_t n;

    base = base ? base + 1 : file;
    n = strcspn(base, ".");
    ret[0] = 0;
    if (n <= CHAIN_NAME_MAX && same(base + n, ".jsonl")) {
        memcpy(ret, base, n);
        ret[n] = 0;
    }
    if (!chain_name_valid(ret))
        ret[0] = 0;
}

/* Of a file whose name says nothing, the first line says whose it is. */
static int chain_of_first_line(struct verdict *v, const char *file, struct cella_error *err)
{
    struct scanner *s = NULL;
    struct scanned first;
    char why[128];
    int r = scanner_open(file, &s, err);

    if (r < 0)
        return r;
    if (scanner_next(s, &first, why) == 1)
        memcpy(v->name, first.chain, sizeof(v->name));
    scanner_free(s);
    return 0;
}

static int verify(struct verdict *v, struct cella_error *err)
{
    int r = 0;

    if (v->dirfd >= 0)
        r = read_known(v, err);
    if (r == 0)
        r = check_lines(v);
    if (r == 0 && v->ret->lines == 0 && v->dirfd < 0)
        r = bad(v, 1, "the file is empty");
    if (r == 0 && v->dirfd >= 0)
        r = check_end(v);
    v->ret->closed = v->has_close;
    memcpy(v->ret->head, v->prev.hash, HASH_HEX);
    return r < 0 ? r : 0;
}

static void verdict_init(struct verdict *v, struct audit_verify_result *ret, const char *file)
{
    memset(v, 0, sizeof(*v));
    memset(ret, 0, sizeof(*ret));
    v->ret = ret;
    v->dirfd = -1;
    memset(v->prev.hash, '0', HASH_HEX - 1);
    chain_of_file(file, v->name);
}

int audit_verify(const char *dir, const char *file, struct audit_verify_result *ret,
                 struct cella_error *err)
{
    struct verdict *v = malloc(sizeof(*v));
    int r;

    if (!v)
        return fail(err, -ENOMEM, "out of memory");
    verdict_init(v, ret, file);
    r = sodium_init() < 0 ? fail(err, -EIO, "libsodium did not start") : 0;
    if (r == 0 && dir) {
        v->dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (v->dirfd < 0)
            r = fail(err, -errno, "cannot open the audit directory %s: %s", dir, strerror(errno));
    }
    if (r == 0 && !v->name[0])
        r = chain_of_first_line(v, file, err);
    if (r == 0)
        r = scanner_open(file, &v->scanner, err);
    if (r == 0)
        r = verify(v, err);
    if (r < 0 && v->scanner && v->more < 0)
        fail(err, r, "cannot read audit file %s: %s", file, strerror(-r));
    scanner_free(v->scanner);
    auto_close_(&v->dirfd);
    free(v);
    return r;
}

/* ------------------------------------------------------------ host's chain */

/* Hash of record `seq` in a cell's file. -ENOENT no such record; other -errno. */
static int record_hash(const char *file, uint64_t seq, char ret_hash[HASH_HEX],
                       struct cella_error *err)
{
    struct scanner *s = NULL;
    struct scanned line;
    char why[128];
    int r = scanner_open(file, &s, err);

    if (r < 0)
        return r;
    while ((r = scanner_next(s, &line, why)) == 1)
        if (line.seq == seq)
            break;
    scanner_free(s);
    if (r != 1)
        return fail(err, -ENOENT, "%s has no record %" PRIu64, file, seq);
    memcpy(ret_hash, line.hash, HASH_HEX);
    return 0;
}

static void check_link(const struct scanned *line, const char *cells_dir,
                       struct audit_verify_result *ret)
{
    char hash[HASH_HEX], file[4096];
    struct errbuf eb;

    if (line->cell_seq == 0 && chain_name_valid(line->cell))
        return; /* its sink dropped the beginning */
    if (!chain_name_valid(line->cell) || strlen(line->cell_head) != HASH_HEX - 1) {
        ret->first_bad = ret->lines;
        snprintf(ret->why, sizeof(ret->why), "%s names no cell", line->kind);
        return;
    }
    snprintf(file, sizeof(file), "%s/%s.jsonl", cells_dir, line->cell);
    if (record_hash(file, line->cell_seq, hash, errbuf_init(&eb)) < 0) {
        ret->first_bad = ret->lines;
        snprintf(ret->why, sizeof(ret->why), "cell %s: %.180s", line->cell, eb.text);
    } else if (!same(hash, line->cell_head)) {
        ret->first_bad = ret->lines;
        snprintf(ret->why, sizeof(ret->why),
                 "cell %s: record %" PRIu64 " is not the one the host's chain recorded (%s)",
                 line->cell, line->cell_seq, line->kind);
    }
}

int audit_verify_host_links(const char *host_file, const char *cells_dir,
                            struct audit_verify_result *ret, struct cella_error *err)
{
    struct scanner *s = NULL;
    struct scanned line;
    char why[128];
    int r = scanner_open(host_file, &s, err);

    memset(ret, 0, sizeof(*ret));
    if (r < 0)
        return r;
    while (!ret->first_bad && (r = scanner_next(s, &line, why)) != 0) {
        ret->lines++;
        if (r == -EBADMSG) {
            ret->first_bad = ret->lines;
            snprintf(ret->why, sizeof(ret->why), "line %" PRIu64 " %s", ret->lines, why);
        } else if (r < 0) {
            break;
        } else if (same(line.chain, "host") &&
                   (same(line.kind, "cell.open") || same(line.kind, "cell.close"))) {
            check_link(&line, cells_dir, ret);
        }
        memcpy(ret->head, line.hash, HASH_HEX);
    }
    scanner_free(s);
    return r < 0 && r != -EBADMSG
               ? fail(err, r, "cannot read audit file %s: %s", host_file, strerror(-r))
               : 0;
}
