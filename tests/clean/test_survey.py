"""What nodes say of run folders: hostile and odd answers, and one folder that several nodes show."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cockpit import paths
from cockpit.base import trees, verbs
from cockpit.base.answers import FoldersAnswer, RemoveAnswer, ReportsAnswer
from cockpit.base.events import Ended
from cockpit.base.gate import plain, read
from cockpit.core.run.cleaning import Wanted
from cockpit.engine.clean import removal
from cockpit.engine.clean.survey import Survey, survey
from cockpit.engine.links.link import RemoteError
from cockpit.engine.records.folder import RunFolder, list_runs
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.engine.run.join import Pools
from cockpit.errors import CockpitError
from tests.engine.pools import Fakes, MadeUp

BASE = "/tmp/cockpit-0"


def found(run: str = "a", node: str = "gpu01", **changes: Any) -> dict[str, Any]:
    """A folder as its node tells it."""
    record = {
        "run": run,
        "node": node,
        "ranks": [0],
        "supervisor": {"pid": 7, "ticks": 8},
        "boot_id": "b",
        "t": 100.0,
        "host": node,
        **changes.pop("record", {}),
    }
    told = {"dir": f"{BASE}/{run}/{node}", "id": f"{run} {node}", "owner": "ada", "ours": True}
    told |= {"alive": False, "ended": True, "bytes": 1000, "whole": True, "idle_s": 50.0}
    return {**told, "record": record, **changes}


class Node(MadeUp):
    """A node that tells what a test gives it, through the gate."""

    def __init__(self, name: str, folders: Sequence[Any], answers: Sequence[Any] = ()) -> None:
        self.hello = SimpleNamespace(host=name, uid=0, base=BASE, boot_id="b", booted=None)
        self.name = name
        self.told = list(folders)
        self.asked: list[Any] = []
        self.answers = list(answers)
        """To requests to remove, one after the other; an error is raised."""
        self.reports: list[dict[str, Any]] = []

    async def call(self, request: Any, data: bytes = b"", *, deadline_s: float = 60) -> Any:
        self.asked.append(request)
        json.dumps(plain(request))
        if isinstance(request, verbs.Folders):
            return read(FoldersAnswer, {"folders": self.told, "more": 3})
        if isinstance(request, verbs.Reports):
            return read(ReportsAnswer, {"files": self.reports})
        assert isinstance(request, verbs.Remove)
        answer = self.answers.pop(0) if self.answers else {"gone": True, "bytes": 10}
        if isinstance(answer, CockpitError):
            raise answer
        return read(RemoveAnswer, answer)

    @property
    def removed(self) -> list[verbs.Remove]:
        return [each for each in self.asked if isinstance(each, verbs.Remove)]


class Made(Pools):
    """Pools whose nodes are made up."""

    def __init__(self, nodes: dict[str, Any]) -> None:
        super().__init__(1.0)
        self.pool = Fakes(nodes)

    def of(self, manifest: Manifest) -> Fakes:
        return self.pool


def known(name: str = "a", nodes: Sequence[str] = ("gpu01",), *, over: bool = True) -> RunFolder:
    """A run here, which has ended on all of its nodes."""
    entries = [NodeEntry(node, f"{BASE}/{name}/{node}", [rank]) for rank, node in enumerate(nodes)]
    folder = RunFolder.create(Manifest(name, time.time() - 1e6, entries, "command", ["true"], "/"))
    for entry in entries if over else ():
        spool = folder.spool_dir(entry)
        spool.mkdir(parents=True)
        lines = [
            {"t": 1.0, "e": "supervisor_started", "pid": 7, "ticks": 8, "boot_id": "b"},
            {"t": 2.0, "e": "rank_exited", "rank": entry.ranks[0], "code": 0},
            {"t": 3.0, "e": Ended.kind},
        ]
        (spool / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    folder.close()
    return RunFolder(folder.path)


def surveyed(nodes: dict[str, Any], wanted: Wanted = Wanted(), also: Sequence[str] = ()) -> Survey:  # noqa: B008
    async def main() -> Survey:
        pools = Made(nodes)
        return await survey(list_runs(), pools, wanted, dict.fromkeys(also, pools.pool))

    return asyncio.run(main())


def kept(survey: Survey, wanted: Wanted = Wanted()) -> dict[str, str]:  # noqa: B008
    return {run.run: wanted.why_kept(run) for run in survey.runs}


def test_a_run_and_its_folders() -> None:
    known("a", ["gpu01", "gpu02"])
    nodes = {"gpu01": Node("gpu01", [found()]), "gpu02": Node("gpu02", [found("a", "gpu02", bytes=500)])}
    got = surveyed(nodes)
    (run,) = got.runs
    assert {name: part.bytes for name, part in run.parts.items()} == {"gpu01": 1000, "gpu02": 500}
    assert kept(got) == {"a": ""}
    assert (got.strays, got.errors, got.more) == ([], {}, 6)
    assert run.here > 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"alive": True}, "it is running on gpu01"),
        ({"living": 1}, "it is running on gpu01"),
        ({"ended": False}, "no recorded end on gpu01; to remove it anyway: --unended"),
        (
            {"ours": False, "record": None},
            "gpu01: its folder there is ada's; to remove it here alone: --here",
        ),
    ],
)
def test_what_a_node_says_keeps_a_run(changes: dict[str, Any], why: str) -> None:
    known()
    told = found()
    assert kept(surveyed({"gpu01": Node("gpu01", [{**told, **changes}])})) == {"a": why}


def test_a_node_that_does_not_answer_keeps_a_run() -> None:
    known("a", ["gpu01", "gpu02"])
    nodes = {"gpu01": Node("gpu01", [found()]), "gpu02": CockpitError("no route to host", where="gpu02")}
    got = surveyed(nodes)
    assert kept(got) == {"a": "gpu02: no route to host; to remove it here alone: --here"}
    assert set(got.errors) == {"gpu02"}
    assert kept(surveyed(nodes, Wanted(here=True)), Wanted(here=True)) == {"a": ""}


def test_a_folder_of_another_launch_of_that_name_is_not_the_run_s() -> None:
    known()
    node = Node("gpu01", [found(record={"supervisor": {"pid": 7, "ticks": 9}})])
    got = surveyed({"gpu01": node})
    assert not got.runs[0].parts["gpu01"].there
    done = asyncio.run(removal.remove(got.runs[0], list_runs()[0], got, Wanted()))
    assert done.gone
    assert node.removed == []


@pytest.mark.parametrize(
    "odd",
    [
        {"dir": "/etc/a/gpu01"},
        {"dir": f"{BASE}/../../home/a/gpu01"},
        {"dir": f"{BASE}/b/gpu01"},
        {"dir": f"{BASE}/a"},
        {"dir": f"{BASE}/a/gpu01/"},
        {"dir": 5},
        {"bytes": -1},
        {"bytes": 1 << 70},
        {"idle_s": float("nan")},
        {"owner": "x" * 1000},
        {"id": None},
        {"record": {"run": "../x"}},
    ],
)
def test_nonsense_of_a_node_is_passed_over(odd: dict[str, Any]) -> None:
    known()
    told = found()
    if isinstance(odd.get("record"), dict):
        odd = {"record": {**told["record"], **odd["record"]}}
    got = surveyed({"gpu01": Node("gpu01", [{**told, **odd}])})
    assert got.strays == []
    assert not got.runs[0].parts["gpu01"].there


def test_folders_that_nobody_knows_are_told_once_by_the_node_that_made_them() -> None:
    known("a", ["gpu01", "gpu02"])
    shared = [found(), found("a", "gpu02"), found("b", "gpu02"), found("c", "gpu03", record={"host": "x"})]
    torn = {**found("d"), "record": None}
    nodes = {"gpu01": Node("gpu01", [*shared, torn]), "gpu02": Node("gpu02", shared)}
    got = surveyed(nodes)
    assert [(place.run, place.node) for place in got.strays] == [
        ("b", "gpu02"),
        ("c", "gpu01"),
        ("d", "gpu01"),
    ]


def test_reports_that_are_nowhere_else() -> None:
    folder = known()
    node = Node("gpu01", [found()])
    node.reports = [{"name": "r0.nsys-rep", "size": 5}, {"name": "notes.txt", "size": 5}]
    why = "1 report on gpu01 not collected; cockpit collect a, or --uncollected"
    assert kept(surveyed({"gpu01": node})) == {"a": why}
    reports = folder.path / "reports"
    (reports / "0000-gpu01").mkdir(parents=True)
    (reports / "0000-gpu01" / "r0.nsys-rep").write_bytes(b"12345")
    entry = {"node": "gpu01", "name": "r0.nsys-rep", "size": 5, "path": ""}
    entry |= {"file": "0000-gpu01/r0.nsys-rep", "state": "collected"}
    for text in ("{", "[]", '{"reports": 5}', '{"reports": [5, {}, null]}'):
        (reports / "manifest.json").write_text(text)
        assert kept(surveyed({"gpu01": node})) == {"a": why}
    (reports / "manifest.json").write_text(json.dumps({"reports": [{**entry, "state": "failed"}]}))
    assert kept(surveyed({"gpu01": node})) == {"a": why}
    (reports / "manifest.json").write_text(json.dumps({"reports": [entry]}))
    assert kept(surveyed({"gpu01": node})) == {"a": ""}
    (reports / "0000-gpu01" / "r0.nsys-rep").unlink()
    assert kept(surveyed({"gpu01": node})) == {"a": why}


def test_what_is_kept_whatever_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = known()
    other = RunFolder(folder.path)
    assert other.lock()
    try:
        assert "controls this run" in kept(surveyed({"gpu01": Node("gpu01", [found()])}))["a"]
    finally:
        other.close()
    moved = folder.path.rename(folder.path.parent.parent / "elsewhere")
    (paths.runs() / "a").symlink_to(moved)
    assert "is a link" in kept(surveyed({"gpu01": Node("gpu01", [found()])}))["a"]


def removed(nodes: dict[str, Any], wanted: Wanted = Wanted()) -> removal.Removed:  # noqa: B008
    async def main() -> removal.Removed:
        pools = Made(nodes)
        got = await survey(list_runs(), pools, wanted, {})
        return await removal.remove(got.runs[0], list_runs()[0], got, wanted)

    return asyncio.run(main())


def test_a_run_goes_from_its_nodes_and_then_from_here() -> None:
    folder = known("a", ["gpu01", "gpu02"])
    late = [{"gone": True, "bytes": 5, "left": "later", "late": True}, {"gone": True, "bytes": 7}]
    nodes = {"gpu01": Node("gpu01", [found()], late), "gpu02": Node("gpu02", [found("a", "gpu02")])}
    done = removed(nodes)
    assert (done.gone, done.away, done.left) == (True, 22, {})
    assert done.here > 0
    assert not folder.path.exists()
    (first, _) = nodes["gpu01"].removed
    assert asdict(cast(Any, first)) == {
        "dir": f"{BASE}/a/gpu01", "run": "a", "node": "gpu01", "boot_id": "b",
        "supervisor": {"pid": 7, "ticks": 8}, "unended": False, "limit_s": removal.REMOVE_S,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (
            RemoteError("alive", "its supervisor is still running", where="gpu02"),
            "its supervisor is still running",
        ),
        ({"gone": True, "left": "/x: busy"}, "not everything was deleted: /x: busy"),
        ({"gone": False}, "not everything was deleted: no reason reported"),
    ],
)
def test_a_node_that_refuses_leaves_the_run_known_here(answer: Any, why: str) -> None:
    folder = known("a", ["gpu01", "gpu02"])
    nodes = {"gpu01": Node("gpu01", [found()]), "gpu02": Node("gpu02", [found("a", "gpu02")], [answer])}
    done = removed(nodes)
    assert (done.gone, done.here, done.left) == (False, 0, {"gpu02": why})
    assert folder.path.exists()
    assert RunFolder(folder.path).lock()  # it can be tried again


def test_a_cockpit_that_came_meanwhile_keeps_it() -> None:
    folder = known()
    node = Node("gpu01", [found()])

    async def main() -> removal.Removed:
        got = await survey(list_runs(), Made({"gpu01": node}), Wanted(), {})
        other = RunFolder(folder.path)
        assert other.lock()
        try:
            return await removal.remove(got.runs[0], list_runs()[0], got, Wanted())
        finally:
            other.close()

    done = asyncio.run(main())
    assert "controls this run" in done.left[""]
    assert node.removed == []
    assert folder.path.exists()


def test_here_asks_no_node() -> None:
    folder = known()
    node = Node("gpu01", [found()])
    assert removed({"gpu01": node}, Wanted(here=True)).gone
    assert node.asked == []
    assert not folder.path.exists()


def test_what_is_left_of_a_broken_deletion_is_no_run_and_goes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = known()
    real: Callable[..., trees.Cleared] = trees.cleared
    monkeypatch.setattr(trees, "cleared", lambda path, until: real(path, until, 1))
    done = removed({"gpu01": Node("gpu01", [found()])})
    assert not done.gone
    assert "rm -r" in done.left[""]
    assert list_runs() == []
    assert not folder.path.exists()
    assert len(os.listdir(paths.runs())) == 1
    monkeypatch.setattr(trees, "cleared", real)
    assert removal.empty_trash() > 0
    assert os.listdir(paths.runs()) == []
