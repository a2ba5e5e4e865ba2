"""Reports of nsys become a collection: what nodes say of them, and may not say; and one that is here."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import ProfileItem, ReportFile, ReportsAnswer
from cockpit.base.gate import read
from cockpit.config import Quotas
from cockpit.core.profile import nsys
from cockpit.core.profile.collection import Collection
from cockpit.core.profile.reader import read as read_all
from cockpit.engine.profile import reports
from cockpit.engine.profile.store import Store, _as_sent
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError
from tests.core.profiled import Work, collection
from tests.engine.pools import Fakes, MadeUp, Sent
from tests.node.nsys_exports import job

Part = tuple[dict[str, Any], bytes]
Says = Callable[[verbs.SumUp], Sequence[Part]]


def summary(rank: int, file: str) -> bytes:
    """What a node sends of a rank."""
    one = collection(4, lambda rank, step: Work(), nodes=2).results[rank].summary
    assert one is not None
    return zlib.compress(json.dumps(_as_sent(replace(one, node="", file=file))).encode())


def done(rank: int, file: str) -> Part:
    return {"rank": rank, "state": "done", "file": file, "size": 9}, summary(rank, file)


def well(asked: verbs.SumUp) -> list[Part]:
    """A node whose report has all of its ranks."""
    name = asked.files[0]
    reading = [({"rank": rank, "state": "reading", "file": name, "size": 9}, b"") for rank in asked.ranks]
    return [*reading, *(done(rank, name) for rank in asked.ranks)]


class Node(MadeUp):
    """A node with reports."""

    def __init__(self, names: Sequence[str], says: Says = well) -> None:
        self.names, self.says = names, says
        self.lost = asyncio.get_running_loop().create_future()
        self.clock = SimpleNamespace(rtt_s=0.001, offset_s=0.5)
        self.asked: list[verbs.SumUp] = []

    async def call(self, request: Any, deadline_s: float = 0) -> ReportsAnswer:
        return ReportsAnswer(tuple(ReportFile(name, 9) for name in self.names))

    async def stream(self, request: verbs.SumUp) -> Sent:
        self.asked.append(request)

        async def parts() -> AsyncIterator[tuple[ProfileItem, bytes]]:
            for told, data in self.says(request):
                yield read(ProfileItem, told), data

        return Sent(parts())


@pytest.fixture
def folder() -> RunFolder:
    """A run on two nodes that nsys was to profile."""
    nodes = [NodeEntry(f"gpu0{at + 1}", f"/run/{at}", [2 * at, 2 * at + 1]) for at in range(2)]
    profile = {"nsys": "/opt/nsys", "report": "x"}
    return RunFolder.create(Manifest("otter", 0.0, nodes, "command", ["true"], "/", profile=profile))


def summed(
    folder: RunFolder, nodes: Callable[[], Mapping[str, Any]], wanted: str = ""
) -> tuple[Collection, Mapping[str, Any]]:
    async def play() -> tuple[Collection, Mapping[str, Any]]:
        made = nodes()
        return await reports.sum_up(folder, Fakes(made), wanted), made

    return asyncio.run(play())


def two(
    says: Says = well, names: Sequence[str] = ("b.nsys-rep", "b.sqlite", "b.trace.json.gz")
) -> dict[str, Any]:
    return {"gpu01": Node(["a.nsys-rep"]), "gpu02": Node(names, says)}


def test_reports_of_all_nodes(folder: RunFolder) -> None:
    one, nodes = summed(folder, two)
    assert (one.kind, one.id, one.run, one.missing, one.first, one.steps) == (
        "nsys", nsys.LAUNCH, "otter", {}, 700, 5,
    )  # fmt: skip
    assert one.offsets == {"gpu01": 0.5, "gpu02": 0.5}
    assert one.results[3].file == "b.nsys-rep"
    assert one.results[3].began is not None
    (asked,) = nodes["gpu02"].asked
    assert (asked.dir, asked.files, asked.ranks) == ("/run/1", ("b.nsys-rep",), (2, 3))
    assert asked.tools[0] == "/opt/nsys"


def test_it_is_kept_once(folder: RunFolder, tmp_path: Path) -> None:
    store = Store(tmp_path)
    one, _ = summed(folder, two)
    assert reports.keep(store, one).number == 1
    assert reports.keep(store, one).number == 1
    other = reports.keep(store, replace(one, id="261128-103000-0a1b2c"))
    assert other.number == 2
    again = store.load(1)
    assert again.missing == {}
    assert again.kind == "nsys"
    assert again.results[0].summary == one.results[0].summary
    assert store.begin(Quotas()) == 3


def test_what_was_recorded_on_demand_stays_where_it_is_not_summed_up(
    folder: RunFolder, tmp_path: Path
) -> None:
    store = Store(tmp_path)
    one, _ = summed(folder, two)
    bare = {rank: replace(result, summary=None, began=7.0) for rank, result in one.results.items()}
    recorded = replace(one, number=store.begin(Quotas()), results=bare, at=5.0, before=0.5)
    store.save(recorded)
    assert store.load(1).missing == {}
    assert read_all(store.load(1)).rows
    late = replace(one.results[3], state="failed", summary=None, why="no nsys here")
    merged = reports.keep(store, replace(one, results={**one.results, 3: late}))
    again = store.load(1)
    assert (merged.number, again.at, again.before, again.missing) == (1, 5.0, 0.5, {})
    assert again.results[0].summary == one.results[0].summary
    assert again.results[0].began == 7.0
    assert (again.results[3].summary, again.results[3].why) == (None, "not summed up now: no nsys here")
    assert set(read_all(again).ranks) == {0, 1, 2}


def test_the_newest_of_several_collections(folder: RunFolder) -> None:
    ids = ["261128-103000-0a1b2c", "261129-103000-0a1b2c"]
    names = ["otter-gpu02.nsys-rep", *(f"otter.gpu02.nsys.{one}.nsys-rep" for one in ids)]
    one, nodes = summed(folder, lambda: two(names=names))
    assert one.id == ids[1]
    assert nodes["gpu01"].asked == []
    assert [asked.files for asked in nodes["gpu02"].asked] == [(names[2],)]
    assert summed(folder, lambda: two(names=names), ids[0])[0].id == ids[0]


def test_a_node_that_is_gone_is_missing_with_the_reason(folder: RunFolder) -> None:
    one, _ = summed(
        folder, lambda: {**two(), "gpu02": LinkError("login refused", where="gpu02", retry=False)}
    )
    assert one.missing == {2: "login refused", 3: "login refused"}


def test_what_a_node_says_nothing_of_is_missing(folder: RunFolder) -> None:
    one, _ = summed(folder, lambda: two(lambda asked: well(asked)[:1]))
    assert one.missing == dict.fromkeys((2, 3), "no further status from its node")
    alone = ["otter.gpu02.rank-3.nsys-rep"]
    one, _ = summed(folder, lambda: two(lambda asked: [done(3, asked.files[0])], alone))
    assert set(one.results) == {0, 1, 3}


def test_no_reports(folder: RunFolder) -> None:
    with pytest.raises(CockpitError, match="its nodes have no nsys report"):
        summed(folder, lambda: {"gpu01": Node([]), "gpu02": Node(["x.txt"])})


LIES: dict[str, Says] = {
    "was not requested": lambda asked: [done(0, asked.files[0])],
    "that is 'dancing'": lambda asked: [({"rank": 2, "state": "dancing", "file": asked.files[0]}, b"")],
    "that is 'reading'": lambda asked: [({"rank": 2, "state": "reading", "file": asked.files[0]}, b"data")],
    "that is 'done'": lambda asked: [done(2, asked.files[0]), done(2, asked.files[0])],
    "that is 'failed'": lambda asked: [({"rank": 2, "state": "failed", "file": "/etc/passwd"}, b"")],
    "summary is invalid": lambda asked: [({"rank": 2, "state": "done", "file": asked.files[0]}, b"no")],
    "it is of rank 3": lambda asked: [
        ({"rank": 2, "state": "done", "file": asked.files[0]}, summary(3, "x"))
    ],
}


@pytest.mark.parametrize("said", LIES)
def test_what_no_node_of_ours_sends_costs_only_its_own_ranks(folder: RunFolder, said: str) -> None:
    one, _ = summed(folder, lambda: two(LIES[said]))
    assert {0, 1}.isdisjoint(one.missing)
    assert any(said in why for why in one.missing.values()) or said == "that is 'done'"


def test_text_from_a_node_is_harmless(folder: RunFolder) -> None:
    evil = {"rank": 2, "state": "failed", "file": "b.nsys-rep", "what": "\x1b[2Jgone"}
    one, _ = summed(folder, lambda: two(lambda asked: [(evil, b"")]))
    assert one.missing[2] == "\\x1b[2Jgone"


@pytest.mark.slow
def test_an_export_that_is_here(tmp_path: Path) -> None:
    path = job(tmp_path / "x.sqlite", (4711, 4712))
    one = asyncio.run(reports.read_here(path))
    assert [(result.rank, result.node) for result in one.results.values()] == [
        (0, "localhost"),
        (1, "localhost"),
    ]
    assert one.results[0].summary is not None
    assert len(one.results[0].summary.collectives) == 4
    (tmp_path / "y.sqlite").write_bytes(b"no")
    with pytest.raises(CockpitError, match="cannot be summed up: the report cannot be read"):
        asyncio.run(reports.read_here(tmp_path / "y.sqlite"))
    (tmp_path / "z.txt").touch()
    with pytest.raises(CockpitError, match="not a report of nsys"):
        asyncio.run(reports.read_here(tmp_path / "z.txt"))
    with pytest.raises(CockpitError, match="No such file"):
        asyncio.run(reports.read_here(tmp_path / "gone.sqlite"))
