/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * cell - the harness of the real tests. Root only. The skeleton of the image is the shape of the
 * built-in "host" image: a few directories and links, /usr mounted into it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cell.h"

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)topic;
    (void)fmt;
}

static int host_emit(void *ctx, const struct cella_event *event)
{
    struct cell *c = ctx;
    size_t n = strlen(c->events);

    snprintf(c->events + n, sizeof(c->events) - n, "%s:%.*s ", event->kind,
             (int)event->fields[0].str.len, event->fields[0].str.ptr);
    return 0;
}

static struct cella_host host = {
    .hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST), .log = host_log, .emit = host_emit};

const struct cella_backend_ops *cell_ops(void)
{
    static const struct cella_backend_ops *ops;

    if (!ops) {
        const char *path = getenv("CELLA_TEST_CONTAINER");
        void *dl = dlopen(path ? path : TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL);
        cella_plugin_entry_fn entry;
        if (!dl) {
            fprintf(stderr, "%s\n", dlerror());
            abort();
        }
        *(void **)&entry = dlsym(dl, CELLA_ENTRY_NAME);
        ops = entry ? entry() : NULL;
        if (!ops)
            abort();
    }
    return ops;
}

static int agent_load(void)
{
    auto_free char *text = NULL;
    size_t len;
    int fd = memfd_create("agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *path = getenv("CELLA_TEST_AGENT");

    if (read_file_at(AT_FDCWD, path ? path : TEST_AGENT, 64u << 20, &text, &len) < 0 ||
        write_all(fd, text, len) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        abort();
    return fd;
}

static void skeleton_make(struct cell *c)
{
    static const char *const dirs[] = {"usr", "etc", "proc", "sys", "dev",
                                       "tmp", "run", "root", "var", "var/tmp"};
    static const char *const links[] = {"bin", "sbin", "lib", "lib64"};
    auto_close int fd = -1;
    char path[32];
    size_t i;

    snprintf(c->skeleton, sizeof(c->skeleton), "%s/root", c->dir);
    snprintf(c->scratch, sizeof(c->scratch), "%s/scratch", c->dir);
    if (mkdir(c->skeleton, 0755) < 0 || mkdir(c->scratch, 0700) < 0)
        abort();
    fd = open(c->skeleton, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (i = 0; i < ARRAY_LEN(dirs); i++)
        mkdirat(fd, dirs[i], 0755);
    if (fchmodat(fd, "tmp", 01777, 0) < 0)
        abort();
    for (i = 0; i < ARRAY_LEN(links); i++) {
        snprintf(path, sizeof(path), "usr/%s", links[i]);
        if (symlinkat(path, fd, links[i]) < 0)
            abort();
    }
    close(openat(fd, "etc/passwd", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
}

/* Shared, as a host's are: what gets out of a cell's namespace is seen in ours. */
void cells_apart(void)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) < 0) {
        perror("a mount namespace");
        abort();
    }
}

void cell_init(struct cell *c)
{
    memset(c, 0, sizeof(*c));
    random_id(c->id);
    snprintf(c->dir, sizeof(c->dir), "%s/cella-test.XXXXXX",
             getenv("CELLA_TEST_DIR") ? getenv("CELLA_TEST_DIR") : "/run");
    if (!mkdtemp(c->dir))
        abort();
    chmod(c->dir, 0755);
    skeleton_make(c);
    c->agent_fd = agent_load();
    c->stream = -1;
    c->limits =
        (struct cella_limits){.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS)};
    c->options =
        (struct cella_options){.hdr = CELLA_HDR_INIT(struct cella_options, CELLA_KIND_OPTIONS),
                               .value_stride = sizeof(struct cella_option_value)};
    c->mounts[0] = (struct cella_mount){"/usr", "/usr", CELLA_MOUNT_BIND, CELLA_MOUNT_IMAGE, 0};
    c->spec = (struct cella_spec){.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC),
                                  .cell_id = c->id,
                                  .hostname = "probe",
                                  .root = c->skeleton,
                                  .scratch = c->scratch,
                                  .uid_base = TEST_UID_BASE,
                                  .uid_count = 65536,
                                  .borrow_userns_fd = -1,
                                  .borrow_netns_fd = -1,
                                  .own_tap_fd = -1,
                                  .borrow_agent_fd = c->agent_fd,
                                  .mounts = c->mounts,
                                  .n_mounts = 1,
                                  .mount_stride = sizeof(struct cella_mount),
                                  .limits = &c->limits,
                                  .options = &c->options};
}

int cell_create(struct cell *c)
{
    host.ctx = c;
    return cell_ops()->create(&host, &c->spec, &c->self, errbuf_init(&c->eb));
}

int cell_boot(struct cell *c)
{
    int r = cell_create(c);

    c->started =
        (struct cella_started){.hdr = CELLA_HDR_INIT(struct cella_started, CELLA_KIND_STARTED)};
    if (r == 0)
        r = cell_ops()->connect(c->self, 0, &c->stream, &c->eb.err);
    if (r == 0)
        r = cell_ops()->start(c->self, &c->started, &c->eb.err);
    if (r < 0)
        fprintf(stderr, "cell: %s\n", c->eb.text);
    return r;
}

long cell_ask_timeout(struct cell *c, int ms, const char *line)
{
    size_t len = 0;

    if (send(c->stream, line, strlen(line), MSG_NOSIGNAL) < 0 ||
        send(c->stream, "\n", 1, MSG_NOSIGNAL) < 0)
        return -EPIPE;
    for (;;) {
        struct pollfd p = {.fd = c->stream, .events = POLLIN};
        ssize_t n;
        if (poll(&p, 1, ms) == 0)
            return -ETIMEDOUT;
        n = recv(c->stream, c->reply + len, sizeof(c->reply) - 1 - len, 0);
        if (n <= 0)
            return -EPIPE;
        len += (size_t)n;
        c->reply[len] = 0;
        if (c->reply[len - 1] == '\n') {
            c->reply[len - 1] = 0;
            return strtol(c->reply, NULL, 10);
        }
    }
}

long cell_ask(struct cell *c, const char *fmt, ...)
{
    char line[4096];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    return cell_ask_timeout(c, 30000, line);
}

struct cella_stats cell_stats(struct cell *c)
{
    struct cella_stats s = {.hdr = CELLA_HDR_INIT(struct cella_stats, CELLA_KIND_STATS)};

    cell_ops()->stats(c->self, &s, NULL);
    return s;
}

int64_t cell_json(const struct cell *c, const char *name, char *buf, uint64_t cap)
{
    int64_t (*fn)(void *, char *, uint64_t, struct cella_error *);
    uint32_t i;

    for (i = 0; i < cell_ops()->n_methods; i++)
        if (!strcmp(cell_ops()->methods[i].name, name)) {
            fn = (int64_t(*)(void *, char *, uint64_t, struct cella_error *))cell_ops()
                     ->methods[i]
                     .fn;
            return fn(c->self, buf, cap, NULL);
        }
    return -ENOENT;
}

void cell_fini(struct cell *c)
{
    if (c->self) {
        cell_ops()->stop(c->self, CELLA_STOP_KILL, 0, NULL);
        cell_ops()->destroy(c->self);
        c->self = NULL;
    }
    if (c->stream >= 0)
        close(c->stream);
    close(c->agent_fd);
    remove_tree_at(AT_FDCWD, c->dir);
}
