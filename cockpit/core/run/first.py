"""Which rank broke first, from recorded ends and from what ranks printed before them.

Words decide who broke and who only waited for another; time decides among those who broke. A rank that ended
without a word broke, too; one that all others waited for, and that says nothing, did not join them.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from cockpit.core.logs.cause_words import Weight
from cockpit.core.logs.causes import Cause
from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.run.states import Rank, RankState, Run

LISTENED = 64
"""Ranks whose last words are read: so many that failed, the first of them, and so many others."""
AT_ONCE_S = 2.0
"""An end is seen by the others before it is recorded: a program takes some time to leave."""
LINGERS_S = 10.0
"""A rank that ended without a word so long after others had given up waiting is no cause of that."""

CRASHES = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
_ENDED_BY_OTHERS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


def any_at_once(ended: float | None, others: Iterable[float | None]) -> bool:
    """Whether any of those that failed too ended no later than shortly after one, by records of both.

    Who fails because of another one may be through with it sooner.

    :param ended: when that one ended, unix seconds; None: not recorded
    """
    return ended is not None and any(at is not None and at - ended <= AT_ONCE_S for at in others)


class LoggedEnd(NamedTuple):
    """What a rank's log says of its end.

    :param cause: None: nothing
    :param at: when it was printed, unix seconds on our clock; None: that is not known
    """

    cause: Cause | None
    at: float | None = None


Listen = Callable[[Rank], LoggedEnd | None]
"""Gives what a rank says of its end; None: nothing of its log is here."""


class First(NamedTuple):
    """Who broke first.

    :param ranks: one, as a mask; or several, of which it is not known
    :param how: ``broke``: it ended, or says that it broke; ``left``: it exited 0 while the others continued;
        ``absent``: others waited for it; ``unknown``
    :param cause: what it says; if it says nothing, what one of those says that waited for it
    :param sure: its end is on record, it says what broke, and nobody else may have been first
    """

    ranks: int
    how: str
    cause: Cause | None = None
    sure: bool = False


def listened(run: Run) -> list[Rank]:
    """The ranks whose last words count: some that failed, the first of them, and some of the others."""
    failures = run.failures()
    failed = {rank.rank for rank in failures}
    others = (run.ranks[number] for number in sorted(run.ranks) if number not in failed)
    return list(chain(islice(failures, LISTENED), islice(others, LISTENED)))


def first_of(run: Run, listen: Listen) -> First | None:
    """Who broke first; None if no rank has failed."""
    failures = run.failures()
    if not failures:
        return None
    ends = _Ends(run, failures, listen)
    found = ends.broke() or ends.blamed() or ends.left() or ends.apart() or ends.absent()
    return found or ends.unknown()


class _Ends:
    """The ends of a run's ranks; each question names who broke first, or nobody."""

    def __init__(self, run: Run, failures: list[Rank], listen: Listen) -> None:
        self._run = run
        self._failures = failures
        self._ranks = listened(run)
        self._causes: dict[int, Cause] = {}
        self._at: dict[int, float] = {}
        """When each broke, or gave up waiting: as it says, else as it ended."""
        for rank in self._ranks:
            said = listen(rank)
            ended = run.ended_at(rank) if rank.ended_at else math.inf
            self._at[rank.rank] = ended if said is None or said.at is None else min(said.at, ended)
            # What a rank printed that exited 0 was handled.
            if said is not None and said.cause is not None and rank.code != 0:
                self._causes[rank.rank] = said.cause
        self._waited = self._of(lambda weight: weight == Weight.VICTIM)
        self._left = self._early()

    def _of(self, fits: Callable[[Weight], bool]) -> list[int]:
        """The ranks whose words have such a weight, the first of them."""
        found = (number for number, cause in self._causes.items() if fits(cause.weight))
        return sorted(found, key=lambda number: (self._at[number], number))

    def _early(self) -> list[int]:
        """Ranks that exited 0 by the time the first one failed, if most had not ended."""
        until = self._run.ended_at(self._failures[0]) + AT_ONCE_S
        left = [
            rank.rank
            for rank in self._run.ranks.values()
            if rank.state is RankState.EXITED and rank.code == 0 and self._run.ended_at(rank) <= until
        ]
        return left if 2 * len(left) < len(self._run.ranks) else []

    def _named(self, how: str, ranks: Iterable[int]) -> First:
        """Ranks that say nothing of it themselves: what one says that waited tells most."""
        return First(mask_of(ranks), how, self._causes[self._waited[0]] if self._waited else None)

    def broke(self) -> First | None:
        """The first of those that say so, or ended without a word."""
        told = next(iter(self._of(lambda weight: weight > Weight.VICTIM)), None)
        silent = min(self._silent(), key=self._run.ended_at, default=None)
        if silent is not None:
            # Who says nothing and exits may do so because another one broke.
            slack = AT_ONCE_S if silent.signal is None else 0.0
            if told is None or self._run.ended_at(silent) < self._at[told] - slack:
                told = silent.rank
        return None if told is None else First(1 << told, "broke", self._causes.get(told), self._sure(told))

    def _sure(self, number: int) -> bool:
        """Whether one that says that it broke did so before all others, by what is recorded of them."""
        first, cause = self._run.ranks[number], self._causes.get(number)
        if cause is None or cause.weight <= Weight.VICTIM or self._left:
            return False
        others = [rank for rank in self._failures if rank.rank != number and rank.signal != signal.SIGTERM]
        soon = any_at_once(self._run.ended_at(first), map(self._run.ended_at, others))
        return first.failed and first.recorded and first.state is not RankState.LOST and not soon

    def _silent(self) -> Iterator[Rank]:
        gave_up = self._at[self._waited[0]] if self._waited else math.inf
        for rank in self._failures[:LISTENED]:
            cause = self._causes.get(rank.rank)
            if (cause is not None and cause.weight >= Weight.VICTIM) or rank.signal in _ENDED_BY_OTHERS:
                continue
            if rank.signal is None and self._left and self._waited:
                continue  # as others do that are left alone
            lasting = rank.signal in CRASHES or rank.state is RankState.LOST
            if lasting or self._run.ended_at(rank) <= gave_up + LINGERS_S:
                yield rank

    def blamed(self) -> First | None:
        """The one that others name, if it did not wait itself."""
        named = 0
        for number in self._waited:
            named |= self._causes[number].blames
        named &= mask_of(self._run.ranks) & ~mask_of(self._waited)
        return self._named("absent", ranks_of(named)) if named.bit_count() == 1 else None

    def left(self) -> First | None:
        """A few that exited 0 while most went on."""
        return self._named("left", self._left) if self._left and self._waited else None

    def apart(self) -> First | None:
        """The one that waited in an earlier call than all others, or in another collective than most."""
        calls = {number: call for number in self._waited if (call := self._causes[number].call) is not None}
        many = Counter(calls.values())
        if len(many) != 2:
            return None
        low, high = sorted(many)
        behind = low[0] < high[0]
        odd = low if behind else min(many, key=lambda call: many[call])
        found = [number for number, call in calls.items() if call == odd]
        fits = len(found) == 1 and (behind or len(calls) > 2)
        return First(1 << found[0], "absent", self._causes[found[0]]) if fits else None

    def absent(self) -> First | None:
        """Those that say nothing and had not ended, while all others waited for somebody."""
        if not self._waited or len(self._ranks) < len(self._run.ranks):
            return None
        if len(self._waited) == 1 and self._causes[self._waited[0]].call is None:
            return None  # what it waited for need not be a rank
        ended = {rank.rank for rank in self._failures if rank.signal not in _ENDED_BY_OTHERS}
        quiet = [rank.rank for rank in self._ranks if rank.code != 0 and rank.rank not in ended]
        quiet = [number for number in quiet if number not in self._causes]
        return self._named("absent", quiet) if 0 < len(quiet) < len(self._waited) else None

    def unknown(self) -> First:
        """Nobody can be told from the others; of one alone its own words are all there is."""
        seen = self._run.watch.culprits
        if seen and not seen & mask_of(self._waited):
            return self._named("absent", ranks_of(seen))
        if len(self._waited) < 2:
            first = self._failures[0].rank
            return First(1 << first, "broke", self._causes.get(first))
        return self._named("unknown", self._waited)
