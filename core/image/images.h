/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* images - what `cella image` does: makes, names, lists, checks and removes images. */
#ifndef CELLA_IMAGES_H
#define CELLA_IMAGES_H

#include <jansson.h>

#include "run.h"
#include "util.h"

/* [a-z0-9][a-z0-9._-]{0,62}; not "host", "names", no digest, nothing that looks like a key. */
int image_name_valid(const char *name);

/* Who else uses an artefact: snapshots, which the caller knows. 1 = used, `who` says by what. */
struct image_refs {
    int (*used)(void *ctx, const char *digest, char who[128]);
    void *ctx;
};

/* Everything, as an array of {"name"|null, "key", "digest", "source", "created", "entries",
   "bytes", "disk", "image_bytes", "in_use"}; one member for each name, and for what has none. */
int image_list(const char *state_dir, json_t **ret, struct cella_error *err);

/* `source` is tar:FILE or dir:PATH. ret_digest: "sha256:…", at least 80 bytes. A name that exists
   is moved to the new image. */
int image_import(const char *state_dir, const char *name, const char *source, char *ret_digest,
                 struct cella_error *err);

struct image_build {
    const char *name, *suite, *mirror; /* mirror NULL: Debian's, with its security updates */
    const char *packages;              /* comma-separated, may be NULL */
    uint32_t uid_base, uid_count;      /* whose root the build runs as */
    run_line *line;                    /* progress; may be NULL */
    void *ctx;
};
int image_build(const char *state_dir, const struct image_build *b, char *ret_digest,
                struct cella_error *err);

/* Takes the name away, or a digest's artefact; an artefact without a name goes, too. -EBUSY names
   who uses it. */
int image_remove(const char *state_dir, const char *name, const struct image_refs *refs,
                 struct cella_error *err);
/* Reads all of it again; -EBADMSG when it is not what was recorded. */
int image_verify(const char *state_dir, const char *name, struct cella_error *err);
/* Makes the disk now, which the first cell on a backend with a machine would; its path, malloc. */
int image_disk(const char *state_dir, const char *name, char **ret_path, struct cella_error *err);
/* Removes what has no name and no user. Returns how many. */
int image_collect(const char *state_dir, int dry_run, const struct image_refs *refs,
                  void (*found)(void *ctx, const char *what), void *ctx, struct cella_error *err);
/* What killed commands left of images and kernels they were making. Returns how many. */
int image_gc_stale(const char *state_dir, int dry_run, void (*found)(void *ctx, const char *what),
                   void *ctx);

#endif
