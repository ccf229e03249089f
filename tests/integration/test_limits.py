# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Every limit bites, is reported as that limit, and the host does not notice."""
import contextlib
import time

import pytest

from harness import PATIENCE
from harness import cella as harness, guests

pytestmark = pytest.mark.lab

HEADROOM = 4  # tasks that a backend may add for its own agent
EATER = "import sys\nb = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('ate it all')"
BOMB = """import os, sys, time
refused = 0
for i in range(200):
    try:
        if os.fork() == 0:
            time.sleep(30); os._exit(0)
    except OSError:
        refused += 1
print(200 - refused, refused)"""


def _limited(cella, name):
    if cella.capability(name) == "none":
        pytest.skip(f"this host cannot enforce {name}")


def _within_memory(cella, chains):
    """What each of these cells ever had of the host, as the host counted it; what else the host does is no matter. What
    runs a machine has memory of its own, and here its disk, which is a file in memory, counts as well."""
    for chain in chains:
        events = {event["kind"]: event for event in cella.events(chain)}
        made = events["cell.create"]
        most = made["memory"] + (made["disk"] + (256 << 20) if cella.backend in guests.MACHINES else 1 << 20)
        assert events["cell.end"].get("memory_peak", 0) <= most, (events["cell.end"], made)


def _limit_event(cella, chains, kind):
    assert len(chains) == 1, chains
    events = cella.events(chains[0])
    hits = [e for e in events if e["kind"] == "limit.hit" and e["limit"] == kind]
    assert hits, f"no event of limit {kind} among {[e['kind'] for e in events]}"


@pytest.mark.kvm
@pytest.mark.quick
def test_memory(cella):
    _limited(cella, "limit.memory")
    with cella.new_chain() as chains:
        result = cella.python(EATER % 200, flags=["--memory", "64M"]).one_line(137, "memory", "64")
    assert "ate" not in result.text
    _limit_event(cella, chains, "memory")


@pytest.mark.kvm
@pytest.mark.quick
def test_memory_below_the_limit_is_fine(cella):
    assert cella.python(EATER % 32, flags=["--memory", "128M"]).ok().text == "ate it all"


@pytest.mark.kvm
def test_memory_of_files_in_memory_counts(cella):
    """The writable layer may be memory: it must not be a way around the limit."""
    _limited(cella, "limit.memory")
    with cella.new_chain() as chains:
        cella.run("--memory", "64M", "--disk", "512M", "--", "sh", "-c",
                  "dd if=/dev/zero of=/tmp/f bs=1M count=400; dd if=/dev/zero of=/dev/shm/f bs=1M count=400; cat /dev/shm/f > /dev/null")
    _within_memory(cella, chains)


@pytest.mark.kvm
def test_child_killed_for_memory_is_reported(cella):
    """The command survives its child: its own status, and a line that says what happened."""
    _limited(cella, "limit.memory")
    result = cella.run("--memory", "64M", "--", "sh", "-c", 'python3 -c "$1"; echo after $?', "sh", EATER % 200)
    assert result.text == "after 137" and "memory" in result.errors, result


@pytest.mark.kvm
@pytest.mark.quick
def test_pids(cella):
    _limited(cella, "limit.pids")
    with cella.new_chain() as chains:
        result = cella.python(BOMB, flags=["--pids", "32"])
    made, refused = map(int, result.text.split())
    assert 16 <= made <= 32 + HEADROOM and made + refused == 200
    assert "pids" in result.errors or "processes" in result.errors, result
    _limit_event(cella, chains, "pids")


def test_fork_bomb_in_shell(cella):
    """The classic: it ends by its own or by the clock, never the host."""
    _limited(cella, "limit.pids")
    result = cella.run("--pids", "32", "--timeout", "3s", "--", "sh", "-c", "f() { f | f & }; f; wait; sleep 30")
    assert result.status != 0
    assert "pids" in result.errors, result


def test_threads_count_as_pids(cella):
    _limited(cella, "limit.pids")
    source = """import threading, time
made = 0
try:
    for i in range(200):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); made += 1
except RuntimeError: pass
print(made)"""
    assert int(cella.python(source, flags=["--pids", "32"]).text) <= 32 + HEADROOM


@pytest.mark.kvm
@pytest.mark.quick
def test_disk(cella):
    _limited(cella, "limit.disk")
    with cella.new_chain() as chains:
        result = cella.run("--disk", "16M", "--", "dd", "if=/dev/zero", "of=/file", "bs=1M", "count=64")
    assert result.status == 1
    assert "No space left on device" in result.errors and "disk" in result.errors.replace("on device", ""), result
    _limit_event(cella, chains, "disk")


@pytest.mark.parametrize("place", ["/tmp/f", "/var/tmp/f", pytest.param("/dev/shm/f", marks=pytest.mark.kvm), "/root/f", "/run/f"])
def test_every_writable_place_is_bounded(cella, place):
    _limited(cella, "limit.disk")
    result = cella.run("--disk", "16M", "--memory", "256M", "--", "sh", "-c",
                       f"mkdir -p $(dirname {place}); dd if=/dev/zero of={place} bs=1M count=128 2>/dev/null; "
                       f"stat -c %s {place} 2>/dev/null || echo 0")
    assert int(result.text.splitlines()[-1]) <= 64 << 20, result


@pytest.mark.kvm
def test_many_small_files_are_bounded(cella):
    """Inodes are memory of the host too."""
    _limited(cella, "limit.disk")
    source = """import os
n = 0
try:
    while n < 300000:
        os.close(os.open(f'/tmp/{n}', os.O_CREAT | os.O_WRONLY)); n += 1
except OSError as e: pass
print(n)"""
    assert int(cella.python(source, flags=["--disk", "16M", "--memory", "128M"], timeout=120).text or 0) < 300000


def _share(cella, cell, seconds=2.0):
    """Of one processor, what the cell had of it meanwhile, as the host counts it."""
    def used():
        stats = cella("stats", cell, "--json").ok().json()
        return stats["cpu_user_ns"] + stats["cpu_system_ns"]
    start, before = time.monotonic(), used()
    time.sleep(seconds)
    return (used() - before) / 1e9 / (time.monotonic() - start)


@contextlib.contextmanager
def _burning(cella, cell):
    burner = cella.spawn("exec", cell, "--", "python3", "-c", "print('burns', flush=True)\nwhile True: pass")
    try:
        assert burner.stdout.readline() == b"burns\n"
        yield
    finally:
        burner.kill()
        burner.communicate()


@pytest.mark.kvm
def test_cpu(cella):
    _limited(cella, "limit.cpu")
    if cella.backend not in guests.MACHINES:
        # Long, because a processor that its own host takes away for a while counts as used, and is paid back only later.
        # The interpreter's own start does not count: in the lab it takes half a second of processor.
        source = "import time\nb, e = time.process_time(), time.monotonic() + 6\nwhile time.monotonic() < e: pass\nprint(time.process_time() - b)"
        assert float(cella.python(source, flags=["--cpus", "0.25"]).ok().text) < 3.6  # 1.5 s in theory; an unlimited loop uses 6
        return
    with cella.cell("--cpus", "0.25") as cell, _burning(cella, cell):  # a machine that stands still does not know it
        assert 0.01 < _share(cella, cell, 4.0) < 0.4


def test_cpu_of_many_processes_is_one_limit(cella):
    _limited(cella, "limit.cpu")
    source = """import os, time
kids, e = [], time.monotonic() + 4
for i in range(4):
    pid = os.fork()
    if pid == 0:
        while time.monotonic() < e: pass
        os._exit(0)
    kids.append(pid)
print(sum(r.ru_utime + r.ru_stime for r in (os.wait4(k, 0)[2] for k in kids)))"""
    assert float(cella.python(source, flags=["--cpus", "0.5"]).ok().text) < 4.8  # 2 s in theory, until one end for all


@pytest.mark.kvm
def test_idle(cella):
    result = cella.run("--idle", "1s", "--", "sleep", "600")
    result.one_line(137, "idle")


@pytest.mark.kvm
def test_activity_is_not_idle(cella):
    cella.run("--idle", "5s", "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.5; done").ok()


@pytest.mark.kvm
def test_wall_clock_of_a_cell_without_command(cella):
    cella("create", "--name", "timed", "--timeout", "1s").ok()
    cella("start", "timed").ok()
    harness.wait_until(lambda: cella.ended("timed"), 20, "the end of the cell")
    cella("rm", "--force", "timed")


@pytest.mark.parametrize("flag,value", [pytest.param("--memory", "0", marks=pytest.mark.kvm), ("--memory", "-1"), ("--memory", "64X"), ("--memory", ""),
                                        ("--memory", "99999999999999999999"), ("--pids", "many"), ("--pids", "-3"),
                                        ("--cpus", "0"), ("--cpus", "x"), ("--disk", "1"), ("--memory", "1K"), ("--timeout", "soon"),
                                        ("--timeout", "-1s"), ("--idle", "1y")])
def test_limits_that_make_no_sense(cella, flag, value):
    cella.run(f"{flag}={value}", "--", "true").one_line(125, flag.strip("-"))


# The memory controller is hidden from the warden: its hierarchy (v1) or its entry in the list (v2).
_HIDE = ["unshare", "--mount", "sh", "-c", """umount -l /sys/fs/cgroup/memory 2>/dev/null || {
tr ' ' '\\n' < /sys/fs/cgroup/cgroup.controllers | grep -v memory | tr '\\n' ' ' > /tmp/controllers
mount --bind /tmp/controllers /sys/fs/cgroup/cgroup.controllers && rm /tmp/controllers; }
exec "$@" """, "sh"]


def test_limit_that_cannot_be_enforced_is_refused(cella):
    if cella.backend != "container":
        pytest.skip("the backend does not limit by cgroups")
    result = cella.run("--memory", "64M", "--", "true", prefix=_HIDE)
    result.one_line(125, "memory", "cgroup|enforce")


def test_best_effort_runs_and_the_audit_says_so(cella):
    if cella.backend != "container":
        pytest.skip("the backend does not limit by cgroups")
    with cella.new_chain() as chains:
        result = cella.run("--class", "lenient", "--memory", "64M", "--", "true", prefix=_HIDE).ok()
    kinds = [(e["kind"], str(e)) for e in cella.events(chains[0])]
    assert [k for k, text in kinds if "limit.unenforced" in k and "memory" in text], (kinds, result)


PROCESSORS = "import os; print(len(os.sched_getaffinity(0)))"


@pytest.fixture
def changing(cella):
    """A cell whose limits can be changed, and a call that runs Python in it."""
    if cella.capability("resize", unsaid="none") == "none":
        pytest.skip("the backend says it cannot change limits of a running cell")
    with cella.cell("--memory", "256M", "--pids", "64", "--cpus", "2") as cell:
        yield cell, lambda source, **options: cella("exec", cell, "--", "python3", "-c", source, **options)


def test_update_of_memory_bites_and_is_lifted(cella, changing):
    _limited(cella, "limit.memory")
    cell, python = changing
    assert python(EATER % 100).ok().text == "ate it all"
    cella("update", cell, "--memory", "64M").ok()
    assert python(EATER % 100).status == 137
    assert cella.inspect(cell)["limits"]["memory"] == 64 << 20
    cella("update", cell, "--memory", "256M").ok()
    assert python(EATER % 100).ok().text == "ate it all"
    event = cella.wait_event(cell, {"kind": "cell.update", "verdict": "applied", "memory": 64 << 20})
    assert event["pids"] == 64 and event["cpu_millis"] == 2000


def test_update_of_pids_bites_and_is_lifted(cella, changing):
    _limited(cella, "limit.pids")
    cell, python = changing
    tasks = lambda: int(python(BOMB.replace("time.sleep(30)", "time.sleep(3)") + "\nfor i in range(200 - refused): os.wait()").text.split()[0])
    first = tasks()
    assert cella("update", cell, "--pids", "16", "--json").ok().json()["limits"]["pids"] == 16
    second = tasks()
    cella("update", cell, "--pids", "64").ok()
    third = tasks()
    assert 4 <= second <= 16 + HEADROOM < first <= 64 + HEADROOM and second < third, (first, second, third)


def test_update_of_cpus_bites_and_is_lifted(cella, changing):
    """As the host counts the processor time of the cell. The limit is so low that a cell without it has more than that,
    however busy the host is; a machine needs more to answer at all."""
    _limited(cella, "limit.cpu")
    cell, python = changing
    if cella.backend in guests.MACHINES:  # processors go out of use and come back
        for cpus in ("2", "1", "2"):
            cella("update", cell, "--cpus", cpus).ok()
            assert python(PROCESSORS).ok().text == cpus
    limit, most = ("0.1", 0.2) if cella.backend in guests.MACHINES else ("0.02", 0.04)
    with _burning(cella, cell):
        harness.wait_until(lambda: _share(cella, cell) > most, 40, "what the first limit allows")
        cella("update", cell, "--cpus", limit).ok()
        assert _share(cella, cell, 4.0) < most
        cella("update", cell, "--cpus", "2").ok()
        harness.wait_until(lambda: _share(cella, cell) > most, 40, "what the third limit allows")


def test_update_beyond_what_a_machine_was_made_with_is_refused(cella, changing):
    if cella.backend not in guests.MACHINES:
        pytest.skip("a container has the processors and the memory of its host")
    cell, python = changing
    cella("update", cell, "--cpus", "3", "--pids", "32").one_line(125, cell, "2 processors", "make a new cell")
    cella("update", cell, "--memory", "1G").one_line(125, cell, "memory", "make a new cell")
    limits = cella.inspect(cell)["limits"]
    assert limits["cpu_millis"] == 2000 and limits["memory"] == 256 << 20 and limits["pids"] == 64
    assert cella.wait_event(cell, {"kind": "cell.update", "verdict": "refused"})["message"]
    assert python(PROCESSORS).ok().text == "2"


def test_update_below_what_a_machine_uses_is_refused_and_kills_nobody(cella, changing):
    if cella.backend not in guests.MACHINES:
        pytest.skip("the kernel of the host decides, and the versions of its control groups differ")
    cell, python = changing
    holder = cella.spawn("exec", cell, "--", "python3", "-c", EATER.replace("'ate it all'", "len(b), flush=True") % 120 +
                         "\nimport time; time.sleep(120)")
    assert holder.stdout.readline().strip() == str(120 << 20).encode()
    cella("update", cell, "--memory", "64M", "--pids", "32").one_line(125, "uses more memory than that")
    assert cella.inspect(cell)["limits"]["pids"] == 64 and holder.poll() is None
    assert python("print(6 * 7)").ok().text == "42"
    holder.kill()
    holder.communicate()


@pytest.mark.quick
def test_update_refuses_in_words(cella, changing):
    cell, _ = changing
    cella("update", cell).one_line(125, cell, "no limit is given")
    cella("update", cell, "--memory", "1M").one_line(125, cell, "memory", "smallest")
    cella("update", cell, "--disk", "1G").one_line(125, "disk")
    cella("update", "nobody", "--pids", "9").one_line(125, "nobody")
    cella("stop", "--kill", cell).ok()
    cella("update", cell, "--pids", "9").one_line(125, cell, "not running|stopped")


def test_a_limit_can_be_changed_by_the_backends_method(cella):
    _limited(cella, "limit.memory")
    if cella.backend != "container":
        pytest.skip("method of the container backend")
    with cella.cell("--memory", "256M") as cell:
        cella("call", cell, "container.limit-memory", '{"bytes": 67108864}').ok()
        assert cella("exec", cell, "--", "python3", "-c", EATER % 100).status == 137


@pytest.mark.kvm
def test_the_host_does_not_notice(cella):
    """Three cells at their limits at once; the fourth and the host go on."""
    _limited(cella, "limit.memory")
    with cella.new_chain() as chains:
        rivals = [cella.spawn("run", "--memory", "64M", "--timeout", "20s", "--", "python3", "-c", EATER % 200),
                  cella.spawn("run", "--pids", "32", "--timeout", "20s", "--", "python3", "-c", BOMB),
                  cella.spawn("run", "--disk", "16M", "--timeout", "20s", "--", "dd", "if=/dev/zero", "of=/f", "bs=1M", "count=64")]
        time.sleep(0.2)
        assert cella.run("--", "echo", "fine").ok().text == "fine"
        for rival in rivals:
            rival.communicate(timeout=60 * PATIENCE)
    assert len(chains) == 4
    _within_memory(cella, chains)
