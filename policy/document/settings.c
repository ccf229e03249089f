/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * settings - the members of a document that are not rules: dns, limits, observe.
 *
 * Defaults: synthetic answers, A and AAAA, labels up to 63 bytes, 50 questions a second, answered
 * questions and each allowed flow are events, no byte limits, no alerts. Threads: none needed.
 */
#include "parse_int.h"

#define BYTES_MAX (UINT64_C(1) << 53) /* what JSON numbers carry everywhere */

int read_limits(struct reader *r, json_t *limits, struct policy_limits *out)
{
    int e = read_number(r, limits, "tx_bytes", 1, BYTES_MAX, &out->tx_bytes);

    if (e == 0)
        e = read_number(r, limits, "rx_bytes", 1, BYTES_MAX, &out->rx_bytes);
    if (e == 0)
        e = read_number(r, limits, "conns", 1, 65535, &out->conns);
    if (e == 0)
        e = read_number(r, limits, "tx_bps", 1024, BYTES_MAX, &out->tx_bps);
    if (e == 0)
        e = read_number(r, limits, "rx_bps", 1024, BYTES_MAX, &out->rx_bps);
    return e;
}

static int document_limits(struct reader *r, json_t *limits)
{
    static const char *const known[] = {"tx_bytes", "rx_bytes", "conns", "tx_bps",
                                        "rx_bps",   "rules",    NULL};
    uint64_t rules = DOCUMENT_RULES_MAX;
    int e = keys_known(r, limits, known, "the document's \"limits\"");

    if (e == 0)
        e = read_limits(r, limits, &r->d->limits);
    if (e == 0)
        e = read_number(r, limits, "rules", 1, DOCUMENT_RULES_MAX, &rules);
    r->rules_max = (size_t)rules;
    return e;
}

static int dns_mode(struct reader *r, json_t *dns)
{
    const json_t *v = json_object_get(dns, "mode");
    const char *s = json_string_value(v);

    if (!v)
        return 0;
    if (!s || (strcmp(s, "synthetic") && strcmp(s, "real")))
        return reject(r, "mode",
                      "expected \"synthetic\" (addresses that only lead to the gate) or "
                      "\"real\" (the checked addresses themselves)");
    r->d->dns.mode = !strcmp(s, "real") ? POLICY_REAL : POLICY_SYNTHETIC;
    return 0;
}

static int dns_types(struct reader *r, json_t *dns)
{
    json_t *list = json_object_get(dns, "types"), *v;
    size_t i;

    if (!list)
        return 0;
    if (!json_is_array(list) || !json_array_size(list))
        return reject(r, "types", "expected a list such as [\"A\", \"AAAA\"]");
    r->d->dns.types = 0;
    json_array_foreach(list, i, v)
    {
        size_t mark = enter_at(r, "types", i);
        const char *s = json_string_value(v);
        unsigned bit = s && !strcmp(s, "A")      ? POLICY_DNS_A
                       : s && !strcmp(s, "AAAA") ? POLICY_DNS_AAAA
                                                 : 0;
        if (!bit)
            return reject(r, "",
                          "expected \"A\" or \"AAAA\"; other record types are never "
                          "answered, because they carry data");
        if (r->d->dns.types & bit)
            return reject(r, "", "\"%s\" is here twice; remove one", s);
        r->d->dns.types = (uint8_t)(r->d->dns.types | bit);
        leave(r, mark);
    }
    return 0;
}

static int read_dns(struct reader *r, json_t *dns)
{
    static const char *const known[] = {"mode",    "types",       "max_label",
                                        "max_qps", "log_allowed", NULL};
    uint64_t label = r->d->dns.max_label, qps = r->d->dns.max_qps;
    int log = r->d->dns.log_allowed;
    int e = keys_known(r, dns, known, "\"dns\"");

    if (e == 0)
        e = dns_mode(r, dns);
    if (e == 0)
        e = dns_types(r, dns);
    if (e == 0)
        e = read_number(r, dns, "max_label", 1, 63, &label);
    if (e == 0)
        e = read_number(r, dns, "max_qps", 1, 10000, &qps);
    if (e == 0)
        e = read_flag(r, dns, "log_allowed", &log);
    r->d->dns.max_label = (uint8_t)label;
    r->d->dns.max_qps = (uint32_t)qps;
    r->d->dns.log_allowed = (uint8_t)log;
    return e;
}

static int alert_window(struct reader *r, json_t *alert, struct document_alert *out)
{
    const json_t *v = json_object_get(alert, "per");

    if (!v)
        return reject(r, "",
                      "the alert has no \"per\", the time it counts over; add one, such as "
                      "\"60s\"");
    if (!json_is_string(v) || parse_duration(json_string_value(v), &out->per_ns) < 0 ||
        out->per_ns < 1000000000u || out->per_ns > UINT64_C(86400000000000))
        return reject(r, "per", "expected a time from \"1s\" to \"1d\", such as \"60s\"");
    return 0;
}

static int read_alert(struct reader *r, json_t *alert, struct document_alert *out)
{
    static const struct {
        const char *name, *amount;
    } kinds[] = {[DOCUMENT_NEW_NAME] = {"new_name", NULL},
                 [DOCUMENT_TX_OVER] = {"tx_over", "bytes"},
                 [DOCUMENT_DENY_BURST] = {"deny_burst", "count"},
                 [DOCUMENT_DNS_SUSPECT] = {"dns_suspect", NULL}};
    const char *on, *known[] = {"on", NULL, NULL, NULL};
    size_t k;
    int e;

    if (!json_is_object(alert))
        return reject(r, "", "expected an alert, an object such as {\"on\": \"new_name\"}");
    on = json_string_value(json_object_get(alert, "on"));
    for (k = 0; on && k < ARRAY_LEN(kinds) && strcmp(kinds[k].name, on); k++)
        ;
    if (!on || k == ARRAY_LEN(kinds))
        return reject(r, json_object_get(alert, "on") ? "on" : "",
                      "an alert needs \"on\": \"new_name\", \"tx_over\", \"deny_burst\" or "
                      "\"dns_suspect\"");
    out->on = (enum document_alert_on)k;
    if (kinds[k].amount) {
        known[1] = kinds[k].amount;
        known[2] = "per";
    }
    e = keys_known(r, alert, known, "an alert of this kind");
    if (e < 0 || !kinds[k].amount)
        return e;
    if (!json_object_get(alert, kinds[k].amount))
        return reject(r, "", "the alert has no \"%s\"; add the number to warn at", kinds[k].amount);
    e = read_number(r, alert, kinds[k].amount, 1, BYTES_MAX, &out->amount);
    return e < 0 ? e : alert_window(r, alert, out);
}

static int read_observe(struct reader *r, json_t *observe)
{
    static const char *const known[] = {"allowed", "alerts", NULL};
    json_t *alerts = json_object_get(observe, "alerts"), *v = json_object_get(observe, "allowed");
    const char *s = json_string_value(v);
    size_t i;
    int e = keys_known(r, observe, known, "\"observe\"");

    if (e < 0)
        return e;
    if (v && (!s || (strcmp(s, "each") && strcmp(s, "aggregate"))))
        return reject(r, "allowed",
                      "expected \"each\" (one event for every flow) or \"aggregate\" "
                      "(one a minute for each rule and name)");
    if (s && !strcmp(s, "aggregate"))
        r->d->observe = DOCUMENT_AGGREGATE;
    if (alerts && !json_is_array(alerts))
        return reject(r, "alerts", "expected a list of alerts");
    if (json_array_size(alerts) > DOCUMENT_ALERTS_MAX)
        return reject(r, "alerts", "more than %u alerts", DOCUMENT_ALERTS_MAX);
    json_array_foreach(alerts, i, v)
    {
        size_t mark = enter_at(r, "alerts", i);
        e = read_alert(r, v, &r->d->alerts[r->d->n_alerts++]);
        if (e < 0)
            return e;
        leave(r, mark);
    }
    return 0;
}

int read_settings(struct reader *r, json_t *root)
{
    static const struct {
        const char *key;
        int (*read)(struct reader *r, json_t *v);
    } parts[] = {{"dns", read_dns}, {"limits", document_limits}, {"observe", read_observe}};
    size_t i;

    for (i = 0; i < ARRAY_LEN(parts); i++) {
        json_t *v = json_object_get(root, parts[i].key);
        size_t mark;
        int e;
        if (!v)
            continue;
        if (!json_is_object(v))
            return reject(r, parts[i].key, "expected an object");
        mark = enter(r, parts[i].key);
        e = parts[i].read(r, v);
        if (e < 0)
            return e;
        leave(r, mark);
    }
    return 0;
}
