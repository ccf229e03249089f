/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vmm - the machine as a whole. kvm.c speaks to the kernel, vcpu.c runs processors, machine.c puts the parts
 * together, control.c takes orders.
 *
 * One lock: whoever touches a device, the buses, the loop's tables or `running` holds it. A processor's thread
 * holds it only while it handles an exit.
 */
#ifndef CELLA_VMM_H
#define CELLA_VMM_H

#include <pthread.h>

#include "bus.h"
#include "control.h"
#include "cpu.h"
#include "devices.h"
#include "loop.h"
#include "ram.h"
#include "serial.h"
#include "state.h"
#include "why.h"

struct kvm {
    int fd, vm;
    size_t run_len;
    int tsc_deadline;
    uint32_t tsc_khz;
    struct cpuid cpuid; /* filtered, of no processor yet */
    struct msrs msrs;
};

struct vcpu {
    struct machine *m;
    uint32_t index;
    int fd;
    struct kvm_run *run;
    pthread_t thread;
    int made, parked;
};

struct devices {
    struct virtio *v[DEV_N]; /* NULL = not there */
    struct block *root, *rw;
    struct vsock *vsock;
    struct rng *rng;
    struct balloon *balloon;
    struct net *net;
};

struct machine {
    pthread_mutex_t lock;
    pthread_cond_t parked, go;
    struct vmm_config config;
    struct kvm kvm;
    struct ram ram;
    struct bus ports, memory;
    struct loop *loop;
    struct serial *serial;
    struct devices dev;
    struct vcpu cpu[VMM_VCPUS_MAX];
    uint32_t n_cpu;
    int running, loaded;
    /* started without content, which comes by orders; config.n_layers is 0 until all layers are there */
    int late, has_memory;
    int own_layer_fds[VMM_LAYERS_MAX];
    uint32_t n_late, n_due;
    int drained; /* a save or a load: devices look around before it goes on */
    int serial_irq_fd;
    uint64_t started_ns, marked_ns;
};

/* ---- kvm.c: all return 0 or negative errno with the reason ---- */
int kvm_open(struct kvm *k, int borrow_kvm_fd, uint32_t vcpus, struct why *w);
int kvm_memory(const struct kvm *k, const struct ram *r, struct why *w);
int kvm_irqfd(const struct kvm *k, uint32_t gsi, int borrow_fd);
int kvm_ioeventfd(const struct kvm *k, uint64_t address, uint32_t value, int borrow_fd);
int kvm_pulse(const struct kvm *k, uint32_t gsi);
void kvm_save(const struct kvm *k, struct state_out *o, struct why *w);
int kvm_load(const struct kvm *k, struct state_in *i, struct why *w);

/* ---- vcpu.c ---- */
int vcpu_make(struct vcpu *c, struct machine *m, uint32_t index, struct why *w);
int vcpu_boot(struct vcpu *c, const struct kvm_regs *regs, const struct kvm_sregs *want,
              struct why *w);
int vcpu_start(struct vcpu *c, struct why *w); /* its thread, parked */
void vcpu_kick(struct vcpu *c);
int vcpu_signals(void);

/* ---- vcpu_state.c ---- */
int vcpu_save(const struct vcpu *c, struct state_out *o, struct why *w);
int vcpu_load(struct vcpu *c, struct state_in *i, struct why *w);

/* ---- machine.c ---- */
int machine_make(struct machine *m, const struct vmm_config *c, struct why *w);
void machine_pause(struct machine *m); /* returns when no processor runs */
int machine_cont(struct machine *m, struct why *w);
void machine_mark(struct machine *m, const char *what); /* --timings */

/* ---- machine_devices.c ---- */
int devices_make(struct machine *m, struct why *w);
uint32_t devices_mask(const struct machine *m);
int devices_save(struct machine *m, struct state_out *o, struct why *w);
int devices_load(struct machine *m, struct state_in *i, struct why *w);
/* The layers of the writable disk, when it was made without. */
int devices_fill(struct machine *m, struct why *w);
void devices_resumed(struct machine *m);
int devices_balloon(struct machine *m, uint64_t leave, struct why *w);
int devices_io_limit(struct machine *m, uint64_t read_bps, uint64_t write_bps, struct why *w);
void devices_figures(const struct machine *m, uint64_t *ret_taken, uint64_t *ret_read,
                     uint64_t *ret_written);

/* ---- snapshot.c: stopped only ---- */
int machine_save(struct machine *m, int borrow_fd, struct why *w);
int machine_load(struct machine *m, int borrow_fd, struct why *w);

/* ---- platform.c: power, reset, keyboard controller ---- */
int platform_add(struct bus *ports);
int platform_firmware(const struct ram *ram);

/* ---- control.c ---- */
int control_check(const struct vmm_request *r, long len, int n_fds, const struct machine *m,
                  struct why *w);
/* Receives one request, carries it out, answers. A CONFIG or LOAD that failed ends the program. Returns the op. */
int control_turn(struct machine *m);
int control_watch(struct machine *m, struct why *w);

#endif
