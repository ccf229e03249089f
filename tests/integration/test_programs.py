# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Whole programs, on the host and in a cell: only differences count, and each that is allowed stands in programs/differences."""
import difflib
import pathlib
import re
import subprocess

import pytest

from harness import PATIENCE
from harness.cella import MACHINES

PROGRAMS = pathlib.Path(__file__).parent / "programs"
INTERPRETERS = {".sh": "sh", ".py": "/usr/bin/python3", ".js": "node", ".pl": "perl"}
SECONDS = 300 * PATIENCE


def programs():
    return sorted(p.name for p in PROGRAMS.iterdir() if p.suffix in INTERPRETERS)


def allowed(backend, program):
    rows = (line.split(None, 3) for line in (PROGRAMS / "differences").read_text().splitlines() if line.strip() and line[0] != "#")
    return [re.compile(row[2]) for row in rows if row[0] == backend and row[1] == program]


def judged(output, patterns):
    return [line for line in output.decode("utf-8", "replace").splitlines() if not any(p.fullmatch(line) for p in patterns)]


@pytest.fixture(scope="module")
def natively(tmp_path_factory):
    """What the host's kernel makes of a program: (status, output); each once."""
    seen = {}

    def get(name):
        if name not in seen:
            at = tmp_path_factory.mktemp("native")
            done = subprocess.run(["sh", "-c", f"exec {INTERPRETERS[pathlib.Path(name).suffix]} {PROGRAMS / name} 2>&1"], cwd=at,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS,
                                  env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"})
            seen[name] = done.returncode, done.stdout
        return seen[name]
    return get


@pytest.mark.parametrize("name", programs())
def test_a_program_says_the_same(cella, natively, name):
    if cella.backend in MACHINES:
        pytest.skip("the image base has not all of these programs")
    status, output = natively(name)
    command = f"mkdir /tmp/w && cd /tmp/w && exec {INTERPRETERS[pathlib.Path(name).suffix]} /tmp/{name} 2>&1"
    with cella.cell("--memory", "2G", "--disk", "1G", "--pids", "512") as cell:
        cella("cp", PROGRAMS / name, f"{cell}:/tmp/{name}").ok()
        result = cella("exec", cell, "--", "sh", "-c", command, timeout=SECONDS)
    patterns = allowed(cella.backend, name)
    here, there = judged(output, patterns), judged(result.out, patterns)
    assert here == there, "\n".join(difflib.unified_diff(here, there, "on the host", "in the cell", lineterm=""))
    assert result.status == status
