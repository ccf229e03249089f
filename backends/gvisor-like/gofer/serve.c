/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * serve - one request to one answer, on descriptors alone.
 *
 *   Should: judge a request whole before anything is done for it; open what is read by the descriptor that the walk gave
 *   (its number in /proc/self/fd leads to exactly that file, whatever its name leads to by now).
 *   Mustn't: take a path, follow a link, open what is not a regular file or a directory.
 *
 * @seccomp gofer: openat(2=O_PATH|O_NOFOLLOW|O_CLOEXEC) openat(2=O_RDONLY|O_DIRECTORY|O_CLOEXEC)
 * @seccomp gofer: openat(2=O_RDONLY|O_NOCTTY|O_NONBLOCK|O_CLOEXEC)
 * @seccomp gofer: fstat newfstatat(3=AT_EMPTY_PATH) readlinkat getdents64 lseek getxattr listxattr close
 *
 * Threads: one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "gofer.h"

#define SLOT_MASK (GOFER_SLOTS_MAX - 1)
#define GENERATION_MAX (1u << (32 - GOFER_SLOT_BITS))

struct linux_entry { /* of getdents64 */
    uint64_t number;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

int gofer_init(struct gofer *g, uint32_t slots, int own_root_fd, int borrow_self_fd)
{
    uint32_t i;

    g->slots = slots && slots <= GOFER_SLOTS_MAX ? calloc(slots, sizeof(*g->slots)) : NULL;
    if (!g->slots) {
        close(own_root_fd);
        return -ENOMEM;
    }
    g->n_slots = slots;
    for (i = 0; i < slots; i++)
        g->slots[i] = (struct gofer_slot){.fd = -1, .generation = 1, .next = i + 1};
    g->slots[0].fd = own_root_fd;
    g->slots[0].mode = S_IFDIR;
    g->free = 1;
    g->self_fd = borrow_self_fd;
    return 0;
}

void gofer_fini(struct gofer *g)
{
    uint32_t i;

    for (i = 0; i < g->n_slots; i++)
        if (g->slots[i].fd >= 0)
            close(g->slots[i].fd);
    free(g->slots);
    g->slots = NULL;
    g->n_slots = 0;
}

/* Takes fd. */
static uint32_t slot_put(struct gofer *g, int own_fd, uint32_t mode)
{
    uint32_t i = g->free;
    struct gofer_slot *s = &g->slots[i];

    g->free = s->next;
    s->fd = own_fd;
    s->mode = mode & S_IFMT;
    return s->generation << GOFER_SLOT_BITS | i;
}

static struct gofer_slot *slot_get(struct gofer *g, uint32_t handle)
{
    uint32_t i = handle & SLOT_MASK;

    if (i >= g->n_slots || g->slots[i].fd < 0 ||
        g->slots[i].generation != handle >> GOFER_SLOT_BITS)
        return NULL;
    return &g->slots[i];
}

static void slot_close(struct gofer *g, struct gofer_slot *s)
{
    close(s->fd);
    s->fd = -1;
    s->generation = s->generation + 1 == GENERATION_MAX ? 1 : s->generation + 1;
    s->next = g->free;
    g->free = (uint32_t)(s - g->slots);
}

static struct gofer_time time_of(const struct timespec *t)
{
    return (struct gofer_time){.seconds = t->tv_sec, .nanoseconds = (uint32_t)t->tv_nsec};
}

static int attr_of(int fd, struct gofer_file *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (struct gofer_file){.mode = st.st_mode,
                               .uid = st.st_uid,
                               .gid = st.st_gid,
                               .links = (uint32_t)st.st_nlink,
                               .number = st.st_ino,
                               .device = st.st_dev,
                               .size = (uint64_t)st.st_size,
                               .rdev = st.st_rdev,
                               .accessed = time_of(&st.st_atim),
                               .modified = time_of(&st.st_mtim),
                               .changed = time_of(&st.st_ctim)};
    return 0;
}

static int walk(struct gofer *g, struct gofer_slot *s, const struct gofer_request *q,
                struct gofer_reply *ret)
{
    int fd, r;

    if (s->mode != S_IFDIR)
        return -ENOTDIR;
    if (g->free == g->n_slots)
        return -EMFILE;
    fd = openat(s->fd, q->name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENFILE ? -EMFILE : -errno;
    r = attr_of(fd, &ret->attr);
    if (r < 0) {
        close(fd);
        return r;
    }
    ret->handle = slot_put(g, fd, ret->attr.mode);
    return 0;
}

static void self_name(const struct gofer_slot *s, char name[16])
{
    snprintf(name, 16, "%d", s->fd);
}

static int open_file(struct gofer *g, struct gofer_slot *s, int *ret_fd)
{
    char name[16];
    struct stat st;
    int fd;

    if (s->mode != S_IFREG)
        return -EINVAL;
    self_name(s, name);
    fd = openat(g->self_fd, name, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno == ENFILE ? -EMFILE : -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EINVAL;
    }
    *ret_fd = fd;
    return 0;
}

static int entry_add(struct gofer_reply *ret, const struct linux_entry *e)
{
    size_t n = strlen(e->name);
    struct gofer_entry head = {.number = e->number, .type = e->type, .length = (uint8_t)n};

    if (n > GOFER_NAME_MAX)
        return 0; /* no name that a program could ask for */
    if (ret->length + sizeof(head) + n > sizeof(ret->data))
        return -ENOSPC;
    memcpy(ret->data + ret->length, &head, sizeof(head));
    memcpy(ret->data + ret->length + sizeof(head), e->name, n);
    ret->length += (uint32_t)(sizeof(head) + n);
    return 0;
}

static int is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* A page of the kernel's, packed, which makes it smaller. 0: the page is done, >0: it had bytes. */
static long page_read(struct gofer *g, int fd, struct gofer_reply *ret)
{
    long n = syscall(SYS_getdents64, fd, g->listing, sizeof(g->listing)), at;

    if (n <= 0)
        return n < 0 ? -errno : 0;
    for (at = 0; at < n;) {
        const struct linux_entry *e = (const void *)(g->listing + at);
        if (!is_dots(e->name) && entry_add(ret, e) < 0)
            break;
        ret->cookie = (uint64_t)e->next;
        at += e->size;
    }
    return n;
}

static int read_directory(struct gofer *g, struct gofer_slot *s, uint64_t cookie,
                          struct gofer_reply *ret)
{
    int fd;
    long n = 0;

    if (s->mode != S_IFDIR)
        return -ENOTDIR;
    fd = openat(s->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENFILE ? -EMFILE : -errno;
    if (cookie && lseek(fd, (off_t)cookie, SEEK_SET) < 0)
        n = -errno;
    ret->cookie = cookie;
    while (n >= 0 && !ret->length && (n = page_read(g, fd, ret)) > 0)
        ;
    close(fd);
    return n < 0 ? (int)n : 0;
}

static int bytes_of(struct gofer_reply *ret, ssize_t n)
{
    if (n < 0)
        return errno == ERANGE ? -E2BIG : -errno;
    ret->length = (uint32_t)n;
    return 0;
}

static int dispatch(struct gofer *g, struct gofer_slot *s, const struct gofer_request *q,
                    struct gofer_reply *ret, int *ret_fd)
{
    char name[16];

    self_name(s, name);
    switch ((enum gofer_op)q->op) {
    case GOFER_WALK:
        return walk(g, s, q, ret);
    case GOFER_ATTR:
        return attr_of(s->fd, &ret->attr);
    case GOFER_OPEN:
        return open_file(g, s, ret_fd);
    case GOFER_READLINK:
        return s->mode != S_IFLNK
                   ? -EINVAL
                   : bytes_of(ret, readlinkat(s->fd, "", ret->data, sizeof(ret->data)));
    case GOFER_READDIR:
        return read_directory(g, s, q->cookie, ret);
    case GOFER_GETXATTR:
        return bytes_of(ret, getxattr(name, q->name, ret->data, sizeof(ret->data)));
    case GOFER_LISTXATTR:
        return bytes_of(ret, listxattr(name, ret->data, sizeof(ret->data)));
    case GOFER_CLOSE:
        break;
    }
    return -EPROTO;
}

/* Whole: operation, handle, which members may be other than zero, the name. */
static int judge(const struct gofer_request *q)
{
    int named = q->op == GOFER_WALK || q->op == GOFER_GETXATTR;
    size_t i;

    if (q->op < GOFER_WALK || q->op > GOFER_CLOSE || q->reserved ||
        (q->cookie && q->op != GOFER_READDIR) || q->cookie > INT64_MAX)
        return -EPROTO;
    if (named ? !q->length || q->length > GOFER_NAME_MAX : q->length)
        return -EPROTO;
    if (memchr(q->name, 0, q->length))
        return -EPROTO;
    for (i = q->length; i < sizeof(q->name); i++)
        if (q->name[i])
            return -EPROTO;
    if (q->op == GOFER_WALK && (memchr(q->name, '/', q->length) || is_dots(q->name)))
        return -EPROTO;
    return 0;
}

int gofer_handle(struct gofer *g, const void *message, size_t size, struct gofer_reply *ret_reply,
                 int *ret_fd)
{
    struct gofer_request q;
    struct gofer_slot *s;
    int r;

    *ret_fd = -1;
    if (size != sizeof(q))
        return -EPROTO;
    memcpy(&q, message, sizeof(q));
    s = slot_get(g, q.handle);
    if (!s || judge(&q) < 0)
        return -EPROTO;
    if (q.op == GOFER_CLOSE) {
        if (s == g->slots)
            return -EPROTO;
        slot_close(g, s);
        return 0;
    }
    memset(ret_reply, 0, GOFER_REPLY_HEAD);
    r = dispatch(g, s, &q, ret_reply, ret_fd);
    if (r < 0) {
        memset(ret_reply, 0, GOFER_REPLY_HEAD);
        ret_reply->result = r;
    }
    return 1;
}
