# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Credentials brokered, end to end: a request leaves the cell with a placeholder and arrives with the secret; the cell
trusts its gate, and hosts that are not looked into still show their own certificate."""
import json
import os
import shutil
import subprocess

import pytest

from harness import guests
from harness.cella import children_of, command_of, wait_until
from harness.shop import API, OTHER, RESOLVER, Shop
from harness.warden import Warden

PLACEHOLDER, VALUE = "sk-cella__K1__", "tok-7f3a9c-never-seen"
PYTHON = f"""import sys, urllib.request
r = urllib.request.Request(sys.argv[1], headers={{'x-api-key': '{PLACEHOLDER}'}})
print(urllib.request.urlopen(r, timeout=10).read().decode())"""
NODE = f"""fetch(process.argv[1], {{headers: {{'x-api-key': '{PLACEHOLDER}'}}}}).then(r => r.text()).then(console.log,
  e => {{ console.log(e.cause); process.exit(1) }})"""
CURL = ["curl", "-sS", "-m", "10", "-H", f"x-api-key: {PLACEHOLDER}"]
CLIENTS = {"curl": [*CURL, "URL"], "curl-h1": [*CURL, "--http1.1", "URL"], "python": ["/usr/bin/python3", "-c", PYTHON, "URL"],
           "node": ["node", "-e", NODE, "URL"],
           "wget": ["wget", "-T", "10", "-qO-", f"--header=x-api-key: {PLACEHOLDER}", "URL"]}
POLICY = {"version": 1, "revision": 1, "active": "run", "phases": {"run": {"allow": [
    {"id": "llm", "host": API, "ports": [443], "layer": "http", "http": {"methods": ["GET"], "paths": ["/v1/*"]},
     "inject": [{"secret": "token", "surface": "header", "name": "x-api-key", "placeholder": PLACEHOLDER,
                 "require": True}]},
    {"id": "other", "host": OTHER, "ports": [443]}]}}}


@pytest.fixture(scope="module")
def shop(internet, tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    directory.chmod(0o755)
    made = Shop(internet.world, directory)
    yield made
    made.close()


@pytest.fixture(scope="module")
def vault(tmp_path_factory):
    path = tmp_path_factory.mktemp("vault")
    path.chmod(0o700)

    def put(text):
        (path / ".new").write_text(text)
        (path / ".new").chmod(0o600)
        (path / ".new").rename(path / "token")
    put(VALUE + "\n")
    put.path = path
    return put


@pytest.fixture(scope="module")
def enforcer(shop, vault):
    """The config that a cell of this internet needs."""
    plugin = {"path": "cella-enforcer-egress-nft.so",
              "config": {"resolvers": f"{RESOLVER}:53", "upstream-ca": str(shop.ca)}}
    return {"plugins": [plugin], "secrets": [{"provider": "secret-file", "path": str(vault.path)}]}


@pytest.fixture(scope="module")
def brokered(session_cella, shop, enforcer):
    """A cell whose gate holds the secret; the world's authority is its file /srv/world.pem."""
    policy = shop.directory / "policy.json"
    policy.write_text(json.dumps(POLICY))
    with session_cella.configured(**enforcer):
        context = session_cella.cell("--policy", policy)
        cell = context.__enter__()
        session_cella("cp", shop.ca, f"{cell}:/srv/world.pem").ok()
    yield cell
    context.__exit__(None, None, None)


def visit(cella, cell, client, path="/v1/models", host=API):
    return cella("exec", cell, "--", *[w.replace("URL", f"https://{host}{path}") for w in CLIENTS[client]])


@pytest.mark.parametrize("client", CLIENTS)
def test_the_secret_arrives_and_the_client_trusts_its_gate(cella, shop, brokered, client):
    program = CLIENTS[client][0]
    if not shutil.which(program) or cella("exec", brokered, "--", "sh", "-c", f"command -v {program}").status:
        pytest.skip(f"{client} is not on this host, or not in the image")
    seen = len(shop.keys)
    assert visit(cella, brokered, client).ok().text == "served"
    assert shop.keys[seen:] == [VALUE]


def test_a_host_that_is_not_looked_into_shows_its_own_certificate(cella, shop, brokered):
    """Nothing is put into its requests, and the cell's own authority is not what vouches for it."""
    assert visit(cella, brokered, "curl", host=OTHER).status == 60
    seen = len(shop.keys)
    own = ["curl", "-sS", "-m", "10", "--cacert", "/srv/world.pem", "-H", f"x-api-key: {PLACEHOLDER}", f"https://{OTHER}/v1/x"]
    assert cella("exec", brokered, "--", *own).ok().text == "served"
    assert shop.keys[seen:] == [PLACEHOLDER]


def test_denied_requests_are_told_with_their_reason(cella, shop, brokered):
    seen = len(shop.keys)
    for words, status in ((["-X", "POST"], "403"), (["-H", "x-api-key: mine"], "403")):
        argv = ["curl", "-sS", "-m", "10", "-o", "/dev/null", "-D", "-", *words, f"https://{API}/v1/models"]
        text = cella("exec", brokered, "--", *argv).ok().text
        assert status in text.splitlines()[0] and "x-cella-denied:" in text.lower(), text
    assert visit(cella, brokered, "curl-h1", "/v2/other").ok().text != "served"
    assert shop.keys[seen:] == []

    def told():
        text = cella("exec", brokered, "--", "cat", "/run/cella/denials").ok().text
        return {d["reason"]: d for d in map(json.loads, text.splitlines())}
    wait_until(lambda: {"method_path", "placeholder_missing"} <= set(told()), 20, "the denials in the cell")
    assert all(d["help"] for d in told().values())


@pytest.mark.lab
def test_the_secret_is_nowhere_but_at_its_host(cella, shop, brokered):
    assert visit(cella, brokered, "curl-h1", "/v1/models").ok().text == "served"
    assert VALUE in shop.keys
    cella.wait_event(brokered, {"kind": "secret.used", "name": "token", "purpose": "inject:llm"})
    found = subprocess.run(["grep", "-rlF", VALUE, cella.directory(brokered), cella.state / "audit"], capture_output=True,
                           text=True)
    assert not found.stdout
    inside = ["sh", "-c", "cat > /tmp/pattern; env | grep -Ff /tmp/pattern; cat /proc/*/environ | grep -aFf /tmp/pattern;"
              " grep -rlsFf /tmp/pattern /run /etc /root /srv"]  # not as an argument: those are audited
    assert not cella("exec", brokered, "--", *inside, input=VALUE.encode()).text


def test_a_changed_secret_is_used_at_once_without_a_new_cell(cella, shop, brokered, vault):
    generation = cella.inspect(brokered)["policy"]["generation"]
    vault("tok-second")
    wait_until(lambda: cella.inspect(brokered)["policy"]["generation"] > generation, 20, "the new generation")
    seen = len(shop.keys)
    assert visit(cella, brokered, "curl").ok().text == "served"
    assert shop.keys[seen:] == ["tok-second"]
    vault(VALUE)
    wait_until(lambda: visit(cella, brokered, "curl").ok() and shop.keys[-1] == VALUE, 20, "the old value again")


def test_a_cell_that_runs_can_be_looked_into_later(cella, shop, vault, enforcer):
    """Its authority comes with the change; commands from then on are told, what is mounted stays as it was."""
    plain = {"version": 1, "revision": 1, "allow": [{"id": "api", "host": API, "ports": [443]}]}
    path = shop.directory / "plain.json"
    path.write_text(json.dumps(plain))
    with cella.configured(**enforcer):
        context = cella.cell("--policy", path)
        cell = context.__enter__()
    try:
        assert visit(cella, cell, "curl").status == 60  # the world's certificate, which nobody here trusts
        shown = set(cella("exec", cell, "--", "ls", "/run/cella").ok().text.split())
        assert shown - {"generation"} == {"denials"}  # a machine has that number, too
        with Warden(cella.directory(cell)) as warden:
            warden.call("policy", document=json.dumps({**POLICY, "revision": 2}), if_match=1)
        seen = len(shop.keys)
        for client in ("curl", "python", "node" if cella.backend not in guests.MACHINES else "curl-h1"):
            assert visit(cella, cell, client).ok().text == "served"
        assert shop.keys[seen:] == [VALUE] * 3
        assert cella.wait_event(cell, {"kind": "cell.trust"})["certificates"] == 1
    finally:
        context.__exit__(None, None, None)


@pytest.mark.lab
def test_an_engine_that_dies_is_started_again_with_the_same_authority(cella, shop, enforcer, restarting):
    """A program that trusts the cell's authority since before goes on; the secret is fetched anew; and twice."""
    policy = shop.directory / "policy.json"
    policy.write_text(json.dumps(POLICY))
    with cella.configured(classes=restarting, **enforcer):
        context = cella.cell("--policy", policy)
        cell = context.__enter__()
    try:
        authority = cella("exec", cell, "--", "cat", "/run/cella/ca.pem").ok().text
        for round in (1, 2):
            engines = [p for p in children_of(cella.warden(cell)) if "cella-gate-http" in command_of(p)]
            assert len(engines) == 1
            os.kill(engines[0], 9)
            event = cella.wait_event(cell, {"kind": "net.gate", "state": "restarted", "restarts": round})
            assert event["pid"] == cella.gate(cell) and event["gen"] == 1
            seen = len(shop.keys)
            assert visit(cella, cell, "curl").ok().text == "served"
            assert shop.keys[seen:] == [VALUE]
            assert cella("exec", cell, "--", "cat", "/run/cella/ca.pem").ok().text == authority
    finally:
        context.__exit__(None, None, None)


def test_a_host_of_a_later_document_is_trusted_too(cella, shop, enforcer):
    """Its certificate comes to those that the cell trusts, at their end; what was trusted before still is."""
    first = {**POLICY, "phases": {"run": {"allow": [POLICY["phases"]["run"]["allow"][0]]}}}
    both = {**POLICY, "revision": 2, "phases": {"run": {"allow": [
        first["phases"]["run"]["allow"][0], {"id": "other", "host": OTHER, "ports": [443], "layer": "http"}]}}}
    path = shop.directory / "first.json"
    path.write_text(json.dumps(first))
    with cella.configured(**enforcer):
        context = cella.cell("--policy", path)
        cell = context.__enter__()
    try:
        assert visit(cella, cell, "curl").ok().text == "served"
        with Warden(cella.directory(cell)) as warden:
            warden.call("policy", document=json.dumps(both), if_match=1)
        for client in ("curl", "python"):
            assert visit(cella, cell, client).ok().text == "served"
            assert visit(cella, cell, client, host=OTHER).ok().text == "served"
        bare = ["env", "-i", "curl", "-sS", "-m", "10", f"https://{OTHER}/v1/x"]
        assert cella("exec", cell, "--", *bare).ok().text == "served"
        assert [e["certificates"] for e in cella.events(cell) if e["kind"] == "cell.trust"] == [1, 2]
        old = ["sh", "-c", "sed '/END CERT/q' /run/cella/ca.pem > /tmp/old; exec \"$@\"", "sh", "curl", "-sS", "-m", "10",
               "--cacert", "/tmp/old"]
        assert cella("exec", cell, "--", *old, "-H", f"x-api-key: {PLACEHOLDER}", f"https://{API}/v1/x").ok().text == "served"
        assert cella("exec", cell, "--", *old, f"https://{OTHER}/v1/x").status == 60
    finally:
        context.__exit__(None, None, None)
