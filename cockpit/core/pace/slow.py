"""Who is slow: the last steps of each rank, compared step by step with those of the median rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from statistics import median

from cockpit.core.pace.step import Key, Step
from cockpit.core.pace.steps import Steps

LOOKED_AT, NEEDED, EXCESS = 10, 8, 0.10
"""A rank is slow if it took a tenth longer than the median rank in eight of its last ten steps."""
LATELY = ((5, 0.25), (3, 0.5), (2, 1.0))
"""What may be slow: who took so much longer in each of its last so many steps."""
LATELY_S = 0.1
"""Seconds that it took longer at least: of shorter steps ten are soon made."""


@dataclass(frozen=True)
class Slow:
    """A rank that is slow.

    :param excess: by how much its median step exceeds that of the median rank: 0.5 is half as long again
    """

    rank: int
    excess: float


@dataclass(frozen=True)
class SlowLately:
    """A rank that was slow in each of its last steps, which are too few to call it slow.

    :param steps: how many
    :param took_s: seconds of a step that are compared, the median of these; ``usual_s``: the same of the
        median rank
    :param step_s: seconds of a whole step; NaN: not known
    """

    rank: int
    steps: int
    took_s: float
    usual_s: float
    step_s: float


Judged = Callable[[int], Iterable[Step]]
"""The steps of a rank by which it is compared with others, newest first."""


def _alike(
    steps: Steps, newest: Sequence[Step], keys: Iterable[Key | None]
) -> Iterator[tuple[Sequence[int], Sequence[Step]]]:
    """The places of ranks that are judged by the same steps, and these."""
    groups: dict[Key | None, list[int]] = {}
    for place, key in enumerate(keys):
        far = key is not None and newest and key < newest[-1].key
        groups.setdefault(key if far else None, []).append(place)
    for found, places in groups.items():
        yield places, newest if found is None else steps.back_from(found, LOOKED_AT * 2)


def slow_ranks(steps: Steps, newest: Sequence[Step], keys: Iterable[Key | None]) -> Iterator[Slow]:
    """Ranks that are slow.

    :param newest: the steps by which they are judged unless they are far behind, newest first
    :param keys: of the last step of the rank at each place; None: not known
    """
    ranks = steps.ranks
    for places, judged in _alike(steps, newest, keys):
        if len(judged) < LOOKED_AT:
            continue
        tables: list[Sequence[float]] = [step.excesses for step in judged[:LOOKED_AT]]
        if len(places) < len(ranks):
            tables = [[table[place] for place in places] for table in tables]
        for place, excesses in zip(places, zip(*tables, strict=True), strict=True):
            total = sum(excesses)
            if total != total:  # one of them is not known: NaN
                known = (found for step in judged if (found := step.excess(place)) is not None)
                excesses = tuple(islice(known, LOOKED_AT))
            if len(excesses) == LOOKED_AT and sorted(excesses)[LOOKED_AT - NEEDED] >= EXCESS:
                yield Slow(ranks[place], median(excesses))


def ranks_slow_lately(ranks: Sequence[int], judged: Judged) -> Iterator[SlowLately]:
    """Ranks that may be slow; those that are can be among them."""
    for place, rank in enumerate(ranks):
        known = [step for step in judged(rank) if step.excess(place) is not None]
        runs = ((_late(known, place, excess), needed) for needed, excess in LATELY)
        late = next((run for run, needed in runs if len(run) >= needed), None)
        if late is not None:
            took = median(step.compared[0][place] for step in late)
            over = median(step.over(place) for step in late)
            yield SlowLately(rank, len(late), took, took - over, median(step.typical_span for step in late))


def slow_since(place: int, newest: Iterable[Step]) -> int:
    """The first step of those in which the rank at a place was slow, never more than two apart.

    :param newest: steps, newest first
    """
    since, misses = 0, 0
    for step in newest:
        excess = step.excess(place)
        if excess is None:
            continue
        misses = misses + 1 if excess < EXCESS else 0
        if misses > LOOKED_AT - NEEDED:
            break
        since = since if misses else step.step
    return since


def _late(newest: Iterable[Step], place: int, excess: float) -> list[Step]:
    """The last steps, one after the other, in each of which a rank took so much longer."""
    return list(
        takewhile(lambda step: step.excesses[place] >= excess and step.over(place) >= LATELY_S, newest)
    )
