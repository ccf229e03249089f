# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""plain_qemu: the peer of machines.py: QEMU as it comes, with its own snapshots (savevm, loadvm) inside a qcow2.

Same kernel and modules, same image, as much memory, the same processor. Its init is a shell on the serial line that
repeats what it is told, which is less than a cell does for its first output: no agent, no new process, no network.
"""
import contextlib
import json
import os
import pathlib
import selectors
import shutil
import socket
import subprocess
import time

INIT = """#!/bin/busybox sh
b() { /bin/busybox "$@"; }
b mount -t proc proc /proc; b mount -t sysfs sysfs /sys; b mount -t devtmpfs dev /dev
while read -r module; do b insmod /modules/$module; done </modules/order
b mount -t erofs -o ro /dev/vda /image
exec </dev/ttyS0 >/dev/ttyS0 2>&1
b stty -echo
b chroot /image /usr/bin/python3 -c 'print(1)'
echo ready
while read -r line; do echo "got $line"; done
"""
PATIENCE = 180


def _newc(entries):
    """An archive of (name, mode, bytes), as the kernel unpacks it."""
    out = bytearray()
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        head = "070701" + "".join(f"{n:08x}" for n in (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
        for part in (head.encode() + name.encode() + b"\0", data):
            out += part + b"\0" * (-len(part) % 4)
    return bytes(out)


def _initramfs(kernel):
    modules = json.loads((kernel / "kernel.json").read_text())["modules"]
    entries = [(name, 0o40755, b"") for name in ("bin", "proc", "sys", "dev", "image", "modules")]
    entries += [("init", 0o100755, INIT.encode()), ("bin/busybox", 0o100755, pathlib.Path(shutil.which("busybox")).read_bytes())]
    entries += [(f"modules/{name}", 0o100644, (kernel / "modules" / name).read_bytes()) for name in modules]
    return _newc([*entries, ("modules/order", 0o100644, "".join(f"{name}\n" for name in modules).encode())])


class Peer:
    """One guest. `facts` are those of the cell's machine: memory in bytes, cpu, accel."""

    def __init__(self, work, kernel, erofs, facts, disk="256M"):
        self.work = pathlib.Path(work)
        (self.work / "initramfs").write_bytes(_initramfs(kernel))
        self.disk = self.work / "peer.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", str(self.disk), disk], check=True)
        self.argv = ["qemu-system-x86_64", "-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-accel",
                     facts["accel"], "-cpu", facts["cpu"], "-m", f"{facts['memory'] >> 20}M", "-kernel", str(kernel / "vmlinuz"),
                     "-initrd", str(self.work / "initramfs"), "-append", "console=ttyS0 quiet mitigations=off panic=-1 cella=1",
                     "-drive", f"if=virtio,format=raw,readonly=on,file={erofs}", "-drive", f"if=virtio,format=qcow2,file={self.disk}",
                     "-serial", "stdio"]

    @contextlib.contextmanager
    def running(self, *words):
        """A QEMU that goes when the block ends; gives a call that waits for words on its line."""
        process = subprocess.Popen(self.argv + list(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        seen, watch = bytearray(), selectors.DefaultSelector()
        watch.register(process.stdout, selectors.EVENT_READ)

        def wait(text, say=None):
            deadline = time.monotonic() + PATIENCE
            if say:
                process.stdin.write(say)
                process.stdin.flush()
            while text not in seen:
                if not watch.select(max(0, deadline - time.monotonic())):
                    raise RuntimeError(f"plain QEMU: no {text!r} in {PATIENCE} s: {bytes(seen[-300:])!r}")
                more = os.read(process.stdout.fileno(), 65536)
                if not more:
                    raise RuntimeError(f"plain QEMU ended: {process.stderr.read().decode(errors='replace').strip()}")
                seen.extend(more)
        try:
            yield wait
        finally:
            process.kill()
            process.communicate()

    def boot(self):
        """Milliseconds from power on to the first output."""
        start = time.monotonic()
        with self.running() as wait:
            wait(b"ready")
            return (time.monotonic() - start) * 1000

    def snapshots(self, rounds):
        """Milliseconds of each savevm; the guest stands still for all of it."""
        path, took = self.work / "monitor", []
        with self.running("-qmp", f"unix:{path},server=on,wait=off") as wait:
            wait(b"ready")
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                lines = sock.makefile("rwb")
                lines.readline()
                for i in range(-1, rounds):
                    line = f"savevm s{i}"
                    ask = {"execute": "human-monitor-command", "arguments": {"command-line": line}} if i >= 0 else {"execute": "qmp_capabilities"}
                    start = time.monotonic()
                    lines.write(json.dumps(ask).encode() + b"\n")
                    lines.flush()
                    while True:
                        answer = json.loads(lines.readline())
                        if "event" not in answer:
                            break
                    if answer.get("return"):
                        raise RuntimeError(f"plain QEMU: {line}: {answer}")
                    if i >= 0:
                        took.append((time.monotonic() - start) * 1000)
        return took

    def restores(self, rounds):
        """Milliseconds from the start of a new QEMU with each snapshot to its first output."""
        took = []
        for i in range(rounds):
            start = time.monotonic()
            with self.running("-loadvm", f"s{i}") as wait:
                wait(b"got x", b"x\n")
                took.append((time.monotonic() - start) * 1000)
        return took
