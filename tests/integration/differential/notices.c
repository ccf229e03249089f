/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* What inotify tells of files whose names go or change places; the memfd: that it can be run, what its seals forbid. */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "say.h"

static int notices;

/* All that waits to be read. */
static void tell(const char *when)
{
    _Alignas(struct inotify_event) char bytes[4096];
    const struct inotify_event *e;
    ssize_t n = read(notices, bytes, sizeof(bytes)), at;

    printf("%s:\n", when);
    for (at = 0; at < n; at += (ssize_t)(sizeof(*e) + e->len)) {
        e = (const void *)(bytes + at);
        printf(" %d %x %s\n", e->wd, e->mask, e->len ? e->name : "");
    }
    fflush(stdout);
}

/* A file whose last name goes is still told of while somebody has it open. */
static void open_to_the_last(void)
{
    int fd = open("f", O_CREAT | O_RDWR, 0600);

    say("watch", inotify_add_watch(notices, "f", IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF));
    unlink("f");
    tell("unlinked");
    write(fd, "x", 1);
    tell("written");
    close(fd);
    tell("closed");
    fd = open("g", O_CREAT | O_RDWR, 0600);
    close(open("h", O_CREAT | O_RDWR, 0600));
    say("watch", inotify_add_watch(notices, "g", IN_MODIFY | IN_DELETE_SELF));
    rename("h", "g");
    tell("replaced");
    write(fd, "x", 1);
    close(fd);
    tell("written and closed");
    say("watch", inotify_add_watch(notices, "g", IN_DELETE_SELF));
    unlink("g");
    tell("unlinked, not open");
}

/* Both are told of, each with its directory. */
static void change_places(void)
{
    close(open("a", O_CREAT | O_RDWR, 0600));
    mkdir("d", 0700);
    close(open("d/b", O_CREAT | O_RDWR, 0600));
    inotify_add_watch(notices, ".", IN_MOVE);
    inotify_add_watch(notices, "d", IN_MOVE);
    say("exchange",
        syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "d/b", 2 /* RENAME_EXCHANGE */));
    tell("exchanged");
    unlink("a");
    unlink("d/b");
    rmdir("d");
}

/* It may be written by who has it, and run all the same. */
static void memory_that_runs(void)
{
    int memory = memfd_create("program", MFD_CLOEXEC), program = open("/bin/true", O_RDONLY),
        status = 0;
    char *const argv[] = {"true", NULL};
    char bytes[65536];
    ssize_t n;
    pid_t pid;

    while ((n = read(program, bytes, sizeof(bytes))) > 0)
        write(memory, bytes, (size_t)n);
    close(program);
    pid = fork();
    if (pid == 0) {
        fexecve(memory, argv, environ);
        _exit(errno);
    }
    waitpid(pid, &status, 0);
    say_value("ran", status);
    close(memory);
}

static void sealed(const char *name, int seal)
{
    int memory = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map;

    ftruncate(memory, 4096);
    puts(name);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    say_ok("while it is mapped", fcntl(memory, F_ADD_SEALS, seal));
    munmap(map, 4096);
    say_ok("alone", fcntl(memory, F_ADD_SEALS, seal));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    say_ok("to write", map == MAP_FAILED ? -1 : 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);
    say_ok("of its own", map == MAP_FAILED ? -1 : 0);
    map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    if (map != MAP_FAILED)
        say_ok("to write later", mprotect(map, 4096, PROT_READ | PROT_WRITE));
    close(memory);
}

int main(void)
{
    char place[] = "/tmp/cella-notices-XXXXXX";

    notices = inotify_init1(IN_NONBLOCK);
    if (!mkdtemp(place) || chdir(place))
        return 1;
    open_to_the_last();
    change_places();
    memory_that_runs();
    sealed("no more writing", F_SEAL_WRITE);
    sealed("no new writers", F_SEAL_FUTURE_WRITE);
    return rmdir(place) ? 1 : 0;
}
