"""What is chosen on the run's screen, and what comes after it."""

from __future__ import annotations

from cockpit.tui.run.tabs import stepped

NODES = {"gpu01": (0, 2), "gpu02": (1, 3), "login": ()}


def test_ranks_come_one_after_the_other_on_whichever_node() -> None:
    assert stepped(None, 1, NODES) == ("gpu01", 0)
    assert stepped(("gpu01", 0), 1, NODES) == ("gpu02", 1)
    assert stepped(("gpu02", 3), 1, NODES) == ("gpu01", 0)
    assert stepped(("gpu02", None), -1, NODES) == ("gpu02", 3)


def test_after_a_node_without_ranks_come_all() -> None:
    assert stepped(("login", None), 1, NODES) == ("gpu01", 0)
    assert stepped(("login", None), -1, NODES) == ("gpu02", 3)
