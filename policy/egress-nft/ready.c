/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ready - a setup helper that is started before anybody knows which cell it is for.
 *
 * It makes a gate namespace without a link, in which nothing can happen, and waits; attach hands it
 * slot, policy and the cell's namespace. A cell's start does not wait for a program to load that way.
 * Mustn't: know anything of a cell. One thread, the warden's.
 */
#include <signal.h>
#include <sys/wait.h>

#include "egress.h"

struct ready {
    pid_t pid;
    int ctl;
    char resolvers[RESOLVERS_LEN]; /* as the helper got them */
};

int egress_ready(const struct cella_host *host, const struct cella_ready *in, void **ret,
                 struct cella_error *err)
{
    struct ready *r = calloc(1, sizeof(*r));
    char gate[4096];
    char *argv[] = {"cella-gate-setup", "ready", gate, r ? r->resolvers : NULL, NULL};
    int ns[3] = {-1, in->borrow_uplink_fd, -1}, code;

    if (!r)
        return fail(err, -ENOMEM, "out of memory");
    code = helper_program(host, "cella-gate", gate, err);
    if (code == 0)
        code = resolvers_find(in->options, r->resolvers, err);
    if (code == 0)
        code = helper_spawn(host, argv, NULL, ns, &r->pid, &r->ctl, err);
    if (code < 0) {
        free(r);
        return code;
    }
    *ret = r;
    return 0;
}

void egress_unready(void *ready)
{
    struct ready *r = ready;

    if (!r)
        return;
    close(r->ctl);
    kill(r->pid, SIGKILL); /* our own child, not waited for yet */
    while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    free(r);
}

int ready_take(struct egress *e, void *ready, int borrow_ns, struct cella_error *err)
{
    struct ctl_msg m = {.type = CTL_ATTACH, .count = e->slot, .tx = e->link == CELLA_LINK_TAP};
    struct ready *r = ready;
    auto_close int table = table_memfd(&e->table);
    int fds[3] = {table, e->link == CELLA_LINK_TAP ? table : borrow_ns, e->ledger};
    int code = table < 0 ? table : send_fds(r->ctl, &m, sizeof(m), fds, 3);

    if (code < 0) {
        egress_unready(r);
        return fail(err, code, "handing the cell to cella-gate-setup: %s", strerror(-code));
    }
    e->pid = r->pid;
    e->ctl = r->ctl;
    memcpy(e->resolvers, r->resolvers, sizeof(e->resolvers));
    free(r);
    return 0;
}
