/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * fullvm - the strongest boundary: a whole machine emulated by QEMU in a jail of its own, with a kernel of its own.
 * What it gives and what it does not is in README.md; the lifecycle is backends/common/vm.c's. Threads: as there.
 */
#include "vm.h"

static const struct vm_kind fullvm = {
    .name = "fullvm",
    .board = BOARD_Q35,
    .kvm = &engine_qemu,
    .emulated = &engine_qemu,
    .choice = "accel",
    .choice_kvm = "kvm",
    .choice_emulated = "tcg",
};

static const struct cella_option options[] = {
    {.name = "qemu",
     .help = "QEMU's system emulator for x86-64, 7.2 or newer",
     .def = QEMU_DEFAULT,
     .type = CELLA_OPT_PATH},
    {.name = "accel",
     .help = "what runs the guest's instructions; auto is kvm where it works",
     .def = "auto",
     .choices = "auto|kvm|tcg",
     .type = CELLA_OPT_ENUM},
    VM_OPTIONS};

static int fullvm_probe(const struct cella_host *host, const struct cella_probe_report *report,
                        struct cella_probe *ret_probe, struct cella_error *err)
{
    return vm_probe(&fullvm, host, report, ret_probe, err);
}

static int fullvm_create(const struct cella_host *host, const struct cella_spec *spec,
                         void **ret_self, struct cella_error *err)
{
    return vm_create(&fullvm, host, spec, ret_self, err);
}

static int fullvm_restore(const struct cella_host *host, const struct cella_spec *spec,
                          const struct cella_snapshot *snapshot, void **ret_self,
                          struct cella_error *err)
{
    return vm_restore(&fullvm, host, spec, snapshot, ret_self, err);
}

static int fullvm_prepare(const struct cella_host *host, const struct cella_spec *spec,
                          void **ret_self, struct cella_error *err)
{
    return vm_prepare(&fullvm, host, spec, ret_self, err);
}

static const struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "fullvm",
    .version = "0.1.0",
    .summary = "a machine of its own, emulated by a jailed QEMU: KVM where the host has it",
    .options = options,
    .n_options = ARRAY_LEN(options),
    .option_stride = sizeof(struct cella_option),
    .methods = vm_methods,
    .n_methods = VM_N_METHODS,
    .method_stride = sizeof(struct cella_method),
    .probe = fullvm_probe,
    .create = fullvm_create,
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
    .restore = fullvm_restore,
    .fork = vm_fork,
    .prepare = fullvm_prepare,
    .load = vm_load,
};
CELLA_REGISTER(CELLA_KIND_BACKEND, ops)
