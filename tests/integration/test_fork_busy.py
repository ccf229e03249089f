# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Copies of a cell that is in the middle of telling its host something."""
import pytest

pytestmark = pytest.mark.kvm


@pytest.fixture(autouse=True)
def able(session_cella):
    if session_cella.capability("snapshot", unsaid="none") == "none":
        pytest.skip("the backend says it cannot copy a cell")


@pytest.mark.parametrize("command", [["yes"], ["sleep", "1000"]], ids=["flood", "just-started"])
def test_what_the_parent_was_sending_is_not_the_childs(cella, command):
    parent, kids = "busy", ["busy-kid-1", "busy-kid-2"]
    cella.run("-d", "--name", parent, "--", *command).ok()
    try:
        assert cella("fork", parent, "-n", "2", "--name", "busy-kid", timeout=120).ok().text.split() == kids
        for cell in [*kids, parent]:
            assert cella("exec", cell, "--", "echo", "here").ok().text == "here"
    finally:
        for cell in [*kids, parent]:
            cella("rm", "--force", cell)
