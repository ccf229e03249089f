# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The private internet of the egress benchmark, and the roads that lead from a client to its server.

    [nat] ── veth, kernel NAT ──┐
    [pasta] ── pasta ───────────┤
    [slirp] ── slirp4netns ─────┼── [uplink] 192.0.2.1 ───── 192.0.2.2 [world] 203.0.113.10: the server
    [nat] ── tinyproxy ─────────┤
    cell ── gate ───────────────┘

One server, one client program (traffic.c), one last hop for all. Nothing is connected to the machine's own network.
"""
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time

from harness import names, netns

# The one that every kernel lets a new namespace have. A host may prefer one that paces (BBR): then its timers are measured.
CONGESTION = os.environ.get("CELLA_BENCH_CONGESTION", "reno")
SERVER, NAMED = "203.0.113.10", "203.0.113.20"  # by address, and what HOST resolves to
HOST = "api.example.com"
_NAT = """table ip nat {
  chain post { type nat hook postrouting priority 100; ip saddr 10.77.0.0/30 masquerade; }
}
"""
_TINYPROXY = """Port 8888
Listen 10.77.0.1
Timeout 600
MaxClients 600
LogLevel Critical
LogFile "{log}"
"""
_NGINX = """daemon off;
pid {work}/nginx.pid;
error_log stderr crit;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {work}/n1; proxy_temp_path {work}/n2; fastcgi_temp_path {work}/n3;
  uwsgi_temp_path {work}/n4; scgi_temp_path {work}/n5;
  keepalive_requests 100000000;
  server {{
    listen 443 ssl;
    ssl_certificate {work}/leaf.pem; ssl_certificate_key {work}/leaf.key;
    location / {{ return 200 "{body}"; }}
  }}
}}
"""


class Missing(Exception):
    """What a road needs is not on this machine, or does not work here."""


class Road:
    """How the client's side is entered, and what it dials. `tls`: a ClientHello comes first."""

    def __init__(self, ns, address=SERVER, via=None, tls=False):
        self.ns, self.address, self.via, self.tls = ns, address, via, tls

    def argv(self, traffic, verb, *numbers):
        port = {"up": 1, "down": 2, "connect": 3, "idle": 3}[verb] + (7010 if self.tls else 7000)
        words = ["nsenter", f"--net={self.ns}", str(traffic), verb, self.address, str(port), *map(str, numbers)]
        return words + ([self.via] if self.via else [])


def client_hello(path, name):
    """The first bytes of a TLS client that wants `name`."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        pass
    path.write_bytes(outgoing.read())


class Net:
    def __init__(self, work, traffic):
        self.work, self.traffic = work, traffic
        tag = str(os.getpid())
        self.uplink, self.world, self.nat, self.pasta, self.slirp = (
            f"cella-bench-{name}-{tag}" for name in ("up", "world", "nat", "pasta", "slirp"))
        self._made, self._running = [], []

    # ---- set-up and removal

    def _namespace(self, name):
        netns.ip("netns", "add", name)
        self._made.append(name)
        netns.ip("link", "set", "lo", "up", ns=name)
        if CONGESTION != "host":
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw",
                            f"net.ipv4.tcp_congestion_control={CONGESTION}"], check=True)

    def _join(self, near, far, addresses, devices):
        netns.ip("link", "add", devices[0], "netns", near, "type", "veth", "peer", "name", devices[1], "netns", far)
        for ns, dev, address in zip((near, far), devices, addresses):
            netns.ip("addr", "add", address, "dev", dev, ns=ns)
            netns.ip("link", "set", dev, "up", ns=ns)

    def __enter__(self):
        for name in (self.uplink, self.world, self.nat):
            self._namespace(name)
        self._join(self.uplink, self.world, ("192.0.2.1/24", "192.0.2.2/24"), ("u0", "w0"))
        self._join(self.nat, self.uplink, ("10.77.0.2/30", "10.77.0.1/30"), ("c0", "r0"))
        for address in (SERVER, NAMED, names.RESOLVER):
            netns.ip("addr", "add", f"{address}/32", "dev", "lo", ns=self.world)
        netns.ip("route", "add", "default", "via", "192.0.2.2", ns=self.uplink)
        netns.ip("route", "add", "default", "via", "10.77.0.1", ns=self.nat)
        subprocess.run(["ip", "netns", "exec", self.uplink, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        subprocess.run(["ip", "netns", "exec", self.uplink, "nft", "-f", "-"], input=_NAT, text=True, check=True)
        self._names = names.Names(self.world)
        server = self.start(self.world, str(self.traffic), "serve", stdout=subprocess.PIPE)
        server.stdout.readline()
        self.hello = self.work / "hello"
        client_hello(self.hello, HOST)
        return self

    def start(self, ns, *words, **options):
        """A program that runs in the namespace until the end of the benchmark."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        process = subprocess.Popen(["ip", "netns", "exec", ns, *map(str, words)], **options)
        self._running.append(process)
        return process

    def __exit__(self, *_):
        for process in reversed(self._running):
            process.terminate()
        for process in self._running:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._names.close()
        for name in self._made:
            subprocess.run(["ip", "netns", "del", name], check=False)

    # ---- roads

    def wait_port(self, ns, address, port, process, seconds=15):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and process.poll() is None:
            sock = netns.inside(ns, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with sock:
                sock.settimeout(1)
                if sock.connect_ex((address, port)) == 0:
                    return
            time.sleep(0.05)
        raise Missing(f"{' '.join(process.args[4:6])} does not serve")

    def veth(self):
        return Road(netns.path(self.nat))

    def _tapped(self, ns, *words):
        """A user-space stack that puts a device into a namespace of its own."""
        if not shutil.which(words[0]):
            raise Missing("not installed")
        self._namespace(ns)
        process = self.start(self.uplink, *words)
        self.wait_port(ns, SERVER, 7003, process)
        return Road(netns.path(ns))

    def pasta_road(self):
        return self._tapped(self.pasta, "pasta", "-f", "-q", "--config-net", "--no-map-gw", "-t", "none", "-u", "none",
                            "-T", "none", "-U", "none", "--runas", "0", "--netns", netns.path(self.pasta))

    def slirp_road(self):
        return self._tapped(self.slirp, "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback",
                            "--netns-type=path", netns.path(self.slirp), "tap0")

    def proxy_road(self):
        if not shutil.which("tinyproxy"):
            raise Missing("not installed")
        config = self.work / "tinyproxy.conf"
        config.write_text(_TINYPROXY.format(log=self.work / "tinyproxy.log"))
        process = self.start(self.uplink, "tinyproxy", "-d", "-c", config)
        self.wait_port(self.nat, "10.77.0.1", 8888, process)
        return Road(netns.path(self.nat), via="proxy=10.77.0.1:8888")

    # ---- interception

    def authority(self):
        """A CA of the world, and its certificate for HOST; gives the CA's file."""
        ca, key = self.work / "ca.pem", self.work / "ca.key"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        run = {"check": True, "capture_output": True}
        subprocess.run(["openssl", "req", "-x509", *curve, "-keyout", key, "-out", ca, "-subj", "/CN=bench"], **run)
        subprocess.run(["openssl", "req", "-x509", "-CA", ca, "-CAkey", key, *curve, "-keyout", self.work / "leaf.key",
                        "-out", self.work / "leaf.pem", "-subj", f"/CN={HOST}", "-addext",
                        f"subjectAltName=DNS:{HOST},IP:{NAMED}", "-addext", "basicConstraints=critical,CA:FALSE"], **run)
        return ca

    def web_server(self):
        if not shutil.which("nginx") or not shutil.which("h2load"):
            raise Missing("nginx and h2load are not installed")
        config = self.work / "nginx.conf"
        config.write_text(_NGINX.format(work=self.work, body="x" * 1024))
        process = self.start(self.world, "nginx", "-c", config)
        self.wait_port(self.uplink, NAMED, 443, process)

    def mitmproxy(self, ca):
        """Its address; every connection to it is one to the web server."""
        if not shutil.which("mitmdump"):
            raise Missing("not installed")
        process = self.start(self.uplink, "mitmdump", "-q", "--mode", f"reverse:https://{NAMED}:443", "--listen-host",
                             "10.77.0.1", "-p", "9443", "--set", f"confdir={self.work / 'mitm'}", "--set",
                             "keep_host_header=true", "--set", "flow_detail=0", "--set",
                             f"ssl_verify_upstream_trusted_ca={ca}")
        self.wait_port(self.nat, "10.77.0.1", 9443, process)
        return "10.77.0.1:9443"


def pss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
