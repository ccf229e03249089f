# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# Attempts to reach something, run inside a cell (or, as a twin, outside any): python3 -c SOURCE PROBE ARG…
# Prints one Python literal: {"result": "ok" | errno name | "timeout" | …, more}. Standard library only.
import errno
import os
import pathlib
import socket
import struct
import sys
import time

WAIT = 3.0


def _family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _exchange(sock, data=b"cella-probe"):
    sock.sendall(data)
    reply = sock.recv(1000)
    return {"result": "ok" if reply == data else "closed", "reply": len(reply)}


def _target(address, port, kind):
    """As a program would spell it: numbers, octal, names in every form that getaddrinfo() takes."""
    return socket.getaddrinfo(address, int(port), _family(address), kind, 0, socket.AI_NUMERICHOST)[0][4]


def tcp(address, port, source_port="0"):
    with socket.socket(_family(address), socket.SOCK_STREAM) as sock:
        sock.settimeout(WAIT)
        if source_port != "0":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("", int(source_port)))
        sock.connect(_target(address, port, socket.SOCK_STREAM))
        return _exchange(sock)


def fast_open(address, port):
    """Bytes in the first packet, before any verdict could have been given."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(WAIT), 0))
        sock.sendto(b"cella-probe", socket.MSG_FASTOPEN, (address, int(port)))
        return {"result": "ok" if sock.recv(100) else "closed"}


def _foreign(sock):
    """Lets a socket have an address that is not ours: IP_TRANSPARENT, or IP_FREEBIND, which needs no privilege."""
    try:
        sock.setsockopt(socket.SOL_IP, 19, 1)
    except PermissionError:
        sock.setsockopt(socket.SOL_IP, 15, 1)


def spoofed_tcp(address, port, source):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(WAIT)
        _foreign(sock)
        sock.bind((source, 0))
        sock.connect((address, int(port)))
        return _exchange(sock)


def udp(address, port, source="", size="11"):
    with socket.socket(_family(address), socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.7)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        if source:
            _foreign(sock)
            sock.bind((source, 0))
        sock.connect(_target(address, port, socket.SOCK_DGRAM))
        sock.send(b"x" * int(size))
        return {"result": "ok", "reply": len(sock.recv(2000))}


def _query(name, qtype):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".") if p)
    return struct.pack("!HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", int(qtype), 1)


def _rcode(reply):
    if len(reply) < 12 or reply[:2] != b"\x12\x34" or not reply[2] & 0x80:
        return {"result": "garbage", "reply": reply.hex()}
    names = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}
    return {"result": names.get(reply[3] & 15, str(reply[3] & 15)), "answers": struct.unpack("!H", reply[6:8])[0]}


def dns_udp(server, name, qtype="1"):
    with socket.socket(_family(server), socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT)
        sock.connect((server, 53))
        sock.send(_query(name, qtype))
        return _rcode(sock.recv(4096))


def dns_tcp(server, name, qtype="1"):
    with socket.create_connection((server, 53), WAIT) as sock:
        query = _query(name, qtype)
        sock.sendall(struct.pack("!H", len(query)) + query)
        reply = b""
        while len(reply) < 14:
            more = sock.recv(4096)
            if not more:
                return {"result": "closed", "reply": len(reply)}
            reply += more
        return _rcode(reply[2:])


def resolve(name):
    """The C library's own way, whatever its configuration says."""
    os.environ["RES_OPTIONS"] = "timeout:1 attempts:1"
    try:
        return {"result": "ok", "addresses": [i[4][0] for i in socket.getaddrinfo(name, 80)]}
    except socket.gaierror as error:
        return {"result": "gaierror", "text": str(error)}


def _lookup(server, name):
    """The address that the cell's resolver gives for a name; None when it gives none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT)
        sock.connect((server, 53))
        sock.send(_query(name, 1))
        reply = sock.recv(4096)
    found = struct.unpack("!H", reply[6:8])[0]
    return socket.inet_ntoa(reply[-4:]) if found and not reply[3] & 15 else None


def _hello(name):
    """A ClientHello as a real client sends it."""
    import ssl
    context, out = ssl.create_default_context(), ssl.MemoryBIO()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name or None).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return out.read()


def _raw_hello(name):
    """One whose server name no library would send."""
    plain = _hello("a" * len(name))
    return plain.replace(b"a" * len(name), name.encode("latin-1"))


def _with_ech(hello):
    """The same with the extension of Encrypted ClientHello at its end: its outer name is what a gate sees."""
    extension = b"\xfe\x0d" + struct.pack("!H", 64) + bytes(range(64))
    at = 9 + 2 + 32
    at += 1 + hello[at]
    at += 2 + struct.unpack("!H", hello[at:at + 2])[0]
    at += 1 + hello[at]
    size = struct.unpack("!H", hello[at:at + 2])[0] + len(extension)
    body = hello[9:at] + struct.pack("!H", size) + hello[at + 2:] + extension
    return hello[:3] + struct.pack("!H", len(body) + 4) + hello[5:6] + struct.pack("!I", len(body))[1:] + body


def named(server, name, port, sni="=", how="whole"):
    """Looks the name up and speaks to it: `=` the same server name, `-` none, `how` the way the first bytes travel."""
    address = _lookup(server, name)
    if not address:
        return {"result": "no address"}
    hello = _hello(name if sni == "=" else "" if sni == "-" else sni) if how != "odd" else _raw_hello(sni)
    with socket.create_connection((address, int(port)), WAIT) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if how == "plain":
            hello = b"SSH-2.0-cella_probe\r\n"
        if how == "ech":
            hello = _with_ech(hello)
        if how == "records":
            hello = b"".join(b"\x16\x03\x01" + struct.pack("!H", len(part)) + part for part in (hello[5:40], hello[40:]))
        parts = [hello[i:i + 1] for i in range(len(hello))] if how == "bytes" else [hello]
        for part in parts:
            sock.sendall(part)
        reply = b""
        while len(reply) < len(hello):
            more = sock.recv(4096)
            if not more:
                break
            reply += more
            if reply[:1] == b"\x15":
                return {"result": "alert", "code": reply[6] if len(reply) > 6 else None}
        return {"result": "ok" if reply == hello else "closed"}


def outlives(server, name, port):
    """One connection to a name for three seconds, then another to the same address."""
    address = _lookup(server, name)
    with socket.create_connection((address, int(port)), WAIT) as first:
        for _ in range(6):
            first.sendall(b"x")
            if first.recv(1) != b"x":
                return {"result": "closed"}
            time.sleep(0.5)
    return tcp(address, port)


def named_udp(server, name, port):
    address = _lookup(server, name)
    return udp(address, port) if address else {"result": "no address"}


def http(server, name, port, host, method, path, extra=""):
    """One request in the clear; the status of its answer."""
    address = _lookup(server, name)
    if not address:
        return {"result": "no address"}
    with socket.create_connection((address, int(port)), WAIT) as sock:
        text = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{extra}\r\n"
        sock.sendall(text.encode("latin-1").replace(b"\\0", b"\0"))
        reply = sock.recv(4096)
        return {"result": reply[9:12].decode() if reply.startswith(b"HTTP/1.1 ") else "closed"}


def ping(address):
    """The unprivileged kind of ICMP socket."""
    family = _family(address)
    proto = 58 if family == socket.AF_INET6 else 1
    with socket.socket(family, socket.SOCK_DGRAM, proto) as sock:
        sock.settimeout(0.7)
        sock.connect((address, 0))
        sock.send(bytes([128 if proto == 58 else 8, 0, 0, 0, 0, 0, 0, 1]) + b"cella-probe")
        return {"result": "ok", "reply": len(sock.recv(100))}


def all_nodes(port):
    """Every neighbour on the first link there is."""
    device = sorted(name for _, name in socket.if_nameindex() if name != "lo")[0]
    for _ in range(40):  # an address that is still being checked cannot be used yet
        lines = pathlib.Path("/proc/net/if_inet6").read_text().splitlines() if os.path.exists("/proc/net/if_inet6") else []
        if not any(f[5] == device and int(f[4], 16) & 0x40 for f in map(str.split, lines)):
            break
        time.sleep(0.1)
    return udp(f"ff02::1%{device}", port)


def open_socket(family, kind, proto):
    with socket.socket(int(family), int(kind), int(proto)) as sock:
        if int(kind) == socket.SOCK_RAW and int(family) == socket.AF_INET:
            sock.sendto(b"cella-probe", ("203.0.113.10", 0))
        return {"result": "ok"}


def datagram(proto, address, port):
    """Transports that a filter of TCP and UDP forgets: SCTP 132, DCCP 33, UDP-Lite 136."""
    kinds = {"132": socket.SOCK_STREAM, "33": 6, "136": socket.SOCK_DGRAM}
    with socket.socket(socket.AF_INET, kinds[proto], int(proto)) as sock:
        sock.settimeout(1)
        sock.connect((address, int(port)))
        sock.send(b"cella-probe")
        return {"result": "ok"}


def option(level, name, value):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(int(level), int(name), bytes.fromhex(value))
        return {"result": "ok"}


def flush_then_tcp(address, port):
    """All that root in a cell might try against rules of its own namespace, then a plain attempt."""
    import subprocess
    for command in (["nft", "flush", "ruleset"], ["nft", "add", "table", "inet", "mine"],
                    ["ip", "route", "replace", "default", "dev", "lo"], ["ip", "link", "set", "lo", "down"],
                    ["ip", "addr", "add", "192.0.2.77/24", "dev", "eth0"], ["ip", "neigh", "flush", "all"]):
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=5)
        except OSError:
            pass
    return tcp(address, port)


def abstract(name):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + name)
        return {"result": "ok"}


def devices():
    return {"result": "ok", "names": sorted(name for _, name in socket.if_nameindex())}


def ports(address, *numbers):
    """Several ports of one address: what each gave."""
    found = {}
    for number in numbers:
        try:
            found[number] = tcp(address, number)["result"]
        except OSError as error:
            found[number] = _name(error)
    return {"result": "/".join(sorted(set(found.values()))), "ports": found}


def _name(error):
    if isinstance(error, TimeoutError) and error.errno is None:
        return "timeout"
    return errno.errorcode.get(error.errno, str(error))


def main():
    if os.environ.get("http_proxy"):
        print("a proxy is set in the environment", file=sys.stderr)
    try:
        answer = globals()[sys.argv[1]](*sys.argv[2:])
    except OSError as error:
        answer = {"result": _name(error)}
    print(repr(answer))


main()
