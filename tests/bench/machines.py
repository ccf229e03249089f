#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""machines: what a machine of its own costs (fullvm, or microvm): cold start, snapshot, restore, fork, memory of a copy.

Each figure goes to the first output of a command in the cell. The peer is plain QEMU (plain_qemu.py) with the same kernel,
image, memory and processor: its cold boot, and its own snapshots inside a qcow2 (savevm, loadvm). It does less for them:
savevm leaves its bytes in the page cache, where a snapshot with a name is on the disk and has digests; loadvm brings back
the same machine, where a copy gets a network, rules, a name and an identity of its own, and its first output is that of a
new process. Both directories are of one file system. Absolute times mean little on a shared machine; ratios within one run
do. Medians of the rounds. Nothing is asserted: this prints.

    machines.py [--backend fullvm|microvm] [--rounds N] [--forks A,B] [--sizes A,B] [--limit SECONDS] [--only-forks]
                [--kernel VERSION]

With microvm there is no peer here: devices.py and boot times have one. On KVM, 20 forks of a cell that has run Python:
tests/lab/lab-vm -m 4G -t 1200 -- tests/bench/machines.py --backend microvm --rounds 1 --sizes 128M --forks 20. The state is
in /run where LAB_VM is set: a file of an overlay is not found in /proc/PID/maps.

With fewer than three rounds (CELLA_BENCH_ROUNDS, as in CI) the short form: one size, forks of 1 and 10. What would not end
within the limit, or not fit the host's memory, is left out and said. CELLA_BUILD=DIR is the build (default: build).
"""
import argparse
import json
import os
import pathlib
import re
import shutil
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
CHILD_MIB = {"fullvm": 150, "microvm": 60}  # what an idle child and its engine may take at most, of the host


def local(work):
    """The build; in the lab a copy in memory, with the libraries it needs: there every open of a file of the host's is a
    question to the host, which an operator's machine does not ask."""
    if "LAB_VM" not in os.environ:
        return BUILD
    copy = work / "build"
    copy.mkdir()
    for path in list(BUILD.glob("cella*")) + [BUILD / "plugins"]:
        if path.is_file() or path.name == "plugins":
            subprocess.run(["cp", "-a", path, copy], check=True)
    needed = subprocess.run(["ldd", *copy.glob("cella*"), *copy.glob("plugins/*.so")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for library in set(re.findall(r"(/\S+) \(0x", needed.stdout)):
        subprocess.run(["mount", "--bind", shutil.copy(library, work), library], check=True)
    return copy


class Bench:
    def __init__(self, work, backend, kernel=None):
        self.backend, self.build = backend, local(work)
        guests.lend(BUILD, work / "state")
        config = {"version": 1, "state_dir": str(work / "state"),
                  "classes": {"default": {"floor": "process", "backends": [backend], "policy": "deny", "image": "base"}}}
        if kernel:
            config["classes"]["default"]["kernel"] = kernel
        (work / "config.json").write_text(json.dumps(config))
        self.env = dict(os.environ, CELLA_CONFIG=str(work / "config.json"))

    def __call__(self, *words):
        done = subprocess.run([str(self.build / "cella"), *words], env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"cella {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def timed(self, *words):
        start = time.monotonic()
        self(*words)
        return (time.monotonic() - start) * 1000


def machine(cella, name):
    facts = json.loads(cella("call", name, f"{cella.backend}.machine"))
    return facts.get("result", facts)


def memory(cella, name):
    """KiB that only this engine has of the guest's memory, and that it has of its own: (ram, anonymous, PSS)."""
    pid, ram, own, pss = machine(cella, name)["pid"], 0, 0, 0
    mine = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = line.endswith("/ram") or "memfd:cella-ram" in line
        elif line.startswith("Anonymous:"):  # copies and its own; every other page is a file's
            kib = int(line.split()[1])
            ram, own = (ram + kib, own) if mine else (ram, own + kib)
        elif line.startswith("Pss:") and not mine:
            pss += int(line.split()[1])
    return ram, own, pss


def show(what, values, unit="ms", places=0):
    print(f"  {what:44} {statistics.median(values):8.{places}f} {unit}   ({min(values):.{places}f} to {max(values):.{places}f})", flush=True)
    return statistics.median(values)


def ratio(what, part, whole):
    print(f"  {what:44} {part / whole:8.2f}", flush=True)


def show_memory(idle, used):
    mib = lambda rows, column: [row[column] / 1024 for row in rows]
    show("memory of an idle copy that only it has", mib(idle, 0), "MiB", 2)
    show("the same after its first command", mib(used, 0), "MiB", 2)
    show("beside the guest's memory, anonymous", mib(used, 1), "MiB", 2)
    show("beside the guest's memory, PSS", mib(used, 2), "MiB", 2)


def copies(cella, rounds):
    """Snapshots of the parent and two restores of each: what they took, and the memory of the copies.

    The first restore of a snapshot meets its file's pages for the first time, and takes longer where KVM is emulated:
    its emulator keeps what it has translated of the guest's code by page, which the others then find done."""
    shots, pauses, firsts, restores, idle, used = [], [], [], [], [], []
    for i in range(rounds):
        shots.append(cella.timed("snapshot", "parent", f"s{i}"))
        pauses.append(machine(cella, "parent")["snapshot_pause_us"] / 1000)
        for name, took in ((f"r{i}", firsts), (f"again{i}", restores)):
            restored = cella.timed("restore", f"s{i}", "--name", name)
            idle.append(memory(cella, name))
            took.append(restored + cella.timed("exec", name, "--", "echo", "x"))
            used.append(memory(cella, name))
    for i in range(rounds):
        cella("rm", "--force", f"r{i}", f"again{i}")
        cella("snapshot", "rm", f"s{i}")
    shot, pause = show("snapshot of the running parent", shots), show("of it, its processors stand still", pauses)
    first, restore = show("restore to first output, a snapshot's first", firsts), show("the same, from then on", restores)
    show_memory(idle, used)
    return shot, pause, first, restore


def available_mib():
    return next(int(line.split()[1]) >> 10 for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))


def fork(cella, n, *words):
    """ms from the call to the last child's first output, one after another; in words what came before; memory, all alive."""
    start = time.monotonic()
    since = lambda: (time.monotonic() - start) * 1000
    names = json.loads(cella("fork", "parent", "-n", str(n), "--name", "child", "--json", *words))
    called, firsts = since(), []
    print(f"  ({n} are there after {called:.0f} ms)", flush=True)
    for name in names:
        cella("exec", name, "--", "echo", "x")
        firsts.append(since())
    rows = [memory(cella, name) for name in names]
    for name in names:
        cella("rm", "--force", name)
    return firsts[-1], f"the call {called:.0f}, the first child's {firsts[0]:.0f}", rows


def forks(cella, sizes, cold, load, deadline):
    each = None  # what one child took, ms
    for n in sizes:
        left = deadline - time.monotonic()
        if each and 2 * n * each / 1000 > left:
            print(f"  fork of {n:3}: left out, about {2 * n * each / 1000:.0f} s with the removal, of which {max(left, 0):.0f} s are left")
            continue
        if n * CHILD_MIB[cella.backend] > available_mib():
            print(f"  fork of {n:3}: left out, {n} children may take {n * CHILD_MIB[cella.backend]} MiB, the host has {available_mib()}")
            continue
        took, told, rows = fork(cella, n)
        each = took / n
        print(f"  fork of {n:3}, each to its first output         {took:8.0f} ms   ({took / (n * cold):.2f} of {n} cold starts, "
              + (f"{took / (n * load):.2f} of {n} times loadvm" if load else f"{each:.0f} each") + f"); {told}", flush=True)
        show(f"of each of {n}, after its first command", [row[0] / 1024 for row in rows], "MiB", 2)
        show("beside the guest's memory, PSS", [row[2] / 1024 for row in rows], "MiB", 2)
        if n <= SPARES_MAX and deadline - time.monotonic() > 2 * n * each / 1000:
            cella("fork", "parent", "--spares", str(n))
            with_spares, told, _ = fork(cella, n, "--spares", "0")
            print(f"  the same with {n} machines that wait for it      {with_spares:8.0f} ms   ({with_spares / took:.2f} of that); {told}",
                  flush=True)


def one_size(cella, size, arguments, sizes, deadline):
    print(f"machine of {size}")
    cold = show("cold start to first output", [cella.timed("run", "--memory", size, "--", "echo", "x") for _ in range(arguments.rounds)])
    cella("create", "--name", "parent", "--memory", size)
    cella("start", "parent")
    cella("exec", "parent", "--", "python3", "-c", "print(1)")
    facts, load = machine(cella, "parent"), None
    print(f"  ({facts['memory'] >> 20} MiB of memory with its kernel's, {facts['accel']}, processor {facts['cpu']})")
    if not arguments.only_forks:
        shot, pause, first, restore = copies(cella, arguments.rounds)
        ratio("restore / cold start, a snapshot's first", first, cold)
        ratio("restore / cold start, from then on", restore, cold)
        if cella.backend == "fullvm":
            load = peer(cella, size, arguments, facts, cold, shot, pause, first)
    forks(cella, sizes, cold, load, deadline)
    cella("rm", "--force", "parent")


def peer(cella, size, arguments, facts, cold, shot, pause, restore):
    state = guests.cache(BUILD) / "state"
    key = json.loads((state / "images" / "names" / "base").read_text())["key"]
    with tempfile.TemporaryDirectory(prefix="cella-bench.", dir="/var/tmp") as work:
        peer = Peer(work, state / "kernels" / "default", state / "images" / key / "root.erofs", facts)
        boot = show("plain QEMU: cold boot to first output", [peer.boot() for _ in range(min(arguments.rounds, 2))])
        save = show("plain QEMU: savevm", peer.snapshots(arguments.rounds))
        load = show("plain QEMU: loadvm to first output", peer.restores(arguments.rounds))
    ratio("cold start / plain QEMU's", cold, boot)
    ratio("snapshot / savevm", shot, save)
    ratio("standing still / savevm, which does all along", pause, save)
    ratio("restore / loadvm", restore, load)
    return load


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", choices=sorted(CHILD_MIB), default="fullvm")
    parser.add_argument("--kernel", help="a version of cella image kernel ls (default: the default there)")
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("CELLA_BENCH_ROUNDS", "3")))
    parser.add_argument("--forks", type=numbers)
    parser.add_argument("--sizes", type=lambda text: text.split(","))
    parser.add_argument("--limit", type=float, default=900, help="seconds after which no fork is begun (default: 900)")
    parser.add_argument("--only-forks", action="store_true", help="no restores, no peer")
    arguments = parser.parse_args()
    short = arguments.rounds < 3
    wanted = arguments.forks or ([1, 10] if short else [1, 10, 50])
    trouble = guests.prepare(BUILD)
    if trouble:
        sys.exit(f"image and kernel for guests: {trouble}")
    print(f"{arguments.rounds} rounds, medians (least to most); load of the host at the start {os.getloadavg()[0]:.1f}, "
          f"{os.cpu_count()} processors, {available_mib()} MiB available")
    deadline = time.monotonic() + arguments.limit
    with tempfile.TemporaryDirectory(prefix="cella-bench.", dir="/run" if "LAB_VM" in os.environ else "/var/tmp") as work:
        cella = Bench(pathlib.Path(work), arguments.backend, arguments.kernel)
        for i, size in enumerate(arguments.sizes or (["256M"] if short else ["256M", "2G"])):
            # many forks once, of the smallest machine
            one_size(cella, size, arguments, wanted if i == 0 else [n for n in wanted if n <= 10], deadline)


main()
