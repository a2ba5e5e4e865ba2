"""Links to many nodes of which some are bad in every known way: each is named, none is in the others' way."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cockpit.base import verbs
from cockpit.engine.links import fleet as fleets
from cockpit.engine.links import link as link_module
from cockpit.engine.links import payload
from cockpit.engine.links.fleet import Fleet, InternalError, close_all, settle
from cockpit.engine.links.link import Link
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import Reach
from cockpit.transport.local import LocalTransport
from tests.transport.badnodes import KINDS, bad_node, far_away
from tests.transport.sshserver import Place
from tests.waiting import soon

PATIENCE_S = 4.0
"""For each stage; real ones are longer."""


@asynccontextmanager
async def cluster(folder: Path, kinds: list[str]) -> AsyncIterator[tuple[Fleet, list[str]]]:
    """Three healthy nodes, and one of each of these kinds, called as it."""
    place = Place(folder)
    async with AsyncExitStack() as stack:
        names = ["good1", "good2", "good3"]
        await stack.enter_async_context(place.server("good*"))
        for kind in kinds:
            await stack.enter_async_context(bad_node(place, kind, kind))
        fleet = Fleet([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=PATIENCE_S)
        try:
            yield fleet, [*names, *kinds]
        finally:
            await fleet.close()


def test_every_bad_node_is_named_with_its_state_and_the_good_ones_are_ready(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], dict[str, CockpitError]]:
        async with cluster(tmp_path, list(KINDS)) as (fleet, names):
            links, errors = await settle({name: fleet.open(name) for name in names})
            assert fleet.roll.failed == errors
            assert not fleet.roll.awaited
            await close_all(links.values())
            return list(links), errors

    good, errors = asyncio.run(main())
    assert good == ["good1", "good2", "good3"]
    assert sorted(errors) == sorted(KINDS)
    for kind, words in KINDS.items():
        assert re.search(words, errors[kind].what), (kind, str(errors[kind]))
        assert errors[kind].where == kind
        assert errors[kind].hint or kind in ("dropped", "garbage"), kind


def test_a_slow_node_is_not_a_bad_one(tmp_path: Path) -> None:
    """A round trip of 2 s, an sshd that takes 15 s for a login, 30 s for a stage: all five times as fast."""

    async def main() -> float:
        place = Place(tmp_path)
        async with place.server("near", login_s=3.0), far_away(place, "far", 0.2):
            fleet = Fleet([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=6)
            link = await fleet.open("far")
            took = fleet.roll.elapsed_s
            assert (await link.call(verbs.Ping())).t > 0
            await link.close()
            await fleet.close()
            return took

    assert asyncio.run(main()) > 6, "this way was too short to show anything"


def test_a_start_that_cannot_be_is_not_waited_for(tmp_path: Path) -> None:
    kinds = ["refused", "blackhole", "silent", "hangs"]

    async def main() -> ManyErrors:
        async with cluster(tmp_path, kinds) as (fleet, names):
            with pytest.raises(ManyErrors) as caught:
                await fleet.open_all(names, truth_s=2.5)
            assert sorted(fleet.roll.answered) == ["good1", "good2", "good3"]
            return caught.value

    error = asyncio.run(main())
    said = {each.where: each.what for each in error.errors}
    assert list(said) == kinds
    assert said["refused"].startswith("connection refused")
    assert re.fullmatch(r"no answer yet after [23] s: still waiting for the connection", said["blackhole"])
    assert re.fullmatch(r"no answer yet after [23] s: still waiting for sshd's first word", said["silent"])
    assert re.fullmatch(r"no answer yet after [23] s: still waiting for the agent", said["hangs"])


def test_while_nobody_refuses_the_slow_ones_are_waited_for(tmp_path: Path) -> None:
    async def main() -> ManyErrors:
        async with cluster(tmp_path, ["silent"]) as (fleet, names):
            with pytest.raises(ManyErrors) as caught:
                await fleet.open_all(names, truth_s=0.1)
            return caught.value

    (error,) = asyncio.run(main()).errors
    assert f"no answer for {PATIENCE_S:g} s" in str(error)


def test_who_is_awaited_and_for_what(tmp_path: Path) -> None:
    async def main() -> str:
        async with cluster(tmp_path, ["blackhole", "banner"]) as (fleet, names):
            opening = asyncio.create_task(fleet.open_all(names))
            await soon(lambda: len(fleet.roll.answered) == 3)
            await soon(lambda: "key exchange" in fleet.roll.line())
            line = fleet.roll.line()
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return line

    line = asyncio.run(main())
    assert line.startswith("3 of 5 nodes answered; no answer yet: blackhole for "), line
    assert re.search(r"blackhole for \d s \(the connection\), banner for \d s \(the key exchange\)$", line)


def test_silent_nodes_do_not_keep_the_others_from_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleets, "AT_ONCE", 2)
    monkeypatch.setattr(fleets, "TURN_S", 0.2)

    async def main() -> None:
        place = Place(tmp_path)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(place.server("good*"))
            await stack.enter_async_context(bad_node(place, "silent", "silent*"))
            fleet = Fleet([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=600)
            names = [f"silent{number}" for number in range(5)] + ["good1", "good2"]
            opening = asyncio.create_task(fleet.open_all(names))
            await soon(lambda: sorted(fleet.roll.answered) == ["good1", "good2"])
            assert not opening.done()
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await fleet.close()

    asyncio.run(main())


def test_one_nodes_exception_is_its_own_error() -> None:
    async def fine() -> int:
        return 1

    async def mistake() -> int:
        return [][0]

    async def main() -> None:
        results, errors = await settle({"gpu01": fine(), "gpu02": mistake()})
        assert results == {"gpu01": 1}
        error = errors["gpu02"]
        assert isinstance(error, InternalError)
        assert re.fullmatch(
            r"gpu02: internal error: IndexError: list index out of range \(test_fleet\.py:\d+\); "
            "please report it",
            str(error),
        )

    asyncio.run(main())


def test_what_is_raised_while_connecting_is_that_nodes_error(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Link.open

    async def breaks(link: Link) -> object:
        if link.node == "localhost":
            raise RecursionError("too deep")
        return await opened(link)

    monkeypatch.setattr(Link, "open", breaks)

    async def main() -> None:
        fleet = Fleet([sys.executable], Reach("local"))
        links, errors = await settle({name: fleet.open(name) for name in ("localhost", "127.0.0.1")})
        assert list(links) == ["127.0.0.1"]
        assert "internal error: RecursionError: too deep" in str(errors["localhost"])
        await close_all(links.values())

    asyncio.run(main())


def test_the_archive_is_built_once_and_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[threading.Thread] = []
    add = payload._add

    def watched(target: zipfile.ZipFile, name: str, data: bytes) -> None:
        if name == "__main__.py":
            added.append(threading.current_thread())
        add(target, name, data)

    monkeypatch.setattr(payload, "_add", watched)
    payload.archive.cache_clear()

    async def main() -> None:
        fleet = Fleet([sys.executable], Reach("local"))
        links, errors = await settle({name: fleet.open(name) for name in ("a", "b", "c")})
        assert not errors
        await close_all(links.values())

    asyncio.run(main())
    (builder,) = added
    assert builder is not threading.main_thread()


def test_a_transport_that_does_not_close_keeps_nobody_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(transport: LocalTransport) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(link_module, "_CLOSE_S", 0.2)

    async def main() -> None:
        fleet = Fleet([sys.executable], Reach("local"))
        link = await fleet.open("a")
        closed = link.transport.close
        monkeypatch.setattr(LocalTransport, "close", never)
        await close_all([link])
        assert link.lost.done()
        monkeypatch.undo()
        await closed()

    asyncio.run(main())
