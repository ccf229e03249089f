# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The names of the private internet: a DNS server in [world] that remembers every question it was asked."""
import socket
import struct
import threading

from . import netns

RESOLVER = "203.0.113.54"
# What each name answers; "*.x" for everything below. The rest does not exist.
ZONE = {"api.example.com": ["203.0.113.20"], "*.wild.example.org": ["203.0.113.21"], "git.example.com": ["203.0.113.22"],
        "www.example.com": ["203.0.113.23"], "turn.example.com": ["203.0.113.24"],
        "rebind.example.com": ["10.0.0.5"], "meta.example.com": ["169.254.169.254"], "loop.example.com": ["127.0.0.1"],
        "own.example.com": ["93.184.216.1"], "zero.example.com": ["0.0.0.0"], "unlisted.example.com": ["203.0.113.25"]}
TTLS = {"git.example.com": 1}  # seconds; others 5
CNAMES = {"alias.example.com": ("metadata.internal.example", "169.254.169.254")}


def _label(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"


class Names:
    def __init__(self, world):
        self.questions = []
        self._sock = netns.inside(world, self._socket)
        threading.Thread(target=self._serve, daemon=True).start()

    @staticmethod
    def _socket():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setsockopt(socket.SOL_IP, 15, 1)  # IP_FREEBIND
        sock.bind((RESOLVER, 53))
        return sock

    def close(self):
        self._sock.close()

    def _serve(self):
        while True:
            try:
                data, peer = self._sock.recvfrom(2000)
                self._sock.sendto(self._answer(data), peer)
            except OSError:
                return
            except (IndexError, struct.error, UnicodeDecodeError):
                continue

    def _answer(self, query):
        labels, at = [], 12
        while query[at]:
            labels.append(query[at + 1:at + 1 + query[at]].decode())
            at += 1 + query[at]
        at += 5
        name, qtype = ".".join(labels).lower(), struct.unpack("!H", query[at - 4:at - 2])[0]
        self.questions.append(name)
        body, count = b"", 0
        if qtype == 1 and name in CNAMES:
            target, address = CNAMES[name]
            body = (b"\xc0\x0c" + struct.pack("!HHIH", 5, 1, 5, len(_label(target))) + _label(target) +
                    _label(target) + struct.pack("!HHIH", 1, 1, 5, 4) + socket.inet_aton(address))
            count = 2
        else:
            found = ZONE.get(name) or ZONE.get("*." + name.partition(".")[2]) or []
            for address in found if qtype == 1 else []:
                body += b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, TTLS.get(name, 5), 4) + socket.inet_aton(address)
                count += 1
        known = name in CNAMES or name in ZONE or "*." + name.partition(".")[2] in ZONE
        return (query[:2] + struct.pack("!HHHHH", 0x8180 | (0 if known else 3), 1, count, 0, 0) + query[12:at] + body)
