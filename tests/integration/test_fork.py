# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What a copy of a running cell must have settled before it serves anybody, and what it must leave alone.

One family is forked for all: a parent in which a witness runs, and its children. The witness is older than the
copies, so what it notes in a child is what a program of the parent would see there.
"""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from harness import capture, internet as world
from harness.cella import command_of, wait_until
from harness.shop import API, RESOLVER, Shop

RULE = {"id": "echo", "cidr": f"{world.ECHO}/32", "ports": [8080], "proto": "tcp", "layer": "raw"}
OPEN, CLOSED = json.dumps({"version": 1, "allow": [RULE]}), json.dumps({"version": 1, "allow": []})

# Holds a connection, draws random bytes, watches its clock; notes it all every 50 ms.
WITNESS = """import json, os, socket, sys, time
s = socket.create_connection((sys.argv[1], 8080), 60)
n, back, last, state = 0, 0, time.monotonic(), 'open'
while True:
    now = time.monotonic()
    back, last, n = back + (now < last), now, n + 1
    if state == 'open':
        try:
            s.sendall(b'x')
            state = 'open' if s.recv(1) == b'x' else 'closed'
        except OSError as e:
            state = type(e).__name__
    with open('/tmp/drawn', 'a') as f:
        f.write(os.urandom(16).hex() + '\\n')
    with open('/tmp/new', 'w') as f:
        json.dump({'n': n, 'back': back, 'connection': state}, f)
    os.rename('/tmp/new', '/tmp/note')
    time.sleep(0.05)"""

IDENTITY = """import json, os, socket, uuid
read = lambda path: open(path).read().strip()
print(json.dumps({'hostname': socket.gethostname(), 'file': read('/etc/hostname'), 'machine': read('/etc/machine-id'),
    'boot': read('/proc/sys/kernel/random/boot_id'), 'mac': read('/sys/class/net/eth0/address'),
    'uuid': str(uuid.uuid4()), 'random': os.getrandom(16).hex(), 'openssl': os.popen('openssl rand -hex 16').read().strip(),
    'generation': int(read('/run/cella/generation')), 'denials': read('/run/cella/denials')}))"""

DIAL = """import socket, sys
try:
    s = socket.create_connection((sys.argv[1], 8080), 30)
    s.sendall(b'x'); print('ok' if s.recv(1) == b'x' else 'closed')
except OSError as e: print(type(e).__name__)"""

ECHO_TIME = "import sys, time\nfor line in sys.stdin: print(time.time(), flush=True)"


@pytest.fixture(scope="module", autouse=True)
def able(session_cella):
    if session_cella.capability("snapshot", unsaid="none") == "none":
        pytest.skip("the backend says it cannot copy a cell")


def python(cella, cell, source, *words, **options):
    return cella("exec", cell, "--", "python3", "-c", source, *words, **options).ok()


def note(cella, cell):
    return json.loads(cella("exec", cell, "--", "cat", "/tmp/note").ok().text)


def address(cella, cell):
    return cella.inspect(cell)["address"].split("/")[0]


class Family:
    def __init__(self, cella, directory):
        self.cella, self.parent = cella, f"parent{time.monotonic_ns()}"
        policy = directory / "open.json"
        policy.write_text(OPEN)
        cella("create", "--name", self.parent, "--policy", policy, "--memory", "256M").ok()
        cella("start", self.parent).ok()
        python(cella, self.parent, DIAL, "203.0.113.99")  # a denial that is the parent's alone
        self.witness = cella.spawn("exec", self.parent, "--", "python3", "-c", WITNESS, world.ECHO)
        wait_until(lambda: cella("exec", self.parent, "--", "cat", "/tmp/note").status == 0, 30)
        self.children = cella("fork", self.parent, "-n", "2", "--name", f"{self.parent}-k", "--json", timeout=240).ok().json()
        self.all = [self.parent] + self.children

    def close(self):
        for cell in self.all:
            self.cella("rm", "--force", cell)
        self.witness.kill()
        self.witness.communicate()


@pytest.fixture(scope="module")
def family(session_cella, tmp_path_factory):
    from harness import residue
    before = residue.snapshot(session_cella.state)
    made = Family(session_cella, tmp_path_factory.mktemp("family"))
    session_cella.baseline |= residue.snapshot(session_cella.state) - before
    made.identities = {cell: json.loads(python(session_cella, cell, IDENTITY).text) for cell in made.all}
    yield made
    made.close()


@pytest.mark.kvm
@pytest.mark.parametrize("what", ["hostname", "file", "machine", "boot", "mac", "uuid", "random", "openssl"])
def test_no_two_of_a_family_have_the_same(family, what):
    seen = [one[what] for one in family.identities.values()]
    assert len(set(seen)) == len(seen) == 3 and all(seen), seen


@pytest.mark.kvm
def test_addresses_differ_and_are_what_the_host_says(family):
    cells = {cell: address(family.cella, cell) for cell in family.all}
    assert len(set(cells.values())) == 3
    for cell, wanted in cells.items():
        shown = family.cella("exec", cell, "--", "ip", "-o", "-4", "addr", "show", "eth0").ok().text
        assert wanted in shown and shown.count("inet ") == 1


@pytest.mark.kvm
def test_a_child_has_the_greater_generation(family):
    parent, *children = [family.identities[cell]["generation"] for cell in family.all]
    assert all(child > parent for child in children)


@pytest.mark.kvm
def test_what_was_denied_to_the_parent_is_not_told_to_a_child(family):
    parent, *children = [family.identities[cell]["denials"] for cell in family.all]
    assert "203.0.113.99" in parent and not any(children)


@pytest.mark.kvm
def test_a_program_older_than_the_copies_draws_other_bytes_in_each(family):
    def drawn():
        lines = [family.cella("exec", cell, "--", "cat", "/tmp/drawn").ok().text.split() for cell in family.all]
        common = len(os.path.commonprefix(lines))
        return common, [set(one[common:]) for one in lines]

    wait_until(lambda: all(len(lines) > 3 for lines in drawn()[1]), 30, "four draws of each after the copy")
    common, after = drawn()
    assert common > 0
    assert not (after[0] & after[1] or after[0] & after[2] or after[1] & after[2])


@pytest.mark.kvm
def test_the_connection_ends_in_the_children_and_lives_in_the_parent(family):
    first = note(family.cella, family.parent)
    for child in family.children:
        wait_until(lambda: note(family.cella, child)["connection"] != "open", 30)
        assert note(family.cella, child)["connection"] in ("ConnectionAbortedError", "ConnectionResetError")
    last = note(family.cella, family.parent)  # one may be under way; the one after it is of a connection used since
    wait_until(lambda: note(family.cella, family.parent)["n"] > max(first["n"], last["n"]) + 1, 30, "turns of the parent")
    assert note(family.cella, family.parent)["connection"] == "open"


@pytest.mark.kvm
def test_monotonic_time_never_goes_back(family):
    for cell in family.all:
        first = note(family.cella, cell)
        assert first["back"] == 0
        wait_until(lambda: note(family.cella, cell)["n"] > first["n"], 30)
        assert note(family.cella, cell)["back"] == 0


def clock_off(cella, cell):
    """(how far the cell's wall clock is ahead, how far it may seem so): of twenty questions the one answered soonest."""
    process = cella.spawn("exec", "-i", cell, "--", "python3", "-u", "-c", ECHO_TIME, stdin=-1)
    best = (9, 0)
    for _ in range(20):
        before = time.time()
        process.stdin.write(b"?\n")
        process.stdin.flush()
        inside, after = float(process.stdout.readline()), time.time()
        best = min(best, (after - before, inside - (before + after) / 2))
    process.stdin.close()
    process.wait()
    return best[1], best[0] / 2


@pytest.mark.kvm
def test_wall_clock_is_the_hosts_within_50_ms(family):
    """A host that is too busy to tell it soon goes on telling it for half a minute."""
    for cell in family.all:
        seen, until = [], time.monotonic() + 40
        while not seen or abs(seen[-1][0]) > 0.05 + seen[-1][1] and time.monotonic() < until:
            seen.append(clock_off(family.cella, cell))
        assert abs(seen[-1][0]) <= 0.05 + seen[-1][1], (cell, seen)


@pytest.mark.kvm
def test_nothing_leaves_a_child_under_the_parents_address(family):
    """The gate of each child refuses and records every packet that has not the child's own source."""
    for child in family.children:
        assert python(family.cella, child, DIAL, world.ECHO).text.strip() == "ok"  # it does carry the child's own
        assert not [e for e in family.cella.events(child) if e.get("reason") == "source_spoofed"]


def test_no_frame_of_a_copy_has_the_parents_address(cella):
    """On the link itself, from before the copy's machine exists, while what runs in it would say whose it was."""
    with cella.cell() as parent:
        own, mac = address(cella, parent), json.loads(python(cella, parent, IDENTITY).text)["mac"]
        talker = cella.spawn("exec", parent, "--", "python3", "-c", capture.TALKER, own, world.ECHO)
        assert talker.stdout.readline() == b"talks\n"
        try:
            with capture.of_cell(cella, parent) as link:
                wait_until(lambda: len(link.frames) > 20, 20, "frames of the parent")
                assert {(f.mac, f.ip) for f in link.frames} == {(mac, own)}
            cella("snapshot", parent, f"{parent}-s", timeout=120).ok()
            restore, link = capture.from_the_first_frame_on(lambda: cella.spawn("restore", f"{parent}-s", "--name", f"{parent}-r"))
            with link:
                assert restore.wait(240) == 0, restore.stderr.read()
                new, theirs = address(cella, f"{parent}-r"), json.loads(python(cella, f"{parent}-r", IDENTITY).text)["mac"]
                wait_until(lambda: len(link.frames) > 20, 20, "frames of the copy")
                assert not link.lost()
            assert new != own and theirs != mac
            assert not link.of_others(theirs, new) and link.count(new) > 10, link.of_others(theirs, new)[:5]
            restore.communicate()
            cella("rm", "--force", f"{parent}-r").ok()
        finally:
            talker.kill()
            talker.communicate()
            cella("snapshot", "rm", f"{parent}-s")


@pytest.mark.kvm
def test_a_child_settled_before_anything_else_ran(family):
    for child in family.children:
        kinds = [e["kind"] for e in family.cella.events(child)]
        settled = kinds.index("cell.settled")
        assert settled < kinds.index("cell.start") and "exec.start" not in kinds[:settled]


@pytest.mark.kvm
def test_a_fork_of_a_fork(family):
    child = family.children[0]
    grandchild, = family.cella("fork", child, "-n", "1", "--name", f"{child}-g", "--json", timeout=240).ok().json()
    family.all.append(grandchild)
    new = json.loads(python(family.cella, grandchild, IDENTITY).text)
    for what in ("hostname", "machine", "boot", "mac", "random"):
        assert new[what] not in [one[what] for one in family.identities.values()]
    assert new["generation"] > family.identities[child]["generation"]
    assert note(family.cella, grandchild)["back"] == 0


@pytest.mark.kvm
def test_a_policy_tightened_after_the_snapshot_holds_on_the_first_packet(cella, internet, tmp_path):
    policy = tmp_path / "site.json"
    policy.write_text(OPEN)
    policy.chmod(0o600)
    classes = {"default": dict(cella.config()["classes"]["default"], policy="site")}
    with cella.configured(classes=classes, policies={"site": {"file": str(policy)}}), cella.cell() as parent:
        assert python(cella, parent, DIAL, world.ECHO).text.strip() == "ok"
        cella("snapshot", parent, f"{parent}-s", timeout=120).ok()
        mark = internet.quiet()
        policy.write_text(CLOSED)
        try:
            copy = cella("restore", f"{parent}-s", "--name", f"{parent}-r", timeout=240).ok().text.strip()
            assert python(cella, copy, DIAL, world.ECHO).text.strip() == "ConnectionRefusedError"
            assert not internet.connections_since(mark)
            cella("rm", "--force", copy).ok()
            policy.write_text(OPEN)
            copy = cella("restore", f"{parent}-s", "--name", f"{parent}-o", timeout=240).ok().text.strip()
            assert python(cella, copy, DIAL, world.ECHO).text.strip() == "ok"
            cella("rm", "--force", copy).ok()
        finally:
            cella("snapshot", "rm", f"{parent}-s")


def test_a_copy_works_under_the_limits_that_its_parent_was_given_since(cella):
    """Its machine is as large as the parent's was made, or the copy would not fit it."""
    tasks = "import os, time\nn = 0\ntry:\n    while os.fork(): n += 1\n    time.sleep(2); os._exit(0)\nexcept OSError: print(n)"
    with cella.cell("--cpus", "2", "--pids", "64", "--memory", "192M") as parent:
        cella("update", parent, "--cpus", "1", "--pids", "16", "--memory", "128M").ok()
        try:
            cella("snapshot", parent, f"{parent}-s", timeout=120).ok()
            restored = cella("restore", "--timings", f"{parent}-s", "--name", f"{parent}-r", timeout=240).ok()
            copy, took = restored.text.strip(), restored.errors.partition("timings (ms):")[2].split()
            steps = ["create", "start", "settle", "clock", "thaw", "link", "agent"]
            assert [step for step in took if step in steps] == steps, took
            limits = cella.inspect(copy)["limits"]
            assert [limits[key] for key in ("cpu_millis", "pids", "memory")] == [1000, 16, 128 << 20]
            assert 4 <= int(python(cella, copy, tasks).text) <= 16 + 4
            assert python(cella, copy, "import os; print(os.cpu_count())").text.strip() == "1"
            cella("update", copy, "--cpus", "2").ok()  # it has the second one, too
            assert python(cella, copy, "import os; print(len(os.sched_getaffinity(0)))").text.strip() == "2"
            cella("rm", "--force", copy).ok()
        finally:
            cella("snapshot", "rm", f"{parent}-s")


PLACEHOLDER, VALUE = "sk-cella__K1__", "tok-5d20c1-of-the-parent"
CURL = ["curl", "-sS", "-m", "20", "-H", f"x-api-key: {PLACEHOLDER}", f"https://{API}/v1/models"]
GRANTS = {"version": 1, "allow": [{"id": "llm", "host": API, "ports": [443], "layer": "http", "inject": [
    {"secret": "token", "surface": "header", "name": "x-api-key", "placeholder": PLACEHOLDER, "require": True}]}]}
PLAIN = {"version": 1, "allow": [{"id": "llm", "host": API, "ports": [443]}]}


@pytest.fixture
def granted(cella, internet, tmp_path):
    """A cell whose policy grants a secret, its shop, and a policy without the grant."""
    tmp_path.chmod(0o755)
    vault = tmp_path / "vault"
    vault.mkdir(mode=0o700)
    (vault / "token").write_text(VALUE + "\n")
    (vault / "token").chmod(0o600)
    policies = [tmp_path / name for name in ("grants.json", "plain.json")]
    for path, policy in zip(policies, (GRANTS, PLAIN)):
        path.write_text(json.dumps(policy))
    shop = Shop(internet.world, tmp_path)
    plugin = {"path": "cella-enforcer-egress-nft.so", "config": {"resolvers": f"{RESOLVER}:53", "upstream-ca": str(shop.ca)}}
    with cella.configured(plugins=[plugin], secrets=[{"provider": "secret-file", "path": str(vault)}]), \
            cella.cell("--policy", policies[0]) as parent:
        yield parent, shop, policies[1]
    shop.close()


@pytest.mark.kvm
def test_a_secret_of_the_parent_is_absent_in_a_copy_unless_its_policy_grants_it(cella, granted):
    parent, shop, plain = granted
    assert cella("exec", parent, "--", *CURL, timeout=60).ok().text == "served" and shop.keys == [VALUE]
    try:
        cella("snapshot", parent, f"{parent}-s", timeout=120).ok()  # memory and disk: it is nowhere in them
        found = subprocess.run(["grep", "-rlaF", VALUE, cella.state / "snapshots"], capture_output=True, text=True)
        assert found.returncode == 1 and not found.stdout, found
        copy = cella("restore", f"{parent}-s", "--name", f"{parent}-p", "--policy", plain, timeout=240).ok().text.strip()
        assert cella("exec", copy, "--", *CURL, "-k", timeout=60).ok().text == "served"
        assert shop.keys[1:] == [PLACEHOLDER]
        assert not [e for e in cella.events(copy) if e["kind"] == "secret.used"]
        cella("rm", "--force", copy).ok()
        copy = cella("restore", f"{parent}-s", "--name", f"{parent}-g", timeout=240).ok().text.strip()
        assert cella("exec", copy, "--", *CURL, timeout=60).ok().text == "served"  # through an authority of its own
        assert shop.keys[2:] == [VALUE]
        cella.wait_event(copy, {"kind": "secret.used", "name": "token"})
        cella("rm", "--force", copy).ok()
    finally:
        cella("snapshot", "rm", f"{parent}-s")


@contextlib.contextmanager
def small_store(cella):
    """The place of snapshots as a file system of its own; gives a call that sets its size, and its path."""
    store = cella.state / "snapshots"
    store.mkdir(mode=0o700, exist_ok=True)
    mount = lambda *words: subprocess.run(["mount", *map(str, words)], check=True)
    mount("-t", "tmpfs", "-o", "size=2G,mode=700", "small", store)
    try:
        yield (lambda size: mount("-o", f"remount,size={size}", store)), store
    finally:
        subprocess.run(["umount", store], check=True)


COUNTER = """import os, time
kept, n = bytearray(os.urandom(16 << 20)), 0
open('/root/filled', 'wb').write(os.urandom(12 << 20))
while True:
    n += 1
    with open('/tmp/count.new', 'w') as f: f.write(str(n))
    os.rename('/tmp/count.new', '/tmp/count')
    time.sleep(0.02)"""


@contextlib.contextmanager
def counting(cella):
    """A cell that counts, and how far it has come."""
    count = lambda cell: int(cella("exec", cell, "--", "cat", "/tmp/count").ok().text or 0)
    with cella.cell("--memory", "128M") as cell:
        counter = cella.spawn("exec", cell, "--", "python3", "-c", COUNTER)
        wait_until(lambda: cella("exec", cell, "--", "test", "-s", "/tmp/count").status == 0, 60)
        try:
            yield cell, count
        finally:
            counter.kill()
            counter.communicate()


def test_no_room_in_the_middle_of_a_snapshot(cella):
    """Wherever it ends: the source runs on and answers, nothing of the half is kept, and with room it works.

    What is written first depends on whether there was a snapshot before: then the memory below is nobody's any more."""
    with small_store(cella) as (resize, store):
        def fails(cell, count, room, place, *words):
            resize(room)
            before = count(cell)
            cella(words[0] if words else "snapshot", cell, *words[1:], timeout=120).one_line(125, place)
            assert os.listdir(store) == [".lock"] and os.statvfs(store).f_bfree == os.statvfs(store).f_blocks
            assert cella.snapshots() == []
            wait_until(lambda: count(cell) > before, 20, "the source's own work")
            failed = [e for e in cella.events(cell) if e["kind"] == "cell.snapshot"][-1]
            assert failed["verdict"] == "failed" and re.search(place, failed["message"])

        def works(cell, count):
            resize("2G")
            machine = cella("snapshot", cell, "room", "--json", timeout=120).ok().json()["id"]
            sizes = {f.name: f.stat().st_blocks * 512 for f in (store / machine / "machine").iterdir()}
            cella("snapshot", "verify", "room", timeout=120).ok()
            copy = cella("restore", "room", "--name", f"{cell}-r", timeout=240).ok().text.strip()
            before = count(copy)
            wait_until(lambda: count(copy) > before, 20, "the copy's work")
            cella("rm", "--force", copy).ok()
            cella("snapshot", "rm", "room").ok()
            return sizes["state"], sizes["ram"], sum(n for name, n in sizes.items() if name.startswith("disk."))

        with counting(cella) as (cell, count):
            state, ram, disk = works(cell, count)
            assert min(state, ram, disk) > 1 << 16
            fails(cell, count, ram // 2, "memory: No space left", "fork", "-n", "2", "--name", f"{cell}-k")
            assert f"{cell}-k-1" not in cella.ps()
            fails(cell, count, ram + state // 2, "state: No space left")
        with counting(cella) as (cell, count):
            fails(cell, count, state // 2, "state: No space left")
            fails(cell, count, state + disk // 2, "disk: No space left")
            fails(cell, count, ram // 2, "memory: No space left")
            works(cell, count)


def machines():
    """Whatever engine runs them."""
    return {int(p.name) for p in pathlib.Path("/proc").iterdir()
            if p.name.isdigit() and any(engine in command_of(int(p.name)) for engine in ("qemu-system", "cella-vmm"))}


@pytest.mark.kvm
def test_a_child_that_does_not_confirm_is_never_handed_out(cella):
    """Its processor stands still from the moment it exists: no answer, no cell, nothing left."""
    with cella.cell() as parent:
        cella("snapshot", parent, f"{parent}-s", timeout=120).ok()
        before = machines()
        process = cella.spawn("restore", f"{parent}-s", "--name", f"{parent}-r")
        wait_until(lambda: machines() - before, 20)
        for pid in machines() - before:
            os.kill(pid, signal.SIGSTOP)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 125 and not out and err.count(b"\n") == 1, (process.returncode, out, err)
        assert f"{parent}-r" not in cella.ps()
        cella("snapshot", "rm", f"{parent}-s").ok()
