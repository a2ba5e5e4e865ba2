"""The pace of a whole run in a bounded number of buckets: least, median and greatest, and of which rank."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from statistics import median_low

from cockpit.core.pace.step import Step

BUCKETS = 2048
"""Kept at most; two neighbours become one when there are more: 34 hours by the minute, then coarser."""
FIRST_S = 60.0
"""Seconds that a bucket covers at first."""
SOME = 16
"""Steps of a bucket of which the median is taken for that of all of them, at most."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Steps that ended within some time.

    :param at: unix seconds of the first one's end
    :param until: of the last one's
    :param steps: how many
    :param first, last: their numbers
    :param least, middle, greatest: seconds of work where that is known of any, else of whole steps: of the
        fastest rank, of the median one in the median step, and of the slowest
    :param excess: how much longer than the median rank the slowest one took, in the step where that was most
    :param slowest: the place of that rank
    :param work: whether they are of work
    :param some: what some of them took the median rank, one of so many: :attr:`each`
    """

    at: float
    until: float
    steps: int
    first: int
    last: int
    least: float
    middle: float
    greatest: float
    excess: float
    slowest: int
    work: bool
    some: tuple[float, ...]
    each: int = 1


class History:
    """What is left of steps that are too old to be kept rank by rank."""

    def __init__(self) -> None:
        self._buckets: deque[Bucket] = deque()
        self._wide = FIRST_S

    def __len__(self) -> int:
        return len(self._buckets)

    @property
    def buckets(self) -> list[Bucket]:
        """The buckets, oldest first."""
        return list(self._buckets)

    def add(self, step: Step) -> None:
        """Take in a step; one of which nothing is known is ignored."""
        values, middle = step.compared
        known = [(value, place) for place, value in enumerate(values) if not math.isnan(value)]
        if not known:
            return
        (least, _), (greatest, slowest) = min(known), max(known)
        # Stages of a pipeline differ; who is apart is so within one.
        apart = [(value, place) for place, value in enumerate(step.excesses) if not math.isnan(value)]
        excess, slowest = max(apart, default=(0.0, slowest))
        end = step.typical_end
        new = Bucket(
            end,
            end,
            1,
            step.step,
            step.step,
            least,
            middle,
            greatest,
            excess,
            slowest,
            step.by_work,
            (middle,),
        )
        self.put(new)

    def put(self, new: Bucket) -> None:
        """Take in steps that ended after those that are here."""
        if self._buckets and 0 <= new.at - self._buckets[-1].at < self._wide:
            self._buckets[-1] = _joined(self._buckets[-1], new)
        else:
            self._buckets.append(new)
        if len(self._buckets) > BUCKETS:
            self._halve()

    def _halve(self) -> None:
        old = list(self._buckets)
        pairs = [_joined(*old[at : at + 2]) for at in range(0, len(old) - 1, 2)]
        self._buckets = deque([*pairs, *old[len(pairs) * 2 :]])
        self._wide *= 2


def _joined(old: Bucket, new: Bucket) -> Bucket:
    first, last = min(old.first, new.first), max(old.last, new.last)
    both = replace(old, until=max(old.until, new.until), steps=old.steps + new.steps, first=first, last=last)
    if old.work != new.work:
        # Work and whole steps have no common median.
        told = old if old.work else new
        return replace(told, at=old.at, until=both.until, steps=both.steps, first=first, last=last)
    worst = max(old, new, key=lambda bucket: bucket.excess)
    each = max(old.each, new.each)
    some = old.some[:: each // old.each]
    if new.steps > 1 or old.steps % each == 0:
        some += new.some[:: each // new.each]
    if len(some) > SOME:
        some, each = some[::2], 2 * each
    return replace(
        both,
        least=min(old.least, new.least),
        middle=median_low(some),
        greatest=max(old.greatest, new.greatest),
        excess=worst.excess,
        slowest=worst.slowest,
        some=some,
        each=each,
    )
