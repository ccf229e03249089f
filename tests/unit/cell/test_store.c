/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* store - names, locks as liveness, slots, what a dead warden's directory looks like. */
#include <setjmp.h>
#include <stdarg.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "store.h"

static char dir[64];
static struct errbuf eb;
static struct cella_error *err;

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test-store.XXXXXX");
    err = errbuf_init(&eb);
    return mkdtemp(dir) && store_init(dir, err) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return remove_tree_at(AT_FDCWD, dir);
}

static void save_state(const struct cell_dir *d, const char *name, const char *state)
{
    json_t *o = json_pack("{s:s, s:s}", "name", name, "state", state);

    assert_int_equal(store_save(d, o), 0);
    json_decref(o);
}

static void finds_by_name_id_and_prefix(void **state)
{
    struct cell_dir d;
    struct cell_info info;
    char prefix[7];

    (void)state;
    assert_int_equal(store_create(dir, "one", &d, err), 0);
    save_state(&d, "one", "running");
    snprintf(prefix, sizeof(prefix), "%s", d.id);
    assert_int_equal(store_find(dir, "one", &info, err), 0);
    assert_string_equal(info.id, d.id);
    assert_string_equal(info.state, "running");
    assert_int_equal(info.alive, 1);
    cell_info_fini(&info);
    assert_int_equal(store_find(dir, d.id, &info, err), 0);
    cell_info_fini(&info);
    assert_int_equal(store_find(dir, prefix, &info, err), 0);
    assert_string_equal(info.name, "one");
    cell_info_fini(&info);
    assert_int_equal(store_find(dir, "two", &info, err), -ENOENT);
    assert_non_null(strstr(eb.text, "\"two\""));
    assert_int_equal(store_find(dir, "../cells", &info, err), -EINVAL);
    assert_int_equal(store_remove(dir, &d, "one"), 0);
    assert_int_equal(store_find(dir, "one", &info, err), -ENOENT);
}

static void one_name_one_cell(void **state)
{
    struct cell_dir a, b;

    (void)state;
    assert_int_equal(store_create(dir, "same", &a, err), 0);
    assert_int_equal(store_create(dir, "same", &b, err), -EEXIST);
    assert_non_null(strstr(eb.text, a.id)); /* says who has it */
    assert_int_equal(store_remove(dir, &a, "same"), 0);
    assert_int_equal(store_create(dir, "same", &b, err), 0);
    assert_int_equal(store_remove(dir, &b, "same"), 0);
}

static int count(void *ctx, const struct cell_info *info)
{
    (void)info;
    ++*(int *)ctx;
    return 0;
}

static void failed_create_leaves_no_directory(void **state)
{
    struct cell_dir a, b;
    int n = 0;

    (void)state;
    assert_int_equal(store_create(dir, "x", &a, err), 0);
    assert_int_equal(store_create(dir, "x", &b, err), -EEXIST);
    assert_int_equal(store_list(dir, count, &n, err), 0);
    assert_int_equal(n, 1);
    assert_int_equal(store_remove(dir, &a, "x"), 0);
}

/* A child makes a cell and dies: its lock goes with it. */
static void dead_warden_is_seen(void **state)
{
    struct cell_dir d;
    struct cell_info info;
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        if (store_create(dir, "dead", &d, NULL) < 0)
            _exit(1);
        save_state(&d, "dead", "running");
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(store_find(dir, "dead", &info, err), 0);
    assert_int_equal(info.alive, 0);
    assert_string_equal(info.state, "dead");
    assert_int_equal(store_adopt(dir, info.id, &d, err), 0);
    cell_info_fini(&info);
    assert_int_equal(store_remove(dir, &d, "dead"), 0);
}

/* Died before it could write its record: only the link knows the name. */
static void name_of_a_recordless_cell_goes_too(void **state)
{
    struct cell_dir d;
    struct cell_info info;
    char id[CELLA_ID_LEN + 1];

    (void)state;
    assert_int_equal(store_create(dir, "brief", &d, err), 0);
    memcpy(id, d.id, sizeof(id));
    cell_dir_close(&d);
    assert_int_equal(store_find(dir, "brief", &info, err), 0);
    assert_string_equal(info.name, "");
    assert_string_equal(info.state, "dead");
    cell_info_fini(&info);
    assert_int_equal(store_adopt(dir, id, &d, err), 0);
    assert_int_equal(store_remove(dir, &d, ""), 0);
    assert_int_equal(store_find(dir, "brief", &info, err), -ENOENT);
    assert_int_equal(store_create(dir, "brief", &d, err), 0);
    assert_int_equal(store_remove(dir, &d, "brief"), 0);
}

/* cella ps beside cella ps, or beside who cleans up. */
static void lookers_are_no_wardens(void **state)
{
    struct cell_dir d;
    struct cell_info info;
    char path[128], id[CELLA_ID_LEN + 1], c;
    int fd, looks[2], go[2];
    pid_t pid;

    (void)state;
    assert_int_equal(store_create(dir, "seen", &d, err), 0);
    save_state(&d, "seen", "running");
    memcpy(id, d.id, sizeof(id));
    cell_dir_close(&d);
    snprintf(path, sizeof(path), "%s/cells/%s/lock", dir, id);
    assert_true(pipe(looks) == 0 && pipe(go) == 0);
    pid = fork();
    if (pid == 0) {
        close(go[1]); /* it does not outlive a test that fails */
        fd = open(path, O_RDWR);
        if (fd < 0 || flock(fd, LOCK_SH) < 0 || write(looks[1], "", 1) != 1 ||
            read(go[0], &c, 1) != 1)
            _exit(1);
        usleep(20000);
        _exit(0);
    }
    assert_int_equal(read(looks[0], &c, 1), 1);
    assert_int_equal(store_find(dir, "seen", &info, err), 0);
    assert_int_equal(info.alive, 0);
    cell_info_fini(&info);
    assert_int_equal(write(go[1], "", 1), 1);
    assert_int_equal(store_adopt(dir, id, &d, err), 0); /* a moment later */
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(store_remove(dir, &d, "seen"), 0);
    close(looks[0]);
    close(looks[1]);
    close(go[0]);
    close(go[1]);
}

static void living_warden_is_not_adopted(void **state)
{
    struct cell_dir a, b;

    (void)state;
    assert_int_equal(store_create(dir, "live", &a, err), 0);
    assert_int_equal(store_adopt(dir, a.id, &b, err), -EBUSY);
    assert_int_equal(store_remove(dir, &a, "live"), 0);
}

static void slots_are_unique_and_wait_for_cleanup(void **state)
{
    struct cell_dir d;
    uint32_t a, b, c;
    int fa, fb, fc;

    (void)state;
    assert_int_equal(store_create(dir, "s", &d, err), 0);
    assert_int_equal(store_slot_take(dir, d.id, &a, &fa, err), 0);
    assert_int_equal(store_slot_take(dir, "aaaaaaaaaaaa", &b, &fb, err), 0);
    assert_int_not_equal(a, b);
    close(fa); /* the warden died; its directory is still there */
    assert_int_equal(store_slot_take(dir, "bbbbbbbbbbbb", &c, &fc, err), 0);
    assert_int_not_equal(c, a);
    close(fc);
    assert_int_equal(store_remove(dir, &d, "s"), 0);
    assert_int_equal(store_slot_take(dir, "cccccccccccc", &c, &fc, err), 0);
    assert_int_equal(c, a); /* cleaned up: free again */
    close(fb);
    close(fc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds_by_name_id_and_prefix, setup, teardown),
        cmocka_unit_test_setup_teardown(one_name_one_cell, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_create_leaves_no_directory, setup, teardown),
        cmocka_unit_test_setup_teardown(dead_warden_is_seen, setup, teardown),
        cmocka_unit_test_setup_teardown(name_of_a_recordless_cell_goes_too, setup, teardown),
        cmocka_unit_test_setup_teardown(lookers_are_no_wardens, setup, teardown),
        cmocka_unit_test_setup_teardown(living_warden_is_not_adopted, setup, teardown),
        cmocka_unit_test_setup_teardown(slots_are_unique_and_wait_for_cleanup, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
