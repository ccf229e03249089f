#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""egress: what the gate costs, beside a veth with kernel NAT and user-space peers, interleaved in one run.

Absolute figures mean little on a shared machine; ratios within one run do. Nothing is asserted: this prints. Peers that
are not installed are left out: tools/packages-bench lists them. Everything happens in namespaces of its own (roads.py).

    CELLA_BENCH_ROUNDS=N    rounds (default 7)
    CELLA_BENCH_SECONDS=S   of each transfer (default 1)
    CELLA_BENCH_ONLY=WORDS  of throughput,latency,rules,change,memory,interception
    CELLA_BENCH_CONGESTION=NAME  congestion control of the endpoints (default: reno; host: what the host prefers)
    CELLA_BUILD=DIR         the build directory (default: build)
"""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "integration"))

from harness import cella as harness  # noqa: E402
from harness import names  # noqa: E402

import roads  # noqa: E402

ROUNDS = int(os.environ.get("CELLA_BENCH_ROUNDS", "7"))
SECONDS = float(os.environ.get("CELLA_BENCH_SECONDS", "1"))
PARTS = "throughput,latency,rules,change,memory,interception"
ONLY = os.environ.get("CELLA_BENCH_ONLY", PARTS).replace(" ", ",").split(",")
BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", TOP / "build")).resolve()
MANY_RULES, MANY_FLOWS, IDLE_FLOWS, CONNECTS = 10000, 64, 240, 150
LOADS = [("down", 1), ("up", 1), ("down", MANY_FLOWS), ("up", MANY_FLOWS)]
CLONE_NEWNET = 0x40000000

# ---- cells


def document(rules=10, **without):
    """Ten rules that are used or could be, then networks nobody dials."""
    ports = [7001, 7002, 7003]
    allow = [{"id": "bulk", "cidr": f"{roads.SERVER}/32", "ports": ports, "proto": "tcp", "layer": "raw"},
             {"id": "tls", "host": roads.HOST, "ports": [7011, 7012, 7013], "layer": "tls"},
             {"id": "web", "host": roads.HOST, "ports": [443], "layer": "http",
              "http": {"methods": ["GET"], "paths": ["/**"]}}]
    allow = [rule for rule in allow if rule["id"] not in without.get("without", ())]
    for i in range(rules - 3):
        allow.append({"id": f"n{i}", "cidr": f"20.{i >> 8}.{i & 255}.{i * 7 % 256}/32", "ports": [443], "proto": "tcp",
                      "layer": "raw"})
    return json.dumps({"version": 1, "allow": allow})


class Cell:
    def __init__(self, program, name):
        self.program, self.name = program, name
        warden = program.warden(name)
        self.ns = f"/proc/{program.agent(name)}/ns/net"
        self.gate = next(pid for pid in harness.children_of(warden, deep=True)
                         if harness.command_of(pid).split()[0] == "cella-gate")

    def resolved(self):
        lookup = f"import socket; print(socket.gethostbyname({roads.HOST!r}))"
        return self.program("exec", self.name, "--", "/usr/bin/python3", "-c", lookup).ok().text

    def set(self, path):
        """Seconds that a change of policy took."""
        began = time.monotonic()
        self.program("policy", "set", self.name, path).ok()
        return time.monotonic() - began


class Bench:
    def __init__(self, work, net):
        self.work, self.net = work, net
        self.files = {}
        for name, text in (("ten", document()), ("many", document(MANY_RULES)),
                           ("tight", document(MANY_RULES, without=("bulk",)))):
            self.files[name] = work / f"{name}.json"
            self.files[name].write_text(text)
        config = {"resolvers": names.RESOLVER, "upstream-ca": str(net.authority())}
        self.program = harness.Cella(BUILD, work, os.environ.get("CELLA_BENCH_BACKEND", "container"), net.uplink)
        limits = {"wall": "24h"}
        self.program.write_config(
            policies={name: {"file": str(path)} for name, path in self.files.items()},
            plugins=[{"path": "cella-enforcer-egress-nft.so", "config": config}],
            classes={"default": {"floor": "process", "backends": [self.program.backend], "policy": "deny",
                                 "limits": limits}})

    @contextlib.contextmanager
    def cell(self, policy):
        with self.program.cell("--policy", policy) as name:
            yield Cell(self.program, name)

    def traffic(self, road, verb, *numbers):
        done = subprocess.run(road.argv(self.net.traffic, verb, *numbers), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise roads.Missing(done.stderr.strip() or f"exit {done.returncode}")
        return float(done.stdout)

    def roads_of(self, cell):
        return {"cella raw": roads.Road(cell.ns),
                "cella tls": roads.Road(cell.ns, cell.resolved(), f"hello={self.net.hello}", tls=True)}

# ---- figures


def interleaved(rounds, roads_, measure):
    """name -> what measure(road) gave in each round, and name -> why there is nothing."""
    values, broken = {name: [] for name in roads_}, {}
    for _ in range(rounds):
        for name, road in roads_.items():
            if name in broken:
                continue
            try:
                values[name].append(measure(road))
            except (roads.Missing, subprocess.TimeoutExpired, ValueError) as error:
                broken[name] = str(error).splitlines()[0]
    return values, broken


def ratio(values, others):
    """Median of the ratios within each round: what disturbs a round disturbs both."""
    return statistics.median(a / b for a, b in zip(values, others) if b)


def peers(net):
    """name -> road, and what is not here."""
    found, absent = {"veth + kernel NAT": net.veth()}, {}
    for name, make in (("pasta", net.pasta_road), ("slirp4netns", net.slirp_road), ("tinyproxy", net.proxy_road)):
        try:
            found[name] = make()
        except roads.Missing as error:
            absent[name] = str(error)
    return found, absent


def throughput(bench, cell, found, absent):
    all_roads = {**found, **bench.roads_of(cell)}
    table, broken = {}, dict(absent)
    for load in LOADS:
        verb, flows = load
        table[load], why = interleaved(ROUNDS, {n: r for n, r in all_roads.items() if n not in broken},
                                       lambda road: bench.traffic(road, verb, flows, SECONDS))
        broken.update(why)
    print(f"throughput, Gbit/s and part of the veth's: medians of {ROUNDS} interleaved rounds of {SECONDS:g} s")
    print(f"{'':<20}" + "".join(f"{f'{flows} {verb}':>16}" for verb, flows in LOADS))
    for name in all_roads:
        if name in broken:
            continue
        cells = []
        for load in LOADS:
            base, mine = table[load]["veth + kernel NAT"], table[load][name]
            cells.append(f"{statistics.median(mine):>9.2f}{ratio(mine, base):>7.2f}")
        print(f"{name:<20}" + "".join(cells))
    for name, why in broken.items():
        print(f"{name:<20}   {why}")


def latency(bench, cell, found):
    all_roads = {**found, **bench.roads_of(cell)}
    values, broken = interleaved(ROUNDS, all_roads, lambda road: bench.traffic(road, "connect", CONNECTS))
    base = values["veth + kernel NAT"]
    print(f"\nconnect to the server's first byte, medians of {ROUNDS} rounds of {CONNECTS}")
    for name in all_roads:
        if name in broken:
            print(f"{name:<20}   {broken[name]}")
        else:
            added = statistics.median(mine - direct for mine, direct in zip(values[name], base))
            print(f"{name:<20}{statistics.median(values[name]):>8.0f} us" + (f"{added:>+8.0f} us" if added else ""))


def rules(bench, cell, many):
    pair = {"10": roads.Road(cell.ns), "10,000": roads.Road(many.ns)}
    took = {"10": [], "10,000": []}
    for _ in range(min(ROUNDS, 5)):
        took["10"].append(cell.set(bench.files["ten"]))
        took["10,000"].append(many.set(bench.files["many"]))
    print(f"\n{MANY_RULES} rules of networks against 10")
    for what, unit, measure in (("connect", "us", lambda road: bench.traffic(road, "connect", CONNECTS)),
                                ("1 down", "Gbit/s", lambda road: bench.traffic(road, "down", 1, SECONDS)),
                                ("1 up", "Gbit/s", lambda road: bench.traffic(road, "up", 1, SECONDS))):
        values, broken = interleaved(ROUNDS, pair, measure)
        if broken:
            print(f"{what:<20}   {broken}")
            continue
        small, large = values["10"], values["10,000"]
        print(f"{what:<20}{statistics.median(small):>8.1f}{statistics.median(large):>8.1f} {unit:<8}"
              f"{ratio(large, small):>6.2f} of it")
    print(f"{'policy set':<20}{statistics.median(took['10']) * 1e3:>8.0f}"
          f"{statistics.median(took['10,000']) * 1e3:>8.0f} ms")

# ---- a change while flows run


def sockets_in(ns, count, address, port):
    """Connected sockets of another network namespace."""
    made = []

    def body():
        fd = os.open(ns, os.O_RDONLY | os.O_CLOEXEC)
        if ctypes.CDLL(None).setns(fd, CLONE_NEWNET) == 0:
            for _ in range(count):
                made.append(socket.create_connection((address, port), 5))
        os.close(fd)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return made


def watch_ends(socks, ends):
    """Writes into `ends` when each socket was reset."""
    selector = selectors.DefaultSelector()
    for sock in socks:
        sock.recv(1)
        selector.register(sock, selectors.EVENT_READ)
    deadline = time.monotonic() + 30
    while len(ends) < len(socks) and time.monotonic() < deadline:
        for key, _ in selector.select(0.5):
            try:
                key.fileobj.recv(1)
                ends.append(None)  # an orderly end is not a reset
            except OSError:
                ends.append(time.monotonic())
            selector.unregister(key.fileobj)


def change(bench, cell, files, what):
    """Flows of a rule that goes: when they are reset, against the moment of the reply."""
    took, last, lost = [], [], 0
    for _ in range(min(ROUNDS, 5)):
        cell.set(files[0])
        socks, ends = sockets_in(cell.ns, 50, roads.SERVER, 7003), []
        watcher = threading.Thread(target=watch_ends, args=(socks, ends))
        watcher.start()
        time.sleep(0.1)
        took.append(cell.set(files[1]))
        reply = time.monotonic()
        watcher.join()
        lost += len(socks) - len([e for e in ends if e])
        last.append(max((e for e in ends if e), default=reply + 30) - reply)
        for sock in socks:
            sock.close()
    print(f"{what:<20}the reply after {statistics.median(took) * 1e3:>5.0f} ms; the last of 50 flows reset "
          f"{max(last) * 1e3:>+6.0f} ms from it at the latest" + (f"; {lost} NOT RESET" if lost else ""))

# ---- memory, interception


def memory(bench):
    with bench.cell("ten") as cell:
        time.sleep(0.5)
        bare = roads.pss_kib(cell.gate)
        road = roads.Road(cell.ns)
        held = subprocess.Popen(road.argv(bench.net.traffic, "idle", IDLE_FLOWS), stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)
        held.stdout.readline()
        time.sleep(2.5)  # pipes go back after a second
        full = roads.pss_kib(cell.gate)
        held.communicate()
    print(f"\ngate, proportional set size: {bare} KiB idle, {full} KiB with {IDLE_FLOWS} idle flows: "
          f"{(full - bare) / IDLE_FLOWS:.2f} KiB for each")


def h2load(bench, ns, address):
    """(requests a second, median ms, p99 ms) of HTTP/1.1 keep-alive requests."""
    log = bench.work / f"h2load-{time.monotonic_ns()}"
    seconds = max(1, round(2 * SECONDS))
    done = subprocess.run(["nsenter", f"--net={ns}", "h2load", "--h1", "-c", "8", "-t", "1", "-D", str(seconds),
                           f"--connect-to={address}", f"--log-file={log}", f"https://{roads.HOST}/"],
                          capture_output=True, text=True, timeout=120)
    rate = re.search(r"finished in [\d.]+\w+, ([\d.]+) req/s", done.stdout)
    rows = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    took = sorted(int(row[2]) / 1e3 for row in rows if row[1] == "200")
    log.unlink(missing_ok=True)
    if not rate or not took or len(took) < len(rows) * 0.99:
        raise roads.Missing(f"h2load: {done.stdout.strip()[-200:]} {done.stderr.strip()[-200:]}")
    return len(took) / seconds, took[len(took) // 2], took[len(took) * 99 // 100]


def interception(bench, cell):
    print("\ninterception: HTTP/1.1 over TLS on both sides, keep-alive, 8 connections, answers of 1 KiB")
    try:
        bench.net.web_server()
        targets = {"direct": (bench.net.veth().ns, f"{roads.NAMED}:443"),
                   "cella http": (cell.ns, f"{cell.resolved()}:443")}
        with contextlib.suppress(roads.Missing):
            targets["mitmproxy"] = (bench.net.veth().ns, bench.net.mitmproxy(bench.work / "ca.pem"))
    except roads.Missing as error:
        print(f"  {error}")
        return
    values, broken = interleaved(min(ROUNDS, 5), targets, lambda target: h2load(bench, *target))
    for name in targets:
        if name in broken:
            print(f"{name:<20}   {broken[name]}")
            continue
        rate, middle, late = (statistics.median(v[i] for v in values[name]) for i in range(3))
        print(f"{name:<20}{rate:>9.0f} requests/s, median {middle:.2f} ms, p99 {late:.2f} ms = {late / middle:.1f} x")
    if values.get("mitmproxy"):
        print(f"{'':<20}{ratio([v[0] for v in values['cella http']], [v[0] for v in values['mitmproxy']]):>9.1f} x "
              "the rate of mitmproxy")
    else:
        print("mitmproxy is not here")


def run(work):
    with roads.Net(work, BUILD / "tests" / "bench" / "traffic") as net:
        bench = Bench(work, net)
        with bench.cell("ten") as cell, bench.cell("many") as many:
            found, absent = peers(net)
            if "throughput" in ONLY:
                throughput(bench, cell, found, absent)
            if "latency" in ONLY:
                latency(bench, cell, found)
            if "rules" in ONLY:
                rules(bench, cell, many)
            if "change" in ONLY:
                print("\na rule with flows goes")
                change(bench, many, (bench.files["many"], bench.files["tight"]), f"{MANY_RULES} rules")
            if "memory" in ONLY:
                memory(bench)
            if "interception" in ONLY:
                interception(bench, cell)


def main():
    if os.getuid():
        print("egress: needs root to make network namespaces")
        return 77
    work = pathlib.Path(tempfile.mkdtemp(prefix="cella-bench-", dir="/dev/shm"))
    work.chmod(0o755)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; congestion control of the endpoints: {roads.CONGESTION}")
    try:
        run(work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
