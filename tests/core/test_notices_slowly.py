"""What goes wrong over hours is told too; hours that vary as healthy ones do are silent."""

from __future__ import annotations

import math

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
