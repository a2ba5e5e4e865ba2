"""What is said while nodes are awaited, and that verbs over many runs and nodes ask them all at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cockpit.cli import awaiting
from cockpit.cli.awaiting import telling
from cockpit.cli.verbs import ps
from cockpit.engine.launch.all_or_none import unfinished
from cockpit.engine.links.link import Link
from cockpit.engine.links.roll import Roll
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.run.join import Pools
from cockpit.transport.base import ConnectStage, LinkError
from tests.transport.sshserver import Place
from tests.waiting import PATIENCE_S, soon


def stays(roll: Roll, node: str, stage: ConnectStage, seconds: float) -> None:
    """A node has been at one stage for so long."""
    roll.awaited[node].reach(stage)
    roll.awaited[node].since -= seconds


def test_errors_as_they_come_and_who_is_awaited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(awaiting, "FIRST_S", 0.3)
    monkeypatch.setattr(awaiting, "EVERY_S", 0.4)
    said = ""

    def heard(words: str, times: int = 1) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count(words) >= times

    async def main() -> None:
        roll = Roll(f"gpu{number:02}" for number in range(1, 9))
        async with telling(lambda: roll) as teller:
            for node in ("gpu01", "gpu02"):
                roll.answer(node)
            for node in ("gpu03", "gpu04", "gpu05"):
                stays(roll, node, ConnectStage.DIALING, 12)
            stays(roll, "gpu06", ConnectStage.LOGIN, 3)
            roll.fail("gpu08", LinkError("connection refused", where="gpu08", hint="start sshd"))
            await soon(lambda: heard("cockpit: gpu08: connection refused; start sshd\n"))
            await soon(lambda: heard("2 of 8 nodes answered, 1 failed; no answer yet: "))
            # The seconds of this test come on top.
            assert re.search(r"gpu07 for \d+ s \(its turn to connect\), gpu\[03-05\] for [1-9]\d s ", said)
            assert re.search(r" s \(the connection\), gpu06 for \d+ s \(the login\)\n", said)
            await soon(lambda: heard("2 of 8 nodes answered", 2))
            for node in list(roll.awaited):
                roll.answer(node)
        assert teller.told == {"gpu08: connection refused; start sshd"}

    asyncio.run(main())
    assert said.count("gpu08: connection refused") == 1


@pytest.mark.parametrize(("nodes", "whose"), [(1, "agent of node1"), (2, "agents of node[1-2]")])
def test_that_all_wait_for_agents_is_one_short_sentence(nodes: int, whose: str) -> None:
    roll = Roll(f"node{number}" for number in range(1, nodes + 1))
    for node in list(roll.awaited):
        stays(roll, node, ConnectStage.ANSWER, 1)
    assert re.fullmatch(
        rf"0 of {nodes} nodes? answered; waiting \d s for the {re.escape(whose)}", roll.line()
    )
    roll.running = "--setup"
    assert roll.line().endswith(f" s for the {whose} (running your --setup)")


def test_who_has_answered_before_is_not_said_not_to_have() -> None:
    """A launch asks nodes that are ready once more."""
    roll = Roll(["a", "b"])
    for node in ("a", "b"):
        roll.answer(node)
    roll.call(["a", "b"], "started")
    roll.answer("a")
    assert roll.counts() == "1 of 2 nodes started"
    roll.call(["a"])
    assert roll.counts() == "0 of 1 node answered"


def made(run: str, nodes: list[str], config: Path | None = None, hosts: str = "") -> RunFolder:
    """A run that was launched on some nodes, as far as is known here; without ``config``: on this machine."""
    entries = [NodeEntry(node, f"/none/{run}/{node}", [i], host=hosts) for i, node in enumerate(nodes)]
    options = {"config": str(config)} if config else {}
    manifest = Manifest(
        *(run, time.time(), entries, "command", ["true"], "/"),
        pythons=[sys.executable],
        transport="ssh" if config else "local",
        transport_options=options,
    )
    folder = RunFolder.create(manifest)
    folder.write(planned(folder.manifest))
    folder.close()
    return folder


async def rows_of(
    folders: list[RunFolder], patience_s: float = PATIENCE_S
) -> dict[object, dict[str, object]]:
    """The rows of ``cockpit ps``, by run.

    :param patience_s: seconds after which a node does not answer
    """
    async with Pools(patience_s) as pools:
        return {row["run"]: row for row in await ps._rows(folders, pools, connect=True)}


def test_ps_asks_all_nodes_at_once_and_lists_who_does_not_answer(tmp_path: Path) -> None:
    place = Place(tmp_path)
    folders = [made(f"run{number}", [f"silent{number % 2}"], place.config) for number in range(5)]
    most = now = asked = 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most, now, asked
        asked += 1
        now += 1
        most = max(most, now)
        while await reader.read(1 << 16):
            pass
        now -= 1
        writer.close()

    async def main() -> dict[object, dict[str, object]]:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        place.knows("silent*", server.sockets[0].getsockname()[1])
        try:
            return await rows_of(folders, 2.0)
        finally:
            server.close()

    rows = asyncio.run(main())
    assert [row["unreachable"] for row in rows.values()] == [[f"silent{n % 2}"] for n in range(5)]
    assert {row["state"] for row in rows.values()} == {"unknown: no node answers"}
    assert most == asked == 2, "runs share the link to a node"


def test_ps_connects_to_each_node_once_whoever_asks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    for number in range(5):
        made(f"run{number}", ["gpu1", "gpu2"], place.config, os.uname().nodename)
    made("moved", ["gpu2"], place.config, "elsewhere")
    words = ["-w", "gpu[1-2]", "--transport", "ssh", "-F", str(place.config)]

    async def main() -> tuple[int, int]:
        async with place.server("gpu*") as counts:
            await asyncio.to_thread(ps.main, [*words, "--json"])
            first = counts.connections
            await asyncio.to_thread(ps.main, ["run0", *words, "--json"])
            return first, counts.connections - first

    # A machine that is not the one of that run is asked once more, and refused.
    assert asyncio.run(main()) == (3, 2)
    listed, shown = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["run"] for row in listed if row["unreachable"]] == ["moved"]
    assert [node["link"] for node in shown["nodes"]] == ["gone", "gone"], "its run folder is"


def test_a_run_over_which_a_link_breaks_takes_no_other_run_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [made(run, ["here"]) for run in ("good1", "bad", "good2")]
    call, opened = Link.call, Link.open
    opens: list[str] = []

    async def opening(link: Link) -> object:
        opens.append(link.node)
        return await opened(link)

    async def asked(link: Link, request: Any, *more: Any, **options: Any) -> Any:
        if getattr(request, "run", "") == "bad":
            await asyncio.sleep(0)  # the others have asked
            link.lose(LinkError("sent an invalid answer", where=link.node, retry=False))
        return await call(link, request, *more, **options)

    monkeypatch.setattr(Link, "open", opening)
    monkeypatch.setattr(Link, "call", asked)
    rows = asyncio.run(rows_of(folders))
    assert {name: row["unreachable"] for name, row in rows.items()} == {
        "good1": [],
        "bad": ["here"],
        "good2": [],
    }
    assert len(opens) == 4, "one that all share, and then one each"


def test_a_run_that_was_found_on_its_nodes_is_not_one_whose_start_was_cut_off(tmp_path: Path) -> None:
    assert not unfinished(made("adopted", ["gpu01"], tmp_path))
