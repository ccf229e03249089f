/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* config: the exact message for each way a file can be wrong. */
#include "config_world.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
