/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The wrappers of secret providers: what a provider leaves in a buffer, and one that breaks the contract. */
#include <fcntl.h>

#include "harness.h"

static int64_t answer;
static int give_self = 1, destroys, fd = -1;
static const struct cella_secret_query query = {
    .hdr = CELLA_HDR_INIT(struct cella_secret_query, CELLA_KIND_SECRET_QUERY),
    .name = "token",
    .tenant = "",
    .purpose = "inject:a"};

static int s_create(const struct cella_host *host, const struct cella_options *options,
                    void **ret_self, struct cella_error *err)
{
    (void)host, (void)options;
    if (answer)
        return cella_error_set(err, (int)answer, 2, "no vault");
    if (give_self)
        *ret_self = &give_self;
    return 0;
}

/* Writes all of the buffer, whatever it then says. */
static int64_t s_get(void *self, const struct cella_secret_query *q, char *buf, uint64_t cap,
                     struct cella_error *err)
{
    (void)self;
    memset(buf, 's', cap);
    if (answer < 0)
        return cella_error_set(err, (int)answer, 2, "no \"%s\" for %s", q->name, q->purpose);
    return answer;
}

static void s_destroy(void *self)
{
    (void)self;
    destroys++;
}

static int s_rotate_fd(void *self)
{
    (void)self;
    return fd;
}

static struct plugin vault = {
    .kind = CELLA_KIND_SECRET,
    .name = "vault",
    .ops.secret = {
        .create = s_create, .get = s_get, .destroy = s_destroy, .rotate_fd = s_rotate_fd}};

static void test_create(void **state)
{
    struct secret_provider s = {NULL, NULL};
    char buf[8];
    struct errbuf eb;

    (void)state;
    answer = -ENOENT;
    assert_int_equal(secret_create(&vault, &test_host, NULL, &s, errbuf_init(&eb)), -ENOENT);
    assert_string_equal(eb.text, "vault: create: no vault");
    answer = give_self = 0;
    assert_int_equal(secret_create(&vault, &test_host, NULL, &s, errbuf_init(&eb)), -EPROTO);
    assert_null(s.self);
    assert_int_equal(secret_get(&s, &query, buf, sizeof(buf), errbuf_init(&eb)), -EPROTO);
    assert_int_equal(secret_rotate_fd(&s), -1);
    secret_destroy(&s);
    assert_int_equal(destroys, 0);
    give_self = 1;
    assert_ok(secret_create(&vault, &test_host, NULL, &s, errbuf_init(&eb)), eb);
    secret_destroy(&s);
    secret_destroy(&s);
    assert_int_equal(destroys, 1);
}

static void test_get(void **state)
{
    struct secret_provider s = {&vault, &give_self};
    char buf[8];
    struct errbuf eb;

    (void)state;
    answer = 3;
    assert_int_equal(secret_get(&s, &query, buf, sizeof(buf), errbuf_init(&eb)), 3);
    assert_memory_equal(buf, "sss\0\0\0\0\0", 8);
    answer = -ENOENT;
    assert_int_equal(secret_get(&s, &query, buf, sizeof(buf), errbuf_init(&eb)), -ENOENT);
    assert_string_equal(eb.text, "vault: get: no \"token\" for inject:a");
    assert_memory_equal(buf, "\0\0\0\0\0\0\0\0", 8);
    memset(buf, 's', 8);
    answer = 9; /* longer than the buffer it was given */
    assert_int_equal(secret_get(&s, &query, buf, sizeof(buf), errbuf_init(&eb)), -EPROTO);
    assert_says(eb.text, "vault broke the contract in get");
    assert_memory_equal(buf, "\0\0\0\0\0\0\0\0", 8);
    answer = 8;
    assert_int_equal(secret_get(&s, &query, buf, sizeof(buf), errbuf_init(&eb)), 8);
    assert_memory_equal(buf, "ssssssss", 8);
}

static void test_rotate_fd(void **state)
{
    struct secret_provider s = {&vault, &give_self};
    struct plugin still = vault;

    (void)state;
    fd = open("/dev/null", O_RDONLY);
    assert_int_equal(secret_rotate_fd(&s), fd);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    assert_int_equal(secret_rotate_fd(&s), -1); /* closed */
    fd = 1;
    assert_int_equal(secret_rotate_fd(&s), -1); /* not a plugin's */
    fd = -1;
    assert_int_equal(secret_rotate_fd(&s), -1);
    still.ops.secret.rotate_fd = NULL;
    s.plugin = &still;
    assert_int_equal(secret_rotate_fd(&s), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_get),
        cmocka_unit_test(test_rotate_fd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
