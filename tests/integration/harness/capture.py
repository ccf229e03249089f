# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What a cell puts on its link, frame by frame, as the host's end of it sees them before any rule does."""
import contextlib
import os
import signal
import socket
import struct
import threading
import time

from . import PATIENCE, netns
from .cella import children_of, command_of

# Says its address as often as it can, over a socket that is bound to it and over one that is not.
TALKER = """import socket, sys, time
def bound():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((sys.argv[1], 0))
    return s
both = [bound(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
print('talks', flush=True)
while True:
    for s in both:
        try: s.sendto(b'here', (sys.argv[2], 9))
        except OSError: pass
    time.sleep(0.002)"""

LINK = "cell0"  # the gate's end
_OUTGOING = 4  # what the host itself sends to the cell


def _descriptors(pid):
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            with contextlib.suppress(OSError):
                yield path, os.readlink(path)


def _listen(path):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
    try:
        sock.bind((LINK, 3))
    except OSError:
        sock.close()
        return None
    return sock


def open_link(pid):
    """A socket on the link of the cell of this warden; None while there is none. A cell's own namespace has no `cell0`."""
    seen = set()
    for path, target in _descriptors(pid):
        if target.startswith("net:[") and target not in seen:
            seen.add(target)
            with contextlib.suppress(OSError):
                sock = netns.inside(path, lambda: _listen(path))
                if sock:
                    return sock
    return None


class Frame:
    """Source of one frame of the cell: hardware address, and what it says is its IPv4 address (of ARP, too), or None."""

    def __init__(self, raw):
        self.mac, kind = raw[6:12].hex(":"), struct.unpack("!H", raw[12:14])[0]
        at = {0x0800: 26, 0x0806: 28}.get(kind)
        self.ip = socket.inet_ntop(socket.AF_INET, raw[at:at + 4]) if at and len(raw) >= at + 4 else None
        self.raw = raw

    def __repr__(self):
        return f"{self.mac} {self.ip} {self.raw[:60].hex()}"


class Capture:
    """From now on every frame that comes from the cell. `raw` is a packet socket on its link."""

    def __init__(self, raw):
        self.frames, self._sock, self._stop = [], raw, False
        self._sock.settimeout(0.1)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop:
            with contextlib.suppress(socket.timeout):
                raw, (_, _, direction, _, _) = self._sock.recvfrom(65536)
                if direction != _OUTGOING and len(raw) >= 14:
                    self.frames.append(Frame(raw))

    def lost(self):
        """Frames that the kernel had no room for (PACKET_STATISTICS)."""
        return struct.unpack("II", self._sock.getsockopt(263, 6, 8))[1]

    def of_others(self, mac, ip):
        """Frames that are not of this hardware and this IPv4 address, as far as they say one."""
        return [f for f in self.frames if f.mac != mac or f.ip not in (ip, None)]

    def count(self, ip):
        return sum(f.ip == ip for f in self.frames)

    def close(self):
        self._stop = True
        self._thread.join()
        self._sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def of_cell(cella, cell):
    return Capture(open_link(cella.warden(cell)))


def _wardens():
    """Not what a warden has just made, which still has its name."""
    named = {int(p) for p in os.listdir("/proc") if p.isdigit() and "cella-warden" in command_of(int(p))}
    return named - {child for pid in named for child in children_of(pid)}


def from_the_first_frame_on(start, seconds=30.0):
    """Calls start(), which makes a machine, and gives its result and a Capture that began before the machine existed.

    The warden has the link before it starts the machine. There it is stopped, and goes on when the link is watched."""
    before, deadline = _wardens(), time.monotonic() + seconds * PATIENCE
    made = start()
    while time.monotonic() < deadline:
        for pid in _wardens() - before:
            os.kill(pid, signal.SIGSTOP)
            try:
                sock = open_link(pid)
                if sock:
                    machine = [p for p in children_of(pid, deep=True) if any(name in command_of(p) for name in ("qemu-system", "cella-vmm"))]
                    assert not machine, "too late: the machine exists"
                    return made, Capture(sock)
            finally:
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("no new cell has a link")
