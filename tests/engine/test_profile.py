"""A profile of a job: each node for itself, none speaks for another, what has come is kept."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import EnvironAnswer, ProfileItem, SamplesItem, SpyAnswer, WindowAnswer
from cockpit.base.events import Planned, Profiled
from cockpit.base.gate import read
from cockpit.config import Quotas
from cockpit.core.profile.collection import DONE, Collection, RankResult
from cockpit.core.profile.reader import read as read_collection
from cockpit.core.run.event_table import TABLE
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.core.stacks.snapshot import Place
from cockpit.engine.profile import known, taking
from cockpit.engine.profile.choose import Known, Plan, Wish, choose
from cockpit.engine.profile.store import MAIN, Store
from cockpit.engine.profile.taking import Taking, fact_of
from cockpit.engine.stacks.ask import RankProcess
from cockpit.errors import CockpitError
from cockpit.transport.base import LinkError
from tests.waiting import soon

STEP_S = 0.1
FRONT = 100

NODES = ((1, [0, 1]), (2, [2, 3]))

Part = tuple[dict[str, Any], bytes]


def summary(rank: int, first: int, steps: int, **more: Any) -> dict[str, Any]:
    """What a node says of a rank's trace."""
    return {
        "rank": rank,
        "device": "cpu",
        "backend": "gloo",
        "steps": [[first + each, 10**18, 10**8, 0, 9, 0, 0, 0, [-1] * 4] for each in range(steps)],
        "operations": [["aten::mm\x1b[2J", "compute", 5, 1]],
        "events": 1000 * steps,
        "file": f"r.gpu01.rank-{rank}.torch.trace.json.gz",
        "size": 1000,
        "sha256": "0" * 64,
        **more,
    }


def done(rank: int, told: Any, **more: Any) -> Part:
    """The last part of a rank."""
    data = told if isinstance(told, bytes) else zlib.compress(json.dumps(told).encode())
    file = f"r.gpu01.rank-{rank}.torch.trace.json.gz"
    return {"rank": rank, "state": "done", "t": 1000.0, "file": file, "size": 1000, **more}, data


class FakeStream:
    """What a node sends; an exception is raised, None is the end of the answer."""

    def __init__(self, parts: Sequence[Part | Exception], kind: type[Any], *, goes_on: bool = False) -> None:
        self.queue: asyncio.Queue[Part | Exception | None] = asyncio.Queue()
        self.kind = kind
        self.cancelled = self.closed = False
        self.on_cancel: Sequence[Part] = ()
        for part in parts:
            self.queue.put_nowait(part)
        if not goes_on:
            self.queue.put_nowait(None)

    async def part(self, within_s: float) -> tuple[Any, bytes] | None:
        try:
            told = await asyncio.wait_for(self.queue.get(), within_s)
        except asyncio.TimeoutError:
            raise LinkError(f"no answer within {within_s:g} s", where="gpu01") from None
        if isinstance(told, Exception):
            raise told
        return told and (read(self.kind, told[0]), told[1])

    async def cancel(self) -> None:
        self.cancelled = True
        for part in self.on_cancel:
            self.queue.put_nowait(part)
        self.queue.put_nowait(None)

    async def close(self) -> None:
        self.closed = True


class FakeNode:
    """A node with two ranks.

    :param sends: makes the parts of its answer of the request
    """

    def __init__(
        self,
        ranks: Sequence[int],
        sends: Callable[[verbs.Profile], Sequence[Part | Exception]],
        *,
        goes_on: bool = False,
        ahead_s: float = 0.0,
        windows: Sequence[dict[str, Any]] | None = None,
        steps: Mapping[int, float] | None = None,
    ) -> None:
        self.ranks = ranks
        self.clock = SimpleNamespace(offset_s=ahead_s, rtt_s=0.01)
        self.lost: asyncio.Future[CockpitError] = asyncio.get_running_loop().create_future()
        self.hello = SimpleNamespace(machine="x86_64")
        self.node = "gpu01"
        self.asked: list[Any] = []
        self.streams: list[FakeStream] = []
        self.environ: dict[str, str] = {}
        self.windows = windows
        self._sends = sends
        self._goes_on = goes_on
        self._steps = steps or {}

    async def call(self, request: Any, data: bytes = b"", deadline_s: float = 60) -> Any:
        self.asked.append(request)
        if isinstance(request, verbs.Spy):
            return SpyAnswer(True)
        if isinstance(request, verbs.Environ):
            return EnvironAnswer(self.environ)
        assert isinstance(request, verbs.Window)
        counts = request.kind == "torch"
        usual = [
            {"rank": rank, **({"step": FRONT, "age_s": 0.05, "step_s": STEP_S} if counts else {})}
            for rank in self.ranks
        ]
        told = usual if self.windows is None else self.windows
        return read(WindowAnswer, {"ranks": told, "free": 10**12})

    async def stream(self, request: Any) -> FakeStream:
        self.asked.append(request)
        if isinstance(request, verbs.Samples):
            last = max(self._steps, default=0)
            steps = [[step, 1000.0 + step * STEP_S, took] for step, took in self._steps.items()]
            told = {"source": "optimizer", "step": last, "age_s": 0.0, "steps": steps}
            ranks = {str(rank): {"progress": told} for rank in self.ranks} if steps else {}
            stream = FakeStream([({"node": {}, "ranks": ranks}, b"")], SamplesItem)
        else:
            parts = self._sends(request)
            for part in parts:
                if isinstance(part, LinkError):
                    self.lost.set_result(part)
            stream = FakeStream(parts, ProfileItem, goes_on=self._goes_on)
        self.streams.append(stream)
        return stream


class FakeJob:
    """A job on made-up nodes."""

    title = run = "otter"
    command = "cockpit stacks otter"
    twice: Mapping[int, str] = {}

    def __init__(self, nodes: Mapping[str, FakeNode | CockpitError], *, folder: str = "/run") -> None:
        self._nodes = nodes
        self._folder = folder
        self.nodes = list(nodes)
        self.gone: dict[int, str] = {}

    def places(self) -> dict[int, Place]:
        return {
            rank: Place(name, why=self.gone.get(rank, ""))
            for at, name in enumerate(self.nodes)
            for rank in (2 * at, 2 * at + 1)
        }

    async def refresh(self) -> None:
        pass

    def folder(self, node: str) -> str:
        return self._folder

    async def link(self, node: str) -> Any:
        found = self._nodes[node]
        if isinstance(found, CockpitError):
            raise found
        return found

    async def targets(self, node: str, link: Any) -> list[RankProcess]:
        return [RankProcess(rank, 1000 + rank, 7) for rank in link.ranks if rank not in self.gone]


def well(asked: verbs.Profile) -> list[Part | Exception]:
    """A node that does it."""
    parts: list[Part | Exception] = []
    for target in asked.targets:
        parts += [
            ({"rank": target.rank, "state": "ready", "step": FRONT + 1}, b""),
            ({"rank": target.rank, "state": "profiling", "step": asked.first, "t": 1000.0}, b""),
            done(target.rank, summary(target.rank, asked.first, asked.steps)),
        ]
    return parts


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes between what ranks answer and the choice of steps."""
    monkeypatch.setattr(
        "cockpit.engine.profile.taking.choose", lambda wish, met, known, now: choose(wish, met, known, met.at)
    )


def taken(
    folder: Path,
    scene: Callable[[], FakeJob],
    wish: Wish | None = None,
    else_known: Known | None = None,
    then: Callable[[Taking, FakeJob], Any] | None = None,
) -> tuple[Collection, FakeJob, Taking]:
    """Take one."""

    async def play() -> tuple[Collection, FakeJob, Taking]:
        job: Any = scene()
        one = Taking(job, wish or Wish(), Store(folder), lambda: else_known or Known(), quotas=Quotas())
        task = asyncio.create_task(one.take())
        if then is not None:
            await then(one, job)
        return await task, job, one

    return asyncio.run(play())


def two(**more: Any) -> FakeJob:
    """Two healthy nodes."""
    return FakeJob({"gpu01": FakeNode([0, 1], well, **more), "gpu02": FakeNode([2, 3], well, **more)})


@pytest.mark.usefixtures("at_once")
def test_the_same_steps_on_all_ranks(tmp_path: Path) -> None:
    steps = dict.fromkeys(range(90, 200), 0.1)
    one, job, _ = taken(tmp_path, lambda: two(steps=steps))
    assert (one.number, one.kind, one.steps, one.missing, one.apart_s) == (1, "torch", 5, {}, 0.0)
    asked = [each for node in job._nodes.values() for each in node.asked if isinstance(each, verbs.Profile)]  # type: ignore[union-attr]
    assert len({(each.first, each.steps, each.collection) for each in asked}) == 1
    # Told, and warmed up, before it begins: a second of steps of 0.1 s, and two more.
    assert FRONT + 12 <= asked[0].first <= FRONT + 16
    assert [each.rank for each in asked[1].targets] == [2, 3]
    assert (one.before, one.during, one.after) == pytest.approx((0.1, 0.1, 0.1))
    found = Store(tmp_path).load(1)
    assert found == one
    assert found.results[0].summary is not None
    assert found.results[0].summary.node == "gpu01"
    assert "\x1b" not in found.results[0].summary.operations[0].name


def test_what_was_prepared_a_while_ago_begins_ahead_of_the_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "FRESH_S", 0.0)

    async def scene() -> tuple[Plan, Collection]:
        job: Any = two()
        one = Taking(job, Wish(), Store(tmp_path), quotas=Quotas())
        plan = await one.prepare()
        for node in job._nodes.values():
            node.windows = [{"rank": rank, "step": 500, "age_s": 0.0, "step_s": 0.1} for rank in node.ranks]
        return plan, await one.take()

    plan, one = asyncio.run(scene())

    async def stalls() -> None:
        job: Any = two()
        late = Taking(job, Wish(), Store(tmp_path), quotas=Quotas())
        await late.prepare()
        for node in job._nodes.values():
            node.windows = [{"rank": rank, "step": 500, "age_s": 99.0} for rank in node.ranks]
        await late.take()

    with pytest.raises(CockpitError, match="no step for 99 s"):
        asyncio.run(stalls())
    assert Store(tmp_path).numbers() == [1], "nothing is left of what did not begin"
    assert plan.first is not None
    assert one.first is not None
    assert plan.first < 200
    assert one.first > 500


def test_times_are_on_our_clock(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        return FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": FakeNode([2, 3], well, ahead_s=-0.25)})

    one, _, _ = taken(tmp_path, scene)
    assert one.apart_s == pytest.approx(0.25)
    assert one.offsets == {"gpu01": 0.0, "gpu02": -0.25}


@pytest.mark.usefixtures("at_once")
def test_what_it_costs_is_said(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        return two(
            steps={
                # It has become slow a while before: what counts are the steps directly before.
                step: 0.05 if step < 105 else 0.1 if step < 112 else 0.13 if step < 120 else 0.11
                for step in range(80, 150)
            }
        )

    one, _, _ = taken(tmp_path, scene)
    assert one.first is not None
    assert (one.before, one.during, one.after) == pytest.approx((0.1, 0.13, 0.11))


def test_what_is_all_here_is_not_cancelled_while_later_steps_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> Collection:
        job: Any = two()
        one = Taking(job, Wish(), Store(tmp_path), quotas=Quotas())
        timed = asyncio.Event()

        async def times(plan: Plan) -> None:
            timed.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(one, "_times", times)
        task = asyncio.create_task(one.take())
        await timed.wait()
        one.cancel("cancelled by Ctrl-C")
        return await task

    one = asyncio.run(scene())
    assert (one.cancelled, one.missing, one.after) == ("", {}, None)
    assert Store(tmp_path).load(1) == one


def test_a_node_that_is_lost_costs_its_own_ranks_alone(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        def half(asked: verbs.Profile) -> list[Part | Exception]:
            file = "r.gpu02.rank-3.torch.trace.json.gz"
            written: Part = ({"rank": 3, "state": "written", "t": 1000.0, "file": file, "size": 7}, b"")
            return [*well(asked)[:3], written, LinkError("no answer within 15 s", where="gpu02")]

        return FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": FakeNode([2, 3], half)})

    one, _, _ = taken(tmp_path, scene)
    assert one.missing == {3: "connection lost: no answer within 15 s; its file is on the node"}
    assert Store(tmp_path).load(1).results[2].summary is not None


def test_a_node_that_does_not_answer_is_left_out(tmp_path: Path) -> None:
    one, _, _ = taken(
        tmp_path, lambda: FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": CockpitError("refused")})
    )
    assert one.missing == {2: "refused", 3: "refused"}


def test_ranks_that_cannot_or_will_not(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        def late(asked: verbs.Profile) -> list[Part | Exception]:
            assert [each.rank for each in asked.targets] == [0, 1]
            return [
                ({"rank": 0, "state": "missed"}, b""),
                ({"rank": 1, "state": "refused", "what": "nsys is in its environment"}, b""),
            ]

        job = FakeJob({"gpu01": FakeNode([0, 1], late), "gpu02": FakeNode([2], well)})
        job.gone[3] = "exited 3"
        return job

    one, _, _ = taken(tmp_path, scene)
    assert one.missing == {
        0: "the first step had already begun when the order arrived",
        1: "nsys is in its environment",
        3: "exited 3",
    }


def test_one_that_all_ranks_refuse_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another profile is under way; nor is it, for a moment, one that is over: others note those."""
    kept: list[Collection] = []
    save = Store.save

    def keep(store: Store, one: Collection) -> None:
        kept.append(one)
        save(store, one)

    monkeypatch.setattr(Store, "save", keep)

    def refuses(asked: verbs.Profile) -> list[Part | Exception]:
        what = "another profile of it is running"
        return [({"rank": each.rank, "state": "refused", "what": what}, b"") for each in asked.targets]

    taken(tmp_path, two)
    kept.clear()
    with pytest.raises(CockpitError, match="no rank can be profiled with torch: ranks 0-3: another profile"):
        taken(tmp_path, lambda: FakeJob({f"gpu0{at}": FakeNode(own, refuses) for at, own in NODES}))
    assert kept
    assert not any(all(map(taking.is_over, one.results.values())) for one in kept)
    assert Store(tmp_path).begun() == [1]


def test_without_a_probe_py_spy_looks(tmp_path: Path) -> None:
    def folded(asked: verbs.Profile) -> list[Part | Exception]:
        assert (asked.kind, asked.seconds, asked.rate) == ("cpu", 10.0, 20)
        text = zlib.compress(b"main (a.py:1);step\x1b (b.py:2) 7\n")
        return [
            ({"rank": each.rank, "state": "done", "t": 5.0, "samples": 7, "rate": 20}, text)
            for each in asked.targets
        ]

    def scene() -> FakeJob:
        return FakeJob({"gpu01": FakeNode([0, 1], folded)}, folder="")

    one, job, _ = taken(tmp_path, scene)
    assert (one.kind, one.seconds, one.first, one.missing) == ("cpu", 10.0, None, {})
    assert isinstance(job._nodes["gpu01"].asked[0], verbs.Spy)  # type: ignore[union-attr]
    found = Store(tmp_path).load(1).results[1]
    assert (found.folded, found.samples) == ("main (a.py:1);step\\x1b (b.py:2) 7", 7)


def test_a_cancel_reaches_all_nodes_and_what_has_come_stays(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        def first(asked: verbs.Profile) -> list[Part | Exception]:
            return well(asked)[:4]

        return FakeJob(
            {"gpu01": FakeNode([0, 1], first, goes_on=True), "gpu02": FakeNode([2, 3], first, goes_on=True)}
        )

    async def then(one: Taking, job: FakeJob) -> None:
        await soon(lambda: one.over == 2)
        for node in job._nodes.values():
            assert isinstance(node, FakeNode)
            node.streams[-1].on_cancel = [({"rank": node.ranks[1], "state": "cancelled"}, b"")]
        one.cancel("Ctrl-C")

    one, job, _ = taken(tmp_path, scene, then=then)
    assert one.cancelled == "Ctrl-C"
    assert one.missing == {1: "cancelled", 3: "cancelled"}
    assert all(node.streams[-1].cancelled and node.streams[-1].closed for node in job._nodes.values())  # type: ignore[union-attr]
    assert Store(tmp_path).load(1) == one


def test_a_node_that_does_not_confirm_a_cancel_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "CONFIRM_S", 0.05)

    class Deaf(FakeStream):
        async def cancel(self) -> None:
            self.cancelled = True

    class DeafNode(FakeNode):
        async def stream(self, request: Any) -> FakeStream:
            self.streams.append(Deaf([], ProfileItem, goes_on=True))
            return self.streams[-1]

    async def then(one: Taking, job: FakeJob) -> None:
        await soon(lambda: one._streams)
        one.cancel("Ctrl-C")

    one, _, _ = taken(tmp_path, lambda: FakeJob({"gpu01": DeafNode([0, 1], well)}), then=then)
    assert one.missing[0] == "Ctrl-C; its node has not confirmed"


def recorded(asked: verbs.Profile) -> list[Part | Exception]:
    """A node that records with nsys."""
    parts: list[Part | Exception] = []
    for state, size in (("starting", 0), ("profiling", 0), ("writing", 10), ("importing", 20)):
        t = 0.0 if state == "starting" else 1000.0 + asked.targets[0].rank / 10
        parts += [
            ({"rank": target.rank, "state": state, "t": t, "size": size, "step": FRONT}, b"")
            for target in asked.targets
        ]
    file = f"r.n{asked.targets[0].rank}.nsys.{asked.collection}.nsys-rep"
    return [
        *parts,
        *(
            ({"rank": target.rank, "state": "done", "file": file, "size": 30, "what": "all in it"}, b"")
            for target in asked.targets
        ),
    ]


def two_ready() -> FakeJob:
    """Two nodes on which nsys is ready."""
    windows = {
        at: [{"rank": rank, "step": FRONT, "age_s": 0.0, "step_s": STEP_S} for rank in (at, at + 1)]
        for at in (0, 2)
    }
    return FakeJob({f"gpu0{at}": FakeNode([at, at + 1], recorded, windows=windows[at]) for at in (0, 2)})


def test_nsys_records_whole_nodes(tmp_path: Path) -> None:
    one, job, _ = taken(tmp_path, two_ready, Wish("nsys", frozenset({1, 2}), steps=2))
    assert (one.kind, one.steps, one.missing, sorted(one.results)) == ("nsys", 2, {}, [0, 1, 2, 3])
    asked = [each for node in job._nodes.values() for each in node.asked if isinstance(each, verbs.Profile)]  # type: ignore[union-attr]
    assert [[target.rank for target in each.targets] for each in asked] == [[0, 1], [2, 3]]
    assert len({(each.kind, each.first, each.steps, each.collection) for each in asked}) == 1
    assert one.apart_s == pytest.approx(0.2)
    assert Store(tmp_path).load(1) == one
    reading = read_collection(one)
    assert [row.rank for row in reading.files] == [0, 2]
    assert reading.finding.evidence == ("its starts were 0.20 s apart",)
    only, _, _ = taken(tmp_path, two_ready, Wish("nsys", frozenset({3}), seconds=2.0))
    assert sorted(only.results) == [2, 3]
    assert (only.first, only.seconds) == (None, 2.0)
    assert fact_of(only).profiler == "nsys"
    default, _, _ = taken(tmp_path, two_ready, else_known=Known(ready=True))
    assert default.kind == "nsys"


def test_a_report_without_a_name_is_none(tmp_path: Path) -> None:
    def nameless(asked: verbs.Profile) -> list[Part | Exception]:
        return [({"rank": target.rank, "state": "done"}, b"") for target in asked.targets]

    def scene() -> FakeJob:
        windows = [{"rank": rank, "step": FRONT, "age_s": 0.0, "step_s": STEP_S} for rank in (0, 1)]
        return FakeJob({"gpu01": FakeNode([0, 1], nameless, windows=windows)})

    one, _, _ = taken(tmp_path, scene, Wish("nsys"))
    assert one.missing == {0: "its report has no name", 1: "its report has no name"}


LIES: dict[str, tuple[Callable[[verbs.Profile], list[Part | Exception]], str]] = {
    "another node's rank": (lambda asked: [done(0, summary(0, asked.first, 5))], "not requested"),
    "a rank twice": (lambda asked: [*well(asked)[:3], *well(asked)[:3]], "not requested"),
    "no such state": (lambda asked: [({"rank": 2, "state": "fine\x1b"}, b"")], "sent a profile that is"),
    "bytes before the end": (lambda asked: [({"rank": 2, "state": "ready"}, b"x")], "sent a profile that is"),
    "a path": (lambda asked: [({"rank": 2, "state": "ready", "file": "../x"}, b"")], "no file can have"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_costs_its_own_ranks_alone(lie: str, tmp_path: Path) -> None:
    sends, said = LIES[lie]
    one, _, _ = taken(
        tmp_path, lambda: FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": FakeNode([2, 3], sends)})
    )
    assert said in one.missing[3]
    assert "\x1b" not in one.missing[3]
    assert not {0, 1} & set(one.missing)


def _packed(value: Any) -> bytes:
    return zlib.compress(value if isinstance(value, bytes) else json.dumps(value).encode())


BROKEN: dict[str, tuple[Callable[[int], bytes], str]] = {
    "not compressed": (lambda first: b"{}", "not compressed"),
    "cut off": (lambda first: _packed(summary(2, first, 5))[:-9], "truncated"),
    "a bomb": (lambda first: _packed(b" " * (64 << 20)), "more than 4 MiB"),
    "no JSON": (lambda first: _packed(b"[" * 100_000), "not JSON"),
    "not a summary": (lambda first: _packed([1]), "expected an object"),
    "another rank's": (lambda first: _packed(summary(0, first, 5)), "it is of rank 0"),
    "other steps": (lambda first: _packed(summary(2, first - 1, 5)), "it is of step"),
    "deep": (lambda first: _packed(b'{"a":' * 900 + b"1" + b"}" * 900), "nested too deep"),
    "too many": (lambda first: _packed(summary(2, first, 5, operations=[{}] * 1000)), "at most 300 entries"),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_summary_that_makes_no_sense_costs_its_own_rank_alone(damage: str, tmp_path: Path) -> None:
    makes, said = BROKEN[damage]

    def sends(asked: verbs.Profile) -> list[Part | Exception]:
        return [done(2, makes(asked.first)), done(3, summary(3, asked.first, asked.steps))]

    one, _, _ = taken(
        tmp_path, lambda: FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": FakeNode([2, 3], sends)})
    )
    assert list(one.missing) == [2]
    assert said in one.missing[2]
    assert one.results[2].state == "failed"


def test_windows_of_other_nodes_ranks_are_not_believed(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        far = [{"rank": rank, "step": 10**9, "age_s": 0.0, "step_s": STEP_S} for rank in (0, 2)]
        return FakeJob({"gpu01": FakeNode([0, 1], well), "gpu02": FakeNode([2, 3], well, windows=far[:1])})

    one, _, _ = taken(tmp_path, scene)
    assert one.first is not None
    assert one.first < 1000
    assert one.missing == {2: "no status from its node", 3: "no status from its node"}


def test_a_job_that_gives_collectives_up_sooner_is_asked(tmp_path: Path) -> None:
    def scene() -> FakeJob:
        job = two()
        for node in job._nodes.values():
            assert isinstance(node, FakeNode)
            node.environ = {"DEEPSPEED_TIMEOUT": "1"}
        return job

    with pytest.raises(CockpitError, match="more than a tenth of the 60 s"):
        taken(tmp_path, scene, Wish(steps=100))


@pytest.mark.parametrize("minutes", ["9" * 400, "-1", "0", "nan", "\x1b[2J"])
def test_a_node_whose_time_limit_is_none_prevents_nothing(minutes: str, tmp_path: Path) -> None:
    def scene() -> FakeJob:
        job = two()
        for node in job._nodes.values():
            assert isinstance(node, FakeNode)
            node.environ = {"DEEPSPEED_TIMEOUT": minutes}
        return job

    assert not taken(tmp_path, scene)[0].missing


def test_stacks_without_end_cost_their_own_rank_alone(tmp_path: Path) -> None:
    def sends(asked: verbs.Profile) -> list[Part | Exception]:
        return [done(0, zlib.compress(b"ab\n" * (5 << 20))), done(1, zlib.compress(b"f (x:1) 3\n"))]

    one, _, _ = taken(tmp_path, lambda: FakeJob({"gpu01": FakeNode([0, 1], sends)}), Wish("cpu", seconds=1))
    assert list(one.missing) == [0]
    assert "more than 20,000 stacks" in one.missing[0]


def test_twice_in_a_row(tmp_path: Path) -> None:
    for number in (1, 2):
        assert taken(tmp_path, two)[0].number == number
    assert Store(tmp_path).numbers() == [1, 2]


def test_the_oldest_go(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for number in range(1, 4):
        assert store.begin(Quotas(profiles=2)) == number
    assert store.begun() == [2, 3]


def test_a_folder_alone_is_no_profile(tmp_path: Path) -> None:
    taken(tmp_path, two)
    (tmp_path / "2").mkdir()
    store = Store(tmp_path)
    assert (store.numbers(), store.begun()) == ([1], [1, 2])
    with pytest.raises(CockpitError, match="no profile 2; it has 1"):
        store.load(2)
    assert taken(tmp_path, two)[0].number == 3


def test_nothing_is_ordered_where_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    def scene() -> FakeJob:
        return two()

    with pytest.raises(CockpitError, match="cannot make"):
        taken(tmp_path / "file" / "profiles", scene)


def test_damage_here_costs_one_rank(tmp_path: Path) -> None:
    taken(tmp_path, two)
    (tmp_path / "1" / "rank-0.json.gz").write_bytes(b"no")
    (tmp_path / "1" / "rank-2.json.gz").unlink()
    found = Store(tmp_path).load(1)
    assert set(found.missing) == {0, 2}
    assert found.missing[2].startswith("its file here cannot be read: No such file")


def test_a_collection_that_is_damaged_or_absent(tmp_path: Path) -> None:
    store = Store(tmp_path / "run" / "profiles")
    with pytest.raises(CockpitError, match="there is no profile"):
        store.load(1)
    taken(tmp_path / "run" / "profiles", two)
    with pytest.raises(CockpitError, match="no profile 7; it has 1"):
        store.load(7)
    main = store.folder(1) / MAIN
    told = json.loads(main.read_text())
    main.write_text(json.dumps({**told, "format": 99, "version": "9"}))
    with pytest.raises(CockpitError, match="newer"):
        store.load(1)
    main.write_text(json.dumps({**told, "kind": "other"}))
    with pytest.raises(CockpitError, match="is damaged"):
        store.load(1)
    assert store.heads() == []


def test_a_full_disk_here_is_said_and_costs_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Store.save

    def full(store: Store, one: Collection) -> None:
        if any(result.state == DONE for result in one.results.values()):
            raise CockpitError("cannot be written: No space left on device")
        save(store, one)

    monkeypatch.setattr(Store, "save", full)
    one, _, took = taken(tmp_path, two)
    assert one.missing == {}
    assert "No space left" in took.trouble
    assert Store(tmp_path).head(1).id == one.id


def test_who_watches_notes_profiles_of_others_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "LOOK_S", 0.01)
    noted: list[Profiled] = []
    model = RunModel()
    model.profiles[1] = (0.0, Profiled(1, "x", "torch"))
    store = Store(tmp_path / "profiles")
    for _ in (1, 2):
        taken(store.root, two)
    begun = store.begin(Quotas())
    one = store.head(2)
    store.save(replace(one, number=begun, results={0: RankResult(0, "gpu01", "profiling")}))

    async def scene() -> None:
        tasks: list[asyncio.Task[None]] = []
        session: Any = SimpleNamespace(
            folder=SimpleNamespace(path=tmp_path),
            model=model,
            note=lambda name, fact: noted.append(fact),
            act=lambda make, what: tasks.append(asyncio.create_task(make())),
        )
        known.note_profiles(session)
        await soon(lambda: noted)
        store.save(replace(one, number=begun))
        await soon(lambda: len(noted) > 1)
        tasks[0].cancel()

    asyncio.run(scene())
    assert [(fact.number, fact.ranks, fact.missing) for fact in noted] == [
        (2, (0, 1, 2, 3), ()),
        (3, (0, 1, 2, 3), ()),
    ]


def test_profiles_that_were_forgotten_are_not_noted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota may keep more of them than a run remembers; each was noted when it was new."""
    monkeypatch.setattr("cockpit.core.run.states.PROFILES", 2)
    monkeypatch.setattr("cockpit.core.run.event_table.PROFILES", 2)
    monkeypatch.setattr(known, "LOOK_S", 0.01)
    store = Store(tmp_path / "profiles")
    for _ in range(4):
        taken(store.root, two)
    journal: list[Event] = []

    async def attach() -> None:
        model, looked, numbers = RunModel.of(journal), list[int](), Store(store.root).numbers

        def look() -> list[int]:
            looked.append(1)
            return numbers()

        monkeypatch.setattr(store, "numbers", look)
        tasks: list[asyncio.Task[None]] = []

        def note(name: str, fact: Any) -> None:
            journal.append(Event(1.0, "", fact))
            model.apply(journal[-1])

        session: Any = SimpleNamespace(
            folder=SimpleNamespace(path=tmp_path),
            model=model,
            note=note,
            act=lambda make, what: tasks.append(asyncio.create_task(make())),
        )
        monkeypatch.setattr(known, "store_of", lambda folder: store)
        known.note_profiles(session)
        await soon(lambda: len(looked) > 2)
        tasks[0].cancel()
        assert list(model.profiles) == [3, 4]

    for _ in (1, 2):
        asyncio.run(attach())
    assert [event.fact.number for event in journal if isinstance(event.fact, Profiled)] == [1, 2, 3, 4]


def test_what_the_model_and_people_are_told() -> None:
    model = RunModel.of([Event(0.0, "", Planned({"gpu01": (0, 1, 2)}))])
    said: set[str] = set()
    fact = Profiled(3, "x", "torch", (0, 1), (2,), 812, 5, cancelled="cancelled by Ctrl-C")
    entry = TABLE[Profiled].tell
    assert entry is not None
    model.apply(Event(5.0, "", fact))
    assert model.profiles == {3: (5.0, fact)}
    told = entry(model, said, "", 5.0, fact)
    assert told is not None
    assert (told.text, told.level) == (
        "profile 3: torch, steps 812-816, ranks 0-1; missing: rank 2; cancelled by Ctrl-C",
        "warning",
    )
    told = entry(model, said, "", 5.0, Profiled(4, "y", "cpu", (0,), seconds=10.0))
    assert told is not None
    assert (told.text, told.level) == ("profile 4: cpu, 10 s, rank 0", "info")
