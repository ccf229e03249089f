/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Any bytes as a serialised policy: refused, or a table whose every answer is in range, that saves to
 * bytes which load again, and whose intersection with itself opens nothing more. The lengths in the
 * head are set to fit the input first, so that the fuzzer gets past them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What the second says yes to, the first must. */
static void ask(const struct policy_table *wide, const struct policy_table *t)
{
    uint32_t i, k;

    for (i = 0; i < t->head.n_rules && i < 32; i++) {
        const struct policy_rule *r = &t->rules[i], *found, *other;
        char name[POLICY_NAME_MAX + 3];
        if (r->kind == POLICY_HOST_NONE)
            continue;
        snprintf(name, sizeof(name), "%s%s", r->kind == POLICY_SUFFIX ? "a." : "", r->host);
        for (k = 0; k < r->n_ports && k < 4; k++) {
            uint16_t port = r->ports[k].hi;
            if (policy_name_find(t, name, port, POLICY_TCP, &found) == POLICY_ALLOW &&
                (!found || policy_name_find(wide, name, port, POLICY_TCP, &other) != POLICY_ALLOW ||
                 !policy_name_listed(wide, name)))
                abort();
            if (policy_http_find(t, name, port, "GET", "/a/%62", 0, &found) == POLICY_ALLOW &&
                policy_http_find(wide, name, port, "GET", "/a/%62", 0, &other) != POLICY_ALLOW)
                abort();
        }
    }
}

static void check(const struct policy_table *t)
{
    struct policy_table copy, both;
    struct policy_ports *ports;
    void *bytes;
    size_t len, n, i;

    if (policy_table_save(t, &bytes, &len) < 0)
        return;
    if (policy_table_load(bytes, len, &copy) < 0)
        abort();
    free(bytes);
    if (policy_table_intersect(t, &copy, &both) == 0) {
        ask(t, &both);
        if (!policy_table_within(&both, t))
            abort();
        policy_table_fini(&both);
    }
    policy_table_fini(&copy);
    if (policy_name_ports(t, POLICY_TCP, &ports, &n) == 0) {
        for (i = 1; i < n; i++)
            if (ports[i].lo <= ports[i - 1].hi)
                abort();
        free(ports);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy_head head;
    struct policy_table t;
    uint8_t *copy;

    if (size < sizeof(head) || size > 65536)
        return 0;
    copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    memcpy(&head, data, sizeof(head));
    head.magic = POLICY_MAGIC;
    head.n_entries %= 8;
    head.n_udp %= 8;
    if (sizeof(head) + (head.n_entries + head.n_udp) * sizeof(struct policy_entry) <= size)
        head.blob_len = (uint32_t)(size - sizeof(head) -
                                   (head.n_entries + head.n_udp) * sizeof(struct policy_entry));
    memcpy(copy, &head, sizeof(head));
    if (policy_table_load(copy, size, &t) == 0) {
        check(&t);
        policy_table_fini(&t);
    }
    free(copy);
    return 0;
}
