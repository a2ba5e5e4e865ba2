"""What goes wrong slowly, by little or seldom is told too; what varies as healthy runs do is silent."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tests.core.simulated import Program, World


@pytest.mark.slow
def test_throughput_that_falls_slowly() -> None:
    world = World(Program(seconds=lambda step: 4 + 6 * min(1.0, step / 2000))).run(5)
    said = world.news[0]
    assert said.startswith("throughput has fallen slowly: it is ")
    (at, fact), *_ = world.facts
    assert 1.5 * 3600 < at < 3.5 * 3600
    assert "steps/s in the last hour, " in fact.evidence[0]
    assert "which now counts as usual" in world.news[1]


@pytest.mark.slow
def test_throughput_that_fell_slowly_and_is_back() -> None:
    def seconds(step: int) -> float:
        return 4 + 6 * min(1.0, step / 2000) if step < 1700 else 4.0

    world = World(Program(seconds=seconds)).run(5)
    assert [" ".join(text.split()[:3]) for text in world.news] == [
        "throughput has fallen",
        "throughput is back:",
    ]


@pytest.mark.slow
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


@pytest.mark.slow
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
    assert World(program).run(2).facts == []


JUMPS: dict[str, Program] = {
    "below zero": Program(loss=lambda step: -5.0 if step < 2000 else -0.5),
    "by less than a half": Program(loss=lambda step: 2.0 if step < 2000 else 2.9),
    "printed seldom": Program(loss=lambda step: 0.7 if step < 3600 else 7.0, prints=100),
    "by little, then by more": Program(loss=lambda step: 2.0 if step < 2000 else 2.7 if step < 2300 else 9.0),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", JUMPS)
def test_a_loss_that_jumps(name: str) -> None:
    world = World(JUMPS[name]).run(1.5)
    (said,) = world.news
    assert said.startswith("the loss has jumped to ")


HEALTHY: dict[str, Program] = {
    "up for some minutes": Program(loss=lambda step: 2.0 + 0.8 * (2000 < step < 2400)),
    "few losses of much spread": Program(loss=lambda step: 1.0 + 4 * (step * 7919 % 101) / 101, prints=100),
    "the learning rate begins anew": Program(loss=lambda step: 2 + 0.8 * math.exp(-(step % 3000) / 400)),
    "below zero": Program(loss=lambda step: -5.0 - step / 1000, noise=0.1),
    "around zero": Program(loss=lambda step: 0.2 * math.sin(step / 37)),
    "a plateau that is left": Program(
        loss=lambda step: 9.0 if step < 1500 else 4.0 + step * 7919 % 101 / 101
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_losses_that_vary_are_silent(name: str) -> None:
    assert World(HEALTHY[name]).run(1.5).facts == []
