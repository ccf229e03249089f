/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * ca - the certificate authority of one cell, and leaves for the names it asks for.
 *
 * Both keys are made here at start and never leave the process; they die with it, so that the dates in the
 * certificates are only an upper bound. Where the plugin knows the names (those of the policy's
 * http rules), the CA is constrained to them: whoever steals it can speak for nothing else.
 *
 * All leaves share one key, so a new name costs one signature. The cache forgets the leaf that was not used
 * for longest. A name comes from the gate's mapping, never from the cell's bytes alone.
 */
#include <errno.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "http.h"

#define CA_SECONDS (30L * 24 * 3600)
#define LEAF_SECONDS (24L * 3600)
#define LEAF_FRESH (12L * 3600)
#define LEAVES_MAX 64u

struct leaf {
    char name[ENGINE_NAME_MAX + 1];
    X509 *cert;
    uint64_t used;
    time_t made;
};

static EVP_PKEY *ca_key, *leaf_key;
static X509 *ca_cert;
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

int ca_init(char *const *names, size_t n_names)
{
    X509 *c;
    int r;

    ca_key = EVP_EC_gen("P-256");
    leaf_key = EVP_EC_gen("P-256");
    c = ca_key && leaf_key ? blank(ca_key, CA_SECONDS, "cella: authority of one cell") : NULL;
    if (!c)
        return -ENOMEM;
    r = X509_set_issuer_name(c, X509_get_subject_name(c)) ? 0 : -ENOMEM;
    if (r == 0)
        r = extension(c, c, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
    if (r == 0)
        r = extension(c, c, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (r == 0)
        r = extension(c, c, NID_subject_key_identifier, "hash");
    if (r == 0 && n_names)
        r = constrain(c, names, n_names);
    if (r == 0 && !X509_sign(c, ca_key, EVP_sha256()))
        r = -EIO;
    if (r < 0)
        X509_free(c);
    else
        ca_cert = c;
    return r;
}

int ca_pem(struct bytes *out)
{
    BIO *mem = BIO_new(BIO_s_mem());
    char *text = NULL;
    long n;
    int r = -ENOMEM;

    if (mem && PEM_write_bio_X509(mem, ca_cert)) {
        n = BIO_get_mem_data(mem, &text);
        r = n > 0 ? bytes_add(out, text, (size_t)n) : -ENOMEM;
    }
    BIO_free(mem);
    return r;
}

static X509 *mint(const char *name)
{
    X509 *c = blank(leaf_key, LEAF_SECONDS, strlen(name) <= 64 ? name : NULL);
    char san[ENGINE_NAME_MAX + 32];
    int r;

    if (!c)
        return NULL;
    snprintf(san, sizeof(san), "%sDNS:%s", strlen(name) <= 64 ? "" : "critical,", name);
    r = X509_set_issuer_name(c, X509_get_subject_name(ca_cert)) ? 0 : -ENOMEM;
    if (r == 0)
        r = extension(c, ca_cert, NID_basic_constraints, "critical,CA:FALSE");
    if (r == 0)
        r = extension(c, ca_cert, NID_key_usage, "critical,digitalSignature");
    if (r == 0)
        r = extension(c, ca_cert, NID_ext_key_usage, "serverAuth");
    if (r == 0)
        r = extension(c, ca_cert, NID_subject_key_identifier, "hash");
    if (r == 0)
        r = extension(c, ca_cert, NID_authority_key_identifier, "keyid:always");
    if (r == 0)
        r = extension(c, ca_cert, NID_subject_alt_name, san);
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
    int r = ssl ? ca_use(ssl, "warm.invalid") : -ENOMEM;

    SSL_free(ssl);
    X509_free(leaves[0].cert);
    leaves[0] = (struct leaf){0};
    return r;
}
