/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit-jsonl, the real plugin through the real loader: files, modes, names; and a disk that is full, for each overflow
 * rule, on a tmpfs of 64 KiB in a mount namespace of this process. Without the right to mount, the disk's tests are
 * skipped and say so.
 */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "audit.h"
#include "plugin.h"

static char dir[64], disk[80], file[160], host_file[160];
static struct plugin *plugin;
static struct option_set *options;
static struct audit_sink sink;
static int can_mount;

static int open_options(const char *text)
{
    json_t *o = json_loads(text, 0, NULL);
    struct errbuf eb;
    int r;

    option_set_free(options);
    options = NULL;
    r = option_set_parse(plugin->options, plugin->n_options, plugin->option_stride, NULL,
                         "/audit/0", o, &options, errbuf_init(&eb));
    json_decref(o);
    if (r == 0)
        sink = (struct audit_sink){plugin, option_set_get(options), OVERFLOW_FAIL_CLOSED};
    return r;
}

static int group_setup(void **state)
{
    struct errbuf eb;

    (void)state;
    if (plugin_load(PLUGINS_DIR "/cella-sink-audit-jsonl.so", &plugin, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        return -1;
    }
    can_mount = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

static int group_teardown(void **state)
{
    (void)state;
    option_set_free(options);
    plugin_unload(plugin);
    return 0;
}

static int setup(void **state)
{
    char text[160];

    (void)state;
    strcpy(dir, "/tmp/cella-test-jsonl-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(disk, sizeof(disk), "%s/disk", dir);
    mkdir(disk, 0700);
    if (can_mount && mount("tmpfs", disk, "tmpfs", 0, "size=64k") < 0)
        can_mount = 0;
    snprintf(file, sizeof(file), "%s/log/abc.jsonl", disk);
    snprintf(host_file, sizeof(host_file), "%s/log/host.jsonl", disk);
    snprintf(text, sizeof(text), "{\"path\": \"%s/log\"}", disk);
    return open_options(text);
}

static int teardown(void **state)
{
    (void)state;
    umount2(disk, MNT_DETACH);
    return remove_tree_at(AT_FDCWD, dir);
}

static struct audit *open_chain(const char *id)
{
    struct audit *a = NULL;
    struct errbuf eb;
    char state_dir[80];

    snprintf(state_dir, sizeof(state_dir), "%s/state", dir); /* heads and key lie on another disk */
    if (audit_open(state_dir, id, NULL, &sink, 1, &a, errbuf_init(&eb)) < 0)
        print_error("%s\n", eb.text);
    assert_non_null(a);
    return a;
}

static int emit(struct audit *a, const char *text)
{
    return audit_emit(a, NULL, "cell.exec", "s:argv", text, NULL);
}

static void finish(struct audit *a)
{
    struct errbuf eb;

    if (audit_close(a, errbuf_init(&eb)) < 0) {
        print_error("%s\n", eb.text);
        assert_true(0);
    }
    audit_free(a);
}

static void assert_good(const char *name, int closed)
{
    struct audit_verify_result res;
    struct errbuf eb;
    char state_dir[80];

    snprintf(state_dir, sizeof(state_dir), "%s/state", dir);
    assert_int_equal(audit_verify(state_dir, name, &res, errbuf_init(&eb)), 0);
    if (res.first_bad)
        print_error("%s: line %llu: %s\n", name, (unsigned long long)res.first_bad, res.why);
    assert_int_equal(res.first_bad, 0);
    assert_int_equal(res.closed, closed);
}

/* Takes all room of the disk but `leave` bytes in the last page of the chain's file. */
static void fill(void)
{
    char path[128], chunk[4096] = {0};
    int fd;

    snprintf(path, sizeof(path), "%s/ballast", disk);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    while (write(fd, chunk, sizeof(chunk)) > 0)
        ;
    close(fd);
}

static void make_room(void)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/ballast", disk);
    assert_int_equal(unlink(path), 0);
}

/* Emits until the disk refuses; the file must end with a whole line then. */
static int emit_until_refused(struct audit *a)
{
    auto_free char *text = NULL;
    size_t len;
    int i, r = 0;

    for (i = 0; i < 100 && r == 0; i++)
        r = emit(a, "some text that makes the line longer than a few bytes, so that it crosses a "
                    "page soon");
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 20, &text, &len), 0);
    assert_int_equal(text[len - 1], '\n');
    return r;
}

static void test_files(void **state)
{
    struct audit *a = open_chain("abc");
    struct stat st;
    char path[128];

    (void)state;
    assert_int_equal(emit(a, "x"), 0);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    snprintf(path, sizeof(path), "%s/log", disk);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    finish(a);
    assert_good(file, 1);
    assert_good(host_file, 0);
}

/* Ten chains through one instance: more than it keeps open. */
static void test_many_chains(void **state)
{
    struct cella_record rec = {.hdr = CELLA_HDR_INIT(struct cella_record, CELLA_KIND_RECORD),
                               .seq = 1,
                               .kind = "x",
                               .line = {"{}", 2}};
    char name[2] = {0}, path[128];
    struct stat st;
    void *self = NULL;
    int round, i;

    (void)state;
    assert_int_equal(sink_open(plugin, NULL, sink.options, &self, NULL), 0);
    for (round = 0; round < 3; round++) {
        for (i = 0; i < 10; i++) {
            name[0] = (char)('a' + i);
            rec.chain = name;
            assert_int_equal(sink_event(plugin, self, &rec, NULL), 0);
        }
    }
    rec.chain = "../evil";
    assert_int_equal(sink_event(plugin, self, &rec, NULL), -EINVAL);
    assert_int_equal(sink_flush(plugin, self, NULL), 0);
    sink_close(plugin, self);
    for (i = 0; i < 10; i++) {
        snprintf(path, sizeof(path), "%s/log/%c.jsonl", disk, 'a' + i);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 9);
    }
}

/* What a killed writer left of a line is cut away before the next one. */
static void test_partial(void **state)
{
    struct audit *a = open_chain("abc");
    int fd;

    (void)state;
    assert_int_equal(emit(a, "x"), 0);
    fd = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(write_all(fd, "{\"v\":1,\"cha", 11), 0);
    assert_int_equal(emit(a, "y"), 0); /* with the file open */
    assert_int_equal(write_all(fd, "{\"v\":1", 6), 0);
    close(fd);
    audit_free(a);
    a = open_chain("abc"); /* and opened anew */
    finish(a);
    assert_good(file, 1);
}

static void test_options(void **state)
{
    void *self = NULL;
    struct errbuf eb;

    (void)state;
    assert_int_equal(open_options("{\"sync\": \"sometimes\"}"), -EINVAL);
    assert_int_equal(open_options("{\"path\": \"x\"}"), -EINVAL);
    assert_int_equal(open_options("{}"), -EINVAL); /* the core fills it in */
    assert_int_equal(open_options("{\"path\": \"/proc/nowhere/x\"}"), 0);
    assert_int_equal(sink_open(plugin, NULL, sink.options, &self, errbuf_init(&eb)), -ENOENT);
    assert_null(self);
}

static void test_sync(void **state)
{
    static const char *const modes[] = {"none", "close", "always"};
    char text[160], id[2] = {0};
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(modes); i++) {
        struct audit *a;

        snprintf(text, sizeof(text), "{\"path\": \"%s/log\", \"sync\": \"%s\"}", disk, modes[i]);
        assert_int_equal(open_options(text), 0);
        id[0] = (char)('p' + i);
        a = open_chain(id);
        assert_int_equal(emit(a, "x"), 0);
        finish(a);
    }
}

static void need_mount(void)
{
    if (!can_mount) {
        print_message("skipped: no right to mount a tmpfs\n");
        skip();
    }
}

static void test_full_fail_closed(void **state)
{
    struct audit *a;

    (void)state;
    need_mount();
    a = open_chain("abc");
    fill();
    assert_int_equal(emit_until_refused(a), -ENOSPC);
    assert_int_equal(emit(a, "x"), -ENOSPC);
    assert_int_equal(audit_close(a, NULL), -ENOSPC);
    audit_free(a);
    make_room();
    a = open_chain("abc"); /* as gc does */
    finish(a);
    assert_good(file, 1);
    assert_good(host_file, 0);
}

static void test_full_drop(void **state)
{
    auto_free char *text = NULL;
    struct audit *a;
    size_t len;

    (void)state;
    need_mount();
    sink.overflow = OVERFLOW_DROP;
    a = open_chain("abc");
    fill();
    assert_int_equal(emit_until_refused(a), 0); /* it never refuses */
    assert_good(file, 0);
    make_room();
    assert_int_equal(emit(a, "after"), 0);
    finish(a);
    assert_good(file, 1);
    assert_good(host_file, 0);
    assert_int_equal(read_file_at(AT_FDCWD, file, 1 << 20, &text, &len), 0);
    assert_non_null(strstr(text, "\"kind\":\"audit.dropped\",\"sink\":\"audit-jsonl\",\"count\":"));
    assert_non_null(strstr(text, "\"after\""));
}

static void test_full_block(void **state)
{
    struct audit *a;
    uint64_t start;
    pid_t pid;
    int status, k;

    (void)state;
    need_mount();
    sink.overflow = OVERFLOW_BLOCK;
    a = open_chain("abc");
    fill();
    start = now_ns();
    pid = fork();
    if (pid == 0) { /* somebody makes room after a while */
        usleep(300000);
        make_room();
        _exit(0);
    }
    for (k = 0; k < 40; k++)
        assert_int_equal(
            emit(
                a,
                "some text that makes the line longer than a few bytes, so that it crosses a page"),
            0);
    assert_true(now_ns() - start > 250000000u); /* it waited */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    finish(a);
    assert_good(file, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_files), T(test_many_chains),      T(test_partial),   T(test_options),
        T(test_sync),  T(test_full_fail_closed), T(test_full_drop), T(test_full_block),
    };

    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
