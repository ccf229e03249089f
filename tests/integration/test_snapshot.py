# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Snapshots, restores and forks as the host does them: the store, lineage, refusals, nothing left behind.

The backend is plugins/copy-backend.c: its snapshots hold no process. What only a machine can show is in test_fork.py.
"""
import contextlib
import hashlib
import json
import os

import pytest


@pytest.fixture
def copies(cella):
    """The program with the test backend; gives a call that changes its option "fault"."""
    plugin = cella.build / "tests/integration/plugins/cella-test-copy-backend.so"
    allowed = {"floor": "process", "backends": ["copy"], "policy": "deny", "image": "host"}

    @contextlib.contextmanager
    def configured(fault="", **changes):
        base = {"plugins": [{"path": str(plugin), "config": {"fault": fault} if fault else {}}],
                "classes": {"default": allowed, "other": dict(allowed, policy="none")}}
        old, cella.backend = cella.backend, "copy"
        try:
            with cella.configured(**dict(base, **changes)):
                yield
        finally:
            cella.backend = old

    before = entries(cella)
    yield configured
    assert entries(cella) == before, "snapshots left behind"


def entries(cella):
    """What lies in the store; what the other tests copy is not of these."""
    with contextlib.suppress(FileNotFoundError):
        known = {".lock"} | {row["id"] for row in cella("snapshot", "ls", "--json").ok().json()} - {row["id"] for row in cella.snapshots()}
        return sorted(set(os.listdir(cella.state / "snapshots")) - known)
    return []


@contextlib.contextmanager
def removed(cella, *names):
    try:
        yield
    finally:
        for name in names:
            if (cella.state / "names" / name).is_symlink():
                cella("rm", "--force", name).ok()


def manifest(cella, name):
    return next(row for row in cella("snapshot", "ls", "--json").ok().json() if row.get("name") == name)


@pytest.mark.lab
def test_a_snapshot_and_its_copy(cella, copies):
    with copies(), cella.cell(name="parent") as parent, removed(cella, "copy"):
        taken = cella("snapshot", parent, "s1", "--json").ok().json()
        try:
            assert "s1" in cella("snapshot", "ls").ok().text
            row = manifest(cella, "s1")
            assert row["id"] == taken["id"] and row["apparent"] >= 8192 and row["unique"] > 0 and not row["in_use"]
            assert cella("exec", parent, "--", "echo", "on").ok().text == "on"  # the source goes on
            restored = cella("restore", "--timings", "s1", "--name", "copy").ok()
            assert restored.text == "copy"
            assert {"snapshot", "create", "agent"} <= set(restored.errors.partition("timings (ms):")[2].split()), restored.errors
            assert cella("exec", "copy", "--", "echo", "me").ok().text == "me"
            mine, its = cella.inspect("copy"), cella.inspect(parent)
            assert mine["id"] != its["id"] and mine["slot"] != its["slot"] and mine["address"] != its["address"]
            assert mine["parent"]["cell"] == its["id"] and mine["parent"]["snapshot"] == taken["id"] and "parent" not in its
            first = cella.events("copy")[0]
            line = next(e for e in cella.events(parent) if e["seq"] == first["parent_seq"])
            assert first["kind"] == "chain.open" and first["parent"] == its["id"] and line["kind"] == "cell.snapshot"
            raw = (cella.state / "audit" / f"{its['id']}.jsonl").read_bytes().splitlines()[first["parent_seq"] - 1]
            assert first["parent_head"] == hashlib.sha256(raw).hexdigest()
            assert cella.wait_event("copy", {"kind": "cell.request"})["snapshot"] == taken["id"]
            cella("audit", "verify", "copy").ok()
            cella("snapshot", "rm", "s1").one_line(125, "s1", "runs")  # its copy may need it
            cella("snapshot", "verify", "s1").ok()
        finally:
            cella("rm", "--force", "copy")
            cella("snapshot", "rm", "s1").ok()
    cella("snapshot", "rm", "s1").one_line(125, "s1", "there is none")


def test_a_copy_that_does_not_start_leaves_no_record(cella, copies):
    """Its client has the error, and never had the cell: the name is free."""
    with copies(), cella.cell() as cell, removed(cella, "twin"):
        cella("snapshot", cell, "s1").ok()
        try:
            with copies(fault="start"):
                for words in (("restore", "s1", "--name", "twin"), ("run", "--backend", "copy", "--name", "twin", "--detach", "--", "true")):
                    cella(*words).one_line(125, "a start that fails")
                    assert "twin" not in cella("ps", "--all").ok().text
            assert cella("restore", "s1", "--name", "twin").ok().text == "twin"  # twin
        finally:
            cella("rm", "--force", "twin")
            cella("snapshot", "rm", "s1").ok()


def test_a_fork_makes_all_children(cella, copies):
    with copies(), cella.cell(name="parent") as parent, removed(cella, "kid-1", "kid-2", "kid-3", "grand-1"):
        assert cella("fork", parent, "-n", "3", "--name", "kid").ok().text.split() == ["kid-1", "kid-2", "kid-3"]
        rows = cella.snapshots()
        assert [row["hidden"] for row in rows] == [True] and rows[0]["in_use"]
        assert rows[0]["id"] not in cella("snapshot", "ls").ok().text  # a fork's own is not shown
        assert cella("gc", "--check").ok().text == ""
        seen = {cella.inspect(f"kid-{n}")["address"] for n in (1, 2, 3)} | {cella.inspect(parent)["address"]}
        assert len(seen) == 4
        assert cella("fork", "kid-2", "--name", "grand").ok().text == "grand-1"
        assert cella.events("grand-1")[0]["parent"] == cella.inspect("kid-2")["id"]
        assert cella.inspect("grand-1")["parent"]["copy_generation"] == 3
        for name in ("kid-1", "kid-2", "kid-3", "grand-1"):
            assert cella("exec", name, "--", "echo", name).ok().text == name
    assert entries(cella) == []  # it went with the last child


def test_a_fork_is_all_or_nothing(cella, copies):
    with copies(), cella.cell(name="parent") as parent, cella.cell(name="kid-2", start=False):
        before = cella.ps()
        cella("fork", parent, "-n", "3", "--name", "kid").one_line(125, "kid-2", "taken")
        assert cella.ps() == before
        assert entries(cella) == []
        cella("fork", parent, "-n", "5000").one_line(125, "at most")
        cella("fork", parent, "--name", "../x").one_line(125, "--name")
        cella("fork", "nobody").one_line(125, "nobody")


def test_names_are_unique(cella, copies):
    with copies(), cella.cell() as cell:
        cella("snapshot", cell, "twice").ok()
        try:
            cella("snapshot", cell, "twice").one_line(125, "taken")
            cella("snapshot", cell, "a/b").one_line(125, "letters")
            cella("restore", "none").one_line(125, "none", "snapshot ls")
            found = cella("snapshot", "verify", manifest(cella, "twice")["id"][:6]).ok()
            assert "recorded" in found.text
        finally:
            cella("snapshot", "rm", "twice").ok()


def test_what_cannot_be_saved_is_refused(cella, copies):
    if cella.capability("snapshot") == "none":  # as of the container backend
        with cella.cell() as cell:
            cella("snapshot", cell).one_line(125, "snapshot")
            cella("fork", cell).one_line(125, "snapshot")
    with copies():
        with cella.cell("--mount", "/usr/share:/data") as cell:
            cella("snapshot", cell).one_line(125, "--mount")
        with cella.cell(start=False) as cell:
            cella("snapshot", cell).one_line(125, "not running")
        with cella.cell() as cell:
            cella("pause", cell).ok()
            cella("snapshot", cell).one_line(125, "paused")
            cella("resume", cell).ok()
    with copies(fault="snapshot"), cella.cell() as cell:
        cella("snapshot", cell, "half").one_line(125, "No space left")
        cella("fork", cell, "-n", "2").one_line(125, "No space left")
        assert entries(cella) == []
        assert cella("exec", cell, "--", "echo", "on").ok().text == "on"
        assert cella.wait_event(cell, {"kind": "cell.snapshot", "verdict": "failed"})


def damage(path, how):
    text = path.read_bytes()
    stat = os.stat(path)
    if how == "gone":
        path.unlink()
        return lambda: (path.write_bytes(text), os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns)))
    path.write_bytes(text[:-1] if how == "cut" else text[:-1] + b"!")
    if how == "edited":  # size and time as they were
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return lambda: (path.write_bytes(text), os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns)))


@pytest.mark.kvm
def test_a_damaged_snapshot_is_refused(cella, copies):
    with copies(), cella.cell() as cell, removed(cella, "again"):
        directory = cella.state / "snapshots" / cella("snapshot", cell, "s", "--json").ok().json()["id"]
        try:
            for name, how, words in (("machine/state", "cut", "bytes"), ("machine/state", "edited", "digest"),
                                     ("machine/disk", "touched", "changed"), ("machine/disk", "gone", "disk"),
                                     ("manifest.json", "cut", "manifest")):
                mend = damage(directory / name, how)
                refused = cella("restore", directory.name, "--name", "again")
                mend()
                refused.one_line(125, words)
            for member, value, words in (("format", 9, "format 9"), ("link", 77, "version 77"), ("chain", {}, "chain.head"),
                                         ("request", 5, "damaged"), ("files", "x", "files")):
                text = (directory / "manifest.json").read_text()
                (directory / "manifest.json").write_text(json.dumps(dict(json.loads(text), **{member: value})))
                cella("restore", directory.name, "--name", "again").one_line(125, words)
                (directory / "manifest.json").write_text(text)
            assert cella("restore", directory.name, "--name", "again").ok().text == "again"  # twin: mended, it works
        finally:
            cella("rm", "--force", "again")
            cella("snapshot", "rm", directory.name).ok()


@pytest.mark.kvm
def test_a_snapshot_of_another_host_is_refused(cella, copies):
    with copies(), cella.cell() as cell:
        directory = cella.state / "snapshots" / cella("snapshot", cell, "s", "--json").ok().json()["id"]
        try:
            text = (directory / "manifest.json").read_text()
            for path, value, words in ((("backend", "version"), "0.9", "version"), (("backend", "strength"), "vm", "strength"),
                                       (("image", "digest"), "sha256:0", "image")):
                changed = json.loads(text)
                changed[path[0]][path[1]] = value
                (directory / "manifest.json").write_text(json.dumps(changed))
                cella("restore", "s").one_line(125, "does not fit", words)
            (directory / "manifest.json").write_text(text)
        finally:
            cella("snapshot", "rm", "s").ok()


def test_a_restore_that_fails_leaves_nothing(cella, copies):
    with copies(), cella.cell(name="parent") as cell:
        cella("snapshot", cell, "s").ok()
    before = cella.cells()
    try:
        with copies(fault="restore"):
            cella("restore", "s", "--name", "again").one_line(125, "because a test wants it")
        assert cella.cells() == before and not manifest(cella, "s")["in_use"]
    finally:
        with copies():
            cella("snapshot", "rm", "s").ok()


PHASED = {"version": 1, "revision": 7, "active": "install",
          "phases": {"install": {"allow": [{"id": "one", "host": "one.example", "ports": [443]}]}, "run": {"allow": []}}}


def test_the_policy_is_that_of_now(cella, copies, tmp_path):
    """By name or file, as it is when the copy is made, in the phase that the parent had reached."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(PHASED))
    with copies(), cella.cell("--policy", policy, name="parent") as parent, removed(cella, "c1", "c2", "c3", "c5"):
        cella("snapshot", parent, "early").ok()
        cella("policy", "phase", parent, "run").ok()
        cella("snapshot", parent, "late").ok()
        try:
            cella("restore", "early", "--name", "c5").ok()
            assert cella.inspect("c5")["policy"]["phase"] == "install"
            cella("restore", "late", "--name", "c1").ok()
            assert cella.inspect("c1")["policy"]["phase"] == "run"
            policy.write_text(json.dumps(dict(PHASED, revision=12)))
            cella("restore", "late", "--name", "c2").ok()
            assert cella.inspect("c2")["policy"]["revision"] == 12 and cella.inspect("c2")["policy"]["phase"] == "run"
            cella("restore", "late", "--name", "c3", "--policy", "deny").ok()
            assert cella.inspect("c3")["policy"]["name"] == "deny"
            policy.write_text(json.dumps(dict(PHASED, phases={"install": {"allow": []}})))
            cella("restore", "late", "--name", "c4").one_line(125, "phase run", "--policy")
            policy.write_text("{ broken")
            cella("restore", "late", "--name", "c4").one_line(125, "policy.json")
        finally:
            cella("rm", "--force", "c1", "c2", "c3", "c5")
            cella("snapshot", "rm", "early").ok()
            cella("snapshot", "rm", "late").ok()


def test_an_image_stays_for_its_snapshot(cella, copies, tmp_path):
    source = tmp_path / "tree"
    source.mkdir()
    with copies(), cella.cell(name="parent") as cell:
        cella("image", "import", "test-kept", f"dir:{source}").ok()
        digest = next(row for row in cella("image", "ls", "--json").ok().json() if row["name"] == "test-kept")["digest"]
        directory = cella.state / "snapshots" / cella("snapshot", cell, "s", "--json").ok().json()["id"]
        text = json.loads((directory / "manifest.json").read_text())
        text["image"]["digest"] = digest
        (directory / "manifest.json").write_text(json.dumps(text))
        cella("image", "rm", "test-kept").one_line(125, "snapshot s")
        cella("snapshot", "rm", "s").ok()
        cella("image", "rm", "test-kept").ok()


@pytest.mark.lab
def test_gc_takes_what_a_dead_maker_left(cella, copies):
    with copies():
        for name in (".tmp-abcdefghijkl", "abcdefghijkm"):
            (cella.state / "snapshots" / name / "machine").mkdir(parents=True)
        (cella.state / "snapshots" / "abcdefghijkm" / "manifest.json").write_text('{"hidden": true}')
        found = cella("gc", "--check")
        assert found.status == 1 and len(found.text.splitlines()) == 2
        cella("gc").ok()
        assert entries(cella) == []
