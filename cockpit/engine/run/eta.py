"""How many steps of a run that goes on are left, and how long they will take; without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from cockpit.base.record import log_name
from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.metrics import Metrics, hinted
from cockpit.core.logs.progress.rank import SILENT, STALE
from cockpit.core.logs.sources import Output
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.reached import OFF
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import SpooledLogs, last_times
from cockpit.engine.logs.step_log import LATEST, speaker, steps_back, written
from cockpit.engine.records.folder import RunFolder

ALIKE, ALIKE_S = 0.25, 60.0
"""Log and ranks count alike if what the ranks did since its last line took as long as it should, within this
share or so many seconds."""


@dataclass(frozen=True)
class Left:
    """How far a run is.

    :param step: its last step, counted over all epochs
    :param total: how many there will be
    :param seconds: until the last one; None: not known, or the run stands still
    """

    step: int
    total: int
    seconds: float | None


@dataclass(frozen=True)
class _Log:
    """What the end of a log tells: the last step of the run, how many there will be, when that was written
    (unix seconds on our clock), and the seconds of a step; None: not known."""

    step: int
    total: int
    at: float | None
    span: float | None


def left(folder: RunFolder, model: RunModel, logs: SpooledLogs, pace: Pace, now: float) -> Left | None:
    """How far a run is that goes on; None: it has ended, or its log does not say how many steps there are.

    :param pace: its ranks' steps, as known now
    :param now: unix seconds
    """
    source = None if model.over else speaker(logs)
    log = None if source is None else _log(folder, model, logs, source)
    if log is None:
        return None
    front, usual = pace.front, pace.usual()
    if model.watch.stalled:
        now = inf  # no step is over for so long that nobody can tell
    if front is not None and usual and pace.exact and _alike(log, front, usual):
        return Left(front[0], log.total, _seconds(log.total - front[0], usual, front[1], now))
    if log.at is None or not log.span:
        return Left(log.step, log.total, None)
    return Left(log.step, log.total, _seconds(log.total - log.step, log.span, log.at, now))


def _seconds(steps: int, span: float, since: float, now: float) -> float | None:
    """The time of some steps; None: no step is over for so long that nobody can tell."""
    seconds = steps * span - (now - since)
    if now - since > max(STALE, SILENT * span) or (steps > 0 and seconds <= 0):
        return None
    return max(0.0, seconds)


def _alike(log: _Log, front: tuple[int, float], usual: float) -> bool:
    """Whether ranks count the steps that their log counts: not those since the start of the program, say."""
    ahead = front[0] - log.step
    if not -1 <= ahead <= log.total - log.step:
        return False
    if log.at is None:
        return ahead <= OFF
    took = front[1] - log.at
    return abs(ahead * usual - took) <= max(ALIKE_S, ALIKE * abs(took))


def told(tail: bytes, rank: int | None) -> Metrics:
    """What the end of a log says.

    :param rank: whose it is; None: a launcher's
    """
    metrics = Metrics()
    for line in tail.replace(b"\r", b"\n").split(b"\n")[:-1]:
        if hinted(line):
            metrics.feed(rank, line + b"\n", 0.0)
    return metrics


def _log(folder: RunFolder, model: RunModel, logs: SpooledLogs, source: Output) -> _Log | None:
    node, rank = source
    tail = logs.tail(source, TAIL)
    place = told(tail, rank).place
    if place is None:
        return None
    size = logs.size(logs.number(source))
    entry = next(each for each in folder.manifest.nodes if each.name == node)
    times = list(last_times(folder, entry))
    name = log_name(rank)
    begin = model.nodes[node].begin(name)
    known = [
        (step, at)
        for step, end in steps_back(tail[-LATEST:], size)
        if (at := written(times, name, end - begin))
    ]
    if not known:
        return _Log(*place, None, None)
    last = first = known[0]
    for step, at in known[1:]:
        if step >= first[0]:
            break  # of the epoch before
        first = step, at
    span = (last[1] - first[1]) / (last[0] - first[0]) if last[0] > first[0] else None
    return _Log(*place, last[1] - model.nodes[node].offset_s, span)
