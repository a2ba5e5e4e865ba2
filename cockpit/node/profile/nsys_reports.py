"""Sum up nsys reports on their node: exported to SQLite one at a time, niced, and the export removed again.

An export is several times as large as its report, and takes its memory while ranks may run: it is made where
both are free, watched while it grows, and in a folder that nobody else can read. nsys runs with that folder
as its working directory, which is empty: 2022.4 runs Python files that it finds where it is started.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
import tempfile
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from cockpit.base import record, verbs
from cockpit.base.gate import RANKS_A_NODE
from cockpit.node import archive, memory_limits, procfs, safefiles, space
from cockpit.node.calls import Call, at_end
from cockpit.node.profile.child import Child, Turn
from cockpit.node.profile.profile import SUMMARY
from cockpit.node.run.ranks import Start, recorded

EXPORT = ".nsys-export"
"""The folder of an export, in that of the reports."""
POLL_S = 0.2
EXPORT_S, SUM_S = 1800.0, 600.0
"""For one report."""
TIMES = 10
"""How many times as large as its report an export may be expected to be: 2.8 was seen without kernels."""
SPARE = 512 << 20
"""Bytes of disk that stay free."""
MEMORY, MEMORY_TIMES = 512 << 20, 4
"""Bytes of memory that must be free beside ranks that run, and how many times the report's size more."""
HELP_S = 30.0
_AVAILABLE = re.compile(rb"(?m)^MemAvailable: +([0-9]{1,15}) kB$")
_RANK = re.compile(r"\.rank-(0|[1-9][0-9]{0,6})\.")


def sumup(call: Call) -> Dict[str, Any]:
    """Sum up reports, an item whenever a rank has got further; the last one of each has its summary."""
    _Sums(call, call.asked(verbs.SumUp)).run()
    return {}


class _Sums:
    """A request."""

    def __init__(self, call: Call, asked: verbs.SumUp) -> None:
        self._call = call
        self._asked = asked
        self._folder = asked.dir if asked.named else os.path.join(asked.dir, record.REPORTS)
        self._child: Optional[Child] = None
        self._export_folder = ""
        self._ended = False
        self._said: Dict[int, Tuple[str, ...]] = {}
        self._done: Set[int] = set()
        self._why: Dict[int, Tuple[str, str]] = {}
        """Of ranks of which nothing is here: the report, and why."""
        self._pids = dict(_pids(asked))

    def run(self) -> None:
        """All files, one after the other."""
        turn = Turn(self._folder)
        at_end.append(self._end)
        try:
            while not turn.take():
                if not self._call.pause(POLL_S):
                    return
            for name in self._asked.files:
                if self._call.cancelled or self._ended:
                    return
                self._file(name)
            for rank, (name, why) in sorted(self._why.items()):
                if rank not in self._done:
                    self._say(rank, "failed", name, why)
        finally:
            at_end.remove(self._end)
            self._kill()
            turn.close()

    def _end(self) -> None:
        """This agent ends: nothing of ours is left."""
        self._ended, child = True, self._child
        if child is not None:
            child.kill()
        if self._export_folder:
            shutil.rmtree(self._export_folder, ignore_errors=True)

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.close()

    def _file(self, name: str) -> None:
        alone = _RANK.search(name)
        ranks: Dict[int, Optional[int]] = dict(self._pids)
        if alone:
            ranks = {int(alone.group(1)): self._pids.get(int(alone.group(1)))}
        path = os.path.join(self._folder, name)
        try:
            with self._exported(name, path, ranks) as export:
                self._say_all(ranks, "reading", name)
                for found in self._sum(export, path, ranks, alone=alone is not None):
                    self._tell(found, name)
            why = "no report has events of it"
        except OSError as error:
            why = error.strerror or str(error)
        # Another report may have it.
        for rank in ranks or (0,):
            self._why.setdefault(rank, (name, why))

    def _say_all(self, ranks: Iterable[int], state: str, name: str) -> None:
        for rank in ranks:
            if rank not in self._done:
                self._say(rank, state, name)

    def _say(self, rank: int, state: str, name: str, what: str = "", payload: bytes = b"") -> None:
        """Send how far a rank is, if that is news."""
        if self._said.get(rank) != (state, name, what):
            self._said[rank] = state, name, what
            size = safefiles.size(os.path.join(self._folder, name)) or 0
            told = {"rank": rank, "state": state, "file": name, "size": size, "what": what[:1000]}
            self._call.item(told, payload)

    def _tell(self, found: Dict[str, Any], name: str) -> None:
        rank = found.get("rank")
        if type(rank) is not int or rank in self._done:
            return
        if "error" in found:
            self._why[rank] = name, str(found["error"])
            return
        self._done.add(rank)
        found["file"] = name
        self._say(rank, "done", name, "", zlib.compress(json.dumps(found).encode()))

    @contextlib.contextmanager
    def _exported(self, name: str, path: str, ranks: Iterable[int]) -> Iterator[str]:
        """The export of a report, as long as it is needed.

        :raises OSError: there is none, and why
        """
        if name.endswith(".sqlite"):
            yield path
            return
        folder = os.path.join(self._folder, EXPORT)
        if self._asked.named:
            where = self._folder if os.access(self._folder, os.W_OK) else None
            folder = tempfile.mkdtemp(prefix=EXPORT, dir=where)
        else:
            # Another agent may have been killed in the middle of one; it is our turn.
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder, 0o700)
        self._export_folder = folder
        try:
            self._say_all(ranks, "exporting", name)
            number = safefiles.opened(path)
            try:
                yield self._export(number, os.path.splitext(name)[1], folder)
            finally:
                os.close(number)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self._export_folder = ""

    def _export(self, number: int, suffix: str, folder: str) -> str:
        """Have nsys export the report with this descriptor.

        :raises OSError: it cannot, or the export grows beyond all measure
        """
        nsys = tool(self._asked.tools)
        if nsys is None:
            raise OSError(0, "no nsys here that could export it; --nsys PATH names one")
        self._check_room(folder, os.fstat(number).st_size)
        target, source = os.path.join(folder, "report.sqlite"), os.path.join(folder, "report" + suffix)
        # By descriptor: the name may be another file's by now.
        os.symlink("/proc/%d/fd/%d" % (os.getpid(), number), source)
        words = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", target]
        helps = Child([nsys, "export", "--help"], limit_s=HELP_S, folder=folder)
        if b"--include-blobs" in self._run(helps, 1 << 20, lambda: ""):
            words.append("--include-blobs=true")
        nice = shutil.which("nice")
        words = [*([nice, "-n", "19"] if nice else []), *words, source]

        def trouble() -> str:
            return "its export filled the disk" if space.free(folder) < SPARE else ""

        said = self._run(Child(words, limit_s=EXPORT_S, folder=folder), 1 << 20, trouble)
        if not safefiles.size(target):
            text = said.decode("utf-8", "replace").strip()[-200:]
            raise OSError(0, "nsys wrote no export: %s" % (text or "no message"))
        return target

    def _check_room(self, folder: str, size: int) -> None:
        """Check that there is room for an export.

        :raises OSError: there is not
        """
        free, needs = space.free(folder), TIMES * size + SPARE
        elsewhere = "or fetch it: cockpit collect, then profile show --report FILE"
        if free < needs:
            text = f"its export may take {needs / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free"
            raise OSError(0, f"{text}; make room, {elsewhere}")
        memory, needs = _available(), MEMORY_TIMES * size + MEMORY
        runs = any(procfs.alive(pid, ticks) for pid, ticks in _running(self._asked))
        if runs and memory is not None and memory < needs:
            text = f"its export may take {needs / 1e9:.1f} GB of memory, {memory / 1e9:.1f} GB are free"
            raise OSError(0, f"{text} while ranks are running; wait until they end, {elsewhere}")

    def _sum(
        self, export: str, source: str, ranks: Dict[int, Optional[int]], *, alone: bool
    ) -> List[Dict[str, Any]]:
        """Sum an export up, in a process of its own.

        :raises OSError: it cannot be
        """
        command, numbers = archive.command("nsyssum", export, source)
        asked = {"ranks": {str(rank): pid for rank, pid in ranks.items()}, "alone": alone}
        most = SUMMARY * max(1, min(RANKS_A_NODE, len(ranks) or 8))
        data = self._run(
            Child(command, numbers, limit_s=SUM_S, given=json.dumps(asked).encode()), most, lambda: ""
        )
        try:
            return [safefiles.parse(line) for line in data.split(b"\n") if line]
        except ValueError:
            raise OSError(0, "invalid summary") from None

    def _run(self, child: Child, most: int, trouble: Callable[[], str]) -> bytes:
        """What a child has written, once it has ended.

        :param trouble: asked while it runs: why it must end; empty: it may go on
        :raises OSError: it failed, or had to be ended
        """
        self._child = child
        try:
            while not child.done():
                why = trouble()
                if why or not self._call.pause(POLL_S):
                    raise OSError(0, why or "cancelled")
            return child.written(most)
        finally:
            self._kill()


def _processes(asked: verbs.SumUp) -> Iterator[Tuple[int, int, int]]:
    """Rank, pid and start time of each rank's process, as it was asked for, or as wrappers wrote it."""
    for target in asked.targets:
        yield target.rank, target.pid, target.ticks
    for rank in asked.ranks if not asked.named else ():
        with contextlib.suppress(OSError, ValueError):
            start = recorded(Start, os.path.join(asked.dir, record.rank_start(rank)), rank)
            yield rank, start.pid, start.ticks


def _pids(asked: verbs.SumUp) -> Iterator[Tuple[int, Optional[int]]]:
    """Each rank's process, as the run has recorded it; None: not known."""
    for rank in asked.ranks:
        yield rank, None
    for rank, pid, _ in _processes(asked):
        yield rank, pid


def _running(asked: verbs.SumUp) -> Iterator[Tuple[int, int]]:
    return ((pid, ticks) for _, pid, ticks in _processes(asked))


def _available() -> Optional[int]:
    """Bytes of memory that nobody uses; None: not known."""
    found = _AVAILABLE.search(procfs.contents("/proc/meminfo"))
    free = [int(found.group(1)) << 10] if found else []
    free += [room.limit - room.used for room in memory_limits.rooms("self", None)]
    return max(0, min(free)) if free else None


def tool(places: Sequence[str]) -> Optional[str]:
    """The first nsys that can be started, of names on PATH and patterns of paths."""
    for place in places:
        found = glob.glob(place) if "/" in place else filter(None, [shutil.which(place)])
        for path in sorted(found, reverse=True):
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None
