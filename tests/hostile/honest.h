/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * honest - plugins that keep the contract and do nothing. Each file beside this one includes it and
 * breaks exactly one rule, so that what the test sees is that rule's doing.
 */
#ifndef CELLA_TEST_HONEST_H
#define CELLA_TEST_HONEST_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cella/backend.h>
#include <cella/decider.h>
#include <cella/enforcer.h>
#include <cella/plugin.h>
#include <cella/sink.h>

#ifdef __clang__
#pragma clang diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
#pragma GCC diagnostic ignored "-Wunused-parameter"
#define MAYBE __attribute__((unused)) static

struct honest {
    int exit_fd;
};

MAYBE int honest_probe(const struct cella_host *host, const struct cella_probe_report *report,
                       struct cella_probe *ret_probe, struct cella_error *err)
{
    report->capability(report->ctx, "limit.memory", CELLA_NONE, "a test");
    ret_probe->strength = CELLA_STRENGTH_PROCESS;
    ret_probe->net_need = CELLA_NET_NETNS;
    ret_probe->root_need = CELLA_ROOT_DIR;
    return 0;
}

MAYBE int honest_create(const struct cella_host *host, const struct cella_spec *spec,
                        void **ret_self, struct cella_error *err)
{
    struct honest *h = calloc(1, sizeof(*h));

    if (!h)
        return cella_error_set(err, -ENOMEM, 0, "out of memory");
    h->exit_fd = eventfd(0, EFD_CLOEXEC);
    *ret_self = h;
    return 0;
}

MAYBE int honest_start(void *self, struct cella_started *ret_started, struct cella_error *err)
{
    ret_started->borrow_exit_fd = ((struct honest *)self)->exit_fd;
    return 0;
}

MAYBE int honest_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    return 0;
}

MAYBE void honest_destroy(void *self)
{
    if (self)
        close(((struct honest *)self)->exit_fd);
    free(self);
}

MAYBE int honest_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cella_error_set(err, -errno, 0, "socketpair");
    close(pair[1]);
    *ret_fd = pair[0];
    return 0;
}

MAYBE int honest_reap(const struct cella_host *host, const struct cella_reap *reap,
                      struct cella_error *err)
{
    return 0;
}

MAYBE int honest_simple(void *self, struct cella_error *err)
{
    return 0;
}

#define HONEST_BACKEND(name_)                                                                      \
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND), .name = name_,            \
    .version = "1", .summary = "a test", .probe = honest_probe, .create = honest_create,           \
    .start = honest_start, .stop = honest_stop, .destroy = honest_destroy,                         \
    .connect = honest_connect, .reap = honest_reap

/* ---- decider ---- */
MAYBE int honest_decider_create(const struct cella_host *host, const struct cella_options *options,
                                void **ret_self, struct cella_error *err)
{
    *ret_self = malloc(1);
    return 0;
}

MAYBE int honest_decide(void *self, const struct cella_request *request,
                        struct cella_verdict *ret_verdict, struct cella_error *err)
{
    ret_verdict->value = CELLA_ALLOW;
    strcpy(ret_verdict->rule, "honest");
    return 0;
}

MAYBE void honest_free(void *self)
{
    free(self);
}

#define HONEST_DECIDER(name_)                                                                      \
    .hdr = CELLA_HDR_INIT(struct cella_decider_ops, CELLA_KIND_DECIDER), .name = name_,            \
    .version = "1", .summary = "a test", .create = honest_decider_create, .decide = honest_decide, \
    .destroy = honest_free

/* ---- enforcer ---- */
MAYBE int honest_enforcer_probe(const struct cella_host *host,
                                const struct cella_probe_report *report, struct cella_error *err)
{
    return 0;
}

MAYBE int honest_attach(const struct cella_host *host, const struct cella_attach *attach,
                        void **ret_self, struct cella_attached *ret_attached,
                        struct cella_error *err)
{
    *ret_self = malloc(1);
    strcpy(ret_attached->address, "192.0.2.1/31");
    return 0;
}

#define HONEST_ENFORCER(name_)                                                                     \
    .hdr = CELLA_HDR_INIT(struct cella_enforcer_ops, CELLA_KIND_ENFORCER), .name = name_,          \
    .version = "1", .summary = "a test", .probe = honest_enforcer_probe, .attach = honest_attach,  \
    .detach = honest_free, .reap = honest_reap

/* A note by hand, for the lies that CELLA_REGISTER cannot tell. */
#define REGISTER_NOTE(kind_, major_, min_host_minor_, magic_, ops_)                                \
    CELLA_EXPORT const void *cella_plugin_entry_v1(void);                                          \
    CELLA_EXPORT const void *cella_plugin_entry_v1(void)                                           \
    {                                                                                              \
        return &(ops_);                                                                            \
    }                                                                                              \
    static const struct cella_elf_note note_                                                       \
        __attribute__((used, section(".note.cella"), aligned(4))) = {                              \
            6,                                                                                     \
            sizeof(struct cella_note),                                                             \
            CELLA_NOTE_TYPE,                                                                       \
            {'c', 'e', 'l', 'l', 'a', 0, 0, 0},                                                    \
            {magic_, kind_, major_, CELLA_ABI_MINOR, min_host_minor_}};

/* Whoever runs this has loaded something that should have been refused. */
#define MINE_CONSTRUCTOR                                                                           \
    __attribute__((constructor)) static void mine(void)                                            \
    {                                                                                              \
        static const char text[] = "CONSTRUCTOR OF A REFUSED PLUGIN RAN\n";                        \
        (void)!write(2, text, sizeof(text) - 1);                                                   \
        _exit(66);                                                                                 \
    }

#endif
