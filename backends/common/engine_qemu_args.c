/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine_qemu_args - the command line of one machine. Everything that a name of the host could get into is a descriptor or a
 * fixed path of the jail, so there is nothing to quote. Order is part of the machine: devices get their
 * places on the bus by it, and a clone must have them at the same places. Threads: none.
 */
#include <stdarg.h>

#include "engine_qemu.h"

#define ARGS_MAX 512
#define TB_MIB 128 /* translated code, shared by all virtual processors */

struct args {
    char *v[ARGS_MAX + 1];
    size_t n;
    int oom;
};

static void add(struct args *a, const char *fmt, ...) CELLA_PRINTF(2, 3);
static void add(struct args *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (a->n == ARGS_MAX || vasprintf(&a->v[a->n], fmt, ap) < 0)
        a->oom = 1;
    else
        a->n++;
    va_end(ap);
}

static void opt(struct args *a, const char *name, const char *fmt, ...) CELLA_PRINTF(3, 4);
static void opt(struct args *a, const char *name, const char *fmt, ...)
{
    va_list ap;

    add(a, "-%s", name);
    va_start(ap, fmt);
    if (a->n == ARGS_MAX || vasprintf(&a->v[a->n], fmt, ap) < 0)
        a->oom = 1;
    else
        a->n++;
    va_end(ap);
}

static void fdset(struct args *a, int fd)
{
    opt(a, "add-fd", "fd=%d,set=%d", fd, fd);
}

/* On virtio-mmio devices are told apart by their numbers, which QEMU gives from the highest: the order is the
   same in a copy. */
static const char *const boards[] = {
    [BOARD_Q35] = "q35,memory-backend=ram,vmport=off,smm=off,hpet=off,usb=off",
    [BOARD_MICROVM] = "microvm,memory-backend=ram,acpi=on,rtc=off,pic=off,pit=off,isa-serial=on,"
                      "x-option-roms=off,auto-kernel-cmdline=off",
};

/* The devices of virtio have the same names on both boards but for their bus. */
static const char *bus(const struct guest *m)
{
    return m->board == BOARD_Q35 ? "pci" : "device";
}

static void machine(struct args *a, const struct guest *m)
{
    unsigned long long kib = m->ram_bytes >> 10;

    add(a, "%s", m->program);
    opt(a, "name", "%s", m->name);
    opt(a, "machine", "%s", boards[m->board]);
    if (m->kvm)
        opt(a, "accel", "kvm");
    else /* two threads are two emulated processors that see each other's stores too late */
        opt(a, "accel", "tcg,thread=%s,tb-size=%d", m->vcpus > 1 ? "single" : "multi", TB_MIB);
    opt(a, "cpu", "%s", m->cpu);
    opt(a, "smp", "cpus=%u,sockets=1,cores=%u,threads=1", m->vcpus, m->vcpus);
    opt(a, "m", "size=%lluk", kib);
    opt(a, "object",
        "memory-backend-file,id=ram,size=%lluk,mem-path=" QEMU_RAM_PATH ",share=on,prealloc=off",
        kib);
    add(a, "-nodefaults");
    add(a, "-no-user-config");
    add(a, "-no-reboot");
    add(a, "-S");
    opt(a, "display", "none");
    opt(a, "vga", "none");
    opt(a, "sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    if (m->incoming)
        opt(a, "incoming", "defer");
}

static void channels(struct args *a, const struct guest *m)
{
    opt(a, "chardev", "socket,id=qmp,fd=%d", QEMU_FD_QMP);
    opt(a, "mon", "chardev=qmp,mode=control");
    fdset(a, QEMU_FD_CONSOLE); /* a pipe: a socket is full after 280 single bytes */
    opt(a, "chardev", "file,id=console,append=on,path=/dev/fdset/%d", QEMU_FD_CONSOLE);
    opt(a, "serial", "chardev:console");
    opt(a, "device", "virtio-serial-%s,id=ports,max_ports=4", bus(m));
    opt(a, "chardev", "socket,id=agent,fd=%d,server=on,wait=off", QEMU_FD_AGENT);
    opt(a, "device", "virtserialport,bus=ports.0,nr=1,chardev=agent,name=cella.agent");
    opt(a, "chardev", "socket,id=guest,fd=%d,server=on,wait=off", QEMU_FD_GUEST);
    opt(a, "device", "virtserialport,bus=ports.0,nr=2,chardev=guest,name=cella.guest");
}

static void layer(struct args *a, const struct guest *m, uint32_t i)
{
    int fd = QEMU_FD_LAYERS + (int)i, top = i + 1 == m->n_layers;
    const char *ro = top ? "off" : "on", *discard = top ? ",discard=unmap" : "";

    fdset(a, fd);
    opt(a, "blockdev", "driver=file,node-name=file%u,filename=/dev/fdset/%d,read-only=%s%s", i, fd,
        ro, discard);
    if (i == 0)
        opt(a, "blockdev", "driver=raw,node-name=layer0,file=file0,read-only=%s%s", ro, discard);
    else
        opt(a, "blockdev",
            "driver=qcow2,node-name=layer%u,file=file%u,backing=layer%u,read-only=%s%s", i, i,
            i - 1, ro, discard);
}

static void disks(struct args *a, const struct guest *m)
{
    char top[16] = QEMU_NO_DISK;
    uint32_t i;

    fdset(a, QEMU_FD_ROOT);
    opt(a, "blockdev", "driver=file,node-name=rootfile,filename=/dev/fdset/%d,read-only=on",
        QEMU_FD_ROOT);
    opt(a, "blockdev", "driver=raw,node-name=root,file=rootfile,read-only=on");
    opt(a, "device", "virtio-blk-%s,drive=root,serial=cella-root,id=blk-root", bus(m));
    for (i = 0; i < m->n_layers; i++)
        layer(a, m, i);
    if (m->n_layers)
        snprintf(top, sizeof(top), "layer%u", m->n_layers - 1);
    else /* engine_qemu_fill.c takes it away again */
        opt(a, "blockdev", "driver=null-co,node-name=" QEMU_NO_DISK ",size=%llu,read-zeroes=on",
            (unsigned long long)m->disk_bytes);
    /* always there: a limit that comes later needs it */
    opt(a, "object", "throttle-group,id=io,x-bps-read=%llu,x-bps-write=%llu",
        (unsigned long long)m->read_bps, (unsigned long long)m->write_bps);
    opt(a, "blockdev", "driver=throttle,node-name=rw,throttle-group=io,file=%s,discard=unmap", top);
    opt(a, "device", "virtio-blk-%s,drive=rw,serial=cella-rw,id=blk-rw", bus(m));
}

static void devices(struct args *a, const struct guest *m)
{
    uint32_t i;

    opt(a, "object", "rng-builtin,id=rng");
    opt(a, "device", "virtio-rng-%s,rng=rng", bus(m));
    opt(a, "device", "virtio-balloon-%s,id=balloon,deflate-on-oom=on", bus(m));
    if (m->board == BOARD_Q35) /* the other has no such device: SETTLE alone reseeds the guest */
        opt(a, "device", "vmgenid,guid=auto");
    if (m->mac) {
        opt(a, "netdev", "tap,id=net,fd=%d,vhost=off", QEMU_FD_TAP);
        opt(a, "device",
            "virtio-net-%s,netdev=net%s,guest_announce=off,mac=%02x:%02x:%02x:%02x:%02x:%02x",
            bus(m), m->board == BOARD_Q35 ? ",romfile=" : "", m->mac[0], m->mac[1], m->mac[2],
            m->mac[3], m->mac[4], m->mac[5]);
    }
    for (i = 0; i < m->n_shares; i++) {
        uint32_t n = m->shares[i].number;
        opt(a, "fsdev", "local,id=m%u,path=/cella/m%u,security_model=none%s", n, n,
            m->shares[i].writable ? "" : ",readonly=on");
        opt(a, "device", "virtio-9p-pci,fsdev=m%u,mount_tag=cella.m%u", n, n);
    }
}

int qemu_args(const struct guest *m, char ***ret)
{
    struct args *a = calloc(1, sizeof(*a));
    char **v;

    if (!a)
        return -ENOMEM;
    machine(a, m);
    channels(a, m);
    disks(a, m);
    devices(a, m);
    opt(a, "kernel", "/cella/kernel");
    if (m->initrd)
        opt(a, "initrd", "/cella/initrd");
    opt(a, "append", "%s", m->append);
    v = a->oom ? NULL : calloc(a->n + 1, sizeof(*v));
    if (v)
        memcpy(v, a->v, a->n * sizeof(*v));
    else
        qemu_args_free(a->v); /* ends at the first that is not there; the strings alone */
    if (v)
        free(a);
    *ret = v;
    return v ? 0 : -ENOMEM;
}

void qemu_args_free(char **args)
{
    size_t i;

    for (i = 0; args && args[i]; i++)
        free(args[i]);
    free(args);
}
