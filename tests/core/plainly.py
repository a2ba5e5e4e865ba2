"""Who is slow, which rows there are and what the map shows, as defined: what is quick must agree with it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import median

from cockpit.core.pace.heat import ALIKE, LEVELS, NO_STEP, STALL, USUAL, Window
from cockpit.core.pace.pace import Pace, RankPace
from cockpit.core.pace.rows import (
    Kind,
    Pair,
    Row,
    _agree,
    _any_kind,
    _blocks,
    _opened,
    _own,
    _same,
    _sorted,
    rows,
)
from cockpit.core.pace.slow import EXCESS, LOOKED_AT, NEEDED, Slow
from cockpit.core.pace.step import Step


def slow(pace: Pace) -> list[Slow]:
    """Ranks that are slow, or late, the slowest first: each judged by its own last steps."""
    judged = _judged(pace)[: 2 * LOOKED_AT]
    found = []
    for place, rank in enumerate(pace.steps.ranks):
        excesses = [step.excess(place) for step in _lasts(pace, rank, judged)]
        known = [excess for excess in excesses if excess is not None][:LOOKED_AT]
        if len(known) == LOOKED_AT and sum(excess >= EXCESS for excess in known) >= NEEDED:
            found.append(Slow(rank, median(known)))
    return sorted(found, key=lambda one: -one.excess)


def spans(pace: Pace, rank: int) -> tuple[float | None, float | None, float | None]:
    """Span, work and lag of a rank: the medians of what is known of its last steps."""
    if pace.of(rank) == RankPace():
        return None, None, None
    place = pace.steps.place[rank]
    newest = list(pace._reached())[:LOOKED_AT]
    own = _lasts(pace, rank, newest)
    judged = _judged(pace)[:LOOKED_AT] if pace.works else []
    span = _middle(step.estimate if pace.of(rank).estimated else step.spans[place] for step in own)
    if pace.lag:
        return span, None, _middle(step.over(place) for step in judged)
    return span, _middle(step.works[place] for step in judged), None


def _judged(pace: Pace) -> list[Step]:
    return [step for step in pace._reached() if step.works or not pace.works]


def _lasts(pace: Pace, rank: int, newest: Sequence[Step]) -> Sequence[Step]:
    known = pace._known.get(rank)
    if known is None or not newest or known.key >= newest[-1].key:
        return newest
    steps = [pace.steps.get((known.key[0], known.key[1] - back)) for back in range(2 * LOOKED_AT)]
    return [step for step in steps if step is not None]


def _middle(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return median(known) if known else None


# Rows


Apart = Mapping[int, int]


def folded(nodes: Mapping[str, Sequence[int]], apart: Apart, height: int) -> list[Row]:
    """Rows of nodes: as few nodes share one as there is room for."""
    opened = [row for node, ranks in nodes.items() for row in _opened(node, ranks, apart, every=False)]
    closed = [row for node, ranks in nodes.items() for row in _sorted(node, ranks, apart, _own)]
    found = next((some for some in (opened, closed) if len(some) <= height), closed)
    if len(found) <= height:
        return found
    for found in _foldings(nodes, apart):
        if len(found) <= height:
            break
    return found


def pairs(nodes: Mapping[str, Sequence[int]], apart: Apart, height: int) -> list[Pair]:
    """Rows, two a line where there is no room for each."""
    single = rows(nodes, apart, height, every=True)
    if len(single) <= height:
        return [(row,) for row in single]
    for alone in (apart, ()):
        if len(found := _paired(single, alone)) <= height:
            return found
    single = rows(nodes, apart, height, every=False)
    if all(len(row.nodes) <= 1 for row in single) and len(single) <= height:
        return [(row,) for row in single]
    for some in _foldings(nodes, apart):
        found = _paired(some, apart)
        if len(found) <= height:
            break
    return found


def _foldings(nodes: Mapping[str, Sequence[int]], apart: Apart) -> Iterator[list[Row]]:
    """Every number of nodes that may share a row, those that are alike first."""
    for kind, mixed in ((_same, False), (_any_kind, False), (_any_kind, True)):

        def pattern(node: str, kind: Kind = kind, mixed: bool = mixed) -> object:
            return mixed or {kind(rank, apart) for rank in nodes[node]}

        runs = [list(run) for _, run in groupby(nodes, pattern)]
        longest = max(map(len, runs), default=0)
        for most in range(1, longest + 1):
            # Of nodes of any pattern so many that all blocks but the last are as long.
            if mixed and most not in {-(-longest // parts) for parts in range(1, longest + 1)}:
                continue
            yield [row for run in runs for row in _blocks(run, most, nodes, apart, kind)]


def _paired(some: Sequence[Row], alone: Collection[int]) -> list[Pair]:
    found: list[Pair] = []
    for row in some:
        above = found[-1] if found else ()
        lonely = any(rank in alone for each in (*above, row) for rank in each.ranks)
        if len(above) == 1 and _agree(above[0], row) and not lonely:
            found[-1] = (*above, row)
        else:
            found.append((row,))
    return found


# The map


def columns(pace: Pace, window: Window) -> list[bytes]:
    """The columns of a window: the worst of each rank's steps in each."""
    usual, ranks = pace.usual(), len(pace.steps.ranks)
    cells = [bytearray(ranks) for _ in range(window.columns)]
    looked = next((step for step in pace.steps.newest() if step.works), None)
    carried = _drawn(looked, looked.typical_span)[0] if looked else bytearray()
    for step in pace.steps.newest():
        if step.typical_end < window.since:
            continue
        span = _occupied(step.typical_span, usual) * step.count
        together, apart = _drawn(step, span)
        if looked is not None and not step.works and step.key > looked.key and _alike(step, looked):
            for place, level in enumerate(together):
                together[place] = level and (carried[place] or level)
        for place, level in enumerate(together):
            _draw(cells, window.cover(step.typical_end - span, step.typical_end), place, level)
        for place, end, own, level in apart:
            _draw(cells, window.cover(end - _occupied(own, usual), end), place, level)
    for bucket in pace.history.buckets:
        for place in range(ranks if bucket.slowest < ranks else 0):
            level = bisect_right(LEVELS, bucket.excess) + USUAL if place == bucket.slowest else USUAL
            _draw(cells, window.cover(bucket.at - (usual or 0.0), bucket.until), place, level)
    return [bytes(column) for column in cells]


def _alike(step: Step, looked: Step) -> bool:
    return abs(step.typical_span - looked.typical_span) <= ALIKE * looked.typical_span


def _draw(cells: Sequence[bytearray], where: Iterable[int], place: int, level: int) -> None:
    for column in where:
        cells[column][place] = max(cells[column][place], level)


def _drawn(step: Step, span: float) -> tuple[bytearray, list[tuple[int, float, float, int]]]:
    """The levels of the ranks that finished with the median one; place, end, span and level of each other."""
    levels = bytearray(len(step.ends))
    apart = []
    middle = step.typical_end - step.base
    for place, end in enumerate(step.ends):
        excess = step.excess(place)
        level = USUAL if excess is None else bisect_right(LEVELS, excess) + USUAL
        if not math.isnan(end) and abs(end - middle) > span / 2:
            apart.append((place, step.base + end, step.spans[place], level))
        else:
            levels[place] = NO_STEP if math.isnan(end) else level
    return levels, apart


def _occupied(span: float, usual: float | None) -> float:
    if math.isnan(span):
        return 0.0 if usual is None else usual
    return usual if usual is not None and span > STALL * usual else span
