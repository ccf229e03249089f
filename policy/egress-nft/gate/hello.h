/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/* hello - host names in one spelling, and the ClientHello that carries one. Pure functions. */
#ifndef CELLA_GATE_HELLO_H
#define CELLA_GATE_HELLO_H

#include <stddef.h>
#include <stdint.h>

#define NAME_MAX_LEN 253u
#define HELLO_WIRE_MAX 32768u /* records included */

/* ---- name.c ---- */
/* Lower-case LDH name of two labels or more, no trailing dot, no address literal. 0 or -1.
   `out` gets NAME_MAX_LEN + 1 bytes and is untouched on failure. */
int name_canon(const void *text, size_t len, char *out);

/* ---- clienthello.c ---- */
enum hello_result {
    HELLO_MORE,     /* `need` bytes must be there before it makes sense to ask again */
    HELLO_OK,       /* sni and alpn are set */
    HELLO_NOT_TLS,  /* decided at the first byte that says so */
    HELLO_NO_SNI,   /* a good hello without a server name */
    HELLO_BAD,      /* TLS, but not in order */
    HELLO_BAD_NAME, /* a server name that is no host name */
};

enum { HELLO_ALPN_H1 = 1, HELLO_ALPN_H2 = 2, HELLO_ALPN_OTHER = 4 };

struct hello {
    size_t need;
    unsigned alpn; /* HELLO_ALPN_*; 0: the extension is absent */
    char sni[NAME_MAX_LEN + 1];
};

/* `p`: everything that came so far, from the first byte of the connection. */
enum hello_result hello_read(const uint8_t *p, size_t n, struct hello *ret);

#endif
