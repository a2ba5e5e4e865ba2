"""Ranks that are slow: each said once when it has become so, and once when it no longer is."""

from __future__ import annotations

from collections.abc import Iterator

from cockpit.core.pace.pace import Pace
from cockpit.core.pace.slow import Slow
from cockpit.core.run.notices.rule import About, Condition, Rule
from cockpit.core.run.states import Run

NAMED = 3
"""Ranks that are named; of more it is said how many they are."""

CALM_S = 20.0
"""So long a rank has to be as fast as the others, while steps go on, until it is no longer slow."""

_OTHERS = "others"


def since(run: Run) -> dict[int, int]:
    """The ranks that are said to be slow one by one, each with the step from which on."""
    told = [fact for _, fact in run.notices.values() if fact.id == SlowRanks.id]
    return {fact.ranks[0]: fact.step for fact in told if fact.step is not None and len(fact.ranks) == 1}


class SlowRanks(Rule):
    """Says who the pace finds slow (:mod:`cockpit.core.pace.slow`): never from when CPUs enqueue."""

    id = "slow"

    def __init__(self, about: About) -> None:
        super().__init__(about)
        self._slow: dict[int, tuple[float, int]] = {}
        """When each slow rank was last found to be so, and at which step of the front."""
        self._said: dict[str, Condition] = {}
        self._by_work = False

    def restarted(self) -> None:
        """See :class:`Rule`."""
        self._slow.clear()

    def look(self, at: float, run: Run, pace: Pace) -> Iterator[Condition]:
        """See :class:`Rule`."""
        front = pace.front
        if front is None:
            return
        found = {one.rank: one for one in pace.slow()}
        self._slow |= dict.fromkeys(found, (at, front[0]))
        if found:
            self._by_work = pace.works
        # Without a look at recorders whole steps are all there is, and those are alike on all ranks.
        if pace.works or not self._by_work:
            self._slow = {
                rank: (seen, step)
                for rank, (seen, step) in self._slow.items()
                if rank in found or not (at - seen >= CALM_S and front[0] > step)
            }
        self._name(at, run, pace, found)
        yield from self._said.values()

    def _name(self, at: float, run: Run, pace: Pace, found: dict[int, Slow]) -> None:
        self._said = {of: seen for of, seen in self._said.items() if set(seen.ranks) & self._slow.keys()}
        named = {rank for of, seen in self._said.items() if of != _OTHERS for rank in seen.ranks}
        fresh = [one for one in found.values() if one.rank not in named]
        for one in fresh[: max(0, NAMED - len(named))] if _OTHERS not in self._said else ():
            self._said[str(one.rank)] = _seen(at, run, pace, one)
        left = [one for one in fresh if str(one.rank) not in self._said]
        if left and _OTHERS not in self._said:
            since = min(pace.apart_since(one.rank) for one in left[:NAMED])
            what = f"{len(left):,} more rank{'s' * (len(left) > 1)} slow since step {since:,}"
            ranks = tuple(sorted(one.rank for one in left))
            self._said[_OTHERS] = Condition(_OTHERS, what, at, certainty="sure", ranks=ranks)

    def ended(self, of: str) -> str:
        """See :class:`Rule`."""
        return "the other ranks are no longer slow" if of == _OTHERS else f"rank {of} is no longer slow"


def _seen(at: float, run: Run, pace: Pace, one: Slow) -> Condition:
    own = pace.of(one.rank)
    took = own.work if own.work is not None else own.span
    times = "" if took is None else f": {took:.2f} s, others {took / (1 + one.excess):.2f} s"
    why = pace.why(one)
    reason = "" if why is None else f"; {why.text}"
    step = pace.apart_since(one.rank)
    what = f"rank {one.rank} slow since step {step:,}{times}{reason}"
    rank = run.ranks.get(one.rank)
    nodes = () if rank is None else (rank.node,)
    return Condition(str(one.rank), what, at, certainty="sure", nodes=nodes, ranks=(one.rank,), step=step)
