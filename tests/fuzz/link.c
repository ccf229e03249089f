/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Arbitrary bytes as an agent's output, against a link with one stream of each kind open. The first byte chooses how the
 * input is cut into pieces and whether the owner returns credit, frees the link early or orphans a stream; half of
 * the choices send a good HELLO first, so that the rest is reached. Whatever comes: at most one `closed`, exactly one
 * terminal frame per stream.
 */
#include <assert.h>
#include <sys/socket.h>

#include "link_internal.h"

struct rig {
    struct link *link;
    struct link_stream *s[9];
    int ended[9], closed, how, freed;
};

struct one {
    struct rig *r;
    int i;
};

static void on_closed(void *ctx, int code, const char *why)
{
    struct rig *r = ctx;

    assert(++r->closed == 1);
    assert(code == -EPROTO || code == -ECONNRESET);
    assert(strlen(why) > 0);
}

static void on_frame(void *ctx, struct link_stream *s, const struct cella_frame *f,
                     const uint8_t *p)
{
    struct one *o = ctx;
    auto_buf struct buf b = BUF_INIT;

    (void)p;
    if (f->type >= CELLA_FRAME_EXIT)
        assert(++o->r->ended[o->i] == 1);
    else
        assert(!o->r->ended[o->i]);
    if (f->type == CELLA_FRAME_DATA && (o->r->how & 1) &&
        field_add_u32(&b, CELLA_TAG_COUNT, f->length) == 0)
        assert(link_send(s, CELLA_FRAME_CREDIT, f->channel, b.ptr, b.len) == 0);
    if ((o->r->how & 2) && f->type == CELLA_FRAME_EOF)
        link_stream_orphan(s);
    if ((o->r->how & 4) && f->type == CELLA_FRAME_RESULT) {
        o->r->freed = 1;
        link_free(o->r->link);
    }
}

static const struct link_events events = {NULL, on_closed};
static const struct link_stream_events stream_events = {on_frame};

static void open_all(struct rig *r, struct one *ones)
{
    uint32_t op;

    for (op = CELLA_OP_EXEC; op <= CELLA_OP_MKDIR; op++) {
        auto_buf struct buf b = BUF_INIT;
        ones[op] = (struct one){r, (int)op};
        field_add_u32(&b, CELLA_TAG_OP, op);
        field_add_u32(&b, CELLA_TAG_STDIN, 1);
        if (link_open(r->link, b.ptr, b.len, &stream_events, &ones[op], &r->s[op]) < 0)
            abort();
    }
    link_send(r->s[CELLA_OP_EXEC], CELLA_FRAME_DATA, CELLA_CHANNEL_IN, "stdin", 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t hello[] = {24, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
                                    4,  0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0};
    struct rig r = {0};
    struct one ones[9];
    struct loop *loop;
    int sv[2];
    size_t step, n;

    if (size < 2 || size > 1 << 18)
        return 0;
    r.how = data[0];
    step = (data[0] & 16) ? size : 1 + data[1] % 64u;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0 || loop_new(&loop) < 0 ||
        link_new(loop, sv[0], &events, &r, &r.link) < 0)
        abort();
    open_all(&r, ones);
    if (r.how & 8)
        framer_feed(link_framer(r.link), hello, sizeof(hello));
    for (data += 2, size -= 2; size && !r.freed && !r.closed; data += n, size -= n) {
        n = step < size ? step : size;
        framer_feed(link_framer(r.link), data, n);
    }
    if (!r.freed)
        link_free(r.link);
    loop_free(loop);
    close(sv[1]);
    return 0;
}
