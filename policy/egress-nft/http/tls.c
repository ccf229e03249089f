/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * tls - both handshakes of a flow, in this order: the cell's ClientHello is read and its server name checked;
 * the upstream's handshake is made with the cell's own ALPN offers and verified (system store, exact name);
 * the cell's is finished with a leaf for that name and the protocol the upstream chose.
 *
 * So the cell speaks what the server speaks, and no handshake succeeds before the upstream was seen to be who it
 * should be. When it is not, the cell gets its handshake and then a typed 502, because a program can
 * read that; nothing of the request goes anywhere. TLS 1.2 at least, no compression, no
 * renegotiation, no tickets, no session cache, no early data.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <unistd.h>

#include "http.h"

#define SYSTEM_STORE "/etc/ssl/certs/ca-certificates.crt"

/* ------------------------------------------------------------ ClientHello */

static int sni_is(SSL *ssl, const char *name, int *ret_there)
{
    const unsigned char *p;
    size_t n, len;

    *ret_there = SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n) == 1;
    if (!*ret_there || n < 5 || ((size_t)p[0] << 8 | p[1]) != n - 2 || p[2] != 0)
        return 0;
    len = (size_t)p[3] << 8 | p[4];
    return len == n - 5 && slice_is((const char *)p + 5, len, name);
}

/* What the cell offers, as far as the engine speaks it. */
static void offers(SSL *ssl, struct flow *f)
{
    static const char *const known[] = {"h2", "http/1.1"};
    const unsigned char *p;
    size_t n, at, i;

    f->offer_len = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &p,
                                  &n) != 1)
        return;
    for (at = 2; at < n && at + 1 + p[at] <= n; at += 1u + p[at])
        for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
            if (p[at] == strlen(known[i]) && !memcmp(p + at + 1, known[i], p[at]) &&
                f->offer_len + 1u + p[at] <= sizeof(f->offer) / 2) {
                memcpy(f->offer + f->offer_len, p + at, 1u + p[at]);
                f->offer_len += 1u + p[at];
            }
}

static int offered(const struct flow *f, const char *proto)
{
    unsigned at;

    for (at = 0; at < f->offer_len; at += 1u + f->offer[at])
        if (f->offer[at] == strlen(proto) && !memcmp(f->offer + at + 1, proto, f->offer[at]))
            return 1;
    return 0;
}

static int hello(SSL *ssl, int *alert, void *data)
{
    struct flow *f = SSL_get_app_data(ssl);
    int there;

    (void)data;
    if (f->hello_seen)
        return SSL_CLIENT_HELLO_SUCCESS;
    if (!sni_is(ssl, f->name, &there)) {
        f->hello_bad = there ? REASON_SNI_MISMATCH : REASON_SNI_MISSING;
        *alert = SSL_AD_UNRECOGNIZED_NAME;
        return SSL_CLIENT_HELLO_ERROR;
    }
    offers(ssl, f);
    f->hello_seen = 1;
    return SSL_CLIENT_HELLO_RETRY; /* until the upstream has shown itself */
}

static int alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                const unsigned char *in, unsigned in_len, void *data)
{
    struct flow *f = SSL_get_app_data(ssl);

    (void)in;
    (void)in_len;
    (void)data;
    if (!f->alpn)
        return SSL_TLSEXT_ERR_NOACK;
    if (!offered(f, f->alpn))
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = (const unsigned char *)f->alpn;
    *out_len = (unsigned char)strlen(f->alpn);
    return SSL_TLSEXT_ERR_OK;
}

/* --------------------------------------------------------------- contexts */

static SSL_CTX *context(const SSL_METHOD *method)
{
    SSL_CTX *c = SSL_CTX_new(method);

    if (!c || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1)
        return NULL;
    SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(
        c, 1); /* a record in one call; what lies there is seen by SSL_has_pending */
    SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                            SSL_MODE_RELEASE_BUFFERS);
    return c;
}

/* Every certificate of a PEM file that was opened by somebody else. */
static int add_roots(SSL_CTX *c, int own_fd)
{
    BIO *b = BIO_new_fd(own_fd, BIO_CLOSE);
    X509 *x;
    int n = 0;

    while (b && (x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
        n += X509_STORE_add_cert(SSL_CTX_get_cert_store(c), x) == 1;
        X509_free(x);
    }
    BIO_free(b);
    ERR_clear_error();
    return n;
}

int tls_init(struct engine *e, int ca_fd)
{
    e->server = context(TLS_server_method());
    e->client = context(TLS_client_method());
    if (!e->server || !e->client)
        return -ENOMEM;
    SSL_CTX_set_num_tickets(e->server, 0);
    SSL_CTX_set_client_hello_cb(e->server, hello, NULL);
    SSL_CTX_set_alpn_select_cb(e->server, alpn, NULL);
    SSL_CTX_set_verify(e->client, SSL_VERIFY_PEER, NULL);
    /* A host without a store verifies nothing, so every upstream fails: said, and closed. */
    SSL_CTX_load_verify_locations(e->client, SYSTEM_STORE, NULL);
    ERR_clear_error();
    if (ca_fd >= 0 && !add_roots(e->client, ca_fd))
        return -EINVAL;
    return 0;
}

/* ------------------------------------------------------------- handshakes */

int tls_cell(struct flow *f)
{
    SSL *ssl = SSL_new(f->e->server);

    if (!ssl)
        return -ENOMEM;
    f->cell.ssl = ssl;
    SSL_set_app_data(ssl, f);
    SSL_set_accept_state(ssl);
    return SSL_set_fd(ssl, f->cell.w.fd) == 1 ? 0 : -ENOMEM;
}

static int tls_up(struct flow *f)
{
    SSL *ssl = SSL_new(f->e->client);

    if (!ssl)
        return -ENOMEM;
    f->up.ssl = ssl;
    SSL_set_connect_state(ssl);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set_fd(ssl, f->up.w.fd) != 1 || SSL_set_tlsext_host_name(ssl, f->name) != 1 ||
        SSL_set1_host(ssl, f->name) != 1 ||
        (f->offer_len && SSL_set_alpn_protos(ssl, f->offer, f->offer_len) != 0))
        return -ENOMEM;
    return 0;
}

/* 1 done, 0 waiting, -1 failed; sets what the socket is waited for. */
static int shake(struct side *s)
{
    int r;

    ERR_clear_error();
    s->wants_write = 0;
    s->wants_more = 0;
    r = SSL_do_handshake(s->ssl);
    if (r == 1)
        return 1;
    switch (SSL_get_error(s->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        s->wants_more = 1;
        return 0;
    case SSL_ERROR_WANT_WRITE:
        s->wants_write = 1;
        return 0;
    case SSL_ERROR_WANT_CLIENT_HELLO_CB:
        return 0;
    default:
        ERR_clear_error();
        return -1;
    }
}

static void upstream_seen(struct flow *f)
{
    const unsigned char *p;
    unsigned n;

    SSL_get0_alpn_selected(f->up.ssl, &p, &n);
    if (n == 2 && !memcmp(p, "h2", 2))
        f->alpn = "h2";
    else if (f->offer_len)
        f->alpn = "http/1.1";
}

static void upstream_bad(struct flow *f)
{
    f->refused = REASON_UPSTREAM;
    f->alpn = offered(f, "http/1.1") ? "http/1.1" : f->offer_len ? "h2" : NULL;
    deny_event(f, REASON_UPSTREAM, NULL, NULL);
    side_close(f->e, &f->up, 1);
}

static int step_hello(struct flow *f)
{
    int r = shake(&f->cell);

    if (f->hello_bad) {
        deny_event(f, (uint32_t)f->hello_bad, NULL, NULL);
        return -EPERM;
    }
    if (r < 0)
        return -EPROTO;
    if (!f->hello_seen)
        return 0;
    f->phase = PHASE_UP;
    return tls_up(f) < 0 ? -ENOMEM : 1;
}

static int step_up(struct flow *f)
{
    int r = shake(&f->up);

    if (r == 0)
        return 0;
    if (r > 0)
        upstream_seen(f);
    else
        upstream_bad(f);
    f->phase = PHASE_CELL;
    return ca_use(f->cell.ssl, f->name) < 0 ? -EIO : 1;
}

int tls_step(struct flow *f)
{
    int r;

    if (f->phase == PHASE_HELLO)
        return step_hello(f);
    if (f->phase == PHASE_UP)
        return step_up(f);
    r = shake(&f->cell);
    if (r <= 0)
        return r < 0 ? -EPROTO : 0;
    f->deadline = 0;
    f->phase = f->alpn && !strcmp(f->alpn, "h2") ? PHASE_H2 : PHASE_H1;
    return f->phase == PHASE_H2 && h2_start(f) < 0 ? -ENOMEM : 1;
}
