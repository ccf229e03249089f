/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * microvm - a machine with next to nothing in it: six virtio devices and a serial line. With KVM it is run by our own
 * monitor, cella-vmm; without, by QEMU's board of the same name with the same kernel, image and agent. What it
 * gives and what it does not is in README.md; the lifecycle is backends/common/vm.c's. Threads: as there.
 */
#include "microvm.h"

static const struct vm_kind microvm = {
    .name = "microvm",
    .board = BOARD_MICROVM,
    .kvm = &engine_vmm,
    .emulated = &engine_qemu,
    .choice = "engine",
    .choice_kvm = "vmm",
    .choice_emulated = "qemu",
};

static const struct cella_option options[] = {
    {.name = "engine",
     .help = "what runs the machine; auto is vmm where KVM works, else qemu, which emulates",
     .def = "auto",
     .choices = "auto|vmm|qemu",
     .type = CELLA_OPT_ENUM},
    {.name = "qemu",
     .help = "QEMU's system emulator for x86-64, 7.2 or newer",
     .def = QEMU_DEFAULT,
     .type = CELLA_OPT_PATH},
    VM_OPTIONS};

static int microvm_probe(const struct cella_host *host, const struct cella_probe_report *report,
                         struct cella_probe *ret_probe, struct cella_error *err)
{
    return vm_probe(&microvm, host, report, ret_probe, err);
}

static int microvm_create(const struct cella_host *host, const struct cella_spec *spec,
                          void **ret_self, struct cella_error *err)
{
    return vm_create(&microvm, host, spec, ret_self, err);
}

static int microvm_restore(const struct cella_host *host, const struct cella_spec *spec,
                           const struct cella_snapshot *snapshot, void **ret_self,
                           struct cella_error *err)
{
    return vm_restore(&microvm, host, spec, snapshot, ret_self, err);
}

static int microvm_prepare(const struct cella_host *host, const struct cella_spec *spec,
                           void **ret_self, struct cella_error *err)
{
    return vm_prepare(&microvm, host, spec, ret_self, err);
}

static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "microvm",
    .version = "0.1.0",
    .summary = "a small machine of its own: our monitor on KVM, QEMU where there is none",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(struct cella_option),
    .methods = vm_methods,
    .n_methods = VM_N_METHODS,
    .method_stride = sizeof(struct cella_method),
    .probe = microvm_probe,
    .create = microvm_create,
    .start = vm_start,
    .stop = vm_stop,
    .destroy = vm_destroy,
    .connect = vm_connect,
    .reap = vm_reap,
    .pause = vm_pause,
    .resume = vm_resume,
    .stats = vm_stats,
    .resize = vm_resize,
    .snapshot = vm_snapshot,
    .restore = microvm_restore,
    .fork = vm_fork,
    .prepare = microvm_prepare,
    .load = vm_load,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
