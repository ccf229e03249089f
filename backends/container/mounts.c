/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * mounts - the cell's file tree. Runs in the new processes, before any code of the cell.
 *
 * Two halves. mounts_open(), as root of the host, turns every host path into a detached mount:
 * nobody else sees it, its flags are final before it is attached, and no path of the host is needed
 * afterwards. mounts_build(), in the cell's own user and mount namespace, puts them together under
 * a new root and leaves the old one.
 *
 * Should: attach only to descriptors got by resolving inside the new root (openat2, no magic
 * links), because the image may hold any symbolic link. Mustn't: follow a link of the image with
 * the host's rights, leave any writable place that is not on the one tmpfs whose size is the disk
 * limit. User mounts come before /proc, /sys and /dev, so that none of them can shadow those.
 *
 * New mount calls only (open_tree, fsopen, move_mount, mount_setattr: Linux 5.12). No allocation:
 * this is between fork and exec. Threads: one.
 */
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include "container.h"
#include "look.h"

#define MS_PRIVATE_ (1u << 18)
#define MS_REC_ 16384u
#define UMOUNT_DETACH 2

static int sys_mount_setattr(int fd, const char *path, unsigned flags, struct mount_attr *a)
{
    return (int)syscall(SYS_mount_setattr, fd, path, flags, a, sizeof(*a));
}

static int sys_open_tree(int fd, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, fd, path, flags);
}

static int sys_move_mount(int fd, int target)
{
    return (int)syscall(SYS_move_mount, fd, "", target, "",
                        MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
}

/* ------------------------------------------------------------- first half: host root */

/* A user's source has been judged by the core under its real path. Between then and now somebody may have put a link or
   another kind of file there: no link is followed any more, and only what was promised is taken. */
static int source_open(const struct launch *l, const struct cella_mount *m)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, m->source, &how, sizeof(how));
    struct stat st;

    if (fd < 0)
        child_fail(l, -errno, STEP_MOUNT, "mount source %s: %s%s", m->source, strerror(errno),
                   errno == ELOOP ? "; a part of it is a symbolic link: give the real path" : "");
    if (fstat(fd, &st) < 0 ||
        !(m->flags & CELLA_MOUNT_FILE ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode)))
        child_fail(l, -EINVAL, STEP_MOUNT, "mount source %s: not a %s", m->source,
                   m->flags & CELLA_MOUNT_FILE ? "regular file" : "directory");
    return fd;
}

/* A detached copy of one host mount, private, with `attr`. at, rel: as openat(); path: for messages. idmap: owner ids
   shifted into the cell's range where the file system can; *ret_idmapped says so. */
static int tree_take(const struct launch *l, int at, const char *rel, const char *path,
                     uint64_t attr, int idmap, int *ret_idmapped)
{
    struct mount_attr a = {.attr_set = attr, .propagation = MS_PRIVATE_};
    int fd = sys_open_tree(
        at, rel, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);

    if (fd < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: cannot use it as a mount source: %s", path,
                   strerror(errno));
    if (idmap) {
        struct mount_attr m = a;
        m.attr_set |= MOUNT_ATTR_IDMAP;
        m.userns_fd = (uint64_t)l->userns_fd;
        if (sys_mount_setattr(fd, "", AT_EMPTY_PATH, &m) == 0) {
            *ret_idmapped = 1;
            return fd;
        }
        if (errno != EINVAL && errno != EOPNOTSUPP && errno != ENOSYS && errno != EPERM)
            child_fail(l, -errno, STEP_MOUNT, "%s: cannot map owner ids: %s", path,
                       strerror(errno));
        *ret_idmapped = 0;
    }
    if (sys_mount_setattr(fd, "", AT_EMPTY_PATH, &a) < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: cannot set mount options: %s", path,
                   strerror(errno));
    return fd;
}

static int fs_new(const struct launch *l, const char *type, const char *const *options,
                  uint64_t attr)
{
    int fs = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC), fd;

    if (fs < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: this kernel cannot mount it: %s", type,
                   strerror(errno));
    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "source", type, 0); /* only what df shows */
    for (; options && options[0]; options += 2)
        if (syscall(SYS_fsconfig, fs, options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG,
                    options[0], options[1], 0) < 0)
            child_fail(l, -errno, STEP_MOUNT, "%s: option %s=%s: %s", type, options[0],
                       options[1] ? options[1] : "", strerror(errno));
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: cannot create the file system: %s", type,
                   strerror(errno));
    fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attr);
    if (fd < 0)
        child_fail(
            l, -errno, STEP_MOUNT, "%s: cannot mount it in the cell: %s%s", type, strerror(errno),
            errno == EPERM ? "; parts of the host's own are covered (is cella inside a container?)"
                           : "");
    close(fs);
    return fd;
}

static const struct {
    const char *name;
    unsigned minor, major;
} nodes[] = {{"null", 3, 1},   {"zero", 5, 1},    {"full", 7, 1},
             {"random", 8, 1}, {"urandom", 9, 1}, {"tty", 0, 5}};

static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                       {"/proc/self/fd/0", "stdin"},
                                       {"/proc/self/fd/1", "stdout"},
                                       {"/proc/self/fd/2", "stderr"},
                                       {"pts/ptmx", "ptmx"}};

/* Device nodes need the host's root to make and a file system of the host's to work. */
static int dev_open(const struct launch *l)
{
    static const char *const options[] = {"size", "64k", "nr_inodes", "32", "mode", "0755", NULL};
    static const char *const dirs[] = {"pts", "shm", "mqueue"};
    uid_t base = l->spec->uid_base;
    int fd = fs_new(l, "tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC), r;
    size_t i;

    r = fchownat(fd, "", base, base, AT_EMPTY_PATH);
    for (i = 0; r == 0 && i < ARRAY_LEN(nodes); i++) {
        r = mknodat(fd, nodes[i].name, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor));
        if (r == 0)
            r = fchownat(fd, nodes[i].name, base, base, AT_SYMLINK_NOFOLLOW);
    }
    for (i = 0; r == 0 && i < ARRAY_LEN(links); i++) {
        r = symlinkat(links[i][0], fd, links[i][1]);
        if (r == 0)
            r = fchownat(fd, links[i][1], base, base, AT_SYMLINK_NOFOLLOW);
    }
    for (i = 0; r == 0 && i < ARRAY_LEN(dirs); i++)
        r = mkdirat(fd, dirs[i], 0755);
    if (r < 0)
        child_fail(l, -errno, STEP_MOUNT, "/dev: cannot create its entries: %s", strerror(errno));
    return fd;
}

void mounts_open(struct launch *l)
{
    const struct cella_spec *spec = l->spec;
    const uint64_t safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
    uint32_t i;

    l->root_fd =
        tree_take(l, AT_FDCWD, spec->root, spec->root, safe | MOUNT_ATTR_RDONLY, 1, &l->idmapped);
    for (i = 0; i < spec->n_mounts; i++) {
        const struct cella_mount *m = spec_mount(spec, i);
        int idmapped = 0, fd;
        l->mount_fds[i] = -1;
        if (m->type == CELLA_MOUNT_TMPFS)
            continue;
        if (m->flags & CELLA_MOUNT_IMAGE) {
            l->mount_fds[i] = tree_take(l, AT_FDCWD, m->source, m->source, safe | MOUNT_ATTR_RDONLY,
                                        1, &idmapped);
            continue;
        }
        fd = source_open(l, m);
        l->mount_fds[i] = tree_take(
            l, fd, "", m->source, safe | (m->flags & CELLA_MOUNT_WRITABLE ? 0 : MOUNT_ATTR_RDONLY),
            0, &idmapped);
        close(fd);
    }
    l->dev_fd = dev_open(l);
}

/* ------------------------------------------------- second half: the cell's namespaces */

static int in_root(int root, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* The place to mount on; made, with its parents, when missing. */
static int target_open(const struct launch *l, int root, const char *path, int is_file)
{
    char part[4096];
    size_t n = strlen(path), at;
    int fd = in_root(root, path, O_PATH);

    if (fd >= 0)
        return fd;
    if (n >= sizeof(part) || path[0] != '/')
        child_fail(l, -EINVAL, STEP_MOUNT, "%s: not a usable path in the cell", path);
    for (at = 1; errno == ENOENT && at <= n; at++) {
        const char *slash;
        int dir, made;
        if (path[at] && path[at] != '/')
            continue;
        memcpy(part, path, at);
        part[at] = 0;
        fd = in_root(root, part, O_PATH);
        if (fd >= 0) {
            close(fd);
            errno = ENOENT;
            continue;
        }
        slash = strrchr(part, '/');
        part[slash - part] = 0;
        dir = in_root(root, part[0] ? part : "/", O_PATH | O_DIRECTORY);
        if (dir < 0)
            break;
        if (is_file && !path[at]) {
            made = openat(dir, slash + 1, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
            if (made >= 0)
                close(made);
        } else {
            made = mkdirat(dir, slash + 1, 0755);
        }
        close(dir);
        if (made < 0 && errno != EEXIST)
            break;
        errno = ENOENT;
    }
    fd = in_root(root, path, O_PATH);
    if (fd < 0)
        child_fail(l, -errno, STEP_MOUNT,
                   "%s: cannot mount there: %s; the image must have that path or a writable parent",
                   path, strerror(errno));
    return fd;
}

/* Takes fd. */
static void attach(const struct launch *l, int root, int own_fd, const char *path, int is_file)
{
    int target = target_open(l, root, path, is_file);

    if (sys_move_mount(own_fd, target) < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: cannot mount there: %s", path, strerror(errno));
    close(target);
    close(own_fd);
}

/* A directory of the layer, shown at `path`. */
static void attach_layer(const struct launch *l, int root, int layer, const char *dir,
                         const char *path)
{
    int fd = sys_open_tree(layer, dir, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

    if (fd < 0)
        child_fail(l, -errno, STEP_MOUNT, "writable layer, %s: %s", dir, strerror(errno));
    attach(l, root, fd, path, 0);
}

static const struct {
    const char *name;
    unsigned mode;
} layer_dirs[] = {{"upper", 0755}, {"work", 0755},   {"root", 0755}, {"lower", 0755},
                  {"empty", 0555}, {"tmp", 01777},   {"run", 0755},  {"shm", 01777},
                  {"home", 0700},  {"vartmp", 01777}};

/* The one tmpfs that everything writable lies on. Mounted over /proc: a directory that every host
   has, and only in this mount namespace. */
static int layer_make(const struct launch *l)
{
    char size[32], inodes[32];
    uint64_t bytes = l->spec->limits ? l->spec->limits->disk_bytes : 0;
    const char *options[] = {"mode", "0711", NULL, NULL, NULL, NULL, NULL};
    int fd, target;
    size_t i;

    if (bytes) {
        uint64_t n = bytes / DISK_INODE_BYTES;
        snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
        snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)(n < 4096 ? 4096 : n));
        options[2] = "size";
        options[3] = size;
        options[4] = "nr_inodes";
        options[5] = inodes;
    }
    fd = fs_new(l, "tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    for (i = 0; i < ARRAY_LEN(layer_dirs); i++)
        if (mkdirat(fd, layer_dirs[i].name, layer_dirs[i].mode) < 0)
            child_fail(l, -errno, STEP_MOUNT, "writable layer: %s%s", strerror(errno),
                       errno == ENOSPC ? "; the disk limit is too small" : "");
    target = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (target < 0 || sys_move_mount(fd, target) < 0)
        child_fail(l, -errno, STEP_MOUNT, "writable layer: cannot mount it: %s", strerror(errno));
    close(target);
    return fd;
}

static int root_make(const struct launch *l, int layer)
{
    static const char *const options[] = {"lowerdir", "lower",     "upperdir", "upper", "workdir",
                                          "work",     "userxattr", NULL,       NULL};
    int fd, target, root;

    target = openat(layer, "lower", O_PATH | O_CLOEXEC);
    if (target < 0 || sys_move_mount(l->root_fd, target) < 0)
        child_fail(l, -errno, STEP_MOUNT, "%s: cannot mount the image: %s", l->spec->root,
                   strerror(errno));
    close(target);
    if (fchdir(layer) < 0)
        child_fail(l, -errno, STEP_MOUNT, "writable layer: %s", strerror(errno));
    fd = fs_new(l, "overlay", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    target = openat(layer, "root", O_PATH | O_CLOEXEC);
    if (target < 0 || sys_move_mount(fd, target) < 0)
        child_fail(l, -errno, STEP_MOUNT, "root: cannot mount it: %s", strerror(errno));
    close(target);
    close(fd);
    root = openat(layer, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        child_fail(l, -errno, STEP_MOUNT, "root: cannot open it: %s", strerror(errno));
    return root;
}

static void user_mounts(const struct launch *l, int root, int image)
{
    uint32_t i;

    for (i = 0; i < l->spec->n_mounts; i++) {
        const struct cella_mount *m = spec_mount(l->spec, i);
        int fd = l->mount_fds[i];
        char size[32];
        const char *options[] = {"mode", "0755", NULL, NULL, NULL};
        if (((m->flags & CELLA_MOUNT_IMAGE) != 0) != image)
            continue;
        if (m->type == CELLA_MOUNT_TMPFS) {
            if (m->size_bytes) {
                snprintf(size, sizeof(size), "%llu", (unsigned long long)m->size_bytes);
                options[2] = "size";
                options[3] = size;
            }
            fd = fs_new(l, "tmpfs", options,
                        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                            (m->flags & CELLA_MOUNT_WRITABLE ? 0 : MOUNT_ATTR_RDONLY));
        }
        attach(l, root, fd, m->target, (m->flags & CELLA_MOUNT_FILE) != 0);
    }
}

static const char *const masked[] = {LOOK_MASKED}, *const frozen[] = {LOOK_FROZEN};

/* What shows the host: files become /dev/null, directories an empty one. Owners are seen from the cell's user
   namespace, where the host's root is somebody without a number. */
static void mask(const struct launch *l, int root, int layer)
{
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                        MOUNT_ATTR_NOEXEC};
    int empty = sys_open_tree(layer, "empty", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), null;
    size_t i;

    if (empty < 0 || sys_mount_setattr(empty, "", AT_EMPTY_PATH, &ro) < 0)
        child_fail(l, -errno, STEP_MOUNT, "masked paths: %s", strerror(errno));
    attach(l, root, empty, "/dev/mqueue", 0); /* a place to clone it from until mqueue covers it */
    empty = in_root(root, "/dev/mqueue", O_PATH);
    null = in_root(root, "/dev/null", O_PATH);
    if (empty < 0 || null < 0)
        child_fail(l, -errno, STEP_MOUNT, "masked paths: %s", strerror(errno));
    for (i = 0; i < ARRAY_LEN(masked); i++) {
        struct stat st;
        int fd, target = in_root(root, masked[i], O_PATH);
        if (target < 0)
            continue;
        if (fstat(target, &st) < 0)
            st.st_mode = S_IFREG | 0444;
        if (st.st_uid != 0 && !(st.st_mode & 0077)) {
            close(
                target); /* of the host's root, and for nobody else: no capability of the cell's opens it */
            continue;
        }
        fd = sys_open_tree(S_ISDIR(st.st_mode) ? empty : null, "",
                           OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (fd < 0 || sys_move_mount(fd, target) < 0)
            child_fail(l, -errno, STEP_MOUNT, "%s: cannot mask it: %s", masked[i], strerror(errno));
        close(fd);
        close(target);
    }
    close(null);
    close(empty);
    for (i = 0; i < ARRAY_LEN(frozen); i++) {
        int target = in_root(root, frozen[i], O_PATH), fd;
        if (target < 0)
            continue;
        fd = sys_open_tree(target, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (fd < 0 || sys_mount_setattr(fd, "", AT_EMPTY_PATH, &ro) < 0 ||
            sys_move_mount(fd, target) < 0)
            child_fail(l, -errno, STEP_MOUNT, "%s: cannot make it read-only: %s", frozen[i],
                       strerror(errno));
        close(fd);
        close(target);
    }
}

static void system_mounts(const struct launch *l, int root, int layer)
{
    static const char *const pts[] = {"ptmxmode", "0666", "mode", "0620", "gid",
                                      "5",        "max",  "256",  NULL};
    const uint64_t safe = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    struct mount_attr ro = {.attr_set = MOUNT_ATTR_RDONLY};

    /* while the host's own are still in this namespace: the kernel wants to see them whole */
    int proc = fs_new(l, "proc", NULL, safe);
    int sys = fs_new(l, "sysfs", NULL, safe | MOUNT_ATTR_RDONLY);

    attach(l, root, proc, "/proc", 0);
    attach(l, root, sys, "/sys", 0);
    attach(l, root, dup(l->dev_fd), "/dev", 0);
    mask(l, root, layer);
    attach(l, root, fs_new(l, "devpts", pts, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC), "/dev/pts", 0);
    attach(l, root, fs_new(l, "mqueue", NULL, safe), "/dev/mqueue", 0);
    attach_layer(l, root, layer, "shm", "/dev/shm");
    if (sys_mount_setattr(l->dev_fd, "", AT_EMPTY_PATH, &ro) < 0)
        child_fail(l, -errno, STEP_MOUNT, "/dev: cannot make it read-only: %s", strerror(errno));
}

/* Where programs expect to write although the root is read-only, or its owner ids are not the
 * cell's. */
static void writable_places(const struct launch *l, int root, int layer)
{
    int whole = !(l->spec->hdr.flags & CELLA_SPEC_READONLY_ROOT) && l->idmapped;
    int fd;

    if (whole) {
        mkdirat(root, "tmp", 01777); /* or it is there already, as the image's */
        return;
    }
    attach_layer(l, root, layer, "tmp", "/tmp");
    attach_layer(l, root, layer, "run", "/run");
    attach_layer(l, root, layer, "home", "/root");
    fd = in_root(root, "/var/tmp", O_PATH | O_DIRECTORY);
    if (fd >= 0) {
        close(fd);
        attach_layer(l, root, layer, "vartmp", "/var/tmp");
    }
}

int mounts_build(struct launch *l)
{
    struct mount_attr private = {.propagation = MS_PRIVATE_}, ro = {.attr_set = MOUNT_ATTR_RDONLY};
    int layer, root;

    if (sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &private) < 0)
        child_fail(l, -errno, STEP_MOUNT, "mount propagation: %s", strerror(errno));
    layer = layer_make(l);
    root = root_make(l, layer);
    user_mounts(l, root, 1);
    writable_places(l, root, layer);
    user_mounts(l, root, 0);
    system_mounts(l, root, layer);
    if ((l->spec->hdr.flags & CELLA_SPEC_READONLY_ROOT) &&
        sys_mount_setattr(root, "", AT_EMPTY_PATH, &ro) < 0)
        child_fail(l, -errno, STEP_MOUNT, "root: cannot make it read-only: %s", strerror(errno));
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
        syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0 || chdir("/") < 0)
        child_fail(l, -errno, STEP_MOUNT, "root: cannot leave the host's: %s", strerror(errno));
    close(root);
    return layer;
}
