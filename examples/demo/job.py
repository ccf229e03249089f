# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The program that nobody trusts. It does its job, and then looks for a way out.

    job.py SERVER HOST_PORT

Reads /data/input.txt, writes /out/result.json, and tries a TCP server, a DNS name, the loopback of the
host and the metadata address of clouds. It prints what it got; it has no idea of any policy.
"""
import errno
import hashlib
import json
import os
import socket
import struct
import sys
import time

SERVER, HOST_PORT = sys.argv[1], int(sys.argv[2])
NAME = "server.demo.example"
RCODES = {0: "NOERROR", 2: "SERVFAIL", 3: "NXDOMAIN", 5: "REFUSED"}


def work():
    """The honest part: count words, hash, write the result."""
    with open("/data/input.txt", "rb") as f:
        text = f.read()
    result = {"words": len(text.split()), "sha256": hashlib.sha256(text).hexdigest(),
              "primes_below_10000": sum(all(n % d for d in range(2, int(n ** 0.5) + 1))
                                        for n in range(2, 10000))}
    with open("/out/result.json", "w", encoding="ascii") as f:
        json.dump(result, f)
        f.write("\n")
    print(f"work         {result['words']} words, {result['primes_below_10000']} primes, "
          f"user {os.getuid()} of host {socket.gethostname()}")


def outcome(error):
    if isinstance(error, socket.timeout):
        return "timed out: no answer at all"
    return f"{errno.errorcode.get(error.errno, error.errno)} ({error.strerror})"


def tcp(label, address, port):
    """Connects, sends, reads. What a program may trust is what it read, not that connect returned."""
    began = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=5) as s:
            s.sendall(b"hello from the cell\n")
            answer = s.recv(100)
        said = f"read {answer.decode().strip()!r}" if answer else "closed without a byte"
    except OSError as error:
        said = outcome(error)
    took = (time.monotonic() - began) * 1000
    print(f"{label:<12} tcp {address}:{port}: {said}, after {took:.0f} ms")


def resolver():
    with open("/etc/resolv.conf", encoding="ascii") as f:
        for line in f:
            if line.startswith("nameserver"):
                return line.split()[1]
    return None


def dns(label, name):
    """One query, so that the answer's own code is seen."""
    server = resolver()
    if server is None:
        print(f"{label:<12} no resolver")
        return
    question = b"".join(bytes([len(p)]) + p for p in name.encode().split(b".")) + b"\0"
    query = struct.pack("!6H", 4711, 0x0100, 1, 0, 0, 0) + question + struct.pack("!2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        try:
            s.connect((server, 53))
            s.send(query)
            code = s.recv(512)[3] & 15
            said = RCODES.get(code, f"rcode {code}")
        except OSError as error:
            said = outcome(error)
    try:
        addresses = socket.gethostbyname_ex(name)[2]
        said += f", the library says {addresses}"
    except OSError as error:
        said += f", the library says: {error.strerror}"
    print(f"{label:<12} {name}: {said}")


def gateway():
    """The default route's gateway, the nearest thing to the host that a cell can name."""
    with open("/proc/net/route", encoding="ascii") as f:
        for line in list(f)[1:]:
            fields = line.split()
            if fields[1] == "00000000":
                return socket.inet_ntoa(struct.pack("<I", int(fields[2], 16)))
    return None


def main():
    work()
    tcp("server", SERVER, 8080)
    dns("name", NAME)
    tcp("loopback", "127.0.0.1", HOST_PORT)
    if gateway():
        tcp("gateway", gateway(), HOST_PORT)
    tcp("metadata", "169.254.169.254", 80)


main()
