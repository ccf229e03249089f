/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * end - one way out for every cell. cell_end() may be called from any callback: it notes the first
 * reason and does the work from a clean stack. The order: nothing of the cell runs any more; final
 * figures; the enforcer hands over what it still knows; the last event; the chain is closed; the
 * record is written or everything removed; the clients that wait are answered last, so that an
 * answer means it is done.
 */
#include <stdarg.h>

#include "warden.h"

json_t *stats_json(const struct cella_stats *s)
{
    const struct {
        const char *name;
        uint64_t value;
    } members[] = {{"cpu_user_ns", s->cpu_user_ns},
                   {"cpu_system_ns", s->cpu_system_ns},
                   {"memory_bytes", s->memory_bytes},
                   {"memory_peak_bytes", s->memory_peak_bytes},
                   {"pids", s->pids},
                   {"pids_peak", s->pids_peak},
                   {"disk_bytes", s->disk_bytes},
                   {"io_read_bytes", s->io_read_bytes},
                   {"io_write_bytes", s->io_write_bytes},
                   {"oom_kills", s->oom_kills},
                   {"pids_refused", s->pids_refused}};
    json_t *o = json_object(), *hit = json_array();
    size_t i;

    for (i = 0; i < ARRAY_LEN(members); i++)
        if (!(s->unknown & 1u << i))
            json_object_set_new(o, members[i].name, json_integer((json_int_t)members[i].value));
    if (s->limit_hit & CELLA_LIMIT_HIT_MEMORY)
        json_array_append_new(hit, json_string("memory"));
    if (s->limit_hit & CELLA_LIMIT_HIT_PIDS)
        json_array_append_new(hit, json_string("pids"));
    if (s->limit_hit & CELLA_LIMIT_HIT_DISK)
        json_array_append_new(hit, json_string("disk"));
    json_object_set_new(o, "limit_hit", hit);
    return o;
}

static void flow_add(void *ctx, const struct cella_flow *f)
{
    json_array_append_new(
        ctx, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "rule",
                       f->rule ? f->rule : "", "destination", f->destination ? f->destination : "",
                       "proto", f->proto ? f->proto : "", "allowed", (json_int_t)f->allowed,
                       "denied", (json_int_t)f->denied, "tx_bytes", (json_int_t)f->tx_bytes,
                       "rx_bytes", (json_int_t)f->rx_bytes, "first_ns", (json_int_t)f->first_ns,
                       "last_ns", (json_int_t)f->last_ns));
}

json_t *egress_json(struct warden *w)
{
    json_t *flows = json_array();
    struct errbuf eb;

    if (w->enforcer_on && enforcer_report(&w->enforcer, flows, flow_add, errbuf_init(&eb)) < 0)
        warden_log(w, CELLA_LOG_WARN, "egress", "report: %s", eb.text);
    return flows;
}

/* Stops the backend and returns its last figures. */
static json_t *final_usage(struct warden *w, struct cella_stats *stats)
{
    struct errbuf eb;

    memset(stats, 0, sizeof(*stats));
    if (w->machine)
        machine_refresh(w);
    if (w->backend.self && backend_stop(&w->backend, CELLA_STOP_KILL, 0, errbuf_init(&eb)) < 0)
        warden_log(w, CELLA_LOG_ERROR, "end", "stop: %s", eb.text);
    if (limits_sample(w, stats) < 0)
        stats->unknown = ~0u;
    return stats_json(stats);
}

static void tell_end(struct warden *w, const struct cella_stats *s)
{
    warden_audit(w, NULL, "cell.end", "s:reason", w->ended, "s:message",
                 w->ended_message[0] ? w->ended_message : NULL, "i:status", (int64_t)w->end_status,
                 "i:signal", (int64_t)w->end_signal, "i:cpu_user_ns", (int64_t)s->cpu_user_ns,
                 "i:cpu_system_ns", (int64_t)s->cpu_system_ns, "i:memory_peak",
                 (int64_t)s->memory_peak_bytes, "i:pids_peak", (int64_t)s->pids_peak, "i:disk",
                 (int64_t)s->disk_bytes, NULL);
}

static json_t *chain_json(struct warden *w)
{
    char head[65] = "";
    uint64_t seq = 0;

    audit_head(w->audit, &seq, head);
    return json_pack("{s:I, s:s}", "seq", (json_int_t)seq, "head", head);
}

static void record_summary(struct warden *w)
{
    json_object_set_new(w->cell, "state", json_string("stopped"));
    json_object_set(w->cell, "summary", w->summary);
    if (!w->remove_at_end)
        warden_save(w);
}

static void answer_starter(struct warden *w)
{
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    if (!w->starter.peer)
        return;
    fail(err, w->start_error < 0 ? w->start_error : -EIO, "%s%s",
         w->start_error < 0 ? "" : "start: ", w->ended_message[0] ? w->ended_message : w->ended);
    peer_reply_error(w, &w->starter, err);
    w->starter.peer = 0;
}

static void answer_waiters(struct warden *w)
{
    size_t i;

    answer_starter(w);
    for (i = 0; i < w->n_waiters; i++)
        peer_reply_ok(w, &w->waiters[i], json_incref(w->summary));
    w->n_waiters = 0;
}

static void end_now(void *data)
{
    struct warden *w = data;
    struct cella_stats stats;
    struct errbuf eb;
    json_t *usage, *egress;
    int leaving = 0;

    spares_end(w);
    limits_disarm(w);
    if (w->started.borrow_exit_fd >= 0 && w->backend.self)
        loop_unwatch(w->loop, w->started.borrow_exit_fd);
    usage = final_usage(w, &stats);
    if (!strcmp(w->ended, "agent") && stats.limit_hit & CELLA_LIMIT_HIT_MEMORY)
        w->ended = "memory";
    reach_drop(w);
    update_drop(w);
    link_free(w->link); /* and its streams; their clients see the end of this process */
    w->link = NULL;
    w->main_stream = NULL;
    gate_unwatch(w); /* its end is no accident any more */
    enforcer_finish(&w->enforcer);
    egress = egress_json(w);
    arrows_undo(w, ARROWS_AUDIT);
    if (w->audit) {
        tell_end(w, &stats);
        w->audit_closed = 1;
        if (audit_close(w->audit, errbuf_init(&eb)) < 0 && !w->audit_failed)
            leaving = -EIO;
    }
    w->summary = json_pack("{s:s, s:i, s:i, s:o, s:o}", "ended", w->ended, "status", w->end_status,
                           "signal", w->end_signal, "usage", usage, "egress", egress);
    json_object_set(w->summary, "limit_hit", json_object_get(usage, "limit_hit"));
    if (w->ended_message[0])
        json_object_set_new(w->summary, "message", json_string(w->ended_message));
    else if (leaving < 0)
        json_object_set_new(w->summary, "message",
                            json_sprintf("closing the audit chain: %s", eb.text));
    if (w->audit)
        json_object_set_new(w->summary, "chain", chain_json(w));
    record_summary(w);
    w->keep_at_end = !w->remove_at_end;
    w->state = W_ENDED;
    plugin_process_ends();
    arrows_undo(w, 0);
    spares_gone(w);
    answer_waiters(w);
    peers_flush_and_stop(w);
}

/* Made and started by one request, which is answered that it failed: the name is free for the next try. */
static int never_handed_out(const struct warden *w)
{
    return w->req.start && w->starter.peer;
}

void cell_end(struct warden *w, const char *reason, const char *fmt, ...)
{
    va_list ap;

    if (w->ended)
        return;
    w->ended = w->stopping && !strcmp(reason, "agent") ? "stop" : reason;
    if (peers_leased(w) || w->state == W_SPARE || never_handed_out(w))
        w->remove_at_end = 1; /* its client gets the summary or the error; nobody needs a record */
    if (fmt && w->ended == reason) {
        va_start(ap, fmt);
        vsnprintf(w->ended_message, sizeof(w->ended_message), fmt, ap);
        va_end(ap);
    }
    loop_timer(w->loop, 0, end_now, w);
}

static void stop_late(void *data)
{
    struct warden *w = data;

    w->stop_timer = 0;
    cell_end(w, "stop", NULL);
}

void cell_stop(struct warden *w, int kill, uint32_t timeout_ms)
{
    if (w->ended || w->stopping)
        kill = 1;
    if (!kill && w->state == W_RUNNING && link_shutdown(w->link, timeout_ms) == 0) {
        w->stopping = 1;
        w->stop_timer =
            loop_timer(w->loop, (uint64_t)timeout_ms * 1000000 + 1000000000, stop_late, w);
        return;
    }
    cell_end(w, "stop", NULL);
}
