/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * A guest that attacks its machine at full speed (storm_init.c), for CELLA_STORM_SECONDS (default 5): the monitor answers all the
 * time, and afterwards saves a machine in which a device works. In the tree with sanitizers, nothing of theirs is
 * heard. Needs KVM, hence the lab; skipped (77) elsewhere.
 */
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include "util.h"
#include "vmm_host.h"

#define BOOT_MS 180000 /* an emulated machine on a busy host */

static const char *kernel;

static int make_tap(void)
{
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    struct ifreq r;

    memset(&r, 0, sizeof(r));
    strcpy(r.ifr_name, "guest");
    r.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    return fd >= 0 && ioctl(fd, TUNSETIFF, &r) == 0 ? fd : -1;
}

/* It answers until the guest is through with it. */
static const char *weather(struct vmm *v, int seconds)
{
    const char *through = NULL;
    int i;

    for (i = 0; !through && i < 5 * seconds + BOOT_MS / 200; i++) {
        usleep(200000);
        if (vmm_op(v, VMM_OP_STATS, 0, -1) < 0)
            return NULL;
        through = strstr(v->log, "storm: bytes by the book ");
    }
    return through;
}

static void hostile_guest(void **state)
{
    static struct vmm v;
    const char *secs = getenv("CELLA_STORM_SECONDS"), *at, *last;
    int state_fd = memfd_create("state", MFD_CLOEXEC), bytes = 0;
    struct vmm_parts p;
    char append[160];

    (void)state;
    snprintf(append, sizeof(append),
             "console=ttyS0 loglevel=4 panic=-1 mitigations=off random.trust_cpu=on iomem=relaxed "
             "printk.devkmsg=on secs=%d",
             secs ? atoi(secs) : 5);
    vmm_parts_init(&p, kernel, append, 128);
    p.initrd_fd = vmm_initrd(STORM_INIT);
    p.tap_fd = make_tap();
    assert_true(p.tap_fd >= 0);
    p.config.flags |= VMM_CONFIG_NET;
    memcpy(p.config.mac, "\x02\0\0\0\0\x09", 6);
    assert_int_equal(vmm_start(&v, &p), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_CONT, 0, -1), 0);
    assert_non_null(vmm_says(&v, "storm: begins 6", NULL, BOOT_MS));
    at = weather(&v, secs ? atoi(secs) : 5);
    if (!at)
        fprintf(stderr, "%s%s\n", v.log, v.why);
    assert_non_null(at);
    print_message("%s", strstr(v.log, "storm: rounds "));
    assert_non_null(vmm_says(&v, "storm: alive 0", at, 30000));
    assert_int_equal(sscanf(at, "storm: bytes by the book %d", &bytes), 1);
    assert_in_range(bytes, 48, 64);
    assert_int_equal(vmm_op(&v, VMM_OP_PAUSE, 0, -1), 0);
    assert_int_equal(vmm_op(&v, VMM_OP_SAVE, 0, state_fd), 0);
    assert_true(lseek(state_fd, 0, SEEK_END) > 1000);
    last = v.log + v.log_len;
    assert_int_equal(vmm_op(&v, VMM_OP_CONT, 0, -1), 0);
    assert_non_null(vmm_says(&v, "storm: alive ", last, 30000));
    assert_int_equal(v.status, -1);
    assert_string_equal(v.why, ""); /* where a sanitizer would speak */
    vmm_kill(&v);
    close(p.tap_fd);
    close(state_fd);
    vmm_parts_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hostile_guest)};
    const char *missing = vmm_missing(), *lab = getenv("LAB_CACHE");
    static char path[300];

    snprintf(path, sizeof(path), "%s/kernel/vmlinuz", lab ? lab : "/root/.cache/cella-lab");
    kernel = path;
    if (missing) {
        printf("test-vmm-storm-lab: skipped: %s\n", missing);
        return 77;
    }
    if (unshare(CLONE_NEWNET) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
