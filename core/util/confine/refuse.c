/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * refuse - the handler of SIGSYS in the programs whose filters seccomp_annotations makes. It runs in a thread that may be in
 * any state, behind a filter: nothing but write and exit, which all those filters have. The programs include nothing else of
 * core/util. Threads: set once, before there are any.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "refuse.h"

static struct {
    const char *text;
    int fd, status;
} words;

static void refused(int signal, siginfo_t *info, void *context)
{
    char line[REFUSE_TEXT_MAX + 8];
    unsigned nr = (unsigned)info->si_syscall, div = 1000;
    size_t n = strnlen(words.text, REFUSE_TEXT_MAX);

    (void)signal;
    (void)context;
    memcpy(line, words.text, n);
    for (; div; div /= 10)
        line[n++] = (char)('0' + nr / div % 10);
    line[n++] = '\n';
    (void)!write(words.fd, line, n);
    _exit(words.status);
}

int refuse_by(const char *text, int fd, int status)
{
    struct sigaction a;

    words.text = text;
    words.fd = fd;
    words.status = status;
    memset(&a, 0, sizeof(a));
    a.sa_sigaction = refused;
    a.sa_flags = SA_SIGINFO;
    return sigaction(SIGSYS, &a, NULL) < 0 ? -errno : 0;
}
