/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * vm_probe - what a machine of this host would be: its engine, QEMU's version, KVM tried out, the helpers that build disks. A quick
 * probe does not ask QEMU for its version: starting it costs more than everything else here. Threads: one.
 */
#include "vm.h"

static void say(const struct cella_probe_report *report, const char *name, uint32_t answer,
                const char *reason)
{
    report->capability(report->ctx, name, answer, reason);
}

static int helper(const struct cella_host *host, const char *name, struct cella_error *err)
{
    if (name && (!CELLA_HOST_HAS(host, helper_path) || !host->helper_path(host->ctx, name)))
        return fail(err, -ENOENT, "%s is not there: build or install it", name);
    return 0;
}

static int helpers(const struct cella_host *host, const struct engine_ops *engine,
                   struct cella_error *err)
{
    if (!host_program(mke2fs_paths))
        return fail(err, -ENOENT, "mke2fs is not there: install the package e2fsprogs");
    if (engine->helper && host_io_uring(IO_URING_SETTING, err) < 0)
        return err ? err->code : -ENOTSUP;
    return helper(host, engine->helper, err) < 0 ? err ? err->code : -ENOENT
                                                 : helper(host, engine->preload, err);
}

static void cpu_say(const struct cella_probe_report *report, const struct cgroup_layout *l)
{
    char reason[120];
    int version = cgroup_layout_version(l, CGROUP_CPU);

    if (!version) {
        say(report, "limit.cpu", CELLA_NONE, "no cgroup hierarchy has the \"cpu\" controller");
        return;
    }
    snprintf(reason, sizeof(reason), "cgroup v%d, and the number of processors", version);
    say(report, "limit.cpu", CELLA_NATIVE, reason);
}

static void limits_say(const struct cella_probe_report *report, const struct cgroup_layout *l)
{
    say(report, "limit.memory", CELLA_NATIVE, "the machine has no more");
    say(report, "limit.pids", CELLA_NATIVE, "control group in the guest, kept by its init");
    say(report, "limit.disk", CELLA_NATIVE, "the disk has that size");
    say(report, "limit.io", CELLA_NATIVE, "the writable disk is throttled");
    cpu_say(report, l);
    say(report, "pause", CELLA_NATIVE, "the processors are stopped");
    say(report, "stats", CELLA_NATIVE, "control group of the engine, blocks of the disk");
    say(report, "resize", CELLA_EMULATED,
        "within what the machine was made with: memory by balloon, cpu by quota, io");
    say(report, "rootfs.readonly", CELLA_NATIVE, NULL);
    say(report, "methods", CELLA_NATIVE, "console machine balloon limit-cpu");
}

static void copies_say(const struct cella_probe_report *report, const struct engine_ops *engine)
{
    if (!engine->helper && !host_program(qemu_img_paths)) {
        static const char *const why = "qemu-img is not there: install the package qemu-utils";
        say(report, "restore", CELLA_NONE, why);
        say(report, "fork", CELLA_NONE, why);
    } else {
        say(report, "restore", CELLA_NATIVE, "memory is shared until it is written");
        say(report, "fork", CELLA_NATIVE, "by way of a snapshot without a name");
    }
    say(report, "snapshot", CELLA_NATIVE, "of a running machine without mounts of the host");
}

static int engine_say(const struct vm_kind *kind, const struct cella_probe_report *report, int kvm,
                      const char *why, struct cella_error *err)
{
    const struct engine_ops *engine = kvm ? kind->kvm : kind->emulated;
    int quick = (report->hdr.flags & CELLA_PROBE_QUICK) != 0, r = 0;
    char reason[300], version[64] = "";

    if (!engine->helper)
        r = host_qemu(QEMU_DEFAULT, quick ? NULL : version, sizeof(version), err);
    if (r < 0)
        return r;
    snprintf(reason, sizeof(reason), "%s%s",
             kvm ? "a guest was run" : "emulated by QEMU: ", kvm ? "" : why);
    say(report, "kvm", kvm ? CELLA_NATIVE : CELLA_EMULATED, reason);
    if (version[0]) {
        snprintf(reason, sizeof(reason), "QEMU %s, %s", version, QEMU_DEFAULT);
        say(report, "qemu", CELLA_NATIVE, reason);
    }
    return 0;
}

int vm_probe(const struct vm_kind *kind, const struct cella_host *host,
             const struct cella_probe_report *report, struct cella_probe *ret_probe,
             struct cella_error *err)
{
    const struct engine_ops *engine;
    struct cgroup_layout l;
    char why[200] = "";
    int kvm, r;

    r = geteuid() ? fail(err, -EPERM, "must run as root to put a machine into a jail") : 0;
    kvm = r == 0 && host_kvm(why, sizeof(why));
    engine = kvm ? kind->kvm : kind->emulated;
    if (r == 0)
        r = helpers(host, engine, err);
    if (r == 0)
        r = cgroup_layout_read(&l, err);
    if (r == 0)
        r = engine_say(kind, report, kvm, why, err);
    if (r < 0)
        return fail_wrap(err, "%s", kind->name);
    limits_say(report, &l);
    copies_say(report, engine);
    ret_probe->strength = kvm ? CELLA_STRENGTH_VM : CELLA_STRENGTH_VM_EMULATED;
    ret_probe->net_need = CELLA_NET_TAP;
    ret_probe->root_need = CELLA_ROOT_IMAGE;
    return 0;
}
