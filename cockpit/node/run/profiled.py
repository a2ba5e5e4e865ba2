"""The profilers of single ranks (``--per-rank``), as their supervisor sees them.

Their wrappers start them and say which process is one (:mod:`cockpit.node.run.rank_profiler`). Each writes
its report after its rank has ended, maybe when wrapper and launcher have, too.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from cockpit.base import gate, record
from cockpit.base.gate import Definition, Maybe, Text, Whole, bound, read
from cockpit.node import procfs, safefiles
from cockpit.node.run.ranks import how

_RECORD = re.compile(r"rank-(0|[1-9][0-9]{0,6})\.profiler(?:\.([0-9]{1,6}))?\.json")
_MOST = 2000
"""Attempts at ranks that are remembered."""
SUFFIXES = (".nsys-rep", ".qdstrm")


class Profiler(Definition):
    """What a wrapper wrote about the profiler of its rank.

    :param status: a wait status; None: none is known
    :param helper: what starts and stops the session of the profiler; 0: there is none
    """

    rank: int = bound(gate.RANK)
    attempt: int = bound(Whole(0, 1 << 30))
    pid: int = bound(Whole(1, 1 << 30))
    ticks: int = bound(gate.TICKS)
    status: Optional[int] = bound(Maybe(Whole(0, 1 << 16)))
    report: str = bound(Text(255, r"[^/\0]+"))
    helper: int = bound(gate.PID, 0)
    helper_ticks: int = bound(gate.TICKS, 0)


class Missing(NamedTuple):
    """A listed rank whose profiler left no report."""

    name: str
    text: str


def listed(profile: Dict[str, str], own: Iterable[int]) -> List[int]:
    """Ranks of a node that have a profiler of their own, from the profile of its launch spec."""
    found: Set[int] = set()
    for piece in profile.get("ranks", "").split(","):
        first, _, last = piece.partition("-")
        if first.isdigit():
            found.update(range(int(first), int(last if last.isdigit() else first) + 1))
    return sorted(found.intersection(own))


class Profilers:
    """The profilers of one node's ranks; no method raises anything.

    :param ranks: those that are to have one
    """

    def __init__(self, folder: str, ranks: Iterable[int]) -> None:
        self._folder = folder
        self._ranks = sorted(ranks)
        self._found: Dict[Tuple[int, int], Profiler] = {}
        self._marks: Dict[str, Tuple[int, int]] = {}
        self._ended: Dict[int, int] = {}
        """Wait status by pid, of those that we waited for."""
        self.environment: Dict[str, str] = {}
        """What tells the wrappers."""
        if self._ranks:
            self.environment[record.ENV_AROUND] = ",".join(map(str, self._ranks))

    def look(self, names: Iterable[str]) -> None:
        """Read what is new among these names."""
        if not self._ranks:
            return
        for name in names:
            match = _RECORD.fullmatch(name)
            if match is None or int(match.group(1)) not in self._ranks:
                continue
            if len(self._marks) >= _MOST and name not in self._marks:
                continue  # the program can write there, too
            path = os.path.join(self._folder, name)
            try:
                status = os.lstat(path)
                mark = (status.st_ino, status.st_mtime_ns)
                if self._marks.get(name) == mark:
                    continue
                self._marks[name] = mark
                found = read(Profiler, safefiles.load(path))
            except (OSError, ValueError):
                continue
            self._take(found, int(match.group(1)))

    def told(self, name: str, text: str) -> bool:
        """Take a record that a wrapper has no room for; False: it is none of these.

        :raises ValueError: it is damaged
        """
        match = _RECORD.fullmatch(name)
        if match is None:
            return False
        self._take(read(Profiler, safefiles.parse(text.encode())), int(match.group(1)))
        return True

    def _take(self, found: Profiler, rank: int) -> None:
        if found.rank == rank and rank in self._ranks and len(self._found) < _MOST:
            self._found[found.rank, found.attempt] = found

    def reaped(self, pid: int, status: int) -> bool:
        """Note the end of an orphan, if it is one of these."""
        if self._ranks and all(found.pid != pid for found in self._found.values()):
            self.look(_names(self._folder))
        if all(found.pid != pid for found in self._found.values()):
            return False
        self._ended[pid] = status
        return True

    def writing(self) -> List[int]:
        """Pids of those that live, and of those that stop their sessions."""
        return [
            pid
            for found in self._found.values()
            for pid, ticks, there in (
                (found.pid, found.ticks, found.status is None),
                (found.helper, found.helper_ticks, found.helper > 0),
            )
            if there and procfs.alive(pid, ticks)
        ]

    def missing(self, hint: Callable[[int], str]) -> List[Missing]:
        """Those that have left no report, and why, as far as that is known.

        :param hint: what may have kept that of a rank from being written although all went well
        """
        self.look(_names(self._folder))
        there = _names(os.path.join(self._folder, record.REPORTS))
        last: Dict[int, Profiler] = {}
        for (rank, _), found in sorted(self._found.items()):
            last[rank] = found
        lost = []
        for rank in self._ranks:
            profiler = last.get(rank)
            name = profiler.report if profiler else "rank-%d" % rank
            if profiler is None or not _left(name, there):
                why = self._why(profiler, hint(rank))
                lost.append(Missing(name + SUFFIXES[0], "rank %d: %s" % (rank, why)))
        return lost

    def _why(self, profiler: Optional[Profiler], hint: str) -> str:
        if profiler is None:
            return "its profiler was not started"
        status = self._ended.get(profiler.pid, profiler.status)
        if status is None:
            return "its profiler did not finish the report"
        end = how(status)
        if end["signal"] is not None:
            return "its profiler was ended by signal %d before it wrote a report" % end["signal"]
        if end["code"]:
            return "its profiler ended with status %d without a report; see launcher.log" % end["code"]
        return hint


def _names(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _left(name: str, there: List[str]) -> bool:
    """Whether a profiler has left a report of this name, in which nsys puts in numbers for %p and %n."""
    pattern = glob.escape(name).replace("%p", "*").replace("%n", "*")
    return any(fnmatch.fnmatchcase(each, pattern + suffix) for each in there for suffix in SUFFIXES)


def hint(profile: Dict[str, str]) -> str:
    """Why a profiler that ended well may have left no report."""
    if profile.get("range"):
        return "nsys recorded nothing: it waited for %s" % profile["range"]
    return "its profiler ended without a report; see launcher.log"
