"""A real run on two nodes behind one ssh server: whatever is done with it, each node is connected to once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cockpit.engine import collect as collecting
from cockpit.engine.collect import collect
from cockpit.engine.launch.preflight import Diagnosis
from cockpit.engine.launch.start import Wanted, start
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import Link, Stream
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.run.current_state import model_now
from cockpit.engine.run.session import Listener, Session
from cockpit.engine.stacks.ask import Ask
from cockpit.engine.stacks.take import Sampler
from cockpit.engine.stacks.targets import RunParty
from cockpit.errors import CockpitError
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes.hostfile import Host
from cockpit.transport.base import LinkError, Reach, UnknownHostKey
from tests.engine.test_session import Heard
from tests.transport.sshserver import Counts, Place
from tests.waiting import soon

TRAIN = """
import os, sys, time
name = os.environ["COCKPIT_DIR"] + "/reports/r" + os.environ["RANK"]
with open(name, "wb") as file:
    file.write(os.urandom(int(sys.argv[1])))
os.rename(name, name + ".nsys-rep")
time.sleep(600)
"""


class Stages:
    """Nobody looks at the start."""

    def __init__(self) -> None:
        self.heard = Heard()

    def connecting(self, roll: Roll) -> None:
        """Links are being opened."""

    async def trusts(self, keys: Sequence[UnknownHostKey]) -> bool:
        raise AssertionError("its key is known")

    def ready(self, notes: Sequence[str], preflight: Diagnosis) -> None:
        """All nodes are fit."""

    def listener(self, folder: RunFolder) -> Listener:
        return self.heard


@asynccontextmanager
async def running(folder: Path, size: int = 1000) -> AsyncIterator[tuple[Session, Counts]]:
    """A run of one rank a node whose reports have so many bytes; watched, and stopped at the end."""
    train = folder / "train.py"
    train.write_text(TRAIN)
    place = Place(folder)
    hosts = (Host("gpu1", (0,)), Host("gpu2", (0,)))
    run = f"one-link-{uuid4().hex[:8]}"
    job = LaunchJob(run, hosts, (str(train), str(size)), str(folder), "command", sys.executable)
    async with place.server("gpu*") as counts:
        wish = Wanted(job, "hostfile", Reach("ssh", {"config": str(place.config)}), str(folder / "nodes"))
        session = await start(wish, Stages())
        try:
            session.watch()
            reports = (folder / "nodes").rglob
            await soon(lambda: len(list(reports("*.nsys-rep"))) == 2)
            await soon(lambda: session.model.alive() == 2)
            yield session, counts
        finally:
            await session.stop("the test is over", hard=True)
            await soon(lambda: session.model.done)
            await session.close()


@pytest.mark.slow
def test_stacks_collect_and_questions_use_the_links_of_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as (session, counts):
            party = RunParty(session.manifest, session.model, session.pool.at_hand)
            sample = await Sampler(party, Ask(), tmp_path / "stacks").take()
            assert sorted(sample.dumps) == [0, 1], sample.silent
            collected = await collect(session.folder, session.pool, tmp_path / "reports")
            assert collected.complete, collected
            model, errors = await model_now(session.pool, session.manifest)
            assert (model.alive(), errors) == (2, {})
            # Whoever borrowed a link has left it open.
            assert [(await session.pool.at_hand(node)).node for node in ("gpu1", "gpu2")] == ["gpu1", "gpu2"]
            assert (counts.connections, len(counts.commands)) == (2, 2)
            assert session.pool.hosts == {entry.name: entry.host for entry in session.manifest.nodes}

    asyncio.run(main())


def test_a_link_lost_while_collecting_is_told_and_collecting_goes_on_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "RETRY_S", (0.01,))
    monkeypatch.setattr(collecting, "_CREDIT", 64 << 10)
    told: list[CockpitError] = []
    cut: list[Link] = []
    give_credit = Stream.credit

    async def credit(stream: Stream[Any, Any], size: int) -> None:
        link = stream._link
        if link.node == "gpu2" and not cut:
            cut.append(link)
            await link.transport.close()
        await give_credit(stream, size)

    async def main() -> None:
        async with running(tmp_path, 1 << 20) as (session, counts):
            monkeypatch.setattr(Stream, "credit", credit)
            target = tmp_path / "reports"
            collected = await collect(session.folder, session.pool, target, lost=told.append)
            assert collected.complete, collected
            assert (counts.connections, len(counts.commands)) == (3, 3)
            assert await session.pool.at_hand("gpu2") not in cut
            await soon(lambda: session.model.nodes["gpu2"].link == "ok")

    asyncio.run(main())
    (error,) = told
    assert error.where == "gpu2"
    assert "connection lost while collecting (" in error.what
    assert error.hint.startswith("to resume later: cockpit collect one-link-")


@pytest.mark.slow
def test_a_link_that_does_not_come_back_ends_the_collecting_of_its_node_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "RETRY_S", (0.01,))

    async def refused(pool: pools.LinkPool, node: str) -> None:
        raise LinkError("connection refused", where=node)

    async def main() -> None:
        async with running(tmp_path) as (session, _):
            link = await session.pool.at_hand("gpu2")
            connect = pools.LinkPool._connect
            monkeypatch.setattr(pools.LinkPool, "_connect", refused)
            link.lose(LinkError("cut", where="gpu2"))
            collected = await collect(session.folder, session.pool, tmp_path / "reports")
            assert collected.missing == {"gpu2": "connection refused"}
            assert [report.state for report in collected.reports] == ["collected"]
            assert collected.exit_code() == 3
            monkeypatch.setattr(pools.LinkPool, "_connect", connect)
            await soon(lambda: session.model.nodes["gpu2"].link == "ok")

    asyncio.run(main())
