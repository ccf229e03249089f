/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * place - from root of the host, in new namespaces that the backend made, to a process whose file system is the image,
 * read-only, and which may do nothing but read it. In this order: the image and what belongs to it as detached mounts,
 * flags final; an overlay whose upper half only holds the places of mounts that the image does not have; all
 * read-only; the host's root left; an unprivileged id with CAP_DAC_READ_SEARCH (files that only their owner may read),
 * no new privileges.
 *
 *   cella-gofer ROOT AT ID [SOURCE TARGET d|f] …      AT: an existing directory that nothing else uses
 *
 *   Should: resolve targets inside the new root, because the image may hold any link.
 *   Mustn't: read a byte of what the image's files hold.
 *
 * CAP_DAC_READ_SEARCH also means open_by_handle_at, which leads out of every mount namespace: the filter (filter.c) has
 * no such call. Threads: one.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gofer.h"

#define MS_PRIVATE_ (1u << 18)
#define UMOUNT_DETACH 2
/* Not noexec: stubs map the image's programs from here. Nothing is run by its name: no filter here has execve. */
#define HIDDEN (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define ARGS_FIXED 4
#define ARGS_MOUNT 3

static void attributes(int fd, const char *path, unsigned flags, uint64_t set, uint64_t propagation)
{
    struct mount_attr a = {.attr_set = set, .propagation = propagation};

    if (syscall(SYS_mount_setattr, fd, path, flags, &a, sizeof(a)) < 0)
        gofer_die(-errno, "mount options: %s", strerror(errno));
}

/* A detached copy of one host mount. */
static int tree_take(const char *path)
{
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW);

    if (fd < 0)
        gofer_die(-errno, "%s: cannot be shown: %s", path, strerror(errno));
    attributes(fd, "", AT_EMPTY_PATH, HIDDEN, MS_PRIVATE_);
    return fd;
}

static int fs_new(const char *type, const char *const *options, uint64_t attr)
{
    int fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC), fd = -1, r = fs;

    for (; r >= 0 && options[0]; options += 2)
        r = (int)syscall(SYS_fsconfig, fs, options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                         options[0], options[1], 0);
    if (r >= 0 && syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attr);
    if (fd < 0)
        gofer_die(-errno, "%s: cannot mount it: %s", type, strerror(errno));
    close(fs);
    return fd;
}

static void move_to(int own_mount, int own_target, const char *what)
{
    if (own_target < 0 || syscall(SYS_move_mount, own_mount, "", own_target, "",
                                  MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        gofer_die(-errno, "%s: cannot mount there: %s", what, strerror(errno));
    close(own_mount);
    close(own_target);
}

static int in_root(int root, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* One missing component: the last of `path`, whose directory is there. */
static int make_one(int root, char *path, int is_file)
{
    char *slash = strrchr(path, '/');
    int dir, made;

    *slash = 0;
    dir = in_root(root, path[0] ? path : "/", O_PATH | O_DIRECTORY);
    *slash = '/';
    if (dir < 0)
        return -errno;
    made = is_file ? openat(dir, slash + 1, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)
                   : mkdirat(dir, slash + 1, 0755);
    if (made < 0 && errno != EEXIST) {
        made = -errno;
        close(dir);
        return made;
    }
    if (is_file && made >= 0)
        close(made);
    close(dir);
    return 0;
}

/* The place to mount on; made, with its parents, when the image lacks it. */
static int target_open(int root, const char *path, int is_file)
{
    char part[4096];
    size_t n = strlen(path), at;
    int fd = in_root(root, path, O_PATH), r = 0;

    if (fd >= 0)
        return fd;
    if (n >= sizeof(part) || path[0] != '/')
        gofer_die(-EINVAL, "%s: no usable path in the image", path);
    for (at = 1; r == 0 && at <= n; at++) {
        if (path[at] && path[at] != '/')
            continue;
        memcpy(part, path, at);
        part[at] = 0;
        fd = in_root(root, part, O_PATH);
        if (fd >= 0)
            close(fd);
        else
            r = errno == ENOENT ? make_one(root, part, is_file && !path[at]) : -errno;
    }
    fd = r < 0 ? r : in_root(root, path, O_PATH);
    if (fd < 0)
        gofer_die(-errno, "%s: cannot mount there: %s", path, strerror(r < 0 ? -r : errno));
    return fd;
}

/* The root that is seen is the upper half's: it looks as the image's. */
static void look_like(int image, const char *name)
{
    struct stat st;
    struct timespec t[2];

    if (fstat(image, &st) < 0 || chown(name, st.st_uid, st.st_gid) < 0 ||
        chmod(name, st.st_mode & 07777) < 0)
        gofer_die(-errno, "root: %s", strerror(errno));
    t[0] = st.st_atim;
    t[1] = st.st_mtim;
    (void)!utimensat(AT_FDCWD, name, t, 0);
}

/* On one tmpfs at `at`: the image, an empty upper half, the root that shows both. */
static int root_make(const char *image, const char *at)
{
    static const char *const memory[] = {"mode", "0755", "size", "1m", "nr_inodes", "1k", NULL};
    static const char *const layers[] = {"lowerdir", "lower",     "upperdir", "upper", "workdir",
                                         "work",     "userxattr", NULL,       NULL};
    static const char *const dirs[] = {"lower", "upper", "work", "root"};
    int lower = tree_take(image), layer, root;
    size_t i;

    layer = fs_new("tmpfs", memory, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    for (i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
        if (mkdirat(layer, dirs[i], 0755) < 0)
            gofer_die(-errno, "root: %s", strerror(errno));
    move_to(layer, open(at, O_PATH | O_DIRECTORY | O_CLOEXEC), at);
    if (chdir(at) < 0)
        gofer_die(-errno, "%s: %s", at, strerror(errno));
    look_like(lower, "upper");
    move_to(lower, open("lower", O_PATH | O_CLOEXEC), image);
    move_to(fs_new("overlay", layers, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV),
            open("root", O_PATH | O_CLOEXEC), "root");
    root = open("root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        gofer_die(-errno, "root: %s", strerror(errno));
    return root;
}

/* Its own processes only, and nobody else's way to it: never put anywhere. */
static int self_open(void)
{
    static const char *const options[] = {"subset", "pid", NULL};
    int proc = fs_new("proc", options, HIDDEN | MOUNT_ATTR_NOEXEC);
    int fd = openat(proc, "self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        gofer_die(-errno, "proc: %s", strerror(errno));
    return fd; /* the mount's descriptor stays open: it is what keeps the mount */
}

static void drop(uint32_t id)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    int cap;

    for (cap = 0; cap < 64; cap++)
        if (cap != CAP_DAC_READ_SEARCH && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 &&
            errno != EINVAL)
            gofer_die(-errno, "capability %d: cannot drop it: %s", cap, strerror(errno));
    data[0].effective = data[0].permitted = 1u << CAP_DAC_READ_SEARCH;
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
        gofer_die(-errno, "id %u: cannot become it: %s", id, strerror(errno));
    if (syscall(SYS_capset, &head, data) < 0)
        gofer_die(-errno, "capabilities: cannot drop them: %s", strerror(errno));
    if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        gofer_die(-errno, "no new privileges: %s", strerror(errno));
}

void gofer_place(int argc, char **argv, struct gofer_place *ret)
{
    int i, root;
    char *end = NULL;
    unsigned long id = argc < ARGS_FIXED ? 0 : strtoul(argv[3], &end, 10);

    if (argc < ARGS_FIXED || (argc - ARGS_FIXED) % ARGS_MOUNT || *end || !id || id >= UINT32_MAX)
        gofer_die(-EINVAL, "the gvisor-like backend starts this program, nobody else");
    umask(022);
    attributes(AT_FDCWD, "/", AT_RECURSIVE, 0, MS_PRIVATE_);
    ret->self_fd = self_open();
    root = root_make(argv[1], argv[2]);
    for (i = ARGS_FIXED; i < argc; i += ARGS_MOUNT)
        move_to(tree_take(argv[i]), target_open(root, argv[i + 1], argv[i + 2][0] == 'f'),
                argv[i + 1]);
    attributes(root, "", AT_EMPTY_PATH, HIDDEN, MS_PRIVATE_);
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0 || chdir("/") < 0)
        gofer_die(-errno, "root: cannot leave the host's: %s", strerror(errno));
    close(root);
    ret->root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret->root_fd < 0 || fchdir(ret->self_fd) < 0)
        gofer_die(-errno, "root: %s", strerror(errno));
    drop((uint32_t)id);
}
