/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/sink.h - a sink receives every audit record.
 *
 * The core renders each event as one line of JSON that carries the SHA-256 of the line before it
 * (docs/audit-format.md) and gives the same line to every sink, in order, per chain. A sink stores
 * it whole. What happens when it cannot is the operator's overflow rule, applied by the core:
 *   block        the core calls event() again until it succeeds
 *   drop         the core counts, and records the count when the sink works again
 *   fail-closed  what the record was about is refused and the cell is stopped
 */
#ifndef CELLA_SINK_H
#define CELLA_SINK_H

#include <cella/abi.h>
#include <cella/host.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cella_record {
    struct cella_hdr hdr;   /* CELLA_KIND_RECORD */
    const char *chain;      /* "host" or the cell id: [a-z0-9]+ */
    uint64_t seq;           /* 1, 2, … within the chain */
    const char *kind;       /* event kind */
    struct cella_span line; /* JSON object, without newline */
};

struct cella_sink_ops {
    struct cella_hdr hdr; /* CELLA_KIND_SINK */
    const char *name, *version, *summary;
    const struct cella_option *options;
    uint32_t n_options, option_stride;

    /* Required. */
    int (*open)(const struct cella_host *host, const struct cella_options *options, void **ret_self,
                struct cella_error *err);
    /* Required. Either the whole line is stored or none of it; -ENOSPC, -EIO, … otherwise. Several
       processes may append to the chain "host"; the core holds that chain's lock during the call. */
    int (*event)(void *self, const struct cella_record *record, struct cella_error *err);
    /* Optional: nothing to do. Makes what was stored durable. */
    int (*flush)(void *self, struct cella_error *err);
    /* Required. NULL-safe. */
    void (*close)(void *self);
};

#define CELLA_SINK_OPS_BASELINE (__builtin_offsetof(struct cella_sink_ops, close) + sizeof(void *))

#ifdef __cplusplus
}
#endif
#endif
