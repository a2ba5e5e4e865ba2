"""Memory that is approaching its limit: a trend over minutes, and what is said about it.

Used memory rises in steps (a model is loaded), in saw-teeth (loaders, garbage collection), for a while (an
evaluation, a checkpoint). None of that fills it. A trend is what is left of it: the level below which it
did not fall again, if that has risen all the time, not only at times; and how far it reaches is believed only
for as long ahead as it was seen, twice over.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from statistics import median

from cockpit.base.events import Filling, MemorySample, Sample
from cockpit.base.shell import quote
from cockpit.core.finding import Finding, Step
from cockpit.core.masks import mask_of
from cockpit.core.ranks import ranks_named
from cockpit.core.rules.explanation import recognised
from cockpit.core.rules.rows.memory import LARGEST
from cockpit.core.run.states import LIVE, Rank, Run
from cockpit.core.text import one_line, size
from cockpit.core.time_text import ahead, rounded_span

GPU = "GPU "
"""How what is said about a GPU's memory begins; its number follows."""

LIMITS = 128
"""Limits of one node that are watched."""

FRESH_S = 180.0
"""A trend that was seen longer ago is not told any more: nobody watches."""


AGAIN_S = 60.0
"""A trend that goes on is reported again after so long: the journal keeps each report."""


@dataclass(frozen=True)
class Pace:
    """When a trend is believed.

    :param period_s: seconds between two points
    :param points: kept of the past
    :param windows: points that a trend must last for, the longest first
    :param late: only from this share of the limit on, the last of them is long enough
    :param start_s: for so long after a rank has started, models are loaded and buffers filled
    :param started: from this share of the limit on, a trend is told even then
    :param ahead: a trend is believed for this many times as long as it was seen
    :param hold: points for which a trend that is told may pause
    :param short: windows of so many points are short: a step and a tooth together may look like a trend there
    :param lasts: points in a row at which the trend of a short one is seen before it is told
    :param soon_s: if it is full sooner, it is told at once
    """

    period_s: float = 15.0
    points: int = 360
    windows: tuple[int, ...] = (161, 81, 41, 21, 9)
    late: float = 0.8
    start_s: float = 1200.0
    started: float = 0.9
    ahead: float = 2.0
    hold: int = 8
    short: int = 21
    lasts: int = 6
    soon_s: float = 90.0


_PARTS = 8
_RISING = 7
"""Of so many parts of a window, this many must rise by :data:`_SHARE` of the mean."""
_SHARE = 0.4
_STEP = 0.35
"""No part may rise by more of the whole: that is a step."""
_BENT = 0.12
"""It may be off a straight line by this share of the whole: steps and teeth together may rise as steadily."""
_LAST = 0.7
"""The last part must rise by this share of the median: else it is over."""
_SLOWS = 0.9
"""If the second half rises by less than this share of the first, it slows down."""
_ALIKE = 1.5
"""A tooth may be so many times as high as one before."""
_LEAST = 0.01
"""Of the limit: what rises by less is noise."""
_SLOPE = 4
_SLOWER = 4.0
"""A rise over so many points, so many times faster than the present one, or slower, is of another kind."""
_GROWS = 0.1
"""A rank grows if at least this share of all that grows is its own."""


@dataclass(frozen=True)
class Trend:
    """Where used memory is going.

    :param left_s: seconds until it is full
    :param bytes_s: how fast it rises
    :param points: how many it has done so for, and seconds
    """

    left_s: float
    bytes_s: float
    points: int
    over_s: float


class Gauge:
    """The past of one memory: a point each :attr:`Pace.period_s`."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._clear()

    def _clear(self) -> None:
        self._times = array("d")
        self._low = array("d")
        self._high = array("d")
        self._ranks: dict[int, array[float]] = {}

    def add(self, at: float, used: int, ranks: Mapping[int, int]) -> bool:
        """Take in what was measured; return whether a new point begins.

        :param at: unix seconds
        :param ranks: bytes of each rank, as far as that is known
        """
        if self._times and at < self._times[-1] + self._pace.period_s:
            if at >= self._times[-1]:
                self._low[-1] = min(self._low[-1], used)
                self._high[-1] = max(self._high[-1], used)
                return False
            self._clear()  # our clock was set back
        self._times.append(at)
        self._low.append(used)
        self._high.append(used)
        for rank in self._ranks.keys() | ranks.keys():
            known = self._ranks.setdefault(rank, array("f", [0.0] * (len(self._times) - 1)))
            known.append(ranks.get(rank, known[-1] if known else 0.0))
        if len(self._times) > self._pace.points:
            for points in (self._times, self._low, self._high, *self._ranks.values()):
                del points[0]
        return True

    @property
    def used(self) -> int:
        """Bytes in use, as far as they are not given back soon."""
        return int(self._low[-1])

    def trend(self, limit: int, since: float) -> Trend | None:
        """Where it is going; None: nowhere that one could tell.

        :param since: when the newest rank there was started, unix seconds
        """
        pace = self._pace
        if not self._may_fill(limit):
            return None
        early = self._times[-1] - since < pace.start_s
        for points in pace.windows:
            if points > len(self._times):
                continue
            found = self._over(points, limit)
            if found is None:
                continue
            level = self._level(points)
            last = points == pace.windows[-1]
            least = max(pace.late if last else 0.0, pace.started if early else 0.0)
            return found if level >= least * limit and not self._fell(points, level, found) else None
        return None

    def _may_fill(self, limit: int) -> bool:
        """Whether it has risen enough to look closer: most never do."""
        have = len(self._times)
        return any(
            points <= have and self._low[-1] - self._low[-points] >= _LEAST * limit
            for points in self._pace.windows
        )

    def _over(self, points: int, limit: int) -> Trend | None:
        """The trend of the last points, if they have one."""
        # What it never fell below again: a tooth leaves nothing of itself there.
        stays = list(accumulate(reversed(self._low[-points:]), min))[::-1]
        edges = [stays[part * (points - 1) // _PARTS] for part in range(_PARTS + 1)]
        rises = [after - before for before, after in pairwise(edges)]
        whole = edges[-1] - edges[0]
        if whole < _LEAST * limit or max(rises) > _STEP * whole or _bend(edges) > _BENT * whole:
            return None
        if sum(rise >= _SHARE * whole / _PARTS for rise in rises) < _RISING:
            return None
        middle = median(rises)
        if rises[-1] < _LAST * middle or self._level(points) + _rest(edges) < limit:
            return None
        over_s = self._times[-1] - self._times[-points]
        rate = min(middle, (rises[-1] + rises[-2]) / 2) * _PARTS / over_s
        left_s = max(0.0, limit - self._level(points)) / rate
        return Trend(left_s, rate, points, over_s) if left_s <= self._pace.ahead * over_s else None

    def _level(self, points: int) -> float:
        """The highest that it was in the last part of a window."""
        return max(self._high[-max(1, points // _PARTS) :])

    def _fell(self, points: int, level: float, trend: Trend) -> bool:
        """Whether it rose as far as this before, about as fast, and fell again: a tooth."""
        low, high, times = self._low, self._high, self._times
        start = trough = min(range(len(low) - points, len(low)), key=low.__getitem__)
        for at in range(start - 1, _SLOPE - 1, -1):
            trough = min(trough, at + 1, key=low.__getitem__)
            if level - low[start] <= _ALIKE * (high[at] - low[trough]):
                before = at - _SLOPE
                rate = (high[at] - low[before]) / max(1e-3, times[at] - times[before])
                if trend.bytes_s / _SLOWER <= rate <= trend.bytes_s * _SLOWER:
                    return True
        return False

    def growing(self, trend: Trend) -> dict[int, float]:
        """The ranks that grow, and by how many bytes a second."""
        grown = {rank: points[-1] - min(points[-trend.points :]) for rank, points in self._ranks.items()}
        whole = self._low[-1] - min(self._low[-trend.points :])
        least = _GROWS * max(whole, sum(size for size in grown.values() if size > 0))
        return {
            rank: trend.bytes_s * size / whole for rank, size in sorted(grown.items()) if size >= least > 0
        }


def _bend(edges: Sequence[float]) -> float:
    """How far it is from a straight line at most."""
    part = (edges[-1] - edges[0]) / _PARTS
    return max(abs(edge - edges[0] - part * at) for at, edge in enumerate(edges))


def _rest(edges: Sequence[float]) -> float:
    """How far what rises ever more slowly will still rise, if each half of such a time has the same part of
    the one before; infinite: it does not slow down."""
    middle = edges[len(edges) // 2]
    slows = (edges[-1] - middle) / (middle - edges[0]) if middle > edges[0] else 1.0
    return (edges[-1] - middle) * slows / (1 - slows) if slows < _SLOWS else inf


class Watch:
    """Looks at every memory of a run's nodes, and says what changes."""

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace or Pace()
        self._gauges: dict[str, dict[str, Gauge]] = {}
        self._told: dict[tuple[str, str], _ReportedTrend] = {}
        self._seen: dict[tuple[str, str], int] = {}
        """At how many points in a row a trend was seen that is not told."""

    def take(self, at: float, node: str, sample: Sample, run: Run) -> Iterator[Filling]:
        """Take in a sample of a node; give what is news.

        :param at: unix seconds
        :param run: whose ranks these are
        """
        memory = [*sample.memory, *(_gpus(sample, node, run) if sample.memory else ())]
        gauges = self._gauges.setdefault(node, {})
        if memory:
            here = {each.of for each in memory}
            for of in [of for of in gauges if of not in here]:
                del gauges[of]
                yield from self._over(node, of)
        own = {rank.rank: rank for rank in run.on(node) if rank.state in LIVE}
        for each in memory[:LIMITS]:
            gauge = gauges.setdefault(each.of, Gauge(self._pace))
            sizes = _sizes(each, sample, node, run)
            if gauge.add(at, each.used_bytes, {rank: size for rank, size in sizes.items() if rank in own}):
                offset = run.nodes[node].offset_s
                since = max((rank.started_at or 0.0 for rank in own.values()), default=0.0) - offset
                yield from self._judge(at, node, each, gauge, since)

    def _judge(
        self, at: float, node: str, memory: MemorySample, gauge: Gauge, since: float
    ) -> Iterator[Filling]:
        trend = gauge.trend(memory.limit_bytes, since)
        told = self._told.get((node, memory.of))
        if trend is None:
            self._seen.pop((node, memory.of), None)
            if told is not None:
                told.missing += 1
                if told.missing > self._pace.hold:
                    yield from self._over(node, memory.of, gauge.used, memory.limit_bytes)
            return
        if told is None and not self._lasts((node, memory.of), trend):
            return
        if told is not None and 0 <= at - told.at < AGAIN_S:
            told.missing = 0
            return
        self._told[node, memory.of] = _ReportedTrend(at)
        yield Filling(
            memory.of,
            gauge.used,
            memory.limit_bytes,
            at + trend.left_s,
            trend.bytes_s,
            trend.over_s,
            gauge.growing(trend),
        )

    def _lasts(self, place: tuple[str, str], trend: Trend) -> bool:
        """Whether a trend was seen for long enough to be told."""
        self._seen[place] = seen = self._seen.get(place, 0) + 1
        pace = self._pace
        return trend.points > pace.short or seen >= pace.lasts or trend.left_s <= pace.soon_s

    def _over(self, node: str, of: str, used: int = 0, limit: int = 0) -> Iterator[Filling]:
        self._seen.pop((node, of), None)
        if self._told.pop((node, of), None) is not None:
            yield Filling(of, used, limit)


@dataclass
class _ReportedTrend:
    """A trend that was reported, when, and the number of points since it was last seen."""

    at: float
    missing: int = 0


def _gpus(sample: Sample, node: str, run: Run) -> Iterator[MemorySample]:
    """The memory of GPUs, in the same form."""
    for gpu in sample.gpus:
        if gpu.memory_bytes is not None and gpu.memory_total_bytes:
            ranks = tuple(rank.rank for rank in run.on(node) if rank.pid in gpu.processes)
            yield MemorySample(f"{GPU}{gpu.index}", gpu.memory_bytes, gpu.memory_total_bytes, ranks)


def _sizes(memory: MemorySample, sample: Sample, node: str, run: Run) -> dict[int, int]:
    """How much of a memory each rank holds, as far as that is known."""
    if memory.of.startswith(GPU):
        gpu = next(each for each in sample.gpus if memory.of == f"{GPU}{each.index}")
        pids = {rank.rank: gpu.processes.get(rank.pid or 0) for rank in run.on(node)}
        return {rank: size for rank, size in pids.items() if size is not None}
    held = {rank: sample.ranks[rank].held_bytes for rank in memory.ranks if rank in sample.ranks}
    return {rank: size for rank, size in held.items() if size is not None}


# -- what is said ------------------------------------------------------------------------------------


def findings(run: Run, name: str, now: float) -> list[Finding]:
    """What is to be said about memory that fills, the first to be full first.

    :param name: the run's
    :param now: unix seconds
    """
    found = [
        (fact.full_at, node.name, fact)
        for node in run.nodes.values()
        if not node.over and any(rank.state in LIVE for rank in run.on(node.name))
        for at, fact in node.filling.values()
        if fact.full_at is not None and now - at <= FRESH_S
    ]
    found.sort(key=lambda each: each[:2])
    return [_finding(run, name, now, node, fact) for _, node, fact in found]


def _finding(run: Run, name: str, now: float, node: str, fact: Filling) -> Finding:
    gpu = fact.of.startswith(GPU)
    who = [rank for rank in fact.ranks if rank in run.nodes[node].ranks]
    evidence = [
        f"{size(fact.used_bytes)} of {size(fact.limit_bytes)} in use, the limit of "
        f"{limit_name(fact.of)}; {size(60 * fact.bytes_s)} more per minute, for {rounded_span(fact.over_s)}",
        _who_grows(fact, who),
    ]
    if gpu:
        evidence.append("torch's cache counts as used: it may level off by itself")
    steps = [Step(f"cockpit ps {quote(name)}", "memory of each rank now")]
    if not gpu:
        steps.append(Step(LARGEST.command, LARGEST.reason, node))
    found = Finding(
        "gpu_memory_filling" if gpu else "memory_filling",
        sentence(node, fact, now),
        ranks=mask_of(who),
        evidence=tuple(one_line(text, limit=300) for text in evidence),
        certainty="unsure" if gpu else "likely",
        steps=tuple(steps),
        nodes=(node,),
        severity="warning",
    )
    return recognised(found)


def sentence(node: str, fact: Filling, now: float) -> str:
    """``memory of gpu03 is full in about 12 min (limit of SLURM step 7.0: 96.0 GiB)``."""
    what = f"memory of {fact.of} on {node}" if fact.of.startswith(GPU) else f"memory of {node}"
    if fact.full_at is None:
        return one_line(f"{what} is no longer approaching its limit", limit=300)
    limit = f"limit of {limit_name(fact.of)}: {size(fact.limit_bytes)}"
    return one_line(f"{what} is full {ahead(fact.full_at - now)} ({limit})", limit=300)


def limit_name(of: str) -> str:
    """Whose limit it is: ``the machine``, ``SLURM step 7.0``, ``cgroup /user.slice``, ``the container``."""
    if not of or of.startswith(GPU):
        return "the GPU" if of else "the machine"
    if of == "/":
        return "the container"
    found = re.search(r"/job_([0-9]+)(?:/step_([a-z0-9]+))?", of)
    if found:
        return f"SLURM step {found[1]}.{found[2]}" if found[2] else f"SLURM job {found[1]}"
    return f"cgroup {of}"


def _who_grows(fact: Filling, who: Sequence[int]) -> str:
    if not who:
        return (
            "no single rank's memory grows that fast: check files in /dev/shm, copies that data loader "
            "processes make of shared memory, and other processes there"
        )
    rates = [fact.ranks[rank] for rank in who]
    each = f"{size(60 * min(rates))} to {size(60 * max(rates))}"
    each = each if max(rates) > 1.2 * min(rates) else size(60 * max(rates))
    more = " each" if len(who) > 1 else ""
    verb = "grow" if len(who) > 1 else "grows"
    return f"{ranks_named(who)} {verb} by {each} per minute{more}"


def last_seen(run: Run, rank: Rank) -> str:
    """What is known of memory that was about to be full when a rank ended, in words; empty: nothing."""
    ended = run.ended_at(rank)
    node = run.nodes[rank.node]
    for at, fact in node.filling.values():
        if fact.full_at is not None and abs(ended - at) <= FRESH_S and not fact.of.startswith(GPU):
            used = f"{size(fact.used_bytes)} of {size(fact.limit_bytes)}"
            return f"its memory was approaching the limit of {limit_name(fact.of)} ({used})"
    return ""
