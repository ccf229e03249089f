/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Every hostile plugin of this directory is refused or contained, and the message names it and what
 * it did. What may hang, crash or run a forbidden constructor is tried in a child process.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness.h"

static void path_of(char out[4096], const char *name)
{
    snprintf(out, 4096, "%s/hostile-%s.so", HOSTILE_DIR, name);
}

static struct plugin *load(const char *name)
{
    struct plugin *p = NULL;
    struct errbuf eb;
    char path[4096];

    path_of(path, name);
    assert_ok(plugin_load(path, &p, errbuf_init(&eb)), eb);
    return p;
}

static struct cella_limits limits = {.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};
static const struct cella_spec spec = {.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC),
                                       .cell_id = "abcdefghijkl",
                                       .borrow_userns_fd = -1,
                                       .borrow_netns_fd = -1,
                                       .own_tap_fd = -1,
                                       .borrow_agent_fd = -1,
                                       .limits = &limits};

/* ---- refused at load ---- */
static const struct {
    const char *name, *says;
} refused[] = {
    {"short-size", "too short"},
    {"huge-size", "claims 4294967295 bytes"},
    {"future-major", "built for major version 2"},
    {"future-minor", "it needs version 1.1"},
    {"bad-magic", "wrong magic"},
    {"unknown-kind", "unknown plugin kind (65)"},
    {"no-note", "no cella note"},
    {"table-major", "its table says major version 2"},
    {"backend-as-sink", "its note says sink but its table says backend"},
    {"table-flags", "unknown flags set (0x4)"},
    {"null-table", "returned no table"},
    {"missing-ops", "required operation missing: create, reap"},
    {"bad-name", "no valid name"},
    {"method-reserved", "method \"poke\" has flags or reserved members"},
    {"method-signature", "one of the types"},
    {"option-default", "option \"pool\": its default \"99\""},
    {"option-stride", "stride of 8 bytes"},
};

/* Runs fn in a child with its stderr in `out`; returns the wait status. */
static int in_child(void (*fn)(const char *name, int report_fd), const char *name, char *out,
                    size_t cap)
{
    int pipe_fd[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t pid;

    assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pipe_fd[0]);
        fn(name, pipe_fd[1]);
        _exit(0);
    }
    close(pipe_fd[1]);
    while (n < cap - 1 && (got = read(pipe_fd[0], out + n, cap - 1 - n)) > 0)
        n += (size_t)got;
    out[n] = 0;
    close(pipe_fd[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void load_report(const char *name, int report_fd)
{
    struct plugin *p = NULL;
    struct errbuf eb;
    char path[4096];

    path_of(path, name);
    if (plugin_load(path, &p, errbuf_init(&eb)) == 0) {
        plugin_unload(p);
        dprintf(report_fd, "LOADED");
    } else {
        dprintf(report_fd, "%s", eb.text);
    }
}

static void load_refuses(void **state)
{
    char out[2048], file[128];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(refused); i++) {
        int status = in_child(load_report, refused[i].name, out, sizeof(out));
        assert_true(WIFEXITED(status)); /* 66: a constructor ran that must not */
        assert_int_equal(WEXITSTATUS(status), 0);
        snprintf(file, sizeof(file), "hostile-%s.so", refused[i].name);
        assert_says(out, file);
        assert_says(out, refused[i].says);
    }
    in_child(load_report, "honest", out, sizeof(out));
    assert_string_equal(out, "LOADED");
}

/* ---- file and directory ---- */
static void copy(const char *to, unsigned mode, size_t most)
{
    auto_free char *data = NULL;
    char path[4096];
    size_t len;
    int fd;

    path_of(path, "honest");
    assert_int_equal(read_file_at(AT_FDCWD, path, 16 << 20, &data, &len), 0);
    unlink(to);
    fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, data, len < most ? len : most), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void refuses(const char *path, const char *says)
{
    struct plugin *p = NULL;
    struct errbuf eb;

    if (plugin_load(path, &p, errbuf_init(&eb)) == 0)
        fail_msg_("%s was loaded, \"%s\" was expected", path, says);
    assert_says(eb.text, path);
    assert_says(eb.text, says);
}

static void loads(const char *path)
{
    struct plugin *p = NULL;
    struct errbuf eb;

    assert_ok(plugin_load(path, &p, errbuf_init(&eb)), eb);
    assert_string_equal(p->name, "honest");
    plugin_unload(p);
}

static void file_modes(void **state)
{
    char dir[] = "/tmp/cella-hostile-XXXXXX", file[64], sub[64], link_[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(sub, sizeof(sub), "%s/sub", dir);
    snprintf(file, sizeof(file), "%s/sub/x.so", dir);
    snprintf(link_, sizeof(link_), "%s/link.so", dir);
    assert_int_equal(mkdir(sub, 0755), 0);
    copy(file, 0755, SIZE_MAX);
    loads(file); /* below /tmp, which is sticky */
    assert_int_equal(symlink(file, link_), 0);
    loads(link_);
    copy(file, 0757, SIZE_MAX);
    refuses(file, "writable by everybody");
    copy(file, 0775, SIZE_MAX);
    refuses(file, "writable by its group");
    copy(file, 0755, SIZE_MAX);
    if (geteuid() == 0) {
        assert_int_equal(chown(file, 12345, 0), 0);
        refuses(file, "belongs to user 12345");
        assert_int_equal(chown(file, 0, 0), 0);
    }
    assert_int_equal(chmod(sub, 0777), 0);
    refuses(file, "writable by everybody");
    assert_int_equal(chmod(sub, 01777), 0); /* sticky is not enough for the last directory */
    refuses(file, "writable by everybody");
    assert_int_equal(chmod(sub, 0755), 0);
    assert_int_equal(chmod(dir, 0777), 0);
    refuses(file, "writable by everybody");
    assert_int_equal(chmod(dir, 0700), 0);
    refuses(sub, "not a regular file");
    unlink(file);
    assert_int_equal(mkfifo(file, 0600), 0);
    refuses(file, "not a regular file");
    refuses("tests/x.so", "must be absolute");
    refuses("/nonexistent/x.so", "No such file");
    assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

static void broken_files(void **state)
{
    char dir[] = "/tmp/cella-hostile-XXXXXX", file[64];
    size_t cut;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/x.so", dir);
    copy(file, 0600, 0);
    refuses(file, "not an ELF file");
    for (cut = 1; cut < 12000; cut += cut < 1024 ? 61 : 1021) {
        copy(file, 0600, cut);
        refuses(file, "ELF");
    }
    assert_int_equal(replace_file_at(AT_FDCWD, file, "#!/bin/sh\n", 10, 0600), 0);
    refuses(file, "not an ELF file");
    assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

/* Two different objects through the same descriptor number must not be taken for each other. */
static void not_mixed_up(void **state)
{
    struct plugin *a = load("honest"), *b = load("honest-decider"), *c = load("honest");

    (void)state;
    assert_string_equal(a->name, "honest");
    assert_string_equal(b->name, "honest-decider");
    plugin_unload(a);
    plugin_unload(b);
    b = load("honest-decider");
    assert_string_equal(b->name, "honest-decider");
    assert_string_equal(c->name, "honest");
    plugin_unload(b);
    plugin_unload(c);
}

/* ---- contained in calls ---- */
static void probe_refuses(void **state)
{
    static const struct {
        const char *name, *says;
    } lies[] = {
        {"lying-capability", "claims the capability pause without that operation"},
        {"unknown-answer", "capability userns with an unknown answer (4000)"},
        {"unknown-strength", "unknown strength (9000)"},
        {"probe-reserved", "reserved member"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(lies); i++) {
        struct plugin *p = load(lies[i].name);
        struct probe_result res;
        struct errbuf eb;
        assert_int_equal(backend_probe(p, &test_host, 0, &res, errbuf_init(&eb)), -EPROTO);
        assert_says(eb.text, lies[i].name);
        assert_says(eb.text, "probe");
        assert_says(eb.text, lies[i].says);
        plugin_unload(p);
    }
}

static void lying_limit(void **state)
{
    struct plugin *p = load("lying-limit");
    struct probe_result res;
    struct cella_started st;
    struct backend b;
    struct errbuf eb;

    (void)state;
    assert_ok(backend_probe(p, &test_host, 0, &res, errbuf_init(&eb)), eb);
    limits.pids = 3;
    limits.cpu_millis = 1000;
    assert_int_equal(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), -ENOTSUP);
    assert_null(strstr(eb.text, "limit.cpu")); /* not what it refused */
    assert_says(eb.text, "lying-limit claimed limit.pids (native) in its probe and refuses it now");
    assert_says(eb.text, "no pids controller");
    limits.pids = limits.cpu_millis = 0;
    assert_ok(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), eb);
    assert_ok(backend_start(&b, &st, errbuf_init(&eb)), eb);
    assert_int_equal(backend_pause(&b, errbuf_init(&eb)), -EOPNOTSUPP);
    assert_says(eb.text, "claimed pause (emulated)");
    assert_int_equal(b.state, BACKEND_RUNNING);
    backend_destroy(&b);
    plugin_unload(p);
}

static void create_refuses(void **state)
{
    static const struct {
        const char *name, *says;
    } lies[] = {
        {"positive-errno", "returned 28 (positive"},
        {"no-instance", "succeeded without an instance"},
    };
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(lies); i++) {
        struct plugin *p = load(lies[i].name);
        struct backend b = {.state = BACKEND_NONE};
        struct errbuf eb;
        assert_int_equal(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), -EPROTO);
        assert_says(eb.text, lies[i].name);
        assert_says(eb.text, lies[i].says);
        assert_int_equal(b.state, BACKEND_NONE);
        plugin_unload(p);
    }
}

static void forged_message(void **state)
{
    struct plugin *p = load("forged-message");
    struct backend b;
    struct errbuf eb;

    (void)state;
    assert_int_equal(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), -EIO);
    assert_ptr_equal(eb.err.msg, eb.text);
    assert_null(strchr(eb.text, '\n'));
    assert_null(strchr(eb.text, '\033'));
    assert_says(eb.text, "forged-message: create: disk");
    plugin_unload(p);
}

static void bad_descriptors(void **state)
{
    struct plugin *p = load("bad-descriptors");
    struct cella_started st = {.host_pid = 77};
    struct backend b;
    struct errbuf eb;
    int fd = -1;

    (void)state;
    assert_ok(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), eb);
    assert_int_equal(backend_start(&b, &st, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "bad-descriptors");
    assert_says(eb.text, "exit descriptor 900");
    assert_int_equal(st.host_pid, 77); /* untouched on failure */
    assert_int_equal(b.state, BACKEND_RUNNING);
    assert_int_equal(backend_connect(&b, 0, &fd, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "descriptor 1 it returned is not valid");
    assert_int_equal(backend_connect(&b, 1, &fd, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "is not a stream");
    assert_int_equal(fd, -1);
    assert_true(fcntl(1, F_GETFD) >= 0);
    backend_destroy(&b);
    plugin_unload(p);
}

static void leaked_descriptor(void **state)
{
    struct plugin *p = load("leaked-descriptor");
    struct backend b;
    struct errbuf eb;
    int fd, seen = 0;

    (void)state;
    host_log[0] = 0;
    assert_ok(backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)), eb);
    assert_says(host_log, "plugin leaked-descriptor left 1 descriptor without close-on-exec in "
                          "create");
    assert_says(host_log, "/dev/zero");
    for (fd = 3; fd < 64; fd++) {
        char link_[64], target[64] = "";
        snprintf(link_, sizeof(link_), "/proc/self/fd/%d", fd);
        if (readlink(link_, target, sizeof(target) - 1) > 0 && !strcmp(target, "/dev/zero")) {
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
            close(fd);
            seen++;
        }
    }
    assert_int_equal(seen, 1);
    backend_destroy(&b);
    plugin_unload(p);
}

/* ---- the hosting process ---- */
static void host_child(const char *name, int report_fd)
{
    struct plugin *p = NULL;
    struct backend b;
    struct errbuf eb;
    char path[4096];

    path_of(path, name);
    host_log[0] = 0;
    if (plugin_stdio_guard() < 0 || watchdog_init(report_fd) < 0)
        _exit(1);
    watchdog_test_deadline(300);
    if (plugin_load(path, &p, errbuf_init(&eb)) < 0 ||
        backend_create(p, &test_host, &spec, &b, errbuf_init(&eb)) < 0) {
        dprintf(report_fd, "ERROR %s", eb.text);
        _exit(2);
    }
    dprintf(report_fd, "%s", host_log);
}

static void hosting_process(void **state)
{
    static const struct {
        const char *name, *says;
        int status;
    } cases[] = {
        {"hang-create", "did not return from create within 300 ms", 125},
        {"crash-create", "crashed in create (signal SIGSEGV)", 125},
        {"deep-create", "crashed in create (signal SIGSEGV)", 125},
        {"abort-create", "crashed in create (signal SIGABRT)", 125},
        {"crash-load", "crashed in load (signal SIGSEGV)", 125},
        {"stray-output", "wrote 26 bytes to the standard streams in create: \"to stdout", 0},
    };
    char out[2048];
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(cases); i++) {
        int status = in_child(host_child, cases[i].name, out, sizeof(out));
        assert_says(out, cases[i].name);
        assert_says(out, cases[i].says);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), cases[i].status);
        assert_null(strchr(out, '\033'));
        if (cases[i].status == 125)
            assert_says(out, HOSTILE_DIR); /* the path */
    }
    assert_int_equal(in_child(host_child, "honest", out, sizeof(out)), 0);
    assert_string_equal(out, "");
}

/* ---- deciders ---- */
static void deciders(void **state)
{
    static const struct {
        const char *name, *says;
    } lies[] = {
        {"unknown-verdict", "unknown verdict (2500)"},
        {"endless-reason", "not a terminated text"},
        {"failing-decider", "my database is gone"},
    };
    struct cella_request q = {.hdr = CELLA_HDR_INIT(struct cella_request, CELLA_KIND_REQUEST),
                              .operation = "cell.create",
                              .cell_id = "abcdefghijkl",
                              .attribute_stride = sizeof(struct cella_attribute)};
    struct plugin *good = load("honest-decider");
    struct decider chain[2];
    struct cella_verdict v;
    struct errbuf eb;
    const char *who;
    size_t i;

    (void)state;
    assert_ok(decider_create(good, &test_host, NULL, &chain[0], errbuf_init(&eb)), eb);
    deciders_decide(chain, 1, &q, &v, &who);
    assert_int_equal(v.value, CELLA_ALLOW);
    assert_string_equal(who, "honest-decider");
    deciders_decide(chain, 0, &q, &v, &who);
    assert_int_equal(v.value, CELLA_ALLOW);
    assert_string_equal(v.rule, "no-decider");
    for (i = 0; i < ARRAY_LEN(lies); i++) {
        struct plugin *p = load(lies[i].name);
        assert_ok(decider_create(p, &test_host, NULL, &chain[1], errbuf_init(&eb)), eb);
        deciders_decide(chain, 2, &q, &v, &who);
        assert_int_equal(v.value, CELLA_DENY);
        assert_string_equal(who, lies[i].name);
        assert_string_equal(v.rule, "decider-error");
        assert_says(v.reason, lies[i].name);
        assert_says(v.reason, lies[i].says);
        decider_destroy(&chain[1]);
        plugin_unload(p);
    }
    decider_destroy(&chain[0]);
    plugin_unload(good);
}

/* The first refusal is the answer; a second one does not take its place. */
static void first_denial(void **state)
{
    struct plugin *a = load("failing-decider"), *b = load("unknown-verdict");
    struct cella_request q = {.hdr = CELLA_HDR_INIT(struct cella_request, CELLA_KIND_REQUEST),
                              .operation = "cell.create",
                              .cell_id = "abcdefghijkl",
                              .attribute_stride = sizeof(struct cella_attribute)};
    struct decider chain[2] = {{NULL, NULL}, {NULL, NULL}};
    struct cella_verdict v;
    struct errbuf eb;
    const char *who;

    (void)state;
    assert_ok(decider_create(a, &test_host, NULL, &chain[0], errbuf_init(&eb)), eb);
    assert_ok(decider_create(b, &test_host, NULL, &chain[1], errbuf_init(&eb)), eb);
    deciders_decide(chain, 2, &q, &v, &who);
    assert_int_equal(v.value, CELLA_DENY);
    assert_string_equal(who, "failing-decider");
    decider_destroy(&chain[0]);
    decider_destroy(&chain[1]);
    plugin_unload(a);
    plugin_unload(b);
}

/* ---- enforcers ---- */
static struct cella_policy policy = {
    .hdr = CELLA_HDR_INIT(struct cella_policy, CELLA_KIND_POLICY), .name = "deny", .generation = 5};
static struct cella_attach attach = {.hdr = CELLA_HDR_INIT(struct cella_attach, CELLA_KIND_ATTACH),
                                     .cell_id = "abcdefghijkl",
                                     .link = CELLA_LINK_NETNS,
                                     .borrow_netns_fd = -1,
                                     .borrow_uplink_fd = -1,
                                     .policy = &policy};

static void ignore_flow(void *ctx, const struct cella_flow *f)
{
    (void)f;
    ++*(int *)ctx;
}

static void enforcers(void **state)
{
    struct plugin *p = load("endless-address");
    struct cella_attached got = {.gate_pid = 7};
    struct cella_applied applied;
    struct enforcer e = {NULL, NULL};
    struct errbuf eb;
    int flows = 0;

    (void)state;
    host_log[0] = 0;
    assert_int_equal(enforcer_attach(p, &test_host, &attach, &e, &got, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "endless-address broke the contract in attach: an address");
    assert_says(host_log, "endless-address: detached");
    assert_null(e.self);
    assert_int_equal(got.gate_pid, 7);
    plugin_unload(p);

    p = load("wrong-generation");
    attach.link = CELLA_LINK_TAP; /* it returns no tap */
    assert_int_equal(enforcer_attach(p, &test_host, &attach, &e, &got, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "tap descriptor");
    attach.link = CELLA_LINK_NETNS;
    assert_ok(enforcer_attach(p, &test_host, &attach, &e, &got, errbuf_init(&eb)), eb);
    assert_string_equal(got.address, "192.0.2.1/31");
    assert_int_equal(enforcer_apply(&e, &policy, &applied, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "generation 4 is in force, 5 was asked for");
    assert_int_equal(enforcer_report(&e, &flows, ignore_flow, errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "a line of its report is malformed");
    assert_int_equal(flows, 0);
    enforcer_detach(&e);
    plugin_unload(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(load_refuses),    cmocka_unit_test(file_modes),
        cmocka_unit_test(broken_files),    cmocka_unit_test(not_mixed_up),
        cmocka_unit_test(probe_refuses),   cmocka_unit_test(lying_limit),
        cmocka_unit_test(create_refuses),  cmocka_unit_test(forged_message),
        cmocka_unit_test(bad_descriptors), cmocka_unit_test(leaked_descriptor),
        cmocka_unit_test(hosting_process), cmocka_unit_test(deciders),
        cmocka_unit_test(enforcers),       cmocka_unit_test(first_denial),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
