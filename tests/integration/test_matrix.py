# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""cella reach gives the same matrix on every backend: the wall is outside, whatever the cell is made of."""
import json

import pytest

from harness import guests
from harness.cella import POLICIES


def matrix(report):
    """What is asked and what comes of it, without what differs from one cell to the next: its own addresses, and ports of
    the host that a measurement opens for itself."""
    rows = [r for r in report["rows"] if r["group"] != "sockets"]
    own = sorted({r["address"] for r in rows if r["group"] in ("gateway", "neighbours")})

    def place(row):
        if row["group"] == "host":
            return "the host's own", None
        return f"own {own.index(row['address'])}" if row["address"] in own else row["address"], row["port"]
    return sorted(json.dumps([r["id"], r["group"], r["kind"], place(r), r["name"], r["options"], r["rule"], r["why"], r["expected"],
                              r["result"]]) for r in rows)


@pytest.mark.parametrize("policy", ["deny", pytest.param("wide.json", marks=pytest.mark.kvm)])
def test_the_matrix_is_that_of_a_container(cella, policy):
    """But for kinds of sockets of a kernel that is not the host's: those are its own affair, and not asked for."""
    named = {name: {"floor": "process", "backends": [name], "image": "base" if name in guests.MACHINES else "host"}
             for name in {"container", cella.backend}}
    flag = POLICIES / policy if policy.endswith(".json") else policy
    with cella.configured(classes=named):
        reach = lambda name: cella("reach", "--json", "--class", name, "--policy", flag, timeout=240).ok().json()
        container, here = reach("container"), reach(cella.backend)
    assert here["verdict"] == container["verdict"] == "pass"
    assert matrix(here) == matrix(container) and len(matrix(here)) > 100
    sockets = [r for r in here["rows"] if r["group"] == "sockets"]
    assert bool(sockets) == (cella.backend not in guests.MACHINES)
