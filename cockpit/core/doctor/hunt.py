"""The hunt for who or what makes a group fail: everybody, each alone, halves, quarters across, pairs.

A pure search: it names the groups to try next and is told how they went. Groups of one round have no member
in common, so they are tried at the same time. If both halves of a failing group work, what fails is between
them, and is halved on both sides until a pair is left; others then show whether one of the two is to blame,
or what is between them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Group = tuple[str, ...]
"""Members that are tried together; the first one is where they meet."""

Search = Generator[list[Group], Mapping[Group, bool], "Culprit"]

ROUNDS = 60
"""Groups are tried at most so often, however many members there are."""
CULPRITS = 4
"""So many are looked for."""
STRANGERS = 4
"""With so many a node must fail to be blamed, if no two are known to work together."""


@dataclass(frozen=True)
class Culprit:
    """What makes a group fail.

    :param kind: ``alone``: each of these fails without anybody else; ``member``: one fails with whomever it
        was tried with; ``link``: two fail together, though each works with others; ``pair``: the same, but
        there were no others to try; ``between``: those do not work with the others, though each side works;
        ``together``: only all of them fail; ``nobody``: no two of them work together; ``among``: somebody in
        it, and the time was over
    :param others: the other side
    """

    kind: Literal["alone", "member", "link", "pair", "between", "together", "nobody", "among"]
    nodes: Group
    others: Group = ()

    @property
    def all(self) -> Group:
        """Both sides."""
        return (*self.nodes, *self.others)


class Hunt:
    """One search.

    :param members: in their order
    :param rounds: how often groups are tried, at most
    """

    def __init__(self, members: Sequence[str], rounds: int = ROUNDS) -> None:
        self.culprits: list[Culprit] = []
        """What was found so far."""
        self.groups: list[Group] = []
        """What to try next, all at once; empty: it is over."""
        self.tried: dict[Group, bool] = {}
        """Every group that was tried, and whether it worked."""
        self._order = {member: place for place, member in enumerate(members)}
        self._rounds = rounds
        self._suspects: Group = ()
        self._dropped: set[str] = set()
        self._steps = self._search(tuple(members))
        self.groups = next(self._steps)

    def tell(self, outcomes: Mapping[Group, bool]) -> None:
        """How each of :attr:`groups` went."""
        self.tried.update(outcomes)
        self._suspects = min([*self._failed(outcomes), *filter(None, [self._suspects])], key=len, default=())
        self._rounds -= 1
        if self._rounds <= 0:
            self.stop()
            return
        try:
            self.groups = self._steps.send(outcomes)
        except StopIteration:
            self.groups = []

    def stop(self) -> None:
        """The time is over: what is known of a group that fails is said as it is."""
        self._steps.close()
        self.groups = []
        blamed = [node for each in self.culprits if each.kind == "member" for node in each.nodes]
        if blamed and not self._some_work:
            self._forgive()  # each of them failed with others that may be to blame themselves
            self._suspects = self._sorted({*blamed, *self._suspects})
        if self._suspects:
            self._found(Culprit("among", self._suspects))

    @property
    def _some_work(self) -> bool:
        return any(works and len(group) > 1 for group, works in self.tried.items())

    def _forgive(self) -> None:
        self.culprits = [each for each in self.culprits if each.kind == "alone"]

    @staticmethod
    def _failed(outcomes: Mapping[Group, bool]) -> list[Group]:
        return [group for group, works in outcomes.items() if not works]

    def _found(self, culprit: Culprit) -> Culprit:
        self.culprits.append(culprit)
        self._suspects = ()
        return culprit

    def _sorted(self, members: Iterable[str]) -> Group:
        return tuple(sorted(members, key=self._order.__getitem__))

    # The search

    def _search(self, members: Group) -> Generator[list[Group], Mapping[Group, bool], None]:
        if (yield [members])[members]:
            return
        alone = (yield [(each,) for each in members]) if len(members) > 1 else {members: False}
        works = tuple(each for each in members if alone[each,])
        if works != members:
            self._found(Culprit("alone", tuple(each for each in members if not alone[each,])))
        fit, whole = works, works == members
        while len(works) > 1 and len(self.culprits) < CULPRITS:
            if not whole and (yield [works])[works]:
                return
            whole = False
            culprit = self._found((yield from self._clique(works)))
            blamed = [each for each in self.culprits if each.kind in ("member", "pair")]
            if len(blamed) > 1 and not self._some_work:
                self._forgive()
                self._found(Culprit("nobody", fit))
                return
            if culprit.kind in ("pair", "together"):
                return
            dropped = culprit.others if culprit.kind == "link" else culprit.nodes
            self._dropped.update(dropped)
            works = tuple(each for each in works if each not in dropped)
            if culprit.kind == "link":
                others = tuple(each for each in works if each not in culprit.nodes)
                yield from self._further(dropped[0], others)

    def _further(self, one: str, others: Group) -> Generator[list[Group], Mapping[Group, bool], None]:
        """One end of a bad link may have others: look there while the rest is known to work."""
        if len(others) > 1 and (yield [others])[others]:
            group = self._sorted((one, *others))
            if not (yield [group])[group]:
                self._found((yield from self._across((one,), others)))

    def _clique(self, failing: Group) -> Search:
        """A group that fails, although each of it works alone."""
        if len(failing) == 2:
            return (yield from self._blamed(*failing))
        halves = _halves(failing)
        outcomes = yield [half for half in halves if len(half) > 1]
        for half in halves:
            if not outcomes.get(half, True):
                return (yield from self._clique(half))
        return (yield from self._across(*halves))

    def _across(self, left: Group, right: Group) -> Search:
        """Two groups that fail together, although each of them works."""
        pair = yield from self._crossing(left, right)
        if pair is None:
            return Culprit("together", self._sorted((*left, *right)))
        if len(left) == len(right) == 1:
            return (yield from self._blamed(*pair))
        return (yield from self._judged(*pair, left, right))

    def _crossing(
        self, left: Group, right: Group
    ) -> Generator[list[Group], Mapping[Group, bool], tuple[str, str] | None]:
        """One of each side that fail together; None: now they do not fail."""
        if len(left) == len(right) == 1:
            return left[0], right[0]
        first, second = _halves(left), _halves(right)
        for turn in (second, second[::-1]):
            sides = [(a, b) for a, b in zip(first, turn, strict=True) if a and b]
            groups = {self._sorted((*a, *b)): (a, b) for a, b in sides}
            outcomes = (yield list(groups)) if groups else {}
            for group, works in outcomes.items():
                if not works:
                    return (yield from self._crossing(*groups[group]))
        return None

    def _blamed(self, one: str, other: str) -> Search:
        """Two that fail together: try each with somebody who works."""
        out = {one, other, *self._dropped}
        known = dict.fromkeys(
            tuple(each for each in group if each not in out) for group, works in self.tried.items() if works
        )
        helpers = max(known, key=len, default=())
        if not helpers:
            return Culprit("pair", (one, other))
        if len(helpers) > 1:
            first, second = _halves(helpers)
            works = yield from self._tried((one, first), (other, second))
        else:
            works = yield from self._with_strangers(one, other, [each for each in known if each][:STRANGERS])
        if all(works):
            return Culprit("link", (one,), (other,))
        return Culprit("member", (one if not works[0] else other,))

    def _tried(self, *sides: tuple[str, Group]) -> Generator[list[Group], Mapping[Group, bool], list[bool]]:
        """Whether each works with those others."""
        groups = [self._sorted((who, *others)) for who, others in sides]
        outcomes = yield groups
        return [outcomes[group] for group in groups]

    def _with_strangers(
        self, one: str, other: str, helpers: list[Group]
    ) -> Generator[list[Group], Mapping[Group, bool], list[bool]]:
        """Whether each works with others of whom no two are known to work together.

        One with whom neither of them works may be to blame itself, so another one is taken.
        """
        if len(helpers) == 1:
            first = yield from self._tried((one, helpers[0]))
            return [*first, *(yield from self._tried((other, helpers[0])))]
        for place, helper in enumerate(helpers):
            before = helpers[place - 1]
            works = yield from self._tried((one, helper), (other, before))
            if works == [True, False]:
                return [True, *(yield from self._tried((other, helper)))]
            if works == [False, True]:
                return [*(yield from self._tried((one, before))), True]
            if all(works):
                return works
        return [False, False]

    def _judged(self, one: str, other: str, left: Group, right: Group) -> Search:
        """Two that fail together, of two sides that each work: try each with the rest of the other side."""
        groups = {
            who: self._sorted((who, *(each for each in side if each not in (one, other))))
            for who, side in ((one, right), (other, left))
        }
        more = [group for group in groups.values() if len(group) > 1]
        outcomes = (yield more) if more else {}
        bad = [who for who, group in groups.items() if not outcomes.get(group, True)]
        if len(bad) == 2:
            return Culprit("between", left, right)
        return Culprit("member", (bad[0],)) if bad else Culprit("link", (one,), (other,))


def _halves(group: Group) -> tuple[Group, Group]:
    return group[: len(group) // 2], group[len(group) // 2 :]
