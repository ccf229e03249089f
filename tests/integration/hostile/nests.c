/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * nests - what can be deep, long, many or in a circle: directories, names, links, sparse files, splices, epolls, sockets that
 * carry each other. Each in a process of its own; what it prints is what Linux gives.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *word(long result)
{
    return result < 0 ? strerror(errno) : "ok";
}

/* ---- directories and names ---- */

#define DEEP 10000

static const char *deep(void)
{
    static char path[PATH_MAX], what[200];
    const char *cwd, *by_path;
    int i, n = 0;

    for (i = 0; i < DEEP; i++)
        if (mkdir("d", 0700) || chdir("d"))
            return word(-1);
    cwd = getcwd(path, sizeof(path)) ? "a path" : strerror(errno);
    memset(path, 0, sizeof(path));
    for (i = 0; i < 2047; i++)
        strcpy(path + 2 * i, "./");
    by_path = word(open(path, O_RDONLY | O_DIRECTORY));
    for (; n < DEEP && !chdir("..") && !rmdir("d"); n++)
        ;
    snprintf(what, sizeof(what), "%s, %s, %d taken away", cwd, by_path, n);
    return what;
}

static const char *names(void)
{
    static char what[200], name[300];
    const char *longest, *longer, *dots;

    memset(name, 'n', 256);
    longer = word(mkdir(name, 0700));
    name[255] = '\0';
    longest = word(mkdir(name, 0700));
    dots = rmdir(name) ? strerror(errno) : "gone";
    snprintf(what, sizeof(what), "%s, %s, %s", longest, dots, longer);
    return what;
}

#define MANY 100000

static const char *many(void)
{
    static char what[100], bytes[1 << 16];
    char name[20];
    long n, at, made, seen = 0, gone = 0;
    int directory;

    if (mkdir("many", 0700) || chdir("many"))
        return word(-1);
    for (made = 0; made < MANY; made++) {
        sprintf(name, "%ld", made);
        if (mknod(name, S_IFREG | 0600, 0))
            break;
    }
    directory = open(".", O_RDONLY);
    while ((n = syscall(SYS_getdents64, directory, bytes, sizeof(bytes))) > 0)
        for (at = 0; at < n; at += *(unsigned short *)(bytes + at + 16))
            seen++;
    for (n = 0; n < made; n++) {
        sprintf(name, "%ld", n);
        gone += !unlink(name);
    }
    snprintf(what, sizeof(what), "%ld made, %ld seen, %ld gone, %s", made, seen, gone,
             word(chdir("..") | rmdir("many")));
    return what;
}

/* A thousand links that lead from one to the next, and back to the first. */
static const char *links(void)
{
    static char what[200];
    char name[20], to[20];
    const char *circle, *forty, *last;
    int i;

    for (i = 0; i < 1000; i++) {
        sprintf(name, "l%d", i);
        sprintf(to, "l%d", (i + 1) % 1000);
        if (symlink(to, name))
            return word(-1);
    }
    circle = word(open("l0", O_RDONLY));
    unlink("l999");
    mkdir("l999", 0700);
    forty = word(open("l959", O_RDONLY));
    last = word(open("l958", O_RDONLY));
    for (i = 0; i < 999; i++) {
        sprintf(name, "l%d", i);
        unlink(name);
    }
    rmdir("l999");
    snprintf(what, sizeof(what), "%s, %s, %s", circle, forty, last);
    return what;
}

/* ---- files ---- */

#define TIB (1ll << 40)

static const char *sparse(void)
{
    static char what[200], byte;
    int fd = open("sparse", O_CREAT | O_RDWR, 0600);
    char *at;
    struct stat s;
    long long data, hole;
    bool zero;

    unlink("sparse");
    if (ftruncate(fd, TIB) || pwrite(fd, "x", 1, TIB - 1) != 1)
        return word(-1);
    fstat(fd, &s);
    data = lseek(fd, 0, SEEK_DATA);
    hole = lseek(fd, 0, SEEK_HOLE);
    zero = pread(fd, &byte, 1, TIB / 2) == 1 && !byte;
    at = mmap(NULL, TIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return word(-1);
    at[TIB / 3] = 'y';
    zero = zero && at[TIB - 1] == 'x' && !at[TIB / 2] && pread(fd, &byte, 1, TIB / 3) == 1 &&
           byte == 'y';
    snprintf(what, sizeof(what), "%d, %d, data %lld, hole %lld", zero, s.st_blocks < 100,
             data / 4096, hole);
    return what;
}

/* Bytes that go round through pipes and a file, and none is lost or made. */
static const char *splices(void)
{
    static char what[100], bytes[4096];
    int a[2], b[2], i, file = open("round", O_CREAT | O_RDWR, 0600);
    long sum = 0, copied = 0, n;
    off_t at = 0;

    unlink("round");
    if (pipe(a) || pipe(b) || write(a[1], bytes, 4096) != 4096)
        return word(-1);
    for (i = 0; i < 20000; i++) {
        sum += splice(a[0], NULL, b[1], NULL, 4096, SPLICE_F_MOVE);
        n = tee(b[0], a[1], 4096, 0);
        copied += n;
        splice(a[0], NULL, file, &(loff_t){0}, 4096, 0);
        splice(b[0], NULL, a[1], NULL, 4096, 0);
    }
    for (i = 0; i < 1000; i++, at = 0)
        sendfile(a[1], file, &at, 2048) < 0 ? 0 : read(a[0], bytes, 2048);
    snprintf(what, sizeof(what), "%ld, %ld, itself: %s", sum / 4096, copied / 4096,
             word(splice(a[0], NULL, a[1], NULL, 1, SPLICE_F_NONBLOCK)));
    return what;
}

/* ---- circles ---- */

static const char *epolls(void)
{
    static char what[200];
    struct epoll_event event = {.events = EPOLLIN};
    int fds[8], i, depth = 0;
    const char *circle, *itself, *deeper = "no bound";

    for (i = 0; i < 8; i++)
        fds[i] = epoll_create1(0);
    itself = word(epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[0], &event));
    for (i = 1; i < 8; i++) {
        if (epoll_ctl(fds[i], EPOLL_CTL_ADD, fds[i - 1], &event)) {
            deeper = strerror(errno);
            break;
        }
        depth++;
    }
    circle = word(epoll_ctl(fds[0], EPOLL_CTL_ADD, fds[2], &event));
    snprintf(what, sizeof(what), "%s, %s, %d then %s", itself, circle, depth, deeper);
    return what;
}

static int carry(int by, const int *fds, unsigned n)
{
    char control[CMSG_SPACE(sizeof(int) * 2)] = "";
    struct iovec part = {(char[]){'x'}, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * n)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * n);
    memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
    return sendmsg(by, &message, MSG_DONTWAIT) == 1 ? 0 : -1;
}

/* Pairs that carry themselves and each other, and are let go: more of them than there may be at a time. */
static const char *circles(void)
{
    static char what[100];
    int a[2], b[2], i, wrong = 0;

    for (i = 0; i < 40000; i++) {
        if (socketpair(AF_UNIX, i % 2 ? SOCK_STREAM : SOCK_DGRAM, 0, a) ||
            socketpair(AF_UNIX, SOCK_STREAM, 0, b))
            return word(-1);
        wrong += carry(a[0], a, 2) != 0;
        wrong += carry(a[0], b, 2) != 0;
        wrong += carry(b[0], (int[]){a[1], b[1]}, 2) != 0;
        close(a[0]), close(a[1]), close(b[0]), close(b[1]);
    }
    snprintf(what, sizeof(what), "%d wrong", wrong);
    return what;
}

/* A chain: each carries the next, thousands deep, and is let go from its end. */
static const char *chain(void)
{
    int last[2], next[2], i;

    if (socketpair(AF_UNIX, SOCK_STREAM, 0, last))
        return word(-1);
    for (i = 0; i < 5000; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, next) || carry(next[0], last, 2))
            return word(-1);
        close(last[0]), close(last[1]);
        memcpy(last, next, sizeof(last));
    }
    close(last[0]), close(last[1]);
    return word(socketpair(AF_UNIX, SOCK_STREAM, 0, last));
}

static const struct {
    const char *name;
    const char *(*what)(void);
} all[] = {{"deep", deep},     {"names", names},     {"many", many},
           {"links", links},   {"sparse", sparse},   {"splices", splices},
           {"epolls", epolls}, {"circles", circles}, {"chain", chain}};

int main(int argc, char **argv)
{
    char place[] = "/tmp/nests-XXXXXX";
    int status = 0;
    unsigned i;

    if (!mkdtemp(place) || chdir(place))
        return 3;
    for (i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (argc > 1 && strcmp(argv[1], all[i].name))
            continue;
        fflush(stdout);
        if (!fork()) {
            printf("%s: %s\n", all[i].name, all[i].what());
            fflush(stdout);
            _exit(0);
        }
        if (wait(&status) > 0 && status)
            printf("%s: %s\n", all[i].name, strsignal(status & 127));
    }
    return chdir("/") || rmdir(place) ? 4 : 0;
}
