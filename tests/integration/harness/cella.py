# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The program under test: one state directory, one config, one backend; every verb as a call."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from . import EMULATED, PATIENCE, WAITING
from .guests import MACHINES

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROBES = ROOT / "tests" / "integration" / "probes"
POLICIES = ROOT / "tests" / "egress" / "policies"


def compiled(path):
    """A Python file as a program for -c, compiled once here and not at each start: of a small probe that is the most."""
    compiler = "import binascii, marshal, sys; code = compile(sys.stdin.read(), 'probe', 'exec')\n" \
               "print(binascii.b2a_base64(marshal.dumps(code), newline=False).decode(), end='')"
    text = subprocess.run(["/usr/bin/python3", "-I", "-S", "-c", compiler], input=path.read_bytes(), stdout=subprocess.PIPE,
                          check=True).stdout.decode()
    return f"import binascii, marshal; exec(marshal.loads(binascii.a2b_base64('{text}')))"


class Result:
    """What one invocation did. `text` and `errors` are its output, stripped at the end."""

    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    @property
    def text(self):
        return self.out.decode(errors="replace").rstrip("\n")

    @property
    def errors(self):
        return self.err.decode(errors="replace").rstrip("\n")

    def json(self):
        try:
            return json.loads(self.out)
        except ValueError:
            raise AssertionError(f"not JSON: {self!r}") from None

    def ok(self, status=0):
        assert self.status == status, f"expected status {status}: {self!r}"
        return self

    def one_line(self, status, *words):
        """A refusal as it should be: this status, exactly one line on stderr, and that line has the words."""
        self.ok(status)
        lines = self.errors.splitlines()
        assert len(lines) == 1, f"expected one line on stderr: {self!r}"
        for word in words:
            assert re.search(word, lines[0], re.IGNORECASE), f"expected /{word}/ on stderr: {self!r}"
        return self

    def __repr__(self):
        return (f"\n$ {' '.join(map(str, self.argv))}\nstatus {self.status}\n--- stdout\n{self.text[-4000:]}\n"
                f"--- stderr\n{self.errors[-4000:]}\n")


class Cella:
    def __init__(self, build, work, backend, uplink=None):
        self.build, self.work, self.backend = pathlib.Path(build), pathlib.Path(work), backend
        self.state = self.work / "state"
        self.uplink = uplink
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("CELLA_")}
        self.env["CELLA_CONFIG"] = str(self.write_config())
        self._doctor = None
        self.template = None  # (backend, snapshot) of what copy() copies
        self.baseline = set()  # what existed before the present test, and the cells that tests share

    # ---- config

    def config(self, **changes):
        """The config of the tests as an object. Each keyword replaces a top-level member."""
        class_ = {"floor": "process", "backends": [self.backend], "policy": "deny"}
        if self.backend in MACHINES:
            class_["image"] = "base"
        base = {"version": 1, "state_dir": str(self.state),
                "classes": {"default": class_, "lenient": dict(class_, best_effort=True)},
                "audit": [{"sink": "audit-jsonl", "path": str(self.state / "audit"), "overflow": "fail-closed"}]}
        if self.uplink:
            base["uplink"] = f"/run/netns/{self.uplink}"
        base.update(changes)
        return {key: value for key, value in base.items() if value is not None}

    def write_config(self, text=None, name="cella.json", **changes):
        path = self.work / name
        path.write_text(text if text is not None else json.dumps(self.config(**changes), indent=2))
        path.chmod(0o600)
        return path

    @contextlib.contextmanager
    def configured(self, text=None, **changes):
        """Runs with another config for a while; gives its path."""
        old = self.env["CELLA_CONFIG"]
        path = self.write_config(text, name=f"cella-{time.monotonic_ns()}.json", **changes)
        self.env["CELLA_CONFIG"] = str(path)
        try:
            yield path
        finally:
            self.env["CELLA_CONFIG"] = old
            path.unlink()

    # ---- invocations

    def argv(self, *words):
        words = [w if isinstance(w, bytes) else str(w) for w in words]
        slow = "40s" if EMULATED else "20s" if "ASAN_OPTIONS" in os.environ else None
        if words and words[0] == "reach" and slow and "--timeout" not in words:
            words += ["--timeout", slow]
        if words and words[0] in ("run", "create") and "--backend" not in words and "--class" not in words:
            words[1:1] = ["--backend", self.backend]
        return [str(self.build / "cella")] + words

    def spawn(self, *words, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        prefix = options.pop("prefix", [])
        env = dict(self.env, **options.pop("env", {}))
        return subprocess.Popen(prefix + self.argv(*words), env=env, start_new_session=True, **options)

    def __call__(self, *words, input=None, timeout=120, **options):
        if input is not None:
            options["stdin"] = subprocess.PIPE
            words = (words[0], "-i") + words[1:]
        process = self.spawn(*words, **options)
        try:
            out, err = process.communicate(input, timeout=timeout * PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            shown = Result(process.args, "none: killed by the test", out or b"", err or b"")
            raise AssertionError(f"no end within {timeout * PATIENCE} s: {shown!r}") from None
        return Result(process.args, process.returncode, out or b"", err or b"")

    def run(self, *words, **options):
        return self("run", *words, **options)

    def python(self, source, *words, flags=(), **options):
        """Runs Python source in a new cell."""
        return self("run", *flags, "--", "python3", "-c", source, *words, **options)

    def probe(self, name, *words, flags=(), **options):
        """Runs probes/NAME.py in a new cell and gives what it printed, one JSON value."""
        return self.python((PROBES / f"{name}.py").read_text(), *words, flags=flags, **options).ok().json()

    @contextlib.contextmanager
    def cell(self, *flags, name=None, start=True):
        """A cell that exists for a while; gives its name."""
        name = name or f"t{time.monotonic_ns()}"
        self("create", "--name", name, *flags).ok()
        try:
            if start:
                self("start", name).ok()
            yield name
        finally:
            self._remove(name)

    def _remove(self, name):
        if (self.state / "names" / name).is_symlink():
            self("rm", "--force", name).ok()

    def begin(self, *flags, name):
        """Makes a running cell, of what may be a copy a copy: see copy()."""
        able = self.template and self.template[0] == self.backend
        if able and set(flags[::2]) <= {"--policy", "--hostname"} and "none" not in flags:  # none: a machine without a device
            self("restore", self.template[1], "--name", name, *flags).ok()
        else:
            self("create", "--name", name, *flags).ok()
            self("start", name).ok()

    @contextlib.contextmanager
    def copy(self, *flags, name=None):
        """As cell(), for tests that are not about starting: a machine that can be copied was booted once for all of them."""
        name = name or f"t{time.monotonic_ns()}"
        try:
            self.begin(*flags, name=name)
            yield name
        finally:
            self._remove(name)

    def make_template(self):
        """A cell that has started, saved; nothing ran in it."""
        if self.capability("snapshot", unsaid="none") != "none":
            with self.cell() as cell:
                self("snapshot", cell, "template", timeout=120).ok()
                self.template = self.backend, "template"

    def snapshots(self):
        """Those of the tests."""
        rows = self("snapshot", "ls", "--json").ok().json()
        return [row for row in rows if not self.template or row.get("name") != self.template[1]]

    # ---- what exists

    def inspect(self, cell):
        return self("inspect", cell).ok().json()

    def cells(self):
        directory = self.state / "cells"
        return sorted(os.listdir(directory)) if directory.is_dir() else []

    def directory(self, cell):
        """The cell's directory; names are links that hold ids."""
        return self.state / "cells" / os.readlink(self.state / "names" / cell).rsplit("/")[-1]

    def cell_json(self, cell):
        return json.loads((self.directory(cell) / "cell.json").read_text())

    def state_of(self, cell):
        return self.inspect(cell)["state"]

    def ended(self, cell):
        """Nothing of it runs any more: stopped, dead, or gone. In the moment of its end nobody may answer."""
        found = self("inspect", cell)
        return found.json()["state"] in ("stopped", "dead") if found.status == 0 else cell not in self.ps()

    def ps(self):
        """The names of the cells that run, are paused, or wait for their start."""
        return {row["name"] for row in self("ps", "--json").ok().json()}

    def doctor(self):
        if self._doctor is None:
            self._doctor = self("doctor", "--json").json()
        return self._doctor

    def capability(self, name, unsaid="native"):
        """none, emulated or native, as the backend's probe says on this host."""
        mine = [p for p in self.doctor()["plugins"] if p.get("kind") == "backend" and p.get("name") == self.backend]
        return mine[0].get("capabilities", {}).get(name, {}).get("answer", unsaid) if mine else unsaid

    # ---- audit

    def chains(self):
        return set((self.state / "audit").glob("*.jsonl")) if (self.state / "audit").is_dir() else set()

    def events(self, chain):
        """Every event of a chain: a file, a cell's id or a cell's name."""
        path = pathlib.Path(chain)
        if not path.is_absolute():
            link = self.state / "names" / chain
            path = self.state / "audit" / f"{os.readlink(link).rsplit('/')[-1] if link.is_symlink() else chain}.jsonl"
        whole = path.read_text().split("\n")[:-1] if path.exists() else []  # the last line may be half written
        return [json.loads(line) for line in whole]

    @contextlib.contextmanager
    def new_chain(self):
        """Gives a list that holds, afterwards, the chain files of the cells made meanwhile."""
        before, found = self.chains(), []
        yield found
        found += sorted(p for p in self.chains() - before if p.stem != "host")

    def wait_event(self, chain, wanted, seconds=15.0, after=0):
        """The first event that has every member of `wanted` (values may be sets of allowed ones), but for the first `after`."""
        deadline = time.monotonic() + seconds * WAITING
        while True:
            events = self.events(chain)[after:]
            for event in events:
                if all(event.get(k) in v if isinstance(v, (set, frozenset)) else event.get(k) == v
                       for k, v in wanted.items()):
                    return event
            if time.monotonic() > deadline:
                shown = "\n".join(json.dumps(e) for e in events[-12:])
                raise AssertionError(f"no event {wanted} in {chain}; its last events:\n{shown}")
            time.sleep(0.05)

    # ---- processes of a cell, as the host sees them

    def warden(self, cell):
        """The pid of the process that holds the cell's lock."""
        pid = self.cell_json(cell)["pid"]
        assert "cella-warden" in command_of(pid), f"{cell}: pid {pid} is {command_of(pid)!r}"
        return pid

    def gate(self, cell):
        """The pid of the process that carries the cell's traffic."""
        pid = self.cell_json(cell).get("gate_pid", 0)
        assert pid > 0, f"{cell} has no gate"
        return pid

    def agent(self, cell):
        """The pid, on the host, of the first process inside the cell."""
        return self.cell_json(cell)["init_pid"]


def command_of(pid):
    with contextlib.suppress(OSError):
        exe = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        comm = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        return f"{exe} {comm}"
    return ""


def children_of(pid, deep=False):
    found = []
    for task in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            stat = pathlib.Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()
            if int(stat[1]) == pid:
                found.append(int(task))
    return found + [g for child in found for g in children_of(child, True)] if deep else found


def rss_bytes(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def wait_until(condition, seconds=15.0, what="condition"):
    deadline = time.monotonic() + seconds * WAITING
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds * WAITING} s: {what}"
        time.sleep(0.02)


def is_locked(path):
    with open(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
