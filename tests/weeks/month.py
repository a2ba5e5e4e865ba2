"""A month of a node in simulated time, written by what writes it in a run, and what it costs to attach to it.

``python -m tests.weeks.month`` does it in full: 30 days of eight ranks on each of 16 nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cockpit import paths
from cockpit.base import record, times
from cockpit.base.events import ClockMeasured, Notice
from cockpit.base.growing_file import Lasting
from cockpit.base.progress import ring
from cockpit.base.times import FINEST_S
from cockpit.core.pace.past import Apart, PastStep
from cockpit.core.pace.thinning import thinned
from cockpit.core.run.events import Event
from cockpit.engine.files import open_regular
from cockpit.engine.logs.book import Logbook
from cockpit.engine.records import states
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import paces
from cockpit.engine.run.paces import FILE, PaceBook
from cockpit.engine.time_slices import Turn
from cockpit.node.run.past import Keeper

START = 1_764_100_000.0
"""When it begins, unix seconds."""
ROOM = 200 << 20
"""Bytes that a month of a node of eight ranks may take besides its logs."""
CPU_S = 10.0
"""Seconds of CPU that it may take to attach to 16 of these nodes."""
OF_LOGS = ("rank-", record.LAUNCHER_LOG)


@dataclass(frozen=True)
class Load:
    """What the ranks of a node do.

    :param step_s: seconds of a step
    :param line_s: seconds between two looks at which all logs have grown; of the last ``busy_s`` seconds
        :data:`FINEST_S`
    """

    ranks: int = 8
    days: float = 30.0
    step_s: float = 10.0
    line_s: float = 10.0
    busy_s: float = 86_400.0
    line_bytes: int = 100

    @property
    def end(self) -> float:
        """When it ends, unix seconds."""
        return START + self.days * 86_400

    def looks(self) -> Iterator[float]:
        """When somebody looks at the logs, unix seconds."""
        at, busy = START, self.end - self.busy_s
        while at < self.end:
            at += self.line_s if at < busy else FINEST_S
            yield at


class Seldom(Lasting):
    """Writes many moments at once: so a month is written in a minute."""

    _adds = 0

    def flush(self) -> bool:
        """See :meth:`Lasting.flush`."""
        self._adds += 1
        if self._adds % 100:
            return True
        done = super().flush()
        self.wait()
        return done


def node_month(folder: Path, load: Load) -> None:
    """Write what a supervisor writes of a month into a run folder, but for the logs."""
    limit = times.LIMIT
    index = Seldom(str(folder / record.TIMES), limit, lambda data: times.thinned(data, limit))
    sizes = [0] * load.ranks
    for at in load.looks():
        sizes = [size + load.line_bytes + rank for rank, size in enumerate(sizes)]
        index.add(times.line(at, {record.rank_log(rank): size for rank, size in enumerate(sizes)}))
    Lasting.flush(index)
    (folder / record.EVENTS).touch()
    keeper, each = Keeper(str(folder), range(load.ranks)), ring.CAPACITY - 8
    for first in range(0, round(load.days * 86_400 / load.step_s), each):
        for rank in range(load.ranks):
            keeper.take(_ring(rank, first, each, load.step_s))
        keeper.flush(now=True)
        keeper.wait()


def _ring(rank: int, first: int, count: int, step_s: float) -> ring.Ring:
    ends = [round((step + 1) * step_s * 1e9) for step in range(first, first + count)]
    wall = round(START * 1e9)
    steps = [ring.Step(first + place, wall + end, end + 1) for place, end in enumerate(ends)]
    return ring.Ring(rank, 7, 99, "optimizer", "", tuple(steps))


def local_month(load: Load, node: Path, nodes: int) -> RunFolder:
    """A run here whose nodes have all been followed for a month, but for their logs.

    :param node: the run folder of one of them, of which all have copies
    """
    entries = [
        NodeEntry(f"gpu{number:02d}", f"/none/{number}", list(range(first, first + load.ranks)))
        for number, first in ((number, number * load.ranks) for number in range(nodes))
    ]
    folder = RunFolder.create(Manifest("month", START, entries, "command", ["true"], "/"))
    for entry in entries:
        spool = folder.spool_dir(entry)
        spool.mkdir(parents=True)
        shutil.copy(node / record.TIMES, spool)
        (spool / record.EVENTS).write_text(json.dumps({"t": START, "e": "launcher_started", "pid": 7}) + "\n")
    every_s, states.EVERY_S = states.EVERY_S, 1e9  # a month is written in a minute
    for minute in range(round(load.days * 1440)):
        at = START + 60.0 * minute
        held = Notice("disk", entries[0].name, "its disk is nearly full", START, nodes=(entries[0].name,))
        folder.write(Event(at, "", held))
        folder.write(Event(at, entries[0].name, ClockMeasured(minute % 7 / 100, 0.01)))
    folder.close()
    states.EVERY_S = every_s
    keep_pace(folder, load)
    return folder


def keep_pace(folder: RunFolder, load: Load) -> None:
    """Write the steps of a run as whoever watches it does."""
    file = Lasting(str(folder.path / FILE), paces.LIMIT, thinned, open_regular)
    count = round(load.days * 86_400 / load.step_s)
    for step in range(count):
        apart = (Apart(step % load.ranks, 0.2),) if step % 50 == 0 else ()
        took = load.step_s * (1 + step % 7 / 1000)
        least, most, slowest = took * 0.88, took * 0.97, step % load.ranks
        at, work = START + load.step_s * step, took * 0.9
        told = PastStep(
            *(0, step, at, 1, "", took, work, least, most, slowest),
            work=True,
            exact=True,
            lag=False,
            relative=True,
            apart=apart,
            cost=0.12,
            costly=1,
        )
        file.add(told.line())
        file.wait()
    file.close()


def size(folder: Path) -> int:
    """Bytes of a folder, less those of logs."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(OF_LOGS))
    return sum(path.stat().st_size for path in files)


@dataclass(frozen=True)
class Cost:
    """What it takes to attach to a run.

    :param moments: of all time indexes
    :param last: the newest of them, unix seconds
    """

    cpu_s: float
    moments: int
    last: float
    steps: int


def attach(folder: RunFolder) -> Cost:
    """Read what is known of a run as a cockpit does that comes back to it, but for its logs."""
    began = time.process_time()
    folder = RunFolder(folder.path)
    model = folder.model()
    book = PaceBook(folder, writer=False)
    asyncio.run(book.recall())
    logbook = Logbook(folder)
    clocks = asyncio.run(logbook._clocks(Turn(0, None)))
    moments, last = 0, 0.0
    for tick in logbook._ticks(clocks):
        moments, last = moments + 1, tick.at
    logbook.close()
    assert model.nodes
    return Cost(time.process_time() - began, moments, last, len(book.pace.steps))


def main() -> int:
    """Print what a month takes; 1 if that is too much."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--days", type=float, default=30.0)
    parser.add_argument("--nodes", type=int, default=16)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as top:
        paths.runs = lambda: Path(top) / "runs"
        node, load = Path(top) / "node", Load(days=words.days, busy_s=min(86_400.0, words.days * 43_200))
        node.mkdir()
        began = time.process_time()
        node_month(node, load)
        print(f"written on the node: {size(node) / 1e6:.1f} MB, {time.process_time() - began:.0f} s of CPU")
        folder = local_month(load, node, words.nodes)
        here = size(folder.path)
        cost = attach(folder)
        print(f"here, {words.nodes} nodes: {here / 1e6:.1f} MB")
        for path in sorted(node.iterdir()) + sorted(folder.path.iterdir()):
            if path.is_file():
                print(f"    {path.name}: {path.stat().st_size / 1e6:.2f} MB")
        print(f"attach: {cost.cpu_s:.1f} s of CPU; {cost.moments} moments, {cost.steps} steps rank by rank")
        print(f"known up to {load.end - cost.last:.1f} s before the end")
        fits = size(node) + here / words.nodes <= ROOM and cost.cpu_s <= CPU_S and cost.last > load.end - 60
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
