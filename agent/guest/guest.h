/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * What the files of the guest's init share. The frames and fields are the agent's (proto.c); the
 * host is trusted, the image is not.
 *
 * main.c      start, the requests of port 1, the loop
 * request.c   fields of BOOT and SETTLE, checked into structs
 * disks.c     modules, devices by their serial numbers and names, the file systems
 * cell.c      the child that becomes the agent: its namespaces and the look of its root
 * confine.c   what the agent and all below it may not do
 * group.c     the control group: freeze, limits, figures
 * identity.c  clock, entropy, names, files of /run/cella
 * vsock.c     the two ports where the machine has a socket device
 * net.c       the one interface, and the end of connections of a former address
 */
#ifndef CELLA_GUEST_INIT_H
#define CELLA_GUEST_INIT_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cella/backend.h>
#include <cella/guest.h>

#include "../agent.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MOUNTS_MAX 64u
#define COVERS_MAX 16u
#define TARGET_MAX 4096u
#define PIDS_HEADROOM 4u /* the agent and its helpers do not count, as in a container */

struct identity {
    uint64_t epoch_ns, heard_ns, generation; /* heard: monotonic, when the request came */
    const uint8_t *entropy;
    uint32_t entropy_len;
    char hostname[65];
    uint8_t machine_id[16], boot_id[16], nonce[CELLA_GUEST_NONCE];
    int has_nonce;
    int has_net;
    uint8_t mac[6];
    uint32_t address, gateway; /* network byte order */
    uint8_t prefix;
};

struct boot {
    struct identity id;
    uint64_t pids, memory; /* 0 = no limit of our own */
    int readonly;
    struct guest_mount {
        uint32_t number, flags;
        char target[TARGET_MAX];
    } mounts[MOUNTS_MAX];
    size_t n_mounts;
    struct guest_cover {
        char name[64], path[256];
    } covers[COVERS_MAX];
    size_t n_covers;
};

/* ---- main.c ---- */
/* Keeps the words for the answer of the request under way; returns -err. */
int blame(int err, const char *what, const char *detail);
const char *blamed(void);
/* One line on the console. */
void say(const char *what, const char *detail);
_Noreturn void power_off(void);
/* It has been done, now: the host may want to know where the time went. */
void step(enum cella_guest_step s);

/* ---- request.c ---- */
int identity_parse(uint8_t *payload, size_t len, struct identity *ret);
int clock_parse(uint8_t *payload, size_t len, struct identity *ret);
int boot_parse(uint8_t *payload, size_t len, struct boot *ret);
/* "192.0.2.1" to network order; the rest of the text behind it. */
int parse_ipv4(const char *s, uint32_t *ret, const char **ret_rest);
/* A file name of /run/cella: [a-z0-9][a-z0-9.-]{0,62} */
int name_ok(const char *s, size_t len);

/* ---- util, in disks.c ---- */
int write_text(const char *path, const char *text);
/* At most cap - 1 bytes, NUL-terminated; length or -errno. */
long read_text(const char *path, char *buf, size_t cap);
char *num_text(uint64_t v, char buf[24]);

/* ---- disks.c ---- */
void system_mounts(void);
/* Each group once, in the order of the list. */
enum modules {
    MODULES_START,
    MODULES_PORTS, /* serial ports, or */
    MODULES_VSOCK, /* sockets: what the machine has of the two */
    MODULES_SHARES,
    MODULES_COPY,
    MODULES_IDLE
};
void modules_load(enum modules when);
int port_open(const char *name);
/* Waits for the machine's devices. 1 = there is one of this number of the virtio specification. */
int virtio_has(unsigned number);
int root_mount(void);

/* ---- vsock.c ---- */
int vsock_socket(void); /* connected to nobody; stands for a link until there is one */
int vsock_listen(uint32_t port);
int vsock_accept(int listener); /* -1: nobody, or not the host */
/* Gives the agent its link. */
int vsock_pass(int control, int fd);

/* ---- cell.c ---- */
/* Starts the agent; *ret_control: the socket on which it gets the nonce of a new link. pid or -errno. */
int cell_start(const struct boot *b, int agent_fd, int port_fd, int *ret_control);

/* ---- confine.c ---- */
int confine(void);

/* ---- group.c ---- */
int group_make(const struct boot *b);
int group_enter(pid_t pid);
int group_freeze(int on);
int group_pids(uint64_t pids);
int group_memory(uint64_t bytes);
void group_usage(struct fields *f);
int cpus_online(uint32_t n);

/* ---- identity.c ---- */
#define STATE "/state"
int state_make(void);
int identity_apply(const struct identity *id);
int clock_apply(const struct identity *id); /* clock and entropy alone */
int shown_write(const char *name, uint64_t offset, uint64_t size, const uint8_t *p, size_t n);

/* ---- net.c ---- */
int net_apply(const struct identity *id);
/* Between FREEZE and THAW. */
int net_silence(int on);

#endif
