/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - what runs inside a cell to see what can be reached from there. It reports, it does not judge.
 *
 * Input, one line of words separated by one space, "-" for an empty one:
 *   cella-probe-2 NONCE PATIENCE_MS TOTAL_MS             a row may wait so long (connections longer); all of them
 *   ID KIND ADDRESS PORT SOURCE_PORT NAME OPTIONS        any number
 *   .                                                    no more rows
 *   tight                                                after "held": the rules are tightened now
 * Output, one line each, in that order:
 *   {"held":N}                                           N rows have a connection, and wait for "tight"
 *   {"id":"…","errno":N,"connected":0|1,"got":N,"us":N}
 * `got` counts what only success can give: bytes that came back, records in an answer, a socket that opened.
 * -1: the row could not be tried as asked (a source port in use, a malformed line, a first act that failed).
 *
 * Kinds: tcp udp dns-udp dns-tcp tls http icmp ip redirect socket unix address6. Options, words joined by ';':
 *   local       the same over the cell's own loopback: shows that the probe would see success
 *   type=A      DNS question       sport=N      another source port      size=N   payload of a datagram
 *   broadcast   fastopen           raw          proto=N    F,T,P (kind socket)
 *   exact       ask for NAME as it is; without, the nonce is its first label
 *   lookup      ADDRESS is a resolver; NAME's address is asked for first (kind tls, http: always)
 *   method=M  path=P  host=H  upgrade  smuggle    of kind http
 *   sni=NAME    another server name, "-" for none    plain    no ClientHello
 * Rows of two acts (acts.c); only the second carries the nonce:
 *   held        tcp, udp: bytes before "tight", then bytes after it on the same connection
 *   reuse       http, dns-tcp: a question that is answered, then another on the same connection:
 *               method2=M  path2=P  host2=H, each as the first when absent; for DNS the first is NAME, exact
 *   redirect=H  with reuse: the first answer must send us to host H, whom the second request is for
 *   kind redirect: ADDRESS, asked from source port via=N, sends us to to=HOST[:PORT]; there we go from SOURCE_PORT,
 *               asking the resolver dns=ADDRESS for a name
 */
#ifndef CELLA_PROBE_H
#define CELLA_PROBE_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define ROWS_MAX 4224
#define LINE_MAX_ 1600
#define PAYLOAD_MAX 8192

enum phase { ROW_NEW, ROW_CONNECT, ROW_READ, ROW_HELD, ROW_DONE };

struct row {
    char id[64], kind[16], address[64], name[256], options[256];
    char target[256]; /* where a redirect leads */
    uint16_t port, sport;
    enum phase phase;
    int fd, err, connected, lookup; /* lookup: the row still asks for its address */
    int act;                        /* of two: 0, then 1 */
    long got;
    uint64_t began, ended;
};

extern char probe_nonce[64];

/* input.c */
/* 0, or -1: not a row. */
int row_parse(char *line, struct row *r);
/* 0, or -1: not the first line. */
int head_parse(const char *line, unsigned *ret_patience, unsigned *ret_total);

/* kinds.c */
void row_open(struct row *r);
/* Opens what the row needs to speak to the address. */
void row_start(struct row *r, const struct sockaddr_storage *a, socklen_t len);
void row_say(struct row *r);
void row_ready(struct row *r, short events);
void row_end(struct row *r, int err);
int row_stream(const struct row *r); /* a connection, now */
int option(const struct row *r, const char *name, const char **ret_value);
int address_parse(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *len);
uint64_t now_us(void);

/* acts.c */
int row_two_acts(const struct row *r);
/* The answer to the first act: begins the second, or ends the row. */
void row_first_answer(struct row *r, const uint8_t *in, size_t n);
/* Host and port of a Location in the head of an answer. 0, or -1: none that we follow. */
int location_parse(const uint8_t *in, size_t n, char ret_host[256], uint16_t *ret_port);

/* local.c */
void row_local(struct row *r);
void row_unix(struct row *r);
void row_address6(struct row *r);

/* payload.c */
size_t payload(const struct row *r, uint8_t out[PAYLOAD_MAX]);
/* Answer records of a good answer; *ret_address: the first A record, or 0. */
long dns_answers(const uint8_t *p, size_t n, uint32_t *ret_address);
size_t dns_query(const char *name, const char *type, uint8_t *out);
size_t icmp_echo(int six, uint8_t *out);

#endif
