/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * class - "classes": floor, backends, policy, ceiling, image, kernel, limits; and the names of strengths.
 *
 * The tables are the reference of every key; docs/config.md follows them. What is left out gets the
 * default that is written here and nowhere else. "floor" has none: forgetting it must not give the
 * weakest wall. Policies are read before classes, so a name can be checked. Threads: no state.
 */
#include "sections.h"

#define CLASSES_MAX 1024

static const struct config_limits default_limits = {
    .memory = 512ull << 20,
    .disk = 256ull << 20,
    .cpu_millis = 1000,
    .pids = 256,
    .wall_ns = 600ull * 1000000000u,
};

static const char *const strengths[] = {"process", "user-kernel", "vm-emulated", "vm", NULL};
static const char *const gate_deaths[] = {"stop", "restart", NULL};

const char *strength_name(uint32_t strength)
{
    _Static_assert(CELLA_STRENGTH_VM == 4000 && ARRAY_LEN(strengths) == 5, "one name per strength");
    if (strength % 1000 || strength < CELLA_STRENGTH_PROCESS || strength > CELLA_STRENGTH_VM)
        return "unknown";
    return strengths[strength / 1000 - 1];
}

int strength_parse(const char *s, uint32_t *ret)
{
    uint32_t i;

    for (i = 0; strengths[i]; i++)
        if (!strcmp(strengths[i], s)) {
            *ret = (i + 1) * 1000;
            return 0;
        }
    return -EINVAL;
}

static int read_cpus(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                     void *member)
{
    double cpus;

    (void)k;
    if (!json_is_number(v))
        return fail_type(r, pointer, "a number of CPUs such as 1 or 0.5", v);
    cpus = json_number_value(v);
    if (!(cpus >= 0.01 && cpus <= 1024))
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "%g is out of range; allowed is 0.01 to 1024", cpus);
    *(uint64_t *)member = (uint64_t)(cpus * 1000 + 0.5);
    return 0;
}

#define LIMIT(name) offsetof(struct config_limits, name)
#define YEAR_NS (365ll * 86400 * 1000000000)
static const struct key limit_keys[] = {
    {"memory", read_size, LIMIT(memory), .min = 4 << 20, .max = 1ll << 44},
    {"cpus", read_cpus, LIMIT(cpu_millis)},
    {"pids", read_count, LIMIT(pids), .min = 1, .max = 4194304},
    {"disk", read_size, LIMIT(disk), .min = 1 << 20, .max = 1ll << 44},
    {"wall", read_time_or_none, LIMIT(wall_ns), .min = 1000000, .max = YEAR_NS},
    {"idle", read_time_or_none, LIMIT(idle_ns), .min = 1000000, .max = YEAR_NS},
    {"io_read", read_size_or_none, LIMIT(io_read_bps), .min = 4 << 10, .max = 1ll << 44},
    {"io_write", read_size_or_none, LIMIT(io_write_bps), .min = 4 << 10, .max = 1ll << 44},
};

static int read_limits(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                       void *member)
{
    (void)k;
    return read_object(r, pointer, v, limit_keys, ARRAY_LEN(limit_keys), member);
}

static int read_floor(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                      void *member)
{
    int word = 0, ret = read_word(r, k, pointer, v, &word);

    if (ret == 0)
        *(uint32_t *)member = (uint32_t)(word + 1) * 1000;
    return ret;
}

static int read_backends(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                         void *member)
{
    struct config_class *c = member;

    (void)k;
    if (json_is_array(v) && json_array_size(v) == 0)
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "no backend is left; name at least one, or leave the key out to allow "
                            "every loaded one");
    return read_names(r, pointer, v, &c->backends, &c->n_backends);
}

/* The complaint about a name that is neither a policy of the config nor one of the built-in ones. */
static int fail_policy(struct reader *r, const char *pointer, const char *name, size_t n_builtin)
{
    static const char *const all[] = {"none", "deny"};
    const char *const *builtin = all + ARRAY_LEN(all) - n_builtin; /* no ceiling is "none" */
    size_t i, n = r->config->n_policies;
    const char **words = calloc(n + n_builtin, sizeof(*words));
    int ret;

    if (!words)
        return fail_memory(r);
    for (i = 0; i < n_builtin; i++)
        words[i] = builtin[i];
    for (i = 0; i < n; i++)
        words[i + n_builtin] = r->config->policies[i].name;
    ret = fail_word(r, pointer, name, words, n + n_builtin);
    free(words);
    return ret;
}

static int read_class_policy(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                             void *member)
{
    int ret = read_string(r, k, pointer, v, member);
    const char *name = ret == 0 ? *(char **)member : "";

    if (ret < 0 || !strcmp(name, "none") || !strcmp(name, "deny") ||
        config_policy_find(r->config, name))
        return ret;
    return fail_policy(r, pointer, name, 2);
}

static int read_class_ceiling(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                              void *member)
{
    int ret = read_string(r, k, pointer, v, member);
    const char *name = ret == 0 ? *(char **)member : "";

    if (ret < 0 || !strcmp(name, "deny") || config_policy_find(r->config, name))
        return ret;
    return fail_policy(r, pointer, name, 1);
}

static int read_class_secrets(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                              void *member)
{
    struct config_class *c = member;

    (void)k;
    c->secrets_listed = 1;
    return read_names(r, pointer, v, &c->secrets, &c->n_secrets);
}

#define CLASS(name) offsetof(struct config_class, name)
static const struct key class_keys[] = {
    {"floor", read_floor, CLASS(floor), .required = 1, .words = strengths},
    {"backends", read_backends, 0},
    {"policy", read_class_policy, CLASS(policy)},
    {"ceiling", read_class_ceiling, CLASS(ceiling)},
    {"secrets", read_class_secrets, 0},
    {"image", read_string, CLASS(image)},
    {"kernel", read_string, CLASS(kernel)},
    {"limits", read_limits, CLASS(limits)},
    {"best_effort", read_bool, CLASS(best_effort)},
    {"on_gate_death", read_word, CLASS(on_gate_death), .words = gate_deaths},
};

int class_defaults(struct config_class *c, const char *name, const char *pointer)
{
    c->name = strdup(name);
    c->pointer = strdup(pointer);
    c->floor = CELLA_STRENGTH_PROCESS;
    c->policy = strdup("deny");
    c->image = strdup("host");
    c->limits = default_limits;
    return c->name && c->pointer && c->policy && c->image ? 0 : -ENOMEM;
}

static int read_class(struct reader *r, const char *pointer, const char *name, json_t *v,
                      void *item)
{
    if (class_defaults(item, name, pointer) < 0)
        return fail_memory(r);
    return read_object(r, pointer, v, class_keys, ARRAY_LEN(class_keys), item);
}

int read_classes(struct reader *r, const struct key *k, const char *pointer, json_t *v,
                 void *member)
{
    (void)k;
    (void)member;
    if (json_is_object(v) && json_object_size(v) == 0)
        return json_at_fail(r->doc, pointer, 0, r->err,
                            "no class is left; name at least one, or leave the key out for the "
                            "built-in \"default\"");
    return read_map(r, pointer, v, sizeof(struct config_class), CLASSES_MAX, read_class,
                    &r->config->classes, &r->config->n_classes);
}
