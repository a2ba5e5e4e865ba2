"""A run that this machine has, explained: from its record and its logs here."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace

from cockpit.base.record import log_name
from cockpit.core.explain.report import Cause, Line, Party, Report, ended
from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import Cause as Words
from cockpit.core.logs.sources import file_of
from cockpit.core.masks import ranks_of
from cockpit.core.rules.table import table
from cockpit.core.run.first import first_of
from cockpit.core.run.model import Rank, RunModel
from cockpit.core.run.states import Watching
from cockpit.core.text import one_line
from cockpit.engine.files import open_regular
from cockpit.engine.logs.last_words import LastWords
from cockpit.engine.nccl import table_here
from cockpit.engine.records.folder import RunFolder
from cockpit.lang import UNSAID

BLOCK = 1 << 20
LINE = 600
"""Bytes of the line of a cause that are shown."""


def explained_run(name: str) -> Report:
    """What a run's record and logs here tell.

    :param name: its name, a part of it, or ``last``
    :raises CockpitError: no run matches, or several do
    """
    folder = RunFolder.find(name)
    return explained(folder, folder.model())


def explained(folder: RunFolder, model: RunModel, *, counts: bool = True) -> Report:
    """What the record and the logs here of a run tell; the model has the judgement from then on.

    :param counts: whether the lines of all logs are counted, for which all of them are read
    """
    report = _heard(folder, model) if counts else Report(run=folder.name)
    with closing(LastWords(folder)) as words:
        return _judged(report, folder, model, words)


def _heard(folder: RunFolder, model: RunModel) -> Report:
    """Who printed how much, and what NCCL says."""
    paths = {
        (node.name, rank): folder.spool_dir(node) / log_name(rank)
        for node in folder.manifest.nodes
        for rank in (None, *node.ranks)
    }
    parties = []
    files = []
    for (node, rank), path in sorted(
        paths.items(), key=lambda one: (one[0][1] is None, one[0][1] or 0, one[0][0])
    ):
        lines, size = _counted(str(path))
        known = model.ranks.get(-1 if rank is None else rank)
        end = ended(known) if known is not None and known.failed else UNSAID
        if rank is not None or lines:
            parties.append(Party(rank, node, "" if rank is not None else "launcher", lines, size, end))
        if size:
            files.append((str(path), lines, size, True, ()))
    return Report(
        tuple(files), (folder.manifest.launcher,), tuple(parties), run=folder.name, nccl=table_here(folder)
    )


def _judged(report: Report, folder: RunFolder, model: RunModel, words: LastWords) -> Report:
    found = words.judge(model)
    if found is None:
        return _stalled(report, model.watch)
    first = first_of(model, words.of)
    how = found.id if first is None else first.how
    ranks = tuple(ranks_of(found.ranks))
    said = words.of(model.ranks[ranks[0]]) if ranks else None
    cause = said.cause if said is not None else None
    if cause is None and first is not None:
        cause = first.cause
    lead = model.ranks.get(ranks[0]) if ranks else None
    place = None if cause is None or lead is None else _place(folder, words, lead, cause)
    told = found.detail or (cause.found.what if cause else "")
    later = [rank.rank for rank in model.failures() if rank.rank not in ranks]
    waited = tuple(number for number in later if not _broke(words, model.ranks[number]))
    return replace(
        report,
        how=how,
        ranks=ranks,
        nodes=found.nodes,
        what=found.what,
        end=ended(lead) if lead is not None and lead.failed else UNSAID,
        cause=Cause(told, found.evidence, () if place is None else (place,)) if told else None,
        row=table().by_id.get(found.rule),
        certainty=found.certainty,
        waited=waited,
        ended_too=tuple(number for number in later if number not in waited),
    )


def _stalled(report: Report, watch: Watching) -> Report:
    """The same of a run in which no rank failed: who held up the others, if the watch called it stalled."""
    found = watch.finding
    if found is None or watch.state != "stalled":
        return report
    return replace(
        report,
        how=watch.state,
        ranks=tuple(ranks_of(found.ranks)),
        nodes=found.nodes,
        what=found.what,
        cause=Cause(found.detail, tuple(filter(None, [found.where])), ()) if found.detail else None,
        row=table().by_id.get(found.rule),
        certainty=found.certainty,
        waited=tuple(ranks_of(watch.waiting)),
    )


def _broke(words: LastWords, rank: Rank) -> bool:
    said = words.of(rank)
    return said is not None and said.cause is not None and said.cause.weight > Weight.VICTIM


def _place(folder: RunFolder, words: LastWords, rank: Rank, cause: Words) -> Line | None:
    """Where the words are that a rank says."""
    node, writer = words.where(rank)
    entry = next(one for one in folder.manifest.nodes if one.name == node)
    path = folder.spool_dir(entry) / file_of(writer)
    lines = 0
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            left = cause.at
            while left > 0 and (data := file.read(min(BLOCK, left))):
                left -= len(data)
                lines += data.count(b"\n")
            file.seek(cause.at)
            line = file.read(LINE).partition(b"\n")[0]
    except OSError:
        return None
    return Line(str(path), lines + 1, one_line(line))


def _counted(path: str) -> tuple[int, int]:
    """Lines and bytes of a file; none if it is not here."""
    lines = 0
    try:
        with os.fdopen(open_regular(path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            while data := file.read(BLOCK):
                lines += data.count(b"\n")
    except OSError:
        return 0, 0
    return lines, size
