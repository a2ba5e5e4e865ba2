"""Panes one below the other: who gets which rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cockpit.tui.panes.column import shared_out

PANES = st.lists(st.tuples(st.integers(0, 300), st.floats(0.1, 1.0)), min_size=1, max_size=4)


@given(panes=PANES, room=st.integers(1, 100))
def test_nothing_is_cut_while_rows_are_blank(panes: list[tuple[int, float]], room: int) -> None:
    needs, parts = zip(*panes, strict=True)
    rows = shared_out(needs, parts, room)
    assert sum(rows) == min(room, sum(needs))
    assert all(0 <= got <= need for got, need in zip(rows, needs, strict=True))


def test_who_needs_little_leaves_the_rest_to_the_others_and_each_keeps_its_part() -> None:
    assert shared_out([11, 28, 5], [0.5, 0.3, 0.2], 44) == [11, 28, 5]
    assert shared_out([11, 300, 5], [0.5, 0.3, 0.2], 40) == [11, 24, 5]
    assert shared_out([300, 300, 300], [0.5, 0.3, 0.2], 40) == [20, 12, 8]
