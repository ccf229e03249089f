/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A disk of one file or several, and requests that are waited for. Threads: one. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <linux/virtio_blk.h>

#include "disk_world.h"

int new_file(uint64_t bytes)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd < 0)
        fd = memfd_create("disk", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

void fill(int fd, uint64_t at, uint64_t len, char c)
{
    char *p = malloc(len);

    memset(p, c, len);
    assert_int_equal(pwrite(fd, p, len, (off_t)at), (ssize_t)len);
    free(p);
}

void open_disk(struct world *w, uint32_t n, int read_only)
{
    static const uint64_t offered = ALL;

    memset(&w->d.bus, 0, sizeof(w->d.bus));
    w->b = block_new(&w->d.bind, DEV_RW, "cella-rw", w->fd, n, DISK, read_only);
    assert_non_null(w->b);
    w->n = n;
    drv_start(&w->d, block_virtio(w->b), offered, 1);
}

/* n files: a lowest one full of 'a', layers over it. */
void start(struct world *w, uint32_t n, int read_only)
{
    uint32_t i;

    memset(w, 0, sizeof(*w));
    assert_int_equal(drv_init(&w->d), 0);
    w->fd[0] = new_file(DISK);
    fill(w->fd[0], 0, DISK, 'a');
    for (i = 1; i < n; i++) {
        w->fd[i] = new_file(0);
        assert_int_equal(layer_create(w->fd[i], DISK), 0);
    }
    open_disk(w, n, read_only);
}

void stop(struct world *w)
{
    uint32_t i;

    block_free(w->b);
    for (i = 0; i < w->n; i++)
        close(w->fd[i]);
    drv_fini(&w->d);
}

void reopen(struct world *w)
{
    block_free(w->b);
    open_disk(w, w->n, 0);
}

void add(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len)
{
    struct virtio_blk_outhdr h = {.type = type, .sector = sector};
    int in = type == VIRTIO_BLK_T_IN || type == VIRTIO_BLK_T_GET_ID;
    uint64_t place = 128ull * (w->slot++ % 32);
    struct piece p[] = {{HEAD + place, sizeof(h), 0}, {at, len, in}, {STATUS + place, 1, 1}};

    memcpy(drv_at(&w->d, HEAD + place), &h, sizeof(h));
    *(uint8_t *)drv_at(&w->d, STATUS + place) = 0xee;
    if (len == 0)
        p[1] = p[2];
    drv_add(&w->d, 0, p, len ? 3 : 2);
}

/* One request; its status. */
int request(struct world *w, uint32_t type, uint64_t sector, uint64_t at, uint32_t len)
{
    uint32_t written;

    add(w, type, sector, at, len);
    drv_kick(&w->d, 0);
    assert_true(drv_wait(&w->d, 0, &written) >= 0);
    assert_true(written >= 1);
    return *(uint8_t *)drv_at(&w->d, STATUS + 128ull * ((w->slot - 1) % 32));
}

int write_bytes(struct world *w, uint64_t at, uint64_t len, char c)
{
    memset(drv_at(&w->d, DATA), c, len);
    return request(w, VIRTIO_BLK_T_OUT, at / 512, DATA, (uint32_t)len);
}

void assert_bytes(struct world *w, uint64_t at, uint64_t len, char c)
{
    uint8_t *p = drv_at(&w->d, DATA);
    uint64_t i;

    memset(p, c + 1, len);
    assert_int_equal(request(w, VIRTIO_BLK_T_IN, at / 512, DATA, (uint32_t)len), 0);
    for (i = 0; i < len; i++)
        if (p[i] != (uint8_t)c)
            fail_msg("byte %llu is %02x, not %02x", (unsigned long long)(at + i), p[i], c);
}

int zero_request(struct world *w, uint32_t type, uint64_t at, uint64_t len, uint32_t flags)
{
    struct virtio_blk_discard_write_zeroes z = {
        .sector = at / 512, .num_sectors = (uint32_t)(len / 512), .flags = flags};

    memcpy(drv_at(&w->d, DATA), &z, sizeof(z));
    return request(w, type, 0, DATA, sizeof(z));
}

uint64_t used(int fd)
{
    struct stat st;

    assert_int_equal(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}
