/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A pseudo-terminal whose session ends while others have it open: script, tmux and their like go on with it. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "say.h"

static int master, slave;

static void say_polls(const char *name)
{
    struct pollfd p[2] = {{.fd = master, .events = POLLIN | POLLOUT},
                          {.fd = slave, .events = POLLIN | POLLOUT}};

    poll(p, 2, 0);
    printf("%s: master %x terminal %x\n", name, (unsigned)p[0].revents, (unsigned)p[1].revents);
}

/* A host's terminal moves bytes by a thread of its own. */
static void arrives(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    poll(&p, 1, 60000);
}

static void open_both(void)
{
    int unlock = 0, number = -1;
    char path[32];

    master = open("/dev/ptmx", O_RDWR | O_NOCTTY);
    say("unlock", ioctl(master, TIOCSPTLCK, &unlock));
    say("number", ioctl(master, TIOCGPTN, &number) == 0);
    snprintf(path, sizeof(path), "/dev/pts/%d", number);
    slave = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK);
}

static void hung_up(int signo)
{
    (void)signo;
    _exit(7);
}

/* In the leader's session and foreground: it is told when the leader ends. */
static void member(int to)
{
    signal(SIGHUP, hung_up);
    write(to, "x", 1);
    for (;;)
        pause();
}

static void leader(int from, int to)
{
    char byte;

    setsid();
    say("terminal", ioctl(slave, TIOCSCTTY, 0));
    if (fork() == 0)
        member(to);
    read(from, &byte, 1);
    write(slave, "hi\n", 3);
    _exit(0);
}

int main(void)
{
    char bytes[100];
    int ends[2], status = 0;
    pid_t pid;

    setvbuf(stdout, NULL, _IONBF, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    open_both();
    pipe(ends);
    say_polls("begun");
    pid = fork();
    if (pid == 0)
        leader(ends[0], ends[1]);
    waitpid(pid, &status, 0);
    say_value("leader", status);
    say("member", waitpid(-1, &status, 0) > 0);
    say_value("ended", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    arrives(master);
    say_polls("ended");
    say("read", read(master, bytes, sizeof(bytes)));
    say_polls("read");
    say("write", write(master, "a\n\4", 3));
    arrives(slave);
    arrives(master);
    say_polls("written");
    say("read", read(slave, bytes, sizeof(bytes)));
    say("read", read(slave, bytes, sizeof(bytes)));
    say("close", close(slave));
    slave = -1;
    say_polls("closed");
    return 0;
}
