/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A descriptor that is closed while another thread waits for a lock by it. That it waits is seen in /proc. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "say.h"

static int locked;
static pid_t tid;
static long answer, error;

static struct flock whole(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET};
}

static void *waits(void *unused)
{
    struct flock lock = whole(F_WRLCK);

    (void)unused;
    __atomic_store_n(&tid, (pid_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    answer = fcntl(locked, F_SETLKW, &lock);
    error = errno;
    return NULL;
}

static char state_of(pid_t of)
{
    char path[64], text[512] = "", *at;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", of);
    fd = open(path, O_RDONLY);
    if (fd < 0)
        return 'X';
    read(fd, text, sizeof(text) - 1);
    close(fd);
    at = strrchr(text, ')');
    return at ? at[2] : 'X';
}

/* Holds the lock from before it answers until `go` ends. */
static pid_t holder(int ready, int go)
{
    struct flock lock = whole(F_WRLCK);
    pid_t pid = fork();
    char byte;

    if (pid)
        return pid;
    fcntl(open("f", O_RDWR), F_SETLK, &lock);
    write(ready, "r", 1);
    read(go, &byte, 1);
    _exit(0);
}

static int free_now(void)
{
    struct flock lock = whole(F_WRLCK);
    pid_t pid = fork();
    int status = 0;

    if (pid == 0)
        _exit(fcntl(open("f", O_RDWR), F_SETLK, &lock) ? errno : 0);
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
}

int main(void)
{
    char place[] = "/tmp/cella-closing-XXXXXX", byte;
    int ready[2], go[2];
    pthread_t thread;
    pid_t pid;

    if (!mkdtemp(place) || chdir(place) || pipe(ready) || pipe(go))
        return 1;
    locked = open("f", O_CREAT | O_RDWR, 0600);
    pid = holder(ready[1], go[0]);
    say("held", read(ready[0], &byte, 1));
    say_value("while it is held", free_now());
    pthread_create(&thread, NULL, waits, NULL);
    while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST) || state_of(tid) != 'S')
        usleep(1000);
    say("closed", close(locked));
    write(go[1], "g", 1);
    waitpid(pid, NULL, 0);
    pthread_join(thread, NULL);
    say_value("waited", answer);
    say_value("error", answer ? error : 0);
    say_value("afterwards", free_now());
    unlink("f");
    return rmdir(place) ? 1 : 0;
}
