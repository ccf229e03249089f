/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vfs.h - what the files of this room share, and a few calls of others (unix sockets make names).
 */
#ifndef SENTRY_VFS_H
#define SENTRY_VFS_H

#include "ipc/ipc.h"

#include <limits.h>

/* ---- state of the room: in the arena, by one pointer ---- */

#define FS_BUCKETS_MIN 4096u

TAILQ_HEAD(mount_list, mount);
struct fs_state {
    struct dentry **names; /* by parent and name */
    uint32_t n_buckets, n_names;
    struct dentry_list unused; /* nobody refers to them: memory is taken back from the first */
    uint32_t n_unused, next_mount;
    uint64_t next_inode, next_device;
    struct mount_list mounts;
    struct memfs *root;      /* of the root file system */
    struct memfs *anonymous; /* memfd, O_TMPFILE without a name */
    uint32_t rename_cookie;
    uint32_t hold; /* memory is not to be taken back just now */
};
extern struct fs_state *fs_state;
int fs_state_init(void); /* once, and by tests */

/* ---- inodes (inode.c) ---- */

#define INODE_DIRTY 1u  /* the guest changed it: not to be forgotten */
#define INODE_XATTRS 2u /* its extended attributes are all in memory */
#define INODE_KEPT                                                                                 \
    4u /* a reference of its own: names of the image that are not in memory lead to it */
#define INODE_HASHED 8u   /* in its file system's table of inodes of the image */
#define INODE_UNNAMED 16u /* O_TMPFILE: may get a name by linkat; the memfd: may not */

size_t number_text(char *to, uint64_t number); /* decimal, no NUL: digits */
struct timespec now_coarse(void);              /* CLOCK_REALTIME */
/* Something of it changed: ctime, and it stays in memory. */
void inode_changed(struct inode *inode);
void inode_modified(struct inode *inode); /* content: mtime, too */
void inode_accessed(struct file *file);   /* relatime */
/* chmod, chown, utimes, truncate of a system call, judged and done; mode bits that an owner's change clears. */
#define SETATTR_KILL 256u /* beside fs.h's: a chown, which takes set-id bits */
int inode_setattr(struct inode *inode, struct setattr *change);
int inode_kill_privileges(struct inode *inode); /* a write: set-id bits go */
bool inode_owner_or_capable(const struct inode *inode);
/* May current take `victim` out of `directory` (sticky bit)? */
int inode_may_delete(const struct inode *directory, const struct inode *victim);
int inode_getattr(struct inode *inode, struct stat *ret);
void inode_free_xattrs(struct inode *inode);
/* A new one's owner and mode in a directory: set-gid directories. */
uint32_t inode_new_mode(const struct inode *directory,
                        uint32_t mode); /* of a file that is made there */
void inode_init_owner(struct inode *inode, const struct inode *directory);

/* ---- dentries (dentry.c) ---- */

void dentry_pin(struct dentry *dentry);
void dentry_unpin(struct dentry *dentry);
void dentry_unhash(struct dentry *dentry); /* its name is gone; who refers to it keeps it */
void dentry_tell_gone(
    struct dentry *dentry); /* to who watches: its last user goes, and it has no name */
int dentry_rename(struct dentry *dentry, struct dentry *directory, const char *name, size_t length);
int dentry_exchange(struct dentry *a, struct dentry *b);
bool dentry_is_below(const struct dentry *dentry, const struct dentry *ancestor); /* or equal */
bool dentry_cached_kind(const struct dentry *directory);
struct dentry *dentry_root(struct inode *inode);
struct dentry *dentry_detached(struct dentry *parent, const char *name, struct inode *inode);
void dentry_to_end(struct dentry *dentry);
void dentry_place(struct dentry *dentry, struct dentry *before, uint64_t position);

/* ---- the walk (path.c) ---- */

#define RESOLVE_NO_XDEV 1u
#define RESOLVE_NO_MAGICLINKS 2u
#define RESOLVE_NO_SYMLINKS 4u
#define RESOLVE_BENEATH 8u
#define RESOLVE_IN_ROOT 16u
#define RESOLVE_CACHED 32u
#define LINKS_MAX 40
#define LOOKUP_OPENER 256u /* beside fs.h's: dirfd must be of current's own opening */

enum last_kind { LAST_NAME, LAST_DOT, LAST_DOTDOT, LAST_NONE /* "/" or nothing */ };

struct walk {
    struct path at;    /* where it is; references */
    struct path root;  /* references */
    struct path start; /* borrowed of `root`'s kind: RESOLVE_BENEATH; no references of its own */
    unsigned flags;    /* LOOKUP_* */
    unsigned resolve;  /* RESOLVE_* */
    unsigned links, depth;
    const char *rest;
    struct {
        char *text; /* malloc */
        const char *rest;
    } stack[LINKS_MAX + 1];
    char *text; /* what `rest` points into, when it is of a link */
    enum last_kind kind;
    bool slash;  /* something followed the last part: it is to be a directory */
    bool rooted; /* it has been at, or asked for, its root */
    bool final;  /* nothing but slashes comes after `last` */
    size_t length;
    char last[NAME_MAX + 1];
};

int walk_judge_opener(const struct file *file, unsigned flags);
int walk_begin(struct walk *walk, int dirfd, const char *name, unsigned flags, unsigned resolve);
void walk_end(struct walk *walk);
int walk_parent(struct walk *walk); /* at: the directory of the last part; kind, last: that part */
int walk_last(struct walk *walk);   /* and on to what it names */
int walk_finish(struct walk *walk); /* the second half, after walk_parent */
/* The last part's dentry, also a negative one. kind is LAST_NAME. */
int walk_child(struct walk *walk, struct dentry **ret_child);
int walk_follow(struct walk *walk, struct dentry *link); /* the walk goes on at the link's text */
void walk_cross(struct walk *walk, struct path *path);   /* what is mounted there */
/* A name of the guest's: its length. "" is -ENOENT unless LOOKUP_EMPTY. */
int64_t name_in(char buffer[PATH_MAX], uint64_t guest_name, unsigned flags);
/* What *at(dirfd, name, flags) acts on; also a descriptor without a name. mount may be NULL. */
struct target {
    struct path path; /* dentry NULL: by a descriptor */
    struct inode *inode;
    struct file *file;
    bool empty; /* the name was "" */
};
int target_find(int dirfd, uint64_t guest_name, unsigned flags, struct target *ret);
int target_of_fd(int fd, bool path_too, struct target *ret);
void target_put(struct target *target);
int target_writable(const struct target *target); /* -EROFS */

/* ---- mounts (mount.c) ---- */

struct mount *mount_find(const struct mount *parent, const struct dentry *at);
void mount_get(struct mount *mount);
void mount_put(struct mount *mount);
int mount_writable(const struct mount *mount);

/* ---- names (namei.c, open.c) ---- */

/* Makes a name of any type but directory and link. ret_path may be NULL. */
int vfs_mknod(int dirfd, const char *name, uint32_t mode, uint64_t rdev, struct path *ret_path);
int vfs_create(struct path *directory, struct dentry *child, uint32_t mode, uint64_t rdev);
int open_resolved(int dirfd, const char *name, uint32_t flags, uint32_t mode, unsigned resolve,
                  struct file **ret_file);
/* An open file of an inode; path's dentry may be NULL. */
int open_inode(const struct path *path, struct inode *inode, uint32_t flags,
               struct file **ret_file);

/* What changed, for inotify: the parent's watches and its own. */
void fs_notify(struct dentry *dentry, uint32_t mask);
void fs_notify_file(struct file *file, uint32_t mask);

/* ---- memfs (memfs.c, memfs_file.c, memfs_image.c) ---- */

#define MEMFS_BUCKETS 1024u
struct memfs {
    uint32_t refs; /* inodes and mounts */
    uint32_t magic;
    uint64_t device;
    struct object_account account;
    /* What the guest made: names, and bytes that no page holds (links' texts, extended attributes). Both are memory of
       the sentry's own, so they are bounded. */
    uint64_t n_names, max_names, n_bytes;
    TAILQ_HEAD(inode_list, inode) * image; /* inodes of the image by number; NULL: none */
};
struct memfs *memfs_new(uint64_t limit, uint64_t max_names, bool image);
int memfs_charge_bytes(struct memfs *memfs, size_t bytes); /* -ENOSPC */
void memfs_give_bytes(struct memfs *memfs, size_t bytes);
void memfs_put(struct memfs *memfs);
struct inode *memfs_inode(struct memfs *memfs, uint32_t mode);
int memfs_from_image(struct memfs *memfs, uint32_t handle, const struct gofer_attr *attr,
                     struct inode **ret_inode);
bool memfs_of_image(const struct inode *inode); /* it began as something of the image */
int memfs_handle(struct inode *inode);          /* inode->gofer is there */
/* Of a changed file that nobody uses: gives back what the gofer can give again; bytes. */
uint64_t memfs_thin(struct dentry *dentry);
int memfs_complete(struct dentry *directory); /* every name of it is in memory */
int memfs_object(struct inode *inode);        /* its content is there: inode->object */
int memfs_truncate(struct inode *inode, uint64_t size);
int memfs_open(struct inode *inode, struct file *file);
void memfs_release_content(struct inode *inode);
int memfs_iterate(struct file *file, struct dir_context *context);
int64_t memfs_readlink(struct inode *inode, char *buffer, size_t size);
int memfs_rename(struct dentry *from_dir, struct dentry *from, struct dentry *to_dir,
                 struct dentry *to, unsigned flags);
int memfs_lookup(struct dentry *directory, const char *name, size_t length,
                 struct dentry **ret_dentry);
/* An image inode whose only other names are out of memory and which changed: it must stay. */
void memfs_keep(struct inode *inode);
void memfs_unkeep(struct inode *inode);
#define SEALS_ALL (1u | 2u | 4u | 8u | 16u)

/* ---- descriptors (fdtable.c) ---- */

int fd_flags(int fd, int set); /* F_GETFD, F_SETFD; set < 0: only asks */
int64_t fd_dup(int fd, uint32_t flags, uint64_t lowest);

/* ---- devices (device.c), locks (lock.c) ---- */

int device_open(struct inode *inode, struct file *file);
bool device_known(uint32_t mode, uint64_t rdev);
struct fdtable;
void locks_remove_posix(struct inode *inode, const struct fdtable *table);
void locks_remove_file(struct file *file); /* flock and OFD locks: the last reference is gone */
int64_t lock_fcntl(struct file *file, int fd, int command, uint64_t argument);
/* Bytes of a file's locks for /proc/locks are not kept. */
void locks_free(struct inode *inode);

/* ---- rlimits ---- */

uint64_t limit_file_size(void);
/* How much of a write of `size` at `position` the limit allows; -EFBIG (and SIGXFSZ). */
int64_t limit_write(uint64_t position, uint64_t size);

/* ---- of other rooms, until their headers say it ---- */

void socket_inode_release(struct inode *inode); /* ipc: a name of a socket dies, with data */

#define FS_MAX_BYTES ((uint64_t)INT64_MAX & PAGE_MASK)

#endif
