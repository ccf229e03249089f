/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a cell is shown: bundles built from images of every shape, PEM that is none, the file of denials and its bound. */
#include "shown_world.h"

/* ---- PEM ---- */

static void test_pem(void **state)
{
    static const char *const bad[] = {
        "",
        "\n\n",
        "hello\n",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nQQ==\n",
        CA "-----BEGIN PRIVATE KEY-----\nQQ==\n-----END PRIVATE KEY-----\n",
        CA "-----BEGIN EC PRIVATE KEY-----\nQQ==\n-----END EC PRIVATE KEY-----\n",
        "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nQQ==\n"
        "-----END CERTIFICATE-----\n",
        "# comment\n" CA,
        CERT("Q Q="),
        CERT("Q=Q=="),
        CERT("\xff"),
        "-----BEGIN CERTIFICATE----- \nQQ==\n-----END CERTIFICATE-----\n",
    };
    char line[128];
    const char *why = NULL;
    size_t i;

    (void)state;
    for (i = 0; i < ARRAY_LEN(bad); i++) {
        why = NULL;
        assert_int_equal(trust_pem_check(bad[i], strlen(bad[i]), &why), -EINVAL);
        assert_non_null(why);
    }
    assert_int_equal(trust_pem_check(CA, strlen(CA), &why), 1);
    assert_int_equal(trust_pem_check(CA CA, strlen(CA) * 2, &why), 2);
    assert_int_equal(trust_pem_check(CA, strlen(CA) - 1, &why), 1); /* no newline at the end */
    assert_int_equal(
        trust_pem_check("-----BEGIN CERTIFICATE-----\r\nQQ==\r\n-----END CERTIFICATE-----\r\n", 62,
                        &why),
        1);
    assert_int_equal(trust_pem_check(CA "\0", strlen(CA) + 1, &why), -EINVAL);
    memset(line, 'A', sizeof(line));
    line[77] = 0; /* longer than any writer's */
    {
        char text[256];
        snprintf(text, sizeof(text), "-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n",
                 line);
        assert_int_equal(trust_pem_check(text, strlen(text), &why), -EINVAL);
    }
}

/* ---- bundles ---- */

static void test_no_bundle(void **state)
{
    (void)state;
    bundle_is(CA, NULL, 0);
    free(image.root);
    image.root = NULL; /* an image that is no directory */
    bundle_is(CA, NULL, 0);
}

static void test_appended(void **state)
{
    (void)state;
    puts_(DEBIAN, CERT("b25l") CERT("dHdv"));
    bundle_is(CERT("b25l") CERT("dHdv") CA, DEBIAN, 1);
    assert_string_equal(bundle.places[0], DEBIAN);
    put(DEBIAN, CERT("b25l"), strlen(CERT("b25l")) - 1); /* no newline at its end */
    bundle_is(CERT("b25l") CA, DEBIAN, 1);
    puts_(DEBIAN, "");
    bundle_is(CA, DEBIAN, 1);
}

static void test_places(void **state)
{
    (void)state;
    puts_("/etc/ssl/cert.pem", CERT("YWxw"));
    bundle_is(CERT("YWxw") CA, "/etc/ssl/cert.pem", 1);
    puts_("/etc/pki/tls/certs/ca-bundle.crt", CERT("ZmVk"));
    bundle_is(CERT("ZmVk") CA, "/etc/pki/tls/certs/ca-bundle.crt", 2); /* both are covered */
    assert_string_equal(bundle.places[1], "/etc/ssl/cert.pem");
}

/* Links as distributions have them: one file, several names, one mount. */
static void test_links(void **state)
{
    (void)state;
    puts_("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", CERT("ZmVk"));
    parents("/etc/pki/tls/certs/x");
    assert_int_equal(symlink("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                             in_image("/etc/pki/tls/certs/ca-bundle.crt")),
                     0);
    assert_int_equal(symlink("certs/ca-bundle.crt", in_image("/etc/pki/tls/cert.pem")), 0);
    bundle_is(CERT("ZmVk") CA, "/etc/pki/tls/certs/ca-bundle.crt", 1);
}

/* An image may hold anything under these names. */
static void test_hostile_image(void **state)
{
    static const char outside[] = CERT("b3V0");
    char target[128];
    int fd;

    (void)state;
    snprintf(target, sizeof(target), "%s/outside", dir);
    fd = open(target, O_WRONLY | O_CREAT, 0644);
    assert_int_equal(write_all(fd, outside, strlen(outside)), 0);
    close(fd);
    parents(DEBIAN);
    assert_int_equal(symlink(target, in_image(DEBIAN)), 0); /* absolute: below the image's root */
    bundle_is(CA, NULL, 0);
    assert_int_equal(unlink(in_image(DEBIAN)), 0);
    assert_int_equal(symlink("../../../../../outside", in_image(DEBIAN)), 0);
    bundle_is(CA, NULL, 0);
    assert_int_equal(unlink(in_image(DEBIAN)), 0);
    assert_int_equal(symlink("ca-certificates.crt", in_image(DEBIAN)), 0); /* a loop */
    bundle_is(CA, NULL, 0);
    assert_int_equal(unlink(in_image(DEBIAN)), 0);
    assert_int_equal(mkfifo(in_image(DEBIAN), 0644), 0); /* must not be waited for */
    bundle_is(CA, NULL, 0);
    assert_int_equal(unlink(in_image(DEBIAN)), 0);
    assert_int_equal(mkdir(in_image(DEBIAN), 0755), 0);
    bundle_is(CA, NULL, 0);
    assert_int_equal(rmdir(in_image(DEBIAN)), 0);
    puts_(DEBIAN, "x");
    assert_int_equal(truncate(in_image(DEBIAN), TRUST_BUNDLE_MAX + 1), 0);
    assert_int_equal(build(), -EFBIG);
    assert_non_null(strstr(eb.text, DEBIAN));
    puts_(DEBIAN, CERT("b25l"));
    bundle_is(CERT("b25l") CA, DEBIAN, 1); /* twin */
}

/* The `host` image shows /etc/ssl/certs by a mount of its own. */
static void test_image_mounts(void **state)
{
    char source[128], nearer[128];
    struct cella_mount mounts[] = {
        {source, "/etc/ssl", CELLA_MOUNT_BIND, CELLA_MOUNT_IMAGE, 0},
        {nearer, "/etc/ssl/certs", CELLA_MOUNT_BIND, CELLA_MOUNT_IMAGE, 0},
        {source, "/etc/ssl/cer", CELLA_MOUNT_BIND, CELLA_MOUNT_IMAGE, 0},
    };

    (void)state;
    snprintf(source, sizeof(source), "%s/root/a", dir);
    snprintf(nearer, sizeof(nearer), "%s/root/b", dir);
    puts_(DEBIAN, CERT("Y292ZXJlZA=="));
    puts_("/a/certs/ca-certificates.crt", CERT("YWxzbw=="));
    puts_("/b/ca-certificates.crt", CERT("c2Vlbg=="));
    image.mounts = mounts;
    image.n_mounts = ARRAY_LEN(mounts);
    bundle_is(CERT("c2Vlbg==") CA, DEBIAN, 1);
    image.n_mounts = 1;
    bundle_is(CERT("YWxzbw==") CA, DEBIAN, 1);
    image.n_mounts = 0;
    bundle_is(CERT("Y292ZXJlZA==") CA, DEBIAN, 1);
}

/* ---- Java ---- */

/* A SEQUENCE of 128 bytes with its head, as base64. */
static const char *der_cert(uint8_t fill)
{
    static char text[400];
    uint8_t der[131] = {0x30, 0x81, 0x80};
    char b64[200];

    memset(der + 3, fill, 128);
    sodium_bin2base64(b64, sizeof(b64), der, sizeof(der), sodium_base64_VARIANT_ORIGINAL);
    snprintf(text, sizeof(text), "%.60s\n%.60s\n%s", b64, b64 + 60, b64 + 120);
    {
        static char pem[512];
        snprintf(pem, sizeof(pem), CERT("%s"), text);
        return pem;
    }
}

static uint32_t count_of(const struct buf *b)
{
    const uint8_t *p = (const uint8_t *)b->ptr;

    assert_true(b->len >= 32);
    assert_memory_equal(p, "\xfe\xed\xfe\xed\0\0\0\2", 8);
    return (uint32_t)p[8] << 24 | (uint32_t)p[9] << 16 | (uint32_t)p[10] << 8 | p[11];
}

#define ENTRY(alias_len) (4 + 2 + (alias_len) + 8 + 2 + 5 + 4 + 131)

static void test_keystore(void **state)
{
    auto_buf struct buf ks = BUF_INIT, more = BUF_INIT, other = BUF_INIT;
    char bundle_text[2048], ca[600];

    (void)state;
    snprintf(ca, sizeof(ca), "%s", der_cert(7));
    snprintf(bundle_text, sizeof(bundle_text), "# a comment\n%s" CERT("bm8gREVS") CERT("!!!!") "%s",
             der_cert(1), ca);
    assert_int_equal(trust_keystore("PKCS12", 6, bundle_text, strlen(bundle_text), ca, strlen(ca),
                                    0x123456789a, &ks),
                     2);
    assert_int_equal(count_of(&ks), 2); /* what is no certificate was passed over */
    assert_int_equal(ks.len, 12 + 2 * ENTRY(7) + 20);
    assert_memory_equal(ks.ptr + 12, "\0\0\0\2\0\7cella-0\0\0\0\x12\x34\x56\x78\x9a\0\5X.509", 28);
    assert_memory_equal(ks.ptr + 12 + 28, "\0\0\0\x83\x30\x81\x80\1", 8);
    /* its own entries stay, the authority is one more, the bundle is not asked */
    assert_int_equal(
        trust_keystore(ks.ptr, ks.len, bundle_text, strlen(bundle_text), ca, strlen(ca), 0, &more),
        3);
    assert_int_equal(count_of(&more), 3);
    assert_int_equal(more.len, 12 + 3 * ENTRY(7) + 20);
    assert_memory_equal(more.ptr + 12, ks.ptr + 12, 2 * ENTRY(7));
    /* too short to be one */
    assert_int_equal(trust_keystore(ks.ptr, 31, ca, strlen(ca), ca, strlen(ca), 0, &other), 1);
    assert_int_equal(other.len, 12 + ENTRY(7) + 20);
}

static void test_keystore_of_image(void **state)
{
    static const char path[] = "/etc/ssl/certs/java/cacerts";

    (void)state;
    puts_(DEBIAN, der_cert(1));
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.n_keystores, 0);
    assert_int_equal(bundle.keystore.len, 0);
    puts_(path, "whatever");
    parents("/etc/pki/java/x");
    assert_int_equal(symlink(path, in_image("/etc/pki/java/cacerts")), 0);
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.n_keystores, 1);
    assert_string_equal(bundle.keystores[0], path);
    assert_int_equal(count_of(&bundle.keystore), 1); /* CA of this test is no certificate */
    assert_int_equal(truncate(in_image(path), TRUST_BUNDLE_MAX + 1), 0);
    assert_int_equal(build(), -EFBIG);
    assert_non_null(strstr(eb.text, path));
}

/* Replacing variables get everything, additive ones the CA. */
static void test_environment(void **state)
{
    size_t i, additive = 0;
    const char *s;

    (void)state;
    for (i = 0; (s = trust_env(i)); i++) {
        if (!strncmp(s, "NODE_EXTRA_CA_CERTS=", 20) || !strncmp(s, "DENO_CERT=", 10)) {
            assert_string_equal(strchr(s, '='), "=/run/cella/ca.pem");
            additive++;
        } else if (strcmp(s, "UV_NATIVE_TLS=1")) {
            assert_string_equal(strchr(s, '='), "=/run/cella/ca-bundle.pem");
        }
    }
    assert_int_equal(additive, 2);
    assert_int_equal(i, 11);
}

/* Only where the cell's own layer can hold it, and never out of the image. */
static void test_anchors(void **state)
{
    static const char debian[] = "/usr/local/share/ca-certificates/cella-gate.crt";
    struct cella_mount usr = {.source = dir, .target = "/usr", .type = CELLA_MOUNT_BIND};

    (void)state;
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.n_anchors, 0);
    parents(debian);
    parents("/etc/pki/ca-trust/source/anchors/x");
    trust_bundle_fini(&bundle);
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.n_anchors, 2);
    assert_string_equal(bundle.anchors[0], debian);
    image.mounts = &usr;
    image.n_mounts = 1;
    trust_bundle_fini(&bundle);
    assert_int_equal(build(), 0);
    image.mounts = NULL;
    image.n_mounts = 0;
    assert_int_equal(bundle.n_anchors, 1);
    assert_string_not_equal(bundle.anchors[0], debian);
    assert_int_equal(remove_tree_at(AT_FDCWD, in_image("/etc")), 0);
    assert_int_equal(remove_tree_at(AT_FDCWD, in_image("/usr")), 0);
    assert_int_equal(symlink("/usr/local", in_image("/usr")), 0); /* a loop in the image */
    trust_bundle_fini(&bundle);
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.n_anchors, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pem),
        cmocka_unit_test(test_environment),
        cmocka_unit_test_setup_teardown(test_no_bundle, setup, teardown),
        cmocka_unit_test_setup_teardown(test_appended, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_links, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_image, setup, teardown),
        cmocka_unit_test_setup_teardown(test_image_mounts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_anchors, setup, teardown),
        cmocka_unit_test(test_keystore),
        cmocka_unit_test_setup_teardown(test_keystore_of_image, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
