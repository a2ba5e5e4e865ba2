"""Nodes and ranks in print."""

from __future__ import annotations

import pytest

from cockpit.core.ranks import in_order, nodes_text


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (["zeus", "apollo"], "zeus,apollo"),
        ([f"gpu{number:02d}" for number in range(1, 9)], "gpu[01-08]"),
        (["storage", "gpu02", "gpu01", "head"], "storage,gpu[01-02],head"),
        (["rack2n1", "rack1n1", "rack2n2", "rack1n2"], "rack[1-2]n[1-2]"),
        (["[::1]", "10.0.0.2", "10.0.0.1"], "[::1],10.0.0.[1-2]"),
        ([], ""),
    ],
)
def test_nodes_stand_in_their_order_and_ranges_are_folded(nodes: list[str], text: str) -> None:
    assert nodes_text(nodes) == text


def test_what_came_in_any_order_gets_that_of_the_run() -> None:
    assert in_order(["a", "x", "c"], ["c", "b", "a"]) == ["c", "a", "x"]
