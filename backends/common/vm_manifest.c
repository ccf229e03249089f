/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * manifest - see manifest.h. The digest of the text is its last member, over everything before it: it finds damage
 * and careless edits. Who may write into the state directory may write another; that is root.
 *
 * Invariants: a manifest that is read back has every file exactly once, layers numbered without a gap, sizes that fit
 * the machine. Threads: no state.
 */
#include <jansson.h>
#include <sodium.h>
#include <sys/stat.h>

#include "vm_manifest.h"

static void own_digest(const char *text, size_t len, char hex[2 * SPARSE_DIGEST + 1])
{
    unsigned char d[SPARSE_DIGEST];

    crypto_generichash(d, sizeof(d), (const unsigned char *)text, len, NULL, 0);
    hex_encode(d, sizeof(d), hex);
}

static json_t *file_json(const struct manifest_file *f)
{
    char hex[2 * SPARSE_DIGEST + 1];

    hex_encode(f->digest, SPARSE_DIGEST, hex);
    return json_pack("{s:s, s:I, s:s*, s:I, s:I, s:I}", "name", f->name, "size",
                     (json_int_t)f->size, "blake2b", f->undigested ? NULL : hex, "inode",
                     (json_int_t)f->inode, "mtime_ns", (json_int_t)f->mtime_ns, "ctime_ns",
                     (json_int_t)f->ctime_ns);
}

int manifest_write(const struct manifest *m, char **ret_text)
{
    json_t *files = json_array(), *o;
    auto_free char *body = NULL;
    char hex[2 * SPARSE_DIGEST + 1];
    uint32_t i;

    for (i = 0; i < m->n_files; i++)
        json_array_append_new(files, file_json(&m->files[i]));
    o = json_pack("{s:i, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:b, s:o}", "format",
                  MANIFEST_FORMAT, "engine", m->engine, "accel", m->accel, "cpu", m->cpu,
                  "host_cpu", m->host_cpu, "memory", (json_int_t)m->ram_bytes, "disk",
                  (json_int_t)m->disk_bytes, "root", (json_int_t)m->root_bytes, "cpus",
                  (int)m->vcpus, "network", m->network, "files", files);
    body = o ? json_dumps(o, JSON_COMPACT) : NULL;
    json_decref(o);
    if (!body)
        return -ENOMEM;
    body[strlen(body) - 1] = 0; /* the closing brace comes after the digest */
    own_digest(body, strlen(body), hex);
    return asprintf(ret_text, "%s,\"self\":\"%s\"}\n", body, hex) < 0 ? -ENOMEM : 0;
}

/* ---- reading ---- */

static int text_member(const json_t *o, const char *name, char *out, size_t cap)
{
    const json_t *v = json_object_get(o, name);

    if (!json_is_string(v) || json_string_length(v) >= cap ||
        strlen(json_string_value(v)) != json_string_length(v))
        return -EBADMSG;
    text_clean(json_string_value(v), json_string_length(v), out, cap);
    return strcmp(out, json_string_value(v)) ? -EBADMSG : 0;
}

static int number_member(const json_t *o, const char *name, uint64_t max, uint64_t *ret)
{
    const json_t *v = json_object_get(o, name);

    if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
        return -EBADMSG;
    *ret = (uint64_t)json_integer_value(v);
    return 0;
}

static int digest_read(const json_t *o, struct manifest_file *f)
{
    char hex[2 * SPARSE_DIGEST + 1];

    f->undigested = !json_object_get(o, "blake2b");
    if (f->undigested)
        return 0;
    return text_member(o, "blake2b", hex, sizeof(hex)) < 0 || strlen(hex) != 2 * SPARSE_DIGEST
               ? -EBADMSG
               : hex_decode(hex, f->digest, SPARSE_DIGEST);
}

static int file_read(const json_t *o, struct manifest_file *f)
{
    uint64_t mtime, ctime;

    if (text_member(o, "name", f->name, sizeof(f->name)) < 0 ||
        number_member(o, "size", INT64_MAX, &f->size) < 0 || digest_read(o, f) < 0 ||
        number_member(o, "inode", INT64_MAX, &f->inode) < 0 ||
        number_member(o, "mtime_ns", INT64_MAX, &mtime) < 0 ||
        number_member(o, "ctime_ns", INT64_MAX, &ctime) < 0)
        return -EBADMSG;
    f->mtime_ns = (int64_t)mtime;
    f->ctime_ns = (int64_t)ctime;
    return 0;
}

static int has_size(const struct manifest *m, const char *name, uint64_t size)
{
    const struct manifest_file *f = manifest_find(m, name);

    return f && f->size == size;
}

/* Exactly the files that a machine has. */
static int files_whole(struct manifest *m)
{
    static const char *const always[] = {"ram", "state"};
    char name[16];
    uint32_t i;

    if (m->n_files < ARRAY_LEN(always) + 1)
        return -EBADMSG;
    m->n_layers = m->n_files - (uint32_t)ARRAY_LEN(always);
    for (i = 0; i < ARRAY_LEN(always); i++)
        if (!manifest_find(m, always[i]))
            return -EBADMSG;
    for (i = 0; i < m->n_layers; i++) {
        snprintf(name, sizeof(name), "disk.%u", i);
        if (!manifest_find(m, name))
            return -EBADMSG;
    }
    return has_size(m, "ram", m->ram_bytes) && has_size(m, "disk.0", m->disk_bytes) ? 0 : -EBADMSG;
}

static int members_read(const json_t *o, struct manifest *m)
{
    json_t *files = json_object_get(o, "files"), *f;
    uint64_t vcpus;
    size_t i;

    if (text_member(o, "engine", m->engine, sizeof(m->engine)) < 0 ||
        text_member(o, "accel", m->accel, sizeof(m->accel)) < 0 ||
        text_member(o, "cpu", m->cpu, sizeof(m->cpu)) < 0 ||
        text_member(o, "host_cpu", m->host_cpu, sizeof(m->host_cpu)) < 0 ||
        number_member(o, "memory", 1ull << 44, &m->ram_bytes) < 0 ||
        number_member(o, "disk", 1ull << 50, &m->disk_bytes) < 0 ||
        number_member(o, "root", INT64_MAX, &m->root_bytes) < 0 ||
        number_member(o, "cpus", 4096, &vcpus) < 0 ||
        !json_is_boolean(json_object_get(o, "network")) || !json_is_array(files) ||
        json_array_size(files) > ARRAY_LEN(m->files))
        return -EBADMSG;
    m->vcpus = (uint32_t)vcpus;
    m->network = json_is_true(json_object_get(o, "network"));
    json_array_foreach(files, i, f)
    {
        if (file_read(f, &m->files[i]) < 0)
            return -EBADMSG;
        if (manifest_find(m, m->files[i].name)) /* looks at those before it */
            return -EBADMSG;
        m->n_files++;
    }
    return files_whole(m);
}

static int self_check(const char *text, size_t len)
{
    static const char mark[] = ",\"self\":\"";
    char hex[2 * SPARSE_DIGEST + 1], want[sizeof(mark) + sizeof(hex) + 4];
    int n = snprintf(want, sizeof(want), "%s%*s\"}\n", mark, 2 * SPARSE_DIGEST, "");

    if (len < (size_t)n)
        return -EBADMSG;
    own_digest(text, len - (size_t)n, hex);
    snprintf(want, sizeof(want), "%s%s\"}\n", mark, hex);
    return memcmp(text + len - (size_t)n, want, (size_t)n) ? -EBADMSG : 0;
}

int manifest_read(const char *text, size_t len, struct manifest *ret, struct cella_error *err)
{
    struct manifest *m = calloc(1, sizeof(*m));
    json_error_t error;
    json_t *o = NULL;
    uint64_t format = 0;
    int r = m ? 0 : -ENOMEM;

    if (r == 0)
        o = len <= MANIFEST_MAX ? json_loadb(text, len, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (r == 0 && number_member(o, "format", INT64_MAX, &format) < 0)
        r = fail(err, -EBADMSG, MANIFEST_NAME ": it is no manifest of a machine");
    else if (r == 0 && format != MANIFEST_FORMAT)
        r = fail(err, -ENOTSUP, MANIFEST_NAME ": format %llu; this version reads %d",
                 (unsigned long long)format, MANIFEST_FORMAT);
    else if (r == 0 && self_check(text, len) < 0)
        r = fail(err, -EBADMSG, MANIFEST_NAME ": it was changed since it was written");
    else if (r == 0 && members_read(o, m) < 0)
        r = fail(err, -EBADMSG, MANIFEST_NAME ": a member is missing or cannot be");
    if (r == 0)
        *ret = *m;
    json_decref(o);
    free(m);
    return r;
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *name)
{
    uint32_t i;

    for (i = 0; i < m->n_files; i++)
        if (!strcmp(m->files[i].name, name))
            return &m->files[i];
    return NULL;
}

/* ---- files ---- */

static int64_t ns(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

int manifest_note(struct manifest *m, const char *name, int fd, int brief)
{
    struct manifest_file *f = &m->files[m->n_files];
    struct stat st;
    int r = 0;

    if (m->n_files == ARRAY_LEN(m->files))
        return -E2BIG;
    if (fstat(fd, &st) < 0)
        return -errno;
    f->undigested = brief;
    if (!brief)
        r = sparse_digest(fd, (uint64_t)st.st_size, f->digest);
    if (r < 0)
        return r;
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->size = (uint64_t)st.st_size;
    f->inode = st.st_ino;
    f->mtime_ns = ns(&st.st_mtim);
    f->ctime_ns = ns(&st.st_ctim);
    m->n_files++;
    return 0;
}

int manifest_check(const struct manifest_file *f, int fd, struct cella_error *err)
{
    unsigned char digest[SPARSE_DIGEST];
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return fail(err, -EBADMSG, "%s: it is no file", f->name);
    if ((uint64_t)st.st_size != f->size)
        return fail(err, -EBADMSG, "%s: it has %lld bytes instead of %llu: it was cut or changed",
                    f->name, (long long)st.st_size, (unsigned long long)f->size);
    if (st.st_ino == f->inode && ns(&st.st_mtim) == f->mtime_ns && ns(&st.st_ctim) == f->ctime_ns)
        return 0;
    if (f->undigested)
        return fail(err, -EBADMSG, "%s: it was changed since it was saved", f->name);
    r = sparse_digest(fd, f->size, digest);
    if (r < 0)
        return fail(err, r, "%s: %s", f->name, strerror(-r));
    if (memcmp(digest, f->digest, SPARSE_DIGEST))
        return fail(err, -EBADMSG, "%s: its content is not what was saved", f->name);
    return 0;
}
