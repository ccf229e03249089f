# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""run, and the verbs one by one: order, names, exit codes, streams, signals, terminals."""
import contextlib
import errno
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import termios
import time

import pytest

from harness import PATIENCE
from harness import cella as harness, guests
from harness.warden import Warden

pytestmark = pytest.mark.lab


@pytest.mark.kvm
@pytest.mark.quick
def test_run_prints_42(cella):
    result = cella.run("--policy", "deny", "--", "python3", "-c", "print(6*7)").ok()
    assert result.text == "42"


@pytest.mark.quick
@pytest.mark.parametrize("status", [0, 1, pytest.param(3, marks=pytest.mark.kvm), 124, 255])
def test_exit_status_is_the_commands(cella, status):
    cella.run("--", "sh", "-c", f"exit {status}").ok(status)


@pytest.mark.quick
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.kvm), signal.SIGABRT, signal.SIGUSR1])
def test_death_by_signal_is_128_and_n(cella, number):
    cella.run("--", "sh", "-c", f"kill -{int(number)} $$").ok(128 + number)


@pytest.mark.kvm
@pytest.mark.quick
def test_missing_command_is_127(cella):
    cella.run("--", "no-such-command").one_line(127, "no-such-command")
    cella.run("--", "/no/such/command").one_line(127, "/no/such/command")


def test_command_that_cannot_run_is_126(cella):
    cella.run("--", "/usr").one_line(126, "/usr")
    cella.run("--", "/etc/passwd").one_line(126, "/etc/passwd")


@pytest.mark.quick
def test_wall_clock_limit(cella):
    cella.run("--timeout", "1s", "--", "sleep", "25").one_line(124, "wall|time", "1")  # no process left: the residue scan


@pytest.mark.kvm
def test_wall_clock_limit_takes_the_whole_tree(cella):
    """Children in other sessions, with signals ignored, go too."""
    script = "trap '' TERM HUP INT; setsid sleep 61 & (trap '' TERM; sleep 62) & sleep 63"
    cella.run("--timeout", "1s", "--", "sh", "-c", script).ok(124)


def test_children_do_not_outlive_the_command(cella):
    cella.run("--", "sh", "-c", "setsid sleep 64 & sleep 65 & exit 5").ok(5)


@pytest.mark.kvm
@pytest.mark.quick
def test_streams_are_separate_and_whole(cella):
    result = cella.run("--", "sh", "-c", "echo out; echo err >&2; cat", input=b"in\0\xff\n").ok()
    assert result.out == b"out\nin\0\xff\n"
    assert result.err == b"err\n"


@pytest.mark.kvm
def test_large_stdin_comes_back_unchanged(cella):
    data = os.urandom(1 << 20) * 8
    assert cella.run("--", "cat", input=data).ok().out == data


def test_without_input_stdin_is_at_its_end(cella):
    assert cella.run("--", "wc", "-c").ok().text == "0"


def test_output_without_end_into_a_reader_that_leaves(cella):
    """A cell that prints 10 GiB costs the host no memory, and stops when its reader goes away."""
    run = cella.spawn("run", "--name", "yes", "--", "sh", "-c", "yes | head -c 10G")
    got, peak, samples = 0, 0, 0
    while got < 64 << 20:
        got += len(os.read(run.stdout.fileno(), 1 << 20))
        if got >> 23 > samples:
            samples += 1
            peak = max(peak, harness.rss_bytes(cella.warden("yes")), harness.rss_bytes(run.pid))
    assert peak < 32 << 20
    time.sleep(0.3)  # nobody reads: everything between the cell and here fills, then stands still
    assert harness.rss_bytes(cella.warden("yes")) < 32 << 20
    run.stdout.close()
    run.wait(20 * PATIENCE)
    run.stderr.close()


@pytest.mark.kvm
def test_output_nobody_reads_does_not_block_exec(cella):
    with cella.copy() as cell:
        stuck = cella.spawn("exec", cell, "--", "yes")
        time.sleep(0.3)
        assert cella("exec", cell, "--", "echo", "alive").ok().text == "alive"
        os.killpg(stuck.pid, signal.SIGKILL)
        stuck.communicate()


def sleeps_in_poll(pid):
    with open(f"/proc/{pid}/syscall", encoding="ascii") as handle:
        return handle.read().split()[0] in ("7", "271")  # poll, ppoll


def gone(pid):
    """It has no descriptors any more; its parent may not have heard of it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


@pytest.mark.quick
@pytest.mark.parametrize("removed", [True, False])
def test_exec_into_a_cell_that_is_removed_meanwhile(cella, removed):
    """It is told that, also when its request came too late to be read; a warden that died is another matter."""
    with cella.cell() as cell:
        running = cella.spawn("exec", cell, "--", "sh", "-c", "echo ready; sleep 1000")
        assert running.stdout.readline() == b"ready\n"
        pid = cella.warden(cell)
        os.kill(pid, signal.SIGSTOP)
        try:
            rm = cella.spawn("rm", "--force", cell) if removed else None
            if rm:
                harness.wait_until(lambda: sleeps_in_poll(rm.pid), 20, "rm has asked")
            late = cella.spawn("exec", cell, "--", "sleep", "1000")
            harness.wait_until(lambda: sleeps_in_poll(late.pid), 20, "exec has asked")
        finally:
            os.kill(pid, signal.SIGCONT if removed else signal.SIGKILL)
        word = b"removed while" if removed else b"the warden of cell"
        for process in (running, late):
            _, err = process.communicate(timeout=60 * PATIENCE)
            assert word in err and (b"died" in err) != removed, err
            assert len(err.splitlines()) == 1 and process.returncode == 125, (err, process.returncode)
        if rm:
            rm.communicate(timeout=60 * PATIENCE)
            assert rm.returncode == 0
        else:  # its lock goes a moment after its connections
            harness.wait_until(lambda: cella("gc") and not (cella.state / "names" / cell).is_symlink(), 20, "gc takes it away")


@pytest.mark.quick
@pytest.mark.parametrize("words", [("stop",), ("rm",), ("rm", "--force")], ids=" ".join)
def test_who_asks_for_the_end_of_a_cell_that_just_ends(cella, words):
    """Their request comes too late to be read. What they asked for is done; no warden has died."""
    with cella.cell() as cell:
        pid, agent = cella.warden(cell), cella.agent(cell)
        os.kill(pid, signal.SIGSTOP)
        try:
            os.kill(agent, signal.SIGKILL)
            harness.wait_until(lambda: gone(agent), 20, "the end of the agent")
            late = cella.spawn(*words, cell)
            harness.wait_until(lambda: sleeps_in_poll(late.pid), 20, "its request")
        finally:
            os.kill(pid, signal.SIGCONT)
        _, err = late.communicate(timeout=60)
        assert (late.returncode, err) == (0, b"")
        if words == ("stop",):
            assert cella.inspect(cell)["summary"]["ended"] == "agent"
        else:
            assert not (cella.state / "names" / cell).is_symlink()


@pytest.mark.quick
def test_remove_says_how_a_stopped_cell_had_ended(cella):
    with cella.cell() as cell:
        cella("stop", "--kill", cell).ok()
        assert cella("rm", "--json", cell).ok().json()["ended"] == "stop"
        assert not (cella.state / "names" / cell).is_symlink()


@pytest.mark.quick
def test_exec_says_how_its_cell_ended(cella):
    """The command's end is told when the agent is gone; the cell's, and why, is recorded a moment later."""
    with cella.cell() as cell:
        running = cella.spawn("exec", cell, "--", "sh", "-c", "echo ready; sleep 1000")
        assert running.stdout.readline() == b"ready\n"
        gate = cella.cell_json(cell).get("gate_pid")
        if gate:
            os.kill(gate, signal.SIGSTOP)  # the end of the cell waits for its last words
        os.kill(cella.agent(cell), signal.SIGKILL)
        _, err = running.communicate(timeout=60)
        assert running.returncode == 125 and b"the cell was ended: agent" in err, err


@pytest.mark.quick
def test_run_says_that_the_agent_ended(cella):
    """Neither the command nor anybody who asked for it was what ended the cell."""
    running = cella.spawn("run", "--name", "led", "--", "sh", "-c", "echo ready; sleep 1000")
    assert running.stdout.readline() == b"ready\n"
    os.kill(cella.agent("led"), signal.SIGKILL)
    _, err = running.communicate(timeout=60 * PATIENCE)
    assert running.returncode == 125 and b"the cell was ended: agent" in err, err


@pytest.mark.quick
def test_detached_command_whose_agent_ended(cella):
    cella.run("-d", "--name", "behind", "--", "sleep", "1000").ok()
    os.kill(cella.agent("behind"), signal.SIGKILL)
    harness.wait_until(lambda: cella.ended("behind"), 20, "the end of the cell")
    summary = cella.inspect("behind")["summary"]
    assert summary["ended"] == "agent" and "could not be started" not in summary.get("message", ""), summary
    assert [e["reason"] for e in cella.events("behind") if e["kind"] == "cell.end"] == ["agent"]
    cella("rm", "behind").ok()


def test_detached_command_that_is_not_there(cella):
    cella.run("-d", "--name", "behind", "--", "/no/such/command").ok()
    harness.wait_until(lambda: cella.ended("behind"), 20, "the end of the cell")
    assert cella.inspect("behind")["summary"]["status"] == 127
    assert [e["errno"] for e in cella.events("behind") if e["kind"] == "exec.failed"] == [errno.ENOENT]
    cella("rm", "behind").ok()


def test_output_that_is_read_after_the_end_of_its_cell(cella):
    """A client that was slow says that it has read when there is no command any more; what was on its way comes whole."""
    seen = [-1]

    def full():
        seen.append(late.waiting())
        return seen[-1] > 1 << 16 and seen[-1] == seen[-2]
    with cella.cell() as cell, Warden(cella.directory(cell)) as late:
        for stream in range(1, 5):  # of each, more than a socket holds may be on its way
            late.open(stream, "yes")
        harness.wait_until(full, 20, "nothing more goes into the socket")
        cella("rm", "--force", cell).ok()
        with contextlib.suppress(BrokenPipeError):  # everything was in the socket, and the warden has gone
            for stream in range(1, 5):
                late.credit(stream, 1000)
        kinds, part = late.rest()
        assert len(kinds) > 4 and not part, (len(kinds), len(part))


@pytest.mark.quick
def test_who_went_away_waits_no_more(cella):
    """As many as a warden has places for have asked for a cell's end and left; one more is told of it."""
    with cella.cell() as cell, Warden(cella.directory(cell)) as stays:
        for _ in range(40):
            with Warden(cella.directory(cell)) as leaves:
                leaves.ask("wait")
            stays.call("policy")  # by the second one, the warden has seen that end
        assert stays.call("stop", kill=True)["ended"] == "stop"


@pytest.mark.kvm
@pytest.mark.quick
def test_verbs_one_by_one(cella):
    with cella.cell(start=False) as cell:
        assert cella.state_of(cell) == "created"
        cella("start", cell).ok()
        assert cella.state_of(cell) == "running"
        assert cella("exec", cell, "--", "echo", "hello").ok().text == "hello"
        cella("exec", cell, "--", "sh", "-c", "exit 9").ok(9)
        cella("stop", cell).ok()
        assert cella.state_of(cell) == "stopped"
        cella("rm", cell).ok()
        assert cella("inspect", cell).status == 125


def test_what_exec_wrote_is_there_for_the_next(cella):
    with cella.copy() as cell:
        cella("exec", cell, "--", "sh", "-c", "echo kept > /tmp/file").ok()
        assert cella("exec", cell, "--", "cat", "/tmp/file").ok().text == "kept"


@pytest.mark.kvm
def test_pause_and_resume(cella):
    if cella.capability("pause") == "none":
        pytest.skip("the backend says it cannot pause")
    with cella.copy() as cell:
        ticker = cella.spawn("exec", cell, "--", "sh", "-c", "while :; do date +%N > /tmp/tick; sleep 0.05; done")
        harness.wait_until(lambda: cella("exec", cell, "--", "cat", "/tmp/tick").status == 0, what="ticking")
        cella("pause", cell).ok()
        assert cella.state_of(cell) == "paused"
        agent = cella.agent(cell)
        used = [_cpu_of(pid) for pid in harness.children_of(agent, deep=True)]
        time.sleep(0.4)
        assert used == [_cpu_of(pid) for pid in harness.children_of(agent, deep=True)]
        cella("pause", cell).one_line(125, cell, "not running|paused")
        cella("resume", cell).ok()
        assert cella.state_of(cell) == "running"
        first = cella("exec", cell, "--", "cat", "/tmp/tick").ok().text
        harness.wait_until(lambda: cella("exec", cell, "--", "cat", "/tmp/tick").text != first, what="ticking again")
        os.killpg(ticker.pid, signal.SIGTERM)
        ticker.communicate()


def _cpu_of(pid):
    with open(f"/proc/{pid}/stat") as handle:
        return handle.read().rsplit(")", 1)[1].split()[11:13]


@pytest.mark.kvm
def test_stats_count_what_the_cell_used(cella):
    if cella.capability("stats") == "none":
        pytest.skip("the backend says it cannot measure")
    with cella.copy() as cell:
        cella("exec", cell, "--", "python3", "-c", "x = sum(i * i for i in range(2000000))").ok()
        stats = cella("stats", "--json", cell).ok().json()
        stats = stats[0] if isinstance(stats, list) else stats
        assert stats["cpu_user_ns"] + stats["cpu_system_ns"] > 30_000_000
        assert stats["memory_peak_bytes"] > 1 << 20
        assert stats["pids"] >= 1


@pytest.mark.kvm
def test_stop_of_a_cell_that_ignores_term(cella):
    with cella.copy() as cell:
        deaf = cella.spawn("exec", cell, "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
        assert deaf.stdout.readline() == b"ready\n"
        started = time.monotonic()
        cella("stop", "--time", "1s", cell).ok()
        assert time.monotonic() - started < 30 * PATIENCE
        assert cella.state_of(cell) == "stopped"
        deaf.communicate(timeout=30 * PATIENCE)
        assert deaf.returncode != 0


@pytest.mark.quick
@pytest.mark.parametrize("verb", ["start", "exec", "pause", "resume", "stop", "stats", "inspect", "logs", "rm"])
def test_verb_on_a_cell_that_does_not_exist(cella, verb):
    words = [verb, "nobody"] + (["--", "true"] if verb == "exec" else [])
    cella(*words).one_line(125, "nobody")


@pytest.mark.kvm
def test_verbs_in_the_wrong_order(cella):
    with cella.cell(start=False) as cell:
        cella("exec", cell, "--", "true").one_line(125, "not running|start")
        cella("pause", cell).one_line(125, "created|not running|start")
        cella("resume", cell).one_line(125, "created|not paused|start")
        cella("start", cell).ok()
        cella("start", cell).one_line(125, "running|already|started before")
        cella("resume", cell).one_line(125, "running|not paused")
        cella("rm", cell).one_line(125, "running", "stop|force")
        cella("stop", cell).ok()
        cella("exec", cell, "--", "true").one_line(125, "stopped|not running")
        cella("start", cell).one_line(125, "stopped")


@pytest.mark.kvm
@pytest.mark.quick
def test_two_cells_one_name(cella):
    with cella.cell(start=False, name="twin"):
        cella("create", "--name", "twin").one_line(125, "twin")
        cella.run("--name", "twin", "--", "true").one_line(125, "twin")
    with cella.cell(start=False, name="twin"):  # free again
        pass


def test_two_cells_one_name_at_once(cella):
    """Of many that ask for one name at the same time, one gets it."""
    rivals = [cella.spawn("create", "--name", "race") for _ in range(6)]
    ended = [(r.communicate(timeout=60 * PATIENCE)[1], r.returncode) for r in rivals]
    assert sorted(status for _, status in ended) == [0] + [125] * 5, ended
    cella("rm", "--force", "race").ok()


@pytest.mark.parametrize("name", ["", "a/b", "..", "-x", "x" * 64, "a b", "a\nb", "../../etc"])
def test_names_that_are_refused(cella, name):
    cella("create", f"--name={name}").one_line(125, "name")


def test_ps_lists_cells(cella):
    with cella.copy(name="listed") as cell:
        rows = {row["name"]: row for row in cella("ps", "--json").ok().json()}
        assert rows[cell]["state"] == "running"
        assert rows[cell]["backend"] == cella.backend
        assert re.search(r"\blisted\b.*\brunning\b", cella("ps").ok().text)
    assert "listed" not in cella("ps").ok().text


def test_id_prefix_names_a_cell(cella):
    with cella.copy() as cell:
        ident = cella.inspect(cell)["id"]
        assert cella("exec", ident, "--", "echo", "by id").ok().text == "by id"
        assert cella("exec", ident[:8], "--", "echo", "by prefix").ok().text == "by prefix"


def test_detached_command_and_its_log(cella):
    cella.run("-d", "--name", "behind", "--", "sh", "-c", "echo from behind; echo bad >&2; sleep 30").ok()
    harness.wait_until(lambda: "from behind" in cella("logs", "behind").text, what="log")
    assert cella.state_of("behind") == "running"
    cella("rm", "--force", "behind").ok()


@pytest.mark.kvm
def test_two_cells_do_not_see_each_other(cella):
    with cella.copy() as one, cella.copy() as two:
        cella("exec", one, "--", "sh", "-c", "echo secret > /tmp/mine").ok()
        assert cella("exec", two, "--", "cat", "/tmp/mine").status == 1
        seen = cella("exec", two, "--", "sh", "-c", "ls /proc | grep -c '^[0-9]'").ok().text
        assert int(seen) <= 6  # the agent, the shell and its pipeline
        names = {cella("exec", c, "--", "hostname").ok().text for c in (one, two)}
        assert len(names) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.kvm), signal.SIGHUP])
def test_run_passes_signals_on(cella, number):
    run = cella.spawn("run", "--", "sh", "-c", f"trap 'echo caught; exit 17' {number.name[3:]}; echo ready; "
                      "while :; do sleep 0.1; done")
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(number)
    out, err = run.communicate(timeout=20 * PATIENCE)
    assert (out, run.returncode) == (b"caught\n", 17), err


@pytest.mark.quick
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.kvm), signal.SIGTERM])
def test_run_ended_by_a_signal_leaves_nothing(cella, number):
    run = cella.spawn("run", "--", "sh", "-c", "echo ready; exec sleep 66")  # exec: a shell that forks just then misses it
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(number)
    run.communicate(timeout=20 * PATIENCE)
    assert run.returncode == 128 + number


def pending(pid):
    """Signals that wait for a process, as a mask."""
    with open(f"/proc/{pid}/status", encoding="ascii") as handle:
        return next(int(line.split()[1], 16) for line in handle if line.startswith("ShdPnd:"))


def test_run_that_is_told_thrice_waits_for_nobody(cella):
    """The third signal ends run itself when the warden does not answer; the cell goes when the warden can."""
    def tell(number):
        os.kill(run.pid, number)
        harness.wait_until(lambda: not pending(run.pid) >> (number - 1) & 1, 20, "the signal is taken")
    run = cella.spawn("run", "--name", "stuck", "--", "sh", "-c", "echo ready; sleep 1000")
    assert run.stdout.readline() == b"ready\n"
    warden, directory = cella.warden("stuck"), cella.directory("stuck")
    os.kill(warden, signal.SIGSTOP)
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            tell(number)
        _, err = run.communicate(timeout=20 * PATIENCE)
        assert run.returncode == 125 and b"not waited for" in err, err
    finally:
        os.kill(warden, signal.SIGCONT)
    harness.wait_until(lambda: not directory.exists(), 20, "the end of the cell")


@pytest.mark.kvm
def test_signal_while_the_cell_is_being_made(cella):
    """At any moment of the set-up: nothing is left (the residue scan of the fixture)."""
    for delay in (0.0, 0.01, 0.03, 0.06, 0.1):
        run = cella.spawn("run", "--", "sleep", "67")
        time.sleep(delay)
        run.send_signal(signal.SIGTERM)
        run.communicate(timeout=20 * PATIENCE)
        assert run.returncode != 0


def _terminal(cella, *words, rows=31, cols=97):
    """cella on a pseudo terminal; gives (process, the test's end)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
    process = subprocess.Popen(cella.argv(*words), env=cella.env, stdin=theirs, stdout=theirs, stderr=theirs,
                               start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(theirs)
    return process, ours


def _read_until(fd, pattern, seconds=20):
    text, deadline = b"", time.monotonic() + seconds * PATIENCE
    while not re.search(pattern, text):
        assert time.monotonic() < deadline, text
        try:
            more = os.read(fd, 4096)
        except OSError:
            more = b""
        assert more, f"ended before /{pattern}/: {text}"
        text += more
    return text


@pytest.mark.kvm
def test_terminal_and_resize(cella):
    script = "stty size; test -t 0 && test -t 1 && test -t 2 && echo terminals; trap 'stty size; exit 7' WINCH; " \
             "echo ready; while :; do sleep 0.1; done"
    process, ours = _terminal(cella, "run", "-i", "-t", "--", "sh", "-c", script)
    text = _read_until(ours, rb"ready")
    assert b"31 97" in text and b"terminals" in text
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    _read_until(ours, rb"40 120")
    assert process.wait(20 * PATIENCE) == 7
    os.close(ours)


def test_interrupt_key_reaches_the_command(cella):
    process, ours = _terminal(cella, "run", "-i", "-t", "--", "sh", "-c",
                              "trap 'echo got-int; exit 8' INT; echo ready; while :; do sleep 0.1; done")
    _read_until(ours, rb"ready")
    os.write(ours, b"\x03")
    _read_until(ours, rb"got-int")
    assert process.wait(20 * PATIENCE) == 8
    os.close(ours)


@pytest.mark.kvm
def test_environment_user_and_directory(cella):
    result = cella.run("--env", "A=b c", "--user", "1000:1000", "--workdir", "/tmp", "--", "sh", "-c",
                       "echo \"$A\"; id -u; id -g; pwd").ok()
    assert result.text.splitlines() == ["b c", "1000", "1000", "/tmp"]


def test_gc_finds_nothing_and_keeps_the_living(cella):
    with cella.copy() as cell:
        assert not cella("gc", "--check").ok().out
        cella("gc").ok()
        assert cella("exec", cell, "--", "echo", "alive").ok().text == "alive"


@pytest.mark.kvm
def test_timings_name_the_steps(cella):
    """Of a machine, the process that holds it, its kernel and its init have each their share."""
    line = cella.run("--timings", "--", "true").ok().errors.partition("timings (ms):")[2].split()
    took = {name: float(ms) for name, ms in zip(line[::2], line[1::2])}
    for step in ("create", "start", "attach", "agent"):
        assert step in took, took
    assert abs(sum(took.values()) - 2 * took["total"]) < 3, took
    guest = {name for name in took if name.startswith("guest-")}
    if cella.backend not in guests.MACHINES:
        assert not guest, took
        return
    for step in ("jail", "vmm", "guest-kernel", "guest-drivers", "guest-root", "guest-cell"):
        assert took[step] > 0, took


@pytest.mark.quick
def test_output_is_the_commands_alone(cella):
    """Nothing of cella's own goes to stdout, and nothing to stderr when it is no terminal."""
    result = cella.run("--", "true").ok()
    assert result.out == b"" and result.err == b""


@pytest.mark.kvm
@pytest.mark.quick
def test_gate_that_does_not_start_refuses_the_cell(cella, tmp_path):
    """The enforcer works while the backend creates: what it fails at late must still stop the start."""
    if cella.backend == "gvisor-like":
        pytest.skip("a cell of gvisor-like has no network device, so no gate")
    here = tmp_path / "build"
    here.mkdir(mode=0o755)
    for path in cella.build.glob("cella*"):
        if path.is_file():
            shutil.copy(path, here / path.name)
    shutil.copytree(cella.build / "plugins", here / "plugins", ignore=shutil.ignore_patterns("*.p"))
    shutil.copy("/bin/false", here / "cella-gate")
    broken = harness.Cella(here, tmp_path, cella.backend)
    if cella.backend in guests.MACHINES:
        guests.lend(cella.build, broken.state)
    assert not broken("run", "--policy", "deny", "--", "/bin/echo", "ran").one_line(125, "gate did not start").out
    assert not list((broken.state / "cells").iterdir())
    kinds = [json.loads(line)["kind"] for path in (broken.state / "audit").glob("*.jsonl")
             for line in path.read_text().splitlines()]
    assert "cell.refused" in kinds and not {"net.attach", "cell.create", "cell.start"} & set(kinds)


@pytest.mark.quick
def test_a_backend_without_a_network_is_taken_when_it_is_named(cella):
    """Where nobody names one, attempts are to be recorded; what has no network cannot."""
    if cella.backend != "container":
        pytest.skip("one backend asks for all")
    with cella.configured(classes={"default": {"floor": "process", "policy": "deny"}}):
        kernel = {policy: cella.run("--class", "default", "--policy", policy, "--", "uname", "-r").ok().text for policy in ("deny", "none")}
        named = cella.run("--backend", "gvisor-like", "--", "uname", "-r").ok().text
    assert kernel["deny"] == os.uname().release
    assert kernel["none"] == named != kernel["deny"]


def test_inspect_shows_what_a_workload_did_not_get(cella):
    if cella.backend != "gvisor-like":
        pytest.skip("the host's kernel, or the guest's, answers every system call")
    with cella.cell("--policy", "none") as cell:
        before = {row["number"] for row in cella.inspect(cell)["missing"]}
        cella("exec", cell, "--", "python3", "-c", "import ctypes; ctypes.CDLL(None).syscall(425, 1, 0); ctypes.CDLL(None).syscall(999)").ok()
        rows = {row["number"]: row["name"] for row in cella.inspect(cell)["missing"]}
    assert not before & {425, 999}
    assert rows[425] == "io_uring_setup" and rows[999] == ""
