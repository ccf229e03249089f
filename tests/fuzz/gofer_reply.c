/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What a gofer may answer: byte 0 the question, byte 1 the descriptors that came along, then the datagram. */
#include <stdlib.h>
#include <string.h>

#include "fs/gofer_int.h"

_Noreturn void kpanic(const char *format, ...)
{
    (void)format;
    abort();
}

bool fs_free_descriptors(void)
{
    return false;
}

static void entry(void *ctx, const char *name, size_t length, uint64_t number, uint8_t type)
{
    (void)type;
    (void)number;
    *(size_t *)ctx += length;
    if (!length || memchr(name, '/', length) || memchr(name, 0, length))
        __builtin_trap();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gofer_reply reply;
    size_t sum = 0;

    if (size < 2 || size - 2 > sizeof(reply))
        return 0;
    memset(&reply, 0, sizeof(reply));
    memcpy(&reply, data + 2, size - 2);
    if (gofer_reply_judge(data[0], &reply, size - 2, data[1] & 1) == 0)
        gofer_entries(reply.data, reply.length, entry, &sum);
    if (sum > GOFER_DATA_MAX)
        __builtin_trap();
    return 0;
}
