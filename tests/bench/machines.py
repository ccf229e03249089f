#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""machines: what a machine of its own costs (backend fullvm): cold start, snapshot, restore, fork, memory of a copy.

Each figure goes to the first output of a command in the cell. The peer is plain QEMU (plain_qemu.py) with the same kernel,
image, memory and processor: its cold boot, and its own snapshots inside a qcow2 (savevm, loadvm). It does less for them:
savevm leaves its bytes in the page cache, where a snapshot with a name is on the disk and has digests; loadvm brings back
the same machine, where a copy gets a network, rules, a name and an identity of its own, and its first output is that of a
new process. Both directories are of one file system. Absolute times mean little on a shared machine; ratios within one run
do. Medians of the rounds. Nothing is asserted: this prints.

    machines.py [--rounds N] [--forks A,B] [--sizes A,B] [--limit SECONDS]

With fewer than three rounds (CELLA_BENCH_ROUNDS, as in CI) the short form: one size, forks of 1 and 10. What would not end
within the limit, or not fit the host's memory, is left out and said. CELLA_BUILD=DIR is the build (default: build).
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "integration"))

from harness import guests  # noqa: E402
from plain_qemu import Peer  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", TOP / "build")).resolve()
SPARES_MAX = 32  # of one cell
CHILD_MIB = 150  # what an idle child and its QEMU may take at most, of the host


class Bench:
    def __init__(self, work):
        guests.lend(BUILD, work / "state")
        config = {"version": 1, "state_dir": str(work / "state"),
                  "classes": {"default": {"floor": "process", "backends": ["fullvm"], "policy": "deny", "image": "base"}}}
        (work / "config.json").write_text(json.dumps(config))
        self.env = dict(os.environ, CELLA_CONFIG=str(work / "config.json"))

    def __call__(self, *words):
        done = subprocess.run([str(BUILD / "cella"), *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cella {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def timed(self, *words):
        start = time.monotonic()
        self(*words)
        return (time.monotonic() - start) * 1000


def machine(cella, name):
    facts = json.loads(cella("call", name, "fullvm.machine"))
    return facts.get("result", facts)


def memory(cella, name):
    """KiB that only this QEMU has: (of the guest's memory, of its own)."""
    pid, ram, own = machine(cella, name)["pid"], 0, 0
    mine = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = line.endswith("/ram") or "memfd:cella-ram" in line
        elif line.startswith("Anonymous:"):  # copies and its own; every other page is a file's
            kib = int(line.split()[1])
            ram, own = (ram + kib, own) if mine else (ram, own + kib)
    return ram, own


def show(what, values, unit="ms"):
    print(f"  {what:44} {statistics.median(values):8.0f} {unit}   ({min(values):.0f} to {max(values):.0f})", flush=True)
    return statistics.median(values)


def ratio(what, part, whole):
    print(f"  {what:44} {part / whole:8.2f}", flush=True)


def copies(cella, rounds):
    """Snapshots of the parent and a restore of each: what they took, and the memory of the copies."""
    shots, pauses, restores = [], [], []
    for i in range(rounds):
        shots.append(cella.timed("snapshot", "parent", f"s{i}"))
        pauses.append(machine(cella, "parent")["snapshot_pause_us"] / 1000)
        start = time.monotonic()
        cella("restore", f"s{i}", "--name", f"r{i}")
        cella("exec", f"r{i}", "--", "echo", "x")
        restores.append((time.monotonic() - start) * 1000)
    ram, own = zip(*[memory(cella, f"r{i}") for i in range(rounds)])
    for i in range(rounds):
        cella("rm", "--force", f"r{i}")
        cella("snapshot", "rm", f"s{i}")
    shot, pause = show("snapshot of the running parent", shots), show("of it, its processors stand still", pauses)
    restore = show("restore to first output", restores)
    show("memory of an idle copy that only it has", [k / 1024 for k in ram], "MiB")
    show("beside it, of QEMU itself", [k / 1024 for k in own], "MiB")
    return shot, pause, restore


def available_mib():
    return next(int(line.split()[1]) >> 10 for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))


def fork(cella, n, *words):
    """ms from the call to the last child's first output, one after another; and in words what came before."""
    start = time.monotonic()
    since = lambda: (time.monotonic() - start) * 1000
    names = json.loads(cella("fork", "parent", "-n", str(n), "--name", "child", "--json", *words))
    called, firsts = since(), []
    for name in names:
        cella("exec", name, "--", "echo", "x")
        firsts.append(since())
    for name in names:
        cella("rm", "--force", name)
    return firsts[-1], f"the call {called:.0f}, the first child's {firsts[0]:.0f}"


def forks(cella, sizes, cold, load, deadline):
    each = None  # what one child took, ms
    for n in sizes:
        left = deadline - time.monotonic()
        if each and 2 * n * each / 1000 > left:
            print(f"  fork of {n:3}: left out, about {2 * n * each / 1000:.0f} s with the removal, of which {max(left, 0):.0f} s are left")
            continue
        if n * CHILD_MIB > available_mib():
            print(f"  fork of {n:3}: left out, {n} children may take {n * CHILD_MIB} MiB, the host has {available_mib()}")
            continue
        took, told = fork(cella, n)
        each = took / n
        print(f"  fork of {n:3}, each to its first output         {took:8.0f} ms   ({took / (n * cold):.2f} of {n} cold starts, "
              f"{took / (n * load):.2f} of {n} times loadvm); {told}", flush=True)
        if n <= SPARES_MAX and deadline - time.monotonic() > 2 * n * each / 1000:
            cella("fork", "parent", "--spares", str(n))
            with_spares, told = fork(cella, n, "--spares", "0")
            print(f"  the same with {n} machines that wait for it      {with_spares:8.0f} ms   ({with_spares / took:.2f} of that); {told}",
                  flush=True)


def one_size(cella, size, arguments, sizes, deadline):
    print(f"machine of {size}")
    cold = show("cold start to first output", [cella.timed("run", "--memory", size, "--", "echo", "x") for _ in range(arguments.rounds)])
    cella("create", "--name", "parent", "--memory", size)
    cella("start", "parent")
    cella("exec", "parent", "--", "python3", "-c", "print(1)")
    facts = machine(cella, "parent")
    print(f"  ({facts['memory'] >> 20} MiB of memory with its kernel's, {facts['accel']}, processor {facts['cpu']})")
    shot, pause, restore = copies(cella, arguments.rounds)
    state = guests.cache(BUILD) / "state"
    key = json.loads((state / "images" / "names" / "base").read_text())["key"]
    with tempfile.TemporaryDirectory(prefix="cella-bench.", dir="/var/tmp") as work:
        peer = Peer(work, state / "kernels" / "default", state / "images" / key / "root.erofs", facts)
        boot = show("plain QEMU: cold boot to first output", [peer.boot() for _ in range(min(arguments.rounds, 2))])
        save = show("plain QEMU: savevm", peer.snapshots(arguments.rounds))
        load = show("plain QEMU: loadvm to first output", peer.restores(arguments.rounds))
    ratio("cold start / plain QEMU's", cold, boot)
    ratio("restore / cold start", restore, cold)
    ratio("snapshot / savevm", shot, save)
    ratio("standing still / savevm, which does all along", pause, save)
    ratio("restore / loadvm", restore, load)
    forks(cella, sizes, cold, load, deadline)
    cella("rm", "--force", "parent")


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("CELLA_BENCH_ROUNDS", "3")))
    parser.add_argument("--forks", type=numbers)
    parser.add_argument("--sizes", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=float, default=900, help="seconds after which no fork is begun (default: 900)")
    arguments = parser.parse_args()
    short = arguments.rounds < 3
    wanted = arguments.forks or ([1, 10] if short else [1, 10, 50])
    trouble = guests.prepare(BUILD)
    if trouble:
        sys.exit(f"image and kernel for guests: {trouble}")
    print(f"{arguments.rounds} rounds, medians (least to most); load of the host at the start {os.getloadavg()[0]:.1f}, "
          f"{os.cpu_count()} processors, {available_mib()} MiB available")
    deadline = time.monotonic() + arguments.limit
    with tempfile.TemporaryDirectory(prefix="cella-bench.", dir="/var/tmp") as work:
        cella = Bench(pathlib.Path(work))
        for i, size in enumerate(arguments.sizes or (["256M"] if short else ["256M", "2G"])):
            # many forks once, of the smallest machine
            one_size(cella, size, arguments, wanted if i == 0 else [n for n in wanted if n <= 10], deadline)


main()
