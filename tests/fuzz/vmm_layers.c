/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The header and bitmap of a layer that a VMM in its guest's hands may have written. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../backends/microvm/vmm/layers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd[2] = {-1, -1};
    uint64_t bytes = 1 << 20, pos, end;
    struct layers l;
    uint32_t who;

    if (fd[0] < 0) {
        fd[0] = memfd_create("lowest", MFD_CLOEXEC);
        fd[1] = memfd_create("layer", MFD_CLOEXEC);
    }
    if (ftruncate(fd[0], (off_t)bytes) < 0 || ftruncate(fd[1], 0) < 0)
        abort();
    if (size > 0 && (data[0] & 1) && layer_create(fd[1], bytes) < 0) /* else as long as the input */
        abort();
    while (size > 3 && (data[0] & 2)) { /* bytes here and there */
        if (pwrite(fd[1], data + 3, 1, data[1] | (data[2] & 0x1f) << 8) != 1)
            abort();
        data += 3;
        size -= 3;
    }
    if (size > 1 && pwrite(fd[1], data + 1, size - 1, 0) < 0)
        abort();
    if (layers_open(&l, fd, 2, bytes) < 0)
        return 0;
    for (pos = 0; pos < bytes; pos = end) {
        end = layers_run(&l, pos, bytes, &who);
        if (end <= pos || end > bytes || who > 1)
            abort();
    }
    layers_own(&l, 0, l.clusters);
    layers_close(&l);
    return 0;
}
