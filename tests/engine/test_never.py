"""Nodes that answer, and to one question never do: nobody waits for them for ever."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cockpit.base import events, verbs
from cockpit.engine import collect as collecting
from cockpit.engine.doctor import Wanted, examine
from cockpit.engine.links.link import Link
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run import current_state
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes.hostfile import parse
from cockpit.transport.base import LinkError, Reach
from cockpit.transport.registry import TRANSPORTS
from tests.engine.pools import Fakes
from tests.hostile.peer import Plan
from tests.hostile.quick import BAD, Hostile, HostileWays


def never(verb: str) -> Plan:
    # With this seed it answers all the rest: pings go on, and the link is up.
    return Plan("never", "115", (verb,), share=1.0)


async def asked(verb: str) -> Link:
    """A link to a node that never answers to a verb."""
    link = Link(BAD, Hostile(BAD, never(verb)), [sys.executable])
    await link.open()
    return link


def test_a_part_is_waited_for_as_long_as_one_says() -> None:
    async def main() -> None:
        link = await asked("meet")
        stream = await link.stream(verbs.Meet(0, limit_s=60))
        with pytest.raises(LinkError, match=r"bad: no answer within 0\.2 s"):
            await stream.part(0.2)
        await stream.close()
        assert (await link.call(verbs.Ping())).t > 0
        await link.close()

    asyncio.run(main())


@pytest.mark.slow
def test_a_node_that_never_says_where_it_listens_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ways = replace(TRANSPORTS["local"], ways=lambda options, patience_s: HostileWays(never("meet")))
    monkeypatch.setitem(TRANSPORTS, "local", ways)
    job = LaunchJob("doctor", tuple(parse(f"{BAD} slots=1\nlocalhost slots=1\n")), ("true",), str(tmp_path))

    async def main() -> list[str]:
        async with LinkPool([sys.executable], Reach("local")) as pool:
            found = (await examine(pool, Wanted(job, "command", timeout_s=8.0))).looks
            return [error.what for error in found.nodes[BAD].errors]

    assert "no answer within 8 s" in asyncio.run(main())


@pytest.mark.parametrize(
    ("verb", "why"),
    [("read", r"no answer within 0\.2 s"), ("digest", r"no answer to digest within 0\.\d+ s")],
)
def test_a_file_that_never_comes_is_a_failed_one(
    verb: str, why: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(collecting, "_SILENCE_S", 0.2)
    monkeypatch.setattr(collecting, "_TRIES", 2)
    if verb == "read":
        monkeypatch.setattr(collecting, "_HASH_BYTES_S", 0.01)  # its checksum is in time
    (tmp_path / "trace.json").write_text("{}")
    entry = NodeEntry(BAD, str(tmp_path), [0])
    folder = RunFolder.create(Manifest("run", 0.0, [entry], "command", ["true"], "/"))

    async def main() -> collecting.Collected:
        link = await asked(verb)
        words = (str(tmp_path / "trace.json"),)
        done = await collecting.collect(folder, Fakes({BAD: link}), tmp_path / "here", words=words)
        await link.close()
        return done

    done = asyncio.run(main())
    (file,) = done.reports
    assert file.state == "failed"
    assert re.fullmatch(why, file.why)
    assert re.fullmatch(why, done.missing[BAD])


def test_a_node_that_is_not_measured_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(current_state, "_SAMPLE_S", 0.2)

    async def main() -> list[events.Fact]:
        link = await asked("samples")
        found = await current_state._samples(link, verbs.Samples(str(tmp_path)))
        await link.close()
        return [event.fact for event in found]

    assert asyncio.run(main()) == [events.Note("no measurements: no answer within 0.2 s", "samples")]
