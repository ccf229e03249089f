/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* More files of the image are written than the sentry may have descriptors. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs.h"
#include "fs_world.h"

#define IS(value, expected) assert_int_equal(value, expected)
#define FILES 600
#define DESCRIPTORS 200
#define SIZE 4100

static void populate(void)
{
    char name[32], text[SIZE];
    int i, fd;

    if (mkdir("full", 0755))
        abort();
    memset(text, 'a', sizeof(text));
    text[SIZE - 1] = 'z';
    for (i = 0; i < FILES; i++) {
        snprintf(name, sizeof(name), "full/file%05d", i);
        fd = open(name, O_CREAT | O_WRONLY, 0644);
        if (write(fd, text, sizeof(text)) != sizeof(text))
            abort();
        close(fd);
    }
}

static int64_t open_one(int i, int flags)
{
    char name[32];
    int64_t fd;

    snprintf(name, sizeof(name), "/full/file%05d", i);
    fd = call(SYS_open, name, flags);
    IS(fd >= 0, 1);
    return fd;
}

/* Each has one written page, and one that only the image has. */
static void write_all(void)
{
    char text[SIZE + 1];
    int64_t fd;
    int i;

    for (i = 0; i < FILES; i++) {
        fd = open_one(i, O_RDWR);
        IS(call(SYS_pwrite64, fd, "W", 1, 1), 1);
        IS(call(SYS_close, fd), 0);
    }
    for (i = 0; i < FILES; i++) {
        fd = open_one(i, O_RDONLY);
        IS(call(SYS_read, fd, text, sizeof(text)), SIZE);
        IS(text[0] == 'a' && text[1] == 'W' && text[2] == 'a' && text[SIZE - 1] == 'z', 1);
        IS(call(SYS_close, fd), 0);
    }
    IS(fs_disk_used() <= FILES * 2 * PAGE_SIZE, 1);
}

static void cut_all(void)
{
    int i;

    for (i = 0; i < FILES; i++) {
        IS(call(SYS_close, open_one(i, O_RDWR | O_TRUNC)), 0);
    }
}

static void with_few(scenario run)
{
    struct rlimit before, few;

    getrlimit(RLIMIT_NOFILE, &before);
    few = (struct rlimit){.rlim_cur = DESCRIPTORS, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    ours_alone(populate, run);
    setrlimit(RLIMIT_NOFILE, &before);
}

static void written_files_need_none(void **unused)
{
    (void)unused;
    with_few(write_all);
}

static void empty_files_need_none(void **unused)
{
    (void)unused;
    with_few(cut_all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_need_none),
        cmocka_unit_test(empty_files_need_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
