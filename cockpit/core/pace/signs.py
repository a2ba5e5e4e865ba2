"""Signs of progress where a rank's steps are not known: its collectives, else that its main thread runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from cockpit.core.recorder.counts import Count

FRESH_S = 150.0
"""Seconds for which a look at recorders counts: one is taken each minute."""

RESOLUTION_S = 2.0
"""Main threads are looked at each second: when one ran cannot be known any closer than this."""

STILL_S = 10.0
"""Seconds without a sign after which a rank counts as one that does not go on."""

RECORDER, CPU = "recorder", "cpu"


@dataclass(frozen=True)
class Sign:
    """The last sign of progress of a rank.

    :param source: ``recorder``: a collective that torch's flight recorder has; ``cpu``: its main thread ran
    :param at: when that was, unix seconds on our clock
    :param seen_at: when that was the last one, likewise: a recorder is looked at once a minute
    :param least: it has not reached a sign since we look, which is since ``at``
    :param collectives: how many it has entered so far, in all its groups; None: not known
    :param behind: so many had most others of its groups entered before it
    """

    source: str
    at: float
    seen_at: float
    least: bool = False
    collectives: int | None = None
    behind: int = 0

    def age_s(self, now: float) -> float:
        """Seconds since the sign: until now, or, of a recorder, until it was looked at."""
        until = self.seen_at if self.source == RECORDER else now
        return max(0.0, until - self.at)


@dataclass(slots=True)
class _Ran:
    """A main thread: its counters, when they were seen to change, and when they were seen last."""

    counters: tuple[float, int]
    at: float
    seen_at: float
    least: bool = True


class Signs:
    """What is known of each rank beside its steps. Times are unix seconds on our clock.

    A rank's signs are made of what its own node says of it, but for :attr:`Sign.behind`, which takes most
    ranks of a group (:mod:`cockpit.core.recorder.counts`).

    :param ranks: of the run; others are ignored
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self._ranks = frozenset(ranks)
        self._ran: dict[int, _Ran] = {}
        self._entered: dict[int, Sign] = {}
        self._now = -math.inf

    def forget(self, rank: int) -> None:
        """It has ended, or runs as a new process."""
        self._ran.pop(rank, None)
        self._entered.pop(rank, None)

    def ran(self, rank: int, cpu_s: float | None, switches: int | None, at: float) -> None:
        """What its main thread has used so far; less than before: it is that of another process.

        :param at: when that was measured
        """
        if rank not in self._ranks or cpu_s is None or switches is None or not math.isfinite(cpu_s):
            return
        self._now = max(self._now, at)
        counters, before = (cpu_s, switches), self._ran.get(rank)
        if before is None:
            self._ran[rank] = _Ran(counters, at, at)
            return
        if counters != before.counters:
            before.counters, before.at, before.least = counters, at, False
        before.seen_at = at

    def entered(self, rank: int, count: Count, now: float) -> None:
        """What its recorder had.

        :param now: when that is known
        """
        if rank not in self._ranks:
            return
        self._now = max(self._now, now)
        # Its node may say any time.
        seen_at = min(max(count.taken_us / 1e6, 0.0), now)
        at = min(max(count.last_us / 1e6, 0.0), seen_at)
        behind = max(0, count.behind)
        self._entered[rank] = Sign(RECORDER, at, seen_at, collectives=count.collectives, behind=behind)

    def of(self, rank: int) -> Sign | None:
        """The best sign there is; None: there is none."""
        entered, ran = self._entered.get(rank), self._ran.get(rank)
        if entered is not None and self._now - entered.seen_at <= FRESH_S:
            return entered
        return None if ran is None else Sign(CPU, ran.at, ran.seen_at, ran.least)


def differing(signs: Mapping[int, Sign], now: float) -> list[int]:
    """Ranks that are not like most others: behind, or the fewer of those that go on and that stand still."""
    behind = {rank for rank, sign in signs.items() if sign.behind > 1}
    still = {rank for rank, sign in signs.items() if sign.age_s(now) >= STILL_S}
    fewer: Collection[int] = still if 2 * len(still) <= len(signs) else signs.keys() - still
    # All are alike then.
    return sorted(behind | ({*fewer} if len(fewer) < len(signs) else set()))
