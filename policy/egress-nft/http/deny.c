/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * deny - a refusal in words: to the cell (status, one header, one sentence) and to the warden (an event).
 *
 * Events have a budget; what exceeds it rides as `suppressed` on the next one. A path leaves the
 * process only as a hash; a query, a header or a secret never.
 */
#include <netinet/in.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "http.h"

#define EVENTS_BURST 256.0
#define EVENTS_RATE 64.0

static const struct {
    uint32_t reason;
    int status;
    const char *word, *help;
} answers[] = {
    {REASON_NO_RULE, 403, "no_rule",
     "No rule of this cell's policy allows requests to this host; ask the operator for one."},
    {REASON_DENY_RULE, 403, "deny_rule", "A rule of this cell's policy denies this host."},
    {REASON_METHOD_PATH, 403, "method_path",
     "This cell's policy allows this host, but not this method on this path."},
    {REASON_HOST_MISMATCH, 421, "host_mismatch",
     "The request names another host than the connection was opened for."},
    {REASON_CREDENTIAL_MISMATCH, 403, "credential_mismatch",
     "The credential of this rule cannot be used here: it goes over TLS only, and must be known to "
     "the "
     "broker."},
    {REASON_PLACEHOLDER_MISSING, 403, "placeholder_missing",
     "This host takes only the broker's credential; send the placeholder the policy names, not a "
     "key "
     "of your own."},
    {REASON_UPSTREAM, 502, "upstream_failed",
     "The server did not answer as it must: no connection, a certificate that does not hold, or a "
     "broken "
     "reply."},
    {REASON_LIMIT, 403, "limit", "A limit of this cell's network was reached."},
    {REASON_POLICY_CHANGED, 403, "policy_changed",
     "This cell's policy was changed and no longer allows this."},
    {REASON_BAD_REQUEST, 400, "bad_request",
     "The request can be read in more than one way; it was not forwarded."},
};

void deny_text(struct flow *f, uint32_t reason, struct denial *ret)
{
    size_t i, n = sizeof(answers) / sizeof(answers[0]);

    for (i = 0; i + 1 < n && answers[i].reason != reason; i++)
        ;
    ret->status = answers[i].status;
    ret->phrase = ret->status == 403   ? "Forbidden"
                  : ret->status == 421 ? "Misdirected Request"
                  : ret->status == 502 ? "Bad Gateway"
                                       : "Bad Request";
    snprintf(ret->header, sizeof(ret->header), "%s;gen=%llu", answers[i].word,
             (unsigned long long)f->e->table.head.generation);
    snprintf(ret->text, sizeof(ret->text), "cella: %s\n", answers[i].help);
}

static int budget(struct engine *e)
{
    uint64_t now = watch_now();

    e->tokens += (double)(now - e->tokens_at) / 1e9 * EVENTS_RATE;
    e->tokens_at = now;
    if (e->tokens > EVENTS_BURST)
        e->tokens = EVENTS_BURST;
    if (e->tokens < 1.0)
        return 0;
    e->tokens -= 1.0;
    return 1;
}

void deny_event(struct flow *f, uint32_t reason, const struct policy_rule *rule,
                const struct judged *j)
{
    struct engine *e = f->e;
    struct ctl_msg m = {.type = CTL_DENY,
                        .reason = reason,
                        .proto = IPPROTO_TCP,
                        .dst = f->dst,
                        .port = f->port,
                        .count = 1,
                        .gen = e->table.head.generation,
                        .probe = f->measured != 0};
    unsigned char sum[SHA256_DIGEST_LENGTH];
    size_t i, n;

    if (!budget(e)) {
        e->suppressed++;
        return;
    }
    m.suppressed = e->suppressed;
    snprintf(m.name, sizeof(m.name), "%s", f->name);
    snprintf(m.rule, sizeof(m.rule), "%s", rule ? rule->id : "");
    if (j && j->path) {
        snprintf(m.method, sizeof(m.method), "%s", j->method);
        n = strcspn(j->path, "?");
        SHA256((const unsigned char *)j->path, n, sum);
        for (i = 0; i < 8; i++)
            snprintf(m.path_hash + 2 * i, 3, "%02x", sum[i]);
    }
    if (engine_tell(e, &m) == 0)
        e->suppressed = 0;
    else
        e->suppressed = m.suppressed + 1;
}
