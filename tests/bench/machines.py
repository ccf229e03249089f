#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""machines: what a machine of its own costs (backend fullvm): cold start, snapshot, restore, fork, memory of a copy.

Each figure goes to the first output of a command in the cell. The peer is plain QEMU booting the same kernel to its first
line. Absolute times mean little on a shared machine; ratios within one run do. Nothing is asserted: this prints.

    CELLA_BENCH_ROUNDS=N   rounds (default 3)
    CELLA_BENCH_FORKS=A,B  sizes of forks (default 1,10)
    CELLA_BENCH_SIZES=A,B  memory limits (default 256M,2G)
    CELLA_BUILD=DIR        the build directory (default: build)
"""
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

ROUNDS = int(os.environ.get("CELLA_BENCH_ROUNDS", "3"))
FORKS = [int(n) for n in os.environ.get("CELLA_BENCH_FORKS", "1,10").split(",")]
SIZES = os.environ.get("CELLA_BENCH_SIZES", "256M,2G").split(",")
BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", TOP / "build")).resolve()


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


def plain_qemu():
    """Power on to the kernel's own end without an init: what a boot costs without us."""
    kvm = re.search(r"\b(svm|vmx)\b", pathlib.Path("/proc/cpuinfo").read_text())
    processor = ["-accel", "kvm", "-cpu", "host"] if kvm else ["-cpu", "max"]
    kernel = guests.cache(BUILD) / "state" / "kernels" / "default" / "vmlinuz"
    start = time.monotonic()
    subprocess.run(["qemu-system-x86_64", "-M", "q35", "-nodefaults", "-display", "none", "-no-reboot", "-m", "256M", *processor,
                    "-kernel", str(kernel), "-append", "quiet panic=-1 mitigations=off"], stderr=subprocess.DEVNULL, timeout=120)
    return (time.monotonic() - start) * 1000


def memory(cella, name):
    """KiB that only this QEMU has: (of the guest's memory, of its own)."""
    pid = json.loads(cella("call", name, "fullvm.machine"))
    pid = pid.get("result", pid)["pid"]
    ram = own = 0
    mine = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            mine = line.endswith("/ram") or "memfd:cella-ram" in line
        elif line.startswith("Anonymous:"):  # copies and its own; every other page is a file's
            kib = int(line.split()[1])
            ram, own = (ram + kib, own) if mine else (ram, own + kib)
    return ram, own


def pause_ms(cella, name):
    facts = json.loads(cella("call", name, "fullvm.machine"))
    return facts.get("result", facts)["snapshot_pause_us"] / 1000


def show(what, values, unit="ms"):
    print(f"  {what:44} {statistics.median(values):8.0f} {unit}   ({min(values):.0f} to {max(values):.0f})", flush=True)
    return statistics.median(values)


def one_size(cella, size):
    print(f"machine of {size}")
    cold = show("cold start to first output", [cella.timed("run", "--memory", size, "--", "echo", "x") for _ in range(ROUNDS)])
    cella("create", "--name", "parent", "--memory", size)
    cella("start", "parent")
    cella("exec", "parent", "--", "python3", "-c", "print(1)")
    shots, pauses, restores = [], [], []
    for i in range(ROUNDS):
        shots.append(cella.timed("snapshot", "parent", f"s{i}"))
        pauses.append(pause_ms(cella, "parent"))
        start = time.monotonic()
        cella("restore", f"s{i}", "--name", f"r{i}")
        cella("exec", f"r{i}", "--", "echo", "x")
        restores.append((time.monotonic() - start) * 1000)
    show("snapshot of the running parent", shots)
    show("of it, its processors stand still", pauses)
    restore = show("restore to first output", restores)
    print(f"  restore / cold start                         {restore / cold:8.2f}")
    ram, own = zip(*[memory(cella, f"r{i}") for i in range(ROUNDS)])
    show("memory of an idle copy that only it has", [k / 1024 for k in ram], "MiB")
    show("beside it, of QEMU itself", [k / 1024 for k in own], "MiB")
    for i in range(ROUNDS):
        cella("rm", "--force", f"r{i}")
        cella("snapshot", "rm", f"s{i}")
    for n in FORKS:
        start = time.monotonic()
        names = json.loads(cella("fork", "parent", "-n", str(n), "--name", f"f{n}", "--json"))
        names = names["cells"] if isinstance(names, dict) else names
        names = [c["name"] if isinstance(c, dict) else c for c in names]
        for name in names:
            cella("exec", name, "--", "echo", "x")
        took = (time.monotonic() - start) * 1000
        print(f"  fork of {n:3}, each to its first output         {took:8.0f} ms   ({took / (n * cold):.2f} of {n} cold starts)",
              flush=True)
        for name in names:
            cella("rm", "--force", name)
    cella("rm", "--force", "parent")


def main():
    trouble = guests.prepare(BUILD)
    if trouble:
        sys.exit(f"image and kernel for guests: {trouble}")
    with tempfile.TemporaryDirectory(prefix="cella-bench.", dir="/var/tmp") as work:
        cella = Bench(pathlib.Path(work))
        show("plain QEMU, the same kernel, to its end", [plain_qemu() for _ in range(ROUNDS)])
        for size in SIZES:
            one_size(cella, size)


main()
