#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""devices: disk and network of cella-vmm beside those of QEMU's board microvm, under KVM, in one run.

Both boot the same kernel with the same init (device_bench.c), which measures from inside: a raw file in memory as the disk,
through the host's page cache and io_uring in both, and a tap with offloads to this process. In turn, round by round;
medians and ratios. Also: from the start of the program to the guest's init, and what the monitor's memory is beside the
guest's (PSS). Absolute figures mean little inside of an emulated machine; ratios do. Nothing is asserted: this prints.

    devices.py [--rounds N] [--seconds S]

Needs KVM that runs guests: tests/lab/lab-vm -m 3G -t 1200 -- tests/bench/devices.py. CELLA_BUILD=DIR is the build.
"""
import argparse
import ctypes
import fcntl
import json
import os
import pathlib
import re
import select
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "integration"))

from harness import guests  # noqa: E402
from plain_qemu import _newc  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", TOP / "build")).resolve()
KERNEL = guests.cache(BUILD) / "state" / "kernels" / "default"
MODULES = ("virtio_mmio.ko", "virtio_blk.ko", "failover.ko", "net_failover.ko", "virtio_net.ko")
APPEND = "console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off random.trust_cpu=on"
RAM, DISK = 128 << 20, 256 << 20
MAC = bytes.fromhex("020000000007")
PATIENCE = 300
TUNSETIFF, IFF = 0x400454CA, 0x0002 | 0x1000 | 0x4000  # a tap, no packet information, with the header
CLONE_NEWNET = 0x40000000
NO_LIMITS = (0, 0, 0, 0)


def kvm():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return os.path.exists("/dev/kvm") and re.search(r"\b(svm|vmx)\b", text)


def initrd():
    modules = [m for m in MODULES if (KERNEL / "modules" / m).exists()]
    entries = [(name, 0o40755, b"") for name in ("proc", "sys", "dev", "modules")]
    entries += [("init", 0o100755, (BUILD / "tests/bench/device-bench").read_bytes())]
    entries += [(f"modules/{m}", 0o100644, (KERNEL / "modules" / m).read_bytes()) for m in modules]
    fd = os.memfd_create("initrd")
    os.write(fd, _newc([*entries, ("modules/list", 0o100644, "".join(f"{m}\n" for m in modules).encode())]))
    return fd


def serve(port, work):
    listener = socket.create_server(("", port))

    def loop():
        while True:
            peer, _ = listener.accept()
            try:
                work(peer)
            except OSError:
                pass
            peer.close()
    threading.Thread(target=loop, daemon=True).start()


def take(peer):
    block = bytearray(1 << 18)
    while peer.recv_into(block):
        pass


def give(peer):
    block = b"x" * (1 << 18)
    while True:
        peer.sendall(block)


def tap():
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"guest", IFF))
    for words in ("addr add 10.9.9.1/24 dev guest", "link set guest up", "link set lo up"):
        subprocess.run(["ip", *words.split()], check=True)
    return fd


def disk():
    fd = os.memfd_create("disk")
    os.ftruncate(fd, DISK)
    return fd


def beside_ram(pid):
    """MiB of PSS that are not the guest's memory."""
    total, counts = 0, True
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            low, high = (int(n, 16) for n in line.split()[0].split("-"))
            counts = high - low < RAM // 2
        elif counts and line.startswith("Pss:"):
            total += int(line.split()[1])
    return total / 1024


def watch(pid, fds, start, figures):
    """Reads what the guest says until it is through."""
    text, until = b"", time.monotonic() + PATIENCE
    while b"bench: end" not in text and time.monotonic() < until:
        ready = select.select(fds, [], [], 1)[0]
        more = b"".join(os.read(fd, 65536) for fd in ready)
        if ready and not more:
            break
        text += more
        if "start-to-init" not in figures and b"bench: init" in text:
            figures["start-to-init"] = time.monotonic() - start
        if b"write-4k-by-8" in text and "memory" not in figures:
            figures["memory"] = beside_ram(pid)
    for name, figure in re.findall(rb"bench: ([a-z0-9-]+) ([\d.]+)", text):
        figures[name.decode()] = float(figure)
    if b"bench: end" not in text:
        sys.exit(f"the guest did not come to its end: {text[-800:].decode(errors='replace')}")


def ours(archive, seconds):
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    console, console_out = os.pipe2(os.O_NONBLOCK)
    errors, errors_out = os.pipe()
    vsock = socket.socket(socket.AF_UNIX)
    vsock.bind(b"\0cella-bench-devices")
    vsock.listen(1)
    ram, root, link, rw = os.memfd_create("ram"), os.memfd_create("root"), tap(), disk()
    os.ftruncate(ram, RAM)
    os.ftruncate(root, 1 << 20)
    null, kernel = os.open("/dev/null", os.O_RDWR), os.open(KERNEL / "vmlinuz", os.O_RDONLY)
    # control.h: what each number is
    fds = [null, null, errors_out, theirs.fileno(), os.open("/dev/kvm", os.O_RDWR), kernel, archive, ram, console_out,
           vsock.fileno(), link, root, rw]
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in fds]
    figures, start = {}, time.monotonic()
    pid = os.fork()
    if pid == 0:
        for number, fd in enumerate(high):
            os.dup2(fd, number)
        os.closerange(len(high), 1000)
        os.execve(BUILD / "cella-vmm", ["cella-vmm"], {})
    append = f"{APPEND} secs={seconds} disk=/dev/vdb".encode()
    config = struct.pack("<IQIIQQQQQ6s16s2x512s", 1, RAM, 1, 1, DISK, *NO_LIMITS, MAC, b"g" * 16, append)
    config = struct.pack("<I", len(config) + 4) + config
    for order, payload in ((1, config), (2, bytes(len(config)))):
        control.send(struct.pack("<IIQQ", order, 0, 0, 0) + payload)
        answer = control.recv(4096)
        if struct.unpack("<i", answer[:4])[0] != 0:
            sys.exit(f"cella-vmm: {answer[16:].rstrip(bytes(1)).decode()}")
    for fd in (*high, console_out, errors_out, ram, root, link, rw, null, kernel, fds[4]):
        os.close(fd)
    watch(pid, [console], start, figures)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    for fd in (console, errors):
        os.close(fd)
    return figures


def peers(archive, seconds):
    link, rw = tap(), disk()
    start = time.monotonic()
    argv = ["qemu-system-x86_64", "-M", "microvm,x-option-roms=off,rtc=off,acpi=on", "-accel", "kvm", "-cpu", "host,-xsave", "-m",
            f"{RAM >> 20}M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", "-kernel",
            str(KERNEL / "vmlinuz"), "-initrd", f"/proc/self/fd/{archive}", "-append", f"{APPEND} secs={seconds} disk=/dev/vda",
            "-drive", f"id=d,file=/proc/self/fd/{rw},format=raw,if=none,cache=writeback,aio=io_uring,discard=unmap",
            "-device", "virtio-blk-device,drive=d", "-netdev", f"tap,id=n,fd={link}",
            "-device", f"virtio-net-device,netdev=n,mac={MAC.hex(':')}"]
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=[archive, link, rw])
    figures = {}
    watch(child.pid, [child.stdout.fileno()], start, figures)
    child.kill()
    child.wait()
    for fd in (link, rw):
        os.close(fd)
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("CELLA_BENCH_ROUNDS", 3)))
    parser.add_argument("--seconds", type=float, default=3)
    asked = parser.parse_args()
    if not kvm() or not (KERNEL / "vmlinuz").exists():
        print("devices: needs KVM that runs guests, and a guest kernel: tests/lab/lab-vm has one")
        return
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        sys.exit("devices: no network namespace")
    archive = initrd()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    serve(9, take)
    serve(19, give)
    rounds = [(peers(archive, asked.seconds), ours(archive, asked.seconds)) for _ in range(asked.rounds)]
    print(f"{'':16}{'cella-vmm':>12}{'QEMU':>12}{'ratio':>8}   (rounds: {asked.rounds}; start in s, memory and streams in MiB, 4k per s)")
    for name in rounds[0][1]:
        theirs, mine = (statistics.median(r[side].get(name, 0) for r in rounds) for side in (0, 1))
        print(f"{name:16}{mine:12.1f}{theirs:12.1f}{mine / theirs if theirs else 0:8.2f}")
    print(json.dumps([{"qemu": q, "cella-vmm": m} for q, m in rounds]))


main()
