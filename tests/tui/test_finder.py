"""What is typed finds commands and places: the best match first, also with letters left out."""

from __future__ import annotations

import pytest

from cockpit.tui.commands import in_scope
from cockpit.tui.panes.finder import Item, command_items, found

COMMANDS = list(command_items(in_scope("run"), lambda name: "", lambda name: None))
PLACES = [
    *(Item(f"gpu{n:02}", f"node gpu{n:02}", print, "", "Nodes") for n in range(1, 17)),
    *(Item(str(n), f"rank {n}", print, "", "Ranks", f"on gpu{n // 8 + 1:02}") for n in range(128)),
]


def titles(query: str) -> list[str]:
    return [item.title for item in found([*COMMANDS, *PLACES], query)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("log", "log"),
        ("freze", "freeze or resume the display"),
        ("nxterr", "next error"),
        ("clct", "collect profiler reports"),
        ("opnlog", "open this log in $PAGER"),
        ("rank5", "rank 5"),
        ("rank 5", "rank 5"),
        ("12", "rank 12"),
        ("gp07", "node gpu07"),
        ("x", "stop the run"),
        ("look-around", "filter the log or the events, or narrow nodes and ranks"),
    ],
)
def test_the_best_match_is_first(query: str, first: str) -> None:
    assert titles(query)[0] == first


def test_words_as_written_come_before_letters_that_stand_apart() -> None:
    made = [Item("apart", "sort the open panes", print), Item("whole", "a full stop", print)]
    assert [item.name for item in found(made, "stop")] == ["whole", "apart"]


@pytest.mark.parametrize("query", ["xyzzy", "st", "kcats"])
def test_what_has_not_the_letters_in_their_order_is_not_found(query: str) -> None:
    assert not found([Item("s", "a rank that waits", print)], query)


def test_letters_that_repeat_do_not_make_it_try_every_way() -> None:
    assert found([Item("n", "ab" * 100, print)], "aabb" * 15) != []
    assert found([Item("n", "ab" * 100, print)], "aabb" * 15 + "c") == []
