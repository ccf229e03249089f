# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""A pseudo-terminal: job control of a shell in it; the parent outlives its hang-up."""
import os
import pty

JOBS = """exec 2>/dev/null; set -m; sleep 0.1 & fg; (kill -STOP $BASHPID; echo resumed) & sleep 0.3; jobs; fg; cat & sleep 0.3; jobs
kill -KILL %%; sleep 0.3; tty >/dev/null; echo "terminal $?"; stty size; [ -t 0 ] && echo over"""

master, slave = os.openpty()
print("is a terminal", os.isatty(slave), flush=True)
os.close(slave)
os.close(master)
print("status", pty.spawn(["bash", "-c", JOBS]))
