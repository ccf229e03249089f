/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Snapshots of a real running machine, and copies from them. One machine is booted; what it holds in memory and on
 * disk is the evidence. Root only; without a guest kernel skipped (77).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "machine.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define COPY_MS (getenv("LAB_VM") ? 60000 : 30000) /* the lab emulates what runs the machine */
#define FILL "fill 33554432 "

static struct machine source;
static char where[100]; /* the snapshot that most tests use */
static long first_sum;

static void runs(struct machine *m, int r)
{
    if (r < 0)
        print_error("%d %s\n", r, m->eb.text);
    assert_int_equal(r, 0);
}

static int times_taken;
static long answered;

/* The machine goes on before the snapshot is whole. */
static void taken(void *ctx)
{
    times_taken++;
    answered = machine_ask_ms(ctx, 1, 10000, "ping");
}

static int take(struct machine *m, const char *dir)
{
    struct cella_snapshot s = {.hdr = CELLA_HDR_INIT(struct cella_snapshot, CELLA_KIND_SNAPSHOT)};
    int r;

    mkdir(dir, 0700);
    s.borrow_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = machine_ops()->snapshot(m->self, &s, errbuf_init(&m->eb));
    close(s.borrow_dir_fd);
    return r;
}

static int take_told(struct machine *m, const char *dir)
{
    struct cella_snapshot s = {.hdr = CELLA_HDR_INIT(struct cella_snapshot, CELLA_KIND_SNAPSHOT),
                               .ctx = m,
                               .taken = taken};
    int r;

    s.borrow_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = machine_ops()->snapshot(m->self, &s, errbuf_init(&m->eb));
    close(s.borrow_dir_fd);
    return r;
}

static int copy_make(struct machine *m, const char *dir)
{
    struct cella_snapshot s = {.hdr = CELLA_HDR_INIT(struct cella_snapshot, CELLA_KIND_SNAPSHOT)};
    int r;

    machine_host.ctx = m;
    s.borrow_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = machine_ops()->restore(&machine_host, &m->spec, &s, &m->self, errbuf_init(&m->eb));
    close(s.borrow_dir_fd);
    return r;
}

static void copy_run(struct machine *m, const char *dir)
{
    machine_init(m);
    runs(m, copy_make(m, dir));
    runs(m, machine_run_ms(m, COPY_MS));
}

static long machine_number(struct machine *m, const char *name)
{
    char json[1000], *at;
    int64_t n = machine_json(m, "machine", json, sizeof(json) - 1);

    assert_true(n > 0);
    json[n] = 0;
    at = strstr(json, name);
    assert_non_null(at);
    return strtol(at + strlen(name) + 2, NULL, 10);
}

/* KiB of memory that only this process has. */
static long unique(const struct machine *m)
{
    char path[64], *at;
    auto_free char *text = NULL;
    long kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)m->started.host_pid);
    assert_int_equal(read_file_at(AT_FDCWD, path, 65536, &text, NULL), 0);
    for (at = text; (at = strstr(at, "Anonymous:")); at++)
        kib += strtol(strchr(at, ':') + 1, NULL, 10);
    return kib;
}

/* How often QEMU has a file open; none of them for writing, in any way. */
static int open_read_only(const struct machine *m, const char *file)
{
    char dir[64], path[400], info[512];
    struct stat want, st;
    struct dirent *e;
    int n = 0;
    DIR *d;

    assert_int_equal(stat(file, &want), 0);
    snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)m->started.host_pid);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d))) {
        auto_free char *text = NULL;
        snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
        if (stat(path, &st) < 0 || st.st_ino != want.st_ino || st.st_dev != want.st_dev)
            continue;
        snprintf(info, sizeof(info), "%sinfo/%s", dir, e->d_name);
        assert_int_equal(read_file_at(AT_FDCWD, info, 4096, &text, NULL), 0);
        assert_int_equal(strtol(strstr(text, "flags:") + 6, NULL, 8) & O_ACCMODE, O_RDONLY);
        n++;
    }
    closedir(d);
    return n;
}

/* Tries to write to the memory that the snapshot was made of, as a QEMU that was taken over could. */
static int memory_write(const struct machine *m)
{
    char path[400], target[100];
    int fd = 0, r = -ENOENT, i;

    for (i = 0; i < 64 && r == -ENOENT; i++) {
        ssize_t n;
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)m->started.host_pid, i);
        n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        if (!strstr(target, "memfd:cella-ram"))
            continue;
        fd = open(path, O_RDWR | O_CLOEXEC);
        r = fd < 0 ? -errno : pwrite(fd, "x", 1, 0) < 0 ? -errno : 0;
        close(fd);
    }
    return r;
}

/* ----------------------------------------------------------------------- source */

static void test_source_goes_on(void **state)
{
    (void)state;
    assert_int_equal(machine_ask(&source, 0, "ping"), 1);
    assert_int_equal(machine_ask(&source, 0, "sum"), first_sum);
    assert_int_equal(machine_ask(&source, 0, "get /rw/a"), 2000);
    assert_true(machine_number(&source, "snapshot_pause_us") > 0);
    print_message("pause of the first snapshot: %ld us\n",
                  machine_number(&source, "snapshot_pause_us"));
    assert_int_equal(memory_write(&source), -EPERM);
    /* it changes what it has, and the snapshot does not */
    assert_int_equal(machine_ask(&source, 0, FILL "99"), 33554432);
    assert_int_not_equal(machine_ask(&source, 0, "sum"), first_sum);
    assert_int_equal(machine_ask(&source, 0, "rm /rw/a"), 0);
    assert_int_equal(machine_ask(&source, 0, "sync"), 0);
}

static void test_copies(void **state)
{
    struct machine a, b;
    char file[120];
    long ra, rb;
    uint64_t t;

    (void)state;
    machine_init(&a);
    t = now_ns();
    runs(&a, copy_make(&a, where));
    print_message("restore %llu ms", (unsigned long long)(now_ns() - t) / 1000000);
    runs(&a, machine_run(&a));
    print_message(", to the first answer %llu ms\n", (unsigned long long)(now_ns() - t) / 1000000);
    copy_run(&b, where);
    snprintf(file, sizeof(file), "%s/ram", where);
    assert_true(open_read_only(&a, file) >= 1);
    snprintf(file, sizeof(file), "%s/disk.0", where);
    assert_true(open_read_only(&a, file) >= 1);
    assert_int_equal(machine_ask(&a, 0, "sum"), first_sum);
    assert_int_equal(machine_ask(&a, 1, "ping"), 1);
    assert_int_equal(machine_ask(&a, 0, "get /rw/a"), 2000);
    print_message("unique memory of an idle copy: %ld KiB\n", unique(&b));
    /* neither sees what the other writes */
    assert_int_equal(machine_ask(&a, 0, FILL "5"), 33554432);
    assert_int_equal(machine_ask(&a, 0, "put /rw/only-a 1000"), 1000);
    assert_int_equal(machine_ask(&b, 0, "sum"), first_sum);
    assert_int_equal(machine_ask(&b, 0, "get /rw/only-a"), -ENOENT);
    ra = machine_ask(&a, 0, "random");
    rb = machine_ask(&b, 0, "random");
    assert_int_not_equal(ra, rb);
    assert_int_equal(machine_ask(&b, 0, "put /rw/b 33554432"), -ENOSPC); /* the size still holds */
    machine_fini(&a);
    machine_fini(&b);
}

/* A copy's own copy: pages of its own over a file that is another's. */
static void test_copy_of_copy(void **state)
{
    char dir[120], deeper[120];
    struct machine a, b, c;
    long sum, half;

    (void)state;
    snprintf(dir, sizeof(dir), "%s.second", where);
    snprintf(deeper, sizeof(deeper), "%s.third", where);
    copy_run(&a, where);
    assert_int_equal(machine_ask(&a, 0, FILL "77"), 33554432);
    assert_int_equal(machine_ask(&a, 0, "put /rw/second 3000"), 3000);
    sum = machine_ask(&a, 0, "sum");
    runs(&a, take(&a, dir));
    print_message("pause of a copy's snapshot: %ld us\n", machine_number(&a, "snapshot_pause_us"));
    assert_int_equal(machine_ask(&a, 0, "sum"), sum);
    assert_int_equal(machine_ask(&a, 0, FILL "78"), 33554432);
    machine_fini(&a);
    copy_run(&b, dir);
    assert_int_equal(machine_ask(&b, 0, "sum"), sum);
    assert_int_equal(machine_ask(&b, 0, "get /rw/a"), 2000);
    assert_int_equal(machine_ask(&b, 0, "get /rw/second"), 2000);
    assert_int_equal(machine_number(&b, "layers"), 3);
    assert_int_equal(machine_ask(&b, 0, "fill 4194304 3"), 4194304);
    half = machine_ask(&b, 0, "sum");
    runs(&b, take(&b, deeper));
    remove_tree_at(AT_FDCWD, dir); /* nothing of it is needed any more, not even by b */
    assert_int_equal(machine_ask(&b, 0, "get /rw/second"), 2000);
    copy_run(&c, deeper);
    assert_int_equal(machine_ask(&c, 0, "sum"), half);
    assert_int_equal(machine_ask(&c, 0, "get /rw/second"), 2000);
    machine_fini(&b);
    machine_fini(&c);
    remove_tree_at(AT_FDCWD, deeper);
}

/* The source's second snapshot: it runs on copies itself by now. */
static void test_again(void **state)
{
    char dir[120];
    struct machine a;
    long sum;

    (void)state;
    assert_int_equal(machine_ask(&source, 0, FILL "41"), 33554432);
    sum = machine_ask(&source, 0, "sum");
    snprintf(dir, sizeof(dir), "%s.again", where);
    assert_int_equal(machine_ask(&source, 0, "put /rw/again 500"), 500);
    runs(&source, take(&source, dir));
    print_message("pause of the second snapshot: %ld us\n",
                  machine_number(&source, "snapshot_pause_us"));
    assert_int_equal(machine_ask(&source, 0, "sum"), sum);
    copy_run(&a, dir);
    assert_int_equal(machine_ask(&a, 0, "sum"), sum);
    assert_int_equal(machine_ask(&a, 0, "get /rw/again"), 500);
    machine_fini(&a);
    remove_tree_at(AT_FDCWD, dir);
}

static void test_fork(void **state)
{
    struct machine a;
    long sum = machine_ask(&source, 0, "sum");
    uint64_t t = now_ns();

    (void)state;
    machine_init(&a);
    runs(&a, machine_ops()->fork(source.self, &a.spec, &a.self, errbuf_init(&a.eb)));
    print_message("fork %llu ms\n", (unsigned long long)(now_ns() - t) / 1000000);
    runs(&a, machine_run(&a));
    assert_int_equal(machine_ask(&a, 0, "sum"), sum);
    assert_int_equal(machine_ask(&source, 0, "sum"), sum);
    assert_int_equal(machine_entries(source.scratch), 2); /* its two ports */
    machine_fini(&a);
}

/* A machine that is paused stays so. */
static void test_paused(void **state)
{
    char dir[120];

    (void)state;
    snprintf(dir, sizeof(dir), "%s.paused", where);
    runs(&source, machine_ops()->pause(source.self, &source.eb.err));
    runs(&source, take(&source, dir));
    assert_int_equal(machine_ask_ms(&source, 1, 300, "ping"), -ETIMEDOUT);
    runs(&source, machine_ops()->resume(source.self, &source.eb.err));
    assert_int_equal(machine_catch_up(&source, 1), 0);
    remove_tree_at(AT_FDCWD, dir);
    assert_int_equal(machine_connect(&source, 1), 0);
}

/* ------------------------------------------------------------------- what goes wrong */

static void no_space(struct machine *m, const char *size, const char *words)
{
    char dir[120];

    snprintf(dir, sizeof(dir), "%s.small", where);
    mkdir(dir, 0700);
    assert_int_equal(mount("tmpfs", dir, "tmpfs", 0, size), 0);
    assert_int_equal(take(m, dir), -ENOSPC);
    if (!strstr(m->eb.text, words))
        print_error("%s\n", m->eb.text);
    assert_non_null(strstr(m->eb.text, words));
    assert_non_null(strstr(m->eb.text, "nothing of it was kept, the cell goes on"));
    assert_int_equal(machine_entries(dir), 0);
    assert_int_equal(machine_ask_ms(m, 0, 10000, "ping"), 1);
    umount(dir);
    rmdir(dir);
}

/* The memory of a machine that was never saved is copied last. */
static void test_no_space_in_the_pause(void **state)
{
    struct machine m;

    (void)state;
    machine_init(&m);
    runs(&m, machine_boot(&m));
    no_space(&m, "size=16k", "state");
    machine_fini(&m);
}

static void test_no_space(void **state)
{
    (void)state;
    no_space(&source, "size=20m", "memory");
}

static void refused(const char *dir, int code, const char *words)
{
    struct machine m;

    machine_init(&m);
    assert_int_equal(copy_make(&m, dir), code);
    if (!strstr(m.eb.text, words))
        print_error("%s\n", m.eb.text);
    assert_non_null(strstr(m.eb.text, words));
    assert_int_equal(machine_entries(m.scratch), 0);
    machine_fini(&m);
}

static void edit(const char *dir, const char *name, off_t at, int times)
{
    char path[200], c;
    struct timespec t[2];
    struct stat st;
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    t[0] = st.st_atim;
    t[1] = st.st_mtim;
    if (times)
        futimens(fd, t); /* covers its tracks as well as it can */
    close(fd);
}

static void test_edited(void **state)
{
    char path[200], kept[120];
    struct stat st;
    struct machine m;

    (void)state;
    edit(where, "ram", 20 << 20, 1);
    refused(where, -EBADMSG, "ram: its content is not what was saved");
    edit(where, "ram", 20 << 20, 1); /* as it was: found by reading it all */
    copy_run(&m, where);
    assert_int_equal(machine_ask(&m, 0, "sum"), first_sum);
    machine_fini(&m);
    edit(where, "state", 1000, 0);
    refused(where, -EBADMSG, "state: its content");
    edit(where, "state", 1000, 0);
    edit(where, "disk.0", 70000, 0);
    refused(where, -EBADMSG, "disk.0: its content");
    edit(where, "disk.0", 70000, 0);
    edit(where, "machine.json", 40, 0);
    refused(where, -EBADMSG, "machine.json: ");
    edit(where, "machine.json", 40, 0);
    snprintf(path, sizeof(path), "%s/disk.0", where);
    stat(path, &st);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    refused(where, -EBADMSG, "it was cut or changed");
    assert_int_equal(truncate(path, st.st_size), 0);
    snprintf(path, sizeof(path), "%s/state", where);
    snprintf(kept, sizeof(kept), "%s.kept", where);
    rename(path, kept);
    refused(where, -ENOENT, "state: No such file");
    assert_int_equal(symlink(kept, path), 0);
    refused(where, -ELOOP, "state: ");
    rename(kept, path);
    copy_run(&m, where); /* all of it undone: the twin */
    machine_fini(&m);
}

static void test_unfit(void **state)
{
    struct machine m;

    (void)state;
    machine_init(&m);
    m.limits.memory_bytes = 256u << 20;
    assert_int_equal(copy_make(&m, where), -EINVAL);
    assert_non_null(strstr(m.eb.text, "bytes of memory"));
    m.limits.memory_bytes = 128u << 20;
    m.limits.disk_bytes = 32u << 20;
    assert_int_equal(copy_make(&m, where), -EINVAL);
    m.limits.disk_bytes = 16u << 20;
    m.limits.cpu_millis = 2000;
    assert_int_equal(copy_make(&m, where), -EINVAL);
    m.limits.cpu_millis = 0;
    machine_option(&m, "cpu", "qemu64", 0);
    assert_int_equal(copy_make(&m, where), -ENOTSUP);
    assert_non_null(strstr(m.eb.text, "it was taken with the processor model "));
    m.options.n_values = 0;
    assert_int_equal(truncate(m.root, 2 << 20), 0);
    assert_int_equal(copy_make(&m, where), -EINVAL); /* another image */
    assert_int_equal(truncate(m.root, 1 << 20), 0);
    m.spec.kernel = m.spec.initrd = NULL; /* needs none */
    runs(&m, copy_make(&m, where));
    machine_fini(&m);
}

/* The parent and everything it had are gone. */
static void test_after_the_end(void **state)
{
    struct machine m;

    (void)state;
    machine_fini(&source);
    copy_run(&m, where);
    assert_int_equal(machine_ask(&m, 0, "sum"), first_sum);
    machine_fini(&m);
}

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    strcpy(where, "/var/tmp/cella-snap.XXXXXX");
    if (!mkdtemp(where))
        return -1;
    machine_init(&source);
    if (machine_boot(&source) < 0 || machine_ask(&source, 0, "rw") < 0 ||
        machine_ask(&source, 0, "put /rw/a 4000000") != 4000000 ||
        machine_ask(&source, 0, FILL "1") != 33554432)
        return -1;
    first_sum = machine_ask(&source, 0, "sum");
    if (take_told(&source, where) < 0) {
        print_error("%s\n", source.eb.text);
        return -1;
    }
    return times_taken == 1 && answered == 1 ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const more[] = {"second", "third", "again", "paused", "small"};
    char dir[120];
    size_t i;

    (void)state;
    machine_fini(&source);
    for (i = 0; i < ARRAY_LEN(more); i++) { /* what a failure left */
        snprintf(dir, sizeof(dir), "%s.%s", where, more[i]);
        umount(dir);
        remove_tree_at(AT_FDCWD, dir);
    }
    return remove_tree_at(AT_FDCWD, where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_space_in_the_pause),
        cmocka_unit_test(test_source_goes_on),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_copy_of_copy),
        cmocka_unit_test(test_again),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_paused),
        cmocka_unit_test(test_no_space),
        cmocka_unit_test(test_edited),
        cmocka_unit_test(test_unfit),
        cmocka_unit_test(test_after_the_end),
    };
    int r = machine_possible();

    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return r ? r : cmocka_run_group_tests(tests, setup, teardown);
}
