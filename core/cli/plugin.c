/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * plugin - `cella plugin ls` and `cella plugin inspect FILE|NAME`.
 *
 * Looking at a plugin runs its code: constructors, the entry, the probe. So each one is loaded in a
 * child of its own, with the watchdog on and the standard streams guarded; the child sends a
 * description as JSON through a pipe. Whatever the plugin does, this process prints a line about it
 * and goes on.
 *
 * Mustn't: load a plugin in this process; trust the child's bytes (bounded, parsed, printed
 * cleaned). Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "plugin.h"
#include "plugin_print.h"

#define ANSWER_MAX (1u << 20)
#define REPORT_MAX 1024
#define CHILD_NS 30000000000ull /* above the sum of the deadlines inside */
#define PLUGINS_MAX 256

int cmd_plugin(int argc, char **argv);

struct look {
    json_t *about;          /* the description, or NULL */
    char fault[REPORT_MAX]; /* why there is none */
};

/* ---- the child ---- */
static void quiet_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
    CELLA_PRINTF(4, 5);
static void quiet_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    json_t *notes = ctx;
    char text[1400];
    va_list ap;

    (void)level, (void)topic;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_array_append_new(notes, json_string(text));
}

static int no_emit(void *ctx, const struct cella_event *event)
{
    (void)ctx, (void)event;
    return 0;
}

static int no_watch(void *ctx, int borrow_fd, uint32_t events, cella_fd_cb cb, void *data)
{
    (void)ctx, (void)borrow_fd, (void)events, (void)cb, (void)data;
    return -ENOSYS;
}

static void no_unwatch(void *ctx, int borrow_fd)
{
    (void)ctx, (void)borrow_fd;
}

static int no_timer(void *ctx, uint64_t ns, cella_timer_cb cb, void *data)
{
    (void)ctx, (void)ns, (void)cb, (void)data;
    return -ENOSYS;
}

static void no_cancel(void *ctx, int id)
{
    (void)ctx, (void)id;
}

static const char *helper_of(void *ctx, const char *name)
{
    (void)ctx;
    return helper_path(name);
}

static void child(const char *path, int probe, int answer_fd, int report_fd)
{
    static const struct rlimit no_core = {0, 0};
    json_t *notes = json_array();
    const struct cella_host host = {
        .hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
        .ctx = notes,
        .log = quiet_log,
        .emit = no_emit,
        .fd_watch = no_watch,
        .fd_unwatch = no_unwatch,
        .timer = no_timer,
        .timer_cancel = no_cancel,
        .helper_path = helper_of,
    };
    struct plugin *p = NULL;
    struct errbuf eb;
    json_t *about;
    char *text;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    if (plugin_stdio_guard() < 0 || watchdog_init(report_fd) < 0) {
        dprintf(report_fd, "cannot guard the process that looks at plugins\n");
        _exit(STATUS_FAILED);
    }
    if (plugin_load(path, &p, errbuf_init(&eb)) < 0) {
        dprintf(report_fd, "%s\n", eb.text);
        _exit(STATUS_FAILED);
    }
    about = plugin_describe(p, &host, probe);
    if (json_array_size(notes))
        json_object_set(about, "notes", notes);
    text = json_dumps(about, JSON_COMPACT | JSON_ENSURE_ASCII);
    if (!text || write_all(answer_fd, text, strlen(text)) < 0)
        _exit(STATUS_FAILED);
    _exit(0);
}

/* ---- the parent ---- */
/* Reads what is there; 0 at the end of the stream. */
static int drain(int fd, struct buf *b, size_t max)
{
    char part[4096];
    ssize_t n = read(fd, part, sizeof(part));

    if (n > 0 && b->len + (size_t)n <= max)
        buf_add(b, part, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

/* Collects both pipes until both end or time is up; 0 when it was. */
static int collect(int answer_fd, int report_fd, struct buf *answer, struct buf *report)
{
    struct pollfd p[2] = {{answer_fd, POLLIN, 0}, {report_fd, POLLIN, 0}};
    uint64_t end = now_ns() + CHILD_NS, now;

    while ((p[0].fd >= 0 || p[1].fd >= 0) && (now = now_ns()) < end) {
        if (poll(p, 2, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR)
            return 0;
        if (p[0].fd >= 0 && p[0].revents && !drain(p[0].fd, answer, ANSWER_MAX))
            p[0].fd = -1;
        if (p[1].fd >= 0 && p[1].revents && !drain(p[1].fd, report, REPORT_MAX - 1))
            p[1].fd = -1;
    }
    return p[0].fd < 0 && p[1].fd < 0;
}

static void judge(struct look *l, const char *path, int in_time, int status, struct buf *answer,
                  struct buf *report)
{
    size_t i;

    if (report->len) {
        snprintf(l->fault, sizeof(l->fault), "%s", report->ptr);
        for (i = 0; l->fault[i]; i++)
            if ((unsigned char)l->fault[i] < 0x20 || l->fault[i] == 0x7f)
                l->fault[i] = l->fault[i] == '\n' && !l->fault[i + 1] ? 0 : ' ';
    } else if (!in_time) {
        snprintf(l->fault, sizeof(l->fault), "plugin %s: no answer in time; stopped", path);
    } else if (WIFSIGNALED(status)) {
        snprintf(l->fault, sizeof(l->fault), "plugin %s: its process was killed by signal %d", path,
                 WTERMSIG(status));
    } else if (WEXITSTATUS(status) == 0 && answer->len) {
        l->about = json_loadb(answer->ptr, answer->len, JSON_REJECT_DUPLICATES, NULL);
    }
    if (!l->about && !l->fault[0])
        snprintf(l->fault, sizeof(l->fault),
                 "plugin %s: its process ended with status %d and no description", path,
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void look_at(const char *path, int probe, struct look *ret)
{
    auto_buf struct buf answer = BUF_INIT, report = BUF_INIT;
    int a[2], r[2], status = 0, in_time;
    pid_t pid;

    memset(ret, 0, sizeof(*ret));
    fflush(NULL); /* the child must not print what waits here once more */
    if (pipe2(a, O_CLOEXEC) < 0 || pipe2(r, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        snprintf(ret->fault, sizeof(ret->fault), "cannot start a process: %s", strerror(errno));
        return;
    }
    if (pid == 0) {
        close(a[0]);
        close(r[0]);
        child(path, probe, a[1], r[1]);
    }
    close(a[1]);
    close(r[1]);
    in_time = collect(a[0], r[0], &answer, &report);
    if (!in_time)
        kill(pid, SIGKILL); /* not waited for yet: the number is its own */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    close(a[0]);
    close(r[0]);
    judge(ret, path, in_time, status, &answer, &report);
}

/* ---- verbs ---- */
static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Paths of the .so files in the plugin directory, sorted. Returns how many, or -errno. */
static int list_dir(char **out, int max)
{
    DIR *d = opendir(plugin_dir());
    struct dirent *e;
    int n = 0;

    if (!d)
        return -errno;
    while (n < max && (e = readdir(d))) {
        const char *dot = strrchr(e->d_name, '.');
        if (dot && !strcmp(dot, ".so") && (out[n] = path_join(plugin_dir(), e->d_name)))
            n++;
    }
    closedir(d);
    qsort(out, (size_t)n, sizeof(out[0]), by_name);
    return n;
}

static int complain(const char *text)
{
    fprintf(stderr, "cella plugin: %s\n", text);
    return STATUS_FAILED;
}

static int complain_dir(int r)
{
    fprintf(stderr, "cella plugin: cannot read the plugin directory %s: %s\n", plugin_dir(),
            strerror(-r));
    return STATUS_FAILED;
}

static void ls_one(const char *path, int json, json_t *all)
{
    struct look l;
    json_t *j;

    look_at(path, 0, &l);
    if (json) {
        j = l.about ? json_incref(l.about)
                    : json_pack("{s:s, s:s}", "path", path, "error", l.fault);
        json_array_append_new(all, j);
    } else if (l.about) {
        printf("%-16s %-9s %-8s %-5s %s\n", plugin_text(l.about, "name"),
               plugin_text(l.about, "kind"), plugin_text(l.about, "version"),
               plugin_text(json_object_get(l.about, "abi"), "table"),
               plugin_text(l.about, "summary"));
    } else {
        printf("%-16s refused: %s\n", strrchr(path, '/') + 1, l.fault);
    }
    json_decref(l.about);
}

static int cmd_ls(int json)
{
    char *paths[PLUGINS_MAX];
    json_t *all = json_array();
    int n = list_dir(paths, PLUGINS_MAX), i, r = 0;

    if (n < 0) {
        json_decref(all);
        return complain_dir(n);
    }
    if (!json && n)
        printf("%-16s %-9s %-8s %-5s %s\n", "NAME", "KIND", "VERSION", "ABI", "SUMMARY");
    for (i = 0; i < n; i++) {
        ls_one(paths[i], json, all);
        free(paths[i]);
    }
    if (json)
        r = plugin_print_json(all);
    json_decref(all);
    return r;
}

/* A name as in the config: looked for among the plugins of the directory. */
static int find_named(const char *name, char out[PATH_MAX])
{
    char *paths[PLUGINS_MAX];
    struct look l;
    int n = list_dir(paths, PLUGINS_MAX), i, found = 0;

    for (i = 0; i < n; i++) {
        if (!found && !strcmp(strrchr(paths[i], '/') + 1, name)) {
            found = snprintf(out, PATH_MAX, "%s", paths[i]) < PATH_MAX;
        } else if (!found) {
            look_at(paths[i], 0, &l);
            if (l.about && !strcmp(plugin_text(l.about, "name"), name))
                found = snprintf(out, PATH_MAX, "%s", paths[i]) < PATH_MAX;
            json_decref(l.about);
        }
        free(paths[i]);
    }
    return found;
}

static int cmd_inspect(const char *what, int json)
{
    char path[PATH_MAX];
    struct look l;
    int r = 0;

    if (strchr(what, '/')) {
        if (!realpath(what, path)) {
            fprintf(stderr, "cella plugin: %s: %s\n", what, strerror(errno));
            return STATUS_FAILED;
        }
    } else if (!find_named(what, path)) {
        fprintf(stderr,
                "cella plugin: no plugin \"%s\" in %s; give a path, or a name of "
                "\"cella plugin ls\"\n",
                what, plugin_dir());
        return STATUS_FAILED;
    }
    look_at(path, 1, &l);
    if (!l.about)
        return complain(l.fault);
    if (json)
        r = plugin_print_json(l.about);
    else
        plugin_print(l.about);
    json_decref(l.about);
    return r;
}

static const char usage[] =
    "Usage: cella plugin ls [--json]\n"
    "       cella plugin inspect FILE|NAME [--json]\n"
    "\n"
    "ls lists the plugins of the plugin directory. inspect loads one in a process of its own and\n"
    "shows kind, versions, operations, options, methods and what its probe answers on this host.\n";

/* argv[0] is "plugin". */
int cmd_plugin(int argc, char **argv)
{
    const char *words[2] = {NULL, NULL};
    int json = 0, n = 0, i;

    for (i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) {
            json = 1;
        } else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(usage, stdout);
            return 0;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            fprintf(stderr, "cella plugin: unknown option %s; see cella plugin --help\n", argv[i]);
            return STATUS_FAILED;
        } else if (n == 2) {
            return complain("too many arguments; see cella plugin --help");
        } else {
            words[n++] = argv[i];
        }
    }
    if (n == 1 && !strcmp(words[0], "ls"))
        return cmd_ls(json);
    if (n == 2 && !strcmp(words[0], "inspect"))
        return cmd_inspect(words[1], json);
    if (n && strcmp(words[0], "ls") && strcmp(words[0], "inspect"))
        fprintf(stderr, "cella plugin: unknown command \"%.64s\"\n", words[0]);
    fputs(usage, stderr);
    return STATUS_FAILED;
}
