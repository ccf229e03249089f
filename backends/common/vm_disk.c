/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * disk - the writable disk of a machine: a file of exactly the limit's size with an ext4 file system that has never
 * been used. It has no name once it is open, so nothing of it can be left behind. The tool that makes the file
 * system sees no byte of a guest, ever. Threads: one.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "vm.h"

#define DISK_MIN (1ull << 20)

static int format(const char *path, uint64_t bytes, struct cella_error *err)
{
    const char *tool = host_program(mke2fs_paths);
    char *argv[] = {(char *)"mke2fs",
                    (char *)"-q",
                    (char *)"-F",
                    (char *)"-t",
                    (char *)"ext4",
                    (char *)"-m",
                    (char *)"0",
                    (char *)"-E",
                    (char *)"nodiscard,lazy_itable_init=1,root_owner=0:0",
                    (char *)"-O",
                    (char *)"^has_journal,^resize_inode,^metadata_csum_seed",
                    (char *)path,
                    NULL};

    if (!tool)
        return cella_error_set(err, -ENOENT, STEP_DISK,
                               "mke2fs is not there: install the package e2fsprogs");
    if (run_program(tool, argv, err) < 0)
        return fail_wrap(err, "the cell's disk of %llu bytes", (unsigned long long)bytes);
    return 0;
}

int disk_new(struct vm *f, struct cella_error *err)
{
    auto_free char *path = path_join(f->scratch, "rw.img");
    auto_close int fd = -1;
    int r;

    if (!path)
        return cella_error_set(err, -ENOMEM, STEP_DISK, "out of memory");
    if (f->disk_bytes < DISK_MIN)
        return cella_error_set(err, -EINVAL, STEP_DISK,
                               "disk limit of %llu bytes: a file system needs at least 1M",
                               (unsigned long long)f->disk_bytes);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)f->disk_bytes) < 0)
        return cella_error_set(err, -errno, STEP_DISK, "%s: %s", path, strerror(errno));
    r = format(path, f->disk_bytes, err);
    if (unlink(path) < 0 && r == 0)
        r = cella_error_set(err, -errno, STEP_DISK, "%s: %s", path, strerror(errno));
    if (r < 0)
        return r;
    f->layer_fds[0] = steal_fd(&fd);
    f->n_layers = 1;
    return 0;
}
