#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
# SPDX-FileCopyrightText: The cella authors
"""The HTTP engine between real servers and clients, in a network namespace of this test's own.

usage: test_http.py ENGINE STAGE [unittest arguments]. Exit 77: cannot run here, with the reason.
"""
import base64
import json
import os
import queue
import re
import select
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.append("/usr/lib/python3/dist-packages")  # python3-h2 of the distribution, whichever Python runs this
try:
    import h2.config
    import h2.connection
    import h2.events
    import h2.settings
except ImportError:
    h2 = None

SERVER, CELL = "203.0.113.1", "203.0.113.2"
SECRET = "sk-real-0123456789-very-secret"
REASON = {"no_rule": 1, "deny_rule": 2, "policy_changed": 9, "upstream_failed": 11, "sni_missing": 12,
          "sni_mismatch": 13, "host_mismatch": 18, "method_path": 19, "credential_mismatch": 20,
          "placeholder_missing": 21, "bad_request": 22}
RULES = """
id=api host=api.example ports=8443 methods=GET,HEAD,POST,PUT,OPTIONS
id=ws host=ws.example ports=8443 ws=1
id=key host=key.example ports=8443 inject=k:header:x-api-key:sk-cella__K__:1
id=bearer host=bearer.example ports=8443 inject=k:header:authorization:sk-cella__K__:0
id=basic host=basic.example ports=8443 inject=k:basic::sk-cella__K__:0
id=set host=set.example ports=8443 inject=k:header:authorization::0:Bearer_
id=miss host=miss.example ports=8443 inject=nosuch:header:authorization::0
id=plain host=plain.example ports=8080
id=plainkey host=plainkey.example ports=8080 inject=k:header:x-api-key::0
id=paths host=paths.example ports=8443 methods=GET paths=/ok/**
id=bad host=bad.example ports=8444
id=h2 host=h2.example ports=9443
id=h2key host=h2key.example ports=9443 inject=k:header:x-api-key:sk-cella__K__:1
id=h2paths host=h2paths.example ports=9443 methods=GET paths=/ok/**
"""
DOORS = {"api.example": (1443, 8443), "ws.example": (1444, 8443), "key.example": (1445, 8443),
         "bearer.example": (1446, 8443), "basic.example": (1447, 8443), "set.example": (1448, 8443),
         "plain.example": (1080, 8080), "plainkey.example": (1081, 8080), "paths.example": (1449, 8443),
         "bad.example": (1450, 8444), "miss.example": (1451, 8443), "h2.example": (2443, 9443),
         "h2key.example": (2444, 9443), "h2paths.example": (2445, 9443)}
TMP = None
STAGE = None


def sh(*argv, **kw):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **kw)


def make_certs(tmp):
    """A private authority and server certificates; none of it is known outside this directory."""
    sh("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
       f"{tmp}/root.key", "-out", f"{tmp}/root.pem", "-subj", "/CN=test root", "-days", "2")
    for name, alt in (("server", ",".join("DNS:" + n for n in DOORS if n != "bad.example")),
                      ("bad", "DNS:someone-else.example")):
        sh("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
           f"{tmp}/{name}.key", "-out", f"{tmp}/{name}.csr", "-subj", "/CN=x")
        with open(f"{tmp}/{name}.ext", "w") as f:
            f.write("subjectAltName=" + alt)
        sh("openssl", "x509", "-req", "-in", f"{tmp}/{name}.csr", "-CA", f"{tmp}/root.pem", "-CAkey",
           f"{tmp}/root.key", "-CAcreateserial", "-out", f"{tmp}/{name}.pem", "-days", "1", "-extfile",
           f"{tmp}/{name}.ext")


class Server(threading.Thread):
    """HTTP/1.1 by hand, so that every odd answer can be given and every byte that arrives is kept."""

    def __init__(self, port, cert=None):
        super().__init__(daemon=True)
        self.raw = bytearray()
        self.conns = 0
        self.eofs = []
        self.sock = socket.create_server((SERVER, port), backlog=64)
        self.ctx = None
        if cert:
            self.ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.ctx.load_cert_chain(f"{TMP}/{cert}.pem", f"{TMP}/{cert}.key")
            self.ctx.set_alpn_protocols(["http/1.1"])
        self.heard = threading.Event()  # a client has the first of what is sent in pieces
        self.start()

    def run(self):
        while True:
            c, _ = self.sock.accept()
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            if self.ctx:
                c = self.ctx.wrap_socket(c, server_side=True)
            self.conns += 1
            buf = b""
            while True:
                while b"\r\n\r\n" not in buf:
                    d = c.recv(65536)
                    if not d:
                        c.close()
                        return
                    self.raw += d
                    buf += d
                head, buf = buf.split(b"\r\n\r\n", 1)
                buf = self.answer(c, head.decode("latin1"), buf)
        except (OSError, ssl.SSLError, StopIteration):
            pass
        finally:
            c.close()

    def more(self, c):
        d = c.recv(262144)
        if not d:
            raise StopIteration
        return d

    def body(self, c, head, buf):
        """Returns (length, rest of buffer, decoded body if small, trailers)."""
        m = re.search(r"(?i)\r\ncontent-length: (\d+)", head)
        if m:
            left, total, keep = int(m[1]), int(m[1]), b""
            while left:
                if not buf:
                    buf = self.more(c)
                n = min(left, len(buf))
                if len(keep) < 65536:
                    keep += buf[:n]
                buf, left = buf[n:], left - n
            return total, buf, keep, ""
        if not re.search(r"(?i)\r\ntransfer-encoding: chunked", head):
            return 0, buf, b"", ""
        total, keep = 0, b""
        while True:
            while b"\r\n" not in buf:
                buf += self.more(c)
            size, buf = buf.split(b"\r\n", 1)
            n = int(size, 16)
            if n == 0:
                t = b""
                while not (buf.startswith(b"\r\n") or b"\r\n\r\n" in buf):
                    buf += self.more(c)
                if buf.startswith(b"\r\n"):
                    return total, buf[2:], keep, ""
                t, buf = buf.split(b"\r\n\r\n", 1)
                return total, buf, keep, t.decode()
            while len(buf) < n + 2:
                buf += self.more(c)
            if len(keep) < 65536:
                keep += buf[:n]
            total, buf = total + n, buf[n + 2:]

    def answer(self, c, head, buf):
        path = head.split(" ")[1].split("?")[0]
        fn = getattr(self, "do_" + path.strip("/").replace("/", "_").replace("-", "_"), None)
        if fn:
            return fn(c, head, buf)
        n, buf, keep, trailers = self.body(c, head, buf)
        text = json.dumps({"head": head, "length": n, "body": keep.decode("latin1")[:1000], "trailers": trailers})
        no_body = head.startswith("HEAD ")
        c.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{'' if no_body else text}".encode())
        return buf

    def do_sse(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        c.sendall(b"9\r\ndata: 1\n\n\r\n")
        self.heard.wait(10)
        time.sleep(0.1)
        c.sendall(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        return buf

    def do_expect(self, c, head, buf):
        assert not buf
        c.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        n, buf, _, _ = self.body(c, head, buf)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return buf

    def do_trailers(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n3;ext=\"a\"\r\nabc\r\n"
                  b"0\r\nx-sum: 7\r\nset-cookie: no\r\n\r\n")
        return buf

    def do_nothing(self, c, head, buf):
        c.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        return buf

    def do_toeof(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")
        c.unwrap()
        raise StopIteration

    def do_late(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\n\r\nand then nothing")
        time.sleep(0.3)
        c.unwrap()
        raise StopIteration

    def do_truncated(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789")
        raise StopIteration

    def do_ambiguous(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        return buf

    def do_unasked(self, c, head, buf):
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        return buf

    def do_forged(self, c, head, buf):
        c.sendall(b"HTTP/1.1 200 OK\r\nX-Cella-Denied: no_rule;gen=1\r\nContent-Length: 0\r\n\r\n")
        return buf

    def do_leak(self, c, head, buf):
        lines = [l for l in head.split("\r\n")[1:] if re.match(r"(?i)(x-api-key|authorization):", l)]
        echo = "".join(f"X-Echo-{i}: [{l.split(': ', 1)[1]}]\r\n" for i, l in enumerate(lines))
        phrase = "".join(f" ({l.split(': ', 1)[1]})" for l in lines)
        c.sendall(f"HTTP/1.1 200 OK{phrase}\r\n{echo}Content-Length: 0\r\n\r\n".encode())
        return buf

    def do_early(self, c, head, buf):
        c.sendall(b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig")
        while True:  # until the engine closes: a reset from here could be faster than what was said
            self.more(c)

    def do_half(self, c, head, buf):
        end = c.recv(10)
        self.eofs.append(end)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhalf")
        raise StopIteration

    def do_ws(self, c, head, buf):
        if "upgrade: websocket" not in head.lower():
            c.sendall(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")
            return buf
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while True:
            c.sendall(self.more(c))

    def do_slow(self, c, head, buf):
        time.sleep(3)
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        return buf


class Stage:
    def __init__(self, engine, stage, rules=RULES, ca_names=""):
        self.events = queue.Queue()
        self.seen = []
        self.rules(rules)
        env = dict(os.environ)
        if ca_names:
            env["CA_NAMES"] = ca_names
        doors = [f"{n}:{a}:{b}" + (":plain" if b == 8080 else "") for n, (a, b) in DOORS.items()]
        self.p = subprocess.Popen([stage, engine, f"{TMP}/rules", f"{TMP}/root.pem"] + doors, text=True, bufsize=1,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        threading.Thread(target=self.read, daemon=True).start()
        self.pid = self.wait("pid")["pid"]
        self.pem = self.wait("up")["pem"]
        with open(f"{TMP}/cell-ca.pem", "w") as f:
            f.write(self.pem)
        self.say("secret k " + SECRET)

    def rules(self, text):
        with open(f"{TMP}/rules", "w") as f:
            f.write(text)

    def read(self):
        for line in self.p.stdout:
            m = json.loads(line)
            self.seen.append(line)
            self.events.put(m)

    def say(self, text):
        self.p.stdin.write(text + "\n")
        self.p.stdin.flush()

    def wait(self, kind, timeout=10, **want):
        end = time.monotonic() + timeout
        while True:
            m = self.events.get(timeout=max(0.01, end - time.monotonic()))
            if m["type"] == kind and all(m[k] == v for k, v in want.items()):
                return m

    def clear(self):
        while not self.events.empty():
            self.events.get()

    def publish(self, rules):
        self.rules(rules)
        self.say(f"publish {TMP}/rules")
        return self.wait("published")

    def memory_kb(self, what="VmRSS"):
        with open(f"/proc/{self.pid}/status") as f:
            return int(re.search(what + r":\s+(\d+)", f.read())[1])

    def cpu_ticks(self):
        with open(f"/proc/{self.pid}/stat") as f:
            return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))

    def pss_kb(self):
        with open(f"/proc/{self.pid}/smaps_rollup") as f:
            return int(re.search(r"Pss:\s+(\d+)", f.read())[1])


class Peer:
    """One end of an HTTP/2 connection over a TLS socket; single-threaded."""

    def __init__(self, sock, client):
        self.sock = sock
        self.c = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8",
                                                                      validate_outbound_headers=False,
                                                                      normalize_outbound_headers=False))
        self.waiting = {}
        self.c.initiate_connection()
        self.flush()

    def flush(self):
        self.sock.sendall(self.c.data_to_send())

    def send(self, stream, data, end=False, trailers=None):
        buf = self.waiting.setdefault(stream, [b"", False, None])
        buf[0] += data
        buf[1] |= end
        buf[2] = trailers or buf[2]
        self.pump()

    def pump(self):
        for stream, buf in list(self.waiting.items()):
            try:
                while buf[0]:
                    n = min(self.c.local_flow_control_window(stream), self.c.max_outbound_frame_size, len(buf[0]))
                    if not n:
                        break
                    self.c.send_data(stream, buf[0][:n])
                    buf[0] = buf[0][n:]
                if not buf[0] and (buf[1] or buf[2]):
                    if buf[2]:
                        self.c.send_headers(stream, buf[2], end_stream=True)
                    else:
                        self.c.end_stream(stream)
                    del self.waiting[stream]
            except h2.exceptions.ProtocolError:
                del self.waiting[stream]
        self.flush()

    def events(self):
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        got = self.c.receive_data(data)
        for e in got:
            if isinstance(e, h2.events.DataReceived) and e.flow_controlled_length:
                try:
                    self.c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
                except h2.exceptions.ProtocolError:
                    pass
        self.pump()
        return got


class H2Server(Server):
    def serve(self, c):
        try:
            self.ctx.set_alpn_protocols(["h2", "http/1.1"])
            c = self.ctx.wrap_socket(c, server_side=True)
            self.conns += 1
            p = Peer(c, False)
            heads, got = {}, {}
            while True:
                for e in p.events():
                    if isinstance(e, h2.events.RequestReceived):
                        heads[e.stream_id], got[e.stream_id] = dict(e.headers), 0
                        self.raw += repr(e.headers).encode()
                        self.begin(p, e.stream_id, heads[e.stream_id])
                    elif isinstance(e, h2.events.DataReceived):
                        got[e.stream_id] += len(e.data)
                        if heads[e.stream_id][":path"] == "/grpc":
                            p.send(e.stream_id, b"echo " + e.data)
                    elif isinstance(e, h2.events.TrailersReceived):
                        heads[e.stream_id]["trailers"] = dict(e.headers)
                    elif isinstance(e, h2.events.StreamReset):
                        self.resets.append((heads[e.stream_id][":path"], e.error_code))
                    elif isinstance(e, h2.events.StreamEnded):
                        self.finish(p, e.stream_id, heads[e.stream_id], got[e.stream_id])
        except (OSError, EOFError, ssl.SSLError, h2.exceptions.ProtocolError):
            pass
        finally:
            c.close()

    resets = []

    def begin(self, p, stream, head):
        path = head[":path"]
        if path == "/grpc":
            p.c.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        elif path == "/reset":
            p.c.reset_stream(stream, 7)
        elif path == "/early":
            p.c.send_headers(stream, [(":status", "103"), ("link", "x")])
        p.flush()

    def finish(self, p, stream, head, n):
        path = head[":path"]
        if path in ("/slow", "/held", "/reset"):
            return
        if path == "/grpc":
            p.send(stream, b"", trailers=[("grpc-status", "0"), ("grpc-message", "fine")])
        elif path == "/big":
            p.c.send_headers(stream, [(":status", "200")])
            p.send(stream, b"x" * (8 << 20), end=True)
        elif path == "/leak":
            p.c.send_headers(stream, [(":status", "200"), ("x-echo", head.get("x-api-key", "")),
                                      ("x-cella-denied", "no_rule;gen=1")], end_stream=True)
            p.flush()
        else:
            p.c.send_headers(stream, [(":status", "200")])
            p.send(stream, json.dumps({"head": head, "length": n}).encode(), end=True)


class H2Client(Peer):
    def __init__(self, name):
        super().__init__(connect(name, alpn=("h2", "http/1.1")), True)
        assert self.sock.selected_alpn_protocol() == "h2"
        self.name = name

    def ask(self, path="/x", method="GET", authority=None, extra=(), data=None, end=True, host=None):
        stream = self.c.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":path", path)]
        if authority != "":
            head.append((":authority", authority or self.name + ":9443"))
        if host:
            head.append(("host", host))
        self.c.send_headers(stream, head + list(extra), end_stream=end and data is None)
        self.flush()
        if data is not None:
            self.send(stream, data, end=end)
        return stream

    def answer(self, stream, until=None):
        """Collects until the stream ends: {head, body, trailers, reset, early}."""
        r = self.__dict__.setdefault("got", {}).setdefault(
            stream, {"head": None, "body": b"", "trailers": None, "reset": None, "early": [], "end": False})
        while not r["end"] and not (until and until(r)):
            for e in self.events():
                q = self.got.setdefault(getattr(e, "stream_id", None), {"head": None, "body": b"", "trailers": None,
                                                                        "reset": None, "early": [], "end": False})
                if isinstance(e, h2.events.ResponseReceived):
                    q["head"] = dict(e.headers)
                elif isinstance(e, h2.events.InformationalResponseReceived):
                    q["early"].append(dict(e.headers))
                elif isinstance(e, h2.events.DataReceived):
                    q["body"] += e.data
                elif isinstance(e, h2.events.TrailersReceived):
                    q["trailers"] = dict(e.headers)
                elif isinstance(e, h2.events.StreamReset):
                    q["reset"], q["end"] = e.error_code, True
                elif isinstance(e, h2.events.StreamEnded):
                    q["end"] = True
                elif isinstance(e, h2.events.ConnectionTerminated):
                    self.goaway = e.error_code
        return r


def context(alpn=("http/1.1",)):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    c.load_verify_locations(f"{TMP}/cell-ca.pem")
    if alpn:
        c.set_alpn_protocols(list(alpn))
    return c


def connect(name, sni=None, alpn=("http/1.1",)):
    door, port = DOORS[name]
    s = socket.create_connection((CELL, door), timeout=10)
    if port == 8080:
        return s
    return context(alpn).wrap_socket(s, server_hostname=sni or name)


def read_head(s, buf=b""):
    while b"\r\n\r\n" not in buf:
        d = s.recv(65536)
        if not d:
            raise EOFError(buf)
        buf += d
    head, rest = buf.split(b"\r\n\r\n", 1)
    return head.decode("latin1"), rest


def read_response(s, buf=b""):
    """One response with content-length; (head, body, rest)."""
    head, buf = read_head(s, buf)
    m = re.search(r"(?i)\r\ncontent-length: (\d+)", head)
    n = int(m[1]) if m else 0
    while len(buf) < n:
        d = s.recv(65536)
        if not d:
            raise EOFError(buf)
        buf += d
    return head, buf[:n], buf[n:]


def until(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def ended(s):
    """The peer closed, one way or the other."""
    s.settimeout(10)
    try:
        while s.recv(65536):
            pass
        return True
    except (ConnectionResetError, ssl.SSLEOFError, ssl.SSLError):
        return True
    except (TimeoutError, socket.timeout):
        return False


class Case(unittest.TestCase):
    def setUp(self):
        STAGE.clear()

    def ask(self, name, text, s=None):
        s = s or connect(name)
        s.sendall(text.encode() if isinstance(text, str) else text)
        return read_response(s)[:2] + (s,)

    def denied(self, head, reason, status=403):
        self.assertRegex(head, rf"^HTTP/1.1 {status} ")
        self.assertRegex(head, rf"x-cella-denied: {reason};gen=\d+")


class H1(Case):
    def test_passes_and_rewrites(self):
        head, body, s = self.ask("api.example", "GET /a?b=1 HTTP/1.1\r\nHost: api.example\r\nX-One: 1\r\n"
                                 "Proxy-Authorization: x\r\nConnection: keep-alive\r\n\r\n")
        self.assertIn("200 OK", head)
        got = json.loads(body)["head"]
        self.assertTrue(got.startswith("GET /a?b=1 HTTP/1.1\r\n"))
        self.assertIn("X-One: 1", got)
        self.assertNotIn("Proxy-Authorization", got)
        self.assertEqual(s.getpeercert()["subjectAltName"], (("DNS", "api.example"),))
        self.assertEqual(s.selected_alpn_protocol(), "http/1.1")

    def test_keep_alive_and_pipeline(self):
        one = "GET /%d HTTP/1.1\r\nHost: api.example\r\n\r\n"
        s = connect("api.example")
        s.sendall((one % 1 + one % 2 + one % 3).encode())
        rest = b""
        for i in (1, 2, 3):
            head, body, rest = read_response(s, rest)
            self.assertIn(f"GET /{i} ", json.loads(body)["head"])

    def test_plain(self):
        head, body, _ = self.ask("plain.example", "GET http://plain.example:8080/x HTTP/1.1\r\n"
                                 "Host: plain.example:8080\r\n\r\n")
        self.assertTrue(json.loads(body)["head"].startswith("GET /x HTTP/1.1\r\n"))

    def test_http10(self):
        s = connect("api.example")
        s.sendall(b"GET /x HTTP/1.0\r\nHost: api.example\r\n\r\n")
        head, body, _ = read_response(s)
        self.assertIn(" HTTP/1.0\r\n", json.loads(body)["head"])
        self.assertTrue(ended(s))

    def test_head_and_204(self):
        s = connect("api.example")
        s.sendall(b"HEAD /x HTTP/1.1\r\nHost: api.example\r\n\r\n")
        head, rest = read_head(s)
        self.assertIn("Content-Length", head)
        self.assertEqual(rest, b"")
        s.sendall(b"GET /nothing HTTP/1.1\r\nHost: api.example\r\n\r\n")
        self.assertIn(" 204 ", read_head(s)[0])
        head, body, _ = self.ask("api.example", "GET /after HTTP/1.1\r\nHost: api.example\r\n\r\n", s)
        self.assertIn("/after", body.decode())

    def test_body_length_and_chunked(self):
        s = connect("api.example")
        s.sendall(b"POST /p HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\n\r\nhello")
        self.assertEqual(json.loads(read_response(s)[1])["body"], "hello")
        s.sendall(b"POST /p HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: Chunked\r\n\r\n"
                  b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-t: 1\r\n\r\n")
        got = json.loads(read_response(s)[1])
        self.assertEqual((got["body"], got["trailers"]), ("abc0123456789", "x-t: 1"))
        self.assertNotIn("a=b", STAGE.server.raw.decode("latin1"))

    def test_response_chunked_with_trailers(self):
        s = connect("api.example")
        s.sendall(b"GET /trailers HTTP/1.1\r\nHost: api.example\r\n\r\n")
        head, rest = read_head(s)
        while not rest.endswith(b"\r\n\r\n"):
            rest += s.recv(1000)
        self.assertEqual(rest, b"3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n")

    def test_sse_first_byte(self):
        s = connect("api.example")
        s.sendall(b"GET /sse HTTP/1.1\r\nHost: api.example\r\n\r\n")
        head, rest = read_head(s)
        while b"data: 1" not in rest:
            rest += s.recv(1000)
        self.assertNotIn(b"data: 2", rest)  # it is sent when this one is here
        STAGE.server.heard.set()
        while not rest.endswith(b"0\r\n\r\n"):
            rest += s.recv(1000)
        self.assertIn(b"data: 2", rest)

    def test_expect_continue(self):
        s = connect("api.example")
        s.sendall(b"POST /expect HTTP/1.1\r\nHost: api.example\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        head, rest = read_head(s)
        self.assertIn(" 100 ", head)
        s.sendall(b"abc")
        self.assertEqual(read_response(s, rest)[1], b"ok")
        s = connect("paths.example")
        s.sendall(b"POST /x HTTP/1.1\r\nHost: paths.example\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        self.denied(read_response(s)[0], "method_path")
        self.assertTrue(ended(s))

    def test_to_eof(self):
        s = connect("api.example")
        s.sendall(b"GET /toeof HTTP/1.1\r\nHost: api.example\r\n\r\n")
        head, rest = read_head(s)
        self.assertIn("connection: close", head)
        while True:
            d = s.recv(1000)
            if not d:
                break
            rest += d
        self.assertEqual(rest, b"until the end")

    def test_truncated_is_not_taken_for_whole(self):
        for name in ("plain.example", "api.example"):
            with self.subTest(name), self.assertRaises(OSError):
                s = connect(name)
                if name == "api.example":
                    s.suppress_ragged_eofs = False
                self.ask(name, f"GET /truncated HTTP/1.1\r\nHost: {name}\r\n\r\n", s)

    def test_early_response(self):
        s = connect("api.example")
        s.sendall(b"POST /early HTTP/1.1\r\nHost: api.example\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100000)
        head, body, _ = read_response(s)
        self.assertIn(" 413 ", head)
        self.assertEqual(body, b"big")
        self.assertTrue(ended(s))

    def test_half_close(self):
        s = connect("plain.example")
        s.sendall(b"GET /half HTTP/1.1\r\nHost: plain.example\r\n\r\n")
        s.shutdown(socket.SHUT_WR)
        self.assertEqual(read_response(s)[1], b"half")
        self.assertEqual(STAGE.plain.eofs[-1], b"")

    def goodbye(self, request):
        """A request and close_notify behind it; the socket, and a function that waits for what the engine says."""
        s = socket.create_connection((CELL, DOORS["api.example"][0]), timeout=10)
        rx, tx = ssl.MemoryBIO(), ssl.MemoryBIO()
        t = context().wrap_bio(rx, tx, server_hostname="api.example")

        def until(fn):
            while True:
                try:
                    got = fn()
                    if tx.pending:
                        s.sendall(tx.read())
                    return got
                except ssl.SSLWantReadError:
                    if tx.pending:
                        s.sendall(tx.read())
                    rx.write(s.recv(65536))
        until(t.do_handshake)
        t.write(request)
        try:
            t.unwrap()  # close_notify: no more requests; the answer is still to come
        except ssl.SSLWantReadError:
            pass
        s.sendall(tx.read())
        return s, lambda: until(lambda: t.read(1000))

    def test_half_close_of_tls(self):
        s, answer = self.goodbye(b"GET /slow HTTP/1.1\r\nHost: api.example\r\n\r\n")
        s.shutdown(socket.SHUT_WR)
        self.assertIn(b" 200 ", answer())

    def test_a_client_that_is_gone_costs_nothing(self):
        """It says goodbye and goes; the engine's own goodbye fails, once."""
        for _ in range(8):
            self.goodbye(b"GET /late HTTP/1.1\r\nHost: api.example\r\n\r\n")[0].close()
        for _ in range(10):  # what is left to be done is done at some time; who asks again and again never ends
            before = STAGE.cpu_ticks()
            time.sleep(1)
            used = STAGE.cpu_ticks() - before
            if used < 5:
                break
        self.assertLess(used, 5)

    def test_curl(self):
        r = sh("curl", "-sS", "--fail", "--cacert", f"{TMP}/cell-ca.pem", "--connect-to",
               f"api.example:8443:{CELL}:1443", "https://api.example:8443/from-curl", "-d", "x=1", "-H", "Expect:")
        self.assertIn("/from-curl", r.stdout)


class Refused(Case):
    BAD = {
        "both lengths": "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "two lengths": "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "length list": "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5, 5\r\n\r\nhello",
        "signed length": "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: +5\r\n\r\nhello",
        "coding list": "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "two codings": "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "odd coding": "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "underscore": "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer_Encoding: chunked\r\n\r\n0\r\n\r\n",
        "coding in 1.0": "POST / HTTP/1.0\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "bare lf": "GET / HTTP/1.1\nHost: api.example\n\n",
        "bare lf in field": "GET / HTTP/1.1\r\nHost: api.example\r\nX: a\nY: b\r\n\r\n",
        "bare cr": "GET / HTTP/1.1\r\nHost: api.example\r\nX: a\rb\r\n\r\n",
        "nul": "GET / HTTP/1.1\r\nHost: api.example\r\nX: a\0b\r\n\r\n",
        "fold": "GET / HTTP/1.1\r\nHost: api.example\r\nX: a\r\n b\r\n\r\n",
        "space before colon": "POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length : 5\r\n\r\nhello",
        "space after name": "GET / HTTP/1.1\r\nHost : api.example\r\n\r\n",
        "no host": "GET / HTTP/1.1\r\nX: y\r\n\r\n",
        "two hosts": "GET / HTTP/1.1\r\nHost: api.example\r\nHost: api.example\r\n\r\n",
        "two spaces": "GET  / HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "version": "GET / HTTP/1.2\r\nHost: api.example\r\n\r\n",
        "http/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "no version": "GET /\r\nHost: api.example\r\n\r\n",
        "fragment": "GET /a#b HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "high byte in target": "GET /\xff HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "star": "GET * HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "method with colon": "GE:T / HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "leading empty line": "\r\nGET / HTTP/1.1\r\nHost: api.example\r\n\r\n",
        "too many fields": "GET / HTTP/1.1\r\nHost: api.example\r\n" + "A: b\r\n" * 128 + "\r\n",
        "too long": "GET / HTTP/1.1\r\nHost: api.example\r\nA: " + "x" * 65536 + "\r\n\r\n",
    }

    def test_every_ambiguity(self):
        for what, text in self.BAD.items():
            with self.subTest(what):
                before, STAGE.server.raw[:] = len(STAGE.server.raw), b""
                s = connect("api.example")
                s.sendall(text.encode("latin1") + b"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n\r\n")
                head, body, _ = read_response(s)
                self.denied(head, "bad_request", 400)
                self.assertTrue(ended(s))
                self.assertEqual(bytes(STAGE.server.raw), b"")
                STAGE.wait("deny", reason=REASON["bad_request"], name="api.example")

    def test_bad_chunks(self):
        for what in ("5\nhello\r\n0\r\n\r\n", "x\r\n", "5\r\nhelloX\r\n", "-1\r\n", "0x5\r\nhello\r\n",
                     "11111111111111111\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "0\r\nhost: evil\r\n\r\n",
                     "0\r\n bad\r\n\r\n", "5\r\nhello\r\n\r\n"):
            with self.subTest(what):
                s = connect("api.example")
                s.sendall(b"POST /p HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n" + what.encode())
                self.denied(read_response(s)[0], "bad_request", 400)
                self.assertTrue(ended(s))

    def test_host_mismatch(self):
        for host in ("other.example", "api.example.", "api.example:1", "api.example:08443", "xapi.example",
                     "api.example@evil", "user@api.example", "", "api.example:"):
            with self.subTest(host):
                STAGE.server.raw[:] = b""
                head, _, s = self.ask("api.example", f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")
                self.denied(head, "host_mismatch", 421)
                self.assertEqual(bytes(STAGE.server.raw), b"")
        head, _, _ = self.ask("api.example", "GET / HTTP/1.1\r\nHost: API.example:8443\r\n\r\n")
        self.assertIn(" 200 ", head)
        head, _, _ = self.ask("api.example", "GET https://evil.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n")
        self.denied(head, "host_mismatch", 421)
        STAGE.wait("deny", reason=REASON["host_mismatch"])

    def test_second_request_other_host(self):
        head, _, s = self.ask("api.example", "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n")
        self.assertIn(" 200 ", head)
        head, _, _ = self.ask("api.example", "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", s)
        self.denied(head, "host_mismatch", 421)
        head, _, _ = self.ask("api.example", "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", s)
        self.assertIn(" 200 ", head)

    def test_method_and_path(self):
        head, _, s = self.ask("paths.example", "GET /ok/a HTTP/1.1\r\nHost: paths.example\r\n\r\n")
        self.assertIn(" 200 ", head)
        for line in ("GET /no HTTP/1.1", "POST /ok/a HTTP/1.1", "GET /ok/../no HTTP/1.1", "GET /ok/%2e%2e/no HTTP/1.1",
                     "GET /ok/..%2fno HTTP/1.1", "GET //no HTTP/1.1", "get /ok/a HTTP/1.1",
                     "CONNECT paths.example:8443 HTTP/1.1"):
            with self.subTest(line):
                head, body, s = self.ask("paths.example", line + "\r\nHost: paths.example\r\n\r\n", s)
                self.denied(head, "method_path")
                self.assertIn(b"cella:", body)
        m = STAGE.wait("deny", reason=REASON["method_path"], method="GET")
        self.assertEqual(m["name"], "paths.example")
        import hashlib
        self.assertEqual(m["hash"], hashlib.sha256(b"/no").hexdigest()[:16])

    def test_sni(self):
        with self.assertRaises(ssl.SSLError):
            connect("api.example", sni="ws.example")
        STAGE.wait("deny", reason=REASON["sni_mismatch"])
        c = context()
        c.check_hostname = False
        with self.assertRaises(ssl.SSLError):
            c.wrap_socket(socket.create_connection((CELL, 1443)))
        STAGE.wait("deny", reason=REASON["sni_missing"])

    def test_upstream_certificate(self):
        head, body, s = self.ask("bad.example", "GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n")
        self.denied(head, "upstream_failed", 502)
        self.assertEqual(bytes(STAGE.bad.raw), b"")
        STAGE.wait("deny", reason=REASON["upstream_failed"], name="bad.example")

    def test_bad_responses(self):
        head, _, s = self.ask("api.example", "GET /ambiguous HTTP/1.1\r\nHost: api.example\r\n\r\n")
        self.denied(head, "upstream_failed", 502)
        head, _, s = self.ask("ws.example", "GET /unasked HTTP/1.1\r\nHost: ws.example\r\n\r\n")
        self.denied(head, "upstream_failed", 502)
        head, _, s = self.ask("api.example", "GET /forged HTTP/1.1\r\nHost: api.example\r\n\r\n")
        self.assertNotIn("x-cella-denied", head.lower())

    def test_websocket(self):
        ask = ("GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        head, _, s = self.ask("api.example", ask % "api.example")
        self.denied(head, "method_path")
        s = connect("ws.example")
        s.sendall((ask % "ws.example").encode())
        head, rest = read_head(s)
        self.assertIn(" 101 ", head)
        s.sendall(b"\x81\x05hello")
        self.assertEqual(s.recv(100), b"\x81\x05hello")
        m = STAGE.publish(RULES.replace("id=ws host=ws.example ports=8443 ws=1", "id=ws host=ws.example ports=8443"))
        try:
            self.assertEqual(m["killed"], 1)
            self.assertTrue(ended(s))
        finally:
            STAGE.publish(RULES)


class Secrets(Case):
    def test_placeholder(self):
        ask = "GET /x HTTP/1.1\r\nHost: key.example\r\nX-Api-Key: %s\r\n\r\n"
        head, body, s = self.ask("key.example", ask % "sk-cella__K__")
        self.assertIn("X-Api-Key: " + SECRET, json.loads(body)["head"])
        head, _, s = self.ask("key.example", ask % "my-own-key", s)
        self.denied(head, "placeholder_missing")
        head, _, s = self.ask("key.example", "GET /x HTTP/1.1\r\nHost: key.example\r\nX-Other: sk-cella__K__\r\n\r\n", s)
        self.denied(head, "placeholder_missing")
        STAGE.wait("deny", reason=REASON["placeholder_missing"], rule="key")
        head, body, s = self.ask("key.example", "GET /x HTTP/1.1\r\nHost: key.example\r\nX-Api-Key: mine\r\n"
                                 "X-Api-Key: sk-cella__K__\r\n\r\n", s)
        self.assertNotIn("mine", json.loads(body)["head"])

    def test_inside_a_value_basic_and_set(self):
        _, body, _ = self.ask("bearer.example", "GET /x HTTP/1.1\r\nHost: bearer.example\r\n"
                              "Authorization: Bearer sk-cella__K__\r\n\r\n")
        self.assertIn("Authorization: Bearer " + SECRET + "\r\n", json.loads(body)["head"] + "\r\n")
        b64 = base64.b64encode(b"user:sk-cella__K__").decode()
        _, body, _ = self.ask("basic.example", f"GET /x HTTP/1.1\r\nHost: basic.example\r\nAuthorization: Basic {b64}\r\n\r\n")
        self.assertIn("Basic " + base64.b64encode(b"user:" + SECRET.encode()).decode(), json.loads(body)["head"])
        _, body, _ = self.ask("set.example", "GET /x HTTP/1.1\r\nHost: set.example\r\nAuthorization: mine\r\n\r\n")
        got = json.loads(body)["head"]
        self.assertIn("authorization: Bearer " + SECRET, got)
        self.assertNotIn("mine", got)

    def test_elsewhere_untouched(self):
        _, body, _ = self.ask("api.example", "GET /x HTTP/1.1\r\nHost: api.example\r\nX-Api-Key: sk-cella__K__\r\n\r\n")
        self.assertIn("sk-cella__K__", json.loads(body)["head"])
        self.assertNotIn(SECRET, body.decode())

    def test_never_plain_never_unknown(self):
        STAGE.plain.raw[:] = b""
        head, _, _ = self.ask("plainkey.example", "GET /x HTTP/1.1\r\nHost: plainkey.example\r\n\r\n")
        self.denied(head, "credential_mismatch")
        self.assertEqual(bytes(STAGE.plain.raw), b"")
        head, _, _ = self.ask("miss.example", "GET /x HTTP/1.1\r\nHost: miss.example\r\n\r\n")
        self.denied(head, "credential_mismatch")

    def test_redacted(self):
        head, _, _ = self.ask("key.example", "GET /leak HTTP/1.1\r\nHost: key.example\r\nX-Api-Key: sk-cella__K__\r\n\r\n")
        self.assertIn("[[redacted]]", head)
        self.assertIn("HTTP/1.1 200 OK ([redacted])\r\n", head + "\r\n") # the reason phrase as well
        self.assertNotIn(SECRET, head)
        b64 = base64.b64encode(b"user:sk-cella__K__").decode()
        head, _, _ = self.ask("basic.example", f"GET /leak HTTP/1.1\r\nHost: basic.example\r\nAuthorization: Basic {b64}\r\n\r\n")
        self.assertIn("[Basic [redacted]]", head)

    def test_trailer_cannot_replace(self):
        s = connect("key.example")
        s.sendall(b"POST /p HTTP/1.1\r\nHost: key.example\r\nX-Api-Key: sk-cella__K__\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"1\r\na\r\n0\r\nx-api-key: mine\r\nx-t: 1\r\n\r\n")
        self.assertEqual(json.loads(read_response(s)[1])["trailers"], "x-t: 1")


@unittest.skipUnless(h2, "python3-h2 is not installed")
class H2(Case):
    def denied2(self, r, reason, status="403"):
        self.assertEqual(r["head"][":status"], status)
        self.assertRegex(r["head"]["x-cella-denied"], rf"^{reason};gen=\d+$")
        self.assertIn(b"cella:", r["body"])

    def test_passes_mirrored(self):
        c = H2Client("h2.example")
        r = c.answer(c.ask("/a?b", extra=[("x-one", "1"), ("te", "trailers")]))
        self.assertEqual(r["head"][":status"], "200")
        head = json.loads(r["body"])["head"]
        self.assertEqual((head[":path"], head[":authority"], head["x-one"], head["te"]),
                         ("/a?b", "h2.example:9443", "1", "trailers"))
        s = connect("h2.example", alpn=("http/1.1",))  # the cell offers h1 only, and so does the upstream see
        self.assertEqual(s.selected_alpn_protocol(), "http/1.1")
        s = connect("api.example", alpn=("h2", "http/1.1"))  # the server has h1 only
        self.assertEqual(s.selected_alpn_protocol(), "http/1.1")
        self.assertIn(" 200 ", self.ask("api.example", "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", s)[0])

    def test_many_streams_and_bodies(self):
        c = H2Client("h2.example")
        ids = [c.ask(f"/{i}", method="POST", data=b"y" * (i * 10000)) for i in range(20)]
        for i, stream in enumerate(ids):
            r = json.loads(c.answer(stream)["body"])
            self.assertEqual((r["head"][":path"], r["length"]), (f"/{i}", i * 10000))

    def test_flow_control(self):
        c = H2Client("h2.example")
        self.assertEqual(len(c.answer(c.ask("/big"))["body"]), 8 << 20)
        r = c.answer(c.ask("/up", method="PUT", data=b"z" * (16 << 20)))
        self.assertEqual(json.loads(r["body"])["length"], 16 << 20)

    def test_grpc_streaming(self):
        c = H2Client("h2.example")
        stream = c.ask("/grpc", method="POST", end=False, extra=[("te", "trailers"), ("content-type", "application/grpc")])
        c.answer(stream, until=lambda r: r["head"])
        for i in range(3):
            c.send(stream, b"msg%d" % i)
            c.answer(stream, until=lambda r: b"echo msg%d" % i in r["body"])
        c.send(stream, b"", end=True)
        r = c.answer(stream)
        self.assertEqual(r["trailers"], {"grpc-status": "0", "grpc-message": "fine"})
        self.assertIsNone(r["reset"])

    def test_request_trailers_and_early_hints(self):
        c = H2Client("h2.example")
        stream = c.ask("/early", method="POST", data=b"abc", end=False)
        c.send(stream, b"", trailers=[("x-sum", "1")])
        r = c.answer(stream)
        self.assertEqual(json.loads(r["body"])["head"]["trailers"], {"x-sum": "1"})
        self.assertEqual(r["early"][0][":status"], "103")

    def test_authority(self):
        c = H2Client("h2.example")
        before = len(STAGE.h2.raw)
        for kw in ({"authority": "evil.example"}, {"authority": "h2.example:443"}, {"authority": "h2.example."},
                   {"authority": "h2.example:9443", "host": "evil.example"}, {"authority": "", "host": "evil.example"}):
            with self.subTest(str(kw)):
                self.denied2(c.answer(c.ask(**kw)), "host_mismatch", "421")
        r = c.answer(c.ask(authority="evil.example", method="POST", end=False, data=b"some"))
        self.denied2(r, "host_mismatch", "421")
        self.assertEqual(len(STAGE.h2.raw), before)
        self.assertEqual(c.answer(c.ask(authority="H2.example"))["head"][":status"], "200")
        STAGE.wait("deny", reason=REASON["host_mismatch"], name="h2.example")

    def test_method_and_path(self):
        c = H2Client("h2paths.example")
        self.assertEqual(c.answer(c.ask("/ok/1"))["head"][":status"], "200")
        for method, path in (("GET", "/no"), ("POST", "/ok/1"), ("GET", "/ok/../no"), ("GET", "/ok/%2e%2e/no")):
            self.denied2(c.answer(c.ask(path, method=method)), "method_path")
        stream = c.c.get_next_available_stream_id()
        c.c.send_headers(stream, [(":method", "CONNECT"), (":authority", "h2paths.example:9443")])
        c.flush()
        self.denied2(c.answer(stream), "method_path")
        self.denied2(c.answer(c.ask("/a#b")), "bad_request", "400")

    def test_websocket_over_h2_is_not_offered(self):
        """Clients then take HTTP/1.1 for it (RFC 8441, 3); one that does not ask first loses the stream, not the connection."""
        c = H2Client("h2.example")
        self.assertEqual(c.answer(c.ask())["head"][":status"], "200")
        self.assertFalse(c.c.remote_settings.enable_connect_protocol)
        stream = c.c.get_next_available_stream_id()
        c.c.send_headers(stream, [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "https"), (":path", "/ws"),
                                  (":authority", "h2.example:9443")])
        c.flush()
        self.assertEqual(c.answer(stream)["reset"], 1)  # PROTOCOL_ERROR
        self.assertEqual(c.answer(c.ask())["head"][":status"], "200")

    def test_method_denied(self):
        c = H2Client("h2paths.example")
        self.denied2(c.answer(c.ask("/ok/1", method="POST")), "method_path")
        STAGE.wait("deny", reason=REASON["method_path"], method="POST")

    def test_injection(self):
        c = H2Client("h2key.example")
        r = c.answer(c.ask("/x", extra=[("x-api-key", "sk-cella__K__")]))
        self.assertEqual(json.loads(r["body"])["head"]["x-api-key"], SECRET)
        self.denied2(c.answer(c.ask("/x", extra=[("x-api-key", "mine")])), "placeholder_missing")
        r = c.answer(c.ask("/leak", extra=[("x-api-key", "sk-cella__K__")]))
        self.assertEqual(r["head"]["x-echo"], "[redacted]")
        self.assertNotIn("x-cella-denied", r["head"])

    def test_resets(self):
        def resets():  # of this request: those of another test may still be on their way
            return [code for path, code in STAGE.h2.resets if path == "/held"]
        c = H2Client("h2.example")
        self.assertEqual(c.answer(c.ask("/reset"))["reset"], 7)
        stream = c.ask("/held", method="POST", end=False, data=b"x")
        until(lambda: b"'/held'" in STAGE.h2.raw, "the request at the server")
        c.c.reset_stream(stream, 8)
        c.flush()
        self.assertEqual(c.answer(c.ask("/x"))["head"][":status"], "200")
        until(resets, "the reset at the server")
        self.assertEqual(resets(), [8])

    def test_rapid_reset(self):
        c = H2Client("h2.example")
        c.goaway = None
        with self.assertRaises((EOFError, OSError, h2.exceptions.ProtocolError)):
            for _ in range(400):
                c.c.reset_stream(c.ask("/slow"), 8)
            c.flush()
            while True:
                c.events()
        STAGE.wait("end")

    def test_too_large(self):
        c = H2Client("h2.example")
        r = c.answer(c.ask("/x", extra=[(f"x-{i}", "y") for i in range(130)]))
        self.assertIsNotNone(r["reset"])
        self.assertEqual(c.answer(c.ask("/x"))["head"][":status"], "200")

    def test_publication(self):
        c = H2Client("h2.example")
        STAGE.h2.raw[:] = b""
        a, b = c.ask("/slow"), c.ask("/slow2")
        until(lambda: b"'/slow2'" in STAGE.h2.raw, "the requests at the server")
        m = STAGE.publish(RULES.replace("id=h2 host=h2.example ports=9443",
                                        "id=h2 host=h2.example ports=9443 methods=GET paths=/other,/x"))
        try:
            self.assertGreaterEqual(m["killed"], 1)
            self.assertEqual(c.answer(a)["reset"], 8)
            self.assertEqual(c.answer(c.ask("/x"))["head"][":status"], "200")
            self.denied2(c.answer(c.ask("/y")), "method_path")
            STAGE.publish(RULES.replace("id=h2 host=h2.example", "id=h2 host=gone.example"))
            self.assertTrue(ended(c.sock))
        finally:
            STAGE.publish(RULES)

    def test_curl(self):
        r = sh("curl", "-sS", "--fail", "--http2", "--cacert", f"{TMP}/cell-ca.pem", "--connect-to",
               f"h2.example:9443:{CELL}:2443", "https://h2.example:9443/from-curl", "-d", "x" * 100000, "-w",
               "%{http_version}")
        self.assertIn("/from-curl", r.stdout)
        self.assertTrue(r.stdout.endswith("2"))


class Process(Case):
    def test_big_upload_in_constant_memory(self):
        total, block = 1 << 30, b"x" * (1 << 20)
        s = connect("api.example")
        s.sendall(f"POST /big HTTP/1.1\r\nHost: api.example\r\nContent-Length: {total}\r\n\r\n".encode())
        STAGE.server_quiet = True
        before, peak = STAGE.memory_kb(), 0
        for i in range(total >> 20):
            s.sendall(block)
            if i % 64 == 0:
                peak = max(peak, STAGE.memory_kb())
        s.settimeout(60)
        self.assertEqual(json.loads(read_response(s)[1])["length"], total)
        print(f"  1 GiB upload: resident {before} kB before, {peak} kB at most", file=sys.stderr)
        if "asan" not in os.environ.get("HTTP_TEST_BUILD", ""):  # whose allocator keeps what was freed
            self.assertLess(peak - before, 2048)

    def test_publication_kills(self):
        a, b = connect("api.example"), connect("ws.example")
        for s, n in ((a, "api.example"), (b, "ws.example")):
            self.assertIn(" 200 ", self.ask(n, f"GET / HTTP/1.1\r\nHost: {n}\r\n\r\n", s)[0])
        m = STAGE.publish(RULES.replace("id=api host=api.example", "id=gone host=gone.example"))
        try:
            self.assertEqual(m["killed"], 0)  # the gate counts those
            self.assertTrue(ended(a))
            self.assertIn(" 200 ", self.ask("ws.example", "GET / HTTP/1.1\r\nHost: ws.example\r\n\r\n", b)[0])
            with self.assertRaises(OSError):
                connect("api.example")
            STAGE.wait("deny", reason=REASON["no_rule"], name="api.example")
        finally:
            STAGE.publish(RULES)

    @unittest.skipIf("asan" in os.environ.get("HTTP_TEST_BUILD", ""), "a sanitizer keeps what was freed")
    def test_secret_is_forgotten(self):
        value = "sk-another-9876543210"  # that no other test made a server say back
        STAGE.say("secret k " + value)

        def value_there():
            with open(f"/proc/{STAGE.pid}/maps") as maps, open(f"/proc/{STAGE.pid}/mem", "rb", 0) as mem:
                for line in maps:
                    lo, hi = (int(x, 16) for x in line.split()[0].split("-"))
                    if " rw" in line:
                        mem.seek(lo)
                        data = mem.read(hi - lo)
                        if value.encode() in data:
                            return line + repr(data[max(0, data.index(value.encode()) - 200):][:400])
            return None
        self.ask("key.example", "GET /nothing HTTP/1.1\r\nHost: key.example\r\nX-Api-Key: sk-cella__K__\r\n\r\n")
        if h2:  # a server that says it back would leave it in TLS buffers, but then the cell has it as well
            c = H2Client("h2key.example")
            c.answer(c.ask("/grpc", method="POST", extra=[("x-api-key", "sk-cella__K__")]))
        self.assertTrue(value_there())
        STAGE.publish("id=api host=api.example ports=8443\n")
        try:
            self.assertIsNone(value_there())
        finally:
            STAGE.publish(RULES)
            STAGE.say("secret k " + SECRET)

    def test_confined(self):
        with open(f"/proc/{STAGE.pid}/status") as f:
            st = f.read()
        self.assertRegex(st, r"Uid:\s+65534\s+65534\s+65534\s+65534")
        self.assertRegex(st, r"CapEff:\s+0{16}")
        self.assertRegex(st, r"CapPrm:\s+0{16}")
        self.assertRegex(st, r"NoNewPrivs:\s+1")
        if "asan" not in os.environ.get("HTTP_TEST_BUILD", ""):
            self.assertRegex(st, r"Seccomp:\s+2")
        with open(f"/proc/{STAGE.pid}/limits") as f:
            limits = f.read()
        self.assertRegex(limits, r"Max core file size\s+0\s+0")
        if "asan" not in os.environ.get("HTTP_TEST_BUILD", ""):
            self.assertRegex(limits, r"Max data size\s+536870912\s+536870912")
        self.assertNotEqual(os.stat(f"/proc/{STAGE.pid}/ns/net").st_ino, os.stat("/proc/self/ns/net").st_ino)
        self.assertEqual(os.stat(f"/proc/{STAGE.pid}/environ").st_uid, 0)  # root's: not dumpable

    def test_idle_memory(self):
        print(f"  engine: {STAGE.pss_kb()} kB of PSS", file=sys.stderr)

    def test_ca(self):
        text = sh("openssl", "x509", "-noout", "-text", "-in", f"{TMP}/cell-ca.pem").stdout
        self.assertIn("CA:TRUE, pathlen:0", text)
        self.assertIn("prime256v1", text)

    def test_z_secret_nowhere(self):
        self.assertNotIn(SECRET, "".join(STAGE.seen))


def main():
    global TMP, STAGE
    if os.geteuid() != 0:
        print("needs root: it makes a network namespace", file=sys.stderr)
        return 77
    for tool in ("curl", "openssl", "unshare", "ip"):
        if not shutil.which(tool):
            print(f"{tool} is not installed", file=sys.stderr)
            return 77
    if "HTTP_TEST_INSIDE" not in os.environ:
        os.environ["HTTP_TEST_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", sys.executable] + sys.argv)
    sh("ip", "link", "set", "lo", "up")
    for a in (SERVER, CELL):
        sh("ip", "address", "add", a + "/32", "dev", "lo")
    with tempfile.TemporaryDirectory(prefix="cella-http-") as tmp:
        TMP = tmp
        make_certs(tmp)
        STAGE = Stage(sys.argv[1], sys.argv[2])
        STAGE.server, STAGE.plain, STAGE.bad = Server(8443, "server"), Server(8080), Server(8444, "bad")
        STAGE.h2 = H2Server(9443, "server") if h2 else None
        r = unittest.main(argv=[sys.argv[0]] + sys.argv[3:], exit=False, warnings="ignore")
        STAGE.p.stdin.close()
        STAGE.p.wait(10)
        return not r.result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
