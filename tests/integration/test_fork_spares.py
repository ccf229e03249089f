# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Machines that wait for the next fork of a cell: whose they are, what becomes of them, and what must not.

A child that was such a machine has its id, so every test can tell which way it was made.
"""
import contextlib
import json
import os
import signal
import subprocess

import pytest

from harness import capture, internet as world
from harness.cella import children_of, command_of, wait_until

RULE = {"id": "echo", "cidr": f"{world.ECHO}/32", "ports": [8080], "proto": "tcp", "layer": "raw"}
OPEN, CLOSED = json.dumps({"version": 1, "allow": [RULE]}), json.dumps({"version": 1, "allow": []})
DIAL = """import socket, sys
try:
    s = socket.create_connection((sys.argv[1], 8080), 30)
    s.sendall(b'x'); print('ok' if s.recv(1) == b'x' else 'closed')
except OSError as e: print(type(e).__name__)"""


@pytest.fixture(scope="module", autouse=True)
def able(session_cella):
    if session_cella.capability("snapshot", unsaid="none") == "none":
        pytest.skip("the backend says it cannot copy a cell")


@pytest.fixture
def children(cella):
    """Forks; what came of it goes at the end."""
    made = []

    def fork(parent, *words):
        made.extend(cella("fork", parent, "--json", *words, timeout=240).ok().json())
        return made[-(int(words[words.index("-n") + 1]) if "-n" in words else 1):]

    yield fork
    for cell in made:
        cella("rm", "--force", cell)


def keep(cella, parent, n):
    return cella("fork", parent, "--spares", str(n), "--json", timeout=240).ok().json()["waiting"]


def waiting(cella, parent):
    return cella.inspect(parent).get("spares", {"waiting": []})["waiting"]


def spares(cella):
    return [row["id"] for row in json.loads(cella("ps", "--json").ok().text) if row["state"] == "spare"]


def warden(cella, spare):
    return cella.inspect(spare)["pid"]


def engine(cella, spare):
    """The process that runs a machine."""
    return next(pid for pid in children_of(warden(cella, spare)) if "qemu" in command_of(pid) or "cella-vmm" in command_of(pid))


def chain(cella, cell):
    return cella.state / "audit" / f"{cell}.jsonl"


def says(cella, cell):
    return cella("exec", cell, "--", "echo", "here").ok().text == "here"


def dial(cella, cell):
    return cella("exec", cell, "--", "python3", "-c", DIAL, world.ECHO).ok().text.strip()


@pytest.mark.kvm
def test_a_spare_is_shown_taken_and_made_good(cella, children):
    with cella.cell() as parent:
        first = keep(cella, parent, 1)
        assert len(first) == 1 and spares(cella) == first == waiting(cella, parent)
        spare, own = first[0], cella.inspect(parent)["id"]
        assert cella.inspect(spare)["spare_of"] == own and cella.inspect(spare)["policy"]["name"] == "deny"
        assert f"spare of {parent}" in cella("ps").ok().text
        assert not chain(cella, spare).exists()  # nothing has happened yet that could be told
        for words in (["start", spare], ["pause", spare], ["snapshot", spare], ["policy", "set", spare, "/dev/null"], ["fork", spare]):
            cella(*words).one_line(125, "prepared for the next fork")
        cella("exec", spare, "--", "true").one_line(125, "not running")
        assert [e["keep"] for e in cella.events(parent) if e["kind"] == "cell.spares"] == [1]
        child, = children(parent)
        assert child == spare and says(cella, child) and cella.inspect(child)["prepared"]
        begun = cella.events(child)[0]
        taken = next(e for e in cella.events(parent) if e["seq"] == begun["parent_seq"])
        assert begun["kind"] == "chain.open" and begun["parent"] == own and taken["kind"] == "cell.snapshot"
        kinds = [e["kind"] for e in cella.events(child)]
        order = ["chain.open", "cell.request", "cell.select", "cell.admit", "cell.image", "net.attach", "cell.create", "cell.settled"]
        assert [kind for kind in kinds if kind in order] == order
        cella("audit", "verify", child).ok()
        wait_until(lambda: len(waiting(cella, parent)) == 1, 30, "another spare")
        second = waiting(cella, parent)
        assert second != first and children(parent, "-n", "1", "--spares", "0") == second  # taken first, then no more
        wait_until(lambda: not spares(cella), 20, "the end of the spare")


def test_more_children_than_spares_and_a_fork_of_a_fork(cella, children):
    with cella.cell() as parent:
        had = keep(cella, parent, 2)
        kids = children(parent, "-n", "4")
        assert len(set(kids)) == 4 and set(had) <= set(kids) and all(says(cella, kid) for kid in kids)
        own = keep(cella, kids[0], 1)
        grandchild, = children(kids[0])
        assert [grandchild] == own and says(cella, grandchild)
        assert cella.inspect(grandchild)["parent"]["cell"] == kids[0]
        assert cella.inspect(grandchild)["parent"]["copy_generation"] == 3
        addresses = {cella.inspect(cell)["address"] for cell in [parent, grandchild, *kids]}
        assert len(addresses) == 6


def test_no_frame_of_a_child_that_waited_has_the_parents_address(cella, children):
    """Its link is watched while its machine is still without content."""
    mac_of = lambda cell: cella("exec", cell, "--", "cat", "/sys/class/net/eth0/address").ok().text.strip()
    address = lambda cell: cella.inspect(cell)["address"].split("/")[0]
    with cella.cell() as parent:
        own, mac = address(parent), mac_of(parent)
        talker = cella.spawn("exec", parent, "--", "python3", "-c", capture.TALKER, own, world.ECHO)
        assert talker.stdout.readline() == b"talks\n"
        try:
            spare, = keep(cella, parent, 1)
            with capture.Capture(capture.open_link(warden(cella, spare))) as link:
                assert children(parent, "-n", "1", "--spares", "0") == [spare]
                new, theirs = address(spare), mac_of(spare)
                wait_until(lambda: link.count(new) > 10, 20, "frames of the child")
                assert not link.lost()
            assert new != own and theirs != mac
            assert not link.of_others(theirs, new), link.of_others(theirs, new)[:5]
        finally:
            talker.kill()
            talker.communicate()


def test_spares_go_with_their_cell(cella):
    with cella.cell() as parent:
        assert len(keep(cella, parent, 2)) == 2
        cella("rm", "--force", parent).ok()
        assert not spares(cella) and cella("gc", "--check").ok().text == ""
    with cella.cell() as parent:
        keep(cella, parent, 1)
        os.kill(cella.warden(parent), signal.SIGKILL)
        wait_until(lambda: not spares(cella), 20, "the end of the spare")
        # what holds a lock with a dead warden goes a moment after it
        wait_until(lambda: cella("gc").ok() and not cella.cells(), 20, "gc takes both away")
        assert cella("gc", "--check").ok().text == ""


@pytest.mark.parametrize("what", ["engine", "warden", "loading"])
def test_a_spare_that_died_is_done_without(cella, children, what):
    with cella.cell() as parent:
        spare, = keep(cella, parent, 1)
        if what == "engine":
            os.kill(engine(cella, spare), signal.SIGKILL)
            child, = children(parent)
        elif what == "warden":
            os.kill(warden(cella, spare), signal.SIGKILL)
            child, = children(parent)
        else:  # it stands still in the middle of it, then it is killed
            held = warden(cella, spare)
            os.kill(engine(cella, spare), signal.SIGSTOP)
            fork = cella.spawn("fork", parent, "--json")
            wait_until(chain(cella, spare).exists, 20, "the fork to take it")
            os.kill(held, signal.SIGKILL)
            child, = json.loads(fork.communicate(timeout=120)[0])
        try:
            assert child != spare and says(cella, child) and says(cella, parent)
        finally:
            keep(cella, parent, 0)
            cella("rm", "--force", child)
            cella("gc").ok()
        assert what != "warden" or not chain(cella, spare).exists()  # it was nobody


def makers():
    """Processes that a fork has started to make its children, or machines for the next."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as handle:
            found += [pid] if handle.read().split(b"\0")[1:2] in ([b"__child"], [b"__spares"]) else []
    return found


def told(cella, spare, kind):
    return chain(cella, spare).exists() and f'"{kind}"' in chain(cella, spare).read_text()


def test_a_named_child_whose_machine_dies_at_its_start_is_made_anew(cella):
    with cella.cell() as parent:
        for attempt in range(5):  # the machine may be faster
            spare, = keep(cella, parent, 1)
            victim, name = engine(cella, spare), f"{parent}-kid-{attempt}"
            fork = cella.spawn("fork", parent, "-n", "1", "--name", name, "--spares", "0")
            wait_until(lambda: told(cella, spare, "cell.create"), 30, "the spare to be a child")
            os.kill(victim, signal.SIGKILL)
            out, err = fork.communicate(timeout=120)
            assert fork.returncode == 0, err
            child, = out.decode().split()
            late = cella.inspect(child)["id"] == spare
            assert late or says(cella, child) and cella.ps() == {parent, child}  # nothing of the first
            cella("rm", "--force", child).ok()
            if not late:
                return
        assert False, "it was never killed in time"


@pytest.mark.kvm
def test_a_policy_of_now_not_of_when_it_was_prepared(cella, internet, children, tmp_path):
    policy, closed = tmp_path / "open.json", tmp_path / "closed.json"
    policy.write_text(OPEN)
    closed.write_text(CLOSED)
    with cella.cell("--policy", policy) as parent:
        spare, = keep(cella, parent, 1)
        child, = children(parent)
        assert child == spare and dial(cella, child) == "ok" == dial(cella, parent)  # nothing passed it, as a spare; now it does
        wait_until(lambda: waiting(cella, parent), 30, "another spare")
        spare, = waiting(cella, parent)
        cella("policy", "set", parent, closed).ok()
        mark = internet.quiet()
        child, = children(parent)
        assert child == spare and dial(cella, child) == "ConnectionRefusedError"
        assert not internet.connections_since(mark)
        attached = next(e for e in cella.events(child) if e["kind"] == "net.attach")
        assert attached["gen"] == cella.inspect(child)["generation"]


def test_what_no_longer_fits_is_not_used(cella, internet, children, tmp_path):
    policy = tmp_path / "site.json"
    policy.write_text(OPEN)
    policy.chmod(0o600)
    classes = {"default": dict(cella.config()["classes"]["default"], policy="site")}
    with cella.configured(classes=classes, policies={"site": {"file": str(policy)}}), cella.cell() as parent:
        spare, = keep(cella, parent, 1)
        policy.write_text(CLOSED)  # the spare's warden has read the configuration before
        child, = children(parent)
        assert child != spare and dial(cella, child) == "ConnectionRefusedError"
        wait_until(lambda: spare not in spares(cella), 20, "the end of the spare")
        wait_until(lambda: waiting(cella, parent), 30, "another spare")
        spare, = waiting(cella, parent)
        child, = children(parent)  # the twin
        assert child == spare and dial(cella, child) == "ConnectionRefusedError"
        keep(cella, parent, 0)


def test_a_spare_takes_no_snapshot_but_its_own_cells(cella):
    with cella.cell() as parent, cella.cell() as other:
        spare, = keep(cella, parent, 1)
        taken = cella("snapshot", other, f"{other}-s", "--json", timeout=120).ok().json()["id"]
        try:
            fork = cella.spawn("__child", stdin=subprocess.PIPE)
            child = fork.communicate(f'{{"spare": "{spare}"}}\n{taken}\n'.encode(), timeout=240)[0].decode().strip()
            assert child != spare and cella.inspect(child)["parent"]["cell"] == cella.inspect(other)["id"]
            wait_until(lambda: not spares(cella), 20, "the end of the spare")
            cella("rm", "--force", child).ok()
        finally:
            cella("snapshot", "rm", f"{other}-s")


def test_limits_that_the_parent_was_given_since(cella, children):
    with cella.cell("--cpus", "2", "--pids", "64", "--memory", "192M") as parent:
        spare, = keep(cella, parent, 1)
        cella("update", parent, "--cpus", "1", "--pids", "16", "--memory", "128M").ok()
        child, = children(parent)
        limits = cella.inspect(child)["limits"]
        assert child == spare and [limits[key] for key in ("cpu_millis", "pids", "memory")] == [1000, 16, 128 << 20]
        assert cella("exec", child, "--", "nproc").ok().text == "1"
        keep(cella, parent, 0)


def test_a_fork_that_fails_or_is_killed_leaves_nothing(cella):
    with cella.cell() as parent, cella.cell(name="kid-2", start=False):
        spare, = keep(cella, parent, 1)
        cella("fork", parent, "-n", "2", "--name", "kid", timeout=120).one_line(125, "kid-2", "taken")
        keep(cella, parent, 0)
        wait_until(lambda: cella.ps() == {parent, "kid-2"}, 20, "the end of the spare that was being made")
        assert cella("gc", "--check").ok().text == ""
        cella("pause", parent).ok()
        cella("fork", parent).one_line(125, "paused")
        cella("fork", parent, "--spares", "1").one_line(125, "paused")
        cella("resume", parent).ok()
        cella("fork", parent, "--spares", "33").one_line(125, "at most 32")
        cella("fork", parent, "--spares", "x").one_line(125, "whole number")
        fork = cella.spawn("fork", parent, "-n", "2", "--name", "job")
        wait_until(lambda: spares(cella), 20, "a machine that is prepared")
        fork.kill()
        fork.communicate()
        wait_until(lambda: not spares(cella), 20, "the end of what it had prepared")
        wait_until(lambda: not makers(), 60, "the end of what made the children")
        for name in ("job-1", "job-2"):  # one that was whole already is a cell like any other
            cella("rm", "--force", name)
        wait_until(lambda: cella("gc").ok() and cella.ps() == {parent, "kid-2"}, 20, "no other cell")
        assert cella("gc", "--check").ok().text == "" and says(cella, parent)
