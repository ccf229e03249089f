/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * broken-enforcer - egress-nft with one lie, so that `cella reach` has something to find. Option `lie`:
 *   wide    opens 203.0.113.0/24 port 443, and still says that the policy denies it
 *   shut    closes everything, and still says that the policy allows 203.0.113.10 port 8080
 *   blind   says that nothing arrived at the sink
 *   loose   says that it tightened, and did not
 *   forged  a row that would be two lines
 *   none    the truth
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cella/enforcer.h>
#include <cella/plugin.h>

#define OPEN                                                                                       \
    "{\"version\":1,\"allow\":[{\"id\":\"leak\",\"cidr\":\"203.0.113.0/24\",\"ports\":[443],"      \
    "\"layer\":\"raw\"}]}"

struct broken {
    void *self;
    char lie[16];
};

struct rows {
    const struct broken *b;
    void *ctx;
    void (*row)(void *, const struct cella_reach_row *);
};

static const struct cella_enforcer_ops *real(void)
{
    static const struct cella_enforcer_ops *ops;
    void *dl = ops ? NULL : dlopen(REAL_ENFORCER, RTLD_NOW | RTLD_LOCAL);
    const void *(*entry)(void);

    if (dl) {
        *(void **)(void *)&entry = dlsym(dl, "cella_plugin_entry_v1");
        ops = entry();
    }
    return ops;
}

static const struct cella_option options[] = {{"lie", "what is broken", "none",
                                               "none|wide|shut|blind|loose|forged", CELLA_OPT_ENUM,
                                               0, 0, 0}};

static int broken_probe(const struct cella_host *host, const struct cella_probe_report *report,
                        struct cella_error *err)
{
    return real() ? real()->probe(host, report, err)
                  : cella_error_set(err, -ENOENT, 0, "no %s", REAL_ENFORCER);
}

static int broken_attach(const struct cella_host *host, const struct cella_attach *attach,
                         void **ret_self, struct cella_attached *ret, struct cella_error *err)
{
    struct cella_policy policy = *attach->policy;
    struct cella_attach at = *attach;
    struct broken *b = calloc(1, sizeof(*b));
    int r;

    if (!b || !real()) {
        free(b);
        return cella_error_set(err, -ENOENT, 0, "no %s", REAL_ENFORCER);
    }
    strncpy(b->lie, attach->options->values[0].str, sizeof(b->lie) - 1);
    if (!strcmp(b->lie, "wide"))
        policy.document = (struct cella_span){OPEN, strlen(OPEN)};
    if (!strcmp(b->lie, "shut"))
        policy.document = (struct cella_span){"", 0};
    at.policy = &policy;
    at.options = NULL;
    r = real()->attach(host, &at, &b->self, ret, err);
    if (r < 0)
        free(b);
    else
        *ret_self = b;
    return r;
}

static void broken_detach(void *self)
{
    struct broken *b = self;

    if (!b)
        return;
    real()->detach(b->self);
    free(b);
}

static int broken_reap(const struct cella_host *host, const struct cella_reap *reap,
                       struct cella_error *err)
{
    return real()->reap(host, reap, err);
}

static void on_row(void *ctx, const struct cella_reach_row *row)
{
    struct rows *r = ctx;
    struct cella_reach_row lie = *row;

    lie.expected = CELLA_REACH_DENY;
    if (!strcmp(r->b->lie, "forged"))
        lie.name = "a\nr0 tcp 203.0.113.1 1 1 - -";
    r->row(r->ctx, strcmp(r->b->lie, "wide") && strcmp(r->b->lie, "forged") ? row : &lie);
}

static int broken_expect(void *self, void *ctx, void (*row)(void *, const struct cella_reach_row *),
                         struct cella_error *err)
{
    struct broken *b = self;
    struct rows r = {b, ctx, row};
    struct cella_reach_row extra = {
        .hdr = CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
        .id = "claimed",
        .group = "rule",
        .kind = "tcp",
        .address = "203.0.113.10",
        .twin_address = "",
        .name = "",
        .options = "",
        .rule = "claimed",
        .why = "a rule allows it",
        .port = 8080,
        .expected = CELLA_REACH_ALLOW,
        .proof = CELLA_REACH_BY_SINK};

    if (!strcmp(b->lie, "shut"))
        row(ctx, &extra);
    return real()->expect(b->self, &r, on_row, err);
}

static int broken_begin(void *self, const struct cella_reach *reach, struct cella_error *err)
{
    return real()->reach_begin(((struct broken *)self)->self, reach, err);
}

static int broken_tighten(void *self, struct cella_error *err)
{
    struct broken *b = self;

    return strcmp(b->lie, "loose") ? real()->reach_tighten(b->self, err) : 0;
}

static int broken_end(void *self, void *ctx, void (*seen)(void *, const struct cella_reach_seen *),
                      struct cella_error *err)
{
    struct broken *b = self;

    return real()->reach_end(b->self, ctx, strcmp(b->lie, "blind") ? seen : NULL, err);
}

static const struct cella_enforcer_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_enforcer_ops, CELLA_KIND_ENFORCER),
    .name = "broken-enforcer",
    .version = "1",
    .summary = "egress-nft with a lie",
    .options = options,
    .n_options = 1,
    .option_stride = sizeof(struct cella_option),
    .probe = broken_probe,
    .attach = broken_attach,
    .detach = broken_detach,
    .reap = broken_reap,
    .expect = broken_expect,
    .reach_begin = broken_begin,
    .reach_end = broken_end,
    .reach_tighten = broken_tighten,
};

CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
