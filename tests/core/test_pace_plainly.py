"""What is worked out for all ranks at once is what comes of working it out for each rank by itself."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.core.pace.heat import Heat, Window
from cockpit.core.pace.pace import Pace
from cockpit.core.pace.rows import pairs, rows
from tests.core import plainly

START = 1_800_000_000.0

KINDS = ("slow", "alternating", "behind", "spread", "away", "late", "log")


def finished(pace: Pace, kind: str, step: int, dice: random.Random) -> None:
    """One step of a run in which some ranks differ, each kind in its own way."""
    at = START + 2.0 * step + (40.0 if step > 60 else 0.0)
    for rank in pace.steps.ranks:
        odd = rank % 3 == 1
        number, end, own = step, at + dice.random() * 0.1, dice.choice((2.0, 2.1, 9.0))
        if odd and kind == "behind":
            number = step - 25
        elif odd and kind == "spread":
            number = step * (rank + 1) // (rank + 4)
        elif odd and kind == "late":
            end += dice.choice((0.0, 1.5, 7.0))
        if number < 0 or (odd and kind == "away" and dice.random() < 0.4):
            continue
        exact = kind != "log" or rank % 2 == 0
        pace.stepped(rank, number, end, span=dice.choice((own, None)), exact=exact)
        if kind != "log" and step % 40 < 30 and dice.random() < 0.95:
            slow = odd and (kind != "alternating" or step % 2)
            pace.worked(rank, number, dice.choice((1.0, 1.02)) * (1 + slow * dice.choice((0.12, 0.4, 1.2))))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS), ranks=st.integers(1, 14), steps=st.integers(1, 90), staged=st.booleans(),
    lag=st.booleans(), limit=st.sampled_from((24, 200)), wide=st.sampled_from((1.0, 2.0, 8.0)),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_ranks_together_are_judged_and_drawn_as_each_by_itself(
    kind: str, ranks: int, steps: int, staged: bool, lag: bool, limit: int, wide: float, seed: int
) -> None:
    pace, heat, dice = Pace(range(ranks)), Heat(), random.Random(seed)
    pace.steps.limit = limit
    if staged:
        pace.steps.staged({rank: rank // 4 for rank in range(ranks)})
    for step in range(steps):
        finished(pace, kind, step, dice)
        if step == steps // 2:
            pace.lag = lag
        if step % 30 != 29 and step != steps - 1:
            continue
        found = plainly.slow(pace)
        assert (pace.slow(), pace.late()) == (([], found) if pace.lags else (found, []))
        for rank in range(ranks):
            known = pace.of(rank)
            assert (known.span, known.work, known.lag) == plainly.spans(pace, rank)
        until = START + 2.0 * step + 50
        window = Window(until // wide * wide, wide, 60)
        plain = plainly.columns(pace, window)
        drawn = Heat().draw(pace.steps, window, pace.usual(), pace.history.buckets)
        assert drawn == plain
        # What was drawn before of steps that did not change since is the same in this window.
        assert heat.draw(pace.steps, window, pace.usual(), pace.history.buckets) == plain


@settings(max_examples=200, deadline=None)
@given(
    nodes=st.integers(0, 30), each=st.integers(1, 4), height=st.integers(1, 40), seed=st.integers(0, 999),
    share=st.sampled_from((0.0, 0.03, 0.3, 1.0)),
)  # fmt: skip
def test_as_few_nodes_share_a_row_as_if_each_number_was_tried(
    nodes: int, each: int, height: int, seed: int, share: float
) -> None:
    dice = random.Random(seed)
    names = {f"gpu{node:02d}": range(node * each, (node + 1) * each) for node in range(nodes)}
    apart = {rank: dice.randrange(2) for rank in range(nodes * each) if dice.random() < share}
    assert rows(names, apart, height, every=False) == plainly.folded(names, apart, height)
    assert pairs(names, apart, height) == plainly.pairs(names, apart, height)


def test_a_rank_that_did_nothing_is_not_divided_by() -> None:
    pace = Pace(range(3))
    for step in range(12):
        for rank in range(3):
            pace.stepped(rank, step, START + step)
            pace.worked(rank, step, (0.0, 1.0, 1.0)[rank])
    pace.lag = True
    assert pace.of(0).lag == pytest.approx(-1.0)
    assert pace.late() == []
