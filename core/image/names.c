/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * names - words for images: <state_dir>/images/names/<name> says which artefact it is and how it was
 * made. A name is a pointer, replaced as a whole; the artefact keeps its digest. Threads: none.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "artefact.h"
#include "images.h"
#include "names.h"

int image_name_valid(const char *s)
{
    static const char *const reserved[] = {"host", "names", "none"};
    size_t n = strlen(s), i;

    if (n < 1 || n > 63 || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") != n ||
        strchr("._-", s[0]) || !strncmp(s, "dir-", 4) || !strncmp(s, "host-", 5))
        return 0;
    for (i = 0; i < ARRAY_LEN(reserved); i++)
        if (!strcmp(s, reserved[i]))
            return 0;
    return 1;
}

int name_check(const char *name, struct cella_error *err)
{
    if (image_name_valid(name))
        return 0;
    return fail(err, -EINVAL,
                "\"%s\" cannot name an image: expected up to 63 of a-z, 0-9, '.', '_', '-', the "
                "first a letter or digit; host, none, host-… and dir-… are taken",
                name);
}

int names_open(const struct image_dir *d)
{
    if (mkdirat(d->fd, "names", 0711) < 0 && errno != EEXIST)
        return -errno;
    return openat(d->fd, "names", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static int key_valid(const char *key)
{
    return key && (is_digest_key(key) || (!strncmp(key, "dir-", 4) && strlen(key) == 36));
}

int image_name_find(const char *state_dir, const char *name, char ret_key[80],
                    struct cella_error *err)
{
    char path[4096];
    json_t *j;
    const char *key;
    int r = 0;

    if (!image_name_valid(name))
        return -ENOENT;
    snprintf(path, sizeof(path), "%s/images/names/%s", state_dir, name);
    if (access(path, F_OK) < 0)
        return -errno;
    j = artefact_read(AT_FDCWD, path);
    key = json_string_value(json_object_get(j, "key"));
    if (!key_valid(key))
        r = fail(err, -EBADMSG, "image %s: %s is damaged; remove the name and make it again", name,
                 path);
    else
        snprintf(ret_key, 80, "%s", key);
    json_decref(j);
    return r;
}

int name_set(const char *state_dir, const char *name, const char *key, json_t *own_how,
             struct cella_error *err)
{
    auto_free char *text = NULL;
    auto_close int names = -1;
    struct image_dir d;
    int r = own_how ? image_dir_open(state_dir, &d, err) : fail(err, -ENOMEM, "out of memory");

    if (r < 0) {
        json_decref(own_how);
        return r;
    }
    json_object_set_new(own_how, "key", json_string(key));
    json_object_set_new(own_how, "created", json_integer((json_int_t)(wall_ns() / 1000000000u)));
    text = json_dumps(own_how, JSON_INDENT(1) | JSON_SORT_KEYS);
    names = names_open(&d);
    r = !text       ? -ENOMEM
        : names < 0 ? names
                    : replace_file_at(names, name, text, strlen(text), 0644);
    if (r < 0)
        fail(err, r, "the name %s: %s", name, strerror(-r));
    image_dir_close(&d);
    json_decref(own_how);
    return r;
}
