"""Ranks that become slow are said to be, once for each, and once that they no longer are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cockpit.core.pace.pace import Pace
from cockpit.core.run.event_table import witnessed
from cockpit.core.run.model import RunModel
from cockpit.core.run.notices.rule import About
from cockpit.core.run.notices.watch import Watch
from cockpit.core.run.notices.words import findings
from cockpit.core.run.timeline import Timeline
from tests.happened import happened

BEGAN = 1_700_000_000.0


class Trained:
    """Steps of 2 s, looked at once a second; recorders are asked as told."""

    def __init__(self, ranks: int = 16, off: tuple[str, ...] = ()) -> None:
        self.model = RunModel()
        nodes = {"gpu0": tuple(range(ranks // 2)), "gpu1": tuple(range(ranks // 2, ranks))}
        self.model.apply(happened(BEGAN, "planned", "", {"nodes": nodes}))
        for node, some in nodes.items():
            self.model.apply(happened(BEGAN, "link", node, {"state": "ok"}))
            for rank in some:
                self.model.apply(happened(BEGAN, "rank_started", node, {"rank": rank, "pid": 100 + rank}))
        self.pace, self.watch = Pace(range(ranks)), Watch(About("my run"), off)
        self.timeline = Timeline(self.model)
        self.step, self.news = 0, list[str]()

    def train(
        self, steps: int, late: Callable[[int], float] = lambda rank: 0.0, *, looked: bool = True
    ) -> list[str]:
        before = len(self.news)
        for _ in range(steps):
            self.step += 1
            for rank in self.pace.steps.ranks:
                self.pace.stepped(
                    rank, self.step, BEGAN + 2.0 * self.step, span=2.0 + max(map(late, range(16)))
                )
                if looked:
                    self.pace.worked(rank, self.step, 1.98 + late(rank))
            for second in (0, 1):
                self._see(BEGAN + 2.0 * self.step + second)
        return self.news[before:]

    def _see(self, at: float) -> None:
        for fact in self.watch.look(at, at - BEGAN, self.model, self.pace):
            event = witnessed(self.model, at, "", fact)
            self.model.apply(event)
            entry = self.timeline.tell(event)
            self.news += [entry.text] if entry else []


def only(*ranks: int) -> Callable[[int], float]:
    return lambda rank: 0.97 if rank in ranks else 0.0


def test_a_rank_is_said_to_be_slow_once_and_once_that_it_no_longer_is() -> None:
    run = Trained()
    assert run.train(40) == []
    assert run.train(60, only(13)) == ["rank 13 slow since step 41: 2.95 s, others 1.98 s"]
    (entry,) = [entry for entry in run.timeline.entries if "slow" in entry.text]
    assert (entry.node, entry.rank, entry.level) == ("gpu1", 13, "warning")
    assert run.train(60) == ["rank 13 is no longer slow"]
    assert run.train(40, only(13)) == ["rank 13 slow since step 161: 2.95 s, others 1.98 s"], (
        "another episode"
    )


def test_three_are_named_and_the_others_counted() -> None:
    run = Trained()
    run.train(20)
    news = run.train(30, only(1, 2, 3, 4, 5, 6))
    assert [line.partition(" slow since step 21")[0] for line in news] == [
        "rank 1", "rank 2", "rank 3", "3 more ranks",
    ]  # fmt: skip
    assert sorted(run.train(40)) == [
        "rank 1 is no longer slow",
        "rank 2 is no longer slow",
        "rank 3 is no longer slow",
        "the other ranks are no longer slow",
    ]


def test_between_two_looks_at_recorders_nobody_gets_fast() -> None:
    run = Trained()
    run.train(20)
    run.train(30, only(13))
    assert run.train(200, only(13), looked=False) == []


def test_that_cpus_enqueue_late_is_no_news() -> None:
    run = Trained()
    run.pace.lag = True
    assert run.train(60, only(13)) == []


@pytest.mark.parametrize("off", [(), ("slow",)])
def test_it_is_told_and_no_finding_and_can_be_switched_off(off: tuple[str, ...]) -> None:
    run = Trained(off=off)
    run.train(20)
    assert bool(run.train(30, only(13))) == (not off)
    assert findings(run.model, "my run", BEGAN + 2.0 * run.step) == []
