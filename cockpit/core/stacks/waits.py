"""Who waits for whom: the waits of ranks as a graph.

That a rank waits is told by its stack. Whom it waits for is told by flight recorders (who has not entered a
collective), by the other rank of a send or receive, or not at all. The answer is at the ends of the graph:
ranks that are waited for, and wait for nobody; or in a circle, if one closes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.stacks.collectives import Wait
from cockpit.core.stacks.evidence import Case
from cockpit.core.stacks.parts import PEERS, ClassPart


@dataclass(frozen=True)
class Need:
    """What a rank waits for.

    :param ranks: whom, as a mask
    :param sure: all of them have to come; else some of them have, and nobody knows which
    :param what: the operation, the same for all that are in it
    :param wait: the collective, if a recorder has it
    :param send: of a send or receive, whether it sends; None: it is a collective
    """

    ranks: int
    sure: bool
    what: tuple[str, ...]
    wait: Wait | None = None
    send: bool | None = None


class Waits:
    """The waits of a case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.needs: dict[int, list[Need]] = {}
        self.closed = False
        """Whether everybody is in the circle, or waits for it: whoever waits does so for one of them."""
        for rank in ranks_of(case.waiting):
            if found := list(self._needs_of(rank)):
                self.needs[rank] = found

    def _needs_of(self, rank: int) -> Iterator[Need]:
        case = self._case
        for wait in case.recorded.waits if case.recorded is not None else ():
            if not wait.going >> rank & 1:
                continue
            what = (wait.key, str(wait.number))
            if wait.absent:
                yield Need(wait.absent, True, what, wait)
            else:
                # Of groups that gloo has never used before nobody knows who is in them.
                unknown = 0 if wait.lone else wait.unknown
                yield Need(unknown or case.snapshot.world & ~wait.going, False, what, wait)
        told = case.partners.get(rank)
        if told is not None and case.partners.get(told[0]) != (rank, not told[1]):
            # Whoever sends to one that receives from it is about to go on.
            yield Need(1 << told[0], True, ("pair", str(rank)), None, told[1])

    @cached_property
    def ends(self) -> int:
        """Ranks that others certainly wait for, over others or not, and that wait for nobody."""
        found = 0
        seen = mask_of(self.needs)
        left = [need for needs in self.needs.values() for need in needs if need.sure]
        while left:
            need = left.pop()
            found |= need.ranks & ~seen
        return found & ~self._case.waiting

    @cached_property
    def circle(self) -> int:
        """Ranks none of which can go on before another one of them: the most that there are.

        Each waits for one of them; if nobody knows for whom, all that it may wait for are among them.
        """
        needs = {**self._guessed, **self.needs}
        inside = mask_of(needs)
        before = 0
        while inside != before:
            before = inside
            for rank in ranks_of(before):
                if not any(self._holds(need, inside) for need in needs[rank]):
                    inside &= ~(1 << rank)
        sure = any(need.sure for rank in ranks_of(inside) for need in self.needs.get(rank, ()))
        self.closed = bool(inside) and inside == self._case.snapshot.world == mask_of(self.needs)
        return self._core(inside, needs) if sure or self.closed else 0

    @staticmethod
    def _core(inside: int, needs: Mapping[int, list[Need]]) -> int:
        """The same without those for whom nobody in it waits: they only wait for the circle."""
        core, before = inside, 0
        while core != before:
            before, wanted = core, 0
            for rank in ranks_of(core):
                for need in needs[rank]:
                    wanted |= need.ranks
            core &= wanted
        # Whoever is in an operation of the circle is part of it.
        within = {need.what for rank in ranks_of(core) for need in needs[rank]}
        return mask_of(rank for rank in ranks_of(inside) if any(need.what in within for need in needs[rank]))

    @staticmethod
    def _holds(need: Need, inside: int) -> bool:
        return bool(need.ranks & inside) if need.sure else bool(need.ranks) and not need.ranks & ~inside

    @cached_property
    def _guessed(self) -> dict[int, list[Need]]:
        """Who waits in a collective that no recorder has, does so for some of those that are not in it."""
        told = self._case.recorded.going if self._case.recorded is not None else 0
        found: dict[int, list[Need]] = {}
        for part in self._case.waits:
            if (
                part.kind in ("collective", "backward")
                and part.what not in PEERS
                and part.what != "Work.wait"
            ):
                same = mask_of(
                    rank for one in self._case.waits if one.what == part.what for rank in ranks_of(one.ranks)
                )
                need = Need(self._case.snapshot.world & ~same, False, (part.what,))
                found |= {rank: [need] for rank in ranks_of(part.ranks & ~told)}
        return found

    def odd(self, circle: int) -> int:
        """Those in the operation of a circle that the fewest are in, or do what the fewest do; else all."""
        for told in (self._op, self._what, self._place):
            of = {rank: told(rank) for rank in ranks_of(circle)}
            many = Counter(of.values())
            if len(set(many.values())) > 1:
                return mask_of(rank for rank, one in of.items() if many[one] == min(many.values()))
        return circle

    def _op(self, rank: int) -> tuple[str, ...]:
        return next(need.what for need in [*self.needs.get(rank, ()), *self._guessed.get(rank, ())])

    def _what(self, rank: int) -> str:
        part = self.part_of(rank)
        return "" if part is None else part.what

    def _place(self, rank: int) -> str:
        part = self.part_of(rank)
        return "" if part is None else part.where

    def part_of(self, rank: int) -> ClassPart | None:
        """What a waiting rank does."""
        return next((one for one in self._case.waits if one.ranks >> rank & 1), None)
