"""Whose stacks the run's screen takes: of ranks, or of those that a run's programs have started."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.core.run.model import RunModel
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.stacks.targets import RunParty
from cockpit.tui.run import looks


@pytest.mark.parametrize(
    ("launcher", "starts", "title"),
    [("command", True, "otter"), ("per-node", True, "their ranks"), ("per-node", False, "otter")],
)
def test_a_program_that_starts_its_ranks_shows_those(
    launcher: str, starts: bool, title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spawned(manifest: Manifest, pool: object, asked: list[str]) -> RunParty | None:
        found = RunParty(manifest, RunModel(), None)  # type: ignore[arg-type]
        found.title = "their ranks"
        return found if starts else None

    monkeypatch.setattr(looks, "spawned", spawned)
    monkeypatch.setattr(looks, "StackScreen", lambda sampler: sampler)
    shown: list[Any] = []
    works: list[Coroutine[Any, Any, None]] = []
    screen: Any = SimpleNamespace(
        run_worker=lambda work, **_: works.append(work), app=SimpleNamespace(push_screen=shown.append)
    )
    manifest = Manifest("otter", 0.0, [NodeEntry("n1", "/run", [0])], launcher, ["train.py"], "/")
    folder = SimpleNamespace(name="otter", path=tmp_path)
    board: Any = SimpleNamespace(manifest=manifest, model=RunModel(), folder=folder)
    session: Any = SimpleNamespace(pool=SimpleNamespace(at_hand=None), pace=None)
    looks.Looks(screen, board, session, lambda title, words: None).stacks()
    for work in works:
        asyncio.run(work)
    assert [sampler.party.title for sampler in shown] == [title]
