# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A private internet, so that no test packet can leave the machine, not even when a guard is missing.

    gate dials here            everything else
    [uplink] 192.0.2.1, 93.184.216.1 ─────── 192.0.2.2 [world]

Every other address lives in [world]: it answers any TCP port of any address, IPv4 and
IPv6, including 169.254.169.254, 10.0.0.0/8 and 8.8.8.8. What reaches [world] is recorded twice: each
packet by a sniffer on the wire, each TCP connection with its original destination and byte count. The
loopback of [uplink] is sniffed as well. TCP ports: 9 discards, 19 sends without end, others echo.
"""
import contextlib
import selectors
import socket
import struct
import subprocess
import threading
import time

from . import PATIENCE, netns

ECHO, ECHO2 = "203.0.113.10", "198.51.100.20"  # what the tests call servers of the internet
UPLINK = "192.0.2.1"
OWN = "93.184.216.1"  # a public address that the uplink namespace itself has
_REDIRECT_PORT = 1
_ORIGINAL_DST = 80
_RULES = """table inet world {
  chain in {
    type nat hook prerouting priority -100;
    iifname "w0" meta l4proto tcp redirect to :1
  }
}
"""
_SYN = 2
_TURNS = 100  # of the servers, after which who waits for them does not wait until nothing is left
_PROTO = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp", 2: "igmp"}


class Packet:
    """One packet as seen on the wire: where ("world" or "loopback"), proto, src, dst, port, payload length; of TCP its
    connection, and whether it asks for it (SYN)."""

    def __init__(self, where, proto, src, dst, port, size, connection=None, asks=False):
        self.where, self.proto, self.src, self.dst, self.port, self.size = where, proto, src, dst, port, size
        self.connection, self.asks = connection, asks

    def __repr__(self):
        return f"{self.proto} {self.src} -> {self.dst}:{self.port} ({self.size} bytes, {self.where})"


def _parse(where, raw):
    version = raw[0] >> 4 if raw else 0
    if version == 4 and len(raw) >= 20:
        head, proto = (raw[0] & 15) * 4, raw[9]
        src, dst = socket.inet_ntop(socket.AF_INET, raw[12:16]), socket.inet_ntop(socket.AF_INET, raw[16:20])
        first = not struct.unpack("!H", raw[6:8])[0] & 0x1FFF
        body = raw[head:struct.unpack("!H", raw[2:4])[0]]
    elif version == 6 and len(raw) >= 40:
        proto, first, body = raw[6], True, raw[40:]
        src, dst = socket.inet_ntop(socket.AF_INET6, raw[8:24]), socket.inet_ntop(socket.AF_INET6, raw[24:40])
        if proto in (0, 58) and dst.startswith(("ff02:", "fe80:")):
            return None  # neighbour discovery of the two namespaces themselves
        if proto == 58 and body[:1] in (b"\x85", b"\x86", b"\x87", b"\x88"):
            return None
    else:
        return None
    port, size, connection, asks = None, len(body), None, False
    if first and proto in (6, 17) and len(body) >= 8:
        port = struct.unpack("!H", body[2:4])[0]
        size -= (body[12] >> 4) * 4 if proto == 6 and len(body) >= 20 else 8
        if proto == 6 and len(body) >= 20:
            connection, asks = (src, body[:2], dst, port), bool(body[13] & _SYN)
    return Packet(where, _PROTO.get(proto, str(proto)), src, dst, port, max(size, 0), connection, asks)


class Connection:
    def __init__(self, dst, port):
        self.dst, self.port, self.received, self.sent, self.closed = dst, port, 0, 0, False
        self.pending, self.ending = b"", False

    def __repr__(self):
        return f"{self.dst}:{self.port} received {self.received} sent {self.sent}{' closed' if self.closed else ''}"


class Internet:
    def __init__(self, tag):
        self.uplink, self.world = f"cella-it-up-{tag}", f"cella-it-world-{tag}"
        self.packets, self.connections = [], []
        self._asked = {}  # connection: place of the packet that asked for it last
        self._selector = selectors.DefaultSelector()
        self._stop, self._broken = False, None
        self._turns, self._bell = 0, socket.socketpair()
        self._more = self._behind = False  # in the present turn, and in the last one: something may have been left for the next
        self._thread = threading.Thread(target=self._loop, daemon=True)

    # ---- set-up and removal

    def start(self):
        up, world, ip = self.uplink, self.world, netns.ip
        for ns in (up, world):
            ip("netns", "add", ns)
            ip("link", "set", "lo", "up", ns=ns)
        ip("link", "add", "u0", "netns", up, "type", "veth", "peer", "name", "w0", "netns", world)
        for ns, dev, host in ((up, "u0", 1), (world, "w0", 2)):
            ip("addr", "add", f"192.0.2.{host}/24", "dev", dev, ns=ns)
            ip("addr", "add", f"2001:db8:2::{host}/64", "dev", dev, "nodad", ns=ns)
            ip("link", "set", dev, "up", ns=ns)
        ip("addr", "add", f"{OWN}/32", "dev", "lo", ns=up)
        ip("route", "add", "default", "via", "192.0.2.2", ns=up)
        ip("-6", "route", "add", "default", "via", "2001:db8:2::2", ns=up)
        # Root outside a cell may ping, so that a refusal inside is the cell's.
        subprocess.run(["ip", "netns", "exec", up, "sysctl", "-qw", "net.ipv4.ping_group_range=0 0"], check=True)
        # In table main, so that the more specific route back to [uplink] wins.
        ip("route", "add", "local", "0.0.0.0/0", "dev", "lo", "table", "main", ns=world)
        ip("-6", "route", "add", "local", "::/0", "dev", "lo", "table", "main", ns=world)
        subprocess.run(["ip", "netns", "exec", world, "nft", "-f", "-"], input=_RULES, text=True, check=True)
        for family in (socket.AF_INET, socket.AF_INET6):
            listener = netns.inside(world, lambda f=family: self._listener(f))
            self._selector.register(listener, selectors.EVENT_READ, ("accept", family))
        for ns, dev, where in ((world, "w0", "world"), (up, "lo", "loopback")):
            sniffer = netns.inside(ns, lambda d=dev: self._sniffer(d))
            self._selector.register(sniffer, selectors.EVENT_READ, ("sniff", where))
        self._selector.register(self._bell[1], selectors.EVENT_READ, ("bell", None))
        self._thread.start()
        return self

    def close(self):
        self._stop = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()
        self._bell[0].close()
        for ns in (self.uplink, self.world):
            subprocess.run(["ip", "netns", "del", ns], check=False)

    @staticmethod
    def _listener(family):
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", _REDIRECT_PORT))
        sock.listen(128)
        sock.setblocking(False)
        return sock

    @staticmethod
    def _sniffer(dev):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        sock.bind((dev, 3))
        sock.setblocking(False)
        return sock

    # ---- the servers

    def _loop(self):
        try:
            self._serve()
        except Exception as error:  # told to whoever asks next, who would else take silence for nothing sent
            self._broken = error

    def _serve(self):
        while not self._stop:
            self._more = False
            for key, events in self._selector.select(0.2):
                what, extra = key.data
                try:
                    getattr(self, "_on_" + what)(key.fileobj, extra, events)
                except (BlockingIOError, InterruptedError):
                    pass
                except OSError:
                    if not isinstance(extra, Connection):
                        raise
                    self._drop(key.fileobj, extra)
            self._behind = self._more
            self._turns += 1

    def _drop(self, sock, extra):
        extra.closed = True
        self._selector.unregister(sock)
        sock.close()

    @staticmethod
    def _on_bell(sock, _extra, _events):
        sock.recv(100)

    def _on_sniff(self, sock, where, _events):
        for _ in range(64):
            raw, address = sock.recvfrom(65535)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            packet = _parse(where, raw)
            if packet:
                if packet.asks:
                    self._asked[packet.connection] = len(self.packets)
                self.packets.append(packet)
        self._more = True

    @staticmethod
    def _wanted(peer, family):
        """Where it was to go; the kernel forgets that when the connection was reset a while ago."""
        v4 = family == socket.AF_INET
        try:
            raw = peer.getsockopt(*(socket.SOL_IP, _ORIGINAL_DST, 16) if v4 else (socket.IPPROTO_IPV6, _ORIGINAL_DST, 28))
        except OSError:
            return 0, "unknown"
        return struct.unpack("!H", raw[2:4])[0], socket.inet_ntop(family, raw[4:8] if v4 else raw[8:24])

    def _on_accept(self, sock, family, _events):
        try:
            peer, _ = sock.accept()
        except ConnectionAbortedError:
            return
        finally:
            self._more = True
        peer.setblocking(False)
        port, dst = self._wanted(peer, family)
        connection = Connection(dst, port)
        self.connections.append(connection)
        both = selectors.EVENT_READ | selectors.EVENT_WRITE
        self._selector.register(peer, both if port == 19 else selectors.EVENT_READ, ("talk", connection))

    def _on_talk(self, sock, connection, events):
        c = connection
        if events & selectors.EVENT_READ:
            data = sock.recv(65536)
            c.received += len(data)
            c.ending |= not data
            self._more |= bool(data)
            if c.port not in (9, 19):
                c.pending += data
        if c.port == 19:
            c.pending = b"x" * 65536
        if c.pending and not (c.port == 19 and c.ending):
            with contextlib.suppress(BlockingIOError):
                done = sock.send(c.pending)
                c.sent += done
                c.pending = c.pending[done:]
        if c.ending and (not c.pending or c.port == 19):
            self._drop(sock, c)
            return
        # What cannot be sent at once is kept, and no more is read until it is gone.
        wanted = selectors.EVENT_WRITE if c.pending else selectors.EVENT_READ
        self._selector.modify(sock, wanted | (selectors.EVENT_READ if c.port == 19 else 0), ("talk", c))

    # ---- what the tests ask

    def _whole(self):
        assert self._broken is None and self._thread.is_alive(), f"the internet of the tests sees nothing any more: {self._broken!r}"

    def mark(self):
        self._whole()
        return len(self.packets), len(self.connections)

    def _caught_up(self):
        """Waits until all that had arrived before this call is seen: on a busy host the servers may lag behind, and in one turn
        they take only so many packets, one connection and so many bytes."""
        for turn in range(_TURNS):
            turns = self._turns
            self._bell[0].send(b"!")
            while self._turns == turns:
                self._whole()
                time.sleep(0.001)
            if turn and not self._behind:  # the first turn may have begun before
                return

    def quiet(self, seconds=5.0):
        """Waits until what earlier tests sent has arrived; gives a mark."""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            before = self.mark()
            time.sleep(0.08)
            self._caught_up()
            if self.mark() == before or time.monotonic() > deadline:
                return self.mark()

    def _of_before(self, packet, mark):
        """Without bytes, and of a connection that was asked for before the mark: its end, which may come late."""
        bare = packet.connection and not packet.asks and not packet.size
        return bare and self._asked.get(packet.connection, mark[0]) < mark[0]

    def packets_since(self, mark, settle=0.15):
        """Packets that arrived after mark; waits a moment, for what is still on its way."""
        time.sleep(settle)
        self._caught_up()
        return [packet for packet in self.packets[mark[0]:] if not self._of_before(packet, mark)]

    def connections_since(self, mark):
        self._caught_up()
        return self.connections[mark[1]:]

    def received(self, mark):
        """Bytes that servers received after mark."""
        return sum(c.received for c in self.connections_since(mark))
