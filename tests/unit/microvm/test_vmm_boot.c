/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-vmm with real kernels: what the guest finds, how it ends, what its copies are. Needs KVM, hence the lab;
 * skipped (77) elsewhere.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/mman.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "util.h"
#include "vmm_host.h"

#define BOOT_MS 120000
#define QUIET "console=ttyS0 loglevel=6 panic=-1 mitigations=off random.trust_cpu=on "

static const char *kernel;

static void boots(struct vmm *v, struct vmm_parts *p, const char *append, uint32_t vcpus)
{
    vmm_parts_init(p, kernel, append, 128);
    p->initrd_fd = vmm_initrd(PROBE_INIT);
    p->config.vcpus = vcpus;
    p->config.flags |= VMM_CONFIG_TIMINGS;
    assert_int_equal(vmm_start(v, p), 0);
    assert_int_equal(vmm_op(v, VMM_OP_CONT, 0, -1), 0);
}

static void finds_its_machine(void **state)
{
    static struct vmm v;
    struct vmm_parts p;

    (void)state;
    boots(&v, &p, QUIET "probe=off", 2);
    assert_non_null(vmm_says(&v, "probe: init", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cpus 2", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cores 0-1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "generation=1 serial=1 button=1 events=1", NULL, BOOT_MS));
    assert_non_null(vmm_says(&v, "probe: cpuid hypervisor=1 unwanted=0", NULL, BOOT_MS));
    assert_int_equal(vmm_ended(&v, BOOT_MS), 0);
    assert_non_null(strstr(v.why, "guest: switched itself off"));
    vmm_kill(&v);
    vmm_parts_fini(&p);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_its_machine),
    };
    const char *missing = vmm_missing();

    if (missing) {
        fprintf(stderr, "test-vmm-boot: skipped: %s\n", missing);
        return 77;
    }
    kernel = argc > 1 ? argv[1] : TEST_BUILD "/test-cache/state/kernels/default/vmlinuz";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
