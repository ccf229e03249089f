/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * reach_host - sinks on the host itself, and the rows that try to get to them: a port of the host's loopback and an abstract
 * socket of its network namespace. Only their own listener can tell whether somebody came; a listener that cannot be
 * made leaves its row out. They are there for the time of one measurement, on 127.0.0.1 only. Threads: none.
 */
#include <arpa/inet.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "reach.h"

#define BACKLOG 8

static int listen_tcp(char ret_port[8])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0 ||
                    getsockname(fd, (struct sockaddr *)&a, &len) < 0)) {
        close(fd);
        fd = -1;
    }
    snprintf(ret_port, 8, "%u", ntohs(a.sin_port));
    return fd;
}

static int listen_abstract(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    memcpy(a.sun_path + 1, name, n);
    if (fd >= 0 && (bind(fd, (struct sockaddr *)&a,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) < 0 ||
                    listen(fd, BACKLOG) < 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static size_t row(struct reach_matrix *m, const char *id, const char *kind, const char *address,
                  uint32_t port, const char *why)
{
    struct cella_reach_row r = {.hdr = CELLA_HDR_INIT(struct cella_reach_row, CELLA_KIND_REACH_ROW),
                                .id = id,
                                .group = "host",
                                .kind = kind,
                                .address = address,
                                .twin_address = "",
                                .name = "",
                                .options = "",
                                .rule = "",
                                .why = why,
                                .port = port,
                                .expected = CELLA_REACH_DENY,
                                .proof = CELLA_REACH_BY_CELL};

    matrix_row(m, &r);
    return m->n - 1;
}

void reach_host_begin(struct reach_host *h, struct reach_matrix *m)
{
    char name[32], address[40], port[8] = "0", id[CELLA_ID_LEN + 1];

    *h = (struct reach_host){.tcp = listen_tcp(port), .abstract = -1};
    if (random_id(id) == 0) {
        snprintf(name, sizeof(name), "cella-reach-%s", id);
        snprintf(address, sizeof(address), "@%s", name);
        h->abstract = listen_abstract(name);
    }
    if (h->tcp >= 0)
        h->tcp_row = row(m, "host.loopback", "tcp", "127.0.0.1", (uint32_t)atoi(port),
                         "a port of the host's own loopback");
    if (h->abstract >= 0)
        h->abstract_row =
            row(m, "host.abstract", "unix", address, 0, "a socket of the host without a file");
}

static uint64_t came(int fd)
{
    uint64_t n = 0;
    int c;

    while (fd >= 0 && (c = accept4(fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        close(c);
        n++;
    }
    return n;
}

/* The row says that it got through; only our own listener knows whether to us. */
static void settle(int fd, size_t i, struct reach_matrix *m)
{
    struct reach_try *t = fd >= 0 && i < m->n ? &m->rows[i].
    try : NULL
        ;
    uint64_t n = came(fd);

    if (t && (t->connected || t->got > 0)) {
        t->bytes += n;
        if (!n) /* something of the cell's own has the same place */
            t->got = -1;
    }
    if (fd >= 0)
        close(fd);
}

void reach_host_end(struct reach_host *h, struct reach_matrix *m)
{
    settle(h->tcp, h->tcp_row, m);
    settle(h->abstract, h->abstract_row, m);
    h->tcp = h->abstract = -1;
}
