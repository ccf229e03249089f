/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * spec - the checks of a cell's description that do not depend on the backend. The core has made it, and a backend trusts
 * it no further than this: what follows is done as root. Threads: no state.
 */
#include <fcntl.h>

#include "spec.h"

#define SEALS_NEEDED (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

const char *option_str(const struct cella_options *o, const char *name, const char *def)
{
    const struct cella_option_value *v = cella_options_get(o, name);

    return v && v->str ? v->str : def;
}

int64_t option_int(const struct cella_options *o, const char *name, int64_t def)
{
    const struct cella_option_value *v = cella_options_get(o, name);

    return v ? v->i64 : def;
}

int spec_check_id(const struct cella_spec *spec, uint32_t step, struct cella_error *err)
{
    return strlen(spec->cell_id) == CELLA_ID_LEN
               ? 0
               : cella_error_set(err, -EINVAL, step, "cell id \"%s\": expected %d characters",
                                 spec->cell_id, CELLA_ID_LEN);
}

static int check_agent(int fd, uint32_t step, struct cella_error *err)
{
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0)
        return cella_error_set(err, -EINVAL, step, "agent: descriptor %d is not a memfd: %s", fd,
                               strerror(errno));
    if ((seals & SEALS_NEEDED) != SEALS_NEEDED)
        return cella_error_set(
            err, -EPERM, step,
            "agent: the memfd is not sealed (seals %#x, needed %#x); the cell could change "
            "the program that runs in it",
            (unsigned)seals, (unsigned)SEALS_NEEDED);
    return 0;
}

int spec_check_processes(const struct cella_spec *spec, uint32_t mounts_max, uint32_t step,
                         struct cella_error *err)
{
    if (!spec->root || spec->root[0] != '/')
        return cella_error_set(err, -EINVAL, step, "root \"%s\": expected an absolute directory",
                               spec->root ? spec->root : "");
    if (spec->uid_count < 65536 || !spec->uid_base)
        return cella_error_set(err, -EINVAL, step,
                               "id range %u+%u: expected 65536 ids that do not begin at 0",
                               spec->uid_base, spec->uid_count);
    if (spec->n_mounts > mounts_max)
        return cella_error_set(err, -E2BIG, step, "%u mounts: at most %u", spec->n_mounts,
                               mounts_max);
    return check_agent(spec->borrow_agent_fd, step, err);
}

int spec_check_mount(const struct cella_mount *m, uint32_t step, struct cella_error *err)
{
    if (!m->target || m->target[0] != '/' || !m->target[1] || strstr(m->target, "/../"))
        return cella_error_set(err, -EINVAL, step, "mount target \"%s\": expected an absolute path",
                               m->target ? m->target : "");
    if (m->type != CELLA_MOUNT_BIND && m->type != CELLA_MOUNT_TMPFS)
        return cella_error_set(err, -EINVAL, step, "mount %s: unknown type %u", m->target, m->type);
    if (m->type == CELLA_MOUNT_BIND && (!m->source || m->source[0] != '/'))
        return cella_error_set(err, -EINVAL, step, "mount %s: no absolute source", m->target);
    return 0;
}
