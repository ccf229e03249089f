/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* shown_world - an image on disk, and the bundle built from it. */
#ifndef CELLA_TEST_SHOWN_WORLD_H
#define CELLA_TEST_SHOWN_WORLD_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <cmocka.h>
#undef fail /* util.h has its own */

#include <jansson.h>
#include <sodium.h>

#include "denials.h"
#include "trust.h"

#define CERT(body) "-----BEGIN CERTIFICATE-----\n" body "\n-----END CERTIFICATE-----\n"
#define CA CERT("Q0E=")
#define DEBIAN "/etc/ssl/certs/ca-certificates.crt"

static char dir[64];
static struct image image;
static struct trust_bundle bundle;
static struct errbuf eb;

/* ---- an image on disk ---- */

static inline char *in_image(const char *path)
{
    static char out[512];

    snprintf(out, sizeof(out), "%s/root%s", dir, path);
    return out;
}

static inline void parents(const char *path)
{
    char *full = in_image(path), *slash = strrchr(full, '/');

    *slash = 0;
    assert_int_equal(mkdir_p(full, 0755), 0);
}

static inline void put(const char *path, const char *text, size_t len)
{
    int fd;

    parents(path);
    fd = open(in_image(path), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write_all(fd, text, len), 0);
    close(fd);
}

static inline void puts_(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static inline int setup(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/cella-test-shown-XXXXXX");
    if (!mkdtemp(dir) || mkdir(in_image(""), 0755) < 0)
        return -1;
    image = (struct image){.name = "dir", .root = strdup(in_image(""))};
    bundle = (struct trust_bundle){.text = BUF_INIT};
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    trust_bundle_fini(&bundle);
    free(image.root);
    return remove_tree_at(AT_FDCWD, dir);
}

static inline int build(void)
{
    trust_bundle_fini(&bundle);
    return trust_bundle_build(&image, CA, strlen(CA), &bundle, errbuf_init(&eb));
}

static inline void bundle_is(const char *text, const char *from, size_t places)
{
    assert_int_equal(build(), 0);
    assert_int_equal(bundle.text.len, strlen(text));
    assert_memory_equal(bundle.text.ptr, text, strlen(text));
    if (from)
        assert_string_equal(bundle.from, from);
    else
        assert_null(bundle.from);
    assert_int_equal(bundle.n_places, places);
}

#endif
