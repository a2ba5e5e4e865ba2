"""Whatever makes a node or its ranks seem lost: the policy stops the others for a recorded end alone."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base.events import StopAsked
from cockpit.core.run.model import RankState
from cockpit.core.run.states import Rank
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import RemoteError
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import failures
from cockpit.engine.run.session import Session
from cockpit.transport.base import LinkError, Reclaimed
from tests.engine.pools import Fakes
from tests.engine.test_session import Heard, Node, Part, lines, part
from tests.waiting import PATIENCE_S

STARTED = {"t": 1.0, "e": "rank_started", "rank": 0, "pid": 9, "ticks": 7}
GONE = {"why": "run folder /none/a is gone", "ranks": [], "processes": []}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses."""
    monkeypatch.setattr(pools, "RETRY_S", (0.001,))
    monkeypatch.setattr(pools, "SLOW_S", 0.001)
    monkeypatch.setattr(failures, "_LOOK_S", 0.001)


def found(**fields: Any) -> Part:
    """What an agent finds where the supervisor is dead."""
    line = {"t": 2.0, "e": "rank_lost", "rank": 0, "attempt": 0, "why": "nobody saw how", **fields}
    return part(alive=False, found=[STARTED, line], sizes={})


RUNS = part(("events.jsonl", 0, lines(STARTED)))

CAUSES: dict[str, list[Part]] = {
    "folder and processes gone": [RUNS, RemoteError("gone", "run folder /none/a is gone", where="a")],
    "gone at once": [RemoteError("gone", "no run record in /none/a", where="a")],
    "taken back": [RUNS, Reclaimed("step 12.3 ended", where="a")],
    "the folder is another user's": [RUNS, RemoteError("folder", "belongs to uid 5", where="a")],
    "it cannot be read": [RUNS, RemoteError("unreadable", "Stale file handle", where="a")],
    "in the words of older agents": [RUNS, RemoteError("shrunk", "rank-0.log was cut", where="a")],
    "a bug there": [RUNS, RemoteError("bug", "Traceback …", where="a")],
    "a link that is cut": [RUNS, LinkError("cut", where="a")],
    "a link that nobody opens again": [RUNS, LinkError("refused", where="a", retry=False)],
    "a bug here": [RUNS, RecursionError("too deep")],
    "silence": [RUNS],
    "nonsense": [RUNS, ({"parts": 5}, b"")],
    "more bytes than it says": [RUNS, ({"parts": [["rank-0.log", 0, 5]], "sizes": {}}, b"x")],
    "a log that begins anew": [RUNS, part(begun=[["rank-0.log", 5], ["events.jsonl", None]], sizes={})],
    "a log that keeps starting anew": [RUNS, *[part(begun=[["rank-0.log", 5]], sizes={})] * 200],
    "files that cannot be read": [RUNS, part(trouble={"rank-0.log": "cannot be read: EIO"}, sizes={})],
    "a supervisor that is dead": [RUNS, part(alive=False, sizes={})],
    "ranks that are not there": [RUNS, found(by="agent")],
    "in the words of nobody": [RUNS, found()],
    "as if its supervisor had said so": [RUNS, found(by="supervisor")],
    "of a boot that it has not had": [RUNS, found(by="boot")],
    "no folder, and no ranks": [RUNS, part(gone=GONE, alive=True, sizes={})],
    "no folder, and no supervisor": [RUNS, part(gone=GONE, alive=False, sizes={})],
    "another rank's end": [
        RUNS,
        part(("events.jsonl", 60, b'{"t":1,"e":"rank_exited","rank":1,"code":1}\n')),
    ],
}
NOW = time.time()
"""When the run began, and the node was booted last: before it."""


def asked(heard: Heard) -> int:
    """How often somebody asked to stop."""
    return sum(isinstance(event.fact, StopAsked) for event in heard.events)


async def watched(
    causes: list[Part], *, boot: str = "b", booted: float | None = NOW - 9000
) -> tuple[Session, Heard, list[Node]]:
    """Watch until nothing more comes of these causes, and the policy has looked again and again."""
    nodes = {"a": Node(causes), "b": Node([part(("events.jsonl", 0, lines({**STARTED, "rank": 1})))])}
    nodes["a"].hello = SimpleNamespace(host="", boot_id=boot, booted=booted)
    facts = {"boot_id": "b"}
    entries = [NodeEntry(name, f"/none/{name}", [rank], facts=facts) for rank, name in enumerate(nodes)]
    manifest = Manifest("run", NOW - 100, entries, "command", ["true"], "/", failure_wait_s=0.0)
    heard = Heard()
    session = Session(RunFolder.create(manifest), heard, pool=Fakes(nodes))
    await session.rejoin()
    looks, look = 0, session.model.recorded_failure

    def counted() -> Rank | None:
        nonlocal looks
        looks += 1
        return look()

    session.model.recorded_failure = counted  # type: ignore[method-assign]
    session.watch()

    async def settle() -> None:
        while not nodes["a"].asked or nodes["a"].scripts or session.model.ranks[1].pid is None:
            await session.wait(0.01)
        before = looks
        while looks < before + 100 and not asked(heard):  # noqa: ASYNC110 (the policy looks by itself)
            await asyncio.sleep(0.001)

    await asyncio.wait_for(settle(), PATIENCE_S)
    return session, heard, list(nodes.values())


@pytest.mark.few(10)
@pytest.mark.parametrize("cause", CAUSES)
def test_nothing_but_a_recorded_end_stops_the_others(cause: str) -> None:
    async def main() -> None:
        session, heard, nodes = await watched(CAUSES[cause])
        assert not asked(heard)
        assert [node.stops for node in nodes] == [[], []]
        assert session.model.ranks[1].state is RankState.RUNNING
        await session.close()
        # Nor does it for whoever comes back.
        again = Session(RunFolder(session.folder.path), pool=Fakes({"a": Node(), "b": Node()}))
        await again.rejoin()
        assert again.model.recorded_failure() is None
        await again.close()

    asyncio.run(main())


NEVER = lines({"e": "supervisor_started"}, {"e": "launcher_exited", "code": 1}, {"e": "ended"})
KILLED = {"t": 2.0, "e": "rank_exited", "rank": 0, "signal": 9, "by": "wrapper"}

RECORDED: dict[str, Part] = {
    "by its wrapper": part(("events.jsonl", 0, lines(KILLED))),
    "by its wrapper alone": part(alive=False, found=[KILLED], sizes={}),
    "by its supervisor": part(("events.jsonl", 0, lines(STARTED, {"e": "rank_lost", "rank": 0}))),
    "by its launcher's end": part(("events.jsonl", 0, NEVER)),
}


@pytest.mark.parametrize("how", RECORDED)
def test_a_recorded_end_stops_them(how: str) -> None:
    async def main() -> None:
        session, heard, nodes = await watched([RECORDED[how]])
        assert asked(heard) == 1
        assert len(nodes[1].stops) == 1
        await session.close()

    asyncio.run(main())


@pytest.mark.parametrize("cause", ["of a boot that it has not had", "folder and processes gone"])
def test_a_new_boot_is_a_recorded_end(cause: str) -> None:
    async def main() -> None:
        session, heard, nodes = await watched(CAUSES[cause], boot="c", booted=NOW - 50)
        assert asked(heard) == 1
        assert len(nodes[1].stops) == 1
        await session.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "booted", [NOW - 9000, None, NOW + 9000], ids=["before", "unknown", "by a clock ahead"]
)
@pytest.mark.parametrize("cause", ["of a boot that it has not had", "folder and processes gone"])
def test_another_machine_of_its_name_says_nothing_of_its_ranks(cause: str, booted: float | None) -> None:
    """It is up since long before the run, or since nobody knows when: it does not show, or is yet to come."""

    async def main() -> None:
        session, heard, nodes = await watched(CAUSES[cause], boot="c", booted=booted)
        assert not asked(heard)
        assert [node.stops for node in nodes] == [[], []]
        await session.close()

    asyncio.run(main())
