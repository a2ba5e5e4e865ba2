"""Evidence that a node sends: what makes no sense is not taken, and costs no other node's evidence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import events, evidence_file, verbs
from cockpit.base.answers import FindAnswer, ReadItem
from cockpit.base.gate import Malformed, read
from cockpit.base.recorder.packing import pack as pack_trace
from cockpit.base.stacks.dump import Dump, Frame, Process, Thread
from cockpit.base.stacks.packing import pack
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine.evidence_fetcher import Keeper
from cockpit.engine.records.folder import RunFolder
from cockpit.engine.records.manifest import Manifest, NodeEntry, planned
from cockpit.engine.stacks import saved
from cockpit.engine.stacks.evidence import Depot, gather, lacking, opened
from tests.engine.pools import Sent
from tests.recorder.recorded import dumps, recorded

NAME = "20261123-031200-stall.evidence"
ENTRY = NodeEntry("gpu01", "/tmp/cockpit-0/night/gpu01", [0, 1])
OTHER = NodeEntry("gpu02", "/tmp/cockpit-0/night/gpu02", [2, 3])


def dump(rank: int, *names: str) -> Dump:
    frames = tuple(Frame(name, "./train.py", 7) for name in names)
    return Dump(
        rank, 1000.0, Process(100 + rank, 5, "S"), "plain", (Thread("Main", 1, False, False, frames),)
    )


def file(*dumps: Dump, at: float = 1000.0, **head: Any) -> bytes:
    facts = {"format": 1, "t": at, "why": "stall", "since": at - 33, **head}
    return evidence_file.written(facts, [(one.rank, pack([one])) for one in dumps], [])


class Node:
    """A node whose run folder has these files; what it says goes through the gate."""

    def __init__(self, files: dict[str, bytes], **lies: Any) -> None:
        self.node = "gpu01"
        self._files, self._lies = files, lies

    async def call(self, request: object) -> FindAnswer:
        assert isinstance(request, verbs.Find)
        files = [
            {"path": f"/x/{name}", "dir": "/x", "file": name, "size": self._lies.get("size", len(data))}
            for name, data in self._files.items()
        ]
        return read(FindAnswer, {"files": files})

    async def stream(self, request: object) -> Any:
        assert isinstance(request, verbs.Read)
        data, offset = self._files[request.file], self._lies.get("offset", 0)

        async def parts() -> Any:
            yield ReadItem(offset), data

        return Sent(parts())


def folder() -> RunFolder:
    return RunFolder.create(Manifest("night", 900.0, [ENTRY, OTHER], "command", ["train.py"], "/"))


def model(made: RunFolder, *facts: events.Fact, node: str = "gpu01") -> RunModel:
    started = [
        Event(950.0, entry.name, events.RankStarted(rank, pid=100 + rank))
        for entry in made.manifest.nodes
        for rank in entry.ranks
    ]
    more = [Event(1000.0, node, fact) for fact in facts]
    return RunModel.of([planned(made.manifest), *started, *more])


def gathered(made: RunFolder, now: RunModel, **nodes: Node) -> tuple[list[Any], dict[str, Any]]:
    async def lend(name: str) -> Any:
        return nodes[name]

    return asyncio.run(gather(made, now, lend, nodes))


def test_nodes_together_name_who_is_elsewhere() -> None:
    made = folder()
    now = model(made, events.EvidenceKept("stall", NAME, 7))
    assert lacking(made, now) == ["gpu01"]
    one = Node({NAME: file(dump(0, "wait"), dump(1, "load"))})
    other = Node({NAME: file(dump(2, "wait"), dump(3, "wait"), at=1012.0)})
    (shown,), errors = gathered(made, now, gpu01=one, gpu02=other)
    assert errors == {}
    assert lacking(made, now) == []
    assert sorted(shown.snapshot.samples[0].dumps) == [0, 1, 2, 3]
    assert shown.snapshot.by_nodes == "the ranks of gpu[01-02] had made no progress for 33 s"
    assert saved.load(shown.path).by_nodes == shown.snapshot.by_nodes
    # Made again, it is the same one.
    (again,), _ = gathered(made, now)
    assert again.path == shown.path


def test_a_later_look_at_the_same_stall_is_another_sample() -> None:
    made = folder()
    later = "20261123-032200-stall.evidence"
    files = {NAME: file(dump(0, "load")), later: file(dump(0, "load"), at=1600.0, since=967.0)}
    (shown,), _ = gathered(made, model(made), gpu01=Node(files))
    assert [sample.at for sample in shown.snapshot.samples] == [1000.0, 1600.0]


def test_a_second_look_counts_once_all_nodes_have_taken_it() -> None:
    made = folder()
    later = "20261123-031215-stall.evidence"
    one = Node({NAME: file(dump(0, "wait"), dump(1, "load"))})
    other = Node({NAME: file(dump(2, "wait"), dump(3, "wait"), at=1003.0)})
    gathered(made, model(made), gpu01=one, gpu02=other)
    again = file(dump(0, "wait"), dump(1, "load"), at=1010.0, since=967.0)
    (shown,), _ = gathered(made, model(made), gpu01=Node({later: again}))
    assert [sample.at for sample in shown.snapshot.samples] == [1000.0]
    again = file(dump(2, "wait"), dump(3, "wait"), at=1013.0, since=970.0)
    (shown,), _ = gathered(made, model(made), gpu02=Node({later: again}))
    assert [sample.at for sample in shown.snapshot.samples] == [1000.0, 1010.0]
    assert [sorted(sample.dumps) for sample in shown.snapshot.samples] == [[0, 1, 2, 3]] * 2


def test_an_exit_that_was_recorded_is_in_the_snapshot() -> None:
    made = folder()
    now = model(made, events.RankExited(1, code=3))
    data = file(dump(0, "wait"), why="failure", since=None, failed=[1])
    (shown,), _ = gathered(made, now, gpu01=Node({NAME: data}))
    place = shown.snapshot.ranks[1]
    assert (place.why, place.ended_at) == ("exited 3", 1000.0)
    assert shown.snapshot.by_nodes == "rank 1 failed"
    assert shown.snapshot.samples[0].silent == {"gpu02": "saved no evidence then"}


def test_recorders_of_all_nodes_are_read_together() -> None:
    made = folder()
    head = {"format": 1, "t": 1000.0, "why": "stall", "since": 900.0}
    found = recorded(dumps("missing"))
    files: dict[str, Node] = {}
    for entry in (ENTRY, OTHER):
        parts = []
        for rank in entry.ranks:
            traces = [pack_trace(trace) for trace in found[rank].traces]
            item = {"rank": rank, "at": found[rank].taken_us / 1e6, "source": "server"}
            parts.append(({**item, "lengths": list(map(len, traces))}, b"".join(traces)))
        files[entry.name] = Node({NAME: evidence_file.written(head, [], parts)})
    (shown,), errors = gathered(made, model(made), **files)
    assert errors == {}
    assert shown.snapshot.collectives is not None
    assert shown.snapshot.collectives.heard == 0b1111
    assert shown.snapshot.collectives.missing


GOOD = file(dump(0, "wait"))
BAD: dict[str, Callable[[], Node]] = {
    "not evidence": lambda: Node({NAME: b"nonsense"}),
    "no JSON": lambda: Node({NAME: b"{\n"}),
    "a list": lambda: Node({NAME: b"[]\n"}),
    "nested": lambda: Node({NAME: b"[" * 100_000 + b"\n"}),
    "cut off": lambda: Node({NAME: GOOD[:-1]}),
    "more than it says": lambda: Node({NAME: GOOD + b"x"}),
    "a newer format": lambda: Node({NAME: file(dump(0, "wait"), format=2)}),
    "a rank of another node": lambda: Node({NAME: file(dump(2, "wait"))}),
    "a rank twice": lambda: Node({NAME: file(dump(0, "wait"), dump(0, "wait"))}),
    "no dump": lambda: Node({NAME: evidence_file.written(head(), [(0, b"nonsense")], [])}),
    "sizes that are none": lambda: Node({NAME: json.dumps(head(stacks=[[0, -1]])).encode() + b"\n"}),
    "too large": lambda: Node({NAME: GOOD}, size=evidence_file.LIMIT + 1),
    "larger than it says": lambda: Node({NAME: GOOD}, size=10),
    "another part": lambda: Node({NAME: GOOD}, offset=5),
}


def head(**more: Any) -> dict[str, Any]:
    return {"format": 1, "t": 1000.0, "why": "stall", **more}


def item() -> dict[str, Any]:
    return {"rank": 0, "at": 1000.0, "source": "server", "lengths": [8]}


def test_a_trace_that_makes_no_sense_costs_its_rank_alone() -> None:
    made = folder()
    broken = Node({NAME: evidence_file.written(head(), [], [(item(), b"nonsense")])})
    (_,), errors = gathered(made, model(made), gpu01=broken, gpu02=Node({NAME: file(dump(2, "wait"))}))
    assert not errors
    assert Depot(made).names(ENTRY) == [NAME]


@pytest.mark.parametrize("case", BAD)
def test_what_makes_no_sense_is_not_taken(case: str) -> None:
    made = folder()
    other = Node({NAME: file(dump(2, "wait"))})
    (shown,), errors = gathered(made, model(made), gpu01=BAD[case](), gpu02=other)
    assert list(errors) == ["gpu01"]
    assert Depot(made).names(ENTRY) == []
    assert sorted(shown.snapshot.samples[0].dumps) == [2]


@pytest.mark.parametrize("name", ["../../x.evidence", "x.evidence", "20261123-031200-stall.evidence.new"])
def test_files_of_other_names_are_passed_over(name: str, tmp_path: Path) -> None:
    made = folder()
    assert not evidence_file.is_name(name)
    node = Node({name.replace("/", "_"): GOOD})
    assert gathered(made, model(made), gpu01=node) == ([], {})


def test_the_quota_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    made = folder()
    monkeypatch.setattr("cockpit.engine.stacks.evidence.A_NODE", len(GOOD) + 5)
    files = {f"20261123-03120{number}-stall.evidence": GOOD for number in range(3)}
    _, errors = gathered(made, model(made), gpu01=Node(files))
    assert "more than may be saved" in errors["gpu01"].what
    assert len(Depot(made).names(ENTRY)) == 1


def test_a_copy_that_was_damaged_here_hides_no_other() -> None:
    made = folder()
    files = {NAME: GOOD, "20261123-041200-stall.evidence": file(dump(0, "wait"), at=5000.0)}
    gathered(made, model(made), gpu01=Node(files))
    (Depot(made).of(ENTRY) / NAME).write_bytes(b"\0")
    (shown,), errors = gathered(made, model(made))
    assert (shown.at, errors) == (5000.0, {})


def test_text_of_a_node_is_harmless() -> None:
    found = opened(file(dump(0, "wait"), trouble=["\x1b[31mred"], boot_id="\x1b]0;x\7"), ENTRY, 0.0)
    assert "\x1b" not in found.trouble[0] + found.boot_id
    with pytest.raises(Malformed):
        opened(b"", ENTRY, 0.0)


@pytest.mark.parametrize("ahead_s", [-(1 << 36), 1 << 36])
def test_a_clock_that_is_far_off_hides_no_evidence(ahead_s: float) -> None:
    made = folder()
    now = model(made, events.ClockMeasured(ahead_s))
    (shown,), _ = gathered(made, now, gpu01=Node({NAME: GOOD}))
    assert sorted(saved.load(shown.path).samples[0].dumps) == [0]


def test_nobody_has_stood_still_since_a_time_to_come() -> None:
    made = folder()
    node = Node({NAME: file(dump(0, "wait"), since=1e10)})
    (shown,), _ = gathered(made, model(made), gpu01=node)
    assert shown.snapshot.by_nodes == "the ranks of gpu01 had made no progress for 0 s"


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, ["gpu01: its run record names evidence that doesn't exist"]),
        ({NAME: GOOD[:-1]}, ["gpu01: can't fetch its evidence: its evidence is invalid: "]),
        ({NAME: GOOD}, ["snapshot of "]),
    ],
    ids=["not there", "damaged", "good"],
)
def test_evidence_that_is_recorded_is_here_or_it_is_said_why_not(
    files: dict[str, bytes], says: list[str]
) -> None:
    made, said = folder(), list[str]()
    now = model(made, events.EvidenceKept("stall", NAME, 7))

    async def lend(name: str) -> Any:
        return Node(files)

    def remark(sentence: str, see: str = "") -> None:
        said.append(sentence)

    session: Any = SimpleNamespace(folder=made, model=now, pool=SimpleNamespace(lend=lend), remark=remark)
    asyncio.run(Keeper(session)._fetch())
    assert [text[: len(start)] for text, start in zip(said, says, strict=True)] == says
