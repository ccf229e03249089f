# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A gate that dies at any moment of a transfer: no byte passes afterwards, the cell is told, and the class says whether it
gets another gate, under the policy in force, or ends."""
import contextlib
import json
import os
import signal
import time

import pytest

from harness import PATIENCE
from harness import internet as world
from harness.cella import wait_until
from harness.warden import Warden

pytestmark = pytest.mark.lab

# Sends and receives as fast as it can, then says how that ended.
TRANSFER = """import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
print('open', flush=True)
try:
    while s.send(b'x' * 65536) if sys.argv[2] == '9' else s.recv(65536): pass
    print('end', flush=True)
except OSError as e:
    print(type(e).__name__, flush=True)"""

# A new connection every 20 ms; a line each.
PROBER = """import socket, time
while True:
    try:
        s = socket.create_connection(('ADDRESS', 8080), 30)
        s.sendall(b'x'); print('ok' if s.recv(1) else 'closed', flush=True); s.close()
    except OSError as e: print(type(e).__name__, flush=True)
    time.sleep(0.02)"""

DIAL = """import socket, sys
try:
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 30)
    s.sendall(b'x'); print('ok' if s.recv(1) == b'x' else 'closed')
except OSError as e: print(type(e).__name__)"""


def rule(name, address, *ports, **more):
    return {"id": name, "cidr": f"{address}/32", "ports": list(ports), "layer": "raw", **more}


ONE, TWO = rule("one", world.ECHO, 8080, 9, 19), rule("two", world.ECHO2, 8080)


def document(*rules):
    return json.dumps({"version": 1, "allow": list(rules)})


@pytest.fixture
def cells(cella, internet, restarting, tmp_path):
    """cells(rules…): a cell whose class starts a dead gate again."""
    with contextlib.ExitStack() as stack:
        def make(*rules):
            path = tmp_path / "policy.json"
            path.write_text(document(*rules))
            with cella.configured(classes=restarting):
                return stack.enter_context(cella.cell("--policy", path))
        yield make


def dial(cella, cell, address, port=8080):
    return cella("exec", cell, "--", "python3", "-c", DIAL, address, port).ok().text


def spawn(cella, cell, source, *words):
    process = cella.spawn("exec", cell, "--", "python3", "-c", source, *words, bufsize=0)
    return process, process.stdout.readline().decode().strip()


def kill_gate(cella, cell, restarts):
    os.kill(cella.gate(cell), signal.SIGKILL)
    return cella.wait_event(cell, {"kind": "net.gate", "state": "restarted", "restarts": restarts})


@pytest.mark.parametrize("port", [9, 19], ids=["sending", "receiving"])
@pytest.mark.parametrize("delay", [0, 0.05, 0.3])
def test_killed_in_a_transfer_and_started_again(cella, internet, cells, port, delay):
    cell = cells(ONE)
    transfer, word = spawn(cella, cell, TRANSFER, world.ECHO, port)
    assert word == "open"
    time.sleep(delay)
    old = cella.gate(cell)
    event = kill_gate(cella, cell, 1)
    assert transfer.communicate(timeout=20 * PATIENCE)[0].decode().strip() == "ConnectionResetError"
    assert (event["gen"], event["pid"]) == (1, cella.gate(cell)) and event["pid"] != old
    assert cella.wait_event(cell, {"kind": "net.gate", "state": "died"})["pid"] == old
    mark = internet.quiet()
    assert dial(cella, cell, world.ECHO2) == "ConnectionRefusedError"
    assert internet.received(mark) == 0
    assert dial(cella, cell, world.ECHO) == "ok"
    told = cella("exec", cell, "--", "cat", "/run/cella/denials").ok().text
    assert "broker_down" in {json.loads(line)["reason"] for line in told.splitlines()}
    assert cella.inspect(cell)["state"] == "running"


def test_nothing_passes_while_there_is_no_gate(cella, internet, cells):
    """The warden is stopped, so the gap is as long as the test wants; the same probe passes before and after."""
    cell = cells(ONE)
    prober, word = spawn(cella, cell, PROBER.replace("ADDRESS", world.ECHO))
    assert word == "ok"
    warden, gate = cella.warden(cell), cella.gate(cell)
    os.kill(warden, signal.SIGSTOP)
    try:
        os.kill(gate, signal.SIGKILL)
        wait_until(lambda: not _running(gate), 20, "the end of the gate")
        mark = internet.quiet()
        time.sleep(1)  # what the prober says is heard when the warden goes on
        assert internet.received(mark) == 0
    finally:
        os.kill(warden, signal.SIGCONT)
    cella.wait_event(cell, {"kind": "net.gate", "state": "restarted"})
    words = [_word(prober)]
    while words[-1] != "ok" or "ConnectionRefusedError" not in words:
        words.append(_word(prober))
    prober.kill()
    prober.communicate()
    assert set(words) <= {"ok", "ConnectionRefusedError", "ConnectionResetError"}
    refused = [i for i, w in enumerate(words) if w == "ConnectionRefusedError"]
    assert "ok" not in words[refused[0]:refused[-1]]


def _word(process):
    word = process.stdout.readline().decode().strip()
    assert word, "it ended"
    return word


def _running(pid):
    with open(f"/proc/{pid}/stat") as handle:
        return handle.read().rsplit(")", 1)[1].split()[0] not in "ZX"


def test_the_new_gate_has_the_policy_in_force(cella, internet, cells):
    """Not the one the cell was made with."""
    cell = cells(ONE, TWO)
    with Warden(cella.directory(cell)) as w:
        w.call("policy", document=document(TWO))
    assert kill_gate(cella, cell, 1)["gen"] == 2
    mark = internet.quiet()
    assert dial(cella, cell, world.ECHO) == "ConnectionRefusedError"
    assert internet.received(mark) == 0
    assert dial(cella, cell, world.ECHO2) == "ok"
    with Warden(cella.directory(cell)) as w:
        assert w.call("policy", document=document(ONE))["generation"] == 3
    assert dial(cella, cell, world.ECHO) == "ok"
    assert dial(cella, cell, world.ECHO2) == "ConnectionRefusedError"


def test_a_limit_does_not_fill_up_again(cella, internet, cells):
    cell = cells(rule("few", world.ECHO, 8080, limits={"tx_bytes": 2}))
    assert dial(cella, cell, world.ECHO) == "ok"
    kill_gate(cella, cell, 1)
    assert dial(cella, cell, world.ECHO) == "ok"
    kill_gate(cella, cell, 2)
    assert dial(cella, cell, world.ECHO) == "ConnectionResetError"


def _restarts(cella, chain):
    return max((e["restarts"] for e in cella.events(chain) if e["kind"] == "net.gate" and e["state"] == "restarted"), default=0)


def test_it_is_bounded(cella, internet, cells):
    """Three times a minute; a cell that can kill its gate ends with it."""
    cell = cells(ONE)
    chain = cella.state / "audit" / f"{cella.inspect(cell)['id']}.jsonl"
    began = time.monotonic()
    for number in (1, 2, 3):
        kill_gate(cella, cell, number)
        assert dial(cella, cell, world.ECHO) == "ok"
    for number in (4, 5, 6, 7):  # where all that takes a minute, what follows does not
        os.kill(cella.gate(cell), signal.SIGKILL)
        wait_until(lambda: _restarts(cella, chain) == number or cella.ended(cell), 20, "the end of the cell")
        if _restarts(cella, chain) < number:
            break
    assert number == 4 or time.monotonic() - began > 60
    assert "3 times within a minute" in cella.wait_event(chain, {"kind": "cell.end", "reason": "gate"})["message"]


def test_without_a_word_of_the_class_the_cell_ends(cella, internet, tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(document(ONE))
    with cella.cell("--policy", path) as cell:
        chain = cella.state / "audit" / f"{cella.inspect(cell)['id']}.jsonl"
        transfer, _ = spawn(cella, cell, TRANSFER, world.ECHO, 19)
        os.kill(cella.gate(cell), signal.SIGKILL)
        wait_until(lambda: cella.ended(cell), 20, "the end of the cell")
        transfer.communicate(timeout=20 * PATIENCE)
        cella.wait_event(chain, {"kind": "net.gate", "state": "died"})
        assert cella.wait_event(chain, {"kind": "cell.end"})["reason"] == "gate"
        assert not [e for e in cella.events(chain) if e["kind"] == "net.gate" and e["state"] == "restarted"]
