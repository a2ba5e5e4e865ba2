"""Steps as nodes keep them: what is written is read, and many as one say the same as each by itself."""

from __future__ import annotations

import json
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.base.gate import Malformed
from cockpit.base.progress.past import MOST, UNITS, Piece, Stretch, folded, pieces, rows, shares, stretch_of
from cockpit.base.progress.phases import Phases
from cockpit.base.progress.ring import MOST_STEP

START = 1_800_000_000.0


def trained(spans: list[float], first: int = 1) -> list[Piece]:
    """Steps that took so long, one after the other; how long the first took is not known."""
    ends = accumulate(spans, initial=START)
    both = zip(ends, [None, *spans], strict=True)
    return [Piece(first + place, 1, end, span) for place, (end, span) in enumerate(both)]


SPANS = st.lists(st.integers(1, 100 * UNITS).map(lambda span: span / UNITS), max_size=60)


@given(SPANS, st.integers(0, MOST_STEP - 60), st.lists(st.integers(1, 60), max_size=3))
def test_what_is_written_is_read(spans: list[float], first: int, gone: list[int]) -> None:
    told = [piece for place, piece in enumerate(trained(spans, first)) if place not in gone]
    # What follows a gap took longer than is known.
    told = [
        piece._replace(span=piece.span if place and piece.step == told[place - 1].step + 1 else None)
        for place, piece in enumerate(told)
    ]
    lines = [row.line() for row in rows(3, 1, told)]
    read = [piece for line in lines for piece in pieces(stretch_of(line))]
    assert [(piece.step, piece.many, piece.span) for piece in read] == [
        (piece.step, piece.many, piece.span) for piece in told
    ]
    assert [piece.end for piece in read] == pytest.approx([piece.end for piece in told], abs=0.01)
    assert len(lines) <= 1 + len(gone)


def test_a_row_is_no_longer_than_what_is_taken_in() -> None:
    found = list(rows(0, 1, trained([0.1] * (2 * MOST))))
    assert [row.count for row in found] == [MOST, MOST, 1]


@given(SPANS, st.floats(0.1, 500))
def test_many_as_one_are_as_many_and_end_when_they_did(spans: list[float], every_s: float) -> None:
    told = trained(spans)
    found = list(folded(told, every_s))
    assert sum(piece.many for piece in found) == len(told)
    ends = {piece.step: piece.end for piece in told}
    for piece in found:
        assert piece.end == ends[piece.step]
        inside = sorted(one.span or 0 for one in told if piece.step - piece.many < one.step <= piece.step)
        assert piece.span is None or inside[0] <= piece.span <= inside[-1]
    assert all(before.step == piece.step - piece.many for before, piece in pairwise(found))


def test_what_stands_out_stays() -> None:
    spans = [1.0] * 500
    spans[200] = 40.0
    found = list(folded(trained(spans), 60.0))
    assert len(found) < 20
    pause = next(piece for piece in found if piece.span == 40.0)
    assert (pause.step, pause.many) == (202, 1)
    event = START + 300
    found = list(folded(trained(spans), 60.0, [(event - 10, event + 10)]))
    assert [piece.many for piece in found if abs(piece.end - event) <= 10] == [1] * 21


def test_nodes_choose_the_same_groups() -> None:
    """They saw the first step at different times, and their clocks differ."""
    one = trained([1.0] * 300)
    other = [piece._replace(end=piece.end + 3.3) for piece in one[37:]]
    steps = {piece.step for piece in folded(one, 60.0) if piece.step > 100}
    assert steps == {piece.step for piece in folded(other, 60.0) if piece.step > 100}


def test_folding_again_makes_it_coarser() -> None:
    once = list(folded(trained([1.0] * 1000), 60.0))
    twice = list(folded(once, 240.0))
    assert len(twice) < len(once) / 2
    assert sum(piece.many for piece in twice) == 1001


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        [0, 1, 1, 5.0, 1],
        [0, 1, 1, 5.0, 3, [1, 2]],
        [0, 1, 1, 5.0, 1, []],
        [0, 9, 1, 5.0, 1, [1]],
        [-1, 1, 1, 5.0, 1, [1]],
        [0, 1, -1, 5.0, 1, [1]],
        [0, 1, 1 << 60, 5.0, 1, [1]],
        [0, 1, 1, 1e300, 1, [1]],
        [0, 1, 1, float("nan"), 1, [1]],
        [0, 1, 1, 5.0, 0, [1]],
        [0, 1, 1, 5.0, 1 << 40, [1]],
        [0, 1, 1, 5.0, 1, [-1]],
        [0, 1, 1, 5.0, 1, [1.5]],
        [0, 1, 1, 5.0, MOST + 1, [1] * (MOST + 1)],
        ["0", 1, 1, 5.0, 1, [1]],
    ],
)
def test_nonsense_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        stretch_of(json.dumps(value).encode())


@pytest.mark.parametrize("line", [b"", b"[0,1", b"\xff", b"[" * 5000])
def test_damage_is_refused(line: bytes) -> None:
    with pytest.raises(Malformed):
        stretch_of(line)


def test_a_row_of_many_says_one_span() -> None:
    (piece,) = pieces(Stretch(0, 1, 65, START, 64, (5000,)))
    assert piece == Piece(128, 64, START, 0.5)


def test_phases_are_kept_as_the_median_of_a_row_and_old_rows_have_none() -> None:
    some = [
        Piece(step, 1, 100.0 + step, 1.0 if step else None, (100 + step, 300, -1, 50)) for step in range(5)
    ]
    (row,) = rows(3, 1, some)
    assert row.phases == (102, 300, -1, 50)
    assert stretch_of(row.line()) == row
    assert {piece.phases for piece in pieces(row)} == {row.phases}
    assert pieces(row)[1].seconds == (0.102, 0.3, None, 0.05)
    (old,) = rows(3, 1, [piece._replace(phases=()) for piece in some])
    assert old.line().endswith(b"]]\n")
    assert stretch_of(old.line()).phases == ()


@pytest.mark.parametrize("phases", [b"[1,2]", b"[1,2,3,1001]", b"[1,2,3,-2]", b"7", b'["a",1,1,1]'])
def test_phases_that_cannot_be_are_refused(phases: bytes) -> None:
    with pytest.raises(Malformed):
        stretch_of(b"[3,1,1,100.0,1,[10000]," + phases + b"]")


def test_shares_of_a_step() -> None:
    assert shares(Phases(100, None, 2500, 0), 1000) == (100, -1, 1000, 0)
    assert shares(Phases(), 1000) == ()
    assert shares(Phases(1, 1, 1, 1), 0) == ()
