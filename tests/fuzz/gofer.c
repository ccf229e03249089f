/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a sentry that the guest has taken over may ask of the gofer: requests one after the other, on an empty directory. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "gofer.h"

#define SLOTS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gofer_reply reply;
    static int self = -1;
    struct gofer g;
    int fd, r;

    if (self < 0) {
        self = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (self < 0 || fchdir(self) < 0)
            return 0;
    }
    if (gofer_init(&g, SLOTS, open("/proc/self/attr", O_PATH | O_DIRECTORY | O_CLOEXEC), self) < 0)
        return 0;
    while (size) {
        size_t n = size < sizeof(struct gofer_request) ? size : sizeof(struct gofer_request);
        r = gofer_handle(&g, data, n, &reply, &fd);
        if (fd >= 0)
            close(fd);
        if (r == 1 && (reply.length > GOFER_DATA_MAX || reply.result > 0))
            __builtin_trap();
        if (n != sizeof(struct gofer_request) && r != -EPROTO)
            __builtin_trap();
        data += n;
        size -= n;
    }
    gofer_fini(&g);
    return 0;
}
