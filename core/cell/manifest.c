/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * manifest - what a snapshot says of itself, checked before anything of it is used.
 *
 * A truncated or edited snapshot must be refused in words, not by a guest that goes mad. Sizes and
 * times of all files and digests of the small ones are compared at each use; digests of the large
 * ones (memory, disks) only on demand, for they would cost more than the copy. Most of those is holes,
 * which a digest leaves out. Threads: none.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cella/link.h>

#include "snapshot.h"
#include "sparse.h"

#define FILES_MAX 64u
#define SMALL (1 << 20) /* digests of files up to this are compared at each use */

static int mtime_same(const struct stat *st, const json_t *file)
{
    return json_integer_value(json_object_get(file, "mtime_ns")) ==
           (json_int_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

static int digest_of(int dirfd_, const char *name, char hex[65])
{
    auto_close int fd = openat(dirfd_, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    unsigned char digest[SPARSE_DIGEST];
    struct stat st;
    int r = fd < 0 || fstat(fd, &st) < 0 ? -errno : sparse_digest(fd, (uint64_t)st.st_size, digest);

    if (r == 0)
        hex_encode(digest, sizeof(digest), hex);
    return r;
}

static int add_file(int dirfd_, const char *name, int digests, json_t *to, struct cella_error *err)
{
    struct stat st;
    char hex[65];
    json_t *j;
    int r = 0;

    if (fstatat(dirfd_, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -errno, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, -EINVAL, "%s: a snapshot holds plain files only", name);
    if (json_array_size(to) >= FILES_MAX)
        return fail(err, -E2BIG, "%s: more than %u files", name, FILES_MAX);
    j = json_pack("{s:s, s:I, s:I}", "name", name, "size", (json_int_t)st.st_size, "mtime_ns",
                  (json_int_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    if (j && (digests || st.st_size <= SMALL)) {
        r = digest_of(dirfd_, name, hex);
        if (r == 0)
            json_object_set_new(j, "blake2b", json_string(hex));
    }
    if (r < 0 || json_array_append_new(to, j) < 0)
        return fail(err, r < 0 ? r : -ENOMEM, "%s: %s", name, strerror(r < 0 ? -r : ENOMEM));
    return 0;
}

static int add_directory(int dirfd_, int digests, json_t *to, struct cella_error *err)
{
    DIR *d = dir_open_at(dirfd_, SNAPSHOT_MACHINE);
    char path[300];
    struct dirent *e;
    int r = 0;

    if (!d)
        return fail(err, -errno, SNAPSHOT_MACHINE ": %s", strerror(errno));
    while (r == 0 && (e = readdir(d))) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        snprintf(path, sizeof(path), SNAPSHOT_MACHINE "/%s", e->d_name);
        r = add_file(dirfd_, path, digests, to, err);
    }
    closedir(d);
    return r;
}

int manifest_files(int dirfd_, int digests, json_t **ret, struct cella_error *err)
{
    json_t *files = json_array();
    int r = faccessat(dirfd_, SNAPSHOT_POLICY, F_OK, 0) < 0
                ? 0
                : add_file(dirfd_, SNAPSHOT_POLICY, digests, files, err);

    if (r == 0)
        r = add_directory(dirfd_, digests, files, err);
    if (r < 0) {
        json_decref(files);
        return r;
    }
    *ret = files;
    return 0;
}

/* policy.json, or one name below machine/. */
static int file_name_valid(const char *name)
{
    size_t n = strlen(SNAPSHOT_MACHINE "/");

    if (!name)
        return 0;
    if (!strcmp(name, SNAPSHOT_POLICY))
        return 1;
    return !strncmp(name, SNAPSHOT_MACHINE "/", n) && name[n] && name[n] != '.' &&
           !strchr(name + n, '/');
}

static int file_check(int dirfd_, const json_t *file, int digests, struct cella_error *err)
{
    const char *name = json_string_value(json_object_get(file, "name")),
               *want = json_string_value(json_object_get(file, "blake2b"));
    struct stat st;
    char hex[65];
    int r;

    if (!file_name_valid(name))
        return fail(err, -EBADMSG, "its list of files is damaged");
    if (fstatat(dirfd_, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -EBADMSG, "%s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode) ||
        (json_int_t)st.st_size != json_integer_value(json_object_get(file, "size")))
        return fail(err, -EBADMSG, "%s: it has %lld bytes, %lld were recorded", name,
                    (long long)st.st_size,
                    (long long)json_integer_value(json_object_get(file, "size")));
    if (!mtime_same(&st, file))
        return fail(err, -EBADMSG, "%s: it was changed after it was made", name);
    if (!want || (!digests && st.st_size > SMALL))
        return 0;
    r = digest_of(dirfd_, name, hex);
    if (r < 0)
        return fail(err, r, "%s: %s", name, strerror(-r));
    return strcmp(want, hex) ? fail(err, -EBADMSG, "%s: its digest is not the one recorded", name)
                             : 0;
}

int manifest_files_same(int dirfd_, const json_t *files, int digests, struct cella_error *err)
{
    size_t i;
    int r = json_is_array(files) && json_array_size(files) <= FILES_MAX
                ? 0
                : fail(err, -EBADMSG, "its list of files is damaged");

    for (i = 0; r == 0 && i < json_array_size(files); i++)
        r = file_check(dirfd_, json_array_get(files, i), digests, err);
    return r;
}

/* ---- the manifest itself ---- */

static const struct {
    const char *object, *name; /* object NULL: of the manifest */
} strings[] = {{NULL, "created_by"}, {"cell", "id"},         {"cell", "class"},
               {"backend", "name"},  {"backend", "version"}, {"backend", "strength"},
               {"image", "digest"},  {"chain", "head"},      {"host", "cpu"},
               {"policy", "name"},   {"policy", "phase"}};

static const char *string_at(const json_t *m, const char *object, const char *name)
{
    return json_string_value(json_object_get(object ? json_object_get(m, object) : m, name));
}

int manifest_check(const json_t *m, struct cella_error *err)
{
    json_int_t format = json_integer_value(json_object_get(m, "format")),
               link = json_integer_value(json_object_get(m, "link"));
    size_t i;

    if (!json_is_object(m) || format <= 0)
        return fail(err, -EBADMSG, "its manifest cannot be read");
    if (format != SNAPSHOT_FORMAT)
        return fail(err, -ENOTSUP, "it has format %lld, this cella reads format %d",
                    (long long)format, SNAPSHOT_FORMAT);
    if (link != CELLA_LINK_VERSION)
        return fail(err, -ENOTSUP,
                    "the agent in it speaks version %lld of the protocol, this cella speaks %u",
                    (long long)link, CELLA_LINK_VERSION);
    for (i = 0; i < ARRAY_LEN(strings); i++)
        if (!string_at(m, strings[i].object, strings[i].name))
            return fail(err, -EBADMSG, "its manifest lacks %s%s%s",
                        strings[i].object ? strings[i].object : "", strings[i].object ? "." : "",
                        strings[i].name);
    if (strlen(string_at(m, "chain", "head")) != 64 ||
        !json_is_integer(json_object_get(json_object_get(m, "chain"), "seq")) ||
        !json_is_object(json_object_get(m, "request")) ||
        !json_is_integer(json_object_get(m, "generation")))
        return fail(err, -EBADMSG, "its manifest is damaged");
    return 0;
}
