/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tty - terminals as files: opening, /dev/pts, reading and writing at both ends, ioctls.
 * Invariants: a file of a terminal that was hung up since (file->position is not tty->hangs) is dead: it reads nothing, cannot write.
 * The name of a terminal lives as long as its master.
 * Threads: the kernel lock.
 */
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "fs/vfs.h"
#include "tty.h"

static struct tty_state *state(void)
{
    if (!ipc()->tty_state)
        ipc()->tty_state = arena_alloc(ARENA_BYTES, sizeof(struct tty_state));
    if (!ipc()->tty_state)
        kpanic("ipc: no memory for the table of terminals");
    return ipc()->tty_state;
}

struct tty *tty_find(uint32_t index)
{
    return index < PTYS_MAX ? state()->ttys[index] : NULL;
}

void tty_put(struct tty *tty)
{
    if (--tty->refs)
        return;
    state()->ttys[tty->index] = NULL;
    arena_free(tty);
}

/* ---- /dev/pts ---- */

static struct dentry *node_name(uint32_t index)
{
    char name[12];
    size_t length = number_text(name, index);
    struct dentry *dentry = dentry_find(state()->root, name, length);

    return dentry ? dentry : dentry_new(state()->root, name, length, NULL);
}

static int node_make(struct dentry *dentry, uint32_t mode, uint64_t rdev)
{
    return inode_ops[INODE_MEMFS]->create(state()->root, dentry, S_IFCHR | mode, rdev);
}

static int pts_add(struct tty *tty)
{
    struct dentry *dentry;
    int r;

    if (!state()->root)
        return 0;
    dentry = node_name(tty->index);
    if (!dentry)
        return -ENOMEM;
    r = dentry->inode ? 0 : node_make(dentry, 0620, makedev(136, tty->index));
    if (r == 0 && dentry->inode) {
        dentry->inode->uid = current->cred->fsuid;
        dentry->inode->gid = 5; /* tty, of Debian */
    }
    dentry_put(dentry);
    return r;
}

static void pts_remove(const struct tty *tty)
{
    struct dentry *dentry;

    if (!state()->root)
        return;
    dentry = node_name(tty->index);
    if (dentry && dentry->inode)
        inode_ops[INODE_MEMFS]->unlink(state()->root, dentry);
    if (dentry)
        dentry_put(dentry);
}

/* Mounts /dev/pts: a directory in memory whose names come and go with the masters. */
int devpts_setup(const char *target)
{
    struct memfs *memfs = memfs_new(0, PTYS_MAX + 16, false);
    struct inode *inode = memfs ? memfs_inode(memfs, S_IFDIR | 0755) : NULL;
    struct dentry *root = inode ? dentry_root(inode) : NULL, *dentry;
    int r;

    if (memfs)
        memfs_put(memfs);
    if (!root)
        return -ENOMEM;
    inode->dir_complete = 1;
    state()->root = root;
    dentry_get(root);
    dentry = dentry_new(root, "ptmx", 4, NULL);
    r = dentry ? node_make(dentry, 0666, makedev(5, 2)) : -ENOMEM;
    if (dentry)
        dentry_put(dentry);
    return r < 0 ? r : mount_at("devpts", "devpts", target, MS_NOSUID | MS_NOEXEC, root, NULL);
}

/* ---- opening ---- */

static void as_file(struct file *file, enum file_kind kind, struct tty *tty)
{
    file->kind = (uint16_t)kind;
    file->data = tty;
    file->mode |= FMODE_STREAM;
    file->mode &= (uint16_t)~FMODE_SEEK;
    file->position = tty->hangs;
    tty->refs++;
}

static int open_master(struct file *file)
{
    struct tty *tty;
    uint32_t index = 0;
    int r;

    while (index < PTYS_MAX && tty_find(index))
        index++;
    if (index == PTYS_MAX)
        return -ENOSPC;
    tty = arena_alloc(ARENA_TTY, sizeof(*tty));
    if (!tty)
        return -ENOMEM;
    tty->index = index;
    tty->master = tty->locked = true;
    waitq_init(&tty->waitq);
    waitq_init(&tty->master_waitq);
    ldisc_begin(tty);
    r = pts_add(tty);
    if (r < 0) {
        arena_free(tty);
        return r;
    }
    state()->ttys[index] = tty;
    as_file(file, FILE_PTMX, tty);
    return 0;
}

static int open_slave(struct tty *tty, struct file *file)
{
    const struct process *p = current->process;

    if (!tty || !tty->master || tty->locked)
        return -EIO;
    as_file(file, FILE_TTY, tty);
    tty->n_slaves++;
    tty->used = true;
    waitq_wake(&tty->master_waitq, READY_OUT);
    if (!(file->flags & O_NOCTTY) && p->pid == p->sid && !p->tty && !tty->session &&
        (file->mode & FMODE_READ))
        tty_take(tty);
    return 0;
}

/* TIOCGPTPEER: a descriptor of the other end, whatever a path would lead to. */
int64_t tty_peer(struct file *master, uint32_t flags)
{
    const struct tty *tty = master->data;
    struct path path = {.mount = master->mount,
                        .dentry = state()->root ? node_name(tty->index) : NULL};
    struct file *file;
    int r = -EIO;

    if (flags & ~(uint32_t)(O_ACCMODE | O_NOCTTY | O_NONBLOCK | O_CLOEXEC))
        return -EINVAL;
    if (!path.dentry)
        return -EIO;
    if (path.dentry->inode)
        r = open_inode(&path, path.dentry->inode, flags & ~(uint32_t)O_CLOEXEC, &file);
    dentry_put(path.dentry);
    if (r < 0)
        return r;
    r = fd_install(file, flags & O_CLOEXEC, 0);
    if (r < 0)
        file_put(file);
    return r;
}

int tty_open(struct inode *inode, struct file *file)
{
    if (major(inode->rdev) == 136)
        return open_slave(tty_find(minor(inode->rdev)), file);
    if (minor(inode->rdev) == 2)
        return open_master(file);
    if (minor(inode->rdev) == 0 && current->process->tty)
        return open_slave(current->process->tty, file);
    return -ENXIO; /* no terminal; no console */
}

static bool dead(const struct file *file)
{
    const struct tty *tty = file->data;

    return file->kind == FILE_TTY && (file->position != tty->hangs || !tty->master);
}

/* ---- the terminal's own end ---- */

/* VMIN and VTIME: waits for the first byte, or for what is between bytes. */
static int wait_input(struct file *file, uint64_t deadline)
{
    struct tty *tty = file->data;

    if (ldisc_ready(tty, false) || dead(file))
        return 0;
    if (file->flags & O_NONBLOCK)
        return -EAGAIN;
    return WAIT_UNTIL(&tty->waitq, POLLIN | POLLHUP, deadline,
                      ldisc_ready(tty, false) || dead(file));
}

static uint64_t input_deadline(const struct tty *tty, bool first)
{
    uint64_t time = tty->termios.c_cc[VTIME] * 100000000ull;

    if (!time && !tty->termios.c_cc[VMIN])
        return 1; /* over already */
    if (!time || (first && tty->termios.c_cc[VMIN]))
        return WAIT_FOREVER;
    return clock_monotonic() + time;
}

static int64_t slave_read(struct file *file, struct uio *to, int64_t *position)
{
    struct tty *tty = file->data;
    bool lines = tty->termios.c_lflag & ICANON;
    int64_t done = 0, n = 0, r = 0;

    (void)position;
    if (dead(file) || !to->left)
        return 0;
    while (to->left) {
        r = tty_check_read(tty);
        if (r == 0)
            r = wait_input(file, lines ? WAIT_FOREVER : input_deadline(tty, !done));
        if (r < 0 || dead(file))
            break;
        n = ldisc_read(tty, to);
        if (n < 0)
            r = n;
        if (n < 0 || lines)
            break;
        done += n;
        if (done >= tty->termios.c_cc[VMIN])
            break;
    }
    if (lines && r == 0)
        return dead(file) ? 0 : n;
    return done ? done : r == -ETIMEDOUT ? 0 : r;
}

static int64_t slave_write(struct file *file, struct uio *from, int64_t *position)
{
    struct tty *tty = file->data;
    struct uio before;
    int64_t done = 0, r = 0;
    uint8_t byte;

    (void)position;
    if (dead(file))
        return -EIO;
    if (tty->termios.c_lflag & TOSTOP)
        r = tty_check_change(tty);
    while (r == 0 && from->left) {
        before = *from;
        if (!tty->stopped && uio_from(from, &byte, 1) != 1) {
            r = -EFAULT;
        } else if (!tty->stopped && ldisc_output(tty, byte)) {
            done++;
        } else {
            *from = before;
            waitq_wake(&tty->master_waitq, READY_IN);
            if (file->flags & O_NONBLOCK)
                r = -EAGAIN;
            else
                r = WAIT_UNTIL(&tty->waitq, POLLOUT | POLLHUP, WAIT_FOREVER,
                               dead(file) ||
                                   (!tty->stopped && tty->out_head - tty->out_tail < TTY_OUT - 8));
            if (r == 0 && dead(file))
                r = -EIO;
        }
    }
    if (done)
        waitq_wake(&tty->master_waitq, READY_IN);
    return done ? done : r;
}

static uint32_t slave_poll(struct file *file, struct waiter *waiter)
{
    struct tty *tty = file->data;

    if (waiter)
        waiter_add(waiter, &tty->waitq, waiter->events);
    if (dead(file))
        return READY_IN | READY_OUT | POLLERR | POLLHUP;
    return (ldisc_ready(tty, true) ? READY_IN : 0) |
           (!tty->stopped && tty->out_head - tty->out_tail < TTY_OUT - 8 ? READY_OUT : 0);
}

static void slave_release(struct file *file)
{
    struct tty *tty = file->data;

    if (!dead(file) && --tty->n_slaves == 0)
        waitq_wake(&tty->master_waitq, READY_IN | POLLHUP);
    tty_put(tty);
}

/* ---- the master ---- */

static bool other_closed(const struct tty *tty)
{
    return tty->used && !tty->n_slaves;
}

static bool master_ready(const struct tty *tty)
{
    return tty->out_head != tty->out_tail || (tty->packet && tty->status);
}

static int64_t master_take(struct tty *tty, struct uio *to)
{
    uint8_t kind = TIOCPKT_DATA;
    int64_t done = 0, n = 1;
    uint32_t at, part;

    if (tty->packet && tty->status) {
        kind = tty->status;
        tty->status = 0;
        return uio_to(to, &kind, 1);
    }
    if (tty->packet && (n = uio_to(to, &kind, 1)) == 1)
        done = 1;
    while (n > 0 && to->left && tty->out_head != tty->out_tail) {
        at = tty->out_tail % TTY_OUT;
        part = tty->out_head - tty->out_tail;
        part = part < TTY_OUT - at ? part : TTY_OUT - at;
        n = uio_to(to, tty->out + at, part);
        if (n > 0) {
            tty->out_tail += (uint32_t)n;
            done += n;
        }
    }
    waitq_wake(&tty->waitq, READY_OUT);
    return done ? done : n;
}

static int64_t master_read(struct file *file, struct uio *to, int64_t *position)
{
    struct tty *tty = file->data;
    int r = 0;

    (void)position;
    if (!to->left)
        return 0;
    if (!master_ready(tty) && !other_closed(tty)) {
        if (file->flags & O_NONBLOCK)
            return -EAGAIN;
        r = WAIT_UNTIL(&tty->master_waitq, POLLIN | POLLHUP, WAIT_FOREVER,
                       master_ready(tty) || other_closed(tty));
    }
    if (r < 0)
        return r;
    return master_ready(tty) ? master_take(tty, to) : -EIO;
}

static int64_t master_write(struct file *file, struct uio *from, int64_t *position)
{
    struct tty *tty = file->data;
    int64_t done = 0, r = 0;
    uint8_t byte;

    (void)position;
    while (from->left && r == 0) {
        if (!ldisc_room(tty)) {
            waitq_wake(&tty->waitq, READY_IN);
            if (file->flags & O_NONBLOCK)
                r = -EAGAIN;
            else
                r = WAIT_UNTIL(&tty->master_waitq, POLLOUT, WAIT_FOREVER, ldisc_room(tty));
            continue;
        }
        if (uio_from(from, &byte, 1) != 1)
            r = -EFAULT;
        else
            ldisc_input(tty, byte);
        done += r == 0;
    }
    if (tty->out_head != tty->out_tail) /* echo */
        waitq_wake(&tty->master_waitq, READY_IN);
    return done ? done : r;
}

static uint32_t master_poll(struct file *file, struct waiter *waiter)
{
    struct tty *tty = file->data;

    if (waiter)
        waiter_add(waiter, &tty->master_waitq, waiter->events);
    return (master_ready(tty) ? READY_IN : 0) | (tty->packet && tty->status ? POLLPRI : 0) |
           (other_closed(tty) ? POLLHUP : 0) | (ldisc_room(tty) ? READY_OUT : 0);
}

static void master_release(struct file *file)
{
    struct tty *tty = file->data;

    tty->master = false;
    pts_remove(tty);
    tty_hang_up(tty);
    tty_put(tty);
}

const struct file_ops tty_ops = {
    .read = slave_read,
    .write = slave_write,
    .poll = slave_poll,
    .ioctl = tty_ioctl,
    .release = slave_release,
};

const struct file_ops ptmx_ops = {
    .read = master_read,
    .write = master_write,
    .poll = master_poll,
    .ioctl = tty_ioctl,
    .release = master_release,
};
