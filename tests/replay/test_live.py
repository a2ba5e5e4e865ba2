"""Real training on two nodes behind real ssh servers, looked at while it runs: its replay says the same."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from cockpit.cli import launch_options
from cockpit.cli.verbs import run
from cockpit.core.pace.pace import Pace
from cockpit.core.run.model import RunModel
from cockpit.demo import training
from cockpit.demo.cluster import Cluster, cluster
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.launch.start import start
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.replay.replay import Replay
from cockpit.engine.run.board import Board
from cockpit.transport.base import UnknownHostKey
from tests.needs import require_module
from tests.replay.test_recorded import reopened
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.launch]

STEPS, STEP_S = 60, 0.25
LOOKS = 30
LATE_S = 5.0
"""By so much what is on the screen may be behind, on a busy machine: what has happened is heard of later."""
KEPT_S = 0.5
"""Of steps that end within so long one is kept (docs/replay.md)."""


class Seen(NamedTuple):
    """What is on the screen at a moment.

    :param states: of ranks, in words
    :param steps: the last one of each rank; None: not known
    """

    at: float
    states: Mapping[int, str]
    steps: Mapping[int, int | None]
    front: int | None


def seen(at: float, model: RunModel, pace: Pace) -> Seen:
    states = {number: rank.text for number, rank in model.ranks.items()}
    steps = {number: pace.of(number).step for number in model.ranks}
    return Seen(at, states, steps, None if pace.front is None else pace.front[0])


class Stages:
    """The start, of which nobody is told."""

    board: Board

    def connecting(self, roll: Roll) -> None:
        """Links are being opened."""

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        raise AssertionError("their keys are known")

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        """All nodes are fit."""

    def listener(self, folder: RunFolder) -> Board:
        self.board = Board(folder)
        return self.board


async def lived(made: Cluster) -> tuple[RunFolder, list[Seen]]:
    """The run, and what was seen of it: its last rank crashes, and the failure policy stops the others."""
    chosen = training.choose("torchrun", [sys.executable])
    training.copy_examples(made.folder / "examples")
    words = [str(made.hostfile), "--transport", "ssh", "--ssh-config", str(made.ssh_config), "--name", "live"]
    words += ["--cwd", str(made.folder / "examples"), "--python", chosen.python, "--launcher", "torchrun"]
    words += ["--master-addr", "127.0.0.1", "--env", "GLOO_SOCKET_IFNAME=lo", "--env", "OMP_NUM_THREADS=1"]
    words += ["--failure-wait", "1", "--grace", "5", "--no-preflight", "--headless", "--", chosen.script]
    words += ["--steps", str(STEPS), "--step-time", str(STEP_S), "--crash", f"1@{STEPS - 10}"]
    stages, looks = Stages(), list[Seen]()
    session = await start(run.request(launch_options.parse(run.parser(), words)), stages)
    try:
        session.watch()
        session.stand_by()
        deadline = time.monotonic() + 3 * PATIENCE_S
        while not session.model.done:
            assert time.monotonic() < deadline, "it does not end"
            await session.wait(0.2)
            looks.append(seen(time.time(), session.model, session.pace))
    finally:
        if not session.model.done:
            await session.stop("the test is over", hard=True)
        await session.close()
        stages.board.close()
    return RunFolder(session.folder.path), looks


def spread(looks: Sequence[Seen]) -> list[Seen]:
    """Some of them, as evenly over the time as they can be: not those alone at which much has happened."""
    first, last = looks[0].at, looks[-1].at
    moments = [first + (last - first) * number / (LOOKS - 1) for number in range(LOOKS)]
    return [min(looks, key=lambda one: abs(one.at - moment)) for moment in moments]


async def shown(replay: Replay, board: Board, at: float) -> Seen:
    """What the replay has at a moment."""
    replay.player.seek(at)
    replay.show()
    await replay.settle()
    return seen(at, board.model, board.pace)


async def wrong(replay: Replay, board: Board, was: Seen) -> list[str]:
    """What the replay says that cannot have been on the screen then, or just before."""
    now = await shown(replay, board, was.at)
    earlier = [await shown(replay, board, was.at - LATE_S * part / 8) for part in range(1, 9)]
    found = []
    for rank, state in was.states.items():
        told = [each.states[rank] for each in (now, *earlier)]
        if state not in told:
            found.append(f"rank {rank} was {state}, the replay has {sorted(set(told))}")
    slack = KEPT_S / STEP_S + 2
    pairs = [
        (f"rank {rank}", step, now.steps[rank], earlier[-1].steps[rank]) for rank, step in was.steps.items()
    ]
    for name, step, latest, oldest in (*pairs, ("the front", was.front, now.front, earlier[-1].front)):
        if step is not None and not (oldest or 0) - slack <= step <= (latest or 0) + slack:
            found.append(f"{name} was at {step}, the replay has {oldest} to {latest}")
    return [f"{text} ({was.at - replay.player.begin:.2f} s)" for text in found]


def test_the_replay_of_real_training_is_what_was_on_the_screen() -> None:
    require_module("torch")

    async def story() -> None:
        with cluster(2, 1) as made:
            folder, looks = await lived(made)
        chosen = spread(looks)
        assert len({one.at for one in chosen}) > LOOKS / 2
        assert {state for one in chosen for state in one.states.values()} >= {"running", "exited 1"}
        assert max(one.front or 0 for one in chosen) >= STEPS - 20
        replay, board, session = await reopened(folder)
        try:
            # Not one after the other: also back.
            told = [
                await wrong(replay, board, one) for one in sorted(chosen, key=lambda one: one.at * 7919 % 101)
            ]
            assert [text for each in told for text in each] == []
            same = [one for one in chosen if (await shown(replay, board, one.at)).states == one.states]
            assert len(same) > LOOKS / 2, "all that was on the screen was late"
        finally:
            await session.close()
            board.close()

    asyncio.run(story())
