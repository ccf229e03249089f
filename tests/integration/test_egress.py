# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What a cell can reach. The rows of tests/egress/cases, judged by what arrived in the world; then what
rows cannot say: the gate's death, volume, the shape of the gate's namespace, accounting."""
import ast
import contextlib
import functools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness import PATIENCE
from harness import cella as harness
from harness import internet as world
from harness import names as zone
from harness import netns
from harness.cella import POLICIES, ROOT

EGRESS = ROOT / "tests" / "egress"
PROBE = ["/usr/bin/python3", "-I", "-S", "-c", harness.compiled(EGRESS / "probes.py")]
CASES = [case for path in sorted((EGRESS / "cases").glob("*.json")) for case in json.loads(path.read_text())]
# The rows that `make check` runs: one of each kind.
QUICK = {"tcp-port-443", "tcp-allowed", "tcp-other-port", "tcp-none", "metadata", "rfc1918-10", "gateway-host-port",
         "dns-cells-resolver", "dns-tcp", "quic", "ipv6-global", "raw-icmp", "own-loopback"}
# The rows that machines of the lab run: of each mechanism one that is let through and one that is not.
KVM = QUICK | {"dns-unlisted", "name-allowed", "name-raw", "sni-other", "ech-other-name", "not-tls-on-443", "rebind-private",
               "http-allowed", "http-other-path", "http-two-lengths", "tcp-deny-beats-allow", "tcp-beside-deny", "tcp-mail",
               "neighbour-cell", "host-public-address", "host-public-neighbour", "ipv6-mapped", "udp-spoofed", "udp-fragmented",
               "packet-socket", "mark-kept", "tcp-spoofed-source", "tcp-allowed-range", "tcp-port-after-range", "abstract-socket"}

CHAINS = ROOT / "tests" / "egress" / "chains.nft"
RESOLVING = {"path": "cella-enforcer-egress-nft.so", "config": {"resolvers": f"{zone.RESOLVER}:53"}}


class HostServices:
    """Listeners in the host's own namespace that no cell may reach; each connection is counted."""

    def __init__(self):
        self.accepted = 0
        self.tcp = socket.socket()
        self.tcp.bind(("0.0.0.0", 0))
        self.tcp.listen(16)
        self.port = self.tcp.getsockname()[1]
        self.abstract = f"cella-test-{os.getpid()}"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind("\0" + self.abstract)
        self.unix.listen(16)
        for listener in (self.tcp, self.unix):
            threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def _serve(self, listener):
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return
            self.accepted += 1

    def close(self):
        for listener in (self.tcp, self.unix):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()


@pytest.fixture(scope="module")
def services():
    found = HostServices()
    yield found
    found.close()


# Their answers cannot come back to who asked: the first packet is all there can be.
KNOCKS = {"ipv6-compatible", "tcp-spoofed-source"}


@contextlib.contextmanager
def own_echo(internet, port):
    """An echo server on the uplink namespace's own addresses, for twins that go no further than there."""
    listener = netns.inside(internet.uplink, socket.socket)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("", port))
    listener.listen(4)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as peer:
                    peer.sendall(peer.recv(100))
    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def policy_flag(policy):
    return policy if policy in ("none", "deny") else POLICIES / policy


@pytest.fixture(scope="module")
def names(internet):
    found = zone.Names(internet.world)
    yield found
    found.close()


class Facts:
    """What placeholders of the rows stand for, found when a row asks: most ask for none, and each may cost a cell."""

    def __init__(self, **find):
        self.find, self.found = find, {}

    def __getitem__(self, name):
        if name not in self.found:
            self.found[name] = str(self.find[name]())
        return self.found[name]

    def __setitem__(self, name, value):
        self.found[name] = value


@pytest.fixture(scope="module")
def reach(session_cella, module_cells, services, names):
    """reach(policy): the name of a shared cell under this policy, with what placeholders stand for."""
    def made(*flags):
        with session_cella.configured(plugins=[RESOLVING]):
            return module_cells(*flags)

    def address_of(cell):
        return (session_cella.inspect(cell).get("address") or "").split("/")[0]

    def facts(policy):
        cell = functools.partial(made, "--policy", policy_flag(policy))
        return Facts(host_port=lambda: services.port, abstract=lambda: services.abstract, address=lambda: address_of(cell()),
                     neighbour=lambda: address_of(made("--policy", "deny", "--hostname", "neighbour")),
                     gateway=lambda: session_cella.inspect(cell()).get("gateway") or _gateway(session_cella, cell()))

    def get(policy):
        return made("--policy", policy_flag(policy)), facts(policy)

    get.facts = facts
    return get


def _gateway(cella, cell):
    """From the cell's own routes."""
    for line in cella("exec", cell, "--", "cat", "/proc/net/route").ok().text.splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000":
            return socket.inet_ntoa(bytes.fromhex(fields[2])[::-1])
    return ""


def _fill(value, facts):
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda match: facts[match.group(1)], value)
    if isinstance(value, dict):
        return {k: _fill(v, facts) for k, v in value.items()}
    return [_fill(v, facts) for v in value] if isinstance(value, list) else value


def probe(cella, cell, name, *args):
    return ast.literal_eval(cella("exec", cell, "--", *PROBE, name, *args, timeout=60).ok().text)


def bare(internet, name, *args):
    """The same probe outside any cell, in the namespace that gates dial from."""
    command = ["ip", "netns", "exec", internet.uplink, *PROBE, name, *map(str, args)]
    return ast.literal_eval(subprocess.run(command, capture_output=True, timeout=60 * PATIENCE, check=True).stdout.decode())


@contextlib.contextmanager
def marked(cella, cell):
    """Every packet from the cell has the mark by which the gate knows its own."""
    nft = ["nsenter", f"--net={netns.of_gate(cella, cell)}", "nft"]
    mark = re.search(r"#define GATE_MARK (0x[0-9a-f]+)u", (ROOT / "policy" / "egress-nft" / "ctl.h").read_text()).group(1)
    rules = (f'table netdev test {{\n chain in {{\n type filter hook ingress device "cell0" priority -10; policy accept;\n'
             f' meta mark set {mark}\n }}\n}}\n')
    subprocess.run(nft + ["-f", "-"], input=rules, text=True, check=True)
    try:
        yield
    finally:
        subprocess.run(nft + ["delete", "table", "netdev", "test"], check=True)


def _marks(case):
    named = [pytest.mark.quick] * (case["id"] in QUICK) + [pytest.mark.kvm] * (case["id"] in KVM)
    return named + [pytest.mark.shares(case["policy"])]


@pytest.mark.parametrize("case", [pytest.param(c, id=c["id"], marks=_marks(c)) for c in CASES])
def test_case(cella, internet, services, names, reach, case):
    cell, facts = reach(case["policy"])
    args, event = _fill(case["args"], facts), _fill(case["event"], facts)
    seen = len(cella.events(cell))
    accepted, mark, asked = services.accepted, internet.quiet(), len(names.questions)
    with marked(cella, cell) if case.get("given") == "marked" else contextlib.nullcontext():
        answer = probe(cella, cell, case["probe"], *args)
    packets = [p for p in internet.packets_since(mark) if (p.dst, p.port) != (zone.RESOLVER, 53)]
    assert set(names.questions[asked:]) <= set(case.get("asks", [])), names.questions[asked:]
    if case["expect"] == "deny":
        assert not packets and not internet.connections_since(mark), (answer, packets)
        assert services.accepted == accepted, answer
    elif case["expect"] == "no-bytes":
        assert internet.received(mark) == 0, (answer, packets)
    else:
        harness.wait_until(lambda: internet.received(mark) > 0, what=f"bytes at the server: {answer} {packets}")
    assert set(answer["result"].split("/")) <= set(case["client"]), answer
    if event:
        cella.wait_event(cell, event, after=seen)
    _twin(cella, internet, reach, case)


def _twin(cella, internet, reach, case):
    """The row could have failed: without the guard, the world does see this probe."""
    if case["twin"] in (None, "self"):
        assert case["twin"] is None or case["expect"] == "allow"
        return
    mark = internet.quiet()
    if case["twin"] == "bare":
        facts = reach.facts("deny")
        if case["policy"] == "names.json" and not case["probe"].startswith("dns"):
            facts["gateway"] = zone.RESOLVER  # outside, names come from their own server
        args = _fill(case["args"], facts)
        with own_echo(internet, int(args[1])) if case["probe"] == "tcp" else contextlib.nullcontext():
            answer = bare(internet, case["probe"], *args)
        harness.wait_until(lambda: any(case["id"] in KNOCKS or p.size for p in internet.packets_since(mark, 0)), what=f"bytes at the world: {answer}")
    else:
        cell, facts = reach(case["twin"])
        answer = probe(cella, cell, case["probe"], *_fill(case["args"], facts))
        assert "ok" in answer["result"], answer
        harness.wait_until(lambda: internet.received(mark) > 0, what=f"bytes at the server: {answer}")


@pytest.mark.quick
def test_cases_are_well_formed():
    assert len({c["id"] for c in CASES}) == len(CASES)
    assert KVM | QUICK | KNOCKS <= {c["id"] for c in CASES}
    for case in CASES:
        assert case.get("given") in (None, "marked")
        assert set(case) - {"asks", "given"} == {"id", "technique", "policy", "probe", "args", "expect", "client", "event", "twin"}
        assert case["expect"] in ("deny", "no-bytes") or (case["expect"], case["twin"]) == ("allow", "self")
        assert case["policy"] in ("none", "deny") or (POLICIES / case["policy"]).is_file()
        assert "timeout" not in case["client"] or case["event"] is None or case["probe"] != "tcp"


def _numbered(name):
    """The rows of a table in tests/egress: number to its text."""
    found = {}
    for line in (EGRESS / name).read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0].isdigit():
            assert int(cells[0]) not in found, line
            found[int(cells[0])] = line
    return found


@pytest.mark.quick
def test_every_technique_has_a_row_or_a_reason():
    covered, other = _numbered("coverage.md"), _numbered("not-executable.md")
    assert not set(covered) & set(other) and set(covered) | set(other) == set(range(1, 75))
    rows = {c["id"] for c in CASES}
    reach = "".join(p.read_text() for p in sorted((ROOT / "policy" / "egress-nft").glob("expect*.c")))
    for number, line in {**covered, **other}.items():
        words = [w for w in re.findall(r"`([^`]+)`", line) if "::" in w] if number in other else re.findall(r"`([^`]+)`", line)
        assert words or number in other, line
        for word in words:
            if "::" in word:
                name, test = word.split("::")
                texts = [p.read_text() for p in (ROOT / "tests").rglob(name)]
                assert any(re.search(rf"\b{test}\(", t) for t in texts), word
            elif "." in word:
                assert f'"{word}"' in reach, word
            else:
                assert word in rows, word


@pytest.mark.kvm
@pytest.mark.quick
@pytest.mark.shares("deny")
def test_none_has_no_device_and_deny_has_one(cella, reach):
    assert probe(cella, reach("none")[0], "devices")["names"] == ["lo"]
    assert len(probe(cella, reach("deny")[0], "devices")["names"]) == 2


@pytest.mark.lab
@pytest.mark.shares("wide.json")
def test_denied_dns_sends_nothing_upstream(cella, internet, reach):
    cell, facts = reach("wide.json")
    mark = internet.quiet()
    for number in range(20):
        probe(cella, cell, "dns_udp", facts["gateway"], f"n{number}.example.com")
    assert not [p for p in internet.packets_since(mark) if p.port == 53]


@pytest.mark.kvm
@pytest.mark.shares("echo.json")
def test_volume_and_half_close(cella, internet, reach):
    """Both directions, unchanged, and the end of one direction does not end the other."""
    source = """import hashlib, os, socket, threading
s = socket.create_connection(('203.0.113.10', 8080), 10)
data, got = os.urandom(1 << 20) * 4, bytearray()
def read():
    while len(got) < len(data):
        more = s.recv(65536)
        if not more: break
        got.extend(more)
t = threading.Thread(target=read); t.start()
s.sendall(data); t.join(30)
print(hashlib.sha256(data).hexdigest() == hashlib.sha256(got).hexdigest(), len(got))"""
    cell, _ = reach("echo.json")
    assert cella("exec", cell, "--", "python3", "-c", source).ok().text == f"True {4 << 20}"


@pytest.mark.lab
@pytest.mark.shares("echo.json")
def test_many_connections_at_once(cella, internet, reach):
    source = """import socket
all = [socket.create_connection(('203.0.113.10', 8080), 10) for _ in range(100)]
for n, s in enumerate(all): s.sendall(b'%03d' % n)
print(all and sum(s.recv(3) == b'%03d' % n for n, s in enumerate(all)))"""
    cell, _ = reach("echo.json")
    assert cella("exec", cell, "--", "python3", "-c", source).ok().text == "100"


@pytest.mark.lab
@pytest.mark.shares("echo.json")
def test_reader_that_is_slow_costs_no_memory(cella, internet, reach):
    """A server that sends without end to a cell that does not read."""
    source = "import socket, time\ns = socket.create_connection(('203.0.113.10', 19), 10)\ns.recv(1)\ntime.sleep(2)"
    cell, _ = reach("echo.json")
    gate = cella.gate(cell)
    cella("exec", cell, "--", "python3", "-c", source).ok()
    assert harness.rss_bytes(gate) < 32 << 20


@pytest.mark.kvm
def test_bytes_are_accounted_to_the_rule(cella, internet):
    with cella.copy("--policy", POLICIES / "echo.json") as cell:
        assert probe(cella, cell, "tcp", world.ECHO, 8080)["result"] == "ok"
        probe(cella, cell, "tcp", world.ECHO2, 8080)
        flows = cella.inspect(cell)["egress"]
    allowed = [f for f in flows if f["rule"] == "echo"]
    assert allowed and sum(f["tx_bytes"] for f in allowed) == 11 and sum(f["rx_bytes"] for f in allowed) == 11, flows
    assert [f for f in flows if f["denied"] and world.ECHO2 in f["destination"]], flows


@pytest.mark.kvm
@pytest.mark.shares("echo.json")
def test_allowed_flow_is_an_event_with_its_rule(cella, reach):
    cell, _ = reach("echo.json")
    probe(cella, cell, "tcp", world.ECHO, 7003)
    cella.wait_event(cell, {"kind": "net.allow", "rule": "echo", "dst": world.ECHO, "port": 7003})


@pytest.mark.lab
def test_many_denials_are_bounded_and_counted(cella, internet):
    """A cell that knocks thousands of times neither floods the audit nor hides how often it knocked."""
    source = """import socket
for n in range(3000):
    s = socket.socket(); s.settimeout(2)
    try: s.connect(('203.0.113.10', 20000 + n))
    except OSError: pass
    s.close()"""
    with cella.copy() as cell:
        seen, began = len(cella.events(cell)), time.monotonic()
        cella("exec", cell, "--", "python3", "-c", source, timeout=120).ok()
        chain = cella.state / "audit" / f"{cella.inspect(cell)['id']}.jsonl"
    denials = [e for e in cella.events(chain)[seen:] if e["kind"] == "net.deny"]
    bound = 256 + 64 * (time.monotonic() - began)  # at once, and a second (gate/events.c)
    assert 0 < len(denials) <= bound + 16, (len(denials), bound)
    assert sum(e.get("count", 1) + e.get("suppressed", 0) for e in denials) >= 3000


@pytest.mark.kvm
@pytest.mark.shares("wide.json")
def test_no_two_cells_share_a_link(cella, internet, reach):
    """A listener in one cell, a connection from another: no path, in either direction."""
    cell, facts = reach("wide.json")
    other = facts["neighbour"]
    source = """import select, socket, sys
s = socket.socket(); s.bind(('0.0.0.0', 8080)); s.listen(1)
print('ready', flush=True)
print('reached by %s' % (s.accept()[1],) if s in select.select([s, sys.stdin], [], [])[0] else 'nobody')"""
    listener = cella.spawn("exec", "-i", cell, "--", "python3", "-c", source, stdin=subprocess.PIPE)
    assert listener.stdout.readline() == b"ready\n"
    with cella.copy("--policy", POLICIES / "wide.json") as second:
        probe(cella, second, "tcp", facts["address"], 8080)
    assert b"nobody" in listener.communicate(timeout=20 * PATIENCE)[0]  # it listened until now: its input ends here
    assert other != facts["address"]


@pytest.mark.lab
def test_network_root_in_the_cells_namespace(cella, internet):
    """As if the cell had every right over its own network: other sources, raw packets, IPv6. The gate side holds."""
    if cella.backend != "container":
        pytest.skip("the cell's network namespace is not the host kernel's")
    with cella.copy("--policy", POLICIES / "wide.json") as cell:
        inside = ["nsenter", f"--net=/proc/{cella.agent(cell)}/ns/net"]
        device = [n for n in probe(cella, cell, "devices")["names"] if n != "lo"][0]
        mark = internet.quiet()
        for command in (["nft", "flush", "ruleset"], ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=0"],
                        ["ip", "-6", "addr", "add", "2001:db8:7::2/64", "dev", device, "nodad"],
                        ["ip", "-6", "route", "add", "default", "dev", device]):
            subprocess.run(inside + command, capture_output=True)
        for words in (["udp", world.ECHO, "9998", "203.0.113.99"], ["spoofed_tcp", world.ECHO, "8080", "203.0.113.99"],
                      ["open_socket", "2", "3", "1"], ["open_socket", "2", "3", "47"], ["open_socket", "2", "3", "132"],
                      ["udp", world.ECHO, "9996"], ["tcp", "2001:db8:9::10", "8080"], ["ping", "2001:db8:9::10"],
                      ["udp", "224.0.0.251", "5353"], ["tcp", "169.254.169.254", "80"]):
            subprocess.run([*inside, *PROBE, *words], capture_output=True, timeout=30 * PATIENCE)
        assert not internet.packets_since(mark) and not internet.connections_since(mark)
        for wanted in ({"reason": "source_spoofed"}, {"proto": "icmp"}, {"proto": "47"}, {"reason": "hard_deny"}):
            cella.wait_event(cell, {"kind": "net.deny", **wanted})
        assert probe(cella, cell, "tcp", world.ECHO, 8080)["result"] == "ok"  # twin: the link is up all the while


ADVERTISE = """import socket, struct, sys
device = sys.argv[1]
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((device, 0))
mac = s.getsockname()[4]
source, group = socket.inet_pton(socket.AF_INET6, 'fe80::1'), socket.inet_pton(socket.AF_INET6, 'ff02::1')
prefix = struct.pack('!BBBBIII', 3, 4, 64, 0xc0, 86400, 86400, 0) + socket.inet_pton(socket.AF_INET6, '2001:db8:bad::')
body = struct.pack('!BBHBBHII', 134, 0, 0, 64, 0, 1800, 0, 0) + struct.pack('!BB', 1, 1) + mac + prefix
pseudo = source + group + struct.pack('!II', len(body), 58)
words = struct.unpack(f'!{(len(pseudo) + len(body)) // 2}H', pseudo + body)
check = sum(words); check = (check & 0xffff) + (check >> 16); check = ~((check & 0xffff) + (check >> 16)) & 0xffff
body = body[:2] + struct.pack('!H', check) + body[4:]
head = struct.pack('!IHBB', 6 << 28, len(body), 58, 255) + source + group
for _ in range(3): s.send(bytes.fromhex('333300000001') + mac + b'\\x86\\xdd' + head + body)"""


@pytest.mark.lab
def test_router_advertisement_changes_nothing(cella, internet):
    """Sent by whoever owns the cell's network: the gate's side learns no address and no route, and says that it came."""
    if cella.backend != "container":
        pytest.skip("the cell's network namespace is not the host kernel's")
    with cella.copy() as cell:
        gate = ["nsenter", f"--net={netns.of_gate(cella, cell)}", "ip", "-6"]
        device = [n for n in probe(cella, cell, "devices")["names"] if n != "lo"][0]

        def known():
            return [subprocess.run(gate + words, capture_output=True, text=True, check=True).stdout
                    for words in (["route", "show", "table", "all"], ["addr"])]
        before = known()
        subprocess.run(["nsenter", f"--net=/proc/{cella.agent(cell)}/ns/net", "/usr/bin/python3", "-c", ADVERTISE, device],
                       check=True, timeout=20 * PATIENCE)
        cella.wait_event(cell, {"kind": "net.deny", "reason": "ipv6_closed"})
        assert known() == before
        # twin: where advertisements are taken, this one is
        made = f"cella-ra-{os.getpid()}"
        try:
            subprocess.run(["ip", "netns", "add", made], check=True)
            listen = ["ip", "netns", "exec", made]
            for words in (["ip", "link", "add", "r0", "type", "veth", "peer", "name", "r1"], ["ip", "link", "set", "r0", "up"],
                          ["sysctl", "-qw", "net.ipv6.conf.r1.accept_ra=2"], ["ip", "link", "set", "r1", "up"],
                          ["sh", "-c", "while ip -6 addr show dev r1 | grep -q tentative; do sleep 0.1; done"],
                          ["/usr/bin/python3", "-c", ADVERTISE, "r0"]):
                subprocess.run(listen + words, check=True, timeout=20 * PATIENCE)
            routes = lambda: subprocess.run(listen + ["ip", "-6", "route", "show"], capture_output=True, text=True, check=True).stdout
            harness.wait_until(lambda: "2001:db8:bad::/64" in routes(), what="the advertised route")
        finally:
            subprocess.run(["ip", "netns", "del", made], check=False)


@pytest.mark.kvm
@pytest.mark.shares("names.json")
def test_flow_outlives_the_ttl_of_its_name(cella, names, reach):
    """An address that may not be used any more is for new connections; what is open goes on, and a new one asks again."""
    cell, facts = reach("names.json")
    asked = len(names.questions)
    assert probe(cella, cell, "outlives", facts["gateway"], "git.example.com", 22)["result"] == "ok"
    assert names.questions[asked:].count("git.example.com") >= 2


# ---- the gate


@pytest.mark.kvm
@pytest.mark.shares("deny")
def test_gate_namespace_has_no_way_out(cella, reach):
    """Policy drop on all three hooks, no forwarding, no interface but the link and loopback."""
    cell, _ = reach("deny")
    enter = ["nsenter", f"--net={netns.of_gate(cella, cell)}"]
    rules = subprocess.run(enter + ["nft", "list", "ruleset"], capture_output=True, text=True).stdout
    for hook in ("input", "forward", "output"):
        assert any(f"hook {hook}" in line and "policy drop" in line for line in rules.splitlines()), rules
    text = subprocess.run(enter + ["ip", "-o", "link"], capture_output=True, text=True).stdout
    links = [line.split(": ")[1].split("@")[0] for line in text.splitlines()]
    assert len([name for name in links if name != "lo"]) == 1, links


@pytest.mark.lab
@pytest.mark.shares("deny")
def test_the_chains_are_the_written_ones(cella, reach):
    """The rules as nft reads them back, line by line: what policy/egress-nft/ruleset.c has in its tables."""
    cell, facts = reach("deny")
    enter = ["nsenter", f"--net={netns.of_gate(cella, cell)}"]
    rules = subprocess.run(enter + ["nft", "list", "ruleset"], capture_output=True, text=True).stdout
    found = re.sub(r"packets \d+ bytes \d+", "packets 0 bytes 0", rules[rules.index("\tchain deny {"):])
    wanted = "".join(line for line in CHAINS.read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert found.split() == wanted.replace("CELL", facts["address"]).split() + ["}"]


@pytest.mark.kvm
@pytest.mark.parametrize("policy", ["deny", "echo.json"])
def test_gate_killed_nothing_passes_and_the_cell_ends(cella, internet, policy):
    with cella.copy("--policy", policy_flag(policy)) as cell:
        gate, mark = cella.gate(cell), internet.quiet()
        os.kill(gate, signal.SIGKILL)
        late = cella("exec", cell, "--", *PROBE, "tcp", world.ECHO, 8080)
        assert late.status != 0 or ast.literal_eval(late.text)["result"] != "ok", late
        harness.wait_until(lambda: cella.ended(cell), 20, "the end of the cell")
        assert internet.received(mark) == 0


@pytest.mark.kvm
def test_gate_stopped_nothing_passes(cella, internet):
    """A gate that hangs is no open gate."""
    with cella.copy("--policy", POLICIES / "echo.json") as cell:
        gate, mark = cella.gate(cell), internet.quiet()
        os.kill(gate, signal.SIGSTOP)
        try:
            answer = cella("exec", cell, "--", "timeout", "4", *PROBE, "tcp", world.ECHO, 8080)
            assert answer.status == 124 or ast.literal_eval(answer.text)["result"] != "ok"
            assert internet.received(mark) == 0
        finally:
            os.kill(gate, signal.SIGCONT)


@pytest.mark.kvm
def test_slot_is_clean_for_its_next_owner(cella, internet):
    """What one cell was allowed, the next at the same address is not."""
    addresses = []
    for policy, result in (("echo.json", {"ok"}), ("deny", {"ECONNREFUSED", "ECONNRESET"})):
        with cella.copy("--policy", policy_flag(policy)) as cell:
            addresses.append(cella.inspect(cell).get("address"))
            assert probe(cella, cell, "tcp", world.ECHO, 8080)["result"] in result
    assert addresses[0] == addresses[1]
