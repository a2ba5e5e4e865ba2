"""A node of the simulated run: a run folder that real code writes and reads, and ranks that are made up."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cockpit.base import record, times
from cockpit.base.growing_file import Lasting
from cockpit.base.progress.ring import Ring, Step
from cockpit.engine.links.link import Clock as LinkClock
from cockpit.node import procfs
from cockpit.node.run.jsonlines import JsonLines
from cockpit.node.run.past import Keeper
from cockpit.node.run.supervisor import EVENTS_ROOM
from tests.engine.pools import MadeUp
from tests.weeks.truth import Truth

NEWEST = 16
"""Steps that are remembered for measurements: more than there are between two of these."""

PID = 10_000
"""Of rank 0; others follow."""


class Index(Lasting):
    """The time index of a node whose disk may be full."""

    full = False

    def flush(self) -> bool:
        """See :meth:`Lasting.flush`."""
        return not self.full and super().flush()


class Node(MadeUp):
    """What a supervisor does on its node, and its ranks.

    :param folder: its run folder
    :param truths: a folder for what its ranks have printed
    :param keeps: whether it keeps the steps of its ranks, as every supervisor does; costs half of the time
    """

    def __init__(
        self, name: str, index: int, ranks: list[int], run: str, folder: Path, truths: Path, *, keeps: bool
    ) -> None:
        self.name, self.ranks, self.folder = name, ranks, folder
        self.clock = LinkClock(0.0, 0.001)
        uid, boot = os.getuid(), procfs.boot_id()
        self.hello: Any = SimpleNamespace(host=name, boot_id=boot, machine="x86_64", uid=uid)
        self.truths = {rank: Truth(truths / str(rank)) for rank in ranks}
        self.steps: deque[Step] = deque(maxlen=NEWEST)
        """The newest steps of its ranks, which are in step."""
        self.hung: int | None = None
        self.full = False
        """Whether its disk is."""
        self.stopped: list[Any] = []
        """Requests to stop."""
        self._wakes: list[Callable[[], None]] = []
        self._kept_open = 0
        folder.mkdir(parents=True, mode=0o700)
        me = {"pid": os.getpid(), "ticks": procfs.ticks(os.getpid())}
        facts = {
            "format": record.FORMAT, "t": time.time(), "host": name, "uid": uid, "supervisor": me,
            "boot_id": boot, "python": "python3", "umask": "022", "run": run, "node": name,
            "index": index, "dir": str(folder), "ranks": ranks, "launcher": "command", "profile": None,
            "grace_s": 10.0, "finalise_s": 10.0, "probe": "steps", "rings": "",
        }  # fmt: skip
        (folder / record.RECORD).write_text(json.dumps(facts))
        self._events = JsonLines(str(folder / record.EVENTS), EVENTS_ROOM)
        limit = times.LIMIT
        self._times = Index(str(folder / record.TIMES), limit, lambda data: times.thinned(data, limit))
        self._sizes: dict[str, int] = {}
        self._keeper = Keeper(str(folder), ranks) if keeps else None
        told = ("boot_id", "run", "node", "ranks", "format", "host", "umask", "probe")
        self.emit("supervisor_started", **me, **{each: facts[each] for each in told})
        for rank in ranks:
            self.emit("rank_started", rank=rank, pid=PID + rank, ticks=1, attempt=0)
            self.emit("rank_probe", rank=rank, pid=PID + rank, steps="", server="", torch="2.9.0")

    def emit(self, kind: str, **facts: Any) -> None:
        """The supervisor records an event."""
        self._events.add({"t": time.time(), "e": kind, **facts})

    def prints(self, rank: int, line: bytes) -> None:
        """A rank prints a line; on a full disk it is lost, to the rank as to everybody."""
        if not self.full:
            with (self.folder / record.rank_log(rank)).open("ab") as file:
                file.write(line)
            self.truths[rank].wrote(line)

    def stepped(self, step: int) -> None:
        """All ranks have ended a step, now."""
        self.steps.append(Step(step, time.time_ns(), time.monotonic_ns()))

    def tick(self) -> None:
        """What the supervisor does all the time, now."""
        changed = {}
        for rank in self.ranks:
            name = record.rank_log(rank)
            try:
                size = os.stat(self.folder / name).st_size
            except FileNotFoundError:
                continue
            if self._sizes.get(name) != size:
                self._sizes[name] = changed[name] = size
        if changed:
            self._times.add(times.line(time.time(), changed))
        self._events.flush()
        if self._keeper is not None and not self.full:
            steps = tuple(self.steps)
            for rank in self.ranks:
                self._keeper.take(Ring(rank, PID + rank, 1, "optimizer", "", steps))
            self._keeper.flush()

    def rotate(self, how: str) -> None:
        """Somebody rotates the logs of all its ranks, as ``how`` says."""
        for rank in self.ranks:
            path = self.folder / record.rank_log(rank)
            if not path.exists():
                continue
            if how == "rename":
                # The program goes on writing to its file, so logrotate makes it open the new one.
                os.replace(path, f"{path}.1")
                path.touch(0o600)
            elif how == "copytruncate":
                Path(f"{path}.1").write_bytes(path.read_bytes())
                os.truncate(path, 0)
            else:
                os.truncate(path, 0)

    def fill_disk(self, full: bool) -> None:
        """The disk is full, or there is room again."""
        self.full = self._times.full = full
        number = self._kept_open
        if full:
            self._kept_open = os.dup(self._events._file)
            number = os.open("/dev/full", os.O_WRONLY)
        os.dup2(number, self._events._file)
        os.close(number)

    def news(self) -> None:
        """Something has changed: whoever waits for that looks at once."""
        wakes, self._wakes = self._wakes, []
        for wake in wakes:
            wake()

    def wake_on_news(self, wake: Callable[[], None]) -> None:
        """Call this once, at the next news."""
        self._wakes.append(wake)
