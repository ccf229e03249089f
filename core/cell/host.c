/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * host - what a warden offers its plugins (struct cella_host) and the consequence of an
 * audit that cannot be written: with a fail-closed sink the cell is stopped.
 */
#include <stdarg.h>

#include "warden.h"

#define LOG_TOLD_MAX 100u
#define CALLBACK_NS 10000000000ull

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);

static const char *level_word(uint32_t level)
{
    return level == CELLA_LOG_ERROR ? "error" : level == CELLA_LOG_WARN ? "warn" : "info";
}

/* warden.log goes with the cell; what is a warning or worse stays in its audit. Not what a sink complains of
   while it stores a record: audit_event() refuses that, and the complaint of an emit from here is not told again. */
static void log_audit(struct warden *w, uint32_t level, const char *topic, const char *text)
{
    if (level > CELLA_LOG_WARN || !w->audit || w->log_telling || w->log_told >= LOG_TOLD_MAX)
        return;
    w->log_telling = 1;
    w->log_told++;
    audit_emit(w->audit, NULL, "plugin.log", "s:level", level_word(level), "s:topic", topic,
               "s:text", text, NULL);
    w->log_telling = 0;
}

static void log_file(struct warden *w, uint32_t level, const char *topic, const char *text)
{
    auto_buf struct buf b = BUF_INIT;

    if (w->log_fd < 0 || w->log_bytes > WARDEN_LOG_MAX)
        return;
    buf_addf(&b, "%llu %s %s ", (unsigned long long)(wall_ns() / 1000000), level_word(level),
             topic);
    buf_json_string(&b, text, strlen(text));
    buf_add(&b, "\n", 1);
    if (!b.oom && write_all(w->log_fd, b.ptr, b.len) == 0)
        w->log_bytes += b.len;
}

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    struct warden *w = ((struct plugin_host *)ctx)->warden;
    auto_free char *text = NULL;
    va_list ap;
    int n;

    if (level > CELLA_LOG_INFO)
        return;
    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL;
        return;
    }
    log_audit(w, level, topic, text);
    log_file(w, level, topic, text);
}

static int host_emit(void *ctx, const struct cella_event *event)
{
    struct plugin_host *h = ctx;
    struct warden *w = h->warden;
    int r;

    if (!w->audit)
        return -ENOTCONN;
    r = warden_audited(w, audit_event(w->audit, event, NULL));
    if (r == 0 && h == &w->enforcer_host && !strcmp(event->kind, "net.deny")) {
        denials_add(&w->denials, event, wall_ns());
        if (w->machine)
            machine_denials(w);
    }
    return r;
}

/* ---- callbacks: a plugin's code that runs from the loop, under the same watch as its operations ---- */

struct host_call {
    struct host_call *next;
    struct plugin_host *host;
    int fd;    /* -1: a timer */
    int timer; /* its id in the loop */
    cella_fd_cb on_fd;
    cella_timer_cb on_timer;
    void *data;
};

static struct host_call **call_find(struct warden *w, int fd, int timer)
{
    struct host_call **at;

    for (at = &w->host_calls; *at; at = &(*at)->next)
        if (fd >= 0 ? (*at)->fd == fd : (*at)->fd < 0 && (*at)->timer == timer)
            break;
    return at;
}

static void call_drop(struct host_call **at)
{
    struct host_call *c = *at;

    *at = c->next;
    free(c);
}

static struct host_call *call_add(struct plugin_host *h, int fd, void *data)
{
    struct host_call *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    *c = (struct host_call){.next = h->warden->host_calls, .host = h, .fd = fd, .data = data};
    h->warden->host_calls = c;
    return c;
}

/* The plugin may unwatch, and so free c, from inside. */
static void fd_ready(void *data, int fd, uint32_t ready)
{
    struct host_call *c = data;

    watchdog_enter(*c->host->plugin, "callback", CALLBACK_NS);
    c->on_fd(c->data, fd, ready);
    watchdog_leave();
}

static void timer_due(void *data)
{
    struct host_call *c = data, **at = call_find(c->host->warden, -1, c->timer), copy = *c;

    if (*at)
        call_drop(at);
    watchdog_enter(*copy.host->plugin, "timer", CALLBACK_NS);
    copy.on_timer(copy.data);
    watchdog_leave();
}

static int host_fd_watch(void *ctx, int fd, uint32_t events, cella_fd_cb cb, void *data)
{
    struct plugin_host *h = ctx;
    struct host_call *c = *call_find(h->warden, fd, 0);
    int r;

    if (fd < 0 || !h->plugin)
        return -EBADF;
    if (!c)
        c = call_add(h, fd, data);
    if (!c)
        return -ENOMEM;
    c->on_fd = cb;
    c->data = data;
    r = loop_watch(h->warden->loop, fd, events, fd_ready, c);
    if (r < 0)
        call_drop(call_find(h->warden, fd, 0));
    return r;
}

static void host_fd_unwatch(void *ctx, int fd)
{
    struct plugin_host *h = ctx;
    struct host_call **at = call_find(h->warden, fd, 0);

    loop_unwatch(h->warden->loop, fd);
    if (fd >= 0 && *at)
        call_drop(at);
}

static int host_timer(void *ctx, uint64_t ns, cella_timer_cb cb, void *data)
{
    struct plugin_host *h = ctx;
    struct host_call *c = h->plugin ? call_add(h, -1, data) : NULL;

    if (!c)
        return -ENOMEM;
    c->on_timer = cb;
    c->timer = loop_timer(h->warden->loop, ns, timer_due, c);
    if (c->timer < 0) {
        int r = c->timer;
        call_drop(&h->warden->host_calls);
        return r;
    }
    return c->timer;
}

static void host_timer_cancel(void *ctx, int id)
{
    struct plugin_host *h = ctx;
    struct host_call **at = call_find(h->warden, -1, id);

    loop_timer_cancel(h->warden->loop, id);
    if (*at)
        call_drop(at);
}

static const char *host_helper_path(void *ctx, const char *name)
{
    (void)ctx;
    return helper_path(name);
}

static int64_t host_secret(void *ctx, const char *name, const char *purpose, char *buf,
                           uint64_t cap, struct cella_error *err)
{
    return secret_value(((struct plugin_host *)ctx)->warden, name, purpose, buf, cap, err);
}

static void host_step(void *ctx, const char *name)
{
    size_t n = name ? strlen(name) : 0;

    if (n >= 1 && n <= 24 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n)
        warden_step(((struct plugin_host *)ctx)->warden, name, now_ns());
}

/* Before a plugin is unloaded: none of its code is called any more. */
void host_calls_drop(struct warden *w, const struct plugin_host *h)
{
    struct host_call **at = &w->host_calls;

    while (*at) {
        struct host_call *c = *at;
        if (c->host != h) {
            at = &c->next;
            continue;
        }
        if (c->fd >= 0)
            loop_unwatch(w->loop, c->fd);
        else
            loop_timer_cancel(w->loop, c->timer);
        call_drop(at);
    }
}

static void table_init(struct warden *w, struct plugin_host *h, struct plugin **plugin)
{
    h->warden = w;
    h->plugin = plugin;
    h->table = (struct cella_host){.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                   .ctx = h,
                                   .log = host_log,
                                   .emit = host_emit,
                                   .fd_watch = host_fd_watch,
                                   .fd_unwatch = host_fd_unwatch,
                                   .timer = host_timer,
                                   .timer_cancel = host_timer_cancel,
                                   .helper_path = host_helper_path,
                                   .step = host_step};
}

void host_init(struct warden *w)
{
    table_init(w, &w->plain, NULL);
    table_init(w, &w->backend_host, &w->backend_plugin);
    table_init(w, &w->enforcer_host, &w->enforcer_plugin);
    w->enforcer_host.table.secret = host_secret; /* nobody else may ask */
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
