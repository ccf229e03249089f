# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Every bad input gives one clear line, the documented status, and leaves nothing behind."""
import json
import os
import signal
import subprocess

import pytest

from harness import PATIENCE
from harness import cella as harness

pytestmark = pytest.mark.quick


def _deny_metadata(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text('{"version": 1,\n "allow": [\n  {"id": "meta", "cidr": "169.254.169.254/32",\n'
                    '   "ports": [80], "layer": "raw"}]}\n')
    path.chmod(0o600)
    return path


def test_unknown_flag(cella):
    cella.run("--no-such-flag", "--", "true").one_line(125, "--no-such-flag")


def test_unknown_verb(cella):
    cella("frobnicate").one_line(125, "frobnicate")


def test_missing_command(cella):
    assert cella.run().status == 125


def test_missing_image(cella, tmp_path):
    cella.run("--image", f"tar:{tmp_path}/none.tar", "--", "true").one_line(125, "none.tar", "No such file")
    cella.run("--image", f"dir:{tmp_path}/none", "--", "true").one_line(125, "none", "No such file")
    cella.run("--image", "nonsense", "--", "true").one_line(125, "nonsense")


def test_config_with_a_trailing_comma(cella):
    with cella.configured(text='{"version": 1,\n "state_dir": "/dev/shm/x",\n}\n') as path:
        cella.run("--", "true").one_line(125, rf"{path.name}:3:\d+")
        cella("config", "check").one_line(1, rf"{path.name}:3:\d+")


@pytest.mark.parametrize("change,words", [
    ({"surprise": 1}, ["/surprise"]), ({"version": 2}, ["/version"]), ({"version": None}, ["version"]),
    ({"state_dir": 7}, ["/state_dir", "number"]), ({"state_dir": "relative"}, ["/state_dir"]),
    ({"classes": {"default": {"floor": "steel"}}}, ["/classes/default/floor"]),
    ({"classes": {"default": {"floor": "process", "policy": "nope"}}}, ["/classes/default/policy", "nope"]),
    ({"classes": {"default": {"floor": "process", "limits": {"memory": "lots"}}}}, ["/classes/default/limits/memory"]),
    ({"policies": {"p": {"file": "/no/such.json"}}}, ["/policies/p/file", "/no/such.json"]),
    ({"plugins": [{"path": "/no/such.so"}]}, ["/plugins/0/path", "/no/such.so"])])
def test_config_errors_are_located(cella, change, words):
    with cella.configured(**change) as path:
        cella.run("--", "true").one_line(125, rf"{path.name}:\d+:\d+", *words)
        cella("config", "check").one_line(1, rf"{path.name}:\d+:\d+", *words)


def test_sink_that_does_not_exist(cella):
    with cella.configured(audit=[{"sink": "none-such", "path": "/dev/shm/x"}]) as path:
        cella.run("--", "true").one_line(125, rf"{path.name}:\d+:\d+", "/audit/0", "none-such")


def test_duplicate_key_in_config(cella):
    with cella.configured(text='{"version": 1, "version": 1}') as path:
        cella("config", "check").one_line(1, rf"{path.name}:1:\d+", "version")


def test_config_others_can_write(cella):
    with cella.configured() as path:
        path.chmod(0o666)
        cella.run("--", "true").one_line(125, path.name, "writ")


def test_missing_config(cella):
    result = cella.run("--", "true", env={"CELLA_CONFIG": "/no/such/cella.json"})
    result.one_line(125, "/no/such/cella.json", "No such file")


def test_policy_that_allows_metadata(cella, tmp_path):
    path = _deny_metadata(tmp_path)
    cella.run("--policy", path, "--", "true").one_line(125, rf"{path.name}:3:\d+", "/allow/0/cidr", "169.254")


@pytest.mark.parametrize("cidr", ["127.0.0.1/32", "10.0.0.0/8", "172.16.0.0/16", "192.168.1.0/24", "100.100.100.200/32",
                                  "224.0.0.0/4", "0.0.0.0/0", "168.63.129.16/32", "169.254.0.0/16", "198.18.0.0/15",
                                  "255.255.255.255/32",
                                  "0x7f.1/32", "203.0.113.10", "203.0.113.10/33", "203.0.113.10/24", "::1/128",
                                  "fd00:ec2::254/128", "::ffff:169.254.169.254/128", "64:ff9b::a9fe:a9fe/128"])
def test_addresses_no_policy_can_open(cella, tmp_path, cidr):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"version": 1, "allow": [{"id": "a", "cidr": cidr, "ports": [80], "layer": "raw"}]}))
    path.chmod(0o600)
    cella.run("--policy", path, "--", "true").one_line(125, rf"{path.name}:1:\d+", "/allow/0/cidr")


def test_policy_that_is_no_policy(cella, tmp_path):
    path = tmp_path / "policy.json"
    path.write_text('{"version": 1,, }')
    cella.run("--policy", path, "--", "true").one_line(125, rf"{path.name}:1:\d+")
    cella.run("--policy", "/no/such/policy.json", "--", "true").one_line(125, "/no/such/policy.json")


def test_class_with_an_impossible_floor(cella):
    classes = {"default": {"floor": "vm", "backends": ["container"], "policy": "deny"}}
    with cella.configured(classes=classes):
        cella("run", "--", "true").one_line(125, "vm", "container", "process")


def test_unknown_class_and_backend(cella):
    cella.run("--class", "nobody", "--", "true").one_line(125, "nobody")
    cella("run", "--backend", "nobody", "--", "true").one_line(125, "nobody")


def _hostile(cella, name):
    return cella.build / "tests" / "hostile" / f"hostile-{name}.so"


def test_plugin_for_another_major(cella):
    path = _hostile(cella, "future-major")
    with cella.configured(plugins=[{"path": str(path)}]):
        cella.run("--", "true").one_line(125, path.name, "major")


def test_plugin_that_others_can_write(cella, tmp_path):
    import shutil
    found = sorted(cella.build.rglob("cella-backend-container.so"))[0]
    copy = tmp_path / "writable.so"
    shutil.copy(found, copy)
    copy.chmod(0o666)
    with cella.configured(plugins=[{"path": str(copy)}]):
        cella.run("--", "true").one_line(125, "writable.so", "writ|mode|owner")


def test_full_state_directory(cella):
    """A state directory on a full disk."""
    directory = cella.work / "full"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", directory], check=True)
    try:
        with open(directory / "ballast", "wb", buffering=0) as handle:
            try:
                while handle.write(b"x" * 512):
                    pass
            except OSError:
                pass
        with cella.configured(state_dir=str(directory), audit=None):
            cella.run("--", "true").one_line(125, "No space left|full")
    finally:
        subprocess.run(["umount", directory], check=True)
        directory.rmdir()


def test_cell_that_forks_without_end(cella):
    if cella.capability("limit.pids") == "none":
        pytest.skip("this host cannot limit pids")
    result = cella.run("--pids", "32", "--timeout", "3s", "--", "sh", "-c", "f() { f | f & }; f; sleep 30", timeout=30)
    assert result.status != 0 and "pids" in result.errors, result


def test_cell_that_prints_without_end(cella):
    run = cella.spawn("run", "--timeout", "2s", "--", "sh", "-c", "yes | head -c 10G", stdout=subprocess.DEVNULL)
    _, err = run.communicate(timeout=60 * PATIENCE)
    assert run.returncode in (0, 124) and len(err.splitlines()) <= 1, err


def test_killed_warden(cella):
    run = cella.spawn("run", "--name", "headless", "--", "sh", "-c", "echo ready; sleep 300")
    assert run.stdout.readline() == b"ready\n"
    os.kill(cella.warden("headless"), signal.SIGKILL)
    _, err = run.communicate(timeout=20 * PATIENCE)
    assert run.returncode == 125 and len(err.splitlines()) == 1, (run.returncode, err)
    assert b"warden" in err
    # its lock goes a moment after its connections
    harness.wait_until(lambda: cella("gc").ok() and not (cella.state / "names" / "headless").is_symlink(), 20, "gc takes it away")


def test_two_cells_with_one_name(cella):
    with cella.cell(start=False, name="same"):
        cella("create", "--name", "same").one_line(125, "same")


@pytest.mark.parametrize("method,args", [("container.nope", "{}"), ("container.limit-memory", '{"bytes": -1}'),
                                         ("container.limit-memory", '{"bytes": "x"}'), ("container.limit-memory", "[1"),
                                         ("container.limit-memory", "{}"), ("container.limit-memory", '{"bytes": 1, "b": 2}'),
                                         ("nope", "{}")])
def test_calls_that_make_no_sense(cella, module_cells, method, args):
    if cella.backend != "container":
        pytest.skip("methods of the container backend")
    cella("call", module_cells(), method, args).one_line(125, "nope|bytes|limit-memory|JSON|argument|PLUGIN.METHOD")


def test_nothing_is_written_to_stdout_on_failure(cella):
    for words in (["run", "--no-such-flag"], ["exec", "nobody", "--", "true"], ["inspect", "nobody"], ["nonsense"]):
        assert cella(*words).out == b""


def test_a_user_who_may_have_no_timer_is_told_which_step_failed(cella):
    cella.run("--", "true", prefix=["prlimit", "--sigpending=0"]).one_line(125, "timer of the watchdog", "ulimit -a")
    cella.run("--", "true", prefix=["prlimit", "--sigpending=100"]).ok()


def test_help_is_no_failure(cella):
    assert "run" in cella("--help").ok().text
    assert "--policy" in cella("run", "--help").ok().text


def test_harness_itself(cella):
    """A refusal with two lines would be seen."""
    with pytest.raises(AssertionError):
        harness.Result([], 125, b"", b"one\ntwo\n").one_line(125)
    with pytest.raises(AssertionError):
        harness.Result([], 0, b"", b"one\n").one_line(125)
