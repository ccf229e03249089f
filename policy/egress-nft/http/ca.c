/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ca - the certificate authority of one cell, and leaves for the names it asks for.
 *
 * The key is made here, by the cell's first engine, and kept in a memory file that nobody but engines of this cell reads:
 * an engine that takes the place of a dead one goes on with it. It dies with the cell, so that the dates in the
 * certificates are only an upper bound. Where the plugin knows the names (those of the policy's
 * http rules), the CA is constrained to them: whoever steals it can speak for nothing else. Names that come later get a
 * further certificate of their own under another subject, with the same key; what was issued by the first stays as it is.
 *
 * All leaves share one key, so a new name costs one signature. The cache forgets the leaf that was not used
 * for longest. A name comes from the gate's mapping, never from the cell's bytes alone.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "http.h"

#define CA_SECONDS (400L * 24 * 3600) /* of a cell's life */
#define KEY_FILE_MAX (1L << 20)
#define LEAF_SECONDS (24L * 3600)
#define LEAF_FRESH (12L * 3600)
#define LEAVES_MAX 64u

struct leaf {
    char name[ENGINE_NAME_MAX + 1];
    X509 *cert;
    uint64_t used;
    time_t made;
};

struct authority {
    X509 *cert;
    NAME_CONSTRAINTS *only; /* NULL: any name */
};

static EVP_PKEY *ca_key, *leaf_key;
static struct authority authorities[AUTHORITIES_MAX];
static size_t n_authorities;
static int key_file = -1;
static struct leaf leaves[LEAVES_MAX];
static uint64_t uses;

static int extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *x;
    int ok;

    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    x = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    ok = x && X509_add_ext(cert, x, -1);
    X509_EXTENSION_free(x);
    return ok ? 0 : -EINVAL;
}

static int serial(X509 *cert)
{
    unsigned char raw[16];
    BIGNUM *n;
    int ok;

    if (RAND_bytes(raw, sizeof(raw)) != 1)
        return -EIO;
    raw[0] = (unsigned char)((raw[0] & 0x7f) | 1);
    n = BN_bin2bn(raw, sizeof(raw), NULL);
    ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));
    BN_free(n);
    return ok ? 0 : -ENOMEM;
}

/* An unsigned certificate with its key, dates and subject. */
static X509 *blank(EVP_PKEY *key, long seconds, const char *cn)
{
    X509 *c = X509_new();
    X509_NAME *n = c ? X509_get_subject_name(c) : NULL;
    int ok = n && X509_set_version(c, 2) && serial(c) == 0 && X509_set_pubkey(c, key) &&
             X509_gmtime_adj(X509_getm_notBefore(c), -3600) &&
             X509_gmtime_adj(X509_getm_notAfter(c), seconds);

    if (ok && cn)
        ok =
            X509_NAME_add_entry_by_txt(n, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
    if (!ok) {
        X509_free(c);
        return NULL;
    }
    return c;
}

static int constrain(X509 *cert, char *const *names, size_t n)
{
    struct bytes text = {0};
    size_t i;
    int r = bytes_addf(&text, "critical,excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/"
                              "0:0:0:0:0:0:0:0");

    for (i = 0; r == 0 && i < n; i++)
        r = bytes_addf(&text, ",permitted;DNS:%s", names[i]);
    if (r == 0)
        r = bytes_add(&text, "", 1);
    if (r == 0)
        r = extension(cert, cert, NID_name_constraints, bytes_at(&text));
    bytes_fini(&text);
    return r;
}

/* 1: the authority may speak for the name. */
static int covers(const struct authority *a, const char *name)
{
    size_t n = strlen(name), have;
    int i;

    for (i = 0; a->only && i < sk_GENERAL_SUBTREE_num(a->only->permittedSubtrees); i++) {
        const GENERAL_NAME *g = sk_GENERAL_SUBTREE_value(a->only->permittedSubtrees, i)->base;
        if (g->type != GEN_DNS)
            continue;
        have = (size_t)ASN1_STRING_length(g->d.dNSName);
        if (have <= n && !memcmp(name + n - have, ASN1_STRING_get0_data(g->d.dNSName), have) &&
            (have == n || name[n - have - 1] == '.'))
            return 1;
    }
    return !a->only;
}

static const struct authority *authority_of(const char *name)
{
    size_t i;

    for (i = 0; i < n_authorities; i++)
        if (covers(&authorities[i], name))
            return &authorities[i];
    return NULL;
}

/* Takes c. */
static int authority_add(X509 *own_c)
{
    if (n_authorities == AUTHORITIES_MAX || X509_verify(own_c, ca_key) != 1) {
        X509_free(own_c);
        return -EINVAL;
    }
    authorities[n_authorities++] =
        (struct authority){own_c, X509_get_ext_d2i(own_c, NID_name_constraints, NULL, NULL)};
    return 0;
}

/* A self-signed certificate for the next authority. */
static X509 *authority_make(char *const *names, size_t n_names)
{
    char cn[64] = "cella: authority of one cell";
    X509 *c;
    int r;

    if (n_authorities)
        snprintf(cn, sizeof(cn), "cella: authority %zu of one cell", n_authorities + 1);
    c = blank(ca_key, CA_SECONDS, cn);
    if (!c)
        return NULL;
    r = X509_set_issuer_name(c, X509_get_subject_name(c)) ? 0 : -ENOMEM;
    if (r == 0)
        r = extension(c, c, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    if (r == 0)
        r = extension(c, c, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (r == 0)
        r = extension(c, c, NID_subject_key_identifier, "hash");
    if (r == 0 && n_names)
        r = constrain(c, names, n_names);
    if (r < 0 || !X509_sign(c, ca_key, EVP_sha256())) {
        X509_free(c);
        return NULL;
    }
    return c;
}

/* One PEM text to the end of the key file; nothing half. */
static int keep(EVP_PKEY *key, X509 *cert)
{
    BIO *mem = BIO_new(BIO_s_mem());
    char *text = NULL;
    long n = 0;
    int r = -ENOMEM;

    if (mem && (!key || PEM_write_bio_PrivateKey(mem, key, NULL, NULL, 0, NULL, NULL)) &&
        PEM_write_bio_X509(mem, cert))
        n = BIO_get_mem_data(mem, &text);
    if (n > 0)
        r = key_file < 0 || write(key_file, text, (size_t)n) == n ? 0 : -EIO;
    if (text)
        explicit_bzero(text, (size_t)n);
    BIO_free(mem);
    return r;
}

static int found(char *text, size_t n)
{
    BIO *mem = BIO_new_mem_buf(text, (int)n);
    X509 *c;
    int r = 0;

    ca_key = mem ? PEM_read_bio_PrivateKey(mem, NULL, NULL, NULL) : NULL;
    while (r == 0 && ca_key && (c = PEM_read_bio_X509(mem, NULL, NULL, NULL)))
        r = authority_add(c);
    BIO_free(mem);
    ERR_clear_error();
    return ca_key && n_authorities ? r : -EBADMSG;
}

static int made(char *const *names, size_t n_names)
{
    X509 *c;
    int r;

    ca_key = EVP_EC_gen("P-256");
    c = ca_key ? authority_make(names, n_names) : NULL;
    if (!c)
        return -ENOMEM;
    r = keep(ca_key, c);
    if (r == 0)
        return authority_add(c);
    X509_free(c);
    return r;
}

int ca_init(char *const *names, size_t n_names, int own_key_file)
{
    struct stat st = {0};
    char *text;
    int r;

    key_file = own_key_file;
    leaf_key = EVP_EC_gen("P-256");
    if (!leaf_key || (key_file >= 0 && fstat(key_file, &st) < 0) || st.st_size > KEY_FILE_MAX)
        return -EIO;
    if (!st.st_size)
        return made(names, n_names);
    text = malloc((size_t)st.st_size);
    r = text && pread(key_file, text, (size_t)st.st_size, 0) == st.st_size ? 0 : -EIO;
    if (r == 0)
        r = found(text, (size_t)st.st_size);
    if (text)
        explicit_bzero(text, (size_t)st.st_size);
    free(text);
    return r;
}

int ca_more(char *const *names, size_t n_names)
{
    X509 *c = n_authorities < AUTHORITIES_MAX ? authority_make(names, n_names) : NULL;
    int r = c ? keep(NULL, c) : -ENOSPC;

    if (r == 0)
        return authority_add(c);
    X509_free(c);
    return r;
}

int ca_pem(struct bytes *out)
{
    BIO *mem = BIO_new(BIO_s_mem());
    char *text = NULL;
    size_t i;
    long n;
    int r = mem ? 0 : -ENOMEM;

    for (i = 0; r == 0 && i < n_authorities; i++)
        if (!PEM_write_bio_X509(mem, authorities[i].cert))
            r = -ENOMEM;
    if (r == 0) {
        n = BIO_get_mem_data(mem, &text);
        r = n > 0 ? bytes_add(out, text, (size_t)n) : -ENOMEM;
    }
    BIO_free(mem);
    return r;
}

static X509 *mint(const char *name)
{
    const struct authority *a = authority_of(name);
    X509 *c = a ? blank(leaf_key, LEAF_SECONDS, strlen(name) <= 64 ? name : NULL) : NULL;
    char san[ENGINE_NAME_MAX + 32];
    int r;

    if (!c)
        return NULL;
    snprintf(san, sizeof(san), "%sDNS:%s", strlen(name) <= 64 ? "" : "critical,", name);
    r = X509_set_issuer_name(c, X509_get_subject_name(a->cert)) ? 0 : -ENOMEM;
    if (r == 0)
        r = extension(c, a->cert, NID_basic_constraints, "critical,CA:FALSE");
    if (r == 0)
        r = extension(c, a->cert, NID_key_usage, "critical,digitalSignature");
    if (r == 0)
        r = extension(c, a->cert, NID_ext_key_usage, "serverAuth");
    if (r == 0)
        r = extension(c, a->cert, NID_subject_key_identifier, "hash");
    if (r == 0)
        r = extension(c, a->cert, NID_authority_key_identifier, "keyid:always");
    if (r == 0)
        r = extension(c, a->cert, NID_subject_alt_name, san);
    if (r < 0 || !X509_sign(c, ca_key, EVP_sha256())) {
        X509_free(c);
        return NULL;
    }
    return c;
}

static X509 *leaf_for(const char *name)
{
    struct leaf *oldest = &leaves[0];
    time_t now = time(NULL);
    size_t i;

    for (i = 0; i < LEAVES_MAX; i++) {
        struct leaf *l = &leaves[i];
        if (l->cert && !strcmp(l->name, name) && now - l->made < LEAF_FRESH && now >= l->made) {
            l->used = ++uses;
            return l->cert;
        }
        if (l->used < oldest->used)
            oldest = l;
    }
    X509_free(oldest->cert);
    oldest->cert = mint(name);
    oldest->used = oldest->cert ? ++uses : 0;
    oldest->made = now;
    snprintf(oldest->name, sizeof(oldest->name), "%s", name);
    return oldest->cert;
}

int ca_use(SSL *ssl, const char *name)
{
    X509 *c = leaf_for(name);

    return c && SSL_use_certificate(ssl, c) == 1 && SSL_use_PrivateKey(ssl, leaf_key) == 1 ? 0
                                                                                           : -EIO;
}

int ca_warm(struct engine *e)
{
    SSL *ssl = SSL_new(e->server);
    struct authority first = authorities[0];
    int r;

    authorities[0].only = NULL; /* for this one name, that nobody is shown */
    r = ssl ? ca_use(ssl, "warm.invalid") : -ENOMEM;
    authorities[0] = first;
    SSL_free(ssl);
    X509_free(leaves[0].cert);
    leaves[0] = (struct leaf){0};
    return r;
}
