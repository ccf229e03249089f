/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * floor - a decider that refuses cells whose boundary is weaker than one strength, whatever their
 * class says: the house rule above all classes. Option "strength" is the floor.
 *
 * It knows the operation "cell.create" and abstains on every other. A request without a strength,
 * or with one it does not know, is refused: a rule that cannot read must not permit. Threads: an
 * instance is constant after create.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cella/backend.h>
#include <cella/decider.h>
#include <cella/plugin.h>

struct floor {
    uint32_t strength;
    char name[16];
};

/* 0 = unknown. `len` because attribute values need not be terminated. */
static uint32_t strength_of(const char *s, uint64_t len)
{
    static const struct {
        const char *name;
        uint32_t strength;
    } known[] = {
        {"process", CELLA_STRENGTH_PROCESS},
        {"user-kernel", CELLA_STRENGTH_USER_KERNEL},
        {"vm-emulated", CELLA_STRENGTH_VM_EMULATED},
        {"vm", CELLA_STRENGTH_VM},
    };
    size_t i;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (len == strlen(known[i].name) && !memcmp(known[i].name, s, len))
            return known[i].strength;
    return 0;
}

static int floor_create(const struct cella_host *host, const struct cella_options *options,
                        void **ret_self, struct cella_error *err)
{
    const struct cella_option_value *v = cella_options_get(options, "strength");
    const char *text = v && v->str ? v->str : "user-kernel";
    struct floor *f;

    (void)host;
    f = calloc(1, sizeof(*f));
    if (!f)
        return cella_error_set(err, -ENOMEM, 1, "out of memory");
    f->strength = strength_of(text, strlen(text));
    if (!f->strength) {
        free(f);
        return cella_error_set(err, -EINVAL, 2, "option \"strength\": unknown strength \"%s\"",
                               text);
    }
    snprintf(f->name, sizeof(f->name), "%s", text);
    *ret_self = f;
    return 0;
}

static const struct cella_span *attribute(const struct cella_request *r, const char *name)
{
    uint32_t i;

    for (i = 0; i < r->n_attributes; i++) {
        const struct cella_attribute *a =
            (const void *)((const char *)r->attributes + (uint64_t)i * r->attribute_stride);
        if (!strcmp(a->name, name))
            return &a->value;
    }
    return NULL;
}

static int floor_decide(void *self, const struct cella_request *request,
                        struct cella_verdict *ret_verdict, struct cella_error *err)
{
    const struct floor *f = self;
    const struct cella_span *s;
    uint32_t got;

    (void)err;
    if (strcmp(request->operation, "cell.create")) {
        ret_verdict->value = CELLA_ABSTAIN;
        return 0;
    }
    s = attribute(request, "strength");
    got = s ? strength_of(s->ptr, s->len) : 0;
    ret_verdict->value = got >= f->strength ? CELLA_ALLOW : CELLA_DENY;
    snprintf(ret_verdict->rule, sizeof(ret_verdict->rule), "floor:%s", f->name);
    if (got < f->strength)
        snprintf(ret_verdict->reason, sizeof(ret_verdict->reason),
                 "the cell's strength (%.*s) is below the floor of this host (%s)",
                 got ? (int)s->len : 7, got ? s->ptr : "unknown", f->name);
    return 0;
}

static void floor_destroy(void *self)
{
    free(self);
}

static const struct cella_option options[] = {
    {.name = "strength",
     .help = "weakest boundary that may be created",
     .def = "user-kernel",
     .choices = "process|user-kernel|vm-emulated|vm",
     .type = CELLA_OPT_ENUM},
};

static const struct cella_decider_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_decider_ops, CELLA_KIND_DECIDER),
    .name = "floor",
    .version = "1.0",
    .summary = "refuses cells below one strength, whatever their class",
    .options = options,
    .n_options = 1,
    .option_stride = sizeof(options[0]),
    .create = floor_create,
    .decide = floor_decide,
    .destroy = floor_destroy,
};
CELLA_REGISTER(CELLA_KIND_DECIDER, ops)
