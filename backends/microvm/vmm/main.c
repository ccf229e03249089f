/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella-vmm - the monitor of one machine on KVM. It is started in its jail with the descriptors of control.h and
 * opens nothing: there is nothing to open.
 *
 * Stages: descriptors judged; the first request, which makes the machine; filters; then the loop, until an end.
 *   Should: have every descriptor, mapping and thread that it will ever need when the filters go on.
 *   Mustn't: run an instruction of the guest before both filters are on (CONT is only read behind them).
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "confine.h"
#include "vmm.h"

static struct machine machine = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                 .parked = PTHREAD_COND_INITIALIZER,
                                 .go = PTHREAD_COND_INITIALIZER};

static void descriptors(void)
{
    int fd;

    for (fd = VMM_FD_STDERR; fd < (int)VMM_FD_LAYERS; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            vmm_end(VMM_EXIT_HOST,
                    "cella-vmm: descriptor %d is not there; the microvm backend starts this "
                    "program, nobody else",
                    fd);
    if (close_range((unsigned)VMM_FD_LAYERS + VMM_LAYERS_MAX, ~0u, 0) < 0)
        vmm_end(VMM_EXIT_HOST, "cella-vmm: close_range: %s", strerror(errno));
}

static void lock(void *ctx)
{
    pthread_mutex_lock(&((struct machine *)ctx)->lock);
}

static void unlock(void *ctx)
{
    pthread_mutex_unlock(&((struct machine *)ctx)->lock);
}

int main(void)
{
    struct why w;
    int r;

    descriptors();
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX, 1); /* others would need mprotect in processors' threads */
    if (confine_prepare(&w) < 0)
        vmm_end(VMM_EXIT_HOST, "%s", w.text);
    while (control_turn(&machine) != VMM_OP_CONFIG || !machine.n_cpu)
        ;
    if (control_watch(&machine, &w) < 0)
        vmm_end(VMM_EXIT_HOST, "%s", w.text);
    r = confine_vmm();
    if (r < 0 && r != -ENOSYS)
        vmm_end(VMM_EXIT_HOST, "seccomp: the filter is refused: %s", strerror(-r));
    r = loop_run(machine.loop, lock, unlock, &machine);
    vmm_end(VMM_EXIT_HOST, "event loop: %s", strerror(-r));
}
