# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Work inside another network namespace. setns() is per thread, so a short-lived thread does it."""
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
