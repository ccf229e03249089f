/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine_qemu_fill - what a copy's QEMU is given after its start: memory and layers of the disk. It was started
 * with a placeholder for each, so that it could be started before anybody knew of which snapshot it would be.
 *
 * Why so: the memory goes to the shim (ram_shim.c), which maps it at the address where QEMU's devices and processors
 * know it; for the disk QEMU itself can put nodes below a filter of which the device knows nothing. Nothing of the
 * guest has run, and no request is under way. What has become of it is checked by the caller, as after a start.
 * Threads: none.
 */
#include <poll.h>
#include <sys/socket.h>

#include "engine_qemu.h"

static int shim_send(const struct qemu *q, char order, int borrow_fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {&order, 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;

    if (borrow_fd >= 0) {
        memset(&control, 0, sizeof(control));
        m.msg_control = control.room;
        m.msg_controllen = sizeof(control.room);
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &borrow_fd, sizeof(int));
    }
    return sendmsg(q->ctl_fd, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

int qemu_shim(struct qemu *q, char order, int borrow_fd, struct cella_error *err)
{
    struct pollfd p = {.fd = q->ctl_fd, .events = POLLIN};
    char reply[1 + sizeof(int)];
    int code = EIO, r = shim_send(q, order, borrow_fd);

    if (r < 0)
        return fail(err, r, "QEMU: its memory: %s", strerror(-r));
    if (poll(&p, 1, 10000) <= 0)
        return fail(err, -ETIMEDOUT, "QEMU: its memory: no answer from the shim");
    if (recv(q->ctl_fd, reply, sizeof(reply), MSG_DONTWAIT) != (ssize_t)sizeof(reply))
        return fail(err, -EPIPE, "QEMU: its memory: it has ended");
    memcpy(&code, reply + 1, sizeof(code));
    return reply[0] == 'p' ? 0
                           : fail(err, -EIO, "QEMU: its memory cannot be mapped privately: %s",
                                  strerror(code > 0 ? code : EIO));
}

static int order(struct qemu *q, const char *command, json_t *own_args, int borrow_fd,
                 struct cella_error *err)
{
    return own_args ? qmp_call(&q->qmp, command, own_args, borrow_fd, QEMU_ORDER, NULL, err)
                    : fail(err, -ENOMEM, "QEMU: %s: out of memory", command);
}

/* As engine_qemu_args.c describes a layer on the command line. */
static int layer(struct qemu *q, const struct guest *g, uint32_t i, struct cella_error *err)
{
    int set = QEMU_FD_LAYERS + (int)i, ro = i + 1 < g->n_layers, r;
    char file[16], node[16], below[16];
    json_t *o;

    snprintf(file, sizeof(file), "file%u", i);
    snprintf(node, sizeof(node), "layer%u", i);
    snprintf(below, sizeof(below), "layer%u", i - 1);
    r = order(q, "add-fd", json_pack("{s:i}", "fdset-id", set), g->borrow_layer_fds[i], err);
    if (r < 0)
        return r;
    o = json_pack("{s:s, s:s, s:o, s:b, s:s}", "driver", "file", "node-name", file, "filename",
                  json_sprintf("/dev/fdset/%d", set), "read-only", ro, "discard",
                  ro ? "ignore" : "unmap");
    r = order(q, "blockdev-add", o, -1, err);
    if (r < 0)
        return r;
    o = json_pack("{s:s, s:s, s:s, s:b, s:s}", "driver", i ? "qcow2" : "raw", "node-name", node,
                  "file", file, "read-only", ro, "discard", ro ? "ignore" : "unmap");
    if (o && i)
        json_object_set_new(o, "backing", json_string(below));
    return order(q, "blockdev-add", o, -1, err);
}

/* The node that the device has stays; what it stands on changes. */
static int disk(struct qemu *q, const struct guest *g, struct cella_error *err)
{
    char top[16];
    uint32_t i;
    int r = 0;

    for (i = 0; r == 0 && i < g->n_layers; i++)
        r = layer(q, g, i, err);
    if (r < 0)
        return r;
    snprintf(top, sizeof(top), "layer%u", g->n_layers - 1);
    r = order(q, "blockdev-reopen",
              json_pack("{s:[{s:s, s:s, s:s, s:s, s:s}]}", "options", "driver", "throttle",
                        "node-name", "rw", "throttle-group", "io", "file", top, "discard", "unmap"),
              -1, err);
    return r < 0 ? r
                 : order(q, "blockdev-del", json_pack("{s:s}", "node-name", QEMU_NO_DISK), -1, err);
}

int qemu_fill(struct engine *e, const struct guest *g, struct cella_error *err)
{
    struct qemu *q = (struct qemu *)e;
    int r = qemu_shim(q, 'F', g->borrow_ram_fd, err);

    return r < 0 ? r : disk(q, g, err);
}
