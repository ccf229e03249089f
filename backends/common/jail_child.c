/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * jail_child - between birth and exec, in this order: the control groups; the signal for the host process's death;
 * host paths as detached mounts, whose flags are final before anybody sees them; the root, left for good; limits,
 * descriptors, id, capabilities. Nothing that the guest controls runs before the last line.
 *
 * Mustn't: allocate, use stdio, or keep a descriptor past close_range(). PR_SET_PDEATHSIG is armed again after the
 * last change of credentials, which clears it, with a look at the socket after each arming, because the host
 * process may have died just before. Threads: one.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "jail_int.h"

#define UMOUNT_DETACH 2
#define MS_PRIVATE_ (1u << 18)
#define HIGH_FD 128
#define NOFILE 1024
#define KVM_MAJOR 10
#define KVM_MINOR 232

static void die(const struct jail_child *c, int code, const char *fmt, ...) CELLA_PRINTF(3, 4)
    __attribute__((noreturn));
static void die(const struct jail_child *c, int code, const char *fmt, ...)
{
    struct jail_report r = {.code = code < 0 ? code : -EIO};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r.text, sizeof(r.text), fmt, ap);
    va_end(ap);
    (void)!send(c->sync_fd, &r, sizeof(r), MSG_NOSIGNAL);
    _exit(1);
}

static void die_with_host(const struct jail_child *c)
{
    struct pollfd p = {.fd = c->sync_fd, .events = 0};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        die(c, -errno, "parent death signal: %s", strerror(errno));
    if (poll(&p, 1, 0) != 0) /* hang-up is always reported */
        _exit(1);
}

static void enter_cgroups(const struct jail_child *c)
{
    int i;

    for (i = 0; i < c->n_entry; i++)
        if (write(c->entry_fds[i], "0", 1) != 1)
            die(c, -errno, "control group: cannot enter it: %s", strerror(errno));
}

/* ------------------------------------------------------------------------ mounts */

static int fs_new(const struct jail_child *c, const char *fs, const char *key, const char *value,
                  unsigned flags)
{
    int ctx = (int)syscall(SYS_fsopen, fs, FSOPEN_CLOEXEC), fd = -1;

    if (ctx >= 0 && syscall(SYS_fsconfig, ctx, FSCONFIG_SET_STRING, key, value, 0) == 0 &&
        syscall(SYS_fsconfig, ctx, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = (int)syscall(SYS_fsmount, ctx, FSMOUNT_CLOEXEC, flags);
    if (fd < 0)
        die(c, -errno, "root: cannot mount a %s: %s", fs, strerror(errno));
    close(ctx);
    return fd;
}

static void move_to(const struct jail_child *c, int mount, int target, const char *name)
{
    if (syscall(SYS_move_mount, mount, "", target, "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        die(c, -errno, "%s: cannot put the mount there: %s", name, strerror(errno));
}

/* What the core judged under its real path may have been replaced since: no link is followed. */
static int source_open(const struct jail_child *c, const struct jail_bind *b)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, b->source, &how, sizeof(how));
    struct stat st;

    if (fd < 0)
        die(c, -errno, "%s: %s%s", b->source, strerror(errno),
            errno == ELOOP ? "; a part of it is a symbolic link: give the real path" : "");
    if (fstat(fd, &st) < 0 || !(b->file ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode)))
        die(c, -ENOTDIR, "%s: it is no %s any more", b->source, b->file ? "file" : "directory");
    return fd;
}

static void mounts_open(struct jail_child *c)
{
    int i;

    for (i = 0; i < c->jail->n_binds; i++) {
        const struct jail_bind *b = &c->jail->binds[i];
        struct mount_attr a = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                           (b->writable ? 0 : MOUNT_ATTR_RDONLY)};
        int at = source_open(c, b);
        int fd = (int)syscall(SYS_open_tree, at, "",
                              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0)
            die(c, -errno, "%s: cannot be shown to the program: %s", b->source, strerror(errno));
        close(at);
        c->mounts[i] = fd;
    }
}

static void bind_all(const struct jail_child *c, int root)
{
    int i, fd;

    for (i = 0; i < c->jail->n_binds; i++) {
        const struct jail_bind *b = &c->jail->binds[i];
        const char *path = b->target + 1;
        if (!b->file && mkdirat(root, path, 0755) < 0 && errno != EEXIST)
            die(c, -errno, "%s: %s", b->target, strerror(errno));
        fd = openat(root, path,
                    b->file ? O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC
                            : O_PATH | O_DIRECTORY | O_CLOEXEC,
                    0444);
        if (fd < 0)
            die(c, -errno, "%s: %s", b->target, strerror(errno));
        if (b->file) { /* a mount needs the path, not the open file */
            close(fd);
            fd = openat(root, path, O_PATH | O_CLOEXEC);
        }
        move_to(c, c->mounts[i], fd, b->target);
        close(fd);
        close(c->mounts[i]);
    }
}

/* The host's merged /usr: /lib -> usr/lib and the like, as they are there. */
static void links_copy(const struct jail_child *c, int host, int root)
{
    static const char *const names[] = {"lib", "lib64", "lib32", "libx32", "bin", "sbin"};
    char target[128];
    size_t i;
    ssize_t n;

    for (i = 0; i < ARRAY_LEN(names); i++) {
        n = readlinkat(host, names[i], target, sizeof(target) - 1);
        if (n <= 0)
            continue;
        target[n] = 0;
        if (symlinkat(target, root, names[i]) < 0)
            die(c, -errno, "/%s: %s", names[i], strerror(errno));
    }
}

/* A node of its own: the host's may belong to a group. Everything mounted from the host is nodev. */
static void kvm_node(const struct jail_child *c, int root)
{
    if (mknodat(root, "dev/kvm", S_IFCHR | 0600, makedev(KVM_MAJOR, KVM_MINOR)) < 0 ||
        fchownat(root, "dev/kvm", c->jail->id, c->jail->id, 0) < 0)
        die(c, -errno, "/dev/kvm: %s", strerror(errno));
}

/* 9p changes modes through /proc/self/fd. Nothing else of /proc is there. */
static void proc_show(const struct jail_child *c, int root)
{
    int fd = fs_new(c, "proc", "subset", "pid",
                    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    int at = mkdirat(root, "proc", 0555) < 0
                 ? -1
                 : openat(root, "proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (at < 0)
        die(c, -errno, "/proc: %s", strerror(errno));
    move_to(c, fd, at, "/proc");
    close(at);
    close(fd);
}

static void mounts_private(const struct jail_child *c)
{
    struct mount_attr private = {.propagation = MS_PRIVATE_};

    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &private, sizeof(private)) < 0)
        die(c, -errno, "mount propagation: %s", strerror(errno));
}

static void root_make(struct jail_child *c)
{
    static const char *const dirs[] = {"usr", "etc", "dev", "cella", "tmp"};
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY};
    int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), at, mount, root;
    size_t i;

    mounts_open(c);
    mount = fs_new(c, "tmpfs", "mode", "0755", MOUNT_ATTR_NOSUID);
    at = open(c->jail->at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || at < 0)
        die(c, -errno, "%s: %s", c->jail->at, strerror(errno));
    move_to(c, mount, at, "root");
    root = open(c->jail->at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        die(c, -errno, "root: %s", strerror(errno));
    for (i = 0; i < ARRAY_LEN(dirs); i++)
        if (mkdirat(root, dirs[i], 0755) < 0)
            die(c, -errno, "/%s: %s", dirs[i], strerror(errno));
    links_copy(c, host, root);
    bind_all(c, root);
    if (c->jail->proc)
        proc_show(c, root);
    if (c->jail->kvm)
        kvm_node(c, root);
    if (syscall(SYS_mount_setattr, root, "", AT_EMPTY_PATH, &ro, sizeof(ro)) < 0)
        die(c, -errno, "root: cannot make it read-only: %s", strerror(errno));
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0 || chdir("/") < 0)
        die(c, -errno, "root: cannot leave the host's: %s", strerror(errno));
}

/* ----------------------------------------------------------------------- confine */

static void limit(const struct jail_child *c, int resource, rlim_t max)
{
    struct rlimit l;

    if (getrlimit((unsigned)resource, &l) < 0)
        die(c, -errno, "resource limit %d: %s", resource, strerror(errno));
    if (l.rlim_max > max)
        l.rlim_max = max;
    l.rlim_cur = l.rlim_max;
    if (setrlimit((unsigned)resource, &l) < 0)
        die(c, -errno, "resource limit %d: %s", resource, strerror(errno));
}

/* 0 … n-1 as asked, then our own until exec. Nothing else stays open. */
static void arrange_fds(struct jail_child *c, int null)
{
    int high[JAIL_FDS_MAX], n = c->jail->n_fds, sync, i;

    sync = fcntl(c->sync_fd, F_DUPFD_CLOEXEC, HIGH_FD);
    for (i = 0; i < n; i++) {
        int fd = c->jail->borrow_fds[i];
        high[i] = fcntl(fd >= 0 ? fd : null, F_DUPFD_CLOEXEC, HIGH_FD);
        if (high[i] < 0)
            die(c, -errno, "descriptors: %s", strerror(errno));
    }
    for (i = 0; i < n; i++)
        if (dup2(high[i], i) < 0)
            die(c, -errno, "descriptors: %s", strerror(errno));
    if (sync < 0 || dup3(sync, n, O_CLOEXEC) < 0)
        _exit(1);
    c->sync_fd = n;
    if (syscall(SYS_close_range, n + 1, ~0u, 0) < 0)
        die(c, -errno, "descriptors: cannot close the host's: %s", strerror(errno));
}

/* As long as it is root, so that no setting of the host's for strangers' namespaces matters. All capabilities there, none
   anywhere else. */
static void enter_own_users(const struct jail_child *c)
{
    const struct jail_report here = {.code = JAIL_IN_OWN_USERS};
    char answer;

    if (unshare(CLONE_NEWUSER) < 0)
        die(c, -errno, "user namespace: %s; user.max_user_namespaces must be above 0",
            strerror(errno));
    if (send(c->sync_fd, &here, sizeof(here), MSG_NOSIGNAL) != (ssize_t)sizeof(here) ||
        recv(c->sync_fd, &answer, 1, 0) != 1)
        _exit(1);
}

static void drop(const struct jail_child *c)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0}};
    uint32_t id = c->jail->own_users ? JAIL_NOBODY : c->jail->id;
    int cap;

    if (c->jail->own_users)
        enter_own_users(c);
    for (cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            die(c, -errno, "capability %d: cannot drop it: %s", cap, strerror(errno));
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        die(c, -errno, "id %u: cannot become it: %s", id, strerror(errno));
    if (syscall(SYS_capset, &head, none) < 0)
        die(c, -errno, "capabilities: cannot drop them: %s", strerror(errno));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        die(c, -errno, "no_new_privs: %s", strerror(errno));
}

static void reset_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    sigset_t none;
    int i;

    for (i = 1; i < NSIG; i++)
        sigaction(i, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void jail_child(struct jail_child *c)
{
    const struct jail *j = c->jail;
    int null;

    enter_cgroups(c);
    close(c->host_sync_fd); /* so that a hang-up can be seen */
    die_with_host(c);
    setsid();
    umask(0);
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        die(c, -errno, "/dev/null: %s", strerror(errno));
    mounts_private(c);
    if (!j->unplaced)
        root_make(c);
    umask(077);
    (void)!sethostname("jail", 4);
    syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0);
    reset_signals();
    limit(c, RLIMIT_CORE, 0);
    limit(c, RLIMIT_NOFILE, j->many_fds ? RLIM_INFINITY : NOFILE);
    limit(c, RLIMIT_RTPRIO, 0);
    limit(c, RLIMIT_MEMLOCK, 8u << 20);
    arrange_fds(c, null);
    if (!j->unplaced)
        drop(c);
    die_with_host(c);
    execve(j->program, j->argv, j->envp);
    die(c, -errno, "%s: cannot execute it: %s", j->program, strerror(errno));
}
