/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * trust-enforcer - an enforcer without a network, for tests of what the host does for one: it gives out the authority
 * that its option names, asks for secrets when it is told to, and reports denials that nobody tried. It never shows a
 * value: only its length and the sum of its bytes. Threads: one.
 */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cella/enforcer.h>
#include <cella/plugin.h>

#define VALUE_MAX 64

struct trust {
    const struct cella_host *host;
    char ca[CELLA_CA_PEM_MAX + 1];
    size_t ca_len;
    uint64_t generation;
    char secret[64], phase[64]; /* fetched again with each change; "" = none */
    long sum;                   /* of that secret's value */
};

/* Sum of the value's bytes, or the host's error. */
static long fetch(struct trust *t, const char *name, const char *purpose, uint64_t cap,
                  int64_t *ret_len, unsigned *ret_left, struct cella_error *err)
{
    char value[VALUE_MAX];
    long sum = 0;
    size_t i;

    *ret_left = 0;
    if (!CELLA_HOST_HAS(t->host, secret))
        return cella_error_set(err, -ENOSYS, 1, "this host gives no secrets to an enforcer");
    memset(value, '?', sizeof(value));
    *ret_len = t->host->secret(t->host->ctx, name, purpose, value, cap, err);
    for (i = 0; *ret_len >= 0 && i < (size_t)*ret_len; i++)
        sum += (unsigned char)value[i];
    for (i = *ret_len > 0 ? (size_t)*ret_len : 0; i < cap; i++)
        *ret_left += value[i] != 0;
    explicit_bzero(value, sizeof(value));
    return *ret_len < 0 ? (long)*ret_len : sum;
}

static int renew(struct trust *t, struct cella_error *err)
{
    int64_t len;
    unsigned left;
    long sum;

    if (!t->secret[0])
        return 0;
    sum = fetch(t, t->secret, "inject:renew", VALUE_MAX, &len, &left, err);
    if (sum >= 0)
        t->sum = sum;
    return sum < 0 ? (int)sum : 0;
}

static int trust_probe(const struct cella_host *host, const struct cella_probe_report *report,
                       struct cella_error *err)
{
    (void)host, (void)err;
    report->capability(report->ctx, "net.tcp", CELLA_NONE, "a test without a network");
    return 0;
}

static int ca_read(struct trust *t, const char *path, struct cella_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, t->ca, sizeof(t->ca));

    if (fd >= 0)
        close(fd);
    if (n < 0)
        return cella_error_set(err, -errno, 1, "%s: %s", path, strerror(errno));
    t->ca_len = (size_t)n;
    return 0;
}

/* The cell's own loopback, so that a test can serve and ask inside one cell. In a child: the host's thread stays where it is. */
static int loopback_up(int netns, struct cella_error *err)
{
    pid_t pid = netns < 0 ? 0 : fork();
    struct ifreq ifr = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int status = 0, s;

    if (netns < 0)
        return 0;
    if (pid == 0) {
        s = setns(netns, CLONE_NEWNET) < 0 ? -1 : socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        _exit(s < 0 || ioctl(s, SIOCSIFFLAGS, &ifr) < 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status)
        return cella_error_set(err, -EIO, 1, "the cell's loopback cannot be set up");
    return 0;
}

static int trust_attach(const struct cella_host *host, const struct cella_attach *attach,
                        void **ret_self, struct cella_attached *ret, struct cella_error *err)
{
    const struct cella_option_value *ca = cella_options_get(attach->options, "ca");
    const struct cella_option_value *secret = cella_options_get(attach->options, "secret");
    struct trust *t = calloc(1, sizeof(*t));
    int r = 0;

    if (!t)
        return cella_error_set(err, -ENOMEM, 1, "out of memory");
    t->host = host;
    t->generation = attach->policy->generation;
    snprintf(t->secret, sizeof(t->secret), "%s", secret && secret->str ? secret->str : "");
    if (ca && ca->str && *ca->str)
        r = ca_read(t, ca->str, err);
    if (r == 0)
        r = renew(t, err);
    if (r == 0)
        r = loopback_up(attach->borrow_netns_fd, err);
    if (r < 0) {
        free(t);
        return r;
    }
    ret->own_tap_fd = ret->borrow_exit_fd = -1;
    ret->ca_pem = (struct cella_span){t->ca_len ? t->ca : NULL, t->ca_len};
    if (attach->link != CELLA_LINK_NONE)
        snprintf(ret->address, sizeof(ret->address), "192.0.2.77/32");
    *ret_self = t;
    return 0;
}

static void trust_detach(void *self)
{
    free(self);
}

static int trust_reap(const struct cella_host *host, const struct cella_reap *reap,
                      struct cella_error *err)
{
    (void)host, (void)reap, (void)err;
    return 0;
}

static int applied(struct trust *t, uint64_t generation, struct cella_applied *ret,
                   struct cella_error *err)
{
    int r = renew(t, err);

    if (r < 0)
        return r;
    t->generation = ret->generation = generation;
    ret->killed = 0;
    return 0;
}

static int trust_apply(void *self, const struct cella_policy *policy, struct cella_applied *ret,
                       struct cella_error *err)
{
    struct trust *t = self;

    t->phase[0] = 0;
    return applied(t, policy->generation, ret, err);
}

static int trust_phase(void *self, const char *phase, uint64_t generation,
                       struct cella_applied *ret, struct cella_error *err)
{
    struct trust *t = self;

    if (!strcmp(phase, "broken"))
        return cella_error_set(err, -EIO, 1, "this phase breaks on the way");
    snprintf(t->phase, sizeof(t->phase), "%s", phase);
    return applied(t, generation, ret, err);
}

static int64_t trust_ask(void *self, const char *name, const char *purpose, uint32_t cap, char *buf,
                         uint64_t buf_cap, struct cella_error *err)
{
    unsigned left = 0;
    int64_t len = 0;
    char message[256] = "";
    struct cella_error own = {.msg = message, .msg_cap = sizeof(message)};
    long sum = fetch(self, name, purpose, cap > VALUE_MAX ? VALUE_MAX : cap, &len, &left, &own);
    int n;

    if (sum < 0)
        return cella_error_set(err, (int)sum, 1, "left %u: %s", left, message);
    n = snprintf(buf, buf_cap, "{\"length\": %lld, \"sum\": %ld, \"left\": %u}", (long long)len,
                 sum, left);
    return n < 0 || (uint64_t)n >= buf_cap ? -ENOBUFS : n;
}

static int64_t trust_facts(void *self, char *buf, uint64_t cap, struct cella_error *err)
{
    const struct trust *t = self;
    int n = snprintf(buf, cap, "{\"generation\": %llu, \"phase\": \"%s\", \"sum\": %ld}",
                     (unsigned long long)t->generation, t->phase, t->sum);

    (void)err;
    return n < 0 || (uint64_t)n >= cap ? -ENOBUFS : n;
}

static int32_t trust_deny(void *self, uint32_t count, const char *reason, const char *name,
                          struct cella_error *err)
{
    const struct trust *t = self;
    uint32_t i;
    int r = 0;

    for (i = 0; r == 0 && i < count; i++) {
        const struct cella_field f[] = {
            {"verdict", CELLA_FIELD_STR, 0, 0, {"deny", 4}},
            {"reason", CELLA_FIELD_STR, 0, 0, {reason, strlen(reason)}},
            {"name", CELLA_FIELD_STR, 0, 0, {name, strlen(name)}},
            {"port", CELLA_FIELD_INT, 0, i, {NULL, 0}},
        };
        const struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                                      .kind = "net.deny",
                                      .fields = f,
                                      .n_fields = 4,
                                      .field_stride = sizeof(f[0])};
        r = t->host->emit(t->host->ctx, &e);
    }
    return r < 0 ? cella_error_set(err, r, 1, "event %u: %s", i, strerror(-r)) : 0;
}

static const struct cella_option options[] = {
    {"ca", "file with the authority to give out", "", NULL, CELLA_OPT_STRING, 0, 0, 0},
    {"secret", "name of a secret to fetch with each change", "", NULL, CELLA_OPT_STRING, 0, 0, 0},
};

static const struct cella_method methods[] = {
    {"ask", "str name, str purpose, u32 cap -> json", "asks the host for a secret",
     (cella_method_fn)trust_ask, 0, 0},
    {"facts", "-> json", "what is in force", (cella_method_fn)trust_facts, 0, 0},
    {"deny", "u32 count, str reason, str name -> i32", "reports denials",
     (cella_method_fn)trust_deny, 0, 0},
};

static const struct cella_enforcer_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_enforcer_ops, CELLA_KIND_ENFORCER),
    .name = "trust-enforcer",
    .version = "1.0",
    .summary = "test: no network; an authority, secrets and denials on demand",
    .options = options,
    .n_options = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .methods = methods,
    .n_methods = sizeof(methods) / sizeof(methods[0]),
    .method_stride = sizeof(methods[0]),
    .probe = trust_probe,
    .attach = trust_attach,
    .detach = trust_detach,
    .reap = trust_reap,
    .apply = trust_apply,
    .phase = trust_phase,
};
CELLA_REGISTER(CELLA_KIND_ENFORCER, ops)
