/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sink - one wrapper per operation of an audit sink. What to do when a sink fails is the operator's
 * overflow rule and is applied by the audit room, not here.
 * Threads: one instance from one thread at a time.
 */
#include "plugin_int.h"

int sink_open(const struct plugin *p, const struct cella_host *host,
              const struct cella_options *options, void **ret_self, struct cella_error *err)
{
    void *self = NULL;
    struct call c;
    int r;

    plugin_host_seen(p, host);
    struct cella_error *e = call_begin(&c, p, "open", DEADLINE_CALL);
    r = p->ops.sink.open(host, options, &self, e);
    r = call_end(&c, r, err);
    if (r == 0 && !self)
        r = call_broken(&c, err, "it succeeded without an instance");
    if (r == 0)
        *ret_self = self;
    return r;
}

static int open_required(const struct plugin *p, const void *self, const char *op,
                         struct cella_error *err)
{
    return self ? 0
                : fail(err, -EPROTO, "%s: %s is not possible while the sink is not open", p->name,
                       op);
}

int sink_event(const struct plugin *p, void *self, const struct cella_record *record,
               struct cella_error *err)
{
    struct call c;
    int r = open_required(p, self, "event", err);

    if (r < 0)
        return r;
    struct cella_error *e = call_begin(&c, p, "event", DEADLINE_CALL);
    c.hot = 1;
    r = p->ops.sink.event(self, record, e);
    return call_end(&c, r, err);
}

int sink_flush(const struct plugin *p, void *self, struct cella_error *err)
{
    struct call c;
    int r = open_required(p, self, "flush", err);

    if (r < 0 || !p->ops.sink.flush)
        return r;
    struct cella_error *e = call_begin(&c, p, "flush", DEADLINE_CALL);
    c.hot = 1;
    r = p->ops.sink.flush(self, e);
    return call_end(&c, r, err);
}

void sink_close(const struct plugin *p, void *self)
{
    struct call c;

    if (!self)
        return;
    call_begin(&c, p, "close", DEADLINE_CALL);
    p->ops.sink.close(self);
    call_end_void(&c);
}
