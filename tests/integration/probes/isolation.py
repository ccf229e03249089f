# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# Runs inside a cell. Prints one JSON object: what each attempt gave ("ok", an errno name, "signal N") and
# what the process can see of itself. Each attempt has its own child process.
import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import struct
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
MS_BIND, NEWNS, NEWUSER, NEWNET, NEWPID = 4096, 0x20000, 0x10000000, 0x40000000, 0x20000000


def call(number, *args):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]) < 0:
        raise OSError(ctypes.get_errno(), "")


def clone3(flags):
    args = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, signal.SIGCHLD)
    pid = libc.syscall(435, args, ctypes.c_long(88))
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "")
    os.waitpid(pid, 0)


def clone(flags):
    pid = libc.syscall(56, ctypes.c_long(flags | signal.SIGCHLD), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "")
    os.waitpid(pid, 0)


def int80():
    """getpid through the 32-bit entry."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    if result < 0:
        raise OSError(-result, "")


def x32():
    call(0x40000000 + 39)


def sock(family, kind, proto=0):
    return lambda: socket.socket(family, kind, proto).close()


def write_to(path, text="0"):
    def attempt():
        with open(path, "w") as handle:
            handle.write(text)
    return attempt


def read_of(path):
    def attempt():
        with open(path, "rb") as handle:
            if not handle.read(16):
                raise OSError(errno.ENODATA, "")
    return attempt


def thread():
    done = threading.Event()
    other = threading.Thread(target=done.set)
    other.start()
    other.join(5)
    if not done.is_set():
        raise OSError(errno.ETIMEDOUT, "")


def socketpair():
    one, two = socket.socketpair()
    one.send(b"x")
    if two.recv(1) != b"x":
        raise OSError(errno.EIO, "")


def unix_listener():
    server = socket.socket(socket.AF_UNIX)
    server.bind("/tmp/probe.sock")
    server.listen(1)
    client = socket.socket(socket.AF_UNIX)
    client.connect("/tmp/probe.sock")
    os.unlink("/tmp/probe.sock")


def loopback():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    socket.create_connection(server.getsockname(), 2).close()


def read_memory_of(pid):
    """Where the other process has no such page, but we may look: EFAULT, not EPERM."""
    local = (ctypes.c_uint64 * 2)(ctypes.addressof(zeros), 8)
    call(310, pid, local, 1, (ctypes.c_uint64 * 2)(4096, 8), 1, 0)


def memfd():
    fd = os.memfd_create("probe")
    os.write(fd, b"x")
    os.close(fd)


attr = ctypes.create_string_buffer(128)
zeros = ctypes.create_string_buffer(256)
perf = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0) + b"\0" * 112)
DENIED = {
    "mount tmpfs": lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, 0),
    "mount bind": lambda: call(165, b"/usr", b"/tmp", b"", MS_BIND, 0),
    "mount proc": lambda: call(165, b"proc", b"/tmp", b"proc", 0, 0),
    "umount /proc": lambda: call(166, b"/proc", 2),
    "pivot_root": lambda: call(155, b"/", b"/tmp"),
    "open_tree": lambda: call(428, -100, b"/", 1),
    "fsopen": lambda: call(430, b"tmpfs", 0),
    "mount_setattr": lambda: call(442, -100, b"/", 0, attr, 32),
    "move_mount": lambda: call(429, -100, b"/tmp", -100, b"/usr", 0),
    "unshare user": lambda: call(272, NEWUSER),
    "unshare mount": lambda: call(272, NEWNS),
    "unshare net": lambda: call(272, NEWNET),
    "unshare pid": lambda: call(272, NEWPID),
    "clone user": lambda: clone(NEWUSER),
    "clone mount": lambda: clone(NEWNS),
    "clone3 user": lambda: clone3(NEWUSER),
    "setns": lambda: call(308, os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "bpf": lambda: call(321, 0, attr, 128),
    "io_uring_setup": lambda: call(425, 4, zeros),
    "keyctl": lambda: call(250, 0, -3, 1),
    "add_key": lambda: call(248, b"user", b"probe", b"x", 1, -3),
    "request_key": lambda: call(249, b"user", b"probe", 0, -3),
    "userfaultfd": lambda: call(323, 1),
    "perf_event_open": lambda: call(298, perf, 0, -1, -1, 0),
    "kexec_load": lambda: call(246, 0, 0, 0, 0),
    "init_module": lambda: call(175, zeros, 0, b""),
    "finit_module": lambda: call(313, 0, b"", 0),
    "delete_module": lambda: call(176, b"probe", 0),
    "reboot": lambda: call(169, 0xfee1dead - (1 << 32), 672274793, 0, 0),
    "swapon": lambda: call(167, b"/tmp/none", 0),
    "acct": lambda: call(163, 0),
    "settimeofday": lambda: call(164, zeros, 0),
    "clock_settime": lambda: call(227, 0, zeros),
    "sethostname": lambda: call(170, b"evil", 4),
    "iopl": lambda: call(172, 3),
    "ioperm": lambda: call(173, 0x80, 1, 1),
    "syslog": lambda: call(103, 3, zeros, 256),
    "quotactl": lambda: call(179, 0x800002, 0, 0, 0),
    "open_by_handle_at": lambda: call(304, 3, zeros, 0),
    "fanotify_init": lambda: call(300, 0, 0),
    "pidfd_getfd of 1": lambda: call(438, os.pidfd_open(1), 0, 0),
    "process_vm_readv of 1": lambda: read_memory_of(1),
    "ptrace of 1": lambda: call(101, 16, 1, 0, 0),
    "ptrace seize of 1": lambda: call(101, 0x4206, 1, 0, 0),
    "mknod block": lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)),
    "mknod mem": lambda: os.mknod("/tmp/mem", 0o20600, os.makedev(1, 1)),
    "32-bit entry": int80,
    "x32 entry": x32,
    "AF_VSOCK": sock(40, socket.SOCK_STREAM),
    "AF_ALG": sock(38, socket.SOCK_SEQPACKET),
    "AF_PACKET": sock(17, socket.SOCK_DGRAM, 0x300),
    "AF_PACKET raw": sock(17, socket.SOCK_RAW, 0x300),
    "AF_XDP": sock(44, socket.SOCK_RAW),
    "AF_KEY": sock(15, socket.SOCK_RAW, 2),
    "AF_BLUETOOTH": sock(31, socket.SOCK_RAW, 0),
    "AF_CAN": sock(29, socket.SOCK_RAW, 1),
    "AF_RDS": sock(21, socket.SOCK_SEQPACKET),
    "AF_TIPC": sock(30, socket.SOCK_SEQPACKET),
    "raw icmp": sock(socket.AF_INET, socket.SOCK_RAW, 1),
    "raw ip": sock(socket.AF_INET, socket.SOCK_RAW, 255),
    "raw icmp6": sock(socket.AF_INET6, socket.SOCK_RAW, 58),
    "netfilter netlink": sock(16, socket.SOCK_RAW, 12),
    "audit netlink": sock(16, socket.SOCK_RAW, 9),
    "write /proc/1/mem": write_to("/proc/1/mem"),
    "read /proc/1/mem": read_of("/proc/1/mem"),
    "read /proc/1/environ": read_of("/proc/1/environ"),
    "write /proc/1/exe": write_to("/proc/1/exe"),
    "write core_pattern": write_to("/proc/sys/kernel/core_pattern", "|/tmp/x"),
    "write ns_last_pid": write_to("/proc/sys/kernel/ns_last_pid", "77"),
    "write sysrq-trigger": write_to("/proc/sysrq-trigger", "h"),
    "write ip_forward": write_to("/proc/sys/net/ipv4/ip_forward", "1"),
    "write route_localnet": write_to("/proc/sys/net/ipv4/conf/all/route_localnet", "1"),
    "write /sys": write_to("/sys/kernel/probe"),
    "read kcore": read_of("/proc/kcore"),
    "read kmsg": read_of("/dev/kmsg"),
    "read mem": read_of("/dev/mem"),
    "read keys": read_of("/proc/keys"),
    "read timer_list": read_of("/proc/timer_list"),
    "read sched_debug": read_of("/proc/sched_debug"),
    "read kallsyms address": lambda: _kallsyms(),
    "write /usr": write_to("/usr/probe"),
    "raise memlock": lambda: call(302, 0, 8, ctypes.create_string_buffer(struct.pack("QQ", 1 << 40, 1 << 40)), 0),
    "chown to 1000": lambda: os.chown("/tmp/probe-owned", 1000, 1000),
}
ALLOWED = {
    "AF_INET": sock(socket.AF_INET, socket.SOCK_STREAM),
    "AF_INET udp": sock(socket.AF_INET, socket.SOCK_DGRAM),
    "AF_UNIX": sock(socket.AF_UNIX, socket.SOCK_STREAM),
    "route netlink": sock(16, socket.SOCK_RAW, 0),
    "socketpair": socketpair,
    "unix listener": unix_listener,
    "own loopback": loopback,
    "clone": lambda: clone(0),
    "thread and futex": thread,
    "memfd": memfd,
    "ptrace traceme": lambda: call(101, 0, 0, 0, 0),
    "mmap exec": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
    "eventfd": lambda: call(290, 0, 0),
    "epoll": lambda: call(291, 0),
    "timerfd": lambda: call(283, 1, 0),
    "signalfd": lambda: call(289, -1, zeros, 8, 0),
    "inotify": lambda: call(294, 0),
    "getrandom": lambda: call(318, zeros, 8, 0),
    "write /tmp": write_to("/tmp/probe"),
    "mkfifo": lambda: os.mkfifo("/tmp/fifo"),
    "symlink": lambda: os.symlink("x", "/tmp/link"),
    "flock": lambda: __import__("fcntl").flock(open("/tmp/probe"), 2),
    "personality query": lambda: call(135, 0xffffffff),
    "statx": lambda: call(332, -100, b"/", 0, 0xfff, zeros),
    "read urandom": read_of("/dev/urandom"),
    "read status of 1": read_of("/proc/1/status"),
}


def _kallsyms():
    with open("/proc/kallsyms") as handle:
        line = handle.readline()
        if not line or int(line.split()[0], 16) == 0:
            raise OSError(errno.EACCES, "")


def outcome(attempt):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
            text = "ok"
        except OSError as error:
            text = errno.errorcode.get(error.errno, str(error.errno))
        except BaseException as error:  # part of the answer
            text = repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 1000).decode()
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    return text or (f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}")


def kill_one():
    """PID 1 must survive every signal of a root workload."""
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP, signal.SIGHUP):
        try:
            os.kill(1, number)
        except OSError:
            pass
    with open("/proc/1/status") as handle:
        return [line.split()[1] for line in handle if line.startswith("State:")][0]


def main():
    open("/tmp/probe-owned", "w").close()
    with open("/proc/self/uid_map") as handle:
        uid_map = handle.read().split()
    if uid_map[:2] == ["0", "0"] and sys.argv[1:] != ["own-kernel"]:
        sys.exit("this is not a cell")
    own_fds = {fd: os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{fd}")}
    with open("/proc/self/status") as handle:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in handle)}
    print(json.dumps({
        "denied": {name: outcome(attempt) for name, attempt in DENIED.items()},
        "allowed": {name: outcome(attempt) for name, attempt in ALLOWED.items()},
        "status": status, "fds": own_fds, "environ": dict(os.environ), "uid_map": uid_map, "uid": os.getuid(),
        "pid": os.getpid(), "dev": sorted(os.listdir("/dev")), "state of 1": kill_one(),
        "root": sorted(os.listdir("/")), "groups": os.getgroups(),
    }))


main()
