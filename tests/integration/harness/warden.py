# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Calls to a cell's warden as any client makes them: one CALL frame, one REPLY frame (core/cell/README.md)."""
import json
import os
import socket
import struct

_HEADER = struct.Struct("<IHHII")
_CALL, _REPLY = 32, 33


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
            self._sock.settimeout(seconds)
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

    def ask(self, what, /, **args):
        """Sends a call; nobody waits for its answer."""
        self._last += 1
        payload = json.dumps({"call": what, "args": args}).encode()
        self._sock.sendall(_HEADER.pack(len(payload), _CALL, 0, 0, self._last) + payload)

    def call(self, what, /, **args):
        self.ask(what, **args)
        while True:
            length, kind, _, _, number = _HEADER.unpack(self._read(_HEADER.size))
            reply = json.loads(self._read(length))
            if kind == _REPLY and number == self._last:
                if "error" in reply:
                    raise Refused(reply["error"])
                return reply["ok"]
