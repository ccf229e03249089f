/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host_chain - records of what crosses the boundary without a cell: images and kernels that come and go.
 *
 * Each record is one locked append to the host's chain (core/audit), by the sinks that record the cells. The
 * sinks see a host table that has nothing but words. Threads: none.
 */
#include <stdarg.h>

#include "host_chain.h"
#include "warden.h"

struct host_chain {
    struct cella_host host;
    struct sink_slot *slots;
    size_t n;
    struct audit *audit;
};

static void quiet(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);

static void quiet(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)topic;
    (void)fmt;
}

static int no_event(void *ctx, const struct cella_event *event)
{
    (void)ctx;
    (void)event;
    return 0;
}

int host_chain_open(const struct config *c, struct host_chain **ret, struct cella_error *err)
{
    struct host_chain *h = calloc(1, sizeof(*h));
    auto_free char *dir = path_join(c->state_dir, "audit");
    struct audit_sink *sinks = NULL;
    int r = h && dir ? 0 : fail(err, -ENOMEM, "audit: out of memory");

    if (r == 0) {
        h->host = (struct cella_host){.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                      .ctx = h,
                                      .log = quiet,
                                      .emit = no_event};
        r = sinks_load(c, &h->slots, &h->n, &sinks, err);
    }
    if (r == 0)
        r = audit_open_host(dir, &h->host, sinks, h->n, &h->audit, err);
    free(sinks);
    if (r < 0)
        host_chain_free(h);
    else
        *ret = h;
    return r;
}

struct audit *host_chain_audit(const struct host_chain *h)
{
    return h->audit;
}

void host_chain_free(struct host_chain *h)
{
    size_t i;

    if (!h)
        return;
    audit_free(h->audit);
    for (i = 0; i < h->n; i++) {
        option_set_free(h->slots[i].options);
        plugin_unload(h->slots[i].plugin);
    }
    free(h->slots);
    free(h);
}
