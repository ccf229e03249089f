# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""Cells of the test enforcer (plugins/trust-enforcer.c), which does on demand what a real one does on its own."""
import contextlib

from .warden import Warden


@contextlib.contextmanager
def enforced(cella, *flags, policy="none", secrets=(), class_secrets=None, **options):
    """A cell; gives its name and a call into its enforcer, whose `warden` is the connection."""
    plugin = cella.build / "tests/integration/plugins/cella-test-trust-enforcer.so"
    changes = {}
    if class_secrets is not None:
        changes["classes"] = {name: {**c, "secrets": class_secrets} for name, c in cella.config()["classes"].items()}
    with cella.configured(**changes, plugins=[{"path": str(plugin), "config": options}], secrets=list(secrets)):
        context = cella.cell("--policy", policy, *flags)
        cell = context.__enter__()  # from here on the config is the tests' usual one again
    try:
        with Warden(cella.directory(cell)) as warden:
            def call(method, **args):
                return warden.call("call", method=f"trust-enforcer.{method}", args=args)["result"]
            call.warden = warden
            yield cell, call
    finally:
        context.__exit__(None, None, None)
