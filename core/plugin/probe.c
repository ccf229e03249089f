/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - collects the capability answers a plugin pushes during its probe. A malformed answer does
 * not stop the plugin's code; it is remembered and the whole probe is refused with it afterwards.
 * Threads: answers come from the thread that probes.
 */
#include "plugin_int.h"

const char *answer_name(uint32_t answer)
{
    return answer == CELLA_NONE       ? "none"
           : answer == CELLA_EMULATED ? "emulated"
           : answer == CELLA_NATIVE   ? "native"
                                      : "unknown";
}

const struct capability *probe_find(const struct probe_result *r, const char *name)
{
    size_t i;

    for (i = 0; r && i < r->n_caps; i++)
        if (!strcmp(r->caps[i].name, name))
            return &r->caps[i];
    return NULL;
}

static int cap_name_ok(const char *s)
{
    return s && s[0] && strnlen(s, 48) < 48 &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789.-")] == 0;
}

static void reason_copy(char *dst, size_t cap, const char *src)
{
    size_t i;

    for (i = 0; src && src[i] && i < cap - 1; i++)
        dst[i] = (unsigned char)src[i] < 0x20 || src[i] == 0x7f ? ' ' : src[i];
    dst[i] = 0;
}

static void on_capability(void *ctx, const char *name, uint32_t answer, const char *reason)
{
    struct probe_sink *s = ctx;
    struct probe_result *out = s->out;
    struct cella_error *bad = &s->bad.err;
    struct capability *c;

    if (bad->code || !out)
        return;
    if (!cap_name_ok(name))
        fail(bad, -EPROTO, "a capability without a valid name");
    else if (!strcmp(answer_name(answer), "unknown"))
        fail(bad, -EPROTO, "capability %s with an unknown answer (%u)", name, answer);
    else if (answer != CELLA_NATIVE && (!reason || !reason[0]))
        fail(bad, -EPROTO, "capability %s is %s without a reason", name, answer_name(answer));
    else if (probe_find(out, name))
        fail(bad, -EPROTO, "capability %s twice", name);
    else if (out->n_caps == ARRAY_LEN(out->caps))
        fail(bad, -EPROTO, "more than %zu capabilities", ARRAY_LEN(out->caps));
    if (bad->code)
        return;
    c = &out->caps[out->n_caps++];
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->answer = answer;
    reason_copy(c->reason, sizeof(c->reason), reason);
}

void probe_sink_init(struct probe_sink *s, struct probe_result *out,
                     struct cella_probe_report *ret_report)
{
    memset(out, 0, sizeof(*out));
    s->out = out;
    errbuf_init(&s->bad);
    *ret_report = (struct cella_probe_report){
        .hdr = CELLA_HDR_INIT(struct cella_probe_report, CELLA_KIND_PROBE_REPORT),
        .ctx = s,
        .capability = on_capability,
    };
}

void probe_remember(const struct plugin *p, const struct probe_result *r)
{
    if (!p->rt)
        return;
    if (!p->rt->probe)
        p->rt->probe = malloc(sizeof(*r));
    if (p->rt->probe)
        *p->rt->probe = *r;
}
