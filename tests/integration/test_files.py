# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""cp in and out, mounts, images: no path and no link of a cell ever names a file of the host."""
import hashlib
import io
import os
import pathlib
import socket
import tarfile

import pytest

from harness import guests


@pytest.fixture
def cell(cella):
    with cella.cell() as name:
        yield name


def test_copy_a_file_in_and_out(cella, cell, tmp_path):
    data = os.urandom(300_000) + b"\0\n"
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "in").chmod(0o640)
    cella("cp", tmp_path / "in", f"{cell}:/tmp/there").ok()
    digest = hashlib.sha256(data).hexdigest()
    assert cella("exec", cell, "--", "sha256sum", "/tmp/there").ok().text.split()[0] == digest
    assert cella("exec", cell, "--", "stat", "-c", "%a", "/tmp/there").ok().text == "640"
    cella("cp", f"{cell}:/tmp/there", tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == data


def test_copy_an_empty_file(cella, cell, tmp_path):
    (tmp_path / "empty").touch()
    cella("cp", tmp_path / "empty", f"{cell}:/tmp/empty").ok()
    cella("cp", f"{cell}:/tmp/empty", tmp_path / "back").ok()
    assert (tmp_path / "back").read_bytes() == b""


def test_copy_a_large_file(cella, cell, tmp_path):
    with open(tmp_path / "big", "wb") as handle:
        handle.truncate(96 << 20)
    cella("cp", tmp_path / "big", f"{cell}:/tmp/big").ok()
    assert cella("exec", cell, "--", "stat", "-c", "%s", "/tmp/big").ok().text == str(96 << 20)


def test_copy_directories(cella, cell, tmp_path):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("deep")
    (tree / "top").write_text("top")
    (tree / "link").symlink_to("top")
    assert "link" in cella("cp", tree, f"{cell}:/tmp/tree").ok().errors  # passed over, and said
    assert cella("exec", cell, "--", "cat", "/tmp/tree/a/b/file", "/tmp/tree/top").ok().text == "deeptop"
    cella("exec", cell, "--", "ln", "-s", "/etc/shadow", "/tmp/tree/a/trap").ok()
    assert "trap" in cella("cp", f"{cell}:/tmp/tree", tmp_path / "back").ok().errors
    assert (tmp_path / "back" / "a" / "b" / "file").read_text() == "deep"
    assert not os.path.lexists(tmp_path / "back" / "a" / "trap")


@pytest.mark.parametrize("name", ["with space", "new\nline", "colon:name", "-dash", "quote'\"", "\x1b[31m", "bad-\udcff"])
def test_names_with_odd_bytes(cella, cell, tmp_path, name):
    path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
    with open(path, "wb") as handle:
        handle.write(b"odd")
    there = os.fsencode(f"{cell}:/tmp/") + os.fsencode(name)
    cella("cp", path, there).ok()
    assert cella("exec", cell, "--", "cat", b"/tmp/" + os.fsencode(name)).ok().out == b"odd"
    cella("cp", there, tmp_path / "out").ok()
    assert (tmp_path / "out").read_bytes() == b"odd"


@pytest.mark.parametrize("link", ["/etc/shadow", "../../../../../../etc/shadow", "/proc/1/root/etc/shadow",
                                  "/proc/self/root/etc/shadow", "/dev/shm/cella-marker"])
@pytest.mark.lab
def test_link_in_the_cell_never_names_a_file_of_the_host(cella, cell, tmp_path, link):
    secret = pathlib.Path("/etc/shadow").read_bytes()
    marker = pathlib.Path("/dev/shm/cella-marker")
    marker.write_bytes(b"of the host")
    try:
        cella("exec", cell, "--", "ln", "-s", link, "/tmp/trap").ok()
        cella("cp", f"{cell}:/tmp/trap", tmp_path / "out")
        got = (tmp_path / "out").read_bytes() if (tmp_path / "out").is_file() else b""
        assert not got or (got != secret and got != b"of the host")
        assert not (tmp_path / "out").is_symlink() or not os.readlink(tmp_path / "out").startswith("/")
    finally:
        marker.unlink()


def test_writing_through_a_link_stays_inside(cella, cell, tmp_path):
    victim = pathlib.Path("/dev/shm/cella-victim")
    victim.write_text("untouched")
    try:
        cella("exec", cell, "--", "ln", "-s", victim, "/tmp/trap").ok()
        (tmp_path / "evil").write_text("overwritten")
        cella("cp", tmp_path / "evil", f"{cell}:/tmp/trap")
        assert victim.read_text() == "untouched"
    finally:
        victim.unlink()


@pytest.mark.lab
def test_directory_with_hostile_entries_stays_inside_its_target(cella, cell, tmp_path):
    """Links placed so that later entries would be written through them."""
    script = "mkdir /tmp/t && cd /tmp/t && ln -s /dev/shm dir && ln -s /etc/passwd passwd && mkfifo pipe && echo ok > file"
    cella("exec", cell, "--", "sh", "-c", script).ok()
    cella("cp", f"{cell}:/tmp/t", tmp_path / "out")
    for path in (tmp_path / "out").rglob("*"):
        assert tmp_path in path.resolve().parents or path.is_symlink(), path
        assert not path.is_fifo()


def test_copy_out_does_not_follow_a_link_that_the_target_has(cella, cell, tmp_path):
    cella("exec", cell, "--", "sh", "-c", "mkdir -p /tmp/t/sub && echo evil > /tmp/t/sub/file").ok()
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(outside)
    cella("cp", f"{cell}:/tmp/t/.", tmp_path / "out")
    assert not (outside / "file").exists()


def test_copy_errors_name_the_file(cella, cell, tmp_path):
    cella("cp", f"{cell}:/no/such", tmp_path / "out").one_line(125, "/no/such", "No such file")
    cella("cp", tmp_path / "no", f"{cell}:/tmp/x").one_line(125, str(tmp_path / "no"), "No such file")
    cella("cp", tmp_path / "a", tmp_path / "b").one_line(125, "cell")
    assert not (tmp_path / "out").exists()


@pytest.mark.lab
def test_fifo_does_not_hang_copy(cella, cell, tmp_path):
    cella("exec", cell, "--", "mkfifo", "/tmp/pipe").ok()
    assert cella("cp", f"{cell}:/tmp/pipe", tmp_path / "out", timeout=15).status == 125


# ---- mounts


@pytest.mark.lab
def test_mount_is_read_only_unless_asked(cella, tmp_path):
    tmp_path.chmod(0o777)
    (tmp_path / "file").write_text("from the host")
    mount = f"{tmp_path}:/data"
    assert cella.run("--mount", mount, "--", "cat", "/data/file").ok().text == "from the host"
    assert cella.run("--mount", mount, "--", "sh", "-c", "echo x > /data/new").status != 0
    assert not (tmp_path / "new").exists()
    cella.run("--mount", mount + ":rw", "--", "sh", "-c", "echo x > /data/new").ok()
    assert (tmp_path / "new").read_text() == "x\n"


@pytest.mark.lab
def test_mounted_tree_gives_no_devices_and_no_set_user_id(cella, tmp_path):
    tmp_path.chmod(0o755)  # a machine is refused what its QEMU may not look into
    os.mknod(tmp_path / "null", 0o20666, os.makedev(1, 3))
    assert cella.run("--mount", f"{tmp_path}:/data", "--", "sh", "-c", "echo x > /data/null").status != 0
    line = cella.run("--mount", f"{tmp_path}:/data", "--", "grep", " /data ", "/proc/self/mountinfo").ok().text
    assert {"nosuid", "nodev", "ro"} <= set(line.split()[5].split(","))


@pytest.mark.quick
@pytest.mark.parametrize("source", ["/", "/proc", "/proc/1", "/sys", "/sys/fs/cgroup", "/dev/null", "STATE",
                                    "STATE/cells", "/root/.ssh", "/root/.aws", "SOCKET", "/etc/../proc", "LINK"])
def test_mounts_that_are_refused(cella, tmp_path, source):
    made = None
    if source == "SOCKET":
        source = tmp_path / "sock"
        socket.socket(socket.AF_UNIX).bind(str(source))
    elif source == "LINK":
        (tmp_path / "link").symlink_to("/proc")
        source = tmp_path / "link"
    elif str(source).startswith("STATE"):
        source = source.replace("STATE", str(cella.state))
    elif source.startswith("/root/") and not os.path.exists(source):
        made = pathlib.Path(source)
        made.mkdir()
    try:
        result = cella.run("--mount", f"{source}:/data", "--", "ls", "/data")
        result.one_line(125, "mount|" + str(source))
    finally:
        if made:
            made.rmdir()


@pytest.mark.quick
def test_state_directory_is_never_mounted(cella, tmp_path):
    """Nor what lies in it or holds it, and no rule of the operator opens it. It lies here where all else may be mounted."""
    state = tmp_path / "holder" / "state"
    state.parent.mkdir()
    if cella.backend in guests.MACHINES:
        guests.lend(cella.build, state)
    with cella.configured(state_dir=str(state), audit=None, mounts=[{"path": str(state)}]):
        cella.run("--", "true").ok()
        for source in (state, state / "cells", state.parent):
            cella.run("--mount", f"{source}:/data", "--", "true").one_line(125, "state directory")
        (tmp_path / "beside").mkdir()
        cella.run("--mount", f"{tmp_path / 'beside'}:/data", "--", "true").ok()  # twin


def test_refused_mount_can_be_allowed_by_the_operator(cella, tmp_path):
    directory = pathlib.Path("/root/.aws")
    if directory.exists():
        pytest.skip("this machine has /root/.aws")
    directory.mkdir()
    try:
        with cella.configured(mounts=[{"path": "/root/.aws"}]):
            cella.run("--mount", "/root/.aws:/data", "--", "ls", "/data").ok()
        cella.run("--mount", "/root/.aws:/data", "--", "true").one_line(125, "/root/.aws")
    finally:
        directory.rmdir()


@pytest.mark.parametrize("spec", ["relative:/data", "/no/such/dir:/data", "/tmp:relative", "/tmp:/", "/tmp", "/tmp:/a:rx",
                                  "/tmp:/proc", "/tmp:/proc/self", "/tmp:/dev", "/tmp:/a/../../b"])
def test_mount_specs_that_make_no_sense(cella, spec):
    cella.run("--mount", spec, "--", "true").one_line(125, "mount|" + spec.split(":")[0])


# ---- images


def _tar(path, *members):
    with tarfile.open(path, "w") as archive:
        for name, kind, extra in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o755
            if kind == tarfile.REGTYPE:
                info.size = len(extra)
                archive.addfile(info, io.BytesIO(extra))
                continue
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = extra
            elif kind == tarfile.CHRTYPE:
                info.devmajor, info.devminor = extra
            archive.addfile(info)
    return path


_BASE = [("usr", tarfile.DIRTYPE, None), ("etc", tarfile.DIRTYPE, None), ("tmp", tarfile.DIRTYPE, None),
         ("bin", tarfile.SYMTYPE, "usr/bin"), ("lib", tarfile.SYMTYPE, "usr/lib"), ("lib64", tarfile.SYMTYPE, "usr/lib64")]


@pytest.mark.lab
def test_tar_image(cella, tmp_path):
    image = _tar(tmp_path / "image.tar", *_BASE, ("etc/mark", tarfile.REGTYPE, b"from the archive"))
    flags = ["--image", f"tar:{image}", "--mount", "/usr:/usr"]
    assert cella.run(*flags, "--", "cat", "/etc/mark").ok().text == "from the archive"
    assert cella.run(*flags, "--", "cat", "/etc/mark").ok().text == "from the archive"


@pytest.mark.parametrize("member", [
    ("../escape", tarfile.REGTYPE, b"x"), ("/dev/shm/cella-escape", tarfile.REGTYPE, b"x"),
    ("out", tarfile.SYMTYPE, "/dev/shm"), ("hard", tarfile.LNKTYPE, "/etc/shadow"),
    ("disk", tarfile.CHRTYPE, (1, 1))])
@pytest.mark.lab
def test_hostile_tar_images_stay_inside(cella, tmp_path, member):
    """Refused, or unpacked so that nothing lies outside and no device came in."""
    escape = ("out/cella-escape", tarfile.REGTYPE, b"x") if member[0] == "out" else member
    image = _tar(tmp_path / "image.tar", *_BASE, member, escape)
    result = cella.run("--image", f"tar:{image}", "--mount", "/usr:/usr", "--", "sh", "-c", "test ! -c /disk")
    assert result.status in (0, 125), result
    assert not list(pathlib.Path("/dev/shm").glob("*escape*")) and not list(cella.state.rglob("../escape"))
    assert not [p for p in cella.state.rglob("hard") if p.is_file() and p.samefile("/etc/shadow")]
