"""Links to many nodes of which some are bad in every known way: each is named, none is in the others' way."""

from __future__ import annotations

import asyncio
import math
import os
import random
import re
import sys
import threading
import time
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from cockpit.base import verbs
from cockpit.engine.links import link as link_module
from cockpit.engine.links import payload
from cockpit.engine.links import pool as pools
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import InternalError, LinkPool, close_all, settle
from cockpit.errors import CockpitError, ManyErrors
from cockpit.transport.base import LinkError, Reach, Reclaimed
from cockpit.transport.local import LocalTransport
from cockpit.transport.login_prompts import NeedsPerson
from tests.engine.pools import Fakes, MadeUp
from tests.transport.badnodes import KINDS, bad_node, far_away
from tests.transport.sshserver import Place
from tests.waiting import soon

PATIENCE_S = 10.0
"""For each stage; real ones are longer."""


@asynccontextmanager
async def cluster(
    folder: Path, kinds: list[str], patience_s: float = PATIENCE_S
) -> AsyncIterator[tuple[LinkPool, list[str]]]:
    """Three healthy nodes, and one of each of these kinds, called as it."""
    place = Place(folder)
    async with AsyncExitStack() as stack:
        names = ["good1", "good2", "good3"]
        await stack.enter_async_context(place.server("good*"))
        for kind in kinds:
            await stack.enter_async_context(bad_node(place, kind, kind))
        pool = LinkPool([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=patience_s)
        try:
            yield pool, [*names, *kinds]
        finally:
            await pool.close()


def test_every_bad_node_is_named_with_its_state_and_the_good_ones_are_ready(tmp_path: Path) -> None:
    async def main() -> tuple[list[str], dict[str, CockpitError]]:
        async with cluster(tmp_path, list(KINDS)) as (pool, names):
            links, errors = await settle({name: pool.lend(name) for name in names})
            assert pool.roll.failed == errors
            assert not pool.roll.awaited
            await close_all(links.values())
            return list(links), errors

    good, errors = asyncio.run(main())
    assert good == ["good1", "good2", "good3"]
    assert sorted(errors) == sorted(KINDS)
    for kind, words in KINDS.items():
        assert re.search(words, errors[kind].what), (kind, str(errors[kind]))
        assert errors[kind].where == kind
        assert errors[kind].hint or kind in ("dropped", "garbage"), kind


def test_what_to_type_has_the_configuration_that_was_given() -> None:
    pool = LinkPool([], Reach("auto", {"config": "/home/ada/it's"}))
    assert pool.to_try("gpu01") == r"try: ssh -F '/home/ada/it'\''s' gpu01 true"


@pytest.mark.slow
def test_a_slow_node_is_not_a_bad_one(tmp_path: Path) -> None:
    """A round trip of 2 s, an sshd that takes 15 s for a login, 30 s for a stage: all five times as fast."""

    async def main() -> float:
        place = Place(tmp_path)
        async with place.server("near", login_s=3.0), far_away(place, "far", 0.2):
            pool = LinkPool([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=6)
            link = await pool.lend("far")
            took = pool.roll.elapsed_s
            assert (await link.call(verbs.Ping())).t > 0
            await link.close()
            await pool.close()
            return took

    assert asyncio.run(main()) > 6, "this way was too short to show anything"


@pytest.mark.slow
def test_a_start_that_cannot_be_is_not_waited_for(tmp_path: Path) -> None:
    kinds = ["refused", "blackhole", "silent", "hangs"]

    async def main() -> ManyErrors:
        async with cluster(tmp_path, kinds, 600) as (pool, names):
            await pool.open_all(names[:3])
            with pytest.raises(ManyErrors) as caught:
                await pool.open_all(names, truth_s=6.0)
            assert sorted(pool.roll.answered) == ["good1", "good2", "good3"]
            return caught.value

    error = asyncio.run(main())
    said = {each.where: each.what for each in error.errors}
    assert list(said) == kinds
    assert said["refused"].startswith("connection refused")
    assert re.fullmatch(r"no answer yet after \d+ s: still waiting for the connection", said["blackhole"])
    assert re.fullmatch(r"no answer yet after \d+ s: still waiting for sshd's banner", said["silent"])
    assert re.fullmatch(r"no answer yet after \d+ s: still waiting for the agent", said["hangs"])


@pytest.mark.slow
def test_while_nobody_refuses_the_slow_ones_are_waited_for(tmp_path: Path) -> None:
    async def main() -> ManyErrors:
        async with cluster(tmp_path, ["silent"], 5.0) as (pool, names):
            with pytest.raises(ManyErrors) as caught:
                await pool.open_all(names[3:], truth_s=0.1)
            return caught.value

    (error,) = asyncio.run(main()).errors
    assert "no answer for 5 s" in str(error)


def test_who_is_awaited_and_for_what(tmp_path: Path) -> None:
    async def main() -> str:
        async with cluster(tmp_path, ["blackhole", "banner"], 600) as (pool, names):
            opening = asyncio.create_task(pool.open_all(names))
            await soon(lambda: len(pool.roll.answered) == 3)
            await soon(lambda: "key exchange" in pool.roll.line())
            line = pool.roll.line()
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            return line

    line = asyncio.run(main())
    assert line.startswith("3 of 5 nodes answered; no answer yet: blackhole for "), line
    assert re.search(r"blackhole for \d+ s \(the connection\), banner for \d+ s \(the key exchange\)$", line)


def test_silent_nodes_do_not_keep_the_others_from_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "AT_ONCE", 2)
    monkeypatch.setattr(pools, "TURN_S", 0.2)

    async def main() -> None:
        place = Place(tmp_path)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(place.server("good*"))
            await stack.enter_async_context(bad_node(place, "silent", "silent*"))
            pool = LinkPool([sys.executable], Reach("ssh", {"config": str(place.config)}), patience_s=600)
            names = [f"silent{number}" for number in range(5)] + ["good1", "good2"]
            opening = asyncio.create_task(pool.open_all(names))
            await soon(lambda: sorted(pool.roll.answered) == ["good1", "good2"])
            assert not opening.done()
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await pool.close()

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
            r"gpu02: internal error: IndexError: list index out of range \(test_pool\.py:\d+\); "
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
        pool = LinkPool([sys.executable], Reach("local"))
        links, errors = await settle({name: pool.lend(name) for name in ("localhost", "127.0.0.1")})
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
        pool = LinkPool([sys.executable], Reach("local"))
        links, errors = await settle({name: pool.lend(name) for name in ("a", "b", "c")})
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
        pool = LinkPool([sys.executable], Reach("local"))
        link = await pool.lend("a")
        closed = link.transport.close
        monkeypatch.setattr(LocalTransport, "close", never)
        await close_all([link])
        assert link.lost.done()
        monkeypatch.undo()
        await closed()

    asyncio.run(main())


CUT = LinkError("cut", where="a")
REFUSED = LinkError("login refused", where="a", retry=False)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that the policy makes between tries, of which none is waited for."""
    pauses: list[float] = []
    real = pools.pause_s

    def pause_s(error: BaseException, tries: int = 0) -> float:
        pauses.append(real(error, tries))
        return 0.0

    monkeypatch.setattr(pools, "pause_s", pause_s)
    monkeypatch.setattr(random, "uniform", lambda low, high: 1.0)
    return pauses


def test_the_pauses_grow_and_what_hardly_helps_waits_longest() -> None:
    for tries, seconds in enumerate((0.5, 1, 2, 4, 8, 15, 15, 15)):
        assert 0.7 * seconds <= pools.pause_s(CUT, tries) <= 1.3 * seconds
    for final in (REFUSED, CockpitError("no room"), ValueError("a bug")):
        assert 42 <= pools.pause_s(final) <= 78


def test_a_login_that_needs_a_person_is_not_tried_before_one_wants_it() -> None:
    async def main() -> None:
        async with Fakes({"a": NeedsPerson("a code", where="a"), "b": CUT}) as pool:
            for _ in range(2):
                with pytest.raises(NeedsPerson):
                    await pool.lend("a")
            assert (pool.waiting, pool._ways["a"].due) == (["a"], math.inf)
            waits = asyncio.create_task(pool.lend("a", patient=True))
            pool.links = {"a": MadeUp()}
            await asyncio.sleep(0)
            assert pool.opened == ["a"]
            pool.again()
            assert await asyncio.wait_for(waits, PATIENCE_S) is await pool.at_hand("a")
            assert (pool.waiting, pool.opened) == ([], ["a", "a"])
        assert [pools.link_state(error) for error in (CUT, REFUSED, NeedsPerson("", where="a"))] == [
            "stale",
            "gone",
            "stale",
        ]

    asyncio.run(main())


def test_steps_of_a_job_are_tried_rarely() -> None:
    async def main() -> float:
        async with Fakes({"a": CUT}) as pool:
            pool.reach = Reach("srun", {"job": "1"})
            with pytest.raises(LinkError, match="cut"):
                await pool.lend("a")
            return pool._ways["a"].due - time.monotonic()

    assert asyncio.run(main()) > 50


def test_borrowers_share_one_link() -> None:
    async def main() -> None:
        async with Fakes({"a": MadeUp()}) as pool:
            with pytest.raises(LinkError, match="no link now"):
                await pool.at_hand("a")
            first, second = await asyncio.gather(pool.lend("a"), pool.lend("a", patient=True))
            assert first is second is await pool.lend("a") is await pool.at_hand("a")
            assert pool.opened == ["a"]
            assert pool.roll.counts() == "1 of 1 node answered"

    asyncio.run(main())


def test_tries_are_counted_until_a_link_answers(paused: list[float]) -> None:
    async def main() -> None:
        link = MadeUp()
        async with Fakes({"a": CUT}) as pool:
            for _ in range(3):
                with pytest.raises(LinkError, match="cut"):
                    await pool.lend("a", patient=True)
            assert paused == [0.5, 1, 2]
            # An agent that greets and says nothing more is one more try that failed.
            pool.links = {"a": link}
            link.answered = False
            (await pool.lend("a", patient=True)).lose(CUT)
            again = await pool.lend("a", patient=True)
            link.answered = True
            again.lose(CUT)
            (await pool.lend("a", patient=True)).lose(REFUSED)
            await pool.lend("a", patient=True)
            assert paused == [0.5, 1, 2, 4, 0.5, 60]
            assert pool.opened == ["a"] * 7

    asyncio.run(main())


def test_a_node_whose_last_try_failed_holds_nobody_up_who_is_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pools, "RETRY_S", (600,))

    async def main() -> None:
        async with Fakes({"a": CUT}) as pool:
            for _ in range(3):
                with pytest.raises(LinkError, match="cut"):
                    await pool.lend("a")
            assert pool.opened == ["a"]
            waits = asyncio.create_task(pool.lend("a", patient=True))
            await asyncio.sleep(0)
            assert not waits.done()
        # Closing the pool ends the waiting.
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(main())


def test_the_next_try_happens_meanwhile(paused: list[float]) -> None:
    async def main() -> None:
        async with Fakes({"a": CUT}) as pool:
            with pytest.raises(LinkError, match="cut"):
                await pool.lend("a")
            pool.links = {"a": MadeUp()}
            with pytest.raises(LinkError, match="cut"):
                await pool.lend("a")
            assert await soon(lambda: not pool.roll.awaited and pool.roll.answered)
            assert await pool.lend("a") is await pool.at_hand("a")
            assert pool.opened == ["a", "a"]

    asyncio.run(main())


def test_a_start_is_tried_again_at_once_and_keeps_the_links_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "SLOW_S", 600)

    async def main() -> None:
        async with Fakes({"a": REFUSED, "b": MadeUp()}) as pool:
            with pytest.raises(ManyErrors, match="login refused"):
                await pool.open_all(["a", "b"])
            pool.links = {"a": MadeUp(), "b": MadeUp()}
            assert list(await pool.open_all(["a", "b"])) == ["a", "b"]
            assert pool.opened == ["a", "b", "a"]
            assert not pool.roll.awaited

    asyncio.run(main())


def test_another_machine_under_the_same_name_is_not_believed() -> None:
    async def main() -> None:
        async with LinkPool([sys.executable], Reach("local")) as pool:
            pool.hosts = {"a": "gpu99"}
            with pytest.raises(LinkError, match=r"is .* from here, but the run is on gpu99") as caught:
                await pool.lend("a")
            assert not caught.value.retry
            assert list(pool.roll.failed) == ["a"]
            pool.hosts = {"a": ""}
            assert (await pool.lend("a", now=True)).hello.host
            link = await pool.at_hand("a")
        assert link.lost.done(), "the pool closes what it has lent"

    asyncio.run(main())


def test_only_a_demo_of_this_machine_whose_folder_is_gone_is_over(tmp_path: Path) -> None:
    here = os.uname().nodename
    (tmp_path / "cockpit-demo-here").mkdir()

    async def killed(folder: Path, host: str) -> bool:
        async with LinkPool([sys.executable], Reach("ssh", {"config": str(folder / "ssh_config")})) as pool:
            pool.hosts = {"node1": host}
            with pytest.raises(LinkError) as caught:
                await pool.lend("node1")
        assert (caught.value.what == "the demo has ended") == isinstance(caught.value, Reclaimed)
        return isinstance(caught.value, Reclaimed)

    assert asyncio.run(killed(tmp_path / "cockpit-demo-gone", here))
    assert not asyncio.run(killed(tmp_path / "cockpit-demo-gone", f"not-{here}"))
    assert not asyncio.run(killed(tmp_path / "cockpit-demo-gone", ""))
    assert not asyncio.run(killed(tmp_path / "cockpit-demo-here", here))
    assert not asyncio.run(killed(tmp_path / "unmounted" / "cockpit-demo-gone", here))
    assert not asyncio.run(killed(tmp_path / "cockpit-other", here))


def test_an_agent_that_answers_nothing_but_pings_has_not_answered() -> None:
    async def main() -> None:
        async with LinkPool([sys.executable], Reach("local")) as pool:
            link = await pool.lend("a")
            await link.measure_clock()
            assert not link.answered
            await link.call(verbs.Runs("/none"))
            assert link.answered

    asyncio.run(main())


def test_who_waits_for_an_answer_over_a_link_of_no_use_is_told_why() -> None:
    async def main() -> None:
        async with LinkPool([sys.executable], Reach("local")) as pool:
            link = await pool.lend("a")
            asking = asyncio.create_task(link.call(verbs.Facts("/")))
            await asyncio.sleep(0)
            link.lose(CUT)
            with pytest.raises(LinkError, match="cut"):
                await asking
            assert await pool.lend("a", patient=True) is not link

    asyncio.run(main())
