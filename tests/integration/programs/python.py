# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""threads, subprocess, asyncio over pipes and Unix sockets, multiprocessing, sqlite3, mmap, signals, files."""
import asyncio
import ctypes
import fcntl
import hashlib
import json
import mmap
import multiprocessing
import os
import pathlib
import queue
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time


def threads():
    jobs, done, lock = queue.Queue(), [], threading.Lock()

    def work():
        while (n := jobs.get()) is not None:
            with lock:
                done.append(n * n)
    crew = [threading.Thread(target=work) for _ in range(4)]
    for t in crew:
        t.start()
    for n in range(200):
        jobs.put(n)
    for _ in crew:
        jobs.put(None)
    for t in crew:
        t.join()
    event, bar = threading.Event(), threading.Barrier(3)
    for _ in range(2):
        threading.Thread(target=lambda: (bar.wait(), event.set())).start()
    bar.wait()
    return sum(done), event.wait(5), event.is_set()


def processes():
    out = subprocess.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"in", capture_output=True)
    many = [subprocess.Popen(["sh", "-c", f"exit {i}"]) for i in range(8)]
    return out.returncode, out.stdout, out.stderr, [p.wait() for p in many], subprocess.run(["false"]).returncode


async def talk():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()
    server = await asyncio.start_unix_server(serve, "talk.sock")
    answers = []
    for i in range(5):
        reader, writer = await asyncio.open_unix_connection("talk.sock")
        writer.write(b"line %d\n" % i)
        answers.append(await reader.readline())
        writer.close()
    server.close()
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    out, _ = await child.communicate(b"through a pipe")
    async with asyncio.timeout(5) if hasattr(asyncio, "timeout") else asyncio.Lock():
        await asyncio.gather(*(asyncio.sleep(0.01 * i) for i in range(3)))
    return answers, out


def square(n):
    return n * n


def pool():
    with multiprocessing.Pool(3) as p:
        squares = p.map(square, range(20))
    q, e = multiprocessing.Queue(), multiprocessing.Value("i", 0)

    def add():
        with e.get_lock():
            e.value += 1
        q.put(os.getpid() != os.getppid())
    crew = [multiprocessing.Process(target=add) for _ in range(4)]
    for c in crew:
        c.start()
    got = [q.get() for _ in crew]
    for c in crew:
        c.join()
    return sum(squares), got, e.value, [c.exitcode for c in crew]


def database():
    db = sqlite3.connect("data.db")
    db.execute("pragma journal_mode=wal")
    db.execute("create table t (a integer primary key, b text)")
    db.executemany("insert into t (b) values (?)", [(f"row {i}",) for i in range(1000)])
    db.commit()

    def writer(n):
        mine = sqlite3.connect("data.db", timeout=30)
        for i in range(20):
            mine.execute("insert into t (b) values (?)", (f"{n} {i}",))
            mine.commit()
        mine.close()
    crew = [threading.Thread(target=writer, args=(n,)) for n in range(3)]
    for t in crew:
        t.start()
    for t in crew:
        t.join()
    return db.execute("select count(*), sum(length(b)) from t").fetchone(), db.execute("pragma integrity_check").fetchone()


def memory():
    with open("map", "w+b") as f:
        f.truncate(3 * mmap.PAGESIZE)
        shared = mmap.mmap(f.fileno(), 0)
        shared[10:15] = b"hello"
        shared.flush()
        f.seek(10)
        said = f.read(5)
        if os.fork() == 0:
            shared[mmap.PAGESIZE] = 77
            os._exit(0)
        os.wait()
        seen = shared[mmap.PAGESIZE]
    private = bytearray(64 << 20)
    private[::4096] = b"x" * len(private[::4096])
    pid = os.fork()
    if not pid:
        private[0] = 0
        os._exit(private[4096])
    return said, seen, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), private[0]


def signals():
    seen = []
    signal.signal(signal.SIGUSR1, lambda *_: seen.append("usr1"))
    signal.signal(signal.SIGALRM, lambda *_: seen.append("alarm"))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    seen.append(signal.sigwait([signal.SIGUSR2]).name)
    r, w = os.pipe()
    signal.set_wakeup_fd(os.dup(w), warn_on_full_buffer=False) if os.set_blocking(w, False) else None
    crash = subprocess.run(["python3", "-c", "import ctypes; ctypes.string_at(8)"], stderr=subprocess.DEVNULL).returncode
    return seen, crash


def files():
    p = pathlib.Path("tree")
    for i in range(5):
        (p / f"d{i}").mkdir(parents=True)
        (p / f"d{i}" / "file").write_text("x" * i)
    os.symlink("d1/file", p / "link")
    os.rename(p / "d4", p / "d5")
    found = sorted(str(x) for x in p.rglob("*"))
    os.chmod(p / "d1/file", 0o600)
    os.utime(p / "d1/file", ns=(1, 2))
    st = os.stat(p / "link")
    with open(p / "d2/file", "r+b") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        fcntl.lockf(f, fcntl.LOCK_EX)
        os.pwrite(f.fileno(), b"end", 1 << 20)
        sparse = os.fstat(f.fileno()).st_size, os.lseek(f.fileno(), 0, os.SEEK_HOLE) <= 1 << 20
    with tempfile.TemporaryFile() as t:
        t.write(b"temporary")
        t.seek(0)
        temporary = t.read()
    fd = os.memfd_create("m")
    os.write(fd, b"memfd")
    got = os.pread(fd, 5, 0), os.readlink(f"/proc/self/fd/{fd}")
    try:
        os.setxattr(p / "d1/file", "user.a", b"1")
        attr = os.getxattr(p / "d1/file", "user.a"), os.listxattr(p / "d1/file")
    except OSError as e:
        attr = e.errno
    shutil.rmtree(p)
    errors = []
    for what in (lambda: open("/no/such"), lambda: os.mkdir("/proc/x/y"), lambda: os.rmdir("/"), lambda: os.readlink(".")):
        try:
            what()
        except OSError as e:
            errors.append(e.errno)
    return found, oct(st.st_mode), st.st_mtime_ns, sparse, temporary, got, bool(attr), errors


def waiting():
    a, b = socket.socketpair()
    poll, ep = select.poll(), select.epoll()
    poll.register(a, select.POLLIN)
    ep.register(a, select.EPOLLIN | select.EPOLLET)
    first = poll.poll(0), ep.poll(0)
    b.send(b"x")
    second = len(poll.poll(1000)), len(ep.poll(1)), len(ep.poll(0))
    fds = socket.socketpair()
    socket.send_fds(a, [b"take"], [fds[0].fileno()])
    message, got, _, _ = socket.recv_fds(b, 100, 1)
    os.write(got[0], b"by descriptor")
    t0 = time.monotonic()
    time.sleep(0.02)
    return first, second, message, fds[1].recv(100), time.monotonic() - t0 >= 0.02, select.select([a], [], [], 0)[0] == []


def main():
    for part in (threads, processes, lambda: asyncio.run(talk()), pool, database, memory, signals, files, waiting):
        print(part(), flush=True)
    print(hashlib.sha256(json.dumps([ctypes.sizeof(ctypes.c_long), 6 * 7]).encode()).hexdigest())


if __name__ == "__main__":
    main()
