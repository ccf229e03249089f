/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * describe - everything the host knows about a loaded plugin, as JSON, for `cella plugin inspect`.
 *
 * Strings of the plugin go in as JSON strings; those that are no UTF-8 become "?". The libraries
 * the object needs are listed because their constructors ran with its own. Threads: as for the
 * plugin.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include "plugin_int.h"

static json_t *text(const char *s)
{
    json_t *j = s ? json_string(s) : json_null();

    return j ? j : json_string("?");
}

/* The kinds' tables all start with the same header; a backend's copy serves. */
static json_t *versions(const struct plugin *p, const struct kind_info *k)
{
    const struct cella_hdr *h = &p->ops.backend.hdr;
    json_t *v = json_object();

    json_object_set_new(v, "note", json_sprintf("%u.%u", (unsigned)CELLA_ABI_MAJOR, p->note_minor));
    json_object_set_new(v, "min_host",
                        json_sprintf("%u.%u", (unsigned)CELLA_ABI_MAJOR, p->note_min_host_minor));
    json_object_set_new(v, "table", json_sprintf("%u.%u", h->major, h->minor));
    json_object_set_new(
        v, "host", json_sprintf("%u.%u", (unsigned)CELLA_ABI_MAJOR, (unsigned)CELLA_ABI_MINOR));
    json_object_set_new(v, "table_size", json_integer(p->table_size));
    json_object_set_new(v, "host_table_size", json_integer(k->host_size));
    json_object_set_new(v, "baseline", json_integer(k->baseline));
    return v;
}

static json_t *operations(const struct plugin *p, const struct kind_info *k)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; i < k->n_ops; i++) {
        const struct op_info *op = &k->ops[i];
        json_t *o = json_object();
        char state[128];
        int there = op_present(p, op);
        snprintf(state, sizeof(state), there ? "present" : "default: %s", op->def ? op->def : "");
        json_object_set_new(o, "name", text(op->name));
        json_object_set_new(o, "required", json_boolean(!op->def));
        json_object_set_new(o, "state", text(state));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *options(const struct plugin *p)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; i < p->n_options; i++) {
        const struct cella_option *o = option_at(p, i);
        json_t *j = json_object();
        json_object_set_new(j, "name", text(o->name));
        json_object_set_new(j, "type", text(option_type_name(o->type)));
        json_object_set_new(j, "default", text(o->def));
        json_object_set_new(j, "required", json_boolean(!o->def));
        if (o->min || o->max) {
            json_object_set_new(j, "min", json_integer(o->min));
            json_object_set_new(j, "max", json_integer(o->max));
        }
        if (o->type == CELLA_OPT_ENUM)
            json_object_set_new(j, "choices", text(o->choices));
        json_object_set_new(j, "help", text(o->help));
        json_array_append_new(list, j);
    }
    return list;
}

static json_t *methods(const struct plugin *p)
{
    json_t *list = json_array();
    uint32_t i;

    for (i = 0; i < p->n_methods; i++) {
        const struct cella_method *m = method_at(p, i);
        json_t *j = json_object();
        json_object_set_new(j, "name", json_sprintf("%s.%s", p->name, m->name));
        json_object_set_new(j, "signature", text(m->signature));
        json_object_set_new(j, "help", text(m->help));
        json_array_append_new(list, j);
    }
    return list;
}

/* DT_NEEDED of the mapped object. glibc relocates d_ptr in place, others do not. */
static json_t *needed(const struct plugin *p)
{
    json_t *list = json_array();
    struct link_map *map = NULL;
    const char *strings = NULL;
    const ElfW(Dyn) * d;

    if (!p->dl || dlinfo(p->dl, RTLD_DI_LINKMAP, &map) < 0 || !map)
        return list;
    for (d = map->l_ld; d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_STRTAB)
            strings = (const char *)(d->d_un.d_ptr < map->l_addr ? map->l_addr + d->d_un.d_ptr
                                                                 : d->d_un.d_ptr);
    for (d = map->l_ld; strings && d->d_tag != DT_NULL; d++)
        if (d->d_tag == DT_NEEDED)
            json_array_append_new(list, text(strings + d->d_un.d_val));
    return list;
}

static const char *strength_text(uint32_t s)
{
    return s == CELLA_STRENGTH_PROCESS       ? "process"
           : s == CELLA_STRENGTH_USER_KERNEL ? "user-kernel"
           : s == CELLA_STRENGTH_VM_EMULATED ? "vm-emulated"
                                             : "vm";
}

static void probe_add(json_t *root, struct plugin *p, const struct cella_host *host)
{
    struct probe_result res;
    struct errbuf eb;
    struct cella_error *err = errbuf_init(&eb);
    json_t *caps = json_object(), *probe = json_object();
    size_t i;
    int r = p->kind == CELLA_KIND_BACKEND ? backend_probe(p, host, 0, &res, err)
                                          : enforcer_probe(p, host, &res, err);

    json_object_set_new(probe, "usable", json_boolean(r == 0));
    if (r < 0)
        json_object_set_new(probe, "reason", text(eb.text));
    if (r == 0 && p->kind == CELLA_KIND_BACKEND) {
        json_object_set_new(probe, "strength", text(strength_text(res.probe.strength)));
        json_object_set_new(probe, "network",
                            text(res.probe.net_need == CELLA_NET_TAP    ? "tap"
                                 : res.probe.net_need == CELLA_NET_NONE ? "none"
                                                                        : "netns"));
        json_object_set_new(probe, "root",
                            text(res.probe.root_need == CELLA_ROOT_IMAGE ? "image" : "dir"));
    }
    for (i = 0; r == 0 && i < res.n_caps; i++) {
        json_t *c = json_object();
        json_object_set_new(c, "answer", text(answer_name(res.caps[i].answer)));
        if (res.caps[i].reason[0])
            json_object_set_new(c, "reason", text(res.caps[i].reason));
        json_object_set_new(caps, res.caps[i].name, c);
    }
    json_object_set_new(root, "probe", probe);
    json_object_set_new(root, "capabilities", caps);
}

json_t *plugin_describe(struct plugin *p, const struct cella_host *host, int probe)
{
    const struct kind_info *k = kind_info_get(p->kind);
    json_t *root = json_object();

    if (!k || !root)
        return root;
    json_object_set_new(root, "name", text(p->name));
    json_object_set_new(root, "kind", text(k->name));
    json_object_set_new(root, "version", text(p->version));
    json_object_set_new(root, "summary", text(p->summary));
    json_object_set_new(root, "path", text(p->path));
    json_object_set_new(root, "abi", versions(p, k));
    json_object_set_new(root, "operations", operations(p, k));
    json_object_set_new(root, "options", options(p));
    json_object_set_new(root, "methods", methods(p));
    json_object_set_new(root, "needed", needed(p));
    if (probe && (p->kind == CELLA_KIND_BACKEND || p->kind == CELLA_KIND_ENFORCER))
        probe_add(root, p, host);
    return root;
}
