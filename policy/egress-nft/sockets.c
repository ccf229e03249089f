/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * sockets - the gate's listeners, opened inside the gate namespace while there is still privilege.
 *
 * A socket belongs for ever to the namespace it was made in. The gate later lives in the uplink
 * namespace without any capability, and these descriptors are all it has of the cell's side.
 * Listeners are transparent: they accept for any destination, and getsockname() on what they accept
 * is what the cell dialled. Threads: none.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <libmnl/libmnl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>

#include "setup.h"

#define CELL_BUFFER (1024 * 1024) /* the kernel doubles it */

/* What is accepted inherits it. The link to the cell loses nothing and has no queue to share, so pacing (the
   host may have chosen BBR) is only timers; and what the gate holds for a cell is bounded here, not by how large
   the host lets buffers grow. */
static void local_link(int fd)
{
    int room = CELL_BUFFER;

    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, GATE_CONGESTION,
               (socklen_t)(sizeof(GATE_CONGESTION) - 1));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
}

/* What is accepted inherits it: a gate that dies at any moment leaves resets behind, and nobody takes a cut
   transfer for a whole one. */
static void reset_on_close(int fd)
{
    struct linger hard = {1, 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
}

int gate_listener(uint16_t port, int type, int *ret_fd, struct cella_error *err)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    auto_close int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, buf = 128 * 1024;

    if (fd < 0)
        return fail(err, -errno, "no socket for port %u of the gate: %s", port, strerror(errno));
    if (setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof(on)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return fail(err, -errno, "the gate's sockets cannot be transparent: %s", strerror(errno));
    if (type == SOCK_DGRAM && (setsockopt(fd, SOL_IP, IP_RECVORIGDSTADDR, &on, sizeof(on)) < 0 ||
                               setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buf, sizeof(buf)) < 0))
        return fail(err, -errno, "the gate's DNS socket cannot see destinations: %s",
                    strerror(errno));
    if (type == SOCK_STREAM)
        local_link(fd);
    if (port == GATE_RELAY_PORT)
        reset_on_close(fd);
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        (type == SOCK_STREAM && listen(fd, 128) < 0))
        return fail(err, -errno, "the gate cannot listen on port %u: %s", port, strerror(errno));
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* Answers to relayed datagrams come from whatever address and port the cell sent to; no bound socket can
   do that for more than one port. */
int gate_raw(int *ret_fd, struct cella_error *err)
{
    auto_close int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);

    if (fd < 0)
        return fail(err, -errno, "no raw socket for the gate: %s", strerror(errno));
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int nflog_config(struct mnl_socket *nl, uint16_t attr, const void *value, size_t len,
                        uint32_t seq)
{
    char buf[256];
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    struct nfgenmsg *g;
    long n;

    h->nlmsg_type = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG;
    h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    h->nlmsg_seq = seq;
    g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
    g->nfgen_family = AF_UNSPEC;
    g->version = NFNETLINK_V0;
    g->res_id = htons(GATE_LOG_GROUP);
    mnl_attr_put(h, attr, len, value);
    if (mnl_socket_sendto(nl, h, h->nlmsg_len) < 0)
        return -errno;
    n = mnl_socket_recvfrom(nl, buf, sizeof(buf));
    if (n < 0)
        return -errno;
    return mnl_cb_run(buf, (size_t)n, seq, mnl_socket_get_portid(nl), NULL, NULL) < 0 ? -errno : 0;
}

/* Each packet is one message at once (no batching), numbered, so that a gap tells how many were
 * lost. */
int gate_nflog(int *ret_fd, struct cella_error *err)
{
    struct nfulnl_msg_config_cmd bind_cmd = {.command = NFULNL_CFG_CMD_BIND};
    struct nfulnl_msg_config_mode mode = {.copy_range = htonl(128),
                                          .copy_mode = NFULNL_COPY_PACKET};
    uint32_t one = htonl(1);
    uint16_t flags = htons(NFULNL_CFG_F_SEQ);
    int room = 512 * 1024, r, fd;
    struct mnl_socket *nl = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (!nl || mnl_socket_bind(nl, 0, MNL_SOCKET_AUTOPID) < 0) {
        r = -errno;
        if (nl)
            mnl_socket_close(nl);
        return fail(err, r, "no netfilter netlink socket: %s", strerror(-r));
    }
    r = nflog_config(nl, NFULA_CFG_CMD, &bind_cmd, sizeof(bind_cmd), 1);
    if (r == 0)
        r = nflog_config(nl, NFULA_CFG_MODE, &mode, sizeof(mode), 2);
    if (r == 0)
        r = nflog_config(nl, NFULA_CFG_QTHRESH, &one, sizeof(one), 3);
    if (r == 0)
        r = nflog_config(nl, NFULA_CFG_FLAGS, &flags, sizeof(flags), 4);
    fd = r == 0 ? fcntl(mnl_socket_get_fd(nl), F_DUPFD_CLOEXEC, 0) : -1;
    if (r == 0 && fd < 0)
        r = -errno;
    mnl_socket_close(nl);
    if (r < 0)
        return fail(err, r,
                    "the kernel does not log denied packets (NFLOG): %s; refusing, because "
                    "denials would go unseen",
                    strerror(-r));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
    *ret_fd = fd;
    return 0;
}
