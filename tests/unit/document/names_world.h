/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* names_world - a document compiled, and asked. In the texts ' stands for ". */
#ifndef CELLA_TEST_NAMES_WORLD_H
#define CELLA_TEST_NAMES_WORLD_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#undef fail
#include "document.h"
#undef fail /* both call it so */
#define fail() _fail(__FILE__, __LINE__)

static inline void compile(const char *text, const char *ceiling, struct policy_table *ret)
{
    auto_free char *own = strdup(text), *limit = strdup(ceiling ? ceiling : "");
    struct document d, c = {0};
    struct errbuf eb;
    char *p;

    for (p = own; (p = strchr(p, '\'')); p++)
        *p = '"';
    for (p = limit; (p = strchr(p, '\'')); p++)
        *p = '"';
    if (document_parse("p", own, strlen(own), &d, errbuf_init(&eb)) < 0)
        fail_msg("%s", eb.text);
    if (ceiling && document_parse("c", limit, strlen(limit), &c, &eb.err) < 0)
        fail_msg("%s", eb.text);
    if (document_compile(&d, d.active, ceiling ? &c : NULL, 7, ret, &eb.err) < 0)
        fail_msg("%s", eb.text);
    document_fini(&d);
    document_fini(&c);
}

/* "rule/layer" when allowed, "!rule" when a rule denies, "" when none speaks. */
static inline const char *ask(const struct policy_table *t, const char *name, uint16_t port)
{
    static const char layers[] = "rth";
    static char out[80];
    const struct policy_rule *r;

    if (policy_name_find(t, name, port, POLICY_TCP, &r) == POLICY_ALLOW)
        snprintf(out, sizeof(out), "%s/%c", r->id, layers[r->layer]);
    else
        snprintf(out, sizeof(out), "%s%s", r ? "!" : "", r ? r->id : "");
    return out;
}

static inline const char *request(const struct policy_table *t, const char *name,
                                  const char *method, const char *path, int websocket)
{
    static char out[80];
    const struct policy_rule *r;
    int v = policy_http_find(t, name, 443, method, path, websocket, &r);

    snprintf(out, sizeof(out), "%s%s", v == POLICY_DENY && r ? "!" : "", r ? r->id : "");
    assert_true(v == POLICY_DENY || r);
    return out;
}

#define R(id, host, more) "{'id':'" id "','host':'" host "','ports':[443]" more "}"
#define ALLOW(rules) "{'version':1,'allow':[" rules "]}"
#define H ",'layer':'http'"
#define HTTP(text) ",'layer':'http','http':{" text "}"

#endif
