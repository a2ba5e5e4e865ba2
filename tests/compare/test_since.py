"""What was changed of a command since a run of it failed, or since it last worked."""

from __future__ import annotations

from typing import Any

import pytest

from cockpit.core.compare.since import since
from cockpit.core.run.brief import Brief


def run(name: str, began: float, word: str = "failed", *options: str, **more: Any) -> Brief:
    usual: dict[str, Any] = {"launcher": "torchrun", "cwd": "/job", "program": ("train.py", *options)}
    return Brief(run=name, began=began, word=word, state=word, well=word == "ended", **{**usual, **more})


FAILED = run("lynx", 100, "failed", "--batch", "26", step=1102)


def test_how_the_next_one_was_started_and_how_far_it_came() -> None:
    later = run("otter", 200, "running", "--batch", "24", step=1216)
    assert since(FAILED, [later, FAILED]) == ("since then", "--batch 26 → 24 in otter, past this step")
    early = run("otter", 200, "running", "--batch", "24", step=7)
    assert since(FAILED, [FAILED, early]) == ("since then", "--batch 26 → 24 in otter")
    again = run("otter", 200, "failed", "--batch", "26", step=7)
    assert since(FAILED, [FAILED, again]) == ("since then", "the same arguments in otter, failed")
    well = run("otter", 200, "ended", "--batch", "24", "--compile")
    assert since(FAILED, [FAILED, well, run("old", 50, "ended")]) == (
        "since then",
        "--batch 26 → 24, --compile not set → set in otter, which succeeded",
    )


def test_of_several_later_ones_the_newest_counts() -> None:
    runs = [run(str(at), at, "failed", "--batch", str(at)) for at in (300, 150, 200)]
    assert since(FAILED, runs)[1] == "--batch 26 → 300 in 300, failed"


@pytest.mark.parametrize("word", ["failed", "lost", "running", "stalled"])
def test_else_it_is_held_against_the_last_that_ended_well(word: str) -> None:
    one = run("lynx", 100, word, "--batch", "26")
    good = [run("old", 10, "ended"), run("swift", 20, "ended", "--batch", "8"), run("bad", 30)]
    assert since(one, [*good, one]) == ("last good", "swift; since then --batch 8 → 26")


def test_a_run_that_goes_on_is_not_held_against_later_ones() -> None:
    one = run("lynx", 100, "running", "--batch", "26")
    assert since(one, [one, run("otter", 200, "ended")]) == ("", "")


@pytest.mark.parametrize(
    "other",
    [
        run("x", 50, "ended", launcher="deepspeed"),
        run("x", 50, "ended", cwd="/elsewhere"),
        run("x", 50, "ended", program=("eval.py",)),
        run("x", 50, "stopped"),
        FAILED,
    ],
)
def test_nothing_is_said_without_another_run_of_the_command(other: Brief) -> None:
    assert since(FAILED, [FAILED, other]) == ("", "")


@pytest.mark.parametrize("word", ["ended", "stopped", "starting?", "damaged", "not started"])
def test_nothing_is_said_of_what_neither_failed_nor_goes_on(word: str) -> None:
    assert since(run("lynx", 100, word), [run("otter", 200), run("old", 50, "ended")]) == ("", "")


def test_few_of_many_arguments_are_named() -> None:
    many = run("otter", 200, "failed", *(f"--o{at}={at}" for at in range(5)))
    told = since(run("lynx", 100), [many])[1]
    assert told == "--o0 not set → 0, --o1 not set → 1, --o2 not set → 2, 2 more in otter, failed"


def test_a_run_whose_program_is_not_known_is_like_no_other() -> None:
    damaged = run("x", 50, "ended", program=())
    assert since(run("lynx", 100, program=()), [damaged]) == ("", "")
