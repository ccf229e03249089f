# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Calls to a cell's warden as any client makes them: one CALL frame, one REPLY frame; and the frames of a stream
(core/cell/README.md, cella/link.h)."""
import array
import contextlib
import fcntl
import json
import os
import socket
import struct
import termios

from . import PATIENCE

_HEADER = struct.Struct("<IHHII")
_OPEN, _CREDIT, _CALL, _REPLY = 2, 6, 32, 33
_OP, _COUNT, _ARG = 2, 4, 10
_EXEC, _OUT = 1, 1


def _field(tag, value):
    value = struct.pack("<I", value) if isinstance(value, int) else value.encode()
    return struct.pack("<HHI", tag, 0, len(value)) + value


class Refused(Exception):
    """What the warden answered instead."""

    def __init__(self, error):
        super().__init__(error["message"])
        self.code, self.message = error["code"], error["message"]


class Warden:
    """One connection to the control socket in a cell's directory."""

    def __init__(self, directory, seconds=30.0):
        handle = os.open(directory, os.O_PATH)
        try:
            self._sock = socket.socket(socket.AF_UNIX)
            self._sock.settimeout(seconds * PATIENCE)
            self._sock.connect(f"/proc/self/fd/{handle}/control.sock")
        finally:
            os.close(handle)
        self._last = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._sock.close()

    def _read(self, size):
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            assert more, "the warden closed the connection"
            data += more
        return data

    def _send(self, kind, payload, channel=0, stream=0, number=0):
        self._sock.sendall(_HEADER.pack(len(payload), kind, channel, stream, number) + payload)

    def open(self, stream, *argv):
        """Starts a command; its frames are not read."""
        self._send(_OPEN, _field(_OP, _EXEC) + b"".join(_field(_ARG, word) for word in argv), stream=stream)

    def credit(self, stream, count):
        """Says that so much of a command's output has been read."""
        self._send(_CREDIT, _field(_COUNT, count), channel=_OUT, stream=stream)

    def waiting(self):
        """Bytes that have come and are not read."""
        count = array.array("i", [0])
        fcntl.ioctl(self._sock, termios.FIONREAD, count)
        return count[0]

    def rest(self):
        """Everything until the warden closes: the kinds of the frames, and the bytes of one that is not whole."""
        data, kinds, at = b"", [], 0
        with contextlib.suppress(ConnectionResetError):  # it had not read everything of ours
            for more in iter(lambda: self._sock.recv(1 << 16), b""):
                data += more
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            if at + _HEADER.size + length > len(data):
                break
            kinds.append(kind)
            at += _HEADER.size + length
        return kinds, data[at:]

    def ask(self, what, /, **args):
        """Sends a call; nobody waits for its answer."""
        self._last += 1
        self._send(_CALL, json.dumps({"call": what, "args": args}).encode(), number=self._last)

    def call(self, what, /, **args):
        self.ask(what, **args)
        while True:
            length, kind, _, _, number = _HEADER.unpack(self._read(_HEADER.size))
            reply = json.loads(self._read(length))
            if kind == _REPLY and number == self._last:
                if "error" in reply:
                    raise Refused(reply["error"])
                return reply["ok"]
