"""Reading the text that NCCL's RAS answers before 2.28.7, which has no JSON: only what is unusual is in it.

The lines are those of ``rasClientRunComms`` in NCCL's ``src/ras/client_support.cc``, which are the same from
2.26.2 to 2.28.3; 2.24 and 2.25 count all operations together, and name missing ranks without their processes.
A line that is not known is skipped. Who differs is named only where few do (``rasCountIsOutlier``).
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Match, Optional, Set, Tuple

from cockpit.base.gate import Malformed, plain, read
from cockpit.base.ras import (
    COMMUNICATORS,
    GROUPS,
    MEMBERS,
    OPERATIONS,
    VERSION,
    Communicator,
    Counted,
    Lost,
    Member,
    Stated,
)
from cockpit.node.recorder.ras_reading import Answer, within

LINES = 100_000
"""Lines that are looked at."""

_WHO = r"(?: -- (?:GPU .{1,60} managed by process (?P<pid>\d{1,9}) on node (?P<host>\S{1,64})|\[.*))?"
_LAUNCHED = r"(?:launched up to operation (?P<times>\d{1,20})|not launched any operations)"
_KINDS = {
    "version": r"NCCL version (?P<what>\S{1,60}) compiled with CUDA .*",
    "table": r" *(?P<group>\d{1,6}) +(?P<number>\d{1,9}) +\d+ +[\d-]+ +(?P<size>\d{1,6}) +\d+ +\S+ +[A-Z,]+",
    "head": r"#(?P<group>\d{1,6})-\d{1,9} \((?P<what>[0-9a-f]{16})\) (?P<section>[A-Z]+)",
    "section": r"(?P<section>[A-Z]+)",
    "timeouts": r"  Encountered (?P<number>\d{1,9}) communication timeouts? .*",
    "dead": r"  Process (?P<pid>\d{1,9}) on node (?P<host>\S{1,64}) managing GPU.*",
    "missing": r"  Missing communicator data from (?P<number>\d{1,9}) ranks?",
    "differ": r"  Communicator ranks have different (?P<what>\w{1,40}) operation counts",
    "launched": r"  (?P<number>\d{1,9}) ranks have " + _LAUNCHED,
    "launched_one": r"  Rank (?P<rank>\d{1,6}) has " + _LAUNCHED + _WHO,
    "status": r"  (?P<number>\d{1,9}) ranks have status (?P<what>[A-Z]+)",
    "status_one": r"  Rank (?P<rank>\d{1,6}) has status (?P<what>[A-Z]+)" + _WHO,
    "error": r"  (?P<number>\d{1,9}) ranks reported (?P<what>[A-Za-z ]{1,50})",
    "error_one": r"  Rank (?P<rank>\d{1,6}) reported (?P<what>[A-Za-z ]{1,50}?)" + _WHO,
    "rank": r"  Rank (?P<rank>\d{1,6})" + _WHO,
}
_FORMS = [(kind, re.compile(form)) for kind, form in _KINDS.items()]


def text_answer(data: bytes) -> Answer:
    """Read an answer.

    :raises Malformed: it is not RAS's text
    """
    lines = data.decode("ascii", "replace").splitlines()
    reading = _Reading()
    for line in lines[:LINES]:
        for kind, form in _FORMS:
            found = form.fullmatch(line)
            if found:
                reading.take(kind, found)
                break
    if not reading.version or (not reading.sizes and "No communicator data collected!" not in lines):
        raise Malformed("it is not the text that is known")
    return reading.answer()


class _Row:
    """A communicator of which something is told."""

    def __init__(self, hash: str, size: int) -> None:
        self.hash = hash
        self.size = size
        self.missing = 0
        self.lost: List[Member] = []
        self.states: List[Tuple[str, int, List[Member]]] = []
        self.counts: Dict[str, List[Tuple[int, int, List[Member]]]] = {}

    def made(self, dead: Set[Tuple[str, int]]) -> Communicator:
        lost = [Lost(one, True, (one.host, one.pid) in dead) for one in self.lost[:MEMBERS]]
        counts = [
            Counted(op, times, number, tuple(members[:MEMBERS]))
            for op, groups in list(self.counts.items())[:OPERATIONS]
            for times, number, members in groups[:GROUPS]
        ]
        states = [
            Stated(state, number, tuple(members[:MEMBERS]))
            for state, number, members in self.states[:OPERATIONS]
        ]
        heard = max(0, self.size - self.missing)
        found = Communicator(
            self.hash, self.hash, self.size, heard, self.missing, tuple(lost), tuple(states), tuple(counts)
        )
        # Numbers of another machine's: each passes its bounds, as those in JSON do.
        return read(Communicator, plain(found))


class _Reading:
    """One answer, line by line."""

    def __init__(self) -> None:
        self.version = ""
        self.sizes: Dict[int, int] = {}
        """Ranks of a communicator, by the number of its line in the table."""
        self._communicators = 0
        self._timeouts = 0
        self._section = ""
        self._rows: Dict[Tuple[int, str], _Row] = {}
        self._row: Optional[_Row] = None
        self._members: List[Member] = []
        """Of the group that was told last: ranks named in the lines below it are in it."""
        self._op = ""
        self._dead: Set[Tuple[str, int]] = set()
        self._pids: Set[int] = set()

    def answer(self) -> Answer:
        """All of it."""
        made = [row.made(self._dead) for row in list(self._rows.values())[:COMMUNICATORS]]
        counts = self._communicators, len(self._rows)
        return Answer(self.version.strip("?"), self._timeouts, self._pids, *counts, within(made))

    def take(self, kind: str, found: Match[str]) -> None:
        """One line."""
        told: Dict[str, Any] = found.groupdict()
        number = int(told.get("number") or 1)
        if kind == "version":
            self.version = told["what"] if re.fullmatch(VERSION.pattern, told["what"]) else "?"
        elif kind == "table":
            self.sizes[int(told["group"])] = int(told["size"])
            self._communicators += number
        elif kind in ("head", "section"):
            self._section, self._op, self._members = told["section"], "", []
            self._row = self._of(told) if kind == "head" else None
        elif kind == "timeouts":
            self._timeouts = number
        elif kind == "dead" and self._section == "DEAD":
            self._dead.add((told["host"], int(told["pid"])))
        elif self._row is not None:
            self._of_row(self._row, kind, told, number)

    def _of(self, told: Dict[str, Any]) -> _Row:
        group = int(told["group"])
        hash = "0x%x" % int(told["what"], 16)
        return self._rows.setdefault((group, told["what"]), _Row(hash, self.sizes.get(group, 0)))

    def _of_row(self, row: _Row, kind: str, told: Dict[str, Any], number: int) -> None:
        """A line about a communicator."""
        if kind == "missing":
            row.missing, self._members = number, row.lost
        elif kind == "differ":
            self._op = "operations" if told["what"] == "collective" else told["what"]
        elif kind in ("launched", "launched_one") and self._op:
            self._members = []
            row.counts.setdefault(self._op, []).append((int(told["times"] or 0), number, self._members))
        elif kind in ("status", "status_one", "error", "error_one"):
            self._members = []
            # NOCOMM, UNKNOWN: it is no member, yet or any more.
            if told["what"] not in ("NOCOMM", "UNKNOWN"):
                word = told["what"]
                word = word.lower() if word.isupper() else word[0].lower() + word[1:]
                row.states.append((word, number, self._members))
        if told.get("rank") is not None and told.get("pid") is not None:
            self._pids.add(int(told["pid"]))
            self._members.append(Member(int(told["rank"]), told["host"], int(told["pid"])))
