/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - what this host can do, tried out rather than read from a version number, and left as it
 * was. A quick probe leaves out what create() is about to do anyway, and asks instead. Threads: one.
 */
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "container.h"
#include "nspair.h"

#define PROBE_UID 1879048192u /* any unused range; nothing is owned by it */

static void say(const struct cella_probe_report *report, const char *name, uint32_t answer,
                const char *reason)
{
    report->capability(report->ctx, name, answer, reason);
}

static void limit_say(const struct cella_probe_report *report, const struct cgroup_layout *l,
                      enum cgroup_controller c, const char *name)
{
    char reason[160];
    int version = cgroup_layout_version(l, c);

    if (!version)
        snprintf(reason, sizeof(reason), "no cgroup hierarchy has the \"%s\" controller",
                 cgroup_controller_name(c));
    else
        snprintf(reason, sizeof(reason), "cgroup v%d", version);
    if (version == 1 && c == CGROUP_IO)
        say(report, name, CELLA_EMULATED, "cgroup v1 throttles reads and direct writes only");
    else
        say(report, name, version ? CELLA_NATIVE : CELLA_NONE, reason);
}

static void idmap_say(const struct cella_probe_report *report, int userns)
{
    struct mount_attr a = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, "/usr", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    char reason[200];

    if (fd >= 0 && syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &a, sizeof(a)) == 0) {
        say(report, "rootfs.idmap", CELLA_NATIVE, "tried on the file system of /usr");
    } else {
        snprintf(reason, sizeof(reason),
                 "the file system of /usr cannot map owner ids (%s): image files belong to nobody "
                 "in the cell",
                 strerror(errno));
        say(report, "rootfs.idmap", CELLA_EMULATED, reason);
    }
    if (fd >= 0)
        close(fd);
}

static void freezer_say(const struct cella_probe_report *report, const struct cgroup_layout *l)
{
    if (l->v2.path[0])
        say(report, "pause", CELLA_NATIVE, "cgroup v2 freezer");
    else if (cgroup_layout_version(l, CGROUP_FREEZER))
        say(report, "pause", CELLA_NATIVE, "cgroup v1 freezer");
    else
        say(report, "pause", CELLA_NONE, "no cgroup freezer");
}

/* Made and removed again: a hierarchy can be there and be read-only, as inside a container. */
static int groups_try(const struct cgroup_layout *l, struct cella_error *err)
{
    const uint32_t want = 1u << CGROUP_PIDS; /* the cheapest */
    char id[CELLA_ID_LEN + 1];
    struct cgroup g;
    int r = random_id(id);

    if (r == 0)
        r = cgroup_create(l, NULL, id, want, &g, err);
    if (r < 0)
        return r;
    cgroup_remove(&g);
    return 0;
}

/* What groups_try() finds out, as far as it can be asked. */
static int groups_ask(const struct cgroup_layout *l, struct cella_error *err)
{
    size_t i, n = l->n_v1 + (l->v2.path[0] != 0);

    for (i = 0; i < n; i++) {
        const char *path = i < l->n_v1 ? l->v1[i].path : l->v2.path;
        if (access(path, W_OK) < 0)
            return fail(err, -errno, "container: control groups at %s: %s", path, strerror(errno));
    }
    return 0;
}

static int userns_try(const struct cella_probe_report *report, struct cella_error *err)
{
    struct nspair pair = NSPAIR_INIT;
    int r = nspair_user_new(PROBE_UID, 65536, &pair, err);

    if (r < 0)
        return r;
    idmap_say(report, pair.userns_fd);
    nspair_close(&pair);
    return 0;
}

static int userns_ask(struct cella_error *err)
{
    auto_free char *text = NULL;

    if (read_file_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", 32, &text, NULL) < 0 ||
        atoi(text) <= 0)
        return fail(err, -ENOSPC,
                    "container: user namespaces are off: sysctl user.max_user_namespaces is 0");
    return 0;
}

static int needs(const struct cella_probe_report *report, struct cella_error *err)
{
    uint32_t action = SECCOMP_RET_KILL_PROCESS;
    int fs;

    if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
        return fail(err, -ENOTSUP,
                    "container: this kernel has no seccomp filter (CONFIG_SECCOMP_FILTER)");
    say(report, "seccomp", CELLA_NATIVE, "allow-list, other architectures killed");
    fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return fail(err, -ENOTSUP,
                    "container: this kernel cannot mount overlay file systems: %s; load the "
                    "module: modprobe overlay",
                    strerror(errno));
    close(fs);
    return 0;
}

int container_probe(const struct cella_host *host, const struct cella_probe_report *report,
                    struct cella_probe *ret_probe, struct cella_error *err)
{
    int quick = (report->hdr.flags & CELLA_PROBE_QUICK) != 0;
    struct cgroup_layout l;
    int r;

    (void)host;
    if (geteuid())
        return fail(err, -EPERM, "container: must run as root to map a range of ids");
    r = cgroup_layout_read(&l, err);
    if (r == 0)
        r = quick ? groups_ask(&l, err) : groups_try(&l, err);
    if (r == 0)
        r = needs(report, err);
    if (r == 0)
        r = quick ? userns_ask(err) : userns_try(report, err);
    if (r < 0)
        return r;
    say(report, "userns", CELLA_NATIVE, "root of the cell is an unprivileged id of the host");
    if (access("/proc/self/ns/time", F_OK) == 0)
        say(report, "timens", CELLA_NATIVE, "clocks start at zero in the cell");
    else
        say(report, "timens", CELLA_NONE,
            "this kernel has no time namespaces: the cell sees the host's uptime");
    limit_say(report, &l, CGROUP_MEMORY, "limit.memory");
    limit_say(report, &l, CGROUP_PIDS, "limit.pids");
    limit_say(report, &l, CGROUP_CPU, "limit.cpu");
    limit_say(report, &l, CGROUP_IO, "limit.io");
    say(report, "limit.disk", CELLA_NATIVE,
        "one tmpfs with a size holds everything writable; it counts as memory");
    freezer_say(report, &l);
    say(report, "stats", CELLA_NATIVE, "control groups and the writable layer");
    say(report, "resize", CELLA_EMULATED, "memory, pids and cpu; not disk");
    say(report, "rootfs.readonly", CELLA_NATIVE, NULL);
    say(report, "methods", CELLA_NATIVE, "limit-memory limit-pids limit-cpu mounts processes");
    say(report, "snapshot", CELLA_NONE, "processes of the host's kernel cannot be saved");
    say(report, "fork", CELLA_NONE, "processes of the host's kernel cannot be copied as a whole");
    ret_probe->strength = CELLA_STRENGTH_PROCESS;
    ret_probe->net_need = CELLA_NET_NETNS;
    ret_probe->root_need = CELLA_ROOT_DIR;
    return 0;
}
