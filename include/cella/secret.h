/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/secret.h - a secret provider hands out secrets by name, tenant and purpose. Values go
 * into a buffer of the host that is locked in memory and wiped after use; they never enter a
 * cell, a log or an event.
 */
#ifndef CELLA_SECRET_H
#define CELLA_SECRET_H

#include <cella/abi.h>
#include <cella/host.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cella_secret_query {
    struct cella_hdr hdr; /* CELLA_KIND_SECRET_QUERY */
    const char *name;     /* as in the policy document */
    const char *tenant;   /* "" = none */
    const char *purpose;  /* "inject:<rule id>" */
};

struct cella_secret_ops {
    struct cella_hdr hdr; /* CELLA_KIND_SECRET */
    const char *name, *version, *summary;
    const struct cella_option *options;
    uint32_t n_options, option_stride;

    /* Required. */
    int (*create)(const struct cella_host *host, const struct cella_options *options,
                  void **ret_self, struct cella_error *err);
    /* Required. Writes the value (no NUL needed) and returns its length; -ENOENT unknown, which lets the host ask the next
       provider, -EACCES not for this tenant or purpose, -ENOBUFS when `cap` is too small. Nothing of a
       value may be in a message. Makes the descriptor of rotate_fd unreadable again. */
    int64_t (*get)(void *self, const struct cella_secret_query *query, char *buf, uint64_t cap,
                   struct cella_error *err);
    /* Required. NULL-safe. */
    void (*destroy)(void *self);
    /* Optional: secrets never rotate. A descriptor that is readable when some value has changed since the last get(); the
       plugin keeps it until destroy(). -1 or another negative value: none. */
    int (*rotate_fd)(void *self);
};

#define CELLA_SECRET_OPS_BASELINE                                                                  \
    (__builtin_offsetof(struct cella_secret_ops, destroy) + sizeof(void *))

#ifdef __cplusplus
}
#endif
#endif
