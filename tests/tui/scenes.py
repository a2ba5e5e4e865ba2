"""Every state of the app that has a design of its own, played on a stage: for snapshots and pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, cast

from textual.app import App
from textual.notifications import Notification
from textual.pilot import Pilot
from textual.strip import Strip

from cockpit.base.answers import Launching
from cockpit.config import Config
from cockpit.core.recorder.counts import Count
from cockpit.engine.launch.start import Stages
from cockpit.engine.links.pool import _Way
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.manifest import Foreign
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError, Exit, ManyErrors
from cockpit.transport.base import LinkError, UnknownHostKey
from cockpit.transport.login_prompts import DESK, Challenge, NeedsPerson, Prompt
from cockpit.tui.app import CockpitApp
from cockpit.tui.base_app import BaseApp
from cockpit.tui.logs.filter_bar import WAIT_S, FilterBar
from cockpit.tui.logs.view import LogView
from cockpit.tui.run.grid_lines import Mark
from cockpit.tui.run.screen import RunScreen
from cockpit.tui.run.start import StartScreen
from cockpit.tui.run.tabs import Tabs
from tests.tui import lively
from tests.tui.stage import NOW, Stage
from tests.waiting import PATIENCE_S

EIGHT = [f"gpu{number:02d}" for number in range(1, 9)]

MANY = [f"gpu{number:03d}" for number in range(1, 129)]

LASTING = ("start", "watch", "sample", "profile")
"""Tasks of the app that go on for as long as the run, or somebody's answer, takes."""

LOOK_S = WAIT_S + 0.01
"""Seconds between two looks at the screen."""


class Unanswered(Stage):
    """Nodes that do not all answer."""

    async def take_off(self, stages: Stages) -> Session:
        roll = Roll(self.nodes)
        stages.connecting(roll)
        for node in self.nodes[:5]:
            roll.answer(node)
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")


class UnknownKeys(Stage):
    """Nodes whose host keys nobody knows."""

    async def take_off(self, stages: Stages) -> Session:
        stages.connecting(Roll(self.nodes))
        keys = [
            UnknownHostKey(
                where=node,
                entry=node,
                key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI",
                fingerprint=f"SHA256:{node}4bq8mSgA3vXo1nIu5rZkqXo7Rr0dH2PbS1oJmPq9yTc",
                file="/home/ada/.ssh/known_hosts",
            )
            for node in self.nodes
        ]
        if not await stages.trusts(keys):
            raise ManyErrors(keys)
        return await super().take_off(stages)


class WantsPassword(Unanswered):
    """Nodes that want a password, tried at the first of them."""

    challenge = Challenge(
        hop="ada@gpu01",
        kind="password",
        prompts=(Prompt("Password:"),),
        of="gpu01",
        waiting=lambda: EIGHT[1:],
    )

    async def take_off(self, stages: Stages) -> Session:
        stages.connecting(Roll(self.nodes))
        await DESK.ask(self.challenge)
        return await super().take_off(stages)


class WantsCode(WantsPassword):
    """A login host that wants two answers, and has a lot to say."""

    challenge = Challenge(
        hop="ada@login.hpc.example.org:2222",
        kind="code",
        prompts=(Prompt("Verification code:"), Prompt("Which device (phone, token)?", echo=True)),
        told=("Two-factor login for HPC Example. " + "All use is logged. " * 9, "Enter the newest code"),
        of="jump host login.hpc.example.org, on the way to gpu01",
        refused="Refused; this is try 2 of 3.",
    )


def healthy(**manifest: Any) -> Stage:
    """Eight nodes with eight ranks each, in the middle of their training."""
    stage = Stage(EIGHT, 8, **manifest)
    stage.runs()
    return stage


def sized(names: Sequence[str], slots: int, age_s: float = 700.0, stuck: int = -1) -> Stage:
    """So many nodes and ranks, in the middle of their training."""
    age_s = lively.AGE_S if Stage.lively else age_s
    stage = Stage(list(names), slots, created=time.time() - age_s - 61)
    stage.stuck = stuck
    stage.runs(age_s)
    return stage


def trains(stage: Stage, steps: int = 26, *, ago_s: float = 0.3, lost: str = "", fills: bool = False) -> None:
    """Some output: of rank 0, and of all ranks at once.

    :param ago_s: in a picture, how long ago the last step was over
    :param lost: there, a node that nothing has come from for 14 s
    :param fills: there, the memory of GPUs fills up
    """
    if stage.lively:
        trains_lively(stage, ago_s, lost, fills=fills)
        return
    for step in range(1190, 1190 + steps):
        loss = 2.4 - (step - 1190) * 0.004
        stage.prints(
            0, f"step {step}/5000 loss {loss:.3f} lr 1e-4 tokens/s {41_200 + step} step_time 0.118\n"
        )
    for rank in stage.model.ranks:
        stage.prints(rank, "[INFO] [logging.py:96:log_dist] [Rank 0] step=1216, skipped=0, lr=[1e-04]\n")


def goes_well(stage: Stage) -> None:
    """Every rank has noted its steps for a quarter of an hour, in which rank 13 was slow for a while."""
    saves = range(900, 1217, 100)
    for step in range(100, 900, 100) if stage.lively else ():
        stage.happens("", kind="saved", at=time.time() - 702 - 2.1 * (900 - step), step=step, seconds=11.0)
    paces(stage, 816, 1217, slow=(13,), since=1010, until=1050, checkpoints=saves, shown=27)
    stage.samples("gpu06", gpu=89)


def trains_lively(stage: Stage, ago_s: float, lost: str, *, fills: bool) -> None:
    """Every rank prints each step, when it is over."""
    for step, took, ago in lively.steps(ago_s):
        for rank in stage.model.ranks.values():
            if rank.node != lost or ago > 14:
                stage.prints(rank.rank, lively.said(step, rank.rank, took))
        if step % 10 == 0:
            used = max(124.31, 136.4 - 0.31 * (lively.LAST - step) if fills else 0.0)
            stage.prints(0, f"[INFO] [timer.py:264] global_step={step}, MemAllocated={used:.2f}GB\n")
        stage.printed(ago)


def slows(stage: Stage) -> None:
    """Rank 13 works half as long again since step 1170; a checkpoint took 11 s in between."""
    paces(stage, 1010, 1217, slow=(13,), since=1170, checkpoints=(1200,))


def slows_few(stage: Stage) -> None:
    """The same of a small run, whose rank 3 is slow."""
    paces(stage, 1010, 1217, slow=(3,), since=1170, checkpoints=(1200,))


def slows_many(stage: Stage) -> None:
    """The same of a large run, whose rank 500 is slow."""
    paces(stage, 1140, 1217, slow=(500,), since=1170, checkpoints=(1200,))


def phases_few(stage: Stage) -> None:
    """The small run again, whose ranks tell where their time goes."""
    paces(stage, 1010, 1217, slow=(3,), since=1170, checkpoints=(1200,), phased=True)


def phases_known(stage: Stage) -> None:
    """A quarter of an hour in which rank 13 was slow for a while, because of its input."""
    saves = range(900, 1217, 100)
    paces(stage, 816, 1217, slow=(13,), since=1010, until=1050, checkpoints=saves, shown=27, phased=True)


def phases_slow(stage: Stage) -> None:
    """Rank 13 waits for its input since step 1170."""
    paces(stage, 1010, 1217, slow=(13,), since=1170, checkpoints=(1200,), phased=True)


def half_slows(stage: Stage) -> None:
    """Every second rank of a large run is slow."""
    paces(stage, 1140, 1217, slow=range(1, 1024, 2), since=1170, checkpoints=(1200,))


READS = {
    "id": "io",
    "what": "rank 13 has not reached all_reduce #4211",
    "ranks": [13],
    "where": "data.py:118 read_shard",
    "detail": "It is in read of /data/c4/shard-00713.bin and cannot be interrupted: a network file system.",
    "evidence": [
        "flight recorder: #4210 complete on all 64, #4211 entered by 63, not by 13",
        "63 ranks in all_reduce, same in 2 of 2 samples, 1.8 s apart",
        "rank 13 has not moved either",
    ],
    "certainty": "sure",
    "severity": "error",
    "nodes": ["gpu02"],
    "steps": [{"command": "dmesg -T | tail", "reason": "", "node": "gpu02", "action": ""}],
}
"""What the watch finds of a rank that reads, and reads."""


def stands_still(stage: Stage) -> None:
    """Rank 13 works longer than the others, then not at all: nobody has made a step for 48 s."""
    stood = lively.STOOD_S if stage.lively else 48.0
    paces(stage, 1010, 1217, slow=(13,), since=1170, checkpoints=(1200,), ago=stood)
    now = time.time()
    about: dict[str, Any] = {"since": now - stood, "step": 1216, "total": 3}
    quiet_at = now - stood + 30
    stage.happens("", kind="watch", at=quiet_at, state="quiet", still_s=30.0, looking=True, looks=0, **about)
    stage.happens(
        "",
        kind="watch",
        state="stalled",
        still_s=stood,
        looks=3,
        looked=now - 2,
        next_at=now + 28,
        found={**READS, **lively.FOUND} if stage.lively else READS,
        waiting=[rank for rank in stage.model.ranks if rank != 13],
        snapshot="20261121-040401",
        stuck="likely",
        before_s=11.0,
        before_step=1200,
        **about,
    )


def nobody_is_named(stage: Stage) -> None:
    """Nobody has made a step for 48 s, but ranks move."""
    paces(stage, 1010, 1217, slow=(13,), since=1210, ago=48.0)
    moves = {
        **READS,
        "id": "moves",
        "what": "ranks 0-63 move in evaluate.py:31",
        "where": "evaluate.py:31 score",
    }
    now = time.time()
    stage.happens(
        "",
        kind="watch",
        state="quiet",
        since=now - 48,
        still_s=48.0,
        step=1216,
        looks=1,
        total=1,
        looked=now - 2,
        next_at=now + 28,
        found={**moves, "ranks": [], "certainty": "likely"},
    )


def paces(
    stage: Stage,
    first: int,
    last: int,
    *,
    slow: Sequence[int],
    since: int,
    until: int | None = None,
    checkpoints: Sequence[int] = (),
    ago: float = 0.9,
    shown: int = 4,
    phased: bool = False,
) -> None:
    """Every rank notes its steps, of 2 s, or as long as the slow one works; the last ended so long ago.

    :param until: the step from which it is slow no more
    :param shown: steps in the log
    :param phased: they tell the phases of each step too: the slow one waits for its input
    """
    assert stage.board is not None
    pace = stage.board.pace
    says = partial(lively.said, tokens=True) if stage.lively else said
    slowly = range(since, until or last)
    work = 1.62 if phased else 1.97
    usual = {step: 2.96 if step in slowly else 1.99 for step in range(first, last)}
    spans = [usual[step] + 11 * (step in checkpoints) for step in usual]
    at = time.time() - max(ago, 0.99 * stage.lively) - sum(spans)
    overs = dict(zip(usual, (at + over for over in accumulate(spans)), strict=True))
    for step, span in zip(range(first, last), spans, strict=True):
        stage.saves += [at + 0.5] * (step in checkpoints)
        at += span
        for rank in stage.model.ranks:
            ripple = (rank * 37 + step * 11) % 17 / 400
            late = 0.97 if rank in slow and step in slowly else 0.0
            noted = at + (ripple + late if step == last - 1 else ripple)
            # Who waits for others does so in its backward.
            phases = (0.05 + late, 0.52, usual[step] - 0.72 - late, 0.1 + ripple) if phased else ()
            pace.stepped(rank, step, noted, phases=phases)
            worked = usual[step] - 0.02 if phased and late else work + late + ripple
            pace.worked(rank, step, worked)
        stage.board.metrics.feed(0, says(step, 0, usual[step]).encode(), at)
        if step in checkpoints:
            stage.happens("", kind="saved", at=at, step=step, seconds=11.0)
        if step == since + 9:
            tells(stage, slow, since, at, work + 0.01)
        if step == until:
            for rank in slow[:3]:
                stage.happens("", kind="notice", at=at, id="slow", of=str(rank), what="", since=at, over=True)
    for step in range(last - (max(shown, 12) if stage.lively else shown), last):
        for rank in stage.model.ranks:
            stage.prints(rank, says(step, rank, usual[step]))
        stage.printed(time.time() - overs[step])


def tells(stage: Stage, slow: Sequence[int], since: int, at: float, others: float) -> None:
    """The notices of ranks that have become slow, while others work so many seconds in a step."""
    for rank in slow[:3]:
        node = stage.model.ranks[rank].node
        what = f"rank {rank} slow since step {since:,}: 2.95 s, others {others:.2f} s"
        about: dict[str, Any] = {"of": str(rank), "what": what, "nodes": [node], "ranks": [rank]}
        stage.happens("", kind="notice", at=at, id="slow", since=at, certainty="sure", **about)
    if len(slow) > 3:
        what = f"{len(slow) - 3} more ranks slow since step {since:,}"
        stage.happens("", kind="notice", at=at, id="slow", of="others", what=what, since=at, certainty="sure")


def said(step: int, rank: int, span: float) -> str:
    """What a rank prints of a step that took so long."""
    loss = 5.3 - step * 0.002 + (step * 7 % 13) / 100 + rank % 64 * 0.0004
    return f"step {step}/5000 loss {loss:.3f} lr 9.2e-05 tokens/s {round(6_130_000 / span)}\n"


def everyone_trains(stage: Stage) -> None:
    """Every rank prints its own numbers; rank 29 odd ones, and ranks 8 to 15 run out of memory."""
    for rank in stage.model.ranks:
        for step in range(1212, 1217):
            loss = 2.4 - (step - 1190) * 0.004 + rank * 0.0007
            loss_text = "nan" if rank == 29 and step == 1216 else f"{loss:.3f}"
            stage.prints(rank, f"step {step}/5000 loss {loss_text} grad_norm {0.9 + rank / 100:.2f}\n")
        stage.prints(
            rank,
            f"[2026-11-20 03:14:01,{120 + rank}] [INFO] [timer.py:264:stop] rank={rank} micro_step=1216, "
            f"MemAllocated={9 + rank / 60:.2f}GB, MaxMemAllocated=21.{rank:02}GB\n",
        )
    for rank in range(8, 16):
        lines = (
            "Traceback (most recent call last):",
            '  File "/home/ada/train.py", line 188, in step',
            "    loss = self.net(batch)",
            f"torch.OutOfMemoryError: CUDA out of memory. GPU {rank % 8} has {200 + rank} MiB free.",
        )
        stage.prints(rank, "".join(f"[rank{rank}]: {line}\n" for line in lines))


def fails(stage: Stage) -> None:
    """Rank 13 fails, and its launcher ends the other ranks of its node."""
    trains(stage, ago_s=4.9, fills=True)
    stage.fails_first(13)
    stage.printed(4.4)
    for rank in (8, 9, 10, 11, 12, 14, 15):
        stage.happens("gpu02", kind="rank_exited", at=time.time() - 2.2, rank=rank, code=None, signal=15)
    stage.stops_at = time.time() + 21


def ends(stage: Stage) -> None:
    """Every rank exits 0, and all output is here."""
    trains(stage)
    for rank in stage.model.ranks.values():
        stage.happens(rank.node, kind="rank_exited", at=time.time() - 5, rank=rank.rank, code=0, signal=None)
    for node in stage.nodes:
        stage.happens(node, kind="launcher_exited", at=time.time() - 4, code=0, signal=None)
        stage.happens(node, kind="ended", at=time.time() - 4)
        stage.happens(node, kind="complete")


def finalises(stage: Stage) -> None:
    """A stop was asked for; the ranks have ended, the profilers write."""
    trains(stage, ago_s=6.2)
    asked = time.time() - 6.1 * stage.lively
    stage.happens("", kind="stop_asked", at=asked, reason="requested in the app", by="ada", hard=False)
    for node in stage.nodes:
        stage.happens(node, kind="stop_requested", at=time.time() - 6, reason="asked", by="ada")
    for rank in stage.model.ranks.values():
        stage.happens(rank.node, kind="rank_exited", at=time.time() - 5, rank=rank.rank, code=None, signal=15)
    for node in stage.nodes:
        stage.happens(node, kind="stage", stage="finalising")


def goes_stale(stage: Stage) -> None:
    """The link to one node is lost; its last values stay."""
    trains(stage, lost="gpu06")
    stage.happens("gpu06", kind="link", at=time.time() - 14, state="stale", why="no answer for 15 s")


def needs_a_person(stage: Stage) -> None:
    """Three nodes have lost their link, and are reached by a one-time code only."""
    trains(stage)
    why = "login failed: ada@login needs a password or code"
    for node in EIGHT[:3]:
        stage.happens(node, kind="link", at=NOW - 40, state="stale", why=why, asks=True)
        stage.pool._ways[node] = _Way(error=NeedsPerson(why, where=node))


def comes_back(stage: Stage) -> None:
    """The link to one node was lost and is back."""
    goes_stale(stage)
    stage.happens("gpu06", kind="link", state="ok")


def disk_fails(stage: Stage) -> None:
    """The spool cannot be written here."""
    trains(stage)
    stage.trouble = CockpitError(
        "cannot write the spool: Input/output error",
        where="/home/ada/.local/state/cockpit/runs/otter/spool/0000-gpu01/rank-0.log",
        hint="see dmesg: nothing is lost, the node keeps its files",
    )


def launched() -> Stage:
    """Launched a moment ago: no rank has started."""
    stage = Stage(EIGHT, 8, created=time.time() - 34)
    for entry in stage.manifest.nodes:
        stage.happens(entry.name, kind="launched", at=time.time() - 34, dir=entry.dir)
        stage.happens(entry.name, kind="link", at=time.time() - 34, state="ok")
    return stage


def refused() -> Stage:
    """Three nodes cannot be started on."""
    stage = Stage(EIGHT, 8)
    stage.fails = ManyErrors(
        [
            LinkError(
                "no answer to the connection", where="gpu03", hint="is the node up, a firewall between?"
            ),
            LinkError(
                "login refused: no key of ada is accepted", where="gpu05", hint="try: ssh-copy-id gpu05"
            ),
            CockpitError(
                "no deepspeed in /home/ada/venv/bin/python",
                where="gpu07",
                hint="try there: /home/ada/venv/bin/python -m pip install deepspeed, or another --python",
                code=Exit.NODE_UNFIT,
            ),
        ]
    )
    return stage


def foreign() -> Stage:
    """A job that others started: two nodes, eight ranks each."""
    command = "/home/ada/venv/bin/python -m torch.distributed.run --nnodes 2 train.py --wandb-key (secret)"
    launchers = {node: [Launching(40_000, 1, (), command, 18)] for node in EIGHT[:2]}
    job = Foreign(("at", "gpu01", "29500"), "", launchers)
    made = Stage(EIGHT[:2], 8, "20261121-0412-heron", launcher="torchrun", foreign=job)
    made.runs()
    return made


def says_why(stage: Stage) -> None:
    """Its output goes where nobody can read it."""
    for node in stage.nodes:
        step = "next time, send it to a file: … >train.log 2>&1"
        text = f"no output here: each rank writes to a terminal (pts/4); {step}"
        stage.happens(node, kind="note", text=text)


def goes(stage: Stage) -> None:
    """Its ranks are gone, nobody knows how; one of them has said why."""
    trains(stage)
    for rank in stage.model.ranks.values():
        why = "cockpit did not start it, so how it ended is not known"
        stage.happens(rank.node, kind="rank_gone", at=time.time() - 5, rank=rank.rank, why=why)
    for node in stage.nodes:
        stage.happens(node, kind="ended", at=time.time() - 4)
        stage.happens(node, kind="complete")


def recorded() -> Stage:
    """A run that was over before."""
    stage = healthy()
    ends(stage)
    return stage


@dataclass(frozen=True)
class Scene:
    """A state.

    :param make: the run as it is when the app opens
    :param play: what happens then
    :param keys: what is pressed at the end
    """

    make: Callable[[], Stage] = healthy
    play: Callable[[Stage], None] = trains
    keys: Sequence[str] = ()


def tells_no_steps(stage: Stage) -> None:
    """Recorders alone tell how far ranks are; rank 13 has not entered the last three collectives."""
    assert stage.board is not None
    now = time.time()
    for rank in stage.model.ranks:
        late = rank == 13
        last_us = round(1e6 * (now - 20 - 3 * late))
        count = Count(4118 - 3 * late, last_us, 3 * late, round(1e6 * now))
        stage.board.pace.signs.entered(rank, count, now)


def nothing(stage: Stage) -> None:
    """Nothing happens."""


SCENES: dict[str, Scene] = {
    "connecting": Scene(lambda: Unanswered(EIGHT, 8), nothing),
    "host-keys": Scene(lambda: UnknownKeys(EIGHT[:4], 8), nothing),
    "login-password": Scene(lambda: WantsPassword(EIGHT, 8), nothing, keys=tuple("s3cret")),
    "login-code": Scene(lambda: WantsCode(EIGHT, 8), nothing),
    "cannot-start": Scene(refused, nothing),
    "launching": Scene(launched, nothing),
    "running": Scene(lambda: sized(EIGHT, 8, age_s=870.0), goes_well),
    "failed": Scene(play=fails),
    "ended": Scene(play=ends),
    "finalising": Scene(play=finalises),
    "stale": Scene(play=goes_stale),
    "logged-out": Scene(play=needs_a_person),
    "back": Scene(play=comes_back),
    "disk-fails": Scene(play=disk_fails),
    "recorded": Scene(recorded, nothing),
    "rank-chosen": Scene(keys=("down", "down", "right")),
    "told-as-one": Scene(play=everyone_trains, keys=("2", "z")),
    "one-by-one": Scene(play=everyone_trains, keys=("2", "z", "up", "enter")),
    "detail": Scene(keys=("down", "right", "3")),
    "events": Scene(play=fails, keys=("4",)),
    "commands": Scene(keys=("5",)),
    "pace": Scene(lambda: sized(EIGHT, 8), slows, keys=("6",)),
    "phases": Scene(lambda: sized(EIGHT, 8, age_s=870.0), phases_known),
    "phases-4": Scene(lambda: sized(EIGHT[:2], 2), phases_few, keys=("6",)),
    "pace-phases": Scene(play=phases_slow, keys=("6",)),
    "pace-4": Scene(lambda: sized(EIGHT[:2], 2), slows_few, keys=("6",)),
    "pace-1024": Scene(lambda: sized(MANY, 8), slows_many, keys=("6",)),
    "pace-half": Scene(lambda: sized(MANY, 8), half_slows, keys=("6",)),
    "ranks": Scene(play=slows, keys=("z",)),
    "pace-ranks": Scene(play=slows, keys=("6", "z")),
    "pace-log-only": Scene(keys=("6",)),
    "pace-unknown": Scene(play=nothing, keys=("6",)),
    "pace-signs": Scene(play=tells_no_steps, keys=("6",)),
    "stalled": Scene(lambda: sized(EIGHT, 8, stuck=13), stands_still),
    "stalled-log": Scene(play=stands_still, keys=("escape",)),
    "no-step": Scene(play=nobody_is_named),
    "filtered": Scene(keys=("2", "slash", *"loss 2.3")),
    "frozen": Scene(keys=("p",)),
    "help": Scene(keys=("question_mark",)),
    "palette": Scene(keys=("colon",)),
    "stop-question": Scene(keys=("x",)),
    "foreign": Scene(foreign),
    "foreign-detail": Scene(foreign, keys=("down", "right", "3")),
    "foreign-silent": Scene(foreign, says_why, keys=("x",)),
    "foreign-gone": Scene(foreign, goes),
    "foreign-leave": Scene(foreign, keys=("ctrl+c",)),
}


async def until(pilot: Pilot[Any], there: Callable[[], object], what: str) -> None:
    """Wait for a condition while the app goes on, and until what came along with it is drawn too."""
    deadline = time.monotonic() + PATIENCE_S
    while not there():
        assert time.monotonic() < deadline, f"still not: {what}"
        await pilot.pause(0.02)
    await quiet(pilot.app)


@asynccontextmanager
async def played(
    scene: Scene, size: tuple[int, int], config: Config | None = None, *, notices: bool = False
) -> AsyncIterator[tuple[CockpitApp, Pilot[Any], Stage]]:
    """The app in a scene, drawn and at rest.

    :param notices: draw them too
    """
    stage = scene.make()
    app = CockpitApp(stage, config or Config(ascii=False))
    async with AsyncExitStack() as closing:
        closing.push_async_callback(stage.close)
        pilot = await closing.enter_async_context(app.run_test(size=size, notifications=notices))
        started = scene.make is not refused and not isinstance(stage, Unanswered | UnknownKeys)
        if started:
            await until(pilot, lambda: isinstance(app.screen, RunScreen) and stage.board, "the run's screen")
        scene.play(stage)
        if stage.lively:  # the app knows nothing of what came before its clock
            app.screen.query_one(LogView).refresh_log()
        if stage.trouble is not None:
            await until(pilot, lambda: cast(RunScreen, app.screen).deeds.trouble, "the trouble is noticed")
        if scene.keys:
            await settled(pilot)
        for key in scene.keys:
            await pilot.press(key)
        await settled(pilot)
        yield app, pilot, stage


async def settled(pilot: Pilot[Any]) -> None:
    """Draw what is drawn now and then, and wait until nothing is under way and two looks show the same.

    They are further apart than the app waits for more keys before it applies what was typed.
    """
    before = ""
    while True:
        screen = pilot.app.screen
        if isinstance(screen, RunScreen):
            draw_now(screen)
        elif isinstance(screen, StartScreen):
            screen._draw()
        await pilot.pause(LOOK_S)
        now = text_of(pilot.app)
        if now == before and not busy(pilot.app):
            return
        before = now


def draw_now(screen: RunScreen) -> None:
    """Draw what is drawn now and then."""
    screen._tick()
    screen._slow_tick()


def busy(app: Any) -> list[str]:
    """What ends by itself: tasks of the app, filters and keys that wait, messages, drawing, a judgement."""
    found = [each.group for each in app.workers if not each.is_finished and each.group not in LASTING]
    found += ["a filter" for screen in app.screen_stack for bar in screen.query(FilterBar) if bar._timer]
    runs = [each for each in app.screen_stack if isinstance(each, RunScreen)]
    found += ["a cause" for run in runs if run.board.judging]
    return found + on_the_way(app)


def on_the_way(app: App[Any]) -> list[str]:
    """Keys and messages that nobody has handled yet, and drawing."""
    parts = [each for each in (app, *app._registry) if not (each._closing or each._closed)]
    found = [str(each) for each in parts if each.message_queue_size or each._next_callbacks]
    if isinstance(app, BaseApp) and not app.typeahead.idle:
        found.append("keys")
    screen = app.screen
    waits = screen._layout_required, screen._repaint_required, screen._dirty_widgets, screen._callbacks
    return found + ["drawing"] * any(waits)


async def quiet(app: App[Any]) -> None:
    """Wait until no key and no message is on its way, and all is drawn."""
    deadline = time.monotonic() + PATIENCE_S
    # Twice: a message that was just taken from one queue is in none until it is in the next one.
    still = 0
    while still < 2 and app.screen_stack and app.return_code is None:
        await asyncio.sleep(0)
        app.screen._on_timer_update()
        left = on_the_way(app)
        still = 0 if left else still + 1
        assert time.monotonic() < deadline, f"still on the way: {left}"


def strips_of(app: App[Any]) -> list[Strip]:
    """What is on the screen, line by line."""
    return app.screen._compositor.render_strips()


def text_of(app: Any) -> str:
    """What is on the screen, without colours."""
    return "".join(f"{strip.text.rstrip()}\n" for strip in strips_of(app))


def notes(app: App[Any]) -> list[Notification]:
    """The messages that the app shows and nobody has taken away."""
    return list(app._notifications)


def chosen(app: App[Any]) -> Mark | None:
    """The node or rank that the run's screen is about, whatever is above it."""
    (tabs,) = (tabs for screen in app.screen_stack for tabs in screen.query(Tabs))
    return tabs.view.chosen


def choose(app: App[Any], node: str, rank: int | None) -> None:
    """Go to a node or rank, as from the list of all of them."""
    (screen,) = (each for each in app.screen_stack if isinstance(each, RunScreen))
    title = f"node {node}" if rank is None else f"rank {rank}"
    next(place for place in screen.places() if place.title == title).run()
