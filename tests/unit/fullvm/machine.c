/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * machine - the harness of the real tests. Root only. The kernel is the one that `cella image kernel fetch` put into the
 * build tree's test cache; CELLA_TEST_KERNEL names another directory of that shape.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <jansson.h>

#include "initrd.h"
#include "machine.h"

#define BOOT_MS 60000

static void host_log(void *ctx, uint32_t level, const char *topic, const char *fmt, ...)
{
    struct machine *m = ctx;
    va_list ap;

    (void)level;
    (void)topic;
    va_start(ap, fmt);
    vsnprintf(m->log, sizeof(m->log), fmt, ap);
    va_end(ap);
}

static int host_emit(void *ctx, const struct cella_event *event)
{
    struct machine *m = ctx;
    size_t n = strlen(m->events);

    snprintf(m->events + n, sizeof(m->events) - n, "%s:%.*s ", event->kind,
             (int)event->fields[0].str.len, event->fields[0].str.ptr);
    return 0;
}

static const char *host_helper(void *ctx, const char *name)
{
    static char path[600];

    (void)ctx;
    snprintf(path, sizeof(path), "%s/%s", TEST_BUILD, name);
    return access(path, R_OK) == 0 ? path : NULL;
}

struct cella_host machine_host = {.hdr = CELLA_HDR_INIT(struct cella_host, CELLA_KIND_HOST),
                                  .log = host_log,
                                  .emit = host_emit,
                                  .helper_path = host_helper};

const struct cella_backend_ops *machine_ops(void)
{
    static const struct cella_backend_ops *ops;

    if (!ops) {
        void *dl = dlopen(TEST_BUILD "/plugins/cella-backend-fullvm.so", RTLD_NOW | RTLD_LOCAL);
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

/* ---- kernel and initramfs ---- */

static const char *kernel_dir(void)
{
    const char *dir = getenv("CELLA_TEST_KERNEL");

    return dir ? dir : TEST_BUILD "/test-cache/state/kernels/default";
}

int machine_possible(void)
{
    char path[600];

    if (geteuid()) {
        fprintf(stderr, "needs root\n");
        return 77;
    }
    snprintf(path, sizeof(path), "%s/kernel.json", kernel_dir());
    if (access(path, R_OK) < 0) {
        fprintf(stderr, "no guest kernel in %s: CELLA_STATE_DIR=%s cella image kernel fetch\n",
                kernel_dir(), TEST_BUILD "/test-cache/state");
        return 77;
    }
    return 0;
}

static void initrd_make(struct machine *m)
{
    char path[600], *paths[64];
    json_t *kernel, *name;
    json_error_t error;
    int fd = open(m->initrd, O_CREAT | O_WRONLY | O_CLOEXEC, 0644), r;
    size_t i, n = 0;

    snprintf(path, sizeof(path), "%s/kernel.json", kernel_dir());
    kernel = json_load_file(path, 0, &error);
    json_array_foreach(json_object_get(kernel, "modules"), i, name)
    {
        snprintf(path, sizeof(path), "%s/modules/%s", kernel_dir(), json_string_value(name));
        if (n < ARRAY_LEN(paths))
            paths[n++] = strdup(path);
    }
    r = initrd_write(fd, TEST_INIT, TEST_INIT, (const char *const *)paths, n, errbuf_init(&m->eb));
    if (r < 0) {
        fprintf(stderr, "%s\n", m->eb.text);
        abort();
    }
    close(fd);
    json_decref(kernel);
    while (n)
        free(paths[--n]);
}

/* ---- the machine ---- */

void machine_init(struct machine *m)
{
    int fd;

    memset(m, 0, sizeof(*m));
    random_id(m->id);
    snprintf(m->dir, sizeof(m->dir), "%s/cella-test.XXXXXX",
             getenv("CELLA_TEST_DIR") ? getenv("CELLA_TEST_DIR") : "/var/tmp");
    if (!mkdtemp(m->dir))
        abort();
    snprintf(m->scratch, sizeof(m->scratch), "%s/scratch", m->dir);
    snprintf(m->root, sizeof(m->root), "%s/root.img", m->dir);
    snprintf(m->initrd, sizeof(m->initrd), "%s/initrd", m->dir);
    snprintf(m->kernel, sizeof(m->kernel), "%.280s/vmlinuz", kernel_dir());
    if (mkdir(m->scratch, 0700) < 0)
        abort();
    fd = open(m->root, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (ftruncate(fd, 1 << 20) < 0 || pwrite(fd, "ROOT", 4, 0) != 4)
        abort();
    close(fd);
    initrd_make(m);
    m->ports[0] = m->ports[1] = -1;
    m->limits = (struct cella_limits){.hdr = CELLA_HDR_INIT(struct cella_limits, CELLA_KIND_LIMITS),
                                      .memory_bytes = 128u << 20,
                                      .disk_bytes = 16u << 20};
    m->options =
        (struct cella_options){.hdr = CELLA_HDR_INIT(struct cella_options, CELLA_KIND_OPTIONS),
                               .values = m->values,
                               .value_stride = sizeof(struct cella_option_value)};
    m->spec = (struct cella_spec){.hdr = CELLA_HDR_INIT(struct cella_spec, CELLA_KIND_SPEC),
                                  .cell_id = m->id,
                                  .hostname = "probe",
                                  .root = m->root,
                                  .scratch = m->scratch,
                                  .uid_base = TEST_UID_BASE,
                                  .uid_count = 65536,
                                  .borrow_userns_fd = -1,
                                  .borrow_netns_fd = -1,
                                  .own_tap_fd = -1,
                                  .borrow_agent_fd = -1,
                                  .mounts = m->mounts,
                                  .mount_stride = sizeof(struct cella_mount),
                                  .limits = &m->limits,
                                  .options = &m->options,
                                  .kernel = m->kernel,
                                  .initrd = m->initrd};
}

void machine_option(struct machine *m, const char *name, const char *str, int64_t i64)
{
    m->values[m->options.n_values++] = (struct cella_option_value){name, str, i64};
}

int machine_create(struct machine *m)
{
    machine_host.ctx = m;
    return machine_ops()->create(&machine_host, &m->spec, &m->self, errbuf_init(&m->eb));
}

int machine_connect(struct machine *m, int port)
{
    if (m->ports[port] >= 0)
        close(m->ports[port]);
    m->ports[port] = -1;
    return machine_ops()->connect(m->self, (uint32_t)port, &m->ports[port], &m->eb.err);
}

int machine_run(struct machine *m)
{
    return machine_run_ms(m, BOOT_MS);
}

int machine_run_ms(struct machine *m, int ms)
{
    int r;

    m->started =
        (struct cella_started){.hdr = CELLA_HDR_INIT(struct cella_started, CELLA_KIND_STARTED)};
    r = machine_ops()->start(m->self, &m->started, &m->eb.err);
    if (r == 0)
        r = machine_connect(m, 0);
    if (r == 0)
        r = machine_connect(m, 1);
    if (r == 0 && machine_ask_ms(m, 0, ms, "ping") != 1)
        r = -ETIMEDOUT;
    return r;
}

int machine_boot(struct machine *m)
{
    int r = machine_create(m);

    if (r == 0)
        r = machine_run(m);
    if (r < 0)
        fprintf(stderr, "machine: %d %s\n", r, m->eb.text);
    return r;
}

long machine_ask_ms(struct machine *m, int port, int ms, const char *line)
{
    size_t len = 0;

    if (send(m->ports[port], line, strlen(line), MSG_NOSIGNAL) < 0 ||
        send(m->ports[port], "\n", 1, MSG_NOSIGNAL) < 0)
        return -EPIPE;
    for (;;) {
        struct pollfd p = {.fd = m->ports[port], .events = POLLIN};
        ssize_t n;
        if (poll(&p, 1, ms) == 0)
            return -ETIMEDOUT;
        n = recv(m->ports[port], m->reply + len, sizeof(m->reply) - 1 - len, 0);
        if (n <= 0)
            return -EPIPE;
        len += (size_t)n;
        m->reply[len] = 0;
        if (m->reply[len - 1] == '\n') {
            m->reply[len - 1] = 0;
            return strtol(m->reply, NULL, 10);
        }
    }
}

int machine_catch_up(struct machine *m, int port)
{
    struct pollfd p = {.fd = m->ports[port], .events = POLLIN};

    if (machine_ask_ms(m, port, 30000, "") != 1) /* the answer to ping */
        return -ETIMEDOUT;
    return strchr(m->reply, '\n') || /* and to "" */
                   (poll(&p, 1, 30000) == 1 && recv(p.fd, m->reply, sizeof(m->reply), 0) > 0)
               ? 0
               : -ETIMEDOUT;
}

long machine_ask(struct machine *m, int port, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    return machine_ask_ms(m, port, 30000, line);
}

int64_t machine_json(struct machine *m, const char *name, char *buf, uint64_t cap)
{
    int64_t (*fn)(void *, char *, uint64_t, struct cella_error *);
    uint32_t i;

    for (i = 0; i < machine_ops()->n_methods; i++)
        if (!strcmp(machine_ops()->methods[i].name, name)) {
            fn = (int64_t(*)(void *, char *, uint64_t, struct cella_error *))machine_ops()
                     ->methods[i]
                     .fn;
            return fn(m->self, buf, cap, &m->eb.err);
        }
    return -ENOENT;
}

struct cella_stats machine_stats(struct machine *m)
{
    struct cella_stats s = {.hdr = CELLA_HDR_INIT(struct cella_stats, CELLA_KIND_STATS)};

    machine_ops()->stats(m->self, &s, NULL);
    return s;
}

int machine_entries(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    while (d && (e = readdir(d)))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

void machine_fini(struct machine *m)
{
    int i;

    if (m->self) {
        machine_ops()->stop(m->self, CELLA_STOP_KILL, 0, NULL);
        machine_ops()->destroy(m->self);
        m->self = NULL;
    }
    for (i = 0; i < 2; i++)
        if (m->ports[i] >= 0)
            close(m->ports[i]);
    remove_tree_at(AT_FDCWD, m->dir);
}
