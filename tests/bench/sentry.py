#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""sentry: what work costs in a cell of gvisor-like, beside the host and beside runsc on its ptrace platform, interleaved.

    tests/bench/sentry.py [--rounds N] [--scale F] [--only ROW,…]

Each row is timed from inside by calls.c. Figures are medians of the rounds; only the ratios mean something. Without runsc
(Debian's package of that name) its column is empty.
"""
import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build")).resolve()
CALLS = BUILD / "tests" / "bench" / "calls"
RUNSC = ["runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups", "do"]
GIT = """git init -q r && cd r && for d in $(seq 50); do mkdir $d; for f in $(seq 100); do echo $d $f > $d/$f; done; done
git add -A && git -c user.name=a -c user.email=a@b commit -qm a"""
BIG = """for i in $(seq 1500); do echo "int f$i(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * $i % (x + 1); return s; }"; done > big.c"""
MAKE = """for i in $(seq 16); do echo "#include <stdio.h>
int f$i(int x) { return printf(\\"%d\\", x); }" > f$i.c; done; printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n' > Makefile"""
# name, set-up in the directory, arguments of calls
ROWS = [
    ("getpid", "", "getpid 20000"), ("pipe", "", "pipe 10000"), ("open-read-close", "", "open 5000"), ("stat", "", "stat 10000"),
    ("mmap-touch-munmap", "", "mmap 3000"), ("fork-exec-wait", "", "run 50 /bin/true"), ("futex ping-pong", "", "futex 5000"),
    ("python3 -c pass", "", "run 10 python3 -c pass"), ("git status, 5000 files", GIT, "run 3 git status"),
    ("gcc -O2, one large file", BIG, "run 1 gcc -O2 -c big.c"), ("make -j2", MAKE, "run 1 make -B -j2"),
    ("file, sequential 64K", "", "seq 1024"), ("file, random 4K", "", "rand 20000"),
]


def scaled(arguments, scale):
    row, n, *rest = arguments.split(" ")
    return " ".join([row, str(max(1, int(int(n) * scale)))] + rest)


def script(setup, arguments, calls):
    return f"set -e; cd $(mktemp -d); {setup or ':'}\n{calls} {arguments}"


def ran(argv, env=None):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900, env=env)
    if done.returncode != 0:
        raise SystemExit(f"sentry: {' '.join(map(str, argv))}: {done.stderr.decode()[-500:]}")
    return float(done.stdout.split()[-1])


class Cell:
    def __init__(self, state):
        self.env = dict(os.environ, CELLA_STATE_DIR=state)
        self("create", "--name", "bench", "--backend", "gvisor-like", "--policy", "none", "--memory", "2G", "--disk", "1G", "--cpus", "2",
             "--timeout", "1h")
        self("start", "bench")
        self("cp", CALLS, "bench:/tmp/calls")

    def __call__(self, *words):
        subprocess.run([BUILD / "cella", *words], env=self.env, check=True, stdout=subprocess.DEVNULL)

    def run(self, text):
        return ran([BUILD / "cella", "exec", "bench", "--", "sh", "-c", text], self.env)

    def memory(self):
        """PSS of the cell's own processes, MiB."""
        import json
        seen = json.loads(subprocess.run([BUILD / "cella", "inspect", "bench"], env=self.env, check=True, stdout=subprocess.PIPE).stdout)
        pids, total = [seen["init_pid"]], 0
        for task in filter(str.isdigit, os.listdir("/proc")):
            stat = pathlib.Path(f"/proc/{task}/stat")
            if stat.exists() and int(stat.read_text().rsplit(")", 1)[1].split()[1]) in (seen["init_pid"], seen["pid"]):
                pids.append(int(task))
        for pid in set(pids):
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += int(rollup.split("Pss:")[1].split()[0])
        return total / 1024


def measure(cell, rows, rounds, scale, peer):
    for name, setup, arguments in rows:
        native, own, other = [], [], []
        for _ in range(rounds):
            work = scaled(arguments, scale)
            native.append(ran(["sh", "-c", script(setup, work, CALLS)]))
            own.append(cell.run(script(setup, work, "/tmp/calls")))
            if peer:
                other.append(ran(RUNSC + ["sh", "-c", script(setup, work, CALLS)]))
        a, b, c = statistics.median(native), statistics.median(own), statistics.median(other) if other else None
        against = f"{c / 1000:14.1f} {b / c:10.2f}" if c else f"{'':>14} {'':>10}"
        print(f"{name:<26} {a / 1000:12.1f} {b / 1000:12.1f} {b / a:10.2f} {against}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("CELLA_BENCH_ROUNDS", "3")))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rows = [row for row in ROWS if not arguments.only or row[0].split(" ")[0].split(",")[0] in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as state:
        cell = Cell(state)
        try:
            print(f"idle cell: {cell.memory():.1f} MiB PSS (sentry, stubs, gofer, gate)")
            print(f"load {os.getloadavg()[0]:.1f}; microseconds each\n{'':<26} {'native':>12} {'gvisor-like':>12} {'/ native':>10} {'runsc ptrace':>14} {'/ runsc':>10}")
            measure(cell, rows, arguments.rounds, arguments.scale, shutil.which("runsc"))
        finally:
            cell("rm", "--force", "bench")
    return 0


if __name__ == "__main__":
    sys.exit(main())
