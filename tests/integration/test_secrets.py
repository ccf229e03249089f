# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Secrets on their way from a provider to the enforcer: who may ask, what is told, what is never seen."""
import json
import os
import subprocess

import pytest

from harness.cella import wait_until
from harness.enforced import enforced
from harness.warden import Refused

VALUE = "tok-b81e02-of-the-vault"


@pytest.fixture
def vault(tmp_path):
    path = tmp_path / "secrets"
    path.mkdir(mode=0o700)
    path.chmod(0o700)

    def put(name, text, mode=0o600):
        new = path / f".{name}.new"
        new.write_text(text)
        new.chmod(mode)
        new.rename(path / name)
    put("token", VALUE + "\n")
    put.path = path
    return put


def with_vault(cella, vault, secrets=None, flags=(), **options):
    if secrets is None:
        secrets = [{"provider": "secret-file", "path": str(vault.path)}]
    return enforced(cella, *flags, secrets=secrets, **options)


def ask(call, name="token", purpose="inject:llm", cap=64):
    return call("ask", name=name, purpose=purpose, cap=cap)


@pytest.mark.quick
def test_the_value_arrives_and_only_its_name_is_told(cella, vault):
    with with_vault(cella, vault) as (cell, call):
        assert ask(call) == {"length": len(VALUE), "sum": sum(VALUE.encode()), "left": 0}
        event = cella.wait_event(cell, {"kind": "secret.used"})
        assert (event["name"], event["purpose"], event["provider"]) == ("token", "inject:llm", "secret-file")
        directory, chain = cella.directory(cell), cella.state / "audit"
        found = subprocess.run(["grep", "-rlF", VALUE, directory, chain], capture_output=True, text=True).stdout
        assert not found
        assert VALUE not in json.dumps(cella.inspect(cell))
        inside = cella("exec", cell, "--", "grep", "-rlsF", "-f", "-", "/run", "/etc", "/tmp", "/root", input=VALUE.encode())
        assert not inside.text


@pytest.mark.parametrize("name, purpose, cap, code, words", [
    ("nobody", "inject:llm", 64, 2, ["nobody"]), ("open", "inject:llm", 64, 1, ["0644"]),
    ("token", "inject:llm", 4, 105, ["longer"]), ("../token", "inject:llm", 64, 22, ["name"]),
    ("token", "", 64, 22, ["purpose"]), ("token", "a\nb", 64, 22, ["purpose"]), ("token", "x" * 129, 64, 22, ["purpose"]),
])
def test_a_refusal_says_why_and_leaves_nothing_of_a_value(cella, vault, name, purpose, cap, code, words):
    vault("open", VALUE, 0o644)
    with with_vault(cella, vault) as (cell, call):
        with pytest.raises(Refused) as refused:
            ask(call, name, purpose, cap)
        assert refused.value.code == -code, refused.value.message
        for word in words:
            assert word in refused.value.message
        if code != 22:
            assert "left 0" in refused.value.message
            cella.wait_event(cell, {"kind": "secret.refused", "name": name})
        assert ask(call)["length"] == len(VALUE)  # twin


def test_without_a_provider_it_is_said(cella, vault):
    with with_vault(cella, vault, secrets=[]) as (_, call), pytest.raises(Refused, match="no secret provider") as refused:
        ask(call)
    assert refused.value.code == -95


@pytest.mark.parametrize("listed, allowed", [(["token"], True), (["other", "token"], True), (["other"], False), ([], False)])
def test_a_class_names_the_secrets_of_its_policies(cella, vault, listed, allowed):
    with with_vault(cella, vault, flags=("--class", "lenient"), class_secrets=listed) as (cell, call):
        if allowed:
            assert ask(call)["length"] == len(VALUE)
            return
        with pytest.raises(Refused, match='class "lenient" may not use it') as refused:
            ask(call)
        assert refused.value.code == -13 and "left 0" in refused.value.message
        cella.wait_event(cell, {"kind": "secret.refused", "name": "token"})


def test_providers_are_asked_in_order(cella, vault, tmp_path):
    second = tmp_path / "more"
    second.mkdir()
    second.chmod(0o700)
    for name, text in (("token", "other"), ("only", "here")):
        (second / name).write_text(text)
        (second / name).chmod(0o400)
    secrets = [{"provider": "secret-file", "path": str(p)} for p in (vault.path, second)]
    with with_vault(cella, vault, secrets=secrets) as (_, call):
        assert ask(call)["length"] == len(VALUE)
        assert ask(call, "only")["sum"] == sum(b"here")


def test_a_refusal_of_the_first_is_final(cella, vault, tmp_path):
    """A file that is there but may not be used is not looked for elsewhere."""
    vault("open", VALUE, 0o644)
    (tmp_path / "more").mkdir(mode=0o700)
    (tmp_path / "more" / "open").write_text("other")
    (tmp_path / "more" / "open").chmod(0o600)
    secrets = [{"provider": "secret-file", "path": str(p)} for p in (vault.path, tmp_path / "more")]
    with with_vault(cella, vault, secrets=secrets) as (_, call), pytest.raises(Refused, match="0644"):
        ask(call, "open")


@pytest.mark.parametrize("secrets, words", [
    ([{"provider": "nobody"}], [":1:|:[0-9]+:", "/secrets/0", "nobody"]),
    ([{"provider": "secret-file"}], ["/secrets/0", "path"]),
    ([{"provider": "secret-file", "path": "/nonexistent"}], ["/secrets/0", "/nonexistent"]),
    ([{"provider": "secret-file", "path": "/", }], ["/secrets/0", "chmod 0700"]),
    ([{"provider": "secret-file", "path": "/tmp", "mode": 7}], ["/secrets/0", "mode"]),
    ({}, ["/secrets", "array"]),
])
def test_a_bad_config_names_the_place(cella, secrets, words):
    with cella.configured(secrets=secrets):
        cella.run("--", "true").one_line(125, "cella-[0-9]+.json", *words)


@pytest.mark.lab
def test_a_changed_secret_is_fetched_again(cella, vault):
    """Under a generation of its own, in the phase that is in force."""
    with with_vault(cella, vault, secret="token") as (cell, call):
        assert call("facts") == {"generation": 1, "phase": "", "sum": sum(VALUE.encode())}
        vault("token", "new")
        wait_until(lambda: call("facts")["sum"] == sum(b"new"), 20, "the new value")
        assert cella.inspect(cell)["policy"]["generation"] == call("facts")["generation"] == 2
        cella.wait_event(cell, {"kind": "secret.rotated", "gen": 2})
        call.warden.call("phase", to="run")
        vault("token", "third")
        wait_until(lambda: call("facts")["sum"] == sum(b"third"), 20, "the third value")
        assert call("facts")["phase"] == "run" and cella.inspect(cell)["policy"]["generation"] == 4


def test_a_secret_that_goes_is_reported_and_the_policy_stays(cella, vault):
    with with_vault(cella, vault, secret="token") as (cell, call):
        os.unlink(vault.path / "token")
        event = cella.wait_event(cell, {"kind": "secret.rotated"})
        assert "no secret" in event["message"]
        policy = cella.inspect(cell)["policy"]
        assert policy["generation"] == 1 and "no secret" in policy["incomplete"]
        vault("token", "back")
        wait_until(lambda: call("facts")["sum"] == sum(b"back"), 20, "the value that came back")
        assert "incomplete" not in cella.inspect(cell)["policy"]
        assert cella.inspect(cell)["policy"]["generation"] == 3  # 2 was tried, and is never used again


def test_a_change_that_breaks_on_the_way_is_in_the_record(cella, vault):
    with with_vault(cella, vault) as (cell, call):
        with pytest.raises(Refused, match="breaks"):
            call.warden.call("phase", to="broken")
        policy = cella.inspect(cell)["policy"]
        assert policy["generation"] == 1 and "breaks" in policy["incomplete"]
        assert call.warden.call("phase", to="run")["generation"] == 3
        assert "incomplete" not in cella.inspect(cell)["policy"]
