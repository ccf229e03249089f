/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* A toy device on a bus, whole requests, and whether it still works. Threads: one. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "toy.h"

static uint64_t toy_features(void *self)
{
    (void)self;
    return 1ull << 3;
}

static void toy_config_read(void *self, uint32_t offset, void *out, unsigned len)
{
    memcpy(out, (uint8_t *)((struct toy *)self)->config + offset, len);
}

static void toy_config_write(void *self, uint32_t offset, const void *in, unsigned len)
{
    memcpy((uint8_t *)((struct toy *)self)->config + offset, in, len);
}

static int toy_activate(void *self)
{
    ((struct toy *)self)->activations++;
    return 0;
}

static void toy_reset(void *self)
{
    ((struct toy *)self)->resets++;
}

static void toy_kick(void *self, uint32_t queue)
{
    struct toy *t = self;
    int r = 0;

    t->kicks++;
    while (!t->hold && (r = virtq_pop(&t->v.q[queue], &t->last)) == 1) {
        uint64_t n = t->last.out_bytes < 63 ? t->last.out_bytes : 63;
        char a[512];
        memset(a, 'A', sizeof(a));
        memset(t->got, 0, sizeof(t->got));
        assert_int_equal(chain_get(&t->last, 0, t->got, n), 0);
        if (t->last.in_bytes <= sizeof(a))
            assert_int_equal(chain_put(&t->last, 0, a, t->last.in_bytes), 0);
        t->served++;
        virtq_push(&t->v.q[queue], t->last.head, (uint32_t)t->last.in_bytes);
    }
    if (r < 0)
        virtio_broken(&t->v, "rules");
    virtio_irq_queue(&t->v, queue);
}

static void toy_save(void *self, struct state_out *o)
{
    state_put_u32(o, ((struct toy *)self)->saved);
}

static void toy_load(void *self, struct state_in *i)
{
    ((struct toy *)self)->saved = state_get_u32(i);
}

const struct virtio_ops toy_ops = {.name = "toy",
                                   .id = 42,
                                   .n_queues = 2,
                                   .queue_max = 128,
                                   .config_len = 8,
                                   .features = toy_features,
                                   .config_read = toy_config_read,
                                   .config_write = toy_config_write,
                                   .activate = toy_activate,
                                   .reset = toy_reset,
                                   .kick = toy_kick,
                                   .save = toy_save,
                                   .load = toy_load};

int toy_setup(void **state)
{
    static struct world w;

    memset(&w, 0, sizeof(w));
    assert_int_equal(drv_init(&w.d), 0);
    assert_int_equal(virtio_init(&w.t.v, &toy_ops, &w.t, 2, &w.d.bind), 0);
    *state = &w;
    return 0;
}

int toy_teardown(void **state)
{
    struct world *w = *state;

    virtio_fini(&w->t.v);
    drv_fini(&w->d);
    return 0;
}

void put_hello(struct world *w)
{
    memcpy(drv_at(&w->d, DRV_BUFFERS), "hello", 5);
    memset(drv_at(&w->d, DRV_BUFFERS + 4096), 0, 16);
}

/* The ring still works: a whole request goes through. */
void assert_works(struct world *w)
{
    uint32_t head, len;
    int before = w->t.served;

    put_hello(w);
    drv_add(&w->d, 0, hello, 2);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, before + 1);
    assert_string_equal(w->t.got, "hello");
    assert_int_equal(drv_used(&w->d, 0, &head, &len), 1);
    assert_int_equal(len, 8);
    assert_memory_equal(drv_at(&w->d, DRV_BUFFERS + 4096), "AAAAAAAA\0", 9);
}

/* It does not any more, and does after a reset. */
void assert_broken(struct world *w)
{
    int before = w->t.served;

    assert_true(w->t.v.broken);
    assert_true(drv_get(&w->d, VIRTIO_MMIO_STATUS) & VIRTIO_CONFIG_S_NEEDS_RESET);
    drv_kick(&w->d, 0);
    assert_int_equal(w->t.served, before);
    drv_start(&w->d, &w->t.v, EVENT_IDX | INDIRECT, 2);
    assert_works(w);
}
