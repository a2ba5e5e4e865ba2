"""The environment of a rank in the real app on a made-up run: asked for once; why there is none is said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from cockpit.engine.links.link import RemoteError
from cockpit.transport.base import LinkError
from cockpit.tui.app import CockpitApp
from tests.tui.scenes import SCENES, Scene, choose, fails, goes_stale, played, settled, text_of, until
from tests.tui.stage import Stage

SIZE = (180, 60)


def detail(
    scene: Scene, node: str, rank: int, *said: str, then: Callable[[Stage], str] | None = None
) -> Stage:
    """The detail of a rank, until it says that; then something happens, and it says something else."""

    async def says(app: CockpitApp, pilot: Pilot[None], text: str) -> None:
        await until(pilot, lambda: text in text_of(app), text)

    async def main() -> Stage:
        async with played(scene, SIZE) as (app, pilot, stage):
            choose(app, node, rank)
            await pilot.press("3")
            for text in said:
                await says(app, pilot, text)
            if then is not None:
                await says(app, pilot, then(stage))
            for _ in range(3):
                await settled(pilot)
            return stage

    return asyncio.run(main())


def test_of_a_rank_that_failed_before_anybody_looked() -> None:
    stage = detail(Scene(play=fails), "gpu02", 13, "2 variables its process was started with", "RANK=13")
    assert [request.rank for request in stage.asked] == [13]


def test_that_none_was_recorded_is_said_and_not_asked_again() -> None:
    def play(stage: Stage) -> None:
        fails(stage)
        stage.environ = RemoteError("gone", "the environment of rank 13 was not recorded", where="gpu02")

    stage = detail(Scene(play=play), "gpu02", 13, "the environment of rank 13 was not recorded")
    assert len(stage.asked) == 1


def test_of_a_recorded_run_it_is_said_where_it_may_be() -> None:
    path = "/tmp/cockpit-1000/20261121-0412-otter/gpu02/rank-13.environ.json"
    stage = detail(SCENES["recorded"], "gpu02", 13, f"not copied here; gpu02 may still have it: {path}")
    assert not stage.asked


def test_without_a_link_it_is_asked_for_when_there_is_one() -> None:
    def play(stage: Stage) -> None:
        goes_stale(stage)
        stage.happens("gpu06", kind="rank_exited", rank=40, code=1, signal=None)

    def back(stage: Stage) -> str:
        assert not stage.asked
        stage.happens("gpu06", kind="link", state="ok")
        return "RANK=40"

    stage = detail(Scene(play=play), "gpu06", 40, "no link to gpu06 to ask for it", then=back)
    assert len(stage.asked) == 1


@pytest.mark.slow
def test_a_link_that_is_lost_over_it_is_no_answer() -> None:
    def play(stage: Stage) -> None:
        fails(stage)
        stage.environ = LinkError("no link now", where="gpu02")

    def back(stage: Stage) -> str:
        stage.environ = None
        return "RANK=13"

    stage = detail(Scene(play=play), "gpu02", 13, "no link now", then=back)
    assert len(stage.asked) > 1
