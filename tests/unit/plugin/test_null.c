/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The in-tree examples, loaded as a stranger's plugins would be and walked through their lives. */
#include <fcntl.h>
#include <poll.h>

#include "harness.h"

static struct plugin *load(const char *name)
{
    struct errbuf eb;
    struct plugin *p = NULL;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", PLUGINS_DIR, name);
    assert_ok(plugin_load(path, &p, errbuf_init(&eb)), eb);
    return p;
}

static struct cella_spec spec(const struct cella_limits *limits)
{
    return (struct cella_spec){.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC),
                               .cell_id = "abcdefghijkl",
                               .borrow_userns_fd = -1,
                               .borrow_netns_fd = -1,
                               .own_tap_fd = -1,
                               .borrow_agent_fd = -1,
                               .limits = limits};
}

static void backend_walk(void **state)
{
    struct plugin *p = load("cella-backend-null.so");
    struct cella_spec s = spec(NULL);
    struct cella_started started;
    struct cella_stats stats;
    struct probe_result probe;
    struct backend b;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int fd = -1;
    char byte;

    (void)state;
    assert_string_equal(p->name, "null");
    assert_ok(backend_probe(p, &test_host, 0, &probe, err), eb);
    assert_int_equal(probe.probe.strength, CELLA_STRENGTH_PROCESS);
    assert_ok(backend_create(p, &test_host, &s, &b, err), eb);
    assert_int_equal(backend_connect(&b, 0, &fd, err), -EPROTO); /* not before start */
    assert_says(eb.text, "connect is not possible while the cell is created");
    assert_ok(backend_start(&b, &started, err), eb);
    assert_int_equal(b.state, BACKEND_RUNNING);
    assert_true(fcntl(started.borrow_exit_fd, F_GETFD) & FD_CLOEXEC);
    assert_ok(backend_connect(&b, 0, &fd, err), eb);
    assert_int_equal(read(fd, &byte, 1), 0);
    close(fd);
    assert_int_equal(backend_pause(&b, err), -EOPNOTSUPP);
    assert_ok(backend_stats(&b, &stats, err), eb);
    assert_int_equal(stats.unknown, 0x7ff);
    assert_ok(backend_stop(&b, CELLA_STOP_KILL, 0, err), eb);
    struct pollfd pf = {started.borrow_exit_fd, POLLIN, 0};
    assert_int_equal(poll(&pf, 1, 10000), 1);
    assert_ok(backend_stop(&b, CELLA_STOP_KILL, 0, err), eb);
    assert_int_equal(backend_start(&b, &started, err), -EPROTO);
    backend_destroy(&b);
    assert_int_equal(b.state, BACKEND_NONE);
    plugin_unload(p);
}

static void backend_limits_refused(void **state)
{
    struct plugin *p = load("cella-backend-null.so");
    struct cella_limits l = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS),
                             .memory_bytes = 1 << 20};
    struct cella_spec s = spec(&l);
    struct backend b;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);

    (void)state;
    assert_int_equal(backend_create(p, &test_host, &s, &b, err), -ENOTSUP);
    assert_says(eb.text, "null: create: it enforces no limits");
    l.memory_bytes = 0;
    assert_ok(backend_create(p, &test_host, &s, &b, err), eb);
    backend_destroy(&b);
    plugin_unload(p);
}

static void count_flow(void *ctx, const struct cella_flow *f)
{
    assert_string_equal(f->rule, "no_link");
    ++*(int *)ctx;
}

static void enforcer_walk(void **state)
{
    struct plugin *p = load("cella-enforcer-null.so");
    struct cella_policy policy = {.hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY),
                                  .name = "none",
                                  .generation = 1};
    struct cella_attach a = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                             .cell_id = "abcdefghijkl",
                             .link = CELLA_LINK_NETNS,
                             .borrow_netns_fd = -1,
                             .borrow_uplink_fd = -1,
                             .policy = &policy};
    struct cella_attached got;
    struct cella_applied applied;
    struct enforcer e;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    int flows = 0;

    (void)state;
    assert_int_equal(enforcer_attach(p, &test_host, &a, &e, &got, err), -ENOTSUP);
    a.link = CELLA_LINK_NONE;
    assert_ok(enforcer_check(p, &policy, err), eb);
    assert_ok(enforcer_attach(p, &test_host, &a, &e, &got, err), eb);
    policy.generation = 2;
    assert_ok(enforcer_apply(&e, &policy, &applied, err), eb);
    assert_int_equal(applied.generation, 2);
    assert_int_equal(enforcer_phase(&e, "run", 3, &applied, err), -EOPNOTSUPP);
    assert_ok(enforcer_report(&e, &flows, count_flow, err), eb);
    assert_int_equal(flows, 1);
    enforcer_detach(&e);
    enforcer_detach(&e);
    assert_int_equal(enforcer_apply(&e, &policy, &applied, err), -EPROTO);
    plugin_unload(p);
}

static uint32_t ask(struct decider *d, const char *operation, const char *strength)
{
    struct cella_attribute at = {"strength", {strength, strength ? strlen(strength) : 0}};
    struct cella_request q = {.hdr = CELLA_HDR_INIT(struct cella_request, CELLA_KIND_REQUEST),
                              .operation = operation,
                              .cell_id = "abcdefghijkl",
                              .attributes = &at,
                              .n_attributes = strength ? 1 : 0,
                              .attribute_stride = sizeof(at)};
    struct cella_verdict v;
    const char *who;

    deciders_decide(d, 1, &q, &v, &who);
    return v.value;
}

static void floor_decides(void **state)
{
    struct plugin *p = load("cella-decider-floor.so");
    struct cella_option_value value = {.name = "strength", .str = "user-kernel"};
    struct cella_options o = {.hdr = CELLA_HDR_INIT(struct cella_options, CELLA_KIND_OPTIONS),
                              .values = &value,
                              .n_values = 1,
                              .value_stride = sizeof(value)};
    struct decider d;
    struct errbuf eb;

    (void)state;
    assert_ok(decider_create(p, &test_host, &o, &d, errbuf_init(&eb)), eb);
    assert_int_equal(ask(&d, "cell.create", "process"), CELLA_DENY);
    assert_int_equal(ask(&d, "cell.create", "user-kernel"), CELLA_ALLOW);
    assert_int_equal(ask(&d, "cell.create", "vm"), CELLA_ALLOW);
    assert_int_equal(ask(&d, "cell.create", "vmx"), CELLA_DENY);
    assert_int_equal(ask(&d, "cell.create", NULL), CELLA_DENY);
    assert_int_equal(ask(&d, "cell.exec", "vm"), CELLA_DENY); /* the only decider abstains */
    decider_destroy(&d);
    value.str = "steel";
    assert_int_equal(decider_create(p, &test_host, &o, &d, errbuf_init(&eb)), -EINVAL);
    plugin_unload(p);
}

static void describe_tells(void **state)
{
    struct plugin *p = load("cella-backend-null.so");
    json_t *j = plugin_describe(p, &test_host, 1);
    char *s = json_dumps(j, JSON_COMPACT);

    (void)state;
    assert_says(s, "\"kind\":\"backend\"");
    assert_says(s, "{\"name\":\"pause\",\"required\":false,\"state\":\"default: refused");
    assert_says(s, "\"name\":\"create\",\"required\":true,\"state\":\"present\"");
    assert_says(s, "\"limit.memory\":{\"answer\":\"none\"");
    assert_says(s, "\"libc.so.6\""); /* a sanitizer run needs more before it */
    free(s);
    json_decref(j);
    plugin_unload(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backend_walk),   cmocka_unit_test(backend_limits_refused),
        cmocka_unit_test(enforcer_walk),  cmocka_unit_test(floor_decides),
        cmocka_unit_test(describe_tells),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
