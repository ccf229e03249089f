/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * decider - asks a chain of deciders and combines what they say. Everything that is not a clear
 * permission is a refusal: an error, a malformed verdict, a chain that only abstains.
 * (A decider that hangs or crashes ends its process; who waits for that process refuses.)
 * Threads: one chain from one thread at a time.
 */
#include "plugin_int.h"

#define HDR(type, kind) .hdr = CELLA_HDR_INIT(struct type, kind)

int decider_create(struct plugin *p, const struct cella_host *host,
                   const struct cella_options *options, struct decider *ret,
                   struct cella_error *err)
{
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "create", DEADLINE_BUILD);
    r = p->ops.decider.create(host, options, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r == 0)
        *ret = (struct decider){.plugin = p, .self = self};
    return r;
}

void decider_destroy(struct decider *d)
{
    struct call c;

    if (!d || !d->self)
        return;
    call_begin(&c, d->plugin, "destroy", DEADLINE_CALL);
    d->plugin->ops.decider.destroy(d->self);
    call_end_void(&c);
    d->self = NULL;
}

static void deny(struct cella_verdict *v, const char *rule, const char *reason)
{
    *v = (struct cella_verdict){HDR(cella_verdict, CELLA_KIND_VERDICT), .value = CELLA_DENY};
    snprintf(v->rule, sizeof(v->rule), "%s", rule);
    snprintf(v->reason, sizeof(v->reason), "%s", reason);
}

static int verdict_check(const struct call *c, struct cella_verdict *v, struct cella_error *err)
{
    if (!hdr_unchanged(&v->hdr, sizeof(*v), CELLA_KIND_VERDICT) || v->reserved0)
        return call_broken(c, err, "it changed the header or a reserved member of the verdict");
    if (v->value != CELLA_ABSTAIN && v->value != CELLA_ALLOW && v->value != CELLA_DENY)
        return call_broken(c, err, "it gave an unknown verdict (%u)", v->value);
    if (!text_array_ok(v->rule, sizeof(v->rule)) || !memchr(v->reason, 0, sizeof(v->reason)))
        return call_broken(c, err, "rule or reason of its verdict is not a terminated text");
    return 0;
}

static void ask(struct decider *d, const struct cella_request *request, struct cella_verdict *ret)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    struct cella_verdict v = {HDR(cella_verdict, CELLA_KIND_VERDICT)};
    struct call c;
    int r;

    if (!d->self) {
        deny(ret, "decider-error", "a decider has no instance");
        return;
    }
    struct cella_error *e = call_begin(&c, d->plugin, "decide", DEADLINE_CALL);
    c.hot = 1;
    r = d->plugin->ops.decider.decide(d->self, request, &v, e);
    r = call_end(&c, r, err);
    if (r == 0)
        r = verdict_check(&c, &v, err);
    if (r < 0)
        deny(ret, "decider-error", eb.text);
    else
        *ret = v;
}

void deciders_decide(struct decider *chain, size_t n, const struct cella_request *request,
                     struct cella_verdict *ret_verdict, const char **ret_decider)
{
    struct cella_verdict v;
    const char *who = NULL;
    size_t i;

    if (n == 0) {
        *ret_verdict = (struct cella_verdict){HDR(cella_verdict, CELLA_KIND_VERDICT),
                                              .value = CELLA_ALLOW, .rule = "no-decider"};
        *ret_decider = NULL;
        return;
    }
    deny(ret_verdict, "all-abstain", "every decider abstained");
    for (i = 0; i < n; i++) {
        ask(&chain[i], request, &v);
        if (v.value == CELLA_ABSTAIN || (v.value == CELLA_ALLOW && who))
            continue;
        *ret_verdict = v;
        who = chain[i].plugin->name;
        if (v.value == CELLA_DENY)
            break;
    }
    *ret_decider = who;
}
