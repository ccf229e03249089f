/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Files: the built agent's put, get, list, stat, remove, rename and mkdir, in a directory of this
 * test.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "agent_harness.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

static char base[64];

static const char *at(const char *name)
{
    static char path[4][256];
    static unsigned turn;
    char *p = path[turn++ % 4];

    snprintf(p, sizeof(path[0]), "%s/%s", base, name);
    return p;
}

static void spew(const char *name, const char *text)
{
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static char *slurp(const char *name)
{
    char *text = NULL;

    return read_file_at(AT_FDCWD, at(name), 1 << 22, &text, NULL) == 0 ? text : NULL;
}

/* Entries of the base directory that begin so. */
static int entries(const char *prefix)
{
    DIR *d = opendir(base);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
    if (d)
        closedir(d);
    return n;
}

static void run(void **state, struct op *o, uint32_t op, const char *path, uint16_t tag, uint32_t v)
{
    auto_buf struct buf b = BUF_INIT;

    if (tag)
        field_add_u32(&b, tag, v);
    op_path(*state, o, op, path, &b);
    assert_int_equal(op_wait(o, 10000), 0);
}

static void put(void **state, struct op *o, const char *path, const char *text, size_t n, int mode)
{
    auto_buf struct buf b = BUF_INIT;

    if (mode >= 0)
        field_add_u32(&b, CELLA_TAG_MODE, (uint32_t)mode);
    op_path(*state, o, CELLA_OP_PUT, path, &b);
    op_write(o, text, n, 10000);
    op_eof(o);
    assert_int_equal(op_wait(o, 10000), 0);
}

static void expect_error(struct op *o, uint32_t err, const char *text)
{
    if (o->type != CELLA_FRAME_ERROR || o->err_no != err || !strstr(o->msg, text))
        fail_msg("frame %u, error %u '%s'; expected %u '%s'", o->type, o->err_no, o->msg, err,
                 text);
    op_fini(o);
}

static void expect_result(struct op *o)
{
    if (o->type != CELLA_FRAME_RESULT)
        fail_msg("frame %u, error %u '%s'; expected a result", o->type, o->err_no, o->msg);
}

static void test_put_and_get(void **state)
{
    static char big[1500000];
    auto_free char *text = NULL;
    struct stat st;
    struct op o;
    size_t i;

    for (i = 0; i < sizeof(big); i++)
        big[i] = (char)('a' + i * 7 % 26);
    put(state, &o, at("f"), big, sizeof(big), 0751);
    expect_result(&o);
    assert_int_equal(o.size, sizeof(big));
    op_fini(&o);
    text = slurp("f");
    assert_memory_equal(text, big, sizeof(big));
    assert_int_equal(stat(at("f"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(st.st_uid, geteuid());
    run(state, &o, CELLA_OP_GET, at("f"), 0, 0);
    expect_result(&o);
    assert_int_equal(o.size, sizeof(big));
    assert_int_equal(o.mode, 0751);
    assert_int_equal(o.out.len, sizeof(big));
    assert_memory_equal(o.out.ptr, big, sizeof(big));
    op_fini(&o);
    assert_int_equal(entries(".cella-"), 0);
}

static void test_put_keeps_what_it_replaces(void **state)
{
    auto_free char *text = NULL;
    struct stat st;
    struct op o;

    spew("old", "long old content");
    assert_int_equal(chmod(at("old"), 0640), 0);
    if (geteuid() == 0)
        assert_int_equal(chown(at("old"), 1234, 77), 0);
    put(state, &o, at("old"), "new", 3, -1);
    expect_result(&o);
    op_fini(&o);
    text = slurp("old");
    assert_string_equal(text, "new");
    assert_int_equal(stat(at("old"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    if (geteuid() == 0)
        assert_int_equal(st.st_uid * 1000 + st.st_gid, 1234077);
}

static void test_put_refusals(void **state)
{
    auto_free char *text = NULL;
    struct op o;

    spew("victim", "safe");
    assert_int_equal(symlink("victim", at("link")), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    assert_int_equal(mkdir(at("dir"), 0700), 0);
    put(state, &o, at("link"), "evil", 4, -1);
    expect_error(&o, ELOOP, "link");
    text = slurp("victim");
    assert_string_equal(text, "safe");
    put(state, &o, at("fifo"), "x", 1, -1);
    expect_error(&o, EINVAL, "fifo");
    put(state, &o, at("dir"), "x", 1, -1);
    expect_error(&o, EISDIR, "dir");
    put(state, &o, at("no/where"), "x", 1, -1);
    expect_error(&o, ENOENT, "no/where");
    put(state, &o, "relative", "x", 1, -1);
    expect_error(&o, EINVAL, "absolute");
    put(state, &o, "/", "x", 1, -1);
    expect_error(&o, EINVAL, "name");
    put(state, &o, at(".."), "x", 1, -1);
    expect_error(&o, EINVAL, "name");
    assert_int_equal(entries(".cella-"), 0);
}

static void test_put_abandoned(void **state)
{
    auto_free char *text = NULL;
    struct op o;
    int i;

    spew("kept", "kept");
    op_path(*state, &o, CELLA_OP_PUT, at("kept"), NULL);
    assert_int_equal(op_write(&o, "half", 4, 10000), 4);
    for (i = 0; i < 1000 && !entries(".cella-"); i++)
        cell_turn(*state, 10);
    assert_int_equal(entries(".cella-"), 1);
    link_send(o.s, CELLA_FRAME_CLOSE, 0, NULL, 0);
    assert_int_equal(op_wait(&o, 10000), 0);
    expect_error(&o, ECANCELED, "abandoned");
    assert_int_equal(entries(".cella-"), 0);
    text = slurp("kept");
    assert_string_equal(text, "kept");
}

static void test_get_refusals(void **state)
{
    struct op o;

    run(state, &o, CELLA_OP_GET, at("fifo"), 0, 0); /* must not wait for a writer */
    expect_error(&o, EINVAL, "not a regular file");
    run(state, &o, CELLA_OP_GET, "/dev/zero", 0, 0);
    expect_error(&o, EINVAL, "not a regular file");
    run(state, &o, CELLA_OP_GET, at("dir"), 0, 0);
    expect_error(&o, EISDIR, "dir");
    run(state, &o, CELLA_OP_GET, at("none"), 0, 0);
    expect_error(&o, ENOENT, "none");
    run(state, &o, CELLA_OP_GET, at("link"), 0, 0); /* a link is followed */
    expect_result(&o);
    assert_string_equal(o.out.ptr, "safe");
    op_fini(&o);
}

/* A file that is not read stays where it is: one window, whatever its size; CLOSE ends it. */
static void test_get_held_back(void **state)
{
    struct op o;
    int i, fd = open(at("sparse"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    assert_int_equal(ftruncate(fd, 1ll << 33), 0);
    close(fd);
    op_path(*state, &o, CELLA_OP_GET, at("sparse"), NULL);
    o.no_credit = 1;
    for (i = 0; i < 1000 && o.got < CELLA_WINDOW; i++)
        cell_turn(*state, 10);
    cell_turn(*state, 300);
    assert_int_equal(o.got, CELLA_WINDOW);
    link_send(o.s, CELLA_FRAME_CLOSE, 0, NULL, 0);
    assert_int_equal(op_wait(&o, 10000), 0);
    expect_error(&o, ECANCELED, "abandoned");
}

static void test_stat(void **state)
{
    struct op o;

    run(state, &o, CELLA_OP_STAT, at("link"), 0, 0);
    expect_result(&o);
    assert_int_equal(o.ftype, S_IFLNK);
    assert_string_equal(o.link, "victim");
    op_fini(&o);
    run(state, &o, CELLA_OP_STAT, at("victim"), 0, 0);
    expect_result(&o);
    assert_int_equal(o.ftype, S_IFREG);
    assert_int_equal(o.size, 4);
    assert_int_equal(o.mode, 0644);
    op_fini(&o);
    run(state, &o, CELLA_OP_STAT, "/", 0, 0);
    expect_result(&o);
    assert_int_equal(o.ftype, S_IFDIR);
    op_fini(&o);
}

static void test_list(void **state)
{
    const uint8_t *p, *name;
    struct op o;
    size_t off, n, pos;
    uint32_t count = 0, type, found = 0;
    struct field f;
    int i;

    assert_int_equal(mkdir(at("many"), 0755), 0);
    for (i = 0; i < 3000; i++) {
        char file[32];
        snprintf(file, sizeof(file), "many/entry-%04d", i);
        spew(file, "");
    }
    run(state, &o, CELLA_OP_LIST, at("many"), 0, 0);
    expect_result(&o);
    p = (const uint8_t *)o.out.ptr;
    for (off = 0; off < o.out.len; off += 4 + n, count++) {
        n = p[off] | (size_t)p[off + 1] << 8;
        assert_true(off + 4 + n <= o.out.len);
        assert_int_equal(field_get_u32(p + off + 4, n, CELLA_TAG_TYPE, &type), 0);
        assert_int_equal(type, S_IFREG);
        for (pos = 0, name = NULL; field_next(p + off + 4, n, &pos, &f) > 0;)
            if (f.tag == CELLA_TAG_NAME)
                name = f.p;
        found += name && memcmp(name, "entry-2999", 10) == 0;
    }
    assert_int_equal(count, 3000);
    assert_int_equal(o.count, 3000);
    assert_int_equal(found, 1);
    op_fini(&o);
    run(state, &o, CELLA_OP_LIST, at("victim"), 0, 0);
    expect_error(&o, ENOTDIR, "victim");
}

static void test_mkdir_and_rename(void **state)
{
    auto_buf struct buf b = BUF_INIT;
    struct stat st;
    struct op o;

    run(state, &o, CELLA_OP_MKDIR, at("p/q/r"), 0, 0);
    expect_error(&o, ENOENT, "p/q/r");
    run(state, &o, CELLA_OP_MKDIR, at("p/q/r"), CELLA_TAG_PARENTS, 1);
    expect_result(&o);
    op_fini(&o);
    run(state, &o, CELLA_OP_MKDIR, at("p/q/r"), CELLA_TAG_PARENTS, 1);
    expect_result(&o);
    op_fini(&o);
    run(state, &o, CELLA_OP_MKDIR, at("p/q"), 0, 0);
    expect_error(&o, EEXIST, "p/q");
    run(state, &o, CELLA_OP_MKDIR, at("sticky"), CELLA_TAG_MODE, 01777);
    expect_result(&o);
    op_fini(&o);
    assert_int_equal(stat(at("sticky"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 01777);
    field_add_str(&b, CELLA_TAG_PATH2, at("moved"));
    op_path(*state, &o, CELLA_OP_RENAME, at("p"), &b);
    assert_int_equal(op_wait(&o, 10000), 0);
    expect_result(&o);
    op_fini(&o);
    assert_int_equal(stat(at("moved/q/r"), &st), 0);
}

static void test_remove(void **state)
{
    auto_free char *text = NULL;
    struct stat st;
    struct op o;

    run(state, &o, CELLA_OP_REMOVE, at("many"), 0, 0);
    expect_error(&o, ENOTEMPTY, "many");
    assert_int_equal(symlink(at("dir"), at("many/out")), 0);
    spew("dir/outside", "stays");
    run(state, &o, CELLA_OP_REMOVE, at("many"), CELLA_TAG_RECURSIVE, 1);
    expect_result(&o);
    op_fini(&o);
    assert_int_equal(stat(at("many"), &st), -1);
    text = slurp("dir/outside");
    assert_string_equal(text, "stays");
    run(state, &o, CELLA_OP_REMOVE, at("link"), 0, 0); /* the link, not its target */
    expect_result(&o);
    op_fini(&o);
    assert_int_equal(stat(at("victim"), &st), 0);
    run(state, &o, CELLA_OP_REMOVE, at("none"), CELLA_TAG_RECURSIVE, 1);
    expect_error(&o, ENOENT, "none");
}

static void test_remove_stops_at_mounts(void **state)
{
    auto_free char *text = NULL;
    struct stat st;
    struct op o;

    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdir(at("top"), 0755), 0);
    assert_int_equal(mkdir(at("top/mnt"), 0755), 0);
    assert_int_equal(mount(at("dir"), at("top/mnt"), NULL, MS_BIND, NULL),
                     0); /* same file system */
    run(state, &o, CELLA_OP_REMOVE, at("top"), CELLA_TAG_RECURSIVE, 1);
    expect_error(&o, EXDEV, "mounted");
    run(state, &o, CELLA_OP_REMOVE, at("top/mnt"), CELLA_TAG_RECURSIVE, 1);
    expect_error(&o, EXDEV, "mounted");
    text = slurp("dir/outside");
    assert_string_equal(text, "stays");
    assert_int_equal(umount(at("top/mnt")), 0);
    run(state, &o, CELLA_OP_REMOVE, at("top"), CELLA_TAG_RECURSIVE, 1);
    expect_result(&o);
    op_fini(&o);
    assert_int_equal(stat(at("top"), &st), -1);
}

static void test_unknown_operation(void **state)
{
    struct op o;

    run(state, &o, CELLA_OP_MKDIR, "/a\001b/c", 0, 0); /* odd but legal */
    assert_int_equal(o.err_no, ENOENT);
    op_fini(&o);
}

static int setup_base(void **state)
{
    (void)state;
    if (geteuid() == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
        return -1;
    strcpy(base, "/tmp/cella-files-XXXXXX");
    return mkdtemp(base) ? cell_setup(state) : -1;
}

static int teardown_base(void **state)
{
    cell_teardown(state);
    return remove_tree_at(AT_FDCWD, base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put_and_get),
        cmocka_unit_test(test_put_keeps_what_it_replaces),
        cmocka_unit_test(test_put_refusals),
        cmocka_unit_test(test_put_abandoned),
        cmocka_unit_test(test_get_refusals),
        cmocka_unit_test(test_get_held_back),
        cmocka_unit_test(test_stat),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_mkdir_and_rename),
        cmocka_unit_test(test_remove),
        cmocka_unit_test(test_remove_stops_at_mounts),
        cmocka_unit_test(test_unknown_operation),
    };

    return cmocka_run_group_tests(tests, setup_base, teardown_base);
}
