# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Fixtures of the integration tests.

The run moves into pid, mount and network namespaces of its own first, with an empty /tmp, /run and /dev/shm: what a
test leaves behind is then seen, whatever else the machine does, and nothing survives the run.

    CELLA_TEST_BACKENDS=container,microvm   run everything once per backend (default: container)
    CELLA_TEST_SHARD=I/N                    only the I-th of N parts (default: 0/1); which test is in which is always the same
    CELLA_TEST_STRENGTH=vm                  cells of another strength fail every test
    CELLA_BUILD=DIR                         the build directory (default: build)
    CELLA_TEST_CACHE=DIR                    image and kernel for guests (default: test-cache in the build directory)
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from harness import again  # noqa: E402
from harness import guests  # noqa: E402
from harness import internet as internet_module  # noqa: E402
from harness import residue  # noqa: E402
from harness.cella import ROOT, Cella  # noqa: E402

BACKENDS = os.environ.get("CELLA_TEST_BACKENDS", "container").split(",")
BUILD = pathlib.Path(os.environ.get("CELLA_BUILD", ROOT / "build")).resolve()
STRENGTH = os.environ.get("CELLA_TEST_STRENGTH")
_INSIDE = "CELLA_TEST_INSIDE"
_SHARED = {"family"}  # fixtures that make cells for all tests of a file
# A checkout that lies below one of the emptied directories is bound to its place again, through a descriptor.
_ENTER = """mount --make-rprivate / && exec 8<"$1" 9<"$2" && mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs -o mode=755 tmpfs /run &&
mount -t tmpfs -o mode=1777 tmpfs /dev/shm &&
for fd in 8 9; do
    test -d "$1" || { mkdir -p "$1" && mount --no-canonicalize --bind /proc/self/fd/$fd "$1"; } || exit 125
    shift
done
exec 8<&- 9<&-
cd "$1" && shift && mkdir -p /run/netns && ip link set lo up || exit 125
"$@"
status=$?
exit $status"""


def _wants_guests(config):
    paths = [arg for arg in config.invocation_params.args if "test_" in str(arg)]
    whole = not paths and config.option.markexpr != "quick"
    return guests.MACHINES.intersection(BACKENDS) or whole or any("test_image" in str(arg) for arg in paths)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Starts the same pytest again inside the namespaces, and passes its status on."""
    if os.environ.get(_INSIDE) or config.option.collectonly or config.option.help or os.getuid() != 0:
        return None
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    command = ["unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--mount-proc", "--kill-child",
               "sh", "-c", _ENTER, "sh", str(ROOT), str(BUILD), os.getcwd(), sys.executable, "-m", "pytest", *config.invocation_params.args]
    trouble = guests.prepare(BUILD) if _wants_guests(config) else "this run was not to need it"
    return subprocess.call(command, env=dict(os.environ, **{_INSIDE: trouble or "1"}))


def _shared(item):
    """What expensive thing this test shares with others of its file: they run in one shard, so that it is made once."""
    mark = item.get_closest_marker("shares")
    what = mark.args if mark else tuple(_SHARED.intersection(item.fixturenames))
    return (item.path, item.callspec.params.get("backend") if hasattr(item, "callspec") else None, *what) if what else item.nodeid


def _part(items, number, shards):
    """The tests of one shard: the costly groups first, each to the shard that has least until then."""
    groups, load, mine = {}, [0.0] * shards, set()
    for item in items:
        groups.setdefault(_shared(item), []).append(item)
    weights = {key: 1 if isinstance(key, str) else 2 + 0.3 * len(group) for key, group in groups.items()}  # a cell is 1
    for key in sorted(groups, key=lambda key: -weights[key]):
        least = load.index(min(load))
        load[least] += weights[key]
        if least == number:
            mine.update(groups[key])
    return [item for item in items if item in mine]


@pytest.hookimpl(trylast=True)  # of what the marks chose
def pytest_collection_modifyitems(config, items):
    number, shards = map(int, os.environ.get("CELLA_TEST_SHARD", "0/1").split("/"))
    items[:] = _part(items, number, shards)
    if os.getuid() != 0:
        for item in items:
            item.add_marker(pytest.mark.skip(reason="cells of this suite need root"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    return again.protocol(item, nextitem)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    setattr(item, "report_" + report.when, report)


@pytest.fixture(scope="session")
def internet():
    net = internet_module.Internet(str(os.getpid())).start()
    yield net
    net.close()


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request):
    return request.param


@pytest.fixture(scope="session")
def guest_cache():
    """The state directory that holds the image `base` and a guest kernel, to be copied or lent and not worked in."""
    assert os.environ[_INSIDE] == "1", f"image and kernel for guests: {os.environ[_INSIDE]}"
    return guests.cache(BUILD) / "state"


@pytest.fixture(scope="session")
def restarting(backend):
    """Classes of which the default starts a dead gate again."""
    default = {"floor": "process", "backends": [backend], "policy": "deny", "on_gate_death": "restart"}
    return {"default": dict(default, image="base") if backend in guests.MACHINES else default}


@pytest.fixture(scope="session")
def session_cella(backend, internet, tmp_path_factory, request):
    """One state directory per backend, in memory, warmed by a first run (key pair, directories)."""
    tmp_path_factory.getbasetemp()  # now, so that it is no residue of the first test that uses it
    work = pathlib.Path(tempfile.mkdtemp(prefix="cella-it-", dir="/dev/shm"))
    program = Cella(BUILD, work, backend, internet.uplink)
    if backend in guests.MACHINES:
        request.getfixturevalue("guest_cache")
        guests.lend(BUILD, program.state)
    with program.new_chain() as chains:
        program.make_template()
        if not program.template:
            program.run("--", "true").ok()
    if STRENGTH:
        shown = [event["strength"] for event in program.events(chains[0]) if "strength" in event]
        assert shown and set(shown) == {STRENGTH}, f"the cells here are of strength {shown}, not {STRENGTH}"
    yield program
    shutil.rmtree(work)


@pytest.fixture(scope="module")
def module_cells(session_cella):
    """For cells that several tests of a file share: module_cells(flags…) gives a started cell's name."""
    made = {}

    def get(*flags):
        if flags not in made:
            before = residue.snapshot(session_cella.state)
            context = session_cella.copy(*flags)
            made[flags] = (context, context.__enter__())
            session_cella.baseline |= residue.snapshot(session_cella.state) - before  # no residue of the present test
        return made[flags][1]

    yield get
    for context, _ in made.values():
        context.__exit__(None, None, None)


@pytest.fixture
def cella(session_cella, request):
    """The program under test. When the test is over, nothing it made may be left."""
    session_cella.baseline = residue.snapshot(session_cella.state)
    yield session_cella
    before = session_cella.baseline
    failed = not getattr(request.node, "report_call", None) or request.node.report_call.failed
    extra = residue.left_behind(before, session_cella.state)
    left = session_cella("gc", "--check")
    for cell in session_cella.cells():
        if f"file {session_cella.state}/cells/{cell}" not in before:
            session_cella("rm", "--force", cell)
    if failed or extra or left.out or left.status:
        session_cella("gc")
    if not failed:
        assert not extra, "left behind:\n" + "\n".join(extra)
        assert left.status == 0 and not left.out, f"cella gc --check: {left!r}"
