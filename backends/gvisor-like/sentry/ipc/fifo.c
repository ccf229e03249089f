/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fifo - opening a pipe that has a name: the first of each end waits for the other.
 * Invariants: inode->data is the pipe while any file or open holds it (pipe_put clears it).
 * Threads: the kernel lock.
 */
#include "pipe.h"

/* Until somebody opened the other end since; false by a signal. */
static int wait_partner(struct pipe *pipe, const uint32_t *count)
{
    uint32_t seen = *count;

    return WAIT_UNTIL(&pipe->waitq, 0, WAIT_FOREVER, *count != seen);
}

static int fifo_wait(struct pipe *pipe, struct file *file)
{
    unsigned mode = file->mode & (FMODE_READ | FMODE_WRITE);

    if (mode == FMODE_READ && !pipe->writers) {
        if (file->flags & O_NONBLOCK)
            file->position = pipe->opened_write; /* no hang-up before a writer was there */
        else
            return wait_partner(pipe, &pipe->opened_write);
    } else if (mode == FMODE_WRITE && !pipe->readers) {
        return wait_partner(pipe, &pipe->opened_read);
    }
    return 0;
}

int fifo_open(struct inode *inode, struct file *file)
{
    struct pipe *pipe = inode->data;
    bool named = inode->kind != INODE_ANON; /* else by /proc/PID/fd/N: nobody is waited for */
    int r;

    if (pipe)
        pipe->refs++;
    else
        pipe = pipe_make();
    if (!pipe)
        return -ENOMEM;
    if (named && (file->mode & (FMODE_READ | FMODE_WRITE)) == FMODE_WRITE &&
        (file->flags & O_NONBLOCK) && !pipe->readers) {
        pipe_put(pipe);
        return -ENXIO;
    }
    inode->data = pipe;
    pipe->inode = inode;
    file->position = 0;
    pipe_opened(pipe, file);
    r = named ? fifo_wait(pipe, file) : 0;
    file->data = pipe;
    if (r < 0) {
        pipe_release(file);
        file->data = NULL;
        return r;
    }
    file->kind = FILE_PIPE;
    file->mode |= FMODE_STREAM;
    file->mode &= (uint16_t)~FMODE_SEEK;
    return 0;
}

/* Files of it hold the inode: with the last one the pipe went. */
void fifo_release(struct inode *inode)
{
    inode->data = NULL;
}
