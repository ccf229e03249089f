# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""The boundary, looked at from inside, with its positive twins: what is allowed does work."""
import ast
import fcntl
import json
import os
import pathlib
import time

import pytest

from harness import guests
from harness.cella import PROBES

pytestmark = pytest.mark.lab

# Attempts that fail for a reason of their own when the guard is gone prove nothing: each must be refused
# with one of these, or kill the process.
REFUSED = {"EPERM", "EACCES", "ENOSYS", "EAFNOSUPPORT", "EROFS", "ENOENT", "ENODATA", "signal 31", "signal 9",
           "signal 11", "ESRCH", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ETXTBSY", "EIO"}
CAPS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SEALS = 0x1 | 0x2 | 0x4 | 0x8  # seal, shrink, grow, write


@pytest.fixture(scope="module")
def shared_kernel(session_cella):
    if session_cella.backend in guests.MACHINES:
        pytest.skip("the workload has a kernel of its own: its processes and ids are not the host's")


@pytest.fixture(scope="module")
def filtered(session_cella):
    if session_cella.capability("seccomp") == "none":
        pytest.skip("the backend filters no system calls: they are not the boundary")


@pytest.fixture(scope="module")
def seen(session_cella):
    """What a root workload found out, once for all tests of this file."""
    source = (PROBES / "isolation.py").read_text()
    kernel = ["own-kernel"] if session_cella.backend in guests.MACHINES else []
    return session_cella.run("--", "python3", "-", *kernel, input=source.encode(), timeout=120,
                             env={"CELLA_TEST_SECRET": "of the host"}).ok().json()


def _names(table):
    """The keys of a table of the probe, without running it."""
    tree = ast.parse((PROBES / "isolation.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == table:
            return [key.value for key in node.value.keys]
    raise AssertionError(table)


@pytest.mark.quick
@pytest.mark.parametrize("attempt", _names("DENIED"))
def test_denied(seen, filtered, attempt, backend):
    if attempt == "write /usr" and backend in guests.MACHINES:
        pytest.skip("the image is not the host's: the layer above its /usr is the cell's")
    assert seen["denied"][attempt] in REFUSED


@pytest.mark.quick
@pytest.mark.parametrize("attempt", _names("ALLOWED"))
def test_allowed(seen, attempt):
    assert seen["allowed"][attempt] == "ok"


@pytest.mark.quick
def test_no_capability_is_left(seen, filtered):
    assert {name: int(seen["status"][name], 16) for name in CAPS} == dict.fromkeys(CAPS, 0)


@pytest.mark.quick
def test_filter_and_no_new_privileges(seen, filtered):
    assert seen["status"]["NoNewPrivs"] == "1"
    assert seen["status"]["Seccomp"] == "2"


@pytest.mark.quick
def test_uid_zero_is_somebody_else_outside(seen, shared_kernel):
    inside, outside, count = map(int, seen["uid_map"][:3])
    assert seen["uid"] == 0 and inside == 0
    assert outside >= 65536 and count >= 65536
    assert "0" not in seen["uid_map"][1::3]


@pytest.mark.quick
def test_nothing_of_the_caller_is_inherited(seen):
    assert set(seen["fds"]) <= {"0", "1", "2"}, seen["fds"]
    assert not [name for name in seen["environ"] if name.startswith(("CELLA", "SSH", "SUDO", "XDG", "LS_COLORS"))]
    assert "of the host" not in json.dumps(seen["environ"])
    assert seen["groups"] in ([], [0])


@pytest.mark.quick
def test_only_the_standard_devices(seen):
    extra = set(seen["dev"]) - {"null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue",
                                "fd", "stdin", "stdout", "stderr", "console", "core"}
    assert not extra
    assert {"null", "zero", "urandom"} <= set(seen["dev"])


@pytest.mark.quick
def test_masked_paths(cella, filtered):
    """They exist, so that programs do not stumble, and show nothing of the host."""
    script = "(for f in kcore keys kallsyms timer_list interrupts modules iomem diskstats; do head -c 64 /proc/$f; done; " \
             "find /sys/firmware /sys/module -mindepth 1) 2>/dev/null"
    assert cella.run("--", "sh", "-c", script).text == ""


@pytest.mark.quick
def test_agent_survives_a_root_workload(seen):
    assert seen["state of 1"] in ("S", "R", "D")


def test_descriptors_of_the_caller_do_not_leak(cella):
    """Not even those that the caller forgot to mark close-on-exec."""
    read, write = os.pipe()
    result = cella.run("--", "sh", "-c", "ls -l /proc/self/fd", pass_fds=(read, write)).ok()
    os.close(read), os.close(write)
    assert f" {write} ->" not in result.text and "pipe:" not in result.text.split(" 2 ->")[-1].partition("\n")[2]


def test_namespaces_are_the_cells_own(cella, shared_kernel):
    with cella.cell() as cell:
        agent = cella.agent(cell)
        kinds = ["user", "pid", "mnt", "net", "ipc", "uts", "cgroup"]
        if os.path.exists("/proc/self/ns/time") and cella.capability("timens") != "none":
            kinds.append("time")
        same = [k for k in kinds if os.readlink(f"/proc/{agent}/ns/{k}") == os.readlink(f"/proc/self/ns/{k}")]
        assert not same


def test_agent_runs_from_a_sealed_memfd(cella, shared_kernel):
    with cella.cell() as cell:
        agent = cella.agent(cell)
        assert os.readlink(f"/proc/{agent}/exe").startswith("/memfd:")
        with open(f"/proc/{agent}/exe", "rb") as handle:
            assert fcntl.fcntl(handle, 1034) & SEALS == SEALS  # F_GET_SEALS


def test_agent_holds_no_descriptor_of_the_host(cella, shared_kernel):
    with cella.cell() as cell:
        agent = cella.agent(cell)
        held = [os.readlink(f"/proc/{agent}/fd/{fd}") for fd in os.listdir(f"/proc/{agent}/fd")]
        assert not [path for path in held if path.startswith("/") and
                    not path.startswith(("/dev/null", "/memfd:", "/proc", "/dev/pts", "/dev/ptmx"))], held


@pytest.mark.quick
def test_host_files_are_invisible(cella):
    name = f"cella-marker-{time.monotonic_ns()}"  # some of these places are shared with other runs
    marks = [pathlib.Path(d) / name for d in ("/tmp", "/run", "/dev/shm", "/root", "/var/tmp", "/home")]
    marks = [m for m in marks if m.parent.is_dir() and not m.exists()]
    try:
        for mark in marks:
            mark.write_text("of the host")
        script = " ".join(f"test ! -e {m} || echo {m};" for m in marks)
        script += f"test ! -e {cella.state} || echo state; ls -A /root /home /run/secrets 2>/dev/null; true"
        names = [line for line in cella.run("--", "sh", "-c", script).ok().text.splitlines()
                 if line and not line.endswith(":") and line not in (".bashrc", ".profile", "user")]
        assert not names
    finally:
        for mark in marks:
            mark.unlink()


@pytest.mark.quick
def test_secrets_of_the_hosts_etc_are_not_there(cella):
    script = "cat /etc/shadow /etc/gshadow /etc/ssh/ssh_host_*_key /etc/machine-id 2>/dev/null; true"
    found = cella.run("--", "sh", "-c", script).ok().text
    for name in ("/etc/shadow", "/etc/machine-id"):
        if os.path.exists(name):
            host = pathlib.Path(name).read_text().strip()
            assert not host or host not in found


def test_host_processes_are_invisible(cella):
    seen = cella.run("--", "sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").ok().text
    assert "pytest" not in seen and "warden" not in seen


def test_readonly_root(cella):
    if cella.capability("rootfs.readonly") == "none":
        pytest.skip("the backend says it has no read-only root")
    assert cella.run("--read-only", "--", "sh", "-c", "echo x > /file").status != 0
    cella.run("--", "sh", "-c", "echo x > /file && cat /file").ok()  # twin


def test_image_is_not_changed_by_a_cell(cella, tmp_path):
    image = tmp_path / "image"
    for directory in ("usr", "etc", "tmp"):
        (image / directory).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        (image / link).symlink_to(f"usr/{link}")
    flags = ["--image", f"dir:{image}", "--mount", "/usr:/usr"]
    cella.run(*flags, "--", "sh", "-c", "echo changed > /etc/mark; rm -rf /tmp; cat /etc/mark").ok()
    assert sorted(p.name for p in image.iterdir()) == ["bin", "etc", "lib", "lib64", "sbin", "tmp", "usr"]
    assert not list((image / "etc").iterdir())


def test_set_user_id_programs_gain_nothing(cella, filtered):
    script = "cp /usr/bin/id /tmp/id && chown 0:0 /tmp/id && chmod 4755 /tmp/id && " \
             "exec setpriv --reuid 1000 --clear-groups /tmp/id -u"
    result = cella.run("--", "sh", "-c", script)
    assert result.text in ("1000", ""), result
    assert cella.run("--user", "1000", "--", "id", "-u").ok().text == "1000"


def test_workload_cannot_reach_the_agents_stream(cella):
    """No descriptor, no socket name, no /proc path of the link is open to a root workload."""
    script = "ls -l /proc/1/fd 2>&1; cat /proc/net/unix; for f in /proc/1/fd/*; do echo evil > $f; done 2>&1; true"
    with cella.cell() as cell:
        shown = cella("exec", cell, "--", "sh", "-c", script).ok().text
        assert "socket:" not in shown and "cella" not in shown, shown
        assert cella("exec", cell, "--", "echo", "alive").ok().text == "alive"
