"""What the ranks of a run say of their ends, and when: looked for in their whole logs, from the end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from cockpit import config
from cockpit.base.record import log_name, rank_nccl
from cockpit.base.times import Tick
from cockpit.core.finding import Finding
from cockpit.core.logs.causes import SEARCHED, TAIL, Cause, search
from cockpit.core.logs.folding import Source
from cockpit.core.logs.tracebacks import read_lines
from cockpit.core.rules.explanation import translated
from cockpit.core.run.failure import failure, gone
from cockpit.core.run.first import Said
from cockpit.core.run.model import Rank, RunModel
from cockpit.engine.logs.spooled import SpooledLogs, last_times
from cockpit.engine.nccl import Files
from cockpit.engine.records.folder import RunFolder

AT_ONCE = 4 * SEARCHED
"""Bytes of all logs that one judgement looks through; then the ends alone of those that are left."""
NEAR = 16 << 10
"""Bytes before a cause, and after it, in which rules look for signs."""


def last_cause(model: RunModel, folder: RunFolder) -> Finding | None:
    """See :meth:`LastWords.judge`."""
    with closing(LastWords(folder)) as words:
        return words.judge(model)


class LastWords:
    """Finds why a run failed; a log that has not grown since is not read again.

    Errors are those of :meth:`SpooledLogs.read`.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._logs = SpooledLogs(folder)
        self._nccl = Files(folder)
        self._lang = config.load().language
        self._foreign = folder.manifest.foreign is not None
        self._found: dict[int, tuple[tuple[int, int], Said]] = {}
        self._by_nccl: dict[int, Cause] = {}
        """Causes that NCCL's file has, not the log."""
        self._model = RunModel()
        self._ticks: dict[str, list[Tick]] = {}
        self._left = 0

    def judge(self, model: RunModel) -> Finding | None:
        """Why a rank failed, or, of a job that others started, is gone; the model has it from then on."""
        self._ticks.clear()
        self._model = model
        self._left = AT_ONCE
        name = self._folder.name
        found = failure(model, name, self.of, self.near)
        if found is None and self._foreign:
            found = gone(model, name, self.of, lambda rank: self.source(rank)[1] is not None, self.near)
        model.judged = found and translated(found, self._lang)
        return model.judged

    def source(self, rank: Rank) -> Source:
        """Whose log says how a rank ended: its own; if it has none, as in a foreign job, its launcher's."""
        own = (rank.node, rank.rank)
        return (rank.node, None) if self._foreign and not self._logs.size(self._logs.number(own)) else own

    def size(self, rank: Rank) -> int:
        """Bytes of that log that are here."""
        return self._logs.size(self._logs.number(self.source(rank)))

    def of(self, rank: Rank) -> Said | None:
        """What a rank says; None: nothing of its log is here.

        Where NCCL writes a file of its own, its warnings are there: what says more counts, log or file.
        """
        sizes = self.size(rank), self._nccl.size(rank.rank)
        if not any(sizes):
            return None
        known = self._found.get(rank.rank)
        if known is None or known[0] != sizes:
            said = self._searched(rank, partial(self._read, self._logs.number(self.source(rank))), sizes[0])
            if sizes[1]:
                more = self._searched(rank, partial(self._read_nccl, rank.rank), sizes[1], own=True)
                if more.cause is not None and (said.cause is None or more.cause.weight > said.cause.weight):
                    said, self._by_nccl[rank.rank] = more, more.cause
            known = self._found[rank.rank] = sizes, said
        return known[1]

    def _searched(
        self, rank: Rank, read: Callable[[int, int], bytes], size: int, *, own: bool = False
    ) -> Said:
        """What a file says of a rank's end.

        :param own: it is NCCL's own
        """
        cause = search(read, size, max(TAIL, min(SEARCHED, self._left))) if size else None
        if cause is None:
            return Said(None)
        return Said(cause, self._printed(rank, cause, rank_nccl(rank.rank) if own else ""))

    def _read_nccl(self, rank: int, start: int, length: int) -> bytes:
        self._left -= length
        return self._nccl.read(rank, start, length)

    def near(self, rank: Rank, cause: Cause) -> list[bytes]:
        """The lines near a rank's cause, the nearest before it first; then those after it."""
        read, size = partial(self._logs.read, self._logs.number(self.source(rank))), self.size(rank)
        if self._by_nccl.get(rank.rank) is cause:
            read, size = partial(self._nccl.read, rank.rank), self._nccl.size(rank.rank)
        start, end = max(0, cause.at - NEAR), min(size, cause.at + NEAR)
        before, after = (read(at, to - at) for at, to in ((start, cause.at), (cause.at, end)))
        return [*reversed(read_lines(before)), *read_lines(after)]

    def _read(self, number: int, start: int, length: int) -> bytes:
        self._left -= length
        return self._logs.read(number, start, length)

    def _printed(self, rank: Rank, cause: Cause, name: str) -> float | None:
        """When what a file says was printed, as the time index of its node tells.

        :param name: of the file; empty: its log
        """
        ticks = self._ticks.get(rank.node)
        if ticks is None:
            entry = next(one for one in self._folder.manifest.nodes if one.name == rank.node)
            ticks = self._ticks[rank.node] = list(last_times(self._folder, entry))
        name = name or log_name(self.source(rank)[1])
        first = next((time for time, sizes in ticks if sizes.get(name, 0) > cause.at), None)
        return None if first is None else first - self._model.nodes[rank.node].offset_s

    def close(self) -> None:
        """Close the logs."""
        self._logs.close()
        self._nccl.close()
