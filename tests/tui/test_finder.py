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


def test_letters_that_stand_apart_count_only_where_nothing_has_the_words() -> None:
    made = [Item("apart", "sort the open panes", print), Item("whole", "a full stop", print)]
    assert [item.name for item in found(made, "stop")] == ["whole"]
    assert [item.name for item in found(made, "stope")] == ["apart"]


def test_letters_within_a_word_are_no_match_for_its_next_one() -> None:
    title = "stacks of all ranks, merged, and which rank is the odd one"
    assert found([Item("stacks", title, print)], "scrnsht") == []


@pytest.mark.parametrize("query", ["newt", "tern", "crane"])
def test_single_letters_of_many_words_are_no_match(query: str) -> None:
    title = "what differs between the nodes, when the run stalled, and what is wrong with them"
    assert (
        found([Item("d", title, print), Item("compare", "compare this run with another one", print)], query)
        == []
    )


def test_what_begins_so_is_before_what_has_it_within_and_what_works_before_what_does_not() -> None:
    made = [
        Item("stall_stacks", "the stacks taken when the run stalled", print, why_not="it has not stalled"),
        Item("keep", "keep the other ranks running", print, why_not="none has failed"),
        Item("leave", "leave; the run continues", print),
        Item("runs", "open another run", print),
        Item("heron", "run heron  running", print),
        Item("k", "dark", print, why_not="dark already"),
    ]

    def names(query: str) -> list[str]:
        return [item.name for item in found(made, query)]

    assert names("run") == ["runs", "heron", "leave", "stall_stacks", "keep"]
    assert names("other run")[0] == "runs"
    assert names("switch run")[0] == names("switch")[0] == "runs"
    assert names("quit") == names("exit") == ["leave"]
    assert names("k")[0] == "k", "whoever names it wants to know why it does not work"


@pytest.mark.parametrize("query", ["xyzzy", "st", "kcats"])
def test_what_has_not_the_letters_in_their_order_is_not_found(query: str) -> None:
    assert not found([Item("s", "a rank that waits", print)], query)


def test_letters_that_repeat_do_not_make_it_try_every_way() -> None:
    assert found([Item("n", "ab" * 50, print)], "aabb" * 15) != []
    assert found([Item("n", "ab" * 50, print)], "aabb" * 15 + "c") == []
