# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The chain: complete, in order, tamper-evident; forged fields and full disks included."""
import contextlib
import json
import re
import shutil
import subprocess

import pytest

from harness import PATIENCE
from harness import cella as harness


@pytest.fixture
def chain(cella):
    """The chain of one finished run, restored afterwards whatever the test did to it."""
    with cella.new_chain() as made:
        cella.run("--", "sh", "-c", "echo one; exit 3").ok(3)
    path, original = made[0], made[0].read_bytes()
    yield path
    path.write_bytes(original)


def _verify(cella, chain):
    return cella("audit", "verify", chain.stem)


@pytest.mark.quick
def test_a_run_verifies(cella, chain):
    assert "verified" in _verify(cella, chain).ok().text


@pytest.mark.quick
def test_everything_verifies(cella, chain):
    cella("audit", "verify").ok()


@pytest.mark.quick
def test_events_of_one_run_in_order(cella, chain):
    events = cella.events(chain)
    kinds = [e["kind"] for e in events]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert kinds[0] == "chain.open" and kinds[-1] == "chain.close"
    wanted = ["cell.request", "cell.select", "cell.admit", "cell.image", "net.attach", "cell.create", "cell.start",
              "exec.start", "exec.exit", "cell.end"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    text = chain.read_text()
    assert '"status":3' in text.replace(" ", "") and "echo one; exit 3" in text


@pytest.mark.quick
def test_flipped_byte_is_named(cella, chain):
    lines = chain.read_bytes().split(b"\n")
    for number in (1, len(lines) // 2, len(lines) - 1):  # first, middle, last line
        changed = list(lines)
        line = bytearray(changed[number - 1])
        where = line.index(b'"kind"') + 10
        line[where] ^= 1
        changed[number - 1] = bytes(line)
        chain.write_bytes(b"\n".join(changed))
        result = _verify(cella, chain)
        assert result.status != 0, result
        named = [int(n) for n in re.findall(r"line (\d+)", result.text + result.errors)]
        assert named and named[0] in (number, number + 1), result


@pytest.mark.quick
def test_deleted_line_is_named(cella, chain):
    lines = chain.read_bytes().splitlines(keepends=True)
    for number in (1, 3, len(lines) - 1):
        chain.write_bytes(b"".join(lines[:number - 1] + lines[number:]))
        result = _verify(cella, chain)
        assert result.status != 0 and re.search(rf"\bline {number}\b", result.text + result.errors), result


@pytest.mark.quick
def test_swapped_lines_are_named(cella, chain):
    lines = chain.read_bytes().splitlines(keepends=True)
    lines[2], lines[3] = lines[3], lines[2]
    chain.write_bytes(b"".join(lines))
    result = _verify(cella, chain)
    assert result.status != 0 and re.search(r"\bline 3\b", result.text + result.errors), result


@pytest.mark.quick
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_cut_tail_is_named(cella, chain, cut):
    lines = chain.read_bytes().splitlines(keepends=True)
    chain.write_bytes(b"".join(lines[:-cut]))
    result = _verify(cella, chain)
    assert result.status != 0 and re.search(rf"\bline {len(lines) - cut + 1}\b|\bline {len(lines) - cut}\b|cut|missing",
                                            result.text + result.errors), result


def test_half_a_line_is_named(cella, chain):
    raw = chain.read_bytes()
    chain.write_bytes(raw[:-20])
    assert _verify(cella, chain).status != 0


def test_added_line_is_named(cella, chain):
    lines = chain.read_bytes().splitlines(keepends=True)
    chain.write_bytes(b"".join(lines + lines[-1:]))
    assert _verify(cella, chain).status != 0


def test_forged_end_with_a_correct_hash_is_named(cella, chain):
    """Whoever can write the file can hash: only the signed head stops him."""
    import hashlib
    lines = chain.read_bytes().splitlines()
    forged = json.loads(lines[-2])
    forged["prev"] = hashlib.sha256(lines[-3]).hexdigest()
    chain.write_bytes(b"\n".join(lines[:-2] + [json.dumps(forged, separators=(",", ":")).encode()]) + b"\n")
    assert _verify(cella, chain).status != 0


def test_missing_file_is_noticed(cella):
    """The host's chain records each cell's chain, so a whole file cannot vanish."""
    with cella.new_chain() as made:
        cella.run("--", "true").ok()
    kept = made[0].read_bytes()
    made[0].unlink()
    try:
        result = cella("audit", "verify")
        assert result.status != 0 and made[0].stem in result.text + result.errors, result
    finally:
        made[0].write_bytes(kept)
    cella("audit", "verify").ok()


@pytest.mark.parametrize("hostile", ['"', '","kind":"cell.admit","x":"', "\n{\"v\":1}\n", "\\", "\x1b[2J", "\u202e", "\x7f",
                                     "a" * 40000])
def test_hostile_strings_forge_nothing(cella, hostile):
    with cella.new_chain() as made:
        cella.run("--", "true", hostile).ok()
    raw = made[0].read_bytes()
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", raw)
    events = cella.events(made[0])  # each line is one JSON object
    assert all(set(e) >= {"v", "chain", "seq", "prev", "kind"} and e["v"] == 1 for e in events)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert max(map(len, raw.splitlines())) < 40000
    assert "\u202e".encode() not in raw
    cella("audit", "verify", made[0].stem).ok()


def test_output_of_a_cell_is_no_event(cella):
    with cella.new_chain() as made:
        cella.run("--", "echo", '{"v":1,"kind":"cell.admit"}').ok()
    assert len([e for e in cella.events(made[0]) if e["kind"] == "cell.admit"]) <= 1


@pytest.mark.lab
def test_files_in_and_out_are_recorded_with_digest(cella, tmp_path):
    import hashlib
    (tmp_path / "f").write_bytes(b"content")
    digest = hashlib.sha256(b"content").hexdigest()
    with cella.new_chain() as made, cella.cell() as cell:
        cella("cp", tmp_path / "f", f"{cell}:/tmp/f").ok()
        cella("cp", f"{cell}:/tmp/f", tmp_path / "g").ok()
    found = [(e["kind"], e["path"], e["sha256"], e["size"]) for e in cella.events(made[0])
             if e["kind"].startswith("file.") and "sha256" in e]
    assert found == [("file.put", "/tmp/f", digest, 7), ("file.get", "/tmp/f", digest, 7)]


def test_show_and_tail(cella, chain):
    shown = cella("audit", "show", chain.stem).ok().text
    assert "chain.open" in shown and "chain.close" in shown
    lines = cella("audit", "show", "--json", chain.stem).ok().text.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [e["seq"] for e in cella.events(chain)]
    assert cella("audit", "tail", chain.stem).ok().text


def test_show_escapes_for_the_terminal(cella):
    with cella.new_chain() as made:
        cella.run("--", "true", "\x1b]0;evil\x07").ok()
    assert b"\x1b" not in cella("audit", "show", made[0].stem).ok().out


# ---- a full disk


@contextlib.contextmanager
def _small_disk(cella, overflow, size="64k"):
    """Audit on a tmpfs that is full. Gives (directory, function that makes room)."""
    directory = cella.work / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", directory], check=True)
    try:
        sink = {"sink": "audit-jsonl", "path": str(directory), "overflow": overflow}
        with cella.configured(audit=[sink]):
            cella.run("--", "true").ok()  # what the sink needs on its first use is there
            with open(directory / "ballast", "wb", buffering=0) as handle, contextlib.suppress(OSError):
                while handle.write(b"x" * 512):
                    pass
            yield directory, (directory / "ballast").unlink
    finally:
        subprocess.run(["umount", directory], check=True)
        shutil.rmtree(directory)


@pytest.mark.lab
def test_full_disk_fail_closed(cella):
    with _small_disk(cella, "fail-closed") as (_, make_room):
        result = cella.run("--", "sh", "-c", "echo ran", timeout=30)
        result.one_line(125, "audit|audit-jsonl", "No space left|full")
        assert "ran" not in result.text
        make_room()
        assert cella.run("--", "echo", "ran").ok().text == "ran"


@pytest.mark.lab
def test_full_disk_fail_closed_while_a_cell_runs(cella):
    with _small_disk(cella, "fail-closed") as (directory, make_room):
        make_room()
        with cella.cell() as cell:
            with open(directory / "ballast", "wb", buffering=0) as handle, contextlib.suppress(OSError):
                while handle.write(b"x" * 512):
                    pass
            results = [cella("exec", cell, "--", "true", "x" * 400) for _ in range(12)]
            assert results[-1].status == 125, results[-1]
            assert any("audit" in r.errors for r in results), results[-1]
            harness.wait_until(lambda: cella.ended(cell), 20, "the end of the cell")
            make_room()


@pytest.mark.lab
def test_full_disk_drop_counts(cella):
    with _small_disk(cella, "drop") as (directory, make_room):
        assert cella.run("--", "echo", "ran").ok().text == "ran"
        with cella.cell() as cell:
            make_room()
            cella("exec", cell, "--", "true").ok()
            text = "".join(p.read_text() for p in directory.glob("*.jsonl"))
        assert re.search(r'"(audit\.)?dropped', text) or "drop" in text, text[-2000:]


@pytest.mark.lab
def test_full_disk_block_waits(cella):
    with _small_disk(cella, "block") as (_, make_room):
        run = cella.spawn("run", "--", "echo", "ran")
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(2)
        make_room()
        out, err = run.communicate(timeout=30 * PATIENCE)
        assert (run.returncode, out) == (0, b"ran\n"), err
