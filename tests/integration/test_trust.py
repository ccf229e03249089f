# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A cell that trusts its gate: every kind of client verifies a certificate of the cell's authority, and still those of
its image; and what the cell is told about denials."""
import json
import shutil
import subprocess
import time

import pytest

from harness import PATIENCE
from harness.cella import POLICIES, wait_until
from harness.enforced import enforced

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PORT = 8443
REPLACING = ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE",
             "CARGO_HTTP_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"]
ADDING = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"]

SERVER = """import http.server, ssl, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header('content-length', '2'); self.end_headers(); self.wfile.write(b'ok')
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[2])), H)
c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); c.load_cert_chain(sys.argv[1])
s.socket = c.wrap_socket(s.socket, server_side=True)
print('ready', flush=True); s.serve_forever()"""

NODE = """fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.log(e.cause.code); process.exit(1) })"""
JAVA = """public class F { public static void main(String[] a) throws Exception {
var request = java.net.http.HttpRequest.newBuilder(java.net.URI.create(a[0])).build();
var text = java.net.http.HttpResponse.BodyHandlers.ofString();
System.out.println(java.net.http.HttpClient.newHttpClient().send(request, text).body()); } }"""
PYTHON = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
# Each prints something and ends with 0 only when the server's certificate has been verified.
CLIENTS = {
    "curl": ["curl", "-sS", "URL"],
    "python": ["/usr/bin/python3", "-c", PYTHON, "URL"],
    "node": ["node", "-e", NODE, "URL"],
    "openssl": ["openssl", "s_client", "-connect", f"localhost:{PORT}", "-verify_return_error", "-brief"],
    "wget": ["wget", "-qO-", "URL"],
    "java": ["sh", "-c", f"cat > /tmp/F.java <<'E'\n{JAVA}\nE\njava -Xshare:auto -XX:TieredStopAtLevel=1 /tmp/F.java URL"],
    "git": ["git", "ls-remote", "URL/x.git"],  # the server's answer is an empty list to it
}


def _authority(directory, name):
    """An authority of its own and a server certificate of it for localhost, in one PEM with its key."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2",
            "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
    (directory / "ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("req", *curve, "-keyout", "leaf.key", "-out", "leaf.csr", "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", f"{name}.pem", "-CAkey", f"{name}.key", "-out", "leaf.pem", "-days",
            "2", "-extfile", "ext", "-CAcreateserial")
    server = directory / f"{name}-server.pem"
    server.write_text((directory / "leaf.pem").read_text() + (directory / "leaf.key").read_text())
    server.chmod(0o644)
    return directory / f"{name}.pem", server


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    directory = tmp_path_factory.mktemp("authorities")
    directory.chmod(0o755)
    return {name: _authority(directory, name) for name in ("ours", "theirs")}


@pytest.fixture(scope="module")
def cells(session_cella, authorities):
    """serving(trusted, server): a cell that trusts our authority or none, in which a server of ours or theirs runs."""
    made, contexts, servers = {}, [], []

    def serving(trusted, server):
        key = trusted, server
        if key not in made:
            pem = authorities[server][1]
            context = enforced(session_cella, "--mount", f"{pem}:/srv/server.pem",
                               **({"ca": str(authorities["ours"][0])} if trusted else {}))
            cell, _ = context.__enter__()
            contexts.append(context)
            process = session_cella.spawn("exec", cell, "--", "/usr/bin/python3", "-c", SERVER, "/srv/server.pem", PORT)
            servers.append(process)
            assert process.stdout.readline() == b"ready\n", process.communicate()
            made[key] = cell
        return made[key]

    yield serving
    for process in servers:
        process.kill()
        process.communicate()
    for context in reversed(contexts):
        context.__exit__(None, None, None)


def visit(cella, cell, client):
    argv = [w.replace("URL", f"https://localhost:{PORT}") for w in CLIENTS[client]]
    return cella("exec", cell, "--", *argv)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_verify_the_cells_authority(session_cella, cells, client):
    """Trusted: yes. The same without it, and the certificate of somebody else: no."""
    if not shutil.which(client if client != "python" else "/usr/bin/python3"):
        pytest.skip(f"{client} is not on this host")
    assert visit(session_cella, cells(True, "ours"), client).status == 0
    assert visit(session_cella, cells(False, "ours"), client).status != 0
    assert visit(session_cella, cells(True, "theirs"), client).status != 0


@pytest.mark.quick
def test_the_images_own_trust_stays(session_cella, cells):
    """The bundle is the image's and one more; also where no variable is read."""
    cell, plain = cells(True, "ours"), cells(False, "ours")
    bundle = session_cella("exec", plain, "--", "cat", BUNDLE).ok().out
    ca = session_cella("exec", cell, "--", "cat", "/run/cella/ca.pem").ok().out
    assert bundle and ca.startswith(b"-----BEGIN CERTIFICATE-----") and b"PRIVATE" not in ca
    for path in (BUNDLE, "/run/cella/ca-bundle.pem"):
        assert session_cella("exec", cell, "--", "cat", path).ok().out == bundle + ca
    bare = ["env", "-i", "curl", "-sS", f"https://localhost:{PORT}"]
    assert session_cella("exec", cell, "--", *bare).ok().text == "ok"
    assert session_cella("exec", plain, "--", *bare).status == 60


def test_javas_own_trust_stays(session_cella, cells):
    if not shutil.which("keytool"):
        pytest.skip("keytool is not on this host")
    def count(trusting, password):
        listed = ["sh", "-c", f"echo | keytool -list -cacerts {password} 2>/dev/null | grep -c trustedCertEntry"]
        return int(session_cella("exec", cells(trusting, "ours"), "--", *listed).text or 0)
    for password in ("", "-storepass changeit"):  # with it, the store's checksum is verified
        assert count(True, password) == count(False, password) + 1 > 10
    assert count(True, "-storepass other") == 0


@pytest.mark.quick
def test_environment(session_cella, cells):
    def variables(cell, *flags):
        text = session_cella("exec", *flags, cell, "--", "env").ok().text
        return dict(line.split("=", 1) for line in text.splitlines())
    found = variables(cells(True, "ours"))
    assert {found[n] for n in REPLACING} == {"/run/cella/ca-bundle.pem"}
    assert {found[n] for n in ADDING} == {"/run/cella/ca.pem"} and found["UV_NATIVE_TLS"] == "1"
    assert variables(cells(True, "ours"), "--env", "PIP_CERT=/mine")["PIP_CERT"] == "/mine"
    assert not set(variables(cells(False, "ours"))) & {*REPLACING, *ADDING, "UV_NATIVE_TLS"}


def test_the_users_own_value_is_kept_and_told(cella, authorities):
    flags = ("--env", "SSL_CERT_FILE=/etc/mine.pem", "--env", "NODE_EXTRA_CA_CERTS=")
    with enforced(cella, *flags, ca=str(authorities["ours"][0])) as (cell, _):
        text = cella("exec", cell, "--", "env").ok().text.splitlines()
        assert "SSL_CERT_FILE=/etc/mine.pem" in text and "NODE_EXTRA_CA_CERTS=" in text
        assert "CURL_CA_BUNDLE=/run/cella/ca-bundle.pem" in text
        event = cella.wait_event(cell, {"kind": "cell.trust"})
        assert event["kept"] == "SSL_CERT_FILE,NODE_EXTRA_CA_CERTS" and event["certificates"] == 1
        assert event["bundle"] == BUNDLE and BUNDLE in event["mounted"]
        assert "SSL_CERT_FILE" in cella.wait_event(cell, {"kind": "plugin.log", "topic": "trust"})["text"]


@pytest.mark.lab
def test_tools_that_rebuild_a_bundle_keep_the_authority(cella, authorities, tmp_path):
    """In an image that has the directory they look into, and no bundle yet."""
    image = tmp_path / "image"
    for directory in ("usr/local/share/ca-certificates", "etc/ssl/certs", "etc/ca-certificates/update.d", "tmp"):
        (image / directory).mkdir(parents=True)
    for directory in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "usr/share"):
        (image / directory).mkdir(parents=True)
    for link in ("bin", "sbin", "lib", "lib64"):
        (image / link).symlink_to(f"usr/{link}")
    (image / "etc/ca-certificates.conf").write_text("")
    mounts = [w for d in ("bin", "sbin", "lib", "lib64", "share") for w in ("--mount", f"/usr/{d}:/usr/{d}")]
    ca = authorities["ours"][0]
    with enforced(cella, "--image", f"dir:{image}", *mounts, ca=str(ca)) as (cell, _):
        cella("exec", cell, "--", "update-ca-certificates").ok()
        assert ca.read_text().strip() in cella("exec", cell, "--", "cat", BUNDLE).ok().text
        event = cella.wait_event(cell, {"kind": "cell.trust"})
        assert event["mounted"] == "/usr/local/share/ca-certificates/cella-gate.crt"
    assert not list((image / "usr/local/share/ca-certificates").iterdir())


def test_an_authority_with_a_key_is_refused(cella, authorities, tmp_path):
    both = tmp_path / "both.pem"
    ca = authorities["ours"][0]
    both.write_text(ca.read_text() + ca.with_suffix(".key").read_text())
    plugin = cella.build / "tests/integration/plugins/cella-test-trust-enforcer.so"
    with cella.configured(plugins=[{"path": str(plugin), "config": {"ca": str(both)}}]):
        cella.run("--policy", "none", "--", "true").one_line(125, "trust-enforcer", "no PEM certificate")


@pytest.mark.quick
@pytest.mark.parametrize("flags", [(), ("--read-only",)])
def test_nothing_of_it_can_be_changed_from_inside(cella, authorities, flags):
    """/run is the cell's to write, this is not: root of the cell cannot write, remove, move or cover it."""
    source = """
    exec 2>&1
    for f in /run/cella/ca.pem /run/cella/ca-bundle.pem /run/cella/denials /etc/ssl/certs/ca-certificates.crt; do
        ( echo x >> $f ) && echo wrote $f; rm -f $f && echo removed $f; mv $f /tmp/x && echo moved $f; chmod 777 $f && echo mode $f
    done
    touch /run/cella/new && echo made; rmdir /run/cella && echo gone; mv /run/cella /run/other && echo moved
    mount -t tmpfs t /run/cella && echo covered; umount /run/cella && echo uncovered
    touch /run/mine && echo twin"""
    with enforced(cella, *flags, ca=str(authorities["ours"][0])) as (cell, call):
        text = cella("exec", cell, "--", "sh", "-c", source).text
        assert [w for w in text.splitlines() if not w.startswith(("sh:", "rm:", "mv:", "chmod:", "touch:", "rmdir:",
                                                                   "mount:", "umount:", "dmesg"))
                and w.strip() and "dmesg" not in w] == ["twin"], text
        call("deny", count=1, reason="no_rule", name="a.example")
        assert "a.example" in cella("exec", cell, "--", "cat", "/run/cella/denials").ok().text


# ---- denials


def denials(cella, cell):
    text = cella("exec", cell, "--", "cat", "/run/cella/denials").ok().text
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.quick
def test_the_cell_is_told_what_was_denied_and_why(cella, internet):
    source = """import socket
for host, port in (('203.0.113.77', 81), ('169.254.169.254', 80)):
    try: socket.create_connection((host, port), 5)
    except OSError: pass
try: socket.getaddrinfo('nowhere.example', 80)
except OSError: pass"""
    with cella.cell("--policy", POLICIES / "echo.json") as cell:
        assert denials(cella, cell) == []
        cella("exec", cell, "--", "python3", "-c", source).ok()
        wait_until(lambda: {d["reason"] for d in denials(cella, cell)} >= {"no_rule", "hard_deny", "dns_refused"}, 20,
                   "three denials")
        found = {d["reason"]: d for d in denials(cella, cell)}
        assert (found["no_rule"]["dst"], found["no_rule"]["port"]) == ("203.0.113.77", 81)
        assert found["dns_refused"]["name"] == "nowhere.example"
        assert all(d["help"] and d["time"].endswith("Z") and d["gen"] == 1 for d in found.values())


def test_a_flood_keeps_the_newest_and_stays_bounded(cella):
    with enforced(cella, policy="deny") as (cell, call):
        for number in range(10):
            call("deny", count=400, reason="no_rule", name=f"n{number}.example")
        path = cella.directory(cell) / "shown/denials"
        assert path.stat().st_size <= 256 << 10
        found = denials(cella, cell)
        assert found[-1]["name"] == "n9.example" and found[-1]["port"] == 399
        assert len(found) < 4000
        call("deny", count=1, reason="limit", name='"}\n{"reason": "forged')
        assert denials(cella, cell)[-1]["name"] == '"}\n{"reason": "forged'


@pytest.mark.lab
def test_a_reader_sees_lines_whatever_happens_meanwhile(cella):
    """What ends in a newline is whole; only the last may still be on its way."""
    source = """import json, time
end = time.time() + 3; n = 0
while time.time() < end:
    for line in open('/run/cella/denials').read().split('\\n')[:-1]: json.loads(line); n += 1
print(n)"""
    with enforced(cella, policy="deny") as (cell, call):
        reader = cella.spawn("exec", cell, "--", "python3", "-c", source)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            call("deny", count=200, reason="no_rule", name="x" * 200)
        out, err = reader.communicate(timeout=30 * PATIENCE)
        assert reader.returncode == 0 and int(out) > 0, err.decode()


def test_a_cell_without_network_has_no_such_place(cella):
    with cella.cell("--policy", "none") as cell:
        assert cella("exec", cell, "--", "ls", "/run/cella").status == 2
