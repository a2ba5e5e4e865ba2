"""Work as a session learns it: what one node says of its ranks changes nothing about the others'."""

from __future__ import annotations

import asyncio
import math
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from cockpit.base.events import Planned, RankProbe, RankStarted
from cockpit.base.recorder.trace import DONE, Call, Entry, Group, Trace, lows, reduced
from cockpit.core.pace.pace import Pace
from cockpit.core.recorder.members import Memberships
from cockpit.core.recorder.merge import Recorded, look
from cockpit.core.run.events import Event
from cockpit.core.run.model import RunModel
from cockpit.engine import work_sampler as watching
from cockpit.engine.recorder import RecorderAnswers, Recorders
from cockpit.engine.run import work_unknown
from cockpit.engine.stacks.ask import Party
from cockpit.engine.work_sampler import Works
from tests.recorder.training import Training
from tests.waiting import soon


class Told:
    """Recorders of a training that has just ended, some of whose ranks say that they are on NCCL."""

    def __init__(self, nccl: int) -> None:
        run = Training(1, 4, lambda rank, *_: 60_000 if rank == 2 else 20_000)
        other = Training(1, 4, lambda rank, *_: 60_000 if rank == 2 else 20_000, backend="nccl")
        self.pace = Pace(range(4))
        steps = run.step_times()
        ahead = round(time.time() * 1e6) - max(step.end_us for some in steps.values() for step in some)
        for rank, some in steps.items():
            for step in some:
                self.pace.stepped(rank, step.number, (step.end_us + ahead) / 1e6)
        recorded = {**run.recorded(), **{rank: other.recorded()[rank] for rank in range(nccl)}}
        self.recorded = {
            rank: one._replace(
                traces=tuple(trace.shifted(ahead) for trace in one.traces), taken_us=one.taken_us + ahead
            )
            for rank, one in recorded.items()
        }

    async def look(self, since: float) -> RecorderAnswers:
        return RecorderAnswers(look(self.recorded, Memberships(4)), {}, True)


@pytest.mark.parametrize(("nccl", "lag"), [(0, False), (4, True)])
def test_on_nccl_it_is_enqueue_lag(nccl: int, lag: bool) -> None:
    told = Told(nccl)
    works = Works(cast(Recorders, told), told.pace)
    asyncio.run(works.look())
    assert told.pace.works
    assert told.pace.lags is lag
    named, other = told.pace.slow(), told.pace.late()
    assert [one.rank for one in (other if lag else named)] == [2]
    assert (named if lag else other) == []


def test_who_asks_once_knows_who_is_slow_where_nobody_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(0)
    monkeypatch.setattr(watching, "Recorders", lambda party: told)
    assert watching.unworked(running(SERVES), told.pace)
    assert not watching.unworked(running(), told.pace), "no rank has a recorder"
    asyncio.run(watching.glance_at_work(cast(Party, None), told.pace))
    assert [one.rank for one in told.pace.slow()] == [2]
    assert not watching.unworked(running(SERVES), told.pace), "ranks are not asked again and again"


def test_why_work_is_not_known_is_kept(tmp_path: Path) -> None:
    told = Told(0)

    async def looked(since: float) -> RecorderAnswers:
        recorded = {
            rank: one._replace(traces=tuple(each._replace(from_us=1 << 55) for each in one.traces))
            for rank, one in told.recorded.items()
            if rank < 3
        }
        return RecorderAnswers(look(recorded, Memberships(4)), {3: "no answer\x1b"}, True)

    told.look = looked  # type: ignore[method-assign]
    works = Works(cast(Recorders, told), told.pace, folder=tmp_path)
    asyncio.run(works.look())
    assert told.pace.unworked[3] == "no answer\x1b"
    found = work_unknown.kept(tmp_path)
    assert sorted(found) == [0, 1, 2, 3]
    assert "\x1b" not in found[3]
    assert all(found.values())
    # Once it is known, nothing is left of it.
    works.recorders = cast(Recorders, Told(0))
    asyncio.run(works.look())
    assert work_unknown.kept(tmp_path) == {}
    for data in (b"", b"[", b"[]", b'{"x": "y"}', b'{"0": 7}', b"[" * 100_000):
        (tmp_path / work_unknown.NAME).write_bytes(data)
        assert work_unknown.kept(tmp_path) == {}


def test_one_rank_that_says_nccl_does_not_hide_who_is_slow() -> None:
    told = Told(1)
    works = Works(cast(Recorders, told), told.pace)
    asyncio.run(works.look())
    assert not told.pace.lags


class Asked:
    """Recorders of four ranks, the last of which misses two collectives; counts looks at them."""

    def __init__(self) -> None:
        self.looks = 0

    async def look(self, since: float) -> RecorderAnswers:
        self.looks += 1
        now = round(time.time() * 1e6)
        call = Call(Group("gloo", "0", "default_pg"), "all_reduce", "8", 8, 8, "Float", -1)
        tops = {0: 9, 1: 9, 2: 9, 3: 7}
        entries = {
            rank: tuple(Entry(call, number, now - 10_000_000 + number, DONE) for number in range(1, top + 1))
            for rank, top in tops.items()
        }
        recorded = {
            rank: Recorded(now, (Trace("test", "2.10", rows, 0, True, lows(rows)),))
            for rank, rows in entries.items()
        }
        return RecorderAnswers(look(recorded, Memberships(4)), {}, True)


def running(*probes: RankProbe) -> RunModel:
    """A run of four ranks, some of which have a probe."""
    run = RunModel.of([Event(0.0, "", Planned({"gpu1": (0, 1, 2, 3)}))])
    for rank in range(4):
        run.apply(Event(1.0, "gpu1", RankStarted(rank, pid=7 + rank)))
    for probe in probes:
        run.apply(Event(2.0, "gpu1", probe))
    return run


class Thought(Pace):
    """Counts how often it was asked whether ranks note steps: once each time that a look is thought about."""

    times = 0

    @property
    def exact(self) -> bool:
        self.times += 1
        return super().exact


def watched(pace: Thought, run: RunModel, *, every_s: float = 0.0) -> int:
    """How often recorders are looked at until that was thought about ten times."""
    asked = Asked()
    works = Works(cast(Recorders, asked), pace, run, first_s=0.0, every_s=every_s)

    async def watch() -> None:
        task = asyncio.ensure_future(works.watch())
        await soon(lambda: pace.times >= 10, "ten times")
        task.cancel()

    asyncio.run(watch())
    return asked.looks


SERVES = RankProbe(3, 10, "2.13.0", handlers=("ping", "fr_trace_json"))


def test_recorders_are_looked_at_where_nothing_else_tells() -> None:
    pace = Thought(range(4))
    assert watched(pace, running(SERVES)) >= 9
    signs = [pace.of(rank).sign for rank in range(4)]
    assert [sign and (sign.source, sign.collectives, sign.behind) for sign in signs] == [
        *[("recorder", 9, 0)] * 3,
        ("recorder", 7, 2),
    ]
    assert watched(Thought(range(4)), running(SERVES), every_s=1000.0) == 1


@pytest.mark.parametrize(
    "probe",
    [
        None,
        RankProbe(3, 10, handlers=("ping",)),
        RankProbe(3, 10, server="no", handlers=("fr_trace_json",)),
    ],
)
def test_nobody_is_asked_who_has_no_recorder(probe: RankProbe | None) -> None:
    assert watched(Thought(range(4)), running(*[probe] if probe else [])) == 0


def test_ranks_whose_logs_tell_their_steps_are_not_asked() -> None:
    pace = Thought(range(4))
    pace.stepped(3, 5, time.time(), exact=False)
    assert watched(pace, running(SERVES)) == 0


class Going:
    """A training of which a clock that goes by hand says how far it is, watched by a session.

    :param lengths: seconds of each step of the healthy ranks; rank 2 is slow in those of ``slow_from`` on
    """

    def __init__(self, lengths: list[float], slow_from: int = 0) -> None:
        def busy(rank: int, step: int, what: str) -> int:
            share = {"data": 0.1, "forward": 0.3, "backward": 0.6}[what]
            slow = 1.5 if rank == 2 and step >= slow_from else 1.0
            return round(share * lengths[step] * slow * 1e6)

        run = Training(1, 4, busy, steps=len(lengths))
        self._recorded = run.recorded()
        self._steps = run.step_times()
        self.now = 1000.0
        self.end = max(some[-1].end_us for some in self._steps.values()) / 1e6
        self.pace = Pace(range(4))
        self.looks: list[float] = []

    def until(self, now: float) -> None:
        """Ranks go on until then, and tell of their steps."""
        for rank, some in self._steps.items():
            for step in some:
                if self.now < step.end_us / 1e6 <= now:
                    span = (step.end_us - step.begin_us) / 1e6
                    self.pace.stepped(rank, step.number, step.end_us / 1e6, span=span)
        self.now = now

    async def look(self, since: float) -> RecorderAnswers:
        self.looks.append(self.now)
        now_us = round(self.now * 1e6)
        cut = {}
        for rank, one in self._recorded.items():
            (trace,) = one.traces
            entered = trace._replace(entries=tuple(e for e in trace.entries if e.at_us <= now_us))
            cut[rank] = one._replace(
                taken_us=now_us, traces=(reduced(entered, max(0, round(since * 1e6)), 4000),)
            )
        return RecorderAnswers(look(cut, Memberships(4)), {}, True)

    def works(self, monkeypatch: pytest.MonkeyPatch) -> Works:
        """What looks at it."""

        async def sleep(seconds: float) -> None:
            if self.now > self.end:
                raise asyncio.CancelledError
            self.until(self.now + seconds)

        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(watching, "time", clock)
        monkeypatch.setattr(watching, "asyncio", SimpleNamespace(sleep=sleep, to_thread=asyncio.to_thread))
        return Works(cast(Recorders, self), self.pace)

    def known(self) -> list[int]:
        """The steps of which it is known how long all ranks worked."""
        return [step.step for step in self.pace.steps if step.works and not any(map(math.isnan, step.works))]


@pytest.mark.parametrize("length", [5, 30, 45, 75, 120, 600])
def test_however_long_steps_are_their_work_is_known(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    going = Going([float(length)] * 14)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(going.works(monkeypatch).watch())
    asyncio.run(going.works(monkeypatch).look())
    # A window of which the usual time of a step was not known yet.
    assert len(going.known()) >= 12
    assert going.pace.works
    assert [one.rank for one in going.pace.slow()] == [2]


def test_when_steps_become_longer_recorders_are_looked_at_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    going = Going([1.0] * 67 + [1.5] * 60, slow_from=67)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(going.works(monkeypatch).watch())
    changed = 1000.0 + 67
    after = next(at for at in going.looks if at > changed)
    assert after < changed + 30, "ten steps are longer by then"
    assert [one.rank for one in going.pace.slow()] == [2]
    assert min(b - a for a, b in pairwise(going.looks)) >= watching.SOON_S


def test_steps_that_differ_by_chance_make_no_more_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(1)
    going = Going([dice.uniform(0.7, 1.3) for _ in range(400)], slow_from=1000)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(going.works(monkeypatch).watch())
    gaps = [round(b - a) for a, b in pairwise(going.looks)]
    assert min(gaps[1:]) >= 60
