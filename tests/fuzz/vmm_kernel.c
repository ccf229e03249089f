/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vmm_kernel - any bytes as a kernel of cella-vmm, ELF or bzImage. What is taken must start inside of memory, and
 * nothing is written outside of it (ASan watches the guard that the mapping's end is).
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "boot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ram ram;
static int kernel_fd = -1, initrd_fd = -1;

static void start(void)
{
    int fd = memfd_create("ram", MFD_CLOEXEC);

    kernel_fd = memfd_create("kernel", MFD_CLOEXEC);
    initrd_fd = memfd_create("initrd", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 32 << 20) < 0 || ram_map(&ram, fd, 32 << 20, 0) < 0)
        abort();
    if (kernel_fd < 0 || initrd_fd < 0 || write(initrd_fd, "initrd", 6) != 6)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct boot_entry e;
    struct why w = {.text = ""};
    int r;

    if (kernel_fd < 0)
        start();
    if (ftruncate(kernel_fd, (off_t)size) < 0 || pwrite(kernel_fd, data, size, 0) != (ssize_t)size)
        abort();
    r = boot_load(&ram, kernel_fd, initrd_fd, "quiet", &e, &w);
    if (r < 0 && !w.text[0])
        abort(); /* refused without a word */
    if (r == 0 && !ram_at(&ram, e.rip, 1))
        abort();
    return 0;
}
