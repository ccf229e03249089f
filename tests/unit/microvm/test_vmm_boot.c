/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-vmm with real kernels: what the guest finds, how it ends, what its copies are. Needs KVM, hence the lab;
 * skipped (77) elsewhere.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "util.h"
#include "vmm_host.h"

#define BOOT_MS 120000 /* an emulated machine on a busy host */
#define QUIET "console=ttyS0 loglevel=6 panic=-1 mitigations=off random.trust_cpu=on "

static const char *kernel, *cloud;

static void boots_with(struct vmm *v, struct vmm_parts *p, int kernel_fd, const char *append,
                       uint32_t vcpus, uint64_t ram_mib)
{
    vmm_parts_init(p, NULL, append, ram_mib);
    p->kernel_fd = kernel_fd;
    p->initrd_fd = vmm_initrd(PROBE_INIT);
    p->config.vcpus = vcpus;
    p->config.flags |= VMM_CONFIG_TIMINGS;
    if (vmm_start(v, p) < 0) {
        vmm_ended(v, 2000);
        fprintf(stderr, "CONFIG: %d %s\n", v->status, v->why);
    }
    assert_int_equal(vmm_op(v, VMM_OP_CONT, 0, -1), 0);
}

static void boots(struct vmm *v, struct vmm_parts *p, int kernel_fd, const char *append,
                  uint32_t vcpus)
{
    boots_with(v, p, kernel_fd, append, vcpus, 128);
}

static int open_kernel(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
    assert_true(fd >= 0);
    return fd;
}

static void ends(struct vmm *v, struct vmm_parts *p, int status, const char *why)
{
    if (vmm_ended(v, BOOT_MS) != status || !strstr(v->why, why))
        fprintf(stderr, "%s\n%s\n", v->log, v->why);
    assert_int_equal(v->status, status);
    assert_non_null(strstr(v->why, why));
    vmm_kill(v);
    vmm_parts_fini(p);
}

static struct vmm v;

/* Each thread of the program's, as soon as the guest may run. */
static void confined(const struct vmm *m)
{
    char path[300], text[4096];
    DIR *d;
    struct dirent *e;
    int threads = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)m->pid);
    d = opendir(path);
    assert_non_null(d);
    while ((e = readdir(d))) {
        FILE *f;
        size_t n;
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/status", (int)m->pid, e->d_name);
        f = fopen(path, "re");
        if (!f)
            continue;
        n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = 0;
        fclose(f);
        if (strncmp(text, "Name:\tcella-vmm\n", 16))
            continue; /* the kernel's own */
        threads++;
        assert_non_null(strstr(text, "NoNewPrivs:\t1\n"));
        assert_non_null(strstr(text, "Seccomp:\t2\n"));
    }
    closedir(d);
    assert_int_equal(threads, 3);
}

static void finds_its_machine(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(kernel), QUIET "probe=off", 2);
    confined(&v);
    assert_non_null(vmm_says(&v, "probe: init", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cpus 2", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: clock kvm-clock", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cores 0-1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "generation=1 serial=1 button=1 events=1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: acpi virtio=5", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cpuid hypervisor=1 unwanted=0", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: switched itself off");
}

static void cloud_kernel_and_reset(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(cloud), QUIET "probe=reset", 1);
    assert_non_null(vmm_says(&v, "generation=1 serial=1 button=1 events=1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: doing reset", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: asked for a reset");
}

/* Without ACPI the MP table names the processors, and the interrupt by which the serial line is heard. */
static void mp_table(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(kernel), QUIET "acpi=off reboot=k probe=reset", 2);
    assert_non_null(vmm_says(&v, "probe: cpus 2", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cores 0-1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: acpi virtio=0", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: doing reset", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: asked for a reset (keyboard controller)");
}

/* Some of it lies above the hole for devices. */
static void memory_above_the_hole(void **state)
{
    struct vmm_parts p;
    const char *at;
    unsigned mib = 0;

    (void)state;
    boots_with(&v, &p, open_kernel(cloud), QUIET "probe=off", 1, 3584);
    at = vmm_says(&v, "probe: cpus 1 ram ", NULL, BOOT_MS);
    assert_non_null(at);
    assert_non_null(vmm_says(&v, "\n", at, BOOT_MS));
    assert_int_equal(sscanf(at, "probe: cpus 1 ram %u", &mib), 1);
    assert_in_range(mib, 3300, 3584);
    ends(&v, &p, 0, "guest: switched itself off");
}

static void elf(const char *path, int pvh)
{
    struct vmm_parts p;
    int fd = vmm_unpack(path, pvh);

    assert_true(fd >= 0);
    boots(&v, &p, fd, QUIET "probe=off", 1);
    assert_non_null(vmm_says(&v, "generation=1 serial=1 button=1 events=1", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: switched itself off");
}

static void elf_pvh(void **state)
{
    (void)state;
    elf(kernel, 1);
}

static void elf_64(void **state)
{
    (void)state;
    elf(cloud, 0);
}

static void keyboard_reset(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(cloud), QUIET "reboot=k probe=reset", 1);
    ends(&v, &p, 0, "guest: asked for a reset (keyboard controller)");
}

static void triple_fault(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(cloud), QUIET "reboot=t probe=reset", 1);
    ends(&v, &p, 1, "guest: triple fault on processor 0");
}

static void panic(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(cloud), QUIET "probe=panic", 1);
    assert_non_null(vmm_says(&v, "Kernel panic - not syncing", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: asked for a reset");
}

/* Without a word of the kernel's, which would push it out: what a program writes comes by interrupts alone. */
static void quiet_console(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(kernel), "console=ttyS0 quiet loglevel=4 panic=-1 probe=count", 1);
    assert_non_null(vmm_says(&v, "probe: tick 3 ", NULL, BOOT_MS));
    vmm_kill(&v);
    vmm_parts_fini(&p);
}

static void hostile_registers(void **state)
{
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, open_kernel(cloud), QUIET "iomem=relaxed probe=hostile", 1);
    assert_non_null(vmm_says(&v, "probe: hostile memory", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: hostile done", NULL, BOOT_MS));
    ends(&v, &p, 0, "guest: switched itself off");
}

/* ----------------------------------------------------------------------- copies */

struct tick {
    unsigned long n, sum, random;
    long mono, real;
};

/* The first whole tick behind `from`. */
static struct tick tick_after(struct vmm *m, const char *from)
{
    const char *at = vmm_says(m, "probe: tick ", from, BOOT_MS);
    struct tick t = {0};

    assert_non_null(at);
    assert_non_null(vmm_says(m, "\n", at, BOOT_MS));
    assert_int_equal(sscanf(at, "probe: tick %lu mono %ld real %ld sum %lu random %lx", &t.n,
                            &t.mono, &t.real, &t.sum, &t.random),
                     5);
    return t;
}

static struct tick last_tick(struct vmm *m)
{
    const char *at = m->log, *next;

    while ((next = strstr(at + 1, "probe: tick ")) && strchr(next, '\n'))
        at = next;
    return tick_after(m, at);
}

static uint64_t sum_of(int fd)
{
    uint64_t size = (uint64_t)lseek(fd, 0, SEEK_END), sum = 0, i;
    uint64_t *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    assert_true(p != MAP_FAILED);
    for (i = 0; i < size / 8; i++)
        sum = sum * 31 + p[i];
    munmap(p, size);
    return sum;
}

static void copy_start(struct vmm *c, const struct vmm_parts *of, char generation, int state_fd)
{
    struct vmm_parts p = *of;
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", of->ram_fd);
    p.ram_fd = open(path, O_RDONLY | O_CLOEXEC);
    p.kernel_fd = p.initrd_fd = -1;
    p.config.flags |= VMM_CONFIG_PRIVATE | VMM_CONFIG_INCOMING;
    memset(p.config.generation, generation, sizeof(p.config.generation));
    if (vmm_start(c, &p) < 0 || vmm_op(c, VMM_OP_CONT, 0, -1) != -EPROTO)
        fprintf(stderr, "copy: %s\n", c->why);
    assert_int_equal(vmm_op(c, VMM_OP_LOAD, 0, state_fd), 0);
    assert_int_equal(vmm_op(c, VMM_OP_LOAD, 0, state_fd), -EPROTO);
    close(p.ram_fd);
}

#define COPIES 3
#define PAUSE_MS 4000 /* that a copy must not see */
#define SLACK_MS 1500 /* from the last line to the pause, in an emulated machine */

struct copy {
    struct vmm v;
    struct tick first, later; /* `later` began behind the notification */
    uint64_t loaded_ns;
    long seen_ms; /* from LOAD until `first` was here */
};

static void copy_run(struct copy *c, const struct vmm_parts *of, char generation, int state_fd)
{
    const char *at;

    c->loaded_ns = now_ns();
    copy_start(&c->v, of, generation, state_fd);
    assert_int_equal(vmm_op(&c->v, VMM_OP_CONT, 0, -1), 0);
    c->first = tick_after(&c->v, NULL);
    c->seen_ms = (long)((now_ns() - c->loaded_ns) / 1000000);
    at = vmm_says(&c->v, "crng reseeded due to virtual machine fork", NULL, BOOT_MS);
    assert_non_null(at);
    c->later = tick_after(&c->v, at);
    at = vmm_says(&c->v, "probe: tick ", at, BOOT_MS);
    c->later = tick_after(&c->v, at + 1);
}

static void copy_judge(const struct copy *c, const struct tick *before)
{
    fprintf(stderr, "copy: tick %lu, %ld ms of the guest's in %ld ms\n", c->first.n,
            c->first.mono - before->mono, c->seen_ms);
    assert_in_range(c->first.n, before->n + 1, before->n + 2);
    assert_int_equal(c->first.sum, before->sum);
    assert_true(c->first.mono >= before->mono);
    assert_true(c->first.mono <= before->mono + c->seen_ms + SLACK_MS);
}

static void copies(uint32_t vcpus, const char *append)
{
    static struct copy copy[COPIES];
    struct tick before, on;
    struct vmm_parts p;
    int state_fd = memfd_create("state", MFD_CLOEXEC), i, k;
    size_t at;
    uint64_t sum;

    boots(&v, &p, open_kernel(cloud), append, vcpus);
    assert_non_null(vmm_says(&v, "probe: tick 3 ", NULL, BOOT_MS));
    assert_int_equal(vmm_op(&v, VMM_OP_SAVE, 0, state_fd), -EBUSY);
    assert_int_equal(vmm_op(&v, VMM_OP_PAUSE, 0, -1), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_SAVE, 0, state_fd), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_DETACH, 0, -1), 0);
    usleep(PAUSE_MS * 1000);
    before = last_tick(&v);
    sum = sum_of(p.ram_fd);
    for (i = 0; i < COPIES; i++)
        copy_run(&copy[i], &p, (char)('a' + i), state_fd);
    at = v.log_len;
    assert_int_equal(vmm_op(&v, VMM_OP_CONT, 0, -1), 0);
    on = tick_after(&v, v.log + at - 1); /* the one they were copied from goes on */
    assert_in_range(on.n, before.n + 1, before.n + 2);
    assert_int_equal(on.sum, before.sum);
    for (i = 0; i < COPIES; i++) {
        copy_judge(&copy[i], &before);
        for (k = 0; k < i; k++)
            assert_int_not_equal(copy[i].later.random, copy[k].later.random);
        vmm_kill(&copy[i].v);
    }
    assert_true(sum_of(p.ram_fd) == sum); /* nobody has written into the snapshot */
    vmm_kill(&v);
    vmm_parts_fini(&p);
    close(state_fd);
}

static void copies_of_one(void **state)
{
    (void)state;
    copies(1, QUIET "probe=count");
}

static void copies_of_two(void **state)
{
    (void)state;
    copies(2, QUIET "probe=count");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_its_machine),
        cmocka_unit_test(cloud_kernel_and_reset),
        cmocka_unit_test(mp_table),
        cmocka_unit_test(memory_above_the_hole),
        cmocka_unit_test(elf_pvh),
        cmocka_unit_test(elf_64),
        cmocka_unit_test(keyboard_reset),
        cmocka_unit_test(triple_fault),
        cmocka_unit_test(panic),
        cmocka_unit_test(hostile_registers),
        cmocka_unit_test(quiet_console),
        cmocka_unit_test(copies_of_one),
        cmocka_unit_test(copies_of_two),
    };
    const char *missing = vmm_missing();
    static char path[300], dir[300];

    if (missing) {
        printf("test-vmm-boot: skipped: %s\n", missing);
        return 77;
    }
    snprintf(dir, sizeof(dir), "%s/vmlinuz",
             getenv("CELLA_TEST_KERNEL") ? getenv("CELLA_TEST_KERNEL")
                                         : TEST_BUILD "/test-cache/state/kernels/default");
    kernel = dir;
    snprintf(path, sizeof(path), "%s/kernel/vmlinuz",
             getenv("LAB_CACHE") ? getenv("LAB_CACHE") : "/root/.cache/cella-lab");
    cloud = path;
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
