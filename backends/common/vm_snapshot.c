/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * snapshot - a running machine into a directory, while it goes on.
 *
 * What must be of one moment is taken while the processors stand still: the devices' state, the memory, the layer of
 * the disk that is written to. The memory costs next to nothing then: of a machine that has its memory to itself,
 * QEMU is told to write to copies from now on, and what was its memory is sealed and copied when it runs again; of a
 * clone, the file below was copied before and only its own pages are added. Everything that nobody changes any more
 * is copied outside the pause.
 *
 * Invariants: no file of a snapshot is ever open for writing in a QEMU. On failure the machine goes on as it was, and the
 * directory is empty again. Threads: one.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "vm.h"
#include "vm_manifest.h"

#define ROOM_LEAST (64u << 10) /* with less than this, room is what is missing */

struct taking {
    struct vm *f;
    const struct cella_snapshot *said; /* NULL: nobody waits for the cell to go on */
    int dir, brief;
    int ram, state;
    int layers[GUEST_LAYERS_MAX];
    struct manifest m;
    uint64_t copied; /* pages of a clone, bytes */
};

static int new_file(struct taking *t, const char *name, int *ret, struct cella_error *err)
{
    *ret = openat(t->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0400);
    return *ret < 0 ? cella_error_set(err, -errno, STEP_SNAPSHOT, "snapshot: %s: %s", name,
                                      strerror(errno))
                    : 0;
}

static int copy_failed(const char *what, int r, struct cella_error *err)
{
    return cella_error_set(err, r, STEP_SNAPSHOT, "snapshot: %s: %s%s", what, strerror(-r),
                           r == -ENOSPC ? "; nothing of it was kept, the cell goes on" : "");
}

static int copy(int from, int to, uint64_t size, const char *what, struct cella_error *err)
{
    int r = sparse_copy(from, to, size);

    return r < 0 ? copy_failed(what, r, err) : 0;
}

static int layer_copy(struct taking *t, uint32_t i, struct cella_error *err)
{
    struct stat st;

    if (fstat(t->f->layer_fds[i], &st) < 0)
        return copy_failed("disk", -errno, err);
    return copy(t->f->layer_fds[i], t->layers[i], (uint64_t)st.st_size, "disk", err);
}

/* ---- before, during and after the pause ---- */

static int files_make(struct taking *t, struct cella_error *err)
{
    char name[16];
    uint32_t i;
    int r = new_file(t, "ram", &t->ram, err);

    if (r == 0)
        r = new_file(t, "state", &t->state, err);
    for (i = 0; r == 0 && i < t->f->n_layers; i++) {
        snprintf(name, sizeof(name), "disk.%u", i);
        r = new_file(t, name, &t->layers[i], err);
    }
    return r;
}

static int before(struct taking *t, struct cella_error *err)
{
    uint32_t i;
    int r = files_make(t, err);

    if (r == 0 && t->f->ram_private)
        r = copy(t->f->ram_fd, t->ram, t->f->ram_bytes, "memory", err);
    for (i = 0; r == 0 && i + 1 < t->f->n_layers; i++)
        r = layer_copy(t, i, err);
    return r;
}

/* What was the machine's memory is nobody's to write from here on. */
static int ram_release(struct vm *f, struct cella_error *err)
{
    uint64_t at;
    int r = f->engine->ops->ram_detach(f->engine, err);

    if (r < 0)
        return r;
    /* Whatever follows: detached once more, it would lose what it has written since. */
    f->ram_private = 1;
    r = engine_ram_find(f->engine, f->ram_fd, 1, f->ram_bytes, &at, err);
    if (r < 0)
        return r;
    if (fcntl(f->ram_fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return cella_error_set(err, -errno, STEP_SNAPSHOT,
                               "snapshot: the memory cannot be sealed: %s", strerror(errno));
    return 0;
}

static int ram_take(struct taking *t, int was_private, struct cella_error *err)
{
    struct vm *f = t->f;
    uint64_t at;
    int r;

    if (!was_private)
        return ram_release(f, err);
    r = engine_ram_find(f->engine, f->ram_fd, 1, f->ram_bytes, &at, err);
    if (r == 0)
        r = engine_ram_copies(f->engine, at, f->ram_bytes, t->ram, &t->copied, err);
    return r;
}

/* An engine that could not write says so, but seldom why. */
static int full(int fd)
{
    struct statvfs fs;

    return fstatvfs(fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_LEAST;
}

static int paused(struct taking *t, int was_private, struct cella_error *err)
{
    int r = t->f->engine->ops->save(t->f->engine, t->state, err);

    if (r < 0 && full(t->state))
        r = copy_failed("state", -ENOSPC, err);
    if (r == 0)
        r = ram_take(t, was_private, err);
    if (r == 0)
        r = layer_copy(t, t->f->n_layers - 1, err);
    return r;
}

/* ---- the manifest ---- */

static int notes(struct taking *t, struct cella_error *err)
{
    char name[16];
    uint32_t i;
    int r = manifest_note(&t->m, "ram", t->ram, t->brief);

    if (r == 0)
        r = manifest_note(&t->m, "state", t->state, t->brief);
    for (i = 0; r == 0 && i < t->f->n_layers; i++) {
        snprintf(name, sizeof(name), "disk.%u", i);
        r = manifest_note(&t->m, name, t->layers[i], t->brief);
    }
    if (r < 0)
        return copy_failed("digests", r, err);
    return 0;
}

static int manifest_make(struct taking *t, struct cella_error *err)
{
    struct vm *f = t->f;
    auto_free char *text = NULL;
    int r = host_cpu(t->m.host_cpu, sizeof(t->m.host_cpu));

    if (r < 0)
        return copy_failed("/proc/cpuinfo", r, err);
    snprintf(t->m.engine, sizeof(t->m.engine), "%s", f->engine->identity);
    snprintf(t->m.cpu, sizeof(t->m.cpu), "%s", f->cpu);
    snprintf(t->m.accel, sizeof(t->m.accel), "%s", f->kvm ? "kvm" : "tcg");
    t->m.ram_bytes = f->ram_bytes;
    t->m.disk_bytes = f->disk_bytes;
    t->m.root_bytes = f->root_bytes;
    t->m.vcpus = f->vcpus;
    t->m.network = f->has_net;
    r = notes(t, err);
    if (r < 0)
        return r;
    r = manifest_write(&t->m, &text);
    if (r == 0)
        r = create_file_at(t->dir, MANIFEST_NAME, text, strlen(text), 0400);
    return r < 0 ? copy_failed(MANIFEST_NAME, r, err) : 0;
}

/* ---- all of it ---- */

static void taking_fini(struct taking *t, int failed)
{
    static const char *const names[] = {"ram", "state", MANIFEST_NAME};
    char name[16];
    uint32_t i;

    if (t->ram >= 0)
        close(t->ram);
    if (t->state >= 0)
        close(t->state);
    for (i = 0; i < GUEST_LAYERS_MAX; i++) {
        if (t->layers[i] >= 0)
            close(t->layers[i]);
        snprintf(name, sizeof(name), "disk.%u", i);
        if (failed)
            unlinkat(t->dir, name, 0);
    }
    for (i = 0; failed && i < ARRAY_LEN(names); i++)
        unlinkat(t->dir, names[i], 0);
    free(t);
}

static int check(const struct vm *f, struct cella_error *err)
{
    if (f->n_shares)
        return cella_error_set(err, -ENOTSUP, STEP_SNAPSHOT,
                               "snapshot: the cell has mounts of the host, which no snapshot can "
                               "hold; copy what it needs into it with cella cp");
    if (f->n_layers == GUEST_LAYERS_MAX)
        return cella_error_set(err, -ENOTSUP, STEP_SNAPSHOT,
                               "snapshot: a copy of copies, %u deep: the next would be one too "
                               "many; begin from a fresh cell",
                               f->n_layers);
    return 0;
}

static int take(struct taking *t, struct cella_error *err)
{
    struct vm *f = t->f;
    int was_private = f->ram_private, r = before(t, err), back;
    struct errbuf eb;
    uint64_t from;

    if (r < 0)
        return r;
    from = now_ns();
    r = f->paused ? 0 : f->engine->ops->pause(f->engine, err);
    if (r == 0)
        r = paused(t, was_private, err);
    /* A pause that was answered too late has stopped it all the same. */
    back = f->paused ? 0 : f->engine->ops->cont(f->engine, errbuf_init(&eb));
    f->pause_ns = now_ns() - from;
    if (back == 0 && t->said && t->said->taken)
        t->said->taken(t->said->ctx);
    if (back < 0 && r == 0)
        r = cella_error_set(err, back, STEP_SNAPSHOT, "snapshot: the cell does not go on: %s",
                            eb.text);
    if (r == 0 && !was_private)
        r = copy(f->ram_fd, t->ram, f->ram_bytes, "memory", err);
    return r < 0 ? r : manifest_make(t, err);
}

#define HAS(s, member)                                                                             \
    ((s)->hdr.size >= __builtin_offsetof(struct cella_snapshot, member) +                          \
                          sizeof(((struct cella_snapshot *)0)->member))

int snapshot_take(struct vm *f, const struct cella_snapshot *to, struct cella_error *err)
{
    struct taking *t = calloc(1, sizeof(*t));
    struct errbuf eb;
    uint32_t i;
    int r = check(f, err);

    if (!t)
        return cella_error_set(err, -ENOMEM, STEP_SNAPSHOT, "out of memory");
    if (!err)
        err = errbuf_init(&eb);
    t->f = f;
    t->dir = to->borrow_dir_fd;
    t->said = HAS(to, taken) ? to : NULL;
    t->brief = HAS(to, brief) && to->brief;
    t->ram = t->state = -1;
    for (i = 0; i < GUEST_LAYERS_MAX; i++)
        t->layers[i] = -1;
    if (r == 0)
        r = take(t, err);
    taking_fini(t, r < 0);
    return r;
}
