# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A second try for a test whose guest's kernel panicked, in the lab only.

There a guest's processor is emulated by an emulator, which now and then breaks a kernel, ours or Debian's, in the middle of its
start. Anywhere else, and a second time, a panic is a failure. Each second try is printed, so that nobody takes it for a pass.

It is rare: of 57 starts of Debian's kernel by cella-vmm in two machines of the lab, one after another (96 MiB, every warning on
the console), none panicked, nor of 4 by QEMU's microvm on the same KVM. What the emulation is known to get wrong, whoever
is the monitor: the guest's XSETBV does not reach KVM (cella-vmm shows no XSAVE there), and VMRUN does not load the shadow of
STI, so that an interrupt may come between STI and HLT. What cella-vmm gives a processor there is no more than QEMU's
`-cpu host` gives: no asynchronous page faults, no state that KVM would not save.
"""
import os

from _pytest.runner import runtestprotocol

PANIC = "Kernel panic - not syncing"


def _forget(item):
    """What is kept of fixtures that failed would fail the next try as well."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            result = getattr(definition, "cached_result", None)
            if result is not None and result[2] is not None:
                definition.cached_result = None
    item._initrequest()


def protocol(item, nextitem):
    """For pytest_runtest_protocol: None, which leaves it to pytest, or True."""
    if "LAB_VM" not in os.environ:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(r.failed and PANIC in r.longreprtext for r in reports):
        print(f"\n{item.nodeid}: a guest's kernel panicked on the lab's emulated processor; once more", flush=True)
        _forget(item)
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
