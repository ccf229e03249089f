#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""lifecycle: one whole create-run-destroy of /bin/true, us and our peers, interleaved in one run.

Absolute times mean little on a shared machine; ratios within one run do. Nothing is asserted: this prints.

    CELLA_BENCH_ROUNDS=N   rounds (default 15)
    CELLA_BUILD=DIR        the build directory (default: build)
"""
import ctypes
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "integration"))

from harness import cella as harness  # noqa: E402

ROUNDS = int(os.environ.get("CELLA_BENCH_ROUNDS", "15"))
STEP_RUNS = 7
BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", TOP / "build")).resolve()
LINKS = ("bin", "sbin", "lib", "lib64")


def bundle(work, name, cgroups):
    """An OCI bundle whose root is this host's /usr, read-only."""
    root = work / name / "rootfs"
    for directory in ("usr", "proc", "sys", "dev", "tmp"):
        (root / directory).mkdir(parents=True)
    for link in LINKS:
        (root / link).symlink_to(f"usr/{link}")
    subprocess.run(["runc", "spec"], cwd=work / name, check=True)
    path = work / name / "config.json"
    spec = json.loads(path.read_text())
    spec["process"].update(args=["/bin/true"], terminal=False)
    spec["mounts"] = [m for m in spec["mounts"] if cgroups or m["type"] != "cgroup"]
    if not cgroups:
        spec["linux"].pop("resources", None)
        spec["linux"]["namespaces"] = [n for n in spec["linux"]["namespaces"] if n["type"] != "cgroup"]
    spec["mounts"].append({"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]})
    path.write_text(json.dumps(spec))
    return work / name


def bubblewrap():
    links = [word for link in LINKS for word in ("--symlink", f"usr/{link}", f"/{link}")]
    return ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc",
            "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true"]


def without_unified():
    """crun refuses a hybrid hierarchy even when told to make no cgroups: gives a function that moves a child into a
    mount namespace where the v2 half is hidden, or None where there is no such half."""
    if not os.path.ismount("/sys/fs/cgroup/unified"):
        return None
    holder = subprocess.Popen(["unshare", "--mount", "sh", "-c", "umount -l /sys/fs/cgroup/unified && echo && read line"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()
    fd = os.open(f"/proc/{holder.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    holder.communicate(b"\n")
    libc = ctypes.CDLL(None)
    return lambda: libc.setns(fd, 0)


def contenders(work, program):
    """name -> (argv of one round, options of the child); only what this machine has."""
    found = {"cella": (program.argv("run", "--policy", "deny", "--", "/bin/true"), {"env": program.env})}
    if shutil.which("bwrap"):
        found["bubblewrap"] = (bubblewrap(), {})
    if shutil.which("runc"):
        found["runc"] = (["runc", "--root", str(work / "runc-state"), "run", "-b", str(bundle(work, "runc", True)),
                          "ID"], {})
    if shutil.which("runc") and shutil.which("crun"):
        found["crun (no cgroups)"] = (["crun", "--root", str(work / "crun-state"), "--cgroup-manager=disabled",
                                       "run", "-b", str(bundle(work, "crun", False)), "ID"],
                                      {"preexec_fn": without_unified()})
    return found


def one(argv, options, number):
    argv = [f"bench-{os.getpid()}-{number}" if word == "ID" else word for word in argv]
    started = time.perf_counter()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    took = time.perf_counter() - started
    return (took, None) if done.returncode == 0 else (None, done.stdout.decode(errors="replace").strip()[-300:])


def measure(entries):
    times, broken = {name: [] for name in entries}, {}
    for number in range(ROUNDS + 1):
        for name, (argv, options) in entries.items():
            if name in broken:
                continue
            took, why = one(argv, options, number)
            if why is not None:
                broken[name] = why
            elif number:  # the first round warms caches
                times[name].append(took * 1000)
    return times, broken


def report(times, broken):
    ours = statistics.median(times["cella"]) if times["cella"] else None
    print(f"{'':<20}{'median':>10}{'least':>10}{'most':>10}   cella takes (medians)")
    for name, values in times.items():
        if name in broken:
            print(f"{name:<20}  does not run here: {broken[name]}")
        elif values:
            middle = statistics.median(values)
            ratio = f"{ours / middle:.2f} of it" if ours and name != "cella" else ""
            print(f"{name:<20}{middle:>7.1f} ms{min(values):>7.1f} ms{max(values):>7.1f} ms   {ratio}")


def steps(program):
    """Medians per step of a few runs of their own: what they measure is not in the figures above."""
    seen = {}
    for _ in range(STEP_RUNS):
        line = program.run("--policy", "deny", "--timings", "--", "/bin/true").ok().errors
        words = line.partition("timings (ms):")[2].split()
        for name, value in zip(words[::2], words[1::2]):
            seen.setdefault(name, []).append(float(value))
    medians = {name: statistics.median(values) for name, values in seen.items()}
    total = medians.get("total") or 1
    for name, value in medians.items():
        print(f"  {name:<24}{value:>7.1f} ms   {value / total:>4.0%}")


def pss_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def idle(program):
    with program.cell("--policy", "deny") as cell:
        time.sleep(0.5)
        warden = program.warden(cell)
        pids = {"warden": warden, "agent": program.agent(cell)}
        for pid in harness.children_of(warden, deep=True):
            if pid != pids["agent"] and pid not in pids.values():
                pids[f"{harness.command_of(pid).split()[0]} {pid}"] = pid
        sizes = {name: pss_kib(pid) for name, pid in pids.items()}
    for name, size in sizes.items():
        print(f"  {name:<24}{size:>7} KiB")
    print(f"  {'together':<24}{sum(sizes.values()):>7} KiB")


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="cella-bench-", dir="/dev/shm"))
    try:
        program = harness.Cella(BUILD, work, os.environ.get("CELLA_BENCH_BACKEND", "container"))
        print(f"create, run /bin/true, destroy; {ROUNDS} interleaved rounds (cella: cold, policy deny, audit on);"
              f" load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        report(*measure(contenders(work, program)))
        print(f"\nsteps of cella, medians of {STEP_RUNS} further runs (attach works on during create; rules waits for it):")
        steps(program)
        print("\nidle cell, proportional set size:")
        idle(program)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
