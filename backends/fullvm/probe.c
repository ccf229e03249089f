/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - what a machine of this host would be: QEMU, its version, KVM tried out, the helpers that build disks. A quick
 * probe does not ask QEMU for its version: starting it costs more than everything else here. Threads: one.
 */
#include "fullvm.h"

static void say(const struct cella_probe_report *report, const char *name, uint32_t answer,
                const char *reason)
{
    report->capability(report->ctx, name, answer, reason);
}

static int helpers(const struct cella_host *host, struct cella_error *err)
{
    if (!host_program(mke2fs_paths))
        return fail(err, -ENOENT, "fullvm: mke2fs is not there: install the package e2fsprogs");
    if (!CELLA_HOST_HAS(host, helper_path) || !host->helper_path(host->ctx, SHIM_NAME))
        return fail(err, -ENOENT, "fullvm: %s is not there: build or install it", SHIM_NAME);
    return 0;
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
    say(report, "limit.io", CELLA_NATIVE, "QEMU throttles the writable disk");
    cpu_say(report, l);
    say(report, "pause", CELLA_NATIVE, "the processors are stopped");
    say(report, "stats", CELLA_NATIVE, "control group of QEMU, blocks of the disk");
    say(report, "resize", CELLA_EMULATED,
        "within what the machine was made with: memory by balloon, cpu by quota, io");
    say(report, "rootfs.readonly", CELLA_NATIVE, NULL);
    say(report, "methods", CELLA_NATIVE, "console machine balloon limit-cpu");
}

static void copies_say(const struct cella_probe_report *report)
{
    if (!host_program(qemu_img_paths)) {
        static const char *const why = "qemu-img is not there: install the package qemu-utils";
        say(report, "restore", CELLA_NONE, why);
        say(report, "fork", CELLA_NONE, why);
    } else {
        say(report, "restore", CELLA_NATIVE, "memory is shared until it is written");
        say(report, "fork", CELLA_NATIVE, "by way of a snapshot without a name");
    }
    say(report, "snapshot", CELLA_NATIVE, "of a running machine without mounts of the host");
}

int fullvm_probe(const struct cella_host *host, const struct cella_probe_report *report,
                 struct cella_probe *ret_probe, struct cella_error *err)
{
    int quick = (report->hdr.flags & CELLA_PROBE_QUICK) != 0;
    struct host_facts *facts = calloc(1, sizeof(*facts));
    struct cgroup_layout l;
    char reason[300];
    int r;

    if (!facts)
        return fail(err, -ENOMEM, "fullvm: out of memory");
    r = geteuid() ? fail(err, -EPERM, "fullvm: must run as root to put QEMU into a jail") : 0;
    if (r == 0)
        r = host_facts(QEMU_DEFAULT, quick, facts, err);
    if (r == 0)
        r = helpers(host, err);
    if (r == 0)
        r = cgroup_layout_read(&l, err);
    if (r == 0) {
        limits_say(report, &l);
        snprintf(reason, sizeof(reason), "%s%s",
                 facts->kvm ? "a guest was run" : "emulated by QEMU: ",
                 facts->kvm ? "" : facts->kvm_why);
        say(report, "kvm", facts->kvm ? CELLA_NATIVE : CELLA_EMULATED, reason);
        if (!quick) {
            snprintf(reason, sizeof(reason), "QEMU %s, %s", facts->version, facts->qemu);
            say(report, "qemu", CELLA_NATIVE, reason);
        }
        copies_say(report);
        ret_probe->strength = facts->kvm ? CELLA_STRENGTH_VM : CELLA_STRENGTH_VM_EMULATED;
        ret_probe->net_need = CELLA_NET_TAP;
        ret_probe->root_need = CELLA_ROOT_IMAGE;
    }
    free(facts);
    return r;
}
