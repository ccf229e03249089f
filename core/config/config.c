/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * config - finding, opening and owning the operator's file.
 *
 * The file decides what strangers' code may do, so it is read through one descriptor that was
 * checked before: a regular file, owned by root or by the user cella runs as, not writable by
 * everyone. Environment variables are ignored in a set-user-id process. Meaning of keys:
 * sections.c. Threads: no state.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "sections.h"

#define DEFAULT_FILE "/etc/cella/cella.json"

static int check_trusted(int fd, const char *path, struct cella_error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return fail(err, -errno, "%s: cannot stat: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "%s: not a regular file", path);
    if (st.st_uid != 0 && st.st_uid != geteuid())
        return fail(
            err, -EPERM,
            "%s: owned by user %u; it must belong to root or to the user cella runs as (%u)", path,
            st.st_uid, geteuid());
    if (st.st_mode & S_IWOTH)
        return fail(err, -EPERM, "%s: writable by everyone (mode %04o); run: chmod o-w %s", path,
                    st.st_mode & 07777, path);
    return 0;
}

int trusted_file_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                      struct cella_error *err)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    auto_buf struct buf b = BUF_INIT;
    char chunk[8192];
    ssize_t n;
    int r;

    if (fd < 0)
        return fail(err, -errno, "%s: %s", path, strerror(errno));
    r = check_trusted(fd, path, err);
    if (r < 0)
        return r;
    while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(err, -errno, "%s: %s", path, strerror(errno));
        if (b.len + (size_t)n > max)
            return fail(err, -EFBIG, "%s: longer than %zu bytes", path, max);
        buf_add(&b, chunk, (size_t)n);
    }
    if (buf_add(&b, "", 0) < 0)
        return fail(err, -ENOMEM, "%s: out of memory", path);
    if (memchr(b.ptr, 0, b.len))
        return fail(err, -EINVAL, "%s: holds a NUL byte; it is no text", path);
    *ret_len = b.len;
    *ret_text = steal_ptr(&b.ptr);
    return 0;
}

/* NULL: the built-in default. */
static const char *find_file(const char *file)
{
    const char *env = secure_getenv("CELLA_CONFIG");

    if (file)
        return file;
    if (env && *env)
        return env;
    return access(DEFAULT_FILE, F_OK) == 0 || errno != ENOENT ? DEFAULT_FILE : NULL;
}

static int read_config(const char *file, struct config *c, struct cella_error *err)
{
    struct reader r = {.doc = &c->doc, .config = c, .err = err};
    auto_free char *text = NULL;
    size_t len = 0;
    int e;

    c->file = realpath(file, NULL);
    if (!c->file)
        return fail(err, -errno, "cannot read the configuration %s: %s", file, strerror(errno));
    e = trusted_file_read(c->file, JSON_AT_MAX, &text, &len, err);
    if (e < 0)
        return e;
    e = json_at_parse(c->file, text, len, &c->doc, err);
    if (e < 0)
        return e;
    text = NULL; /* c->doc.text has it now */
    return sections_read(&r);
}

static int check_state_dir(const struct config *c, struct cella_error *err)
{
    if (c->state_dir[0] == '/')
        return 0;
    return fail(err, -EINVAL, "state directory \"%s\" (CELLA_STATE_DIR) is not an absolute path",
                c->state_dir);
}

int config_load(const char *file, struct config **ret, struct cella_error *err)
{
    struct config *c = calloc(1, sizeof(*c));
    int r = 0;

    if (!c)
        return fail(err, -ENOMEM, "out of memory while reading the configuration");
    file = find_file(file);
    if (file)
        r = read_config(file, c, err);
    if (r == 0) {
        r = sections_defaults(c);
        r = r < 0 ? fail(err, r, "out of memory while reading the configuration")
                  : check_state_dir(c, err);
    }
    if (r < 0) {
        config_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

static void names_free(char **names, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static void class_fini(struct config_class *k)
{
    free(k->name);
    free(k->pointer);
    free(k->policy);
    free(k->ceiling);
    free(k->image);
    free(k->kernel);
    names_free(k->backends, k->n_backends);
    names_free(k->secrets, k->n_secrets);
}

void config_free(struct config *c)
{
    size_t i;

    if (!c)
        return;
    for (i = 0; i < c->n_plugins; i++) {
        free(c->plugins[i].path);
        free(c->plugins[i].pointer);
    }
    for (i = 0; i < c->n_policies; i++) {
        free(c->policies[i].name);
        free(c->policies[i].file);
        free(c->policies[i].document);
    }
    for (i = 0; i < c->n_classes; i++)
        class_fini(&c->classes[i]);
    for (i = 0; i < c->n_sinks; i++) {
        free(c->sinks[i].name);
        free(c->sinks[i].pointer);
        json_decref(c->sinks[i].options);
    }
    for (i = 0; i < c->n_secrets; i++) {
        free(c->secrets[i].name);
        free(c->secrets[i].pointer);
        json_decref(c->secrets[i].options);
    }
    for (i = 0; i < c->n_mounts; i++)
        free(c->mounts[i].path);
    names_free(c->deciders, c->n_deciders);
    free(c->plugins);
    free(c->policies);
    free(c->classes);
    free(c->sinks);
    free(c->secrets);
    free(c->mounts);
    free(c->state_dir);
    free(c->uplink);
    free(c->file);
    free((char *)(uintptr_t)c->doc.text);
    json_at_fini(&c->doc);
    free(c);
}

const struct config_class *config_class_find(const struct config *c, const char *name)
{
    size_t i;

    for (i = 0; i < c->n_classes; i++)
        if (c->classes[i].name && !strcmp(c->classes[i].name, name))
            return &c->classes[i];
    return NULL;
}

const struct config_policy *config_policy_find(const struct config *c, const char *name)
{
    size_t i;

    for (i = 0; i < c->n_policies; i++)
        if (c->policies[i].name && !strcmp(c->policies[i].name, name))
            return &c->policies[i];
    return NULL;
}
