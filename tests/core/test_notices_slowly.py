"""What goes wrong over hours is told too; hours that vary as healthy ones do are silent."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.core.simulated import Program, World


def test_throughput_that_falls_slowly() -> None:
    world = World(Program(seconds=lambda step: 4 + 6 * min(1.0, step / 2000))).run(5)
    said = world.news[0]
    assert said.startswith("throughput has fallen slowly: it is ")
    (at, fact), *_ = world.facts
    assert 1.5 * 3600 < at < 3.5 * 3600
    assert "steps/s in the last hour, " in fact.evidence[0]
    assert "which counts as usual from here on" in world.news[1]


def test_throughput_that_fell_slowly_and_is_back() -> None:
    def seconds(step: int) -> float:
        return 4 + 6 * min(1.0, step / 2000) if step < 1700 else 4.0

    world = World(Program(seconds=seconds)).run(5)
    assert [" ".join(text.split()[:3]) for text in world.news] == [
        "throughput has fallen",
        "throughput is back:",
    ]


@pytest.mark.parametrize("share", [0.1, 0.6])
def test_hours_that_vary_are_silent(share: float) -> None:
    # By a tenth over hours, or by much from step to step.
    def seconds(step: int) -> float:
        return 4.0 * (
            1 + (share * math.sin(step / 700) if share < 0.5 else share * (step * 7919 % 101) / 101)
        )

    assert World(Program(seconds=seconds)).run(6).facts == []


def grown(every: int, before: float, after: float) -> Callable[[int], float]:
    """Pauses for checkpoints, which grow at some time."""
    return lambda step: (before if step < 2500 else after) if step and step % every == 0 else 0.0


def test_checkpoints_that_are_slower_without_a_probe() -> None:
    def says(step: int) -> str:
        return f"saving checkpoint at iteration {step}" if step % 300 == 0 else ""

    program = Program(pause=grown(300, 10, 60), says=says, probed=False)
    world = World(program).run(1.3)
    (said,) = world.news
    assert said.startswith("checkpoints are slower than before: training paused ")


def test_checkpoints_that_are_slower_as_the_log_says() -> None:
    # They are written beside training: it does not pause.
    def says(step: int) -> str:
        return f"Saved checkpoint {step}, took {5 if step < 2500 else 95} s" if step % 300 == 0 else ""

    world = World(Program(says=says, probed=False)).run(1.3)
    assert {fact.what for _, fact in world.facts} == {
        "checkpoints are slower than before: the log says 95 s for the last"
    }


@pytest.mark.parametrize("prints", [1, 20])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_pauses_that_vary_as_steps_do_are_silent(prints: int, spread: float) -> None:
    program = Program(
        seconds=lambda step: 3.0 * (1 + spread * (step * step * 7919 % 101) / 101),
        pause=grown(60, 15, 15),
        says=lambda step: f"saving checkpoint {step}" if step % 60 == 0 else "",
        prints=prints,
        probed=False,
    )
    assert World(program).run(4).facts == []
