/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * backing - the descriptors that objects read from: each is one of the sentry's, of which the host gives only so many.
 * What was written keeps its descriptor for the pages that were not. When there are no more, those that lack few pages get
 * them, too, and need none: memory of the cell for a descriptor. Large ones keep theirs, and so does what was never written,
 * which its inode can do without when nobody uses it (fs/memfs_image.c).
 * Invariants: an object is in the list as long as it has a descriptor. A copy counts as written: later writes to it do not.
 * Threads: the kernel lock.
 */
#include <unistd.h>

#include "space.h"

#define COPIED_MOST 64u /* pages of one object */
#define LOOKED_AT 256u  /* objects, each time */

void backing_take(struct object *object, int host_fd, uint64_t size)
{
    object->host_fd = host_fd;
    object->backed = size;
    TAILQ_INSERT_TAIL(memfile_backed(), object, backed_link);
}

/* @seccomp sentry: close */
void backing_close(struct object *object)
{
    if (object->host_fd < 0)
        return;
    TAILQ_REMOVE(memfile_backed(), object, backed_link);
    close(object->host_fd);
    object->host_fd = -1;
    object->backed = 0;
}

static uint64_t backed_pages(const struct object *object)
{
    return (object->backed + PAGE_SIZE - 1) >> PAGE_SHIFT;
}

/* Pages that only the backing has, as far as they are few. */
static uint64_t missing(const struct object *object)
{
    uint64_t end = backed_pages(object), index, n = 0;

    for (index = 0; index < end && n <= COPIED_MOST; index++)
        n += !pagemap_get(&object->pages, index);
    return n;
}

/* With all pages in memory, stubs show none of the backing any more. */
static int let_go(struct object *object)
{
    uint64_t end = backed_pages(object), index;
    struct page *page;
    int error;

    for (index = 0; index < end; index++) {
        error = object_page(object, index, true, &page);
        if (error)
            return error;
        page_put(page); /* the object has its own reference */
    }
    backing_close(object);
    return 0;
}

unsigned objects_let_go(void)
{
    struct backed_list *list = memfile_backed();
    struct object *object, *next, *last = TAILQ_LAST(list, backed_list);
    unsigned looked = 0, n = 0;
    bool end = !last;

    kernel_assert_locked();
    for (object = TAILQ_FIRST(list); !end && (looked++ < LOOKED_AT || n == 0); object = next) {
        next = TAILQ_NEXT(object, backed_link);
        end = object == last;
        if (object->pages.count && missing(object) <= COPIED_MOST && let_go(object) == 0) {
            n++;
            continue;
        }
        TAILQ_REMOVE(list, object, backed_link); /* the next time others are looked at first */
        TAILQ_INSERT_TAIL(list, object, backed_link);
    }
    return n;
}
