/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * state - where a chain stands, so that another process can go on with it.
 *
 * <dir>/<chain>.state has records of fixed size, each written by one pwrite(): record 0 is the
 * chain (last line known to be stored, and the line that is on its way to the sinks), record i + 1
 * is what sink i last stored while it drops. The file is flocked by the chain's writer. It is not
 * signed: it makes going on possible, the signed head makes a cut visible. After a process died
 * with a line on its way nobody knows whether it was stored; whoever goes on follows it, and says
 * in chain.resume what is known. The file is removed when the chain is closed. Threads: no state.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>

#include "chain.h"

#define RECORD 256

void chain_init(struct chain *c, const char *name)
{
    size_t i;

    memset(c, 0, sizeof(*c));
    c->fd = -1;
    snprintf(c->name, sizeof(c->name), "%s", name);
    memset(c->hash, '0', HASH_HEX - 1);
    memset(c->known, '0', HASH_HEX - 1);
    for (i = 0; i < SINKS_MAX; i++)
        memset(c->sinks[i].last, '0', HASH_HEX - 1);
}

static int record_write(int fd, size_t index, char text[RECORD])
{
    size_t n = strlen(text);
    ssize_t w;

    memset(text + n, ' ', RECORD - n);
    text[RECORD - 1] = '\n';
    do
        w = pwrite(fd, text, RECORD, (off_t)(index * RECORD));
    while (w < 0 && errno == EINTR);
    return w == RECORD ? 0 : w < 0 ? -errno : -ENOSPC;
}

int state_save(const struct chain *c, uint64_t seq, const char *hash)
{
    char text[RECORD];

    snprintf(text, sizeof(text), "cella-audit-state 1 %" PRIu64 " %s %" PRIu64 " %s %u",
             c->known_seq, c->known, seq, hash, c->closed);
    return record_write(c->fd, 0, text);
}

int state_save_sink(const struct chain *c, size_t i)
{
    const struct sink_state *s = &c->sinks[i];
    char text[RECORD];

    snprintf(text, sizeof(text), "sink %" PRIu64 " %" PRIu64 " %s", s->dropped, s->last_seq,
             s->last);
    return record_write(c->fd, i + 1, text);
}

static int hash_valid(const char *s)
{
    return strspn(s, "0123456789abcdef") == HASH_HEX - 1 && !s[HASH_HEX - 1];
}

static int state_parse(const char *text, size_t len, struct chain *c)
{
    struct chain got = *c;
    size_t i;

    if (len < RECORD ||
        sscanf(text, "cella-audit-state 1 %" SCNu64 " %64s %" SCNu64 " %64s %u", &got.known_seq,
               got.known, &got.seq, got.hash, &got.closed) != 5 ||
        !hash_valid(got.hash) || !hash_valid(got.known) || got.seq < got.known_seq)
        return -EINVAL;
    for (i = 0; i < SINKS_MAX; i++) {
        struct sink_state *s = &got.sinks[i];

        s->last_seq = got.known_seq;
        memcpy(s->last, got.known, HASH_HEX);
        if ((i + 2) * RECORD > len || text[(i + 1) * RECORD] != 's')
            continue;
        if (sscanf(text + (i + 1) * RECORD, "sink %" SCNu64 " %" SCNu64 " %64s", &s->dropped,
                   &s->last_seq, s->last) != 3 ||
            !hash_valid(s->last))
            return -EINVAL;
        if (!s->dropped) {
            s->last_seq = got.known_seq;
            memcpy(s->last, got.known, HASH_HEX);
        }
    }
    *c = got;
    return 0;
}

static int state_read(int fd, struct chain *c)
{
    char text[RECORD * (SINKS_MAX + 1) + 1];
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

    if (n <= 0)
        return n < 0 ? -errno : 0;
    text[n] = 0;
    return state_parse(text, (size_t)n, c);
}

static void state_name(const struct chain *c, char out[CHAIN_NAME_MAX + 8])
{
    snprintf(out, CHAIN_NAME_MAX + 8, "%s.state", c->name);
}

int state_open(int dirfd, struct chain *c, int create, int wait, struct cella_error *err)
{
    char name[CHAIN_NAME_MAX + 8];
    auto_close int fd = -1;
    int r;

    state_name(c, name);
    fd = openat(dirfd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
    if (fd < 0)
        return fail(err, -errno, "audit state %s: %s", name, strerror(errno));
    do
        r = flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0 ? -errno : 0;
    while (r == -EINTR);
    if (r == -EWOULDBLOCK)
        return fail(err, -EBUSY, "audit chain %s is being written by another process", c->name);
    if (r == 0)
        r = state_read(fd, c);
    if (r < 0)
        return fail(err, r, "audit state %s: %s", name, r == -EINVAL ? "malformed" : strerror(-r));
    c->fd = steal_fd(&fd);
    return 0;
}

int state_peek(int dirfd, struct chain *c)
{
    char name[CHAIN_NAME_MAX + 8];
    auto_close int fd = -1;

    state_name(c, name);
    fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : state_read(fd, c);
}

void state_remove(int dirfd, const struct chain *c)
{
    char name[CHAIN_NAME_MAX + 8];

    state_name(c, name);
    unlinkat(dirfd, name, 0);
}

void state_close(struct chain *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}
