/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* sinks - the audit sinks of the config, loaded with their options. */

#include "warden.h"

/* A sink without "path" writes below the state directory. */
static json_t *sink_options(const struct config *c, const struct config_sink *s,
                            const struct plugin *p)
{
    json_t *o = s->options ? json_copy(s->options) : json_object();
    uint32_t i;

    for (i = 0; o && i < p->n_options; i++) {
        const struct cella_option *opt =
            (const struct cella_option *)(const void *)((const char *)p->options +
                                                        i * p->option_stride);
        if (!strcmp(opt->name, "path") && !json_object_get(o, "path"))
            json_object_set_new(o, "path", json_sprintf("%s/audit", c->state_dir));
    }
    return o;
}

static int sink_load(const struct config *c, const struct config_sink *s, struct sink_slot *slot,
                     struct audit_sink *out, struct cella_error *err)
{
    json_t *options;
    struct errbuf eb;
    int r = catalog_find(c, CELLA_KIND_SINK, s->name, &slot->plugin, errbuf_init(&eb));

    if (r < 0)
        return s->pointer && c->doc.root ? json_at_fail(&c->doc, s->pointer, 0, err, "%s", eb.text)
                                         : fail(err, r, "%s", eb.text);
    options = sink_options(c, s, slot->plugin);
    r = option_set_parse(slot->plugin->options, slot->plugin->n_options,
                         slot->plugin->option_stride, s->options ? &c->doc : NULL,
                         s->pointer ? s->pointer : "", options, &slot->options, err);
    json_decref(options);
    if (r == 0)
        *out = (struct audit_sink){slot->plugin, option_set_get(slot->options), s->overflow};
    return r;
}

int sinks_load(const struct config *c, struct sink_slot **ret_slots, size_t *ret_n,
               struct audit_sink **ret_sinks, struct cella_error *err)
{
    struct sink_slot *slots = calloc(c->n_sinks + 1, sizeof(*slots));
    struct audit_sink *sinks = calloc(c->n_sinks + 1, sizeof(*sinks));
    size_t i;
    int r = slots && sinks ? 0 : fail(err, -ENOMEM, "audit sinks: out of memory");

    for (i = 0; r == 0 && i < c->n_sinks; i++)
        r = sink_load(c, &c->sinks[i], &slots[i], &sinks[i], err);
    *ret_slots = slots;
    *ret_n = slots ? i : 0;
    *ret_sinks = sinks;
    return r;
}
