/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Egress by name, through the enforcer's entry point, in namespaces of the test's own: an uplink
 * with a DNS server that knows zones of its own (some of them hostile) and servers that count what
 * reaches them. Each denial has its positive twin, and "nothing went upstream" is read from the
 * servers' counters.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/ssl.h>

#include "net.h"

#define RESOLVER "198.51.100.7:5353"
#define DEAD_RESOLVER "198.51.100.7:5399"

/* ------------------------------------------------- what processes share */

struct shared {
    atomic_int queries, flips;
    char last[256];
    /* a lookup */
    int rcode, answers, ede, ttl, case_kept;
    char addr[8][16];
    /* a conversation */
    int err;
    size_t n;
    uint8_t bytes[70000];
};
static struct shared *shared;

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

struct ask {
    const char *name; /* dots separate labels */
    uint16_t type;
    int tcp;
};

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

static int lookup_child(void *arg)
{
    const struct ask *a = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
    struct timeval limit = {8, 0};
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

/* RCODE of the answer; 99 without one. */
static int lookup(const char *name, uint16_t type)
{
    struct ask a = {name, type, 0};

    memset(shared->addr, 0, sizeof(shared->addr));
    shared->rcode = 99;
    return in_ns(world.cell_ns[0], lookup_child, &a) ? 99 : shared->rcode;
}

struct talk {
    const char *addr;
    int port;
    const uint8_t *bytes;
    size_t n, piece; /* piece: bytes in one segment; 0 = all */
    int finish;      /* FIN after the bytes */
    size_t want;     /* read so many, or to the end */
};

static int talk_child(void *arg)
{
    const struct talk *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = {14, 0};
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
        if (n <= 0) {
            shared->err = n < 0 ? errno : early ? early : -1; /* -1: FIN */
            break;
        }
        shared->n += (size_t)n;
    }
    return 0;
}

/* Sends bytes, reads until something ends it. 0: all came back. Else errno, or -1 for FIN. */
static int talk(const char *addr, int port, const void *bytes, size_t n, size_t piece)
{
    struct talk t = {addr, port, bytes, n, piece, 0, n};

    in_ns(world.cell_ns[0], talk_child, &t);
    host_turn(30);
    return shared->err;
}

static int echoed(const char *addr, int port, const void *bytes, size_t n, size_t piece)
{
    return talk(addr, port, bytes, n, piece) == 0 && shared->n == n &&
           !memcmp(shared->bytes, bytes, n);
}

/* The synthetic address of a name. */
static const char *address_of(const char *name)
{
    static char addr[4][16];
    static int next;
    char *p = addr[next++ % 4];

    if (lookup(name, 1) || shared->answers != 1)
        fail_msg("%s: rcode %d, %d answers", name, shared->rcode, shared->answers);
    memcpy(p, shared->addr[0], 16);
    return p;
}

/* A ClientHello of OpenSSL for `name`; NULL: without one. */
static size_t hello_for(const char *name, uint8_t *p, size_t cap)
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

/* One record becomes records of `size` bytes. */
static size_t cut(const uint8_t *in, size_t n, size_t size, uint8_t *out)
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

/* ----------------------------------------------------------------- policy */

#define RULE(layer, id, host, ports)                                                               \
    "{\"id\":\"" id "\",\"host\":\"" host "\",\"ports\":[" ports "],\"layer\":\"" layer "\"}"
#define RAW(id, host, ports) RULE("raw", id, host, ports)
#define TLS(id, host, ports) RULE("tls", id, host, ports)
#define DOC(rules) "{\"version\":1,\"allow\":[" rules "]}"

/* clang-format off */
static const char WIDE[] = "{\"version\":1,\"allow\":["
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

static void *cell;
static struct cella_attached at;
static uint8_t block[64000];

static void up_with(const char *document)
{
    world.resolvers = RESOLVER;
    cell = attach_cell(0, document, &at);
}

static void done(void)
{
    world.ops->detach(cell);
    forget_events();
}

static int apply(const char *document, uint64_t gen, struct cella_applied *ret)
{
    return apply_to(cell, document, gen, ret);
}

static const struct seen *event(const char *kind, const char *reason, const char *name)
{
    size_t i;

    for (i = world.n_seen; i-- > 0;)
        if (!strcmp(world.seen[i].kind, kind) && !strcmp(world.seen[i].reason, reason) &&
            !strcmp(world.seen[i].name, name))
            return &world.seen[i];
    return NULL;
}

/* -------------------------------------------------------------------- DNS */

static void test_dns_answers(void **state)
{
    static const uint16_t empty[] = {28, 65, 64}, refused[] = {16, 255, 12, 15, 2, 33, 5, 10, 99};
    struct ask tcp = {"good.test.example", 1, 1};
    char first[16], second[16];
    size_t i;

    (void)state;
    up_with(WIDE);
    shared->queries = 0;
    assert_int_equal(lookup("Good.TEST.example", 1), 0);
    assert_int_equal(shared->answers, 1);
    assert_true(shared->ttl > 0 && shared->ttl <= 30);
    assert_true(shared->case_kept);
    memcpy(first, shared->addr[0], 16);
    assert_string_equal(first, "198.18.0.1");
    assert_int_equal(lookup("a.wild.example", 1), 0);
    memcpy(second, shared->addr[0], 16);
    assert_string_equal(second, "198.18.0.2");
    assert_int_equal(in_ns(world.cell_ns[0], lookup_child, &tcp), 0);
    assert_string_equal(shared->addr[0], first); /* stable, over TCP too */
    for (i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        assert_int_equal(lookup("good.test.example", empty[i]), 0);
        assert_int_equal(shared->answers, 0);
    }
    for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(lookup("good.test.example", refused[i]), 5);
        assert_int_equal(shared->ede, 17);
        assert_int_equal(shared->answers, 0);
    }
    host_turn(30);
    assert_int_equal(event("net.deny", "dns_refused", "good.test.example")->qtype, 99);
    assert_int_equal(shared->queries, 0); /* no question of the cell went anywhere */
    done();
}

static void test_dns_unlisted(void **state)
{
    static const char *const names[] = {
        "evil.example",
        "test.example",
        "wild.example",
        "evilwild.example",
        "xgood.test.example",
        "a.good.test.example",
        "good.test.example.evil.example",
        "a.wild.example.attacker.example",
        "localhost",
        "metadata.google.internal",
        "10.in-addr.arpa",
        "good_.test.example",
        "203.0.113.10",
    };
    size_t i;

    (void)state;
    up_with(WIDE);
    shared->queries = 0;
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (lookup(names[i], 1) != 5 || shared->ede != 15 || shared->answers)
            fail_msg("%s: rcode %d ede %d", names[i], shared->rcode, shared->ede);
        host_turn(20);
        if (!event("net.deny", "dns_refused", names[i]))
            fail_msg("%s: no event", names[i]);
    }
    assert_int_equal(lookup("deep.a.wild.example", 1), 0); /* the twin */
    assert_int_equal(shared->queries, 0);
    done();
}

static void test_dns_caps(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"dns\":{\"max_label\":20,\"max_qps\":10},\"allow\":["
        "{\"id\":\"w\",\"host\":\"*.wild.example\",\"ports\":[80],\"layer\":\"raw\"},"
        "{\"id\":\"e\",\"host\":\"a-rather-long-but-listed-label.test.example\",\"ports\":[80],"
        "\"layer\":\"raw\"}]}";
    int i, refused = 0;

    (void)state;
    up_with(doc);
    assert_int_equal(lookup("abcdefghijklmnopqrst.wild.example", 1), 0);
    assert_int_equal(lookup("abcdefghijklmnopqrstu.wild.example", 1), 5);
    assert_int_equal(lookup("a-rather-long-but-listed-label.test.example", 1), 0);
    host_turn(30);
    assert_non_null(event("net.deny", "dns_suspect", "abcdefghijklmnopqrstu.wild.example"));
    for (i = 0; i < 60; i++)
        refused += lookup("a.wild.example", 1) == 5;
    assert_true(refused > 10);
    host_turn(30);
    assert_non_null(event("net.deny", "limit", "a.wild.example"));
    done();
    up_with(DOC(RAW("w", "*.wild.example", "80")));
    /* random bytes in base32; a digest and words of the same length pass */
    assert_int_equal(lookup("mzxw6ytboi2gk3thk5qxg43xn5zgi4tf.wild.example", 1), 5);
    assert_int_equal(lookup("d41d8cd98f00b204e9800998ecf8427e.wild.example", 1), 0);
    assert_int_equal(lookup("the-quick-service-of-the-north-one.wild.example", 1), 0);
    host_turn(30);
    assert_non_null(
        event("net.deny", "dns_suspect", "mzxw6ytboi2gk3thk5qxg43xn5zgi4tf.wild.example"));
    done();
}

/* --------------------------------------------------------------------- TCP */

static void test_raw(void **state)
{
    const char *addr;
    const struct seen *s;
    int conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    shared->queries = 0;
    conns = world.sinks->conns;
    assert_true(echoed(addr, 80, "hello", 5, 0));
    assert_int_equal(shared->queries, 1);
    assert_string_equal(shared->last, "good.test.example");
    host_turn(50);
    s = event("net.allow", "", "good.test.example");
    assert_non_null(s);
    assert_string_equal(s->dst, "203.0.113.10");
    assert_string_equal(s->rule, "raw");
    s = event("net.flow", "", "good.test.example");
    assert_int_equal(s->tx, 5);
    assert_int_equal(s->rx, 5);
    assert_true(echoed(addr, 80, "again", 5, 0)); /* from the cache of the name */
    assert_int_equal(shared->queries, 1);
    assert_int_equal(world.sinks->conns, conns + 2);
    assert_true(echoed(address_of("cut.test.example"), 80, "x", 1, 0)); /* resolved over TCP */
    conns++;
    /* a port that this name does not have, but another rule has: the gate decides */
    assert_int_equal(talk(address_of("a.wild.example"), 7000, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "no_rule", "a.wild.example"));
    /* a port that no name has: the kernel does */
    assert_int_equal(talk(addr, 9999, "x", 1, 0), ECONNREFUSED);
    assert_int_equal(event("net.deny", "no_rule", "good.test.example")->port, 9999);
    /* an address that stands for nothing; the real address */
    assert_int_equal(talk("198.18.9.9", 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(talk("203.0.113.10", 80, "x", 1, 0), ECONNREFUSED);
    /* nobody there: refused upstream */
    assert_int_equal(talk(addr, 8081, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.flow", "upstream_failed", "good.test.example"));
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
}

static void test_resolved(void **state)
{
    static const struct {
        const char *name, *reason, *dst;
    } rows[] = {
        {"rebind.test.example", "resolved_private", "10.1.2.3"},
        {"meta.test.example", "resolved_private", "169.254.169.254"},
        {"loop.test.example", "resolved_private", "127.0.0.1"},
        {"pool.test.example", "resolved_private", "198.18.0.1"},
        {"own.test.example", "resolved_private", "8.8.4.4"},
        {"nx.test.example", "upstream_failed", NULL},
    };
    int conns = world.sinks->conns;
    const char *addr;
    size_t i;

    (void)state;
    up_with(WIDE);
    for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct seen *s;
        if (talk(address_of(rows[i].name), 80, "x", 1, 0) != ECONNRESET)
            fail_msg("%s: %d", rows[i].name, shared->err);
        s = event("net.deny", rows[i].reason, rows[i].name);
        if (!s || (rows[i].dst && strcmp(s->dst, rows[i].dst) != 0))
            fail_msg("%s: no event with reason %s and dst", rows[i].name, rows[i].reason);
    }
    assert_int_equal(world.sinks->conns, conns);
    /* of two answers only the public one is dialled */
    assert_true(echoed(address_of("mixed.test.example"), 80, "x", 1, 0));
    assert_string_equal(event("net.allow", "", "mixed.test.example")->dst, "203.0.113.10");
    /* the address changes between two connections */
    addr = address_of("flip.test.example");
    shared->flips = 0;
    assert_true(echoed(addr, 80, "x", 1, 0));
    assert_int_equal(talk(addr, 80, "x", 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "resolved_private", "flip.test.example")->dst,
                        "10.1.2.3");
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
    /* a denied network cannot be reached by a name either */
    up_with("{\"version\":1,\"allow\":[" RAW(
        "d", "denied.test.example", "80") "],\"deny\":["
                                          "{\"id\":\"net\",\"cidr\":\"203.0.113.64/26\"}]}");
    assert_int_equal(talk(address_of("denied.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "resolved_private", "denied.test.example")->dst,
                        "203.0.113.66");
    done();
}

static void test_dead_resolver(void **state)
{
    int conns = world.sinks->conns;

    (void)state;
    world.resolvers = DEAD_RESOLVER;
    cell = attach_cell(0, WIDE, &at);
    assert_int_equal(talk(address_of("good.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "upstream_failed", "good.test.example"));
    done();
    world.resolvers = NULL;
    cell = attach_cell(0, WIDE, &at);
    assert_int_equal(talk(address_of("good.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(
        strstr(event("net.deny", "broker_down", "good.test.example")->hint, "resolver"));
    done();
    up_with(WIDE); /* it does not answer */
    assert_int_equal(talk(address_of("silent.test.example"), 80, "x", 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "upstream_failed", "silent.test.example"));
    assert_int_equal(world.sinks->conns, conns);
    assert_true(echoed(address_of("good.test.example"), 80, "x", 1, 0));
    done();
}

/* --------------------------------------------------------------------- TLS */

static uint8_t hello[20000], records[100000];

static int handshake(void *arg)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(8443)};
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    int n, fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, arg, &to.sin_addr);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        return 1;
    SSL_set_tlsext_host_name(ssl, "good.test.example");
    SSL_set_fd(ssl, fd);
    if (SSL_connect(ssl) != 1)
        return 2;
    n = SSL_read(ssl, shared->bytes, 100);
    return n > 0 && !memcmp(shared->bytes, "good.test.example", 17) ? 0 : 3;
}

static void test_tls(void **state)
{
    static const size_t sizes[] = {1, 7, 100};
    const char *addr;
    char text[16];
    size_t n, k, i;
    int conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    snprintf(text, sizeof(text), "%s", addr);
    assert_int_equal(in_ns(world.cell_ns[0], handshake, text), 0);
    host_turn(50);
    assert_string_equal(event("net.flow", "", "good.test.example")->rule, "tls");
    conns = world.sinks->conns;
    /* the echo server on 443 shows that not a byte is lost, however the hello was cut */
    n = hello_for("GOOD.test.example", hello, sizeof(hello));
    assert_true(echoed(addr, 443, hello, n, 0));
    assert_true(echoed(addr, 443, hello, n, 1));
    for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        k = cut(hello, n, sizes[i], records);
        assert_true(echoed(addr, 443, records, k, 0));
        assert_true(echoed(addr, 443, records, k, 3));
    }
    assert_int_equal(world.sinks->conns, conns + 8);
    done();
}

static void alert(const char *what, uint8_t description)
{
    if (shared->err != ECONNRESET && shared->n != 7)
        fail_msg("%s: error %d, %zu bytes", what, shared->err, shared->n);
    if (shared->n != 7 || shared->bytes[0] != 21 || shared->bytes[5] != 2 ||
        shared->bytes[6] != description)
        fail_msg("%s: %zu bytes, no alert %u", what, shared->n, description);
}

static void test_tls_refused(void **state)
{
    const char *addr;
    size_t n;
    int conns = world.sinks->conns;

    (void)state;
    up_with(WIDE);
    addr = address_of("good.test.example");
    address_of("other.test.example");
    shared->queries = 0;
    n = hello_for("other.test.example", hello, sizeof(hello)); /* listed, and at the same address */
    talk(addr, 443, hello, n, 0);
    alert("other name", 112);
    assert_non_null(event("net.deny", "sni_mismatch", "good.test.example"));
    talk(addr, 443, hello, n, 1);
    alert("other name, byte by byte", 112);
    talk(addr, 443, records, cut(hello, n, 40, records), 0);
    alert("other name, in records", 112);
    n = hello_for("a.good.test.example", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("longer name", 112);
    n = hello_for(NULL, hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("no name", 49);
    assert_non_null(event("net.deny", "sni_missing", "good.test.example"));
    n = hello_for("203.0.113.10", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("address literal", 112);
    n = hello_for("good.test.example.", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("trailing dot", 112);
    assert_non_null(event("net.deny", "name_invalid", "good.test.example"));
    assert_int_equal(talk(addr, 443, "SSH-2.0-x\r\n", 11, 0), ECONNRESET);
    assert_int_equal(shared->n, 0);
    assert_non_null(event("net.deny", "not_tls", "good.test.example"));
    assert_int_equal(talk(addr, 443, "GET / HTTP/1.1\r\nHost: good.test.example\r\n\r\n", 43, 0),
                     ECONNRESET);
    n = hello_for("good.test.example", hello, sizeof(hello));
    { /* half a hello and then the end */
        struct talk half = {addr, 443, hello, n / 2, 0, 1, 100};
        in_ns(world.cell_ns[0], talk_child, &half);
        assert_int_equal(shared->err, ECONNRESET);
    }
    assert_int_equal(shared->queries, 0); /* no packet upstream before the verdict, not even DNS */
    assert_int_equal(world.sinks->conns, conns);
    assert_true(echoed(addr, 443, hello, n, 0));
    assert_int_equal(world.sinks->conns, conns + 1);
    done();
}

/* A client that says nothing is let go. */
static void test_silent_client(void **state)
{
    struct talk t = {NULL, 443, (const uint8_t *)"\x16\3", 2, 0, 0, 100};
    time_t begin = time(NULL);

    (void)state;
    up_with(WIDE);
    t.addr = address_of("good.test.example");
    in_ns(world.cell_ns[0], talk_child, &t);
    assert_int_equal(shared->err, ECONNRESET);
    assert_in_range(time(NULL) - begin, 9, 12);
    host_turn(30);
    assert_non_null(event("net.deny", "not_tls", "good.test.example"));
    done();
}

/* --------------------------------------------------------------- real mode */

static void test_real(void **state)
{
    static const char doc[] = "{\"version\":1,\"dns\":{\"mode\":\"real\"},\"allow\":[" RAW(
        "raw", "a.wild.example",
        "80") "," TLS("tls", "good.test.example",
                      "443") "," RAW("rebind", "rebind.test.example",
                                     "80") "," TLS("other", "other.test.example",
                                                   "443") "," RAW("mixed", "mixed.test.example",
                                                                  "7000") "]}";
    int conns = world.sinks->conns;
    size_t n;

    (void)state;
    up_with(doc);
    shared->queries = 0;
    assert_int_equal(lookup("evil.example", 1), 5);
    assert_int_equal(shared->queries, 0);
    /* allowed, but not asked for by this cell: no pin */
    assert_int_equal(talk("203.0.113.11", 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(lookup("a.wild.example", 1), 0);
    assert_string_equal(shared->addr[0], "203.0.113.11");
    assert_true(shared->ttl <= 30);
    assert_int_equal(shared->queries, 1);
    assert_true(echoed("203.0.113.11", 80, "x", 1, 0));
    assert_int_equal(talk("203.0.113.10", 80, "x", 1, 0), ECONNRESET); /* pinned to nothing */
    host_turn(30);
    assert_non_null(event("net.allow", "", "a.wild.example"));
    assert_int_equal(lookup("rebind.test.example", 1), 5);
    host_turn(30);
    assert_string_equal(event("net.deny", "resolved_private", "rebind.test.example")->dst,
                        "10.1.2.3");
    assert_int_equal(lookup("nx.wild.example", 1), 5);
    assert_int_equal(lookup("mixed.test.example", 1), 0);
    assert_int_equal(shared->answers, 1);
    assert_string_equal(shared->addr[0], "203.0.113.10");
    assert_int_equal(talk("10.1.2.3", 80, "x", 1, 0), ECONNREFUSED);
    /* the address is pinned to a name, but not to the one of the hello */
    assert_int_equal(lookup("good.test.example", 1), 0);
    n = hello_for("other.test.example", hello, sizeof(hello));
    talk("203.0.113.10", 443, hello, n, 0);
    alert("not pinned", 112);
    n = hello_for("good.test.example", hello, sizeof(hello));
    assert_true(echoed("203.0.113.10", 443, hello, n, 0));
    assert_int_equal(world.sinks->conns, conns + 2);
    done();
}

/* ------------------------------------------------------------------ change */

static int hold_flow(void *arg)
{
    struct talk *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = {5, 0};
    uint8_t buf[20000];
    size_t got = 0;
    ssize_t n;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    inet_pton(AF_INET, t->addr, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || send(fd, t->bytes, t->n, 0) < 0)
        return 250;
    while (got < t->n) {
        n = recv(fd, buf, sizeof(buf), 0);
        if (n <= 0)
            return 251;
        got += (size_t)n;
    }
    if (write(t->finish, "r", 1) != 1)
        return 252;
    return recv(fd, buf, 1, 0) < 0 ? errno : 253;
}

static pid_t held_flow(const char *addr, int port, const uint8_t *bytes, size_t n)
{
    struct talk t = {addr, port, bytes, n, 0, 0, 0};
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    t.finish = ready[1];
    pid = spawn_in_ns(world.cell_ns[0], hold_flow, &t);
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void test_change(void **state)
{
    struct cella_applied did = {0};
    const char *good, *wild;
    struct timespec a, b;
    pid_t one, two;
    size_t n;

    (void)state;
    up_with(WIDE);
    good = address_of("good.test.example");
    wild = address_of("a.wild.example");
    n = hello_for("good.test.example", hello, sizeof(hello));
    one = held_flow(good, 443, hello, n);
    two = held_flow(wild, 80, (const uint8_t *)"x", 1);
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(apply(DOC(RAW("w", "*.wild.example", "80")), 2, &did), 0); /* rule removed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(one), ECONNRESET);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < 250);
    host_turn(30);
    assert_string_equal(event("net.flow", "policy_changed", "good.test.example")->verdict, "kill");
    assert_int_equal(talk(good, 443, hello, n, 0),
                     ECONNREFUSED); /* its port is nobody's any more */
    assert_int_equal(lookup("good.test.example", 1), 5);
    assert_int_equal(apply(DOC(TLS("w", "*.wild.example", "80")), 3, &did), 0); /* layer changed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(two), ECONNRESET);
    assert_int_equal(talk(wild, 80, "x", 1, 0), ECONNRESET);
    assert_int_equal(apply(DOC(RAW("w", "*.wild.example", "80,81")), 4, &did), 0);
    two = held_flow(wild, 80, (const uint8_t *)"x", 1);
    assert_int_equal(apply(DOC(RAW("w2", "*.wild.example", "80")), 5, &did), 0); /* stays allowed */
    assert_int_equal(did.killed, 0);
    assert_int_equal(apply(DOC(RAW("w2", "*.wild.example", "81")), 6, &did), 0); /* port closed */
    assert_int_equal(did.killed, 1);
    assert_int_equal(wait_child(two), ECONNRESET);
    /* addresses keep their names through all of it */
    assert_int_equal(apply(WIDE, 7, &did), 0);
    assert_string_equal(address_of("good.test.example"), good);
    assert_true(echoed(good, 443, hello, n, 0));
    assert_int_equal(apply("{}", 8, &did), 0);
    assert_int_equal(talk(good, 443, hello, n, 0), ECONNREFUSED);
    done();
}

/* An address that somebody remembers means the same name after the gate was started again. */
static void test_restart(void **state)
{
    char first[64], second[64];

    (void)state;
    up_with(WIDE);
    snprintf(first, sizeof(first), "%s", address_of("good.test.example"));
    snprintf(second, sizeof(second), "%s", address_of("a.wild.example"));
    kill((pid_t)at.gate_pid, SIGKILL);
    host_turn(100);
    assert_int_equal(world.ops->restart(cell, &at, NULL), 0);
    assert_string_equal(address_of("b.wild.example"), "198.18.0.3");
    assert_true(echoed(first, 80, block, 100, 0));
    assert_string_equal(event("net.allow", "", "good.test.example")->rule, "raw");
    assert_string_equal(address_of("a.wild.example"), second);
    assert_string_equal(address_of("good.test.example"), first);
    done();
}

/* ------------------------------------------------------------------ limits */

static void test_limits(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"limits\":{\"rx_bytes\":100000},\"allow\":["
        "{\"id\":\"few\",\"host\":\"good.test.example\",\"ports\":[80],\"layer\":\"raw\","
        "\"limits\":{\"tx_bytes\":1000}},"
        "{\"id\":\"one\",\"host\":\"good.test.example\",\"ports\":[8080],\"layer\":\"raw\","
        "\"limits\":{\"conns\":1}},"
        "{\"id\":\"all\",\"host\":\"a.wild.example\",\"ports\":[80],\"layer\":\"raw\"}]}";
    struct cella_applied did = {0};
    const char *good, *wild;
    long long before;
    pid_t flow;

    (void)state;
    up_with(doc);
    good = address_of("good.test.example");
    wild = address_of("a.wild.example");
    before = world.sinks->bytes;
    assert_true(echoed(good, 80, block, 600, 0));
    talk(good, 80, block, 5000, 0);
    assert_int_equal(shared->err, ECONNRESET);
    assert_int_equal(world.sinks->bytes - before, 1000); /* and not one more */
    assert_non_null(event("net.flow", "limit", "good.test.example"));
    assert_int_equal(talk(good, 80, block, 1, 0), ECONNRESET); /* used up for ever */
    assert_int_equal(apply(doc, 2, &did), 0); /* a document put in force again fills nothing up */
    assert_int_equal(talk(good, 80, block, 1, 0), ECONNRESET);
    assert_string_equal(event("net.deny", "limit", "good.test.example")->rule, "few");
    flow = held_flow(good, 8080, block, 1);
    assert_int_equal(talk(good, 8080, block, 1, 0), ECONNRESET);
    kill(flow, SIGKILL);
    waitpid(flow, NULL, 0);
    usleep(50000);
    assert_true(echoed(good, 8080, block, 1, 0));
    /* the cell's own total, by other rules and names */
    assert_true(echoed(wild, 80, block, 60000, 0));
    talk(wild, 80, block, 60000, 0);
    assert_int_equal(shared->err, ECONNRESET);
    assert_int_equal(talk(good, 8080, block, 1, 0), ECONNRESET);
    done();
}

static void test_rate(void **state)
{
    static const char doc[] = "{\"version\":1,\"allow\":[{\"id\":\"slow\",\"host\":\"good.test."
                              "example\",\"ports\":[80],\"layer\":\"raw\","
                              "\"limits\":{\"tx_bps\":40000}}]}";
    struct timespec a, b;
    double took;
    const char *addr;

    (void)state;
    up_with(doc);
    addr = address_of("good.test.example");
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_true(echoed(addr, 80, block, 64000, 0));
    clock_gettime(CLOCK_MONOTONIC, &b);
    took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    printf("64000 bytes at 40000 a second: %.2f s\n", took);
    assert_true(took > 1.2 && took < 2.2); /* 10000 at once, then the rate */
    done();
}

/* --------------------------------------------------------------------- UDP */

static int udp_child(void *arg)
{
    const struct target *t = arg;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)t->port)};
    struct timeval limit = {1, 0};
    uint8_t buf[2000];
    size_t n = (size_t)t->expect;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    inet_pton(AF_INET, t->addr, &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 || send(fd, block, n, 0) < 0)
        return errno;
    return recv(fd, buf, sizeof(buf), 0) == (ssize_t)n && !memcmp(buf, block, n) ? 0 : errno;
}

static void test_udp(void **state)
{
    static const char doc[] = "{\"version\":1,\"allow\":["
                              "{\"id\":\"net\",\"cidr\":\"203.0.113.10/"
                              "32\",\"ports\":[4000],\"proto\":\"udp\",\"layer\":\"raw\"},"
                              "{\"id\":\"name\",\"host\":\"good.test.example\",\"ports\":[4000],"
                              "\"proto\":\"udp\",\"layer\":\"raw\"},"
                              "{\"id\":\"re\",\"host\":\"rebind.test.example\",\"ports\":[4000],"
                              "\"proto\":\"udp\",\"layer\":\"raw\"}]}";
    struct target t = {"203.0.113.10", 4000, NULL, 5};
    struct cella_applied did = {0};
    const char *name;

    (void)state;
    memset(block, 'u', sizeof(block));
    up_with(doc);
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    t.expect = 1472;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    t.expect = 1001;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    host_turn(30);
    assert_string_equal(find_event("net.allow", "", "203.0.113.10", 4000)->proto, "udp");
    name = address_of("good.test.example");
    t.addr = name;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), 0);
    host_turn(30);
    assert_string_equal(event("net.allow", "", "good.test.example")->rule, "name");
    /* negatives: another address, another port, TCP, a private answer */
    t.addr = "203.0.113.11";
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    t.addr = "203.0.113.10";
    t.port = 4001;
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    assert_int_equal(talk("203.0.113.10", 4000, "x", 1, 0), ECONNREFUSED);
    t.port = 4000;
    t.addr = address_of("rebind.test.example"); /* refused in the gate, answered all the same */
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    host_turn(30);
    assert_string_equal(event("net.deny", "resolved_private", "rebind.test.example")->dst,
                        "10.1.2.3");
    /* associations end with their rule, and are accounted for */
    assert_int_equal(apply("{}", 2, &did), 0);
    assert_true(did.killed >= 4);
    host_turn(30);
    assert_non_null(event("net.flow", "policy_changed", "good.test.example"));
    t.addr = "203.0.113.10";
    assert_int_equal(in_ns(world.cell_ns[0], udp_child, &t), EHOSTUNREACH);
    done();
}

/* ------------------------------------------------------------------ engine */

/* A child of this process that runs cella-gate-http; 0 = none. */
static pid_t engine(void)
{
    char path[64], children[512] = "", comm[32], *p = children, *end;
    pid_t found = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    f = fopen(path, "re");
    assert_non_null(f);
    children[fread(children, 1, sizeof(children) - 1, f)] = 0;
    fclose(f);
    while (!found) {
        long pid = strtol(p, &end, 10);
        if (end == p)
            return 0;
        p = end;
        snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
        f = fopen(path, "re");
        if (f && fgets(comm, sizeof(comm), f) && !strncmp(comm, "cella-gate-http", 15))
            found = (pid_t)pid;
        if (f)
            fclose(f);
    }
    return found;
}

/* The gate judges before the engine sees a flow, and ends the flows of an engine that is gone. */
static void test_engine(void **state)
{
    static const char doc[] =
        "{\"version\":1,\"allow\":[" RULE("http", "h", "good.test.example", "80,443") "]}";
    static const char head[] = "GET / HTTP/1.1\r\nHost: good.test.example\r\n";
    struct talk t = {NULL, 80, (const uint8_t *)head, sizeof(head) - 1, 0, 0, 1000};
    int conns = world.sinks->conns, i;
    const char *addr;
    pid_t child, pid;
    size_t n;

    (void)state;
    up_with(doc);
    addr = t.addr = address_of("good.test.example");
    shared->queries = 0;
    n = hello_for("other.test.example", hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("other name, to the engine", 112);
    n = hello_for(NULL, hello, sizeof(hello));
    talk(addr, 443, hello, n, 0);
    alert("no name, to the engine", 49);
    assert_int_equal(shared->queries, 0);
    assert_int_equal(world.sinks->conns, conns);
    child = spawn_in_ns(world.cell_ns[0], talk_child, &t); /* the engine waits for the rest */
    for (i = 0; i < 100 && world.sinks->conns == conns; i++)
        host_turn(20);
    assert_int_equal(world.sinks->conns, conns + 1);
    host_turn(50);
    pid = engine();
    assert_true(pid > 0);
    kill(pid, SIGKILL);
    wait_child(child);
    assert_int_equal(shared->err, ECONNRESET);
    host_turn(50);
    assert_non_null(event("net.flow", "broker_down", "good.test.example"));
    assert_int_equal(talk(addr, 80, head, sizeof(head) - 1, 0), ECONNRESET);
    assert_non_null(event("net.deny", "broker_down", "good.test.example"));
    assert_int_equal(world.sinks->conns, conns + 1);
    done();
}

/* ------------------------------------------------------------------- memory */

static long pss(pid_t pid)
{
    char path[64], line[256];
    long kb = -1;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Pss: %ld", &kb) == 1)
            break;
    if (f)
        fclose(f);
    return kb;
}

static void test_memory(void **state)
{
    enum { FLOWS = 40 };
    pid_t flows[FLOWS];
    long idle, used, with_flows;
    const char *addr;
    int i;

    (void)state;
    up_with(WIDE);
    idle = pss((pid_t)at.gate_pid);
    addr = address_of("good.test.example");
    assert_true(echoed(addr, 80, "x", 1, 0));
    used = pss((pid_t)at.gate_pid);
    for (i = 0; i < FLOWS; i++)
        flows[i] = held_flow(addr, 80, block, 100);
    with_flows = pss((pid_t)at.gate_pid);
    printf("gate: idle %ld kB, used %ld kB, with %d idle flows %ld kB PSS\n", idle, used, FLOWS,
           with_flows);
    if (!GATE_FILTERLESS) { /* a sanitizer has its own idea of memory */
        assert_true(idle < 1536);
        assert_true((with_flows - used) / FLOWS < 64);
    }
    for (i = 0; i < FLOWS; i++) {
        kill(flows[i], SIGKILL);
        waitpid(flows[i], NULL, 0);
    }
    done();
}

static int up(void **state)
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

static int down(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dns_answers),   cmocka_unit_test(test_dns_unlisted),
        cmocka_unit_test(test_dns_caps),      cmocka_unit_test(test_raw),
        cmocka_unit_test(test_resolved),      cmocka_unit_test(test_dead_resolver),
        cmocka_unit_test(test_tls),           cmocka_unit_test(test_tls_refused),
        cmocka_unit_test(test_silent_client), cmocka_unit_test(test_real),
        cmocka_unit_test(test_change),        cmocka_unit_test(test_restart),
        cmocka_unit_test(test_limits),        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_udp),           cmocka_unit_test(test_engine),
        cmocka_unit_test(test_memory),
    };

    if (getuid()) {
        puts("needs root to make network namespaces");
        return 77;
    }
    cmocka_set_test_filter(getenv("EGRESS_TEST_ONLY"));
    return cmocka_run_group_tests(tests, up, down);
}
