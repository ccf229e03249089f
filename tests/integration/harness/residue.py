# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What a test left behind: everything a cell can leave on a host, before and after.

The tests run in their own pid, mount and network namespaces (conftest.py), so most of what is seen is ours.
Cgroups are the machine's: only directories that carry the id of one of our cells count.
"""
import os
import re
import socket
import struct
import subprocess
import time

from . import WAITING

_NFT_NEWGEN, _NFT_GETGEN = 10 << 8 | 15, 10 << 8 | 16  # NFNL_SUBSYS_NFTABLES, and its messages
_REQUEST, _NETFILTER = 1, 12  # NLM_F_REQUEST, NETLINK_NETFILTER
_NOT_RESIDUE = {"audit", "images", "kernels", "cells", "names", "slots"}


def _read(path, mode="r"):
    try:
        with open(path, mode) as handle:
            return handle.read()
    except OSError:
        return b"" if "b" in mode else ""


def processes():
    """{(pid, start time): (state, command line)}, kernel threads left out."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        stat = _read(f"/proc/{pid}/stat")
        if not stat:
            continue
        fields = stat.rsplit(")", 1)[1].split()
        line = _read(f"/proc/{pid}/cmdline", "rb").replace(b"\0", b" ").decode(errors="replace").strip()
        name = stat[stat.index("("):stat.rindex(")") + 1]
        if fields[1] != "2" and pid != "2":
            found[int(pid), fields[19]] = (fields[0], line or name)
    return found


def other_processes():
    own = os.getpid()
    return {f"process {pid}{' (zombie)' if state == 'Z' else ''} {line}" for (pid, _), (state, line) in processes().items()
            if pid not in (1, own) and not line.startswith("ps ")}


def namespaces():
    """Every namespace that a process holds or a mount pins."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("net", "mnt", "pid", "user", "ipc", "uts", "cgroup", "time"):
            try:
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
            except OSError:
                pass
    for line in _read("/proc/self/mountinfo").splitlines():
        if " - nsfs " in line:
            found.add(line.split()[3])
    return {"namespace " + name for name in found}


def mounts():
    return {"mount " + line.split()[4] for line in _read("/proc/self/mountinfo").splitlines()}


def links():
    return {"link " + name for _, name in socket.if_nameindex()}


def _ruleset_generation():
    """The number that the kernel gives to the rules of this namespace; it grows with each change of any of them."""
    getgen = struct.pack("=IHHII4x", 20, _NFT_GETGEN, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as sock:
        sock.send(getgen)
        answer = sock.recv(4096)
    return answer[20:28] if struct.unpack_from("=H", answer, 4)[0] == _NFT_NEWGEN else None


_seen_rules = {}


def rules():
    generation = _ruleset_generation()
    if generation is None or generation not in _seen_rules:
        text = subprocess.run(["nft", "list", "ruleset"], capture_output=True, text=True).stdout
        _seen_rules.clear()
        _seen_rules[generation] = {"nft " + line for line in text.splitlines() if line.strip()}
    return _seen_rules[generation]


def cgroups(ids):
    if not ids:
        return set()
    pattern = re.compile("|".join(map(re.escape, sorted(ids))))
    return {"cgroup " + path for path, _, _ in os.walk("/sys/fs/cgroup") if pattern.search(os.path.basename(path))}


def files(state_dir, *more):
    found = set()
    for top in os.listdir(state_dir) if os.path.isdir(state_dir) else []:
        if top not in _NOT_RESIDUE:
            found.add(f"file {state_dir}/{top}")
    for sub in ("cells", "names"):
        directory = os.path.join(state_dir, sub)
        found |= {f"file {directory}/{name}" for name in (os.listdir(directory) if os.path.isdir(directory) else [])}
    for directory in more:
        found |= {f"file {directory}/{name}" for name in os.listdir(directory)}
    return found


def cell_ids(state_dir):
    """Every cell this state directory has ever had: each has a chain."""
    found = set()
    for sub in ("audit", "cells"):
        directory = os.path.join(state_dir, sub)
        for name in os.listdir(directory) if os.path.isdir(directory) else []:
            match = re.match(r"^([a-z0-9]{12})(\.|$)", name)
            if match:
                found.add(match.group(1))
    return found


def snapshot(state_dir):
    return (other_processes() | namespaces() | mounts() | links() | rules() |
            cgroups(cell_ids(state_dir)) | files(state_dir, "/tmp", "/run", "/dev/shm"))


def left_behind(before, state_dir, seconds=20.0):
    """What is there now and was not before, once the kernel has had `seconds` to finish its part."""
    deadline = time.monotonic() + seconds * WAITING
    while True:
        extra = snapshot(state_dir) - before
        if not extra or time.monotonic() > deadline:
            return sorted(extra)
        time.sleep(0.05)
