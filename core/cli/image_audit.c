/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * image_audit - who asked for which image or kernel, and what became of it.
 *
 * A digest is known when the image exists, so there are two records: one before anything is changed, without which
 * nothing is, and one of what was made or removed. Threads: none.
 */
#include "image_audit.h"

int asked_begin(const struct config *c, const char *verb, const char *name, const char *source,
                struct asked *ret)
{
    struct asked a = {.verb = verb, .name = name};
    int r = host_chain_open(c, &a.chain, cli_err);

    if (r == 0)
        r = audit_host_emit(host_chain_audit(a.chain), cli_err, "image.request", "s:verb", verb,
                            "s:name", name, "s:source", source, "i:uid", (int64_t)getuid(), NULL);
    if (r < 0) {
        host_chain_free(a.chain);
        return fail_wrap(cli_err, "image %s: the audit has no record of it, so it is not done",
                         verb);
    }
    *ret = a;
    return 0;
}

int asked_record(struct asked *a, const char *kind, const char *name, const char *digest,
                 const char *source)
{
    int r = audit_host_emit(host_chain_audit(a->chain), cli_err, kind, "s:name", name, "s:digest",
                            digest, "s:source", source, NULL);

    return r < 0 ? fail_wrap(cli_err, "image %s: %s is not in the audit", a->verb, kind) : 0;
}

int asked_end(struct asked *a, int r)
{
    struct errbuf eb;

    if (r < 0)
        audit_host_emit(host_chain_audit(a->chain), errbuf_init(&eb), "image.failed", "s:verb",
                        a->verb, "s:name", a->name, "s:message", cli_errbuf.text, NULL);
    host_chain_free(a->chain);
    a->chain = NULL;
    return r;
}
