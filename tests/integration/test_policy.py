# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""cella policy: what check says of documents, and that show, set and phase do what they print."""
import json
import re

import pytest

from harness.cella import ROOT
from harness.internet import ECHO

RAW = {"id": "echo", "cidr": f"{ECHO}/32", "ports": [8080], "layer": "raw"}
PHASED = {"version": 1, "revision": 7, "active": "install",
          "phases": {"install": {"allow": [RAW]}, "run": {}}}
CONNECT = f"import socket; s = socket.create_connection(('{ECHO}', 8080), 30); s.sendall(b'x'); assert s.recv(1) == b'x'"


@pytest.fixture
def document(tmp_path):
    def write(value, name="policy.json"):
        path = tmp_path / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path
    return write


def connects(cella, cell):
    return cella("exec", cell, "--", "python3", "-c", CONNECT).status == 0


@pytest.mark.quick
def test_check(cella, document):
    words = cella("policy", "check", document({"version": 1, "revision": 3, "allow": [
        {"id": "web", "host": "api.example.com", "ports": [443]},
        {"id": "all", "host": "*.example.com", "ports": [443], "layer": "http", "http": {"methods": ["GET"]}},
        {"id": "db", "cidr": "203.0.113.0/28", "ports": [5432], "layer": "raw"}],
        "deny": [{"id": "no", "host": "bad.example.com"}]})).ok().text
    assert "OK, revision 3" in words
    assert "203.0.113.0/28" in words and "tcp 5432" in words and "raw: an opaque tunnel" in words
    assert "http: GET on any path" in words
    assert '"all" is stricter (http), and the strictest counts' in words
    assert "nothing else is reachable" in words
    assert len(words.splitlines()) <= 24
    assert "nothing at all is reachable" in cella("policy", "check", document("{}")).ok().text


@pytest.mark.quick
def test_check_complains_with_the_place(cella, document):
    path = document('{"version": 1,\n "allow": [{"id": "a", "host": "*.com", "ports": [443]}]}')
    refused = cella("policy", "check", path).ok(1)
    assert f"{path}:2:32: /allow/0/host: is a wildcard of \"com\", a public suffix" in refused.errors
    answer = cella("policy", "check", "--json", path).ok(1).json()
    assert answer["ok"] is False and "/allow/0/host" in answer["error"]
    assert cella("policy", "check", "--json", document(PHASED)).ok().json()["phases"][0]["rules"][0]["target"] == f"{ECHO}/32"
    cella("policy", "check", "/nonexistent.json").one_line(125, "nonexistent")
    cella("policy", "frobnicate", "x").one_line(125, "check.show.set.phase")
    cella("policy", "set", "x").one_line(125, "expected: cella policy set")


@pytest.mark.quick
@pytest.mark.parametrize("page", ["policy-document.md", "policy-guide.md"])
def test_documents_of_the_documentation_are_accepted(cella, document, page):
    found = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    assert found
    for text in found:
        cella("policy", "check", document(text)).ok()


@pytest.mark.quick
def test_show_set_and_phase(cella, internet, document):
    with cella.cell("--policy", document(PHASED)) as cell:
        assert connects(cella, cell)
        shown = cella("policy", "show", cell).ok().text
        assert "revision    7" in shown and "phase       install" in shown and '"8080"' not in shown
        assert cella("policy", "show", "--json", cell).ok().json()["document"] == PHASED

        cella.wait_event(cell, {"kind": "net.flow"})  # the gate has seen the end of that connection
        assert "phase run; 0 flows reset" in cella("policy", "phase", cell, "run").ok().text
        assert not connects(cella, cell)
        cella("policy", "phase", cell, "install").one_line(125, "one way", "reopen")
        cella("policy", "phase", cell, "nothing").one_line(125, "no phase \"nothing\"")
        assert not connects(cella, cell)

        again = dict(PHASED, revision=8)
        cella("policy", "set", cell, document(again), "--if-match", "6").one_line(125, "revision 7 is in force, not 6")
        assert not connects(cella, cell)
        reply = cella("policy", "set", cell, document(again), "--if-match", "7", "--json").ok().json()
        assert reply["revision"] == 8 and reply["phase"] == "install"
        assert connects(cella, cell)

        bad = document('{"version": 1, "revision": 9, "allow": [{"id": "x"}]}', "bad.json")
        cella("policy", "set", cell, bad).one_line(125, "bad.json:1:41: /allow/0: the rule names nothing")
        assert cella("policy", "show", "--json", cell).ok().json()["revision"] == 8
        assert connects(cella, cell)
        cella("policy", "set", cell, "deny").ok()
        assert not connects(cella, cell)


def test_no_policy_passes_the_ceiling_of_its_class(cella, internet, document):
    wide = document({"version": 1, "revision": 1, "allow": [dict(RAW, ports=[8080, 7000])]}, "wide.json")
    ceiling = document({"version": 1, "allow": [dict(RAW, id="top", ports=[7000])],
                        "deny": [{"id": "never", "cidr": f"{ECHO}/32", "ports": [9]}]}, "ceiling.json")
    bad = document({"version": 1, "allow": [dict(RAW, limits={"conns": 1})]}, "bad-ceiling.json")
    connect = "import socket,sys; socket.create_connection(('%s', int(sys.argv[1])), 5).close()" % ECHO

    def port(cell, number):
        return cella("exec", cell, "--", "python3", "-c", connect, number).status == 0
    for path in (ceiling, bad):
        path.chmod(0o600)
    row = {"floor": "process", "backends": [cella.backend], "policy": "deny"}
    with cella.configured(policies={"top": {"file": str(ceiling)}, "bad": {"file": str(bad)}},
                          classes={"default": row, "capped": dict(row, ceiling="top"),
                                   "wrong": dict(row, ceiling="bad"), "shut": dict(row, ceiling="deny")}):
        with cella.cell("--policy", wide) as cell:
            assert port(cell, 8080) and port(cell, 7000)
        with cella.cell("--class", "capped", "--policy", wide) as cell:
            assert port(cell, 7000) and not port(cell, 8080)
            assert "ceiling     top" in cella("policy", "show", cell).ok().text
            cella("policy", "set", cell, document({"version": 1, "revision": 2, "allow": [dict(RAW, ports=[8080, 9])]}, "more.json")).ok()
            assert not port(cell, 8080) and not port(cell, 9)
            cella.wait_event(cell, {"kind": "net.deny", "reason": "deny_rule", "rule": "operator.never"})
        with cella.cell("--class", "shut", "--policy", wide) as cell:
            assert not port(cell, 7000)
        cella("create", "--class", "wrong", "--policy", wide).one_line(125, "operator's ceiling has .limits")
    with cella.configured(classes={"default": dict(row, ceiling="nobody")}) as path:
        cella("config", "check", path).ok(1)
