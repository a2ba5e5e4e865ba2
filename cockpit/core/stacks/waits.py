"""Who waits for whom: the waits of ranks as a graph.

That a rank waits is told by its stack. Whom it waits for is told by flight recorders (who has not entered a
collective), by the other rank of a send or receive, or not at all. The answer is at the ends of the graph:
ranks that are waited for, and wait for nobody; or in a circle, if one closes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cockpit.core.masks import mask_of, ranks_of
from cockpit.core.stacks.case import Case
from cockpit.core.stacks.class_facts import PEERS, ClassPart, union
from cockpit.core.stacks.collectives import Wait


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
        """What each waits for of whom that is known, or who may not be in a group."""
        for wait in case.recorded.waits if case.recorded is not None else ():
            unknown = 0 if wait.lone else wait.unknown
            # Of groups that gloo has never used before nobody knows who is in them.
            ranks = wait.absent or unknown or case.snapshot.world & ~wait.going
            self._take(wait.going, Need(ranks, bool(wait.absent), (wait.key, str(wait.number)), wait))
        for rank, (peer, send) in case.partners.items():
            # Whoever sends to one that receives from it is about to go on.
            if case.partners.get(peer) != (rank, not send):
                self._take(1 << rank, Need(1 << peer, True, ("pair", str(rank)), None, send))

    def _take(self, ranks: int, need: Need) -> None:
        for rank in ranks_of(ranks & self._case.waiting):
            self.needs.setdefault(rank, []).append(need)

    @property
    def ends(self) -> int:
        """Ranks that others certainly wait for, and that wait for nobody."""
        found = 0
        for needs in self.needs.values():
            for need in needs:
                found |= need.ranks if need.sure else 0
        return found & ~self._case.waiting

    @cached_property
    def _all(self) -> Mapping[int, list[Need]]:
        return {**self._guessed, **self.needs}

    @cached_property
    def _inside(self) -> int:
        """Ranks none of which can go on before another one of them: the most that there are.

        Each waits for one of them; if nobody knows for whom, all that it may wait for are among them.
        """
        inside, before = mask_of(self._all), 0
        while inside != before:
            before = inside
            for rank in ranks_of(before):
                if not any(self._holds(need, inside) for need in self._all[rank]):
                    inside &= ~(1 << rank)
        return inside

    @property
    def closed(self) -> bool:
        """Whether it is known of everybody what they wait in, so that all wait for one of them."""
        return bool(self._inside) and self._inside == self._case.snapshot.world == mask_of(self.needs)

    @cached_property
    def circle(self) -> int:
        """Ranks that wait for each other, if that is more than a guess; 0: none do."""
        known = (need for rank in ranks_of(self._inside) for need in self.needs.get(rank, ()))
        return self._core() if self.closed or any(need.sure for need in known) else 0

    def _core(self) -> int:
        """Those inside for whom somebody of them waits, and who is in an operation with these."""
        core, before = self._inside, 0
        while core != before:
            before, wanted = core, 0
            for rank in ranks_of(core):
                for need in self._all[rank]:
                    wanted |= need.ranks
            core &= wanted
        within = {need.what for rank in ranks_of(core) for need in self._all[rank]}
        return mask_of(
            rank for rank in ranks_of(self._inside) if any(need.what in within for need in self._all[rank])
        )

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
                same = union(one for one in self._case.waits if one.what == part.what)
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
        return self._all[rank][0].what

    def _what(self, rank: int) -> str:
        part = self.part_of(rank)
        return "" if part is None else part.what

    def _place(self, rank: int) -> str:
        part = self.part_of(rank)
        return "" if part is None else part.where

    def part_of(self, rank: int) -> ClassPart | None:
        """What a waiting rank does."""
        return next((one for one in self._case.waits if one.ranks >> rank & 1), None)
