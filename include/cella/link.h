/* SPDX-License-Identifier: MIT */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cella/link.h - the protocol between the host and the agent inside a cell, over one byte stream.
 *
 * The same framing carries a client's requests to a warden (core/cell/README.md); only the frame types
 * CALL and REPLY are added there.
 *
 * Frame: a 16-byte little-endian header, then `length` bytes of payload (0 … CELLA_FRAME_MAX).
 *
 * Streams: the opener (host) picks a number, never 0, never reused on a connection, and sends OPEN. Every
 * OPEN is answered, after optional OPENED, DATA, CREDIT and EOF frames, by exactly one terminal frame from the
 * agent: EXIT (exec), RESULT (other operations) or ERROR. Nothing follows a terminal frame on a stream.
 *
 * Flow control: per stream and channel. A sender of DATA starts with CELLA_WINDOW bytes of credit per
 * channel and never exceeds what it has; the receiver returns credit with CREDIT as it consumes. A peer
 * that exceeds its credit, sends an unknown type, a wrong length, a frame on an unknown stream (frames that cross
 * a terminal frame excepted, host to agent only) or any non-zero reserved bit breaks the protocol: the host
 * closes the link and the cell is stopped. The host treats every byte of the agent as hostile.
 *
 * Payloads are sequences of fields {u16 tag, u16 reserved = 0, u32 length, bytes}, little-endian, no padding;
 * DATA carries raw bytes, never none. Strings have no NUL inside and are not terminated. A field that may repeat
 * says so. EOF of an exec's channels may be missing before EXIT only after CLOSE, and before any ERROR.
 *
 * Start: a backend executes the agent with argv {"cella-agent"}, an empty environment and the stream as descriptor 3;
 * nothing else needs to be open. It must be uid 0 of the cell's user namespace, and /proc of the cell must be mounted
 * without hidepid. It uses at most the capabilities CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID and SETPCAP, drops
 * everything else itself, and moves to CELLA_AGENT_UID where that id is mapped, so that a workload which is
 * root of the cell can neither signal nor trace it. HELLO comes at once. It exits when the stream closes.
 *
 * In a guest machine descriptor 3 is a character device, the port: it outlives its host's end, so the agent waits while
 * nobody is there. Descriptor 4 is then a SOCK_SEQPACKET socket of the guest's init (<cella/guest.h>): 16 bytes on it are the
 * nonce of a new link, which the agent sends before a new HELLO; what it ran goes on without a reader.
 */
#ifndef CELLA_LINK_H
#define CELLA_LINK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLA_LINK_VERSION 1u
#define CELLA_FRAME_HEADER 16u
#define CELLA_FRAME_MAX 65536u
#define CELLA_WINDOW 262144u /* initial credit of each channel, bytes */
#define CELLA_STREAMS_MAX 256u
/* the agent's own uid and gid in the cell; no command may run under it */
#define CELLA_AGENT_UID 65533u

struct cella_frame {
    uint32_t length;
    uint16_t type;    /* enum cella_frame_type */
    uint16_t channel; /* enum cella_channel for DATA, CREDIT, EOF; else 0 */
    uint32_t stream;  /* 0 for HELLO, SHUTDOWN, CALL, REPLY */
    uint32_t id;      /* CALL and its REPLY; else 0 */
};

enum cella_frame_type {
    CELLA_FRAME_HELLO = 1,  /* agent, first: fields VERSION, PID */
    CELLA_FRAME_OPEN = 2,   /* host: field OP, then the operation's fields */
    CELLA_FRAME_OPENED = 3, /* agent: exec started; field PID */
    CELLA_FRAME_DATA = 4,   /* both */
    CELLA_FRAME_CREDIT = 5, /* both: field COUNT (bytes, u32) */
    CELLA_FRAME_EOF = 6,    /* both: no more DATA on this channel */
    CELLA_FRAME_SIGNAL = 7, /* host, exec only: SIGNAL, SCOPE */
    CELLA_FRAME_RESIZE = 8, /* host, exec with TTY: ROWS, COLS */
    /* host: abandon the stream; an exec's whole tree is killed. Still answered */
    CELLA_FRAME_CLOSE = 9,
    CELLA_FRAME_EXIT = 10,   /* agent, terminal: STATUS or TERM_SIGNAL, and resource use */
    CELLA_FRAME_RESULT = 11, /* agent, terminal: operation's result fields */
    CELLA_FRAME_ERROR = 12,  /* agent, terminal: ERRNO, MESSAGE */
    /* host: TIMEOUT_MS; the agent sends TERM to everything, KILL after it, then exits */
    CELLA_FRAME_SHUTDOWN = 13,
    CELLA_FRAME_CALL = 32, /* client to warden: JSON text */
    CELLA_FRAME_REPLY = 33 /* warden to client: JSON text */
};

enum cella_channel {
    CELLA_CHANNEL_IN = 0, /* to the agent: stdin, file content of PUT */
    /* from the agent: stdout (or the terminal), content of GET, entries of LIST */
    CELLA_CHANNEL_OUT = 1,
    CELLA_CHANNEL_ERR = 2 /* from the agent: stderr */
};

enum cella_op {
    CELLA_OP_EXEC = 1, /* ARG+ ENV* CWD? USER? TTY? ROWS? COLS? RLIMIT* TIMEOUT_MS? STDIN? */
    /* PATH MODE? ; content on channel IN until EOF; written beside the target and renamed over
       it at EOF; RESULT: SIZE */
    CELLA_OP_PUT = 2,
    CELLA_OP_GET = 3, /* PATH ; content on OUT then EOF; regular files only; RESULT: SIZE MODE */
    /* PATH ; on OUT: one entry after another, each {u32 length, fields NAME TYPE MODE SIZE
       MTIME_NS UID GID}, then EOF; RESULT: COUNT */
    CELLA_OP_LIST = 4,
    /* PATH ; not following a final link; RESULT: TYPE MODE SIZE MTIME_NS UID GID LINK? */
    CELLA_OP_STAT = 5,
    CELLA_OP_REMOVE = 6, /* PATH RECURSIVE? */
    CELLA_OP_RENAME = 7, /* PATH PATH2 */
    CELLA_OP_MKDIR = 8   /* PATH MODE? PARENTS? */
};

enum cella_tag {
    CELLA_TAG_VERSION = 1, /* u32 */
    CELLA_TAG_OP = 2,      /* u32 enum cella_op */
    CELLA_TAG_PID = 3,     /* u32, as the cell sees it */
    CELLA_TAG_COUNT = 4,   /* u32 */
    /* str, repeats; the first is looked up in PATH of ENV unless it has a '/' */
    CELLA_TAG_ARG = 10,
    CELLA_TAG_ENV = 11,  /* str "NAME=value", repeats; the whole environment */
    CELLA_TAG_CWD = 12,  /* str, absolute; default "/" */
    CELLA_TAG_USER = 13, /* str "uid", "uid:gid", "name", "name:group"; default "0:0" */
    CELLA_TAG_TTY = 14,  /* u32 1: allocate a terminal; stderr joins OUT */
    CELLA_TAG_ROWS = 15, /* u32 */
    CELLA_TAG_COLS = 16, /* u32 */
    /* {u32 resource, u32 0, u64 soft, u64 hard}, repeats; all ones = infinity */
    CELLA_TAG_RLIMIT = 17,
    /* u64; the whole tree is killed when it passes; EXIT carries TIMED_OUT */
    CELLA_TAG_TIMEOUT_MS = 18,
    CELLA_TAG_STDIN = 19, /* u32 1: channel IN is connected; default /dev/null */
    CELLA_TAG_PATH = 30,  /* str, absolute, at most 4095 bytes */
    CELLA_TAG_PATH2 = 31,
    CELLA_TAG_MODE = 32,        /* u32, 07777 */
    CELLA_TAG_SIZE = 33,        /* u64 */
    CELLA_TAG_TYPE = 34,        /* u32: S_IFMT bits */
    CELLA_TAG_MTIME_NS = 35,    /* i64 */
    CELLA_TAG_UID = 36,         /* u32 */
    CELLA_TAG_GID = 37,         /* u32 */
    CELLA_TAG_NAME = 38,        /* str */
    CELLA_TAG_LINK = 39,        /* str */
    CELLA_TAG_RECURSIVE = 40,   /* u32 1 */
    CELLA_TAG_PARENTS = 41,     /* u32 1 */
    CELLA_TAG_SIGNAL = 50,      /* u32 */
    CELLA_TAG_SCOPE = 51,       /* u32 enum cella_scope */
    CELLA_TAG_STATUS = 60,      /* u32 exit status 0…255 */
    CELLA_TAG_TERM_SIGNAL = 61, /* u32 */
    CELLA_TAG_TIMED_OUT = 62,   /* u32 1 */
    CELLA_TAG_UTIME_NS = 63,    /* u64, whole tree as waited for */
    CELLA_TAG_STIME_NS = 64,    /* u64 */
    CELLA_TAG_MAXRSS = 65,      /* u64 bytes */
    CELLA_TAG_ERRNO = 70,       /* u32, positive Linux number */
    CELLA_TAG_MESSAGE = 71      /* str, at most 512 bytes */
};

enum cella_scope { CELLA_SCOPE_TREE = 0, CELLA_SCOPE_PROCESS = 1 };

#ifdef __cplusplus
}
#endif
#endif
