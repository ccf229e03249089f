/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * What the files of the agent share. One process, one poll loop, no threads; each exec has a
 * supervisor (exec.c) and each file operation a worker (file.c), both forked, never executed.
 */
#ifndef CELLA_AGENT_H
#define CELLA_AGENT_H

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cella/link.h>

#define LINK_FD 3
#define AGENT_UID CELLA_AGENT_UID
#define NSEC 1000000000ull
#define MSG_MAX 6144u /* of a report of a supervisor or worker */

/* The kernel's, of getdents64. */
struct dir_entry {
    uint64_t ino;
    int64_t off;
    unsigned short reclen;
    unsigned char type;
    char name[];
};

/* ---- util.c ---- */
uint64_t now_ns(void);
int set_nonblock(int fd);
void close_fd(int *fd);
/* Unsigned decimal below UINT32_MAX; -1 when s is not exactly that. */
int64_t parse_num(const char *s);
/* Appends s to a bounded NUL-terminated text. */
void text_add(char *buf, size_t cap, const char *s);

/* ---- proto.c: fields, frames ---- */
struct fields { /* a payload under construction; overflow sticks */
    size_t len;
    int overflow;
    uint8_t b[MSG_MAX];
};
void put_bytes(struct fields *f, uint16_t tag, const void *p, size_t n);
void put_u32(struct fields *f, uint16_t tag, uint32_t v);
void put_u64(struct fields *f, uint16_t tag, uint64_t v);

struct field {
    uint16_t tag;
    uint32_t len;
    uint8_t *p;
};
/* 1 = field, 0 = end, -EBADMSG. */
int field_next(uint8_t *payload, size_t len, size_t *pos, struct field *ret);
/* 0, -ENOENT, -EBADMSG. */
int get_u32(uint8_t *payload, size_t len, uint16_t tag, uint32_t *ret);
int get_u64(uint8_t *payload, size_t len, uint16_t tag, uint64_t *ret);
/* The field's bytes as a C string: writes a NUL behind it, so only for a process that forked to do
   so, after every other field was read. Fields with a NUL inside are -EBADMSG. */
int get_str(uint8_t *payload, size_t len, uint16_t tag, char **ret);

void out_frame(uint16_t type, uint16_t channel, uint32_t stream, const void *payload, size_t n);
/* Room for a DATA frame of n bytes at the end of the queue; NULL = no memory. Then out_data(). */
uint8_t *out_reserve(size_t n);
void out_data(uint32_t stream, uint16_t channel, size_t n);
size_t out_pending(void);
void out_flush(void);  /* ends the process when the host is gone */
void in_read(void);    /* reads and hands every whole frame to on_frame() */
void proto_trim(void); /* gives buffers back; nothing is open */
/* A port of a machine outlives its host's end. A serial one (a character device) is looked at every
   LINK_AWAY_MS while nobody is there; of a socket one the next connection is handed to link_take().
   Anything else ends with its peer. */
#define LINK_AWAY_MS 20
void link_init(void);
int link_fd(void); /* to poll for; -1 = nobody is there */
void link_look(void);
int link_is_port(void);
int link_is_looked_at(void);
void link_take(int own_fd); /* this connection is the link now */
/* What waits for the host is dropped; the next bytes are the nonce. */
void out_anew(const uint8_t nonce[16]);
/* And what came of a request that is not whole, or was not read yet. */
void in_anew(void);
_Noreturn void leave(int code);

/* ---- stream.c ---- */
struct stream {
    uint32_t number, op;
    uint8_t used, tty, opened, timed_out, killed, discard;
    uint8_t in_eof;     /* the host sent EOF */
    uint8_t final_set;  /* the terminal frame is in final/final_type */
    uint8_t lost;       /* its supervisor died: strays are being killed */
    uint8_t orphan;     /* of a link that is no more: its command runs on, nobody hears of it */
    pid_t child;        /* supervisor or worker; 0 = reaped */
    int ctrl;           /* SOCK_SEQPACKET to it */
    int in, out[3];     /* our ends; out[CELLA_CHANNEL_OUT], out[CELLA_CHANNEL_ERR] */
    uint32_t credit[3]; /* what we may send, by channel */
    uint8_t *buf;       /* DATA for `in`, at most CELLA_WINDOW */
    size_t buf_off, buf_len;
    uint32_t consumed;          /* to be returned as CREDIT */
    uint64_t deadline, give_up; /* ns; 0 = none */
    uint16_t final_type;
    struct fields *final;
    short poll_ctrl, poll_in, poll_out[3]; /* index in the poll set, -1 = none */
};
extern struct stream streams[CELLA_STREAMS_MAX];
extern unsigned n_streams;
/* Children the agent knows: 0-terminated when cap allows. */
size_t stream_children(pid_t *ret, size_t cap);
void stream_fail(uint32_t number, int err, const char *msg);
void stream_command(struct stream *s, uint32_t cmd, uint32_t arg);
void stream_kill(struct stream *s);
void stream_reaped(pid_t pid);
/* One turn: fill the poll set, then act on it. Returns the number of entries added. */
size_t streams_poll(struct pollfd *set, size_t at);
void streams_act(const struct pollfd *set);
/* The host behind the link is another one: commands run on unheard, file operations are given up. */
void streams_orphan(void);
/* Earliest deadline, UINT64_MAX = none; and what is due is done. */
uint64_t streams_deadline(void);
void on_frame(const struct cella_frame *f, uint8_t *payload);

/* ---- pump.c ---- */
#define OUT_HIGH (128u * 1024u) /* no pipe is read while this much waits for the host */
int may_send(const struct stream *s);
int pump_out(struct stream *s,
             uint16_t ch); /* one read; 1 = there may be more; closed = EOF was sent */
void pump_rest(struct stream *s, uint16_t ch);
void pump_in(struct stream *s);
void return_credit(struct stream *s);

/* ---- commands to supervisors and workers, reports from them ---- */
enum { CMD_SIGNAL_PROCESS = 1, CMD_SIGNAL_TREE, CMD_KILL, CMD_COMMIT };
struct command {
    uint32_t cmd, arg;
};
struct report {
    uint32_t type; /* enum cella_frame_type: OPENED or a terminal one */
    uint8_t payload[MSG_MAX];
};
void report_send(int ctrl, uint32_t type, const struct fields *f);
void report_error(int ctrl, int err, const char *msg);

/* ---- exec.c, command.c ---- */
int exec_open(struct stream *s, uint8_t *payload, size_t len, const char **ret_why);

/* ---- file.c, file_change.c ---- */
int file_open(struct stream *s, uint8_t *payload, size_t len, const char **ret_why);

/* ---- tree.c ---- */
/* One pass: sends sig to every descendant of root, those below a pid of `skip` excepted. Returns
   how many were found that were not zombies or (for SIGSTOP) already stopped; -errno when /proc
   cannot be read. */
int tree_signal(pid_t root, const pid_t *skip, size_t n_skip, int sig);
/* For a signal that must be delivered once and missed by nobody: the leader's process group first, in one
   call that no fork slips through, then whoever has left that group. leader 0: it is gone. */
int tree_signal_once(pid_t root, pid_t leader, int sig);

/* ---- tty.c ---- */
int tty_open(int *ret_master, int *ret_slave);
void tty_resize(int master, uint32_t rows, uint32_t cols);
void tty_eof(int master);

/* ---- user.c ---- */
struct user {
    uint32_t uid, gid;
    size_t n_groups;
    uint32_t groups[64];
};
int user_resolve(const char *spec, struct user *ret, const char **ret_why);

/* ---- main.c ---- */
extern int dedicated_uid; /* the agent runs as AGENT_UID */
extern int shutting_down;
void shutdown_begin(uint64_t timeout_ms);

#endif
