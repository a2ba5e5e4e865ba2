"""Every designed state of the stack screen, on made-up ranks: for snapshots and pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from cockpit.base.stacks.dump import Child, Dump, Frame, Process, Thread
from cockpit.config import Config
from cockpit.core.stacks.snapshot import Place, Sample, Snapshot
from cockpit.engine.stacks.ask import option_words
from cockpit.engine.stacks.take import ReplayedStacks
from cockpit.errors import CockpitError
from cockpit.tui.stacks.app import StacksApp
from cockpit.tui.stacks.screen import StackScreen
from tests.core.fates import end
from tests.tui.scenes import busy, text_of, until
from tests.waiting import PATIENCE_S

RUN = "20261121-0412-otter"
ENGINE = "deepspeed/runtime/engine.py"

MAIN = (Frame("<module>", "./train.py", 240), Frame("main", "./train.py", 212))
WAITS = (
    *MAIN,
    Frame("train_step", "./train.py", 188),
    Frame("wrapped_fn", "deepspeed/utils/nvtx.py", 20),
    Frame("backward", ENGINE, 3431),
    Frame("wrapped_fn", "deepspeed/utils/nvtx.py", 20),
    Frame("allreduce_gradients", ENGINE, 2061),
    Frame("buffered_allreduce_fallback", ENGINE, 2873),
    Frame("allreduce_and_copy", ENGINE, 2842),
    Frame("allreduce_bucket", ENGINE, 2815),
    Frame("all_reduce", "deepspeed/comm/comm.py", 500),
    Frame("all_reduce", "deepspeed/comm/torch.py", 210),
    Frame("wrapper", "torch/distributed/c10d_logger.py", 83),
    Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252),
)
READS = (
    *MAIN,
    Frame("next_batch", "./train.py", 183),
    Frame("ShardReader.__next__", "./data.py", 131),
    Frame("read_shard", "./data.py", 118),
)
COMPUTES = (
    *MAIN,
    Frame("train_step", "./train.py", 185),
    Frame("_wrapped_call_impl", "torch/nn/modules/module.py", 1776),
    Frame("_call_impl", "torch/nn/modules/module.py", 1787),
    Frame("forward", "./model/attention.py", 71),
)
LOADS = (
    *MAIN,
    Frame("next_batch", "./train.py", 183),
    Frame("__next__", "torch/utils/data/dataloader.py", 734),
    Frame("_next_data", "torch/utils/data/dataloader.py", 1492),
    Frame("_try_get_data", "torch/utils/data/dataloader.py", 1251),
    Frame("get", "python/multiprocessing/queues.py", 113),
    Frame("poll", "python/multiprocessing/connection.py", 257),
    Frame("select", "python/selectors.py", 416),
)
READ_LINE = "with open(path, 'rb') as f: buf = f.read()"
PIN = Thread(
    "pin_memory",
    0,
    False,
    False,
    (
        Frame("_bootstrap", "python/threading.py", 1014),
        Frame("run", "python/threading.py", 994),
        Frame("_pin_memory_loop", "torch/utils/data/_utils/pin_memory.py", 61),
        Frame("get", "python/multiprocessing/queues.py", 113),
    ),
)


def dump(rank: int, frames: Sequence[Frame], at: float, state: str = "S", **facts: Any) -> Dump:
    """A rank's dump: its main thread here, a second one as most have it."""
    # The kernel knows for how long a thread has slept.
    facts = {"idle_s": 0.0 if state == "R" else 52.0, **facts}
    process = Process(41_000 + rank, 90_000 + rank, state, **facts)
    main = Thread("MainThread", 41_000 + rank, state == "R", state == "R", tuple(frames))
    pin = PIN._replace(tid=51_000 + rank)
    return Dump(rank, at, process, "plain", (main, pin), took_s=0.031)


def waits(rank: int, at: float) -> Dump:
    """It waits for the others."""
    return dump(rank, WAITS, at, wchan="futex_wait_queue", call="futex", cpu_s=812.0, main_cpu_s=700.0)


def reads(rank: int, at: float) -> Dump:
    """It reads a file, and has not come back from it."""
    target = "/data/c4/shard-00007.bin"
    told = dump(rank, READS, at, "D", wchan="folio_wait_bit_common", call="read", target=target, cpu_s=640.0)
    return replace(told, source=READ_LINE, way="nonblocking")


def computes(rank: int, at: float, line: int = 71) -> Dump:
    """It is in the middle of its work."""
    frames = (*COMPUTES[:-1], COMPUTES[-1]._replace(line=line))
    return dump(rank, frames, at, "R", cpu_s=at % 1000, main_cpu_s=at % 1000)


def denied(rank: int, at: float) -> Dump:
    """Nobody may look at it."""
    process = Process(41_000 + rank, 90_000 + rank, "S", "futex_wait_queue", "futex")
    what = "permission denied: Yama allows ptrace of one's own children only (ptrace_scope 1)"
    hint = "on that node: sudo sysctl -w kernel.yama.ptrace_scope=0"
    return Dump(rank, at, process, "kernel", error="denied", what=what, hint=hint)


Told = Callable[[int, float, int], Dump | None]
"""What a rank answers: its number, the time, the number of the sample; None: it has not answered."""


def odd_one(number: int) -> Told:
    """All wait for one rank, which reads a file."""
    return lambda rank, at, _: reads(rank, at) if rank == number else waits(rank, at)


class Played(ReplayedStacks):
    """Stacks of made-up ranks, as the screen wants them.

    :param world: how many ranks
    :param told: what each answers
    :param slow: ranks that do not answer until :meth:`release`
    :param silent: nodes that do not answer, and why
    """

    def __init__(
        self,
        world: int,
        told: Told,
        *,
        slow: Sequence[int] = (),
        silent: dict[str, str] | None = None,
        gone: dict[int, str] | None = None,
        recorded: bool = False,
        per_node: int = 8,
        inferred: str = "",
    ) -> None:
        places = {
            rank: Place(
                f"gpu{rank // per_node + 1:02d}",
                rank % per_node,
                41_000 + rank,
                (gone or {}).get(rank, ""),
                inferred=inferred,
                end=end((gone or {}).get(rank, "")),
            )
            for rank in range(world)
        }
        self.snapshot = Snapshot("20261121-040441", RUN, RUN, places)
        self.told = told
        self.recorded = recorded
        self.trouble = ""
        self.busy = False
        self.command = f"cockpit stacks {RUN}"
        self.slow = set(slow)
        self.silent = silent or {}
        self.asked_alone: list[tuple[int, tuple[str, ...]]] = []
        self.saved = 0
        self._go = asyncio.Event()

    @property
    def asked(self) -> int:
        return sum(not place.why for place in self.snapshot.ranks.values())

    def add(self) -> Sample:
        """A whole sample at once."""
        sample = Sample(time.time() + len(self.snapshot.samples))
        self.snapshot.samples.append(sample)
        self._fill(sample, set())
        sample.took_s = 0.4
        return sample

    def _fill(self, sample: Sample, without: set[int]) -> None:
        number = len(self.snapshot.samples) - 1
        sample.silent.update(self.silent)
        for rank, place in self.snapshot.ranks.items():
            if place.why or rank in without or place.node in self.silent:
                continue
            told = self.told(rank, sample.at, number)
            if told is not None:
                sample.dumps[rank] = told

    async def take(self) -> Sample:
        if not self.slow:
            return self.add()
        sample = Sample(time.time() + len(self.snapshot.samples))
        self.snapshot.samples.append(sample)
        self._fill(sample, self.slow)
        self.busy = True
        try:
            await self._go.wait()
            self._fill(sample, set())
        finally:
            self.busy = False
            sample.took_s = 0.8
        return sample

    def release(self) -> None:
        """The slow ones answer."""
        self.slow = set()
        self._go.set()

    async def look(
        self, rank: int, *, native: bool = False, locals: bool = False, children: bool = False
    ) -> Dump:
        wanted = {"native": native, "locals": locals, "children": children}
        asked = tuple(name for name, wish in wanted.items() if wish)
        if self.recorded:
            what = f"this snapshot was taken without {option_words(asked)}"
            raise CockpitError(what, where=f"rank {rank}")
        self.asked_alone.append((rank, asked))
        told = self.told(rank, time.time(), len(self.snapshot.samples) - 1)
        assert told is not None
        if not told.threads:
            return told
        main, *others = told.threads
        if native:
            nfs = Frame("__libc_read", "libc.so.6", 0, True)
            main = main._replace(
                frames=(*main.frames, Frame("_io_FileIO_readall", "python3.11", 0, True), nfs)
            )
        if locals:
            values = {"path": "'/data/c4/shard-00007.bin'", "self": "<ShardReader at 0x7f3c>", "api_key": "…"}
            main = main._replace(locals=tuple({} if frame.line != 118 else values for frame in main.frames))
        process = told.process
        if children and process is not None:
            worker = Thread("MainThread", 61_000, False, False, READS[-2:])
            process = process._replace(
                children=(
                    Child(61_000, "pt_data_worker", "S", (worker,)),
                    Child(61_001, "pt_data_worker", "Z"),
                )
            )
        return replace(told, threads=(main, *others), process=process, way="native" if native else told.way)

    def cancel(self) -> None:
        for node in {place.node for place in self.snapshot.ranks.values()}:
            self.snapshot.samples[-1].silent.setdefault(node, "cancelled before it answered")
        self._go.set()
        self.slow = set(self.snapshot.ranks)

    def save(self) -> Path:
        self.saved += 1
        return Path(f"/home/ada/.local/state/cockpit/runs/{RUN}/stacks/{self.snapshot.name}")


@dataclass(frozen=True)
class StackScene:
    """A state.

    :param make: whose stacks
    :param keys: what is pressed at the end
    :param samples: how many samples there are before
    """

    make: Callable[[], Played]
    keys: Sequence[str] = ()
    samples: int = 2


def healthy(rank: int, at: float, number: int) -> Dump:
    """All compute, each sample elsewhere."""
    return computes(rank, at, 60 + (rank * 7 + number * 5) % 20)


def moves(rank: int, at: float, number: int) -> Dump:
    """Ranks 0-7 compute in the first sample and wait in the second."""
    if rank == 13:
        return reads(rank, at)
    return computes(rank, at) if rank < 8 and not number else waits(rank, at)


def stops(rank: int, at: float, _: int) -> Dump:
    """Rank 13 was stopped."""
    if rank == 13:
        return dump(rank, COMPUTES, at, "T", wchan="do_signal_stop")
    return waits(rank, at)


def loads(rank: int, at: float, _: int) -> Dump:
    """Rank 13 waits for a worker that is dead."""
    if rank != 13:
        return waits(rank, at)
    told = dump(rank, LOADS, at, wchan="do_poll", call="poll", target="pipe")
    assert told.process is not None
    children = (Child(61_000, "pt_data_worker", "S"), Child(61_001, "pt_data_worker", "Z"))
    return replace(told, process=told.process._replace(children=children))


def mixed(rank: int, at: float, number: int) -> Dump | None:
    """Two nodes refuse, one rank is a zombie."""
    if 16 <= rank < 32:
        return denied(rank, at)
    if rank == 50:
        process = Process(41_050, 90_050, "Z")
        return Dump(rank, at, process, "kernel", error="zombie", what="dead, and not reaped by its parent")
    return odd_one(13)(rank, at, number)


STACK_SCENES: dict[str, StackScene] = {
    "stacks-4": StackScene(lambda: Played(4, odd_one(2), per_node=2)),
    "stacks-inferred": StackScene(lambda: Played(4, odd_one(2), per_node=2, inferred="node_order")),
    "stacks-64": StackScene(lambda: Played(64, odd_one(13))),
    "stacks-1024": StackScene(lambda: Played(1024, odd_one(421))),
    "stacks-healthy": StackScene(lambda: Played(64, healthy)),
    "stacks-one-sample": StackScene(lambda: Played(64, odd_one(13)), samples=1),
    "stacks-same": StackScene(lambda: Played(64, lambda rank, at, _: waits(rank, at))),
    "stacks-moved": StackScene(lambda: Played(64, moves)),
    "stacks-stopped": StackScene(lambda: Played(64, stops)),
    "stacks-loader": StackScene(lambda: Played(64, loads)),
    "stacks-taking": StackScene(lambda: Played(64, odd_one(13), slow=range(17, 64)), samples=0),
    "stacks-asking": StackScene(lambda: Played(64, odd_one(13), slow=range(64)), samples=0),
    "stacks-missing": StackScene(
        lambda: Played(
            64,
            mixed,
            silent={"gpu06": "no answer within 45 s"},
            gone={56: "killed by SIGKILL", 57: "killed by SIGKILL"},
        )
    ),
    "stacks-none": StackScene(
        lambda: Played(
            16,
            odd_one(13),
            silent={
                "gpu01": "no answer to the connection; is the node up, a firewall between?",
                "gpu02": "no answer to the connection; is the node up, a firewall between?",
            },
        )
    ),
    "stacks-denied": StackScene(lambda: Played(64, lambda rank, at, _: denied(rank, at))),
    "stacks-recorded": StackScene(lambda: Played(64, odd_one(13), recorded=True)),
    "stacks-rank": StackScene(lambda: Played(64, odd_one(13)), keys=("enter",)),
    "stacks-locals": StackScene(lambda: Played(64, odd_one(13)), keys=("l",)),
    "stacks-native": StackScene(lambda: Played(64, odd_one(13)), keys=("n",)),
    "stacks-children": StackScene(lambda: Played(64, loads), keys=("c",)),
    "stacks-diff": StackScene(lambda: Played(64, odd_one(13)), keys=("d",)),
    "stacks-diff-samples": StackScene(lambda: Played(64, moves), keys=("down", "d")),
    "stacks-library": StackScene(lambda: Played(64, odd_one(13)), keys=("L",)),
    "stacks-filter": StackScene(lambda: Played(64, odd_one(13)), keys=("slash", *"read_sh")),
}


@asynccontextmanager
async def stacked(
    scene: StackScene, size: tuple[int, int], config: Config | None = None
) -> AsyncIterator[tuple[StacksApp, Pilot[Any], Played]]:
    """The app in a scene, drawn and at rest."""
    stacks = scene.make()
    for _ in range(scene.samples):
        stacks.add()
    app = StacksApp(stacks, config or Config(ascii=False))
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, StackScreen), "the stack screen")
        await at_rest(pilot)
        for key in scene.keys:
            await pilot.press(key)
            await at_rest(pilot)
        yield app, pilot, stacks


async def at_rest(pilot: Pilot[Any]) -> None:
    """Wait until all there is has been worked out, and two looks in a row show the same screen."""
    before, same = "", 0
    deadline = time.monotonic() + PATIENCE_S
    while same < 2:
        assert time.monotonic() < deadline, "the screen does not come to rest"
        screens = [each for each in pilot.app.screen_stack if isinstance(each, StackScreen)]
        await pilot.pause(0.03)
        now = text_of(pilot.app)
        still = all(screen.settled for screen in screens) and not busy(pilot.app)
        same = same + 1 if now == before and still else 0
        before = now
