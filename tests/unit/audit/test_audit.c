/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * audit: what a chain begins, goes on and ends with; crashes at every point of a record; each
 * overflow rule; many writers of the host's chain. Whatever happens, the verifier must find the
 * files good.
 */
#include "audit_world.h"

/* What concerns no cell: the host's chain alone, and nothing of a cell is left. */
static void test_host_alone(void **state)
{
    struct audit *a = NULL;
    struct errbuf eb;

    (void)state;
    assert_int_equal(audit_open_host(dir, NULL, sinks, 1, &a, errbuf_init(&eb)), 0);
    assert_int_equal(audit_emit(a, errbuf_init(&eb), "cell.exec", NULL), -ESHUTDOWN);
    assert_int_equal(audit_host_emit(a, errbuf_init(&eb), "image.imported", "s:name", "x", NULL),
                     0);
    audit_free(a);
    assert_good(&fa, "host", 2, 0);
    assert_string_equal(kind_of(&fa, "host", 2), "image.imported");
    assert_int_equal(fa.open, 0);
    assert_false(exists(".head") || exists(".state"));
}

static void test_life(void **state)
{
    struct audit *a = open_chain("abc", 1);
    struct audit_verify_result res;
    struct errbuf eb;
    uint64_t seq;
    char hex[65];
    json_t *o;

    (void)state;
    assert_good(&fa, "abc", 1, 0);
    emit(a, 0);
    emit(a, 0);
    assert_good(&fa, "abc", 3, 0); /* while it is written */
    audit_head(a, &seq, hex);
    assert_int_equal(seq, 3);
    assert_string_equal(verify(&fa, "abc").head, hex);
    assert_int_equal(audit_host_emit(a, errbuf_init(&eb), "gc.done", "i:found", (int64_t)2, NULL),
                     0);
    assert_int_equal(audit_host_emit(a, errbuf_init(&eb), "cell.open", NULL), -EPERM);
    close_chain(a);
    assert_good(&fa, "abc", 4, 1);
    assert_good(&fa, "host", 4, 0);
    assert_int_equal(fa.flushes, 1);
    assert_int_equal(fa.open, 0);
    assert_string_equal(kind_of(&fa, "abc", 1), "chain.open");
    assert_string_equal(kind_of(&fa, "abc", 4), "chain.close");
    assert_string_equal(kind_of(&fa, "host", 1), "chain.open");
    assert_string_equal(kind_of(&fa, "host", 2), "cell.open");
    assert_string_equal(kind_of(&fa, "host", 3), "gc.done");
    assert_string_equal(kind_of(&fa, "host", 4), "cell.close");
    o = line_of(&fa, "abc", 2);
    assert_int_equal(json_object_size(o), 9);
    assert_string_equal(json_string_value(json_object_get(o, "cwd")), "/tmp");
    assert_int_equal(json_integer_value(json_object_get(o, "status")), 3);
    assert_true(json_is_true(json_object_get(o, "tty")));
    json_decref(o);
    assert_int_equal(int_of(&fa, "abc", 1, "host_seq"), 1);
    assert_int_equal(int_of(&fa, "host", 2, "cell_seq"), 1);
    assert_int_equal(int_of(&fa, "host", 4, "cell_seq"), 4);
    assert_false(exists("abc.state"));
    assert_true(exists("abc.head"));
    assert_int_equal(audit_open(dir, "abc", NULL, sinks, 1, &a, errbuf_init(&eb)), -EALREADY);
    assert_string_equal(eb.text, "audit chain abc is closed");
    assert_false(exists("abc.state"));
    snprintf(hex, sizeof(hex), "%s/a/host.jsonl", dir);
    assert_int_equal(audit_verify_host_links(hex, fa.dir, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 0);
}

static void test_refusals(void **state)
{
    struct cella_field f = {.name = "x", .type = CELLA_FIELD_INT};
    struct cella_event e = {.hdr = CELLA_HDR_INIT(struct cella_event, CELLA_KIND_EVENT),
                            .kind = "net.deny",
                            .fields = &f,
                            .n_fields = 1,
                            .field_stride = sizeof(f)};
    struct audit *a, *b = NULL;
    struct errbuf eb;

    (void)state;
    assert_int_equal(audit_open(dir, "../x", NULL, sinks, 1, &b, errbuf_init(&eb)), -EINVAL);
    assert_int_equal(audit_open(dir, "host", NULL, sinks, 1, &b, errbuf_init(&eb)), -EINVAL);
    assert_int_equal(audit_open(dir, "abc", NULL, sinks, 0, &b, errbuf_init(&eb)), -EINVAL);
    a = open_chain("abc", 1);
    assert_int_equal(audit_open(dir, "abc", NULL, sinks, 1, &b, errbuf_init(&eb)), -EBUSY);
    assert_string_equal(eb.text, "audit chain abc is being written by another process");
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), 0);
    e.kind = "chain.close";
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), -EPERM);
    e.kind = "audit.dropped";
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), -EPERM);
    e.kind = "x\",\"seq\":1";
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), -EINVAL);
    e.kind = NULL;
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), -EINVAL);
    e.kind = "net.deny";
    e.field_stride = 8;
    assert_int_equal(audit_event(a, &e, errbuf_init(&eb)), -EINVAL);
    emit(a, 0); /* none of this stops the chain */
    close_chain(a);
    assert_good(&fa, "abc", 4, 1);
}

static void test_heads(void **state)
{
    struct audit *a = open_chain("abc", 1);
    struct head h;
    struct errbuf eb;
    char sig[SIG_HEX];
    int i, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    (void)state;
    for (i = 0; i < 130; i++)
        emit(a, 0);
    assert_string_equal(kind_of(&fa, "abc", 65), "chain.head");
    assert_string_equal(kind_of(&fa, "abc", 66), "cell.exec");
    assert_string_equal(kind_of(&fa, "abc", 129), "chain.head");
    assert_int_equal(head_read(fd, "abc", &h, sig, errbuf_init(&eb)), 0);
    assert_int_equal(h.seq, 129);
    assert_int_equal(h.closed, 0);
    close_chain(a);
    assert_int_equal(head_read(fd, "abc", &h, sig, errbuf_init(&eb)), 0);
    assert_int_equal(h.seq, 134);
    assert_int_equal(h.closed, 1);
    close(fd);
    assert_good(&fa, "abc", 134, 1);
}

/* Runs `how` in a child that the fake sink ends with _exit(9) at some record. */
static void in_dying_child(int before, int after)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct audit *a;

        fa.die_before = before;
        fa.die_after = after;
        a = open_chain("abc", 1);
        emit(a, 0);
        emit(a, 0);
        audit_close(a, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 9);
}

/* A copy's chain says where its parent stood, once: not when another process goes on with it. */
static void test_parent(void **state)
{
    static const char head[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    const struct audit_parent parent = {"abc", 7, head};
    struct audit *a;
    struct errbuf eb;
    json_t *o;

    (void)state;
    assert_int_equal(audit_open_child(dir, "child", &parent, NULL, sinks, 1, &a, errbuf_init(&eb)),
                     0);
    audit_free(a);
    assert_int_equal(audit_open_child(dir, "child", &parent, NULL, sinks, 1, &a, errbuf_init(&eb)),
                     0);
    close_chain(a);
    o = line_of(&fa, "child", 1);
    assert_string_equal(json_string_value(json_object_get(o, "parent")), "abc");
    assert_string_equal(json_string_value(json_object_get(o, "parent_head")), head);
    assert_int_equal(json_integer_value(json_object_get(o, "parent_seq")), 7);
    json_decref(o);
    assert_string_equal(kind_of(&fa, "child", 2), "chain.resume");
    assert_good(&fa, "child", 3, 1);
    close_chain(open_chain("plain", 1));
    o = line_of(&fa, "plain", 1);
    assert_null(json_object_get(o, "parent"));
    json_decref(o);
}

/* The records of the child: 1 host chain.open, 2 abc chain.open, 3 host cell.open, 4 5 abc events,
   6 abc chain.close, 7 host cell.close. A process that dies at any of them leaves a chain that
   another can end. */
static void test_crash(void **state)
{
    int at, after;

    for (after = 0; after <= 1; after++) {
        for (at = 1; at <= 7; at++) {
            struct audit *a;

            in_dying_child(after ? 0 : at, after ? at : 0);
            a = open_chain("abc", 1);
            close_chain(a);
            assert_good(&fa, "abc", 0, 1);
            assert_good(&fa, "host", 0, 0);
            a = open_chain("next", 1);
            close_chain(a);
            assert_good(&fa, "host", 0, 0);
            teardown(state);
            setup(state);
        }
    }
}

/* Killed again while going on: the line after names what is known, however many are lost. */
static void test_crash_twice(void **state)
{
    struct audit *a;

    (void)state;
    in_dying_child(4, 0);
    in_dying_child(1, 0); /* at its chain.resume */
    in_dying_child(1, 0);
    a = open_chain("abc", 1);
    emit(a, 0);
    close_chain(a);
    assert_good(&fa, "abc", 4, 1);
    assert_string_equal(kind_of(&fa, "abc", 2), "chain.resume");
    assert_int_equal(int_of(&fa, "abc", 2, "seq"), 5);
    assert_int_equal(int_of(&fa, "abc", 2, "last_seq"), 1);
}

static void test_resume(void **state)
{
    struct audit *a = open_chain("abc", 1);

    (void)state;
    emit(a, 0);
    audit_free(a); /* as a process that ends without closing */
    assert_good(&fa, "abc", 2, 0);
    a = open_chain("abc", 1);
    emit(a, 0);
    close_chain(a);
    assert_good(&fa, "abc", 5, 1);
    assert_string_equal(kind_of(&fa, "abc", 3), "chain.resume");
}

/* Without its state the chain goes on from the signed head, and from no other. */
static void test_state_lost(void **state)
{
    struct audit *a = open_chain("abc", 1);
    char path[96], *head = NULL;
    struct errbuf eb;
    size_t len;

    (void)state;
    emit(a, 0);
    audit_free(a);
    snprintf(path, sizeof(path), "%s/abc.state", dir);
    assert_int_equal(unlink(path), 0);
    a = open_chain("abc", 1);
    emit(a, 0);
    assert_good(&fa, "abc", 4, 0);
    audit_free(a);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/abc.head", dir);
    assert_int_equal(read_file_at(AT_FDCWD, path, 4096, &head, &len), 0);
    strstr(head, "\"seq\":4")[6] = '9';
    assert_int_equal(replace_file_at(AT_FDCWD, path, head, len, 0600), 0);
    free(head);
    a = NULL;
    assert_int_equal(audit_open(dir, "abc", NULL, sinks, 1, &a, errbuf_init(&eb)), -EBADMSG);
    assert_string_equal(eb.text, "the head of audit chain abc is not signed by this host's key");
    assert_null(a);
}

static void test_many_writers(void **state)
{
    struct audit_verify_result res;
    struct errbuf eb;
    char file[192];
    int i, status;

    (void)state;
    for (i = 0; i < 6; i++) {
        if (fork() == 0) {
            char id[8] = {(char)('a' + i), 0};
            struct audit *a = open_chain(id, 1);
            int k;

            for (k = 0; k < 20; k++)
                if (audit_host_emit(a, NULL, "test.tick", "i:k", (int64_t)k, NULL) < 0)
                    _exit(1);
            if (audit_close(a, NULL) < 0)
                _exit(1);
            audit_free(a);
            _exit(0);
        }
    }
    while (wait(&status) > 0)
        assert_int_equal(status, 0);
    assert_good(&fa, "host", 1 + 6 * 22 + 2, 0); /* chain.open, the records, two signed heads */
    for (i = 0; i < 6; i++) {
        char id[8] = {(char)('a' + i), 0};
        assert_good(&fa, id, 2, 1);
    }
    snprintf(file, sizeof(file), "%s/host.jsonl", fa.dir);
    assert_int_equal(audit_verify_host_links(file, fa.dir, &res, errbuf_init(&eb)), 0);
    assert_int_equal(res.first_bad, 0);
}

static void test_key(void **state)
{
    struct audit *a = open_chain("abc", 1);
    struct errbuf eb;
    struct stat st;
    char path[96];

    (void)state;
    close_chain(a);
    snprintf(path, sizeof(path), "%s/key", dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(chmod(path, 0640), 0);
    assert_int_equal(audit_open(dir, "new", NULL, sinks, 1, &a, errbuf_init(&eb)), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(audit_open(dir, "new", NULL, sinks, 1, &a, errbuf_init(&eb)), -ENOKEY);
    assert_int_equal(write_file_at(AT_FDCWD, path, ""), -ENOENT);
    assert_int_equal(replace_file_at(AT_FDCWD, path, "zz\n", 3, 0600), 0);
    assert_int_equal(audit_open(dir, "new", NULL, sinks, 1, &a, errbuf_init(&eb)), -EINVAL);
    assert_string_equal(eb.text, "audit key file \"key\" is malformed: expected 128 hex digits");
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_parent), T(test_host_alone),   T(test_life),        T(test_refusals),
        T(test_heads),  T(test_crash),        T(test_crash_twice), T(test_state_lost),
        T(test_resume), T(test_many_writers), T(test_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
