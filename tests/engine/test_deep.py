"""The torch test on a simulated cluster: who is asked what, and that nothing is left, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from cockpit.base import verbs
from cockpit.base.answers import ResolveAnswer
from cockpit.base.checkup_answers import ReachAnswer
from cockpit.base.rehearsal_answers import RehearseItem, TrialAnswer, TrialItem
from cockpit.core.doctor.deep import Rehearsed, found
from cockpit.core.doctor.node_checks import Looks
from cockpit.engine import deep as engine
from cockpit.engine.deep import Deep, rehearse
from cockpit.engine.doctor import Wanted
from cockpit.engine.links.pool import LinkPool
from cockpit.engine.links.roll import Roll
from cockpit.plans.launch import LaunchJob
from cockpit.plans.nodes.hostfile import Host
from cockpit.transport.base import LinkError
from tests.core.doctored import GB, NODES, condition, facts, looks
from tests.waiting import soon

BLIND = condition(gpus=())
"""Nodes without GPUs: gloo."""


@dataclass
class Cluster:
    """Nodes that would do what torch does.

    :param links: pairs that fail together
    :param dropped: a port that nobody can connect to
    :param slow: pairs that are slow, with how often they are until they are not
    :param fails: why no torch starts on a node
    :param hangs: nodes whose ranks never answer
    :param imports: nodes that import torch for ever
    :param lost: nodes without a link once torch is imported
    """

    links: set[frozenset[str]] = field(default_factory=set)
    dropped: int = 0
    slow: dict[frozenset[str], int] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    nccl: bool = False
    gpus: dict[tuple[str, int], bool] = field(default_factory=dict)
    """GPUs that fail with any other of their node."""
    open: int = 0
    """Streams that nobody has closed."""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    breaks: bool = False
    """Ranks fail while they are measured."""
    ports: int = 40000
    meetings: dict[int, dict[int, tuple[str, int]]] = field(default_factory=dict)
    full: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def at_hand(self, name: str) -> Any:
        return _Link(self, name)

    def pool(self) -> LinkPool:
        made: Any = SimpleNamespace(at_hand=self.at_hand, roll=Roll())
        return made  # type: ignore[no-any-return]

    def of(self, kind: type[Any]) -> list[tuple[str, Any]]:
        """What was asked of this kind, of whom."""
        return [(name, request) for name, request in self.asked if isinstance(request, kind)]

    def works(self, members: list[tuple[str, int]]) -> bool:
        there = {name for name, _ in members}
        bad_gpu = len(members) > 1 and any(self.gpus.get(member, False) for member in members)
        return not any(link <= there for link in self.links) and not bad_gpu


@dataclass
class _Link:
    cluster: Cluster
    name: str

    @property
    def hello(self) -> Any:
        return SimpleNamespace(boot_id=self.name)

    async def call(self, request: Any, data: bytes = b"", *, deadline_s: float = 60) -> Any:
        if self.name in self.cluster.lost:
            raise LinkError("link is down", where=self.name)
        if isinstance(request, verbs.Resolve):
            return ResolveAnswer((f"10.0.0.{NODES.index(request.name) + 1}",), ())
        assert isinstance(request, verbs.Reach)
        return ReachAnswer("no answer within 8 s" if request.port == self.cluster.dropped else "")

    async def stream(self, request: Any) -> _Stream:
        self.cluster.asked.append((self.name, request))
        self.cluster.open += 1
        return _Stream(self.cluster, self.name, request)


@dataclass
class _Stream:
    cluster: Cluster
    name: str
    request: Any
    closed: bool = False
    answer: TrialAnswer | None = None

    async def parts(self) -> AsyncIterator[tuple[Any, bytes]]:
        cluster = self.cluster
        if isinstance(self.request, verbs.Rehearse):
            if self.name in cluster.fails:
                raise LinkError(cluster.fails[self.name], where=self.name)
            if self.name not in cluster.imports:
                yield RehearseItem("2.13.0", nccl=cluster.nccl), b""
            await asyncio.Event().wait()
        if self.name in cluster.lost:
            raise LinkError("link is down", where=self.name)
        asked: verbs.Trial = self.request
        port = asked.port
        if asked.rank == 0:
            cluster.ports += 1
            port = asked.port or cluster.ports
            cluster.meetings[port] = {}
            yield TrialItem("gather", port), b""
        meeting = cluster.meetings[port]
        meeting[asked.rank] = self.name, asked.gpu
        async with cluster.full:
            cluster.full.notify_all()
            await cluster.full.wait_for(lambda: len(meeting) == asked.world)
        if self.name in cluster.hangs:
            await asyncio.Event().wait()
        members = [meeting[rank] for rank in range(asked.world)]
        if not cluster.works(members) or (cluster.breaks and asked.peers):
            self.answer = TrialAnswer("connect", "timed out", f"10.0.0.{asked.rank}", "eno1")
            return
        rates = [
            None if peer <= asked.rank else self._rate(frozenset((self.name, members[peer][0])))
            for peer in asked.peers
        ]
        self.answer = TrialAnswer("done", "", f"10.0.0.{asked.rank}", "eno1", rates=tuple(rates))

    def _rate(self, pair: frozenset[str]) -> float:
        left = self.cluster.slow.get(pair, 0)
        self.cluster.slow[pair] = left - 1
        return 1e8 if left > 0 else 1e9

    async def result(self) -> TrialAnswer:
        assert self.answer
        return self.answer

    async def close(self) -> None:
        self.cluster.open -= not self.closed
        self.closed = True


def done(cluster: Cluster, seen: Looks | None = None, deep: Deep | None = None, **job: Any) -> Rehearsed:
    """All of it; nothing may be left open."""
    seen = seen or looks(dict.fromkeys(range(1, 9), BLIND))
    wanted = Wanted(LaunchJob("doctor", tuple(Host(name, (0,)) for name in NODES), ("true",), "/", **job))
    made = asyncio.run(rehearse(cluster.pool(), seen, wanted, deep or Deep(), lambda text: None))
    assert cluster.open == 0
    return made


def ids(made: Rehearsed) -> dict[str, tuple[str, ...]]:
    return {one.id: one.nodes for one in found(made)}


def test_all_is_well_and_everybody_is_measured_with_everybody() -> None:
    cluster = Cluster()
    made = done(cluster)
    assert ids(made) == {}
    assert len(made.rates) == 28
    assert [len(attempt.group) for attempt in made.attempts] == [8, 8]
    assert {answer.interface for answer in made.took().values()} == {"eno1"}
    assert all(
        request.env["NCCL_DEBUG"] for _, request in cluster.asked if isinstance(request, verbs.Rehearse)
    )


def test_one_bad_link() -> None:
    made = done(Cluster(links={frozenset(("gpu02", "gpu07"))}))
    assert ids(made) == {"deep_link": ("gpu02", "gpu07")}
    assert len(made.rates) == 15, "those that work are measured all the same"


def test_a_named_interface() -> None:
    cluster = Cluster()
    seen = looks(
        {**dict.fromkeys(range(1, 9), BLIND), 3: lambda look: condition(gpus=(), network=None)(look)}
    )
    made = done(cluster, seen, Deep("eno1"))
    assert ids(made) == {"deep_no_interface": ("gpu03",)}
    started = dict(cluster.of(verbs.Rehearse))
    assert "gpu03" not in started
    assert started["gpu01"].env["GLOO_SOCKET_IFNAME"] == "eno1"
    assert started["gpu01"].env["NCCL_SOCKET_IFNAME"] == "=eno1"
    assert {request.address for _, request in cluster.asked if isinstance(request, verbs.Trial)} == {
        "10.0.0.1"
    }


def test_the_port_that_is_asked_for() -> None:
    made = done(Cluster(dropped=29500), master_port=29500)
    assert ids(made) == {"deep_port": tuple(NODES[1:])}
    assert ids(done(Cluster(), master_port=29500)) == {}


def test_no_run_is_disturbed() -> None:
    busy = replace(looks().nodes["gpu01"].condition.gpus[0], memory_bytes=80 * GB)  # type: ignore[index]
    there: Any = SimpleNamespace(ranks=(SimpleNamespace(pid=1),), others=())
    theirs: Any = SimpleNamespace(ranks=(), others=(1,))
    plants: dict[int, Callable[..., Any]] = {
        **dict.fromkeys(range(1, 9), BLIND),
        1: lambda look: replace(look, ranks=there),
        2: lambda look: replace(look, ranks=theirs),
        3: condition(gpus=(busy,)),
        4: facts(torch=None),
        5: lambda look: replace(look, ranks=None),
    }
    cluster = Cluster()
    made = done(cluster, looks(plants))
    assert list(made.out) == NODES[:5]
    assert {name for name, _ in cluster.asked} == set(NODES[5:])
    assert set(ids(made)) == {"deep_left_out"}


def test_a_node_without_a_working_torch_costs_only_itself() -> None:
    made = done(Cluster(fails={"gpu05": "ImportError: libcudart.so.12"}))
    assert ids(made) == {"deep_no_torch": ("gpu05",)}
    assert len(made.members) == 7


def test_what_is_slow_is_measured_once_more() -> None:
    pair = frozenset(("gpu01", "gpu02"))
    assert ids(done(Cluster(slow={pair: 1}))) == {}
    assert ids(done(Cluster(slow={pair: 2}))) == {"deep_slow": ("gpu01", "gpu02")}


def test_gpus_of_a_node_and_nccl() -> None:
    cluster = Cluster(nccl=True, gpus={("gpu03", 5): True})
    made = done(cluster, looks())
    assert made.backend == "nccl"
    assert [(culprit.kind, culprit.nodes) for culprit in made.culprits] == [("member", ("gpu03/5",))]
    assert ids(made) == {"deep_member": ("gpu03",)}
    assert done(Cluster(nccl=True)).backend == "gloo", "no node has a GPU"


def test_a_node_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SPARE_S", 0.0)
    monkeypatch.setattr(engine, "LEAST_TRIAL_S", 0.0)
    made = done(Cluster(hangs={"gpu06"}), deep=Deep(timeout_s=6))
    assert all("gpu06" in nodes for nodes in ids(made).values())
    assert set(ids(made)) & {"deep_lost", "deep_among"}


def test_too_little_time_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(done(Cluster(), deep=Deep(timeout_s=0.0))) == {"deep_unfinished": tuple(NODES)}
    made = done(Cluster(), deep=Deep(timeout_s=20.0))
    assert [attempt.group for attempt in made.attempts] == [tuple(NODES)]
    assert ids(made) == {"deep_unfinished": tuple(NODES)}, "they could not be measured"

    # What torch took to be imported is no fault of a node, unless it had all the time that it gets.
    slow = Cluster(imports={"gpu02"})
    made = done(slow, deep=Deep(timeout_s=0.0))
    assert (made.late, made.broken) == ({"gpu02": "torch was not imported within 1 s"}, {})
    assert {one.id: one.severity for one in found(made)} == {"deep_unfinished": "warning"}
    monkeypatch.setattr(engine, "START_S", 0.1)
    assert ids(done(slow)) == {"deep_no_torch": ("gpu02",)}


def test_what_fails_while_it_is_measured_is_told() -> None:
    assert ids(done(Cluster(breaks=True))) == {"deep_unmeasured": tuple(NODES)}


def test_a_node_that_is_lost_is_not_said_to_have_a_bad_torch() -> None:
    made = done(Cluster(lost={"gpu03"}))
    assert ids(made) == {"deep_lost": ("gpu03",)}
    assert [one.evidence for one in found(made)] == [("gpu03: link is down",)]


def test_names_of_one_machine_take_no_gpu_from_each_other() -> None:
    seen = looks({2: lambda look: replace(look, machine=looks().nodes["gpu01"].machine)})
    assert done(Cluster(nccl=True), seen).backend == "gloo"


def test_a_node_takes_part_with_a_gpu_that_works() -> None:
    cluster = Cluster(nccl=True, gpus={("gpu03", 0): True})
    made = done(cluster, looks())
    assert [culprit.nodes for culprit in made.culprits] == [("gpu03/0",)]
    last = {name: request.gpu for name, request in cluster.of(verbs.Trial)}
    assert (last["gpu02"], last["gpu03"]) == (0, 1)


def test_interrupted_it_leaves_nothing() -> None:
    cluster = Cluster(hangs={"gpu06"})
    wanted = Wanted(LaunchJob("doctor", tuple(Host(name, (0,)) for name in NODES), ("true",), "/"))

    async def main() -> None:
        seen = looks(dict.fromkeys(range(1, 9), BLIND))
        task = asyncio.create_task(rehearse(cluster.pool(), seen, wanted, Deep(), lambda text: None))
        await soon(lambda: len(cluster.of(verbs.Trial)) == 8, "all ranks are there")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert cluster.open == 0
