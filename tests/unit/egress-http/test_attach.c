/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * The HTTP engine as the enforcer starts it: only for policies that need it, with the secrets their rules
 * name, a certificate for the cell, and an end when it should have one.
 */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../egress/net.h"

#define RULE(host, secret)                                                                         \
    "{\"version\":1,\"allow\":[{\"id\":\"api\",\"host\":\"" host                                   \
    "\",\"ports\":[443],\"layer\":\"http\",\"inject\":[{\"secret\":\"" secret                      \
    "\",\"surface\":\"header\",\"name\":\"x-api-key\",\"placeholder\":\"sk-cella__K__\"}]}]}"
#define VALUE "sk-a-real-one-0123456789"

static char asked[256];

static int64_t secret(void *ctx, const char *name, const char *purpose, char *buf, uint64_t cap,
                      struct cella_error *err)
{
    const char *value = !strcmp(name, "two-lines") ? "a\nb" : VALUE;

    (void)ctx;
    snprintf(asked, sizeof(asked), "%s for %s", name, purpose);
    if (!strcmp(name, "unknown")) {
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

    return world.ops->apply(cell, &policy, &applied, &err);
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

    (void)state;
    assert_int_equal(apply(cell, RULE("api.example.com", "key"), 2, msg), 0);
    assert_int_not_equal(engine(), 0);
    assert_int_equal(apply(cell, RULE("api.example.com", "other"), 3, msg), 0);
    assert_string_equal(asked, "other for inject:api");
    assert_int_equal(apply(cell, RULE("elsewhere.example.com", "key"), 4, msg), -EINVAL);
    assert_non_null(strstr(msg, "ca-names=any"));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_where_needed),      cmocka_unit_test(test_later),
        cmocka_unit_test(test_refused_without_secret), cmocka_unit_test(test_death),
        cmocka_unit_test(test_not_to_be_read),
    };
    int r;

    if (geteuid() != 0) {
        fputs("needs root: it makes network namespaces\n", stderr);
        return 77;
    }
    world_up();
    world.host.secret = secret;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    world_down();
    return r;
}
