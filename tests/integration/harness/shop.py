# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A server with names on the private internet: its own authority, its DNS, and HTTPS that remembers the keys it was shown."""
import http.server
import socket
import ssl
import struct
import subprocess
import threading

from . import netns

ADDRESS, RESOLVER = "203.0.113.99", "203.0.113.53"
API, OTHER = "api.shop.example", "other.shop.example"


class Shop:
    """The only server of this internet with names: its DNS, and HTTPS that remembers the keys it was shown."""

    def __init__(self, world, directory):
        self.world, self.keys, self.directory = world, [], directory
        self._certificates()
        self._dns = netns.inside(world, lambda: self._socket(socket.SOCK_DGRAM, (RESOLVER, 53)))
        self._tcp = netns.inside(world, lambda: self._socket(socket.SOCK_STREAM, (ADDRESS, 443)))
        self._nft("insert", "rule", "inet", "world", "in", "ip", "daddr", ADDRESS, "accept")
        self._tcp.listen(64)
        self._server = self._https()
        for work in (self._names, self._server.serve_forever):
            threading.Thread(target=work, daemon=True).start()

    def _nft(self, *words):
        return subprocess.run(["ip", "netns", "exec", self.world, "nft", "-a", *words], check=True, capture_output=True,
                              text=True).stdout

    @staticmethod
    def _socket(kind, address):
        sock = socket.socket(socket.AF_INET, kind)
        sock.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        return sock

    def _certificates(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.directory, check=True, capture_output=True)
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=world", "-days", "2",
                "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        (self.directory / "ext").write_text(f"subjectAltName=DNS:{API},DNS:{OTHER}\n")
        openssl("req", *curve, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=shop")
        openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-out", "leaf.pem", "-days", "2",
                "-extfile", "ext", "-CAcreateserial")
        self.ca = self.directory / "ca.pem"
        self.ca.chmod(0o644)

    def _https(self):
        shop = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                shop.keys.append(self.headers.get("x-api-key"))
                body = b"served"
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            do_POST = do_GET

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("", 0), Handler, bind_and_activate=False)
        server.socket.close()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.directory / "leaf.pem", self.directory / "leaf.key")
        server.socket = context.wrap_socket(self._tcp, server_side=True, do_handshake_on_connect=False)
        server.server_address = (ADDRESS, 443)
        return server

    def _names(self):
        while True:
            try:
                query, peer = self._dns.recvfrom(2048)
            except OSError:
                return
            end = query.index(b"\0", 12) + 5
            qtype = struct.unpack("!H", query[end - 4:end - 2])[0]
            answers = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(ADDRESS) if qtype == 1 else b""
            self._dns.sendto(query[:2] + b"\x81\x80\0\1" + struct.pack("!HHH", bool(answers), 0, 0) + query[12:end] +
                             answers, peer)

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._dns.close()
        rules = self._nft("list", "chain", "inet", "world", "in")
        for line in rules.splitlines():
            if ADDRESS in line:
                self._nft("delete", "rule", "inet", "world", "in", "handle", line.rsplit(" ", 1)[1])
