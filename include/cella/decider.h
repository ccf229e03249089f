/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/decider.h - a decider is asked before something happens.
 *
 * One entry, decide(request, verdict). A request names an operation; a decider that does not know
 * the operation answers CELLA_ABSTAIN. The host combines verdicts: the most restrictive wins
 * (DENY over ALLOW over ABSTAIN); all abstaining, an error, an unknown verdict or a timeout is
 * DENY. With no decider configured there is nothing to ask and the class alone decides.
 */
#ifndef CELLA_DECIDER_H
#define CELLA_DECIDER_H

#include <cella/abi.h>
#include <cella/host.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cella_verdict_value { CELLA_ABSTAIN = 1000, CELLA_ALLOW = 2000, CELLA_DENY = 3000 };

/*
 * Operations: "cell.create" with attributes class, backend, strength, image, policy, user, argv.
 * Attribute values are strings; numbers in decimal. Unknown attributes are to be ignored.
 */
struct cella_attribute {
    const char *name;
    struct cella_span value;
};

struct cella_request {
    struct cella_hdr hdr; /* CELLA_KIND_REQUEST */
    const char *operation;
    const char *cell_id;
    const struct cella_attribute *attributes;
    uint32_t n_attributes, attribute_stride;
};

struct cella_verdict {
    struct cella_hdr hdr; /* CELLA_KIND_VERDICT; supplied by the host */
    uint32_t value;       /* enum cella_verdict_value */
    uint32_t reserved0;
    char rule[64];    /* which rule decided; "" = none */
    char reason[256]; /* for people; "" = none */
};

struct cella_decider_ops {
    struct cella_hdr hdr; /* CELLA_KIND_DECIDER */
    const char *name, *version, *summary;
    const struct cella_option *options;
    uint32_t n_options, option_stride;

    /* Required. */
    int (*create)(const struct cella_host *host, const struct cella_options *options,
                  void **ret_self, struct cella_error *err);
    /* Required. */
    int (*decide)(void *self, const struct cella_request *request,
                  struct cella_verdict *ret_verdict, struct cella_error *err);
    /* Required. NULL-safe. */
    void (*destroy)(void *self);
};

#define CELLA_DECIDER_OPS_BASELINE                                                                 \
    (__builtin_offsetof(struct cella_decider_ops, destroy) + sizeof(void *))

#ifdef __cplusplus
}
#endif
#endif
