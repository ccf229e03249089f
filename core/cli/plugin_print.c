/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * plugin_print - the description of a plugin (plugin.c) for a terminal. Its texts are the plugin's: nothing of them controls
 * the terminal. Threads: none.
 */
#include "plugin.h"
#include "plugin_print.h"

const char *plugin_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s ? s : "";
}

/* Text of a plugin on a terminal: no control characters. */
static void put(const char *s)
{
    for (; *s; s++)
        putchar((unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s);
}

static void row(const char *label, const char *value)
{
    printf("%-12s", label);
    put(value);
    putchar('\n');
}

static void print_operations(const json_t *list)
{
    const json_t *op;
    size_t i;

    printf("operations\n");
    json_array_foreach((json_t *)(uintptr_t)list, i, op)
        printf("  %-14s %-9s %s\n", plugin_text(op, "name"),
               json_is_true(json_object_get(op, "required")) ? "required" : "optional",
               plugin_text(op, "state"));
}

static void print_options(const json_t *list)
{
    const json_t *o;
    size_t i;

    if (json_array_size(list))
        printf("options\n");
    json_array_foreach((json_t *)(uintptr_t)list, i, o)
    {
        const json_t *min = json_object_get(o, "min"), *max = json_object_get(o, "max");
        printf("  %-14s %-9s ", plugin_text(o, "name"), plugin_text(o, "type"));
        put(json_is_true(json_object_get(o, "required")) ? "required" : plugin_text(o, "default"));
        if (min)
            printf(" (%lld to %lld)", json_integer_value(min), json_integer_value(max));
        if (plugin_text(o, "choices")[0]) {
            printf(" (");
            put(plugin_text(o, "choices"));
            putchar(')');
        }
        printf("  ");
        put(plugin_text(o, "help"));
        putchar('\n');
    }
}

static void print_methods(const json_t *list)
{
    const json_t *m;
    size_t i;

    if (json_array_size(list))
        printf("methods\n");
    json_array_foreach((json_t *)(uintptr_t)list, i, m)
    {
        printf("  %s  ", plugin_text(m, "name"));
        put(plugin_text(m, "signature"));
        printf("\n      ");
        put(plugin_text(m, "help"));
        putchar('\n');
    }
}

static void print_probe(const json_t *about)
{
    const json_t *probe = json_object_get(about, "probe"), *cap;
    const char *name;

    if (!probe)
        return;
    if (json_is_true(json_object_get(probe, "usable"))) {
        row("usable", "yes");
        if (plugin_text(probe, "strength")[0])
            row("strength", plugin_text(probe, "strength"));
        if (plugin_text(probe, "network")[0])
            printf("%-12s%s network, %s root\n", "needs", plugin_text(probe, "network"),
                   plugin_text(probe, "root"));
    } else {
        printf("%-12sno: ", "usable");
        put(plugin_text(probe, "reason"));
        putchar('\n');
    }
    if (json_object_size(json_object_get(about, "capabilities")))
        printf("capabilities\n");
    json_object_foreach(json_object_get(about, "capabilities"), name, cap)
    {
        printf("  %-16s %-9s ", name, plugin_text(cap, "answer"));
        put(plugin_text(cap, "reason"));
        putchar('\n');
    }
}

void plugin_print(const json_t *a)
{
    const json_t *abi = json_object_get(a, "abi"), *v;
    size_t i;

    row("name", plugin_text(a, "name"));
    row("kind", plugin_text(a, "kind"));
    row("version", plugin_text(a, "version"));
    row("summary", plugin_text(a, "summary"));
    row("path", plugin_text(a, "path"));
    printf("%-12snote %s, table %s, needs host %s; this host %s\n", "interface",
           plugin_text(abi, "note"), plugin_text(abi, "table"), plugin_text(abi, "min_host"),
           plugin_text(abi, "host"));
    printf("%-12s%lld bytes; host %lld, at least %lld\n", "table",
           json_integer_value(json_object_get(abi, "table_size")),
           json_integer_value(json_object_get(abi, "host_table_size")),
           json_integer_value(json_object_get(abi, "baseline")));
    printf("%-12s", "libraries");
    json_array_foreach(json_object_get(a, "needed"), i, v)
    {
        printf(i ? ", " : "");
        put(json_string_value(v));
    }
    putchar('\n');
    print_probe(a);
    print_operations(json_object_get(a, "operations"));
    print_options(json_object_get(a, "options"));
    print_methods(json_object_get(a, "methods"));
    json_array_foreach(json_object_get(a, "notes"), i, v) row("note", json_string_value(v));
}

int plugin_print_json(const json_t *j)
{
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_ENSURE_ASCII);

    if (!text)
        return STATUS_FAILED;
    puts(text);
    free(text);
    return 0;
}
