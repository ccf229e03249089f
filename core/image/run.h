/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* run - programs of the host that make images: mkfs.erofs, tar, dpkg-deb, mmdebstrap, apt-get. */
#ifndef CELLA_IMAGE_RUN_H
#define CELLA_IMAGE_RUN_H

#include "util.h"

enum run_mode {
    RUN_PLAIN, /* as this process; for what manages this host, such as apt-get */
    /* Sees /usr, read-only, and the work directory at /work: no network, no other file, and of
       capabilities only that to read what it may see. */
    RUN_BOX,
    /* Root of borrow_userns_fd only, the work directory at /tmp, everything else read-only and as
       any user sees it; has the host's network. */
    RUN_GUEST_ROOT
};

/* One line of the program's standard error, without control characters. */
typedef void run_line(void *ctx, const char *line);

struct run {
    enum run_mode mode;
    const char *const *argv;  /* argv[0] is looked for in /usr/sbin:/usr/bin:/sbin:/bin */
    const char *const *extra; /* more NAME=VALUE; may be NULL */
    int borrow_work_fd;       /* directory; RUN_PLAIN: the working directory, or -1 */
    int work_writable;        /* RUN_BOX */
    int borrow_in_fd;         /* standard input, or -1 */
    int borrow_out_fd;        /* standard output, or -1: told to `line` like standard error */
    int borrow_userns_fd;     /* RUN_GUEST_ROOT */
    char *ret_output;         /* may be NULL: start of the standard output, if out_fd is -1 */
    size_t output_cap;
    run_line *line; /* may be NULL */
    void *ctx;
};

/* Runs it to its end; it does not outlive this process. -ENOENT names the Debian package to
   install (`package`); a failure ends with the last words of the program. */
int run_program(const struct run *run, const char *package, struct cella_error *err);

#endif
