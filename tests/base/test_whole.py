"""Which steps a window holds whole."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cockpit.base.progress.ring import CAPACITY, Step
from cockpit.base.progress.whole import WholeSteps


def steps(numbers: Sequence[int]) -> list[Step]:
    """Step N ends after N seconds."""
    return [Step(one, 0, int(one * 1e9)) for one in numbers]


def test_those_that_begin_and_end_in_it() -> None:
    held = WholeSteps(int(2.5e9))
    held.look(steps(range(1, 4)))
    assert held.first is None
    held.look(steps(range(1, 9)))
    assert held.first == (4, 3_000_000_000)
    assert held.last(steps(range(1, 9)), int(6.5e9)) == 6
    assert held.last(steps(range(1, 9)), int(3.5e9)) is None


def test_the_ring_may_forget_the_first_one_meanwhile() -> None:
    held = WholeSteps(1)
    held.look(steps(range(1, 4)))
    held.look(late := steps(range(CAPACITY, 2 * CAPACITY)))
    assert held.first is not None
    assert (held.first[0], held.last(late, 1 << 60)) == (2, 2 * CAPACITY - 1)


@pytest.mark.parametrize(("waits_s", "first"), [(1.0, 3), (0.1, 4)])
def test_a_step_that_waited_for_it_is_whole(waits_s: float, first: int) -> None:
    held = WholeSteps(int(2.5e9), 3, waits_s * 1e9)
    held.look(steps(range(1, 9)))
    assert held.first is not None
    assert held.first[0] == first


def test_a_step_whose_beginning_is_not_known_is_not() -> None:
    held = WholeSteps(1)
    held.look(steps([5, 9]))
    assert held.first is None
    assert held.last(steps([5, 9]), 1 << 60) is None
