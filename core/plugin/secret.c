/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * secret - one wrapper per operation of a secret provider. A value goes straight into the buffer of
 * who asked for it: no copy is made here, and nothing of it stays behind a shorter value or after a
 * failure. Threads: one instance from one thread at a time.
 */
#include "plugin_int.h"

int secret_create(struct plugin *p, const struct cella_host *host,
                  const struct cella_options *options, struct secret_provider *ret,
                  struct cella_error *err)
{
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "create", DEADLINE_CALL);
    r = p->ops.secret.create(host, options, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r == 0)
        *ret = (struct secret_provider){.plugin = p, .self = self};
    return r;
}

int64_t secret_get(struct secret_provider *s, const struct cella_secret_query *query, char *buf,
                   uint64_t cap, struct cella_error *err)
{
    struct call c;
    int64_t r;

    if (!s->self)
        return fail(err, -EPROTO, "secret provider: get is not possible before create");
    struct cella_error *e = call_begin(&c, s->plugin, "get", DEADLINE_CALL);
    r = s->plugin->ops.secret.get(s->self, query, buf, cap, e);
    r = call_end_count(&c, r, err);
    if (r >= 0 && (uint64_t)r > cap)
        r = call_broken(&c, err, "it says that a value is longer than the room for it");
    explicit_bzero(buf + (r > 0 ? r : 0), cap - (uint64_t)(r > 0 ? r : 0));
    return r;
}

int secret_rotate_fd(struct secret_provider *s)
{
    struct errbuf eb;
    struct call c;
    int fd, ok;

    if (!s->self || !s->plugin->ops.secret.rotate_fd)
        return -1;
    call_begin(&c, s->plugin, "rotate_fd", DEADLINE_CALL);
    fd = s->plugin->ops.secret.rotate_fd(s->self);
    ok = fd >= 0 && fd_take_check(fd) == 0;
    call_end_void(&c);
    if (fd >= 0 && !ok)
        call_broken(&c, errbuf_init(&eb), "the descriptor it returned is not valid");
    return ok ? fd : -1;
}

void secret_destroy(struct secret_provider *s)
{
    struct call c;

    if (!s || !s->self)
        return;
    call_begin(&c, s->plugin, "destroy", DEADLINE_CALL);
    s->plugin->ops.secret.destroy(s->self);
    call_end_void(&c);
    s->self = NULL;
}
