/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * order - orders to the sentry, whole datagrams, one at a time; and the pipe on which sentry and gofer say what the operator
 * should know. Both are bounded and cleaned: the guest may have taken the sentry over. Threads: one per cell.
 */
#include <poll.h>
#include <sys/socket.h>

#include "gvisor_like.h"

#define LINE_MAX_ 300

/* ---- the log ---- */

static void line(struct cell *c, const char *s, size_t n)
{
    char text[LINE_MAX_];
    size_t i;

    if (n >= sizeof(text))
        n = sizeof(text) - 1;
    for (i = 0; i < n; i++)
        text[i] = (char)(s[i] >= ' ' && s[i] < 127 ? s[i] : '?');
    text[n] = 0;
    if (!n)
        return;
    memcpy(c->words, text, n + 1);
    if (c->n_words < LOG_LINES_MAX)
        c->host->log(c->host->ctx, CELLA_LOG_INFO, LOG_TOPIC, "cell %s: %s", c->id, text);
    if (++c->n_words == LOG_LINES_MAX)
        c->host->log(c->host->ctx, CELLA_LOG_WARN, LOG_TOPIC,
                     "cell %s: it has said %u lines; no more of them are shown", c->id,
                     LOG_LINES_MAX);
}

void log_read(struct cell *c)
{
    char text[4096], *at, *end;
    ssize_t n;
    int rounds;

    for (rounds = 0; c->log_fd >= 0 && rounds < 16; rounds++) {
        n = read(c->log_fd, text, sizeof(text));
        if (n <= 0)
            return;
        for (at = text; at < text + n; at = end + 1) {
            end = memchr(at, '\n', (size_t)(text + n - at));
            if (!end)
                end = text + n;
            line(c, at, (size_t)(end - at));
        }
    }
}

static void log_ready(void *data, int fd, uint32_t ready)
{
    struct cell *c = data;

    (void)fd;
    log_read(c);
    if (ready & CELLA_FD_HUP) { /* both have ended */
        log_read(c);
        log_unwatch(c);
    }
}

void log_watch(struct cell *c)
{
    c->watched = c->host->fd_watch(c->host->ctx, c->log_fd, CELLA_FD_IN, log_ready, c) == 0;
}

void log_unwatch(struct cell *c)
{
    if (c->watched)
        c->host->fd_unwatch(c->host->ctx, c->log_fd);
    c->watched = 0;
}

/* ---- orders ---- */

/* With its last words, when there are any. */
static int no_answer(struct cell *c, const char *what, int r, struct cella_error *err)
{
    struct pollfd p = {.fd = c->sentry_pidfd, .events = POLLIN};

    poll(&p, 1, 100); /* it is ending, perhaps: so that its last words are there */
    log_read(c);
    return cella_error_set(err, r, STEP_KERNEL, "cella-sentry: %s: %s", what,
                           c->words[0] ? c->words : strerror(-r));
}

/* The answer with this serial; those before it were given up. Negative: there is none. */
static int answer_read(struct cell *c, uint32_t serial, struct sentry_reply *ret)
{
    uint64_t end = now_ns() + (uint64_t)ORDER_MS * 1000000;
    ssize_t n;
    int r;

    do {
        r = fd_readable(c->control_fd, end);
        if (r <= 0)
            return r == 0 ? -ETIMEDOUT : r;
        n = recv(c->control_fd, ret, sizeof(*ret), MSG_DONTWAIT | MSG_TRUNC);
        if (n != (ssize_t)sizeof(*ret) || ret->n > SENTRY_ROWS_MAX || ret->code > 0 ||
            ret->code < -4095)
            return n == 0 ? -EPIPE : n < 0 ? -errno : -EBADMSG;
        if (serial && !ret->serial && ret->code == 0)
            c->asked = ret->stats; /* it is ending: its last figures */
    } while (ret->serial != serial);
    return 0;
}

static int exchange(struct cell *c, const char *what, const void *message, size_t size,
                    uint32_t serial, struct sentry_reply *ret, struct cella_error *err)
{
    char why[sizeof(ret->text)];
    size_t i;
    int r;

    if (send(c->control_fd, message, size, MSG_NOSIGNAL) < 0)
        return no_answer(c, what, -errno, err);
    r = answer_read(c, serial, ret);
    if (r < 0)
        return no_answer(c, what, r, err);
    if (ret->code == 0)
        return 0;
    memcpy(why, ret->text, sizeof(why));
    why[sizeof(why) - 1] = 0;
    for (i = 0; why[i]; i++)
        if (why[i] < ' ' || why[i] > 126)
            why[i] = '?';
    return cella_error_set(err, ret->code, STEP_KERNEL, "cella-sentry: %s: %s", what,
                           why[0] ? why : strerror(-ret->code));
}

int order_config(struct cell *c, const struct sentry_config *config, struct cella_error *err)
{
    struct sentry_reply reply;

    return exchange(c, "start of the kernel", config, sizeof(*config), 0, &reply, err);
}

int order(struct cell *c, const char *what, uint32_t op, uint64_t arg, uint64_t arg2,
          struct sentry_reply *ret_reply, struct cella_error *err)
{
    struct sentry_request q = {.op = op, .arg = arg, .arg2 = arg2};
    struct sentry_reply reply;

    c->serial += c->serial == UINT32_MAX ? 2 : 1;
    q.serial = c->serial;
    return exchange(c, what, &q, sizeof(q), q.serial, ret_reply ? ret_reply : &reply, err);
}
