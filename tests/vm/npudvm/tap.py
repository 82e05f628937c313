# SPDX-License-Identifier: Apache-2.0
"""Counts test results in TAP (testanything.org, version 13) and KTAP (Documentation/dev-tools/ktap.rst), line by line."""
import re

RESULT = re.compile(r"^(?P<indent> *)(?P<not>not )?ok\b *(?P<number>\d+)? *-? *(?P<name>[^#]*)(?:# *(?P<directive>\w+))?")
PLAN = re.compile(r"^(?P<indent> *)1\.\.(?P<count>\d+)(?: *# *(?P<directive>skip))?", re.I)
BAIL = re.compile(r"^ *Bail out!(.*)")
KERNEL_TIME = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")


class Tap:
    """Feed it lines; then read passed, failed, skipped, problems. Only leaves are counted: a line that sums up the more indented
    lines before it counts only if it says "not ok" although none of them did. TODO tests that fail are no failures."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.problems = []
        self.seen = False
        self._levels = {}  # indent → [planned or None, seen results, failed leaves below since the last result there]

    def line(self, line):
        line = line.rstrip("\r\n")
        bail = BAIL.match(line)
        if bail:
            self.seen = True
            self.problems.append(f"the test bailed out:{bail[1]}")
            return
        plan = PLAN.match(line)
        if plan:
            self.seen = True
            indent = len(plan["indent"])
            self._close(indent + 1)
            level = self._level(indent)
            if level["planned"] is not None:
                self._finish(indent)
                level = self._level(indent)
            level["planned"] = int(plan["count"])
            if level["planned"] == 0 and plan["directive"]:
                self.skipped += 1
            return
        result = RESULT.match(line)
        if not result:
            return
        self.seen = True
        indent = len(result["indent"])
        below = self._close(indent + 1)
        level = self._level(indent)
        level["seen"] += 1
        directive = (result["directive"] or "").upper()
        failed = bool(result["not"]) and directive != "TODO"
        if below is not None and not (failed and below == 0):
            return  # a summary of what has been counted
        if directive == "SKIP":
            self.skipped += 1
        elif failed:
            self.failed += 1
            level["failed"] += 1
            for outer in self._levels:
                if outer < indent:
                    self._levels[outer]["below_failed"] += 1
            name = result["name"].strip() or f"number {result['number']}"
            self.problems.append(f"not ok: {name}")
        else:
            self.passed += 1

    def end(self):
        self._close(0)

    def _level(self, indent):
        return self._levels.setdefault(indent, {"planned": None, "seen": 0, "failed": 0, "below_failed": 0})

    def _finish(self, indent):
        level = self._levels.pop(indent)
        if level["planned"] is not None and level["planned"] != level["seen"]:
            self.problems.append(f"{level['planned']} tests were planned and {level['seen']} reported")
        return level["failed"]

    def _close(self, indent):
        """Ends all levels from indent on; returns how many failed in them, or None if there were none."""
        deeper = [i for i in self._levels if i >= indent]
        if not deeper:
            return None
        return sum(self._finish(i) for i in sorted(deeper, reverse=True))


class KernelTap(Tap):
    """KTAP inside of a kernel log: everything is ignored until "KTAP version" (or the older "TAP version 14") appears, and after
    the plan at the outermost level is fulfilled."""

    def __init__(self):
        super().__init__()
        self._active = False

    def line(self, line):
        text = KERNEL_TIME.sub("", line.rstrip("\r\n"))
        if re.match(r"^(KTAP version \d+|TAP version 14)", text):
            if not self._active:
                self._levels.clear()
            self._active = True
            return
        if not self._active:
            return
        super().line(text)
        top = self._levels.get(0)
        if top and top["planned"] is not None and top["seen"] >= top["planned"]:
            self._close(0)
            self._active = False
