# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
"""results: what the stages of run-tests found, read from the reports of pytest and meson, and the end of the output.

Whoever keeps only the end of a run's output must be able to tell from it what failed and what the failed tests said.
So the output ends, in this order, with: the skips by their reason, a line for each stage, of each failed test what it
said, the failed tests with a line each, the closing line.
"""
import os
import re
import xml.etree.ElementTree as ElementTree

SAID_LINES, ALL_SAID_LINES, NAMED = 25, 60, 12  # of one failed test; of all of them; failed tests with a line at the end
WIDTH = 240  # of a line that is shown
SAID = "what failed:"
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$", re.M)
CMOCKA = re.compile(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] (\w+)\s*$", re.M)
CMOCKA_CHATTER = re.compile(r"^\[(\s+(OK|RUN)\s+|={10}|\s+PASSED\s+)\]")
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Result:
    """What a stage found: a count of passed, the names of failed and what they said, (id, reason) of skipped."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.said = 0, [], [], {}
        self.inner_skips = 0  # skips that an inner run has already judged

    def check(self, name, ok, said=""):
        if ok:
            self.passed += 1
        elif name in self.said:  # a test that failed, and then left something behind, is one
            self.said[name] += "\n" + said
        else:
            self.failed.append(name)
            self.said[name] = said
        return ok

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.said.update(other.said)
        self.inner_skips += other.inner_skips
        return self


# ---- reports ---------------------------------------------------------------------------------------

def read_pytest(result, report, status):
    if not os.path.exists(report):
        result.check(f"pytest exited {status} without a report", False)
        return
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}"
        skip = case.find("skipped")
        if skip is not None:
            result.skipped.append((name, skip.get("message", "")))
        else:
            said = [part.text or part.get("message", "") for kind in ("failure", "error") for part in case.findall(kind)]
            result.check(name, not said, "\n".join(said))
    if status not in (0, 1) or (status == 1 and not result.failed):
        result.check(f"pytest exited {status}", False)


def read_meson(result, test):
    """One meson test: its cmocka cases when it printed some, else one."""
    name = test["name"].split("/")[-1].strip().replace(" ", "")
    out, err = test.get("stdout", ""), test.get("stderr", "")
    cases = list(dict.fromkeys(CMOCKA.findall(out + "\n" + err)))
    bad = [c for verdict, c in cases if verdict == "FAILED"]
    if test["result"] == "SKIP":
        lines = out.strip().splitlines()
        result.skipped.append((name, lines[-1] if lines else "no reason given"))
        return
    result.skipped += [(f"{name}:{c}", "cmocka skip") for verdict, c in cases if verdict == "SKIPPED"]
    good = [c for verdict, c in cases if verdict == "OK" and c not in bad]
    if test["result"] in ("OK", "EXPECTEDFAIL"):
        result.passed += len(good) or (0 if cases else 1)
        return
    result.passed += len(good)
    said = "\n".join(line for line in (out + "\n" + err).splitlines() if line and not CMOCKA_CHATTER.match(line))
    for failed in [f"{name}:{c}" for c in bad] or [f"{name} ({test['result']})"]:
        result.check(failed, False, said)


def read_inner(output, status, what):
    """What another run of this program, or tests/mutants/run, said at the end of its output."""
    result, found = Result(), CLOSING.findall(output)
    if not found:
        result.check(f"{what} … exited {status} without a closing line", False, output)
        return result
    passed, failed, skipped = map(int, found[-1])
    result.passed, result.inner_skips = passed, skipped
    before, marker, details = output.rpartition(SAID + "\n")
    names = list(dict.fromkeys(re.findall(r"^\s*failed: (.*)$", before if marker else details, re.M)))
    last = None
    for line in details.splitlines() if marker else ():
        new, more = re.match(r"  failed: [\w-]+: (.*)$", line), re.match(r"  \| (.*)$", line)
        if more and last:
            result.said[last] = result.said.get(last, "") + more.group(1) + "\n"
        else:
            last = new.group(1) if new else None
    names = names[:failed] + [f"one more of {what}" for _ in range(failed - len(names))]
    result.failed = names
    if status != 0 and not failed:
        result.check(f"{what} exited {status}", False, output)
    return result


# ---- the end of the output -------------------------------------------------------------------------

def short(line):
    line = ESCAPES.sub("", line).rstrip()
    return line if len(line) <= WIDTH else line[:WIDTH - 1] + "…"


def skip_lines(skips):
    """(stage, test, reason) folded: a line for each reason, with how many, where, and the tests without parameters."""
    reasons = {}
    for stage, test, why in skips:
        count, stages, tests = reasons.setdefault(why, [[0], {}, {}])
        count[0] += 1
        stages[stage] = tests[test.partition("[")[0]] = True
    return [f"  skipped: {count[0]} × {why} ({', '.join(stages)}): {', '.join(tests)}" for why, (count, stages, tests) in reasons.items()]


def said_lines(text, most):
    """The end of what a test said; the end is where the assertion is."""
    lines = [short(line) for line in text.strip("\n").splitlines()]
    return lines[-most:] if most > 0 else []


def gist(text):
    """The one line that says most: pytest's or cmocka's error, a sanitizer's or else the last one."""
    lines = [short(line) for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"E {2,}\S|\[ +ERROR +\]|.*(ERROR: |runtime error: |error: )", line)]
    return re.sub(r"^(E +|\[ +ERROR +\] --- )", "", (telling or lines[-1:] or [""])[0].strip())


def failure_lines(failures):
    """Of (stage, name, said): what each said, all of it bounded, and then each with a line, which is what one looks for."""
    lines, left = [], ALL_SAID_LINES
    for number, (stage, name, said) in enumerate(failures):
        shown = said_lines(said, min(SAID_LINES, left // min(3, len(failures) - number) - 1))
        if shown:
            lines += [f"  failed: {stage}: {name}"] + ["  | " + line for line in shown]
            left -= len(shown) + 1
    lines += [f"  failed: {stage}: {short(name)}" + (f": {gist(said)}" if said else "") for stage, name, said in failures[:NAMED]]
    return lines + ([f"  and {len(failures) - NAMED} more"] if len(failures) > NAMED else [])


def end_lines(stages):
    """The end of the output of a run. Of a stage: name, line, counts, skips and failures as the functions above take them."""
    lines = skip_lines([skip for stage in stages for skip in stage.skips])
    failures = [failure for stage in stages for failure in stage.failures]
    if failures:
        lines += ([stage.line for stage in stages] if len(stages) > 1 else []) + [SAID] + failure_lines(failures)
    return lines + ["{} passed, {} failed, {} skipped".format(*map(sum, zip(*(stage.counts for stage in stages))))]
