#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# SPDX-FileCopyrightText: The cella authors
"""Both ends of test_attach.c's conversation through gate and engine.

    through.py serve DIR          in the uplink: DNS for api.example.com, an HTTPS and a plain server; DIR/ready when up
    through.py cell DIR ARGS...   in the cell: key HASH | denied | hold | cut | tcp
"""
import hashlib
import re
import socket
import ssl
import subprocess
import sys
import threading
import time

NAME, SERVER, RESOLVER, GATEWAY = "api.example.com", "203.0.113.11", ("198.51.100.7", 5355), "10.200.0.1"


def certs(d):
    def sh(*argv):
        subprocess.run(argv, check=True, capture_output=True)
    ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    sh("openssl", "req", "-x509", *ec, "-keyout", f"{d}/root.key", "-out", f"{d}/root.pem", "-subj", "/CN=root", "-days", "2")
    sh("openssl", "req", *ec, "-keyout", f"{d}/server.key", "-out", f"{d}/server.csr", "-subj", "/CN=x")
    with open(f"{d}/ext", "w") as f:
        f.write("subjectAltName=DNS:" + NAME)
    sh("openssl", "x509", "-req", "-in", f"{d}/server.csr", "-CA", f"{d}/root.pem", "-CAkey", f"{d}/root.key",
       "-CAcreateserial", "-out", f"{d}/server.pem", "-days", "1", "-extfile", f"{d}/ext")


def dns(sock):
    while True:
        q, peer = sock.recvfrom(1500)
        end = q.index(b"\0", 12) + 5
        name = re.sub(rb"[\x00-\x1f]", b".", q[13:end - 5]).decode().lower()
        found = name == NAME and q[end - 3] == 1
        head = q[:2] + b"\x84\x80" + q[4:6] + (b"\0\1" if found else b"\0\0") + b"\0\0\0\0"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(SERVER) if found else b""
        sock.sendto(head + q[12:end] + answer, peer)


def answer(c, ctx):
    if ctx:
        c = ctx.wrap_socket(c, server_side=True)
    buf = b""
    while True:
        while b"\r\n\r\n" not in buf:
            d = c.recv(65536)
            if not d:
                return
            buf += d
        head, buf = buf.split(b"\r\n\r\n", 1)
        key = re.search(rb"(?i)\r\nx-api-key: (.*?)(\r\n|$)", head)
        body = hashlib.sha256(key[1] if key else b"").hexdigest().encode()
        if b" /v1/cut" in head:
            c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort")
            c.close()
            return
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def serve(d):
    certs(d)
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(f"{d}/server.pem", f"{d}/server.key")
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(RESOLVER)
    threading.Thread(target=dns, args=(u,), daemon=True).start()
    for port, c in ((8443, ctx), (8088, None)):
        s = socket.create_server((SERVER, port))

        def loop(s=s, c=c):
            while True:
                threading.Thread(target=answer, args=(s.accept()[0], c), daemon=True).start()
        threading.Thread(target=loop, daemon=True).start()
    open(f"{d}/ready", "w").close()
    time.sleep(600)


def lookup():
    q = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(l)]) + l.encode() for l in NAME.split(".")) + b"\0\0\1\0\1"
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(5)
    u.sendto(q, (GATEWAY, 53))
    a = u.recv(1500)
    assert a[3] & 15 == 0 and a[7] == 1, a
    return socket.inet_ntoa(a[-4:])


def connect(d, port=8443):
    s = socket.create_connection((lookup(), port), timeout=10)
    if port != 8443:
        return s
    return ssl.create_default_context(cafile=f"{d}/cell-ca.pem").wrap_socket(s, server_hostname=NAME,
                                                                                  suppress_ragged_eofs=False)


def ask(s, path, port=8443):
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: {NAME}:{port}\r\nX-Api-Key: sk-cella__K__\r\n\r\n".encode())
    buf = b""
    while b"\r\n\r\n" not in buf:
        d = s.recv(65536)
        assert d, buf
        buf += d
    head, body = buf.split(b"\r\n\r\n", 1)
    n = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
    while len(body) < n:
        d = s.recv(65536)
        assert d, (head, body)
        body += d
    return head.decode(), body.decode()


def cell(d, what, *args):
    if what == "key":
        text = subprocess.run(["openssl", "x509", "-noout", "-text", "-in", f"{d}/cell-ca.pem"], check=True,
                              capture_output=True, text=True).stdout
        assert re.search(r"Name Constraints: critical\s+Permitted:\s+DNS:" + NAME + r"\s+Excluded:\s+IP:0.0.0.0/0.0.0.0",
                         text), text
        head, body = ask(connect(d), "/v1/x")
        assert " 200 " in head and body == args[0], (head, body)
    elif what == "denied":
        head, body = ask(connect(d), "/other")
        assert " 403 " in head and "x-cella-denied: method_path;gen=" in head, head
    elif what == "hold":
        s = connect(d)
        ask(s, "/v1/x")
        s.settimeout(60)
        open(f"{d}/holding", "w").close()
        try:  # a reset; close_notify would be an orderly end
            raise AssertionError(s.recv(1))
        except OSError:
            pass
    elif what == "cut":
        s = connect(d, 8088)
        try:
            ask(s, "/v1/cut", 8088)
            raise AssertionError("complete")
        except ConnectionResetError:
            pass


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    cell(*sys.argv[2:])
