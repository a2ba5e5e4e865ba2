"""A short piece of the pool: the reason is right while a rank is slow, and nobody is named before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import needs
from tests.slowpool.cases import HABITS, SITES, Calm, Fault, Launch
from tests.slowpool.watching import watched
from tests.whypool.cases import launches
from tests.whypool.scoring import Reasoned, met, table

ATTEMPTS = 3
"""Where each rank waits for a processor now and then, a slow one may not stand out for long enough."""

RIGHT = [(1, "input"), (2, "backward")]
"""Who is slow, and why."""


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.launch
def test_the_reason_is_right_at_the_input_and_in_the_backward_pass(tmp_path: Path) -> None:
    needs.require_module("torch")
    launch = Launch("ddp", 1, (None, Fault(1, "data", 0, 1.0), Fault(2, "backward", 1, 1.0)), 3)
    said: list[list[tuple[int, str]]] = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        before, *said = asyncio.run(_said(launch, folder))
        assert before == []
        for found, (rank, why) in zip(said, RIGHT, strict=True):
            assert found[:1] in ([], [(rank, "")], [(rank, why)])
        if [found[:1] for found in said] == [[one] for one in RIGHT]:
            break
    assert [found[:1] for found in said] == [[one] for one in RIGHT]


async def _said(launch: Launch, folder: Path) -> list[list[tuple[int, str]]]:
    return [
        [(slow.rank, why) for slow, why in zip(told.slow, told.why, strict=True)]
        async for told in watched(launch, folder)
    ]


def test_a_seed_says_all_that_is_tried() -> None:
    assert launches(7) == launches(7) != launches(8)
    for launch in launches(7):
        faults = [fault for fault in launch.phases if isinstance(fault, Fault)]
        assert {fault.site for fault in faults} == set(SITES)
        assert {fault.rank for fault in faults} <= set(range(launch.ranks))
        assert launch.phases[0] == Calm("start")
        assert {calm.habit for calm in launch.phases if isinstance(calm, Calm)} == set(HABITS)
        assert None in launch.phases


@pytest.mark.parametrize(
    ("site", "rank", "why", "verdict"),
    [
        ("data", 1, "input", "right"),
        ("data", 1, "forward", "wrong"),
        ("update", 1, "", "none"),
        ("update", 2, "update", "unnamed"),
        ("io", 1, "", "right"),
        ("io", 1, "other", "right"),
        ("io", 1, "input", "wrong"),
    ],
)
def test_a_reason_is_right_wrong_or_none(site: str, rank: int, why: str, verdict: str) -> None:
    launch = Launch("ddp", 1, (Fault(1, site, 0, 0.4),))
    one = Reasoned.read(launch, _facts(0, [(rank, why)]))
    assert one.verdict == verdict
    assert met([one]) == (verdict == "right")
    assert f"| all | {int(verdict == 'right')} of 1 |" in table([one])


def test_a_healthy_run_has_nobody() -> None:
    launch = Launch("ddp", 1, (Calm("noise"), Fault(0, "data", 0, 1.0)))
    spared = Reasoned.read(launch, _facts(0, []))
    named = Reasoned.read(launch, _facts(0, [(0, "")]))
    right = Reasoned.read(launch, _facts(1, [(0, "input")]))
    assert met([spared, right])
    assert not met([named, right])


def _facts(phase: int, named: list[tuple[int, str]]) -> dict[str, object]:
    slow = [{"rank": rank, "excess": 0.4} for rank, _ in named]
    return {"phase": phase, "slow": slow, "why": [why for _, why in named], "seconds": 5, "load": 1}
