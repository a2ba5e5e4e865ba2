"""The hunt: whoever and whatever is planted is named, with no more rounds than it takes."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.doctor.hunt import ROUNDS, Culprit, Group, Hunt


class Planted:
    """A cluster in which some things are bad.

    :param alone: nodes that fail by themselves
    :param members: nodes that fail with anybody
    :param links: pairs that fail together
    """

    def __init__(self, size: int, alone: set[int], members: set[int], links: set[tuple[int, int]]) -> None:
        self.nodes = tuple(map(str, range(size)))
        self.alone = set(map(str, alone))
        self.members = set(map(str, members))
        self.links = {frozenset(map(str, pair)) for pair in links}
        self.rounds = 0

    def works(self, group: Group) -> bool:
        there = set(group)
        return not (
            there & self.alone
            or (len(group) > 1 and there & self.members)
            or any(link <= there for link in self.links)
        )

    def hunt(self, rounds: int = ROUNDS) -> Hunt:
        hunt = Hunt(self.nodes, rounds)
        while hunt.groups:
            everybody = [each for group in hunt.groups for each in group]
            assert len(everybody) == len(set(everybody)), "nobody can be in two groups at once"
            assert all(hunt.groups)
            hunt.tell({group: self.works(group) for group in hunt.groups})
            self.rounds += 1
            assert self.rounds <= rounds
        return hunt

    def guilty(self, culprit: Culprit) -> bool:
        """Whether what is said of a culprit is true."""
        nodes, others = set(culprit.nodes), set(culprit.others)
        incident = {each for link in self.links for each in link}
        if culprit.kind == "alone":
            return nodes <= self.alone
        if culprit.kind == "member":
            return nodes <= self.members | incident
        if culprit.kind in ("link", "between"):
            between = [frozenset(pair) for pair in product(nodes, others)]
            return any(not self.works(tuple(pair)) for pair in between)
        return culprit.kind in ("pair", "among", "nobody") and not self.works(culprit.nodes)


SIZES = st.integers(2, 70)


@st.composite
def clusters(draw: st.DrawFn) -> Planted:
    size = draw(SIZES)
    node = st.integers(0, size - 1)
    pairs = st.tuples(node, node).filter(lambda pair: pair[0] != pair[1])
    few = {"max_size": 3}
    return Planted(size, draw(st.sets(node, **few)), draw(st.sets(node, **few)), draw(st.sets(pairs, **few)))


@given(SIZES)
def test_nothing_is_wrong(size: int) -> None:
    planted = Planted(size, set(), set(), set())
    assert planted.hunt().culprits == []
    assert planted.rounds == 1


@given(SIZES.flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))
def test_one_that_fails_alone(case: tuple[int, int]) -> None:
    size, bad = case
    assert Planted(size, {bad}, set(), set()).hunt().culprits == [Culprit("alone", (str(bad),))]


@given(SIZES.flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1))))
def test_one_that_fails_with_anybody(case: tuple[int, int]) -> None:
    size, bad = case
    planted = Planted(size, set(), {bad}, set())
    (found,) = planted.hunt().culprits
    assert found == (Culprit("pair", ("0", "1")) if size == 2 else Culprit("member", (str(bad),)))
    assert planted.rounds <= 3 * size.bit_length() + 6


@given(
    SIZES.flatmap(
        lambda size: st.tuples(st.just(size), st.sets(st.integers(0, size - 1), min_size=2, max_size=2))
    )
)
def test_one_bad_link(case: tuple[int, set[int]]) -> None:
    size, ends = case
    one, other = sorted(ends)
    planted = Planted(size, set(), set(), {(one, other)})
    (found,) = planted.hunt().culprits
    kind = "pair" if size == 2 else "link"
    assert (found.kind, found.all) == (kind, (str(one), str(other)))
    assert planted.rounds <= 3 * size.bit_length() + 8


@pytest.mark.parametrize("size", [4, 6, 16, 64])
def test_two_racks_that_do_not_reach_each_other(size: int) -> None:
    half = size // 2
    links = set(product(range(half), range(half, size)))
    (found,) = Planted(size, set(), set(), links).hunt().culprits
    nodes = tuple(map(str, range(size)))
    assert found == Culprit("between", nodes[:half], nodes[half:])


@pytest.mark.parametrize("size", range(3, 8))
def test_no_node_is_blamed_for_failing_with_bad_ones(size: int) -> None:
    for many in range(size - 1):
        for members in combinations(range(size), many):
            planted = Planted(size, set(), set(members), set())
            for culprit in planted.hunt().culprits:
                assert planted.guilty(culprit), (members, culprit)


@given(clusters())
def test_several_things_at_once(planted: Planted) -> None:
    found = planted.hunt().culprits
    assert bool(found) == (not planted.works(planted.nodes))
    for culprit in found:
        assert planted.guilty(culprit), culprit


@given(clusters(), st.integers(1, 12))
def test_too_few_rounds(planted: Planted, rounds: int) -> None:
    found = planted.hunt(rounds).culprits
    assert bool(found) == (not planted.works(planted.nodes))
    for culprit in found:
        assert planted.guilty(culprit), culprit


@given(st.integers(3, 12), st.data())
def test_what_fails_now_and_then_ends_too(size: int, data: st.DataObject) -> None:
    hunt = Hunt(tuple(map(str, range(size))))
    for _ in range(ROUNDS):
        if not hunt.groups:
            break
        hunt.tell({group: data.draw(st.booleans()) for group in hunt.groups})
    assert not hunt.groups


def test_no_two_work_together() -> None:
    for size in range(3, 12):
        nodes = "abcdefghijkl"[:size]
        hunt = Hunt(nodes)
        while hunt.groups:
            hunt.tell({group: len(group) == 1 for group in hunt.groups})
        assert hunt.culprits == [Culprit("nobody", tuple(nodes))]


def test_one_fails_alone_and_no_two_others_work_together() -> None:
    hunt = Hunt("abcdef")
    while hunt.groups:
        hunt.tell({group: len(group) == 1 and group != ("c",) for group in hunt.groups})
    assert hunt.culprits == [Culprit("alone", ("c",)), Culprit("nobody", tuple("abdef"))]


def test_all_of_them_and_only_all_of_them() -> None:
    hunt = Hunt("abcd")
    while hunt.groups:
        hunt.tell({group: len(group) < 4 for group in hunt.groups})
    assert hunt.culprits == [Culprit("together", tuple("abcd"))]


def test_six_nodes_every_link() -> None:
    for pair in combinations(range(6), 2):
        planted = Planted(6, set(), set(), {pair})
        assert [one.all for one in planted.hunt().culprits] == [tuple(map(str, pair))]
        assert planted.rounds <= 12
