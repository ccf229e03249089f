/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * zone - see zone.h. Each server is a process in the uplink namespace.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "zone.h"

struct shared *shared;

/* --------------------------------------------------------- DNS, upstream */

static const struct {
    const char *name;
    const char *addrs[3];
} zone[] = {
    {"good.test.example", {"203.0.113.10"}},
    {"other.test.example", {"203.0.113.10"}},
    {"a.wild.example", {"203.0.113.11"}},
    {"deep.a.wild.example", {"203.0.113.11"}},
    {"wild.example", {"203.0.113.11"}},
    {"evilwild.example", {"203.0.113.11"}},
    {"a.wild.example.attacker.example", {"203.0.113.11"}},
    {"rebind.test.example", {"10.1.2.3"}},
    {"meta.test.example", {"169.254.169.254"}},
    {"loop.test.example", {"127.0.0.1"}},
    {"pool.test.example", {"198.18.0.1"}},
    {"own.test.example", {"8.8.4.4"}},
    {"mixed.test.example", {"10.1.2.3", "203.0.113.10"}},
    {"denied.test.example", {"203.0.113.66"}},
    {"silent.test.example", {"203.0.113.10"}},
    {"cut.test.example", {"203.0.113.10"}},
};

/* Text of the question, lower case, and its end. */
static size_t question_text(const uint8_t *q, size_t n, char *out)
{
    size_t at = 12, k = 0, i;

    while (at < n && q[at]) {
        for (i = 1; i <= q[at]; i++)
            out[k++] = (char)(q[at + i] | (q[at + i] >= 'A' && q[at + i] <= 'Z' ? 32 : 0));
        at += q[at] + 1u;
        if (q[at])
            out[k++] = '.';
    }
    out[k] = 0;
    return at + 5;
}

static size_t put_a(uint8_t *p, const char *addr, uint32_t ttl)
{
    const uint8_t head[] = {0xc0, 12, 0, 1, 0, 1, 0, 0, (uint8_t)(ttl >> 8), (uint8_t)ttl, 0, 4};

    memcpy(p, head, sizeof(head));
    inet_pton(AF_INET, addr, p + sizeof(head));
    return sizeof(head) + 4;
}

static size_t zone_answer(const uint8_t *q, size_t n, uint8_t *out)
{
    char name[256];
    size_t end = question_text(q, n, name), at = end, i, k;

    snprintf(shared->last, sizeof(shared->last), "%s", name);
    memcpy(out, q, end);
    out[2] = 0x84;
    out[3] = 0x80;
    memset(out + 6, 0, 6);
    if (!strcmp(name, "flip.test.example")) { /* a public address first, a private one ever after */
        at += put_a(out + at, shared->flips++ ? "10.1.2.3" : "203.0.113.10", 0);
        out[7] = 1;
        return at;
    }
    for (i = 0; i < sizeof(zone) / sizeof(zone[0]); i++)
        for (k = 0; !strcmp(zone[i].name, name) && k < 3 && zone[i].addrs[k]; k++) {
            at += put_a(out + at, zone[i].addrs[k], 300);
            out[7]++;
        }
    if (!out[7])
        out[3] |= 3;
    if (!strcmp(name, "cut.test.example"))
        out[2] |= 2; /* ask again over TCP */
    return at;
}

static int serve_dns(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(5353)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || write(*(int *)arg, "x", 1) != 1)
        return 1;
    for (;;) {
        uint8_t q[1500], out[1500];
        socklen_t len = sizeof(a);
        ssize_t n = recvfrom(fd, q, sizeof(q), 0, (struct sockaddr *)&a, &len);
        if (n < 17)
            continue;
        shared->queries++;
        n = (ssize_t)zone_answer(q, (size_t)n, out);
        if (strcmp(shared->last, "silent.test.example") != 0)
            sendto(fd, out, (size_t)n, 0, (struct sockaddr *)&a, len);
    }
}

/* The same over TCP, for answers that were cut. */
static int serve_dns_tcp(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(5353)};
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 8) < 0 ||
        write(*(int *)arg, "x", 1) != 1)
        return 1;
    for (;;) {
        uint8_t q[1500], out[1502];
        int c = accept(fd, NULL, NULL);
        ssize_t n = recv(c, q, sizeof(q), 0);
        size_t len;
        if (n > 19) {
            len = zone_answer(q + 2, (size_t)n - 2, out + 2);
            out[4] &= (uint8_t)~2; /* whole */
            out[0] = (uint8_t)(len >> 8);
            out[1] = (uint8_t)len;
            send(c, out, len + 2, 0);
            recv(c, q, 1, 0);
        }
        close(c);
    }
}

/* UDP echo on port 4000. */
static int serve_udp(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(4000)};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || write(*(int *)arg, "x", 1) != 1)
        return 1;
    for (;;) {
        char buf[2000];
        socklen_t len = sizeof(a);
        ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&a, &len);
        if (n >= 0)
            sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&a, len);
    }
}

/* A TLS server on 8443 that says which name it was asked for. */
static SSL_CTX *server_context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();

    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)"test", -1, -1, 0);
    X509_sign(cert, key, EVP_sha256());
    SSL_CTX_use_certificate(ctx, cert);
    SSL_CTX_use_PrivateKey(ctx, key);
    return ctx;
}

static int serve_tls(void *arg)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(8443)};
    SSL_CTX *ctx = server_context();
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);

    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 8) < 0 ||
        write(*(int *)arg, "x", 1) != 1)
        return 1;
    for (;;) {
        int c = accept(fd, NULL, NULL);
        SSL *ssl = SSL_new(ctx);
        const char *name;
        world.sinks->conns++;
        SSL_set_fd(ssl, c);
        if (SSL_accept(ssl) == 1) {
            name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
            SSL_write(ssl, name ? name : "-", (int)strlen(name ? name : "-"));
            SSL_shutdown(ssl);
        }
        SSL_free(ssl);
        close(c);
    }
}

static pid_t servers[4];

static void start_server(int i, int (*fn)(void *))
{
    int ready[2];
    char c;

    assert_int_equal(pipe(ready), 0);
    servers[i] = spawn_in_ns(world.uplink_ns, fn, &ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    close(ready[1]);
}

/* ---------------------------------------------------------- cell's side */

static size_t make_query(const struct ask *a, uint8_t *q)
{
    static const uint8_t opt[] = {0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0};
    const char *p = a->name;
    size_t n = 12, len;

    memset(q, 0, 12);
    q[0] = 0xab;
    q[2] = 1;
    q[5] = 1;
    q[11] = 1;
    while (*p) {
        len = strcspn(p, ".");
        q[n++] = (uint8_t)len;
        memcpy(q + n, p, len);
        n += len;
        p += len + (p[len] == '.');
    }
    q[n++] = 0;
    q[n++] = (uint8_t)(a->type >> 8);
    q[n++] = (uint8_t)a->type;
    q[n++] = 0;
    q[n++] = 1;
    memcpy(q + n, opt, sizeof(opt));
    return n + sizeof(opt);
}

static void read_reply(const uint8_t *q, size_t q_len, const uint8_t *p, size_t n)
{
    size_t at = q_len - 11;
    int i;

    shared->rcode = p[3] & 15;
    shared->answers = p[7];
    shared->case_kept = !memcmp(q + 12, p + 12, at - 12);
    shared->ede = -1;
    for (i = 0; i < p[7] && i < 8 && at + 16 <= n; i++, at += 16) {
        shared->ttl = p[at + 8] << 8 | p[at + 9];
        inet_ntop(AF_INET, p + at + 12, shared->addr[i], 16);
    }
    if (p[11] && at + 17 <= n)
        shared->ede = p[at + 16];
}

int lookup_child(void *arg)
{
    const struct ask *a = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct timeval limit = patience();
    uint8_t q[600], buf[1500];
    size_t len = make_query(a, q + 2);
    int fd = socket(AF_INET, a->tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
    ssize_t n;

    q[0] = (uint8_t)(len >> 8);
    q[1] = (uint8_t)len;
    inet_pton(AF_INET, "10.200.0.1", &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 ||
        send(fd, a->tcp ? q : q + 2, len + (a->tcp ? 2 : 0), 0) < 0)
        return errno;
    n = recv(fd, buf, sizeof(buf), 0);
    if (n < 12 + (a->tcp ? 2 : 0))
        return n < 0 ? errno : 250;
    read_reply(q + 2, len, buf + (a->tcp ? 2 : 0), (size_t)n - (a->tcp ? 2 : 0));
    return 0;
}

int lookup(const char *name, uint16_t type)
{
    struct ask a = {name, type, 0};

    memset(shared->addr, 0, sizeof(shared->addr));
    shared->rcode = 99;
    return in_ns(world.cell_ns[0], lookup_child, &a) ? 99 : shared->rcode;
}

int talk_child(void *arg)
{
    const struct talk *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = {patience().tv_sec + 10,
                            0}; /* the gate has limits of its own, of 10 s */
    size_t at, piece = t->piece ? t->piece : t->n;
    int on = 1, early = 0, fd = socket(AF_INET, SOCK_STREAM, 0);
    ssize_t n;

    inet_pton(AF_INET, t->addr, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    shared->n = 0;
    shared->err = 0;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        return shared->err = errno;
    for (at = 0; at < t->n; at += piece)
        if (send(fd, t->bytes + at, t->n - at < piece ? t->n - at : piece, MSG_NOSIGNAL) < 0) {
            early = errno; /* the reset came first, and is told only once */
            break;
        }
    if (t->finish)
        shutdown(fd, SHUT_WR);
    while (shared->n < t->want) {
        n = recv(fd, shared->bytes + shared->n, sizeof(shared->bytes) - shared->n, 0);
        if (n < 0 && errno == EINTR)
            continue; /* a wait with a limit is not taken up again by itself */
        if (n <= 0) {
            shared->err = n < 0 ? errno : early ? early : -1; /* -1: FIN */
            break;
        }
        shared->n += (size_t)n;
    }
    return 0;
}

int talk(const char *addr, int port, const void *bytes, size_t n, size_t piece)
{
    struct talk t = {addr, port, bytes, n, piece, 0, n};

    in_ns(world.cell_ns[0], talk_child, &t);
    host_turn(30);
    return shared->err;
}

int echoed(const char *addr, int port, const void *bytes, size_t n, size_t piece)
{
    return talk(addr, port, bytes, n, piece) == 0 && shared->n == n &&
           !memcmp(shared->bytes, bytes, n);
}

const char *address_of(const char *name)
{
    static char addr[4][16];
    static int next;
    char *p = addr[next++ % 4];

    if (lookup(name, 1) || shared->answers != 1)
        fail_msg("%s: rcode %d, %d answers", name, shared->rcode, shared->answers);
    memcpy(p, shared->addr[0], 16);
    return p;
}

size_t hello_for(const char *name, uint8_t *p, size_t cap)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *out = BIO_new(BIO_s_mem());
    int n;

    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), out);
    SSL_connect(ssl);
    n = BIO_read(out, p, (int)cap);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    return (size_t)n;
}

size_t cut(const uint8_t *in, size_t n, size_t size, uint8_t *out)
{
    size_t at, k = 0, len;

    for (at = 5; at < n; at += len) {
        len = n - at < size ? n - at : size;
        memcpy(out + k, in, 3);
        out[k + 3] = (uint8_t)(len >> 8);
        out[k + 4] = (uint8_t)len;
        memcpy(out + k + 5, in + at, len);
        k += 5 + len;
    }
    return k;
}

void alert(const char *what, uint8_t description)
{
    if (shared->err != ECONNRESET && shared->n != 7)
        fail_msg("%s: error %d, %zu bytes", what, shared->err, shared->n);
    if (shared->n != 7 || shared->bytes[0] != 21 || shared->bytes[5] != 2 ||
        shared->bytes[6] != description)
        fail_msg("%s: %zu bytes, no alert %u", what, shared->n, description);
}

/* ---------------------------------------------------------------- the cell */

/* clang-format off */
const char WIDE[] = "{\"version\":1,\"allow\":["
    RAW("raw", "good.test.example", "80,7000,8081") ","
    TLS("tls", "good.test.example", "443,8443") ","
    TLS("other", "other.test.example", "443") ","
    RAW("wild", "*.wild.example", "80") ","
    RAW("rebind", "rebind.test.example", "80") ","
    RAW("meta", "meta.test.example", "80") ","
    RAW("loop", "loop.test.example", "80") ","
    RAW("pool", "pool.test.example", "80") ","
    RAW("own", "own.test.example", "80") ","
    RAW("mixed", "mixed.test.example", "80") ","
    RAW("flip", "flip.test.example", "80") ","
    RAW("silent", "silent.test.example", "80") ","
    RAW("cut", "cut.test.example", "80") ","
    RAW("nx", "nx.test.example", "80") "]}";
/* clang-format on */

void *zone_cell;
struct cella_attached attached;
uint8_t block[BLOCK];

void up_with(const char *document)
{
    world.resolvers = RESOLVER;
    zone_cell = attach_cell(0, document, &attached);
}

void done(void)
{
    world.ops->detach(zone_cell);
    forget_events();
}

int apply(const char *document, uint64_t gen, struct cella_applied *ret)
{
    return apply_to(zone_cell, document, gen, ret);
}

static const struct seen *last_event(const char *kind, const char *reason, const char *name)
{
    size_t i;

    for (i = world.n_seen; i-- > 0;)
        if (!strcmp(world.seen[i].kind, kind) && !strcmp(world.seen[i].reason, reason) &&
            !strcmp(world.seen[i].name, name))
            return &world.seen[i];
    return NULL;
}

const struct seen *event(const char *kind, const char *reason, const char *name)
{
    const struct seen *s;
    int turns = turns_most();

    while (!(s = last_event(kind, reason, name)) && turns--)
        host_turn(20);
    return s;
}

int zone_up(void **state)
{
    (void)state;
    world_up();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    start_server(0, serve_dns);
    start_server(1, serve_udp);
    start_server(2, serve_tls);
    start_server(3, serve_dns_tcp);
    return 0;
}

int zone_down(void **state)
{
    size_t i;

    (void)state;
    for (i = 0; i < 4; i++) {
        kill(servers[i], SIGKILL);
        waitpid(servers[i], NULL, 0);
    }
    world_down();
    return 0;
}
