/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * calls - one kind of work, n times, timed from inside: prints nanoseconds for each. For sentry.py, which runs it on the host,
 * in a cell and in a peer's sandbox.
 *
 *   calls ROW N [COMMAND …]
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES (64l << 20)
#define CHUNK 65536

static char **command;

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "calls: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void row_getpid(long n)
{
    while (n--)
        must(syscall(SYS_getpid) > 0, "getpid");
}

static void row_pipe(long n)
{
    int ends[2];
    char byte = 0;

    must(pipe(ends) == 0, "pipe");
    while (n--)
        must(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1, "pipe");
}

static void row_open(long n)
{
    char bytes[100];
    int fd;

    while (n--) {
        fd = open("/etc/passwd", O_RDONLY);
        must(fd >= 0 && read(fd, bytes, sizeof(bytes)) > 0, "/etc/passwd");
        close(fd);
    }
}

static void row_stat(long n)
{
    struct stat st;

    while (n--)
        must(stat("/usr/bin/python3", &st) == 0, "/usr/bin/python3");
}

static void row_mmap(long n)
{
    char *at;

    while (n--) {
        at = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(at != MAP_FAILED, "mmap");
        *at = 1;
        munmap(at, CHUNK);
    }
}

static void row_run(long n)
{
    pid_t pid;
    int status, null;

    while (n--) {
        pid = fork();
        must(pid >= 0, "fork");
        if (!pid) {
            null = open("/dev/null", O_WRONLY);
            dup2(null, 1);
            execvp(command[0], command);
            _exit(127);
        }
        must(waitpid(pid, &status, 0) == pid && status == 0, command[0]);
    }
}

static uint32_t turn;

static void wait_turn(uint32_t mine)
{
    while (__atomic_load_n(&turn, __ATOMIC_ACQUIRE) != mine)
        syscall(SYS_futex, &turn, FUTEX_WAIT_PRIVATE, !mine, NULL, NULL, 0);
}

static void give_turn(uint32_t to)
{
    __atomic_store_n(&turn, to, __ATOMIC_RELEASE);
    syscall(SYS_futex, &turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *partner(void *count)
{
    long n = *(long *)count;

    while (n--) {
        wait_turn(1);
        give_turn(0);
    }
    return NULL;
}

static void row_futex(long n)
{
    pthread_t thread;
    long left = n;

    must(pthread_create(&thread, NULL, partner, &left) == 0, "thread");
    while (n--) {
        give_turn(1);
        wait_turn(0);
    }
    pthread_join(thread, NULL);
}

static int big_file(char *bytes)
{
    char name[] = "/tmp/calls-XXXXXX";
    int fd = mkstemp(name);
    long at;

    must(fd >= 0, name);
    unlink(name);
    for (at = 0; at < FILE_BYTES; at += CHUNK)
        must(write(fd, bytes, CHUNK) == CHUNK, "write");
    return fd;
}

/* A chunk written, and one read back. */
static void row_seq(long n)
{
    static char bytes[CHUNK];
    int fd;
    long at;

    for (; n > 0; n -= FILE_BYTES / CHUNK) {
        fd = big_file(bytes);
        for (at = 0; at < FILE_BYTES; at += CHUNK)
            must(pread(fd, bytes, CHUNK, at) == CHUNK, "read");
        close(fd);
    }
}

static void row_rand(long n)
{
    static char bytes[CHUNK];
    static int fd = -1;
    uint32_t x = 1;

    if (fd < 0)
        fd = big_file(bytes);
    while (n--) {
        x = x * 1664525 + 1013904223;
        must(pread(fd, bytes, 4096, (long)(x % (FILE_BYTES / 4096)) * 4096) == 4096, "read");
    }
}

static const struct {
    const char *name;
    void (*row)(long n);
} rows[] = {{"getpid", row_getpid}, {"pipe", row_pipe}, {"open", row_open},
            {"stat", row_stat},     {"mmap", row_mmap}, {"run", row_run},
            {"futex", row_futex},   {"seq", row_seq},   {"rand", row_rand}};

int main(int argc, char **argv)
{
    struct timespec begin, end;
    long n = argc > 2 ? atol(argv[2]) : 0;
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && n > 0; i++) {
        if (strcmp(rows[i].name, argv[1]) != 0)
            continue;
        command = argv + 3;
        rows[i].row(1); /* what is made once */
        clock_gettime(CLOCK_MONOTONIC, &begin);
        rows[i].row(n);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("%.0f\n",
               ((double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec)) /
                   (double)n);
        return 0;
    }
    fputs("calls: expected: calls ROW N [COMMAND ...]\n", stderr);
    return 2;
}
