# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A policy that changes while the cell runs: what it cuts, what it leaves alone, what it refuses."""
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from harness import PATIENCE
from harness import internet as world
from harness import netns
from harness.cella import wait_until
from harness.warden import Refused, Warden

pytestmark = pytest.mark.lab

ESTALE, EINVAL, ENOENT, EPERM, EOPNOTSUPP = 116, 22, 2, 1, 95

# Connects once, then sends a byte a time and prints what became of each.
STREAM = """import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
print('open', flush=True)
try:
    while True:
        s.sendall(b'x')
        if s.recv(1) != b'x': break
        time.sleep(0.02)
    print('end', flush=True)
except OSError as e:
    print(type(e).__name__, flush=True)"""

DIAL = """import socket, sys
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
    s.sendall(b'x'); print('ok' if s.recv(1) == b'x' else 'closed')
except OSError as e: print(type(e).__name__)"""


def rule(name, address, *ports):
    return {"id": name, "cidr": f"{address}/32", "ports": list(ports), "proto": "tcp", "layer": "raw"}


ONE, TWO = rule("one", world.ECHO, 8080), rule("two", world.ECHO2, 8080)


def document(*rules, **members):
    return json.dumps({"version": 1, **members, "allow": list(rules)})


def phases(**members):
    return json.dumps({"version": 1, "active": "install", **members,
                       "phases": {"install": {"allow": [ONE, TWO]}, "run": {"allow": [TWO]}}})


@pytest.fixture
def policies(tmp_path):
    def write(text):
        path = tmp_path / f"p{time.monotonic_ns()}.json"
        path.write_text(text)
        return path
    return write


class Stream:
    def __init__(self, cella, cell, address, source=STREAM):
        self.process = cella.spawn("exec", cell, "--", "python3", "-c", source, address, 8080)
        assert self.process.stdout.readline() == b"open\n"

    def verdict(self, seconds):
        """How it ended, or None when it still runs after so many seconds."""
        try:
            return self.process.communicate(timeout=seconds * PATIENCE)[0].decode().strip()
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        self.process.kill()
        self.process.communicate()


def dial(cella, cell, address):
    return cella("exec", cell, "--", "python3", "-c", DIAL, address, 8080).ok().text


def warden(cella, cell):
    return Warden(cella.directory(cell))


@pytest.mark.quick
def test_tightening_kills_what_it_no_longer_allows_and_nothing_else(cella, internet, policies):
    with cella.cell("--policy", policies(document(ONE, TWO, revision=7))) as cell, warden(cella, cell) as w:
        gone, stays = Stream(cella, cell, world.ECHO), Stream(cella, cell, world.ECHO2)
        try:
            reply = w.call("policy", document=document(TWO, revision=8), if_match=7)
            assert (reply["generation"], reply["revision"], reply["killed"], reply["phase"]) == (2, 8, 1, ""), reply
            assert 0 < reply["took_ms"] < 10000
            assert gone.verdict(20) == "ConnectionResetError"
            assert stays.verdict(0.3) is None
            assert dial(cella, cell, world.ECHO) == "ConnectionRefusedError"
            assert dial(cella, cell, world.ECHO2) == "ok"
            # twin: the same change back opens it again, and kills nothing
            reply = w.call("policy", document=document(ONE, TWO, revision=9), if_match=8)
            assert (reply["generation"], reply["killed"]) == (3, 0)
            assert dial(cella, cell, world.ECHO) == "ok"
            assert stays.verdict(0.1) is None
        finally:
            gone.stop()
            stays.stop()


class Transactions:
    """What nftables tells of each transaction in the gate's namespace: the kinds of its messages, and of which sets."""

    KINDS = {6: "rule", 8: "no rule", 9: "set", 11: "no set", 12: "elements", 14: "no elements"}  # NFT_MSG_*
    SUBSYSTEM, NEWGEN, ADD_MEMBERSHIP, GROUP = 10, 15, 1, 7

    def __init__(self, cella, cell):
        self.socket = netns.inside(netns.of_gate(cella, cell),
                                   lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 12))
        self.socket.bind((0, 0))
        self.socket.setsockopt(270, self.ADD_MEMBERSHIP, self.GROUP)  # SOL_NETLINK, NFNLGRP_NFTABLES

    @staticmethod
    def _name(body):
        """Attribute 2 of a message about a set or its elements."""
        at = 4
        while at < len(body):
            length, kind = struct.unpack("HH", body[at:at + 4])
            if kind == 2:
                return body[at + 4:at + length].rstrip(b"\0").decode()
            at += length + 3 & ~3
        raise AssertionError(body)

    def read(self):
        """A list of transactions: dicts of sets of names."""
        done, present = [], {}
        while True:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                assert not present, present
                return done
            while data:
                length, kind = struct.unpack("IH", data[:6])
                if kind == self.SUBSYSTEM << 8 | self.NEWGEN:
                    done, present = done + [present], {}
                elif kind & 255 in self.KINDS:
                    present.setdefault(self.KINDS[kind & 255], set()).add(self._name(data[16:length]))
                data = data[length + 3 & ~3:]


@pytest.mark.quick
def test_rules_change_without_the_elements_they_look_into(cella, internet, policies):
    """While it commits, the kernel shows packets a set that is refilled in the same transaction as it never was, and resets
    what both policies allow (seen with 6.12, see the test below; not with 6.18)."""
    name = {"id": "name", "host": "git.example.com", "ports": [22], "layer": "raw"}
    with cella.cell("--policy", policies(document(ONE, TWO, name))) as cell, warden(cella, cell) as w:
        seen = Transactions(cella, cell)
        for rules in ((TWO, name), (ONE, TWO), (TWO, name)):
            w.call("policy", document=document(*rules))
            transactions = seen.read()
            filled = set()
            for t in transactions:
                assert "no elements" not in t and t.get("elements", set()) <= t.get("set", set()), transactions
                assert not ("rule" in t and ("set" in t or "elements" in t)), transactions
                filled |= t.get("elements", set())
            assert any("rule" in t and "no rule" in t for t in transactions), transactions
            assert {"hard", "allow"} <= {name.rstrip("2") for name in filled}, transactions
        seen.socket.close()


def test_no_packet_of_what_both_allow_is_refused(cella, internet, policies):
    """A packet at any moment of a change: streams that never rest, and change after change."""
    restless = STREAM.replace("    time.sleep(0.02)", "    pass")
    assert "sleep" not in restless.replace("import socket, sys, time", "")
    with cella.cell("--policy", policies(document(ONE, TWO))) as cell, warden(cella, cell) as w:
        streams = [Stream(cella, cell, world.ECHO2, restless) for _ in range(3)]
        try:
            for _ in range(12):
                for text in (document(TWO), document(ONE, TWO)):
                    assert w.call("policy", document=text)["killed"] == 0
            assert dial(cella, cell, world.ECHO2) == "ok"  # by now they would have told
            assert [stream.verdict(0) for stream in streams] == [None] * 3
            assert not [e for e in cella.events(cell) if e["kind"] == "net.deny"]
        finally:
            for stream in streams:
                stream.stop()


@pytest.mark.quick
def test_phase_is_one_command_and_one_way(cella, internet, policies):
    with cella.cell("--policy", policies(phases(revision=3))) as cell, warden(cella, cell) as w:
        assert cella.inspect(cell)["policy"]["phase"] == "install"
        stream = Stream(cella, cell, world.ECHO)
        reply = w.call("phase", to="run")
        assert (reply["generation"], reply["phase"], reply["revision"], reply["killed"]) == (2, "run", 3, 1)
        assert stream.verdict(20) == "ConnectionResetError"
        for to, code, word in (("install", EPERM, "reopen"), ("nowhere", ENOENT, "nowhere"), ("a b", EINVAL, '"to"')):
            with pytest.raises(Refused, match=word) as refused:
                w.call("phase", to=to)
            assert refused.value.code == -code
        assert dial(cella, cell, world.ECHO) == "ConnectionRefusedError"
        assert cella.inspect(cell)["policy"]["phase"] == "run"
        event = cella.wait_event(cell, {"kind": "policy.phase", "verdict": "applied", "phase": "run"})
        assert (event["old_phase"], event["old_gen"], event["killed"]) == ("install", 1, 1)
        cella.wait_event(cell, {"kind": "policy.phase", "verdict": "refused", "phase": "install"})


def test_a_document_that_says_so_reopens(cella, internet, policies):
    with cella.cell("--policy", policies(phases(reopen=True))) as cell, warden(cella, cell) as w:
        w.call("phase", to="run")
        assert w.call("phase", to="install")["phase"] == "install"
        assert dial(cella, cell, world.ECHO) == "ok"


@pytest.mark.parametrize("text, words", [
    ('{"version": 1, "allow": [{"id": "x", "cidr": "203.0.113.10/32", "layer": "raw"}]}', ["/allow/0", "ports", ":1:"]),
    ('{"version": 1, "alow": []}', ["alow"]),
    ("{", [":1:"]),
    ('{"version": 1, "allow": [{"id": "x", "cidr": "10.0.0.0/8", "ports": [1], "proto": "tcp", "layer": "raw"}]}',
     ["/allow/0/cidr"]),
])
def test_a_bad_document_names_the_place_and_changes_nothing(cella, internet, policies, text, words):
    with cella.cell("--policy", policies(document(ONE))) as cell, warden(cella, cell) as w:
        before = cella.inspect(cell)["policy"]
        stream = Stream(cella, cell, world.ECHO)
        try:
            with pytest.raises(Refused) as refused:
                w.call("policy", document=text, name="mine.json")
            for word in ["mine.json", *words]:
                assert word in refused.value.message
            assert cella.inspect(cell)["policy"] == before
            assert stream.verdict(0.3) is None
            event = cella.wait_event(cell, {"kind": "policy.change", "verdict": "refused"})
            assert event["policy"] == "mine.json" and event["sha256"] == hashlib.sha256(text.encode()).hexdigest()
            # twin: a good one is taken, with the next number
            assert w.call("policy", document=document(ONE, TWO))["generation"] == 2
        finally:
            stream.stop()


@pytest.mark.parametrize("args, word", [
    ({"document": "{}", "policy": "deny"}, "one of"), ({"if_match": 1}, "revision"), ({"if_match": "1"}, "if_match"),
    ({"file": "relative.json"}, "absolute"), ({"file": "/nonexistent.json"}, "/nonexistent.json"),
    ({"policy": "nobody"}, "nobody"), ({"policy": "none"}, "device"), ({"document": 7}, "one of"),
])
def test_a_request_that_is_none(cella, internet, module_cells, args, word):
    cell = module_cells("--policy", "deny", "--hostname", "policy")
    with warden(cella, cell) as w, pytest.raises(Refused, match=word):
        w.call("policy", **args)
    assert cella.inspect(cell)["policy"]["generation"] == 1


def test_of_two_who_change_at_once_one_is_told(cella, internet, policies):
    """Both have read revision 1; whoever comes second is refused and both numbers are named."""
    with cella.cell("--policy", policies(document(revision=1))) as cell:
        answers, barrier = [], threading.Barrier(2)

        def change(own):
            with warden(cella, cell) as w:
                barrier.wait()
                try:
                    answers.append(w.call("policy", document=document(own, revision=2), if_match=1))
                except Refused as refused:
                    answers.append(refused)

        threads = [threading.Thread(target=change, args=(r,)) for r in (ONE, TWO)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [a for a in answers if isinstance(a, Refused)]
        assert len(refused) == 1 and refused[0].code == -ESTALE, answers
        assert "revision 2 " in refused[0].message and "not 1;" in refused[0].message
        assert cella.inspect(cell)["policy"]["revision"] == 2


def test_another_text_under_the_same_revision_would_hide_a_race(cella, internet, policies):
    with cella.cell("--policy", policies(document(revision=4))) as cell, warden(cella, cell) as w:
        with pytest.raises(Refused, match="next \"revision\"") as refused:
            w.call("policy", document=document(ONE, revision=4), if_match=4)
        assert refused.value.code == -EINVAL
        assert w.call("policy", document=document(ONE, revision=4))["generation"] == 2  # nobody asked for the check


@pytest.mark.quick
def test_inspect_and_audit_know_the_text_in_force(cella, internet, policies):
    first, second = document(ONE, revision=1), document(revision=2)
    path = policies(first)
    with cella.cell("--policy", path) as cell, warden(cella, cell) as w:
        digests = [hashlib.sha256(t.encode()).hexdigest() for t in (first, second)]
        assert cella.inspect(cell)["policy"] == {"name": str(path), "revision": 1, "generation": 1, "phase": "",
                                                 "sha256": digests[0]}
        new = policies(second)
        w.call("policy", file=str(new))
        shown = w.call("policy")
        with open(shown.pop("file"), encoding="utf-8") as text:
            assert text.read() == second
        assert shown == cella.inspect(cell)["policy"] == cella.cell_json(cell)["policy"] == {
            "name": str(new), "revision": 2, "generation": 2, "phase": "", "sha256": digests[1]}
        event = cella.wait_event(cell, {"kind": "policy.change", "verdict": "applied"})
        assert (event["old_sha256"], event["sha256"], event["old_gen"], event["gen"]) == (*digests, 1, 2)
        assert (event["old_revision"], event["revision"], event["policy"]) == (1, 2, str(new))
        assert w.call("policy", policy="deny")["revision"] == 0
        assert cella("ps").ok().text.count("deny") >= 1


def test_a_cell_without_a_device_cannot_be_given_rules(cella):
    with cella.cell("--policy", "none") as cell, warden(cella, cell) as w:
        with pytest.raises(Refused, match="no network device") as refused:
            w.call("policy", document=document(ONE))
        assert refused.value.code == -EOPNOTSUPP


def test_empty_means_deny(cella, internet, policies):
    with cella.cell("--policy", policies(document(ONE))) as cell, warden(cella, cell) as w:
        stream = Stream(cella, cell, world.ECHO)
        assert w.call("policy", document="{}")["killed"] == 1
        assert stream.verdict(20) == "ConnectionResetError"
        assert dial(cella, cell, world.ECHO) == "ConnectionRefusedError"


def test_a_gate_that_does_not_answer_is_closed_not_open(cella, internet, policies):
    """Between two policies there is no safe one to go on with: the change fails, nothing passes, the cell ends."""
    with cella.cell("--policy", policies(document(ONE))) as cell:
        chain = cella.state / "audit" / f"{cella.inspect(cell)['id']}.jsonl"
        gate, mark = cella.gate(cell), internet.quiet()
        with warden(cella, cell) as w:
            os.kill(gate, signal.SIGSTOP)
            with pytest.raises(Refused, match="gate"):
                w.call("policy", document=document(ONE, TWO))
        wait_until(lambda: cella.ended(cell), 20, "the end of the cell")
        cella.wait_event(chain, {"kind": "policy.change", "verdict": "refused"})
        assert internet.received(mark) == 0
