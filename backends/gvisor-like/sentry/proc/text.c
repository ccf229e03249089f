/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * text - content that is made when a read begins at its start, and stays as it was made for the reads after that.
 * Invariants: a struct text is an object of the arena; bytes are bounded by what the arena gives at once.
 * Threads: the kernel lock.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proc.h"

#define ROOM_FIRST 1024u
#define ROOM_MAX (16u << 20)
#define WRITE_MAX 4096u
#define MEMORY_CHUNK 65536u

static bool room_for(struct text *text, size_t more)
{
    size_t room = text->room ? text->room : ROOM_FIRST;
    char *bytes;

    while (room < text->length + more + 1)
        room *= 2;
    if (text->failed || room > ROOM_MAX)
        return !(text->failed = true);
    if (room == text->room)
        return true;
    bytes = arena_alloc(ARENA_BYTES, room);
    if (!bytes)
        return !(text->failed = true);
    if (text->bytes)
        memcpy(bytes, text->bytes, text->length);
    arena_free(text->bytes);
    text->bytes = bytes;
    text->room = room;
    return true;
}

void text_bytes(struct text *text, const void *bytes, size_t size)
{
    if (!room_for(text, size))
        return;
    memcpy(text->bytes + text->length, bytes, size);
    text->length += size;
}

void text_add(struct text *text, const char *format, ...)
{
    char line[1024];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    if (n > 0)
        text_bytes(text, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

void text_pad(struct text *text, size_t line_start, size_t column)
{
    while (!text->failed && text->length - line_start < column)
        text_bytes(text, " ", 1);
}

void text_escaped(struct text *text, const char *name)
{
    for (; *name; name++)
        if (strchr(" \t\n\\", *name))
            text_add(text, "\\%03o", (unsigned char)*name);
        else
            text_bytes(text, name, 1);
}

/* ---- the files ---- */

static int fill(struct file *file)
{
    const struct node *node = file->inode->data;
    const struct entry *entry = node_entry(node);
    struct text *text = file->data;

    if (node->tree == TREE_TASK && !node_task(node))
        return -ESRCH;
    text->length = 0;
    if (node->fd >= 0)
        make_task_fdinfo(text, node);
    else if (entry->fixed)
        text_bytes(text, entry->fixed, strlen(entry->fixed));
    else
        entry->make(text, node);
    if (!text->failed)
        return 0;
    text->failed = false;
    text->length = 0;
    return -ENOMEM;
}

/* The memory of a task, at its addresses. */
static int64_t memory_read(const struct node *node, struct uio *to, int64_t *position)
{
    static char chunk[MEMORY_CHUNK];
    struct task *task = node_task(node);
    size_t size = to->left < sizeof(chunk) ? to->left : sizeof(chunk);
    int64_t n;

    if (!task || !task->mm)
        return 0;
    n = copy_in_some(task->mm, chunk, (uint64_t)*position, size);
    if (n <= 0)
        return n < 0 ? -EIO : 0;
    n = uio_to(to, chunk, (size_t)n);
    if (n > 0)
        *position += n;
    return n;
}

static int64_t proc_read(struct file *file, struct uio *to, int64_t *position)
{
    struct text *text = file->data;
    int64_t n;
    int error;

    if (!text)
        return memory_read(file->inode->data, to, position);
    if (*position == 0 || !text->bytes) {
        error = fill(file);
        if (error)
            return error;
    }
    if ((uint64_t)*position >= text->length)
        return 0;
    n = uio_to(to, text->bytes + *position, text->length - (size_t)*position);
    if (n > 0)
        *position += n;
    return n;
}

static int64_t proc_write(struct file *file, struct uio *from, int64_t *position)
{
    const struct node *node = file->inode->data;
    const struct entry *entry = node_entry(node);
    char bytes[WRITE_MAX];
    int64_t n;
    int error;

    if (!file->data || node->fd >= 0 || !entry->put)
        return -EIO;
    if (from->left >= sizeof(bytes))
        return -EINVAL;
    n = uio_from(from, bytes, sizeof(bytes) - 1);
    if (n < 0)
        return n;
    bytes[n] = '\0';
    error = entry->put(node, bytes, (size_t)n);
    if (error)
        return error;
    *position += n;
    return n;
}

static int64_t proc_seek(struct file *file, int64_t offset, int whence)
{
    if (whence == SEEK_CUR)
        offset += file->position;
    else if (whence != SEEK_SET)
        return -EINVAL;
    return offset < 0 && file->data ? -EINVAL : (file->position = offset);
}

static void proc_release(struct file *file)
{
    struct text *text = file->data;

    if (!text)
        return;
    arena_free(text->bytes);
    arena_free(text);
}

const struct file_ops proc_ops = {
    .read = proc_read,
    .write = proc_write,
    .seek = proc_seek,
    .release = proc_release,
};
