"""What NCCL says of a rank in the real app on a made-up run: in Detail, as the copies of logs grow."""

from __future__ import annotations

import asyncio

import pytest

from cockpit.tui.app import CockpitApp
from cockpit.tui.run.failure_banner import FailureBanner
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


def banner(app: CockpitApp) -> str:
    parts = [part for line in app.screen.query_one(FailureBanner).lines for part in line]
    return " ".join(text for part in parts for text, _ in part.pieces)


def test_what_is_wrong_is_in_the_banner_until_a_rank_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGAIN_S", "REST", "SELDOM_S"):
        monkeypatch.setattr(f"cockpit.tui.run.nccl_said.{name}", 0.0)

    async def main() -> None:
        async with played(SCENES["running"], (180, 60)) as (app, pilot, stage):
            for rank in (12, 13, 14):
                iface = "docker0" if rank == 13 else "bond0"
                stage.prints(rank, IB_2_18.replace("bond0", iface).replace(" rank 0 ", f" rank {rank} "))
            await until(pilot, lambda: "NCCL takes docker0 on gpu02" in banner(app), "the notice")
            assert "--env NCCL_SOCKET_IFNAME=bond0" in banner(app)
            stage.fails_first(13)
            await until(pilot, lambda: "rank 13 failed first" in banner(app), "the failure")
            assert "docker0" not in banner(app)

    asyncio.run(main())
