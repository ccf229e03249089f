# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Credentials brokered, end to end: a request leaves the cell with a placeholder and arrives with the secret; the cell
trusts its gate, and hosts that are not looked into still show their own certificate."""
import http.server
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading

import pytest

from harness import netns
from harness.cella import wait_until
from harness.warden import Warden

ADDRESS, RESOLVER = "203.0.113.99", "203.0.113.53"
API, OTHER = "api.shop.example", "other.shop.example"
PLACEHOLDER, VALUE = "sk-cella__K1__", "tok-7f3a9c-never-seen"
PYTHON = f"""import sys, urllib.request
r = urllib.request.Request(sys.argv[1], headers={{'x-api-key': '{PLACEHOLDER}'}})
print(urllib.request.urlopen(r, timeout=10).read().decode())"""
NODE = f"""fetch(process.argv[1], {{headers: {{'x-api-key': '{PLACEHOLDER}'}}}}).then(r => r.text()).then(console.log,
  e => {{ console.log(e.cause); process.exit(1) }})"""
CURL = ["curl", "-sS", "-m", "10", "-H", f"x-api-key: {PLACEHOLDER}"]
CLIENTS = {"curl": [*CURL, "URL"], "curl-h1": [*CURL, "--http1.1", "URL"], "python": ["/usr/bin/python3", "-c", PYTHON, "URL"],
           "node": ["node", "-e", NODE, "URL"],
           "wget": ["wget", "-T", "10", "-qO-", f"--header=x-api-key: {PLACEHOLDER}", "URL"]}
POLICY = {"version": 1, "revision": 1, "active": "run", "phases": {"run": {"allow": [
    {"id": "llm", "host": API, "ports": [443], "layer": "http", "http": {"methods": ["GET"], "paths": ["/v1/*"]},
     "inject": [{"secret": "token", "surface": "header", "name": "x-api-key", "placeholder": PLACEHOLDER,
                 "require": True}]},
    {"id": "other", "host": OTHER, "ports": [443]}]}}}


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


@pytest.fixture(scope="module")
def shop(internet, tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    directory.chmod(0o755)
    made = Shop(internet.world, directory)
    yield made
    made.close()


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    path = tmp_path_factory.mktemp("vault")
    path.chmod(0o700)

    def put(text):
        (path / ".new").write_text(text)
        (path / ".new").chmod(0o600)
        (path / ".new").rename(path / "token")
    put(VALUE + "\n")
    put.path = path
    return put


@pytest.fixture(scope="module")
def enforcer(shop, vault):
    """The config that a cell of this internet needs."""
    plugin = {"path": "cella-enforcer-egress-nft.so",
              "config": {"resolvers": f"{RESOLVER}:53", "upstream-ca": str(shop.ca)}}
    return {"plugins": [plugin], "secrets": [{"provider": "secret-file", "path": str(vault.path)}]}


@pytest.fixture(scope="module")
def brokered(session_cella, shop, enforcer):
    """A cell whose gate holds the secret; the world's authority is its file /srv/world.pem."""
    policy = shop.directory / "policy.json"
    policy.write_text(json.dumps(POLICY))
    with session_cella.configured(**enforcer):
        context = session_cella.cell("--policy", policy, "--mount", f"{shop.ca}:/srv/world.pem")
        cell = context.__enter__()
    yield cell
    context.__exit__(None, None, None)


def visit(cella, cell, client, path="/v1/models", host=API):
    return cella("exec", cell, "--", *[w.replace("URL", f"https://{host}{path}") for w in CLIENTS[client]])


@pytest.mark.parametrize("client", CLIENTS)
def test_the_secret_arrives_and_the_client_trusts_its_gate(cella, shop, brokered, client):
    if not shutil.which(CLIENTS[client][0]):
        pytest.skip(f"{client} is not on this host")
    seen = len(shop.keys)
    assert visit(cella, brokered, client).ok().text == "served"
    assert shop.keys[seen:] == [VALUE]


def test_a_host_that_is_not_looked_into_shows_its_own_certificate(cella, shop, brokered):
    """Nothing is put into its requests, and the cell's own authority is not what vouches for it."""
    assert visit(cella, brokered, "curl", host=OTHER).status == 60
    seen = len(shop.keys)
    own = ["curl", "-sS", "-m", "10", "--cacert", "/srv/world.pem", "-H", f"x-api-key: {PLACEHOLDER}", f"https://{OTHER}/v1/x"]
    assert cella("exec", brokered, "--", *own).ok().text == "served"
    assert shop.keys[seen:] == [PLACEHOLDER]


def test_denied_requests_are_told_with_their_reason(cella, shop, brokered):
    seen = len(shop.keys)
    for words, status in ((["-X", "POST"], "403"), (["-H", "x-api-key: mine"], "403")):
        argv = ["curl", "-sS", "-m", "10", "-o", "/dev/null", "-D", "-", *words, f"https://{API}/v1/models"]
        text = cella("exec", brokered, "--", *argv).ok().text
        assert status in text.splitlines()[0] and "x-cella-denied:" in text.lower(), text
    assert visit(cella, brokered, "curl-h1", "/v2/other").ok().text != "served"
    assert shop.keys[seen:] == []

    def told():
        text = cella("exec", brokered, "--", "cat", "/run/cella/denials").ok().text
        return {d["reason"]: d for d in map(json.loads, text.splitlines())}
    wait_until(lambda: {"method_path", "placeholder_missing"} <= set(told()), 5, "the denials in the cell")
    assert all(d["help"] for d in told().values())


def test_the_secret_is_nowhere_but_at_its_host(cella, shop, brokered):
    assert VALUE in shop.keys
    cella.wait_event(brokered, {"kind": "secret.used", "name": "token", "purpose": "inject:llm"})
    found = subprocess.run(["grep", "-rlF", VALUE, cella.directory(brokered), cella.state / "audit"], capture_output=True,
                           text=True)
    assert not found.stdout
    inside = ["sh", "-c", "cat > /tmp/pattern; env | grep -Ff /tmp/pattern; cat /proc/*/environ | grep -aFf /tmp/pattern;"
              " grep -rlsFf /tmp/pattern /run /etc /root /srv"]  # not as an argument: those are audited
    assert not cella("exec", brokered, "--", *inside, input=VALUE.encode()).text


def test_a_changed_secret_is_used_at_once_without_a_new_cell(cella, shop, brokered, vault):
    generation = cella.inspect(brokered)["policy"]["generation"]
    vault("tok-second")
    wait_until(lambda: cella.inspect(brokered)["policy"]["generation"] > generation, 5, "the new generation")
    seen = len(shop.keys)
    assert visit(cella, brokered, "curl").ok().text == "served"
    assert shop.keys[seen:] == ["tok-second"]
    vault(VALUE)
    wait_until(lambda: visit(cella, brokered, "curl").ok() and shop.keys[-1] == VALUE, 5, "the old value again")


def test_a_cell_that_runs_can_be_looked_into_later(cella, shop, vault, enforcer):
    """Its authority comes with the change; commands from then on are told, what is mounted stays as it was."""
    plain = {"version": 1, "revision": 1, "allow": [{"id": "api", "host": API, "ports": [443]}]}
    path = shop.directory / "plain.json"
    path.write_text(json.dumps(plain))
    with cella.configured(**enforcer):
        context = cella.cell("--policy", path)
        cell = context.__enter__()
    try:
        assert visit(cella, cell, "curl").status == 60  # the world's certificate, which nobody here trusts
        assert cella("exec", cell, "--", "ls", "/run/cella").ok().text == "denials"
        with Warden(cella.directory(cell)) as warden:
            warden.call("policy", document=json.dumps({**POLICY, "revision": 2}), if_match=1)
        seen = len(shop.keys)
        for client in ("curl", "python", "node"):
            assert visit(cella, cell, client).ok().text == "served"
        assert shop.keys[seen:] == [VALUE] * 3
        assert cella.wait_event(cell, {"kind": "cell.trust"})["certificates"] == 1
    finally:
        context.__exit__(None, None, None)
