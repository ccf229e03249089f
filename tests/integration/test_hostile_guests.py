# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Guests that mean harm to a kernel in user space: they use up everything there is, nest what can be nested, and pull memory away
from under calls. Each gets the errors that Linux gives; the kernel lives and answers the next."""
import contextlib
import os
import pathlib
import signal
import subprocess

import pytest

from harness import PATIENCE
from harness import cella as harness

PROGRAMS = pathlib.Path(__file__).parent / "hostile"
SECONDS = 300 * PATIENCE
MUSL = ["musl-gcc", "-static", "-O1", "-D_GNU_SOURCE", "-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A program: static, so that it asks nothing of the image."""
    at = tmp_path_factory.mktemp("hostile")

    def build(name):
        subprocess.run([*MUSL, "-o", at / name, PROGRAMS / f"{name}.c"], check=True)
        return at / name
    return build


@pytest.fixture
def room(cella):
    """Makes a cell of a kernel in user space, with little of everything."""
    if cella.backend != "gvisor-like":
        pytest.skip("attacks the kernel of gvisor-like")
    with contextlib.ExitStack() as stack:
        yield lambda memory="256M", disk="64M": stack.enter_context(cella.cell("--memory", memory, "--disk", disk, "--pids", "100"))


def run(cella, cell, program, *arguments):
    """Its lines; afterwards the kernel does what it did before."""
    cella("cp", program, f"{cell}:/tmp/{program.name}").ok()
    result = cella("exec", cell, "--", f"/tmp/{program.name}", *arguments, timeout=SECONDS)
    assert cella("exec", cell, "--", "sh", "-c", "echo lives | cat > /tmp/x && cat /tmp/x", timeout=SECONDS).ok().text == "lives"
    assert result.status == 0, (result.out, result.err)
    return dict(line.split(": ", 1) for line in result.out.decode().splitlines())


# musl's words for the errors.
EXHAUSTED = {"areas": "Out of memory", "descriptors": "No file descriptors available", "pipes": "no more files", "sockets": "no more files",
             "kinds": "no more files", "processes": "Resource temporarily unavailable", "threads": "Resource temporarily unavailable",
             "bomb": "ended", "inodes": "No space left on device", "disk": "No space left on device", "mapped": "a signal",
             "watches": "a bound", "queued": "Resource temporarily unavailable", "timers": "Resource temporarily unavailable",
             "storm": "survived", "memory": "Killed", "tables": "Killed"}
NESTED = {"deep": "Filename too long, ok, 10000 taken away", "names": "ok, gone, Filename too long",
          "many": "100000 made, 100002 seen, 100000 gone, ok", "links": "Symbolic link loop, ok, Symbolic link loop",
          "sparse": "1, 1, data 268435455, hole 0", "splices": "20000, 20000, itself: Invalid argument",
          "epolls": "Invalid argument, Symbolic link loop, 4 then Symbolic link loop", "circles": "0 wrong", "chain": "ok"}


def test_memory_that_goes_away_during_calls(cella, built, room):
    assert run(cella, room(), built("races"), "20") == {"enough calls": "1", "wrong": "0"}


def test_all_there_is_is_used_up_twice(cella, built, room):
    """The second time says that the first gave all back."""
    assert run(cella, room(), built("exhaust")) == {f"{name} {n}": end for name, end in EXHAUSTED.items() for n in (1, 2)}


def test_deep_long_many_and_in_circles(cella, built, room):
    """What the host's kernel says to the same program."""
    assert run(cella, room("1G", "1G"), built("nests")) == NESTED


def test_the_end_of_the_process_below_a_task(cella, room):
    """A stub that is killed from outside takes its guest's process with it, and nothing else; one that rests is not used again."""
    cell = room()
    sentry = cella.agent(cell)
    first = set(harness.children_of(sentry))  # what all are made of, and the agent's
    assert len(first) == 2
    assert cella("exec", cell, "--", "echo", "rests").ok().text == "rests"
    # Its guest runs: the end of a stub whose guest sleeps in a call is seen when that is over.
    process = cella.spawn("exec", cell, "--", "sh", "-c", "echo runs; while :; do :; done")
    assert process.stdout.readline().strip() == b"runs"
    others = set(harness.children_of(sentry)) - first
    assert others
    for stub in others:
        os.kill(stub, signal.SIGKILL)
    try:
        process.wait(timeout=60 * PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode != 0
    assert cella("exec", cell, "--", "echo", "lives").ok().text == "lives"
