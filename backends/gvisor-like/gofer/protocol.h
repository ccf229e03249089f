/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * protocol - between the sentry and cella-gofer, which reads the image for it. One SOCK_SEQPACKET pair; a request
 * is one datagram of exactly sizeof(struct gofer_request), answered by one datagram: a struct gofer_reply, cut after
 * `length` bytes of its data. CLOSE alone has no answer. A request that breaks a rule of this file ends the gofer,
 * and with it the cell: only a sentry that is no longer ours sends one.
 *
 * A handle names an O_PATH descriptor of the gofer's: its slot in the low GOFER_SLOT_BITS, above them a generation,
 * which changes when the slot is given to another file. Nobody sends a path: WALK takes one name, without "/", and
 * never "." or "..", and follows no link.
 */
#ifndef CELLA_GOFER_PROTOCOL_H
#define CELLA_GOFER_PROTOCOL_H

#include <stdint.h>

#define GOFER_SLOT_BITS 20u
#define GOFER_SLOTS_MAX (1u << GOFER_SLOT_BITS)
#define GOFER_NAME_MAX 255u
#define GOFER_DATA_MAX 8192u
#define GOFER_ROOT_HANDLE (1u << GOFER_SLOT_BITS) /* slot 0 in generation 1; never closed */

enum gofer_op {
    GOFER_WALK = 1, /* handle: directory; name -> handle, attr. -EMFILE: close some, and again */
    GOFER_ATTR,     /* handle -> attr */
    GOFER_OPEN,     /* handle: regular file -> a descriptor for reading (SCM_RIGHTS) */
    GOFER_READLINK, /* handle: link -> data */
    GOFER_READDIR, /* handle: directory; cookie: 0 or of an answer -> cookie, entries. No data: the end */
    GOFER_GETXATTR,  /* handle; name -> data */
    GOFER_LISTXATTR, /* handle -> data: names, each with its NUL */
    GOFER_CLOSE,     /* handle; no answer */
};

struct gofer_request {
    uint32_t op; /* enum gofer_op */
    uint32_t handle;
    uint64_t cookie;   /* READDIR, else 0 */
    uint32_t length;   /* of name, without NUL; 0 where there is none */
    char name[256];    /* zeros from length on */
    uint32_t reserved; /* 0 */
};

struct gofer_time {
    int64_t seconds;
    uint32_t nanoseconds, reserved;
};

struct gofer_file { /* owner ids as the image has them */
    uint32_t mode, uid, gid, links;
    uint64_t number, device, size, rdev;
    struct gofer_time accessed, modified, changed;
};

struct gofer_reply {
    int32_t result; /* 0, or negative errno; then the rest is zero */
    uint32_t handle;
    uint64_t cookie;
    struct gofer_file attr;
    uint32_t length, reserved; /* of data */
    char data[GOFER_DATA_MAX];
};
#define GOFER_REPLY_HEAD ((uint32_t) __builtin_offsetof(struct gofer_reply, data))

/* One of READDIR's data, packed: its name follows, without NUL. */
struct gofer_entry {
    uint64_t number;
    uint8_t type; /* DT_* */
    uint8_t length;
} __attribute__((packed));

#endif
