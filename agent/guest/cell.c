/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cell - the child that becomes the agent: PID 1 of its own pid namespace, in its own mount
 * namespace, with the root that a container cell has.
 *
 * Why namespaces inside a machine: the agent's end is the end of everything it started, by the
 * kernel; and the workload, root of the cell included, sees neither init nor the disks below its
 * root. What is mounted is the image's and so a stranger's: every path below is resolved after the
 * change of root, so no link leads out of it. What is shown from init's own files is taken before,
 * as a detached copy of its mount.
 *
 * Mustn't: keep a descriptor but the port, the control socket and the agent's program; they are 3,
 * 4 and closed by exec. Failures are told to init through a pipe that exec closes. Threads: one.
 */
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "guest.h"
#include "look.h"

#define AT_EMPTY_PATH_ 0x1000
#define OPEN_TREE_CLONE_ 1
#define MOVE_FROM_EMPTY 0x04
#define MOVE_TO_LINKS 0x10
#define CONTROL_FD 4
#define REPORT_FD 5
#define AGENT_FD 6
#define SAFE (MS_NOSUID | MS_NODEV)

static const struct {
    const char *name;
    unsigned major, minor;
} nodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
             {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"},
                                       {"/proc/self/fd/0", "/dev/stdin"},
                                       {"/proc/self/fd/1", "/dev/stdout"},
                                       {"/proc/self/fd/2", "/dev/stderr"},
                                       {"pts/ptmx", "/dev/ptmx"}};

/* As in a container: what shows the machine, which a program in a cell has no use for. */
static const char *const masked[] = {LOOK_MASKED}, *const frozen[] = {LOOK_FROZEN};

/* Files of init over paths of the cell. Index into `trees`. */
static const struct {
    const char *source, *target;
} etc[] = {{STATE "/etc/hosts", "/etc/hosts"},
           {STATE "/etc/hostname", "/etc/hostname"},
           {STATE "/etc/resolv.conf", "/etc/resolv.conf"},
           {STATE "/etc/machine-id", "/etc/machine-id"},
           {STATE "/etc/boot-id", "/proc/sys/kernel/random/boot_id"}};
#define ETC_PROC 4 /* the one that comes after /proc */

static const struct {
    const char *source, *target;
    int needed;
} layers[] = {{"/rw/tmp", "/tmp", 1},
              {"/rw/run", "/run", 1},
              {"/rw/home", "/root", 1},
              {"/rw/vartmp", "/var/tmp", 0}};

struct trees {    /* detached copies, made in init's root */
    char shm[64]; /* options of /dev/shm: no more than the layer has */
    int etc[ARRAY_LEN(etc)], layers[ARRAY_LEN(layers)], shown, covers[COVERS_MAX];
};

/* ---- places ---- */

static void parents_make(const char *path)
{
    char part[TARGET_MAX];
    size_t i;

    part[0] = 0;
    text_add(part, sizeof(part), path);
    for (i = 1; part[i]; i++)
        if (part[i] == '/') {
            part[i] = 0;
            mkdir(part, 0755);
            part[i] = '/';
        }
}

/* The place to mount on, made when missing. A link that leads nowhere makes room. */
static int place(const char *path, int is_file)
{
    struct stat st;
    int fd;

    if (stat(path, &st) == 0)
        return 0;
    parents_make(path);
    if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
        unlink(path);
    if (!is_file)
        return mkdir(path, 0755) < 0 ? blame(errno, "cannot make the directory", path) : 0;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return blame(errno, "cannot make the file", path);
    close(fd);
    return 0;
}

static int tree_take(const char *path, int *ret)
{
    *ret = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE_ | O_CLOEXEC);
    return *ret < 0 ? blame(errno, "cannot use as the source of a mount:", path) : 0;
}

/* Read-only unless `writable`. Takes the tree. */
static int tree_mount(int own_tree, const char *path, int is_file, int writable)
{
    int r = place(path, is_file);

    if (r == 0 &&
        syscall(SYS_move_mount, own_tree, "", AT_FDCWD, path, MOVE_FROM_EMPTY | MOVE_TO_LINKS) < 0)
        r = blame(errno, "cannot mount at", path);
    close(own_tree);
    if (r == 0 &&
        mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | SAFE | (writable ? 0 : MS_RDONLY), NULL) < 0)
        r = blame(errno, "cannot set the mount options of", path);
    return r;
}

static int fs_mount(const char *type, const char *path, unsigned long flags, const char *options)
{
    int r = place(path, 0);

    if (r == 0 && mount(type, path, type, flags | MS_NOSUID, options) < 0)
        r = blame(errno, "cannot mount", path);
    return r;
}

/* ---- the root, before it is the root ---- */

static void shm_options(struct trees *t)
{
    struct statfs fs;
    char n[24];

    t->shm[0] = 0;
    text_add(t->shm, sizeof(t->shm), "mode=1777");
    if (statfs("/rw", &fs) < 0)
        return;
    text_add(t->shm, sizeof(t->shm), ",size=");
    text_add(t->shm, sizeof(t->shm), num_text(fs.f_blocks * (uint64_t)fs.f_bsize, n));
}

static int trees_take(const struct boot *b, struct trees *t)
{
    size_t i;
    int r = tree_take(STATE "/shown", &t->shown);

    shm_options(t);

    for (i = 0; r == 0 && i < ARRAY_LEN(etc); i++)
        r = tree_take(etc[i].source, &t->etc[i]);
    for (i = 0; r == 0 && i < ARRAY_LEN(layers); i++)
        r = tree_take(layers[i].source, &t->layers[i]);
    for (i = 0; r == 0 && i < b->n_covers; i++) {
        char path[128] = STATE "/shown/";
        text_add(path, sizeof(path), b->covers[i].name);
        r = tree_take(path, &t->covers[i]);
    }
    return r;
}

/* The initramfs cannot be left by pivot_root; what lies below the new root is out of reach. */
static int root_change(void)
{
    if (chdir("/cell") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
        chdir("/") < 0)
        return blame(errno, "cannot change the root", NULL);
    return 0;
}

/* ---- the cell's look ---- */

static int etc_mount(struct trees *t)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ETC_PROC; i++)
        r = tree_mount(t->etc[i], etc[i].target, 1, 0);
    return r;
}

/* An authority's certificates over the bundles of the image; the places were looked up on the host. */
static int covers_mount(const struct boot *b, struct trees *t)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < b->n_covers; i++)
        r = tree_mount(t->covers[i], b->covers[i].path, 1, 0);
    return r;
}

static int writable_places(const struct boot *b, struct trees *t)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ARRAY_LEN(layers); i++) {
        struct stat st;
        if (!b->readonly || (!layers[i].needed && stat(layers[i].target, &st) < 0))
            close(t->layers[i]);
        else
            r = tree_mount(t->layers[i], layers[i].target, 0, 1);
    }
    if (!b->readonly)
        mkdir("/tmp", 01777); /* or it is there already, as the image's */
    return r;
}

/* Directories only. */
static int share_mount(const char *tag, const struct guest_mount *m)
{
    unsigned long flags = SAFE | (m->flags & CELLA_MOUNT_WRITABLE ? 0 : MS_RDONLY);
    int r = place(m->target, 0);

    if (r == 0 && mount(tag, m->target, "virtiofs", flags, NULL) < 0 &&
        mount(tag, m->target, "9p", flags, "trans=virtio,version=9p2000.L,msize=262144") < 0)
        r = blame(errno, "the machine does not share, or the kernel cannot mount,", m->target);
    return r;
}

static int user_mounts(const struct boot *b)
{
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < b->n_mounts; i++) {
        char tag[40] = "cella.m", n[24];
        text_add(tag, sizeof(tag), num_text(b->mounts[i].number, n));
        r = share_mount(tag, &b->mounts[i]);
    }
    return r;
}

static int dev_make(const struct trees *t)
{
    char path[32];
    size_t i;
    int r = fs_mount("tmpfs", "/dev", MS_NOEXEC, "size=64k,nr_inodes=32,mode=0755");

    for (i = 0; r == 0 && i < ARRAY_LEN(nodes); i++) {
        path[0] = 0;
        text_add(path, sizeof(path), "/dev/");
        text_add(path, sizeof(path), nodes[i].name);
        if (mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0)
            return blame(errno, "cannot make", path);
    }
    for (i = 0; r == 0 && i < ARRAY_LEN(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0)
            return blame(errno, "cannot make", links[i][1]);
    if (r == 0)
        r = fs_mount("devpts", "/dev/pts", MS_NOEXEC,
                     "newinstance,ptmxmode=0666,mode=0620,gid=5,max=256");
    if (r == 0)
        r = fs_mount("mqueue", "/dev/mqueue", MS_NODEV | MS_NOEXEC, NULL);
    if (r == 0)
        r = fs_mount("tmpfs", "/dev/shm", MS_NODEV, t->shm);
    if (r == 0 && mount(NULL, "/dev", NULL,
                        MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NOEXEC, NULL) < 0)
        r = blame(errno, "cannot make /dev read-only", NULL);
    return r;
}

static int mask(void)
{
    struct stat st;
    size_t i;
    int r = 0;

    for (i = 0; r == 0 && i < ARRAY_LEN(masked); i++) {
        if (stat(masked[i], &st) < 0)
            continue;
        if (S_ISDIR(st.st_mode))
            r = fs_mount("tmpfs", masked[i], MS_RDONLY | MS_NODEV | MS_NOEXEC,
                         "size=4k,nr_inodes=2,mode=0555");
        else if (mount("/dev/null", masked[i], NULL, MS_BIND, NULL) < 0)
            r = blame(errno, "cannot mask", masked[i]);
    }
    for (i = 0; r == 0 && i < ARRAY_LEN(frozen); i++)
        if (stat(frozen[i], &st) == 0 &&
            (mount(frozen[i], frozen[i], NULL, MS_BIND, NULL) < 0 ||
             mount(NULL, frozen[i], NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE | MS_NOEXEC,
                   NULL) < 0))
            r = blame(errno, "cannot make read-only:", frozen[i]);
    return r;
}

static int look(const struct boot *b, struct trees *t)
{
    int r = etc_mount(t);

    if (r == 0)
        r = covers_mount(b, t);
    if (r == 0)
        r = writable_places(b, t);
    if (r == 0)
        r = tree_mount(t->shown, "/run/cella", 0, 0);
    if (r == 0)
        r = user_mounts(b);
    if (r == 0)
        r = fs_mount("proc", "/proc", MS_NODEV | MS_NOEXEC, NULL);
    if (r == 0)
        r = fs_mount("sysfs", "/sys", MS_NODEV | MS_NOEXEC | MS_RDONLY, NULL);
    if (r == 0)
        r = dev_make(t);
    if (r == 0)
        r = mask();
    if (r == 0)
        r = tree_mount(t->etc[ETC_PROC], etc[ETC_PROC].target, 1, 0);
    if (r == 0 && b->readonly &&
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | SAFE, NULL) < 0)
        r = blame(errno, "cannot make the root read-only", NULL);
    return r;
}

/* ---- the child ---- */

static int child_prepare(const struct boot *b)
{
    struct trees t;
    int r = 0;

    if (syscall(SYS_unshare, CLONE_NEWCGROUP) < 0) /* in its group by now */
        return blame(errno, "cannot make a control group namespace", NULL);
    setsid();
    umask(0);
    r = trees_take(b, &t);
    if (r == 0)
        r = root_change();
    if (r == 0)
        r = look(b, &t);
    umask(022);
    return r == 0 ? confine() : r;
}

static void child_fds(const int from[4])
{
    int high[4], i;

    for (i = 0; i < 4; i++)
        high[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 64);
    for (i = 0; i < 4; i++)
        if (high[i] < 0 || dup3(high[i], LINK_FD + i, i < 2 ? 0 : O_CLOEXEC) < 0)
            _exit(125);
    syscall(SYS_close_range, AGENT_FD + 1, ~0u, 0);
    for (i = 0; i < 3; i++)
        close(i); /* the console; the agent takes /dev/null */
}

static _Noreturn void child_main(const struct boot *b)
{
    static char name[] = "cella-agent";
    char *argv[] = {name, NULL}, *envp[] = {NULL}, go;
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (read(REPORT_FD, &go, 1) == 1 && child_prepare(b) == 0) {
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        syscall(SYS_execveat, AGENT_FD, "", argv, envp, AT_EMPTY_PATH_);
        blame(errno, "cannot execute the agent", NULL);
    }
    if (write(REPORT_FD, blamed(), strlen(blamed())) < 0)
        _exit(126);
    _exit(125);
}

/* Waits for the child's exec, or for its last words. */
static int child_wait(int report)
{
    char text[400];
    ssize_t n;

    do
        n = read(report, text, sizeof(text) - 1);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return 0;
    text[n] = 0;
    blame(0, text, NULL);
    return -EIO;
}

int cell_start(const struct boot *b, int agent_fd, int port_fd, int *ret_control)
{
    int report[2], control[2], r = 0;
    long pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, report) < 0)
        return blame(errno, "cannot make sockets for the agent", NULL);
    pid = syscall(SYS_clone, CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | SIGCHLD, NULL, NULL, NULL,
                  NULL);
    if (pid == 0) {
        const int from[4] = {port_fd, control[1], report[1], agent_fd};
        child_fds(from);
        child_main(b);
    }
    close(report[1]);
    close(control[1]);
    if (pid < 0)
        r = blame(errno, "cannot start the agent's process", NULL);
    if (r == 0)
        r = group_enter((pid_t)pid);
    if (r == 0 && write(report[0], "g", 1) != 1)
        r = blame(EPIPE, "the agent's process ended", NULL);
    if (r == 0)
        r = child_wait(report[0]);
    close(report[0]);
    if (r < 0) {
        close(control[0]);
        return r;
    }
    *ret_control = control[0];
    return (int)pid;
}
