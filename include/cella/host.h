/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/host.h - what the host offers to a plugin.
 *
 * The table is handed to every constructor and stays valid until the plugin is unloaded. A plugin
 * links against nothing of cella; a newer plugin on an older host tests CELLA_HOST_HAS(host, op).
 * All calls are made from the thread the host called the plugin on, except `log`, which any thread
 * may call.
 */
#ifndef CELLA_HOST_H
#define CELLA_HOST_H

#include <cella/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

enum cella_log_level {
    CELLA_LOG_ERROR = 1000,
    CELLA_LOG_WARN = 2000,
    CELLA_LOG_INFO = 3000,
    CELLA_LOG_DEBUG = 4000
};

/* Readiness bits of a watched descriptor. */
#define CELLA_FD_IN 1u
#define CELLA_FD_OUT 2u
#define CELLA_FD_HUP 4u /* always reported; error or peer gone */

typedef void (*cella_fd_cb)(void *data, int fd, uint32_t ready);
typedef void (*cella_timer_cb)(void *data);

struct cella_host {
    struct cella_hdr hdr; /* CELLA_KIND_HOST */
    void *ctx;            /* first argument of every operation below */

    /* One line to the operator's log. Never a secret; guest bytes are escaped by the host. */
    void (*log)(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
        CELLA_PRINTF(4, 5);

    /* One audit event; copied before the call returns. 0, or -errno when the sink's overflow rule is
       fail-closed and it could not be written: the plugin must then refuse what it was about to do. */
    int (*emit)(void *ctx, const struct cella_event *event);

    /* Calls cb whenever fd is ready, level-triggered, until unwatched. The plugin keeps owning fd
       and unwatches before closing it. 0 or -errno. */
    int (*fd_watch)(void *ctx, int borrow_fd, uint32_t events, cella_fd_cb cb, void *data);
    void (*fd_unwatch)(void *ctx, int borrow_fd);

    /* One-shot timer after `ns` nanoseconds. Returns an id > 0 or -errno; cancel accepts old ids. */
    int (*timer)(void *ctx, uint64_t ns, cella_timer_cb cb, void *data);
    void (*timer_cancel)(void *ctx, int id);

    /* Absolute path of a helper program that came with cella ("cella-gate"), for exec; NULL if
       there is none of that name. Static storage. */
    const char *(*helper_path)(void *ctx, const char *name);

    /* The value of a secret, asked of the configured providers in order; the first that knows the
       name answers. `purpose` says what for ("inject:<rule id>") and goes into the audit with the
       name; the value never does. Returns the length; no NUL is added. `buf` should be locked in
       memory and kept out of core dumps, and must be wiped after use. -ENOENT no provider has it,
       -ENOTSUP no provider is configured, -EACCES not for this purpose, -ENOBUFS `cap` is too
       small. On failure nothing of a value is left in `buf`. */
    int64_t (*secret)(void *ctx, const char *name, const char *purpose, char *buf, uint64_t cap,
                      struct cella_error *err);

    /* What an operation of the plugin does from now on, for an operator who asks where the time of
       a start goes (--timings). 1 … 24 of [a-z0-9-]; anything else is left out. */
    void (*step)(void *ctx, const char *name);
};

#define CELLA_HOST_HAS(host, op)                                                                   \
    ((host)->hdr.size >= __builtin_offsetof(struct cella_host, op) + sizeof((host)->op) &&         \
     (host)->op)

#ifdef __cplusplus
}
#endif
#endif
