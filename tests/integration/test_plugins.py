# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""plugin ls and inspect, and plugins that lie: refused or contained, with a message that names them."""
import pytest

SLOW = {"hang-create"}  # waits for the watchdog


def _plugin(cella, name):
    found = sorted(cella.build.rglob(name))
    if not found:
        raise AssertionError(f"no {name} below {cella.build}; built: {[p.name for p in cella.build.rglob('*.so')]}")
    return found[0]


@pytest.mark.quick
def test_ls_lists_the_plugins_in_the_tree(cella):
    text = cella("plugin", "ls").ok().text
    for name in ("container", "egress-nft", "audit-jsonl"):
        assert name in text
    assert {"container", "egress-nft", "audit-jsonl"} <= {row["name"] for row in cella("plugin", "ls", "--json").ok().json()}


@pytest.mark.quick
def test_inspect_shows_the_contract(cella):
    text = cella("plugin", "inspect", _plugin(cella, "cella-backend-container.so")).ok().text
    for word in ("backend", "container", "create", "pause", "snapshot", "container.limit-memory"):
        assert word in text
    assert cella("plugin", "inspect", "--json", _plugin(cella, "cella-backend-container.so")).ok().json()["name"] == "container"


@pytest.mark.quick
def test_inspect_of_what_is_no_plugin(cella, tmp_path):
    (tmp_path / "text.so").write_text("not an ELF file")
    cella("plugin", "inspect", tmp_path / "text.so").one_line(125, "text.so")
    cella("plugin", "inspect", "/no/such.so").one_line(125, "/no/such.so", "No such file")


def _hostile(cella, word):
    path = cella.build / "tests" / "hostile" / f"hostile-{word}.so"
    assert path.exists(), path
    return path


REFUSED_AT_LOAD = ["short-size", "huge-size", "future-major", "future-minor", "bad-magic", "unknown-kind", "no-note",
                   "table-major", "backend-as-sink", "table-flags", "null-table", "missing-ops", "bad-name",
                   "method-reserved", "method-signature", "option-default", "option-stride", "crash-load"]
CONTAINED = ["lying-capability", "lying-limit", "unknown-answer", "unknown-strength", "probe-reserved", "positive-errno",
             "no-instance", "bad-descriptors", "hang-create", "crash-create", "deep-create", "abort-create",
             "forged-message"]


@pytest.mark.quick
@pytest.mark.parametrize("word", REFUSED_AT_LOAD)
def test_refused_at_load(cella, word):
    path = _hostile(cella, word)
    with cella.configured(plugins=[{"path": str(path)}]):
        cella.run("--", "true").one_line(125, path.name)
        cella("gc").ok()  # of the warden that died with the plugin


def _run_on(cella, word, **options):
    """A cell whose only allowed backend is the hostile plugin."""
    classes = {"default": {"floor": "process", "backends": [word], "policy": "none", "best_effort": True}}
    with cella.configured(plugins=[{"path": str(_hostile(cella, word))}], classes=classes):
        return cella("run", "--backend", word, "--", "true", timeout=90, **options)


@pytest.mark.parametrize("word", [w if w in SLOW else pytest.param(w, marks=pytest.mark.quick) for w in CONTAINED])
def test_contained_as_a_backend(cella, word):
    """Chosen as the backend of a cell, it costs that cell and nothing else."""
    result = _run_on(cella, word).one_line(125, word)
    assert result.out == b"" and b"\x1b" not in result.err
    cella("gc").ok()  # of the warden that died with the plugin
    assert cella.run("--", "echo", "fine").ok().text == "fine"


@pytest.mark.quick
@pytest.mark.parametrize("word", ["stray-output", "leaked-descriptor"])
def test_sloppy_backends_harm_nobody(cella, word):
    """What they print does not become the command's output; what they leak does not outlive the warden."""
    result = _run_on(cella, word)
    assert result.out == b"" and b"\x1b" not in result.err, result
    assert cella.run("--", "echo", "fine").ok().text == "fine"


@pytest.mark.quick
@pytest.mark.parametrize("word", ["unknown-verdict", "endless-reason", "failing-decider"])
def test_decider_that_lies_denies(cella, word):
    with cella.configured(plugins=[{"path": str(_hostile(cella, word))}], deciders=[word]):
        cella.run("--", "true").one_line(125, word)


@pytest.mark.quick
def test_null_backend_is_a_plugin_like_any_other(cella):
    paths = sorted(p for p in (cella.build / "plugins").rglob("*.so") if "null" in p.name)
    assert len(paths) >= 2, paths
    for path in paths:
        assert "null" in cella("plugin", "inspect", path).ok().text


@pytest.mark.quick
def test_doctor_says_what_this_host_can_do(cella):
    text = cella("doctor").text
    for word in ("container", "limit.memory", "egress-nft"):
        assert word in text
