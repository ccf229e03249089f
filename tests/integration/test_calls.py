# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""System calls one by one: the programs of differential/ print what each gave, and a cell must print what the host does.
Only differences count; those that are accepted are in differential/differences, with the reason."""
import os
import pathlib
import re
import subprocess

import pytest

from harness import PATIENCE

PROGRAMS = pathlib.Path(__file__).parent / "differential"
SECONDS = 60 * PATIENCE
# A command of a cell has no capability, and gets none.
AS_IN_A_CELL = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--ambient-caps=-all"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A program: static, so that it asks nothing of the image."""
    at = tmp_path_factory.mktemp("calls")

    def build(name):
        subprocess.run(["musl-gcc", "-static", "-O1", "-D_GNU_SOURCE", "-idirafter", "/usr/include", "-idirafter",
                        "/usr/include/x86_64-linux-gnu", "-o", at / name, PROGRAMS / f"{name}.c"], check=True)
        return at / name
    return build


def accepted(backend, name):
    rows = (line.split(None, 3) for line in (PROGRAMS / "differences").read_text().splitlines() if line.strip() and line[0] != "#")
    return [re.compile(row[2].replace("_", " ")) for row in rows if row[0] == backend and row[1] == name]


def judged(output, patterns):
    return [line for line in output.decode().splitlines() if not any(p.fullmatch(line) for p in patterns)]


@pytest.mark.parametrize("name", sorted(p.stem for p in PROGRAMS.glob("*.c")))
def test_calls_give_the_same(cella, built, name):
    if cella.backend != "gvisor-like":
        pytest.skip("judges the kernel of gvisor-like by the host's")
    program = built(name)
    natively = subprocess.run([*AS_IN_A_CELL, program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS,
                              preexec_fn=lambda: os.setpriority(os.PRIO_PROCESS, 0, 0))  # however the tests themselves are run
    with cella.cell() as cell:
        cella("cp", program, f"{cell}:/tmp/{name}").ok()
        result = cella("exec", cell, "--", f"/tmp/{name}", timeout=SECONDS)
    patterns = accepted(cella.backend, name)
    assert len(judged(natively.stdout, patterns)) >= 5
    assert judged(result.out, patterns) == judged(natively.stdout, patterns)
    assert result.status == natively.returncode == 0
