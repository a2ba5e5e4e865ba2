"""Where wall time went: each moment counts once, and steps that were done again are lost."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from cockpit.core.report.goodput import PARTS, Facts, Goodput, Stretch, goodput, together
from cockpit.core.run.events import Event
from tests.happened import happened


def steps(begin: float, first: int, last: int, took: float = 2.0) -> list[Stretch]:
    """Steps one after the other."""
    return [
        Stretch(number, 1, begin + (number - first) * took, begin + (number - first + 1) * took)
        for number in range(first, last + 1)
    ]


def split(found: Goodput | None) -> dict[str, float]:
    assert found is not None
    assert math.isclose(sum(found.parts.values()), found.wall_s, abs_tol=1e-6)
    assert set(found.parts) <= set(PARTS)
    return {name: round(took, 6) for name, took in found.parts.items()}


def saved(at: float, step: int, seconds: float) -> Event:
    return happened(at, "saved", "", {"step": step, "seconds": seconds})


def watch(at: float, state: str, **fields: Any) -> Event:
    return happened(at, "watch", "", {"state": state, **fields})


def test_a_run_without_trouble() -> None:
    found = goodput(Facts(100, 130, False, steps(110, 1, 9), True))
    assert split(found) == {"start": 10, "steps": 18, "other": 2}
    assert found is not None
    assert found.share == 0.6
    assert found.estimated == ()
    assert found.lost_steps == 0


def test_times_of_log_lines_are_estimates() -> None:
    found = goodput(Facts(100, 130, False, steps(110, 1, 9), False))
    assert found is not None
    assert found.estimated == ("steps", "start", "other")


def test_no_step_no_split() -> None:
    assert goodput(Facts(100, 130, False, (), True)) is None
    assert together([(100, 130, None)]) is None


def test_a_checkpoint_is_no_step() -> None:
    """Step 5 began 7 s late: what ranks call its time has the checkpoint in it."""
    long = Stretch(5, 1, 118, 127)
    facts = Facts(
        110, 137, False, [*steps(110, 1, 4), long, *steps(127, 6, 10)], True, (), [saved(130, 5, 7)]
    )
    found = goodput(facts)
    assert split(found) == {"steps": 20, "checkpoint": 7}
    assert found is not None
    assert found.estimated == ()


def test_steps_that_were_done_again_are_lost() -> None:
    """Ranks fail in step 8 at 126, start anew at 130, and go on with step 5."""
    facts = Facts(110, 150, False, [*steps(110, 1, 7), *steps(136, 5, 11)], True, [130])
    found = goodput(facts)
    assert split(found) == {"steps": 8 + 14, "lost": 6, "start": 12}
    assert found is not None
    assert found.lost_steps == 3


def test_steps_that_are_counted_anew_in_each_epoch_are_not_lost() -> None:
    facts = Facts(110, 130, False, [*steps(110, 1, 5), *steps(120, 1, 5)], True)
    assert split(goodput(facts)) == {"steps": 20}


def test_a_run_that_failed_has_lost_what_came_after_its_checkpoint() -> None:
    at = [*steps(110, 1, 4), Stretch(5, 1, 118, 123), *steps(123, 6, 9)]
    found = goodput(Facts(110, 133, True, at, True, (), [saved(124, 5, 3)]))
    assert split(found) == {"steps": 8, "checkpoint": 3, "lost": 10, "other": 2}
    assert found is not None
    assert (found.lost_steps, found.estimated) == (5, ("lost",))
    # Nothing is guessed where no checkpoint is known, and that is told.
    found = goodput(Facts(110, 133, True, at, True))
    assert split(found) == {"steps": 21, "other": 2}
    assert found is not None
    assert found.lost_steps is None
    # What continued it knows better.
    found = goodput(Facts(110, 133, True, at, True, (), [saved(124, 5, 3)]), resumed=9)
    assert found is not None
    assert (found.lost_steps, found.estimated) == (1, ())


def test_part_of_a_stretch_may_be_lost() -> None:
    facts = Facts(0, 100, True, [Stretch(100, 100, 0, 100)], True)
    found = goodput(facts, resumed=91)
    assert split(found) == {"steps": 90, "lost": 10}


def test_a_stall_that_ended_and_one_that_did_not() -> None:
    long = Stretch(3, 1, 114, 146)
    events = [
        watch(130, "quiet", since=116),
        watch(135, "stalled", since=116),
        watch(140, "stalled", since=116),
        watch(147, "going", still_s=28.0),
    ]
    facts = Facts(110, 150, False, [*steps(110, 1, 2), long, *steps(146, 4, 5)], True, (), events)
    assert split(goodput(facts)) == {"steps": 4 + 4 + 4, "stalled": 28}
    hung = Facts(110, 150, True, steps(110, 1, 2), True, (), events[:2])
    assert split(goodput(hung)) == {"steps": 4, "stalled": 34, "other": 2}


def test_evaluations_are_estimates() -> None:
    facts = Facts(110, 130, False, [*steps(110, 1, 5), *steps(126, 6, 7)], True, (), (), [(120.0, 126.0)])
    found = goodput(facts)
    assert split(found) == {"steps": 14, "evaluation": 6}
    assert found is not None
    assert found.estimated == ("evaluation",)


def test_a_checkpoint_that_nobody_watched_is_an_estimate() -> None:
    at = [*steps(110, 1, 5), *steps(126, 6, 7)]
    found = goodput(Facts(110, 130, True, at, True, named=[(120.0, 126.0)]))
    assert split(found) == {"steps": 10, "checkpoint": 6, "lost": 4}
    assert found is not None
    assert (found.estimated, found.lost_steps) == (("checkpoint", "lost"), 2)
    # What was measured as it happened counts, and counts once.
    watched = goodput(Facts(110, 130, False, at, True, (), [saved(127, 6, 4)], named=[(120.0, 126.0)]))
    assert split(watched) == {"steps": 14, "checkpoint": 4, "other": 2}


def test_a_series_adds_up() -> None:
    one = goodput(Facts(100, 120, True, steps(104, 1, 8), True), resumed=7)
    two = goodput(Facts(150, 170, False, steps(160, 7, 11), True))
    found = together([(100, 120, one), (150, 170, two)])
    assert split(found) == {"steps": 12 + 10, "lost": 4, "start": 14, "between": 30}
    assert found is not None
    assert (found.wall_s, found.lost_steps) == (70, 2)
    found = together([(100, 120, one), (110, 130, None)])  # they overlap
    assert found is not None
    assert math.isclose(sum(found.parts.values()), found.wall_s)
    assert (found.wall_s, found.parts["other"], found.lost_steps) == (30, 10, None)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_is_on_record_the_parts_add_up(seed: int) -> None:
    rng = Random(seed)
    at, number, made = 100.0, 0, list[Stretch]()
    for _ in range(rng.randrange(1, 60)):
        count = rng.choice((1, 1, 1, 7))
        number = rng.choice((number, number, number, max(0, number - 9))) + count
        begin = at + rng.choice((0.0, 0.0, 5.0, -1.0))
        at = max(begin, 100.0) + count * rng.uniform(0.1, 4)
        made.append(Stretch(rng.choice((number, number, number, None)), count, begin, at))
    ended = at + rng.uniform(-5, 20)
    restarts = sorted(rng.uniform(90, at) for _ in range(rng.randrange(3)))
    events: list[Event] = []
    for when in sorted(rng.uniform(90, at + 10) for _ in range(rng.randrange(12))):
        state = rng.choice(("quiet", "stalled", "going"))
        some = (saved(when, rng.randrange(number + 5), rng.uniform(0, 9)), watch(when, state, since=when - 4))
        events.append(rng.choice(some))
    evaluations = [(when, when + 4) for when in (rng.uniform(90, at) for _ in range(2))]
    failed = rng.random() < 0.5
    facts = Facts(100, max(100.1, ended), failed, made, True, restarts, events, evaluations)
    found = goodput(facts, rng.choice((None, 3)))
    split(found)
    assert found is not None
    assert all(took > 0 for took in found.parts.values())
