/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* modules - load orders out of modules.dep, versions out of a bzImage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail

#include "modules.h"

static const char dep[] = "kernel/fs/erofs/erofs.ko.xz: kernel/lib/libcrc32c.ko.xz\n"
                          "kernel/lib/libcrc32c.ko.xz:\n"
                          "kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko "
                          "kernel/net/core/failover.ko\n"
                          "kernel/drivers/char/hw_random/virtio-rng.ko.zst:\n"
                          "kernel/fs/notoverlay.ko:\n";
static const char builtin[] = "kernel/fs/ext4/ext4.ko\nkernel/drivers/virtio/virtio_pci.ko\n";

static int need(const char *text, const char *name, struct modules *m, struct errbuf *eb)
{
    return modules_need(text, builtin, name, m, errbuf_init(eb));
}

static void test_order(void **state)
{
    struct modules m = {.n = 0};
    struct errbuf eb;

    (void)state;
    assert_int_equal(need(dep, "virtio_net", &m, &eb), 1);
    assert_int_equal(need(dep, "erofs", &m, &eb), 1);
    assert_int_equal(need(dep, "virtio_rng", &m, &eb), 1); /* '-' in the file's name */
    assert_int_equal(need(dep, "erofs", &m, &eb), 1);      /* there already */
    assert_int_equal(m.n, 6);
    assert_string_equal(m.v[0], "kernel/net/core/failover.ko"); /* what all others need */
    assert_string_equal(m.v[1], "kernel/drivers/net/net_failover.ko");
    assert_string_equal(m.v[2], "kernel/drivers/net/virtio_net.ko");
    assert_string_equal(m.v[3], "kernel/lib/libcrc32c.ko.xz");
    assert_string_equal(m.v[4], "kernel/fs/erofs/erofs.ko.xz");
    assert_string_equal(m.v[5], "kernel/drivers/char/hw_random/virtio-rng.ko.zst");
}

static void test_builtin_and_absent(void **state)
{
    struct modules m = {.n = 0};
    struct errbuf eb;

    (void)state;
    assert_int_equal(need(dep, "ext4", &m, &eb), 2);
    assert_int_equal(need(dep, "virtio_pci", &m, &eb), 2);
    assert_int_equal(need(dep, "overlay", &m, &eb), 0); /* notoverlay is another one */
    assert_int_equal(need("", "erofs", &m, &eb), 0);
    assert_int_equal(m.n, 0);
}

static void test_hostile(void **state)
{
    static const char *const texts[] = {"kernel/x.ko: ../../../etc/shadow\n",
                                        "kernel/x.ko: /etc/shadow\n",
                                        "kernel/x.ko: kernel/../../y.ko\n",
                                        "kernel/x.ko: kernel/a\tb.ko\n",
                                        "../x.ko:\n",
                                        "/x.ko:\n",
                                        "kernel/./x.ko:\n"};
    struct errbuf eb;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(texts); i++) {
        struct modules m = {.n = 0};
        if (need(texts[i], "x", &m, &eb) != -EBADMSG) {
            print_error("taken: %s", texts[i]);
            _fail(__FILE__, __LINE__);
        }
    }
}

static void test_many(void **state)
{
    struct modules m = {.n = 0};
    struct errbuf eb;
    auto_buf struct buf b = BUF_INIT;
    unsigned i;

    (void)state;
    buf_addf(&b, "kernel/x.ko:");
    for (i = 0; i < MODULES_MAX + 5; i++)
        buf_addf(&b, " kernel/m%u.ko", i);
    buf_addf(&b, "\n");
    buf_add(&b, "", 1);
    assert_int_equal(need(b.ptr, "x", &m, &eb), -E2BIG);
}

static void test_version(void **state)
{
    unsigned char image[0x400] = {0};
    char version[128];
    struct errbuf eb;

    (void)state;
    assert_int_equal(bzimage_version(image, sizeof(image), version, errbuf_init(&eb)), -EBADMSG);
    memcpy(image + 0x202, "HdrS", 4);
    assert_int_equal(bzimage_version(image, sizeof(image), version, errbuf_init(&eb)), -EBADMSG);
    image[0x20e] = 0x40;
    strcpy((char *)image + 0x240, "6.12.117+deb12 (root@x) #1");
    assert_int_equal(bzimage_version(image, sizeof(image), version, errbuf_init(&eb)), 0);
    assert_string_equal(version, "6.12.117+deb12");
    strcpy((char *)image + 0x240, "../../x");
    assert_int_equal(bzimage_version(image, sizeof(image), version, errbuf_init(&eb)), -EBADMSG);
    image[0x20f] = 0xff; /* beyond its end */
    assert_int_equal(bzimage_version(image, sizeof(image), version, errbuf_init(&eb)), -EBADMSG);
    assert_int_equal(bzimage_version(image, 0x200, version, errbuf_init(&eb)), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),   cmocka_unit_test(test_builtin_and_absent),
        cmocka_unit_test(test_hostile), cmocka_unit_test(test_many),
        cmocka_unit_test(test_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
