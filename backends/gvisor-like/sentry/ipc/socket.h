/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * socket.h - the inside of sockets. All are of this cell: AF_UNIX, AF_INET/AF_INET6 over the loopback, AF_NETLINK to ask of it.
 * A family says what names mean (struct family); streams and datagrams are the same for all families but in what is asked here.
 */
#ifndef SENTRY_IPC_SOCKET_H
#define SENTRY_IPC_SOCKET_H

#include "state.h"

#include <linux/netlink.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SHUT_IN 1u  /* nothing is received any more */
#define SHUT_OUT 2u /* nothing is sent any more */
#define SHUT_ALL 3u
#define SCM_FILES_MAX 253u
#define SOCKET_KEPT 16u

struct socket_name {
    uint32_t length; /* 0: none */
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_nl nl;
        uint8_t bytes[128];
    };
};

struct scm_files {          /* descriptors on their way: references; counted in ipc()->in_flight */
    struct scm_files *next; /* in sockets()->to_free */
    uint32_t n;
    struct file *files[];
};

struct message {
    TAILQ_ENTRY(message) link;
    struct socket *sender; /* reference: what it may still send depends on it; NULL: the kernel */
    uint32_t length, offset, cost;
    struct ucred cred;
    struct scm_files *files;
    struct socket_name *from; /* owned; NULL: none */
    uint8_t bytes[];
};
TAILQ_HEAD(message_list, message);

enum socket_phase { SOCKET_CLOSED, SOCKET_LISTENING, SOCKET_CONNECTED };

struct socket {
    uint32_t refs;
    int family, type, protocol;
    enum socket_phase phase;
    uint32_t shut; /* SHUT_* */
    bool dead;     /* its file is gone */
    bool pass_cred, reuse_address, reuse_port, v6_only, connecting, marked;
    bool bound_address, bound_port; /* of inet: by bind(), not by the way to a peer */
    int error, linger[2], backlog, receive_low;
    uint32_t send_size, receive_size; /* SO_SNDBUF, SO_RCVBUF */
    uint64_t send_time, receive_time; /* ns; 0: for ever */
    struct file *file;                /* borrowed; NULL: not accepted yet */
    struct socket *peer;              /* reference */
    struct message_list queue;
    uint32_t n_queue;
    uint64_t queue_cost,
        send_used; /* of what it was sent; of what it has sent and nobody has read */
    struct waitq waitq;
    struct waitq room; /* who wants to send or connect to it, and finds it full */
    TAILQ_HEAD(socket_list, socket)
    pending, callers; /* to be accepted; datagram sockets whose peer it is */
    TAILQ_ENTRY(socket) pending_link, caller_link, all_link;
    uint32_t n_pending, in_flight; /* how often its file is on its way */
    struct ucred own_cred, peer_cred;
    struct socket_name name, peer_name; /* peer_name: of inet */
    struct path path;                   /* of a name in the file system: references */
    struct inode *bound_inode;
    struct socket *bound_next; /* of its bucket */
    bool bound;
    struct {
        bool used;
        uint8_t index;
        int value;
    } kept[SOCKET_KEPT]; /* options that are only shown again: sockopt.c */
};

struct outgoing;
struct family {
    int (*bind)(struct socket *socket, const struct socket_name *name);
    int (*autobind)(struct socket *socket); /* a name when it has none */
    /* Who has this name: a reference. */
    int (*find)(struct socket *socket, const struct socket_name *name, struct socket **ret_socket);
    int (*valid)(const struct socket *socket, const struct socket_name *name); /* 0, -EINVAL, ... */
    /* Of a family that has no other end in the cell, in place of all the above but bind: */
    int (*connect)(struct socket *socket, const struct socket_name *name);
    int64_t (*send)(struct socket *socket, struct outgoing *out);
};
extern const struct family unix_family, inet_family, netlink_family;
const struct family *socket_family(const struct socket *socket);
bool socket_inet(const struct socket *socket);
bool socket_unix(const struct socket *socket);
bool socket_stream(const struct socket *socket);     /* bytes */
bool socket_connection(const struct socket *socket); /* bytes or SEQPACKET */

struct socket_state {
    struct socket *bound[512];
    TAILQ_HEAD(, socket) all;
    uint32_t next_port, next_autobind, in_flight_sockets;
    bool collecting, freeing;
    struct scm_files *to_free; /* of sockets that ended while others' descriptors were let go */
};
struct socket_state *sockets(void);

struct socket *socket_new(int family, int type, int protocol); /* one reference; NULL */
void socket_get(struct socket *socket);
void socket_put(struct socket *socket);
void socket_close(struct socket *socket); /* what its file's end means; its reference is given up */
/* A file for it; takes the reference, also when it fails. */
struct file *socket_file(struct socket *socket, uint32_t flags);
struct socket *file_socket(const struct file *file);
struct file *socket_get_fd(uint64_t fd, int *ret_error); /* a reference; -EBADF, -ENOTSOCK */
void socket_wake(struct socket *socket, uint32_t events);
int socket_take_error(struct socket *socket); /* 0 or -errno, once */
void socket_bind_hash(struct socket *socket, uint32_t hash);
void socket_unbind(struct socket *socket, uint32_t hash);
uint32_t socket_hash(const struct socket_name *name);
void socket_connect_pair(struct socket *a, struct socket *b);
void socket_set_peer(struct socket *socket, struct socket *peer); /* of datagrams; NULL: none */
bool socket_writable(const struct socket *socket);
struct ucred own_cred(void);
/* Deadline of a wait: nonblock 0 (do not). */
uint64_t socket_deadline(bool nonblock, uint64_t time);
/* What a wait that a signal ended gives: begun again only where no time is running. */
int64_t socket_interrupted(int64_t result, uint64_t time);

/* ---- messages (ipc/stream.c, ipc/dgram.c) ---- */

struct outgoing {
    struct uio uio;
    struct socket_name to; /* length 0: none */
    uint32_t flags;        /* MSG_* */
    struct scm_files *files;
    struct ucred cred;
};
struct incoming {
    struct uio uio;
    uint32_t flags, shown; /* shown: msg_flags */
    struct socket_name from;
    struct scm_files *files;
    struct ucred cred;
    bool has_cred;
};
/* Counts its cost; NULL: no memory. sender NULL: from the kernel. */
struct message *message_new(struct socket *sender, uint32_t length);
void message_free(struct message *message);
void message_queue(struct socket *to, struct message *message);
void message_unqueue(struct socket *from, struct message *message);
int64_t stream_send(struct socket *socket, struct outgoing *out);
int64_t stream_receive(struct socket *socket, struct incoming *in);
int64_t dgram_send(struct socket *socket, struct outgoing *out);
void dgram_disconnected(struct socket *socket, struct socket *old_peer);
int64_t dgram_receive(struct socket *socket, struct incoming *in);
int sockopt_value(const struct socket *socket, int level, int name); /* of those that are kept */
int wait_to_send(struct socket *socket, uint32_t flags); /* until its own share has room */
int64_t socket_send(struct socket *socket, struct outgoing *out);
int64_t socket_receive(struct socket *socket, struct incoming *in);

int inet_name_ends(struct socket *socket, const struct socket_name *name);
void inet_name_free(struct socket *socket); /* the peer is gone: what came with it goes, too */
void inet_name_accepted(struct socket *accepted, const struct socket *from);
void inet_name_sender(const struct socket *receiver, const struct socket *sender,
                      struct socket_name *name);
void inet_unspecified(const struct socket *socket, struct socket_name *name);
int netlink_group(struct socket *socket, int group, bool join);
/* What a socket of any family says of the network devices (ipc/device.c). */
int64_t device_ioctl(const struct socket *socket, uint32_t request, uint64_t argument);

/* ---- names and connections (ipc/connect.c) ---- */

int sockname_in(uint64_t guest, uint64_t length, struct socket_name *ret_name);
struct socket_name sockname_shown(const struct socket *socket, const struct socket_name *name);
int sockname_out(const struct socket_name *name, uint64_t guest, uint64_t guest_length);

/* ---- what goes beside the bytes (ipc/scm.c) ---- */

int scm_parse(uint64_t guest, uint64_t size, struct outgoing *out);
/* Into the guest's buffer; *size becomes what was used. Adds MSG_CTRUNC to in->shown. */
int scm_give(const struct socket *socket, struct incoming *in, uint64_t guest, uint64_t *size);
struct scm_files *scm_copy(const struct scm_files *files); /* for MSG_PEEK */
void scm_free(struct scm_files *files);
void scm_collect(void); /* circles of sockets that only messages hold */

#endif
