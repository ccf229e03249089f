/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * loader - from a path to a checked copy of a plugin's operation table.
 *
 * Order, each step before the next may run code of the object:
 *   1. path, owner and mode of the file and of all directories (open.c)
 *   2. ELF note: kind, major, min_host_minor (note.c)
 *   3. dlopen of the opened descriptor, RTLD_NOW|RTLD_LOCAL: constructors run here, not before
 *   4. the entry, then everything the table says, before any operation is called
 *
 * Invariants: what was checked is what is mapped. The C library tells loaded objects apart by the
 * name they were opened under before it looks at the file, and keeps that name as long as the
 * object is mapped; /proc/self/fd/N of a reused N would find an older object. So every load uses a
 * spelling of that path which this process has not used before. Under ASan nothing is unmapped.
 * Threads: load and unload from one thread at a time.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sys/stat.h>

#include "plugin_int.h"

#ifndef CELLA_INSTALLED_PLUGIN_DIR
#define CELLA_INSTALLED_PLUGIN_DIR "/usr/local/lib/cella/plugins"
#endif

int bytes_zero(const void *p, size_t n)
{
    const uint8_t *b = p;
    size_t i;

    for (i = 0; i < n; i++)
        if (b[i])
            return 0;
    return 1;
}

static int note_check(const struct cella_note *n, struct cella_error *err)
{
    if (n->magic != CELLA_NOTE_MAGIC)
        return fail(err, -ENOEXEC, "its note has a wrong magic number (%#x)", n->magic);
    if (n->major != CELLA_ABI_MAJOR)
        return fail(
            err, -ENOEXEC,
            "built for major version %u of the plugin interface, this cella has %u: rebuild "
            "it or use a matching cella",
            n->major, CELLA_ABI_MAJOR);
    if (!kind_info_get(n->kind))
        return fail(err, -ENOEXEC, "its note names an unknown plugin kind (%u)", n->kind);
    if (n->min_host_minor > CELLA_ABI_MINOR)
        return fail(err, -ENOEXEC,
                    "it needs version %u.%u of the plugin interface or newer, this cella has "
                    "%u.%u: use a newer cella",
                    n->major, n->min_host_minor, CELLA_ABI_MAJOR, CELLA_ABI_MINOR);
    return 0;
}

static int header_check(const struct cella_hdr *h, const struct cella_note *n,
                        const struct kind_info *k, struct cella_error *err)
{
    if (h->kind != n->kind)
        return fail(err, -ENOEXEC, "its note says %s but its table says %s (%u)", k->name,
                    kind_name(h->kind), h->kind);
    if (h->major != CELLA_ABI_MAJOR)
        return fail(err, -ENOEXEC, "its table says major version %u, this cella has %u", h->major,
                    CELLA_ABI_MAJOR);
    if (h->flags)
        return fail(err, -ENOEXEC, "its table has unknown flags set (%#x)", h->flags);
    if (h->size < k->baseline)
        return fail(err, -ENOEXEC,
                    "its table is too short: %u bytes, a %s has at least %u in major version %u",
                    h->size, k->name, k->baseline, CELLA_ABI_MAJOR);
    if (h->size > PLUGIN_TABLE_MAX)
        return fail(err, -ENOEXEC, "its table claims %u bytes, at most %u are accepted", h->size,
                    PLUGIN_TABLE_MAX);
    return 0;
}

/* The members every table starts with. A backend's layout serves all: the assertions say so. */
#define SAME(type, member)                                                                         \
    _Static_assert(offsetof(struct type, member) == offsetof(struct cella_backend_ops, member),    \
                   #type " starts like the others")
#define SAME_ALL(type)                                                                             \
    SAME(type, name);                                                                              \
    SAME(type, version);                                                                           \
    SAME(type, summary);                                                                           \
    SAME(type, options);                                                                           \
    SAME(type, n_options);                                                                         \
    SAME(type, option_stride)
SAME_ALL(cella_enforcer_ops);
SAME_ALL(cella_decider_ops);
SAME_ALL(cella_sink_ops);
SAME_ALL(cella_secret_ops);
SAME(cella_enforcer_ops, methods);
SAME(cella_enforcer_ops, n_methods);
SAME(cella_enforcer_ops, method_stride);

static int text_ok(const char *s)
{
    size_t i;

    for (i = 0; s && s[i]; i++)
        if (i >= PLUGIN_TEXT_MAX || (unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return 0;
    return s && i > 0;
}

static int plugin_name_ok(const char *s)
{
    return text_ok(s) && strlen(s) <= 63 && s[0] >= 'a' && s[0] <= 'z' &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-")] == 0;
}

static int identity_check(const struct plugin *p, struct cella_error *err)
{
    if (!plugin_name_ok(p->name))
        return fail(err, -ENOEXEC, "its table has no valid name ([a-z][a-z0-9-]*, at most 63)");
    if (!text_ok(p->version) || !text_ok(p->summary))
        return fail(err, -ENOEXEC, "%s: version or summary is missing or not one line of text",
                    p->name);
    return 0;
}

static int required_check(const struct plugin *p, const struct kind_info *k,
                          struct cella_error *err)
{
    char missing[256] = "";
    size_t n = 0;
    uint32_t i;

    for (i = 0; i < k->n_ops; i++)
        if (!k->ops[i].def && !op_present(p, &k->ops[i]) && n < sizeof(missing) - 32)
            n += (size_t)snprintf(missing + n, sizeof(missing) - n, "%s%s", n ? ", " : "",
                                  k->ops[i].name);
    if (n)
        return fail(err, -ENOEXEC, "%s: required operation missing: %s", p->name, missing);
    return 0;
}

int plugin_table_take(struct plugin *p, const void *table, const struct cella_note *note,
                      struct cella_error *err)
{
    const struct kind_info *k = kind_info_get(note->kind);
    const struct cella_backend_ops *o = &p->ops.backend;
    struct cella_hdr hdr;
    int r;

    if (!table)
        return fail(err, -ENOEXEC, "its entry returned no table");
    memcpy(&hdr, table, sizeof(hdr));
    r = header_check(&hdr, note, k, err);
    if (r < 0)
        return r;
    memset(&p->ops, 0, sizeof(p->ops));
    memcpy(&p->ops, table, hdr.size < k->host_size ? hdr.size : k->host_size);
    p->kind = note->kind;
    p->note_minor = note->minor;
    p->note_min_host_minor = note->min_host_minor;
    p->table_size = hdr.size;
    p->name = o->name;
    p->version = o->version;
    p->summary = o->summary;
    p->options = o->options;
    p->n_options = o->n_options;
    p->option_stride = o->option_stride;
    if (k->has_methods) {
        p->methods = o->methods;
        p->n_methods = o->n_methods;
        p->method_stride = o->method_stride;
    }
    if ((r = identity_check(p, err)) < 0 || (r = required_check(p, k, err)) < 0)
        return r;
    r = plugin_options_check(p, err);
    if (r == 0)
        r = method_set_new(p, &p->method_set, err);
    return r < 0 ? fail_wrap(err, "%s", p->name) : 0;
}

/* "/proc/self/fd/N" with a number of this load written in its slashes: "/." and "//" are its bits.
 */
static void unique_name(char out[128], int fd)
{
    static uint32_t loads;
    size_t n = (size_t)snprintf(out, 128, "/proc/self/fd");
    uint32_t bits;

    for (bits = ++loads; bits; bits >>= 1)
        n += (size_t)snprintf(out + n, 128 - n, bits & 1 ? "/." : "//");
    snprintf(out + n, 128 - n, "/%d", fd);
}

/* Constructors and the entry run here. */
static int object_map(struct plugin *p, int fd, const struct cella_note *note,
                      struct cella_error *err)
{
    cella_plugin_entry_fn entry;
    const void *table;
    char name[128];

    unique_name(name, fd);
    stray_baseline();
    watchdog_enter(p, "load", DEADLINE_CALL);
    p->dl = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!p->dl) {
        const char *why = dlerror();
        watchdog_leave();
        /* The message starts with the name that was given: ours, not the operator's. */
        if (why && !strncmp(why, name, strlen(name)))
            why += strlen(name) + strspn(why + strlen(name), ": ");
        return fail(err, -ELIBBAD, "cannot load it: %s", why ? why : "no reason given");
    }
    *(void **)&entry = dlsym(p->dl, CELLA_ENTRY_NAME);
    table = entry ? entry() : NULL;
    watchdog_leave();
    stray_check(p, "load");
    if (!entry)
        return fail(err, -ENOEXEC, "it does not export " CELLA_ENTRY_NAME);
    return plugin_table_take(p, table, note, err);
}

static struct plugin *plugin_new(const char *path)
{
    struct plugin *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->rt = calloc(1, sizeof(*p->rt));
    p->path = strdup(path);
    if (p->rt && p->path)
        return p;
    plugin_unload(p);
    return NULL;
}

int plugin_load(const char *path, struct plugin **ret, struct cella_error *err)
{
    auto_close int fd = -1;
    struct cella_note note;
    struct plugin *p;
    int r;

    r = plugin_open(path, &fd, err);
    if (r < 0)
        return r;
    p = plugin_new(path);
    if (!p)
        return fail(err, -ENOMEM, "plugin %s: out of memory", path);
    r = plugin_note_read(fd, &note, err);
    if (r == 0)
        r = note_check(&note, err);
    if (r == 0)
        r = object_map(p, fd, &note, err);
    if (r < 0) {
        r = fail_wrap(err, "plugin %s", path);
        plugin_unload(p);
        return r;
    }
    *ret = p;
    return 0;
}

static int leaving;

void plugin_process_ends(void)
{
    leaving = 1;
}

void plugin_unload(struct plugin *p)
{
    if (!p)
        return;
    method_set_free(p->method_set);
    if (p->dl && !PLUGIN_ASAN && !leaving)
        dlclose(p->dl);
    if (p->rt)
        free(p->rt->probe);
    free(p->rt);
    free(p->path);
    free(p);
}

/* The directory of the running program with "/plugins", when it exists. */
static int beside_program(char *out, size_t cap)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    struct stat st;
    char *slash;

    if (n <= 0)
        return 0;
    exe[n] = 0;
    slash = strrchr(exe, '/');
    if (!slash)
        return 0;
    *slash = 0;
    n = snprintf(out, cap, "%s/plugins", exe);
    return n > 0 && (size_t)n < cap && stat(out, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *plugin_dir(void)
{
    static char dir[PATH_MAX + 16];
    const char *env = secure_getenv("CELLA_PLUGIN_DIR");

    if (env && env[0] == '/')
        return env;
    if (!dir[0] && !beside_program(dir, sizeof(dir)))
        snprintf(dir, sizeof(dir), "%s", CELLA_INSTALLED_PLUGIN_DIR);
    return dir;
}
