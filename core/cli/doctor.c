/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * doctor - what this host can do, asked of the plugins themselves.
 * Each plugin is loaded and probed in a child of its own with a deadline: one that crashes or hangs
 * is one line of the report. Exit status 0 when at least one backend is usable, else 1. Threads:
 * none.
 */
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <linux/kvm.h>
#include <linux/magic.h>
#include <sys/ioctl.h>

#include "cli.h"
#include "plugin.h"

#define PROBE_TIMEOUT_NS 10000000000ull
#define REPORT_MAX (1u << 20)

/* ---- plugins ---- */

static void no_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)topic;
    (void)fmt;
}

static int no_emit(void *ctx, const struct cella_event *event)
{
    (void)ctx;
    (void)event;
    return 0;
}

/* Helper programs lie beside this one in a checkout, in libexec when installed. */
static const char *helper(void *ctx, const char *name)
{
    (void)ctx;
    return helper_path(name);
}

static const struct cella_host host = {.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                       .log = no_log,
                                       .emit = no_emit,
                                       .helper_path = helper};

/* In the child. Prints one JSON object. */
static void probe_child(const char *path, int out)
{
    struct errbuf eb;
    struct plugin *p;
    json_t *j;
    char *text;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (plugin_load(path, &p, errbuf_init(&eb)) < 0)
        j = json_pack("{s:s}", "error", eb.text);
    else
        j = plugin_describe(p, &host, 1);
    text = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (text)
        write_all(out, text, strlen(text));
    _exit(0); /* nothing of the plugin runs at exit */
}

/* All the child says until it ends or the deadline. */
static int read_report(int fd, struct buf *b)
{
    uint64_t deadline = now_ns() + PROBE_TIMEOUT_NS;
    char chunk[4096];

    for (;;) {
        uint64_t now = now_ns();
        struct pollfd p = {fd, POLLIN, 0};
        ssize_t n;
        if (now >= deadline || b->len > REPORT_MAX)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)((deadline - now) / 1000000) + 1) <= 0)
            continue;
        n = read(fd, chunk, sizeof(chunk));
        if (n == 0)
            return 0;
        if (n > 0)
            buf_add(b, chunk, (size_t)n);
        else if (errno != EINTR)
            return -errno;
    }
}

static json_t *probe_plugin(const char *path)
{
    auto_buf struct buf b = BUF_INIT;
    int fds[2], status = 0, r;
    json_t *j;
    pid_t pid;

    fflush(stdout);
    if (pipe2(fds, O_CLOEXEC) < 0)
        return json_pack("{s:s}", "error", strerror(errno));
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        probe_child(path, fds[1]);
    }
    close(fds[1]);
    r = pid < 0 ? -errno : read_report(fds[0], &b);
    close(fds[0]);
    if (pid > 0 && r < 0)
        kill(pid, SIGKILL);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (r == -ETIMEDOUT)
        return json_pack("{s:s}", "error",
                         "the probe did not end within 10 s; the plugin is unusable");
    if (r < 0)
        return json_pack("{s:s}", "error", strerror(-r));
    j = b.len ? json_loadb(b.ptr, b.len, 0, NULL) : NULL;
    if (j)
        return j;
    return json_pack("{s:o}", "error",
                     WIFSIGNALED(status)
                         ? json_sprintf("the plugin crashed: signal %d", WTERMSIG(status))
                         : json_string("the plugin ended its process"));
}

static void add_path(json_t *paths, const char *path)
{
    const json_t *v;
    size_t i;

    json_array_foreach(paths, i, v) if (!strcmp(json_string_value(v), path)) return;
    json_array_append_new(paths, json_string(path));
}

static json_t *plugin_paths(const struct config *c)
{
    json_t *paths = json_array();
    char pattern[PATH_MAX];
    glob_t g;
    size_t i;

    for (i = 0; i < c->n_plugins; i++)
        add_path(paths, c->plugins[i].path);
    snprintf(pattern, sizeof(pattern), "%s/cella-*.so", plugin_dir());
    if (glob(pattern, 0, NULL, &g) == 0)
        for (i = 0; i < g.gl_pathc; i++)
            add_path(paths, g.gl_pathv[i]);
    globfree(&g);
    return paths;
}

static json_t *check_plugins(const struct config *c)
{
    json_t *paths = plugin_paths(c), *out = json_array();
    const json_t *path;
    size_t i;

    json_array_foreach(paths, i, path)
    {
        json_t *j = probe_plugin(json_string_value(path));
        json_object_set_new(j, "path", json_string(json_string_value(path)));
        json_array_append_new(out, j);
    }
    json_decref(paths);
    return out;
}

/* ---- host ---- */

static const char *cgroup_layout(void)
{
    struct statfs s;

    if (statfs("/sys/fs/cgroup", &s) < 0)
        return "none: /sys/fs/cgroup is not mounted, so no limit can be enforced";
    if ((unsigned long)s.f_type == CGROUP2_SUPER_MAGIC)
        return "v2";
    if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0)
        return "hybrid (v1 controllers, v2 tree beside them)";
    return "v1";
}

static json_t *cgroup_controllers(void)
{
    static const char *const names[] = {"memory", "pids", "cpu", "io", "blkio", "freezer"};
    auto_free char *v2 = NULL;
    json_t *out = json_array();
    char path[64], word[16];
    size_t i;

    read_file_at(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", 4096, &v2, NULL);
    for (i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s", names[i]);
        snprintf(word, sizeof(word), "%s", names[i]);
        if ((v2 && strstr(v2, word)) || (!v2 && access(path, F_OK) == 0))
            json_array_append_new(out, json_string(names[i]));
    }
    return out;
}

/* The node alone says nothing, and a machine can be made where no guest would run in it: that takes a processor with
   vmx or svm. */
static int kvm_works(void)
{
    auto_close int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
    auto_close int vm = fd >= 0 ? ioctl(fd, KVM_CREATE_VM, 0) : -1;
    auto_free char *cpu = NULL;

    return vm >= 0 && read_file_at(AT_FDCWD, "/proc/cpuinfo", 1 << 20, &cpu, NULL) == 0 &&
           (strstr(cpu, " vmx") || strstr(cpu, " svm"));
}

static json_t *check_kernel(void)
{
    static const struct {
        const char *name, *path;
    } features[] = {{"user namespaces", "/proc/self/ns/user"},
                    {"time namespaces", "/proc/self/ns/time"},
                    {"cgroup namespaces", "/proc/self/ns/cgroup"},
                    {"network namespaces", "/proc/self/ns/net"},
                    {"seccomp", "/proc/sys/kernel/seccomp/actions_avail"},

                    {"nftables", "/proc/sys/net/netfilter"},
                    {"overlayfs", "/sys/module/overlay"},
                    {"memory pressure", "/proc/pressure/memory"}};
    json_t *out = json_object(), *list = json_object();
    struct utsname u;
    size_t i;

    uname(&u);
    json_object_set_new(out, "release", json_string(u.release));
    json_object_set_new(out, "machine", json_string(u.machine));
    for (i = 0; i < ARRAY_LEN(features); i++)
        json_object_set_new(list, features[i].name,
                            json_boolean(access(features[i].path, F_OK) == 0));
    if (!json_is_true(json_object_get(list, "overlayfs"))) { /* built in: no module directory */
        auto_free char *fs = NULL;
        if (read_file_at(AT_FDCWD, "/proc/filesystems", 65536, &fs, NULL) == 0 &&
            strstr(fs, "overlay"))
            json_object_set_new(list, "overlayfs", json_true());
    }
    json_object_set_new(list, "kvm", json_boolean(kvm_works()));
    json_object_set_new(out, "features", list);
    return out;
}

static json_t *check_programs(void)
{
    static const char *const needed[] = {"cella-agent", "cella-gate", "cella-probe"};
    json_t *out = json_object();
    size_t i;

    for (i = 0; i < ARRAY_LEN(needed); i++)
        json_object_set_new(out, needed[i], json_boolean(helper(NULL, needed[i]) != NULL));
    return out;
}

/* ---- report ---- */

static void print_text(const char *s)
{
    print_safe(stdout, s, strlen(s));
}

static void print_flags(const char *title, const json_t *flags)
{
    const char *key;
    json_t *v;

    printf("%s\n", title);
    json_object_foreach((json_t *)(uintptr_t)flags, key, v)
        printf("  %-20s %s\n", key, json_is_true(v) ? "yes" : "no");
}

static int plugin_usable(const json_t *p)
{
    const json_t *usable = json_object_get(json_object_get(p, "probe"), "usable");

    return !json_object_get(p, "error") && (!usable || json_is_true(usable));
}

static void print_plugin(const json_t *p)
{
    const json_t *probe = json_object_get(p, "probe");
    const char *error = json_str(p, "error"), *name;
    json_t *cap;

    if (!*error)
        error = json_str(probe, "reason");
    printf("  ");
    print_text(*json_str(p, "name") ? json_str(p, "name") : json_str(p, "path"));
    printf(" (");
    print_text(*json_str(p, "kind") ? json_str(p, "kind") : "plugin");
    printf("): ");
    if (*error) {
        printf("unusable: ");
        print_text(error);
        putchar('\n');
        return;
    }
    printf("usable%s", *json_str(probe, "strength") ? ", strength " : "");
    print_text(json_str(probe, "strength"));
    putchar('\n');
    json_object_foreach(json_object_get(p, "capabilities"), name, cap)
    {
        auto_free char *safe = safe_string(name, strlen(name));
        printf("    %-18s %-9s ", safe, json_str(cap, "answer"));
        print_text(json_str(cap, "reason"));
        putchar('\n');
    }
}

static void print_report(const json_t *r)
{
    const json_t *kernel = json_object_get(r, "kernel"), *v;
    size_t i;

    printf("kernel %s %s\n", json_str(kernel, "release"), json_str(kernel, "machine"));
    print_flags("kernel features", json_object_get(kernel, "features"));
    printf("cgroups %s:", json_str(r, "cgroups"));
    json_array_foreach(json_object_get(r, "controllers"), i, v) printf(" %s", json_string_value(v));
    putchar('\n');
    print_flags("programs", json_object_get(r, "programs"));
    puts("plugins");
    json_array_foreach(json_object_get(r, "plugins"), i, v) print_plugin(v);
}

int verb_doctor(const struct options *o, int argc, char **argv)
{
    struct config *c;
    json_t *r, *p;
    size_t i;
    int usable = 0, e = cli_config(o, &c);

    (void)argc;
    (void)argv;
    if (e < 0)
        return e;
    r = json_pack("{s:o, s:s, s:o, s:o, s:o, s:b}", "kernel", check_kernel(), "cgroups",
                  cgroup_layout(), "controllers", cgroup_controllers(), "programs",
                  check_programs(), "plugins", check_plugins(c), "root", geteuid() == 0);
    config_free(c);
    json_array_foreach(json_object_get(r, "plugins"), i, p) usable +=
        plugin_usable(p) && !strcmp(json_str(p, "kind"), "backend");
    json_object_set_new(r, "usable_backends", json_integer(usable));
    if (o->json) {
        print_json(r);
    } else {
        print_report(r);
        if (geteuid() != 0)
            puts("note: not running as root; cella needs root for now");
        printf("%d usable backend%s\n", usable, usable == 1 ? "" : "s");
    }
    json_decref(r);
    return usable ? 0 : 1;
}
