"""A run without nodes: a session that a test tells what happens, for everything that draws one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from cockpit.base.answers import EnvironAnswer
from cockpit.base.verbs import Environ
from cockpit.config import Quotas
from cockpit.core.logs.sources import Writer, file_of, rank_of
from cockpit.core.pace.pace import Pace
from cockpit.core.run.events import Event
from cockpit.core.run.model import Rank, RunModel
from cockpit.core.watch.options import WatchOptions
from cockpit.engine.launch.start import Stages
from cockpit.engine.logs.spool import Shelf, Spool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run.board import Board
from cockpit.engine.run.join import pool_for
from cockpit.engine.run.session import Session
from cockpit.errors import CockpitError
from tests.happened import happened
from tests.tui import lively

NOW = 1_795_233_881.0
"""What a frozen clock shows: 2026-11-21 04:04:41 UTC."""

OUT_OF_MEMORY = "RuntimeError: CUDA out of memory. Tried to allocate 2.50 GiB"


class Stage:
    """A run that a test plays, as a session for a screen and as a flight for the app.

    :param nodes: names of the nodes
    :param slots: ranks on each of them
    """

    launches = True
    collects = False
    leaving = ""
    stalls = WatchOptions()
    writer = True
    lively = False
    """Numbers vary, and what is printed has times of its own, as a picture wants it."""
    stuck = -1
    """There, the rank that stands still."""

    def __init__(
        self, nodes: Sequence[str], slots: int, run: str = "20261121-0412-otter", **manifest: Any
    ) -> None:
        run = lively.name(manifest.get("created", NOW - 761)) if self.lively else run
        entries = [
            NodeEntry(
                name, f"/tmp/cockpit-1000/{run}/{name}", list(range(i * slots, (i + 1) * slots)), host=name
            )
            for i, name in enumerate(nodes)
        ]
        fields: dict[str, Any] = {
            "created": NOW - 761,
            "launcher": "deepspeed",
            "program": ["train.py", "--steps", "5000"],
            "cwd": "/home/ada/job",
            **manifest,
        }
        self.folder = RunFolder.create(Manifest(run=run, nodes=entries, **fields))
        self.manifest = self.folder.manifest
        self.name = run
        self.nodes = list(nodes)
        self.model = RunModel()
        self.pace = Pace(rank for entry in entries for rank in entry.ranks)
        self.behind = dict.fromkeys(nodes, 0)
        self.paused: dict[str, Exception] = {}
        self.secrets: dict[str, str] = {}
        self.saves: list[float] = []
        self.stops_at: float | None = None
        self.alone = ""
        self.source = self
        """What a session is with says where things are: here that is the same."""
        self.stops: list[bool] = []
        """Whether each stop that was asked for was a hard one."""
        self.trouble: CockpitError | None = None
        self.environ: EnvironAnswer | Exception | None = None
        """What a node answers to that question, where not what a rank always has."""
        self.asked: list[Environ] = []
        """What was asked of nodes."""
        self.fails: CockpitError | None = None
        """What the start fails with."""
        self.board: Board | None = None
        self.pool = pool_for(self.manifest)
        shelf = Shelf(self.folder.path, Quotas())
        self.spools = {entry.name: Spool(self.folder.spool_dir(entry), shelf) for entry in entries}
        self._nodes = {entry.name: entry for entry in entries}
        self._early: list[Event] = []
        self.listeners: list[object] = []
        self.told(planned(self.manifest))

    # The flight

    async def take_off(self, stages: Stages) -> Session:
        if self.fails is not None:
            raise self.fails
        listener = stages.listener(self.folder)
        listener.joined(self.model, self.pace)
        assert isinstance(listener, Board)
        self.board = listener
        for event in self._early:
            listener.event(event, set())
        return cast(Session, self)

    # What happens

    def happens(self, node: str, *, kind: str, at: float | None = None, **data: Any) -> None:
        """One event of a node."""
        self.told(happened(time.time() if at is None else at, kind, node, data))

    def told(self, event: Event) -> None:
        """One event that the gate let in."""
        changed = self.model.apply(event)
        if self.board is None:
            self._early.append(event)
        else:
            self.board.event(event, changed)

    def runs(self, age_s: float = 700.0) -> None:
        """Every node is launched and linked, every rank runs."""
        at = time.time() - age_s
        for entry in self.manifest.nodes:
            self.happens(entry.name, kind="launched", at=at, dir=entry.dir)
            self.happens(entry.name, kind="link", at=at, state="ok")
            self.happens(entry.name, kind="clock", at=at, offset_s=0.0, rtt_s=0.016)
        for entry in self.manifest.nodes:
            for rank in entry.ranks:
                self.happens(entry.name, kind="rank_started", at=at + 3, rank=rank, pid=41_000 + rank)
            self.samples(entry.name)

    def samples(self, node: str, gpu: int = 0) -> None:
        """One measurement of a node and its ranks; in a picture, the two minutes of them before that.

        :param gpu: how busy its GPUs are, per cent; 0: as usual
        """
        of = self._nodes[node].ranks
        if self.lively and not gpu:
            for ago, measured in lively.samples(node, of, self.stuck):
                self.happens(node, kind="sample", at=time.time() - ago, **measured)
            return
        ranks = {
            rank: {"cpu_percent": 98.0, "rss_bytes": 31 << 30, "threads": 42, "children": 4} for rank in of
        }
        sample = {
            "load": 8.5,
            "cores": 32,
            "memory_bytes": 300 << 30,
            "memory_total_bytes": 512 << 30,
            "disk_free_bytes": 900 << 30,
        }
        gpus = [
            {
                "index": index,
                "name": "H200",
                "utilisation_percent": gpu or 96,
                "memory_bytes": 79 << 30,
                "memory_total_bytes": 140 << 30,
                "processes": {},
            }
            for index in range(len(ranks))
        ]
        self.happens(node, kind="sample", sample=sample, ranks=ranks, gpus=gpus)

    def prints(self, writer: Writer, text: str | bytes, node: str = "") -> None:
        """A rank, or the launcher of a node, prints, or NCCL in a rank writes."""
        data = text.encode() if isinstance(text, str) else text
        node = node or next(entry.name for entry in self.manifest.nodes if rank_of(writer) in entry.ranks)
        spool, file = self.spools[node], file_of(writer)
        offset = spool.offsets().get(file, 0)
        spool.append(file, offset, data)
        if self.board is not None:
            self.board.log(node, writer, offset, data)

    def printed(self, ago_s: float) -> None:
        """What was printed so far was printed by then."""
        if self.lively and self.board is not None:
            self.board.flush(time.time() - ago_s)

    def fails_first(self, rank: int, cause: str = OUT_OF_MEMORY) -> None:
        """A rank ends with a traceback."""
        node = self.model.ranks[rank].node
        self.prints(
            rank,
            "Traceback (most recent call last):\n"
            '  File "/home/ada/job/train.py", line 188, in forward\n    x = self.attention(x)\n'
            '  File "/home/ada/job/model/attention.py", line 71, in softmax\n'
            "    return torch.softmax(x, -1)\n"
            f"{cause}\n",
        )
        self.happens(node, kind="rank_exited", at=time.time() - 4.4, rank=rank, code=1, signal=None)

    # The session

    def here(self, node: str) -> int:
        return sum(self.spools[node].offsets().values())

    def accompany(self, task: Coroutine[Any, Any, None], what: str) -> None:
        task.close()  # there are no nodes to ask

    def act(self, make: Callable[[], Coroutine[Any, Any, None]], what: str) -> None:
        """Nor here."""

    def watch(self, *, policy: bool = True) -> None:
        """Nothing comes by itself."""

    def stand_by(self) -> None:
        """Nobody else is there."""

    async def wait(self, timeout_s: float | None = None) -> bool:
        if self.trouble is not None:
            raise self.trouble
        await asyncio.sleep(min(timeout_s or 0, 0.02))
        return False

    async def resume(self) -> None:
        self.trouble = None

    async def stop(self, reason: str, *, hard: bool = False, by: str = "a person") -> list[CockpitError]:
        self.stops.append(hard)
        self.happens("", kind="stop_asked", reason=reason, by=by, hard=hard)
        return []

    def keep(self) -> None:
        self.stops_at = None

    def environ_of(self, rank: Rank) -> Environ:
        return Environ(self.dir(rank.node), rank.rank)

    def log_place(self, rank: Rank) -> str:
        return f"{rank.node}:/home/ada/job/slurm-4711.out" if self.manifest.foreign else ""

    def dir(self, node: str) -> str:
        return self._nodes[node].dir

    async def ask(self, node: str, request: Environ) -> EnvironAnswer:
        self.asked.append(request)
        if isinstance(self.environ, Exception):
            raise self.environ
        world = len(self.model.ranks)
        if self.lively:
            return EnvironAnswer(lively.environ(request.rank, world))
        return self.environ or EnvironAnswer({"RANK": str(request.rank), "WORLD_SIZE": str(world)})

    async def close(self) -> None:
        for spool in self.spools.values():
            spool.close()
        self.folder.close()
