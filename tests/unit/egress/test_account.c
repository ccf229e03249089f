/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Accounting and alerts: gate messages in, lines of the report and events out. No gate, no network.
 */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef fail
#include "egress.h"
#undef fail /* both call it so */
#define fail() _fail(__FILE__, __LINE__)

static struct event {
    char kind[24], alert[24], rule[64], name[64];
    int64_t count, tx, rx;
} events[64];
static size_t n_events;
static int emit_result;

static int on_emit(void *ctx, const struct cella_event *ev)
{
    struct event *e = &events[n_events++];
    uint32_t i;

    (void)ctx;
    assert_true(n_events < ARRAY_LEN(events));
    *e = (struct event){0};
    snprintf(e->kind, sizeof(e->kind), "%s", ev->kind);
    for (i = 0; i < ev->n_fields; i++) {
        const struct cella_field *f = &ev->fields[i];
        if (!strcmp(f->name, "alert"))
            snprintf(e->alert, sizeof(e->alert), "%.*s", (int)f->str.len, (const char *)f->str.ptr);
        if (!strcmp(f->name, "rule"))
            snprintf(e->rule, sizeof(e->rule), "%.*s", (int)f->str.len, (const char *)f->str.ptr);
        if (!strcmp(f->name, "name"))
            snprintf(e->name, sizeof(e->name), "%.*s", (int)f->str.len, (const char *)f->str.ptr);
        if (!strcmp(f->name, "count"))
            e->count = f->i64;
        if (!strcmp(f->name, "tx"))
            e->tx = f->i64;
        if (!strcmp(f->name, "rx"))
            e->rx = f->i64;
    }
    return emit_result;
}

static const struct cella_host host = {.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                       .emit = on_emit};

/* What events.c needs of files that are not here. */
int ctl_wait(int ctl, uint64_t deadline, struct ctl_msg *ret, int *fds, int *nfds)
{
    (void)ctl, (void)deadline, (void)ret, (void)fds, (void)nfds;
    return -EPIPE;
}

int reach_message(struct egress *e, const struct ctl_msg *m)
{
    (void)e, (void)m;
    return 0;
}

static void begin(struct egress *e, const char *document)
{
    auto_free char *text = strdup(document);
    struct errbuf eb;
    char *p;

    for (p = text; (p = strchr(p, '\'')); p++)
        *p = '"';
    *e = (struct egress){.host = &host, .ctl = -1, .pidfd = -1};
    e->table.head.generation = 9;
    if (document_parse("p", text, strlen(text), &e->document, errbuf_init(&eb)) < 0)
        fail_msg("%s", eb.text);
    n_events = 0;
    emit_result = 0;
}

static void end(struct egress *e)
{
    account_end(e);
    document_fini(&e->document);
}

static struct ctl_msg message(enum ctl_type type, const char *rule, const char *name, uint64_t tx,
                              uint64_t rx)
{
    struct ctl_msg m = {.type = type,
                        .proto = IPPROTO_TCP,
                        .dst = 0xcb00710au,
                        .port = 443,
                        .count = type != CTL_FLOW && type != CTL_PROGRESS,
                        .gen = 9,
                        .tx = tx,
                        .rx = rx,
                        .tx_delta = tx,
                        .rx_delta = rx};

    snprintf(m.rule, sizeof(m.rule), "%s", rule);
    snprintf(m.name, sizeof(m.name), "%s", name);
    if (type == CTL_DENY)
        m.reason = REASON_NO_RULE;
    return m;
}

static int say(struct egress *e, enum ctl_type type, const char *rule, const char *name,
               uint64_t tx, uint64_t rx)
{
    struct ctl_msg m = message(type, rule, name, tx, rx);

    return gate_message(e, &m);
}

static void test_lines(void **state)
{
    struct egress e;

    (void)state;
    begin(&e, "{}");
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(say(&e, CTL_ALLOW, "web", "b.example.com", 0, 0), 0);
    assert_int_equal(say(&e, CTL_PROGRESS, "web", "a.example.com", 10, 20), 0);
    assert_int_equal(say(&e, CTL_FLOW, "web", "a.example.com", 1, 2), 0);
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(say(&e, CTL_DENY, "", "", 0, 0), 0);
    assert_int_equal(e.n_lines, 3);
    assert_string_equal(e.lines[0].destination, "a.example.com:443");
    assert_string_equal(e.lines[0].rule, "web");
    assert_true(e.lines[0].allowed == 2 && e.lines[0].tx == 11 && e.lines[0].rx == 22);
    assert_string_equal(e.lines[1].destination, "b.example.com:443");
    assert_string_equal(e.lines[2].rule, "no_rule");
    assert_string_equal(e.lines[2].destination, "203.0.113.10:443");
    assert_true(e.lines[0].first_ns > 0 && e.lines[0].last_ns >= e.lines[0].first_ns);
    assert_true(e.lines[1].first_ns == e.lines[1].last_ns ||
                e.lines[1].last_ns - e.lines[1].first_ns < 1000000000u);
    assert_int_equal(n_events, 5); /* all but the progress */
    end(&e);
}

/* A cell that tries a thousand names leaves room for those it may use. */
static void test_refusals_do_not_crowd_out(void **state)
{
    struct egress e;
    char name[64];
    int i;

    (void)state;
    begin(&e, "{}");
    for (i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "n%d.example.com", i);
        assert_int_equal(say(&e, CTL_DENY, "", name, 0, 0), 0);
        n_events = 0;
    }
    assert_true(e.n_lines <= 257);
    for (i = 0; i < 500; i++) {
        snprintf(name, sizeof(name), "ok%d.example.com", i);
        assert_int_equal(say(&e, CTL_ALLOW, "web", name, 0, 0), 0);
        n_events = 0;
    }
    assert_true(e.n_lines > 750);
    for (i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "more%d.example.com", i);
        assert_int_equal(say(&e, CTL_ALLOW, "web", name, 0, 0), 0);
        n_events = 0;
    }
    assert_true(e.n_lines <= 1024);
    end(&e);
}

static void test_aggregate(void **state)
{
    struct ctl_msg killed = message(CTL_FLOW, "web", "a.example.com", 7, 7);
    struct egress e;
    int i;

    (void)state;
    begin(&e, "{'version':1,'observe':{'allowed':'aggregate'}}");
    for (i = 0; i < 5; i++) {
        assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
        assert_int_equal(say(&e, CTL_FLOW, "web", "a.example.com", 10, 100), 0);
    }
    assert_int_equal(n_events, 1); /* the first, at once */
    assert_string_equal(events[0].kind, "net.allow");
    assert_int_equal(say(&e, CTL_DENY, "", "x.example.com", 0, 0), 0);
    assert_int_equal(n_events, 2); /* denials are never kept back */
    killed.reason = REASON_POLICY_CHANGED;
    assert_int_equal(gate_message(&e, &killed), 0);
    assert_int_equal(n_events, 3);
    e.lines[0].told_ns -= 61000000000u; /* a minute later */
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(n_events, 4);
    assert_string_equal(events[3].kind, "net.flow");
    assert_true(events[3].count == 5 && events[3].tx == 50 && events[3].rx == 500);
    assert_string_equal(events[3].name, "a.example.com");
    assert_int_equal(say(&e, CTL_FLOW, "web", "a.example.com", 3, 4), 0);
    account_end(&e); /* the rest, at the end */
    assert_int_equal(n_events, 5);
    assert_true(events[4].tx == 3 && events[4].rx == 4);
    end(&e);
}

/* Answered questions are counted as questions, not as flows. */
static void test_aggregate_questions(void **state)
{
    struct ctl_msg m = message(CTL_ALLOW, "web", "a.example.com", 0, 0);
    struct egress e;
    int i;

    (void)state;
    begin(&e, "{'version':1,'observe':{'allowed':'aggregate','alerts':[{'on':'new_name'}]}}");
    m.qtype = 1;
    m.port = 53;
    for (i = 0; i < 4; i++)
        assert_int_equal(gate_message(&e, &m), 0);
    assert_int_equal(n_events, 1); /* and no alert: nothing was connected to */
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(n_events, 3);
    assert_string_equal(events[1].alert, "new_name");
    account_end(&e);
    assert_int_equal(n_events, 4);
    assert_string_equal(events[3].kind, "net.allow");
    assert_string_equal(events[3].name, "a.example.com");
    assert_int_equal(events[3].count, 3);
    end(&e);
}

static void test_alerts(void **state)
{
    struct egress e;
    int i;

    (void)state;
    begin(&e,
          "{'version':1,'observe':{'alerts':[{'on':'new_name'},{'on':'tx_over','bytes':100,'per':"
          "'1s'},{'on':'deny_burst','count':3,'per':'1s'},{'on':'dns_suspect'}]}}");
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(n_events, 2);
    assert_string_equal(events[0].alert, "new_name");
    assert_string_equal(events[0].name, "a.example.com");
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), 0);
    assert_int_equal(n_events, 3); /* known by now */
    assert_int_equal(say(&e, CTL_PROGRESS, "web", "a.example.com", 99, 0), 0);
    assert_int_equal(n_events, 3);
    assert_int_equal(say(&e, CTL_PROGRESS, "web", "a.example.com", 1, 0), 0);
    assert_int_equal(n_events, 4);
    assert_string_equal(events[3].alert, "tx_over");
    assert_int_equal(events[3].tx, 100);
    assert_int_equal(say(&e, CTL_PROGRESS, "web", "a.example.com", 500, 0), 0);
    assert_int_equal(n_events, 4); /* once in a window */
    e.alerts[1].began_ns -= 2000000000u;
    assert_int_equal(say(&e, CTL_PROGRESS, "web", "a.example.com", 100, 0), 0);
    assert_string_equal(events[4].alert, "tx_over");
    n_events = 0;
    for (i = 0; i < 5; i++)
        assert_int_equal(say(&e, CTL_DENY, "", "x.example.com", 0, 0), 0);
    assert_int_equal(n_events, 6);
    assert_string_equal(events[2].alert, "deny_burst");
    assert_int_equal(events[2].count, 3);
    n_events = 0;
    for (i = 0; i < 3; i++) {
        struct ctl_msg m = message(CTL_DENY, "", "dgvzdgvzda.example.com", 0, 0);
        m.reason = REASON_DNS_SUSPECT;
        assert_int_equal(gate_message(&e, &m), 0);
    }
    assert_int_equal(n_events, 4);
    assert_string_equal(events[0].alert, "dns_suspect");
    end(&e);
}

/* An alert that cannot be recorded is an event that cannot be recorded. */
/* A cell that has used up the lines must not be able to reach another destination unnamed. */
static void test_aggregate_names_all(void **state)
{
    struct egress e;
    char name[64];
    int i;

    (void)state;
    begin(&e, "{'version':1,'observe':{'allowed':'aggregate'}}");
    for (i = 0; i < 1500; i++) {
        snprintf(name, sizeof(name), "n%d.example.com", i);
        assert_int_equal(say(&e, CTL_ALLOW, "web", name, 0, 0), 0);
        assert_int_equal(n_events, 1);
        assert_string_equal(events[0].name, name);
        n_events = 0;
    }
    assert_int_equal(say(&e, CTL_FLOW, "web", name, 10, 20), 0);
    assert_int_equal(n_events, 1);
    assert_string_equal(events[0].name, name);
    assert_int_equal(events[0].tx, 10);
    n_events = 0;
    end(&e);
    assert_int_equal(n_events, 0);
}

static void test_alert_not_recorded(void **state)
{
    struct egress e;

    (void)state;
    begin(&e, "{'version':1,'observe':{'alerts':[{'on':'new_name'}]}}");
    emit_result = -EIO;
    assert_int_equal(say(&e, CTL_ALLOW, "web", "a.example.com", 0, 0), -EIO);
    assert_int_equal(n_events, 1);
    end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_refusals_do_not_crowd_out),
        cmocka_unit_test(test_aggregate),
        cmocka_unit_test(test_alerts),
        cmocka_unit_test(test_aggregate_questions),
        cmocka_unit_test(test_aggregate_names_all),
        cmocka_unit_test(test_alert_not_recorded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
