# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What backends that boot a machine need, made once per build tree and kept: the image `base` and a guest kernel.

It is made before the run gives up its network, by the program under test. The lab machine, which has no network and sees
the host's files, finds it there.
"""
import fcntl
import json
import os
import pathlib
import subprocess
import sys

MACHINES = {"fullvm", "microvm"}  # backends whose root is a disk
PACKAGES = "python3,ca-certificates,curl,openssl,iproute2,procps,python3-requests"


def cache(build):
    return pathlib.Path(os.environ.get("CELLA_TEST_CACHE", pathlib.Path(build) / "test-cache")).resolve()


def _cella(build, directory, *words):
    env = dict(os.environ, CELLA_STATE_DIR=str(directory / "state"))
    env.pop("CELLA_CONFIG", None)
    result = subprocess.run([str(build / "cella"), "image", *words], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    return None if result.returncode == 0 else f"cella image {' '.join(words)}: {result.stdout.decode(errors='replace').strip()}"


def prepare(build):
    """Fills the cache; gives what stood in the way, or None. The tests that need it say it."""
    directory = cache(build)
    mark = directory / f"ready-{PACKAGES}"
    if mark.exists() and not _stale(build, directory):
        return None
    if os.environ.get("LAB_VM"):
        return f"{directory} does not hold {mark.name}; run the integration tests on the host first"
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:  # shards begin at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists():
            return _cella(build, directory, "kernel", "fetch") if _stale(build, directory) else None
        return _fill(build, directory, mark)


def _stale(build, directory):
    """The kernel was fetched by a build that looked for other modules."""
    env = dict(os.environ, CELLA_STATE_DIR=str(directory / "state"))
    env.pop("CELLA_CONFIG", None)
    out = subprocess.run([str(build / "cella"), "image", "kernel", "ls", "--json"], env=env, stdout=subprocess.PIPE).stdout
    return not any(row["default"] and not row["stale"] for row in json.loads(out or "[]"))


def _fill(build, directory, mark):
    trouble = _cella(build, directory, "kernel", "fetch") or \
        _cella(build, directory, "build", "base", "--packages", PACKAGES) or _cella(build, directory, "disk", "base")
    if not trouble:
        mark.touch()
    return trouble


def prepare_kernel(build):
    """The kernel alone, for unit tests that boot a machine."""
    directory = cache(build)
    (directory / "state").mkdir(parents=True, exist_ok=True)
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _cella(build, directory, "kernel", "fetch") if _stale(build, directory) else None


def lend(build, state):
    """Puts the cache in the place of the images and kernels of a state directory."""
    for name in ("images", "kernels"):
        pathlib.Path(state).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(state) / name).symlink_to(cache(build) / "state" / name)


if __name__ == "__main__":  # guests.py BUILD kernel|all; for tools/run-tests
    trouble = (prepare_kernel if sys.argv[2] == "kernel" else prepare)(pathlib.Path(sys.argv[1]).resolve())
    sys.exit(trouble)
