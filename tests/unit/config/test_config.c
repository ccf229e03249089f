/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * config: the exact message for each way a file can be wrong, the typed values of files that are
 * right, who may own a file, and where it is looked for. A directory with a few policies and a
 * plugin stands behind the relative names; "D" in a message is that directory.
 */
#include "config_world.h"

static void test_trust(void **state)
{
    static const char ok[] = "{\"version\": 1}";
    struct config *c = NULL;
    struct errbuf eb;
    char path[128];

    (void)state;
    snprintf(path, sizeof(path), "%s/own.json", dir);
    assert_int_equal(config_load(path, &c, errbuf_init(&eb)), -ENOENT);
    assert_string_equal(shorten(eb.text),
                        "cannot read the configuration D/own.json: No such file or directory");
    put("own.json", ok, strlen(ok), 0646);
    assert_int_equal(config_load(path, &c, errbuf_init(&eb)), -EPERM);
    assert_string_equal(shorten(eb.text),
                        "D/own.json: writable by everyone (mode 0646); run: chmod o-w D/own.json");
    put("own.json", ok, strlen(ok), 0640);
    assert_int_equal(config_load(path, &c, errbuf_init(&eb)), 0);
    config_free(c);
    c = NULL;
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_int_equal(config_load(path, &c, errbuf_init(&eb)), -EPERM);
        assert_string_equal(shorten(eb.text),
                            "D/own.json: owned by user 12345; it must belong to root or to the "
                            "user cella runs as (0)");
    }
    snprintf(path, sizeof(path), "%s/sub", dir);
    assert_int_equal(config_load(path, &c, errbuf_init(&eb)), -EINVAL);
    assert_string_equal(shorten(eb.text), "D/sub: not a regular file");
    snprintf(path, sizeof(path), "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(config_load(path, &c, errbuf_init(&eb)),
                     -EINVAL); /* and does not wait for a writer */
    assert_null(c);
}

static void check_default_class(const struct config_class *k)
{
    assert_string_equal(k->name, "default");
    assert_int_equal(k->floor, CELLA_STRENGTH_PROCESS);
    assert_null(k->backends);
    assert_string_equal(k->policy, "deny");
    assert_string_equal(k->image, "host");
    assert_int_equal(k->limits.memory, 512u << 20);
    assert_int_equal(k->limits.disk, 256u << 20);
    assert_int_equal(k->limits.cpu_millis, 1000);
    assert_int_equal(k->limits.pids, 256);
    assert_int_equal(k->limits.wall_ns, 600ull * 1000000000u);
    assert_int_equal(k->limits.idle_ns, 0);
    assert_int_equal(k->best_effort, 0);
}

static void test_minimal(void **state)
{
    struct config *c = NULL;
    struct errbuf eb;

    (void)state;
    assert_int_equal(load("{\"version\": 1}", &c, &eb), 0);
    assert_string_equal(c->state_dir, "/var/lib/cella");
    assert_null(c->uplink);
    assert_int_equal(c->n_classes, 1);
    check_default_class(config_class_find(c, "default"));
    assert_int_equal(c->n_sinks, 1);
    assert_string_equal(c->sinks[0].name, "audit-jsonl");
    assert_int_equal(c->sinks[0].overflow, OVERFLOW_FAIL_CLOSED);
    assert_null(c->sinks[0].options);
    assert_int_equal(c->n_plugins + c->n_policies + c->n_deciders + c->n_mounts, 0);
    config_free(c);
    config_free(NULL);
}

/* Class "c" with one member and all else default. */
static struct config *load_class(const char *member)
{
    struct config *c = NULL;
    struct errbuf eb;
    char text[512];

    snprintf(text, sizeof(text),
             "{\"version\": 1, \"policies\": {\"web\": {\"file\": \"ok.json\"}},"
             " \"classes\": {\"c\": {\"floor\": \"vm\", %s}}}",
             member);
    if (load(text, &c, &eb) < 0)
        print_error("%s\n", eb.text);
    assert_non_null(c);
    assert_int_equal(c->n_classes, 1);
    assert_string_equal(c->classes[0].pointer, "/classes/c");
    return c;
}

struct good_limit {
    const char *text;
    size_t offset;
    uint64_t value;
};

#define LIMIT(name) offsetof(struct config_limits, name)
static const struct good_limit good_limits[] = {
    {"\"memory\": \"64M\"", LIMIT(memory), 64u << 20},
    {"\"memory\": 4194304", LIMIT(memory), 4u << 20},
    {"\"disk\": \"1G\"", LIMIT(disk), 1u << 30},
    {"\"cpus\": 2", LIMIT(cpu_millis), 2000},
    {"\"cpus\": 0.25", LIMIT(cpu_millis), 250},
    {"\"cpus\": 0.01", LIMIT(cpu_millis), 10},
    {"\"pids\": 1", LIMIT(pids), 1},
    {"\"wall\": \"250ms\"", LIMIT(wall_ns), 250000000},
    {"\"wall\": 90", LIMIT(wall_ns), 90000000000ull},
    {"\"wall\": \"none\"", LIMIT(wall_ns), 0},
    {"\"idle\": \"2m\"", LIMIT(idle_ns), 120000000000ull},
    {"\"io_read\": \"10M\"", LIMIT(io_read_bps), 10u << 20},
    {"\"io_write\": \"none\"", LIMIT(io_write_bps), 0},
};

static void test_limits(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(good_limits); i++) {
        char member[128];
        struct config *c;

        snprintf(member, sizeof(member), "\"limits\": {%s}", good_limits[i].text);
        c = load_class(member);
        assert_int_equal(*(uint64_t *)((char *)&c->classes[0].limits + good_limits[i].offset),
                         good_limits[i].value);
        if (good_limits[i].offset != LIMIT(pids))
            assert_int_equal(c->classes[0].limits.pids, 256);
        config_free(c);
    }
}

static void test_class(void **state)
{
    struct config *c;

    (void)state;
    c = load_class("\"backends\": [\"microvm\", \"gvisor-like\"]");
    assert_int_equal(c->classes[0].n_backends, 2);
    assert_string_equal(c->classes[0].backends[1], "gvisor-like");
    assert_int_equal(c->classes[0].floor, CELLA_STRENGTH_VM);
    assert_null(config_class_find(c, "default"));
    config_free(c);
    c = load_class("\"policy\": \"web\", \"image\": \"dir:/srv/x\", \"best_effort\": true, "
                   "\"on_gate_death\": \"stop\"");
    assert_string_equal(c->classes[0].policy, "web");
    assert_string_equal(c->classes[0].image, "dir:/srv/x");
    assert_int_equal(c->classes[0].best_effort, 1);
    assert_int_equal(c->classes[0].on_gate_death, CONFIG_GATE_STOP);
    assert_string_equal(config_policy_find(c, "web")->document, "{\"x\": 1}");
    assert_string_equal(shorten(c->policies[0].file), "D/ok.json");
    assert_null(config_policy_find(c, "deny"));
    config_free(c);
    c = load_class("\"policy\": \"none\"");
    assert_string_equal(c->classes[0].policy, "none");
    config_free(c);
}

static void test_sections(void **state)
{
    static const char text[] =
        "{\"version\": 1, \"state_dir\": \"/srv/cella\", \"uplink\": \"/run/netns/up\",\n"
        " \"plugins\": [{\"path\": \"there.so\", \"config\": {\"pool\": 4}}, {\"path\": "
        "\"./ok.json\"}],\n"
        " \"audit\": [{\"sink\": \"audit-jsonl\", \"path\": \"/var/log/cella\", \"overflow\": "
        "\"block\"},\n"
        "             {\"sink\": \"other\"}, {\"sink\": \"other\", \"overflow\": \"drop\"}],\n"
        " \"deciders\": [\"floor\", \"acme\"], \"mounts\": [{\"path\": \"/srv/a\", \"writable\": "
        "true},\n"
        " {\"path\": \"/srv/b\"}],\n"
        " \"secrets\": [{\"provider\": \"secret-file\", \"path\": \"/etc/s\"}, {\"provider\": "
        "\"other\"}]}";
    struct config *c = NULL;
    struct errbuf eb;

    (void)state;
    setenv("CELLA_STATE_DIR", "/ignored", 1);
    assert_int_equal(load(text, &c, &eb), 0);
    unsetenv("CELLA_STATE_DIR");
    assert_string_equal(c->state_dir, "/srv/cella");
    assert_string_equal(c->uplink, "/run/netns/up");
    assert_int_equal(c->n_plugins, 2);
    assert_string_equal(shorten(c->plugins[0].path), "D/there.so");
    assert_string_equal(shorten(c->plugins[1].path), "D/./ok.json");
    assert_string_equal(c->plugins[1].pointer, "/plugins/1");
    assert_int_equal(json_integer_value(json_object_get(c->plugins[0].options, "pool")), 4);
    assert_null(c->plugins[1].options);
    assert_int_equal(c->n_sinks, 3);
    assert_int_equal(c->sinks[0].overflow, OVERFLOW_BLOCK);
    assert_int_equal(c->sinks[1].overflow, OVERFLOW_FAIL_CLOSED);
    assert_int_equal(c->sinks[2].overflow, OVERFLOW_DROP);
    assert_int_equal(json_object_size(c->sinks[0].options), 1);
    assert_string_equal(json_string_value(json_object_get(c->sinks[0].options, "path")),
                        "/var/log/cella");
    assert_int_equal(c->n_deciders, 2);
    assert_string_equal(c->deciders[1], "acme");
    assert_int_equal(c->n_mounts, 2);
    assert_string_equal(c->mounts[1].path, "/srv/b");
    assert_int_equal(c->mounts[0].writable, 1);
    assert_int_equal(c->mounts[1].writable, 0);
    assert_int_equal(c->n_secrets, 2);
    assert_string_equal(c->secrets[0].name, "secret-file");
    assert_string_equal(c->secrets[1].pointer, "/secrets/1");
    assert_int_equal(json_object_size(c->secrets[0].options), 1);
    assert_string_equal(json_string_value(json_object_get(c->secrets[0].options, "path")),
                        "/etc/s");
    assert_int_equal(json_object_size(c->secrets[1].options), 0);
    config_free(c);
}

static void test_environment(void **state)
{
    struct config *c = NULL;
    struct errbuf eb;
    char path[128];

    (void)state;
    put("env.json", "{\"version\": 1, \"uplink\": \"/x\"}", 30, 0600);
    snprintf(path, sizeof(path), "%s/env.json", dir);
    setenv("CELLA_CONFIG", path, 1);
    setenv("CELLA_STATE_DIR", "/run/cella-test", 1);
    assert_int_equal(config_load(NULL, &c, errbuf_init(&eb)), 0);
    assert_string_equal(c->uplink, "/x");
    assert_string_equal(c->state_dir, "/run/cella-test");
    config_free(c);
    c = NULL;
    setenv("CELLA_STATE_DIR", "relative", 1);
    assert_int_equal(config_load(NULL, &c, errbuf_init(&eb)), -EINVAL);
    assert_string_equal(eb.text,
                        "state directory \"relative\" (CELLA_STATE_DIR) is not an absolute path");
    setenv("CELLA_CONFIG", "/nowhere/cella.json", 1);
    assert_int_equal(config_load(NULL, &c, errbuf_init(&eb)), -ENOENT);
    unsetenv("CELLA_CONFIG");
    unsetenv("CELLA_STATE_DIR");
    if (access("/etc/cella/cella.json", F_OK) < 0) {
        assert_int_equal(config_load(NULL, &c, errbuf_init(&eb)), 0);
        assert_null(c->file);
        assert_null(c->doc.root);
        check_default_class(config_class_find(c, "default"));
        config_free(c);
    }
}

static void test_strength(void **state)
{
    uint32_t s = 7;

    (void)state;
    assert_string_equal(strength_name(CELLA_STRENGTH_PROCESS), "process");
    assert_string_equal(strength_name(CELLA_STRENGTH_USER_KERNEL), "user-kernel");
    assert_string_equal(strength_name(CELLA_STRENGTH_VM_EMULATED), "vm-emulated");
    assert_string_equal(strength_name(CELLA_STRENGTH_VM), "vm");
    assert_string_equal(strength_name(0), "unknown");
    assert_string_equal(strength_name(1500), "unknown");
    assert_string_equal(strength_name(5000), "unknown");
    assert_int_equal(strength_parse("user-kernel", &s), 0);
    assert_int_equal(s, CELLA_STRENGTH_USER_KERNEL);
    assert_int_equal(strength_parse("VM", &s), -EINVAL);
    assert_int_equal(s, CELLA_STRENGTH_USER_KERNEL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trust),    cmocka_unit_test(test_minimal),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_class),
        cmocka_unit_test(test_sections), cmocka_unit_test(test_environment),
        cmocka_unit_test(test_strength),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
