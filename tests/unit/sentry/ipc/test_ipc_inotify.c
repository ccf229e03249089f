/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* inotify: what it makes of what happens. That fs/ says it is fs/'s matter; here the test says it. */
#include <errno.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fakes.h"
#include "fs/vfs.h"
#include "world.h"

static int fd;

static void happens(const char *path, uint32_t mask, const char *name, uint32_t cookie)
{
    struct path p;

    kernel_lock();
    if (path_lookup(0, path, 0, &p) == 0) {
        inotify_event(p.dentry->inode, p.dentry, mask, name, cookie);
        path_put(&p);
    }
    kernel_unlock();
}

static void make(const char *path)
{
    kernel_lock();
    vfs_mknod(0, path, S_IFREG | 0644, 0, NULL);
    kernel_unlock();
}

static void read_events(size_t room)
{
    char bytes[1024];
    const struct inotify_event *e;
    int64_t n = call(SYS_read, fd, bytes, room), at;

    note("read %ld", (long)n);
    for (at = 0; at < n; at += (int64_t)(sizeof(*e) + e->len)) {
        e = (const void *)(bytes + at);
        note(" %d %x %u %u %s", e->wd, e->mask, e->cookie, e->len, e->len ? e->name : "");
    }
}

static void watches(void)
{
    int n = 0;

    make("a");
    make("b");
    fd = (int)call(SYS_inotify_init1, IN_NONBLOCK);
    note("bad %ld %ld %ld", (long)call(SYS_inotify_init1, 1),
         (long)call(SYS_inotify_add_watch, fd, "a", 0),
         (long)call(SYS_inotify_add_watch, fd, "none", IN_OPEN));
    note("add %ld", (long)call(SYS_inotify_add_watch, fd, "a", IN_OPEN | IN_CREATE));
    note("again %ld", (long)call(SYS_inotify_add_watch, fd, "a", IN_MODIFY | IN_MASK_ADD));
    note("refused %ld", (long)call(SYS_inotify_add_watch, fd, "a", IN_MODIFY | IN_MASK_CREATE));
    note("other %ld", (long)call(SYS_inotify_add_watch, fd, "b", IN_ALL_EVENTS | IN_ONESHOT));
    read_events(1024);
    happens("a", IN_OPEN, NULL, 0);
    happens("a", IN_OPEN, NULL, 0);
    happens("a", IN_CLOSE_WRITE, NULL, 0);
    happens("a", IN_CREATE | IN_ISDIR, "name", 7);
    happens("a", IN_MODIFY, "name-of-sixteen.", 0);
    happens("b", IN_ATTRIB, NULL, 0);
    happens("b", IN_ATTRIB, NULL, 0);
    call(SYS_ioctl, fd, FIONREAD, &n);
    note("waiting %d", n);
    read_events(8);
    read_events(20);
    read_events(1024);
    note("remove %ld", (long)call(SYS_inotify_rm_watch, fd, 1));
    note("remove %ld", (long)call(SYS_inotify_rm_watch, fd, 1));
    read_events(1024);
    note("anew %ld", (long)call(SYS_inotify_add_watch, fd, "a", IN_ATTRIB));
    happens("a", IN_DELETE_SELF, NULL, 0);
    happens("a", IN_ATTRIB, NULL, 0);
    read_events(1024);
    call(SYS_unlink, "a");
    call(SYS_unlink, "b");
}

static void overflow(void)
{
    unsigned i;
    int n = 0;

    make("a");
    fd = (int)call(SYS_inotify_init1, IN_NONBLOCK);
    call(SYS_inotify_add_watch, fd, "a", IN_ALL_EVENTS);
    for (i = 0; i < 40000; i++)
        happens("a", i & 1 ? IN_OPEN : IN_ATTRIB, NULL, 0);
    call(SYS_ioctl, fd, FIONREAD, &n);
    note("waiting %d", n);
    for (i = 0; i < 256; i++)
        call(SYS_read, fd, (char[1024]){0}, 1024);
    read_events(1024);
    happens("a", IN_OPEN, NULL, 0);
    read_events(1024);
    call(SYS_unlink, "a");
}

static void test_watches(void **state)
{
    (void)state;
    ours_alone(
        watches,
        "bad -22 -22 -2\nadd 1\nagain 1\nrefused -17\nother 2\nread -11\nwaiting 128\nread "
        "-22\nread 16\n"
        " 1 20 0 0 \nread 112\n 1 40000100 7 16 name\n 1 2 0 32 name-of-sixteen.\n 2 4 0 0 \n"
        " 2 8000 0 0 \nremove 0\nremove -22\nread 16\n 1 8000 0 0 \nanew 3\nread 16\n 3 8000 0 0 "
        "\n");
}

static void test_overflow(void **state)
{
    (void)state;
    ours_alone(overflow, "waiting 262160\nread 16\n -1 4000 0 0 \nread 16\n 1 20 0 0 \n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watches),
        cmocka_unit_test(test_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
