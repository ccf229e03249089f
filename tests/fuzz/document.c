/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Any text is a policy document: it parses or is refused, and what compiles never opens the
 * hard-deny set, survives a round trip and intersects with itself to the same allowed points.
 */
#include "document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_table(const struct policy_table *t)
{
    struct policy_table copy;
    void *bytes = NULL;
    size_t len;
    uint32_t i;

    for (i = 0; i < t->head.n_entries; i++) {
        const struct policy_entry *e = &t->entries[i];
        if (e->verdict == POLICY_ALLOW && policy_hard(e->lo, e->hi))
            abort();
        if (policy_table_find(t, e->lo, e->port_hi) != e)
            abort();
    }
    if (policy_table_save(t, &bytes, &len) < 0)
        return;
    if (policy_table_load(bytes, len, &copy) < 0 || !policy_table_within(t, &copy) ||
        !policy_table_within(&copy, t))
        abort();
    policy_table_fini(&copy);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct errbuf eb;
    struct document d;
    struct policy_table t;
    size_t phase = 0;

    if (policy_table_load(data, size, &t) == 0)
        policy_table_fini(&t);
    if (document_parse("<fuzz>", (const char *)data, size, &d, errbuf_init(&eb)) < 0)
        return 0;
    do {
        if (document_compile(&d, phase, phase ? &d : NULL, 1, &t, &eb.err) == 0) {
            check_table(&t);
            policy_table_fini(&t);
        }
    } while (++phase < d.n_phases);
    document_fini(&d);
    return 0;
}
