# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Work inside another network namespace. setns() is per thread, so a short-lived thread does it."""
import contextlib
import ctypes
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def path(name):
    """Of a name; a path is one already."""
    return name if name.startswith("/") else f"/run/netns/{name}"


def inside(name, function):
    """Runs function() in the network namespace of that name or path; sockets it makes stay in that namespace."""
    box = {}

    def body():
        try:
            fd = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _libc.setns(fd, CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns {name}")
            finally:
                os.close(fd)
            box["value"] = function()
        except BaseException as error:  # handed to the caller below
            box["error"] = error

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if "error" in box:
        raise box["error"]
    return box["value"]


def ip(*words, ns=None):
    prefix = ["ip", "-n", ns] if ns else ["ip"]
    subprocess.run(prefix + [str(w) for w in words], check=True, capture_output=True, text=True)


def _has_link(path):
    """A machine's warden also holds the empty namespace that its cell would have had."""
    return subprocess.run(["nsenter", f"--net={path}", "ip", "link", "show", "dev", "cell0"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def of_gate(cella, cell):
    """Path of the gate's namespace: held by the warden or the gate, and neither the host's, the uplink's nor the cell's."""
    known = {os.readlink("/proc/self/ns/net"), os.readlink(f"/proc/{cella.agent(cell)}/ns/net"),
             f"net:[{os.stat('/run/netns/' + cella.uplink).st_ino}]"}
    for pid in (cella.gate(cell), cella.warden(cell)):
        for path in [f"/proc/{pid}/ns/net"] + [f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd")]:
            with contextlib.suppress(FileNotFoundError):  # a descriptor that was closed since
                if os.readlink(path).startswith("net:[") and os.readlink(path) not in known and _has_link(path):
                    return path
    raise AssertionError("nobody holds a namespace of the gate")
