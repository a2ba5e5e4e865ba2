"""How many steps of a run that goes on are left, and how long they will take; without asking anybody."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter

from cockpit.base.record import log_name
from cockpit.core.logs.causes import TAIL
from cockpit.core.logs.metrics import Metrics, hinted
from cockpit.core.logs.progress.rank import RECENT, SILENT, STALE
from cockpit.core.logs.sources import Output
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.reached import OFF
from cockpit.core.run.model import RunModel
from cockpit.engine.logs.spooled import SpooledLogs, last_times
from cockpit.engine.logs.step_log import LATEST, speaker, written
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
    (unix seconds on our clock; None: not known), and its numbers, with such times."""

    step: int
    total: int
    at: float | None
    metrics: Metrics


def left(folder: RunFolder, model: RunModel, logs: SpooledLogs, pace: Pace, now: float) -> Left | None:
    """How far a run is that goes on; None: it has ended, or its log does not say how many steps there are.

    :param pace: its ranks' steps, as known now
    :param now: unix seconds
    """
    source = None if model.over else speaker(logs)
    log = None if source is None else _log(folder, model, logs, source)
    if log is None:
        return None
    front, usual = pace.front, pace.usual(RECENT)
    if model.watch.stalled or not model.may_finish:
        now = inf  # nobody can tell when, or it will not get there
    if front is not None and usual and pace.exact and _alike(log, front, usual):
        return Left(front[0], log.total, _seconds(log.total - front[0], usual, front[1], now))
    return Left(log.step, log.total, None if log.at is None else log.metrics.time_left(now))


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
    size = logs.size(logs.number(source))
    entry = next(each for each in folder.manifest.nodes if each.name == node)
    name = log_name(rank)
    ahead, begin = model.nodes[node].offset_s, model.nodes[node].begin(name)
    times = [(at - ahead, {name: sizes[name]}) for at, sizes in last_times(folder, entry) if name in sizes]
    tail = logs.tail(source, TAIL).replace(b"\r", b"\n")
    *lines, rest = tail.split(b"\n")
    end = size - len(rest)
    said: list[tuple[float | None, bytes]] = []
    for line in reversed(lines):
        if hinted(line):
            said.append((written(times, name, end - begin) if size - end < LATEST else None, line + b"\n"))
        end -= len(line) + 1
    known = [at for at, _ in said if at is not None]
    metrics, before = Metrics(), known[-1] if known else 0.0
    # As they arrived: of lines of one time, only the newest step is timed.
    for at, together in groupby(reversed(said), key=itemgetter(0)):
        before = before if at is None else at
        metrics.feed(rank, b"".join(line for _, line in together), before)
    place = metrics.place
    return None if place is None else _Log(*place, known[0] if known else None, metrics)
