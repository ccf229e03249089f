/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * copy-backend - the container backend with a snapshot that holds no process, for tests of what the
 * host does around snapshots: a restored cell starts from its image. Its option "fault" makes an
 * operation fail on the way: "snapshot" (the disk is full half way), "restore". Threads: one.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cella/backend.h>
#include <cella/plugin.h>

#define STATE "a copy of nothing\n"
#define OPTIONS_MAX 16u

static const struct cella_backend_ops *real;

struct copy {
    void *self;
    char fault[16];
};

static const char *fault_of(const struct cella_spec *spec)
{
    const struct cella_option_value *v = cella_options_get(spec->options, "fault");

    return v && v->str ? v->str : "";
}

struct filter {
    const struct cella_probe_report *report;
};

static void filtered(void *ctx, const char *name, uint32_t answer, const char *reason)
{
    const struct filter *f = ctx;

    if (!strcmp(name, "snapshot") || !strcmp(name, "restore"))
        f->report->capability(f->report->ctx, name, CELLA_EMULATED, "a test, without processes");
    else
        f->report->capability(f->report->ctx, name, answer, reason);
}

static int copy_probe(const struct cella_host *host, const struct cella_probe_report *report,
                      struct cella_probe *ret_probe, struct cella_error *err)
{
    struct filter f = {report};
    struct cella_probe_report own = *report;

    own.ctx = &f;
    own.capability = filtered;
    return real->probe(host, &own, ret_probe, err);
}

static int copy_create(const struct cella_host *host, const struct cella_spec *spec,
                       void **ret_self, struct cella_error *err)
{
    struct copy *c = calloc(1, sizeof(*c));
    int r = c ? real->create(host, spec, &c->self, err)
              : cella_error_set(err, -ENOMEM, 1, "out of memory");

    if (r < 0) {
        free(c);
        return r;
    }
    snprintf(c->fault, sizeof(c->fault), "%s", fault_of(spec));
    *ret_self = c;
    return 0;
}

static int put(int dir, const char *name, const char *text, size_t len)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t n = fd < 0 ? -1 : write(fd, text, len);

    if (fd >= 0)
        close(fd);
    return n == (ssize_t)len ? 0 : -errno;
}

static int copy_snapshot(void *self, const struct cella_snapshot *to, struct cella_error *err)
{
    static const char disk[8192] = "disk";
    const struct copy *c = self;
    int r = put(to->borrow_dir_fd, "disk", disk, sizeof(disk));

    if (r == 0 && !strcmp(c->fault, "snapshot"))
        r = -ENOSPC;
    if (r == 0)
        r = put(to->borrow_dir_fd, "state", STATE, strlen(STATE));
    return r < 0 ? cella_error_set(err, r, 1, "the snapshot's files: %s", strerror(-r)) : 0;
}

static int copy_restore(const struct cella_host *host, const struct cella_spec *spec,
                        const struct cella_snapshot *from, void **ret_self, struct cella_error *err)
{
    int fd = openat(from->borrow_dir_fd, "state", O_RDONLY | O_CLOEXEC);
    char text[64] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    if (n < 0 || strcmp(text, STATE))
        return cella_error_set(err, -EBADMSG, 1, "its state is not one of this backend");
    if (!strcmp(fault_of(spec), "restore"))
        return cella_error_set(err, -EIO, 1, "a restore that fails because a test wants it");
    return copy_create(host, spec, ret_self, err);
}

static int copy_start(void *self, struct cella_started *ret, struct cella_error *err)
{
    if (!strcmp(((struct copy *)self)->fault, "start"))
        return cella_error_set(err, -EIO, 1, "a start that fails because a test wants it");
    return real->start(((struct copy *)self)->self, ret, err);
}

static int copy_stop(void *self, uint32_t how, uint64_t timeout_ns, struct cella_error *err)
{
    return real->stop(((struct copy *)self)->self, how, timeout_ns, err);
}

static void copy_destroy(void *self)
{
    struct copy *c = self;

    if (c)
        real->destroy(c->self);
    free(c);
}

static int copy_connect(void *self, uint32_t port, int *ret_fd, struct cella_error *err)
{
    return real->connect(((struct copy *)self)->self, port, ret_fd, err);
}

static int copy_reap(const struct cella_host *host, const struct cella_reap *reap,
                     struct cella_error *err)
{
    return real->reap(host, reap, err);
}

static int copy_stats(void *self, struct cella_stats *ret, struct cella_error *err)
{
    return real->stats(((struct copy *)self)->self, ret, err);
}

static int copy_pause(void *self, struct cella_error *err)
{
    return real->pause(((struct copy *)self)->self, err);
}

static int copy_resume(void *self, struct cella_error *err)
{
    return real->resume(((struct copy *)self)->self, err);
}

static int copy_resize(void *self, const struct cella_limits *limits, struct cella_error *err)
{
    return real->resize(((struct copy *)self)->self, limits, err);
}

static struct cella_option options[OPTIONS_MAX] = {
    {"fault", "operation that fails", "", NULL, CELLA_OPT_STRING, 0, 0, 0}};

static struct cella_backend_ops ops = {
    .hdr = CELLA_HDR_INIT(struct cella_backend_ops, CELLA_KIND_BACKEND),
    .name = "copy",
    .version = "1.0",
    .summary = "test: containers whose snapshots hold no process",
    .options = options,
    .n_options = 1,
    .option_stride = sizeof(options[0]),
    .probe = copy_probe,
    .create = copy_create,
    .start = copy_start,
    .stop = copy_stop,
    .destroy = copy_destroy,
    .connect = copy_connect,
    .reap = copy_reap,
    .pause = copy_pause,
    .resume = copy_resume,
    .stats = copy_stats,
    .resize = copy_resize,
    .snapshot = copy_snapshot,
    .restore = copy_restore,
};

/* The container backend is looked for when the host asks for the table. */
static struct cella_backend_ops *filled(void)
{
    cella_plugin_entry_fn entry = NULL;
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);
    void *so = NULL, *symbol;
    uint32_t i;

    path[n > 0 ? n : 0] = 0;
    if (strrchr(path, '/')) { /* in a build tree */
        strcpy(strrchr(path, '/') + 1, "plugins/cella-backend-container.so");
        so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    symbol = so ? dlsym(so, CELLA_ENTRY_NAME) : NULL;
    memcpy(&entry, &symbol, sizeof(entry));
    real = entry ? entry() : NULL;
    for (i = 0; real && i < real->n_options && i + 1 < OPTIONS_MAX; i++, ops.n_options++)
        options[i + 1] = real->options[i];
    return real ? &ops : NULL;
}
CELLA_REGISTER(CELLA_KIND_BACKEND, *filled())
