"""A short piece of the pool: a rank that is slow is named while it is, and nobody before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests import needs
from tests.slowpool.cases import Fault, Launch, launches
from tests.slowpool.scoring import Outcome, met, table
from tests.slowpool.watching import watched

ATTEMPTS = 3
"""Where each rank waits for a processor now and then, a slow one may not stand out for long enough."""


@pytest.mark.slow
@pytest.mark.launch
def test_the_slow_rank_is_named_and_nobody_before(tmp_path: Path) -> None:
    needs.require_module("torch")
    launch = Launch("ddp", 1, (None, Fault(2, "forward", 1, 1.0)), ranks=3)
    found: list[int] = []
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        before, found = asyncio.run(_named(launch, folder))
        assert before == []
        assert found[:1] in ([], [2])
        if found:
            break
    assert found[:1] == [2]


async def _named(launch: Launch, folder: Path) -> list[list[int]]:
    return [[slow.rank for slow in told.slow] async for told in watched(launch, folder)]


def test_a_seed_says_all_that_is_tried() -> None:
    assert launches(7) == launches(7) != launches(8)
    for launch in launches(7):
        sites = {(fault.site, round(fault.size, 1)) for fault in launch.phases if isinstance(fault, Fault)}
        assert len(sites) >= 10
        assert launch.phases.count(None) == 5


def test_only_the_first_named_counts_and_a_healthy_job_has_nobody() -> None:
    launch = Launch("ddp", 4, (Fault(2, "data", 0, 0.4), None))
    facts = {"slow": [{"rank": 2, "excess": 0.4}, {"rank": 1, "excess": 0.1}], "why": ["", ""]}
    facts |= {"seconds": 5, "load": 1}
    slow, healthy = (Outcome.read(launch, {**facts, "phase": phase}) for phase in (0, 1))
    assert (slow.right, slow.alone, healthy.right) == (True, False, False)
    assert met([slow])
    assert not met([slow, healthy])
    assert "| all | 1 of 1 | 0 | 0 of 1 |" in table([slow, healthy])
