"""Collecting from nodes that are made up here: what is fetched, what is kept, what a lying node can do."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import posixpath
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import (
    DigestAnswer,
    DumpFile,
    FindAnswer,
    NamedFile,
    ReadItem,
    ReportFile,
    ReportsAnswer,
)
from cockpit.base.events import Report
from cockpit.base.gate import Malformed, read
from cockpit.config import Quotas
from cockpit.engine import collect as collecting
from cockpit.engine.collect import Collected, collect
from cockpit.engine.links.link import RemoteError
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry
from cockpit.transport.base import LinkError
from tests.engine.pools import Fakes, MadeUp, Sent
from tests.waiting import PATIENCE_S

CHUNK = 1000


class Node(MadeUp):
    """A node with reports, as its link; it counts what it sends."""

    def __init__(self, reports: dict[str, bytes], dumps: tuple[DumpFile, ...] = ()) -> None:
        self.reports = reports
        self.dumps = dumps
        self.asked: list[tuple[str, str, bool]] = []
        """Folder and name of each file that was asked for, and whether the folder was named."""
        self.sent: list[tuple[str, int, int]] = []
        """Name, offset and length of everything sent."""
        self.cut_after = -1
        """Chunks until the link breaks."""

    async def call(self, request: Any, **how: Any) -> Any:
        if isinstance(request, verbs.Reports):
            dumped = {dump.file for dump in self.dumps}
            files = (ReportFile(n, len(d)) for n, d in self.reports.items() if n not in dumped)
            return ReportsAnswer(tuple(files), self.dumps)
        self.asked.append((request.dir, request.file, request.named))
        data = self.reports[request.file]
        return DigestAnswer(hashlib.sha256(data).hexdigest(), len(data), changed=False)

    async def stream(self, request: verbs.Read) -> Sent:
        return Sent(sent(self, request.file, request.offset))


async def sent(node: Node, name: str, offset: int) -> AsyncIterator[tuple[ReadItem, bytes]]:
    """A report on its way."""
    data = node.reports[name]
    for begin in range(offset, len(data), CHUNK):
        if node.cut_after == 0:
            node.cut_after = -1
            raise LinkError("cut", where="node1")
        node.cut_after -= 1
        piece = data[begin : begin + CHUNK]
        node.sent.append((name, begin, len(piece)))
        yield ReadItem(begin), piece


REFUSED = LinkError("login refused", where="node1", retry=False)


@pytest.fixture
def folder() -> RunFolder:
    """A run on two nodes."""
    nodes = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate(("node1", "node2"))]
    return RunFolder.create(Manifest("run", 0.0, nodes, "command", ["true"], "/", profile={"nsys": "nsys"}))


def gather(
    folder: RunFolder,
    target: Path,
    first: dict[str, bytes],
    cut_after: int = -1,
    quotas: Quotas | None = None,
) -> tuple[Collected, Node]:
    """Collect from node1, which has these reports, and node2, which has one."""

    async def main() -> tuple[Collected, Node]:
        node1, node2 = Node(first), Node({"b.nsys-rep": b"two"})
        node1.cut_after = cut_after
        pool = Fakes({"node1": node1, "node2": node2})
        return await collect(folder, pool, target, quotas=quotas), node1

    return asyncio.run(main())


DATA = bytes(range(256)) * 20


def test_listed_ranks_without_a_report_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [NodeEntry(name, f"/none/{name}", [rank]) for rank, name in enumerate(("node1", "node2"))]
    told = {"nsys": "nsys", "report": "reports/run.node1", "ranks": "0"}
    folder = RunFolder.create(Manifest("run", 0.0, nodes, "command", ["true"], "/", profile=told))
    model = folder.model()
    lost = Report("run.node1.rank-0.nsys-rep", state="missing", text="rank 0: nsys recorded nothing")
    model.nodes["node1"] = replace(model.nodes["node1"], ended=True, reports={lost.name: lost})
    monkeypatch.setattr(RunFolder, "model", lambda self: model)

    async def main(first: dict[str, bytes]) -> Collected:
        return await collect(folder, Fakes({"node1": Node(first), "node2": Node({})}), tmp_path)

    for first in ({}, {"other.nsys-rep": b"one"}):
        # No rank of node2 was to be profiled.
        assert asyncio.run(main(first)).missing == {"node1": "rank 0: nsys recorded nothing"}


def test_a_right_start_is_kept(folder: RunFolder, tmp_path: Path) -> None:
    part = tmp_path / "0000-node1/a.nsys-rep.part"
    part.parent.mkdir()
    part.write_bytes(DATA[:3500])
    collected, node = gather(folder, tmp_path, {"a.nsys-rep": DATA})
    assert collected.complete
    assert [sent[1:] for sent in node.sent] == [(3500, 1000), (4500, 620)]
    assert (tmp_path / "0000-node1/a.nsys-rep").read_bytes() == DATA
    assert not part.exists()


@pytest.mark.parametrize("start", [b"x" * 3500, DATA + b"and more", b"x" * len(DATA)])
def test_a_wrong_start_is_repaired(folder: RunFolder, tmp_path: Path, start: bytes) -> None:
    part = tmp_path / "0000-node1/a.nsys-rep.part"
    part.parent.mkdir()
    part.write_bytes(start)
    collected, node = gather(folder, tmp_path, {"a.nsys-rep": DATA})
    assert collected.complete
    assert (tmp_path / "0000-node1/a.nsys-rep").read_bytes() == DATA
    assert ("a.nsys-rep", 0, 1000) in node.sent


def test_a_cut_goes_on_at_the_byte(folder: RunFolder, tmp_path: Path) -> None:
    collected, node = gather(folder, tmp_path, {"a.nsys-rep": DATA}, cut_after=2)
    assert collected.complete
    assert [offset for _, offset, _ in node.sent] == [0, 1000, 2000, 3000, 4000, 5000]


def test_an_endless_report_is_not_taken(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "GROWTH", 500)
    honest = Node.call

    async def call(self: Node, request: Any, **how: Any) -> Any:
        answer = await honest(self, request, **how)
        if isinstance(answer, ReportsAnswer):
            return ReportsAnswer(tuple(replace(file, size=min(file.size, 2000)) for file in answer.files))
        return answer

    monkeypatch.setattr(Node, "call", call)
    collected, _ = gather(folder, tmp_path, {"a.nsys-rep": DATA})
    assert not collected.complete
    assert collected.reports[0].why == "sends more than the 2000 bytes it listed"
    assert (tmp_path / "0000-node1/a.nsys-rep.part").stat().st_size <= 2500
    assert collected.reports[1].state == "collected"


def test_what_is_here_is_not_fetched_again(folder: RunFolder, tmp_path: Path) -> None:
    gather(folder, tmp_path, {"a.nsys-rep": DATA})
    collected, node = gather(folder, tmp_path, {"a.nsys-rep": DATA})
    assert collected.complete
    assert not node.sent


def test_one_unreadable_report_does_not_cost_the_others(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Node.stream

    async def stream(self: Node, request: verbs.Read) -> Sent:
        if request.file == "a.nsys-rep":
            raise RemoteError("os", "Permission denied", where="node1")
        return await whole(self, request)

    monkeypatch.setattr(Node, "stream", stream)
    collected, _ = gather(folder, tmp_path, {"a.nsys-rep": DATA, "c.nsys-rep": DATA})
    assert not collected.complete
    states = {report.name: (report.state, report.why) for report in collected.reports}
    assert states["a.nsys-rep"] == ("failed", "Permission denied")
    assert states["c.nsys-rep"] == states["b.nsys-rep"] == ("collected", "")


def test_an_unreachable_node_costs_only_its_own(folder: RunFolder, tmp_path: Path) -> None:
    async def main() -> Collected:
        return await collect(
            folder, Fakes({"node1": REFUSED, "node2": Node({"b.nsys-rep": b"two"})}), tmp_path
        )

    collected = asyncio.run(main())
    assert collected.exit_code() == 3
    assert collected.missing == {"node1": "login refused"}
    assert (tmp_path / "0001-node2/b.nsys-rep").read_bytes() == b"two"
    assert json.loads((tmp_path / "manifest.json").read_text())["missing"] == collected.missing


def test_dumps_of_nccl_are_fetched_beside_the_reports(folder: RunFolder, tmp_path: Path) -> None:
    name = "mine\x1b.0"
    dumps = (
        DumpFile(0, "/scratch", name, 4),
        DumpFile(0, "/scratch", name, 4),  # a rank has one
        DumpFile(1, "/scratch", name, 4),  # of another node
    )

    async def main(files: dict[str, bytes], run: RunFolder = folder) -> tuple[Collected, Node]:
        node = Node({**files, name: b"dump"}, dumps)
        pool = Fakes({"node1": node, "node2": Node({})})
        return await collect(run, pool, tmp_path), node

    collected, node = asyncio.run(main({"a.nsys-rep": b"one"}))
    assert [(one.file, one.state) for one in collected.reports] == [
        ("0000-node1/a.nsys-rep", "collected"),
        ("0000-node1/nccl_trace_rank_0", "collected"),
    ]
    assert (tmp_path / "0000-node1/nccl_trace_rank_0").read_bytes() == b"dump"
    assert ("/scratch", name, True) in node.asked
    assert list(collected.missing) == ["node2"]
    # A run that is profiled and has dumps alone lacks its reports.
    assert list(asyncio.run(main({}))[0].missing) == ["node1", "node2"]
    # One that is not lacks nothing.
    plain = RunFolder.create(replace(folder.manifest, run="plain", profile={}))
    collected, _ = asyncio.run(main({}, plain))
    assert (collected.complete, collected.missing, collected.exit_code()) == (True, {}, 0)


def test_names_that_a_lying_node_makes_up(folder: RunFolder, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    target = place / "reports"
    names = [
        "..nsys-rep",
        ".nsys-rep",
        "line\nfeed\x1b[2J.nsys-rep",
        "a b.nsys-rep",
        "a_b.nsys-rep",
        "surrogate \udc80 \ud800.nsys-rep",
        "n" * 240 + "1.nsys-rep",
        "n" * 240 + "2.nsys-rep",
        "manifest.json",
        "run.sh",
    ]
    reports = {name: name.encode(errors="surrogatepass") for name in names}
    collected, _ = gather(folder, target, reports)
    assert collected.complete
    assert sorted(collected.passed_over["node1"]) == ["manifest.json", "run.sh"]
    assert [path.name for path in place.iterdir()] == ["reports"]
    assert {path.name for path in target.iterdir()} == {"0000-node1", "0001-node2", "manifest.json"}
    found = [path.read_bytes() for path in (target / "0000-node1").iterdir()]
    assert sorted(found) == sorted(data for name, data in reports.items() if name.endswith(".nsys-rep"))
    for path in (target / "0000-node1").iterdir():
        assert path.name.isprintable()
        assert len(path.name) < 120


@pytest.mark.parametrize("name", ["../../outside.nsys-rep", "/absolute.nsys-rep", "..", "", "n" * 256])
def test_a_name_that_is_none_does_not_pass_the_gate(name: str) -> None:
    with pytest.raises(Malformed):
        read(ReportsAnswer, {"files": [{"name": name, "size": 1}]})


def test_a_slow_disk_does_not_hold_the_loop_up(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = threading.Event()
    held: list[bool] = []
    real = os.fsync

    def fsync(number: int) -> None:
        """Sync when the loop has had a turn meanwhile."""
        held.append(turns.wait(PATIENCE_S))
        real(number)

    async def main() -> Collected:
        async def turn() -> None:
            while not held:
                await asyncio.sleep(0.01)
                if waits.is_set():
                    turns.set()

        waits = threading.Event()

        def slow(number: int) -> None:
            waits.set()
            fsync(number)

        monkeypatch.setattr(os, "fsync", slow)
        ticker = asyncio.create_task(turn())
        pool = Fakes({"node1": REFUSED, "node2": Node({"b.nsys-rep": b"two"})})
        collected = await collect(folder, pool, tmp_path)
        await ticker
        return collected

    collected = asyncio.run(main())
    assert held[0]
    assert [report.state for report in collected.reports] == ["collected"]


def test_a_floor_of_space_is_kept_free(folder: RunFolder, tmp_path: Path) -> None:
    all_of_it = Quotas(free_bytes=1 << 61, free_percent=100.0)
    collected, node = gather(folder, tmp_path, {"a.nsys-rep": DATA}, quotas=all_of_it)
    assert not collected.complete
    assert "are kept free; free some space" in collected.reports[0].why
    assert not node.sent


def test_a_node_lists_no_end_of_reports(folder: RunFolder, tmp_path: Path) -> None:
    reports = {f"{number}.nsys-rep": b"x" for number in range(5)}
    collected, _ = gather(folder, tmp_path, reports, quotas=Quotas(report_files=3))
    assert not collected.complete
    assert [report.state for report in collected.reports].count("collected") == 4
    assert "lists more than 3 reports; the others are not fetched" in collected.missing["node1"]


def test_that_older_ones_are_left_out_is_said(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Node.call

    async def call(self: Node, request: Any, **how: Any) -> Any:
        answer = await whole(self, request, **how)
        many = isinstance(answer, ReportsAnswer) and "a.nsys-rep" in self.reports
        return replace(answer, older=1200) if many else answer

    monkeypatch.setattr(Node, "call", call)
    reports = {f"{name}.nsys-rep": b"x" for name in "ac"}
    collected, _ = gather(folder, tmp_path, reports)
    assert not collected.complete
    older = "1,200 older files are left out of 1,202 in its reports folder; move or delete some there"
    assert collected.missing == {"node1": older}
    collected, _ = gather(folder, tmp_path, reports, cut_after=0, quotas=Quotas(report_files=1))
    assert collected.missing["node1"].startswith(f"{older}; lists more than 1 reports; the others")


# Files that a person names


class Named(Node):
    """A node with files by path; of one it may say more than there is."""

    def __init__(
        self, files: dict[str, bytes], *, shared: bool = False, trouble: tuple[str, ...] = ()
    ) -> None:
        super().__init__({posixpath.basename(path): data for path, data in files.items()})
        self.files, self.shared, self.trouble = files, shared, trouble
        self.grown = 0
        self.endless = False

    async def call(self, request: Any, **how: Any) -> Any:
        if isinstance(request, verbs.Find):
            words = [posixpath.join(request.cwd, word) for word in request.words]
            there = [
                NamedFile(
                    path, posixpath.dirname(path), posixpath.basename(path), len(data), self.id_of(path)
                )
                for path, data in self.files.items()
                if path in words
            ]
            absent = [word for word in request.words if posixpath.join(request.cwd, word) not in self.files]
            return FindAnswer(tuple(there), tuple(absent), self.trouble)
        assert request.named
        data = self.files[posixpath.join(request.dir, request.file)][: request.size]
        return DigestAnswer(hashlib.sha256(data).hexdigest(), len(data), changed=False, rest=self.grown)

    async def stream(self, request: verbs.Read) -> Sent:
        if not self.endless:
            self.reports[request.file] = self.files[posixpath.join(request.dir, request.file)]
        return await super().stream(request)

    def id_of(self, path: str) -> str:
        return f"nfs {path}" if self.shared else f"{id(self)} {path}"


def named(folder: RunFolder, target: Path, *words: str, node1: Named, node2: Named) -> Collected:
    """Collect these words."""

    async def main() -> Collected:
        return await collect(folder, Fakes({"node1": node1, "node2": node2}), target, words=words)

    return asyncio.run(main())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where files go."""
    return tmp_path / "files"


def tree(target: Path) -> dict[str, bytes]:
    """Every file, by its path."""
    found = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    found.pop("manifest.json", None)
    return found


def test_files_of_one_name_lie_beside_each_other(folder: RunFolder, target: Path) -> None:
    one = Named({"/out.txt": b"one", "/deep/out.txt": b"deep"})
    two = Named({"/out.txt": b"two", "/only.txt": b"only"})
    collected = named(folder, target, "out.txt", "/deep/out.txt", "only.txt", node1=one, node2=two)
    assert collected.exit_code() == 0
    assert tree(target) == {
        "0000-node1/out.txt": b"one",
        "0000-node1/deep/out.txt": b"deep",
        "0001-node2/out.txt": b"two",
        "0001-node2/only.txt": b"only",
    }
    assert collected.absent == {"node1": ("only.txt",), "node2": ("/deep/out.txt",)}
    later = named(folder, target, "only.txt", node1=one, node2=two)
    assert later.complete
    told = json.loads((target / "manifest.json").read_text())["reports"]
    assert sorted((each["node"], each["path"]) for each in told) == [
        ("node1", "/deep/out.txt"),
        ("node1", "/out.txt"),
        ("node2", "/only.txt"),
        ("node2", "/out.txt"),
    ]
    assert all(len(each["sha256"]) == 64 for each in told)


def test_a_file_of_a_shared_file_system_is_fetched_once(folder: RunFolder, target: Path) -> None:
    one, two = (Named({"/home/ada/x": b"same"}, shared=True) for _ in range(2))
    collected = named(folder, target, "/home/ada/x", node1=one, node2=two)
    assert collected.exit_code() == 0
    assert len(tree(target)) == 1
    assert sorted(report.state for report in collected.reports) == ["collected", "same"]


def test_a_word_for_no_file_anywhere_and_what_may_not_be_read(folder: RunFolder, target: Path) -> None:
    one, two = Named({"/a": b"a"}), Named({}, trouble=("/root/x: Permission denied",))
    collected = named(folder, target, "a", "typo", node1=one, node2=two)
    assert collected.exit_code() == 3
    assert collected.missing == {
        "node1": "no such file: typo",
        "node2": "/root/x: Permission denied; no such file: typo",
    }
    assert tree(target) == {"0000-node1/a": b"a"}


def test_a_file_that_has_grown_is_fetched_from_there_on(folder: RunFolder, target: Path) -> None:
    one, two = Named({"/log": DATA}), Named({})
    assert named(folder, target, "log", node1=one, node2=two).complete
    one.sent.clear()
    one.files["/log"] = DATA + b"more"
    one.grown = 7
    collected = named(folder, target, "log", node1=one, node2=two)
    assert collected.complete
    assert collected.reports[0].why == "it grew by 7 bytes meanwhile; collect again to fetch them"
    assert one.sent == [("log", len(DATA), 4)]
    assert tree(target)["0000-node1/log"] == DATA + b"more"
    one.files["/log"] = b"new"
    assert named(folder, target, "log", node1=one, node2=two).complete
    assert tree(target) == {"0000-node1/log": b"new"}


def test_more_than_was_listed_is_not_taken(folder: RunFolder, target: Path) -> None:
    one, two = Named({"/endless": b"x"}), Named({})
    one.endless, one.reports["endless"] = True, b"y" * 5 * CHUNK
    collected = named(folder, target, "endless", node1=one, node2=two)
    assert collected.reports[0].state == "failed"
    assert "more than the 1 bytes it listed" in collected.reports[0].why
    assert sum(map(len, tree(target).values())) <= 1


def test_paths_that_a_lying_node_makes_up(folder: RunFolder, tmp_path: Path) -> None:
    """Nothing is written outside of the node's folder; no two of them become one."""
    place = tmp_path / "place"
    words = [
        "/../../../etc/cron.d/x",
        "/a/../b",
        "/.ssh/id",
        "/ssh/id",
        "/out.part",
        "/out",
        "/bell\x07/\x1b[2J",
        "/\udc80/\ud800",
        "/" + "n" * 250 + "1",
        "/" + "n" * 250 + "2",
        "/manifest.json",
    ]
    one, two = Named({word: word.encode(errors="surrogatepass") for word in words}), Named({})
    collected = named(folder, place / "files", *words, node1=one, node2=two)
    assert [report.why for report in collected.reports if report.state != "collected"] == []
    assert [path.name for path in place.iterdir()] == ["files"]
    found = tree(place / "files")
    assert sorted(found.values()) == sorted(one.files.values())
    assert all(path.startswith("0000-node1/") and path.isprintable() for path in found)
    assert not [path for path in found if ".." in path.split("/")]
