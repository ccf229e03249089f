/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* The gofer and its client, on a tree in a temporary directory: what is read, what is refused, what ends it. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "fs/gofer_int.h"
#include "gofer.h"

#define SLOTS 12
#define MANY 700

static char tree[] = "/tmp/cella-gofer-XXXXXX";
static struct gofer gofer;
static struct gofer_reply reply;
static int got_fd;
static unsigned shrinks, shrink_close;
static jmp_buf panic;

/* ---- what the client needs of the kernel ---- */

_Noreturn void kpanic(const char *format, ...)
{
    (void)format;
    longjmp(panic, 1);
}

bool fs_free_descriptors(void)
{
    shrinks++;
    if (!shrink_close)
        return false;
    gofer_close(shrink_close);
    shrink_close = 0;
    return true;
}

/* ---- the tree ---- */

static void put(const char *name, const char *text)
{
    int fd = openat(AT_FDCWD, name, O_CREAT | O_WRONLY, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static int set_up(void **state)
{
    char name[64];
    int i, self = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);

    (void)state;
    assert_non_null(mkdtemp(tree));
    assert_int_equal(chdir(tree), 0);
    put("file", "hello");
    assert_int_equal(chown("file", 4711, 815), 0);
    assert_int_equal(setxattr("file", "trusted.cella", "abc", 3, 0), 0);
    assert_int_equal(mkdir("dir", 0755) | mkdir("many", 0755), 0);
    assert_int_equal(symlink("../../etc/passwd", "link"), 0);
    assert_int_equal(symlink("file", "near"), 0);
    assert_int_equal(mkfifo("fifo", 0644), 0);
    for (i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "many/a-name-that-takes-some-room-%04d", i);
        put(name, "");
    }
    assert_int_equal(fchdir(self), 0);
    assert_int_equal(gofer_init(&gofer, SLOTS, open(tree, O_PATH | O_DIRECTORY | O_CLOEXEC), self),
                     0);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    gofer_fini(&gofer);
    snprintf(command, sizeof(command), "rm -r %s", tree);
    return system(command);
}

static int call(uint32_t op, uint32_t handle, const char *name)
{
    struct gofer_request q = {.op = op, .handle = handle, .length = (uint32_t)strlen(name)};
    int r;

    assert_true(strlen(name) < sizeof(q.name));
    memcpy(q.name, name, strlen(name));
    r = gofer_handle(&gofer, &q, sizeof(q), &reply, &got_fd);
    return r == 1 ? reply.result : r;
}

static uint32_t walk(uint32_t handle, const char *name)
{
    assert_int_equal(call(GOFER_WALK, handle, name), 0);
    return reply.handle;
}

/* ---- the server ---- */

static void reads(void **state)
{
    char text[8] = "";
    uint32_t h = walk(GOFER_ROOT_HANDLE, "file");

    (void)state;
    assert_int_equal(reply.attr.uid, 4711);
    assert_int_equal(reply.attr.gid, 815);
    assert_int_equal(reply.attr.size, 5);
    assert_int_equal(reply.attr.mode, S_IFREG | 0600);
    assert_int_equal(call(GOFER_OPEN, h, ""), 0);
    assert_int_equal(read(got_fd, text, sizeof(text)), 5);
    assert_string_equal(text, "hello");
    assert_int_equal(fcntl(got_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(write(got_fd, "x", 1), -1);
    close(got_fd);
    assert_int_equal(call(GOFER_CLOSE, h, ""), 0);
    assert_int_equal(call(GOFER_WALK, GOFER_ROOT_HANDLE, "nothing"), -ENOENT);
}

static void follows_no_link(void **state)
{
    uint32_t h = walk(GOFER_ROOT_HANDLE, "link");

    (void)state;
    assert_int_equal(reply.attr.mode & S_IFMT, S_IFLNK);
    assert_int_equal(call(GOFER_READLINK, h, ""), 0);
    assert_int_equal(reply.length, 16);
    assert_memory_equal(reply.data, "../../etc/passwd", 16);
    assert_int_equal(call(GOFER_OPEN, h, ""), -EINVAL);
    assert_int_equal(call(GOFER_WALK, h, "passwd"), -ENOTDIR);
    call(GOFER_CLOSE, h, "");
}

static void opens_files_only(void **state)
{
    uint32_t fifo = walk(GOFER_ROOT_HANDLE, "fifo"), dir = walk(GOFER_ROOT_HANDLE, "dir");

    (void)state;
    assert_int_equal(call(GOFER_OPEN, fifo, ""), -EINVAL);
    assert_int_equal(call(GOFER_OPEN, dir, ""), -EINVAL);
    assert_int_equal(call(GOFER_READDIR, fifo, ""), -ENOTDIR);
    assert_int_equal(call(GOFER_READLINK, dir, ""), -EINVAL);
    call(GOFER_CLOSE, fifo, "");
    call(GOFER_CLOSE, dir, "");
}

static void keeps_the_rules(void **state)
{
    static const char *const bad[] = {".", "..", "dir/x", "/", "/etc", ""};
    struct gofer_request q = {.op = GOFER_ATTR, .handle = GOFER_ROOT_HANDLE};
    uint32_t h = walk(GOFER_ROOT_HANDLE, "file");
    size_t i;

    (void)state;
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(call(GOFER_WALK, GOFER_ROOT_HANDLE, bad[i]), -EPROTO);
    assert_int_equal(call(GOFER_ATTR, GOFER_ROOT_HANDLE, "x"), -EPROTO);
    assert_int_equal(call(GOFER_CLOSE + 1, GOFER_ROOT_HANDLE, ""), -EPROTO);
    assert_int_equal(call(GOFER_CLOSE, GOFER_ROOT_HANDLE, ""), -EPROTO);
    assert_int_equal(call(GOFER_ATTR, h + SLOTS, ""), -EPROTO);
    assert_int_equal(call(GOFER_ATTR, h + (1u << GOFER_SLOT_BITS), ""), -EPROTO);
    assert_int_equal(gofer_handle(&gofer, &q, sizeof(q) - 1, &reply, &got_fd), -EPROTO);
    q.cookie = 1;
    assert_int_equal(gofer_handle(&gofer, &q, sizeof(q), &reply, &got_fd), -EPROTO);
    q.cookie = 0;
    q.name[200] = 'x';
    assert_int_equal(gofer_handle(&gofer, &q, sizeof(q), &reply, &got_fd), -EPROTO);
    q.name[200] = 0;
    assert_int_equal(gofer_handle(&gofer, &q, sizeof(q), &reply, &got_fd), 1);
    call(GOFER_CLOSE, h, "");
    assert_int_equal(call(GOFER_ATTR, h, ""), -EPROTO); /* its slot has another generation */
    assert_true(walk(GOFER_ROOT_HANDLE, "file") != h);
    call(GOFER_CLOSE, reply.handle, "");
}

static void runs_out(void **state)
{
    uint32_t h[SLOTS];
    int i;

    (void)state;
    for (i = 1; i < SLOTS; i++)
        h[i] = walk(GOFER_ROOT_HANDLE, "file");
    assert_int_equal(call(GOFER_WALK, GOFER_ROOT_HANDLE, "dir"), -EMFILE);
    call(GOFER_CLOSE, h[5], "");
    h[5] = walk(GOFER_ROOT_HANDLE, "dir");
    for (i = 1; i < SLOTS; i++)
        call(GOFER_CLOSE, h[i], "");
}

/* ---- the client, with the server in a thread ---- */

static int pair[2];

static void *serve(void *unused)
{
    struct gofer_request q;
    ssize_t n;
    int fd;

    while ((n = recv(pair[1], &q, sizeof(q), 0)) > 0)
        if (gofer_handle(&gofer, &q, (size_t)n, &reply, &fd) == 1) {
            union {
                struct cmsghdr head;
                char room[CMSG_SPACE(sizeof(int))];
            } c = {.head = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
            struct iovec iov = {&reply, GOFER_REPLY_HEAD + reply.length};
            struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
            if (fd >= 0) {
                m.msg_control = c.room;
                m.msg_controllen = sizeof(c.room);
                memcpy(CMSG_DATA(&c.head), &fd, sizeof(int));
            }
            sendmsg(pair[1], &m, MSG_NOSIGNAL);
            if (fd >= 0)
                close(fd);
        }
    return unused;
}

static char seen[MANY];
static unsigned others;

static void entry(void *ctx, const char *name, size_t length, uint64_t number, uint8_t type)
{
    int n;

    (void)ctx;
    assert_true(number || length < 3);
    if (length == 32 && sscanf(name, "a-name-that-takes-some-room-%04d", &n) == 1 && n < MANY &&
        type == DT_REG)
        seen[n]++;
    else
        others++;
}

static void client(void **state)
{
    uint32_t root, h, dir, held[SLOTS];
    struct gofer_attr a;
    uint64_t cookie = 0;
    char text[64] = "";
    pthread_t t;
    int fd, r, i, n = 0;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pthread_create(&t, NULL, serve, NULL);
    assert_int_equal(gofer_connect(pair[0], &root, &a), 0);
    assert_true(S_ISDIR(a.mode));
    assert_int_equal(gofer_walk(root, "file", 4, &h, &a), 0);
    assert_int_equal(a.uid, 4711);
    assert_int_equal(gofer_open(h, &fd), 0);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 5);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
    assert_int_equal(gofer_listxattr(h, text, sizeof(text)), sizeof("trusted.cella"));
    assert_string_equal(text, "trusted.cella");
    assert_int_equal(gofer_getxattr(h, "trusted.cella", text, sizeof(text)), 3);
    assert_int_equal(gofer_getxattr(h, "trusted.cella", text, 0), 3);
    assert_int_equal(gofer_getxattr(h, "trusted.cella", text, 2), -ERANGE);
    assert_int_equal(gofer_getxattr(h, "trusted.none", text, sizeof(text)), -ENODATA);
    gofer_close(h);
    assert_int_equal(gofer_walk(root, "..", 2, &h, &a), -EINVAL);
    assert_int_equal(gofer_walk(root, "near", 4, &h, &a), 0);
    assert_int_equal(gofer_readlink(h, text, sizeof(text)), 4);
    assert_int_equal(gofer_readlink(h, text, 2), 2);
    gofer_close(h);
    assert_int_equal(gofer_walk(root, "many", 4, &dir, &a), 0);
    while ((r = gofer_readdir(dir, &cookie, entry, NULL)) > 0)
        n += r;
    assert_int_equal(r, 0);
    assert_int_equal(n, MANY);
    assert_int_equal(others, 0);
    for (i = 0; i < MANY; i++)
        assert_int_equal(seen[i], 1);
    for (i = 0; i < SLOTS - 2; i++)
        assert_int_equal(gofer_walk(root, "file", 4, &held[i], &a), 0);
    assert_int_equal(gofer_walk(root, "file", 4, &h, &a), -ENFILE);
    assert_int_equal(shrinks, 1);
    shrink_close = held[0];
    assert_int_equal(gofer_walk(root, "file", 4, &held[0], &a), 0);
    for (i = 0; i < SLOTS - 2; i++)
        gofer_close(held[i]);
    gofer_close(dir);
    shutdown(pair[0], SHUT_WR);
    pthread_join(t, NULL);
    close(pair[1]);
    if (!setjmp(panic)) {
        gofer_walk(root, "file", 4, &h, &a);
        fail_msg("a question to nobody was answered");
    }
    close(pair[0]);
}

static void judges_answers(void **state)
{
    static struct gofer_reply a;
    static const char listing[] = {[8] = 4, 1, 'x', [19] = 8, 2, 'y', 'z'};
    static const char bad[][16] = {{[8] = 4, 1, '/'}, {[8] = 4, 2, '.', '.'}, {[8] = 4, 0}};

    (void)state;
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD, 0), 0);
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD - 1, 0), -EPROTO);
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD, 1), -EPROTO);
    assert_int_equal(gofer_reply_judge(GOFER_OPEN, &a, GOFER_REPLY_HEAD, 1), 0);
    assert_int_equal(gofer_reply_judge(GOFER_WALK, &a, GOFER_REPLY_HEAD, 0), -EPROTO);
    a.result = 1;
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD, 0), -EPROTO);
    a.result = -4096;
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD, 0), -EPROTO);
    a.result = 0;
    a.length = 9;
    assert_int_equal(gofer_reply_judge(GOFER_ATTR, &a, GOFER_REPLY_HEAD + 9, 0), -EPROTO);
    assert_int_equal(gofer_reply_judge(GOFER_READDIR, &a, GOFER_REPLY_HEAD + 8, 0), -EPROTO);
    assert_int_equal(gofer_reply_judge(GOFER_READDIR, &a, GOFER_REPLY_HEAD + 9, 0), 0);
    a.attr.size = UINT64_MAX;
    assert_int_equal(gofer_reply_judge(GOFER_READDIR, &a, GOFER_REPLY_HEAD + 9, 0), -EPROTO);
    others = 0;
    assert_int_equal(gofer_entries(listing, sizeof(listing), entry, NULL), 2);
    assert_int_equal(others, 2);
    assert_int_equal(gofer_entries(listing, sizeof(listing) - 1, entry, NULL), -EPROTO);
    assert_int_equal(gofer_entries(bad[0], 11, entry, NULL), -EPROTO);
    assert_int_equal(gofer_entries(bad[1], 12, entry, NULL), -EPROTO);
    assert_int_equal(gofer_entries(bad[2], 10, entry, NULL), -EPROTO);
    assert_int_equal(others, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),
        cmocka_unit_test(follows_no_link),
        cmocka_unit_test(opens_files_only),
        cmocka_unit_test(keeps_the_rules),
        cmocka_unit_test(runs_out),
        cmocka_unit_test(client),
        cmocka_unit_test(judges_answers),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
