/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * util - leaf helpers. Includes nothing of the core and may be linked into plugins.
 * Errors travel as `struct cella_error *err` (include/cella/abi.h), filled by fail().
 */
#ifndef CELLA_UTIL_H
#define CELLA_UTIL_H

#include <errno.h>
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cella/plugin.h>

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CELLA_ID_LEN 12

/* ---- errors: an error object with its own buffer, for the stack ---- */
struct errbuf {
    struct cella_error err;
    char text[1024];
};
/* Use as: struct errbuf eb; struct cella_error *err = errbuf_init(&eb); */
struct cella_error *errbuf_init(struct errbuf *eb);
/* cella_error_set without a step; returns code. */
#define fail(err, code, ...) cella_error_set((err), (code), 0, __VA_ARGS__)
/* Puts "prefix: " before the message; returns code of err. Never allocates. */
int fail_wrap(struct cella_error *err, const char *fmt, ...) CELLA_PRINTF(2, 3);

/* ---- cleanup attributes; each preserves errno ---- */
void auto_free_(void *pp);
void auto_close_(int *fd);
void auto_fclose_(FILE **f);
#define auto_free __attribute__((cleanup(auto_free_)))
#define auto_close __attribute__((cleanup(auto_close_)))
#define auto_fclose __attribute__((cleanup(auto_fclose_)))
static inline int steal_fd(int *fd)
{
    int r = *fd;
    *fd = -1;
    return r;
}
#define steal_ptr(pp)                                                                              \
    __extension__({                                                                                \
        __typeof__(*(pp)) steal_ = *(pp);                                                          \
        *(pp) = NULL;                                                                              \
        steal_;                                                                                    \
    })

/* ---- files ---- */
/* Whole file, at most `max` bytes (-EFBIG above), NUL-terminated; *ret_len may be NULL. */
int read_file_at(int dirfd, const char *path, size_t max, char **ret_text, size_t *ret_len);
/* Before anything else looks at argv's memory; then what ps shows can be changed. */
void proc_title_init(int argc, char **argv);
void proc_title(const char *name);
/* A program of ours: beside this one (a checkout), else in libexec. NULL = neither. Valid until the next call. */
const char *helper_path(const char *name);

/* Writes a short control file (cgroup, proc) in one write(). */
int write_file_at(int dirfd, const char *path, const char *text);
/* Atomic for readers: temporary file in the same directory, then put in place. Not durable before
 * fsync. */
int replace_file_at(int dirfd, const char *path, const char *text, size_t len, unsigned mode);
/* A new file; what a failure leaves is the caller's to remove. -EEXIST. */
int create_file_at(int dirfd, const char *path, const char *text, size_t len, unsigned mode);
int mkdir_p(const char *path, unsigned mode);
/* Removes a tree without following links or crossing mounts. -ENOENT is success. */
int remove_tree_at(int dirfd, const char *path);
int write_all(int fd, const void *buf, size_t len);
/* Of a directory that is no link; NULL with errno. Closes with closedir(). */
DIR *dir_open_at(int dirfd, const char *path);
/* Those that are not negative. */
void close_fds(const int *own_fds, size_t n);
char *path_join(const char *a, const char *b); /* malloc; NULL on OOM */

/* ---- text ---- */
/* "64M", "1G", "512" (bytes; powers of 1024: K M G T). -EINVAL, -ERANGE. */
int parse_size(const char *s, uint64_t *ret);
/* "250ms" "10s" "10m" "2h" "1d", plain number = seconds. Nanoseconds. */
int parse_duration(const char *s, uint64_t *ret_ns);
int parse_i64(const char *s, int64_t *ret);
/* [a-zA-Z0-9][a-zA-Z0-9_.-]{0,62} */
int name_valid(const char *s);
/* Appends s[0..len) as a JSON string with quotes: control, DEL, invalid UTF-8 and bidi control
   characters become \uXXXX, so a hostile string cannot forge a field or a terminal sequence. */
struct buf;
int buf_json_string(struct buf *b, const char *s, size_t len);
/* Hex, lower case; out holds 2*len+1. */
void hex_encode(const void *in, size_t len, char *out);
int hex_decode(const char *s, void *out, size_t len);

/* ---- growing buffer; `oom` sticks ---- */
struct buf {
    char *ptr;
    size_t len, cap;
    int oom;
};
#define BUF_INIT                                                                                   \
    {                                                                                              \
        NULL, 0, 0, 0                                                                              \
    }
void buf_fini(struct buf *b);
int buf_add(struct buf *b, const void *p, size_t n);
int buf_addf(struct buf *b, const char *fmt, ...) CELLA_PRINTF(2, 3);
/* Into the room that a typed method was given; the number of bytes, -ENOMEM, -ENOBUFS. */
int64_t buf_out(const struct buf *b, char *out, uint64_t cap, struct cella_error *err);
#define auto_buf __attribute__((cleanup(buf_fini)))

/* ---- time, random ---- */
uint64_t now_ns(void);  /* CLOCK_MONOTONIC */
uint64_t wall_ns(void); /* CLOCK_REALTIME */
int random_bytes(void *p, size_t n);
int random_id(char out[CELLA_ID_LEN + 1]); /* [a-z0-9]{12} */

/* ---- processes ---- */
int pidfd_open_(int pid);
int pidfd_signal(int pidfd, int sig);
/* Until it has ended (1) or the time is over (0); looks once when the time is 0. */
int pidfd_wait(int pidfd, uint64_t timeout_ns);
/* Until there is something to be read (1) or now_ns() is `end` (0); signals take nothing from the time. */
int fd_readable(int fd, uint64_t end);
int send_fds(int sock, const void *data, size_t len, const int *fds, int nfds);
/* Returns data bytes; received descriptors are close-on-exec; nfds in: room, out: got. */
long recv_fds(int sock, void *data, size_t len, int *fds, int *nfds);

#endif
