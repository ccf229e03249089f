/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fs.h - files: what a descriptor is, names and what they lead to, the file systems.
 *
 * inode   a thing with a mode, an owner and a content; lives as long as somebody refers to it
 * dentry  a name in a directory; one that names nothing (inode NULL) is remembered, too
 * mount   a file system at a dentry
 * file    an open file: position, flags, reference to what it was opened by
 *
 * The root is memfs (fs/memfs.c): a tree in memory, of which a directory or file may begin as something of the image, behind
 * the gofer (fs/gofer.c). What the guest changes stays in memory; the image is never written, so what is cached of it
 * never is stale. proc, sys, dev, pts are file systems of their own.
 */
#ifndef SENTRY_FS_H
#define SENTRY_FS_H

#include "task.h"

#include <poll.h>
#include <sys/stat.h>

struct inode;
struct dentry;
struct mount;
struct file;
struct dir_context;
struct setattr;
struct memfs;

/* ---- what an open file does ---- */

enum file_kind { /* index of file_ops[], fs/file.c: a room adds its kind and its row */
                 FILE_REGULAR, /* memfs: content is inode->object */
                 FILE_DIRECTORY,
                 FILE_PATH, /* O_PATH */
                 FILE_PIPE, /* both ends of pipes, and FIFOs */
                 FILE_NULL,
                 FILE_ZERO,
                 FILE_FULL,
                 FILE_RANDOM, /* devices without state */
                 FILE_TTY,
                 FILE_PTMX,
                 FILE_EVENTFD,
                 FILE_TIMERFD,
                 FILE_SIGNALFD,
                 FILE_EPOLL,
                 FILE_INOTIFY,
                 FILE_PIDFD,
                 FILE_SOCKET,
                 FILE_SHM,  /* a segment of System V: no descriptor has it, areas hold it */
                 FILE_PROC, /* content made at open: file->data is struct text */
                 FILE_HOST, /* a stream of the host: the agent's link */
                 FILE_KINDS
};

struct file {
    uint32_t refs;
    uint16_t kind;    /* enum file_kind */
    uint16_t mode;    /* FMODE_* */
    uint32_t flags;   /* O_* that F_GETFL shows */
    uint32_t n_epoll; /* epoll items that watch it */
    int64_t position;
    struct inode *inode;   /* reference; NULL: none */
    struct dentry *dentry; /* reference; NULL: anonymous */
    struct mount *mount;
    struct cred *cred;   /* of the opener */
    void *data;          /* of its kind */
    void *epoll_items;   /* ipc/epoll.c: to be told when it is closed */
    int32_t owner;       /* F_SETOWN */
    uint32_t io_signal;  /* F_SETSIG */
    bool counted_writer; /* in inode->n_writers */
};
#define FMODE_READ 1u
#define FMODE_WRITE 2u
#define FMODE_SEEK 4u   /* has a position */
#define FMODE_STREAM 8u /* position is not used: read and write get position NULL */

struct file_ops {
    /* Bytes; 0 the end; -EAGAIN instead of waiting when O_NONBLOCK. position is read and moved; NULL for streams. */
    int64_t (*read)(struct file *file, struct uio *to, int64_t *position);
    int64_t (*write)(struct file *file, struct uio *from, int64_t *position);
    /* What is ready now (POLL*), and where to wait: adds `waiter` (may be NULL) to its queue. */
    uint32_t (*poll)(struct file *file, struct waiter *waiter);
    int64_t (*ioctl)(struct file *file, uint32_t request, uint64_t argument);
    int64_t (*seek)(struct file *file, int64_t offset, int whence);
    /* Entries from file->position on, in struct linux_dirent64 form, by dir_emit(). */
    int (*iterate)(struct file *file, struct dir_context *context);
    /* The object a mapping shows; -ENODEV without. */
    int (*map)(struct file *file, struct object **ret_object);
    int (*sync)(struct file *file);
    int64_t (*fallocate)(struct file *file, int mode, uint64_t offset, uint64_t size);
    void (*release)(struct file *file); /* last reference is gone */
    void (*flush)(struct file *file);   /* a descriptor of it was closed: locks */
};
extern const struct file_ops *const file_ops[FILE_KINDS];

struct file *file_new(enum file_kind kind,
                      uint32_t flags); /* one reference; mode by flags' access mode */
void file_get(struct file *file);
void file_put(struct file *file);
int64_t file_read(struct file *file, struct uio *to,
                  int64_t *position); /* checks mode; NULL: the file's own position */
int64_t file_write(struct file *file, struct uio *from, int64_t *position);
uint32_t file_poll(struct file *file, struct waiter *waiter);
/* Of the kernel's own, e.g. exec: whole read at an offset; bytes. */
int64_t file_read_at(struct file *file, void *buffer, size_t size, uint64_t offset);

/* ---- descriptors (fs/fdtable.c) ---- */

struct fdtable *fdtable_new(void);
int fdtable_fork(struct fdtable *from, struct fdtable **ret_table);
void fdtable_get(struct fdtable *table);
void fdtable_put(struct fdtable *table);
void fdtable_close_on_exec(struct fdtable *table);
int fd_install(struct file *file, uint32_t flags,
               int lowest); /* takes the reference when >= 0; flags: O_CLOEXEC; -EMFILE */
int fd_install_at(struct file *file, uint32_t flags, int fd);
struct file *fd_get(int fd);    /* a reference; NULL: -EBADF; also O_PATH ones */
struct file *fd_get_io(int fd); /* not O_PATH */
int fd_close(int fd);
/* In order: the first at or above fd that is open, or -1. For /proc/PID/fd. */
int fdtable_next(struct fdtable *table, int fd, struct file **ret_borrowed, uint32_t *ret_flags);

/* ---- inodes, dentries, mounts (fs/inode.c, fs/dentry.c, fs/path.c) ---- */

enum inode_kind { /* index of inode_ops[] */
                  INODE_MEMFS,
                  INODE_PROC,
                  INODE_SYS,
                  INODE_DEVPTS,
                  INODE_ANON,
                  INODE_SOCKET,
                  INODE_KINDS
};

struct inode {
    uint32_t refs;
    uint16_t kind, reserved;
    uint32_t mode, uid, gid, links;
    uint64_t number, device; /* st_ino; st_dev */
    uint64_t rdev;
    uint64_t size; /* of what has no object */
    struct timespec accessed, modified, changed, born;
    struct object *object; /* content of a regular file */
    void *data;            /* of its kind: pipe of a FIFO, text of a link, socket bound here … */
    uint32_t gofer,
        n_writers; /* handle in the gofer, 0: none; open for writing (ETXTBSY, leases) */
    uint32_t n_exec, dir_complete;            /* a directory whose every name is in memory */
    void *xattrs, *locks, *watches;           /* fs/xattr.c, fs/lock.c, fs/inotify.c */
    TAILQ_HEAD(dentry_list, dentry) children; /* of a directory's one dentry, for memfs */
    uint32_t n_children, flags;
    struct waitq waitq;
    struct memfs *super;       /* of INODE_MEMFS: the file system it is of */
    uint32_t seals, reserved2; /* F_SEAL_*, of a memfd */
    uint64_t cookies;          /* a directory's: the last position that was given */
    TAILQ_ENTRY(inode) image;  /* memfs: those of one bucket by number */
    struct inode
        *origin; /* memfs: the directory of the image that its handle can be asked of again */
    char *origin_name;
};

struct dentry {
    uint32_t refs;
    uint32_t length;
    struct dentry *parent; /* itself: a root */
    struct inode *inode;   /* NULL: the name is known to name nothing */
    struct mount *mounted; /* a file system above it */
    TAILQ_ENTRY(dentry) siblings;
    TAILQ_ENTRY(dentry) unused; /* of the list that memory is taken back from */
    struct dentry *hash_next;
    uint64_t cookie; /* position in its directory: d_off */
    bool on_unused, deleted;
    /* memfs. pinned: holds itself, for the guest made it what it is. in_image: the image has this name (then, without an
       inode, pinned: it was removed). unresolved: the image has it; type and number are known, the inode was not asked for. */
    bool pinned, in_image, unresolved, counted;
    uint8_t type; /* DT_* of an unresolved one */
    uint64_t number;
    char *name;
};

struct mount {
    uint32_t refs, id;
    struct mount *parent;
    struct dentry *at, *root;  /* mount point; root of what is mounted */
    const char *type, *source; /* arena strings */
    uint32_t flags;            /* MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC */
    TAILQ_ENTRY(mount) link;
    uint64_t limit, used; /* bytes of a tmpfs; 0: the cell's */
    void *data;
};
extern struct mount *root_mount;

struct path {
    struct mount *mount; /* references, both */
    struct dentry *dentry;
};
void path_put(struct path *path);
void path_get(const struct path *path);

struct inode_ops {
    /* Name of a directory whose dentry is not in memory: makes its dentry (also the one that names nothing). */
    int (*lookup)(struct dentry *directory, const char *name, size_t length,
                  struct dentry **ret_dentry);
    int (*create)(struct dentry *directory, struct dentry *dentry, uint32_t mode,
                  uint64_t rdev); /* any type but directory, link */
    int (*mkdir)(struct dentry *directory, struct dentry *dentry, uint32_t mode);
    int (*symlink)(struct dentry *directory, struct dentry *dentry, const char *target);
    int (*link)(struct dentry *directory, struct dentry *dentry, struct inode *inode);
    int (*unlink)(struct dentry *directory, struct dentry *dentry);
    int (*rmdir)(struct dentry *directory, struct dentry *dentry);
    int (*rename)(struct dentry *from_dir, struct dentry *from, struct dentry *to_dir,
                  struct dentry *to, unsigned flags);
    int64_t (*readlink)(struct inode *inode, char *buffer, size_t size); /* no NUL */
    /* Magic links of proc: where it leads, references; -ENOSYS: an ordinary link, see readlink. */
    int (*follow)(struct inode *inode, struct path *ret_path);
    int (*setattr)(struct inode *inode, const struct setattr *change);
    int (*getattr)(struct inode *inode, struct stat *ret); /* NULL: the members are right */
    /* Makes `file` (its kind is set by the file type before) what an open of this inode is. */
    int (*open)(struct inode *inode, struct file *file);
    void (*release)(struct inode *inode);
    /* Entries of an open directory from file->position on, without "." and ".." (positions 0 and 1), by dir_emit(). */
    int (*iterate)(struct file *file, struct dir_context *context);
};
extern const struct inode_ops *const inode_ops[INODE_KINDS];

struct setattr {
    unsigned valid; /* SETATTR_* */
    uint32_t mode, uid, gid;
    uint64_t size;
    struct timespec accessed, modified;
};
#define SETATTR_MODE 1u
#define SETATTR_UID 2u
#define SETATTR_GID 4u
#define SETATTR_SIZE 8u
#define SETATTR_ATIME 16u
#define SETATTR_MTIME 32u

struct inode *inode_new(enum inode_kind kind, uint32_t mode); /* times now, number next */
void inode_get(struct inode *inode);
void inode_put(struct inode *inode);
void dentry_get(struct dentry *dentry);
void dentry_put(struct dentry *dentry);
struct dentry *dentry_new(struct dentry *parent, const char *name, size_t length,
                          struct inode *inode); /* hashed */
struct dentry *dentry_find(struct dentry *parent, const char *name,
                           size_t length); /* in memory; a reference */
int inode_permission(struct inode *inode,
                     int may); /* 4 read, 2 write, 1 execute; current's fs ids */
/* Gives memory back: forgets unused names and clean pages; bytes. Called when memory or descriptors run out. */
uint64_t fs_shrink(uint64_t bytes);
/* Gives descriptors back, or what needs some; false: there are none to spare. Called when they run out. */
bool fs_free_descriptors(void);

#define LOOKUP_FOLLOW 1u /* a link at the end */
#define LOOKUP_PARENT 2u /* the directory of the last part, and that part */
#define LOOKUP_DIRECTORY 4u
#define LOOKUP_EMPTY 8u /* "" is dirfd itself */
/* dirfd: AT_FDCWD or a descriptor. name: the kernel's string. */
int path_lookup(int dirfd, const char *name, unsigned flags, struct path *ret_path);
int path_lookup_guest(int dirfd, uint64_t guest_name, unsigned flags, struct path *ret_path);
int path_open(int dirfd, const char *name, uint32_t flags, uint32_t mode, struct file **ret_file);
/* Name from the task's root; "(unreachable)" and " (deleted)" as Linux has them: length, -ENAMETOOLONG. */
int64_t path_name(const struct path *path, char *buffer, size_t size);
int mount_at(const char *type, const char *source, const char *target, uint32_t flags,
             struct dentry *root, struct mount **ret_mount);

struct fsctx { /* CLONE_FS */
    uint32_t refs, umask;
    struct path root, cwd;
};
struct fsctx *fsctx_new(void);
int fsctx_fork(struct fsctx *from, struct fsctx **ret);
void fsctx_get(struct fsctx *ctx);
void fsctx_put(struct fsctx *ctx);

struct dir_context {
    struct uio *to;
    bool full, old, fault; /* old: getdents */
    unsigned entries;
};
/* false: no room, stop. */
bool dir_emit(struct dir_context *context, const char *name, size_t length, uint64_t ino,
              uint8_t type, int64_t next_position);

/* ---- the image's files (fs/gofer.c; the protocol is ../gofer/protocol.h) ---- */

struct gofer_attr {
    uint32_t mode, uid, gid, links;
    uint64_t number, device, size, rdev;
    struct timespec accessed, modified, changed;
};
int gofer_connect(int host_fd, uint32_t *ret_root,
                  struct gofer_attr *ret_attr); /* once, before the filter */
/* All: 0 or -errno; handles of directories and files, given back by gofer_close. */
int gofer_walk(uint32_t directory, const char *name, size_t length, uint32_t *ret_handle,
               struct gofer_attr *ret_attr);
int gofer_open(uint32_t handle, int *ret_host_fd); /* read-only */
int64_t gofer_readlink(uint32_t handle, char *buffer, size_t size);
/* Some names of a directory from `*cookie` on, each by the function; 0 at the end. */
int gofer_readdir(uint32_t directory, uint64_t *cookie,
                  void (*each)(void *ctx, const char *name, size_t length, uint64_t number,
                               uint8_t type),
                  void *ctx);
int64_t gofer_getxattr(uint32_t handle, const char *name, void *buffer, size_t size);
int64_t gofer_listxattr(uint32_t handle, char *buffer, size_t size);
void gofer_close(uint32_t handle);

/* ---- file systems made at start (fs/setup.c): root from the gofer, /proc /sys /dev /dev/pts /dev/shm /tmp … ---- */

struct fs_mount { /* what the class asks for beside these */
    const char *target;
    uint64_t size; /* tmpfs */
    bool readonly;
};
int fs_setup(uint32_t gofer_root, const struct gofer_attr *attr, bool readonly_root,
             uint64_t disk_limit, const struct fs_mount *mounts, unsigned n_mounts);
/* The agent: a regular file, mode 0755, without a name; its content is a descriptor's, which it owns. */
int fs_program(int host_fd, uint64_t size, struct file **ret_file);
uint64_t fs_disk_used(void);         /* bytes of what the guest wrote to the root */
uint64_t fs_disk_refused(void);      /* times that its limit was met */
struct file *file_host(int host_fd); /* FILE_HOST; owns it */

/* ---- made for other rooms ---- */

void inotify_event(struct inode *inode, struct dentry *dentry, uint32_t mask, const char *name,
                   uint32_t cookie);                                           /* fs/inotify.c */
int pipe_new(struct file **ret_read, struct file **ret_write, uint32_t flags); /* ipc/pipe.c */
bool epoll_ready(void *item); /* ipc/epoll.c; whether somebody who waited was woken */
void epoll_file_gone(struct file *file);

#endif
