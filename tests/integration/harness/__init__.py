# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""What the integration tests share: the program under test, a private internet, the residue scan."""
import os

EMULATED = "LAB_VM" in os.environ  # set by tests/lab/lab-vm
# How many times longer than on a processor a test waits for what must happen, before it calls it absent; and by what
# part less data it moves where only the way matters.
PATIENCE = 6 if EMULATED else 1
# The same for what is waited for in a loop. tests/mutants/run sets the variable: there it is absent most of the time.
WAITING = PATIENCE / 3 if "CELLA_TEST_HURRY" in os.environ else PATIENCE
BULK = 64 if EMULATED else 1
