/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Copies whose machine was started before there was a snapshot. One machine is booted; what it holds in memory and on disk
 * is the evidence. Root only; without a guest kernel skipped (77).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "machine.h"
#undef fail /* cmocka has its own */
#include <cmocka.h>

#define COPY_MS (getenv("LAB_VM") ? 60000 : 30000) /* the lab emulates what runs the machine */

static struct machine source;
static char where[100];
static long first_sum;

static void runs(struct machine *m, int r)
{
    if (r < 0)
        print_error("%d %s\n", r, m->eb.text);
    assert_int_equal(r, 0);
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

static int prepare(struct machine *m)
{
    machine_host.ctx = m;
    return machine_ops()->prepare(&machine_host, &m->spec, &m->self, errbuf_init(&m->eb));
}

static int load(struct machine *m, const char *dir)
{
    struct cella_snapshot s = {.hdr = CELLA_HDR_INIT(struct cella_snapshot, CELLA_KIND_SNAPSHOT)};
    int r;

    s.borrow_dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r = machine_ops()->load(m->self, &s, errbuf_init(&m->eb));
    close(s.borrow_dir_fd);
    return r;
}

/* Kills what runs the machine, which has told nobody its number yet. */
static void kill_engine(const struct machine *m)
{
    char path[300], target[200];
    DIR *d = opendir("/proc");
    struct dirent *e;
    int found = 0;

    while (d && (e = readdir(d))) {
        auto_free char *text = NULL;
        size_t len, i;
        if (e->d_name[0] < '0' || e->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
        if (read_file_at(AT_FDCWD, path, 65536, &text, &len) < 0)
            continue;
        snprintf(target, sizeof(target), "cella-%s", m->id);
        for (i = 0; i + 1 < len; i++)
            if (!text[i])
                text[i] = ' ';
        if (!strstr(text, target) || !strstr(text, "-incoming"))
            continue;
        kill(atoi(e->d_name), SIGKILL);
        found++;
    }
    if (d)
        closedir(d);
    assert_int_equal(found, 1);
}

/* Prepared first, then the machine changes, then the snapshot: the copies have what it had then. */
static void test_before_the_snapshot(void **state)
{
    struct machine a, b;
    char dir[120];
    uint64_t t;
    long sum;

    (void)state;
    machine_init(&a);
    machine_init(&b);
    runs(&a, prepare(&a));
    runs(&b, prepare(&b));
    assert_int_equal(machine_ask(&source, 0, "fill 33554432 42"), 33554432);
    assert_int_equal(machine_ask(&source, 0, "put /rw/late 1500"), 1500);
    sum = machine_ask(&source, 0, "sum");
    assert_int_not_equal(sum, first_sum);
    snprintf(dir, sizeof(dir), "%s.late", where);
    runs(&source, take(&source, dir));
    t = now_ns();
    runs(&a, load(&a, dir));
    print_message("load %llu ms", (unsigned long long)(now_ns() - t) / 1000000);
    runs(&a, machine_run_ms(&a, COPY_MS));
    print_message(", to the first answer %llu ms\n", (unsigned long long)(now_ns() - t) / 1000000);
    runs(&b, load(&b, dir));
    remove_tree_at(AT_FDCWD, dir); /* nobody needs its names any more */
    runs(&b, machine_run_ms(&b, COPY_MS));
    assert_int_equal(machine_ask(&a, 0, "sum"), sum);
    assert_int_equal(machine_ask(&a, 0, "get /rw/late"), 1500);
    assert_int_equal(machine_ask(&a, 0, "fill 33554432 5"), 33554432);
    assert_int_equal(machine_ask(&a, 0, "put /rw/only-a 1000"), 1000);
    assert_int_equal(machine_ask(&b, 0, "sum"), sum);
    assert_int_equal(machine_ask(&b, 0, "get /rw/only-a"), -ENOENT);
    assert_int_not_equal(machine_ask(&a, 0, "random"), machine_ask(&b, 0, "random"));
    assert_int_equal(machine_ask(&b, 0, "put /rw/b 33554432"), -ENOSPC); /* the size holds */
    machine_fini(&a);
    machine_fini(&b);
}

/* Three layers of disk that nobody knew of when it was prepared; and its own pages are found. */
static void test_copy_of_copy(void **state)
{
    struct machine a, b;
    char dir[120];
    long sum;

    (void)state;
    snprintf(dir, sizeof(dir), "%s.deeper", where);
    machine_init(&a);
    machine_init(&b);
    runs(&b, prepare(&b));
    runs(&a, prepare(&a));
    runs(&a, load(&a, where));
    runs(&a, machine_run_ms(&a, COPY_MS));
    assert_int_equal(machine_ask(&a, 0, "sum"), first_sum);
    assert_int_equal(machine_ask(&a, 0, "fill 4194304 9"), 4194304);
    assert_int_equal(machine_ask(&a, 0, "put /rw/second 3000"), 3000);
    sum = machine_ask(&a, 0, "sum");
    runs(&a, take(&a, dir));
    machine_fini(&a);
    runs(&b, load(&b, dir));
    runs(&b, machine_run_ms(&b, COPY_MS));
    assert_int_equal(machine_ask(&b, 0, "sum"), sum);
    assert_int_equal(machine_ask(&b, 0, "get /rw/second"), 2000);
    machine_fini(&b);
    remove_tree_at(AT_FDCWD, dir);
}

static void refused(struct machine *m, int code, const char *words)
{
    assert_int_equal(load(m, where), code);
    if (!strstr(m->eb.text, words))
        print_error("%s\n", m->eb.text);
    assert_non_null(strstr(m->eb.text, words));
    machine_ops()->stop(m->self, CELLA_STOP_KILL, 0, NULL);
    machine_ops()->destroy(steal_ptr(&m->self));
    assert_int_equal(machine_entries(m->scratch), 0);
    machine_fini(m);
}

static void test_unfit(void **state)
{
    char path[200], c;
    struct machine m;
    int fd;

    (void)state;
    machine_init(&m);
    m.limits.memory_bytes = 256u << 20;
    runs(&m, prepare(&m));
    refused(&m, -EINVAL, "bytes of memory");
    machine_init(&m);
    m.limits.disk_bytes = 32u << 20;
    runs(&m, prepare(&m));
    refused(&m, -EINVAL, "bytes of disk");
    machine_init(&m);
    runs(&m, prepare(&m));
    snprintf(path, sizeof(path), "%s/state", where);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &c, 1, 1000), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, 1000), 1);
    refused(&m, -EBADMSG, "state: its content");
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, 1000), 1);
    close(fd);
    machine_init(&m); /* the twin */
    runs(&m, prepare(&m));
    runs(&m, load(&m, where));
    runs(&m, machine_run_ms(&m, COPY_MS));
    assert_int_equal(machine_ask(&m, 0, "sum"), first_sum);
    machine_fini(&m);
}

static void test_died_waiting(void **state)
{
    struct machine m;

    (void)state;
    machine_init(&m);
    runs(&m, prepare(&m));
    kill_engine(&m);
    refused(&m, -EPIPE, "QEMU");
}

static void test_never_loaded(void **state)
{
    struct machine m;

    (void)state;
    machine_init(&m);
    runs(&m, prepare(&m));
    assert_int_equal(machine_entries(m.scratch), 2); /* its two ports */
    machine_ops()->destroy(steal_ptr(&m.self));
    assert_int_equal(machine_entries(m.scratch), 0);
    m.spec.n_mounts = 1;
    m.mounts[0] = (struct cella_mount){"/usr", "/mnt", CELLA_MOUNT_BIND, 0, 0};
    m.spec.mounts = m.mounts;
    m.spec.mount_stride = sizeof(m.mounts[0]);
    assert_int_equal(prepare(&m), -ENOTSUP);
    assert_non_null(strstr(m.eb.text, "cannot have mounts of the host"));
    assert_int_equal(machine_entries(m.scratch), 0);
    machine_fini(&m);
}

static int setup(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    strcpy(where, "/var/tmp/cella-prep.XXXXXX");
    if (!mkdtemp(where))
        return -1;
    machine_init(&source);
    if (machine_boot(&source) < 0 || machine_ask(&source, 0, "rw") < 0 ||
        machine_ask(&source, 0, "fill 33554432 1") != 33554432)
        return -1;
    first_sum = machine_ask(&source, 0, "sum");
    if (take(&source, where) < 0) {
        print_error("%s\n", source.eb.text);
        return -1;
    }
    return 0;
}

static int teardown(void **state)
{
    static const char *const more[] = {"late", "deeper"};
    char dir[120];
    size_t i;

    (void)state;
    machine_fini(&source);
    for (i = 0; i < ARRAY_LEN(more); i++) { /* what a failure left */
        snprintf(dir, sizeof(dir), "%s.%s", where, more[i]);
        remove_tree_at(AT_FDCWD, dir);
    }
    return remove_tree_at(AT_FDCWD, where);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_before_the_snapshot),
        cmocka_unit_test(test_copy_of_copy),
        cmocka_unit_test(test_unfit),
        cmocka_unit_test(test_died_waiting),
        cmocka_unit_test(test_never_loaded),
    };
    int r = machine_possible();

    cmocka_set_test_filter(getenv("CMOCKA_FILTER"));
    return r ? r : cmocka_run_group_tests(tests, setup, teardown);
}
