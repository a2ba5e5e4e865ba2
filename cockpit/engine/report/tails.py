"""Last words: the ends of the logs that matter."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice

from cockpit.core.explain.report import Report
from cockpit.core.logs.sources import Output, rank_of
from cockpit.core.logs.tracebacks import read_lines
from cockpit.core.masks import ranks_of
from cockpit.core.report.model import Tail
from cockpit.core.run.model import RunModel
from cockpit.core.text import one_line
from cockpit.engine.logs.spooled import SpooledLogs
from cockpit.engine.records.folder import RunFolder

TAILS, TAIL_LINES, TAIL_BYTES, LINE = 4, 25, 64 << 10, 400
"""Logs whose last lines are shown, lines of each, bytes that are read for them, bytes of a line."""


def tails(
    folder: RunFolder, model: RunModel, told: Report, speaks: Output | None, most: int = TAILS
) -> tuple[Tail, ...]:
    """The last lines of the ranks that matter.

    :param speaks: whose log says most about the training
    :param most: logs
    """
    whys: dict[Output, str] = {}

    def matter(ranks: Iterable[int], why: str) -> None:
        for number in ranks:
            if (rank := model.ranks.get(number)) is not None:
                whys.setdefault((rank.node, number), why)

    matter(told.ranks, "it holds up the others" if told.how == "stalled" else "it failed first")
    matter(ranks_of(model.watch.culprits), "it holds up the others")
    matter([rank.rank for rank in islice(model.failures(), 2)], "it failed")
    if speaks is not None:
        whys.setdefault(speaks, "its log reports training progress")
    matter(sorted(model.ranks)[:1], "the first rank")
    with closing(SpooledLogs(folder)) as logs:
        found = [_tail(logs, source, why) for source, why in list(whys.items())[:most]]
    return tuple(tail for tail in found if tail.size)


def _tail(logs: SpooledLogs, source: Output, why: str) -> Tail:
    node, writer = source
    lines = [line for line in read_lines(logs.tail(source, TAIL_BYTES)) if line.strip()]
    shown = tuple(one_line(line, limit=LINE) for line in lines[-TAIL_LINES:])
    return Tail(rank_of(writer), node, why, shown, logs.size(logs.number(source)))
