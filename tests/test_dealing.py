"""Tests that wait begin on all workers at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dealing import dealt, sizes


def test_each_worker_begins_with_its_share_of_waiting() -> None:
    files = {name: [f"{name}{number}" for number in range(3)] for name in "abcdefgh"}
    order = dealt(files, {"c": 5, "g": 90, "h": 40, "e": 50}, 2)
    assert order[:12] == ["g0", "g1", "g2", "c0", "c1", "c2", "a0", "a1", "a2", "b0", "b1", "b2"]
    assert order[12:18] == ["e0", "e1", "e2", "h0", "h1", "h2"]


@given(
    st.dictionaries(st.integers(0, 20).map(str), st.integers(1, 9)),
    st.dictionaries(st.integers(0, 20).map(str), st.floats(0, 100)),
    st.integers(1, 6),
)
def test_none_is_lost_and_files_that_wait_stay_together(
    counts: dict[str, int], waits: dict[str, float], workers: int
) -> None:
    files = {name: [(name, number) for number in range(count)] for name, count in counts.items()}
    order = dealt(files, waits, workers)
    assert sorted(order) == sorted(test for tests in files.values() for test in tests)
    begins = {sum(list(sizes(len(order), workers))[:worker]) for worker in range(workers)}
    for tests in files.values():
        places = [order.index(test) for test in tests]
        assert places == sorted(places)
        torn = places[-1] - places[0] != len(places) - 1
        assert not torn or any(places[0] < begin <= places[-1] for begin in begins)


@pytest.mark.parametrize(("tests", "workers"), [(7300, 4), (10, 4), (3, 4), (0, 2)])
def test_the_scheduler_counts_as_we_do(tests: int, workers: int) -> None:
    scheduler = pytest.importorskip("xdist.scheduler.worksteal").WorkStealingScheduling
    config: Any = SimpleNamespace(getvalue=lambda name: ["popen"] * workers, hook=None)
    made = scheduler(config)

    class Node:
        shutting_down = False

        def __init__(self) -> None:
            self.gateway = SimpleNamespace(id=str(id(self)))
            self.first = 0

        def send_runtest_some(self, indices: list[int]) -> None:
            self.first = self.first or len(indices)

        def send_steal(self, indices: list[int]) -> None:
            """Nobody gives anything away here."""

        def shutdown(self) -> None:
            self.shutting_down = True

    nodes = [Node() for _ in range(workers)]
    names = [str(number) for number in range(tests)]
    for node in nodes:
        made.add_node(node)
    for node in nodes:
        made.add_node_collection(node, names)
    made.schedule()
    assert [node.first for node in nodes] == list(sizes(tests, workers))
