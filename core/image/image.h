/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * image - image names to something a backend can boot.
 *
 *   host        /usr, the loader and a minimal /etc of this machine, read-only; never homes or secrets
 *   dir:PATH    a directory tree, read-only below the cell's writable layer
 *   tar:FILE    a tar archive (any compression libarchive knows), unpacked once into
 *               <state_dir>/images/<sha256>/, digest verified, then used like dir:
 *   NAME        what `cella image build` or `cella image import` gave that name: the archive of the
 *               same digest
 *
 * A backend that boots a disk gets the same tree as an EROFS file, made once beside it.
 */
#ifndef CELLA_IMAGE_H
#define CELLA_IMAGE_H

#include <cella/backend.h>

#include "util.h"

struct image {
    char *name;   /* as asked */
    char *digest; /* "sha256:…" of the archive; "host:<hex>" fingerprint; "dir:<device>:<inode>" */
    char *root;   /* directory for CELLA_ROOT_DIR, EROFS file for CELLA_ROOT_IMAGE */
    char *tree;   /* directory with the same content, NULL = root is it, or the host has none */
    /* For CELLA_ROOT_IMAGE, else NULL: files for cella_spec, and what they are. */
    char *kernel, *initrd, *kernel_version, *kernel_digest;
    struct cella_mount *mounts;
    size_t n_mounts;               /* part of the image, CELLA_MOUNT_IMAGE; strings owned */
    int own_hold, own_kernel_hold; /* locks: what is used is not removed; 0 = none */
};

/* `root_need` is enum cella_root_need of the chosen backend; `kernel` a version for one that boots a machine, NULL: the
   default. Hostile archives are the normal case:
   no path leaves the target, no device nodes, bounded entry count and size. */
int image_resolve(const char *state_dir, const char *name, uint32_t root_need, const char *kernel,
                  struct image *ret, struct cella_error *err);
/* Could image_resolve() succeed for a backend that needs this? Without effect, and without looking at the image itself. */
int image_possible(const char *state_dir, const char *name, uint32_t root_need, const char *kernel,
                   struct cella_error *err);
/* For a machine that is restored, whose kernel runs already: the disk alone. */
int image_resolve_copy(const char *state_dir, const char *name, struct image *ret,
                       struct cella_error *err);

void image_fini(struct image *img);

#endif
