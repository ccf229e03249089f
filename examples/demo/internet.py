# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The demo's private internet: one network namespace with a TCP server, a DNS server and nothing else.

    internet.py NAMESPACE ADDRESS

Makes the namespace, serves until its stdin ends, removes the namespace and prints, as one JSON object,
what the servers saw. Prints "ready" when both servers listen. Nothing in it has a way out of the machine.
"""
import json
import os
import selectors
import socket
import subprocess
import sys


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def make_namespace(name, address):
    ip("netns", "add", name)
    ip("-n", name, "link", "set", "lo", "up")
    ip("-n", name, "address", "add", address + "/32", "dev", "lo")
    # What is not here is nowhere: an address without a server answers at once.
    ip("-n", name, "route", "add", "unreachable", "default")


def inside(name):
    """A child process with this process's stdin and stdout, in the namespace."""
    os.execvp("nsenter", ["nsenter", f"--net=/run/netns/{name}", sys.executable, __file__,
                          "--serve", sys.argv[2]])


def serve(address):
    seen = {"connections": 0, "bytes": 0, "queries": 0}
    tcp = socket.create_server((address, 8080))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 53))
    selector = selectors.DefaultSelector()
    for source, what in ((tcp, "tcp"), (udp, "udp"), (sys.stdin, "end")):
        selector.register(source, selectors.EVENT_READ, what)
    print("ready", flush=True)
    while True:
        for key, _ in selector.select():
            if key.data == "end":
                print(json.dumps(seen), flush=True)
                return
            if key.data == "tcp":
                seen["connections"] += 1
                seen["bytes"] += answer(tcp.accept()[0])
            else:
                udp.recv(512)
                seen["queries"] += 1


def answer(peer):
    """Reads one line, says hello, and gives the number of bytes it got."""
    with peer:
        peer.settimeout(5)
        try:
            data = peer.recv(4096)
            peer.sendall(b"hello from the server\n")
            return len(data)
        except OSError:
            return 0


def main():
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
        return
    name, address = sys.argv[1:3]
    child = None
    try:
        make_namespace(name, address)
        child = os.fork()
        if child == 0:
            inside(name)
        os.waitpid(child, 0)
    finally:
        if child != 0:
            subprocess.run(["ip", "netns", "delete", name], check=False)


main()
