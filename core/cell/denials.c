/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * denials - what was refused, told to the cell itself, so that a program or a model in it can tell a policy from a
 * network that is broken.
 *
 * The file is a copy of part of the audit: the same words, nothing that the cell did not send itself. When it is
 * full, its newer half goes into a new file that takes the name. So what a reader sees up to a newline is whole, and only the
 * last line may still be on its way. Threads: none.
 */
#include <fcntl.h>
#include <time.h>

#include "denials.h"

#define NAME "denials"
#define LINE_MAX_ 4096u

static const struct {
    const char *reason, *help;
} helps[] = {
    {"no_rule", "No rule of this cell's policy allows this destination and port; retrying does not "
                "help. Whoever runs the cell can add an allow rule for it."},
    {"deny_rule", "A rule of this cell's policy denies this destination; retrying does not help."},
    {"hard_deny", "Private, local, metadata and reserved addresses are closed for every cell."},
    {"dns_refused", "The policy does not name this host, so it is not resolved. Whoever runs the "
                    "cell can add an allow rule for it."},
    {"proto_blocked", "Only TCP and DNS pass, and UDP where a rule says so; ICMP, QUIC and other "
                      "protocols do not."},
    {"ipv6_closed", "IPv6 is off in this cell; use IPv4."},
    {"source_spoofed", "The packet did not come from this cell's own address."},
    {"limit", "A limit of the policy on connections, bytes or rate is reached."},
    {"policy_changed", "The policy was changed and no longer allows this connection."},
    {"broker_down", "The gate of this cell is down; nothing passes."},
    {"upstream_failed", "The policy allows it, but the other side could not be reached."},
    {"sni_missing", "The rule needs TLS with a server name in its first message."},
    {"sni_mismatch", "The server name in TLS is not the name that was resolved."},
    {"host_mismatch", "The request's Host is not the name that the connection is for."},
    {"not_tls", "The rule allows TLS only on this port."},
    {"resolved_private", "The name points to a private or reserved address, which is closed."},
    {"dns_suspect",
     "The name looks like data in a question; the policy's limits on names refuse it."},
    {"bad_request", "The request can be read in two ways, so it was refused; send plain HTTP."},
    {"name_invalid", "This is not a valid host name."},
    {"method_path", "The rule does not allow this method or path."},
    {"credential_mismatch",
     "A placeholder may be sent only to the host that its credential is for."},
    {"placeholder_missing", "The rule wants the placeholder of a credential in the request."},
};

const char *denial_help(const char *reason, size_t len)
{
    size_t i;

    for (i = 0; i < ARRAY_LEN(helps); i++)
        if (strlen(helps[i].reason) == len && !memcmp(helps[i].reason, reason, len))
            return helps[i].help;
    return "";
}

static int file_new(int dir, const char *name)
{
    int fd =
        openat(dir, name, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0444);

    return fd < 0 ? -errno : fd;
}

int denials_open(struct denials *d, int borrow_dir)
{
    int dir = fcntl(borrow_dir, F_DUPFD_CLOEXEC, 3), fd = dir < 0 ? -errno : file_new(dir, NAME);

    if (fd < 0) {
        if (dir >= 0)
            close(dir);
        return fd;
    }
    *d = (struct denials){dir, fd, 0, 0};
    return 0;
}

void denials_close(struct denials *d)
{
    if (d->fd >= 0)
        close(steal_fd(&d->fd));
    if (d->dir >= 0)
        close(steal_fd(&d->dir));
}

/* The newer half into a file of its own, from the first whole line on. */
static int halve(struct denials *d)
{
    auto_free char *text = malloc(DENIALS_MAX / 2);
    auto_close int fd = -1;
    const char *line;
    ssize_t n;
    size_t keep;

    if (!text)
        return -ENOMEM;
    n = pread(d->fd, text, DENIALS_MAX / 2, (off_t)(d->bytes - DENIALS_MAX / 2));
    if (n < 0)
        return -errno;
    line = memchr(text, '\n', (size_t)n);
    keep = line ? (size_t)(text + n - line) - 1 : 0;
    fd = file_new(d->dir, "." NAME);
    if (fd < 0)
        return fd;
    if (keep && write_all(fd, line + 1, keep) < 0)
        return -EIO;
    if (renameat(d->dir, "." NAME, d->dir, NAME) < 0)
        return -errno;
    close(d->fd);
    d->fd = steal_fd(&fd);
    d->bytes = keep;
    d->halved++;
    return 0;
}

static int field_name_ok(const char *s)
{
    size_t n;

    for (n = 0; s && s[n]; n++)
        if (n == 32 ||
            !((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9') || s[n] == '_'))
            return 0;
    return n > 0;
}

static void field_add(struct buf *b, const struct cella_field *f)
{
    size_t n = f->str.len < CELLA_EVENT_STR_MAX ? f->str.len : CELLA_EVENT_STR_MAX;

    buf_addf(b, ", \"%s\": ", f->name);
    if (f->type == CELLA_FIELD_STR)
        buf_json_string(b, f->str.ptr ? f->str.ptr : "", f->str.ptr ? n : 0);
    else if (f->type == CELLA_FIELD_BOOL)
        buf_addf(b, "%s", f->i64 ? "true" : "false");
    else
        buf_addf(b, "%lld", (long long)f->i64);
}

static void line_build(struct buf *b, const struct cella_event *event, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    const char *help = "";
    struct tm tm;
    char when[32];
    uint32_t i, n = event->fields && event->field_stride >= sizeof(struct cella_field)
                        ? event->n_fields
                        : 0;

    gmtime_r(&seconds, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    buf_addf(b, "{\"time\": \"%s.%03uZ\"", when, (unsigned)(wall_ns / 1000000u % 1000u));
    for (i = 0; i < n && i < CELLA_EVENT_FIELDS_MAX; i++) {
        const struct cella_field *f =
            (const void *)((const char *)event->fields + (uint64_t)i * event->field_stride);
        if (!field_name_ok(f->name) || !strcmp(f->name, "time") || !strcmp(f->name, "help"))
            continue;
        field_add(b, f);
        if (!strcmp(f->name, "reason") && f->type == CELLA_FIELD_STR && f->str.ptr)
            help = denial_help(f->str.ptr, f->str.len);
    }
    buf_addf(b, ", \"help\": \"%s\"}\n", help);
}

void denials_add(struct denials *d, const struct cella_event *event, uint64_t wall_ns)
{
    auto_buf struct buf b = BUF_INIT;

    if (d->fd < 0)
        return;
    line_build(&b, event, wall_ns);
    if (b.oom || b.len > LINE_MAX_)
        return;
    if ((d->bytes + b.len > DENIALS_MAX && halve(d) < 0) || write_all(d->fd, b.ptr, b.len) < 0) {
        denials_close(d);
        return;
    }
    d->bytes += b.len;
}
