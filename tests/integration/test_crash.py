# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""kill -9 of each process of a cell at five named points. The next `cella gc` finds everything, and then
nothing is left, the chain still verifies, and name and slot can be used again."""
import contextlib
import json
import os
import signal

import pytest

from harness import PATIENCE
from harness import cella as harness
from harness import residue

pytestmark = pytest.mark.lab

POINTS = ["after create", "after start", "during exec", "during output", "while paused"]
VICTIMS = ["client", "warden", "gate", "agent"]
# What machines of the lab run: every point, and every victim.
KVM = {("after create", "warden"), ("after start", "agent"), ("during exec", "gate"), ("during output", "client"),
       ("during output", "agent"), ("while paused", "warden")}


class Scene:
    """A cell named "scene" at one of the points, with the client process that is part of it."""

    def __init__(self, cella, point):
        self.cella, self.point, self.clients = cella, point, []
        if point in ("after create", "after start"):
            cella("create", "--name", "scene").ok()
            if point == "after start":
                cella("start", "scene").ok()
            return
        cella.begin(name="scene")
        if point == "during exec":
            self._exec("sh", "-c", "echo ready; sleep 300")
        elif point == "during output":
            self._exec("sh", "-c", "echo ready; yes")
        elif point == "while paused":
            self._exec("sh", "-c", "echo ready; sleep 300")
            cella("pause", "scene").ok()

    def _exec(self, *words):
        client = self.cella.spawn("exec", "scene", "--", *words)
        assert client.stdout.readline() == b"ready\n"
        self.clients.append(client)

    def victim(self, who):
        if who == "client":
            return self.clients[0].pid if self.clients else None
        if who == "agent" and self.point == "after create":
            return None
        if who == "gate" and self.cella.backend == "gvisor-like":
            return None  # its cells have no network device
        return getattr(self.cella, who)("scene")

    def end(self):
        for client in self.clients:
            with contextlib.suppress(OSError):
                os.killpg(client.pid, signal.SIGKILL)
            client.communicate()


@pytest.mark.parametrize("point,who", [pytest.param(point, who, marks=[pytest.mark.kvm] * ((point, who) in KVM))
                                       for point in POINTS for who in VICTIMS])
def test_kill(cella, point, who):
    if point == "while paused" and cella.capability("pause") == "none":
        pytest.skip("the backend says it cannot pause")
    before = residue.snapshot(cella.state)
    scene = Scene(cella, point)
    ident = cella.inspect("scene")["id"]
    victim = scene.victim(who)
    if victim is None:
        scene.end()
        cella("rm", "--force", "scene").ok()
        pytest.skip(f"no {who} {point}")
    os.kill(victim, signal.SIGKILL)
    harness.wait_until(lambda: not os.path.exists(f"/proc/{victim}") or _state(victim) == "Z" or who == "client")
    scene.end()
    if who == "client":
        assert cella.inspect("scene")["state"] in ("running", "paused")  # a client's death is no cell's death
        if point == "while paused":
            cella("resume", "scene").ok()
        assert cella("exec", "scene", "--", "echo", "alive").ok().text == "alive"
        harness.wait_until(lambda: len(_tasks(cella)) <= 1, 20, "the end of what the dead client ran")
    else:
        harness.wait_until(lambda: not _alive(cella), 20, "the end of the cell")
    cella("gc").ok()
    if (cella.state / "names" / "scene").is_symlink():
        cella("rm", "--force", "scene").ok()
    assert not residue.left_behind(before, cella.state)
    assert not cella("gc", "--check").ok().out
    assert cella("audit", "verify", ident).status == 0
    with cella.copy(name="scene"):
        assert cella("exec", "scene", "--", "echo", "again").ok().text == "again"


def _state(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as handle:
        return handle.read().rsplit(")", 1)[1].split()[0]
    return None


def _alive(cella):
    return not cella.ended("scene")


def _tasks(cella):
    """Processes below the agent."""
    if cella.backend == "gvisor-like":  # the host sees address spaces, which are kept for the next process
        return range(cella("stats", "scene", "--json").ok().json()["pids"] - 1)
    return harness.children_of(cella.agent("scene"), deep=True)


@pytest.mark.kvm
def test_warden_takes_a_stopped_agent_along(cella):
    """Not by the agent's good will: it cannot notice anything here. The kernel does it, and no gc is needed."""
    cella("create", "--name", "still").ok()
    cella("start", "still").ok()
    agent, warden = cella.agent("still"), cella.warden("still")
    os.kill(agent, signal.SIGSTOP)
    os.kill(warden, signal.SIGKILL)
    try:
        harness.wait_until(lambda: _state(agent) in (None, "Z"), 20, "the end of the agent")
    finally:
        with contextlib.suppress(OSError):
            os.kill(agent, signal.SIGKILL)
        harness.wait_until(lambda: cella("gc") and not cella.cells(), 20, "gc takes it away")


@pytest.mark.parametrize("delay_ms", [0, 5, 15, pytest.param(30, marks=pytest.mark.kvm), 60])
def test_kill_of_run_at_any_moment(cella, delay_ms):
    """The warden of `run` holds a lease: when its client is gone, so is the cell; no gc needed."""
    import time
    run = cella.spawn("run", "--name", "brief", "--", "sleep", "300")
    time.sleep(delay_ms / 1000)
    run.kill()
    run.communicate()
    harness.wait_until(lambda: not cella.cells(), 20, "the end of the cell")


def test_kill_of_the_warden_while_it_makes_a_cell(cella):
    import time
    for delay in [n / 1000 for n in range(2, 34, 2)]:
        run = cella.spawn("run", "--name", "brief", "--", "sleep", "300")
        time.sleep(delay)
        harness.wait_until(lambda: _kill_all(_wardens()) or run.poll() is not None, 20, "a warden to kill")
        run.communicate(timeout=20 * PATIENCE)
        assert run.returncode != 0
        cella("gc").ok()
    # what the last one had just begun goes a moment after it, and the cell's lock with that
    harness.wait_until(lambda: cella("gc").ok() and not cella.cells(), 20, "gc takes it away")
    assert not cella("gc", "--check").ok().out


def _kill_all(pids):
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return pids


def _wardens():
    return [int(pid) for pid in filter(str.isdigit, os.listdir("/proc")) if "cella-warden" in harness.command_of(pid)]


@pytest.mark.kvm
def test_dead_warden_is_shown_as_dead_and_blocks_nothing(cella):
    cella("create", "--name", "gone").ok()
    cella("start", "gone").ok()
    warden = cella.warden("gone")
    os.kill(warden, signal.SIGKILL)
    harness.wait_until(lambda: _state(warden) in (None, "Z") and not _alive_named(cella, "gone"), 20, "its end, and its lock's")
    rows = {row["name"]: row for row in cella("ps", "--all", "--json").ok().json()}
    assert rows.get("gone", {}).get("state", "dead") == "dead"
    cella("exec", "gone", "--", "true").one_line(125, "gone", "dead|warden|gc")
    assert cella("gc", "--check").out  # it says what it would remove
    assert cella.run("--", "echo", "others").ok().text == "others"
    cella("gc").ok()


def test_a_cell_that_cannot_be_cleaned_up_keeps_no_other(cella):
    names = ["gone-1", "gone-2"]
    for name in names:
        cella("create", "--name", name).ok()
        os.kill(cella.warden(name), signal.SIGKILL)
        harness.wait_until(lambda: not _alive_named(cella, name))
    first, other = sorted(names, key=lambda name: cella.directory(name).name)  # the order of gc
    record = cella.directory(first) / "cell.json"
    whole = record.read_text()
    record.write_text(json.dumps(dict(json.loads(whole), backend_path="/nonexistent/cella-backend.so")))
    try:
        cella("gc").ok(125)
        assert [(cella.state / "names" / name).is_symlink() for name in (first, other)] == [True, False]
    finally:
        record.write_text(whole)
        cella("gc").ok()


@pytest.mark.kvm
def test_chain_of_a_killed_cell_is_closed_by_gc(cella):
    with cella.new_chain() as made:
        cella("create", "--name", "gone").ok()
        cella("start", "gone").ok()
        os.kill(cella.warden("gone"), signal.SIGKILL)
        harness.wait_until(lambda: not _alive_named(cella, "gone"))
        cella("gc").ok()
    assert cella.events(made[0])[-1]["kind"] == "chain.close"
    cella("audit", "verify", made[0].stem).ok()


def _alive_named(cella, name):
    return harness.is_locked(cella.directory(name) / "lock")
