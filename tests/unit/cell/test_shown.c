/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a cell is shown: bundles built from images of every shape, PEM that is none, the file of denials and its bound. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include <jansson.h>
#include <sodium.h>

#include "denials.h"
#include "trust.h"

#define CERT(body) "-----BEGIN CERTIFICATE-----\n" body "\n-----END CERTIFICATE-----\n"
#define CA CERT("Q0E=")
#define DEBIAN "/etc/ssl/certs/ca-certificates.crt"

static char dir[64];
static struct image image;
static struct trust_bundle bundle;
static struct errbuf eb;

/* ---- an image on disk ---- */

static char *in_image(const char *path)
{
    static char out[512];

    snprintf(out, sizeof(out), "%s/root%s", dir, path);
    return out;
}

static void parents(const char *path)
{
    char *full = in_image(path), *slash = strrchr(full, '/');

    *slash = 0;
    assert_int_equal(mkdir_p(full, 0755), 0);
}

static void put(const char *path, const char *text, size_t len)
{
    int fd;

    parents(path);
    fd = open(in_image(path), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, len), 0);
    close(fd);
}

static void puts_(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cella-test-shown-XXXXXX");
    if (!mkdtemp(dir) || mkdir(in_image(""), 0755) < 0)
        return -1;
    image = (struct image){.name = "dir", .root = strdup(in_image(""))};
    bundle = (struct trust_bundle){.text = BUF_INIT};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    trust_bundle_fini(&bundle);
    free(image.root);
    return remove_tree_at(AT_FDCWD, dir);
}

static int build(void)
{
    trust_bundle_fini(&bundle);
    return trust_bundle_build(&image, CA, strlen(CA), &bundle, errbuf_init(&eb));
}

static void bundle_is(const char *text, const char *from, size_t places)
{
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.text.len, strlen(text));
    assert_memory_equal(bundle.text.ptr, text, strlen(text));
    if (from)
        assert_string_equal(bundle.from, from);
    else
        assert_null(bundle.from);
    assert_int_equal(bundle.n_places, places);
}

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

/* ---- denials ---- */

static struct denials denials;

static int denials_setup(void **state)
{
    int fd, r = setup(state);

    fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r == 0)
        r = denials_open(&denials, fd);
    close(fd);
    return r;
}

static int denials_teardown(void **state)
{
    denials_close(&denials);
    denials_close(&denials);
    return teardown(state);
}

static void deny(const char *reason, const char *name, size_t name_len, int64_t port)
{
    struct cella_field f[] = {
        {"reason", CELLA_FIELD_STR, 0, 0, {reason, strlen(reason)}},
        {"name", CELLA_FIELD_STR, 0, 0, {name, name_len}},
        {"port", CELLA_FIELD_INT, 0, port, {NULL, 0}},
        {"bad name\"", CELLA_FIELD_INT, 0, 1, {NULL, 0}},
        {"help", CELLA_FIELD_INT, 0, 1, {NULL, 0}},
    };
    struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                            .kind = "net.deny",
                            .fields = f,
                            .n_fields = ARRAY_LEN(f),
                            .field_stride = sizeof(f[0])};

    denials_add(&denials, &e, 1764460800123000000u);
}

/* Every line is JSON; gives how many, and the last one. */
static size_t lines_read(json_t **ret_last)
{
    auto_free char *text = NULL;
    char path[128], *line, *next;
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/denials", dir);
    assert_int_equal(read_file_at(AT_FDCWD, path, DENIALS_MAX, &text, NULL), 0);
    *ret_last = NULL;
    for (line = text; *line; line = next, n++) {
        next = strchr(line, '\n');
        assert_non_null(next);
        *next++ = 0;
        json_decref(*ret_last);
        *ret_last = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(*ret_last);
    }
    return n;
}

static void test_denials(void **state)
{
    static const char forged[] = "a\"}\n{\"reason\": \"\xff\x1b[2J";
    json_t *last;
    struct stat st;
    char path[128];

    (void)state;
    assert_int_equal(lines_read(&last), 0);
    deny("no_rule", "evil.com", 8, 443);
    deny("odd_word", forged, strlen(forged), -1);
    assert_int_equal(lines_read(&last), 2);
    assert_string_equal(json_string_value(json_object_get(last, "reason")), "odd_word");
    assert_string_equal(json_string_value(json_object_get(last, "help")), "");
    assert_int_equal(json_object_size(last), 5);
    json_decref(last);
    deny("dns_refused", "evil.com", 8, 53);
    assert_int_equal(lines_read(&last), 3);
    assert_string_equal(json_string_value(json_object_get(last, "time")),
                        "2025-11-30T00:00:00.123Z");
    assert_string_equal(json_string_value(json_object_get(last, "name")), "evil.com");
    assert_int_equal(json_integer_value(json_object_get(last, "port")), 53);
    assert_non_null(
        strstr(json_string_value(json_object_get(last, "help")), "does not name this host"));
    json_decref(last);
    snprintf(path, sizeof(path), "%s/denials", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0444);
}

/* Every reason of <cella/enforcer.h> comes with words. */
static void test_help(void **state)
{
    static const char reasons[] =
        "no_rule deny_rule hard_deny dns_refused proto_blocked ipv6_closed source_spoofed limit "
        "policy_changed broker_down upstream_failed sni_missing sni_mismatch not_tls host_mismatch "
        "method_path resolved_private name_invalid dns_suspect credential_mismatch "
        "placeholder_missing bad_request";
    const char *at = reasons;
    size_t n;

    (void)state;
    for (; (n = strcspn(at, " ")); at += n + (at[n] == ' '))
        assert_true(*denial_help(at, n));
    assert_string_equal(denial_help("no_rul", 6), "");
    assert_string_equal(denial_help("", 0), "");
}

/* Old lines go, the newest stay, never half a line, never more than the bound. */
static void test_denials_bound(void **state)
{
    char path[128], name[300];
    json_t *last;
    struct stat st;
    size_t n;
    int i;

    (void)state;
    memset(name, 'n', sizeof(name));
    snprintf(path, sizeof(path), "%s/denials", dir);
    for (i = 0; i < 3000; i++) {
        deny("no_rule", name, (size_t)i % sizeof(name), i);
        assert_int_equal(stat(path, &st), 0);
        assert_in_range(st.st_size, 0, DENIALS_MAX);
        assert_int_equal(st.st_size, denials.bytes);
    }
    n = lines_read(&last);
    assert_in_range(n, 200, 2000);
    assert_int_equal(json_integer_value(json_object_get(last, "port")), 2999);
    json_decref(last);
    assert_true(st.st_size > (off_t)DENIALS_MAX / 3);
}

/* A place that cannot be written to any more costs the file, nothing else. */
static void test_denials_off(void **state)
{
    json_t *last;

    (void)state;
    deny("no_rule", "a", 1, 1);
    close(denials.fd);
    denials.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    deny("no_rule", "b", 1, 2);
    assert_int_equal(denials.fd, -1);
    deny("no_rule", "c", 1, 3);
    assert_int_equal(lines_read(&last), 1);
    json_decref(last);
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
        cmocka_unit_test(test_help),
        cmocka_unit_test_setup_teardown(test_denials, denials_setup, denials_teardown),
        cmocka_unit_test_setup_teardown(test_denials_bound, denials_setup, denials_teardown),
        cmocka_unit_test_setup_teardown(test_denials_off, denials_setup, denials_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
