/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - what a warden offers its plugins (struct cella_host) and the consequence of an
 * audit that cannot be written: with a fail-closed sink the cell is stopped.
 */
#include <stdarg.h>

#include "warden.h"

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    struct warden *w = ctx;
    auto_buf struct buf b = BUF_INIT;
    auto_free char *text = NULL;
    va_list ap;
    int n;

    if (level > CELLA_LOG_INFO || w->log_fd < 0 || w->log_bytes > WARDEN_LOG_MAX)
        return;
    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    buf_addf(&b, "%llu %s %s ", (unsigned long long)(wall_ns() / 1000000),
             level == CELLA_LOG_ERROR  ? "error"
             : level == CELLA_LOG_WARN ? "warn"
                                       : "info",
             topic);
    buf_json_string(&b, text, (size_t)n);
    buf_add(&b, "\n", 1);
    if (!b.oom && write_all(w->log_fd, b.ptr, b.len) == 0)
        w->log_bytes += b.len;
}

static int host_emit(void *ctx, const struct cella_event *event)
{
    struct warden *w = ctx;

    return w->audit ? warden_audited(w, audit_event(w->audit, event, NULL)) : -ENOTCONN;
}

static int host_fd_watch(void *ctx, int fd, uint32_t events, cella_fd_cb cb, void *data)
{
    return loop_watch(((struct warden *)ctx)->loop, fd, events, cb, data);
}

static void host_fd_unwatch(void *ctx, int fd)
{
    loop_unwatch(((struct warden *)ctx)->loop, fd);
}

static int host_timer(void *ctx, uint64_t ns, cella_timer_cb cb, void *data)
{
    return loop_timer(((struct warden *)ctx)->loop, ns, cb, data);
}

static void host_timer_cancel(void *ctx, int id)
{
    loop_timer_cancel(((struct warden *)ctx)->loop, id);
}

static const char *host_helper_path(void *ctx, const char *name)
{
    (void)ctx;
    return helper_path(name);
}

void host_init(struct warden *w)
{
    w->host = (struct cella_host){.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                  .ctx = w,
                                  .log = host_log,
                                  .emit = host_emit,
                                  .fd_watch = host_fd_watch,
                                  .fd_unwatch = host_fd_unwatch,
                                  .timer = host_timer,
                                  .timer_cancel = host_timer_cancel,
                                  .helper_path = host_helper_path};
}

/* Runs outside the callback that noticed the failure. */
static void audit_failed(void *data)
{
    cell_end(data, "audit", "the audit could not be written and its rule is fail-closed");
}

int warden_audited(struct warden *w, int r)
{
    if (r < 0 && !w->audit_failed) {
        w->audit_failed = 1;
        loop_timer(w->loop, 0, audit_failed, w);
    }
    return r;
}

int warden_save(struct warden *w)
{
    return w->dir_held ? store_save(&w->dir, w->cell) : 0;
}
