"""Screens other than that of a live run, for pictures: two runs side by side, a run played again, nodes
that differ, what was saved.
"""

from __future__ import annotations

import asyncio
import math
import random
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from textual.app import App

from cockpit.config import Config
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.stacks import saved
from cockpit.tui.run.purpose import Joining
from tests.compare import pairs
from tests.replay import lived, test_screen
from tests.report import made
from tests.tui import lively, stack_scenes, test_compare, test_doctor, test_evidence_screen
from tests.tui.scenes import EIGHT, text_of, until
from tests.tui.stage import NOW

STEPS, PARTS = 400, 160
"""How long both runs are, and from where on their losses part."""

FIRST_S, SAVES_S, SAVED_S = 2, 37, 40
"""Seconds after which a run that is played again makes its first step, and between which it saves."""

LAST_LINES = """\
Traceback (most recent call last):
  File "/home/ada/job/train.py", line 88, in <module>
    loss = engine(batch).loss
RuntimeError: loss is not finite at step 400
"""


@asynccontextmanager
async def shown(app: App[Any], size: tuple[int, int], words: str) -> AsyncIterator[tuple[App[Any]]]:
    """An app, once these words are on its screen."""
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: words in text_of(app), words)
        yield (app,)


def falls(step: int) -> float:
    """The loss of the run before."""
    return lively.loss(2 * step)


def parts(step: int) -> float:
    """The loss of the run after: it falls in the same way, then no more."""
    late = max(0, step - PARTS) / (STEPS - PARTS)
    return falls(step) + 0.04 * math.expm1(3.4 * late) + random.Random(step).gauss(0, 0.02 * late)


def ripple(step: int) -> float:
    """Seconds by which steps differ."""
    return random.Random(-step).gauss(0, 0.02)


def of_steps(began: float, word: str, *, slower: float = 1.0, **more: Any) -> RunFolder:
    """A run of so many steps."""
    with (
        mock.patch.multiple(made, BEGAN=began, STEPS=round(STEPS * slower)),
        mock.patch.multiple(pairs, BEGAN=began, ripple=ripple),
    ):
        return pairs.run(lively.name(began, word), steps=STEPS, slower=slower, **more)


def side_by_side(size: tuple[int, int], config: Config) -> Any:
    """A run that failed beside the last good one of the same command, once both are drawn."""
    healthy = of_steps(NOW - 93_000.618, "wren", loss=falls)
    failed = of_steps(
        NOW - 4_900.235,
        "finch",
        slower=1.3,
        healthy=False,
        program=("train.py", "--lr", "0.2"),
        commit="b7e03f61a85c" + "1" * 28,
        loss=parts,
    )
    log = "".join(f"step {step} loss {parts(step):.4f} lr 3.0e-04\n" for step in range(1, STEPS + 1))
    (failed.path / "spool" / "0001-gpu02" / "rank-3.log").write_text(log + LAST_LINES)
    return shown(test_compare.App(healthy, failed, config), size, "after, above it")


class Lively(lived.Lived):
    """A run that prints its steps, and pauses for a checkpoint."""

    def __init__(self, nodes: Any, ahead_s: Any, step_s: float) -> None:
        super().__init__(nodes, ahead_s, step_s, lively.name(lived.BEGIN, "robin"))

    def goes(self, rank: int, took: float, node: str) -> None:
        """A rank makes steps for a second, unless it has not begun to, or saves."""
        after = self.now - lived.BEGIN
        if FIRST_S < after <= SAVES_S or after > SAVED_S:
            super().goes(rank, took + random.Random(after).gauss(0, 0.012), node)

    async def says(self, node: str, ranks: Sequence[int]) -> None:
        """Each rank prints each step, when it is over."""
        for step, at, took in ((each.step, each.t, each.seconds or 0.0) for each in self.ended[ranks[0]]):
            await self.prints(node, {rank: lively.said(step, rank, took).encode() for rank in ranks}, at)


@asynccontextmanager
async def played_again(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[Any]]:
    """A recorded run at the moment of a checkpoint."""
    nodes = {node: range(8 * at, 8 * at + 8) for at, node in enumerate(EIGHT)}
    with mock.patch.object(lived, "Lived", Lively), mock.patch.object(test_screen, "NODES", nodes):
        folder = await asyncio.to_thread(test_screen.lived, pytest.MonkeyPatch())
    async with test_screen.opened(Joining(folder), size, theme=config.theme) as (app, screen, pilot):
        await test_screen.press(pilot, "shift+left", "]")
        await test_screen.at_rest(pilot, screen)
        yield (app,)


def examined(size: tuple[int, int], config: Config) -> Any:
    """Nodes that are not alike."""
    examine = test_doctor.saying(test_doctor.sick())
    return shown(test_doctor.App(examine, config=config), size, "gpu[03,07]")


@asynccontextmanager
async def kept(size: tuple[int, int], config: Config) -> AsyncIterator[tuple[Any]]:
    """What was saved of a run that stood still three times."""
    still = "the ranks of gpu[01-08] had made no progress for 53 s"
    with tempfile.TemporaryDirectory() as folder:
        for ago, rank, by_nodes in ((0, 13, ""), (1371, 13, still), (1931, 42, still)):
            stacks = stack_scenes.Played(64, stack_scenes.odd_one(rank))
            with mock.patch.object(time, "time", lambda at=NOW - ago: at):
                stacks.add(), stacks.add()
            taken = replace(stacks.snapshot, name=f"20261121-{ago:06d}", by_nodes=by_nodes)
            saved.save(taken, saved.new_folder(Path(folder), taken))
        app = test_evidence_screen.App(Path(folder), stack_scenes.RUN, config)
        async with shown(app, size, "evidence: 3 snapshots") as each:
            yield each
