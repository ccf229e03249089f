/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/* trust - certificates and bundles; knows no warden, so that a test can call it. */
#ifndef CELLA_CELL_TRUST_H
#define CELLA_CELL_TRUST_H

#include "image.h"
#include "util.h"

#define SHOWN_TARGET "/run/cella" /* of the directory that shown.c mounts */
#define TRUST_BUNDLE_PATH SHOWN_TARGET "/ca-bundle.pem"
#define TRUST_ALONE_PATH SHOWN_TARGET "/ca.pem"
#define TRUST_BUNDLE_MAX (4u << 20)   /* bytes of an image's own bundle */
#define TRUST_KEYSTORE_MAX (8u << 20) /* of what is shown to a cell */
#define TRUST_PLACES_MAX 8u
#define TRUST_KEYSTORES_MAX 4u
#define TRUST_ANCHORS_MAX 2u

/* How many certificates the text holds. -EINVAL and *ret_why when it holds anything else: a key,
   another PEM object, text that no reader of certificates expects. */
int trust_pem_check(const char *pem, size_t len, const char **ret_why);

/* A file of the image as the cell will see it, its own mounts included, opened O_PATH; no link leaves
   the image. Only regular files. -errno. */
int trust_image_open(const struct image *img, const char *path);

struct trust_bundle {
    struct buf text;  /* what the image trusts, then the CA */
    const char *from; /* the place it was read from; NULL = the image has none */
    const char *places[TRUST_PLACES_MAX]; /* existing bundles of the image, each file once */
    size_t n_places;
    struct buf keystore; /* for Java: empty when the image has none at a known place */
    const char *keystores[TRUST_KEYSTORES_MAX];
    size_t n_keystores;
    const char *anchors[TRUST_ANCHORS_MAX]; /* where tools that rebuild a bundle look for more */
    size_t n_anchors;
};
int trust_bundle_build(const struct image *img, const char *ca, size_t len,
                       struct trust_bundle *ret, struct cella_error *err);
void trust_bundle_fini(struct trust_bundle *b);

/* keystore.c - appends a JKS truststore to ret: `old` with the authority added when it is a JKS, else the certificates of
   `bundle` (which has the authority). How many certificates, or -ENOMEM. */
int trust_keystore(const void *old, size_t old_len, const char *bundle, size_t bundle_len,
                   const char *ca, size_t ca_len, uint64_t wall_ms, struct buf *ret);

/* The environment of commands in a cell that trusts a CA: i-th "NAME=VALUE", or NULL. */
const char *trust_env(size_t i);

#endif
