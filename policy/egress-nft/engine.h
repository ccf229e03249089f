/* SPDX-License-Identifier: GPL-2.0-or-later */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * engine - what the gate and the HTTP engine (cella-gate-http) say to each other.
 *
 * One SOCK_SEQPACKET pair per cell, made by the plugin when a policy has rules of layer "http": one
 * end goes to the engine at its start, the other to the gate with CTL_ENGINE. One struct engine_msg
 * per packet. Secrets, CA and policy reach the engine from the warden only, over a control socket
 * of its own (struct ctl_msg: CTL_UP, CTL_DENY, CTL_PUBLISH, CTL_PUBLISHED, CTL_FLUSH, CTL_FLUSHED
 * as the gate has them), because the gate parses hostile bytes and may be somebody else's by now.
 *
 * The gate has done before it hands over: name from its own mapping, SNI equal to it (tls = 1) or
 * first bytes that cannot be TLS (tls = 0), an http rule allows (name, port), address resolved and
 * checked, dialled and connected, CTL_ALLOW told to the warden, connection limits taken. The cell's
 * bytes were only peeked at: the engine reads the connection from its first byte. The engine checks
 * again what it can: name listed for layer http, peer of the upstream descriptor not in the
 * hard-deny set, the SNI its TLS library sees.
 *
 * Both keep descriptors of both ends. The gate resets both (connect to AF_UNSPEC) when a new policy
 * has no http rule for (name, port), when the cell goes, and when the engine's socket closes; it
 * learns the end of a flow from ENGINE_END only. The engine ends flows and streams for everything
 * finer (method, path, secret).
 *
 * Limits are the gate's: in a limited direction the engine moves what it was allowed and asks for more when it has
 * something to move. What it moves beyond (a TLS record is read whole) is charged when told, and missing from the next
 * grant.
 */
#ifndef CELLA_EGRESS_ENGINE_H
#define CELLA_EGRESS_ENGINE_H

#include <stdint.h>

enum engine_type {
    ENGINE_FLOW = 1, /* gate: fds {cell, upstream}; both connected, non-blocking */
    ENGINE_PROGRESS, /* engine: id, tx, rx totals so far; at most one a second per flow */
    ENGINE_END,      /* engine: id, tx, rx totals, reason; it has closed both descriptors */
    ENGINE_WANT, /* engine: id, tx, rx totals, limited = directions in which bytes wait that it may not move */
    ENGINE_MAY, /* gate: id; tx, rx: totals it may have moved; UINT64_MAX = no limit */
    ENGINE_TYPES
};

#define ENGINE_NAME_MAX 253
enum { ENGINE_TX = 1, ENGINE_RX = 2 }; /* from the cell, to the cell */

/* Descriptors of the engine across exec, besides FD_CTL and FD_POLICY of ctl.h: its end of the flows
   socket, a PEM file of further authorities for upstreams (absent: none), and a memory file, empty for the
   cell's first engine, in which the CA's key and certificates outlive an engine. Nobody else reads it. Arguments: the
   names the cell's CA may speak for, if it is made now; none = any. CTL_UP carries a memory file with the CA's
   certificates. */
enum { ENGINE_FD_FLOWS = 5, ENGINE_FD_ROOTS = 6, ENGINE_FD_KEY = 7, ENGINE_FD_END = 8 };

/* Plugin to engine, on the control socket, before the table that needs it. */
#define ENGINE_SECRET 0x100u /* beyond every ctl_type */
#define ENGINE_SECRET_MAX 8192u
struct engine_secret {
    uint32_t type; /* ENGINE_SECRET */
    uint32_t len;  /* bytes of value, which end the packet; 0 = forget it */
    char name[64];
    char value[ENGINE_SECRET_MAX];
};

/* Plugin to engine: `text` holds names, one a line, that another certificate shall speak for. The answer is of the same
   type with the PEM of all; without text: there is no room for another. */
#define ENGINE_NAMES 0x101u
#define ENGINE_TEXT_MAX 65536u
struct engine_names {
    uint32_t type; /* ENGINE_NAMES */
    uint32_t len;  /* bytes of text, which end the packet */
    char text[ENGINE_TEXT_MAX];
};

struct engine_msg {
    uint32_t type; /* enum engine_type */
    uint32_t id;   /* the gate's number of the flow; not reused */
    uint64_t gen;  /* generation the flow was judged under */
    uint32_t dst;  /* dialled address, host byte order */
    uint16_t port;
    uint16_t tls;    /* 1: a ClientHello for `name` comes first; 0: plain HTTP/1.1 */
    uint32_t reason; /* enum ctl_reason */
    uint32_t reset;  /* END: 1: both ends must see a reset, the transfer was cut */
    /* FLOW: 1: `cella reach` looks; upstream is the gate's sink, and only without TLS, so no secret can
       go there: none is sent in the clear */
    uint32_t measured;
    /* FLOW: directions in which nothing may move before ENGINE_MAY. The handshake's bytes count, and go. */
    uint32_t limited;
    uint64_t tx, rx; /* bytes from and to the cell, as on its connection */
    char rule[64];   /* the first http rule that allows (name, port); the last one used on END */
    char name[ENGINE_NAME_MAX + 1];
};

#endif
