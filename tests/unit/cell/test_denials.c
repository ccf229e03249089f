/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The file of denials that a cell is shown: its lines, its help, its bound, a full disk. */
#include "shown_world.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),
        cmocka_unit_test_setup_teardown(test_denials, denials_setup, denials_teardown),
        cmocka_unit_test_setup_teardown(test_denials_bound, denials_setup, denials_teardown),
        cmocka_unit_test_setup_teardown(test_denials_off, denials_setup, denials_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
