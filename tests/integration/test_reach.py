# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""cella reach: it says pass where the wall holds, fail where it does not, and never takes silence for proof. Judged by
the world outside: nothing of a measurement may get there."""
import contextlib
import json
import os
import pathlib
import signal

import pytest

from harness import PATIENCE
from harness import internet as world
from harness.cella import POLICIES

BROKEN = "tests/hostile/broken-enforcer.so"
TWICE = """import socket
for _ in range(2):
    s = socket.create_connection(('203.0.113.10', 8080), 10); s.sendall(b'hello'); print(s.recv(5).decode())"""


def policy_flag(policy):
    if isinstance(policy, pathlib.Path):
        return policy
    return policy if policy in ("none", "deny") else POLICIES / policy


def rows(report, **wanted):
    return [r for r in report["rows"] if all(r[k] == v for k, v in wanted.items())]


def ids(report, **wanted):
    return {r["id"] for r in rows(report, **wanted)}


def wrong(report):
    """What is not as it should be, in few words."""
    return [f"{r['result']} {r['id']} {r['kind']} {r['address']}:{r['port']} {r['name']} {r['options']}: {r['saw']}; "
            f"{json.dumps(r['try'])} {json.dumps(r.get('twin'))}" for r in report["rows"] if r["result"] != "pass"][:8]


@pytest.fixture
def throw_away(cella):
    """throw_away(policy): the report of a measurement in a cell of its own, and the status."""
    def go(policy, *flags):
        done = cella("reach", "--json", "--backend", cella.backend, "--policy", policy_flag(policy), *flags)
        return done.json() if done.out else done, done.status
    return go


@pytest.mark.quick
def test_live_cell_passes_and_nothing_leaves(cella, internet):
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        mark = internet.quiet()
        report = cella("reach", cell, "--json").ok().json()
        assert not internet.packets_since(mark) and not internet.connections_since(mark)
        assert report["verdict"] == "pass" and report["fail"] == report["not_measured"] == 0
        allowed = rows(report, expected="allow")
        assert allowed and {r["rule"] for r in allowed} == {"echo"}
        assert all(r["try"]["bytes"] > 0 for r in allowed)
        assert all(r["twin"]["bytes"] > 0 or r["twin"]["got"] > 0 for r in rows(report, expected="deny"))
        # the same destinations are real again, and were for the workload all the while
        mark = internet.quiet()
        assert cella("exec", cell, "--", "python3", "-c", TWICE).ok().text.split() == ["hello", "hello"]
        assert internet.received(mark) == 10
        assert "cella-probe" not in cella("exec", cell, "--", "ls", "-a", "/tmp").ok().text


@pytest.mark.parametrize("policy", ["none", "deny", "empty.json", "wide.json", "denied.json", "public.json"])
def test_throw_away_cell(cella, internet, throw_away, policy):
    mark = internet.quiet()
    report, status = throw_away(policy)
    assert status == 0 and report["verdict"] == "pass", "\n".join(wrong(report))
    assert not internet.packets_since(mark)
    groups = {r["group"] for r in rows(report, expected="deny", result="pass")}
    assert {"dns", "outside", "metadata", "private", "gateway", "neighbours", "ipv6", "icmp", "multicast"} <= groups
    assert bool(rows(report, expected="allow")) == (policy in ("wide.json", "denied.json", "public.json")), report["rows"]


NAMES = [{"id": "api", "host": "api.example.com", "ports": [443]},
         {"id": "wild", "host": "*.files.example.org", "ports": [443, "8000-8010"]},
         {"id": "ssh", "host": "git.example.com", "ports": [22], "layer": "raw"},
         {"id": "turn", "host": "turn.example.com", "ports": [3478], "proto": "udp", "layer": "raw"},
         {"id": "ntp", "cidr": "203.0.113.7/32", "ports": [123], "proto": "udp", "layer": "raw"}]
WEB = [{"id": "web", "host": "www.example.com", "ports": [80], "layer": "http",
        "http": {"methods": ["GET"], "paths": ["/v1/**"]}}]


@pytest.mark.lab
@pytest.mark.parametrize("mode", ["synthetic", "real"])
def test_rules_by_name(cella, internet, throw_away, tmp_path, mode):
    path = tmp_path / "names.json"
    path.write_text(json.dumps({"version": 1, "dns": {"mode": mode}, "allow": NAMES}))
    mark = internet.quiet()
    report, status = throw_away(path)
    assert not internet.packets_since(mark)  # no question either
    assert status == 0, "\n".join(wrong(report))
    opened = {(r["kind"], r["rule"]) for r in rows(report, expected="allow", result="pass")}
    assert {("tls", "api"), ("dns-udp", "api"), ("tls", "wild"), ("tls", "ssh"), ("udp", "turn"), ("udp", "ntp")} <= opened
    closed = " ".join(r["why"] for r in rows(report, group="names", expected="deny", result="pass"))
    for words in ("another server name", "without a server name", "no TLS where", "a port that the rule does not open",
                  "a name below it", "the name above it", "ends like it", "begins like it"):
        assert words in closed


def network(i):
    return {"id": f"n{i}", "cidr": f"203.{i // 250}.{i % 250}.0/24", "ports": [443], "proto": "tcp", "layer": "raw"}


def test_five_hundred_rules_are_measured_whole(cella, internet, throw_away, tmp_path):
    share = 8 if os.environ.get("LAB_VM") else 100  # the lab's processor is emulated
    nets = [network(i) for i in range(2 * share)]
    names = [{"id": f"t{i}", "host": f"t{i}.example.com", "ports": [443]} for i in range(2 * share)]
    web = [dict(WEB[0], id=f"w{i}", host=f"w{i}.example.com") for i in range(share)]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"version": 1, "limits": {"rules": 500}, "allow": nets + names + web}))
    mark = internet.quiet()
    report, status = throw_away(path, "--timeout", "40s")  # on a slow host it needs more than it is given else
    assert not internet.packets_since(mark)
    assert status == 0, "\n".join(wrong(report))
    assert {r["rule"] for r in rows(report, expected="allow", result="pass")} == {r["id"] for r in nets + names + web}
    assert report["pass"] > 30 * share


def test_rules_beyond_a_measurement_are_not_passed(cella, internet, throw_away, tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"version": 1, "limits": {"rules": 2010}, "allow": [network(i) for i in range(2010)]}))
    report, status = throw_away(path)
    assert status == 2 and not ids(report, result="fail"), rows(report, result="fail")
    assert "rest.tcp" in ids(report, result="not_measured")
    assert rows(report, id="rest.tcp")[0]["why"].startswith("10 more")


LIVE = """import socket, sys, time
s = socket.create_connection(('203.0.113.10', 8080), 10); s.settimeout(20)
print('open', flush=True)
while not sys.stdin.closed:
    s.sendall(b'x'); assert s.recv(1) == b'x'; print('x', flush=True); time.sleep(0.01)"""


@pytest.mark.quick
def test_connections_from_before_a_tightening(cella, internet):
    """Opened as under a looser policy, ended by the one in force; and nothing of the cell's own is any other for it."""
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        live = cella.spawn("exec", cell, "--", "python3", "-c", LIVE)
        assert live.stdout.readline() == b"open\n"
        mark = internet.quiet()
        report = cella("reach", cell, "--json").ok().json()
        assert not [p for p in internet.packets_since(mark) if (p.dst, p.port) != (world.ECHO, 8080)]
        assert live.poll() is None  # all the while it was answered
        live.kill()
        live.communicate()
    ended, lives = rows(report, group="tighten", expected="deny"), rows(report, group="tighten", expected="allow")
    assert {"tighten.tcp", "tighten.metadata", "tighten.private", "tighten.neighbour", "tighten.udp"} <= {r["id"] for r in ended}
    assert all(r["try"]["carried"] and r["try"]["refused"] and not r["try"]["bytes"] and r["twin"]["got"] > 0 for r in ended)
    assert {r["id"] for r in lives} == {"tighten.kept"} and lives[0]["try"]["got"] > 0
    assert all(r["try"]["us"] < 5_000_000 for r in ended)  # the change cut them: nothing else does while it is measured


@pytest.mark.parametrize("policy", ["deny", "wide.json"])
def test_where_a_redirect_leads(cella, internet, throw_away, policy):
    mark = internet.quiet()
    report, _ = throw_away(policy)
    assert not internet.packets_since(mark)
    led = {r["id"]: r for r in rows(report, group="redirects")}
    assert {r["result"] for r in led.values()} == {"pass"}
    assert {"redirect.metadata", "redirect.private", "redirect.gateway", "redirect.name"} <= ids(report, group="redirects", expected="deny")
    assert led["redirect.address"]["expected"] == ("allow" if policy == "wide.json" else "deny")
    assert all(r["twin"]["got"] > 0 and r["twin"]["bytes"] > 0 for r in led.values() if r["expected"] == "deny")


def test_requests_of_http_rules(cella, internet, throw_away, tmp_path):
    path = tmp_path / "web.json"
    path.write_text(json.dumps({"version": 1, "allow": WEB}))
    mark = internet.quiet()
    report, status = throw_away(path)
    assert not internet.packets_since(mark)
    assert status == 0, "\n".join(wrong(report))
    requests = rows(report, kind="http")
    first = [r for r in requests if not r["options"].startswith("reuse")]
    assert len([r for r in first if r["expected"] == "allow" and r["try"]["bytes"]]) == 1
    assert {"a request for another host", "a request with two lengths", "a method that the rule does not allow",
            "a path that the rule does not allow", "a tunnel through the relay", "a target that names another host",
            "an upgrade that the rule does not allow"} == {r["why"] for r in first if r["expected"] == "deny"}
    second = {r["id"].rsplit(".", 1)[0]: r for r in requests if r["options"].startswith("reuse")}
    assert set(second) == {"reuse.same", "reuse.host", "reuse.redirect", "reuse.method", "reuse.path"}
    assert second.pop("reuse.same")["try"]["bytes"] > 0
    assert all(r["try"]["connected"] and not r["try"]["bytes"] and r["twin"]["bytes"] for r in second.values())


def test_result_is_recorded_and_goes_stale(cella):
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        assert "reach" not in cella.inspect(cell)
        report = cella("reach", cell, "--json").ok().json()
        event = cella.wait_event(cell, {"kind": "reach.result", "verdict": "pass"})
        assert event["pass"] == report["pass"] and event["matrix"] == report["matrix"] and event["gen"] == 1
        assert event["backend"] == cella.backend and event["backend_build"] and event["enforcer_build"]
        found = cella.inspect(cell)
        assert event["policy"] == found["policy"]["sha256"] and event["image"] == found["digest"]
        assert found["reach"]["stale"] is False and found["reach"]["bound"]["generation"] == 1
        cella("policy", "set", cell, POLICIES / "wide.json").ok()
        assert cella.inspect(cell)["reach"]["stale"] is True
        cella("reach", cell).ok()
        found = cella.inspect(cell)["reach"]
        assert found["stale"] is False and found["bound"]["generation"] == 2


def test_measurement_is_no_use_of_the_network(cella):
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        cella("reach", cell).ok()
        assert not cella.inspect(cell)["egress"]
        assert all(e.get("probe") is True for e in cella.events(cell) if e["kind"] == "net.deny")


@pytest.mark.quick
def test_table_answers_in_words(cella):
    text = cella("reach", "--backend", cella.backend, "--policy", POLICIES / "echo.json").ok().text
    lines = text.splitlines()
    assert lines[0].startswith("PASS") and "0 failed, 0 not measured" in lines[0]
    assert "FAILED" not in text
    reachable, closed = text.index("reachable"), text.index("proved closed")
    assert reachable < text.index("rule echo") < closed and "203.0.113.10:8080" in text[reachable:closed]
    assert text[reachable:closed].count("rule echo: 203.0.113.10") == 4  # each of its four ranges of ports
    assert "ports 7000 to 7009, layer raw" in text[reachable:closed]


def test_table_fits_a_screen(cella, tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"version": 1, "allow": [network(i) for i in range(45)] + NAMES}))
    lines = cella("reach", "--backend", cella.backend, "--policy", path).ok().text.splitlines()
    assert len(lines) < 70 and "  … and 20 more ways that rules open; --json has all of them" in lines
    assert all(len(line) < 170 for line in lines[1:])


# ---- enforcers that lie

@pytest.fixture
def broken(cella, internet):
    """broken(lie): a measurement under egress-nft with this lie."""
    def go(lie, *words):
        plugin = {"path": str(cella.build / BROKEN), "config": {"lie": lie}}
        with cella.configured(plugins=[plugin]):
            return cella("reach", "--backend", cella.backend, "--policy", "deny", *words)
    return go


@pytest.mark.quick
def test_enforcer_that_opens_more_than_it_says(broken):
    report = broken("wide", "--json").ok(1).json()
    assert report["verdict"] == "fail"
    assert {"tcp.443", "dns.doh"} <= ids(report, result="fail")
    assert ids(report, result="fail") <= {r["id"] for r in report["rows"] if r["port"] == 443 and r["kind"] == "tcp"}
    lines = broken("wide").ok(1).text.splitlines()
    assert lines[0].startswith("FAIL") and lines[2] == "FAILED" and "must be closed: bytes arrived" in lines[3]
    assert lines.index("FAILED") < lines.index("reachable, and bytes arrived")


def test_enforcer_that_opens_less_than_it_says(broken):
    report = broken("shut", "--json").ok(1).json()
    assert ids(report, result="fail") == {"claimed"}


def test_sink_that_sees_nothing_proves_nothing(broken):
    done = broken("blind", "--json").ok(2)
    report = done.json()
    assert report["verdict"] == "not_measured" and report["fail"] == 0
    assert {"tcp.443", "metadata.aws", "dns.a"} <= ids(report, result="not_measured")
    assert "NOT MEASURED" in broken("blind").ok(2).text


def test_enforcer_that_keeps_what_was_open(broken):
    report = broken("loose", "--json").ok(1).json()
    assert ids(report, result="fail") == ids(report, group="tighten")


def test_row_that_would_be_two_lines(broken):
    broken("forged").one_line(125, "malformed")


def test_the_wrapper_itself_is_honest(broken):
    assert broken("none", "--json").ok().json()["verdict"] == "pass"


def test_enforcer_without_a_matrix(cella):
    path = next(cella.build.rglob("cella-enforcer-null.so"), None)
    if path is None:
        pytest.skip("the example enforcer is not built here")
    with cella.configured(plugins=[{"path": str(path)}]):
        cella("reach", "--backend", cella.backend, "--policy", "none").one_line(125, "expect")


# ---- cells that do not want to be looked at

KILLER = """import os, signal
print('ready', flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            if b'cella-' + b'probe' in open(f'/proc/{pid}/cmdline', 'rb').read(): os.kill(int(pid), signal.SIGKILL)
        except OSError: pass"""

SQUATTER = """import socket, time
held = []
for port in range(20000, 32768, 16):
    s = socket.socket(); s.bind(('0.0.0.0', port)); s.listen(); held.append(s)
print('ready', flush=True); time.sleep(600)"""


def _beside(cella, cell, source):
    process = cella.spawn("exec", cell, "--", "python3", "-c", source)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_cell_that_kills_the_probe(cella):
    with cella.cell() as cell:
        process = _beside(cella, cell, KILLER)
        done = cella("reach", cell)
        assert done.status in (125, 2), done
        assert not [e for e in cella.events(cell) if e["kind"] == "reach.result" and e["verdict"] == "pass"]
        process.kill()
        process.wait()


def test_ports_taken_are_not_measured(cella):
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        process = _beside(cella, cell, SQUATTER)
        report = cella("reach", cell, "--json").ok(2).json()
        assert report["fail"] == 0 and report["not_measured"] > 0
        assert all("could not try" in r["saw"] or "twin" in r["saw"] for r in rows(report, result="not_measured"))
        process.kill()
        process.wait()


@contextlib.contextmanager
def _held(cella, cell):
    """A measurement that is under way and stands still, because the agent does not take its probe."""
    agent = cella.agent(cell)
    os.kill(agent, signal.SIGSTOP)
    try:
        process = cella.spawn("reach", cell)
        cella.wait_event(cell, {"kind": "reach.start"})
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(agent, signal.SIGCONT)


def test_policy_that_changes_meanwhile(cella):
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        with _held(cella, cell) as process:
            cella("policy", "set", cell, POLICIES / "wide.json").ok()
        _, errors = process.communicate(timeout=60 * PATIENCE)
        assert process.returncode == 125 and b"changed while it was measured" in errors, errors
        assert "reach" not in cella.inspect(cell)
        assert cella("reach", cell, "--json").ok().json()["verdict"] == "pass"


def test_one_at_a_time(cella):
    with cella.cell() as cell:
        with _held(cella, cell) as process:
            cella("reach", cell).one_line(125, "being measured already")
        assert process.wait(60 * PATIENCE) == 0


def test_cell_that_ends_meanwhile(cella):
    with cella.cell() as cell:
        with _held(cella, cell) as process:
            cella("rm", "--force", cell).ok()
        _, errors = process.communicate(timeout=60 * PATIENCE)
        assert process.returncode == 125 and b"the cell ended during the measurement" in errors, errors


# ---- what is refused

@pytest.mark.quick
def test_refusals(cella):
    cella("reach").one_line(125, "needs a cell, or --policy")
    cella("reach", "x", "--policy", "deny").one_line(125, "not both")
    cella("reach", "nobody").one_line(125, "nobody")
    for time_ in ("1s", "2m"):
        cella("reach", "--timeout", time_, "--policy", "deny", "--backend", cella.backend).one_line(125, "from 3 to 50 seconds")
    with cella.cell(start=False) as cell:
        cella("reach", cell).one_line(125, "not running")


@pytest.mark.lab
def test_paused_cell(cella):
    with cella.cell() as cell:
        cella("pause", cell).ok()
        cella("reach", cell).one_line(125, "paused")
        cella("resume", cell).ok()
        cella("reach", cell).ok()


def test_report_is_json_with_every_row(cella, throw_away):
    report, _ = throw_away("deny")
    assert len(report["rows"]) == report["pass"] + report["fail"] + report["not_measured"]
    assert len(ids(report)) == len(report["rows"])
    assert json.dumps(report)
