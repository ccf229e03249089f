/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * unpack_spawn - runs cella-unpack: an archive is hostile, and libarchive with its decompressors is
 * too much code to parse it in a process that owns anything. The child gets three descriptors and
 * nothing else; its answer is one fixed-size record that is treated as hostile too. Threads: none.
 */
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "image_int.h"

const char *unpack_program;

static int program_path(char out[PATH_MAX])
{
    char self[PATH_MAX - 32];
    ssize_t n;

    if (unpack_program)
        return snprintf(out, PATH_MAX, "%s", unpack_program) < PATH_MAX ? 0 : -ENAMETOOLONG;
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return -ENOENT;
    self[n] = 0;
    *(strrchr(self, '/') + 1) = 0;
    snprintf(out, PATH_MAX, "%scella-unpack", self);
    return access(out, X_OK) < 0 ? -errno : 0;
}

static void child(const char *path, const struct unpack_limits *l, int fd, int rootfd, int result)
{
    char numbers[4][24];
    char *const argv[] = {
        (char *)(uintptr_t) "cella-unpack", numbers[0], numbers[1], numbers[2], numbers[3], NULL};
    char *const envp[] = {NULL};
    const uint64_t values[] = {l->entries, l->bytes, l->ratio, l->ratio_from};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    size_t i;

    for (i = 0; i < 4; i++)
        snprintf(numbers[i], sizeof(numbers[i]), "%llu", (unsigned long long)values[i]);
    /* out of the way of 0…5 first */
    fd = fcntl(fd, F_DUPFD, 10);
    rootfd = fcntl(rootfd, F_DUPFD, 10);
    result = fcntl(result, F_DUPFD, 10);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(fd, UNPACK_FD_ARCHIVE) < 0 || dup2(rootfd, UNPACK_FD_ROOT) < 0 ||
        dup2(result, UNPACK_FD_RESULT) < 0 || syscall(SYS_close_range, 6u, ~0u, 0u) < 0)
        _exit(125);
    execve(path, argv, envp);
    _exit(126);
}

static int read_result(int fd, struct unpack_result *ret)
{
    char *at = (char *)ret;
    size_t got = 0;

    while (got < sizeof(*ret)) {
        ssize_t n = read(fd, at + got, sizeof(*ret) - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -EPIPE;
        got += (size_t)n;
    }
    return 0;
}

/* The child read a hostile archive: its words are bounded and lose what could act on a terminal. */
static int report(struct unpack_result *res, struct cella_error *err)
{
    size_t n = strnlen(res->message, sizeof(res->message) - 1), i;
    int code = res->code < 0 && res->code > -4096 ? res->code : -EIO;

    for (i = 0; i < n; i++)
        if ((unsigned char)res->message[i] < 0x20 || res->message[i] == 0x7f)
            res->message[i] = '?';
    return fail(err, code, "%.*s", (int)n, res->message);
}

int unpack_spawn(int fd, int rootfd, const struct unpack_limits *limits, uint8_t ret_sha256[32],
                 struct cella_error *err)
{
    struct unpack_result res = {0};
    char path[PATH_MAX];
    int result[2], status = 0, r = program_path(path);
    pid_t pid;

    if (r < 0)
        return fail(err, r, "cella-unpack is not beside this program; build or install it");
    if (pipe2(result, O_CLOEXEC) < 0)
        return fail(err, -errno, "pipe: %s", strerror(errno));
    pid = fork();
    if (pid == 0)
        child(path, limits, fd, rootfd, result[1]);
    close(result[1]);
    r = pid < 0 ? -errno : read_result(result[0], &res);
    close(result[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (r < 0)
        return fail(err, -EIO,
                    "cella-unpack ended without an answer (%s %d): out of time or memory, or the "
                    "archive broke it",
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (res.code < 0)
        return report(&res, err);
    memcpy(ret_sha256, res.sha256, 32);
    return 0;
}
