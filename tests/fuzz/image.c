/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * image - any bytes as an archive. Whatever they say, nothing appears beside the root: a canary
 * lies there and is looked at after each run.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "image_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char top[] = "/tmp/cella-fuzz-image-XXXXXX";
static int topfd = -1;

static void cleanup(void)
{
    remove_tree_at(AT_FDCWD, top);
}

static void start(void)
{
    if (!mkdtemp(top))
        abort();
    topfd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (topfd < 0 || replace_file_at(topfd, "canary", "alive", 5, 0600) < 0)
        abort();
    atexit(cleanup);
}

static void check(void)
{
    char *text = NULL;
    struct stat st;

    if (read_file_at(topfd, "canary", 16, &text, NULL) < 0 || strcmp(text, "alive"))
        abort();
    free(text);
    if (fstat(topfd, &st) < 0 || st.st_nlink != 3) /* ., .. and root: no directory beside it */
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct unpack_limits limits = {
        .entries = 200, .bytes = 1 << 20, .ratio = 100, .ratio_from = 1 << 18};
    struct errbuf eb;
    auto_close int fd = memfd_create("archive", MFD_CLOEXEC), rootfd = -1;
    uint8_t digest[32];

    if (topfd < 0)
        start();
    if (fd < 0 || write_all(fd, data, size) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return 0;
    if (mkdirat(topfd, "root", 0755) < 0)
        abort();
    rootfd = openat(topfd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unpack_tar(fd, rootfd, &limits, digest, errbuf_init(&eb));
    check();
    if (remove_tree_at(topfd, "root") < 0)
        abort();
    return 0;
}
