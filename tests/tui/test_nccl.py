"""What NCCL says of a rank in the real app on a made-up run: in Detail, as the copies of logs grow."""

from __future__ import annotations

import asyncio

import pytest

from tests.nccl.samples import IB_2_18
from tests.tui.scenes import SCENES, choose, played, text_of, until

pytestmark = pytest.mark.usefixtures("frozen_clock")


def test_it_appears_as_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.tui.run.nccl_said.AGAIN_S", 0.0)
    monkeypatch.setattr("cockpit.tui.run.nccl_said.REST", 0.0)

    async def main() -> None:
        async with played(SCENES["running"], (180, 60)) as (app, pilot, stage):
            choose(app, "gpu02", 13)
            await pilot.press("3")
            await until(pilot, lambda: "Environment" in text_of(app), "its detail")
            assert "as it says itself" not in text_of(app)
            for rank in (12, 13, 14):
                iface = "docker0" if rank == 13 else "bond0"
                stage.prints(rank, IB_2_18.replace("bond0", iface).replace(" rank 0 ", f" rank {rank} "))
            await until(pilot, lambda: "as it says itself" in text_of(app), "what NCCL says")
            text = text_of(app)
            assert "bootstrap interface: docker0, most others bond0" in text
            assert "NCCL takes docker0" in text
            choose(app, "gpu02", 12)
            await until(
                pilot, lambda: "docker0" not in text_of(app).partition("as it says itself")[2], "rank 12"
            )

    asyncio.run(main())
