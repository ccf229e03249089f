/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * key - the host's Ed25519 key pair and the heads signed with it.
 *
 *   <dir>/key        secret key, hex, 0600; made on first use
 *   <dir>/key.pub    public key, hex; written before `key`, so one without the other means that
 * somebody took it <dir>/<chain>.head   one JSON object: v, chain, seq, head, closed, lost, sig
 *
 * What is signed is a text of fixed form (head_text), not the JSON around it. The secret key lives
 * in memory that is locked and wiped. Threads: no state of its own; libsodium is initialised in
 * key_open().
 */
#include <fcntl.h>
#include <sodium.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <jansson.h>

#include "chain.h"

struct key {
    unsigned char secret[crypto_sign_SECRETKEYBYTES];
    char public_hex[HASH_HEX];
};

static size_t head_text(const struct head *h, char out[320])
{
    int n = snprintf(out, 320, "cella audit head 1\n%s\n%llu\n%s\n%u\n%llu\n", h->chain,
                     (unsigned long long)h->seq, h->hash, h->closed, (unsigned long long)h->lost);

    return n > 0 && n < 320 ? (size_t)n : 0;
}

void key_sign(const struct key *k, const struct head *h, char ret_hex[SIG_HEX])
{
    unsigned char sig[crypto_sign_BYTES];
    char text[320];
    size_t n = head_text(h, text);

    crypto_sign_detached(sig, NULL, (const unsigned char *)text, n, k->secret);
    hex_encode(sig, sizeof(sig), ret_hex);
}

int head_signed_by(const char *public_hex, const struct head *h, const char *sig)
{
    unsigned char raw[crypto_sign_BYTES], pub[crypto_sign_PUBLICKEYBYTES];
    char text[320];
    size_t n = head_text(h, text);

    if (hex_decode(sig, raw, sizeof(raw)) < 0 || hex_decode(public_hex, pub, sizeof(pub)) < 0)
        return 0;
    return crypto_sign_verify_detached(raw, (const unsigned char *)text, n, pub) == 0;
}

const char *key_public_hex(const struct key *k)
{
    return k->public_hex;
}

void key_free(struct key *k)
{
    if (k)
        sodium_munlock(k, sizeof(*k)); /* wipes */
    free(k);
}

/* One line of hex, exactly `len` bytes of it. */
static int hex_file_read(int dirfd, const char *name, void *out, size_t len,
                         struct cella_error *err)
{
    auto_free char *text = NULL;
    size_t n;
    int r = read_file_at(dirfd, name, 4096, &text, &n);

    if (r < 0)
        return fail(err, r, "audit key file \"%s\": %s", name, strerror(-r));
    if (n && text[n - 1] == '\n')
        text[--n] = 0;
    if (n == 2 * len)
        r = hex_decode(text, out, len);
    else
        r = -EINVAL;
    sodium_memzero(text, n);
    return r < 0 ? fail(err, -EINVAL, "audit key file \"%s\" is malformed: expected %zu hex digits",
                        name, 2 * len)
                 : 0;
}

int key_public_read(int dirfd, char ret_hex[HASH_HEX], struct cella_error *err)
{
    unsigned char pub[crypto_sign_PUBLICKEYBYTES];
    int r;

    if (sodium_init() < 0)
        return fail(err, -EIO, "libsodium did not start");
    r = hex_file_read(dirfd, "key.pub", pub, sizeof(pub), err);
    if (r == 0)
        hex_encode(pub, sizeof(pub), ret_hex);
    return r;
}

static int key_make(int dirfd, struct cella_error *err)
{
    unsigned char pub[crypto_sign_PUBLICKEYBYTES], secret[crypto_sign_SECRETKEYBYTES];
    char text[2 * sizeof(secret) + 2];
    int r;

    if (faccessat(dirfd, "key.pub", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return fail(err, -ENOKEY,
                    "the audit's signing key is gone (key.pub is there, key is not); restore it, "
                    "or move the "
                    "audit directory away to start anew");
    crypto_sign_keypair(pub, secret);
    hex_encode(pub, sizeof(pub), text);
    strcat(text, "\n");
    r = replace_file_at(dirfd, "key.pub", text, strlen(text), 0644);
    if (r == 0) {
        hex_encode(secret, sizeof(secret), text);
        strcat(text, "\n");
        r = replace_file_at(dirfd, "key", text, strlen(text), 0600);
    }
    sodium_memzero(secret, sizeof(secret));
    sodium_memzero(text, sizeof(text));
    if (r < 0) {
        unlinkat(dirfd, "key.pub", 0);
        return fail(err, r, "cannot write the audit's key pair: %s", strerror(-r));
    }
    return 0;
}

/* Makes the pair when there is none; one process at a time. */
static int key_ensure(int dirfd, struct cella_error *err)
{
    auto_close int lock = -1;

    if (faccessat(dirfd, "key", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    lock = openat(dirfd, "key.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0 || flock(lock, LOCK_EX) < 0)
        return fail(err, -errno, "cannot lock the audit's key (key.lock): %s", strerror(errno));
    if (faccessat(dirfd, "key", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    return key_make(dirfd, err);
}

int key_open(int dirfd, struct key **ret, struct cella_error *err)
{
    struct stat st;
    struct key *k;
    int r;

    if (sodium_init() < 0)
        return fail(err, -EIO, "libsodium did not start");
    r = key_ensure(dirfd, err);
    if (r < 0)
        return r;
    if (fstatat(dirfd, "key", &st, AT_SYMLINK_NOFOLLOW) < 0)
        return fail(err, -errno, "cannot stat the audit's key: %s", strerror(errno));
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != 0 && st.st_uid != geteuid()))
        return fail(
            err, -EPERM,
            "the audit's key must be a file of this user with mode 0600 (it is %04o, user %u)",
            st.st_mode & 07777, st.st_uid);
    k = calloc(1, sizeof(*k));
    if (!k)
        return fail(err, -ENOMEM, "out of memory");
    sodium_mlock(
        k, sizeof(*k)); /* not allowed everywhere; then it may be swapped, as any process is */
    r = hex_file_read(dirfd, "key", k->secret, sizeof(k->secret), err);
    if (r < 0) {
        key_free(k);
        return r;
    }
    hex_encode(k->secret + crypto_sign_SEEDBYTES, crypto_sign_PUBLICKEYBYTES, k->public_hex);
    *ret = k;
    return 0;
}

/* ------------------------------------------------------------------- heads */

int head_write(int dirfd, const struct key *k, const struct head *h)
{
    char sig[SIG_HEX], name[CHAIN_NAME_MAX + 8], text[640];
    int n;

    key_sign(k, h, sig);
    snprintf(name, sizeof(name), "%s.head", h->chain);
    n = snprintf(text, sizeof(text),
                 "{\"v\":1,\"chain\":\"%s\",\"seq\":%llu,\"head\":\"%s\",\"closed\":%s,\"lost\":%"
                 "llu,\"sig\":\"%s\"}\n",
                 h->chain, (unsigned long long)h->seq, h->hash, h->closed ? "true" : "false",
                 (unsigned long long)h->lost, sig);
    return replace_file_at(dirfd, name, text, (size_t)n, 0600);
}

static int head_parse(const char *text, size_t len, const char *chain, struct head *ret,
                      char ret_sig[SIG_HEX])
{
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
    const char *name, *hash, *sig;
    json_int_t v, seq, lost;
    int closed, r = -EINVAL;

    if (!root)
        return -EINVAL;
    if (json_unpack_ex(root, NULL, JSON_STRICT, "{s:I,s:s,s:I,s:s,s:b,s:I,s:s}", "v", &v, "chain",
                       &name, "seq", &seq, "head", &hash, "closed", &closed, "lost", &lost, "sig",
                       &sig) == 0 &&
        v == 1 && !strcmp(name, chain) && seq >= 0 && lost >= 0 && strlen(hash) == HASH_HEX - 1 &&
        strlen(sig) == SIG_HEX - 1) {
        *ret = (struct head){.seq = (uint64_t)seq, .closed = closed != 0, .lost = (uint64_t)lost};
        snprintf(ret->chain, sizeof(ret->chain), "%s", name);
        snprintf(ret->hash, sizeof(ret->hash), "%s", hash);
        memcpy(ret_sig, sig, SIG_HEX);
        r = 0;
    }
    json_decref(root);
    return r;
}

int head_read(int dirfd, const char *chain, struct head *ret, char ret_sig[SIG_HEX],
              struct cella_error *err)
{
    char name[CHAIN_NAME_MAX + 8];
    auto_free char *text = NULL;
    size_t len;
    int r;

    snprintf(name, sizeof(name), "%s.head", chain);
    r = read_file_at(dirfd, name, 4096, &text, &len);
    if (r < 0)
        return fail(err, r, "%s: %s", name, strerror(-r));
    r = head_parse(text, len, chain, ret, ret_sig);
    return r < 0 ? fail(err, r, "%s is malformed", name) : 0;
}
