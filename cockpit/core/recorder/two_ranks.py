"""How long two ranks take from one moment to the next, where one of them has to wait for the other.

Of two, only one gets through such a gap without waiting: the one that is waited for. What it took says little
of the other if it is slow just there, and nothing tells in one step whether the other waited for all of that
time, or computed for some of it. As long as nobody is slow either may be ahead, by as much as it can compute
before it has to wait, for many steps on end. So of two ranks only what is certain is waiting:

- What a rank took where it did not have to wait, in other steps, is the measure: its share of a step. Where
  that was once more than at other times, it is the most of them.
- If it hardly ever got there last, that little is a measure still, if it takes as long once the last one has
  arrived: it has not computed before.
- Else the measure is what the other one took. That may hide that it is slow there.
- Over a dozen steps the time beyond the measure has to be more than next to nothing, shorter ones and longer
  ones together: some are longer than others by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_low
from typing import NamedTuple

from cockpit.core.recorder.overlap import STEP, when

ENOUGH = 4
"""Times that a rank did not have to wait at a place, from which its share of a step can be told."""

MOST = 0.9
"""Of a step, what a gap takes at most where that can be told from its share."""

ALIKE = (2 / 3, 3 / 2)
"""From how much to how much of the time of a gap is as long."""

ROUNDS = 3
"""Times that waits are found, each time with those of the rest of the step, which is longer by them."""

AS_LONG = 1.25
"""Times what the other one took is the measure at most: a rank may have been slow there before."""

LEFT = 0.2
"""Less than this share of the time until the last one arrives is next to nothing."""


class Free(NamedTuple):
    """A gap that a rank took ``busy`` microseconds for, and waited for nobody; ``step``: its whole step."""

    key: int
    busy: int
    step: int


class Behind(NamedTuple):
    """A gap for which another one arrived later: ``took`` for all of it, ``until`` it arrived."""

    key: int
    took: int
    until: int
    step: int


class TwoRanks:
    """What both took.

    :param free: by rank; a gap may be in :attr:`behind` too, if the other one arrived a moment later
    """

    def __init__(self) -> None:
        self.free: dict[int, list[Free]] = {}
        self.behind: dict[int, list[Behind]] = {}

    def waited(self, newest: int) -> dict[int, dict[int, int]]:
        """For each rank how long it waited in which gaps.

        :param newest: step
        """
        return {rank: self._waited(rank, newest) for rank in self.behind}

    def _waited(self, rank: int, newest: int) -> dict[int, int]:
        spells: dict[tuple[int, int], list[Behind]] = {}
        for one in self.behind[rank]:
            spells.setdefault(when(one.key, newest), []).append(one)
        shares = self._shares(rank, newest)
        other = {one.key: one.busy for who, some in self.free.items() if who != rank for one in some}
        judged = [(some, _share(shares.get(place, {}), some)) for (place, _), some in spells.items()]
        found: dict[int, int] = {}
        for _ in range(ROUNDS):
            all_of: dict[int, int] = {}
            for key, waited in found.items():
                all_of[key >> STEP] = all_of.get(key >> STEP, 0) + waited
            before, found = found, {}
            for some, share in judged:
                longer = []
                for one in some:
                    elsewhere = all_of.get(one.key >> STEP, 0) - before.get(one.key, 0)
                    more = _longer(one, share, one.step - elsewhere, other)
                    if more is not None:
                        longer.append((one, min(one.until, more)))
                if sum(more for _, more in longer) > LEFT * sum(one.until for one, _ in longer):
                    found.update((one.key, max(0, more)) for one, more in longer)
        return found

    def _shares(self, rank: int, newest: int) -> dict[int, dict[int, list[float]]]:
        """Of the step without what it may have waited elsewhere, at each place, spell by spell."""
        waited: dict[int, int] = {}
        for one in self.behind[rank]:
            step = one.key >> STEP
            waited[step] = max(waited.get(step, 0), one.until)
        free = self.free.get(rank, ())
        lengths = {
            one.key >> STEP: max(1, one.step - waited.get(one.key >> STEP, 0))
            for one in (*free, *self.behind[rank])
        }
        usual = median(lengths.values())
        found: dict[int, dict[int, list[float]]] = {}
        for each in free:
            place, spell = when(each.key, newest)
            # Where it took longer elsewhere it did not have to wait for that reason.
            share = each.busy / min(lengths[each.key >> STEP], usual)
            found.setdefault(place, {}).setdefault(spell, []).append(share)
        return found


def _share(spells: Mapping[int, Sequence[float]], some: Iterable[Behind]) -> float | None:
    """How much of a step a gap takes; None: that is not certain."""
    if not spells:
        return None
    shares = [share for spell in spells.values() for share in spell]
    # In steps in which it was slow elsewhere the share was less.
    enough = min(ENOUGH, len(shares))
    found = max(median_low(spell) for spell in [shares, *spells.values()] if len(spell) >= enough)
    if found > MOST:
        return None
    if len(shares) >= ENOUGH:
        return found
    # It would have to wait from its arrival on.
    then = [(one.took - one.until) / (one.step - one.until) for one in some if one.step > one.until]
    least, most = ALIKE
    return found if then and least * found <= median(then) <= most * found else None


def _longer(one: Behind, share: float | None, step: int, other: Mapping[int, int]) -> int | None:
    """By how much it took longer than the measure; None: there is none.

    :param step: how long the step took, without what was waited in other gaps of it
    """
    if share is None:
        return one.took - other[one.key] if one.key in other else None
    more = int((one.took - share * step) / (1 - share))
    return max(more, one.took - int(other[one.key] * AS_LONG)) if one.key in other else more
