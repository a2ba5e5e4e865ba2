"""Our side of the benchmarks: what cockpit's verbs do, without their output, in a fresh process.

``python -m benchmarks.client VERB ARGS``; what it measured of itself is one JSON line on stderr. How nodes
are reached, if not as by default, is in ``BENCH_REACH``: kind and options, in JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

from cockpit.base.verbs import Ping
from cockpit.core.logs.sources import Writer
from cockpit.engine.links.pool import LinkPool
from cockpit.transport.base import Reach

PYTHONS = [sys.executable]
PREFLIGHTS = 5
"""Rounds of each side, after a first one that does not count."""
REACH = Reach(*json.loads(os.environ.get("BENCH_REACH", "[]")))


async def connect(nodes: list[str]) -> dict[str, Any]:
    """Links to all nodes and a first answer from each agent."""
    async with LinkPool(PYTHONS, REACH) as pool:
        links = await pool.open_all(nodes)
        await asyncio.gather(*(link.call(Ping()) for link in links.values()))
    return {}


async def trips(nodes: list[str]) -> dict[str, Any]:
    """Pings over one link: NODE; ``seconds`` of the median one."""
    took = []
    async with LinkPool(PYTHONS, REACH) as pool:
        link = await pool.lend(nodes[0])
        for _ in range(300):
            began = time.monotonic()
            await link.call(Ping())
            took.append(time.monotonic() - began)
    return {"seconds": statistics.median(took)}


async def doctor(nodes: list[str], reach: Reach | None = None) -> dict[str, Any]:
    """Everything that the doctor asks of these nodes, and its findings."""
    from cockpit.engine.doctor import Wanted, examine
    from cockpit.plans.launch import LaunchJob
    from cockpit.plans.nodes.hostfile import Host

    hosts = tuple(Host(name, (0,)) for name in nodes)
    job = LaunchJob("doctor", hosts, ("doctor",), "/", python=sys.executable)
    async with LinkPool(PYTHONS, reach) as pool:
        found = (await examine(pool, Wanted(job))).findings
    return {
        id: sum(len(each.nodes) for each in found if each.id == id) for id in ("unreachable", "no_answer")
    }


async def preflight(nodes: list[str]) -> dict[str, Any]:
    """What a launch asks of these nodes, with the look at their condition and without, by turns.

    ``with`` and ``without`` are the seconds of each round; the nodes answer from warm caches.
    """
    from cockpit.engine.launch.preflight import Preflight
    from cockpit.engine.launch.prepare import Times, prepare
    from cockpit.engine.links.roll import Roll
    from cockpit.plans.launch import LaunchJob
    from cockpit.plans.nodes.hostfile import Host

    hosts = tuple(Host(name, (0,)) for name in nodes)
    job = LaunchJob("command", hosts, ("true",), "/", python=sys.executable)
    took: dict[str, list[float]] = {"with": [], "without": []}
    async with LinkPool(PYTHONS, REACH) as pool:
        links = await pool.open_all(nodes)
        for number in range(PREFLIGHTS + 1):
            for side in ("with", "without") if number % 2 else ("without", "with"):
                began = time.monotonic()
                with closing(Preflight(job, links if side == "with" else {}, "")) as preflight:
                    await prepare(job, links, Times(), "", Roll(), preflight)
                if number:  # the first look loads what the later ones have
                    took[side].append(time.monotonic() - began)
    return took


async def checked(words: list[str]) -> dict[str, Any]:
    """The same of this machine alone: ``node_s`` is the CPU time of what stands for the node."""
    await doctor(["localhost"], Reach("local"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"node_s": used.ru_utime + used.ru_stime}


async def logs(words: list[str]) -> dict[str, Any]:
    """Follow a finished run to its last byte: NODE FOLDER; ``seconds`` from the open link to the end."""
    from cockpit.core.pace.pace import Pace
    from cockpit.core.run.events import Event
    from cockpit.core.run.model import RunModel
    from cockpit.engine.records.folder import RunFolder
    from cockpit.engine.run.session import Session

    times: dict[str, float] = {}

    class Listener:
        def joined(self, model: RunModel, pace: Pace) -> None:
            pass

        def log(self, node: str, writer: Writer, offset: int, data: bytes) -> None:
            pass

        def event(self, event: Event, changed: set[str | int]) -> None:
            times.setdefault(event.kind, time.monotonic())

    folder = RunFolder.create(_manifest(*words))
    folder.lock()
    session = Session(folder, Listener())
    await session.rejoin()
    (entry,) = session.manifest.nodes
    await session.pool.lend(entry.name)
    began = time.monotonic()
    session.watch(policy=False)
    while "complete" not in times:
        await session.wait(60)
    await session.close()
    spool = session.folder.spool_dir(entry)
    return {"seconds": times["complete"] - began, "file": str(spool / "rank-0.log")}


async def collect(words: list[str]) -> dict[str, Any]:
    """Collect and verify: NODE FOLDER TARGET."""
    from cockpit.engine import collect as collecting
    from cockpit.engine.records.folder import RunFolder

    *where, target = words
    async with LinkPool(PYTHONS) as pool:
        collected = await collecting.collect(RunFolder.create(_manifest(*where)), pool, Path(target))
    assert collected.complete, collected
    return {"file": str(Path(target) / collected.reports[0].file)}


async def stacks(nodes: list[str]) -> dict[str, Any]:
    """Stacks of the job on these nodes, links and agents warm; ``seconds`` of the second sample."""
    from cockpit.engine.stacks.ask import Ask
    from cockpit.engine.stacks.take import Sampler
    from cockpit.engine.stacks.targets import JobParty, find_job

    async with LinkPool(PYTHONS) as pool:
        job, _ = await find_job(nodes, pool, "")
        taken = Sampler(JobParty(job, nodes, pool, []), Ask(), Path("/tmp/stacks"))
        await taken.take()
        await taken.kept()  # in use, a second passes between two samples
        sample = await taken.take()
        assert not taken.snapshot.missing(), taken.snapshot.missing()
    return {"seconds": sample.took_s}


async def dumping(words: list[str]) -> dict[str, Any]:
    """Stacks of a run over links that stand, again and again: RUN SECONDS; until it is killed."""
    from cockpit.engine.records.folder import RunFolder
    from cockpit.engine.stacks.ask import Ask
    from cockpit.engine.stacks.take import Sampler
    from cockpit.engine.stacks.targets import open_run

    run, every = words
    folder = RunFolder.find(run)
    async with open_run(folder) as party:
        while True:
            await Sampler(party, Ask(), folder.path / "stacks").take()
            await asyncio.sleep(float(every))


def _manifest(node: str, folder: str) -> Any:
    from cockpit.engine.records.manifest import Manifest, NodeEntry
    from cockpit.engine.records.names import new_name

    return Manifest(
        run=f"{new_name()}-{time.monotonic_ns()}",
        created=time.time(),
        nodes=[NodeEntry(node, folder, [0])],
        launcher="command",
        program=["true"],
        cwd="/",
        pythons=PYTHONS,
        profile={"report": "report"},
        transport=REACH.kind,
        transport_options=dict(REACH.options),
    )


VERBS: dict[str, Callable[[list[str]], Coroutine[Any, Any, dict[str, Any]]]] = {
    "connect": connect,
    "trips": trips,
    "doctor": doctor,
    "preflight": preflight,
    "checked": checked,
    "logs": logs,
    "collect": collect,
    "stacks": stacks,
    "dumping": dumping,
}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(VERBS[sys.argv[1]](sys.argv[2:]))), file=sys.stderr)
