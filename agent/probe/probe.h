/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * probe - what runs inside a cell to see what can be reached from there. It reports, it does not judge.
 *
 * Input, one line of words separated by one space, "-" for an empty one:
 *   cella-probe-1 NONCE PATIENCE_MS
 *   ID KIND ADDRESS PORT SOURCE_PORT NAME OPTIONS        any number
 * Output, one line each, in that order:
 *   {"id":"…","errno":N,"connected":0|1,"got":N,"us":N}
 * `got` counts what only success can give: bytes that came back, records in an answer, a socket that opened.
 * -1: the row could not be tried as asked (a source port in use, a malformed line).
 *
 * Kinds: tcp udp dns-udp dns-tcp tls http icmp ip socket. Options, comma-free words joined by ';':
 *   local       the same over the cell's own loopback: shows that the probe would see success
 *   type=A      DNS question       sport=N      another source port      size=N   payload of a datagram
 *   broadcast   fastopen           raw          proto=N    F,T,P (kind socket)
 *   exact       ask for NAME as it is; without, the nonce is its first label
 *   lookup      ADDRESS is a resolver; NAME's address is asked for first (kind tls: always)
 *   method=M  path=P  host=H  upgrade  smuggle    of kind http
 *   sni=NAME    another server name, "-" for none    plain    no ClientHello
 */
#ifndef CELLA_PROBE_H
#define CELLA_PROBE_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

#define ROWS_MAX 1024
#define LINE_MAX_ 1600
#define PAYLOAD_MAX 8192

enum phase { ROW_NEW, ROW_CONNECT, ROW_READ, ROW_DONE };

struct row {
    char id[256], kind[256], address[256], name[256], options[256];
    uint16_t port, sport;
    enum phase phase;
    int fd, err, connected, lookup; /* lookup: a tls row still asks for its address */
    long got;
    uint64_t began, ended;
};

extern char probe_nonce[64];

/* kinds.c */
void row_open(struct row *r);
void row_ready(struct row *r, short events);
void row_end(struct row *r, int err);
int row_stream(const struct row *r); /* a connection, now */
int option(const struct row *r, const char *name, const char **ret_value);
int address_parse(const char *text, uint16_t port, struct sockaddr_storage *ret, socklen_t *len);
uint64_t now_us(void);

/* local.c */
void row_local(struct row *r);

/* payload.c */
size_t payload(const struct row *r, uint8_t out[PAYLOAD_MAX]);
/* Answer records of a good answer; *ret_address: the first A record, or 0. */
long dns_answers(const uint8_t *p, size_t n, uint32_t *ret_address);
size_t dns_query(const char *name, const char *type, uint8_t *out);
size_t icmp_echo(uint8_t *out);

#endif
