/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The HTTP engine as the enforcer starts it: only for policies that need it, with the secrets their rules
 * name, a certificate for the cell, and an end when it should have one.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../egress/net.h"

#define RULE(host, secret)                                                                         \
    "{\"version\":1,\"allow\":[{\"id\":\"api\",\"host\":\"" host                                   \
    "\",\"ports\":[443],\"layer\":\"http\",\"inject\":[{\"secret\":\"" secret                      \
    "\",\"surface\":\"header\",\"name\":\"x-api-key\",\"placeholder\":\"sk-cella__K__\"}]}]}"
#define VALUE "sk-a-real-one-0123456789"
#define VALUE_SHA256 "45d22cf02475213262dc6645c6b06b20663286d28bb6ce5c38e5133ec1ca6aae"

static char asked[256];
static uint64_t killed;
static char applied_pem[CELLA_CA_PEM_MAX];
static int withheld;

static int64_t secret(void *ctx, const char *name, const char *purpose, char *buf, uint64_t cap,
                      struct cella_error *err)
{
    const char *value = !strcmp(name, "two-lines") ? "a\nb" : VALUE;

    (void)ctx;
    snprintf(asked, sizeof(asked), "%s for %s", name, purpose);
    if (withheld || !strcmp(name, "unknown")) {
        err->msg_len = (uint32_t)snprintf(err->msg, err->msg_cap, "no provider knows it");
        return err->code = -ENOENT;
    }
    if (strlen(value) > cap)
        return -ENOBUFS;
    memcpy(buf, value, strlen(value));
    return (int64_t)strlen(value);
}

/* Process id of the engine this process started, 0: none. */
static pid_t engine(void)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    char path[300], comm[64], stat[512];
    pid_t found = 0, parent;
    FILE *f;

    while (d && (e = readdir(d))) {
        snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
        f = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? fopen(path, "re") : NULL;
        if (f && fgets(stat, sizeof(stat), f) &&
            sscanf(stat, "%*d (%63[^)]) %*c %d", comm, &parent) == 2 && parent == getpid() &&
            !strcmp(comm, "cella-gate-http"))
            found = atoi(e->d_name);
        if (f)
            fclose(f);
    }
    if (d)
        closedir(d);
    return found;
}

static int certificates(const char *pem)
{
    int n = 0;

    for (; (pem = strstr(pem, "BEGIN CERTIFICATE")); pem++)
        n++;
    return n;
}

static struct cella_attached blank(void)
{
    return (struct cella_attached){.hdr =
                                       CELLA_HDR_INIT(struct cella_attached, CELLA_KIND_ATTACHED)};
}

static int apply(void *cell, const char *document, uint64_t generation, char msg[1024])
{
    struct cella_error err = {
        .hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR), .msg = msg, .msg_cap = 1024};
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "test",
                                  .document = {document, strlen(document)},
                                  .generation = generation};
    struct cella_applied applied = {.hdr =
                                        CELLA_HDR_INIT(struct cella_applied, CELLA_KIND_APPLIED)};

    int r = world.ops->apply(cell, &policy, &applied, &err);

    killed = applied.killed;
    snprintf(applied_pem, sizeof(applied_pem), "%.*s", (int)applied.ca_pem.len,
             applied.ca_pem.len ? (const char *)applied.ca_pem.ptr : "");
    return r;
}

static void test_only_where_needed(void **state)
{
    struct cella_attached at = blank();
    void *cell = attach_cell(0, "{}", &at);

    (void)state;
    assert_int_equal(engine(), 0);
    assert_int_equal(at.ca_pem.len, 0);
    world.ops->detach(cell);
    at = blank();
    cell = attach_cell(0, RULE("api.example.com", "key"), &at);
    assert_int_not_equal(engine(), 0);
    assert_non_null(memmem(at.ca_pem.ptr, at.ca_pem.len, "BEGIN CERTIFICATE", 17));
    assert_null(memmem(at.ca_pem.ptr, at.ca_pem.len, "PRIVATE", 7));
    assert_string_equal(asked, "key for inject:api");
    world.ops->detach(cell);
    assert_int_equal(engine(), 0);
}

static void test_later(void **state)
{
    struct cella_attached at = blank();
    char msg[1024] = "";
    void *cell = attach_cell(0, "{}", &at);
    char *one;

    (void)state;
    assert_int_equal(apply(cell, RULE("api.example.com", "key"), 2, msg), 0);
    assert_int_not_equal(engine(), 0);
    assert_int_equal(apply(cell, RULE("api.example.com", "other"), 3, msg), 0);
    assert_string_equal(asked, "other for inject:api");
    one = strdup(applied_pem);
    assert_int_equal(apply(cell, RULE("elsewhere.example.com", "key"), 4, msg), 0);
    assert_int_equal(strncmp(applied_pem, one, strlen(one)), 0); /* what was trusted stays */
    assert_int_equal(certificates(one), 1);
    assert_int_equal(certificates(applied_pem), 2);
    assert_int_equal(apply(cell, RULE("elsewhere.example.com", "key"), 4, msg), 0);
    assert_int_equal(certificates(applied_pem), 2);
    free(one);
    assert_int_equal(apply(cell, RULE("api.example.com", "unknown"), 5, msg), -ENOENT);
    assert_non_null(strstr(msg, "secret \"unknown\""));
    assert_int_equal(apply(cell, RULE("api.example.com", "two-lines"), 6, msg), -EINVAL);
    assert_null(strstr(msg, VALUE));
    assert_int_equal(apply(cell, "{}", 7, msg), 0);
    world.ops->detach(cell);
}

static void test_refused_without_secret(void **state)
{
    char msg[1024] = "";
    struct cella_error err = {.hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR),
                              .msg = msg,
                              .msg_cap = sizeof(msg)};
    static const char text[] = RULE("api.example.com", "unknown");
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "test",
                                  .document = {text, sizeof(text) - 1},
                                  .generation = 1};
    struct cella_attach at = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                              .cell_id = "aaaaaaaaaaaa",
                              .scratch = "/tmp",
                              .link = CELLA_LINK_NETNS,
                              .borrow_uplink_fd = world.uplink_ns,
                              .policy = &policy};
    struct cella_attached got = blank();
    void *self = NULL;

    (void)state;
    fresh_cell(0);
    at.borrow_netns_fd = world.cell_ns[0];
    assert_int_equal(world.ops->attach(&world.host, &at, &self, &got, &err), -ENOENT);
    assert_non_null(strstr(msg, "rule \"api\" injects the secret \"unknown\""));
    assert_null(self);
    assert_int_equal(engine(), 0);
}

static void test_death(void **state)
{
    struct cella_attached at = blank();
    char msg[1024] = "";
    void *cell = attach_cell(0, RULE("api.example.com", "key"), &at);
    pid_t pid = engine();

    (void)state;
    forget_events();
    assert_int_not_equal(pid, 0);
    kill(pid, SIGKILL); /* ours, and its parent has not waited for it */
    host_turn(200);
    assert_non_null(find_event("net.deny", "broker_down", "", 0));
    assert_int_equal(engine(), 0);
    assert_int_equal(apply(cell, RULE("api.example.com", "key"), 2, msg), -EPIPE);
    assert_non_null(strstr(msg, "Start a new cell"));
    assert_int_equal(apply(cell, "{}", 3, msg), 0);
    world.ops->detach(cell);
}

static void kill_engine(const struct cella_attached *at)
{
    struct pollfd p = {.fd = at->borrow_exit_fd, .events = POLLIN};
    pid_t pid = engine();
    int i;

    assert_int_not_equal(pid, 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    kill(pid, SIGKILL);
    for (i = 0; i < turns_most() && (poll(&p, 1, 0) != 1 || engine()); i++)
        host_turn(20); /* which is how its end is heard of */
    assert_int_equal(poll(&p, 1, 0), 1);
    assert_int_equal(engine(), 0);
}

/* Another engine, another gate: the authority that the cell trusts is the same, also one added later. */
static void test_again(void **state)
{
    struct cella_attached at = blank();
    char msg[1024] = "";
    void *cell = attach_cell(0, RULE("api.example.com", "key"), &at);
    uint64_t gate = at.gate_pid;
    struct pollfd p = {.fd = at.borrow_exit_fd, .events = POLLIN};

    (void)state;
    assert_int_equal(apply(cell, RULE("elsewhere.example.com", "key"), 2, msg), 0);
    kill_engine(&at);
    asked[0] = 0;
    assert_int_equal(world.ops->restart(cell, &at, NULL), 0);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_int_equal(at.gate_pid, gate); /* it lives */
    assert_int_not_equal(engine(), 0);
    assert_string_equal(asked, "key for inject:api");
    assert_int_equal(at.ca_pem.len, strlen(applied_pem));
    assert_memory_equal(at.ca_pem.ptr, applied_pem, at.ca_pem.len);
    kill((pid_t)gate, SIGKILL);
    assert_int_equal(poll(&p, 1, 10000), 1);
    withheld = 1; /* a secret that is gone stops its requests, not the gate */
    assert_int_equal(world.ops->restart(cell, &at, NULL), 0);
    withheld = 0;
    assert_int_not_equal(at.gate_pid, gate);
    assert_memory_equal(at.ca_pem.ptr, applied_pem, at.ca_pem.len);
    assert_int_equal(apply(cell, RULE("third.example.com", "key"), 3, msg), 0);
    assert_int_equal(certificates(applied_pem), 3);
    world.ops->detach(cell);
    assert_int_equal(engine(), 0);
}

#define PHASE(name, host, secret)                                                                  \
    "\"" name "\":{\"allow\":[{\"id\":\"" name "\",\"host\":\"" host                               \
    "\",\"ports\":[443],\"layer\":\"http\",\"inject\":[{\"secret\":\"" secret                      \
    "\",\"surface\":\"header\",\"name\":\"x-api-key\",\"placeholder\":\"sk-cella__K__\"}]}]}"

static int phase(void *cell, const char *to, uint64_t generation)
{
    char msg[1024] = "";
    struct cella_error err = {
        .hdr = CELLA_HDR_INIT(struct cella_error, CELLA_KIND_ERROR), .msg = msg, .msg_cap = 1024};
    struct cella_applied applied = {.hdr =
                                        CELLA_HDR_INIT(struct cella_applied, CELLA_KIND_APPLIED)};

    return world.ops->phase(cell, to, generation, &applied, &err);
}

/* A phase asks for what its rules need, and does not fail when it cannot be had: tightening must not. */
static void test_phase(void **state)
{
    struct cella_attached at = blank();
    void *cell = attach_cell(
        0,
        "{\"version\":1,\"active\":\"one\",\"phases\":{" PHASE(
            "one", "a.example.com", "first") "," PHASE("two", "b.example.com", "second") "}}",
        &at);

    (void)state;
    asked[0] = 0;
    withheld = 1;
    assert_int_equal(phase(cell, "two", 2), 0);
    assert_string_equal(asked, "second for inject:two");
    assert_int_equal(phase(cell, "two", 3), -ENOENT); /* a changed secret: must be there */
    withheld = 0;
    assert_int_equal(phase(cell, "two", 4), 0);
    world.ops->detach(cell);
}

/* Nothing of a secret in what the process that parses hostile bytes shows of itself. */
static void test_not_to_be_read(void **state)
{
    struct cella_attached at = blank();
    void *cell = attach_cell(0, RULE("api.example.com", "key"), &at);
    char path[64], line[512];
    int limit = -1;
    FILE *f;

    (void)state;
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)engine());
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    assert_string_equal(line, "cella-gate-http");
    assert_string_equal(line + strlen(line) + 1, "api.example.com");
    fclose(f);
    snprintf(path, sizeof(path), "/proc/%d/limits", (int)engine());
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        sscanf(line, "Max core file size %d", &limit);
    fclose(f);
    assert_int_equal(limit, 0);
    world.ops->detach(cell);
}

/* ---- through gate and engine ---- */

#define THROUGH                                                                                    \
    "{\"version\":1,\"allow\":[{\"id\":\"api\",\"host\":\"api.example.com\",\"ports\":[8443],"     \
    "\"layer\":\"http\",\"http\":{\"methods\":[\"GET\"],\"paths\":[\"/v1/**\"]},"                  \
    "\"inject\":[{\"secret\":\"key\",\"surface\":\"header\",\"name\":\"x-api-key\","               \
    "\"placeholder\":\"sk-cella__K__\",\"require\":true}]},"                                       \
    "{\"id\":\"plain\",\"host\":\"api.example.com\",\"ports\":[8088],\"layer\":\"http\"}]}"

static char dir[] = "/tmp/cella-http-XXXXXX";

static int python(void *arg)
{
    char **words = arg;
    char *argv[] = {"python3", THROUGH_PY, words[0], dir, words[1], words[2], NULL};

    execvp("python3", argv);
    return 127;
}

static int cell_says(char *what, char *hash)
{
    char *words[] = {"cell", what, hash};

    return in_ns(world.cell_ns[0], python, words);
}

static void wait_file(const char *name)
{
    char path[64];
    struct stat st;
    int i;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    for (i = 0; i < 10 * turns_most() && stat(path, &st) < 0; i++)
        host_turn(10);
    assert_int_equal(stat(path, &st), 0);
}

static void write_pem(const struct cella_attached *at)
{
    char path[64];
    FILE *f;

    snprintf(path, sizeof(path), "%s/cell-ca.pem", dir);
    f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(at->ca_pem.ptr, 1, at->ca_pem.len, f), at->ca_pem.len);
    fclose(f);
}

static double ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void test_through(void **state)
{
    /* sha256 of VALUE: the server says what it got without saying it */
    static char hash[] = VALUE_SHA256;
    static char roots[64];
    struct cella_attached at = blank();
    char *words[] = {"serve", NULL, NULL}, *hold[] = {"cell", "hold", NULL}, msg[1024] = "";
    pid_t server, holding;
    double before;
    void *cell;
    size_t i;

    (void)state;
    assert_non_null(mkdtemp(dir));
    server = spawn_in_ns(world.uplink_ns, python, words);
    wait_file("ready");
    snprintf(roots, sizeof(roots), "%s/root.pem", dir);
    world.resolvers = "198.51.100.7:5355";
    world.upstream_ca = roots;
    cell = attach_cell(0, THROUGH, &at);
    write_pem(&at);
    forget_events();
    assert_int_equal(cell_says("key", hash), 0);
    assert_int_equal(cell_says("denied", NULL), 0);
    assert_int_equal(cell_says("cut", NULL), 0);
    host_turn(200);
    assert_string_equal(find_event("net.deny", "method_path", "203.0.113.11", 8443)->name,
                        "api.example.com");
    assert_string_equal(find_event("net.allow", "", "203.0.113.11", 8443)->rule, "api");
    assert_true(find_event("net.flow", "", "203.0.113.11", 8443)->tx > 100);
    for (i = 0; i < world.n_seen; i++)
        assert_null(memmem(&world.seen[i], sizeof(world.seen[i]), VALUE, strlen(VALUE)));
    holding = spawn_in_ns(world.cell_ns[0], python, hold);
    wait_file("holding");
    before = ms();
    assert_int_equal(apply(cell, "{}", 2, msg), 0);
    assert_int_equal(wait_child(holding), 0);
    assert_true(ms() - before < 50000); /* by itself it would have waited for 60 s */
    assert_int_equal(killed, 1);
    world.ops->detach(cell);
    kill(server, SIGKILL);
    wait_child(server);
    world.resolvers = world.upstream_ca = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_where_needed),
        cmocka_unit_test(test_later),
        cmocka_unit_test(test_refused_without_secret),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_phase),
        cmocka_unit_test(test_not_to_be_read),
        cmocka_unit_test(test_through),
    };
    char line[64];
    int r;

    if (geteuid() != 0) {
        fputs("needs root: it makes network namespaces\n", stderr);
        return 77;
    }
    world_up();
    world.host.secret = secret;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    world_down();
    snprintf(line, sizeof(line), "rm -rf %s", dir); /* fixed words, and a name of mkdtemp() */
    return system(line) ? 1 : r;
}
