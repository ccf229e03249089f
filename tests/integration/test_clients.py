# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Real clients through the interception, as their users run them: each trusts the gate without an argument, its request
arrives with the secret, and what it does with HTTP (streams, trailers, upgrades, large bodies) passes as it should."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
import zipfile

import pytest

from harness import BULK, PATIENCE
from harness import cella as harness
from harness.shop import ADDRESS, API, RESOLVER, Shop

PLACEHOLDER, VALUE = "sk-cella__K1__", "tok-41c7d2-of-clients"
HTTPS, GRPC, SOCKET = f"{API}:8443", f"{API}:8444", f"{API}:8445"
SLOW = 65536
OPEN = ("simple", "git", "bucket", "download")
INJECT = [{"secret": "token", "surface": "header", "name": "x-api-key", "placeholder": PLACEHOLDER}]
POLICY = {"version": 1, "revision": 1, "allow": [
    {"id": "https", "host": API, "ports": [8443], "layer": "http", "http": {"paths": ["/x"]}, "inject": INJECT},
    {"id": "open", "host": API, "ports": [8443], "layer": "http", "http": {"paths": [f"/{p}/**" for p in OPEN] + ["/*"]}},
    {"id": "plain", "host": API, "ports": [443], "layer": "http", "inject": INJECT},
    {"id": "grpc", "host": API, "ports": [8444], "layer": "http", "http": {"methods": ["POST"], "paths": ["/cella.Test/*"]},
     "inject": INJECT},
    {"id": "socket", "host": API, "ports": [8445], "layer": "http", "http": {"websocket": True}, "inject": INJECT}]}

GRPC_CLIENT = """import grpc, json, sys
key = (('x-api-key', sys.argv[2]),)
channel = grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials())
def call(kind, name): return getattr(channel, kind)('/cella.Test/' + name)
answer, info = call('unary_unary', 'Unary').with_call(b'x' * 100000, metadata=key, timeout=10)
out = {'unary': answer.decode(), 'trailer': dict(info.trailing_metadata()).get('x-trailer')}
try: call('unary_unary', 'Unary')(b'fail', metadata=key, timeout=10)
except grpc.RpcError as e: out['status'] = [e.code().name, e.details()]
out['down'] = [m.decode() for m in call('unary_stream', 'Down')(b'500', metadata=key, timeout=10)]
out['up'] = call('stream_unary', 'Up')((b'y' * 1000 for _ in range(500)), metadata=key, timeout=10).decode()
import queue
q = queue.Queue(); q.put(b'first')
answers = call('stream_stream', 'Both')(iter(q.get, None), metadata=key, timeout=10)
out['both'] = [next(answers).decode()]  # answered while the request's stream is open
q.put(b'second'); out['both'].append(next(answers).decode()); q.put(None)
out['both'] += [m.decode() for m in answers]
try: channel.unary_unary('/other.Service/Do')(b'', metadata=key, timeout=10)
except grpc.RpcError as e: out['denied'] = [e.code().name, e.details()]
print(json.dumps(out))"""

SOCKET_CLIENT = """import asyncio, sys, websockets
async def main():
    async with websockets.connect(sys.argv[1], extra_headers={'x-api-key': sys.argv[2]}, max_size=None) as s:
        await s.send('text'); print(await s.recv())
        big = bytes(range(256)) * 4096
        await s.send(big); print(await s.recv() == big)
asyncio.run(main())"""

EVENTS_CLIENT = """import requests, sys
r = requests.get(sys.argv[1] + '/events', stream=True, timeout=15)
lines = r.iter_lines(chunk_size=1)
print(next(lines).decode()); requests.get(sys.argv[1] + '/seen', timeout=5)
print([l.decode() for l in lines if l])"""

REQUESTS_CLIENT = """import requests, sys
key = {'x-api-key': sys.argv[2]}
s = requests.Session()
print(s.get(sys.argv[1] + '/x', headers=key, timeout=10).text)
print(s.post(sys.argv[1] + '/x', headers=key, data=(b'z' * 1000 for _ in range(100)), timeout=10).text)"""

NODE_CLIENT = """fetch(process.argv[1] + '/x', {headers: {'x-api-key': process.argv[2]}}).then(r => r.text()).then(console.log)"""

AWS = ["env", "AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
       "HOME=/tmp", "/usr/bin/aws", "--endpoint-url", f"https://{HTTPS}", "--cli-read-timeout", "20"]


def need(module):
    """Skips where a client is not installed; tools/packages names them all."""
    if module.startswith("/"):
        found = os.path.exists(module)
    else:
        found = subprocess.run(["/usr/bin/python3", "-c", f"import {module}"], capture_output=True).returncode == 0
    if not found:
        pytest.skip(f"{module} is not on this host")


@pytest.fixture(scope="module")
def shop(internet, tmp_path_factory):
    """The world's names and authority, and the servers of harness/services.py."""
    for module in ("grpc", "websockets", "requests"):
        need(module)
    directory = tmp_path_factory.mktemp("clients")
    directory.chmod(0o755)
    made = Shop(internet.world, directory)
    _files(directory)
    inside = ["ip", "netns", "exec", internet.world]
    subprocess.run([*inside, "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=True)
    server = subprocess.Popen([*inside, "/usr/bin/python3", harness.ROOT / "tests/integration/harness/services.py", ADDRESS,
                               directory / "leaf.pem", directory / "leaf.key", directory], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    yield made
    server.kill()
    server.communicate()
    subprocess.run([*inside, "ip", "addr", "del", f"{ADDRESS}/32", "dev", "lo"], check=True)
    made.close()


def _files(directory):
    """A wheel without code, and a repository with one commit."""
    with zipfile.ZipFile(directory / "wheel.whl", "w") as wheel:
        wheel.writestr("cellatest/__init__.py", "ANSWER = 42\n")
        info = "cellatest-1.0.dist-info/"
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: cellatest\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    work, bare = directory / "work", directory / "repo.git"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t.example", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", work], check=True)
    (work / "file").write_text("content\n")
    for words in (["add", "file"], ["commit", "-qm", "first"]):
        subprocess.run([*git, "-C", work, *words], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run([*git, "-C", bare, "config", "http.receivepack", "true"], check=True)


@pytest.fixture(scope="module")
def enforcer(shop, tmp_path_factory):
    vault = tmp_path_factory.mktemp("vault")
    vault.chmod(0o700)
    (vault / "token").write_text(VALUE)
    (vault / "token").chmod(0o600)
    plugin = {"path": "cella-enforcer-egress-nft.so", "config": {"resolvers": f"{RESOLVER}:53", "upstream-ca": str(shop.ca)}}
    return {"plugins": [plugin], "secrets": [{"provider": "secret-file", "path": str(vault)}]}


@pytest.fixture(scope="module")
def cell(session_cella, shop, enforcer):
    path = shop.directory / "clients.json"
    path.write_text(json.dumps(POLICY))
    with session_cella.configured(**enforcer):
        context = session_cella.cell("--policy", path, "--pids", "512")
        name = context.__enter__()
    yield name
    context.__exit__(None, None, None)


@pytest.fixture
def run(cella, cell):
    """run(argv…): a command in the cell; its output."""
    return lambda *argv, **options: cella("exec", cell, "--", *argv, **options).ok().text


def python(run, source, *words):
    return run("/usr/bin/python3", "-c", source, *words)


def engine_of(cella, cell):
    return next(p for p in harness.children_of(cella.warden(cell)) if "cella-gate-http" in harness.command_of(p))


def _received(cella, cell):
    """Bytes that have come to the cell's device, as the cell's own kernel counts them."""
    for line in open(f"/proc/{cella.agent(cell)}/net/dev"):
        if line.strip().startswith("eth0:"):
            return int(line.split()[1])
    return 0


def _ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as handle:
            return handle.read().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_grpc(run):
    """Unary, both streams and all at once; trailers carry status and metadata; a denial is a status, not a broken channel."""
    out = json.loads(python(run, GRPC_CLIENT, GRPC, PLACEHOLDER))
    assert out["unary"] == f"100000 {VALUE}" and out["trailer"] == "at-the-end"
    assert out["status"] == ["FAILED_PRECONDITION", "as asked"]
    assert out["down"] == [f"{n} {VALUE}" for n in range(500)]
    assert out["up"] == f"500000 {VALUE}"
    assert out["both"] == [f"first {VALUE}", f"second {VALUE}"]
    assert out["denied"][0] == "PERMISSION_DENIED"


def test_websocket(run):
    assert python(run, SOCKET_CLIENT, f"wss://{SOCKET}/", PLACEHOLDER).split("\n") == [f"text {VALUE}", "True"]


def test_server_sent_events_are_not_held_back(run):
    """The server says the second only when the first has arrived."""
    assert python(run, EVENTS_CLIENT, f"https://{HTTPS}") == "data: 1\n['data: 2']"


@pytest.mark.lab
def test_requests(run):
    first, second = python(run, REQUESTS_CLIENT, f"https://{HTTPS}", PLACEHOLDER).split("\n")
    assert first == f"HTTP/1.1 {VALUE}"
    assert second == f"100000 {hashlib.sha256(b'z' * 100000).hexdigest()} {VALUE}"  # it was sent in chunks


def test_pip(run):
    need("pip")
    run("/usr/bin/python3", "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-cache-dir", "--target", "/tmp/lib",
        "--index-url", f"https://{HTTPS}/simple/", "cellatest")
    assert run("env", "PYTHONPATH=/tmp/lib", "/usr/bin/python3", "-c", "import cellatest; print(cellatest.ANSWER)") == "42"


def test_git(run):
    """Clone and push by the smart protocol."""
    name = ["-c", "user.name=t", "-c", "user.email=t@t.example"]
    run("git", "clone", "-q", f"https://{HTTPS}/git/repo.git", "/tmp/repo")
    assert run("cat", "/tmp/repo/file") == "content"
    run("git", "-C", "/tmp/repo", *name, "commit", "-q", "--allow-empty", "-m", "second")
    run("git", "-C", "/tmp/repo", "push", "-q", "origin", "HEAD")
    assert run("git", "ls-remote", f"https://{HTTPS}/git/repo.git", "HEAD")[:40] == run("git", "-C", "/tmp/repo", "rev-parse", "HEAD")


def test_aws(run):
    """Its uploads expect 100-continue, its signature covers what it sends; the gate changes neither."""
    need("/usr/bin/aws")
    run("sh", "-c", "head -c 3000000 /dev/zero > /tmp/object")
    run(*AWS, "s3", "cp", "--no-progress", "/tmp/object", "s3://bucket/key")
    assert run("curl", "-sS", f"https://{HTTPS}/expected") == "True"
    assert run(*AWS, "s3", "cp", "--no-progress", "s3://bucket/key", "-") == "object"


def test_go(run, shop):
    """hey is a Go program: its TLS reads SSL_CERT_FILE."""
    need("/usr/bin/hey")
    text = run("hey", "-n", "200", "-c", "4", "-H", f"x-api-key: {PLACEHOLDER}", f"https://{API}/x")
    assert "[200]\t200 responses" in text, text
    assert shop.keys and set(shop.keys) == {VALUE}


def test_node(run):
    if not shutil.which("node"):
        pytest.skip("node is not on this host")
    assert run("node", "-e", NODE_CLIENT, f"https://{HTTPS}", PLACEHOLDER) == f"HTTP/1.1 {VALUE}"


@pytest.mark.parametrize("framing, size", [("length", (2 << 30) // BULK + 5), ("chunked", (256 << 20) // BULK)], ids=["length", "chunked"])
def test_a_large_upload_takes_no_memory(cella, cell, run, framing, size):
    """The engine's memory moves by less than 4 MiB; every byte arrives."""
    engine = engine_of(cella, cell)
    run("curl", "-sS", f"https://{HTTPS}/seen")
    before, peak = harness.rss_bytes(engine), 0
    put = f"curl -sS --http1.1 -m 900 -H expect: -H 'x-api-key: {PLACEHOLDER}' https://{HTTPS}/x -T"
    source = f"truncate -s {size} /tmp/sparse; {put} /tmp/sparse" if framing == "length" else f"head -c {size} /dev/zero | {put} -"
    process = cella.spawn("exec", cell, "--", "sh", "-c", source)
    while process.poll() is None:
        peak = max(peak, harness.rss_bytes(engine))
        time.sleep(0.05)
    out, errors = process.communicate()
    digest = hashlib.sha256()
    for _ in range(size >> 20):
        digest.update(bytes(1 << 20))
    digest.update(bytes(size & 0xfffff))
    assert out.decode() == f"{size} {digest.hexdigest()} {VALUE}", errors
    assert 0 < peak < before + (4 << 20), (before, peak)


@pytest.mark.lab
def test_a_gate_that_dies_takes_its_http_flows_along(cella, shop, enforcer, restarting):
    """The engine has copies of a flow's descriptors and goes by itself, also while the warden cannot act; afterwards both are
    there again, and the cell trusts them as before."""
    path = shop.directory / "clients.json"
    path.write_text(json.dumps(POLICY))
    with cella.configured(classes=restarting, **enforcer):
        context = cella.cell("--policy", path)
        name = context.__enter__()
    try:
        download = cella.spawn("exec", name, "--", "curl", "-sS", "-o", "/dev/null", "-m", "300", f"https://{HTTPS}/download/{1 << 40}")
        harness.wait_until(lambda: _received(cella, name) > 1 << 20, 20, "a download under way")
        warden, gate, engine = cella.warden(name), cella.gate(name), engine_of(cella, name)
        os.kill(warden, signal.SIGSTOP)
        try:
            os.kill(gate, signal.SIGKILL)
            harness.wait_until(lambda: _ended(engine), 20, "the end of the engine")
            before = _received(cella, name)
            time.sleep(0.3)
            assert _received(cella, name) == before
        finally:
            os.kill(warden, signal.SIGCONT)
        cella.wait_event(name, {"kind": "net.gate", "state": "restarted"})
        assert cella("exec", name, "--", "curl", "-sS", "-H", f"x-api-key: {PLACEHOLDER}", f"https://{HTTPS}/x").ok().text.endswith(VALUE)
        assert b"reset" in download.communicate(timeout=20 * PATIENCE)[1] and download.returncode == 56
    finally:
        context.__exit__(None, None, None)


def test_bytes_per_second_hold_for_http(cella, shop, enforcer):
    """A rule's limit slows both directions down; everything still arrives. What it does not name is not slowed."""
    def limited(**limits):
        return {"version": 1, "revision": 1, "allow": [{**POLICY["allow"][1], "limits": limits}]}
    path = shop.directory / "limited.json"
    upload = ["curl", "-sS", "-m", "30", "--data-binary", "@/tmp/b", f"https://{HTTPS}/upload"]
    for limits, argv, wanted in (({"tx_bps": SLOW}, upload, str(2 * SLOW)),
                                 ({"rx_bps": SLOW}, ["sh", "-c", f"curl -sS -m 30 https://{HTTPS}/download/{2 * SLOW} | wc -c"],
                                  str(2 * SLOW))):
        path.write_text(json.dumps(limited(**limits)))
        with cella.configured(**enforcer):
            context = cella.cell("--policy", path)
            name = context.__enter__()
        try:
            cella("exec", name, "--", "sh", "-c", f"head -c {2 * SLOW} /dev/zero > /tmp/b").ok()
            began = time.monotonic()
            assert cella("exec", name, "--", *argv).ok().text.split()[0] == wanted
            assert time.monotonic() - began > 1.4  # 2 s without the bucket's quarter of a second and a TLS record
        finally:
            context.__exit__(None, None, None)


@pytest.mark.lab
def test_a_limit_of_bytes_is_kept_by_http(cella, shop, enforcer):
    """The upload is cut, with the reason; what went before it counts."""
    path = shop.directory / "total.json"
    path.write_text(json.dumps({"version": 1, "revision": 1, "allow": [{**POLICY["allow"][1], "limits": {"tx_bytes": 300000}}]}))
    with cella.configured(**enforcer):
        context = cella.cell("--policy", path)
        name = context.__enter__()
    try:
        cella("exec", name, "--", "sh", "-c", "head -c 100000 /dev/zero > /tmp/small; head -c 400000 /dev/zero > /tmp/big").ok()
        put = ["curl", "-sS", "-m", "20", "--data-binary"]
        assert cella("exec", name, "--", *put, "@/tmp/small", f"https://{HTTPS}/upload").ok().text.startswith("100000 ")
        assert cella("exec", name, "--", *put, "@/tmp/big", f"https://{HTTPS}/upload").status != 0
        event = cella.wait_event(name, {"kind": "net.flow", "reason": "limit"})
        assert 100000 < event["tx"] < 230000
        assert cella("exec", name, "--", *put, "@/tmp/small", f"https://{HTTPS}/upload").status != 0
    finally:
        context.__exit__(None, None, None)
