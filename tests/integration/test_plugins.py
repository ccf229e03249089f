# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""plugin ls and inspect, and plugins that lie: refused or contained, with a message that names them."""
import pytest

pytestmark = pytest.mark.quick


def _plugin(cella, name):
    found = sorted(cella.build.rglob(name))
    if not found:
        raise AssertionError(f"no {name} below {cella.build}; built: {[p.name for p in cella.build.rglob('*.so')]}")
    return found[0]


def test_ls_lists_the_plugins_in_the_tree(cella):
    text = cella("plugin", "ls").ok().text
    for name in ("container", "egress-nft", "audit-jsonl"):
        assert name in text
    assert {"container", "egress-nft", "audit-jsonl"} <= {row["name"] for row in cella("plugin", "ls", "--json").ok().json()}


def test_inspect_shows_the_contract(cella):
    text = cella("plugin", "inspect", _plugin(cella, "cella-backend-container.so")).ok().text
    for word in ("backend", "container", "create", "pause", "snapshot", "container.limit-memory"):
        assert word in text
    assert cella("plugin", "inspect", _plugin(cella, "cella-backend-container.so")).ok().json()


def test_inspect_of_what_is_no_plugin(cella, tmp_path):
    (tmp_path / "text.so").write_text("not an ELF file")
    cella("plugin", "inspect", tmp_path / "text.so").one_line(125, "text.so")
    cella("plugin", "inspect", "/no/such.so").one_line(125, "/no/such.so", "No such file")


def _hostile(cella):
    return sorted(p for p in cella.build.rglob("*.so") if "hostile" in str(p.parent) or "hostile" in p.name)


REFUSED_AT_LOAD = ["short", "future-major", "wrong-kind", "reserved", "missing-op"]
CONTAINED = ["hang", "crash", "stray", "leak", "lying"]


def _find(cella, word):
    found = [p for p in _hostile(cella) if word in p.name.replace("_", "-")]
    assert found, f"no hostile plugin *{word}*: {[p.name for p in _hostile(cella)]}"
    return found


@pytest.mark.parametrize("word", REFUSED_AT_LOAD)
def test_refused_at_load(cella, word):
    for path in _find(cella, word):
        with cella.configured(plugins=[{"path": str(path)}]):
            cella.run("--", "true").one_line(125, path.name)


@pytest.mark.parametrize("word", CONTAINED)
def test_contained_as_a_backend(cella, word):
    """Chosen as the backend of a cell, it costs that cell and nothing else."""
    for path in _find(cella, word):
        shown = cella("plugin", "inspect", path)
        name = shown.json().get("name") if shown.status == 0 else word
        classes = {"default": {"floor": "process", "backends": [name], "policy": "deny"}}
        with cella.configured(plugins=[{"path": str(path)}], classes=classes):
            result = cella("run", "--backend", name, "--", "true", timeout=90)
        assert result.status == 125 and result.out == b"", result
        assert path.name in result.errors or name in result.errors, result
    assert cella.run("--", "echo", "fine").ok().text == "fine"


def test_null_backend_is_a_plugin_like_any_other(cella):
    paths = sorted(p for p in cella.build.rglob("*.so") if "null" in p.name)
    assert len(paths) >= 2, paths
    for path in paths:
        assert "null" in cella("plugin", "inspect", path).ok().text


def test_doctor_says_what_this_host_can_do(cella):
    text = cella("doctor").text
    for word in ("container", "limit.memory", "egress-nft"):
        assert word in text
