"""Asking NCCL's RAS about a job: a few nodes, none for long, and none is believed about other ranks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cockpit.base.gate import plain, read
from cockpit.base.ras import RasAnswer
from cockpit.core.stacks.ras import Ras
from cockpit.core.stacks.snapshot import Place
from cockpit.engine import ras as module
from cockpit.engine.stacks.ask import RankProcess
from cockpit.errors import CockpitError
from cockpit.node.recorder.ras_reading import answer
from cockpit.transport.base import LinkError
from tests.core.fates import end
from tests.recorder.ras import body, job


def says(*pids: int, behind: int | None = None) -> RasAnswer:
    """What a node says of a communicator of these processes."""
    told = answer(body(job(pids, behind)))
    counts = {"communicators": told.communicators, "odd": told.odd}
    return read(RasAnswer, {"at": 1.0, "version": told.version, **counts, "rows": plain(told.rows)})


ABSENT = RasAnswer(1.0, kind="absent", what="no rank listens for NCCL RAS")
MUTE = RasAnswer(1.0, kind="silent", what="NCCL RAS gave no answer in time")


class FakeJob:
    """A job of two ranks a node; a node gives this answer, raises this error, or (None) says nothing."""

    def __init__(self, *told: RasAnswer | Exception | None, why: str = "") -> None:
        self._told = {f"gpu{number:02}": one for number, one in enumerate(told, 1)}
        self._why = why
        self.nodes = list(self._told)
        self.asked: list[str] = []

    def places(self) -> dict[int, Place]:
        return {
            rank: Place(self.nodes[rank // 2], pid=100 + rank, why=self._why, end=end(self._why))
            for rank in range(2 * len(self.nodes))
        }

    async def link(self, node: str) -> Any:
        async def call(request: Any, *, deadline_s: float) -> RasAnswer:
            assert [one.pid for one in request.targets] == [100 + rank for rank in self._ranks(node)]
            assert request.limit_s < deadline_s <= module.LIMIT_S
            self.asked.append(node)
            told = self._told[node]
            if told is None:
                await asyncio.Event().wait()
            if isinstance(told, Exception):
                raise told
            assert isinstance(told, RasAnswer)
            return told

        link = type("Link", (), {})()
        link.call = call
        return link

    def _ranks(self, node: str) -> list[int]:
        first = 2 * self.nodes.index(node)
        return [first, first + 1]

    async def targets(self, node: str, link: object) -> list[RankProcess]:
        return [RankProcess(rank, 100 + rank, 1) for rank in self._ranks(node)]


def asked(job: FakeJob) -> Ras | None:
    """One look."""
    party: Any = job
    return asyncio.run(module.ask_ras(party))


def test_a_few_nodes_speak_for_all() -> None:
    job = FakeJob(*(says(*range(100, 120), behind=13) for _ in range(10)))
    found = asked(job)
    assert found is not None
    assert (sorted(job.asked), found.version) == (["gpu01", "gpu06", "gpu10"], "2.28.9")
    assert asked(FakeJob(says(100, 101))) is not None


def test_the_answer_with_most_ranks_counts() -> None:
    found = asked(FakeJob(says(100), says(100, 101, 102, 103)))
    assert found is not None
    assert (found.node, found.rows[0].heard) == ("gpu02", 4)


def test_where_no_nccl_is_nothing_is_said() -> None:
    assert asked(FakeJob(ABSENT, ABSENT)) is None
    over = FakeJob(says(100, 101), why="exited 0")
    assert (asked(over), over.asked) == (None, [])


def test_why_there_is_no_answer_is_kept_for_programs() -> None:
    found = asked(FakeJob(MUTE, LinkError("the link broke\x1b[2J", where="gpu02"), ValueError("odd")))
    assert found is not None
    assert (found.node, found.rows, found.silent["gpu01"]) == ("", (), MUTE.what)
    assert found.silent["gpu02"].startswith("the link broke")
    assert "\x1b" not in found.silent["gpu02"]
    assert found.silent["gpu03"] == "internal error: ValueError('odd')"
    found = asked(FakeJob(CockpitError("no"), says(100, 101, 102, 103)))
    assert found is not None
    assert (found.node, found.silent) == ("gpu02", {"gpu01": "no"})


def test_a_node_that_says_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_S", 0.2)
    found = asked(FakeJob(None, says(100, 101, 102, 103)))
    assert found is not None
    assert (found.node, found.silent) == ("gpu02", {})
    assert asked(FakeJob(None, None)) is None
