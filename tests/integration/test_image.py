# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Images: names, disks, who keeps them, and the kernels of guests."""
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from harness.cella import PROBES, wait_until

# Of every cell its own, whatever its image holds there.
OWN = ["/proc", "/sys", "/dev", "/run", "/tmp", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/lost+found"]


@pytest.fixture
def fresh(cella, tmp_path):
    """The program with a state directory of its own."""
    with cella.configured(state_dir=str(tmp_path / "state"), audit=None):
        yield tmp_path / "state"


@pytest.fixture
def small(tmp_path):
    """An archive with one static program under a few names, and a file."""
    root = tmp_path / "small"
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "run"):
        (root / name).mkdir(parents=True)
    shutil.copy("/usr/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "cat", "true", "sleep", "stat"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc" / "mark").write_text("small\n")
    os.chown(root / "etc" / "mark", 12, 34)
    archive = tmp_path / "small.tar"
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    shutil.rmtree(root)
    return archive


def names(cella):
    return {row["name"]: row for row in cella("image", "ls", "--json").ok().json()}


def entries(state, kind="images"):
    with contextlib.suppress(FileNotFoundError):
        return sorted(name for name in os.listdir(state / kind) if name not in (".lock", "names"))
    return []


def host_tree(root):
    out = subprocess.run([sys.executable, str(PROBES / "tree.py"), str(root), *OWN], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(out)


@contextlib.contextmanager
def mounted(disk, at):
    at.mkdir()
    subprocess.run(["mount", "-t", "erofs", "-o", "ro,loop", str(disk), str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


def test_import_names_an_archive(cella, small, fresh):
    made = cella("image", "import", "tiny", f"tar:{small}").ok().text.split()
    assert made[0] == "tiny" and made[1].startswith("sha256:")
    row = names(cella)["tiny"]
    assert row["digest"] == made[1] and row["entries"] > 10 and row["bytes"] > 100000 and row["disk"] > 0
    assert "tiny" in cella("image", "ls").ok().text
    cella("image", "rm", "tiny").ok()
    assert not names(cella) and entries(fresh) == []


@pytest.mark.lab
def test_a_cell_runs_on_a_name(cella, small):
    cella("image", "import", "test-tiny", f"tar:{small}").ok()
    try:
        with cella.cell("--image", "test-tiny") as cell:
            assert cella("exec", cell, "--", "cat", "/etc/mark").ok().text == "small"
            assert cella("exec", cell, "--", "stat", "-c", "%u:%g", "/etc/mark").ok().text == "12:34"
            assert cella.inspect(cell)["digest"] == names(cella)["test-tiny"]["digest"]
            assert names(cella)["test-tiny"]["used_by"] == f"cell {cell}"
            cella("image", "rm", "test-tiny").one_line(125, cell)  # it says who keeps it
            assert cella("exec", cell, "--", "cat", "/etc/mark").ok().text == "small"
    finally:
        cella("image", "rm", "test-tiny").ok()
    cella.run("--image", "test-tiny", "--", "true").one_line(125, "test-tiny", "cella image ls")


@pytest.mark.lab
def test_a_directory_is_copied(cella, fresh, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").write_text("one")
    digest = cella("image", "import", "copy", f"dir:{source}").ok().text
    (source / "file").write_text("two")
    root = fresh / "images" / digest.split(":")[1] / "root"
    assert (root / "file").read_text() == "one"
    assert cella("image", "import", "copy", f"dir:{source}").ok().text != digest
    assert len(entries(fresh)) == 2  # the old one has no name any more
    assert cella("image", "gc", "--check").status == 1
    cella("image", "gc").ok()
    assert len(entries(fresh)) == 1 and not root.exists()
    assert cella("image", "gc", "--check").ok().text == ""
    cella("image", "import", "etc", "dir:/proc").one_line(125, "dir:/proc")


def test_bad_names_are_refused(cella, fresh, small):
    for name in ("host", "Upper", "../x", "a/b", "x" * 64, "dir-0", ".x"):
        cella("image", "import", name, f"tar:{small}").one_line(125, "cannot name")
    cella("image", "import", "x", "small.tar").one_line(125, "tar:FILE or dir:PATH")
    cella("image", "rm", "nobody").one_line(125, "nobody", "image ls")
    cella("image", "verify", "nobody").one_line(125, "nobody")
    cella("image", "frobnicate").one_line(125, "frobnicate", "build")
    cella("image", "rm").one_line(125, "cella image rm")
    assert entries(fresh) == []


@pytest.mark.lab
def test_the_disk_holds_the_tree(cella, fresh, small, tmp_path):
    digest = cella("image", "import", "tiny", f"tar:{small}").ok().text.split(":")[1]
    disk = pathlib.Path(cella("image", "disk", "tiny").ok().text)
    assert disk == fresh / "images" / digest / "root.erofs"
    with mounted(disk, tmp_path / "mnt") as at:
        tree = host_tree(at)
    assert tree == host_tree(disk.parent / "root")
    assert tree["/etc/mark"][1:4] == [0o644, 12, 34] and tree["/bin/sh"][5] == "busybox"
    cella("image", "verify", "tiny").ok()
    with disk.open("r+b") as handle:  # an edit that keeps size and, with luck, is not looked for
        stat = os.stat(disk)
        handle.seek(4096)
        byte = handle.read(1)
        handle.seek(4096)
        handle.write(bytes([byte[0] ^ 1]))
    os.utime(disk, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    cella("image", "verify", "tiny").one_line(125, "tiny", "root.erofs", "recorded")


def test_an_edited_tree_is_noticed(cella, fresh, small):
    digest = cella("image", "import", "tiny", f"tar:{small}").ok().text.split(":")[1]
    cella("image", "verify", "tiny").ok()
    (fresh / "images" / digest / "root" / "etc" / "mark").write_text("other\n")
    cella("image", "verify", "tiny").one_line(125, "tiny", "tree")


@pytest.mark.lab
def test_the_built_image_is_one_tree_everywhere(cella, guest_cache, tmp_path):
    """Built by cella image build (harness/guests.py): the directory, the disk and what a cell sees of it are the same."""
    key = json.loads((guest_cache / "images" / "names" / "base").read_text())["key"]
    artefact = guest_cache / "images" / key
    tree = host_tree(artefact / "root")
    assert len(tree) > 3000 and "/usr/bin/python3" in tree
    assert not [path for path, row in tree.items() if row[1] & 0o6000 and row[0] != 0o040000]  # no setuid programs
    source = (PROBES / "tree.py").read_text()
    with mounted(artefact / "root.erofs", tmp_path / "mnt") as at:
        assert host_tree(at) == tree
        image = ["--image", f"dir:{at}" if cella.backend == "container" else "base"]
        seen = cella.python(source, "/", *OWN, flags=image, timeout=120).ok().json()
    different = {path: (tree.get(path), seen.get(path)) for path in tree.keys() | seen.keys() if tree.get(path) != seen.get(path)}
    assert not different, dict(list(different.items())[:10])


def test_a_build_without_its_mirror_leaves_nothing(cella, fresh):
    result = cella("image", "build", "base", "--mirror", "http://127.0.0.1:9/debian", timeout=120)
    result.one_line(125, "image build base", "mmdebstrap")
    assert entries(fresh) == [] and not names(cella)
    cella("image", "build", "base", "--packages", "python3,-o").one_line(125, "-o")
    cella("image", "build", "base", "--suite", "../x").one_line(125, "--suite")
    cella("image", "build", "base", "--mirror", "file:/etc").one_line(125, "--mirror")


def host_events(state):
    lines = [json.loads(line) for line in (state / "audit" / "host.jsonl").read_text().splitlines()]
    return [(e["kind"], {k: v for k, v in e.items() if k not in ("v", "chain", "seq", "ts", "prev", "kind")})
            for e in lines if e["kind"].split(".")[0] in ("image", "kernel")]


def test_images_that_come_and_go_are_in_the_hosts_chain(cella, fresh, small, guest_cache):
    digest = cella("image", "import", "tiny", f"tar:{small}").ok().text.split()[1]
    cella("image", "import", "broken", "dir:/nowhere").one_line(125, "nowhere")
    cella("image", "rm", "tiny").ok()
    cella("image", "import", "tiny", f"tar:{small}").ok()
    (fresh / "images" / "names" / "tiny").unlink()
    cella("image", "gc", "--check").ok(1)
    cella("image", "gc").ok()
    asked = lambda verb, **more: ("image.request", {"verb": verb, "uid": 0, **more})
    wanted = [asked("import", name="tiny", source=f"tar:{small}"),
              ("image.imported", {"name": "tiny", "digest": digest, "source": f"tar:{small}"}),
              asked("import", name="broken", source="dir:/nowhere"), ("image.failed", None),
              asked("rm", name="tiny"), ("image.removed", {"name": "tiny", "digest": digest}),
              asked("import", name="tiny", source=f"tar:{small}"), ("image.imported", None),
              asked("gc"), ("image.removed", {"digest": digest})]
    found = host_events(fresh)
    assert [kind for kind, _ in found] == [kind for kind, _ in wanted]
    assert all(fields is None or fields == got for (_, fields), (_, got) in zip(wanted, found)), found
    assert found[3][1]["name"] == "broken" and "nowhere" in found[3][1]["message"]
    kernel = [row for row in cella_kernels(cella, guest_cache) if row["default"]][0]
    vmlinuz = guest_cache / "kernels" / kernel["version"] / "vmlinuz"
    cella("image", "kernel", "fetch", "--file", vmlinuz).ok()
    cella("image", "kernel", "rm", kernel["version"]).ok()
    sha256 = "sha256:" + hashlib.sha256(vmlinuz.read_bytes()).hexdigest()
    assert host_events(fresh)[len(found):] == [
        asked("kernel fetch", source=str(vmlinuz)),
        ("kernel.fetched", {"name": kernel["version"], "digest": sha256, "source": str(vmlinuz)}),
        asked("kernel rm", name=kernel["version"]), ("kernel.removed", {"name": kernel["version"], "digest": sha256})]
    cella("audit", "verify", "host").ok()


def test_an_image_that_the_audit_cannot_record_is_not_made(cella, tmp_path, small):
    (tmp_path / "file").write_text("")
    sink = {"sink": "audit-jsonl", "path": str(tmp_path / "file" / "audit"), "overflow": "fail-closed"}
    with cella.configured(state_dir=str(tmp_path / "state"), audit=[sink]):
        cella("image", "import", "tiny", f"tar:{small}").one_line(125, "audit", "not done")
        assert entries(tmp_path / "state") == [] and not names(cella)


# In the place of apt: it knows one package, says when it downloads, and does not end.
FAKE_APT = """#!/bin/sh
case "$1" in
depends) echo "$2" ;;
download) echo half > half.deb; readlink /proc/self/cwd > {told}; exec sleep 600 ;;
esac"""


def test_what_a_killed_fetch_leaves_is_found_by_gc(cella, fresh, tmp_path):
    apt, told = tmp_path / "apt", tmp_path / "told"
    apt.write_text(FAKE_APT.format(told=told))
    apt.chmod(0o755)
    hide = ["unshare", "--mount", "sh", "-c",
            f'mount --bind {apt} /usr/bin/apt-get; mount --bind {apt} /usr/bin/apt-cache; exec "$@"', "sh"]
    before = os.listdir("/tmp")
    fetch = cella.spawn("image", "kernel", "fetch", "--package", "linux-image-test", prefix=hide)
    wait_until(lambda: told.exists() and told.read_text(), 20, "the download")
    place = pathlib.Path(told.read_text().strip())
    assert place.parent == fresh / "kernels" and os.listdir("/tmp") == before
    assert cella("gc", "--check").ok().text == ""  # it is at work
    fetch.kill()
    fetch.communicate()
    wait_until(lambda: cella("gc", "--check").status == 1, 20, "apt's end")
    assert place.name in cella("gc", "--check").text and (place / "half.deb").exists()
    (fresh / "images" / ".tmp-left" / "root").mkdir(parents=True)
    (fresh / "images" / ".lock").touch()
    assert ".tmp-left" in cella("gc").ok().text
    assert entries(fresh, "kernels") == [] == entries(fresh)
    assert cella("gc", "--check").ok().text == ""


def test_bad_kernels_are_refused(cella, fresh, tmp_path):
    (tmp_path / "x.deb").write_text("no package")
    (tmp_path / "vmlinuz").write_bytes(b"\0" * 4096)
    cella("image", "kernel", "fetch", "--from", tmp_path / "x.deb").one_line(125, "x.deb", "dpkg-deb")
    cella("image", "kernel", "fetch", "--file", tmp_path / "vmlinuz").one_line(125, "vmlinuz", "bzImage")
    cella("image", "kernel", "fetch", "--from", tmp_path / "none.deb").one_line(125, "none.deb", "No such file")
    cella("image", "kernel", "fetch", "--package", "bash").one_line(125, "linux-image-")
    cella("image", "kernel", "fetch", "--from", "a", "--file", "b").one_line(125, "one of")
    cella("image", "kernel", "rm", "6.1.0").one_line(125, "6.1.0")
    assert entries(fresh, "kernels") == []


def bzimage(path, version):
    """As little as a kernel is taken for one by."""
    head = bytearray(4096)
    head[0x202:0x206] = b"HdrS"
    head[0x20e:0x210] = (0x400 - 0x200).to_bytes(2, "little")
    head[0x400:0x400 + len(version) + 1] = version.encode() + b" "
    path.write_bytes(head)
    return path


def test_which_kernel_a_machine_boots(cella, fresh, tmp_path, small):
    default = lambda: [row["version"] for row in cella("image", "kernel", "ls", "--json").ok().json() if row["default"]]
    fetch = lambda version, *flags: cella("image", "kernel", "fetch", "--file", bzimage(tmp_path / "vmlinuz", version), *flags).ok()
    fetch("6.1.0-a", "--aside")
    assert default() == []
    cella("image", "kernel", "use", "6.1.0-a").ok()
    fetch("6.1.0-b", "--aside")
    assert default() == ["6.1.0-a"]
    fetch("6.1.0-c")
    assert default() == ["6.1.0-c"]
    cella("image", "kernel", "use", "6.1.0-a").ok()
    assert default() == ["6.1.0-a"] and ("kernel.default", "6.1.0-a") in [(kind, e.get("name")) for kind, e in host_events(fresh)]
    for bad in ("6.1.0-none", "../../etc", "default"):
        cella("image", "kernel", "use", bad).one_line(125, bad)
    cella("image", "kernel", "fetch", "--aside").one_line(125, "--aside", "--file")
    named = {"machine": {"floor": "process", "backends": ["fullvm"], "image": f"tar:{small}"},
             "other": {"floor": "process", "backends": ["fullvm"], "image": f"tar:{small}", "kernel": "6.1.0-other"},
             "any": {"floor": "process"}}
    run = lambda *flags: cella("run", *flags, "--", "true", timeout=60)
    with cella.configured(state_dir=str(fresh), audit=None, classes=named):
        run("--class", "machine", "--kernel", "6.1.0-none").one_line(125, "6.1.0-none", "kernel ls")
        run("--class", "machine", "--kernel", "../x").one_line(125, "../x", "no version")
        run("--class", "other").one_line(125, "6.1.0-other", "kernel ls")
        run("--class", "any", "--backend", "container", "--kernel", "6.1.0-a").one_line(125, "6.1.0-a", "container", "boots none")


def test_a_kernel_from_a_file(cella, fresh, guest_cache):
    found = [row for row in cella_kernels(cella, guest_cache) if row["default"]]
    vmlinuz = guest_cache / "kernels" / found[0]["version"] / "vmlinuz"
    version = cella("image", "kernel", "fetch", "--file", vmlinuz).ok().text
    assert version == found[0]["version"]
    rows = cella("image", "kernel", "ls", "--json").ok().json()
    assert [row["version"] for row in rows] == [version] and rows[0]["default"] and rows[0]["bytes"] == vmlinuz.stat().st_size
    assert version in cella("image", "kernel", "ls").ok().text
    cella("image", "kernel", "rm", version).ok()
    assert cella("image", "kernel", "ls", "--json").ok().json() == [] and entries(fresh, "kernels") == []


def cella_kernels(cella, state):
    with cella.configured(state_dir=str(state), audit=None):
        return cella("image", "kernel", "ls", "--json").ok().json()
