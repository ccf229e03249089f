/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * machine_devices - the virtio devices of a machine, as far as the machine is concerned: made from its configuration
 * and its descriptors, saved, loaded. One that cannot be made ends the making; nothing is taken back, because the
 * program ends then. Threads: the VMM thread, with the lock.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "vmm.h"

#define SECTOR 512u

static int kick_bind(void *ctx, uint64_t address, uint32_t queue, int kick_fd)
{
    return kvm_ioeventfd(ctx, address, queue, kick_fd);
}

static int irq_bind(void *ctx, uint32_t gsi, int irq_fd)
{
    return kvm_irqfd(ctx, gsi, irq_fd);
}

static int disks(struct machine *m, const struct virtio_bind *bind, struct why *w)
{
    int root[1] = {VMM_FD_ROOT}, layers[VMM_LAYERS_MAX];
    struct stat st;
    uint32_t i;

    if (fstat(VMM_FD_ROOT, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)SECTOR)
        return why(w, -EINVAL, "root disk: the image is no file, or empty");
    m->dev.root =
        block_new(bind, DEV_ROOT, "cella-root", root, 1, (uint64_t)st.st_size / SECTOR * SECTOR, 1);
    if (!m->dev.root)
        return why(w, -errno, "root disk: %s%s", strerror(errno),
                   errno == EPERM || errno == ENOSYS
                       ? "; without io_uring (sysctl kernel.io_uring_disabled) there is no disk"
                       : "");
    for (i = 0; i < m->config.n_layers; i++)
        layers[i] = (int)(VMM_FD_LAYERS + i);
    m->dev.rw =
        block_new(bind, DEV_RW, "cella-rw", layers, m->config.n_layers, m->config.disk_bytes, 0);
    if (!m->dev.rw)
        return why(w, -errno, "writable disk: %s", strerror(errno));
    block_limit(m->dev.rw, m->config.read_bps, m->config.write_bps);
    m->dev.v[DEV_ROOT] = block_virtio(m->dev.root);
    m->dev.v[DEV_RW] = block_virtio(m->dev.rw);
    return 0;
}

static int others(struct machine *m, const struct virtio_bind *bind, struct why *w)
{
    m->dev.rng = rng_new(bind, DEV_RNG);
    if (!m->dev.rng)
        return why(w, -errno, "rng: %s", strerror(errno));
    m->dev.balloon = balloon_new(bind, DEV_BALLOON, m->config.ram_bytes);
    if (!m->dev.balloon)
        return why(w, -errno, "balloon: %s", strerror(errno));
    m->dev.vsock = vsock_new(bind, DEV_VSOCK, VMM_FD_VSOCK);
    if (!m->dev.vsock)
        return why(w, -errno, "vsock: %s", strerror(errno));
    m->dev.v[DEV_VSOCK] = vsock_virtio(m->dev.vsock);
    if (m->config.flags & VMM_CONFIG_NET) {
        m->dev.net = net_new(bind, DEV_NET, VMM_FD_TAP, m->config.mac);
        if (!m->dev.net)
            return why(w, -errno, "network: the descriptor is no usable tap: %s", strerror(errno));
        net_limit(m->dev.net, m->config.rx_bps, m->config.tx_bps);
        m->dev.v[DEV_NET] = net_virtio(m->dev.net);
    }
    m->dev.v[DEV_RNG] = rng_virtio(m->dev.rng);
    m->dev.v[DEV_BALLOON] = balloon_virtio(m->dev.balloon);
    return 0;
}

int devices_make(struct machine *m, struct why *w)
{
    struct virtio_bind bind = {.loop = m->loop,
                               .bus = &m->memory,
                               .ram = &m->ram,
                               .kick_bind = kick_bind,
                               .irq_bind = irq_bind,
                               .ctx = &m->kvm};

    int r = disks(m, &bind, w);

    return r < 0 ? r : others(m, &bind, w);
}

uint32_t devices_mask(const struct machine *m)
{
    uint32_t mask = 0, i;

    for (i = 0; i < DEV_N; i++)
        mask |= m->dev.v[i] ? 1u << i : 0;
    return mask;
}

int devices_fill(struct machine *m, struct why *w)
{
    int r = block_fill(m->dev.rw, m->own_layer_fds, m->n_late);

    return r < 0 ? why(w, r, "writable disk: %s", strerror(-r)) : 0;
}

/* All are quiet before the first is written: what one finishes may reach another. */
int devices_save(struct machine *m, struct state_out *o, struct why *w)
{
    uint32_t i;
    int r;

    for (i = 0; i < DEV_N; i++) {
        r = m->dev.v[i] ? virtio_drain(m->dev.v[i]) : 0;
        if (r < 0)
            return why(w, r, "%s: what is in flight does not end: %s", m->dev.v[i]->ops->name,
                       strerror(-r));
    }
    for (i = 0; i < DEV_N; i++)
        if (m->dev.v[i])
            virtio_save(m->dev.v[i], o);
    return 0;
}

int devices_load(struct machine *m, struct state_in *i, struct why *w)
{
    uint32_t n;

    for (n = 0; n < DEV_N; n++)
        if (m->dev.v[n] && virtio_load(m->dev.v[n], i) < 0)
            return why(w, -EBADMSG, "%s: its state is not as it was written",
                       m->dev.v[n]->ops->name);
    return 0;
}

void devices_resumed(struct machine *m)
{
    uint32_t i;

    for (i = 0; i < DEV_N; i++)
        if (m->dev.v[i])
            virtio_resume(m->dev.v[i]);
}

int devices_balloon(struct machine *m, uint64_t leave, struct why *w)
{
    return m->dev.balloon ? balloon_leave(m->dev.balloon, leave)
                          : why(w, -ENODEV, "BALLOON: this machine has none");
}

int devices_io_limit(struct machine *m, uint64_t read_bps, uint64_t write_bps, struct why *w)
{
    if (!m->dev.rw)
        return why(w, -ENODEV, "IO_LIMIT: this machine has no writable disk");
    block_limit(m->dev.rw, read_bps, write_bps);
    return 0;
}

void devices_figures(const struct machine *m, uint64_t *ret_taken, uint64_t *ret_read,
                     uint64_t *ret_written)
{
    *ret_taken = m->dev.balloon ? balloon_taken(m->dev.balloon) : 0;
    *ret_read = *ret_written = 0;
    if (m->dev.rw)
        block_figures(m->dev.rw, ret_read, ret_written);
}
