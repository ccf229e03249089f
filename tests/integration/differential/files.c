/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* Files between processes and in memory: mappings, offsets, locks, programs that run, names that are gone. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "say.h"

static char bytes[10000];

/* What a child that runs it ends with: its status, or minus the signal. */
static int in_child(int (*run)(int fd), int fd)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(run(fd));
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int touch_behind_the_end(int fd)
{
    volatile char *map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

    ftruncate(fd, 100);
    return map[50] + map[4096];
}

static int read_ten(int fd)
{
    return (int)read(fd, bytes, 10);
}

static int lock_now(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};

    return fcntl(fd, F_SETLK, &lock) ? errno : 0;
}

static int flock_now(int fd)
{
    (void)fd;
    fd = open("f", O_RDWR);
    return flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
}

static int flock_same(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) ? errno : 0;
}

static void maps(void)
{
    int fd = open("f", O_CREAT | O_RDWR, 0644);
    char *shared, *private;

    say("write", write(fd, bytes, sizeof(bytes)));
    shared = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    private = mmap(NULL, 10000, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    shared[5000] = 's';
    private[100] = 'p';
    say("read what a mapping wrote", pread(fd, bytes, 1, 5000) + bytes[0]);
    say("pwrite", pwrite(fd, "wwww", 4, 4094));
    say("seen in both", shared[4095] + shared[4096] + private[4096]);
    say("private stays", shared[100]);
    say("mapped too far", in_child(touch_behind_the_end, fd));
    say("size", lseek(fd, 0, SEEK_END));
    say("cut in the other, too", shared[5000 % 4096] + private[100]);
    say_ok("map to write what is open to read",
           mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, open("f", O_RDONLY), 0) == MAP_FAILED ? -1 : 0);
    say_ok("a directory",
           mmap(NULL, 1, PROT_READ, MAP_SHARED, open(".", O_RDONLY), 0) == MAP_FAILED ? -1 : 0);
    close(fd);
}

static void between(void)
{
    int fd = open("f", O_RDWR), other = dup(fd);

    say("child reads", in_child(read_ten, fd));
    say("offset is one", lseek(other, 0, SEEK_CUR));
    lock_now(fd);
    say("locked for a child", in_child(lock_now, fd));
    close(open("f", O_RDONLY));
    say("any close takes it", in_child(lock_now, fd));
    flock(fd, LOCK_EX);
    say("flock for a child", in_child(flock_now, fd));
    say("flock of the same file", in_child(flock_same, fd));
    close(fd);
    say("still by the dup", in_child(flock_now, other));
    close(other);
    say("gone", in_child(flock_now, -1));
}

static int run_program(int fd)
{
    (void)fd;
    execl("./program", "program", (char *)NULL);
    return errno;
}

static void programs(void)
{
    int from = open("/bin/true", O_RDONLY), to = open("program", O_CREAT | O_WRONLY, 0755);
    ssize_t n;

    while ((n = read(from, bytes, sizeof(bytes))) > 0)
        write(to, bytes, (size_t)n);
    say("run while it is written", in_child(run_program, 0));
    close(to);
    say("run", in_child(run_program, 0));
    say_ok("write itself", open("/proc/self/exe", O_RDWR));
}

static void gone(void)
{
    struct stat st;
    int fd = open("f", O_RDWR);
    char name[64], target[4200] = "";

    unlink("f");
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    say("a second time", read(open(name, O_RDONLY), bytes, 10));
    fstat(fd, &st);
    say("links", (long)st.st_nlink);
    readlink(name, target, sizeof(target) - 1);
    say("named as", strcmp(target + strlen(target) - 12, "/f (deleted)"));
    mkdir("d", 0700);
    chdir("d");
    rmdir("../d");
    say_ok("cwd", getcwd(target, sizeof(target)) ? 0 : -1);
    say_ok("make in it", open("x", O_CREAT | O_RDWR, 0600));
    say_ok("up", chdir(".."));
}

/* What an epoll takes: files that can wait. The others are ready for poll() all the same. */
static void waited_for(void)
{
    static const char *const names[] = {"f", "/bin/sh", "/", "/dev/null", "/dev/zero", "/dev/full"};
    struct epoll_event event = {.events = EPOLLIN};
    int epoll = epoll_create1(0), memory = memfd_create("m", 0);
    unsigned i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct pollfd one = {.fd = open(names[i], O_RDONLY), .events = POLLIN | POLLOUT};

        say(names[i], epoll_ctl(epoll, EPOLL_CTL_ADD, one.fd, &event));
        poll(&one, 1, 0);
        say_value("ready", one.revents & (POLLIN | POLLOUT));
        close(one.fd);
    }
    say("random", epoll_ctl(epoll, EPOLL_CTL_ADD, open("/dev/random", O_RDONLY), &event));
    say("memory", epoll_ctl(epoll, EPOLL_CTL_ADD, memory, &event));
    say("memory away", epoll_ctl(epoll, EPOLL_CTL_DEL, memory, &event));
    close(memory);
    close(epoll);
}

/* How much one splice() takes of a socket: what is there of a stream, one message of the others. */
static void spliced(const char *name, int type)
{
    int pair[2], out[2];

    if (socketpair(AF_UNIX, type, 0, pair) || pipe(out))
        return;
    write(pair[0], bytes, 4096);
    write(pair[0], bytes, 4096);
    write(pair[0], bytes, 1000);
    say(name, splice(pair[1], NULL, out[1], NULL, 65536, SPLICE_F_NONBLOCK));
    say(name, splice(pair[1], NULL, out[1], NULL, 65536, SPLICE_F_NONBLOCK));
    close(pair[0]);
    close(pair[1]);
    close(out[0]);
    close(out[1]);
}

int main(void)
{
    char place[] = "/tmp/cella-files-XXXXXX";

    if (!mkdtemp(place) || chdir(place))
        return 1;
    memset(bytes, 'b', sizeof(bytes));
    maps();
    between();
    programs();
    waited_for();
    spliced("stream", SOCK_STREAM);
    spliced("messages", SOCK_DGRAM);
    gone();
    unlink("program");
    return rmdir(place) ? 1 : 0;
}
