/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* util - the few helpers every part of the agent needs. No printf: it would double the program.
 * Threads: no state. */
#include <fcntl.h>
#include <time.h>

#include "agent.h"

uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

int set_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int64_t parse_num(const char *s)
{
    int64_t v = 0;

    if (!*s)
        return -1;
    for (; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        v = v * 10 + (*s - '0');
        if (v >= UINT32_MAX) /* (uid_t)-1 means "leave as it is" to the kernel */
            return -1;
    }
    return v;
}

void text_add(char *buf, size_t cap, const char *s)
{
    size_t n = strlen(buf);

    while (*s && n + 1 < cap)
        buf[n++] = *s++;
    buf[n] = 0;
}
