/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * keystore - the truststore of a Java runtime with the cell's authority in it. Java reads no PEM; its keystore
 * format "JKS" is a list of certificates, which is written here from what the image has: its own keystore when that is a JKS,
 * with the authority appended, else the certificates of its PEM bundle.
 *
 * The checksum at the end of a JKS is SHA-1 keyed with the password, and the password of every default truststore is the
 * same. Java checks it only when it is given one, which it is not for its default truststore. SHA-1 comes from
 * libcrypto, mapped for this and unmapped; where there is none the checksum is zero, and whoever gives a password
 * is told that the store was tampered with. Threads: no state.
 */
#include <dlfcn.h>
#include <sodium.h>

#include "trust.h"

#define JKS_MAGIC 0xfeedfeedu
#define JKS_VERSION 2u
#define JKS_HEAD 12u
#define JKS_CHECKSUM 20u
#define JKS_CERTIFICATE 2u
#define ENTRIES_MAX 65536u
#define DER_MAX 65536u

static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END CERTIFICATE-----";

static uint32_t be32_get(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void be_add(struct buf *b, uint64_t value, unsigned bytes)
{
    while (bytes--) {
        uint8_t byte = (uint8_t)(value >> (8 * bytes));
        buf_add(b, &byte, 1);
    }
}

static void text_add(struct buf *b, const char *s)
{
    be_add(b, strlen(s), 2);
    buf_add(b, s, strlen(s));
}

/* One SEQUENCE that is as long as it says: a runtime refuses a whole keystore for one bad entry. */
static int der_whole(const uint8_t *p, size_t n)
{
    size_t i, length = 0, octets;

    if (n < 4 || p[0] != 0x30 || !(p[1] & 0x80))
        return 0;
    octets = p[1] & 0x7f;
    if (octets < 1 || octets > 3)
        return 0;
    for (i = 0; i < octets; i++)
        length = length << 8 | p[2 + i];
    return n == 2 + octets + length;
}

/* Every certificate of the text; what is none is passed over. Gives how many. */
static uint32_t entries_add(struct buf *b, const char *pem, size_t len, uint64_t wall_ms)
{
    uint8_t der[DER_MAX];
    const char *at = pem, *stop = pem + len, *last;
    uint32_t n = 0;
    char alias[32];
    size_t size;

    while (n < ENTRIES_MAX && (at = memmem(at, (size_t)(stop - at), begin, strlen(begin)))) {
        at += strlen(begin);
        last = memmem(at, (size_t)(stop - at), end, strlen(end));
        if (!last)
            break;
        if (sodium_base642bin(der, sizeof(der), at, (size_t)(last - at), "\r\n\t ", &size, NULL,
                              sodium_base64_VARIANT_ORIGINAL) == 0 &&
            der_whole(der, size)) {
            snprintf(alias, sizeof(alias), "cella-%u", n++);
            be_add(b, JKS_CERTIFICATE, 4);
            text_add(b, alias);
            be_add(b, wall_ms, 8);
            text_add(b, "X.509");
            be_add(b, size, 4);
            buf_add(b, der, size);
        }
        at = last + strlen(end);
    }
    return n;
}

static int is_jks(const uint8_t *p, size_t n)
{
    return n >= JKS_HEAD + JKS_CHECKSUM && be32_get(p) == JKS_MAGIC &&
           be32_get(p + 4) == JKS_VERSION && be32_get(p + 8) < ENTRIES_MAX;
}

/* The password "changeit" in UTF-16, and what Java puts between it and the store. */
static const char salt[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";

/* Left zero when the library is not what it should be. The three calls use no state of the library's. */
static void checksum(const struct buf *store, uint8_t out[JKS_CHECKSUM])
{
    void *lib = dlopen("libcrypto.so.3", RTLD_NOW | RTLD_LOCAL);
    _Alignas(16) uint8_t ctx[512]; /* SHA_CTX has 96 */
    int (*begin_)(void *) = NULL;
    int (*update)(void *, const void *, size_t) = NULL;
    int (*final)(uint8_t *, void *) = NULL;

    memset(out, 0, JKS_CHECKSUM);
    if (!lib)
        return;
    *(void **)&begin_ = dlsym(lib, "SHA1_Init");
    *(void **)&update = dlsym(lib, "SHA1_Update");
    *(void **)&final = dlsym(lib, "SHA1_Final");
    if (begin_ && update && final && begin_(ctx) == 1 && update(ctx, salt, sizeof(salt) - 1) == 1 &&
        update(ctx, store->ptr, store->len) == 1)
        final(out, ctx);
    dlclose(lib);
}

int trust_keystore(const void *old, size_t old_len, const char *bundle, size_t bundle_len,
                   const char *ca, size_t ca_len, uint64_t wall_ms, struct buf *ret)
{
    auto_buf struct buf entries = BUF_INIT;
    uint8_t sum[JKS_CHECKSUM] = {0};
    int keep = is_jks(old, old_len);
    uint32_t n = keep ? be32_get((const uint8_t *)old + 8) : 0;

    if (keep) {
        buf_add(&entries, (const uint8_t *)old + JKS_HEAD, old_len - JKS_HEAD - JKS_CHECKSUM);
        n += entries_add(&entries, ca, ca_len, wall_ms);
    } else {
        n = entries_add(&entries, bundle, bundle_len, wall_ms);
    }
    be_add(ret, JKS_MAGIC, 4);
    be_add(ret, JKS_VERSION, 4);
    be_add(ret, n, 4);
    buf_add(ret, entries.ptr, entries.len);
    if (!ret->oom)
        checksum(ret, sum);
    buf_add(ret, sum, sizeof(sum));
    return entries.oom || ret->oom ? -ENOMEM : (int)n;
}
