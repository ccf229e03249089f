# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What the processes of a gvisor-like cell have of the host, seen from the host, while guest code runs in them."""
import os
import pathlib
import signal

import pytest

from harness import cella as harness

READ_SEARCH = 1 << 2  # CAP_DAC_READ_SEARCH


def test_a_stack_has_room_below_it_whatever_is_mapped(cella):
    """Where it begins is not the same each time: nothing may lie where it grows to, nor above it."""
    if cella.backend != "gvisor-like":
        pytest.skip("processes of gvisor-like")
    seen = []
    text = cella.run("--policy", "none", "--", "sh", "-c", "for i in $(seq 30); do cat /proc/self/maps; echo; done").ok().text
    for maps in text.strip().split("\n\n"):
        spans = [[int(n, 16) for n in line.split()[0].split("-")] + line.split()[5:] for line in maps.splitlines()]
        stack = next(i for i, span in enumerate(spans) if "[stack]" in span)
        assert stack == len(spans) - 1 and spans[stack][0] - spans[stack - 1][1] >= 100 << 20, maps
        seen.append(tuple(span[1] for span in spans[stack - 1:]))
    assert len({stack for _, stack in seen}) > 20 and len({below for below, _ in seen}) > 20, seen


@pytest.fixture
def running(cella):
    """A cell with a command in it: (cell, pid of the gofer, of the sentry, of the stubs)."""
    if cella.backend != "gvisor-like":
        pytest.skip("processes of gvisor-like")
    with cella.cell("--policy", "none") as cell:
        process = cella.spawn("exec", cell, "--", "python3", "-c", "import time; print('runs', flush=True); time.sleep(600)")
        assert process.stdout.readline() == b"runs\n"  # from here on it opens and starts nothing
        sentry = cella.agent(cell)
        harness.wait_until(lambda: len(harness.children_of(sentry)) >= 3, what="a stub each of agent and command, and the first")
        gofer = [p for p in harness.children_of(cella.warden(cell)) if harness.command_of(p).startswith("cella-gofer")]
        yield cell, gofer[0], sentry, harness.children_of(sentry)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def status(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: line.split(":")[1].split() for line in lines}


def devices(pid):
    return {line.split(":")[0].strip() for line in pathlib.Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]}


def files(root):
    """Regular files and devices below a root."""
    return [os.path.join(at, name) for at, _, names in os.walk(root) for name in names if not os.path.islink(os.path.join(at, name))]


def test_no_process_has_more_than_it_needs(running):
    _, gofer, sentry, stubs = running
    users = {pid: set(status(pid)["Uid"]) for pid in (gofer, sentry)}
    assert all(len(ids) == 1 and int(min(ids)) > 65535 for ids in users.values()) and users[gofer] != users[sentry]
    for pid in [gofer, sentry] + stubs:
        found = status(pid)
        capabilities = {int(found[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        assert capabilities <= ({0, READ_SEARCH} if pid == gofer else {0}), (pid, found)
        assert found["Seccomp"] == ["2"] and found["NoNewPrivs"] == ["1"], (pid, found)
        assert devices(pid) == {"lo"}


def test_namespaces_are_neither_the_hosts_nor_shared(running):
    _, gofer, sentry, stubs = running
    for kind in ("mnt", "pid", "net", "ipc", "uts"):
        mine, theirs, others = (os.readlink(f"/proc/{pid}/ns/{kind}") for pid in ("self", sentry, gofer))
        assert len({mine, theirs, others}) == 3, kind
        assert {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in stubs} == {theirs}


def test_the_sentry_is_nobody_among_users_of_its_own(running):
    _, _, sentry, stubs = running
    theirs = os.readlink(f"/proc/{sentry}/ns/user")
    assert theirs != os.readlink("/proc/self/ns/user") and {os.readlink(f"/proc/{pid}/ns/user") for pid in stubs} == {theirs}
    for name, of_the_host in (("uid_map", "Uid"), ("gid_map", "Gid")):
        assert pathlib.Path(f"/proc/{sentry}/{name}").read_text().split() == ["65534", status(sentry)[of_the_host][0], "1"]


def test_the_roots(running):
    _, gofer, sentry, _ = running
    assert [os.path.basename(name) for name in files(f"/proc/{sentry}/root")] == ["sentry"]
    for line in pathlib.Path(f"/proc/{gofer}/mountinfo").read_text().splitlines():
        assert "ro" in line.split()[5].split(","), line  # nothing that it sees can be written


def test_descriptors_are_the_wardens_and_what_a_kernel_waits_with(running):
    _, _, sentry, _ = running
    allowed = ("socket:", "pipe:", "/memfd:cella-agent", "/memfd:cella-memory", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "/null")
    for number in os.listdir(f"/proc/{sentry}/fd"):
        target = os.readlink(f"/proc/{sentry}/fd/{number}")
        opened = int(pathlib.Path(f"/proc/{sentry}/fdinfo/{number}").read_text().split("flags:")[1].split()[0], 8)
        of_the_image = opened & os.O_ACCMODE == os.O_RDONLY and target.startswith("/")
        assert target.startswith(allowed) or of_the_image, (number, target)


def test_guest_code_runs_traced_by_the_sentry(cella, running):
    cell, _, sentry, stubs = running
    inside = cella("exec", cell, "--", "sh", "-c", "echo $$; uname -r").ok().text.split()
    assert int(inside[0]) < 100 and inside[1] == "6.1.0-cella" != os.uname().release  # ids and name of its own kernel
    tracers = {int(status(pid)["TracerPid"][0]) for pid in stubs} - {0}  # 0: one that rests
    assert tracers and tracers <= set(map(int, os.listdir(f"/proc/{sentry}/task")))


def test_the_most_tasks_are_told_although_nobody_looked(cella, running):
    cell = running[0]
    cella("exec", cell, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 60 & all=\"$all $!\"; done; kill $all; wait").ok()
    told = cella("stats", cell, "--json").ok().json()
    assert told["pids_peak"] >= 10 > told["pids"]  # agent, shell, eight
