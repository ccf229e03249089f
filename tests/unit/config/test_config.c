/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * config: the exact message for each way a file can be wrong, the typed values of files that are
 * right, who may own a file, and where it is looked for. A directory with a few policies and a
 * plugin stands behind the relative names; "D" in a message is that directory.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "config.h"
#include "../../../core/plugin/plugin.h"

static char dir[64];

/* In place of core/plugin's. */
const char *plugin_dir(void)
{
    return dir;
}

struct bad {
    const char *text, *message;
};

static const struct bad bads[] = {
    {"[]", "D/cella.json:1:1: expected an object, got an array"},
    {"{}", "D/cella.json:1:1: key \"version\" is missing"},
    {"{\"version\": \"1\"}", "D/cella.json:1:13: /version: expected the number 1, got a string"},
    {"{\"version\": 2}",
     "D/cella.json:1:13: /version: version 2 is unknown; this cella reads version 1"},
    {"{\"version\": 1, \"polices\": {}}",
     "D/cella.json:1:16: /polices: unknown key \"polices\"; did you mean \"policies\"?"},
    {"{\"version\": 1,\n \"colour\": \"red\"}",
     "D/cella.json:2:2: /colour: unknown key \"colour\"; known: version, state_dir, uplink, "
     "plugins, policies, classes, audit, deciders, secrets, mounts"},
    {"{\"version\": 1, \"state_dir\": 7}",
     "D/cella.json:1:29: /state_dir: expected an absolute path, got a number"},
    {"{\"version\": 1, \"state_dir\": \"var/cella\"}",
     "D/cella.json:1:29: /state_dir: \"var/cella\" is not an absolute path; it must start with "
     "'/'"},
    {"{\"version\": 1, \"state_dir\": \"\"}",
     "D/cella.json:1:29: /state_dir: \"\" is not an absolute path; it must start with '/'"},
    {"{\"version\": 1, \"uplink\": [\"a\"]}",
     "D/cella.json:1:26: /uplink: expected an absolute path, got an array"},
    {"{\"version\": 1, \"uplink\": \"blue\"}",
     "D/cella.json:1:26: /uplink: \"blue\" is not an absolute path; it must start with '/'"},
    {"{\"version\": 1, \"plugins\": {}}",
     "D/cella.json:1:27: /plugins: expected an array, got an object"},
    {"{\"version\": 1, \"plugins\": [\"a.so\"]}",
     "D/cella.json:1:28: /plugins/0: expected an object, got a string"},
    {"{\"version\": 1, \"plugins\": [{}]}",
     "D/cella.json:1:28: /plugins/0: key \"path\" is missing"},
    {"{\"version\": 1, \"plugins\": [{\"path\": 1}]}",
     "D/cella.json:1:37: /plugins/0/path: expected a string, got a number"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"\"}]}",
     "D/cella.json:1:37: /plugins/0/path: must not be empty"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"missing.so\"}]}",
     "D/cella.json:1:37: /plugins/0/path: cannot use plugin \"missing.so\": D/missing.so: No such "
     "file or directory (a bare name is looked up in the plugin directory)"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"/nowhere/x.so\"}]}",
     "D/cella.json:1:37: /plugins/0/path: cannot use plugin \"/nowhere/x.so\": /nowhere/x.so: No "
     "such file or directory"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"./sub\"}]}",
     "D/cella.json:1:37: /plugins/0/path: cannot use plugin \"./sub\": D/./sub is not a regular "
     "file"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"there.so\", \"conf\": {}}]}",
     "D/cella.json:1:49: /plugins/0/conf: unknown key \"conf\"; did you mean \"config\"?"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"there.so\", \"config\": []}]}",
     "D/cella.json:1:59: /plugins/0/config: expected an object, got an array"},
    {"{\"version\": 1, \"plugins\": [{\"path\": \"there.so\"},\n  {\"path\": \"there.so\"}]}",
     "D/cella.json:2:3: /plugins/1: plugin D/there.so is already listed at /plugins/0"},
    {"{\"version\": 1, \"policies\": []}",
     "D/cella.json:1:28: /policies: expected an object, got an array"},
    {"{\"version\": 1, \"policies\": {\"a b\": {\"file\": \"ok.json\"}}}",
     "D/cella.json:1:29: /policies/a b: \"a b\" is not a name; use letters, digits, '_', '.' and "
     "'-', at most 63"},
    {"{\"version\": 1, \"policies\": {\"deny\": {\"file\": \"ok.json\"}}}",
     "D/cella.json:1:29: /policies/deny: \"deny\" is a built-in policy; choose another name"},
    {"{\"version\": 1, \"policies\": {\"p\": \"ok.json\"}}",
     "D/cella.json:1:34: /policies/p: expected an object, got a string"},
    {"{\"version\": 1, \"policies\": {\"p\": {}}}",
     "D/cella.json:1:34: /policies/p: key \"file\" is missing"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"missing.json\"}}}",
     "D/cella.json:1:43: /policies/p/file: cannot use this policy file: D/missing.json: No such "
     "file or directory"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"sub\"}}}",
     "D/cella.json:1:43: /policies/p/file: cannot use this policy file: D/sub: not a regular file"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"open.json\"}}}",
     "D/cella.json:1:43: /policies/p/file: cannot use this policy file: D/open.json: writable by "
     "everyone (mode 0666); run: chmod o-w D/open.json"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"foreign.json\"}}}",
     "D/cella.json:1:43: /policies/p/file: cannot use this policy file: D/foreign.json: owned by "
     "user 12345; it must belong to root or to the user cella runs as (0)"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"nul.json\"}}}",
     "D/cella.json:1:43: /policies/p/file: cannot use this policy file: D/nul.json: holds a NUL "
     "byte; it is no text"},
    {"{\"version\": 1, \"policies\": {\"p\": {\"file\": \"ok.json\"}, \"p\": {\"file\": "
     "\"ok.json\"}}}",
     "D/cella.json:1:55: not valid JSON: duplicate object key near '\"p\"'"},
    {"{\"version\": 1, \"classes\": []}",
     "D/cella.json:1:27: /classes: expected an object, got an array"},
    {"{\"version\": 1, \"classes\": {}}",
     "D/cella.json:1:27: /classes: no class is left; name at least one, or leave the key out for "
     "the built-in \"default\""},
    {"{\"version\": 1, \"classes\": {\"c\": 3}}",
     "D/cella.json:1:33: /classes/c: expected an object, got a number"},
    {"{\"version\": 1, \"classes\": {\"c\": {}}}",
     "D/cella.json:1:33: /classes/c: key \"floor\" is missing"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": 1}}}",
     "D/cella.json:1:43: /classes/c/floor: expected a string, got a number"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"proces\"}}}",
     "D/cella.json:1:43: /classes/c/floor: \"proces\" is not one of process, user-kernel, "
     "vm-emulated, vm; did you mean \"process\"?"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"titanium\"}}}",
     "D/cella.json:1:43: /classes/c/floor: \"titanium\" is not one of process, user-kernel, "
     "vm-emulated, vm"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backend\": [\"microvm\"]}}}",
     "D/cella.json:1:49: /classes/c/backend: unknown key \"backend\"; did you mean \"backends\"?"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backends\": []}}}",
     "D/cella.json:1:61: /classes/c/backends: no backend is left; name at least one, or leave the "
     "key out to allow every loaded one"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backends\": \"microvm\"}}}",
     "D/cella.json:1:61: /classes/c/backends: expected an array of names, got a string"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backends\": [\"microvm\", 1]}}}",
     "D/cella.json:1:73: /classes/c/backends/1: expected a string, got a number"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backends\": [\"a/b\"]}}}",
     "D/cella.json:1:62: /classes/c/backends/0: \"a/b\" is not a name; use letters, digits, '_', "
     "'.' and '-', at most 63"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"backends\": [\"a\", \"b\", "
     "\"a\"]}}}",
     "D/cella.json:1:72: /classes/c/backends/2: \"a\" is listed twice"},
    {"{\"version\": 1, \"policies\": {\"web\": {\"file\": \"ok.json\"}}, \"classes\": {\"c\": "
     "{\"floor\": \"vm\", \"policy\": \"wb\"}}}",
     "D/cella.json:1:101: /classes/c/policy: \"wb\" is not one of none, deny, web; did you mean "
     "\"web\"?"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"policy\": \"install\"}}}",
     "D/cella.json:1:59: /classes/c/policy: \"install\" is not one of none, deny"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"ceiling\": \"none\"}}}",
     "D/cella.json:1:60: /classes/c/ceiling: \"none\" is not one of deny"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"policy\": null}}}",
     "D/cella.json:1:59: /classes/c/policy: expected a string, got null"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"image\": \"\"}}}",
     "D/cella.json:1:58: /classes/c/image: must not be empty"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"best_effort\": \"yes\"}}}",
     "D/cella.json:1:64: /classes/c/best_effort: expected true or false, got a string"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"secrets\": [\"a/b\"]}}}",
     "D/cella.json:1:61: /classes/c/secrets/0: \"a/b\" is not a name; use letters, digits, '_', "
     "'.' "
     "and '-', at most 63"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"on_gate_death\": \"continue\"}}}",
     "D/cella.json:1:66: /classes/c/on_gate_death: \"continue\" is not one of stop, restart"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": 5}}}",
     "D/cella.json:1:59: /classes/c/limits: expected an object, got a number"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"mem\": \"1G\"}}}}",
     "D/cella.json:1:60: /classes/c/limits/mem: unknown key \"mem\"; did you mean \"memory\"?"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"memory\": "
     "\"1.5G\"}}}}",
     "D/cella.json:1:70: /classes/c/limits/memory: \"1.5G\" is not a size; write a whole number "
     "with K, M, G or T, such as \"64M\""},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"memory\": 1.5}}}}",
     "D/cella.json:1:70: /classes/c/limits/memory: expected a size such as \"64M\" or a number of "
     "bytes, got a fraction"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"memory\": "
     "\"1M\"}}}}",
     "D/cella.json:1:70: /classes/c/limits/memory: 1M is out of range; allowed is 4M to 16T"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"memory\": 0}}}}",
     "D/cella.json:1:70: /classes/c/limits/memory: 0 is out of range; allowed is 4M to 16T"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"memory\": "
     "\"none\"}}}}",
     "D/cella.json:1:70: /classes/c/limits/memory: \"none\" is not a size; write a whole number "
     "with K, M, G or T, such as \"64M\""},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"cpus\": \"2\"}}}}",
     "D/cella.json:1:68: /classes/c/limits/cpus: expected a number of CPUs such as 1 or 0.5, got a "
     "string"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"cpus\": 0}}}}",
     "D/cella.json:1:68: /classes/c/limits/cpus: 0 is out of range; allowed is 0.01 to 1024"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"cpus\": 1e9}}}}",
     "D/cella.json:1:68: /classes/c/limits/cpus: 1e+09 is out of range; allowed is 0.01 to 1024"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"pids\": -1}}}}",
     "D/cella.json:1:68: /classes/c/limits/pids: -1 is out of range; allowed is 1 to 4194304"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"pids\": \"64\"}}}}",
     "D/cella.json:1:68: /classes/c/limits/pids: expected a whole number, got a string"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"wall\": \"10 "
     "min\"}}}}",
     "D/cella.json:1:68: /classes/c/limits/wall: \"10 min\" is not a duration; write a whole "
     "number with ns, us, ms, s, m, h or d, such as \"10m\""},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"wall\": \"0\"}}}}",
     "D/cella.json:1:68: /classes/c/limits/wall: 0 is out of range; allowed is 1ms to 365d"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"idle\": "
     "99999999999999}}}}",
     "D/cella.json:1:68: /classes/c/limits/idle: 99999999999999 is out of range; allowed is 1ms to "
     "365d"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"io_read\": "
     "\"1K\"}}}}",
     "D/cella.json:1:71: /classes/c/limits/io_read: 1K is out of range; allowed is 4K to 16T"},
    {"{\"version\": 1, \"classes\": {\"c\": {\"floor\": \"vm\", \"limits\": {\"io_write\": []}}}}",
     "D/cella.json:1:72: /classes/c/limits/io_write: expected a size such as \"64M\" or a number "
     "of bytes, got an array"},
    {"{\"version\": 1, \"secrets\": {}}",
     "D/cella.json:1:27: /secrets: expected an array, got an object"},
    {"{\"version\": 1, \"secrets\": [\"secret-file\"]}",
     "D/cella.json:1:28: /secrets/0: expected an object, got a string"},
    {"{\"version\": 1, \"secrets\": [{\"path\": \"/x\"}]}",
     "D/cella.json:1:28: /secrets/0: key \"provider\" is missing"},
    {"{\"version\": 1, \"secrets\": [{\"provider\": 7}]}",
     "D/cella.json:1:41: /secrets/0/provider: expected a string, got a number"},
    {"{\"version\": 1, \"audit\": {}}",
     "D/cella.json:1:25: /audit: expected an array, got an object"},
    {"{\"version\": 1, \"audit\": []}", "D/cella.json:1:25: /audit: no sink is left; name at least "
                                        "one, or leave the key out for \"audit-jsonl\""},
    {"{\"version\": 1, \"audit\": [\"audit-jsonl\"]}",
     "D/cella.json:1:26: /audit/0: expected an object, got a string"},
    {"{\"version\": 1, \"audit\": [{\"overflow\": \"drop\"}]}",
     "D/cella.json:1:26: /audit/0: key \"sink\" is missing"},
    {"{\"version\": 1, \"audit\": [{\"sink\": \"a/b\"}]}",
     "D/cella.json:1:35: /audit/0/sink: \"a/b\" is not a name; use letters, digits, '_', '.' and "
     "'-', at most 63"},
    {"{\"version\": 1, \"audit\": [{\"sink\": \"audit-jsonl\", \"overflow\": \"fail_closed\"}]}",
     "D/cella.json:1:62: /audit/0/overflow: \"fail_closed\" is not one of block, drop, "
     "fail-closed; did you mean \"fail-closed\"?"},
    {"{\"version\": 1, \"deciders\": \"floor\"}",
     "D/cella.json:1:28: /deciders: expected an array of names, got a string"},
    {"{\"version\": 1, \"deciders\": [\"floor\", \"floor\"]}",
     "D/cella.json:1:38: /deciders/1: \"floor\" is listed twice"},
    {"{\"version\": 1, \"mounts\": {\"/a\": true}}",
     "D/cella.json:1:26: /mounts: expected an array, got an object"},
    {"{\"version\": 1, \"mounts\": [\"/a\"]}",
     "D/cella.json:1:27: /mounts/0: expected an object, got a string"},
    {"{\"version\": 1, \"mounts\": [{\"path\": \"a\"}]}",
     "D/cella.json:1:36: /mounts/0/path: \"a\" is not an absolute path; it must start with '/'"},
    {"{\"version\": 1, \"mounts\": [{\"path\": \"/a\", \"writable\": 1}]}",
     "D/cella.json:1:54: /mounts/0/writable: expected true or false, got a number"},
    {"{\"version\": 1, \"mounts\": [{\"path\": \"/a\"}, {\"path\": \"/a\", \"writable\": true}]}",
     "D/cella.json:1:43: /mounts/1: path \"/a\" is listed twice"},
    {"{\"version\": 1,}", "D/cella.json:1:15: not valid JSON: string or '}' expected near '}'; "
                          "JSON has no trailing comma: remove the ',' before this bracket"},
    {"{\"version\": 1 // one\n}", "D/cella.json:1:15: not valid JSON: '}' expected near '/'; JSON "
                                  "has no comments: remove this one"},
};

static void put(const char *name, const char *text, size_t len, unsigned mode)
{
    char path[128];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, len), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static int load(const char *text, struct config **ret, struct errbuf *eb)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/cella.json", dir);
    put("cella.json", text, strlen(text), 0644);
    return config_load(path, ret, errbuf_init(eb));
}

/* The message with the directory's name replaced by "D". */
static const char *shorten(char *message)
{
    size_t n = strlen(dir);
    char *p;

    while ((p = strstr(message, dir))) {
        *p = 'D';
        memmove(p + 1, p + n, strlen(p + n) + 1);
    }
    return message;
}

static int setup(void **state)
{
    char path[128];

    (void)state;
    strcpy(dir, "/tmp/cella-test-config-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    unsetenv("CELLA_CONFIG");
    unsetenv("CELLA_STATE_DIR");
    snprintf(path, sizeof(path), "%s/sub", dir);
    mkdir(path, 0755);
    put("there.so", "", 0, 0644);
    put("ok.json", "{\"x\": 1}", 8, 0644);
    put("open.json", "{}", 2, 0666);
    put("nul.json", "{\0}", 3, 0644);
    put("foreign.json", "{}", 2, 0644);
    snprintf(path, sizeof(path), "%s/foreign.json", dir);
    return geteuid() == 0 && chown(path, 12345, 0) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

static void test_bad(void **state)
{
    struct config *c = NULL;
    struct errbuf eb;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bads); i++) {
        if (geteuid() != 0 && strstr(bads[i].text, "foreign"))
            continue;
        assert_true(load(bads[i].text, &c, &eb) < 0);
        assert_string_equal(shorten(eb.text), bads[i].message);
        assert_null(c);
    }
}

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
        cmocka_unit_test(test_bad),         cmocka_unit_test(test_trust),
        cmocka_unit_test(test_minimal),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_class),       cmocka_unit_test(test_sections),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_strength),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
