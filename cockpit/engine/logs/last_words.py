"""What the ranks of a run say of their ends, and when: looked for in their whole logs, from the end."""

from __future__ import annotations

from contextlib import closing

from cockpit import config
from cockpit.base.times import Tick
from cockpit.core.finding import Finding
from cockpit.core.logs.causes import SEARCHED, TAIL, Cause, search
from cockpit.core.logs.sources import Nccl, Output, Source, file_of
from cockpit.core.logs.tracebacks import read_lines
from cockpit.core.rules.explanation import translated
from cockpit.core.run.failure import failure, gone
from cockpit.core.run.first import LoggedEnd
from cockpit.core.run.model import Rank, RunModel
from cockpit.engine.logs.spooled import SpooledLogs, last_times
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
        self._lang = config.load().language
        self._foreign = folder.manifest.foreign is not None
        self._found: dict[int, tuple[dict[Source, int], LoggedEnd]] = {}
        self._where: dict[int, Source] = {}
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

    def source(self, rank: Rank) -> Output:
        """Whose log says how a rank ended: its own; if it has none, as in a foreign job, its launcher's."""
        own = (rank.node, rank.rank)
        return (rank.node, None) if self._foreign and not self._logs.size(self._logs.number(own)) else own

    def _sources(self, rank: Rank) -> list[Source]:
        """The logs that have what a rank says: NCCL's warnings are in a file of its own, if there is one."""
        own: list[Source] = [self.source(rank)]
        return [*own, (rank.node, Nccl(rank.rank))] if self._folder.manifest.nccl_debug else own

    def _size(self, source: Source) -> int:
        return self._logs.size(self._logs.number(source))

    def size(self, rank: Rank) -> int:
        """Bytes of what a rank says that are here."""
        return sum(map(self._size, self._sources(rank)))

    def of(self, rank: Rank) -> LoggedEnd | None:
        """What a rank says in its log or NCCL's file, where it says more; None: nothing of it is here."""
        sizes = {source: self._size(source) for source in self._sources(rank)}
        if not any(sizes.values()):
            return None
        known = self._found.get(rank.rank)
        if known is None or known[0] != sizes:
            said = LoggedEnd(None)
            for source, size in sizes.items():
                more = self._searched(rank, source, size)
                if more.cause is not None and (said.cause is None or more.cause.weight > said.cause.weight):
                    said, self._where[rank.rank] = more, source
            known = self._found[rank.rank] = sizes, said
        return known[1]

    def _searched(self, rank: Rank, source: Source, size: int) -> LoggedEnd:
        """What a log says of a rank's end."""
        number = self._logs.number(source)

        def read(start: int, length: int) -> bytes:
            self._left -= length
            return self._logs.read(number, start, length)

        cause = search(read, size, max(TAIL, min(SEARCHED, self._left))) if size else None
        return LoggedEnd(None) if cause is None else LoggedEnd(cause, self._printed(rank, cause, source))

    def where(self, rank: Rank) -> Source:
        """The log in which :meth:`of` has found what a rank says."""
        return self._where.get(rank.rank) or self.source(rank)

    def near(self, rank: Rank, cause: Cause) -> list[bytes]:
        """The lines near a rank's cause, the nearest before it first; then those after it."""
        source = self.where(rank)
        number, size = self._logs.number(source), self._size(source)
        start, end = max(0, cause.at - NEAR), min(size, cause.at + NEAR)
        parts = ((start, cause.at), (cause.at, end))
        before, after = (self._logs.read(number, at, to - at) for at, to in parts)
        return [*reversed(read_lines(before)), *read_lines(after)]

    def _printed(self, rank: Rank, cause: Cause, source: Source) -> float | None:
        """When what a log says was printed, as the time index of its node tells."""
        ticks = self._ticks.get(rank.node)
        if ticks is None:
            entry = next(one for one in self._folder.manifest.nodes if one.name == rank.node)
            ticks = self._ticks[rank.node] = list(last_times(self._folder, entry))
        name = file_of(source[1])
        first = next((time for time, sizes in ticks if sizes.get(name, 0) > cause.at), None)
        return None if first is None else first - self._model.nodes[rank.node].offset_s

    def close(self) -> None:
        """Close the logs."""
        self._logs.close()
