"""Python stacks of all ranks as one tree, a rank against the others, and as files of others' tools."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.core.profile import folded
from cockpit.core.profile.flame_page import flame_page
from tests.core.test_stackpage import Page

CALM = "main (train.py:9);step (train.py:4) 80\nmain (train.py:9);load (data.py:7) 20\n"
SLOW = "main (train.py:9);step (train.py:4) 20\nmain (train.py:9);load (data.py:7);read (data.py:3) 180\n"
OTHER = "thread: worker;run (threading.py:1) 500\n"


def of(*texts: str) -> dict[int, dict[folded.Stack, int]]:
    return {rank: folded.parsed(text) for rank, text in enumerate(texts)}


def test_ranks_weigh_the_same_however_often_they_were_seen() -> None:
    root = folded.tree(of(CALM, SLOW + OTHER))
    main = root.children["main (train.py:9)"]
    assert (root.share, main.share, main.ranks) == (2.0, 2.0, 0b11)
    load = main.children["load (data.py:7)"]
    assert (round(load.share, 6), round(load.own, 6), load.ranks) == (1.1, 0.2, 0b11)
    assert load.children["read (data.py:3)"].ranks == 0b10


def test_the_innermost_of_frames_that_differ_alike_comes_first() -> None:
    found = folded.differences(of(CALM, CALM, SLOW), 2)
    assert (found[0].frame, round(found[0].share, 3), found[0].others) == ("read (data.py:3)", 0.9, 0.0)
    assert [one.frame for one in found] == ["read (data.py:3)", "load (data.py:7)"]
    assert list(folded.odd_ranks(of(CALM, SLOW, CALM))) == [1]
    assert folded.differences(of(CALM, CALM), 1) == []
    assert folded.differences(of(CALM), 0) == []
    assert folded.differences(of(CALM, ""), 1) == []


def test_few_samples_name_nobody() -> None:
    few = [text.replace("80", "4").replace("20", "1").replace("1" + "1", "1") for text in (CALM, CALM)]
    assert (
        folded.odd_ranks(
            of(*few, "main (train.py:9);step (train.py:4) 2\nmain (train.py:9);load (data.py:7) 3\n")
        )
        == {}
    )


def test_who_waits_for_others_is_not_named() -> None:
    waits = (
        "main (train.py:9);all_reduce (torch/distributed/distributed_c10d.py:3252) 90\nmain (train.py:9) 10\n"
    )
    found = folded.odd_ranks(of(waits, waits, SLOW))
    assert list(found) == [2]
    assert folded.odd_ranks(of(waits, SLOW)).keys() == {1}


def test_recursion_counts_once() -> None:
    again = "main (a.py:1);f (a.py:2);f (a.py:2);f (a.py:2) 10\n"
    found = folded.differences(of(again, CALM), 0)
    assert all(one.share <= 1 for one in found)


def test_what_is_no_folded_stack_is_left_out() -> None:
    assert folded.parsed("\npy-spy> Sampling\nmain x\nmain -3\nmain ²\n 4\nmain (a.py:1) 12\n") == {
        ("main (a.py:1)",): 12
    }
    many = "".join(f"f{number} 1\n" for number in range(folded.MOST_STACKS + 10))
    assert len(folded.parsed(many)) == folded.MOST_STACKS
    deep = ";".join(["f"] * 5000) + " 1"
    assert len(next(iter(folded.parsed(deep)))) == folded.MOST_DEPTH


def test_frames_without_end_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.core.profile.folded.MOST_FRAMES", 100)
    text = "".join(f"a{n};b{n} 1\n" for n in range(1000))
    assert len(folded.parsed(text)) == 50


def test_speedscope_has_a_profile_a_rank_and_frames_once() -> None:
    found = folded.to_speedscope(of(CALM, SLOW), "otter")
    assert [one["name"] for one in found["profiles"]] == ["rank 0", "rank 1"]
    assert found["profiles"][0]["endValue"] == 100
    frames = found["shared"]["frames"]
    assert {"name": "read", "file": "data.py", "line": 3} in frames
    assert len(frames) == len({tuple(frame.items()) for frame in frames})
    for profile in found["profiles"]:
        assert all(0 <= number < len(frames) for stack in profile["samples"] for number in stack)


def test_folded_again_has_the_rank_in_front() -> None:
    assert folded.to_folded(of(CALM)).splitlines()[0] == "rank 0;main (train.py:9);load (data.py:7) 20"


@given(st.dictionaries(st.integers(0, 5), st.text(max_size=200), max_size=4))
def test_nothing_that_a_node_sends_becomes_markup(texts: dict[int, str]) -> None:
    some = {rank: folded.parsed(f"{text.replace(chr(10), ' ')} 3\n") for rank, text in texts.items()}
    differ = {rank: folded.differences(some, rank) for rank in some}
    page = Page(flame_page(some, "<b>otter</b>", "<i>", differ))
    assert page.open == []
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "div", "span"} | {
        "table",
        "tr",
        "th",
        "td",
    }
    assert page.attributes <= {"lang", "charset", "http-equiv", "content", "name", "class", "style", "title"}


def test_blocks_are_as_wide_as_their_share() -> None:
    page = flame_page(of(CALM, SLOW), "otter", "", {})
    assert '<div style="width:55.000%">' in page  # load: (20 % + 90 %) / 2
    assert "ranks 0-1" in page
