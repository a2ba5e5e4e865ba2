"""What NCCL says of a rank in the real app on a made-up run: in Detail, and in the log."""

from __future__ import annotations

import asyncio
import re

import pytest

from cockpit.core.logs.sources import Nccl
from cockpit.tui.app import CockpitApp
from cockpit.tui.run.failure_banner import FailureBanner
from tests.nccl.samples import IB_2_18
from tests.nccl_tests.standin import printed
from tests.tui.scenes import SCENES, Scene, choose, chosen, healthy, nothing, played, text_of, until


@pytest.mark.slow
def test_it_appears_as_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cockpit.tui.run.nccl_output.AGAIN_S", 0.0)
    monkeypatch.setattr("cockpit.tui.run.nccl_output.REST", 0.0)

    async def main() -> None:
        async with played(SCENES["running"], (180, 60)) as (app, pilot, stage):
            choose(app, "gpu02", 13)
            await pilot.press("3")
            await until(pilot, lambda: "Environment" in text_of(app), "its detail")
            assert "as reported by NCCL" not in text_of(app)
            for rank in (12, 13, 14):
                iface = "docker0" if rank == 13 else "bond0"
                stage.prints(rank, IB_2_18.replace("bond0", iface).replace(" rank 0 ", f" rank {rank} "))
            await until(pilot, lambda: "as reported by NCCL" in text_of(app), "what NCCL says")
            text = text_of(app)
            assert "bootstrap interface: docker0, most others bond0" in text
            assert "NCCL uses docker0" in text
            choose(app, "gpu02", 12)
            await until(
                pilot, lambda: "docker0" not in text_of(app).partition("as reported by NCCL")[2], "rank 12"
            )

    asyncio.run(main())


def banner(app: CockpitApp) -> str:
    parts = [part for line in app.screen.query_one(FailureBanner).lines for part in line]
    return " ".join(text for part in parts for text, _ in part.pieces)


def test_what_is_wrong_is_in_the_banner_until_a_rank_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGAIN_S", "REST", "SELDOM_S"):
        monkeypatch.setattr(f"cockpit.tui.run.nccl_output.{name}", 0.0)

    async def main() -> None:
        async with played(SCENES["running"], (180, 60)) as (app, pilot, stage):
            for rank in (12, 13, 14):
                iface = "docker0" if rank == 13 else "bond0"
                stage.prints(rank, IB_2_18.replace("bond0", iface).replace(" rank 0 ", f" rank {rank} "))
            await until(pilot, lambda: "NCCL uses docker0 on gpu02" in banner(app), "the notice")
            assert "--env NCCL_SOCKET_IFNAME=bond0" in banner(app)
            stage.fails_first(13)
            await until(pilot, lambda: "rank 13 failed first" in banner(app), "the failure")
            assert "docker0" not in banner(app)

    asyncio.run(main())


@pytest.mark.slow
def test_its_own_file_is_in_the_log() -> None:
    async def main() -> None:
        async with played(Scene(lambda: healthy(nccl_debug=True), nothing), (160, 40)) as (app, pilot, stage):
            stage.prints(13, "loss 1.0\n")
            stage.prints(Nccl(13), IB_2_18)
            await until(pilot, lambda: "loss 1.0" in text_of(app), "what the rank prints")
            assert "NCCL INFO" not in text_of(app)
            stage.prints(Nccl(13), "\nn:1:1 [0] x.cc:12 NCCL WARN \x1b[2JCuda failure 2\n")
            stage.prints(13, "loss 2.0\n")
            warning = re.compile(r"13:nccl +n:1:1 \[0\] x.cc:12 NCCL WARN")
            await until(pilot, lambda: warning.search(text_of(app)), "the warning")
            assert "\x1b" not in text_of(app)
            # To the rank, and all that NCCL says in it.
            await pilot.press("2", "e", "enter")
            await until(pilot, lambda: chosen(app) == ("gpu02", 13), "the rank alone")
            assert "NCCL WARN" in text_of(app)
            await pilot.press("slash", *"@nccl", "space", *"NCCL", "enter")
            await until(pilot, lambda: "NCCL INFO" in text_of(app), "what it says")
            assert "loss 2.0" not in text_of(app)
            await pilot.press("Y")
            asked = f"cockpit logs {stage.name} --rank 13 --grep NCCL --nccl --time"
            await until(pilot, lambda: app.clipboard == asked, asked)

    asyncio.run(main())


def test_wrong_results_of_nccl_tests_are_in_the_banner_and_in_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AGAIN_S", "REST", "SELDOM_S"):
        monkeypatch.setattr(f"cockpit.tui.run.nccl_output.{name}", 0.0)

    async def main() -> None:
        async with played(SCENES["running"], (180, 60)) as (app, pilot, stage):
            stage.prints(13, printed(wrong=3).text)
            said = "all_reduce_perf got 3 wrong values on gpu[01-02]"
            await until(pilot, lambda: said in banner(app), "the notice")
            assert "cockpit doctor HOSTFILE --deep" in banner(app)
            choose(app, "gpu02", 13)
            await pilot.press("3")
            await until(pilot, lambda: "a cable, a driver" in text_of(app), "its detail")

    asyncio.run(main())
