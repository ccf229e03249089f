/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * null-enforcer - the smallest enforcer that keeps every promise of <cella/enforcer.h>. Start here.
 *
 * It can do one thing: give a cell no link at all (policy "none"). Nothing passes, whatever the
 * document says, so every policy is met in its tightest form; a cell that needs a link is refused.
 * It shows ownership, generations and accounting; enforcing rules is what egress-nft is for.
 * Threads: the host calls one instance from one thread at a time; there is no global state.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <cella/enforcer.h>
#include <cella/plugin.h>

struct null_link {
    uint64_t generation; /* of the policy in force */
};
enum step { STEP_LINK = 1, STEP_MEMORY };

static int null_probe(const struct cella_host *host, const struct cella_probe_report *report,
                      struct cella_error *err)
{
    (void)host, (void)err;
    report->capability(report->ctx, "net.tcp", CELLA_NONE, "cells of this enforcer have no link");
    report->capability(report->ctx, "net.dns", CELLA_NONE, "cells of this enforcer have no link");
    return 0;
}

static int null_attach(const struct cella_host *host, const struct cella_attach *attach,
                       void **ret_self, struct cella_attached *ret_attached,
                       struct cella_error *err)
{
    struct null_link *l;

    (void)host;
    if (attach->link != CELLA_LINK_NONE)
        return cella_error_set(err, -ENOTSUP, STEP_LINK,
                               "this enforcer makes no links; use policy \"none\" or another "
                               "enforcer");
    l = calloc(1, sizeof(*l));
    if (!l)
        return cella_error_set(err, -ENOMEM, STEP_MEMORY, "out of memory");
    l->generation = attach->policy->generation;
    /* The host has zeroed and headed the result; without a link only "nothing" is true of it. */
    ret_attached->own_tap_fd = -1;
    ret_attached->borrow_exit_fd = -1; /* no helper process that could die */
    *ret_self = l;
    return 0;
}

static void null_detach(void *self)
{
    free(self); /* NULL-safe */
}

/* No link, no names, nothing on this host: nothing can be left of a dead cell. */
static int null_reap(const struct cella_host *host, const struct cella_reap *reap,
                     struct cella_error *err)
{
    (void)host, (void)reap, (void)err;
    return 0;
}

/* Replaces the policy: the new one is "nothing passes" like the old one, under a new number. */
static int null_apply(void *self, const struct cella_policy *policy,
                      struct cella_applied *ret_applied, struct cella_error *err)
{
    struct null_link *l = self;

    (void)err;
    l->generation = policy->generation;
    ret_applied->generation = l->generation;
    ret_applied->killed = 0;
    return 0;
}

/* One line: nothing was let through and nothing could be tried. */
static int null_report(void *self, void *ctx,
                       void (*flow)(void *ctx, const struct cella_flow *flow),
                       struct cella_error *err)
{
    const struct cella_flow line = {
        .hdr = CELLA_HDR_INIT(struct cella_flow, CELLA_KIND_FLOW),
        .rule = "no_link",
        .destination = "*",
        .proto = "any",
    };

    (void)self, (void)err;
    flow(ctx, &line);
    return 0;
}

static const struct cella_enforcer_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_enforcer_ops, CELLA_KIND_ENFORCER),
    .name = "null-enforcer",
    .version = "1.0",
    .summary = "example: no link at all, nothing passes",
    .probe = null_probe,
    .attach = null_attach,
    .detach = null_detach,
    .reap = null_reap,
    .apply = null_apply,
    .report = null_report,
};
CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
